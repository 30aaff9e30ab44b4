"""Samples and checkpoints from elsewhere as parameters of our networks.

| file | holds | each file is |
|---|---|---|
| pickle | haiku's `{module: {name: array}}`, or a state with it as `params` | a draw |
| .safetensors | PyTorch's ResNet-18 or -20 with batch normalisation | a chain |

In pickles a first axis of chains may stand before every array, or axes of chains and
draws, as in the HMC samples of Izmailov et al. (2021).
"""

import os
from collections.abc import Mapping
from typing import Any, NamedTuple, TypeAlias

import jax
import numpy as np

from symjax import trees
from symjax.interop import haiku, pytorch
from symjax.interop.pickles import read_pickle
from symjax.interop.safetensors import read_safetensors
from symjax.types import Params


Arrays: TypeAlias = Mapping[str, np.ndarray]


class Checkpoint(NamedTuple):
    """A file's arrays by their names there.

    Attributes:
        path: Of the file.
        arrays: Of haiku by `module/name`.
        is_pytorch: Whether PyTorch wrote them.
    """

    path: str
    arrays: Arrays
    is_pytorch: bool

    def params(self, model: str, like: Params) -> Params:
        """The parameters of a network of ours.

        Args:
            model: Its name, one of `models.MODELS`.
            like: Its parameters, concrete or of `ShapeDtypeStruct`s.

        Returns:
            float32 leaves `(chain, draw, ...)` in the structure of `like`.

        Raises:
            ValueError: if an array is missing, of another shape or too much, or not
                finite.
        """
        leaves = list(zip(trees.paths(like), jax.tree.leaves(like), strict=True))
        taken: set[str] = set()
        convert = self._convert_pytorch if self.is_pytorch else self._convert_haiku
        named = [
            (path.removeprefix("params/"), tuple(leaf.shape)) for path, leaf in leaves
        ]
        made = [
            convert(path, shape, model, dict(named), taken) for path, shape in named
        ]
        left = sorted(set(self.arrays) - taken)
        if left:
            raise ValueError(
                f"{self.path} holds {left[0]}, which is no part of {model}"
                f"{self._hint(model)}"
            )
        leading = {array.shape[:2] for array in made}
        if len(leading) > 1:
            raise ValueError(
                f"{self.path} must have as many chains and draws of every array, got "
                f"{' and '.join(map(str, sorted(leading)))}."
            )
        return jax.tree.unflatten(jax.tree.structure(like), made)

    def _convert_pytorch(
        self, path: str, shape: tuple[int, ...], model: str, all_shapes: Any, taken: set
    ) -> np.ndarray:
        del all_shapes
        source = pytorch.source_of(path)
        array = self._take(source, path, model, taken)
        found = pytorch.transposed(array)
        if found.shape != shape:
            raise self._other_shape(source, path, array, shape)
        return self._finite(source, found[None, None])

    def _convert_haiku(
        self,
        path: str,
        shape: tuple[int, ...],
        model: str,
        all_shapes: Mapping[str, tuple[int, ...]],
        taken: set,
    ) -> np.ndarray:
        source = haiku.source_of(path, model)
        name = None if source is None else "/".join(source)
        array = self._take(name, path, model, taken)
        inputs = all_shapes.get("LSTM_0/input_x/kernel", (0,))[0]
        expected = haiku.shape_of(path, shape, inputs)
        extra = array.ndim - len(expected)
        if not 0 <= extra <= 2 or array.shape[extra:] != expected:
            raise self._other_shape(name, path, array, expected)
        # Chains alone have one draw; a network alone is a chain of one.
        array = array[None, None] if extra == 0 else array
        array = array[:, None] if extra == 1 else array
        return self._finite(name, haiku.part(path, array, shape))

    def _take(
        self, source: str | None, path: str, model: str, taken: set
    ) -> np.ndarray:
        if source is None or source not in self.arrays:
            raise ValueError(
                f"{self.path} lacks {source or path}, which {model} needs"
                f"{self._hint(model)}"
            )
        taken.add(source)
        return self.arrays[source]

    def _finite(self, source: str | None, array: np.ndarray) -> np.ndarray:
        with np.errstate(over="ignore"):
            single = array.astype(np.float32)
        if not np.isfinite(single).all():
            raise ValueError(f"{self.path}: {source} must be finite.")
        return single

    def _other_shape(
        self, source: str | None, path: str, array: np.ndarray, shape: tuple[int, ...]
    ) -> ValueError:
        return ValueError(
            f"{self.path}: {source} must have the shape {shape}, as {path} of the "
            f"network for these data, with axes of chains and draws before it or "
            f"without, got {array.shape}. Are --data and --model those of the file?"
        )

    def _hint(self, model: str) -> str:
        meant = suggest_model(self.arrays)
        if meant is None or meant == model:
            held = ", ".join(sorted(self.arrays)[:4])
            return f". It holds {held} and others." if held else ". It holds nothing."
        return f"; its names are those of --model {meant}."


def read(path: str | os.PathLike[str]) -> Checkpoint:
    """Read a file of haiku's or PyTorch's.

    Args:
        path: Of a pickle, or of a file whose name ends in .safetensors.

    Raises:
        ValueError: if it is neither, or holds no parameters.
    """
    if str(path).endswith(".safetensors"):
        arrays = pytorch.without_prefix(read_safetensors(path))
        return Checkpoint(str(path), arrays, is_pytorch=True)
    params = haiku.find_params(read_pickle(path))
    if params is None:
        raise ValueError(
            f"{path} must hold haiku's parameters, {{module: {{name: array}}}}, or a "
            "dict with them as `params`."
        )
    flat = {
        f"{module}/{name}": array
        for module, arrays in params.items()
        for name, array in arrays.items()
    }
    return Checkpoint(str(path), flat, is_pytorch=False)


def suggest_model(arrays: Arrays) -> str | None:
    """The network whose names a file's are; None for one that is not known."""
    marks = (
        ("lstm/linear/w", "cnn_lstm"),
        ("frn/gamma", "resnet20_frn"),
        ("layer4.0.conv1.weight", "resnet18"),
        ("layer3.0.conv1.weight", "resnet20"),
        ("conv2_d_4/w", "alexnet"),
        ("conv2_d_2/w", "lenet_maxpool"),
        ("conv2_d_1/w", "lenet"),
    )
    found = [model for name, model in marks if name in arrays]
    if found:
        return found[0]
    return "mlp" if "linear/w" in arrays else None
