"""The safetensors format: a header that says where each array lies, then the bytes."""

import json
import math
import os
from typing import Any

import ml_dtypes
import numpy as np


_DTYPES = {
    "F64": np.float64,
    "F32": np.float32,
    "F16": np.float16,
    "BF16": ml_dtypes.bfloat16,
    "I64": np.int64,
    "I32": np.int32,
    "I16": np.int16,
    "I8": np.int8,
    "U8": np.uint8,
    "BOOL": np.bool_,
}

_MAX_HEADER_BYTES = 100_000_000


def read_safetensors(path: str | os.PathLike[str]) -> dict[str, np.ndarray]:
    """The arrays of a safetensors file, by name.

    The file is 8 bytes, the length n of the header, little-endian; n bytes of JSON,
    `{name: {dtype, shape, data_offsets}}`; and the arrays, to which the offsets point.

    Args:
        path: Of the file.

    Raises:
        ValueError: if it is none, or damaged.
    """
    try:
        with open(path, "rb") as file:
            length = int.from_bytes(file.read(8), "little")
            if not 2 <= length <= _MAX_HEADER_BYTES:
                raise ValueError(f"its header would have {length} bytes")
            header = json.loads(file.read(length))
            body = file.read()
        header.pop("__metadata__", None)
        return {name: _array(entry, body) for name, entry in header.items()}
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise ValueError(
            f"{path} is no whole safetensors file: {type(error).__name__}: {error}"
        ) from error


def _array(entry: dict[str, Any], body: bytes) -> np.ndarray:
    """One array.

    Raises:
        ValueError: if its bytes are not there, or not as many as its shape takes.
    """
    dtype, shape = np.dtype(_DTYPES[entry["dtype"]]), entry["shape"]
    start, stop = entry["data_offsets"]
    size = math.prod(shape)
    if stop - start != size * dtype.itemsize:
        raise ValueError(f"{stop - start} bytes are no {dtype} of shape {shape}")
    return np.frombuffer(body, dtype, size, start).reshape(shape).copy()
