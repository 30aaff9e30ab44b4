"""Data sets known by name, from a local folder or from TensorFlow Datasets."""

import sys

import numpy as np
import pytest

from symjax import data


def save(folder, name):
    generator = np.random.default_rng(0)
    x = generator.integers(0, 256, (15, 4, 4)).astype(np.uint8)
    y = (np.arange(15) % 3).astype(np.uint8)
    arrays = {"x_train": x[:9], "y_train": y[:9], "x_test": x[9:], "y_test": y[9:]}
    folder.mkdir(parents=True, exist_ok=True)
    np.savez(folder / f"{name}.npz", **arrays)
    return arrays


@pytest.mark.parametrize("name", ["mnist", "fashion_mnist", "kmnist"])
def test_a_known_set_is_read_from_the_named_folder(tmp_path, monkeypatch, name):
    arrays = save(tmp_path / "sets", name)
    monkeypatch.setenv("SYMJAX_DATA", str(tmp_path / "sets"))
    dataset = data.load(name)
    same = data.load(str(tmp_path / "sets" / f"{name}.npz"))
    assert (dataset.name, dataset.fingerprint) == (name, same.fingerprint)
    assert (dataset.task, dataset.num_outputs) == ("classification", 3)
    np.testing.assert_array_equal(dataset.train.x, same.train.x)
    np.testing.assert_array_equal(dataset.test.y, arrays["y_test"])


def test_the_folder_beside_the_checkout_is_the_default(tmp_path, monkeypatch):
    save(tmp_path / "shared" / "data", "mnist")
    (tmp_path / "checkout").mkdir()
    monkeypatch.chdir(tmp_path / "checkout")
    monkeypatch.delenv("SYMJAX_DATA", raising=False)
    assert len(data.load("mnist").train.y) == 9


def test_an_absent_set_says_where_it_was_looked_for(tmp_path, monkeypatch):
    monkeypatch.setenv("SYMJAX_DATA", str(tmp_path))
    monkeypatch.setenv("TFDS_DATA_DIR", str(tmp_path))
    place = r"there is no .*kmnist.npz with x_train, .* \(SYMJAX_DATA names its folder"
    with pytest.raises(ValueError, match=place + ".*Prepare it with `tfds build kmnis"):
        data.load("kmnist")
    monkeypatch.setitem(sys.modules, "tensorflow_datasets", None)
    with pytest.raises(ValueError, match=place + r".*pip install .*\[tfds\]"):
        data.load("kmnist")
    np.savez(tmp_path / "kmnist.npz", x_train=np.ones((3, 2)))
    with pytest.raises(ValueError, match="kmnist.npz can't be read: it lacks y_train"):
        data.load("kmnist")
    with pytest.raises(
        ValueError, match=r"cifar10_jpeg, .*, a path.* Did you mean mnist\?"
    ):
        data.load("mnits")
