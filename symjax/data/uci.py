"""UCI's regressions, with the splits that papers compare on."""

import os
from pathlib import Path

import jax
import numpy as np

from symjax.data.sources import (
    DEFAULT_FOLDER,
    FOLDER_VARIABLE,
    UNREADABLE,
    Arrays,
    did_you_mean,
)


UCI = (
    "boston",
    "concrete",
    "energy",
    "yacht",
    "naval",
    "kin8nm",
    "power",
    "wine",
    "protein",
    "wilson_elevators",
    "wilson_pol",
    "wilson_skillcraft",
)
"""The sets that a local folder may hold, as uci/NAME.npz."""

PERMUTED = "izmailov"
"""How the names of the 90/10 splits by a permutation begin."""


def read_uci(name: str, split: str | None = None) -> Arrays:
    """One of `UCI`, split.

    Args:
        name: Of the set.
        split: Number of a split of the file, from 0 on (default: 0), or izmailovSEED.

    Raises:
        ValueError: if there is no such set or split, saying what there is.
    """
    if name not in UCI:
        raise ValueError(
            f"`name` must be uci: and one of {', '.join(UCI)}, got uci:{name}."
            f"{did_you_mean(name, UCI)}"
        )
    x, y, test_masks = _read(name)
    chosen = "0" if split is None else split
    if chosen.removeprefix(PERMUTED).isdecimal() and chosen.startswith(PERMUTED):
        rows = permutation(int(chosen.removeprefix(PERMUTED)), len(x))
        # As the reference rounds it, for whom 0.9 of 10 rows are 9.
        train, test = np.split(rows, [int(0.9 * len(x))])
    elif chosen.isdecimal() and int(chosen) < len(test_masks):
        is_test = test_masks[int(chosen)]
        train, test = np.flatnonzero(~is_test), np.flatnonzero(is_test)
    else:
        raise ValueError(
            f"`split` must be 0 to {len(test_masks) - 1}, a split of uci:{name}, or "
            f"{PERMUTED} and a seed, such as {PERMUTED}0, got {split!r}."
        )
    return Arrays(x[train], y[train], x[test], y[test])


def permutation(seed: int, num_rows: int) -> np.ndarray:
    """The order of rows in which Izmailov et al. (2021) took 90 % for training.

    It is `jax.random.permutation` of 2021. JAX has since changed how keys are split
    (`jax_threefry_partitionable`), and with it the permutation of a key, so that the
    setting is put back here.

    Args:
        seed: Of the split.
        num_rows: Of the data set.
    """
    with jax.threefry_partitionable(False):
        key = jax.random.key(seed, impl="threefry2x32")
        return np.asarray(jax.random.permutation(key, num_rows))


def _read(name: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Inputs, targets and the masks of the test rows, `(split, row)`.

    Raises:
        ValueError: if there is no such file, or not these arrays in it.
    """
    folder = os.environ.get(FOLDER_VARIABLE, DEFAULT_FOLDER)
    file = Path(folder, "uci", f"{name}.npz")
    how = (
        "Write it with `numpy.savez(path, x=..., y=..., test_mask=...)`: x (row, "
        "column), y (row, 1), and test_mask (split, row), True for the rows of a "
        f"split's test set. {FOLDER_VARIABLE} names the folder above uci/."
    )
    if not file.is_file():
        raise ValueError(
            f"`name` must be a set that is on this machine, but there is no "
            f"{file.absolute()}. {how}"
        )
    try:
        with np.load(file, allow_pickle=False) as arrays:
            x, y, test_masks = (arrays[key] for key in ("x", "y", "test_mask"))
    except (*UNREADABLE, KeyError) as error:
        raise ValueError(f"{file} can't be read: {error}. {how}") from error
    if (
        len(y) != len(x)
        or test_masks.shape[1:] != (len(x),)
        or test_masks.dtype != bool
    ):
        raise ValueError(
            f"{file} must hold `test_mask`, a truth value for each split and row, got "
            f"{test_masks.dtype} of shape {test_masks.shape}, with {len(x)} rows of x "
            f"and {len(y)} of y. {how}"
        )
    return x, y.astype(np.float64), test_masks
