"""Where haiku keeps the parameters of the networks of Izmailov et al. (2021)."""

import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from symjax.models.cnn_lstm import GATES


_PLACES = (
    (r"ConvFRN_(\d+)/Conv_0/(kernel|bias)", "conv2_d"),
    (r"ConvFRN_(\d+)/FilterResponseNorm_0/(tau|beta|gamma)", "frn"),
    (r"Conv_(\d+)/(kernel|bias)", "conv2_d"),
    (r"(?:MLP_0/)?Dense_(\d+)/(kernel|bias)", "linear"),
)

_NAMES = {"kernel": "w", "bias": "b"}

TEXT = "cnn_lstm"
"""The model whose convolution is along words."""


def source_of(path: str, model: str) -> tuple[str, str] | None:
    """The module and the name under which haiku keeps one of our leaves.

    Args:
        path: Of the leaf, without `params/` in front.
        model: Name of the network.

    Returns:
        Such as `("conv2_d_1", "w")`; None for a leaf that haiku's network lacks.
    """
    if model == TEXT:
        if path == "Embed_0/embedding":
            return "embed", "embeddings"
        if path.startswith("LSTM_0/"):
            return "lstm/linear", "b" if path.endswith("_b") else "w"
        path = path.replace("Conv_0/", "Conv1_0/")
        if found := re.fullmatch(r"Conv1_0/(kernel|bias)", path):
            return "conv1_d", _NAMES[found[1]]
    for pattern, module in _PLACES:
        if found := re.fullmatch(pattern, path):
            suffix = "" if found[1] == "0" else f"_{found[1]}"
            return f"{module}{suffix}", _NAMES.get(found[2], found[2])
    return None


def shape_of(path: str, shape: tuple[int, ...], num_inputs: int) -> tuple[int, ...]:
    """The shape in haiku of the array that one of our leaves is, or is in.

    Args:
        path: Of the leaf.
        shape: Of the leaf.
        num_inputs: Features that the LSTM reads, if there is one.
    """
    if "FilterResponseNorm" in path:
        return (1, 1, 1, *shape)
    if path.startswith("LSTM_0/"):
        units = shape[-1]
        rows = () if path.endswith("_b") else (num_inputs + units,)
        return (*rows, len(GATES) * units)
    return shape


def part(path: str, array: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """Our leaf of an array of haiku's, `(chain, draw, ...)` in front of both.

    Args:
        path: Of the leaf.
        array: Haiku's.
        shape: Of the leaf.
    """
    if path.startswith("LSTM_0/"):
        gate = re.split("[/_]", path)[2]
        units = shape[-1]
        # Haiku keeps the gates side by side, and inputs above outputs.
        first = GATES.index(gate) * units
        array = array[..., first : first + units]
        if not path.endswith("_b"):
            rows = shape[0]
            array = (
                array[..., -rows:, :] if path.endswith("_h") else array[..., :rows, :]
            )
    return array.reshape(*array.shape[:2], *shape)


def find_params(tree: Any) -> Mapping[str, Mapping[str, np.ndarray]] | None:
    """The parameters of a state or checkpoint: `{module: {name: array}}`."""
    if not isinstance(tree, Mapping):
        return None
    if "params" in tree:
        return find_params(tree["params"])
    is_module = [
        isinstance(key, str)
        and isinstance(module, Mapping)
        and all(isinstance(array, np.ndarray) for array in module.values())
        for key, module in tree.items()
    ]
    return tree if tree and all(is_module) else None
