"""What can be typed of each method of `symjax fit`: its own options."""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Ensemble:
    """Deep ensemble of optimised networks.

    Attributes:
        num_steps: Optimisation steps of a member.
        optimiser: adam, momentum (stochastic gradient descent with momentum 0.9) or
            sgd.
        learning_rate: At the start; it falls to zero along a cosine. Default: 0.01 of
            adam, 0.1 of momentum, 0.5 of sgd.
        batch_size: Examples of a step; None for all.
    """

    num_steps: int = 1500
    optimiser: Literal["adam", "momentum", "sgd"] = "adam"
    learning_rate: float | None = None
    batch_size: int | None = 128


@dataclass(frozen=True)
class Snapshot:
    """Snapshot ensemble: networks that one optimisation meets at the end of its cycles.

    Each member is one optimisation, its snapshots are the draws.

    Attributes:
        num_cycles: Snapshots of a member.
        cycle_length: Optimisation steps of a cycle.
        optimiser: As of ensemble.
        learning_rate: At the start of a cycle; it falls to zero along a cosine.
            Default: as of ensemble.
        batch_size: Examples of a step; None for all.
    """

    num_cycles: int = 5
    cycle_length: int = 300
    optimiser: Literal["adam", "momentum", "sgd"] = "adam"
    learning_rate: float | None = None
    batch_size: int | None = 128

    @property
    def num_steps(self) -> int:
        """Of all cycles."""
        return self.num_cycles * self.cycle_length


@dataclass(frozen=True)
class Swag:
    """SWAG: a normal around the networks that an optimiser passes at its end.

    Several members are multi-SWAG. With --swag.scale 0 it is SWA, the mean alone.

    Attributes:
        num_steps: Optimisation steps of a member.
        num_burn_in: First of these, of which nothing is collected.
        collect_every: Steps for each network that is collected.
        rank: Last networks that the covariance remembers; 0 for a diagonal one.
        scale: Of a draw's deviation from the mean.
        optimiser: As of ensemble.
        learning_rate: At the start; it falls along a cosine while nothing is collected.
            Default: as of ensemble.
        collecting_rate: The learning rate from then on. Default: half of the first.
        batch_size: Examples of a step; None for all.
    """

    num_steps: int = 2000
    num_burn_in: int = 1000
    collect_every: int = 20
    rank: int = 20
    scale: float = 1.0
    optimiser: Literal["adam", "momentum", "sgd"] = "momentum"
    learning_rate: float | None = None
    collecting_rate: float | None = None
    batch_size: int | None = 128


@dataclass(frozen=True)
class Dropout:
    """Monte-Carlo dropout: weight matrices whose inputs are left out at random.

    Attributes:
        num_steps: Optimisation steps of a member.
        rate: Probability that an input is left out, in training and in draws.
        layers: Paths of the weight matrices, such as params/Dense_1/kernel, or patterns
            such as '*/Dense_*/kernel'. Default: all but the first, whose inputs are
            the data.
        num_masks: Draws of what is left out in a step, each with its own examples.
        learning_rate: Of Adam, at the start; it falls to zero along a cosine.
        batch_size: Examples for each of the masks of a step; None for all.
    """

    num_steps: int = 3000
    rate: float = 0.1
    layers: tuple[str, ...] | None = None
    num_masks: int = 8
    learning_rate: float = 1e-2
    batch_size: int | None = 16


@dataclass(frozen=True)
class Laplace:
    """Laplace approximation: a normal at a mode, of the curvature there.

    Several members are a mixture of normals. The curvature is the Gauss-Newton one.

    Attributes:
        num_steps: Optimisation steps of a member.
        structure: What is kept of the curvature: kronecker, a product for each array;
            low_rank, its largest eigenvalues; diagonal; or full, up to 5,000
            parameters.
        rank: Eigenvalues of low_rank.
        last_layer: Only the last layer is uncertain, the others stay at the mode.
        leaves: The same of any layers: a pattern of the paths of parameters, such as
            '*/Dense_1/*'. Default: all.
        prior_precision: given; or marginal_likelihood, by which the prior's precision
            is multiplied by the factor that makes the evidence largest. Factor and log
            evidence (nats) are printed and kept in fitted.json, by members.
        predictive: linearised, with the network that is linear around the mode, to
            which the curvature belongs; or sampled, with the network itself.
        optimiser: As of ensemble.
        learning_rate: At the start; it falls to zero along a cosine. Default: as of
            ensemble.
        batch_size: Examples of a step; None for all.
    """

    num_steps: int = 1500
    structure: Literal["kronecker", "low_rank", "diagonal", "full"] = "kronecker"
    rank: int = 20
    last_layer: bool = False
    leaves: str | None = None
    prior_precision: Literal["given", "marginal_likelihood"] = "given"
    predictive: Literal["linearised", "sampled"] = "linearised"
    optimiser: Literal["adam", "momentum", "sgd"] = "adam"
    learning_rate: float | None = None
    batch_size: int | None = 128


@dataclass(frozen=True)
class Mfvi:
    """Mean-field variational inference: one normal for every weight.

    Several members are a mixture of such fits, each around a mode of its own.

    Attributes:
        num_steps: Optimisation steps of a member.
        num_samples: Draws of the weights in a step.
        noise: local: each example has noise of its own where the network allows, for
            gradients that vary less and cost more. shared: one draw for all examples
            of a step.
        first_std: Standard deviation that all weights start with.
        learning_rate: Of Adam, at the start; it falls to zero along a cosine.
        batch_size: Examples of a step; None for all.
    """

    num_steps: int = 3000
    num_samples: int = 1
    noise: Literal["local", "shared"] = "local"
    first_std: float = 0.05
    learning_rate: float = 1e-2
    batch_size: int | None = 128


@dataclass(frozen=True)
class Svgd:
    """Particles that climb the posterior and repel each other, one network a member.

    Every device holds all members' parameters and gradients in a step.

    Attributes:
        num_steps: Steps of all particles.
        space: Where they repel each other. weights: Stein variational gradient descent.
            functions: a repulsive ensemble, by the outputs at the examples of a step.
        learning_rate: Of Adam, at the start; it falls to zero along a cosine.
        batch_size: Examples of a step; None for all.
    """

    num_steps: int = 1500
    space: Literal["weights", "functions"] = "weights"
    learning_rate: float = 1e-2
    batch_size: int | None = 128
