"""Arrays as they were read, checked, normalised and numbered."""

import hashlib

import numpy as np

from symjax.data.sources import Arrays


def check(name: str, arrays: Arrays) -> None:
    """Require finite numbers and matching shapes.

    Args:
        name: Of the data set, for the message.
        arrays: As they were read.

    Raises:
        ValueError: if there is something else.
    """
    for key, array in arrays._asdict().items():
        if array.dtype.kind not in "fiub":
            raise ValueError(f"{name}: `{key}` must be numbers, got {array.dtype}.")
        if array.ndim == 0 or array.size == 0:
            raise ValueError(
                f"{name}: `{key}` must hold examples, got shape {array.shape}."
            )
        num_bad = _count_not_finite(array)
        if num_bad:
            raise ValueError(
                f"{name}: `{key}` must be finite, got {num_bad} NaN or infinite "
                "numbers. Fill them in or drop those examples."
            )
    for kind in ("train", "test"):
        num_x, num_y = (len(getattr(arrays, f"{axis}_{kind}")) for axis in "xy")
        if num_x != num_y:
            raise ValueError(
                f"{name}: `x_{kind}` and `y_{kind}` must be of one length, got {num_x} "
                f"and {num_y}."
            )
    for axis in "xy":
        train, test = (getattr(arrays, f"{axis}_{kind}") for kind in ("train", "test"))
        if train.shape[1:] != test.shape[1:]:
            raise ValueError(
                f"{name}: `{axis}_train` and `{axis}_test` must have examples of one "
                f"shape, got {train.shape[1:]} and {test.shape[1:]}."
            )
    if arrays.y_train.ndim > 2:
        raise ValueError(
            f"{name}: `y_train` must be (example,) or (example, output), got shape "
            f"{arrays.y_train.shape}. Flatten the outputs of an example."
        )


def _count_not_finite(array: np.ndarray) -> int:
    return 0 if array.dtype.kind != "f" else int((~np.isfinite(array)).sum())


def fingerprint(arrays: Arrays) -> str:
    """SHA-256 (hex) of values, shapes and dtypes."""
    digest = hashlib.sha256()
    for array in arrays:
        digest.update(f"{array.dtype.str}{array.shape}".encode())
        digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()


def labels(name: str, arrays: Arrays) -> tuple[np.ndarray, np.ndarray]:
    """The integer targets as int32 `(example,)`, train and test.

    Args:
        name: Of the data set, for the message.
        arrays: Checked.

    Raises:
        ValueError: if they are not 0, 1, ..., with every class in the training set.
    """
    if arrays.y_test.dtype.kind not in "iub":
        raise ValueError(
            f"{name}: `y_test` must hold integers like `y_train`, got "
            f"{arrays.y_test.dtype}. Store labels as integers, real targets as floats."
        )
    if arrays.y_train.size != len(arrays.y_train):
        raise ValueError(
            f"{name}: `y_train` must hold one integer an example, got shape "
            f"{arrays.y_train.shape}. Take the argmax of one-hot labels; store real "
            "targets as floats."
        )
    train, test = (
        y.reshape(-1).astype(np.int32) for y in (arrays.y_train, arrays.y_test)
    )
    classes = np.unique(train)
    if len(classes) < 2 or not np.array_equal(classes, np.arange(len(classes))):
        first = ", ".join(map(str, classes[:5])) + ", ..." * (len(classes) > 5)
        raise ValueError(
            f"{name}: `y_train` must hold all labels 0, 1, 2 and so on, got {first}. "
            "Renumber them with numpy.unique(y, return_inverse=True); store real "
            "targets as floats."
        )
    unknown = np.setdiff1d(test, classes)
    if len(unknown):
        raise ValueError(
            f"{name}: `y_test` must hold labels of `y_train`, got {unknown[0]} besides."
        )
    return train, test


def scale(
    train: np.ndarray,
    test: np.ndarray,
    mean: tuple[float, ...],
    std: tuple[float, ...],
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Both arrays in float32, normalised by a mean and std that are given.

    Args:
        train: Images `(example, height, width, channel)` of uint8.
        test: Images of the same shape.
        mean: Of each channel, where black is 0 and white is 1.
        std: The same.
    """
    means, stds = 255 * np.asarray(mean), 255 * np.asarray(std)
    # Whole images a row: NumPy is ten times slower on rows of three channels.
    num_pixels = train.shape[1] * train.shape[2]
    offset = np.tile(means.astype(np.float32), num_pixels)
    factor = np.tile((1 / stds).astype(np.float32), num_pixels)

    def scaled(images: np.ndarray) -> np.ndarray:
        rows = images.reshape(len(images), -1) - offset
        rows *= factor
        return rows.reshape(images.shape)

    return scaled(train), scaled(test), means, stds


def normalise(
    train: np.ndarray, test: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Both arrays in float32 with training mean 0 and std 1, and that mean and std.

    Columns are normalised each by itself, the pixels of images together, by channel: a
    pixel that is nearly always blank has no useful standard deviation of its own. What
    does not vary in the training examples has std 0 and becomes 0.

    Args:
        train: Examples `(example,)`, `(example, column)`, or images `(example, height,
            width[, channel])`.
        test: Examples of the same shape.
    """
    if train.ndim == 1:
        train, test = train[:, None], test[:, None]
    axes = (0, 1, 2) if train.ndim == 3 else tuple(range(train.ndim - 1))
    # float64 where the numbers need it: uint8 images would take eight times the memory.
    dtype = np.float64 if train.dtype.itemsize > 2 else np.float32
    mean = train.mean(axis=axes, dtype=np.float64)
    centred = np.subtract(train, mean, dtype=dtype)
    # Rounding of the mean gives a constant column a tiny variance.
    varies = train.max(axis=axes) > train.min(axis=axes)
    std = varies * np.sqrt(np.mean(np.square(centred), axis=axes, dtype=np.float64))
    factor = np.where(varies, 1 / np.where(varies, std, 1), 0)
    train, test = (
        np.multiply(deviation, factor, dtype=dtype).astype(np.float32)
        for deviation in (centred, np.subtract(test, mean, dtype=dtype))
    )
    return train, test, np.asarray(mean), np.asarray(std)


def unit(
    train: np.ndarray, test: np.ndarray, black: float, white: float
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Both arrays in float32 with black as 0 and white as 1, and what that took.

    Args:
        train: Images as they were read.
        test: The same.
        black: What is subtracted, exactly 0 afterwards.
        white: Black and this differ by what is then divided by.
    """
    dtype = np.float64 if train.dtype.itemsize > 2 else np.float32

    def scaled(images: np.ndarray) -> np.ndarray:
        shifted = np.subtract(images, black, dtype=dtype)
        # Not divided, to be the numbers of `models.from_bytes`.
        shifted *= dtype(1 / (white - black))
        return shifted.astype(np.float32, copy=False)

    return scaled(train), scaled(test), np.asarray(black), np.asarray(white - black)


def pixel_range(train: np.ndarray) -> tuple[float, float] | None:
    """Black and white of images; None of inputs that are none, or are all one grey.

    Args:
        train: The training inputs as they were read.
    """
    if train.ndim not in (3, 4) or train.min() == train.max():
        return None
    if train.dtype == np.uint8:
        return 0.0, 255.0
    return float(train.min()), float(train.max())
