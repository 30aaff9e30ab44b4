"""`--pixels unit`: black is 0 and white is 1, in all that a network is given."""

import sys

import jax
import numpy as np
import pytest

from symjax import cli, data, models, store
from symjax.cli import posteriors, records, weights
from symjax.cli.problem import Problem
from symjax.data.corruptions import corrupt


def symjax(*words, code=0):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["symjax", *map(str, words)])
        if code == 0:
            cli.main()
            return
        with pytest.raises(SystemExit) as stopped:
            cli.main()
    assert stopped.value.code == code


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Files of images whose first row of pixels is blank, in colour and in grey."""
    folder = tmp_path_factory.mktemp("data")
    colour = np.random.default_rng(0).integers(0, 256, (60, 6, 6, 3), dtype=np.uint8)
    colour[..., 1] //= 3  # a channel of its own moments
    colour[:, 0] = 0
    colour[3, 2, 2] = 255
    y = np.arange(60) % 3
    for name, x in (("colour", colour), ("grey", colour[..., 0])):
        parts = {"x_train": x[:40], "x_test": x[40:]}
        np.savez(folder / f"{name}.npz", **parts, y_train=y[:40], y_test=y[40:])
    return folder


def raw(folder, name):
    with np.load(folder / f"{name}.npz") as file:
        return file["x_train"].astype(float), file["x_test"].astype(float)


@pytest.mark.parametrize("name", ["colour", "grey"])
def test_bytes_are_divided_by_255_and_blank_stays_0(folder, name):
    found = data.load(str(folder / f"{name}.npz"), pixels="unit")
    for part, x in zip((found.train, found.test), raw(folder, name), strict=True):
        assert part.x.dtype == np.float32
        np.testing.assert_allclose(part.x, x / 255, rtol=2e-7, atol=0)
        assert np.all(part.x[:, 0] == 0)
    assert found.train.x.max() == 1
    # A device makes the same of bytes, to the last bit.
    statistics = map(np.asarray, (found.input_mean, found.input_std))
    read = jax.jit(models.from_bytes(lambda params, x: x, *statistics))
    np.testing.assert_array_equal(read(None, found.train_bytes), found.train.x)
    usual = data.load(str(folder / f"{name}.npz"))
    assert found.fingerprint == usual.fingerprint
    assert np.all(usual.train.x[:, 0] < 0)


def test_numbers_are_scaled_from_the_smallest_to_the_largest(tmp_path):
    x = np.random.default_rng(0).normal(5, 2, (20, 4, 4))
    y = np.arange(20) % 2
    path = tmp_path / "x.npz"
    np.savez(path, x_train=x[:15], x_test=x[15:], y_train=y[:15], y_test=y[15:])
    found = data.load(str(path), pixels="unit")
    low, high = x[:15].min(), x[:15].max()
    np.testing.assert_allclose(found.test.x, (x[15:] - low) / (high - low), rtol=1e-6)
    assert (found.train.x.min(), found.train.x.max()) == (0, 1)
    assert found.input_range == data.load(str(path)).input_range == (low, high)


@pytest.mark.parametrize("name", ["colour", "grey"])
def test_a_network_says_the_same_of_bytes(folder, name):
    problem = Problem(str(folder / f"{name}.npz"), pixels="unit", widths=(5,))
    built = posteriors.build(problem)
    assert built.dataset.train.x.dtype == np.uint8
    params = built.init(jax.random.key(0))
    x = (raw(folder, name)[0] / 255).astype(np.float32)
    plain = models.build("mlp", 3, widths=(5,)).apply(params, x)
    outputs = jax.jit(built.apply)(params, built.dataset.train.x)
    np.testing.assert_allclose(outputs, plain, rtol=1e-5, atol=1e-6)
    # Weights of a blank pixel do not matter.
    kernel = params["params"]["Dense_0"]["kernel"]
    params["params"]["Dense_0"]["kernel"] = kernel.at[: x[0, 0].size].set(1e9)
    changed = jax.jit(built.apply)(params, built.dataset.train.x)
    np.testing.assert_array_equal(changed, outputs)


@pytest.mark.parametrize("name", ["colour", "grey"])
def test_other_inputs_have_the_same_scale(folder, name, monkeypatch):
    monkeypatch.setenv("SYMJAX_DATA", str(folder))
    unit = data.load(str(folder / f"{name}.npz"), pixels="unit")
    tested = np.float32(raw(folder, name)[1] / 255)
    x = np.random.default_rng(1).integers(0, 256, (7, 6, 6), dtype=np.uint8)
    np.savez(folder / "kmnist_test.npz", x_test=x)
    found = data.load_ood("kmnist", unit).x.reshape(7, 6, 6, -1)
    for channel in range(found.shape[3]):
        np.testing.assert_allclose(found[..., channel], x / 255, atol=1e-6)
    for shift in ("brightness", "gaussian_noise", "rotate"):
        expected = corrupt(shift, tested.reshape(20, 6, 6, -1), 2, 0)
        shifted = data.load_shifted(unit, shift, 2).x
        np.testing.assert_allclose(shifted, expected.reshape(shifted.shape), atol=1e-5)
    noise = data.load_ood("noise", unit).x
    for moment in (np.mean, np.std):
        wanted = moment(tested, axis=(0, 1, 2))
        np.testing.assert_allclose(moment(noise, axis=(0, 1, 2)), wanted, atol=0.05)


def test_a_set_that_is_kept_is_kept_of_each_scale(folder, tmp_path, monkeypatch):
    monkeypatch.setenv("SYMJAX_CACHE", str(tmp_path))
    monkeypatch.setattr(data.datasets.prepared, "LEAST_BYTES", 0)
    path = str(folder / "grey.npz")
    for _ in range(2):
        for pixels, least in (("normalised", -3), ("unit", -1e-9)):
            found = data.load(path, pixels=pixels)
            assert found.pixels == pixels
            assert least < found.train.x.min() <= 0
    assert len(list((tmp_path / "prepared").iterdir())) == 2


def test_what_has_no_pixels_is_told_so(folder, capsys):
    with pytest.raises(ValueError, match="must be normalised or unit, got 'units'"):
        data.load("digits", pixels="units")
    with pytest.raises(ValueError, match=r"for wine, got unit: .* \(13,\) are no"):
        data.load("wine", pixels="unit")
    symjax("sample", "--data", "wine", "--pixels", "unit", "--dry-run", code=2)
    said = " ".join(capsys.readouterr().err.split())
    assert "--data, --pixels unit: `pixels` must be normalised for wine" in said
    assert "Leave it out, or take images." in said


@pytest.fixture(scope="module")
def runs(folder, tmp_path_factory):
    out = tmp_path_factory.mktemp("runs")
    for pixels in ("unit", "normalised"):
        symjax(
            "fit", "--data", folder / "colour.npz", "--pixels", pixels, "--widths", 4,
            "--num-members", 2, "--ensemble.num-steps", 3, "--ensemble.batch-size", 5,
            "--out", out / pixels,
        )  # fmt: skip
    return out


def test_a_run_records_its_pixels_and_predicts_with_them(folder, runs, tmp_path):
    symjax("report", runs / "unit", runs / "normalised", "--out", tmp_path)
    run = store.open(runs / "unit")
    command = records.rebuild_command(run)
    assert command.problem.pixels == "unit"
    outputs = np.load(runs / "unit" / "predictions" / "test" / "outputs.npy")
    draws = run.read()
    x = np.float32(raw(folder, "colour")[1] / 255)
    network = models.build("mlp", 3, widths=(4,))
    for member in range(2):
        params = jax.tree.map(lambda leaf, i=member: leaf[i, 0], draws)
        expected = network.apply(params, x)
        np.testing.assert_allclose(outputs[member, 0], expected, rtol=1e-5, atol=1e-6)


def test_runs_of_both_scales_share_no_weights_and_no_other_inputs(
    runs, tmp_path, capsys
):
    unit, usual = (
        weights.network_of(store.open(runs / n)) for n in ("unit", "normalised")
    )
    assert unit != usual
    old = store.open(runs / "normalised")
    del old.config["options"]["problem"]["pixels"]
    assert weights.network_of(old) == usual
    words = "evaluate", runs / "unit", runs / "normalised", "--out", tmp_path
    symjax(*words, "--ood", "noise", code=2)
    said = " ".join(capsys.readouterr().err.split())
    assert "same `--pixels`, got unit of unit and normalised of normalised" in said
