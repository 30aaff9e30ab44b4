"""Of several hosts each keeps only its own rows of the data."""

import json

import numpy as np
from together import run_all

from symjax import data, store


# When the chains begin: what of the training inputs is still in this host's memory, and
# what its devices hold.
PROGRAM = """
import gc, json, sys, weakref
import symjax.cli

loaded = []
dispatch = symjax.cli._dispatch

def watched(command, console):
    # Imported here, when JAX's runtime has been started.
    from symjax import data, hosts, run

    load, sample = data.load, run.sample

    def remember(*words, **options):
        made = load(*words, **options)
        loaded.extend(weakref.ref(leaf) for leaf in made.train)
        return made

    def look(key, algorithm, params, data, **options):
        gc.collect()
        alive = sum(ref() is not None for ref in loaded)
        parts = [(s.index[0].start or 0, s.data) for s in data.x.addressable_shards]
        parts = [(start, part.tolist()) for start, part in parts]
        mask = [s.data.tolist() for s in data.mask.addressable_shards]
        with open(f"{sys.argv[-1]}.{hosts.index()}.json", "w") as stream:
            json.dump([len(loaded), alive, parts, mask], stream)
        return sample(key, algorithm, params, data, **options)

    data.load, run.sample = remember, look
    dispatch(command, console)

symjax.cli._dispatch = watched
symjax.cli.main()
"""

OPTIONS = [
    "--data", "wine", "--widths", "4", "--num-chains", "1", "--start", "init",
    "--sampler", "mclmc", "--mclmc.num-warmup", "20", "--num-draws", "20",
]  # fmt: skip


def test_a_host_keeps_its_own_rows_and_no_others(tmp_path):
    """On two hosts of two devices each; wine's 142 rows do not share out evenly."""
    path = tmp_path / "run"
    shape = ["--mesh", "chain=1,data=4"]
    command = ["-c", PROGRAM, "sample", *OPTIONS, *shape, "--out", path]
    codes, outputs = run_all([command] * 2, 200)
    assert codes == [0, 0], outputs
    train = data.load("wine").train
    rows, num_bad = -(-len(train.mask) // 4), -len(train.mask) % 4
    assert num_bad
    for host in range(2):
        found = json.loads((tmp_path / f"run.{host}.json").read_text())
        num_loaded, num_alive, parts, masks = found
        assert (num_loaded, num_alive) == (3, 0)
        assert [start for start, _ in parts] == [2 * host * rows, (2 * host + 1) * rows]
        for (start, part), mask in zip(parts, masks, strict=True):
            own = train.x[start : start + rows]
            found = np.array(part, np.float32)
            np.testing.assert_array_equal(found[: len(own)], own)
            assert mask == [True] * len(own) + [False] * (rows - len(own))
    assert store.open(path).committed.finished
    # The check of the step size samples again, from what is left of the data.
    assert (path / "bias.json").exists()
