"""The sets of published posteriors: UCI's splits, reviews, CIFAR, decoded images."""

from dataclasses import replace

import numpy as np
import pytest

from symjax import data
from symjax.cli import posteriors
from symjax.cli.problem import Problem
from symjax.data import datasets, jpeg, uci


MASK = 0xFFFFFFFF


def rotate(x, by):
    return ((x << by) | (x >> (32 - by))) & MASK


def threefry(key, x0, x1):
    """Threefry-2x32 with 20 rounds, as Salmon et al. (2011) have it."""
    words = [*key, key[0] ^ key[1] ^ 0x1BD11BDA]
    x0, x1 = (x0 + words[0]) & MASK, (x1 + words[1]) & MASK
    rotations = ((13, 15, 26, 6), (17, 29, 16, 24))
    for group in range(5):
        for by in rotations[group % 2]:
            x0 = (x0 + x1) & MASK
            x1 = rotate(x1, by) ^ x0
        x0 = (x0 + words[(group + 1) % 3]) & MASK
        x1 = (x1 + words[(group + 2) % 3] + group + 1) & MASK
    return x0, x1


def bits(key, size):
    """What JAX drew from a key in 2021: one block cipher over the halves of a count."""
    counts = np.arange(size + size % 2, dtype=np.uint64)
    counts[size:] = 0
    return np.concatenate(threefry(key, *np.split(counts, 2)))[:size]


def permutation_of_2021(seed, size):
    """Sorted by random keys, often enough that no two keys are equal."""
    key, order = (0, seed), np.arange(size)
    for _ in range(int(np.ceil(3 * np.log(size) / np.log(MASK)))):
        words = [int(word) for word in bits(key, 4)]
        key, drawn = words[:2], words[2:]
        order = order[np.argsort(bits(drawn, size), kind="stable")]
    return order


@pytest.mark.parametrize(("seed", "size"), [(0, 13), (7, 2_100)])
def test_the_permutation_is_that_of_2021(seed, size):
    found = uci.permutation(seed, size)
    np.testing.assert_array_equal(found, permutation_of_2021(seed, size))


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """With a small boston, its third column constant."""
    monkeypatch.setenv("SYMJAX_DATA", str(tmp_path))
    generator = np.random.default_rng(0)
    x, y = generator.normal(3, 5, (20, 3)), generator.normal(20, 9, (20, 1))
    x[:, 2] = 0.1
    masks = np.zeros((3, 20), bool)
    for row, test in zip(masks, ([0, 5], [1, 2], [19, 3]), strict=True):
        row[test] = True
    (tmp_path / "uci").mkdir()
    arrays = {"x": x, "y": y, "test_mask": masks}
    np.savez(tmp_path / "uci" / "boston.npz", **arrays)
    return tmp_path, arrays


@pytest.mark.parametrize(
    ("split", "test"),
    [
        (None, [0, 5]),
        (1, [1, 2]),
        ("2", [3, 19]),
        ("izmailov4", permutation_of_2021(4, 20)[18:]),
    ],
)
def test_a_uci_set_is_split_and_normalised_by_its_training_rows(folder, split, test):
    _, arrays = folder
    dataset = data.load("uci:boston", split=split)
    rows = np.setdiff1d(np.arange(20), test)
    if str(split).startswith("izmailov"):
        rows = permutation_of_2021(4, 20)[:18]
    assert (dataset.task, dataset.num_outputs) == ("regression", 1)
    x, y = arrays["x"], arrays["y"]
    for part, chosen in ((dataset.train, rows), (dataset.test, test)):
        expected = (x[chosen] - x[rows].mean(0)) / x[rows].std(0)
        np.testing.assert_allclose(part.x[:, :2], expected[:, :2], rtol=1e-5, atol=1e-6)
        assert not part.x[:, 2].any()
        targets = part.y * dataset.target_std + dataset.target_mean
        np.testing.assert_allclose(targets, y[chosen], rtol=1e-5)


def test_a_permutation_is_cut_below_nine_tenths(folder):
    """As by `int(0.9 * n)`: of naval's 11,934 rows 10,740, not 10,741."""
    tmp_path, arrays = folder
    fewer = {"x": arrays["x"][:14], "y": arrays["y"][:14]}
    masks = arrays["test_mask"][:, :14]
    np.savez(tmp_path / "uci" / "energy.npz", **fewer, test_mask=masks)
    dataset = data.load("uci:energy", split="izmailov0")
    assert (len(dataset.train.y), len(dataset.test.y)) == (12, 2)


def test_a_split_can_be_typed(folder):
    del folder
    problem = Problem("uci:boston", split="1", micro_batch=18)
    built = posteriors.build(problem)
    expected = data.load("uci:boston", split=1)
    assert built.dataset.fingerprint == expected.fingerprint
    assert expected.fingerprint != data.load("uci:boston").fingerprint
    with pytest.raises(ValueError, match="--data: `split` must be 0 to 2"):
        posteriors.build(replace(problem, split="9"))


def test_a_wrong_split_says_which_there_are(folder):
    tmp_path, arrays = folder
    for split, message in (
        (3, "`split` must be 0 to 2, a split of uci:boston, or izmailov.*got '3'"),
        (-1, "must be 0 to 2.*got '-1'"),
        ("izmailov", "must be 0 to 2.*got 'izmailov'"),
    ):
        with pytest.raises(ValueError, match=message):
            data.load("uci:boston", split=split)
    with pytest.raises(ValueError, match="`split` is for uci:NAME and imdb; wine has"):
        data.load("wine", split=1)
    with pytest.raises(ValueError, match="got uci:bostn. Did you mean boston"):
        data.load("uci:bostn")
    with pytest.raises(ValueError, match=r"no .*yacht.npz. Write it with `numpy.savez"):
        data.load("uci:yacht")
    file = tmp_path / "uci" / "yacht.npz"
    np.savez(file, x=arrays["x"], y=arrays["y"])
    with pytest.raises(ValueError, match="yacht.npz can't be read: .*test_mask"):
        data.load("uci:yacht")
    np.savez(file, **arrays | {"test_mask": np.ones((3, 19), bool)})
    with pytest.raises(ValueError, match=r"got bool of shape \(3, 19\), with 20 rows"):
        data.load("uci:yacht")


def test_reviews_stay_words_and_the_last_are_for_validation(tmp_path, monkeypatch):
    monkeypatch.setenv("SYMJAX_DATA", str(tmp_path))
    with pytest.raises(ValueError, match=r"there is no .*imdb.npz .* Write it with"):
        data.load("imdb")
    ids = np.arange(20_003)[:, None] % 200 + np.arange(4)
    arrays = {"x_train": ids.astype(np.uint16), "x_test": ids[:6].astype(np.uint16)}
    labels = (np.arange(20_003) % 2).astype(np.uint8)
    np.savez(tmp_path / "imdb.npz", **arrays, y_train=labels, y_test=labels[:6])
    for split, test in ((None, ids[:6]), ("validation", ids[20_000:])):
        dataset = data.load("imdb", split=split)
        assert (dataset.task, dataset.num_outputs) == ("classification", 2)
        for part, expected in ((dataset.train, ids[:20_000]), (dataset.test, test)):
            assert part.x.dtype == np.int32
            np.testing.assert_array_equal(part.x, expected)
    with pytest.raises(ValueError, match="`split` of imdb must be validation, got '0'"):
        data.load("imdb", split=0)
    with pytest.raises(ValueError, match="must not be noise for the words of imdb"):
        data.load_ood("noise", dataset)
    arrays["x_train"] = np.ones((20_003, 4))
    np.savez(tmp_path / "imdb.npz", **arrays, y_train=labels, y_test=labels[:6])
    with pytest.raises(ValueError, match=r"must hold word ids .* got float64 of shape"):
        data.load("imdb")


@pytest.mark.parametrize("name", ["cifar10", "cifar100", "cifar10_lossless_subset"])
def test_cifar_is_normalised_as_the_reference_did(tmp_path, monkeypatch, name):
    monkeypatch.setenv("SYMJAX_DATA", str(tmp_path))
    x = np.random.default_rng(0).integers(0, 256, (9, 4, 5, 3)).astype(np.uint8)
    y = np.arange(9) % 3
    np.savez(tmp_path / f"{name}.npz", x_train=x, y_train=y, x_test=x[:4], y_test=y[:4])
    dataset = data.load(name)
    expected = (x.astype(float) / 255 - [0.49, 0.48, 0.44]) / 0.2
    np.testing.assert_allclose(dataset.train.x, expected, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(dataset.test.x, expected[:4], rtol=1e-5, atol=1e-5)
    back = dataset.test.x * dataset.input_std + dataset.input_mean
    np.testing.assert_allclose(back, x[:4], atol=1e-3)
    # Of TensorFlow Datasets they are the same images.
    arrays = datasets.Arrays(x, y, x[:4], y[:4])
    monkeypatch.setattr(datasets, "tfds_files", lambda _: [])
    monkeypatch.setattr(datasets, "read_tfds", {name: arrays}.__getitem__)
    prepared = data.load(f"tfds:{name}")
    np.testing.assert_array_equal(prepared.train.x, dataset.train.x)
    np.testing.assert_array_equal(prepared.test.x, dataset.test.x)


def test_decoded_images_are_kept_by_the_files_content(tmp_path, monkeypatch):
    monkeypatch.setenv("SYMJAX_CACHE", str(tmp_path / "cache"))
    calls = []
    arrays = [np.arange(8, dtype=np.uint8), *[np.arange(3)] * 3]

    def decode(path):
        calls.append(path)
        return jpeg.Arrays(*arrays)

    monkeypatch.setattr(jpeg, "_decode", decode)
    first, second = tmp_path / "a.npz", tmp_path / "b.npz"
    first.write_bytes(b"one")
    second.write_bytes(b"one")
    for path in (first, first, second):
        found = jpeg.read_jpeg(str(path))
        np.testing.assert_array_equal(found.x_train, arrays[0])
    assert len(calls) == 1
    second.write_bytes(b"two")
    jpeg.read_jpeg(str(second))
    assert len(calls) == 2
    kept = list((tmp_path / "cache" / "images").iterdir())
    assert len(kept) == 2
    # A damaged entry is made again, and nothing is left of a broken attempt.
    for file in kept:
        file.write_bytes(file.read_bytes()[:40])
    jpeg.read_jpeg(str(first))
    assert len(calls) == 3
    monkeypatch.setattr(np, "savez", lambda file, **arrays: 1 / 0)
    first.write_bytes(b"three")
    with pytest.raises(ZeroDivisionError):
        jpeg.read_jpeg(str(first))
    assert len(list((tmp_path / "cache" / "images").iterdir())) == 2
    # A folder that can't be written only costs time.
    (tmp_path / "file").write_bytes(b"")
    monkeypatch.setenv("SYMJAX_CACHE", str(tmp_path / "file"))
    assert jpeg.read_jpeg(str(first)).x_train.shape == (8,)
