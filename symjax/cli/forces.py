"""The precision of a command's gradients: what is chosen, what is refused."""

from dataclasses import replace

import jax

from symjax.cli.methods import UNADJUSTED
from symjax.cli.options import Fit, Sample


_FULL = frozenset({"nuts"})
"""The samplers whose force is of full float32 whatever is typed: every state of a
trajectory counts by its energy."""

_IN_PAIRS = frozenset({"cnn_lstm"})
"""The networks that multiply by the same parameters over and over: what rounding does
to those is most of the energy's error there."""


def require_heeded(command: Sample | Fit) -> None:
    """Require a precision that the sampler heeds.

    Raises:
        ValueError: if it takes full float32 whatever is typed.
    """
    precision = command.problem.force_precision
    if isinstance(command, Fit) or precision in (None, "float32"):
        return
    if command.sampler in _FULL:
        raise ValueError(
            f"`--force-precision` must be float32 for --sampler {command.sampler}, got "
            f"{precision}: every state of its trajectories counts by its energy, which "
            "is of full float32. Leave it out, or take --sampler dynamic_hmc."
        )


def choose(command: Sample | Fit, task: str) -> Sample | Fit:
    """The command, its gradients in float16 where that was measured to pay.

    That is on a GPU, for classes, whose outputs need no more digits, and with an accept
    step at the end of a trajectory, which keeps the posterior exact. Of recurrent
    networks the parameters keep twice the digits.
    """
    is_adjusted = isinstance(command, Sample) and (
        command.sampler not in UNADJUSTED | _FULL
    )
    is_asked = command.problem.force_precision is not None
    if is_asked or not is_adjusted or task != "classification":
        return command
    if jax.default_backend() != "gpu":
        return command
    is_in_pairs = command.problem.model in _IN_PAIRS
    precision = "float16x2" if is_in_pairs else "float16"
    problem = replace(command.problem, force_precision=precision)
    return replace(command, problem=problem)
