"""Every option of `symjax fit` reaches the method it belongs to."""

import dataclasses
import functools
import inspect
import typing

import jax
import optax
import pytest
from rich.console import Console

from symjax.approximations import dropout, ensemble, laplace, mfvi, snapshot, svgd, swag
from symjax.cli import fitting, methods, posteriors
from symjax.cli.fits import Ensemble
from symjax.cli.options import Fit, Sample
from symjax.cli.problem import Problem


MODULES = {
    "ensemble": ensemble,
    "snapshot": snapshot,
    "swag": swag,
    "dropout": dropout,
    "laplace": laplace,
    "mfvi": mfvi,
    "svgd": svgd,
}
ELSEWHERE = {
    ("snapshot", "num_cycles"),  # The number of draws.
    ("swag", "num_steps"),  # The number of steps, as of all; no schedule ends with it.
    ("laplace", "predictive"),  # How draws predict.
}
OTHERS = {
    "learning_rate": 0.003,
    "collecting_rate": 0.002,
    "layers": ("params/Dense_0/kernel",),
    "leaves": "*/Dense_1/kernel",
    "last_layer": True,
}
OPTIONS = [
    (method, field.name)
    for method in MODULES
    for field in dataclasses.fields(getattr(Fit(), method))
    if (method, field.name) not in ELSEWHERE
]


@functools.cache
def wine():
    return posteriors.build(Problem(data="wine", widths=(3,)))


def updates(optimiser):
    """What an optimiser does with ten gradients of one."""
    state, made = optimiser.init(0.0), []
    for _ in range(10):
        update, state = optimiser.update(1.0, state)
        made.append(float(update))
    return made


def handed(method, monkeypatch, **options):
    """What the module of a method is built with."""
    module, calls = MODULES[method], []
    build = inspect.unwrap(module.build)

    def record(log_posterior, **words):
        calls.append(words)
        return build(log_posterior, **words)

    monkeypatch.setattr(module, "build", record)
    typed = dataclasses.replace(getattr(Fit(), method), **options)
    fitting.build(Fit(method=method, **{method: typed}), wine())
    monkeypatch.undo()
    (words,) = calls
    rate = words.pop("learning_rate", None)
    for name, value in words.items():
        if isinstance(value, optax.GradientTransformation):
            words[name] = updates(value)
        elif callable(value):
            words[name] = updates(value(rate))
    return words if rate is None else words | {"learning_rate": rate}


def another(method, name):
    """A value that is not the default."""
    options = getattr(Fit(), method)
    kind = typing.get_type_hints(type(options))[name]
    if typing.get_origin(kind) is typing.Literal:
        return next(v for v in typing.get_args(kind) if v != getattr(options, name))
    if name in OTHERS:
        return OTHERS[name]
    value = getattr(options, name)
    return value / 2 if isinstance(value, float) else value // 2 or 2


@pytest.mark.parametrize(("method", "name"), OPTIONS)
def test_an_option_reaches_its_method(method, name, monkeypatch):
    usual = handed(method, monkeypatch)
    changed = handed(method, monkeypatch, **{name: another(method, name)})
    differing = {key for key in usual if usual[key] != changed[key]}
    assert differing
    # Under its own name, where the method has one of it.
    assert name not in usual or name in differing


def test_momentum_is_nine_tenths(monkeypatch):
    options = {"optimiser": "momentum", "num_steps": 10**9, "learning_rate": 1.0}
    made = handed("ensemble", monkeypatch, **options)["optimiser"]
    assert made[:3] == pytest.approx([-1, -1.9, -2.71])


@pytest.mark.parametrize(
    ("command", "size", "says"),
    [
        (Fit(), None, True),
        (Fit(ensemble=Ensemble(batch_size=127)), 127, False),  # Refused later.
        (Fit(method="dropout"), 16, False),
        (Sample(sampler="sms_ubu"), 100, True),
        (Sample(sampler="hmc"), None, False),
    ],
)
def test_a_default_batch_fits_the_data(command, size, says):
    train = jax.tree.map(lambda leaf: leaf[:100], wine().dataset.train)
    few = wine()._replace(dataset=wine().dataset._replace(train=train))
    console = Console(width=200)
    with console.capture() as said:
        fitting_one = methods.with_fitting_batch(command, few, console)
    assert methods.batch_size(fitting_one) == size
    assert ("there are 100 training examples" in said.get()) == says
    assert methods.with_fitting_batch(command, wine(), console) == command
