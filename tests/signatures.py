"""What checks the annotations of symjax in tests: beartype, its work not done twice.

A function inside of another is decorated anew whenever the other one runs, which was a
sixth of the time of many tests. What jaxtyping hands over for it is empty and has its
signature alone; for the same signature the same checks are made.
"""

from beartype import beartype


_made = {}


def check(function):
    """The empty function with the checks of its signature."""
    if function.__defaults__ or function.__kwdefaults__:
        return beartype(function)
    # An annotation of jaxtyping is a new class whenever it is written.
    annotations = tuple(map(repr, function.__annotations__.values()))
    key = (function.__module__, function.__qualname__, function.__code__, annotations)
    if key not in _made:
        _made[key] = beartype(function)
    return _made[key]
