"""Of several hosts each reads and keeps only its own rows of the data."""

import numpy as np
import pytest
from together import run_all

from symjax import data, store
from symjax.data import prepared


# When the rows are shared out: how much of the inputs' file this host has looked at.
# When the chains begin: what of the training inputs is still in its memory, and what
# its devices hold.
PROGRAM = """
import gc, re, sys, weakref
import numpy as np
import symjax.cli

loaded, touched = [], []
dispatch = symjax.cli._dispatch

def watched(command, console):
    # Imported here, when JAX's runtime has been started.
    from symjax import data, hosts, run
    from symjax.cli import starts
    from symjax.data import datasets

    datasets.read_npz = None
    load, share_out, sample = data.load, starts.share_out, run.sample

    def remember(*words, **options):
        made = load(*words, **options)
        loaded.extend(weakref.ref(leaf) for leaf in made.train)
        return made

    def measured(built, mesh):
        shared = share_out(built, mesh)
        pattern = r"train_x.npy\\nSize: .*?\\nRss: +(\\d+) kB"
        found = re.search(pattern, open("/proc/self/smaps").read(), re.DOTALL)
        touched.append(1024 * int(found[1]))
        return shared

    def look(key, algorithm, params, data, **options):
        gc.collect()
        alive = sum(ref() is not None for ref in loaded)
        parts = [(s.index[0].start or 0, s.data) for s in data.x.addressable_shards]
        mask = np.concatenate([s.data for s in data.mask.addressable_shards])
        np.savez(
            f"{sys.argv[-1]}.{hosts.index()}.npz",
            counts=[len(loaded), alive, *touched],
            starts=[start for start, _ in parts],
            rows=np.concatenate([part for _, part in parts]),
            mask=mask,
        )
        return sample(key, algorithm, params, data, **options)

    data.load, starts.share_out, run.sample = remember, measured, look
    dispatch(command, console)

symjax.cli._dispatch = watched
symjax.cli.main()
"""

OPTIONS = [
    "--widths", "4", "--num-chains", "1", "--start", "init",
    "--sampler", "mclmc", "--mclmc.num-warmup", "8", "--num-draws", "20",
]  # fmt: skip

NUM_ROWS = 2270


@pytest.fixture
def prepared_file(tmp_path, monkeypatch):
    """A file of 10 MB, and what this process has made of it for those that follow."""
    monkeypatch.setenv("SYMJAX_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(prepared, "LEAST_BYTES", 8 * 2**20)
    x = np.random.default_rng(0).normal(size=(NUM_ROWS + 9, 2**10)).astype(np.float32)
    y = np.arange(len(x)) % 3
    arrays = {"x_train": x[9:], "y_train": y[9:], "x_test": x[:9], "y_test": y[:9]}
    np.savez(tmp_path / "rows.npz", **arrays)
    return tmp_path / "rows.npz", data.load(str(tmp_path / "rows.npz")).train.x


def test_a_host_reads_and_keeps_its_own_rows_and_no_others(tmp_path, prepared_file):
    """On two hosts of two devices each, over which the rows do not share out evenly."""
    file, x = prepared_file
    path = tmp_path / "run"
    shape = ["--mesh", "chain=1,data=4"]
    command = ["-c", PROGRAM, "sample", "--data", file, *OPTIONS, *shape, "--out", path]
    codes, outputs = run_all([command] * 2, 200)
    assert codes == [0, 0], outputs
    rows, num_bad = -(-NUM_ROWS // 4), -NUM_ROWS % 4
    assert num_bad
    for host in range(2):
        found = np.load(tmp_path / f"run.{host}.npz")
        num_loaded, num_alive, num_touched = found["counts"]
        assert (num_loaded, num_alive) == (3, 0)
        # The system may map 2 MB at once; the first row is looked at besides.
        assert 0.4 * x.nbytes < num_touched < 0.8 * x.nbytes
        np.testing.assert_array_equal(
            found["starts"], [2 * host * rows, (2 * host + 1) * rows]
        )
        own = x[2 * host * rows : 2 * (host + 1) * rows]
        np.testing.assert_array_equal(found["rows"][: len(own)], own)
        np.testing.assert_array_equal(found["mask"], np.arange(2 * rows) < len(own))
    assert store.open(path).committed.finished
    # The check of the step size samples again, from what is left of the data.
    assert (path / "bias.json").exists()
