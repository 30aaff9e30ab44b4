"""What a run would take on other devices, worked out from the time of one gradient."""

from dataclasses import fields

import jax
from jax.sharding import Mesh
from rich.table import Table

from symjax import checks
from symjax.cli import methods
from symjax.cli.options import Estimate, Sample
from symjax.launching import devices
from symjax.launching.devices import Chip


def check(command: Sample) -> None:
    """Require an estimate that can be made.

    Raises:
        ValueError: if it is asked of what runs, or of minibatches.
    """
    estimate = command.estimate
    for number in estimate.devices:
        checks.at_least(1, devices=number)
    checks.positive(gradient_ms=estimate.gradient_ms)
    if estimate == Estimate():
        return
    if not command.dry_run:
        given = [
            f"`--estimate.{field.name.replace('_', '-')}`"
            for field in fields(Estimate)
            if getattr(estimate, field.name) != field.default
        ]
        raise ValueError(
            f"{' and '.join(given)}: only --dry-run says what other devices would "
            "take. Add it, or leave out `--estimate`."
        )
    size = methods.batch_size(command)
    if size is not None:
        raise ValueError(
            "`--estimate` is for gradients of all examples, but "
            f"--sampler {command.sampler} takes {size} at a time. Leave it out."
        )


def check_examples(estimate: Estimate, num_chains: int, num_examples: int) -> None:
    """Require an example of a chain for every device.

    Raises:
        ValueError: if there are more devices.
    """
    most = num_chains * num_examples
    for number in estimate.devices:
        if number > most:
            raise ValueError(
                f"`--estimate.devices` must be at most {most:,}, so that each has an "
                f"example of one of {num_chains} chains, got {number:,}."
            )


def chip(estimate: Estimate) -> Chip:
    """The kind of device that is meant."""
    return next(one for one in devices.CHIPS if one.name == estimate.kind)


def given_seconds(
    estimate: Estimate, mesh: Mesh, num_params: int, num_chains: int
) -> float:
    """A gradient of all chains on the mesh, from the given one of one chain."""
    assert estimate.gradient_ms is not None
    gradient = estimate.gradient_ms / 1e3
    return sum(
        devices.gradient_seconds(
            gradient, num_params, num_chains, mesh.size, chip(estimate)
        )
    )


def table(
    estimate: Estimate,
    measured: float,
    num_params: int,
    num_chains: int,
    num_gradients: int,
) -> Table:
    """Hours on each number of devices, and where more of them stop helping.

    Args:
        estimate: What was asked.
        measured: Seconds of one chain's gradient on one device, if none was given.
        num_params: Of a chain.
        num_chains: Of the run.
        num_gradients: Of each chain, from the first to the last.
    """
    kind, sizes = chip(estimate), (num_params, num_chains)
    given = estimate.gradient_ms
    gradient = measured if given is None else given / 1e3
    binding = devices.binding_number(gradient, *sizes, kind)
    here = f"as measured on this {jax.devices()[0].device_kind}"
    title = (
        f"On {kind.name} devices, on paper ({milliseconds(gradient)} ms a chain's "
        f"gradient on one, {here if given is None else 'as given'})"
    )
    caption = (
        f"From {binding:,} devices on adding up takes longer than the gradients: more "
        "of them hardly help. A device's part of a gradient is taken to be as fast as "
        "the whole, which small parts are not."
    )
    shown = Table(title=title, caption=caption, box=None)
    columns = ("devices", "hours", "ms a gradient", "ms of adding up", "its share")
    for name in (*columns, "of the ideal"):
        shown.add_column(name, justify="right")
    for number in estimate.devices:
        own, adding = devices.gradient_seconds(gradient, *sizes, number, kind)
        hours = (own + adding) * num_gradients / 3600
        both = milliseconds(own), milliseconds(adding)
        share = adding / (own + adding)
        shares = f"{share:.0%}", f"{1 - share:.0%}"
        shown.add_row(f"{number:,}", _few_or_many(hours), *both, *shares)
    return shown


def _few_or_many(hours: float) -> str:
    """With one decimal, below one with two digits."""
    return f"{hours:,.1f}" if hours >= 1 else f"{hours:.2g}"


def milliseconds(seconds: float) -> str:
    """Three digits, or all whole ones."""
    value = 1e3 * seconds
    return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"
