"""Every sampler on targets whose answers are known without it: one table.

For each sampler and target the largest error of mean, standard deviation, 5 % and 95 %
quantile over all quantities, in units of its Monte-Carlo error, and the effective draws
for 1,000 gradients. 16 chains in float64. Closed forms or numpyro's NUTS stand behind
every column (`targets.py`); the samplers' settings are in `sampler_table.py`.

    python scripts/check_samplers.py --quick
    python scripts/check_samplers.py --only HMC SGLD --targets Gaussian linear
    python scripts/check_samplers.py --table-only      # from the results that are there

How to read it: an exact sampler stays below 4 (the largest of 80 independent scores is
in 99 of 100 cases), but in the funnel, whose neck nobody here enters: errors are large
there, or effective draws few. Unadjusted samplers show what their step and their
minibatches cost. Their bias is a share of the posterior's own spread, also given.

Writes one JSON a sampler, so that several processes can share the work; table.md, and
details.md with every statistic.
"""

import json
import time
from dataclasses import dataclass
from pathlib import Path

import jax
import moments
import numpy as np
import tyro
from sampler_table import SAMPLERS
from targets import TARGETS

from symjax import mesh, run


@dataclass(frozen=True)
class Options:
    """All samplers on all targets."""

    only: tuple[str, ...] = tuple(SAMPLERS)
    """Samplers to run; others keep the results that are there."""
    targets: tuple[str, ...] = tuple(TARGETS)
    num_chains: int = 16
    num_draws: int = 1000
    num_warmup: int = 500
    """Iterations that adapt; samplers with minibatches take more, by their line."""
    quick: bool = False
    """A tenth of draws and warm-up: minutes instead of an hour, and wide errors."""
    table_only: bool = False
    """Sample nothing, write the tables of the results that are there."""
    out: Path = Path("runs/samplers")
    seed: int = 0


def main():
    options = tyro.cli(Options, description=__doc__)
    jax.config.update("jax_enable_x64", True)
    options.out.mkdir(parents=True, exist_ok=True)
    for target_name in () if options.table_only else options.targets:
        target = TARGETS[target_name]()
        for name in options.only:
            path = options.out / f"{name}.json"
            results = json.loads(path.read_text()) if path.exists() else {}
            results[target_name] = check(SAMPLERS[name], target, options)
            print(f"{target_name:12s} {name:16s} {cell(results[target_name])}")
            path.write_text(json.dumps(results, indent=2))
    tables = {"table": table(options.out), "details": details(options.out)}
    for name, text in tables.items():
        (options.out / f"{name}.md").write_text(text)
    print(tables["table"])


def check(sampler, target, options):
    """Errors of one sampler on one target, and its effective draws."""
    start = time.perf_counter()
    share = 10 if options.quick else 1
    keys = jax.random.split(jax.random.key(options.seed), 2)
    num_warmup = sampler.slow_warmup * options.num_warmup // share
    algorithm = sampler.build(target.log_density, target.shape, num_warmup)
    num_draws = options.num_draws // share
    num_chains = sampler.num_rungs * options.num_chains
    result = run.sample(
        keys[0],
        algorithm,
        jax.vmap(target.start)(jax.random.split(keys[1], num_chains)),
        target.data,
        num_draws=num_draws,
        thinning=sampler.thinning,
        mesh=mesh.make_mesh(num_chains, jax.devices()[:1]),
    )
    draws = jax.tree.map(lambda leaf: leaf[:: sampler.num_rungs], result.draws)
    x = target.quantities(draws)
    found = [moments.of_draws(x[..., i]) for i in range(x.shape[-1])]
    pairs = list(zip(found, target.truth, strict=True))
    spread = [truth.values[1] for truth in target.truth]
    sampling = jax.tree.map(lambda leaf: leaf[:, algorithm.num_warmup :], result.info)
    size = min(moments.sample_size(x[..., i]) for i in range(x.shape[-1]))
    return {
        "scores": [moments.scores(a, b).tolist() for a, b in pairs],
        "errors": [
            ((a.values - b.values) / s).tolist()
            for (a, b), s in zip(pairs, spread, strict=True)
        ],
        "sample_size": size,
        "gradients": int(sampler.gradients(sampling)),
        "rhat": max(moments.rhat(x[..., i]) for i in range(x.shape[-1])),
        "seconds": time.perf_counter() - start,
        "num_draws": num_draws * options.num_chains,
    }


def largest(values):
    """Of each statistic, over all quantities; NaN where a chain never moved."""
    return np.abs(np.array(values, float)).max(axis=0)


def per_gradient(entry):
    return 1000 * entry["sample_size"] / entry["gradients"]


def cell(entry):
    """Largest score, the largest error in per cent of the spread, effective draws."""
    score, error = (largest(entry[name]).max() for name in ("scores", "errors"))
    return f"{score:.1f}, {100 * error:.0f} %, {per_gradient(entry):.2g}"


def read(folder):
    found = {name: folder / f"{name}.json" for name in SAMPLERS}
    return {n: json.loads(p.read_text()) for n, p in found.items() if p.exists()}


def table(folder):
    """A line a sampler, a column a target."""
    rows = []
    for name, entries in read(folder).items():
        cells = [cell(entries[t]) if t in entries else "" for t in TARGETS]
        rows.append([name if SAMPLERS[name].is_exact else f"{name} *", *cells])
    return moments.table(["sampler", *TARGETS], rows)


def details(folder):
    """A line a sampler and target, with every statistic."""
    rows = [
        [
            f"{name}, {target}",
            *(f"{score:.1f}" for score in largest(entry["scores"])),
            *(f"{100 * error:.1f} %" for error in largest(entry["errors"])),
            f"{per_gradient(entry):.3g}",
            f"{entry['rhat']:.3f}",
        ]
        for name, entries in read(folder).items()
        for target, entry in entries.items()
    ]
    errors = [f"error of {name}" for name in moments.STATISTICS]
    last = ["ESS / 1,000 gradients", "R-hat"]
    return moments.table(["", *moments.STATISTICS, *errors, *last], rows)


if __name__ == "__main__":
    main()
