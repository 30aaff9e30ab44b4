"""Data sets from scikit-learn, .npz files and TensorFlow Datasets."""

import io
import json
import sys

import numpy as np
import PIL.Image
import pytest
import scipy.spatial
import sklearn.datasets
import sklearn.preprocessing
import tensorflow_datasets as tfds

from symjax import data
from symjax.data import arrays as raw


def saved(folder, **changes):
    """A valid .npz file, but for `changes`; None leaves an array out."""
    generator = np.random.default_rng(0)
    arrays = {
        "x_train": generator.normal(size=(12, 3)),
        "y_train": np.arange(12) % 3,
        "x_test": generator.normal(size=(5, 3)),
        "y_test": np.arange(5) % 3,
    }
    arrays.update(changes)
    path = folder / "file.npz"
    np.savez(path, **{key: x for key, x in arrays.items() if x is not None})
    return str(path), arrays


@pytest.mark.parametrize(
    ("name", "num_outputs", "shape"),
    [
        ("digits", 10, (8, 8, 1)),
        ("breast_cancer", 2, (30,)),
        ("wine", 3, (13,)),
        ("diabetes", 1, (10,)),
    ],
)
def test_an_embedded_set_is_split_and_normalised(name, num_outputs, shape):
    dataset = data.load(name, test_fraction=0.25)
    bunch = getattr(sklearn.datasets, f"load_{name}")()
    num_test = int(np.ceil(0.25 * len(bunch.target)))
    train, test = dataset.train, dataset.test
    assert test.x.shape == (num_test, *shape)
    assert train.x.shape == (len(bunch.target) - num_test, *shape)
    assert (train.x.dtype, dataset.num_outputs) == (np.float32, num_outputs)
    for part in (train, test):
        assert part.mask.shape == (len(part.x),)
        assert np.all(part.mask)
        assert len(part.y) == len(part.x)

    axes = tuple(range(train.x.ndim - 1))
    np.testing.assert_allclose(train.x.mean(axis=axes), 0, atol=1e-5)
    np.testing.assert_allclose(train.x.std(axis=axes), 1, atol=1e-5)

    # Every original example is there once, with its target.
    rows = np.concatenate([part.x.reshape(len(part.x), -1) for part in (train, test)])
    scale = sklearn.preprocessing.StandardScaler().fit_transform
    tree = scipy.spatial.KDTree(scale(bunch.data))
    distances, originals = tree.query(scale(rows.astype(float)))
    assert distances.max() < 1e-4
    assert sorted(originals) == list(range(len(rows)))
    targets = np.concatenate([train.y, test.y])
    if name == "diabetes":
        assert dataset.task == "regression"
        assert train.y.shape == (len(train.x), 1)
        np.testing.assert_allclose([train.y.mean(), train.y.std()], [0, 1], atol=1e-5)
        targets = (targets * dataset.target_std + dataset.target_mean)[:, 0]
        np.testing.assert_allclose(targets, bunch.target[originals], rtol=1e-5)
    else:
        assert dataset.task == "classification"
        assert train.y.dtype == np.int32
        np.testing.assert_array_equal(targets, bunch.target[originals])
        shares = [np.bincount(y) / len(y) for y in (bunch.target, train.y, test.y)]
        np.testing.assert_allclose(shares[1:], [shares[0]] * 2, atol=1 / num_test)


def test_the_same_seed_is_the_same_data():
    first, again, other = (data.load("wine", seed=seed) for seed in (3, 3, 4))
    np.testing.assert_array_equal(first.train.x, again.train.x)
    assert first.fingerprint == again.fingerprint
    assert first.fingerprint != other.fingerprint
    assert not np.array_equal(first.test.y, other.test.y)


def test_an_npz_of_images_is_normalised_by_channel(tmp_path):
    generator = np.random.default_rng(0)
    x_train, x_test = generator.integers(0, 256, (2, 12, 4, 5, 3)).astype(np.uint8)
    x_train[..., 1], x_train[0, 0, 0, 1] = 7, 8
    path, _ = saved(tmp_path, x_train=x_train, x_test=x_test[:5])
    dataset = data.load(path)
    assert (dataset.task, dataset.num_outputs) == ("classification", 3)
    mean = x_train.astype(float).mean(axis=(0, 1, 2))
    std = x_train.astype(float).std(axis=(0, 1, 2))
    np.testing.assert_allclose(dataset.train.x, (x_train - mean) / std, atol=1e-4)
    np.testing.assert_allclose(
        dataset.test.x, (x_test[:5] - mean) / std, rtol=1e-4, atol=1e-4
    )
    # Without a channel axis, all pixels together; the shape stays.
    path, _ = saved(tmp_path, x_train=x_train[..., 0], x_test=x_test[:5, ..., 0])
    grey = data.load(path)
    np.testing.assert_allclose(grey.test.x, dataset.test.x[..., 0], atol=1e-6)
    # The same bytes in another shape are another data set.
    path, _ = saved(tmp_path, x_train=x_train[..., :1], x_test=x_test[:5, ..., :1])
    assert grey.fingerprint != data.load(path).fingerprint
    # So they are as other numbers: of a byte from 128 on, its sign.
    signed = x_train[..., 0].view(np.int8), x_test[:5, ..., 0].view(np.int8)
    path, _ = saved(tmp_path, x_train=signed[0], x_test=signed[1])
    assert grey.fingerprint != data.load(path).fingerprint


def test_every_array_is_in_the_fingerprint(tmp_path):
    """A run is compared with data of the same one: of other test examples none is."""
    path, arrays = saved(tmp_path)
    found = {data.load(path).fingerprint}
    for name, array in arrays.items():
        turned = np.roll(array, 1, axis=0)
        assert not np.array_equal(turned, array)
        path, _ = saved(tmp_path, **{name: turned})
        found.add(data.load(path).fingerprint)
    assert len(found) == 5


def test_many_pixels_lose_nothing_of_their_spread():
    """Added up in float32, squares of a million pixels are off by 2e-4 of it."""
    x = np.random.default_rng(0).integers(0, 256, (300, 64, 64, 3), np.uint8)
    _, _, mean, std = raw.normalise(x, x[:1])
    for channel in range(3):
        exact = x[..., channel].astype(float)
        assert mean[channel] == pytest.approx(exact.mean(), rel=1e-9)
        assert std[channel] == pytest.approx(exact.std(), rel=1e-7)


def test_an_npz_of_floats_is_a_regression(tmp_path):
    """Two targets of their own units; a constant column is 0, in the test set too."""
    targets = np.random.default_rng(1).normal(size=(17, 2)) * [1e-3, 1] + [5, 1e7]
    path, arrays = saved(tmp_path, y_train=targets[:12], y_test=targets[12:])
    arrays["x_train"][:, 1] = 0.1
    np.savez(path, **arrays)
    dataset = data.load(path)
    assert (dataset.task, dataset.num_outputs) == ("regression", 2)
    assert np.all(dataset.train.x[:, 1] == 0)
    assert np.all(dataset.test.x[:, 1] == 0)
    mean, std = targets[:12].mean(axis=0), targets[:12].std(axis=0)
    np.testing.assert_allclose(dataset.test.y, (targets[12:] - mean) / std, rtol=1e-4)
    np.testing.assert_allclose(dataset.target_mean, mean, rtol=1e-12)
    np.testing.assert_allclose(dataset.target_std, std, rtol=1e-9)


NAN = np.full((5, 3), np.nan)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"y_test": None}, r"lacks y_test and has x_train, y_train, x_test. Write it"),
        ({"x_train": np.array([{}] * 12)}, "can't be read: Object arrays cannot be"),
        ({"y_train": np.array(["a"] * 12)}, "`y_train` must be numbers, got <U1"),
        ({"x_test": NAN}, "`x_test` must be finite, got 15 NaN or infinite numbers"),
        ({"x_test": np.zeros((0, 3))}, r"`x_test` must hold examples, got shape \(0, "),
        ({"y_train": np.arange(11)}, "must be of one length, got 12 and 11"),
        ({"x_test": np.zeros((5, 4))}, r"one shape, got \(3,\) and \(4,\)"),
        (
            {"y_train": np.arange(12) % 3 + 1},
            "labels 0, 1, 2 and so on, got 1, 2, 3. R",
        ),
        ({"y_train": np.arange(12) * 2}, "so on, got 0, 2, 4, 6, 8, .... Renumber"),
        ({"y_train": np.zeros(12, int)}, "so on, got 0. Renumber"),
        ({"y_test": np.full(5, 3)}, "must hold labels of `y_train`, got 3 besides"),
        ({"y_test": np.full(5, 0.5)}, "must hold integers like `y_train`, got float64"),
        (
            {"y_train": np.eye(12, dtype=int), "y_test": np.eye(12, dtype=int)[:5]},
            r"one integer an example, got shape \(12, 12\). Take the argmax",
        ),
        ({"y_train": np.ones(12)}, "`y_train` must vary in every column"),
        (
            {"y_train": np.ones((12, 2, 2)), "y_test": np.ones((5, 2, 2))},
            r"\(example, output\), got shape \(12, 2, 2\). Flatten",
        ),
    ],
)
def test_an_unusable_npz_says_what_to_do(tmp_path, changes, message):
    path, _ = saved(tmp_path, **changes)
    with pytest.raises(ValueError, match=message):
        data.load(path)


def test_a_wrong_name_says_what_to_type(tmp_path, monkeypatch):
    with pytest.raises(ValueError, match="digits, breast_cancer, .* mean diabetes?"):
        data.load("diabtes")
    with pytest.raises(ValueError, match="existing .npz file, but no.npz is none"):
        data.load("no.npz")
    with pytest.raises(
        ValueError, match="`test_fraction` must be between 0 and 1, got"
    ):
        data.load("wine", test_fraction=20.0)
    path = tmp_path / "text.npz"
    path.write_text("no archive")
    with pytest.raises(ValueError, match=r"text.npz can't be read: .* Write it with"):
        data.load(str(path))

    monkeypatch.setenv("TFDS_DATA_DIR", str(tmp_path))
    with pytest.raises(ValueError, match=r"got tfds:mnits. Did you mean mnist\?"):
        data.load("tfds:mnits")
    with pytest.raises(ValueError, match="has none. Prepare it with `tfds build mnist"):
        data.load("tfds:mnist")
    monkeypatch.setitem(sys.modules, "tensorflow_datasets", None)
    with pytest.raises(ImportError, match=r'pip install "symjax-posteriors\[tfds\]"'):
        data.load("tfds:mnist")


def test_a_tfds_set_is_read_without_tensorflow(tmp_path, monkeypatch):
    images = np.random.default_rng(0).integers(0, 256, (26, 4, 4)).astype(np.uint8)
    labels = np.arange(26) % 3
    supervised_keys = ("image", "label")

    class SmallSquares(tfds.core.GeneratorBasedBuilder):
        """Images of 4 x 4 pixels."""

        VERSION = tfds.core.Version("1.0.0")

        def _info(self):
            return tfds.core.DatasetInfo(
                builder=self,
                features=tfds.features.FeaturesDict(
                    {
                        "image": tfds.features.Image(shape=(4, 4, 1)),
                        "label": tfds.features.ClassLabel(num_classes=3),
                    }
                ),
                supervised_keys=supervised_keys,
            )

        def _split_generators(self, dl_manager):
            del dl_manager
            return {
                "train": self._generate_examples(range(20)),
                "test": self._generate_examples(range(20, 26)),
            }

        def _generate_examples(self, rows):
            for row in rows:
                # Encoding pixels needs TensorFlow; a file already encoded does not.
                file = io.BytesIO()
                PIL.Image.fromarray(images[row]).save(file, "png")
                file.seek(0)
                yield row, {"image": file, "label": labels[row]}

    tfds.disable_progress_bar()
    builder = SmallSquares(data_dir=str(tmp_path), file_format="array_record")
    builder.download_and_prepare()
    monkeypatch.setenv("TFDS_DATA_DIR", str(tmp_path))
    dataset = data.load("tfds:small_squares")
    assert (dataset.task, dataset.num_outputs) == ("classification", 3)
    assert dataset.train.x.shape == (20, 4, 4, 1)

    # Records come in an order of their own; each still has its label.
    expected = (images - images[:20].mean()) / images[:20].std()
    for part, rows in ((dataset.train, range(20)), (dataset.test, range(20, 26))):
        found = [
            int(np.argmin(np.abs(expected - x[..., 0]).sum(axis=(1, 2))))
            for x in part.x
        ]
        assert sorted(found) == list(rows)
        np.testing.assert_allclose(part.x[..., 0], expected[found], atol=1e-5)
        np.testing.assert_array_equal(part.y, labels[found])

    # `tfds build` writes another format if it isn't told.
    info = tmp_path / "small_squares" / "1.0.0" / "dataset_info.json"
    text = info.read_text()
    info.write_text(text.replace("array_record", "tfrecord"))
    with pytest.raises(ValueError, match="not stored by record. Prepare it with `tfds"):
        data.load("tfds:small_squares")
    supervised_keys = None
    fields = json.loads(text)
    del fields["supervisedKeys"]
    info.write_text(json.dumps(fields))
    with pytest.raises(ValueError, match="one input and one target .*, got None. Save"):
        data.load("tfds:small_squares")


def test_mnist_is_read_whole(data_folder):
    dataset = data.load(str(data_folder / "mnist.npz"))
    assert dataset.train.x.shape == (60_000, 28, 28)
    assert (dataset.num_outputs, len(dataset.test.y)) == (10, 10_000)
    np.testing.assert_allclose([dataset.train.x.mean()], 0, atol=1e-4)
    np.testing.assert_allclose([dataset.train.x.std()], 1, atol=1e-4)
