"""The checks of annotations, which the tests make once for each signature."""

import jax.numpy as jnp
import pytest
import signatures
from jaxtyping import Array, Float, TypeCheckError, jaxtyped


def make(width):
    @jaxtyped(typechecker=signatures.check)
    def multiply(x: Float[Array, " a"], y: Float[Array, "a b"]) -> Float[Array, " b"]:
        return (x @ y)[:width]

    return multiply


def test_a_function_made_again_is_checked_as_the_first_one():
    x, y = jnp.ones(2), jnp.ones((2, 3))
    for _ in range(3):
        assert make(3)(x, y).shape == (3,)
        with pytest.raises(TypeCheckError, match="parameters of test_signatures.make"):
            make(3)(jnp.ones(3), y)
        with pytest.raises(TypeCheckError, match="parameters of test_signatures.make"):
            make(3)(x.astype(int), y)
        # Each has its own body.
        with pytest.raises(TypeCheckError, match="return value of test_signatures"):
            make(2)(x, y)


def test_the_checks_of_a_signature_are_made_once():
    def take():
        def keep(x: int) -> None:
            pass

        return keep

    assert signatures.check(take()) is signatures.check(take())


def test_functions_of_one_name_have_their_own_checks():
    def take(kind):
        def keep(x):
            return x

        keep.__annotations__ = {"x": kind, "return": kind}
        return jaxtyped(keep, typechecker=signatures.check)

    assert [take(int)(1), take(str)("a"), take(int)(2)] == [1, "a", 2]
    for kind, wrong in ((int, "a"), (str, 1), (int, "a")):
        with pytest.raises(TypeCheckError):
            take(kind)(wrong)
