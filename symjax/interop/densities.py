"""Densities from elsewhere: numpyro models and plain log densities, for every sampler.

A sampler here takes `(params, data) -> nats`, and those with minibatches a `minibatch`
too. Neither numpyro's models nor functions of the parameters alone have examples that
could be split, so that their minibatch is the whole density: stochastic-gradient
samplers then follow the exact gradient.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int
from numpyro.handlers import seed
from numpyro.infer.util import constrain_fn, initialize_model

from symjax import checks
from symjax.types import Key, Params


@dataclass(frozen=True)
class Density:
    """A log density without examples to split; a `LogDensity`.

    Attributes:
        log_density: `(params, data) -> nats`.
    """

    log_density: Callable[[Params, Any], Any]

    def __call__(self, params: Params, data: Any) -> Float[Array, ""]:
        """The log density up to a constant, in nats."""
        return jnp.asarray(self.log_density(params, data))

    def minibatch(
        self, key: Key, params: Params, data: Any, batch_size: int
    ) -> Float[Array, ""]:
        """The whole log density, whatever the key and the batch size."""
        del key, batch_size
        return self(params, data)

    def block(
        self, params: Params, data: Any, index: Int[Array, ""] | int, num_blocks: int
    ) -> Float[Array, ""]:
        """An equal part of the whole, whatever the index: there is nothing to split."""
        del index
        return self(params, data) / num_blocks


class Model(NamedTuple):
    """A numpyro model as samplers take it.

    Attributes:
        log_density: `(params, data) -> nats`, on the unconstrained space, Jacobians
            included.
        params: Where the chains start, unconstrained, by name, leaves `(chain, ...)`.
        data: The arrays among the model's arguments, to be handed to `run.sample`.
        constrain: `draws -> draws`, by name, leaves `(chain, draw, ...)`: from the
            unconstrained space to the supports; sites that are `deterministic` too.
    """

    log_density: Density
    params: Params
    data: Any
    constrain: Callable[[Params], Params]


def from_function(logdensity_fn: Callable[[Params], Any]) -> Density:
    """A log density of the parameters alone, as samplers take it.

    Args:
        logdensity_fn: `params -> nats`, as blackjax takes it. Arrays that it closes
            over become constants of the compiled program.

    Returns:
        `(params, data) -> nats` with a `minibatch`; `data` may be anything.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> from symjax import run
        >>> from symjax.samplers import hmc
        >>> log_density = from_function(lambda x: -jnp.sum(x**2) / 2)
        >>> result = run.sample(
        ...     jax.random.key(0),
        ...     hmc.build(log_density, step_size=0.5, num_steps=4),
        ...     jnp.zeros((4, 3)),  # four chains of three parameters
        ...     None,
        ...     num_draws=10,
        ...     show_progress=False,
        ... )
        >>> result.draws.shape
        (4, 10, 3)
    """
    return Density(lambda params, data: logdensity_fn(params))


def from_numpyro(
    key: Key,
    model: Callable[..., Any],
    num_chains: int,
    *,
    args: tuple[Any, ...] = (),
    kwargs: Mapping[str, Any] | None = None,
) -> Model:
    """A numpyro model on the unconstrained space, with starts for chains.

    Give data as arguments and not in a closure: arrays among them stay arguments of the
    compiled program. All others (numbers, strings) are part of the model.

    Args:
        key: Chooses the starts: uniform between -2 and 2 on the unconstrained space,
            numpyro's default, and again where the density is not finite.
        model: The model; discrete latent sites need numpyro's enumeration.
        num_chains: How many starts.
        args: Its positional arguments.
        kwargs: Its keyword arguments.

    Returns:
        `Model(log_density, params, data, constrain)`.

    Example:
        >>> import jax, numpyro, numpyro.distributions as dist
        >>> from symjax import run
        >>> from symjax.samplers import hmc
        >>> def model(y):
        ...     scale = numpyro.sample("scale", dist.HalfNormal(1.0))
        ...     numpyro.sample("y", dist.Normal(0.0, scale), obs=y)
        >>> y = jax.numpy.array([0.3, -0.8, 0.5])
        >>> target = from_numpyro(jax.random.key(0), model, 4, args=(y,))
        >>> result = run.sample(
        ...     jax.random.key(1),
        ...     hmc.build(target.log_density, step_size=0.3, num_steps=4),
        ...     target.params,
        ...     target.data,
        ...     num_draws=10,
        ...     show_progress=False,
        ... )
        >>> target.constrain(result.draws)["scale"].shape
        (4, 10)
    """
    checks.at_least(1, num_chains=num_chains)
    data, arguments = _take_arrays(args, dict(kwargs or {}))
    positional, named = arguments(data)
    info: Any = initialize_model(
        jax.random.split(key, num_chains),
        model,
        dynamic_args=True,
        model_args=positional,
        model_kwargs=named,
    )

    def log_density(params: Params, data: Any) -> Float[Array, ""]:
        positional, named = arguments(data)
        return -info.potential_fn(*positional, **named)(params)

    # Not `info.postprocess_fn`, which takes the support of an `ImproperUniform` that
    # depends on other sites from the first trace of the model.
    @jax.jit
    def constrain_all(draws: Params, data: Any) -> Params:
        positional, named = arguments(data)

        def constrain_one(params: Params) -> Params:
            return constrain_fn(
                seed(model, rng_seed=0),
                positional,
                named,
                params,
                return_deterministic=True,
            )

        return jax.vmap(jax.vmap(constrain_one))(draws)

    return Model(
        Density(log_density),
        info.param_info.z,
        data,
        lambda draws: constrain_all(draws, data),
    )


def _take_arrays(
    args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Array, ...], Callable[[Any], tuple[tuple[Any, ...], dict[str, Any]]]]:
    """The arrays among arguments, and from arrays in their place to the arguments."""
    leaves, structure = jax.tree.flatten((args, kwargs))
    is_array = [isinstance(leaf, jax.Array | np.ndarray) for leaf in leaves]
    pairs = list(zip(leaves, is_array, strict=True))

    def arguments(data: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
        arrays = iter(data)
        return structure.unflatten(
            next(arrays) if moves else leaf for leaf, moves in pairs
        )

    return tuple(jnp.asarray(leaf) for leaf, moves in pairs if moves), arguments
