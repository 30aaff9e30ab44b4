"""The HTML page around a report, for `string.Template`."""

PAGE = """\
<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light">
<title>$title</title>
<style>
:root {
  --ink: #1f2933; --muted: #5b6673; --rule: #dfe4e9; --wash: #f6f7f9;
  --accent: #34558b; --good: #00694d; --bad: #b34700;
}
* { box-sizing: border-box; }
body {
  margin: 0; color: var(--ink); background: #fff; -webkit-text-size-adjust: 100%;
  font: 1rem/1.6 system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial,
    sans-serif;
}
main { max-width: 50rem; margin: 0 auto; padding: 2.5rem 1.25rem 4rem; }
h1 { font-size: 1.9rem; line-height: 1.2; letter-spacing: -0.015em; margin: 0; }
h2 { font-size: 1.2rem; line-height: 1.3; margin: 3.2rem 0 0.6rem; }
h3 { font-size: 1rem; line-height: 1.3; margin: 1.6rem 0 0.3rem; }
p { margin: 0.4rem 0; }
.facts, figcaption, .reading { color: var(--muted); }
.facts { margin-bottom: 1.6rem; }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(9.5rem, 1fr));
  gap: 0.75rem; margin: 1.5rem 0; }
.tile { background: var(--wash); border-radius: 0.5rem; padding: 0.8rem 0.95rem; }
.tile b { display: block; font-size: 1.35rem; line-height: 1.3; letter-spacing: -0.01em;
  font-variant-numeric: tabular-nums; }
.tile > span { display: block; color: var(--muted); font-size: 0.83rem;
  line-height: 1.35; }
.verdict { list-style: none; margin: 0; padding: 0; }
.verdict li { position: relative; margin: 0.7rem 0; padding-left: 1.7rem; }
.verdict li::before { position: absolute; left: 0; font-weight: 700; }
.good::before { content: "\\2713"; color: var(--good); }
.bad::before { content: "!"; left: 0.3rem !important; color: var(--bad); }
.note::before { content: "\\2192"; color: var(--muted); }
.word { white-space: nowrap; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-size: 0.93rem;
  font-variant-numeric: tabular-nums; }
th, td { padding: 0.32rem 0.6rem; text-align: right; white-space: nowrap;
  border-bottom: 1px solid var(--rule); }
thead th { color: var(--muted); font-weight: 500; font-size: 0.83rem;
  vertical-align: bottom; }
tbody th { font-weight: 600; }
th:first-child { text-align: left; padding-left: 0; position: sticky; left: 0;
  background: #fff; }
.ceiling td, .ceiling th { color: var(--muted); }
.best { font-weight: 700; color: var(--accent); }
.ceiling th { font-weight: 500; font-style: italic; }
figure { margin: 0; }
figure img { display: block; width: 100%; height: auto; }
figcaption, .reading { font-size: 0.9rem; line-height: 1.5; margin-top: 0.5rem; }
details { margin-top: 3.5rem; border-top: 1px solid var(--rule); padding-top: 1rem; }
summary { cursor: pointer; font-weight: 600; }
pre { overflow-x: auto; background: var(--wash); border-radius: 0.5rem; padding: 1rem;
  font-size: 0.8rem; line-height: 1.5; }
@media print { pre { white-space: pre-wrap; } section { break-inside: avoid; } }
</style>
</head>
<body>
<main>
<header>
<h1>$title</h1>
<p class="facts">$facts</p>
</header>
<div class="tiles">
$tiles
</div>
<section>
<h2>Verdict</h2>
<ul class="verdict">
$verdict
</ul>
</section>
<section>
<h2>Comparison</h2>
<p class="reading">$notes</p>
$tables
</section>
$convergence
$pictures
<details>
<summary>Configuration and versions</summary>
<pre>$config</pre>
</details>
</main>
</body>
</html>
"""
