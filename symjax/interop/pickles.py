"""Pickles of arrays, read without running anything that they name.

A pickle is a program that may call any function of the machine. This reader calls none
but those that NumPy and JAX use to put an array together, so that a file from elsewhere
can be read without trust in who made it.
"""

import collections
import os
import pickle
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import ml_dtypes
import numpy as np


def read_pickle(path: str | os.PathLike[str]) -> Any:
    """What a pickle holds, if that is arrays and numbers in plain containers.

    Args:
        path: Of the file. JAX's arrays are read as NumPy's, haiku's FlatMapping and
            ordered dicts as dicts.

    Returns:
        Dicts, lists, tuples, NumPy arrays, numbers, strings and None.

    Raises:
        ValueError: if it is no pickle, or names anything else: that is never called,
            nor imported.
    """
    try:
        with open(path, "rb") as file:
            return _plain(_Reader(file).load())
    except OSError as error:
        raise ValueError(f"{path} can't be read: {error}") from error
    except _RefusedError as error:
        raise ValueError(
            f"{path} must be a pickle of arrays and plain containers, but it names "
            f"{error}, which is not called. Where you trust the file, load it with its "
            "own library and pickle its parameters as a dict of NumPy arrays."
        ) from error
    # Damaged bytes can raise anything.
    except Exception as error:
        raise ValueError(
            f"{path} is no pickle of arrays: {type(error).__name__}: {error}"
        ) from error


class _RefusedError(Exception):
    pass


class _Reader(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        # A new object each time, so that a file can't change what another file gets.
        found = _ALLOWED.get((module, name))
        if found is None:
            raise _RefusedError(f"{module}.{name}")
        return found if isinstance(found, type) else partial(found)

    def persistent_load(self, pid: Any) -> Any:
        raise _RefusedError(f"an object outside the file ({pid!r:.40})")


def _array_of_jax(fun: Any, args: Any, state: Any, aval: Any = None) -> np.ndarray:
    """The NumPy array from which a JAX array would be made.

    Raises:
        _RefusedError: if another function is to make it.
    """
    del aval
    if getattr(fun, "func", None) is not _reconstruct:
        raise _RefusedError("another function than NumPy's for an array")
    value = _reconstruct(*args)
    value.__setstate__(state)
    return value


def _reconstruct(kind: Any, shape: Any, dtype: Any) -> np.ndarray:
    if kind is not np.ndarray:
        raise _RefusedError(f"the kind of array {kind!r}")
    return np.ndarray.__new__(np.ndarray, shape, dtype)


def _scalar(dtype: np.dtype, data: bytes) -> Any:
    return np.frombuffer(data, dtype, count=1)[0]


def _from_buffer(
    buffer: Any, dtype: np.dtype, shape: Any, order: str, axes: Any = None
) -> np.ndarray:
    values = np.frombuffer(buffer, dtype)
    if axes is not None:
        return values.reshape(shape).transpose(axes)
    return values.reshape(shape, order="F" if order == "F" else "C")


def _encode(text: str, encoding: str = "latin1") -> bytes:
    """Bytes as protocol 2 writes them.

    Raises:
        _RefusedError: if a codec is asked for.
    """
    if encoding not in ("latin1", "latin-1"):
        raise _RefusedError(f"the encoding {encoding!r}")
    return text.encode("latin1")


_NUMPY = {
    ("core.multiarray", "_reconstruct"): _reconstruct,
    ("core.multiarray", "scalar"): _scalar,
    ("core.numeric", "_frombuffer"): _from_buffer,
}

_ALLOWED: Mapping[tuple[str, str], type | Callable[..., Any]] = {
    ("numpy", "ndarray"): np.ndarray,
    ("numpy", "dtype"): np.dtype,
    ("ml_dtypes", "bfloat16"): ml_dtypes.bfloat16,
    ("collections", "OrderedDict"): collections.OrderedDict,
    ("_codecs", "encode"): _encode,
    # NumPy 2 has moved its functions; JAX has moved and renamed its own.
    **{(f"numpy.{at}", name): what for (at, name), what in _NUMPY.items()},
    **{(f"numpy._{at}", name): what for (at, name), what in _NUMPY.items()},
    ("jax._src.array", "_reconstruct_array"): _array_of_jax,
    ("jax._src.device_array", "reconstruct_device_array"): _array_of_jax,
    ("jax.interpreters.xla", "reconstruct_device_array"): _array_of_jax,
    **{
        ("haiku._src.data_structures", name): dict
        for name in ("FlatMapping", "FlatMap", "frozendict")
    },
}


def _plain(value: Any) -> Any:
    """The same with ordinary dicts.

    Raises:
        _RefusedError: if there is an array of objects.
    """
    if isinstance(value, Mapping):
        return {key: _plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(_plain(one) for one in value)
    if isinstance(value, np.ndarray) and value.dtype.hasobject:
        raise _RefusedError("an array of objects")
    return value
