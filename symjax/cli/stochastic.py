"""What can be typed of each stochastic-gradient sampler: its own options."""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Sghmc:
    """Stochastic-gradient HMC: cheap, and biased by its step size.

    Attributes:
        step_size: In units of the parameters.
        friction: Per unit of time; step size times friction is at most 1.
        batch_size: Examples of a gradient.
        batches: Drawn with replacement; in epochs, every example once; or in sweeps
            there and back over a random partition.
        anchor: Control variates against gradient noise: around the start, or around
            the chain's position so many steps ago at most.
        num_warmup: First steps, which are not kept.
    """

    step_size: float = 0.002
    friction: float = 20.0
    batch_size: int = 128
    batches: Literal["replacement", "epoch", "sweep"] = "replacement"
    anchor: int | Literal["start"] | None = None
    num_warmup: int = 2000


@dataclass(frozen=True)
class Sgld:
    """Stochastic-gradient Langevin dynamics: the simplest, and slow.

    Attributes:
        step_size: e in x + e gradient + sqrt(2 e) noise.
        batch_size: Examples of a gradient.
        batches: Drawn with replacement; in epochs, every example once; or in sweeps
            there and back over a random partition.
        anchor: Control variates against gradient noise: around the start, or around
            the chain's position so many steps ago at most.
        preconditioner: rmsprop, learnt in the warm-up and kept; adaptive_rmsprop,
            which goes on learning and samples another distribution; or
            corrected_rmsprop, which mends that at the cost of three gradients.
        num_warmup: First steps, which are not kept.
    """

    step_size: float = 1e-4
    batch_size: int = 128
    batches: Literal["replacement", "epoch", "sweep"] = "replacement"
    anchor: int | Literal["start"] | None = None
    preconditioner: (
        Literal["rmsprop", "adaptive_rmsprop", "corrected_rmsprop"] | None
    ) = None
    num_warmup: int = 2000


@dataclass(frozen=True)
class Sgnht:
    """Stochastic-gradient Nose-Hoover thermostat: takes out constant gradient noise.

    Attributes:
        step_size: In units of the parameters.
        friction: The first one, and what the noise is injected for.
        batch_size: Examples of a gradient.
        batches: Drawn with replacement; in epochs, every example once; or in sweeps
            there and back over a random partition.
        anchor: Control variates against gradient noise: around the start, or around
            the chain's position so many steps ago at most.
        num_warmup: First steps, which are not kept.
    """

    step_size: float = 0.002
    friction: float = 20.0
    batch_size: int = 128
    batches: Literal["replacement", "epoch", "sweep"] = "replacement"
    anchor: int | Literal["start"] | None = None
    num_warmup: int = 2000


@dataclass(frozen=True)
class Baoab:
    """Underdamped Langevin dynamics with minibatches, of second order in the step.

    Attributes:
        step_size: In units of the parameters.
        friction: Per unit of time.
        batch_size: Examples of a gradient.
        batches: Drawn with replacement; in epochs, every example once; or in sweeps
            there and back over a random partition.
        anchor: Control variates against gradient noise: around the start, or around
            the chain's position so many steps ago at most.
        num_warmup: First steps, which are not kept.
    """

    step_size: float = 0.002
    friction: float = 20.0
    batch_size: int = 128
    batches: Literal["replacement", "epoch", "sweep"] = "replacement"
    anchor: int | Literal["start"] | None = None
    num_warmup: int = 2000


@dataclass(frozen=True)
class SmsUbu:
    """Underdamped Langevin dynamics whose minibatches cancel each other's noise.

    Attributes:
        step_size: In units of the parameters.
        friction: Per unit of time.
        batch_size: Examples of a gradient; a sweep is there and back over all of them.
        anchor: Control variates against gradient noise: around the start, or around
            the chain's position so many steps ago at most.
        num_warmup: First steps, which are not kept.
    """

    step_size: float = 0.002
    friction: float = 20.0
    batch_size: int = 128
    anchor: int | Literal["start"] | None = None
    num_warmup: int = 2000


@dataclass(frozen=True)
class Izmailov2021:
    """The baselines of Izmailov et al., batches of 80, their prior of variance 1/5.

    They keep a draw in 10 epochs, or one a cycle: so many iterations are `--thinning`.

    Attributes:
        method: Which of them; clr has cyclical step sizes, prec a preconditioner.
        task: Whose step size; of sgld alone there is more than one.
        step_size: h, instead of the published one.
        num_warmup_epochs: First epochs, which are not kept.
        cycle_epochs: Epochs of a cycle.
        imitated_devices: D, to sample at temperature 1 / D as the released code did.
    """

    method: Literal["sgld", "sghmc", "sghmc_clr", "sghmc_clr_prec"] = "sgld"
    task: Literal["cifar10", "cifar100", "imdb"] = "cifar10"
    step_size: float | None = None
    num_warmup_epochs: int = 1000
    cycle_epochs: int = 50
    imitated_devices: int = 1
