"""Jaxprs that are run again, equation by equation."""

from collections.abc import Callable, Sequence
from typing import Any

from jax.extend import core


def rerun(
    jaxpr: Any,
    consts: Sequence[Any],
    values: Sequence[Any],
    run: Callable[[core.JaxprEqn, Sequence[Any]], list[Any]],
) -> list[Any]:
    """Results of a jaxpr, of which `run` computes each equation.

    Those of compiled functions within it too; of loops and functions with rules of
    their own, `run` gets the whole.
    """
    env = dict(zip(jaxpr.constvars, consts, strict=True))
    env |= dict(zip(jaxpr.invars, values, strict=True))

    def read(atom: Any) -> Any:
        return atom.val if isinstance(atom, core.Literal) else env[atom]

    for eqn in jaxpr.eqns:
        inputs = [read(atom) for atom in eqn.invars]
        if eqn.primitive.name in ("jit", "pjit"):
            inner = eqn.params["jaxpr"]
            results = rerun(inner.jaxpr, inner.consts, inputs, run)
        else:
            results = run(eqn, inputs)
        env |= dict(zip(eqn.outvars, results, strict=True))
    return [read(atom) for atom in jaxpr.outvars]


def bind(eqn: core.JaxprEqn, values: Sequence[Any], **params: Any) -> list[Any]:
    """Results of one equation of a jaxpr, with some of its parameters replaced."""
    params = eqn.primitive.get_bind_params(eqn.params) | params
    with eqn.ctx.manager:
        results = eqn.primitive.bind(*values, **params)
    return list(results) if eqn.primitive.multiple_results else [results]


def scan_counts(params: dict[str, Any]) -> tuple[int, int]:
    """How many operands are constants, and how many are carried."""
    if "num_consts" in params:
        return params["num_consts"], params["num_carry"]
    consts, carry, _ = map(list, params["ft_in"].unpack())  # from jax 0.11
    return len(consts), len(carry)


def opened(jaxpr: Any) -> tuple[core.Jaxpr, list[Any]]:
    """A jaxpr that is a parameter of an equation, and its constants."""
    if isinstance(jaxpr, core.ClosedJaxpr):
        return jaxpr.jaxpr, list(jaxpr.consts)
    return jaxpr, []
