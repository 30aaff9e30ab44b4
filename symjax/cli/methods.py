"""From what was typed to a sampler or an approximation."""

import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from typing import Any

from rich.console import Console

from symjax import checks, hamiltonian, isokinetic, trees
from symjax.cli import fitting
from symjax.cli.hyperparameters import (
    AdjustedMclmc,
    DynamicHmc,
    Hmc,
    Mclmc,
    SplitHmc,
)
from symjax.cli.options import Fit, Sample
from symjax.cli.posteriors import Posterior, typed
from symjax.cli.stochastic import Izmailov2021
from symjax.samplers import (
    adjusted_mclmc,
    baoab,
    chees,
    dynamic_hmc,
    ghmc,
    hmc,
    izmailov2021,
    mala,
    mclmc,
    nuts,
    sghmc,
    sgld,
    sgnht,
    sms_ubu,
    split_hmc,
)
from symjax.types import Algorithm, Approximation


def build(command: Sample | Fit, built: Posterior) -> Algorithm | Approximation:
    """The sampler or the method of a command.

    Raises:
        ValueError: if options of a sampler are given that is not run, or a batch is
            larger than the data.
    """
    if isinstance(command, Fit):
        return fitting.build(command, built)
    for name in _SAMPLERS:
        options = getattr(command, name)
        if name != command.sampler and options != type(options)():
            raise ValueError(
                f"`--{name}.` options were given, but `--sampler` is "
                f"{command.sampler}. Add --sampler {name}, or leave them out."
            )
    size, num_examples = batch_size(command), int(built.dataset.train.mask.sum())
    if size is not None and size > num_examples:
        raise ValueError(
            f"`--{command.sampler}.batch-size` must be at most the {num_examples} "
            f"training examples of {command.problem.data}, got {size}."
        )
    options = getattr(command, command.sampler)
    with typed(command.sampler, options):
        return _SAMPLERS[command.sampler](options, built)


def with_fitting_batch(
    command: Sample | Fit, built: Posterior, console: Console
) -> Sample | Fit:
    """The command; a default batch larger than the data becomes all of them."""
    name = command.method if isinstance(command, Fit) else command.sampler
    options = getattr(command, name)
    size = getattr(options, "batch_size", None)
    num_examples = int(built.dataset.train.mask.sum())
    default = getattr(type(options)(), "batch_size", None)
    if size is None or size != default or size <= num_examples:
        return command
    word = name.replace("_", "-")
    console.print(
        f"--{word}.batch-size is {size}, but there are {num_examples} training "
        "examples: each step takes all of them.",
        highlight=False,
    )
    whole = None if isinstance(command, Fit) else num_examples
    return replace(command, **{name: replace(options, batch_size=whole)})


def _hmc(options: Hmc, built: Posterior) -> Algorithm:
    return hmc.build(built.log_posterior, **_hmc_options(options, built))


def _hmc_options(options: Hmc, built: Posterior) -> dict[str, Any]:
    """The arguments of `hmc.build`, the trajectory's length worked out.

    Raises:
        ValueError: if both a length and a number of steps were asked for.
    """
    if options.num_steps is None:
        return _with_length(options, built)
    if options.trajectory_length != Hmc.trajectory_length:
        raise ValueError(
            "Give one of `--hmc.num-steps` and `--hmc.trajectory-length`, got "
            f"{options.num_steps} and {options.trajectory_length}."
        )
    return _with_mass_matrix(options) | {"trajectory_length": None}


def _with_length(options: Hmc | DynamicHmc, built: Posterior) -> dict[str, Any]:
    """The options, the rule for the length worked out."""
    resolved = _with_mass_matrix(options)
    if options.trajectory_length == "rule":
        std = built.prior_std() if options.mass_matrix == "unit" else 1.0
        resolved["trajectory_length"] = hmc.rule_length(std)
    return resolved


def _split_hmc(options: SplitHmc, built: Posterior) -> Algorithm:
    return split_hmc.build(built.log_posterior, **_split_hmc_options(options, built))


def _split_hmc_options(options: SplitHmc, built: Posterior) -> dict[str, Any]:
    """The arguments of `split_hmc.build`, the trajectory's length worked out."""
    length = options.trajectory_length
    if length == "rule":
        length = hmc.rule_length(built.prior_std())
    return asdict(options) | {"trajectory_length": length}


def _with_mass_matrix(options: Any) -> dict[str, Any]:
    """The options as `build` takes them."""
    resolved = asdict(options)
    name = resolved.pop("mass_matrix")
    return resolved | {"inverse_mass_matrix": 1.0 if name == "unit" else name}


def _dynamic_hmc(options: DynamicHmc, built: Posterior) -> Algorithm:
    return dynamic_hmc.build(built.log_posterior, **_with_length(options, built))


def _mclmc(options: Mclmc, built: Posterior) -> Algorithm:
    length = options.decoherence_length
    if length == "rule":
        num_params = trees.size(built.shapes)
        length = mclmc.rule_length(built.prior_std(), num_params)
    checks.positive(decoherence_length=length)
    resolved = asdict(options) | {
        "decoherence_length": length,
        "step_size": options.step_size or length / 4,
    }
    make: Callable[..., Algorithm] = mclmc.build
    return make(built.log_posterior, **resolved)


def _adjusted_mclmc(options: AdjustedMclmc, built: Posterior) -> Algorithm:
    resolved = _adjusted_mclmc_options(options, built)
    return adjusted_mclmc.build(built.log_posterior, **resolved)


def _adjusted_mclmc_options(options: AdjustedMclmc, built: Posterior) -> dict[str, Any]:
    """The arguments of `adjusted_mclmc.build`, its lengths worked out."""
    length = options.trajectory_length
    if length == "rule":
        num_params = trees.size(built.shapes)
        length = adjusted_mclmc.rule_length(built.prior_std(), num_params)
    checks.positive(trajectory_length=length)
    return asdict(options) | {
        "trajectory_length": length,
        "step_size": options.step_size or length / 20,
    }


def _izmailov2021(options: Izmailov2021, built: Posterior) -> Algorithm:
    arguments = _izmailov2021_options(options, built)
    return izmailov2021.build(built.log_posterior, **arguments)


def _izmailov2021_options(options: Izmailov2021, built: Posterior) -> dict[str, Any]:
    """The arguments of `izmailov2021.build` of a preset."""
    chosen = asdict(options)
    devices = chosen.pop("imitated_devices")
    num_examples = int(built.dataset.train.mask.sum())
    preset = izmailov2021.preset(**chosen, num_examples=num_examples)
    return preset.options | {"imitated_devices": devices}


def _as_typed(build: Callable[..., Algorithm]) -> Callable[[Any, Posterior], Algorithm]:
    """A sampler whose options are the arguments of its `build`."""
    return lambda options, built: build(built.log_posterior, **asdict(options))


def _with_mass(
    build: Callable[..., Algorithm],
) -> Callable[[Any, Posterior], Algorithm]:
    """The same, with a mass matrix by name."""
    return lambda options, built: build(
        built.log_posterior, **_with_mass_matrix(options)
    )


_SAMPLERS: Mapping[str, Callable[[Any, Posterior], Algorithm]] = {
    "hmc": _hmc,
    "split_hmc": _split_hmc,
    "dynamic_hmc": _dynamic_hmc,
    "nuts": _with_mass(nuts.build),
    "chees": _as_typed(chees.build),
    "ghmc": _as_typed(ghmc.build),
    "mala": _with_mass(mala.build),
    "mclmc": _mclmc,
    "adjusted_mclmc": _adjusted_mclmc,
    "sghmc": _as_typed(sghmc.build),
    "sgld": _as_typed(sgld.build),
    "sgnht": _as_typed(sgnht.build),
    "baoab": _as_typed(baoab.build),
    "sms_ubu": _as_typed(sms_ubu.build),
    "izmailov2021": _izmailov2021,
}


UNADJUSTED = frozenset(
    {"mclmc", "sghmc", "sgld", "sgnht", "baoab", "sms_ubu", "izmailov2021"}
)
"""The samplers without accept step, which their step size biases."""


def halve(command: Sample, built: Posterior) -> tuple[Algorithm, Callable[[Any], Any]]:
    """An unadjusted sampler with half the step size, to go on from a run's end.

    Returns:
        The sampler, and `state -> state`, which halves a step size that was adapted and
        lies in the state of a chain.
    """
    options = getattr(command, command.sampler)
    if command.sampler == "izmailov2021":
        arguments = izmailov2021.halve(_izmailov2021_options(options, built))
        return (
            izmailov2021.build(built.log_posterior, **arguments),
            lambda state: state._replace(iteration=2 * state.iteration),
        )
    if options.step_size is not None:
        half = replace(options, step_size=options.step_size / 2)
        command = replace(command, **{command.sampler: half})

    def halve_state(state: Any) -> Any:
        if not hasattr(state, "step_size"):
            return state
        return state._replace(step_size=state.step_size / 2)

    algorithm: Any = build(command, built)
    return algorithm, halve_state


def gradients_per_iteration(command: Sample | Fit, built: Posterior) -> int:
    """What an iteration costs at the first step size.

    NUTS and ChEES find their lengths as they go: of NUTS the most is said, of ChEES a
    trajectory by the reference rule.
    """
    if isinstance(command, Fit):
        options = fitting.options_of(command)
        numbers = ("cycle_length", "num_masks", "num_samples")
        return math.prod(getattr(options, name, 1) for name in numbers)
    options = getattr(command, command.sampler)
    if command.sampler == "mclmc":
        return isokinetic.GRADIENTS_PER_STEP
    if command.sampler == "nuts":
        return 2**options.max_num_doublings - 1
    if command.sampler == "chees":
        length = hmc.rule_length(built.prior_std())
        return hamiltonian.count_steps(length, options.step_size)
    if command.sampler == "split_hmc":
        length = _split_hmc_options(options, built)["trajectory_length"]
        num_steps = hamiltonian.count_steps(length, options.step_size)
        return math.ceil(num_steps * split_hmc.gradients_per_step(options.num_blocks))
    if command.sampler == "adjusted_mclmc":
        resolved = _adjusted_mclmc_options(options, built)
        length, step_size = resolved["trajectory_length"], resolved["step_size"]
        num_steps = hamiltonian.count_steps(length, step_size)
        return isokinetic.GRADIENTS_PER_STEP * num_steps
    if command.sampler not in ("hmc", "dynamic_hmc"):
        return 1 if getattr(options, "anchor", None) is None else 2
    if getattr(options, "num_steps", None):
        return options.num_steps
    length = _with_length(options, built)["trajectory_length"]
    return hamiltonian.count_steps(length, options.step_size)


def batch_size(command: Sample | Fit) -> int | None:
    """Examples of a gradient; None for all."""
    if isinstance(command, Fit):
        return fitting.options_of(command).batch_size
    if command.sampler == "izmailov2021":
        return izmailov2021.BATCH_SIZE
    return getattr(getattr(command, command.sampler), "batch_size", None)
