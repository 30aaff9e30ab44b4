"""The precision of a command's gradients: what is chosen, what is refused."""

from dataclasses import replace

import jax

from symjax.cli.methods import UNADJUSTED
from symjax.cli.options import Fit, Sample


_FULL = frozenset({"nuts"})
"""The samplers whose force is of full float32 whatever is typed: every state of a
trajectory counts by its energy."""

_SINGLE = frozenset({"mlp", "resnet20_frn"})
"""The networks whose energy float16 kept as well as TF32 or float32 did where that was
measured: on MNIST, and in short trajectories on CIFAR-10. Others take float16x2."""


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
    """The command, with the precision of its gradients that pays.

    It is chosen on a GPU for samplers with an accept step at the end of a trajectory,
    which keeps the posterior exact: half the memory for classes, whose outputs need no
    more digits, full float32 for regression, whose residuals do.
    """
    is_adjusted = isinstance(command, Sample) and (
        command.sampler not in UNADJUSTED | _FULL
    )
    is_asked = command.problem.force_precision is not None
    if is_asked or not is_adjusted or jax.default_backend() != "gpu":
        return command
    precision = "float32"
    if task == "classification":
        is_single = command.problem.model in _SINGLE
        precision = "float16" if is_single else "float16x2"
    problem = replace(command.problem, force_precision=precision)
    return replace(command, problem=problem)
