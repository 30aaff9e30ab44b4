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
from typing import Any, Literal

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
        return found if isinstance(found, type | str) else partial(found)

    def persistent_load(self, pid: Any) -> Any:
        raise _RefusedError(f"an object outside the file ({pid!r:.40})")


class _Dtype:
    """What NumPy's dtype would become.

    A file must not reach that itself: the state which it may give to a dtype can call
    bytes pointers, which the first reading of a number would follow.
    """

    def __init__(self, kind: Any, align: Any = False, copy: Any = True) -> None:
        del align, copy
        if kind is not ml_dtypes.bfloat16 and not isinstance(kind, str):
            raise _RefusedError(f"the dtype {kind!r:.40}")
        self.value = np.dtype(kind)
        if self.value.kind not in _KINDS and kind is not ml_dtypes.bfloat16:
            raise _RefusedError(f"the dtype {kind!r:.40}")

    def __setstate__(self, state: Any) -> None:
        _, order, *rest = state
        if any(rest[:3]):  # An inner dtype, names or fields.
            raise _RefusedError("a dtype of several values")
        if order == ">":
            self.value = self.value.newbyteorder(">")


class _Array:
    """What NumPy's array would become, `value` once it has its state."""

    value: np.ndarray | None = None

    def __setstate__(self, state: Any) -> None:
        shape, dtype, is_by_column, content = state[-4:]
        if isinstance(content, list):
            raise _RefusedError("an array of objects")
        self.value = _filled(content, dtype, shape, "F" if is_by_column else "C")


def _array_of_jax(fun: Any, args: Any, state: Any, aval: Any = None) -> _Array:
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


def _reconstruct(kind: Any, shape: Any, dtype: Any) -> _Array:
    del shape, dtype  # Of an array without numbers, which the state replaces.
    if kind != _NDARRAY:
        raise _RefusedError(f"the kind of array {kind!r:.40}")
    return _Array()


def _scalar(dtype: _Dtype, data: bytes) -> Any:
    return np.frombuffer(data, dtype.value, count=1)[0]


def _from_buffer(
    buffer: Any, dtype: _Dtype, shape: Any, order: str, axes: Any = None
) -> np.ndarray:
    if axes is not None:
        return _filled(buffer, dtype, -1, "C").reshape(shape).transpose(axes)
    return _filled(buffer, dtype, shape, "F" if order == "F" else "C")


def _filled(
    content: Any, dtype: _Dtype, shape: Any, order: Literal["C", "F"]
) -> np.ndarray:
    values = np.empty(0, dtype.value)
    if content:
        values = np.frombuffer(content, dtype.value)
    return values.reshape(shape, order=order)


def _encode(text: str, encoding: str = "latin1") -> bytes:
    """Bytes as protocol 2 writes them.

    Raises:
        _RefusedError: if a codec is asked for.
    """
    if encoding not in ("latin1", "latin-1"):
        raise _RefusedError(f"the encoding {encoding!r}")
    return text.encode("latin1")


_KINDS = "biufcSU"
"""Of dtypes: numbers and text."""

_PLAIN = str | bytes | bytearray | int | float | complex | bool | None
"""What may be beside arrays."""

_NDARRAY = "numpy.ndarray"
"""What the class is to a file, which can't call it."""

_NUMPY = {
    ("core.multiarray", "_reconstruct"): _reconstruct,
    ("core.multiarray", "scalar"): _scalar,
    ("core.numeric", "_frombuffer"): _from_buffer,
}

_ALLOWED: Mapping[tuple[str, str], type | str | Callable[..., Any]] = {
    ("numpy", "ndarray"): _NDARRAY,
    ("numpy", "dtype"): _Dtype,
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


def _plain(value: Any, known: dict[int, Any] | None = None) -> Any:
    """The same with arrays, and with ordinary dicts.

    Args:
        value: What was read.
        known: What was made of a container, by its identity: a file of a few bytes can
            hold one a million times.

    Raises:
        _RefusedError: if there is something else.
    """
    known = {} if known is None else known
    if id(value) in known:
        return known[id(value)]
    if isinstance(value, Mapping):
        found = {key: _plain(one, known) for key, one in value.items()}
    elif isinstance(value, list | tuple):
        found = type(value)(_plain(one, known) for one in value)
    elif isinstance(value, _Array) and value.value is not None:
        found = value.value
    elif isinstance(value, np.ndarray | np.generic | _PLAIN):
        return value
    else:
        raise _RefusedError(f"something of the type {type(value).__name__}")
    known[id(value)] = found
    return found
