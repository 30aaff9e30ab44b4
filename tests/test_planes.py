"""Losses on the plane through three networks, against closed forms."""

import doctest

import jax.numpy as jnp
import numpy as np
import pytest

from symjax.symmetry import planes
from symjax.types import Data


GENERATOR = np.random.default_rng(0)
DATA = Data(np.array([[1.0], [3.0], [9.0]]), np.zeros(3), np.array([True, True, False]))
CENTRE = {"a": GENERATOR.normal(size=(2, 3)), "n": np.arange(3)}


def networks():
    return tuple(
        {"a": jnp.asarray(GENERATOR.normal(size=(2, 3))), "n": jnp.arange(3)}
        for _ in range(3)
    )


def squared_distance(params, data):
    """Its level lines are circles on every plane."""
    return jnp.sum((params["a"] - CENTRE["a"]) ** 2) * data.x[:, 0]


def test_distances_on_the_plane_are_those_between_weights():
    corners = networks()
    found = planes.plane(squared_distance, corners, DATA, num=9, batch_size=2)
    for i in range(3):
        for j in range(3):
            np.testing.assert_allclose(
                np.linalg.norm(found.points[i] - found.points[j]),
                np.linalg.norm(corners[i]["a"] - corners[j]["a"]),
                rtol=1e-5,
                atol=1e-5,
            )


def test_the_third_network_may_lie_behind_the_first():
    first, second, third = networks()
    back = {"a": 2 * first["a"] - second["a"] + 0.1 * third["a"], "n": first["n"]}
    found = planes.plane(squared_distance, (first, second, back), DATA, num=5)
    assert found.points[2, 0] < 0
    np.testing.assert_allclose(
        np.linalg.norm(found.points[2] - found.points[1]),
        np.linalg.norm(back["a"] - second["a"]),
        rtol=1e-5,
    )


def test_whole_numbers_and_masks_stay_and_every_measure_has_a_value():
    def measure(params, data):
        scale = jnp.where(params["mask"], params["n"][1], 0)
        return {"one": squared_distance(params, data), "two": scale * data.x[:, 0]}

    corners = [
        network | {"n": network["n"] * 10 ** (3 * i), "mask": jnp.array(i == 0)}
        for i, network in enumerate(networks())
    ]
    found = planes.plane(measure, tuple(corners), DATA, num=4)
    assert np.abs(found.points).max() < 10
    assert found.values["one"].shape == found.values["two"].shape == (4, 4)
    np.testing.assert_allclose(found.values["two"], 2, rtol=1e-5)


def test_values_are_those_of_the_networks_there():
    corners = networks()
    weights = np.stack([np.ravel(corner["a"]) for corner in corners])
    found = planes.plane(squared_distance, corners, DATA, num=9, batch_size=2)
    # Places as mixtures of the three networks, by the points alone.
    grid = np.stack([*map(np.ravel, np.meshgrid(found.x, found.y))])
    system = np.vstack([found.points.T, np.ones(3)])
    mixtures = np.linalg.solve(system, np.vstack([grid, np.ones(81)]))
    there = mixtures.T @ weights
    expected = 2 * np.sum((there - np.ravel(CENTRE["a"])) ** 2, axis=1)
    np.testing.assert_allclose(found.values.ravel(), expected, rtol=1e-4)
    assert found.x[0] < 0
    assert found.x[-1] > found.points[:, 0].max()


def test_networks_on_a_line_are_refused():
    one, other, _ = networks()
    middle = {"a": (one["a"] + other["a"]) / 2, "n": one["n"]}
    with pytest.raises(ValueError, match="lie on no line"):
        planes.plane(squared_distance, (one, other, middle), DATA)
    with pytest.raises(ValueError, match="lie on no line"):
        planes.plane(squared_distance, (one, one, middle), DATA)


def test_example():
    assert doctest.testmod(planes).failed == 0
