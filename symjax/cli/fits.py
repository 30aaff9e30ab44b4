"""What can be typed of each method of `symjax fit`: its own options."""

from dataclasses import dataclass


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
