"""Images of another size, and files and seeds that can't be used."""

import numpy as np
import PIL.Image
import pytest

from symjax import data
from symjax.data import images


def test_another_size_is_the_mean_of_areas():
    """28 to 8: each new pixel is 7 x 7 of the halves of pixels."""
    big = np.random.default_rng(0).random((3, 28, 28, 1), dtype=np.float32)
    halves = big.repeat(2, axis=1).repeat(2, axis=2)
    expected = halves.reshape(3, 8, 7, 8, 7).mean(axis=(2, 4))
    small = images.fit(big, (8, 8, 3))
    assert (small.shape, small.dtype) == ((3, 8, 8, 3), np.float32)
    for channel in range(3):
        np.testing.assert_allclose(small[..., channel], expected, atol=1e-6)
    # Rows and columns are not taken for each other; Pillow's own reduction.
    grey = PIL.Image.fromarray(big[1, :, :, 0])
    oblong = images.fit(big, (14, 7, 1))
    np.testing.assert_allclose(oblong[1, :, :, 0], grey.reduce((4, 2)), atol=1e-6)
    # Larger: the old pixels, and their mean where a new one lies across.
    larger = images.fit(big[:, :2, :1], (3, 1, 1))[:, :, 0]
    first, last = big[:, 0, 0], big[:, 1, 0]
    expected = np.stack([first, (first + last) / 2, last], axis=1)
    np.testing.assert_allclose(larger, expected, atol=1e-6)
    # Colours are averaged to grey; white stays white.
    colours = np.random.default_rng(1).random((2, 8, 8, 3), dtype=np.float32)
    grey = images.fit(colours, (8, 8, 1))[..., 0]
    np.testing.assert_allclose(grey, colours.mean(axis=3), atol=1e-6)
    assert images.fit(np.ones((1, 28, 28, 1), np.float32), (9, 9, 1)).max() <= 1


def test_bytes_come_back_and_grey_stays_grey(tmp_path):
    random = np.random.default_rng(0)
    x = random.integers(0, 256, (40, 4, 4, 3), dtype=np.uint8)
    x[:10] = random.integers(0, 256, (10, 4, 4, 1), dtype=np.uint8)
    x[:, 0, 0], x[:, 1, 1] = 0, 255
    y = np.arange(40) % 3
    np.savez(tmp_path / "a.npz", x_train=x, y_train=y, x_test=x[:20], y_test=y[:20])
    dataset = data.load(str(tmp_path / "a.npz"))
    expected = (x[:20] / 255).astype(np.float32)
    np.testing.assert_array_equal(images.as_pixels(dataset), expected)
    made = dataset.test._replace(x=data.load_shifted(dataset, "brightness", 1).x)
    brighter = images.as_pixels(dataset._replace(test=made, train_bytes=None))[:10]
    assert brighter[:, 0, 0].min() > 0.04
    np.testing.assert_allclose(brighter, brighter[..., :1].repeat(3, 3), atol=1e-5)


def test_pixels_run_from_black_to_white_where_black_is_not_zero(tmp_path):
    x = np.random.default_rng(0).uniform(-1, 3, (30, 4, 4)).astype(np.float32)
    x[0, 0, 0], x[1, 0, 0] = -1, 3
    y = np.arange(30) % 3
    np.savez(tmp_path / "a.npz", x_train=x, y_train=y, x_test=x[:6], y_test=y[:6])
    dataset = data.load(str(tmp_path / "a.npz"))
    pixels = images.as_pixels(dataset)
    np.testing.assert_allclose(pixels[..., 0], (x[:6] + 1) / 4, atol=1e-5)
    again = images.as_inputs(pixels, dataset)
    np.testing.assert_allclose(again, dataset.test.x, atol=1e-5)


def test_a_channel_that_never_varies_stays_0_in_other_images(tmp_path):
    """As it is in the test set: its weights have seen nothing else."""
    x = np.random.default_rng(0).integers(0, 256, (12, 4, 4, 3), dtype=np.uint8)
    x[:9, ..., 1] = 7
    y = np.arange(12) % 3
    parts = {"x_train": x[:9], "y_train": y[:9], "x_test": x[9:], "y_test": y[9:]}
    np.savez(tmp_path / "a.npz", **parts)
    dataset = data.load(str(tmp_path / "a.npz"))
    assert not dataset.test.x[..., 1].any()
    found = images.as_inputs(x[9:] / np.float32(255), dataset)
    np.testing.assert_allclose(found, dataset.test.x, atol=1e-5)


def test_a_seed_is_not_negative():
    with pytest.raises(ValueError, match="`seed` must be a whole .*got -1"):
        data.load_shifted(data.load("digits"), "fog", 1, -1)


@pytest.mark.parametrize("content", [b"", b"no archive"])
def test_a_broken_file_is_named(tmp_path, monkeypatch, content):
    monkeypatch.setenv("SYMJAX_DATA", str(tmp_path))
    for name in ("kmnist_test", "cifar10_jpeg"):
        (tmp_path / f"{name}.npz").write_bytes(content)
    with pytest.raises(ValueError, match="kmnist_test.npz must hold `x_test`: "):
        data.load_ood("kmnist", data.load("digits"))
    with pytest.raises(ValueError, match="cifar10_jpeg.npz can't be read: "):
        data.load("cifar10_jpeg")


def test_an_absent_ood_set_says_both_files(tmp_path, monkeypatch):
    monkeypatch.setenv("SYMJAX_DATA", str(tmp_path))
    monkeypatch.setenv("TFDS_DATA_DIR", str(tmp_path))
    with pytest.raises(ValueError, match=r"no .*kmnist_test.npz, and .*kmnist.npz "):
        data.load_ood("kmnist", data.load("digits"))
