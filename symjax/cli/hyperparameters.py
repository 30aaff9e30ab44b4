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
