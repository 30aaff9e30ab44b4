"""What the metrics ask of probabilities, labels and logits, checked in one place."""

import numpy as np
from jaxtyping import Array, Float, Integer, Shaped


def probs(
    values: Float[np.ndarray | Array, "*batch cls"], name: str = "probs"
) -> Float[np.ndarray, "*batch cls"]:
    """Probabilities as float64.

    Raises:
        ValueError: If there are none, one is negative or they do not sum to 1.
    """
    array = finite(values, name).astype(float)
    if array.ndim < 2 or not array.size:
        raise ValueError(
            f"`{name}` must have the axes (..., example, class) and at least one "
            f"example; got the shape {array.shape}."
        )
    # Averages of float32 softmax outputs are off by some 1e-6.
    error = abs(array.sum(axis=-1) - 1).max()
    if array.min() < 0 or error > 1e-3:
        raise ValueError(
            f"`{name}` must be probabilities over the last axis; the smallest is "
            f"{array.min():.3g} and a sum is off 1 by {error:.3g}. Logits go through "
            "`probs_from_logits` first."
        )
    return array


def logits(
    values: Float[np.ndarray | Array, "..."],
) -> Float[np.ndarray, "chain draw example cls"]:
    """Logits of draws as a NumPy array of their own precision.

    Raises:
        ValueError: If they are not finite, have other axes, or there are none.
    """
    array = finite(values, "logits")
    if array.ndim != 4 or not array.size:
        raise ValueError(
            "`logits` must have the axes (chain, draw, example, class) and at least "
            f"one draw of one example; got the shape {array.shape}."
        )
    return array


def labels(
    values: Shaped[np.ndarray | Array, "..."], num_examples: int, num_classes: int
) -> Integer[np.ndarray, " example"]:
    """Labels, one whole number in [0, num_classes) an example.

    Raises:
        TypeError: If they are not integers.
        ValueError: If there is not one label an example, or one is out of range.
    """
    array = np.asarray(values)
    if not np.issubdtype(array.dtype, np.integer):
        raise TypeError(f"`labels` must be integers; got {array.dtype}.")
    if array.shape != (num_examples,):
        raise ValueError(
            f"`labels` must have the shape ({num_examples},), one an example; got "
            f"{array.shape}."
        )
    if array.min() < 0 or array.max() >= num_classes:
        raise ValueError(
            f"`labels` must lie in [0, {num_classes}); they run from {array.min()} to "
            f"{array.max()}."
        )
    return array


def finite(
    values: Float[np.ndarray | Array, "..."], name: str
) -> Float[np.ndarray, "..."]:
    """Values as a NumPy array of their own precision.

    Raises:
        ValueError: If they are not finite.
    """
    array = np.asarray(values)
    if not np.isfinite(array).all():
        raise ValueError(
            f"`{name}` must be finite; {int((~np.isfinite(array)).sum())} of "
            f"{array.size} values are infinite or NaN, as diverged draws make them."
        )
    return array


def same_shape(name: str, shape: tuple[int, ...], expected: tuple[int, ...]) -> None:
    """Compare the shape of an argument.

    Raises:
        ValueError: If it is not the expected one.
    """
    if shape != expected:
        raise ValueError(f"`{name}` must have the shape {expected}; got {shape}.")
