"""What JAX's runtime raises, told from errors of the program."""

import re

import jax


_FAILURE = re.compile(
    "(ABORTED|CANCELLED|DEADLINE_EXCEEDED|INTERNAL|UNAVAILABLE|UNKNOWN): "
)
"""How the message begins of what may fail when another host is lost."""


def is_of_runtime(error: BaseException | None) -> bool:
    """Whether JAX's runtime failed, other than for want of memory on this host.

    A sum over hosts that fails while it is called raises a `ValueError`, of which only
    the message tells where it is from.
    """
    while error is not None:
        if isinstance(error, jax.errors.JaxRuntimeError):
            return "RESOURCE_EXHAUSTED" not in str(error)
        if _FAILURE.match(str(error)):
            return True
        hidden = error.__suppress_context__
        error = error.__cause__ or (None if hidden else error.__context__)
    return False
