"""From what was typed of `symjax fit` to an approximation."""

import statistics
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import jax
import optax

from symjax import checks, trees
from symjax.approximations import dropout, ensemble, laplace, mfvi, snapshot, svgd, swag
from symjax.cli.fits import Dropout, Ensemble, Laplace, Mfvi, Snapshot, Svgd, Swag
from symjax.cli.options import Fit
from symjax.cli.posteriors import Posterior, named, typed
from symjax.types import Algorithm, Approximation


def options_of(command: Fit) -> Any:
    """The options of the method that is fitted."""
    return getattr(command, command.method)


def build(command: Fit, built: Posterior) -> Algorithm | Approximation:
    """The method of a command; an `Algorithm` if its draws are of an iteration each.

    Raises:
        ValueError: if options of a method are given that is not fitted, or a batch is
            larger than the data.
    """
    for name in _METHODS:
        options = getattr(command, name)
        if name != command.method and options != type(options)():
            raise ValueError(
                f"`--{name}.` options were given, but `--method` is {command.method}. "
                f"Add --method {name}, or leave them out."
            )
    num_draws(command)
    size = options_of(command).batch_size
    num_examples = int(built.dataset.train.mask.sum())
    if size is not None and size > num_examples:
        raise ValueError(
            f"`--{command.method}.batch-size` must be at most the {num_examples} "
            f"training examples of {command.problem.data}, got {size}. Give None for "
            "all of them."
        )
    with typed(command.method, options_of(command)):
        return _METHODS[command.method](options_of(command), built)


def num_draws(command: Fit) -> int:
    """Draws from each member: what was typed, or 1 of a method with one answer.

    Raises:
        ValueError: if several were asked of such a method.
    """
    if command.method == "snapshot":
        if command.num_draws is not None:
            raise ValueError(
                "`--num-draws` must be left out for --method snapshot, whose draws are "
                f"its cycles, got {command.num_draws}. Give --snapshot.num-cycles."
            )
        return command.snapshot.num_cycles
    if command.method in _POINTS:
        if command.num_draws is not None and command.num_draws != 1:
            raise ValueError(
                f"`--num-draws` must be left out for --method {command.method}, of "
                f"which a member is one network, got {command.num_draws}. More "
                "networks: --num-members."
            )
        return 1
    return 30 if command.num_draws is None else command.num_draws


def gradients_at_end(command: Fit, built: Posterior) -> int:
    """What a member costs after its last step, in gradients of the whole data set."""
    if command.method != "laplace":
        return 0
    x = built.dataset.train.x
    example = jax.ShapeDtypeStruct((1, *x.shape[1:]), x.dtype)
    outputs = jax.eval_shape(built.apply, built.shapes, example)
    options = command.laplace
    return laplace.count_gradients(options.structure, options.rank, outputs.shape[-1])


def bytes_at_end(approximation: Approximation, built: Posterior) -> tuple[int, int]:
    """What the end of a fit keeps of a member, and what it takes besides meanwhile."""
    if approximation.finish is None:
        return 0, 0
    start = jax.random.key(0), built.shapes, built.dataset.train
    state = jax.eval_shape(approximation.init, *start)
    fitted = jax.eval_shape(approximation.finish, start[0], state, start[2])
    return trees.num_bytes(fitted), laplace.ROW_BYTES


def describe(fitted: Mapping[str, Sequence[float]]) -> str:
    """What is told of the members: the mean of each number, and its range."""
    said = []
    for name, values in fitted.items():
        one = f"{name.replace('_', ' ')} {statistics.fmean(values):.5g}"
        if len(values) > 1:
            one += f" ({min(values):.5g} to {max(values):.5g})"
        said.append(one)
    return ", ".join(said)


def build_ensemble(options: Ensemble, built: Posterior) -> Approximation:
    """A deep ensemble, its learning rate falling along a cosine."""
    return ensemble.build(
        built.log_posterior,
        optimiser=_decaying(options),
        batch_size=options.batch_size,
    )


def _snapshot(options: Snapshot, built: Posterior) -> Algorithm:
    checks.at_least(1, num_cycles=options.num_cycles)
    return snapshot.build(
        built.log_posterior,
        optimiser=_OPTIMISERS[options.optimiser],
        learning_rate=_learning_rate(options),
        cycle_length=options.cycle_length,
        batch_size=options.batch_size,
    )


def _swag(options: Swag, built: Posterior) -> Approximation:
    """SWAG, its learning rate falling to that of the collecting phase.

    Raises:
        ValueError: if the steps do not suffice to collect what the covariance takes.
    """
    checks.at_least(1, num_burn_in=options.num_burn_in)
    checks.at_least(1, collect_every=options.collect_every)
    count = (options.num_steps - options.num_burn_in) // options.collect_every
    needed = max(2, options.rank)
    if count < needed:
        raise ValueError(
            f"`--swag.num-steps` must be at least {options.num_burn_in} of burn-in and "
            f"{needed} x {options.collect_every} to collect {needed} networks, got "
            f"{options.num_steps}. Take more steps, or a smaller --swag.collect-every."
        )
    first = _learning_rate(options)
    last = first / 2 if options.collecting_rate is None else options.collecting_rate
    checks.positive(collecting_rate=last)
    schedule = optax.cosine_decay_schedule(first, options.num_burn_in, last / first)
    return swag.build(
        built.log_posterior,
        optimiser=_OPTIMISERS[options.optimiser](schedule),
        num_burn_in=options.num_burn_in,
        collect_every=options.collect_every,
        rank=options.rank,
        scale=options.scale,
        batch_size=options.batch_size,
    )


def _dropout(options: Dropout, built: Posterior) -> Approximation:
    dropout.find_layers(built.shapes, options.layers)
    return dropout.build(
        built.log_posterior,
        optimiser=_decaying(options),
        rate=options.rate,
        layers=options.layers,
        num_masks=options.num_masks,
        batch_size=options.batch_size,
    )


def _laplace(options: Laplace, built: Posterior) -> Approximation:
    """A Laplace approximation of all layers, the last, or those of a pattern.

    Raises:
        ValueError: if both the last layer and a pattern are asked for, or the network
            does not fit them.
    """
    leaves = options.leaves
    if options.last_layer and leaves is not None:
        raise ValueError(
            "`--laplace.leaves` must be left out with --laplace.last-layer, got "
            f"{leaves!r}."
        )
    if options.last_layer:
        params = built.init(jax.random.key(0))
        with named("--laplace.last-layer"):
            leaves = laplace.find_last_layer(built.apply, params, built.dataset.train.x)
    made = laplace.build(
        built.log_posterior,
        optimiser=_decaying(options),
        structure=options.structure,
        leaves=leaves or "*",
        rank=options.rank,
        prior_precision=options.prior_precision,
        batch_size=options.batch_size,
    )
    # What does not fit the network is said before a plan is shown.
    jax.eval_shape(made.init, jax.random.key(0), built.shapes, built.dataset.train)
    return made


def _mfvi(options: Mfvi, built: Posterior) -> Approximation:
    return mfvi.build(
        built.log_posterior,
        optimiser=_decaying(options),
        batch_size=options.batch_size,
        num_samples=options.num_samples,
        noise=options.noise,
        first_std=options.first_std,
    )


def _svgd(options: Svgd, built: Posterior) -> Approximation:
    return svgd.build(
        built.log_posterior,
        optimiser=_decaying(options),
        space=options.space,
        batch_size=options.batch_size,
    )


def _decaying(options: Any) -> optax.GradientTransformation:
    """The optimiser, its learning rate falling along a cosine to zero at the end."""
    checks.at_least(1, num_steps=options.num_steps)
    schedule = optax.cosine_decay_schedule(_learning_rate(options), options.num_steps)
    return _OPTIMISERS[_optimiser(options)](schedule)


def _learning_rate(options: Any) -> float:
    """What was typed, or the optimiser's own."""
    checks.positive(learning_rate=options.learning_rate)
    if options.learning_rate is None:
        return _LEARNING_RATES[_optimiser(options)]
    return options.learning_rate


def _optimiser(options: Any) -> str:
    """Its name; Adam where there is no choice."""
    return getattr(options, "optimiser", "adam")


_OPTIMISERS: Mapping[str, Callable[..., optax.GradientTransformation]] = {
    "adam": optax.adam,
    "momentum": partial(optax.sgd, momentum=0.9),
    "sgd": optax.sgd,
}

_LEARNING_RATES = {"adam": 1e-2, "momentum": 0.1, "sgd": 0.5}

_METHODS: Mapping[str, Callable[[Any, Posterior], Algorithm | Approximation]] = {
    "ensemble": build_ensemble,
    "snapshot": _snapshot,
    "swag": _swag,
    "dropout": _dropout,
    "laplace": _laplace,
    "mfvi": _mfvi,
    "svgd": _svgd,
}

_POINTS = frozenset({"ensemble", "svgd"})
"""The methods of which a member is one network, not a distribution."""
