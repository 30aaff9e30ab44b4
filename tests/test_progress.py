"""Progress in plain lines, where there is no terminal."""

from symjax import progress


def test_lines_come_at_intervals_and_at_the_end(capsys, monkeypatch):
    now = [0.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    with progress.bar("Sampling", 100, done=20) as update:
        for done, seconds in ((30, 1), (60, 11), (70, 12), (100, 15)):
            now[0] = seconds
            update(done, f"at {done}")
    lines = capsys.readouterr().err.splitlines()
    assert lines == [
        # 40 units took 11 s, so that 40 more take as long.
        "Sampling: 60/100, 11 s left, at 60",
        "Sampling: 100/100, 0 s left, at 100",
    ]


def test_nothing_is_said_if_it_was_not_asked_for(capsys):
    with progress.bar("Sampling", 3, show=False) as update:
        update(3, "done")
    assert capsys.readouterr().err == ""
