"""Where PyTorch keeps the parameters of residual networks."""

import re
from collections.abc import Mapping

import numpy as np


_NORM = {
    "scale": "weight",
    "bias": "bias",
    "mean": "running_mean",
    "variance": "running_var",
}

_IGNORED = "num_batches_tracked"


def source_of(path: str) -> str | None:
    """The name under which PyTorch keeps one of our leaves.

    Args:
        path: Of the leaf, without `params/` in front, such as `stem/Conv_0/kernel`.

    Returns:
        Such as `conv1.weight`; None for a leaf of another network.
    """
    if path in ("linear/kernel", "linear/bias"):
        return "linear.weight" if path == "linear/kernel" else "linear.bias"
    found = re.fullmatch(
        r"(?:layer(\d)_(\d)/)?(stem|conv1|conv2|shortcut)/(Conv_0/kernel|\w+)", path
    )
    if found is None or (found[1] is None) != (found[3] == "stem"):
        return None
    block = "" if found[1] is None else f"layer{found[1]}.{found[2]}."
    conv, norm = {
        "stem": ("conv1", "bn1"),
        "conv1": ("conv1", "bn1"),
        "conv2": ("conv2", "bn2"),
        "shortcut": ("shortcut.0", "shortcut.1"),
    }[found[3]]
    if found[4] == "Conv_0/kernel":
        return f"{block}{conv}.weight"
    return f"{block}{norm}.{_NORM[found[4]]}" if found[4] in _NORM else None


def transposed(array: np.ndarray) -> np.ndarray:
    """A kernel as flax has it: (row, column, in, out), or (in, out)."""
    if array.ndim == 4:
        return array.transpose(2, 3, 1, 0)
    return array.T if array.ndim == 2 else array


def without_prefix(arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The arrays that a network needs, without a name that stands before all."""
    kept = {key: one for key, one in arrays.items() if not key.endswith(_IGNORED)}
    stems = [key for key in kept if re.fullmatch(r"(\w+\.)*conv1\.weight", key)]
    prefix = min(stems, key=len, default="conv1.weight").removesuffix("conv1.weight")
    if all(key.startswith(prefix) for key in kept):
        return {key.removeprefix(prefix): one for key, one in kept.items()}
    return kept
