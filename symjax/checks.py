"""Checks of arguments, each an error that names the argument and what came."""

import math


def positive(**values: float | None) -> None:
    """Require finite numbers above 0; None passes, for what was left out.

    Raises:
        ValueError: if a number is zero, negative or not finite.
    """
    for name, value in values.items():
        if value is not None and not (0 < value < math.inf):
            raise ValueError(f"`{name}` must be a positive number, got {value}.")


def at_least(minimum: int, **values: int | None) -> None:
    """Require whole numbers of at least `minimum`; None passes.

    Raises:
        TypeError: if a value is not a whole number.
        ValueError: if a value is below `minimum`.
    """
    for name, value in values.items():
        if value is None:
            continue
        if int(value) != value:
            raise TypeError(f"`{name}` must be a whole number, got {value!r}.")
        if value < minimum:
            raise ValueError(f"`{name}` must be at least {minimum}, got {value}.")
