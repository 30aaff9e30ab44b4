"""Corrupted images and inputs out of distribution, against SciPy and Pillow."""

import io

import matplotlib.colors
import numpy as np
import PIL.Image
import pytest
import scipy.ndimage
import scipy.signal

from symjax import data
from symjax.data import corruptions, filters, images
from symjax.data.corruptions import corrupt


def smooth(count, side, channels):
    """Images with structure, inside [0.05, 0.95]."""
    noise = np.random.default_rng(0).normal(size=(count, side, side, channels))
    noise = scipy.ndimage.gaussian_filter(noise, (0, side / 12, side / 12, 0))
    low, high = noise.min(), noise.max()
    return (0.05 + 0.9 * (noise - low) / (high - low)).astype(np.float32)


@pytest.fixture(scope="module")
def digits():
    return data.load("digits")


@pytest.mark.parametrize("name", data.SHIFT_NAMES)
def test_severities_move_further_away_and_seeds_are_kept(digits, name):
    for clean in (images.as_pixels(digits)[:100], smooth(20, 28, 1), smooth(20, 32, 3)):
        before = clean.copy()
        shifted = [corrupt(name, clean, severity, 0) for severity in range(1, 6)]
        again = corrupt(name, clean, 3, 0)
        np.testing.assert_array_equal(again, shifted[2])
        np.testing.assert_array_equal(clean, before)
        for image in shifted:
            assert (image.shape, image.dtype) == (clean.shape, np.float32)
            assert 0 <= image.min() <= image.max() <= 1
        distances = [np.mean((image - clean) ** 2) for image in shifted]
        # A turned photograph is as far away at 45 degrees as at 75.
        if name != "rotate" or clean.shape[1] == 8:
            assert np.all(np.diff([0, *distances]) > 0), distances
    is_random = name.endswith("_noise") or name in ("motion_blur", "fog", "elastic")
    assert np.array_equal(corrupt(name, clean, 3, 1), shifted[2]) != is_random


def test_what_is_drawn_is_of_seed_and_name_and_the_same_at_every_severity():
    """A name's place in the table is in its seed: those of before keep their images."""
    assert data.SHIFT_NAMES[:7] == (
        *("gaussian_noise", "shot_noise", "impulse_noise", "defocus_blur"),
        *("motion_blur", "zoom_blur", "brightness"),
    )
    assert data.SHIFT_NAMES[7:13] == (
        *("contrast", "fog", "pixelate", "elastic", "jpeg", "rotate"),
    )
    grey = np.full((3, 9, 9, 1), 0.5, np.float32)
    for seed in (0, 7):
        drawn = np.random.default_rng([seed, 0]).standard_normal(grey.shape, np.float32)
        uniform = np.random.default_rng([seed, 2]).random(grey.shape, np.float32)
        for severity, std, share in ((1, 0.04, 0.01), (3, 0.08, 0.03), (5, 0.1, 0.07)):
            noise = corrupt("gaussian_noise", grey, severity, seed) - grey
            np.testing.assert_allclose(noise, std * drawn, atol=1e-6)
            hit = corrupt("impulse_noise", grey, severity, seed)
            np.testing.assert_array_equal(hit == 1, uniform < share / 2)
            np.testing.assert_array_equal(hit == 0, uniform > 1 - share / 2)


def test_noises_have_their_moments():
    """Bounds of five standard errors or more."""
    grey = np.full((400, 28, 28, 1), 0.5, np.float32)
    for severity, std in enumerate((0.04, 0.06, 0.08, 0.09, 0.10), 1):
        noise = corrupt("gaussian_noise", grey, severity, 0) - grey
        assert abs(noise.mean()) < 5 * std / np.sqrt(noise.size)
        # Half a grey is five standard deviations or more: next to nothing is clipped.
        assert abs(noise.std() / std - 1) < 5 / np.sqrt(2 * noise.size)
    for severity, photons in enumerate((500, 250, 100, 75, 50), 1):
        shot = corrupt("shot_noise", grey, severity, 0)
        variance = 0.5 / photons
        assert abs(shot.mean() - 0.5) < 5 * np.sqrt(variance / shot.size)
        assert abs(shot.var() / variance - 1) < 6 * np.sqrt(2 / shot.size)
    for severity, share in enumerate((0.01, 0.02, 0.03, 0.05, 0.07), 1):
        hit = corrupt("impulse_noise", grey, severity, 0)
        for value in (0, 1):
            bound = 5 * np.sqrt(share / 2 / hit.size)
            assert abs(np.mean(hit == value) - share / 2) < bound
        assert set(np.unique(hit)) == {0, 0.5, 1}


def test_a_disc_blurs_as_the_published_kernels():
    """CIFAR-10-C: a pixel, a plus and a square of 9, each under a normal of 3 x 3."""
    pixel, square = np.zeros((3, 3)), np.ones((3, 3))
    pixel[1, 1] = 1
    plus = scipy.ndimage.generate_binary_structure(2, 1).astype(float)
    rows = np.arange(-1, 2)
    published = ((pixel, 0.4), (pixel, 0.5), (pixel, 0.6), (plus, 0.2), (square, 0.1))
    point = np.zeros((1, 32, 32, 1), np.float32)
    point[0, 16, 16] = 1
    for severity, (shape, std) in enumerate(published, 1):
        normal = np.exp(-(rows**2) / (2 * std**2))
        variance = rows**2 @ normal / normal.sum()
        variance += rows**2 @ shape.sum(axis=1) / shape.sum()
        spread = corrupt("defocus_blur", point, severity, 0)[0, :, :, 0]
        for axis in (0, 1):
            found = np.arange(-16, 16) ** 2 @ spread.sum(axis=axis)
            assert found == pytest.approx(variance, rel=0.01)


def test_blurs_are_those_of_scipy():
    clean = smooth(6, 32, 3)
    kernel = filters.disc(2.2)
    assert kernel.shape == (7, 7)
    np.testing.assert_allclose(kernel, kernel.T, atol=1e-12)
    # Second moments: a disc's r^2 / 4, a pixel's triangle adds at most 1/4.
    offset = np.arange(-3, 4)
    assert 2.2**2 / 4 < kernel.sum(axis=1) @ offset**2 < 2.2**2 / 4 + 0.25
    blurred = corrupt("defocus_blur", clean, 5, 0)
    kernel = filters.disc(1.42)
    padded = np.pad(clean[2, :, :, 1], 2, mode="symmetric")
    expected = scipy.signal.convolve2d(padded, kernel, "valid")
    np.testing.assert_allclose(blurred[2, :, :, 1], expected, atol=1e-5)

    # Each image's streak is one of the angles'.
    found = set()
    for severity, std in enumerate((1.0, 1.5, 2.0, 2.25, 2.5), 1):
        blurred = corrupt("motion_blur", clean, severity, 0)
        before, after = clean[severity, ..., 0], blurred[severity, ..., 0]
        distances = []
        for angle in corruptions.ANGLES:
            kernel = filters.streak(std, angle)
            padded = np.pad(before, len(kernel) // 2, mode="symmetric")
            expected = scipy.signal.convolve2d(padded, kernel, "valid")
            distances.append(np.abs(expected - after).max())
        assert min(distances) < 1e-5
        found.add(np.argmin(distances))
    assert len(found) > 2
    # The mean of a half-normal is sqrt(2 / pi) of its standard deviation.
    level = filters.streak(3.0, 0.0).sum(axis=0)
    mean = level @ (np.arange(len(level)) - len(level) // 2)
    assert abs(mean / (3 * np.sqrt(2 / np.pi)) - 1) < 0.02

    for severity, largest in enumerate((1.06, 1.11, 1.16, 1.21, 1.26), 1):
        zoomed = corrupt("zoom_blur", clean, severity, 0)[0, :, :, 2]
        total = clean[0, :, :, 2]
        for zoom in np.linspace(1, largest, 11):
            total = total + scipy.ndimage.affine_transform(
                clean[0, :, :, 2], [1 / zoom] * 2, 15.5 * (1 - 1 / zoom), order=1
            )
        np.testing.assert_allclose(zoomed, total / 12, atol=1e-5)


def test_rotation_is_that_of_scipy():
    clean = smooth(2, 28, 1)
    turned = corrupt("rotate", clean, 2, 0)[1, :, :, 0]
    expected = scipy.ndimage.rotate(clean[1, :, :, 0], 30, reshape=False, order=1)
    np.testing.assert_allclose(turned, np.clip(expected, 0, 1), atol=1e-5)
    # A light on the right goes up.
    light = np.zeros((1, 28, 28, 1), np.float32)
    light[0, 12:16, 22:26] = 1
    rows = np.arange(28) @ corrupt("rotate", light, 3, 0)[0, :, :, 0]
    assert rows.sum() < np.arange(28) @ light[0, :, :, 0].sum(axis=1)


def test_weather_is_that_of_its_formulas():
    clean = smooth(3, 32, 3)
    clean[0, :4] = 0
    hsv = matplotlib.colors.rgb_to_hsv(clean)
    strengths = ((0.05, 0.75), (0.1, 0.5), (0.15, 0.4), (0.2, 0.3), (0.3, 0.15))
    for severity, (added, kept) in enumerate(strengths, 1):
        raised = hsv.copy()
        raised[..., 2] = np.clip(hsv[..., 2] + added, 0, 1)
        expected = matplotlib.colors.hsv_to_rgb(raised)
        bright = corrupt("brightness", clean, severity, 0)
        np.testing.assert_allclose(bright, expected, atol=1e-5)
        flat = corrupt("contrast", clean, severity, 0)
        axes = (1, 2)
        np.testing.assert_allclose(flat.mean(axes), clean.mean(axes), atol=1e-5)
        np.testing.assert_allclose(flat.std(axes), kept * clean.std(axes), rtol=1e-3)

    # On black, the cloud alone would shine, but the largest value stays.
    foggy = corrupt("fog", clean, 5, 0)
    assert np.all(foggy.max(axis=(1, 2, 3)) <= clean.max(axis=(1, 2, 3)) + 1e-6)


def test_fog_is_as_thick_and_as_rough_as_the_published():
    """The moments of CIFAR-10-C's clouds, from 400 of them; see `corruptions.fog`."""
    white = np.ones((400, 32, 32, 1), np.float32)
    published = (
        *((0.2, 0.149, 0.026), (0.5, 0.149, 0.026), (0.75, 0.152, 0.027)),
        *((1.0, 0.162, 0.031), (1.5, 0.172, 0.037)),
    )
    for severity, (thickness, spread, step) in enumerate(published, 1):
        cloud = corrupt("fog", white, severity, 0) * (1 + thickness) - 1
        cloud = cloud[..., 0] / thickness
        np.testing.assert_allclose(cloud.min(axis=(1, 2)), 0, atol=1e-5)
        np.testing.assert_allclose(cloud.max(axis=(1, 2)), 1, atol=1e-5)
        assert cloud.mean() == pytest.approx(0.5, abs=0.02)
        assert 1 < cloud.std(axis=(1, 2)).mean() / spread < 1.4
        rough = np.sqrt(np.mean(np.diff(cloud, axis=1) ** 2))
        assert rough == pytest.approx(step, rel=0.18)


def test_squares_are_those_of_whole_parts():
    """Pixels cut into as many parts as make squares whole, and the means of these."""
    clean = smooth(3, 32, 3)
    for severity, count in enumerate((30, 28, 27, 24, 20), 1):
        cut = clean[1, :, :, 0].repeat(count, axis=0).repeat(count, axis=1)
        squares = cut.reshape(count, 32, count, 32).mean(axis=(1, 3))
        whole = squares.repeat(32, axis=0).repeat(32, axis=1)
        expected = whole.reshape(32, count, 32, count).mean(axis=(1, 3))
        coarse = corrupt("pixelate", clean, severity, 0)[1, :, :, 0]
        np.testing.assert_allclose(coarse, expected, atol=1e-5)
    # Where squares are whole pixels they are Pillow's.
    box = PIL.Image.Resampling.BOX
    plane = PIL.Image.fromarray(clean[1, :8, :8, 0])
    expected = np.asarray(plane.resize((4, 4), box).resize((8, 8), box))
    coarse = corrupt("pixelate", clean[1:2, :8, :8, :1], 4, 0)[0, :, :, 0]
    np.testing.assert_allclose(coarse, expected, atol=1e-5)


def test_compressed_images_are_those_of_pillow():
    clean = smooth(3, 32, 3)
    cases = [(clean, severity) for severity in range(1, 6)]
    for some, severity in [*cases, (clean[..., :1], 5), (clean[..., :2], 5)]:
        compressed = corrupt("jpeg", some, severity, 0)
        quality = (80, 65, 58, 50, 40)[severity - 1]
        image = np.round(255 * some[2]).astype(np.uint8)
        is_colour = image.shape[2] == 3
        for channel in range(1 if is_colour else image.shape[2]):
            kept = image if is_colour else image[..., channel]
            buffer = io.BytesIO()
            PIL.Image.fromarray(kept).save(buffer, "JPEG", quality=quality)
            decoded = np.asarray(PIL.Image.open(buffer)) / 255
            found = compressed[2] if is_colour else compressed[2][..., channel]
            np.testing.assert_allclose(found, decoded, atol=1e-6)


def test_elastic_moves_pixels_of_one_image_by_its_distance():
    """On ramps the change is the displacement; another image beside does nothing."""
    ramp = np.broadcast_to(np.linspace(0.2, 0.8, 64)[:, None], (20, 64, 64))
    both = np.stack([ramp, np.swapaxes(ramp, 1, 2)], axis=3).astype(np.float32)
    for severity, pixels in enumerate((0.4, 0.7, 1.0, 1.35, 1.75), 1):
        moved = (corrupt("elastic", both, severity, 0) - both) * 63 / 0.6
        distance = np.sqrt(np.sum(moved**2, axis=3).mean(axis=(1, 2)))
        # What is moved beyond an edge is mirrored, and seems to stay: a few of 64.
        assert 0.95 < distance.mean() / (pixels * np.sqrt(64 / 32)) < 1
    # Smoothed by normals of a tenth of the side: of places d apart exp(-d^2 / 4 s^2).
    inner = (corrupt("elastic", both, 5, 0) - both)[:, 8:-8, 8:-8]
    inner -= inner.mean()
    alike = lambda one, other: np.mean(one * other) / np.mean(inner**2)
    expected = np.exp(-(6**2) / (4 * 6.4**2))
    assert alike(inner[:, 6:], inner[:, :-6]) == pytest.approx(expected, abs=0.1)
    assert alike(inner[:, :, 6:], inner[:, :, :-6]) == pytest.approx(expected, abs=0.1)
    assert abs(alike(inner[1:], inner[:-1])) < 0.3  # images are moved each by itself
    assert abs(alike(inner[..., 0], inner[..., 1])) < 0.3
    flat = np.stack([np.zeros((32, 32, 1)), np.ones((32, 32, 1))])
    np.testing.assert_allclose(corrupt("elastic", flat, 5, 0), flat, atol=1e-5)


def test_a_shifted_set_is_normalised_like_the_clean_one(digits):
    back = images.as_inputs(images.as_pixels(digits), digits)
    np.testing.assert_allclose(back, digits.test.x, atol=1e-5)
    shifted = data.load_shifted(digits, "brightness", 1)
    np.testing.assert_array_equal(shifted.y, digits.test.y)
    # A twentieth of the way from black to white, which is 16 in the file.
    dark = digits.test.x < 0
    step = (shifted.x - digits.test.x)[dark] * digits.input_std
    np.testing.assert_allclose(step, 0.05 * 16, rtol=1e-4)


def fake(folder, **changes):
    x = np.random.default_rng(0).integers(0, 256, (30, 6, 6, 3)).astype(np.uint8)
    y = np.arange(30) % 3
    arrays = {"x_train": x[:24], "y_train": y[:24], "x_test": x[24:], "y_test": y[24:]}
    np.savez(folder / "images.npz", **arrays)
    (folder / "CIFAR-10-C").mkdir()
    corrupted = {"fog": x, "labels": y.astype(np.uint8)} | changes
    for name, array in corrupted.items():
        np.save(folder / "CIFAR-10-C" / f"{name}.npy", array)
    return data.load(str(folder / "images.npz")), x, y


def test_the_published_files_are_read_where_they_are(tmp_path, monkeypatch):
    monkeypatch.setenv("SYMJAX_DATA", str(tmp_path))
    labels = np.arange(30) // 4 % 3  # each severity's are its own
    dataset, *_ = fake(tmp_path, labels=labels)
    shifted = data.load_shifted(dataset, "CIFAR-10-C/fog", 4)
    np.testing.assert_array_equal(shifted.y, labels[18:24])
    np.testing.assert_allclose(shifted.x, dataset.train.x[18:24], atol=1e-5)
    with pytest.raises(ValueError, match=r"no .*fogg.npy \(SYM.* Did you mean fog\?"):
        data.load_shifted(dataset, "CIFAR-10-C/fogg", 4)
    with pytest.raises(ValueError, match="uint8 of shape .*, but .* has uint8 of sh"):
        data.load_shifted(data.load("digits"), "CIFAR-10-C/fog", 4)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"labels": np.zeros(29, int)}, r"30 images and labels of shape \(29,\)"),
        ({"labels": np.full(30, 3)}, "labels of 0 to 2, those of .*, got 0 to 3"),
        # As those of CIFAR-10 are for a network of CIFAR-100.
        ({"labels": np.arange(30) % 2}, "labels of 0 to 2, those of .*, got 0 to 1"),
        ({"fog": np.zeros((30, 6, 6, 3))}, "but .* has float64 of shape"),
    ],
)
def test_published_files_of_other_data_are_refused(
    tmp_path, monkeypatch, changes, message
):
    monkeypatch.setenv("SYMJAX_DATA", str(tmp_path))
    dataset, *_ = fake(tmp_path, **changes)
    with pytest.raises(ValueError, match=message):
        data.load_shifted(dataset, "CIFAR-10-C/fog", 1)


def test_wrong_shifts_are_explained(digits):
    with pytest.raises(ValueError, match=r"got 'fogg'. Did you mean fog\?"):
        data.load_shifted(digits, "fogg", 1)
    for severity in (0, 6):
        with pytest.raises(ValueError, match=f"1, 2, 3, 4 or 5, got {severity}"):
            data.load_shifted(digits, "fog", severity)
    with pytest.raises(ValueError, match=r"must hold images .*wine have shape \(13,\)"):
        data.load_shifted(data.load("wine"), "fog", 1)


def test_ood_sets_without_files(digits):
    wine = data.load("wine")
    noise = data.load_ood("noise", wine)
    assert noise.x.shape == wine.test.x.shape
    np.testing.assert_array_equal(noise.x, data.load_ood("noise", wine).x)
    assert abs(data.load_ood("noise", digits).x.std() - 1) < 0.03
    permuted = data.load_ood("permuted", digits)
    flat = permuted.x.reshape(360, 64), digits.test.x.reshape(360, 64)
    np.testing.assert_allclose(*(np.sort(x, axis=1) for x in flat), atol=1e-5)
    assert not np.allclose(*flat, atol=0.1)
    assert (permuted.y.dtype, set(permuted.y)) == (np.int32, {0})


def test_ood_sets_from_files_fit_the_images(tmp_path, monkeypatch, digits):
    monkeypatch.setenv("SYMJAX_DATA", str(tmp_path))
    x = np.random.default_rng(0).integers(0, 256, (7, 28, 28)).astype(np.uint8)
    np.savez(tmp_path / "kmnist_test.npz", x_test=x)
    found = data.load_ood("kmnist", digits)
    # A new pixel covers 7 x 7 halves of pixels.
    halves = x[3].repeat(2, axis=0).repeat(2, axis=1)
    small = halves.reshape(8, 7, 8, 7).mean(axis=(1, 3)) / 255 * 16
    expected = (small - digits.input_mean) / digits.input_std
    np.testing.assert_allclose(found.x[3, :, :, 0], expected, atol=1e-4)
    dataset, *_ = fake(tmp_path)
    colours = data.load_ood("digits", dataset)
    assert colours.x.shape == (1797, 6, 6, 3)
    raw = colours.x * dataset.input_std + dataset.input_mean
    np.testing.assert_allclose(raw[..., 0], raw[..., 2], atol=1e-3)

    # In another order pixels keep their colours, and all images have one order.
    permuted = data.load_ood("permuted", dataset).x.reshape(-1, 36, 3)
    pixels = dataset.test.x.reshape(-1, 36, 3)
    apart = np.abs(permuted[0][:, None] - pixels[0]).max(axis=2)
    order = apart.argmin(axis=1)
    assert sorted(order) == list(range(36)) != list(order)
    np.testing.assert_allclose(permuted, pixels[:, order], atol=1e-5)

    cifar100 = dataset._replace(name="cifar100")
    coloured = np.random.default_rng(1).integers(0, 256, (5, 32, 32, 3))
    for name in ("svhn_cropped", "cifar10"):
        np.savez(tmp_path / f"{name}_test.npz", x_test=coloured.astype(np.uint8))
        assert data.load_ood(name, cifar100).x.shape == (5, 6, 6, 3)
    assert data.load_ood("svhn_cropped", digits).x.shape == (5, 8, 8, 1)

    np.savez(tmp_path / "notmnist_test.npz", x_test=x / 255)
    jpeg = dataset._replace(name="cifar10_jpeg")
    for name, like, message in (
        ("kmnits", digits, r"got 'kmnits'. Did you mean kmnist\?"),
        ("digits", digits, "must be another set than `like`, got digits"),
        ("cifar10", jpeg, "must be another set than `like`, got cifar10"),
        ("kmnist", data.load("wine"), "must hold images"),
        ("mnist", digits, "there is no .*mnist.npz"),
        ("notmnist", digits, "must be uint8 images, got float64"),
    ):
        with pytest.raises(ValueError, match=message):
            data.load_ood(name, like)


def test_jpeg_streams_are_a_data_set(tmp_path, monkeypatch):
    monkeypatch.setenv("SYMJAX_DATA", str(tmp_path))
    pixels = np.round(255 * smooth(6, 16, 3)).astype(np.uint8)
    streams = []
    for image in pixels:
        buffer = io.BytesIO()
        PIL.Image.fromarray(image).save(buffer, "JPEG", quality=95)
        streams.append(np.frombuffer(buffer.getvalue(), np.uint8))
    arrays = {"jpeg_header": streams[0][:2]}
    for kind, part in (("train", streams[:4]), ("test", streams[4:])):
        bodies = [stream[2:] for stream in part]
        arrays[f"jpeg_{kind}"] = np.concatenate(bodies)
        arrays[f"offsets_{kind}"] = np.cumsum([0, *map(len, bodies)])
        arrays[f"y_{kind}"] = np.arange(len(part)) % 2
    np.savez(tmp_path / "cifar10_jpeg.npz", **arrays)
    dataset = data.load("cifar10_jpeg")
    # As of CIFAR that was not compressed.
    np.testing.assert_allclose(dataset.input_mean, 255 * np.array([0.49, 0.48, 0.44]))
    np.testing.assert_allclose(dataset.input_std, 255 * 0.2)
    found = dataset.test.x * dataset.input_std + dataset.input_mean
    decoded = [np.asarray(PIL.Image.open(io.BytesIO(s.tobytes()))) for s in streams]
    np.testing.assert_allclose(found, decoded[4:], atol=1e-3)
    np.savez(tmp_path / "cifar10_jpeg.npz", jpeg_header=streams[0][:2])
    with pytest.raises(ValueError, match="can't be read: .*jpeg_train"):
        data.load("cifar10_jpeg")
