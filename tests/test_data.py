"""Data sets: embedded, from a file, and prepared by TensorFlow Datasets."""

import numpy as np
import pytest
import sklearn.datasets
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import StandardScaler

from symjax import data


@pytest.mark.parametrize(
    ("name", "num_examples", "shape", "task", "num_outputs"),
    [
        ("digits", 1797, (8, 8, 1), "classification", 10),
        ("breast_cancer", 569, (30,), "classification", 2),
        ("wine", 178, (13,), "classification", 3),
        ("diabetes", 442, (10,), "regression", 1),
    ],
)
def test_embedded_sets(name, num_examples, shape, task, num_outputs):
    dataset = data.load(name)
    train, test = dataset.train, dataset.test
    assert len(train.mask) + len(test.mask) == num_examples
    assert len(test.mask) == pytest.approx(0.2 * num_examples, abs=1)
    assert train.x.shape[1:] == test.x.shape[1:] == shape
    assert (dataset.task, dataset.num_outputs) == (task, num_outputs)
    assert train.mask.all()
    assert test.mask.all()
    assert train.x.dtype == np.float32
    if task == "classification":
        shares = np.bincount(train.y) / len(train.y) - np.bincount(test.y) / len(test.y)
        assert np.abs(shares).max() < 0.02


def test_inputs_and_targets_are_normalised_by_the_train_examples_alone():
    dataset = data.load("wine")
    train, test = dataset.train.x, dataset.test.x
    np.testing.assert_allclose(train.mean(axis=0), 0, atol=1e-5)
    np.testing.assert_allclose(train.std(axis=0), 1, atol=1e-5)
    table = sklearn.datasets.load_wine()
    rows = train_test_split(
        np.arange(178), test_size=0.2, random_state=0, stratify=table.target
    )
    scaler = StandardScaler().fit(table.data[rows[0]])
    np.testing.assert_allclose(test, scaler.transform(table.data[rows[1]]), atol=1e-4)
    np.testing.assert_array_equal(dataset.test.y, table.target[rows[1]])

    diabetes = data.load("diabetes")
    np.testing.assert_allclose(diabetes.train.y.mean(), 0, atol=1e-5)
    back = diabetes.train.y * diabetes.target_std + diabetes.target_mean
    assert set(back.round().ravel()) <= set(sklearn.datasets.load_diabetes().target)


def test_splits_are_fixed_by_the_seed():
    one, same, other = (data.load("wine", seed=seed) for seed in (0, 0, 1))
    assert one.fingerprint == same.fingerprint != other.fingerprint
    np.testing.assert_array_equal(one.train.x, same.train.x)
    assert len(data.load("wine", test_fraction=0.5).test.mask) == 89


def arrays(**changes):
    generator = np.random.default_rng(0)
    whole = {
        "x_train": generator.integers(0, 256, (12, 4, 4, 3)).astype(np.uint8),
        "y_train": np.arange(12) % 3,
        "x_test": generator.integers(0, 256, (6, 4, 4, 3)).astype(np.uint8),
        "y_test": np.arange(6) % 3,
    }
    return {key: v for key, v in (whole | changes).items() if v is not None}


def save(path, **changes):
    np.savez(path, **arrays(**changes))
    return str(path)


def test_a_file_of_images_is_normalised_by_channel(tmp_path):
    dataset = data.load(save(tmp_path / "a.npz"))
    raw = arrays()["x_train"].astype(float)
    expected = (raw - raw.mean((0, 1, 2))) / raw.std((0, 1, 2))
    np.testing.assert_allclose(dataset.train.x, expected, atol=1e-5)
    assert (dataset.task, dataset.num_outputs) == ("classification", 3)
    np.testing.assert_array_equal(dataset.test.y, np.arange(6) % 3)


def test_a_file_of_real_targets_is_a_regression(tmp_path):
    y = np.linspace(-3, 9, 12)
    x = np.stack([np.arange(12.0), np.full(12, 7.0)], axis=1)
    path = save(tmp_path / "a.npz", x_train=x, y_train=y, x_test=x[:6], y_test=y[:6])
    dataset = data.load(path)
    assert (dataset.task, dataset.num_outputs) == ("regression", 1)
    assert dataset.train.y.shape == (12, 1)
    restored = dataset.test.y[:, 0] * dataset.target_std + dataset.target_mean
    np.testing.assert_allclose(restored, y[:6], atol=1e-5)
    np.testing.assert_array_equal(dataset.train.x[:, 1], 0)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"y_test": None}, "lacks y_test"),
        ({"y_train": np.arange(12) % 3 + 1}, "Labels of .* must be 0, 1, 2"),
        ({"y_test": np.full(6, 5)}, r"\[5\] do not"),
        ({"y_train": np.arange(11) % 3}, "one length, got 12 and 11"),
        ({"x_test": np.zeros((6, 5))}, "examples of one shape"),
        ({"x_test": np.full((6, 4, 4, 3), np.nan)}, "example 0 is not"),
        ({"x_train": np.zeros((0, 4, 4, 3))}, "must hold examples"),
        ({"x_train": np.full((12, 4, 4, 3), "a")}, "must hold numbers"),
    ],
)
def test_a_file_that_can_not_be_used_is_refused(tmp_path, changes, message):
    with pytest.raises(ValueError, match=message):
        data.load(save(tmp_path / "a.npz", **changes))


def test_what_is_no_data_set_is_refused(tmp_path):
    (tmp_path / "text.npz").write_text("hello")
    np.savez(tmp_path / "objects.npz", **arrays(y_test=np.array([None] * 6)))
    for name in ("text", "objects"):
        with pytest.raises(ValueError, match=r"is no \.npz file of arrays"):
            data.load(str(tmp_path / f"{name}.npz"))
    with pytest.raises(ValueError, match="must be a file that exists"):
        data.load("nowhere.npz")
    with pytest.raises(ValueError, match="wine, diabetes.*Did you mean digits"):
        data.load("digit")
    with pytest.raises(ValueError, match="`test_fraction` must be between 0 and 1"):
        data.load("wine", test_fraction=1.0)


def test_a_set_prepared_by_tensorflow_datasets(tmp_path, monkeypatch):
    """Prepared offline as array_record and read without TensorFlow."""
    tfds = pytest.importorskip("tensorflow_datasets")
    import PIL.Image

    images = np.random.default_rng(0).integers(0, 256, (9, 6, 6, 1)).astype(np.uint8)

    class TinyImages(tfds.core.GeneratorBasedBuilder):
        VERSION = tfds.core.Version("1.0.0")

        def _info(self):
            features = {
                "image": tfds.features.Image(shape=(6, 6, 1), encoding_format="png"),
                "label": tfds.features.ClassLabel(num_classes=3),
            }
            return tfds.core.DatasetInfo(
                builder=self,
                features=tfds.features.FeaturesDict(features),
                supervised_keys=("image", "label"),
            )

        def _split_generators(self, download_manager):
            return {"train": self._examples(0, 6), "test": self._examples(6, 9)}

        def _examples(self, first, last):
            for i in range(first, last):
                file = tmp_path / f"{i}.png"
                PIL.Image.fromarray(images[i, ..., 0]).save(file)
                yield i, {"image": str(file), "label": i % 3}

        def _generate_examples(self):
            raise NotImplementedError

    builder = TinyImages(data_dir=tmp_path, file_format="array_record")
    builder.download_and_prepare()
    monkeypatch.setenv("TFDS_DATA_DIR", str(tmp_path))
    dataset = data.load("tfds:tiny_images")
    assert dataset.num_outputs == 3
    train = images[:6].astype(float)
    expected = np.sort(((train - train.mean()) / train.std()).ravel())
    np.testing.assert_allclose(np.sort(dataset.train.x.ravel()), expected, atol=1e-5)
    assert sorted(dataset.train.y) == [0, 0, 1, 1, 2, 2]
    with pytest.raises(ValueError, match="TensorFlow Datasets, got 'no_such_set'"):
        data.load("tfds:no_such_set")
