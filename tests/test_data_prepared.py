"""Data sets that are read once, and from then on mapped into memory."""

import os
import shutil
from types import SimpleNamespace

import numpy as np
import pytest

from symjax import data
from symjax.cli import subsets
from symjax.data import datasets, prepared


GENERATOR = np.random.default_rng(0)
INPUTS = {
    "colours": GENERATOR.integers(0, 256, (40, 8, 8, 3), np.uint8),
    "grey": GENERATOR.integers(0, 256, (40, 8, 8), np.uint8),
    "columns": GENERATOR.normal(size=(40, 6)),
}
TARGETS = {
    "colours": np.arange(40) % 4,
    "grey": np.arange(40) % 2,
    "columns": GENERATOR.normal(size=(40, 2)),
}


@pytest.fixture(autouse=True)
def small_limits(tmp_path, monkeypatch):
    """Everything is kept, in a folder of the test's own, and mapped."""
    monkeypatch.setenv("SYMJAX_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(prepared, "LEAST_BYTES", 0)
    monkeypatch.setattr(prepared, "MAPPED_BYTES", 0)


def write(folder, kind="colours"):
    x, y = INPUTS[kind], TARGETS[kind]
    parts = {"x_train": x[:30], "y_train": y[:30], "x_test": x[30:], "y_test": y[30:]}
    np.savez(folder / "set.npz", **parts)
    return str(folder / "set.npz")


def entries(tmp_path):
    return sorted((tmp_path / "cache" / "prepared").glob("*"))


def assert_same(one, other):
    for name, mine, theirs in zip(one._fields, one, other, strict=True):
        if isinstance(mine, tuple) and name != "input_range":
            for a, b in zip(mine, theirs, strict=True):
                assert a.dtype == b.dtype
                np.testing.assert_array_equal(a, b)
        elif isinstance(mine, np.ndarray):
            assert mine.dtype == theirs.dtype
            np.testing.assert_array_equal(mine, theirs)
        else:
            assert type(mine) is type(theirs)
            assert mine == theirs


def read_nothing(monkeypatch):
    """Whoever opens the file is caught."""
    monkeypatch.setattr(datasets, "read_npz", None)


@pytest.mark.parametrize("kind", INPUTS)
def test_what_was_prepared_is_the_data_set_and_is_not_read_again(
    tmp_path, monkeypatch, kind
):
    file = write(tmp_path, kind)
    with monkeypatch.context() as patch:
        patch.setattr(prepared, "LEAST_BYTES", 10**9)
        plain = data.load(file)
    assert not entries(tmp_path)
    first = data.load(file)
    read_nothing(monkeypatch)
    second = data.load(file)
    for one in (first, second):
        assert_same(plain, one)
        assert type(one.train.x) is np.ndarray
        assert isinstance(one.train.x.base, np.memmap)
        with pytest.raises(ValueError, match="read-only"):
            one.train.x[0] = 0
    assert (plain.train_bytes is None) == (kind == "columns")
    assert_same(subsets.first(plain, 5, 4), subsets.first(second, 5, 4))
    if kind != "columns":
        shifted = [data.load_shifted(d, "fog", severity=1) for d in (plain, second)]
        np.testing.assert_array_equal(*(made.x for made in shifted))


def test_a_changed_file_is_read_anew_and_the_old_entry_removed(tmp_path, monkeypatch):
    file = write(tmp_path)
    before = data.load(file)
    time = os.stat(file).st_mtime_ns
    write(tmp_path, "grey")
    after = data.load(file)
    assert after.fingerprint != before.fingerprint
    assert after.train.x.shape == (30, 8, 8)
    assert len(entries(tmp_path)) == 1
    # Of the same size, at another time.
    write(tmp_path, "colours")
    os.utime(file, ns=(time + 10**9, time + 10**9))
    assert_same(data.load(file), before)
    turned = INPUTS["colours"][::-1]
    with monkeypatch.context() as patch:
        patch.setitem(INPUTS, "colours", turned)
        size = os.stat(file).st_size
        write(tmp_path, "colours")
    assert os.stat(file).st_size == size
    os.utime(file, ns=(time + 2 * 10**9, time + 2 * 10**9))
    np.testing.assert_array_equal(data.load(file).train_bytes, turned[:30])
    (tmp_path / "other").mkdir()
    data.load(write(tmp_path / "other", "columns"))
    assert len(entries(tmp_path)) == 2


def test_a_file_is_prepared_once_however_it_is_named(tmp_path, monkeypatch):
    file = write(tmp_path)
    first = data.load(file)
    read_nothing(monkeypatch)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "link.npz").symlink_to(file)
    for name in ("set.npz", f"{tmp_path}/../{tmp_path.name}/set.npz", "link.npz"):
        assert_same(data.load(name), first._replace(name=name))
    assert len(entries(tmp_path)) == 1


def test_other_code_and_other_splits_have_entries_of_their_own(tmp_path, monkeypatch):
    file = tmp_path / "file"
    file.touch()
    one = prepared.place(["imdb", "None"], [file])
    other = prepared.place(["imdb", "validation"], [file])
    assert one.owner != other.owner
    monkeypatch.setattr(prepared, "_code", lambda: "changed")
    changed = prepared.place(["imdb", "None"], [file])
    assert changed.owner == one.owner
    assert changed.version != one.version
    assert prepared.place(["imdb"], [file, tmp_path / "absent"]) is None
    assert prepared.place(["imdb"], []) is None


def test_users_without_a_home_read_all_of_a_set(tmp_path, monkeypatch):
    """As in containers, whose user has a number and no more."""
    file = write(tmp_path)
    monkeypatch.delenv("SYMJAX_CACHE")
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)

    def homeless():
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr("pathlib.Path.home", homeless)
    assert data.load(file).train.x.flags.writeable


@pytest.mark.parametrize("damage", ["cut", "emptied", "gone", "facts", "array"])
def test_a_damaged_entry_is_written_again(tmp_path, monkeypatch, damage):
    file = write(tmp_path)
    plain = data.load(file)
    plain = plain._replace(train=plain.train._replace(x=np.array(plain.train.x)))
    (entry,) = entries(tmp_path)
    array, facts = entry / "train_x.npy", entry / "facts.json"
    if damage == "cut":
        array.write_bytes(array.read_bytes()[:-1000])
    elif damage == "emptied":
        array.write_bytes(b"")
    elif damage == "gone":
        array.unlink()
    elif damage == "facts":
        facts.write_text(facts.read_text()[:50])
    else:
        np.save(array, np.zeros(3))
    assert_same(data.load(file), plain)
    read_nothing(monkeypatch)
    assert_same(data.load(file), plain)
    assert len(entries(tmp_path)) == 1


def test_a_cache_that_takes_nothing_costs_nothing_but_time(tmp_path, monkeypatch):
    (tmp_path / "cache").touch()
    file = write(tmp_path)
    assert_same(data.load(file), data.load(file))
    (tmp_path / "cache").unlink()

    def full(*arguments, **options):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(np, "save", full)
        assert data.load(file).train.x.flags.writeable
    with monkeypatch.context() as patch:
        patch.setattr(shutil, "disk_usage", lambda folder: SimpleNamespace(free=10**4))
        assert data.load(file).train.x.flags.writeable
    assert not entries(tmp_path)
    assert not data.load(file).train.x.flags.writeable


def test_of_two_that_write_at_once_one_does(tmp_path, monkeypatch):
    """The second one comes while the first is half-way, and uses what it has read."""
    file, fill, seen = write(tmp_path), prepared._fill, []

    def slow(folder, entry):
        fill(folder, entry)
        if not seen:
            seen.append(folder)
            assert data.load(file).train.x.flags.writeable
            assert entries(tmp_path) == [folder]

    monkeypatch.setattr(prepared, "_fill", slow)
    first = data.load(file)
    read_nothing(monkeypatch)
    assert_same(data.load(file), first)
    assert len(entries(tmp_path)) == len(seen) == 1


def test_one_that_died_while_it_wrote_is_in_nobodys_way_for_long(tmp_path, monkeypatch):
    file = write(tmp_path)
    data.load(file)
    (entry,) = entries(tmp_path)
    part = entry.rename(entry.with_suffix(".part"))
    assert data.load(file).train.x.flags.writeable
    os.utime(part, (0, 0))
    assert not data.load(file).train.x.flags.writeable
    assert entries(tmp_path) == [entry]
