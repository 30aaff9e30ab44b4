"""Estimates of the gradient of a log posterior, plain or with control variates.

A control variate compares the gradient of a batch with that of the same batch at an
anchor, where the gradient of all examples is known.

blackjax has both parts in `sgmcmc.gradients`, unfit here: its `grad_estimator` takes
a batch that the host made, and its `control_variates` closes over the data and the
point, which is then one for all chains and can't move.

References:
    Baker, Fearnhead, Fox, Nemeth (2019), Control variates for stochastic gradient MCMC,
    eq. 7 and section 3.1.
    Dubey, Reddi, Poczos, Smola, Xing, Williamson (2016), Variance reduction in
    stochastic gradient Langevin dynamics, Algorithm 2.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, Int

from symjax import checks, mesh
from symjax.gradients import sources
from symjax.gradients.sources import Source
from symjax.types import Key, Params


class Estimator(NamedTuple):
    """A stochastic gradient.

    Attributes:
        init: `(key, params, data) -> state`, where a chain starts.
        estimate: `(key, state, params, data) -> (log posterior in nats, its gradient,
            state)`, for the next step of the chain.
    """

    init: Callable[..., Any]
    estimate: Callable[..., tuple[Float[Array, ""], Params, Any]]


class Anchored(NamedTuple):
    """A point at which the gradient of all examples is known.

    Attributes:
        batches: State of what chooses the examples.
        position: The point.
        value: Log posterior there, in nats.
        gradient: Its gradient.
        age: Steps since.
    """

    batches: Any
    position: Params
    value: Float[Array, ""]
    gradient: Params
    age: Int[Array, ""]


def build(
    log_posterior: Any,
    *,
    batch_size: int,
    batches: str = "replacement",
    anchor: int | str | None = None,
) -> Estimator:
    """The estimate that a stochastic-gradient sampler follows.

    Args:
        log_posterior: From `posterior.build`, or anything with its `minibatch`; for
            `epoch` and `sweep` with its `batch` too, and for an anchor its call.
        batch_size: Examples a gradient takes, over all devices of a chain.
        batches: Which examples, one of

            - `replacement`: uniformly, each step by itself;
            - `epoch`: in the order of a shuffle, every example once before any comes
              again. A batch that the shuffle's end cuts goes on with the next one's
              beginning;
            - `sweep`: the batches of a random partition, there and back again, then of
              another partition. Where the batch size does not divide the examples,
              the last batch of a partition has fewer; every example weighs the same.
        anchor: None, or where the gradient of all examples is known: `start`, the
            point where the chain starts, which should be a mode; or a number of steps
            after which the chain's position becomes the anchor (SVRG). A gradient then
            costs two of a batch, and an anchor one of all examples. Its noise falls
            with the distance to the anchor, and grows beyond that of a plain one where
            the chain is too far away.

    Returns:
        `Estimator`.

    Raises:
        TypeError: if `log_posterior` lacks what the choice asks for.
        ValueError: if `batches` or `anchor` is none of the choices.
    """
    checks.at_least(1, batch_size=batch_size)
    if isinstance(anchor, str):
        if anchor != "start":
            raise ValueError(
                f"`anchor` must be start, a number of steps or None, got {anchor!r}."
            )
        lifetime = None
    else:
        checks.at_least(1, anchor=anchor)
        lifetime = anchor
    if anchor is not None and not callable(log_posterior):
        raise TypeError(
            "`log_posterior` must be callable for an `anchor`, which takes the "
            f"gradient of all examples, got {type(log_posterior).__name__}."
        )
    source = sources.build(log_posterior, batch_size, batches)
    if anchor is None:
        return _plain(source)
    return _anchored(source, log_posterior, lifetime)


def _plain(source: Source) -> Estimator:
    def init(key: Key, params: Params, data: Any) -> Any:
        del params
        return source.init(key, data)

    def estimate(key: Key, state: Any, params: Params, data: Any) -> Any:
        log_density, state = source.draw(key, state, data)
        return *jax.value_and_grad(log_density)(params), state

    return Estimator(init, estimate)


def _anchored(source: Source, log_posterior: Any, lifetime: int | None) -> Estimator:
    whole = jax.value_and_grad(log_posterior)

    def init(key: Key, params: Params, data: Any) -> Anchored:
        value, gradient = whole(params, data)
        return Anchored(source.init(key, data), params, value, gradient, jnp.array(0))

    def estimate(key: Key, state: Anchored, params: Params, data: Any) -> Any:
        if lifetime is not None:
            is_due = mesh.same_in_all_chains(state.age) >= lifetime
            state = _renew(whole, is_due, state, params, data)
        log_density, batches = source.draw(key, state.batches, data)
        # Both at once: one all-reduce over the devices, as for a plain gradient.
        both = jax.tree.map(lambda *leaves: jnp.stack(leaves), params, state.position)
        pairs = jax.vmap(jax.value_and_grad(log_density))(both)
        change = jax.tree.map(lambda pair: pair[0] - pair[1], pairs)
        value, gradient = optax.tree.add((state.value, state.gradient), change)
        age = state.age + 1
        return value, gradient, state._replace(batches=batches, age=age)

    return Estimator(init, estimate)


def _renew(
    whole: Callable[[Params, Any], tuple[Any, Params]],
    is_due: Bool[Array, ""],
    state: Anchored,
    params: Params,
    data: Any,
) -> Anchored:
    """The state, with an anchor at `params` if that is due.

    It is due for all chains at once, so that one branch runs for all of a device's:
    each chain's own answer would have the gradient of all examples taken every time.
    """

    def replace() -> Anchored:
        value, gradient = whole(params, data)
        age = jnp.zeros_like(state.age)
        return Anchored(state.batches, params, value, gradient, age)

    return jax.lax.cond(is_due, replace, lambda: state)
