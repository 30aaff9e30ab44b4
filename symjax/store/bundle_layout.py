"""What a bundle must hold: its keys, its arrays, and how they fit together."""

import math
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Shaped

from symjax.store.files import StoreError


FORMAT = "symjax bundle"
VERSION = 1
ABOUT = "bundle.json"

_DTYPES = ("<f2", "<f4", "<f8", "<i4")
_MAX_AXES, _MAX_SIZE = 16, 2**40

_POINT = ("example", "output")
_COMMON = {
    "log_posterior": ("chain", "draw"),
    **{
        f"diagnostics/{name}": _POINT
        for name in ("rhat", "classic_rhat", "ess_bulk", "ess_tail", "mcse_mean")
    },
}
AXES: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "classification": {
        **_COMMON,
        "predictions/probs": ("chain", *_POINT),
        "predictions/mean_entropy": ("example",),
        "predictions/mean_logits": _POINT,
        "predictions/votes": _POINT,
        "test/labels": ("example",),
    },
    "regression": {
        **_COMMON,
        "predictions/mean": ("chain", "kept", *_POINT),
        "predictions/std": ("chain", "kept", *_POINT),
        "test/targets": _POINT,
    },
}
"""The arrays of each task beside the draws, with their axes."""

_KEYS: Mapping[tuple[str, ...], type] = {
    ("name",): str,
    ("task",): str,
    ("posterior", "problem"): dict,
    ("posterior", "data", "name"): str,
    ("posterior", "data", "fingerprint"): str,
    ("posterior", "data", "num_train"): int,
    ("posterior", "data", "num_test"): int,
    ("draws", "of_the_run"): int,
    ("diagnostics", "sentence"): str,
    ("diagnostics", "all_draws", "num_judged"): int,
    ("diagnostics", "all_draws", "num_constant"): int,
    ("provenance", "command"): str,
    ("arrays",): dict,
}
"""Entries of `bundle.json` that are read here; it holds others for people."""


class DamagedBundleError(StoreError):
    """A file is no whole bundle, or was made to do harm: which, and why."""

    def __init__(self, path: Path, why: str) -> None:
        super().__init__(
            f"{path} is a damaged bundle: {why}. Get it anew, or export it again."
        )


def check(path: Path, about: Any) -> None:
    """Require what `bundle.json` must say, and arrays that fit together.

    Args:
        path: The bundle.
        about: What was read.

    Raises:
        DamagedBundleError: naming the first thing that is wrong.
        StoreError: if it is of a newer symjax.
    """
    if not isinstance(about, dict) or about.get("format") != FORMAT:
        raise DamagedBundleError(
            path, f"its {ABOUT} does not say that it is a {FORMAT}"
        )
    version = about.get("version")
    if type(version) is not int or version < 1:
        raise DamagedBundleError(path, f"its version is {version!r:.40}")
    if version > VERSION:
        raise StoreError(
            f"{path} was written by a newer symjax (layout {version}, this one reads "
            f"{VERSION}): upgrade symjax to read it."
        )
    for keys, kind in _KEYS.items():
        value = about
        for key in keys:
            value = value.get(key) if isinstance(value, dict) else None
        if type(value) is not kind:
            raise DamagedBundleError(
                path, f"{'.'.join(keys)} in {ABOUT} is no {kind.__name__}"
            )
    if about["task"] not in AXES:
        raise DamagedBundleError(path, f"its task is {about['task']!r:.40}")
    for name, entry in about["arrays"].items():
        if not _is_array(name, entry):
            raise DamagedBundleError(
                path, f"it lists the array {name!r:.80} as {entry!r:.80}"
            )
    _check_axes(path, about["task"], about["arrays"])


def num_bytes(arrays: Mapping[str, Any]) -> int:
    """What all listed arrays take."""
    return sum(
        math.prod(shape) * np.dtype(dtype).itemsize for dtype, shape in arrays.values()
    )


def read_array(
    archive: zipfile.ZipFile, name: str, dtype: np.dtype, shape: tuple[int, ...]
) -> Shaped[np.ndarray, "..."]:
    """The array, if it is of this dtype and shape and no longer than that.

    Args:
        archive: The bundle.
        name: Of the array.
        dtype: As the bundle says.
        shape: Likewise.

    Raises:
        ValueError: if it is not.
    """
    with archive.open(f"{name}.npy") as member:
        version = np.lib.format.read_magic(member)
        if version != (1, 0):
            raise ValueError(f"{name} is of the .npy version {version}")
        found = np.lib.format.read_array_header_1_0(member)
        if found != (shape, False, dtype):
            raise ValueError(f"{name} has {found} where {dtype} {shape} was said")
        size = math.prod(shape) * dtype.itemsize
        content = member.read(size + 1)  # Its end makes zipfile check its sum.
    if len(content) != size:
        raise ValueError(f"{name} has {len(content)} bytes or more, not {size}")
    return np.frombuffer(content, dtype).reshape(shape)


def _is_array(name: str, entry: Any) -> bool:
    """Whether this is a name that stays inside of the file, a dtype and a shape."""
    parts = name.split("/")
    if not name.isprintable() or "\\" in name or {"", ".", ".."} & set(parts):
        return False
    if not isinstance(entry, list) or len(entry) != 2 or entry[0] not in _DTYPES:
        return False
    shape = entry[1]
    return (
        isinstance(shape, list)
        and len(shape) <= _MAX_AXES
        and all(type(size) is int and 0 < size < _MAX_SIZE for size in shape)
    )


def _check_axes(path: Path, task: str, arrays: Mapping[str, Any]) -> None:
    """Require the arrays of the task, and one size of each axis.

    Raises:
        DamagedBundleError: naming the array that does not fit.
    """
    leaves = {name for name in arrays if name.split("/")[0] == "draws"}
    others = set(arrays) - leaves
    if not leaves or others != set(AXES[task]):
        odd = sorted(others ^ set(AXES[task])) or ["draws"]
        raise DamagedBundleError(
            path, f"{odd[0]} is missing or does not belong to a {task}"
        )
    sizes: dict[str, int] = {}
    axes = {**AXES[task], **dict.fromkeys(sorted(leaves), ("chain", "draw"))}
    for name, wanted in axes.items():
        shape = arrays[name][1]
        rest = len(shape) - len(wanted)
        if (
            rest < 0
            or (rest and name not in leaves)
            or any(
                sizes.setdefault(axis, size) != size
                for axis, size in zip(wanted, shape, strict=False)
            )
        ):
            raise DamagedBundleError(
                path, f"{name} has the shape {shape}, which does not fit"
            )
