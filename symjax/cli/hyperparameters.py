"""What can be typed of each sampler and method: its own options."""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Hmc:
    """Full-batch Hamiltonian Monte Carlo.

    Attributes:
        step_size: Leapfrog step; the first one, if there is a warm-up.
        trajectory_length: Step size times leapfrogs; `rule` is pi * prior std / 2,
            the reference's.
        num_steps: Leapfrogs of every trajectory, instead of its length.
        num_warmup: First iterations, which adapt the step size and are not kept.
        num_unadjusted: First iterations without accept step, as the reference
            burn-in did.
        mass_matrix: unit, or what the warm-up learns: diagonal (the variance of each
            weight) or low_rank. Lengths are then in its units, and `rule` is pi / 2.
        target_acceptance: What the warm-up aims at.
    """

    step_size: float = 0.02
    trajectory_length: float | Literal["rule"] = "rule"
    num_steps: int | None = None
    num_warmup: int = 50
    num_unadjusted: int = 0
    mass_matrix: Literal["unit", "diagonal", "low_rank"] = "unit"
    target_acceptance: float = 0.8


@dataclass(frozen=True)
class DynamicHmc:
    """HMC whose trajectories change their length, so that no period traps them.

    Attributes:
        step_size: Leapfrog step; the first one, if there is a warm-up.
        trajectory_length: The mean length; `rule` is pi * prior std / 2.
        jitter: From 0, which is HMC, to 1: lengths from 0 to twice the mean.
        num_warmup: First iterations, which adapt and are not kept.
        mass_matrix: As of hmc.
        target_acceptance: What the warm-up aims at.
    """

    step_size: float = 0.02
    trajectory_length: float | Literal["rule"] = "rule"
    jitter: float = 1.0
    num_warmup: int = 50
    mass_matrix: Literal["unit", "diagonal", "low_rank"] = "unit"
    target_acceptance: float = 0.8


@dataclass(frozen=True)
class Nuts:
    """The no-U-turn sampler: trajectories that double until they turn back.

    Attributes:
        step_size: Leapfrog step; the first one, if there is a warm-up.
        max_num_doublings: A trajectory takes at most 2 to this power leapfrogs.
        num_warmup: First iterations, which adapt and are not kept.
        mass_matrix: As of hmc.
        target_acceptance: What the warm-up aims at.
    """

    step_size: float = 0.02
    max_num_doublings: int = 10
    num_warmup: int = 100
    mass_matrix: Literal["unit", "diagonal", "low_rank"] = "unit"
    target_acceptance: float = 0.8


@dataclass(frozen=True)
class Chees:
    """ChEES-HMC: many chains find one step size and one trajectory length together.

    Attributes:
        step_size: The first leapfrog step.
        trajectory_length: The first mean length; default: one step.
        max_num_steps: Most leapfrogs of a trajectory.
        num_warmup: First iterations, which adapt and are not kept.
        target_acceptance: Of the harmonic mean over the chains.
    """

    step_size: float = 0.02
    trajectory_length: float | None = None
    max_num_steps: int = 1000
    num_warmup: int = 200
    target_acceptance: float = 0.651


@dataclass(frozen=True)
class Ghmc:
    """Generalised HMC with MEADS: many chains find its settings. Thin its draws.

    Attributes:
        step_size: Instead of a warm-up, together with a damping.
        damping: How fast the momentum is forgotten, per unit of time.
        num_warmup: First iterations, in which all chains adapt together.
    """

    step_size: float | None = None
    damping: float | None = None
    num_warmup: int = 1000


@dataclass(frozen=True)
class Mala:
    """Metropolis-adjusted Langevin: HMC with one leapfrog. Thin its draws.

    Attributes:
        step_size: e in x + e gradient + sqrt(2 e) noise; the first one.
        num_warmup: First iterations, which adapt and are not kept.
        mass_matrix: As of hmc.
        target_acceptance: What the warm-up aims at.
    """

    step_size: float = 1e-4
    num_warmup: int = 1000
    mass_matrix: Literal["unit", "diagonal", "low_rank"] = "unit"
    target_acceptance: float = 0.574


@dataclass(frozen=True)
class Mclmc:
    """Microcanonical Langevin Monte Carlo: few gradients, biased by its step size.

    Attributes:
        decoherence_length: Way after which the direction is forgotten, Euclidean over
            all weights; `rule` is prior std times the root of their number.
        step_size: Way of the first step; default: a quarter of that length.
        num_warmup: First steps, which adapt the step size and are not kept.
        target_energy_variance: What the warm-up aims at, in squared nats a weight;
            smaller is slower and less biased.
    """

    decoherence_length: float | Literal["rule"] = "rule"
    step_size: float | None = None
    num_warmup: int = 2000
    target_energy_variance: float = 1e-4


@dataclass(frozen=True)
class AdjustedMclmc:
    """MCLMC with an accept step: exact.

    Attributes:
        trajectory_length: Way of a trajectory, Euclidean over all weights; `rule` is
            prior std times the root of their number.
        step_size: Way of the first step; default: a twentieth of that length.
        num_warmup: First iterations, which adapt the step size and are not kept.
        target_acceptance: What the warm-up aims at.
    """

    trajectory_length: float | Literal["rule"] = "rule"
    step_size: float | None = None
    num_warmup: int = 50
    target_acceptance: float = 0.9


@dataclass(frozen=True)
class SplitHmc:
    """HMC with the memory of one block of the data; exact.

    Attributes:
        step_size: Of a sweep through the blocks and back; the first one, if there is a
            warm-up.
        trajectory_length: Step size times steps; `rule` is pi * prior std / 2.
        num_blocks: Into how many the data are split.
        num_warmup: First iterations, which adapt the step size and are not kept.
        target_acceptance: What the warm-up aims at.
    """

    step_size: float = 0.02
    trajectory_length: float | Literal["rule"] = "rule"
    num_blocks: int = 10
    num_warmup: int = 50
    target_acceptance: float = 0.8


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
        preconditioner: rmsprop, learnt in the warm-up and kept; or adaptive_rmsprop,
            which goes on learning and samples another distribution.
        num_warmup: First steps, which are not kept.
    """

    step_size: float = 1e-4
    batch_size: int = 128
    batches: Literal["replacement", "epoch", "sweep"] = "replacement"
    anchor: int | Literal["start"] | None = None
    preconditioner: Literal["rmsprop", "adaptive_rmsprop"] | None = None
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


@dataclass(frozen=True)
class Ensemble:
    """Deep ensemble of optimised networks.

    Attributes:
        num_steps: Optimisation steps of a member.
        learning_rate: Of Adam, at the start; it falls to zero along a cosine.
        batch_size: Examples of a step; None for all.
    """

    num_steps: int = 1500
    learning_rate: float = 1e-2
    batch_size: int | None = 128
