"""What is typed for a run of Izmailov et al. (2021): priors, trajectories, methods."""

import math
from collections.abc import Callable, Mapping
from typing import TypeAlias


Trajectory: TypeAlias = Callable[[float, float], str]
"""Options of HMC's leapfrogs, from temperature and prior variance."""


def prior(family: str, variance: float) -> str:
    """Options of a prior of that variance.

    That of a logistic is scale^2 pi^2 / 3, and that of the mixture of two normals of
    equal weight, of which one is ten times narrower, scale^2 (1 + 1 / 100) / 2.
    """
    scale = {
        "normal": math.sqrt(variance),
        "logistic": math.sqrt(3 * variance) / math.pi,
        "mixture": math.sqrt(2 * variance / 1.01),
    }[family]
    family = "" if family == "normal" else f"--prior {family} "
    return f"{family}--prior-scale {scale:.7g}"


def by_length(share: float) -> Trajectory:
    """A share of the quarter turn under the prior; the warm-up adapts the step size."""

    def trajectory(temperature: float, variance: float) -> str:
        length = share * _quarter_turn(temperature, variance)
        return f"--hmc.trajectory-length {length:.6g}"

    return trajectory


def by_leapfrogs(
    step_sizes: Mapping[float, float], num_leapfrogs: int, base: float
) -> Trajectory:
    """The published step size of each temperature, and as many leapfrogs of it.

    Args:
        step_sizes: By temperature; what is not there takes that of temperature 1.
        num_leapfrogs: The published number, of temperature 1.
        base: The prior's variance there.
    """

    def trajectory(temperature: float, variance: float) -> str:
        size = step_sizes.get(temperature, step_sizes[1.0])
        longer = _quarter_turn(temperature, variance) / _quarter_turn(1.0, base)
        count = round(num_leapfrogs * longer * step_sizes[1.0] / size)
        return f"--hmc.step-size {size:g} --hmc.num-steps {count}"

    return trajectory


def _quarter_turn(temperature: float, variance: float) -> float:
    return math.pi / 2 * math.sqrt(temperature * variance)


def published_fits(num_examples: int) -> dict[str, str]:
    """Options of the methods that are optimised, in batches of 80."""
    epoch = num_examples // 80
    return {
        # Theirs is the gradient of the sum over examples, ours of the mean.
        name: f"--num-members {number} --ensemble.optimiser momentum "
        f"--ensemble.learning-rate {3e-7 * num_examples:g} "
        f"--ensemble.batch-size 80 --ensemble.num-steps {500 * epoch}"
        for name, number in (("sgd", 1), ("ensemble", 50))
    } | {
        "mfvi": "--num-members 1 --num-draws 50 --mfvi.noise shared "
        "--mfvi.first-std 0.01 --mfvi.learning-rate 1e-4 --mfvi.batch-size 80 "
        f"--mfvi.num-steps {300 * epoch}",
    }


def baselines(
    fits: Mapping[str, str],
    chains: Mapping[str, str],
    *,
    both: str,
    prior: str,
    sgd_prior: str,
) -> dict[str, str]:
    """What to type for every method beside HMC.

    Args:
        fits: Options of those that are optimised, by name; sgd is one network.
        chains: Options of each of the published samplers.
        both: Options of all of these.
        prior: Of mean-field VI and of the samplers.
        sgd_prior: Of optimised networks.
    """
    found = {}
    for name, words in fits.items():
        method = "ensemble" if name == "sgd" else name
        chosen = prior if name == "mfvi" else sgd_prior
        found[name] = f"fit --method {method} {words} {chosen}"
    for name, words in chains.items():
        sampler = f"sample --sampler izmailov2021 --izmailov2021.method {name}"
        found[name] = f"{sampler} {words} {both} --no-bias-check {prior}"
    return found
