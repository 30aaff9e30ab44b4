"""From what was typed of `symjax fit` to an approximation."""

from collections.abc import Callable, Mapping
from typing import Any

import optax

from symjax import checks
from symjax.approximations import ensemble
from symjax.cli.fits import Ensemble
from symjax.cli.options import Fit
from symjax.cli.posteriors import Posterior
from symjax.types import Approximation


def options_of(command: Fit) -> Any:
    """The options of the method that is fitted."""
    return getattr(command, command.method)


def build(command: Fit, built: Posterior) -> Approximation:
    """The method of a command.

    Raises:
        ValueError: if options of a method are given that is not fitted.
    """
    for name in _METHODS:
        options = getattr(command, name)
        if name != command.method and options != type(options)():
            raise ValueError(
                f"`--{name}.` options were given, but `--method` is {command.method}. "
                f"Add --method {name}, or leave them out."
            )
    return _METHODS[command.method](options_of(command), built)


def num_draws(command: Fit) -> int:
    """Draws from each member: what was typed, or 1 of a method with one answer.

    Raises:
        ValueError: if several were asked of such a method.
    """
    if command.method in _POINTS:
        if command.num_draws is not None and command.num_draws != 1:
            raise ValueError(
                f"`--num-draws` must be left out for --method {command.method}, of "
                f"which a member is one network, got {command.num_draws}. More "
                "networks: --num-members."
            )
        return 1
    return 30 if command.num_draws is None else command.num_draws


def build_ensemble(options: Ensemble, built: Posterior) -> Approximation:
    """A deep ensemble by Adam, its learning rate falling along a cosine."""
    return ensemble.build(
        built.log_posterior,
        optimiser=adam(options),
        batch_size=options.batch_size,
    )


def adam(options: Any) -> optax.GradientTransformation:
    """Adam, its learning rate falling along a cosine to zero at the last step."""
    checks.at_least(1, num_steps=options.num_steps)
    checks.positive(learning_rate=options.learning_rate)
    schedule = optax.cosine_decay_schedule(options.learning_rate, options.num_steps)
    return optax.adam(schedule)


_METHODS: Mapping[str, Callable[[Any, Posterior], Approximation]] = {
    "ensemble": build_ensemble,
}

_POINTS = frozenset({"ensemble"})
"""The methods of which a member is one network, not a distribution."""
