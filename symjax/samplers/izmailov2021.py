"""The stochastic-gradient baselines of Izmailov et al., with their hyperparameters.

They are one sampler, in the form of a momentum that decays: SGLD where it decays at
once, SGHMC otherwise. At one step size it is `samplers.sghmc` with e = sqrt(h) and
a e = 1 - mu, its positions one step ahead, and `samplers.sgld` with e = h for mu = 0.
It differs where h changes, which leaves mu as it is, and has a preconditioner.

The code released with the paper adds up the gradient over the devices, and then once
more. On D devices its gradient is D times too large, and its noise is not: it samples
at temperature 1 / D. `imitated_devices` does the same.

References:
    Izmailov, Vikram, Hoffman, Wilson (2021), What are Bayesian neural network
    posteriors really like?, Table 3; the commands in their code's README.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from blackjax.util import generate_gaussian_noise
from jaxtyping import Array, Float, Int

from symjax import checks, gradients
from symjax.samplers import Schedule, as_schedule, full_noise
from symjax.types import Algorithm, Key, Params


BATCH_SIZE = 80
NUM_EPOCHS = 10_000
DECAY = 0.99
DAMPING = 1e-7
"""Of the RMSprop preconditioner, in nats per unit of the parameters."""


class State(NamedTuple):
    """Position and momentum of a chain, and what it carries along.

    Attributes:
        position: Parameters.
        momentum: Of the parameters.
        mean_square: Running mean of the squared gradient, like the parameters; empty
            without a preconditioner.
        iteration: Steps made.
        estimate: What its gradients carry along.
    """

    position: Params
    momentum: Params
    mean_square: Params
    iteration: Int[Array, ""]
    estimate: Any


class Info(NamedTuple):
    """What one step saw, as scalars.

    Attributes:
        log_density: Minibatch estimate of the log posterior before the step, in nats.
        step_size: Step size used.
    """

    log_density: Float[Array, ""]
    step_size: Float[Array, ""]


def build(
    log_posterior: Any,
    *,
    step_size: float | Schedule,
    momentum_decay: float,
    batch_size: int = BATCH_SIZE,
    batches: str = "epoch",
    preconditioner: str | None = None,
    imitated_devices: int = 1,
    noise: Schedule = full_noise,
    num_warmup: int = 0,
) -> Algorithm:
    """SGLD or SGHMC as published: unadjusted, biased by step size and gradient noise.

    With step size h, momentum decay mu, mass M (1 without a preconditioner) and
    standard normal n, one step is

        m <- mu m + sqrt(h) grad(x) + sqrt(2 (1 - mu) M) n
        x <- x + sqrt(h) m / M

    at the cost of one minibatch gradient. The temperature is the log posterior's own.

    With RMSprop, M = 1e-7 + sqrt(v), v the running mean of the squared gradient. It
    goes on following the chain, without the correction that this calls for, so that
    the target is not quite the posterior.

    Args:
        log_posterior: From `posterior.build`, or anything with its `minibatch`; for
            the default `batches` with its `batch`.
        step_size: h, in squared units of the parameters (with a preconditioner, in
            units of the parameters), or an optax schedule of the iteration.
        momentum_decay: mu, at least 0 and below 1.
        batch_size: Examples a gradient takes, over all devices of a chain.
        batches: How they are chosen: `replacement`, `epoch` or `sweep`, as in
            `gradients.build`.
        preconditioner: `rmsprop` or None.
        imitated_devices: D, where the chain is to sample at temperature 1 / D, as the
            released code did on so many devices; 1 for what the paper writes.
        noise: Schedule of what multiplies the variance of n; 0 descends without noise.
        num_warmup: First iterations, which are not kept.

    Returns:
        `Algorithm`.

    Raises:
        ValueError: if an option is none of its choices.

    Example:
        >>> chosen = preset("sghmc_clr", num_examples=50_000)
        >>> algorithm = build(log_posterior, **chosen.options)  # doctest: +SKIP
    """  # noqa: DOC502
    checks.at_least(1, imitated_devices=imitated_devices)
    checks.at_least(0, num_warmup=num_warmup)
    _check(momentum_decay, preconditioner)
    schedule = as_schedule(step_size)
    estimator = gradients.build(log_posterior, batch_size=batch_size, batches=batches)

    def init(key: Key, params: Params, data: Any) -> State:
        zeros = optax.tree.zeros_like(params)
        mean_square = zeros if preconditioner else ()
        estimate = estimator.init(key, params, data)
        return State(params, zeros, mean_square, jnp.array(0), estimate)

    def step(key: Key, state: State, data: Any) -> tuple[State, Info]:
        batch_key, noise_key = jax.random.split(key)
        size, share = schedule(state.iteration), noise(state.iteration)
        value, gradient, estimate = estimator.estimate(
            batch_key, state.estimate, state.position, data
        )
        gradient = optax.tree.scale(imitated_devices, gradient)
        mean_square, mass = (), optax.tree.ones_like(gradient)
        if preconditioner:
            mean_square, mass = _precondition(state.mean_square, gradient)
        spread = jnp.sqrt(2 * (1 - momentum_decay) * share)
        root = jnp.sqrt(size)
        momentum = jax.tree.map(
            lambda p, g, m, n: momentum_decay * p + root * g + spread * jnp.sqrt(m) * n,
            state.momentum,
            gradient,
            mass,
            generate_gaussian_noise(noise_key, state.momentum),
        )
        position = jax.tree.map(
            lambda x, p, m: x + root * p / m, state.position, momentum, mass
        )
        state = State(position, momentum, mean_square, state.iteration + 1, estimate)
        return state, Info(value, size)

    return Algorithm(init, step, num_warmup, schedule)


def _precondition(mean_square: Params, gradient: Params) -> tuple[Params, Params]:
    """The running mean square with this gradient, and the mass of each parameter."""
    mean_square = optax.tree.update_moment(gradient, mean_square, DECAY, 2)
    return mean_square, jax.tree.map(lambda v: DAMPING + jnp.sqrt(v), mean_square)


def _check(momentum_decay: float, preconditioner: str | None) -> None:
    """Check what the published methods differ in.

    Raises:
        ValueError: if one can't be.
    """
    if not 0 <= momentum_decay < 1:
        raise ValueError(
            f"`momentum_decay` must be at least 0 and below 1, got {momentum_decay}."
        )
    if preconditioner not in (None, "rmsprop"):
        raise ValueError(
            f"`preconditioner` must be rmsprop or None, got {preconditioner!r}."
        )


class Preset(NamedTuple):
    """A published run.

    Attributes:
        options: Arguments of `build`.
        num_draws: Draws of a chain.
        thinning: Iterations for each.
    """

    options: dict[str, Any]
    num_draws: int
    thinning: int


METHODS = {
    "sgld": {"momentum_decay": 0.0},
    "sghmc": {"momentum_decay": 0.9},
    "sghmc_clr": {"momentum_decay": 0.95},
    "sghmc_clr_prec": {"momentum_decay": 0.95, "preconditioner": "rmsprop"},
}
STEP_SIZES = {
    ("sgld", "cifar10"): 1e-6,
    ("sgld", "cifar100"): 3e-6,
    ("sgld", "imdb"): 1e-5,
    ("sghmc", "cifar10"): 3e-7,
    ("sghmc_clr", "cifar10"): 3e-7,
    ("sghmc_clr_prec", "cifar10"): 3e-5,
}
"""SGLD's are in Table 3, the others in the README, for CIFAR-10 alone."""


def preset(
    method: str,
    *,
    num_examples: int,
    task: str = "cifar10",
    step_size: float | None = None,
    num_warmup_epochs: int = 1_000,
    cycle_epochs: int = 50,
) -> Preset:
    """The hyperparameters of a published run, of which the prior has variance 1/5.

    All of them take 10,000 epochs of batches of 80, the first 1,000 of them burn-in.
    SGLD and SGHMC keep a draw in 10 epochs. The others, after a burn-in at the largest
    step size, lower it along a cosine in every 50 epochs and keep the end of each.

    Args:
        method: `sgld`, `sghmc`, `sghmc_clr` (cyclical step sizes) or `sghmc_clr_prec`
            (with a preconditioner too).
        num_examples: Of the training set, for the length of an epoch.
        task: Whose step size: `cifar10`; for SGLD also `cifar100` or `imdb`.
        step_size: h, instead of the published one.
        num_warmup_epochs: Epochs of burn-in.
        cycle_epochs: Epochs of a cycle.

    Returns:
        `Preset`.

    Raises:
        ValueError: if nothing was published for that method and task.
    """
    checks.at_least(
        1,
        num_examples=num_examples,
        num_warmup_epochs=num_warmup_epochs,
        cycle_epochs=cycle_epochs,
    )
    if (method, task) not in STEP_SIZES:
        known = ", ".join(" ".join(pair) for pair in STEP_SIZES)
        raise ValueError(
            f"`method` and `task` must be one of {known}; got {method} {task}."
        )
    checks.positive(step_size=step_size)
    size: float | Schedule = step_size or STEP_SIZES[method, task]
    epoch = max(1, num_examples // BATCH_SIZE)
    num_warmup, kept_epochs = num_warmup_epochs * epoch, 10
    if method.startswith("sghmc_clr"):
        size, kept_epochs = (
            _cycles(size, num_warmup, cycle_epochs * epoch),
            cycle_epochs,
        )
    return Preset(
        METHODS[method] | {"step_size": size, "num_warmup": num_warmup},
        max(0, NUM_EPOCHS - num_warmup_epochs) // kept_epochs,
        kept_epochs * epoch,
    )


def halve(options: dict[str, Any]) -> dict[str, Any]:
    """The arguments of `build` for half the step of time, and twice as many of them.

    With momentum that step is sqrt(h), and its friction (1 - mu) / sqrt(h) is kept;
    without, it is h. Cycles take as much time as before: a chain that goes on has made
    twice its iterations.

    Args:
        options: Arguments of `build`, such as a preset's.
    """
    decay = options["momentum_decay"]
    schedule = as_schedule(options["step_size"])
    share = 0.25 if decay else 0.5
    return options | {
        "step_size": lambda iteration: share * schedule(iteration // 2),
        "momentum_decay": (1 + decay) / 2 if decay else 0.0,
    }


def _cycles(step_size: float, num_warmup: int, length: int) -> Schedule:
    """The largest step size in the burn-in, then cosines: as released, a step late."""

    def schedule(iteration: Any) -> Any:
        passed = jnp.maximum(iteration - num_warmup - 1, 0) % length / length
        # (1 + cos(pi r)) / 2 would round to 0 at the end of a long cycle.
        return step_size * jnp.cos(jnp.pi / 2 * passed) ** 2

    return schedule
