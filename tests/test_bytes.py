"""Images are bytes on the devices: the same numbers as normalised on the host."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import PartitionSpec as P

from symjax import data, mesh, models, symmetry
from symjax.cli import posteriors
from symjax.cli.problem import Problem


def write(folder, name, x):
    y = np.arange(len(x)) % 3
    np.savez(folder / name, x_train=x, y_train=y, x_test=x[:4], y_test=y[:4])
    return str(folder / name)


def images(*shape):
    return np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)


@pytest.mark.parametrize(
    ("name", "shape"),
    [("grey.npz", (9, 5, 4)), ("colour.npz", (9, 5, 4, 3)), ("cifar100", (9, 5, 4, 3))],
)
def test_a_device_makes_the_numbers_of_the_host(tmp_path, monkeypatch, name, shape):
    monkeypatch.setenv("SYMJAX_DATA", str(tmp_path))
    x = images(*shape)
    if name == "colour.npz":
        x[..., 1] = 7  # Does not vary.
    path = write(tmp_path, name.removesuffix(".npz") + ".npz", x)
    dataset = data.load(path if name.endswith(".npz") else name)
    np.testing.assert_array_equal(dataset.train_bytes, x)
    read = models.from_bytes(
        lambda params, x: x, np.asarray(dataset.input_mean), dataset.input_std
    )
    np.testing.assert_array_equal(jax.jit(read)(None, x), dataset.train.x)
    np.testing.assert_array_equal(read(None, dataset.test.x), dataset.test.x)
    if name == "colour.npz":
        # Nor may it say anything of images in which it does.
        np.testing.assert_array_equal(read(None, 255 - x)[..., 1], 0)


def test_what_is_no_bytes_stays_as_it_is(tmp_path):
    path = write(tmp_path, "wide.npz", images(9, 5, 4).astype(np.uint16))
    for name in (path, "digits", "wine"):
        assert data.load(name).train_bytes is None


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    """One posterior of bytes, and of the same data normalised on the host."""
    path = write(tmp_path_factory.mktemp("data"), "x.npz", images(21, 3, 3))
    problem = Problem(path, widths=(4,), micro_batch=4, force_precision="bfloat16")
    as_bytes = posteriors.build(problem)
    with pytest.MonkeyPatch.context() as patch:
        whole = data.load(path)._replace(train_bytes=None)
        patch.setattr(posteriors.datasets, "load", lambda *_, **__: whole)
        return as_bytes, posteriors.build(problem)


def test_devices_hold_bytes_and_the_posterior_is_the_same(pair):
    made = mesh.make_mesh(1, jax.devices()[:8])
    params = pair[0].init(jax.random.key(0))
    found = []
    for built, dtype in zip(pair, ("uint8", "float32"), strict=True):
        log_posterior = built.log_posterior

        def measured(chain, data, log_posterior=log_posterior):
            params = jax.tree.map(lambda leaf: leaf[0], chain)
            batch = jnp.array([20, 3, 3, mesh.NO_EXAMPLE])
            values = (
                jax.value_and_grad(log_posterior)(params, data),
                jax.value_and_grad(log_posterior.batch)(params, data, batch, 2.0),
                log_posterior.tally(params, data),
                log_posterior.block(params, data, 1, 3),
            )
            return jax.tree.map(lambda leaf: leaf[None], values)

        placed = mesh.place_data(made, built.dataset.train)
        assert placed.x.dtype == dtype
        mapped = mesh.map_chains(made, measured, P("chain"), P("data"))
        chain = jax.tree.map(lambda leaf: leaf[None], params)
        found.append(jax.jit(mapped)(chain, placed))
    for one, other in zip(*map(jax.tree.leaves, found), strict=True):
        assert np.isfinite(one).all()
        np.testing.assert_allclose(one, other, rtol=2e-6)
    first = pair[0].init(jax.random.key(1)), pair[1].init(jax.random.key(1))
    jax.tree.map(np.testing.assert_array_equal, *first)


def test_the_same_symmetries_are_found(pair):
    params = pair[0].shapes
    specs = [
        symmetry.infer(built.apply, params, built.dataset.train.x[:2]) for built in pair
    ]
    assert specs[0] == specs[1]
    assert len(specs[0].permutations) == 1


def test_the_first_bytes_are_taken(tmp_path):
    path = write(tmp_path, "x.npz", images(21, 3, 3))
    built = posteriors.build(Problem(path, widths=(4,), num_train=10))
    np.testing.assert_array_equal(built.dataset.train.x, images(21, 3, 3)[:10])
    assert built.dataset.fingerprint.endswith(", 10 train")
