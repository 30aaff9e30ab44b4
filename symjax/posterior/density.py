"""Log posteriors of a network: the whole data set in one pass, or a minibatch of it.

log p(params | data) = (log prior(params) + sum_i log likelihood_i(params)) / T, in
summed nats: the temperature T divides the whole log density, prior included.

The gradient takes one pass over micro-batches: value and gradient are accumulated
together, so that memory holds the activations of a single micro-batch. (Reverse mode
through a scan would keep those of all.) With data on a mesh each device passes over its
own examples and the sums meet in one all-reduce.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int

from symjax import checks, sums
from symjax.densities import Prior
from symjax.mesh import (
    count_examples,
    gather_over_data,
    sum_over_data,
    take,
    take_every,
)
from symjax.posterior.convolutions import for_chains
from symjax.posterior.force import at_precision
from symjax.sums import Sum
from symjax.types import Data, Key, Params


@dataclass(frozen=True)
class LogPosterior:
    """A tempered log posterior; made by `build`, a `LogDensity`.

    Attributes:
        apply: `(params, x) -> outputs (example, output)`.
        prior: Log prior of the parameters.
        likelihood: `(outputs, y) -> nats (example,)`.
        temperature: T in posterior^(1/T).
        micro_batch: Examples a pass holds in memory; None for all of a device's.
        force_apply: `apply` for the gradient, and the value that comes with it.
    """

    apply: Callable[[Params, Any], Any]
    prior: Prior
    likelihood: Callable[[Any, Any], Any]
    temperature: float
    micro_batch: int | None
    force_apply: Callable[[Params, Any], Any]

    def __call__(self, params: Params, data: Data) -> Float[Array, ""]:
        """The log posterior up to a constant, in nats; differentiable in `params`."""
        return self._log_density(params, data, 1.0)

    def log_likelihood(self, params: Params, data: Data) -> Float[Array, ""]:
        """The log likelihood of all examples, in nats, at temperature 1."""
        return self.temperature * self(params, data) - self.prior(params)

    def tally(self, params: Params, data: Data) -> Sum:
        """The log likelihood of all examples, in nats, as a sum that loses nothing.

        Matrices multiply in full float32. One forward pass; `gain` compares two.
        """

        def of_batch(params: Params, batch: Data) -> Sum:
            nats = self.likelihood(self.apply(params, batch.x), batch.y)
            return sums.total(jnp.where(batch.mask, nats, 0))

        with jax.default_matmul_precision("highest"):
            own = self._sum(of_batch, params, data, add=sums.add)
        return sums.merge(gather_over_data(own))

    def gain(
        self, params: Params, proposal: Params, data: Data, before: Sum, after: Sum
    ) -> Float[Array, ""]:
        """The log posterior at `proposal` less that at `params`, without cancellation.

        Plain sums, of 10^5 to 10^7 terms, would lose a change of order one. The prior's
        change is taken weight by weight.

        Args:
            params: Network parameters.
            proposal: Others.
            data: Not looked at: the tallies have seen them.
            before: The tally at `params`.
            after: The tally at `proposal`.
        """
        del data
        change = sums.difference(after, before)
        return (change + self.prior.difference(params, proposal)) / self.temperature

    def relative_to(
        self, start: Params, data: Data
    ) -> Callable[[Params], Float[Array, ""]]:
        """`gain` from `start`, as a function of the proposal; differentiable.

        The examples' log-likelihoods at `start` are computed once and kept. Value and
        gradient then take one pass, in full float32: nothing more than a gradient.
        """

        def nats(params: Params, batch: Data) -> Any:
            return self.likelihood(self.apply(params, batch.x), batch.y)

        def gains(params: Params, batch: Data, before: Any) -> Float[Array, ""]:
            return jnp.sum(jnp.where(batch.mask, nats(params, batch) - before, 0))

        with jax.default_matmul_precision("highest"):
            count, batch = self._batches(data)
            # By the same convolutions as later, so that it is zero at the start.
            same = for_chains(nats)
            before = jax.lax.map(
                lambda index: same(start, batch(index)), jnp.arange(count)
            )

        def total(function: Callable[..., Any], params: Params) -> Any:
            with jax.default_matmul_precision("highest"):
                return sum_over_data(self._sum(function, params, data, before))

        @jax.custom_vjp
        def relative(params: Params) -> Float[Array, ""]:
            prior = self.prior.difference(start, params)
            return (total(gains, params) + prior) / self.temperature

        def forward(params: Params) -> tuple[Float[Array, ""], Params]:
            prior = self.prior.difference(start, params), jax.grad(self.prior)(params)
            return jax.tree.map(
                lambda a, b: (a + b) / self.temperature,
                total(jax.value_and_grad(gains), params),
                prior,
            )

        relative.defvjp(forward, _scale_gradient)
        return relative

    def minibatch(
        self, key: Key, params: Params, data: Data, batch_size: int
    ) -> Float[Array, ""]:
        """An unbiased estimate of the log posterior from a few examples, in nats.

        (log prior + num_examples / batch_size * sum over the batch) / T, with the batch
        drawn uniformly with replacement, on the device. Differentiable in `params`.

        Args:
            key: Chooses the examples; equal on all devices that share a chain.
            params: Network parameters.
            data: All of this device's examples; padding rows, if any, come last.
            batch_size: Examples in the batch, over all devices.
        """
        num_examples = count_examples(data)
        indices = jax.random.randint(key, (batch_size,), 0, num_examples)
        return self.batch(params, data, indices, num_examples / batch_size)

    def batch(
        self,
        params: Params,
        data: Data,
        indices: Int[Array, " batch"],
        weight: Float[Array, ""] | Int[Array, ""] | float,
    ) -> Float[Array, ""]:
        """(log prior + weight * sum over the examples at `indices`) / T, in nats.

        Args:
            params: Network parameters.
            data: All of this device's examples.
            indices: Examples in the order of the whole data set, equal on all devices
                that share a chain; `mesh.NO_EXAMPLE` adds nothing.
            weight: Of the log likelihood of each.
        """
        return self._log_density(params, take(data, indices), weight)

    def block(
        self, params: Params, data: Data, index: Int[Array, ""] | int, num_blocks: int
    ) -> Float[Array, ""]:
        """Part `index` (from 0) of `num_blocks` that add up to the log posterior.

        Every `num_blocks`-th example from `index` on, and as large a part of the log
        prior. Differentiable in `params`, with the memory of the block alone.
        """
        rows = take_every(data, index, num_blocks)
        return self._log_density(params, rows, float(num_blocks)) / num_blocks

    def sum_over_examples(
        self, function: Callable[[Params, Data], Any], params: Params, data: Data
    ) -> Any:
        """Add up `function(params, batch)` over micro-batches and devices, in one pass.

        Args:
            function: Its value is a pytree of sums over the examples of a batch, the
                masked ones left out.
            params: Network parameters.
            data: All of this device's examples.
        """
        return sum_over_data(self._sum(function, params, data))

    def _log_density(
        self,
        params: Params,
        data: Data,
        weight: Float[Array, ""] | Int[Array, ""] | float,
    ) -> Float[Array, ""]:
        """The log posterior with the log likelihood multiplied by `weight`."""

        @jax.custom_vjp
        def log_density(params: Params) -> Float[Array, ""]:
            value = sum_over_data(self._sum(self._log_likelihood, params, data))
            return (weight * value + self.prior(params)) / self.temperature

        def forward(params: Params) -> tuple[Float[Array, ""], Params]:
            value_and_gradient = jax.value_and_grad(self.force_log_likelihood)
            likelihood = self._sum(value_and_gradient, params, data)
            return jax.tree.map(
                lambda a, b: (weight * a + b) / self.temperature,
                sum_over_data(likelihood),
                jax.value_and_grad(self.prior)(params),
            )

        log_density.defvjp(forward, _scale_gradient)
        return log_density(params)

    def force_log_likelihood(self, params: Params, batch: Data) -> Float[Array, ""]:
        """The log likelihood of a batch, in nats, as the gradient is taken of it."""
        nats = self.likelihood(self.force_apply(params, batch.x), batch.y)
        return jnp.sum(jnp.where(batch.mask, nats, 0))

    def _log_likelihood(self, params: Params, batch: Data) -> Float[Array, ""]:
        nats = self.likelihood(self.apply(params, batch.x), batch.y)
        return jnp.sum(jnp.where(batch.mask, nats, 0))

    def _batches(self, data: Data) -> tuple[int, Callable[[Any], Data]]:
        """How many micro-batches a device's examples make, and each of them.

        The last one reaches back into the one before it where the size does not divide
        the rows, and masks what was counted there.
        """
        num_rows = len(data.mask)
        size = self.micro_batch
        if size is None or size >= num_rows:
            return 1, lambda index: data

        def batch(index: Any) -> Data:
            start = jnp.minimum(index * size, num_rows - size)
            taken = jax.tree.map(
                lambda leaf: jax.lax.dynamic_slice_in_dim(leaf, start, size), data
            )
            is_new = start + jnp.arange(size) >= index * size
            return taken._replace(mask=taken.mask & is_new)

        return -(-num_rows // size), batch

    def _sum(
        self,
        function: Callable[..., Any],
        params: Params,
        data: Data,
        *kept: Array,
        add: Callable[[Any, Any], Any] = optax.tree.add,
    ) -> Any:
        """Add up `function` over this device's micro-batches, in one pass.

        `kept` holds one more argument of it for each micro-batch.
        """
        function = for_chains(function)
        count, batch = self._batches(data)
        if count == 1:
            return function(params, data, *(leaf[0] for leaf in kept))

        def step(total: Any, at: Any) -> tuple[Any, None]:
            index, *more = at
            return add(total, function(params, batch(index), *more)), None

        zeros = jax.tree.map(
            lambda leaf: jnp.zeros(leaf.shape, leaf.dtype),
            jax.eval_shape(function, params, batch(0), *(leaf[0] for leaf in kept)),
        )
        return jax.lax.scan(step, zeros, (jnp.arange(count), *kept))[0]


def _scale_gradient(gradient: Params, scale: Float[Array, ""]) -> tuple[Params]:
    """Reverse mode of a function whose forward pass keeps its gradient."""
    return (jax.tree.map(lambda leaf: scale * leaf, gradient),)


def build(
    apply: Callable[[Params, Any], Any],
    prior: Prior,
    likelihood: Callable[[Any, Any], Any],
    *,
    temperature: float = 1.0,
    micro_batch: int | None = None,
    force_precision: str | None = None,
    force_apply: Callable[..., Any] | None = None,
) -> LogPosterior:
    """The log posterior of a network's parameters.

    Args:
        apply: `(params, x) -> outputs (example, output)`, pure.
        prior: Log prior, from `densities`.
        likelihood: `(outputs, y) -> nats (example,)`, from `densities`.
        temperature: T in posterior^(1/T); 1 for the Bayes posterior.
        micro_batch: Examples a gradient holds in memory at once, on each device; None
            for all. `choose_micro_batch` picks it by the device's memory. The value
            and the gradient do not depend on it, up to the order of summation.
        force_precision: Of the gradient: one of `force.PRECISIONS`; None for what
            `jax_default_matmul_precision` says, which on a GPU is tensorfloat32. A
            rougher force is still reversible and keeps volume, and `tally`, which
            decides what is accepted, is full float32: acceptance pays, the posterior
            stays exact. Samplers without an accept step have no such correction.
        force_apply: `(params, x, *, dtype, in_pairs) -> outputs`: a faster `apply` for
            a force of one of `force.HALVES`, such as `models.fused.find` finds.

    Returns:
        `log_posterior(params, data)`, with `tally` and `gain`, `minibatch` and `block`.
    """
    checks.positive(temperature=temperature)
    checks.at_least(1, micro_batch=micro_batch)
    force = at_precision(apply, force_precision, force_apply)
    return LogPosterior(
        apply, prior, likelihood, float(temperature), micro_batch, force
    )
