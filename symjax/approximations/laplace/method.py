"""From an optimised network to the Gaussian around it."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpyro.distributions as dist
import optax
from jaxtyping import Array, Float

from symjax import checks
from symjax.approximations import descent
from symjax.approximations.laplace import ggn, structures
from symjax.approximations.laplace.ggn import Part
from symjax.posterior import LogPosterior
from symjax.types import Approximation, Data, Key, Params


_LOG_RANGE = 20.0
"""The factor on the prior's precision is looked for between exp(-20) and exp(20)."""
_BISECTIONS = 60


class State(NamedTuple):
    """A member during its optimisation."""

    position: Params
    optimiser: Any


class Info(NamedTuple):
    """What one step saw, as scalars.

    Attributes:
        log_density: Log posterior before the step in nats; an estimate if minibatched.
    """

    log_density: Float[Array, ""]


class Fitted(NamedTuple):
    """A Gaussian around a mode.

    Attributes:
        mode: Params pytree.
        curvature: As its structure keeps it, in units of the prior.
        eigenvalues: Of the curvature in those units; the rest of them are zero.
        precision_factor: d, by which the precision of the prior is multiplied.
        log_likelihood: At the mode, in nats, divided by the temperature.
        squared_norm: Squared distance of the mode from the prior's mean in standard
            deviations of the prior, divided by the temperature; of the leaves that are
            uncertain.
    """

    mode: Params
    curvature: Any
    eigenvalues: Float[Array, " eigenvalue"]
    precision_factor: Float[Array, ""]
    log_likelihood: Float[Array, ""]
    squared_norm: Float[Array, ""]


class Told(NamedTuple):
    """What a user is told of a member.

    Attributes:
        log_evidence: Laplace's estimate of the log marginal likelihood, in nats.
        precision_factor: By which the prior's precision is multiplied.
    """

    log_evidence: Float[Array, ""]
    precision_factor: Float[Array, ""]


def build(
    log_posterior: LogPosterior,
    *,
    optimiser: optax.GradientTransformation,
    structure: str = "kronecker",
    leaves: str = "*",
    rank: int = 20,
    prior_precision: str = "given",
    batch_size: int | None = None,
) -> Approximation:
    """A Laplace approximation, one independent mode a member.

    The optimisation is that of an ensemble: minus the log posterior divided by the
    number of examples. Then the curvature takes a gradient of every output of every
    example, in one pass over the data and one sum over the devices; `low_rank` takes
    eight passes of `rank` + 10 gradients each instead.

    | structure | keeps of the Gauss-Newton matrix | memory |
    |---|---|---|
    | full | all of it | parameters^2, up to 5000 parameters |
    | kronecker | a Kronecker product for each leaf | rows^2 + columns^2 of each |
    | low_rank | its largest eigenvalues | rank x parameters |
    | diagonal | its diagonal | parameters |

    What low_rank leaves out keeps the prior's precision, so that its variances are too
    large rather than too small, and its evidence too. Of a convolution's kernel,
    columns are output channels. A vector, such as a bias, has a full block in
    kronecker. Everything is in float32: curvature a million times smaller than the
    largest of its block is not told from none.

    Where a likelihood is not log-concave in the outputs (learned noise), negative
    curvature of an example is taken as zero.

    Args:
        log_posterior: What each member climbs. Normal priors only, since no other has
            one curvature everywhere. Outputs must be `(example, output)`.
        optimiser: An optax optimiser, schedule included.
        structure: What is kept of the curvature.
        leaves: Pattern (`fnmatch`, as in a `Prior`'s rules) of the paths of the
            parameters that are uncertain; the others stay at the mode. That of the last
            layer is found by `find_last_layer`.
        rank: Eigenvalues that `low_rank` keeps.
        prior_precision: given, or marginal_likelihood: the prior's, or the prior's
            times the factor of largest `log_evidence`, the mode staying where it is.
        batch_size: Examples a step of the optimisation takes; None for all.

    Returns:
        `Approximation` whose `sample` draws from the Gaussian. Priors that are not
        normal and unknown options raise `ValueError`.

    Example:
        >>> approximation = build(
        ...     log_posterior,
        ...     optimiser=optax.adam(1e-2),
        ...     leaves="params/Dense_2/*",
        ...     structure="full",
        ... )  # doctest: +SKIP
    """
    checks.at_least(1, batch_size=batch_size, rank=rank)
    _check(log_posterior, structure, prior_precision)
    kind = structures.STRUCTURES[structure]
    temperature = log_posterior.temperature

    def init(key: Key, params: Params, data: Data) -> State:
        del key, data
        structures.check(structure, ggn.select(log_posterior, params, leaves))
        return State(params, optimiser.init(params))

    def step(key: Key, state: State, data: Data) -> tuple[State, Info]:
        log_density = descent.estimate(log_posterior, batch_size, key, data)
        *new, value = descent.step(optimiser, log_density, *state, data)
        return State(*new), Info(value)

    def finish(key: Key, state: State, data: Data) -> Fitted:
        part = ggn.select(log_posterior, state.position, leaves)
        with jax.default_matmul_precision("highest"):
            curvature = kind.measure(key, log_posterior, part, data, rank)
            likelihood = log_posterior.log_likelihood(state.position, data)
        values, norm = kind.eigenvalues(curvature), _squared_norm(part) / temperature
        factor = jnp.ones_like(norm)
        if prior_precision == "marginal_likelihood":
            factor = _best_factor(values, norm)
        likelihood = likelihood / temperature
        return Fitted(state.position, curvature, values, factor, likelihood, norm)

    def sample(key: Key, fitted: Fitted) -> Params:
        part = ggn.select(log_posterior, fitted.mode, leaves)
        keys = jax.random.split(key, len(part.leaves))
        noise = [
            jax.random.normal(one, leaf.shape, leaf.dtype)
            for one, leaf in zip(keys, part.leaves, strict=True)
        ]
        with jax.default_matmul_precision("highest"):
            moved = kind.shrink(fitted.curvature, fitted.precision_factor, noise)
        scale = jnp.sqrt(temperature / fitted.precision_factor)
        moves = ggn.scaled(part, [scale * leaf for leaf in moved])
        return part.merge(jax.tree.map(jnp.add, part.leaves, moves))

    def describe(fitted: Fitted) -> Told:
        return Told(log_evidence(fitted), fitted.precision_factor)

    return Approximation(init, step, sample, finish, describe)


def log_evidence(
    fitted: Fitted, precision_factor: Float[Array, ""] | float | None = None
) -> Float[Array, ""]:
    """Laplace's estimate of the log marginal likelihood, in nats.

    With W the curvature in units of the prior, m the mode in those units, and d the
    factor on the prior's precision,

        log_likelihood / T - d |m|^2 / (2 T) - log det(I + W / d) / 2.

    At T = 1 that is log p(data), exact for a linear model with Gaussian noise. At
    another temperature it is that of the likelihood^(1/T) with a prior of T times the
    variance. Where only some leaves are uncertain, it is given the others.

    Args:
        fitted: From the approximation's `finish`, of one member.
        precision_factor: d; by default the one that was fitted. The mode stays.
    """
    d = fitted.precision_factor if precision_factor is None else precision_factor
    log_determinant = jnp.sum(jnp.log1p(fitted.eigenvalues / d))
    return fitted.log_likelihood - d * fitted.squared_norm / 2 - log_determinant / 2


def _best_factor(
    eigenvalues: Float[Array, " eigenvalue"], squared_norm: Float[Array, ""]
) -> Float[Array, ""]:
    """The factor of largest evidence, the mode held fixed.

    There the number of well-determined parameters, sum w / (w + d), which falls with d,
    is d |m|^2, which rises (MacKay 1992, 4.9): one crossing, found by bisection.
    """

    def halve(_: Any, ends: tuple[Array, Array]) -> tuple[Array, Array]:
        low, high = ends
        middle = (low + high) / 2
        d = jnp.exp(middle)
        rises = jnp.sum(eigenvalues / (eigenvalues + d)) > d * squared_norm
        return jnp.where(rises, middle, low), jnp.where(rises, high, middle)

    ends = (
        jnp.full_like(squared_norm, -_LOG_RANGE),
        jnp.full_like(squared_norm, _LOG_RANGE),
    )
    return jnp.exp(sum(jax.lax.fori_loop(0, _BISECTIONS, halve, ends)) / 2)


def _squared_norm(part: Part) -> Float[Array, ""]:
    terms = [
        jnp.sum(jnp.square((leaf - loc) / scale))
        for leaf, loc, scale in zip(part.leaves, part.locs, part.scales, strict=True)
    ]
    return jnp.sum(jnp.stack(terms))


def _check(log_posterior: LogPosterior, structure: str, prior_precision: str) -> None:
    """Require options that are known, and a prior of one curvature.

    Raises:
        ValueError: if they are not.
    """
    if structure not in structures.STRUCTURES:
        raise ValueError(
            f"`structure` must be one of {', '.join(structures.STRUCTURES)}, got "
            f"{structure!r}."
        )
    if prior_precision not in ("given", "marginal_likelihood"):
        raise ValueError(
            "`prior_precision` must be given or marginal_likelihood, got "
            f"{prior_precision!r}."
        )
    for pattern, distribution in log_posterior.prior.rules:
        if not isinstance(distribution, dist.Normal):
            raise ValueError(
                "`log_posterior` must have normal priors for a Laplace approximation, "
                f"got {type(distribution).__name__} for {pattern!r}: its curvature at "
                "the mode says little of it elsewhere. Take a normal prior, or another "
                "method."
            )
