"""Every sampler and approximation, as the contract tests run them.

A new one is one line here. All of them meet the same small regression network on the
same data, whose number of examples no device count divides.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import optax

from symjax import densities, posterior
from symjax.approximations import (
    dropout,
    ensemble,
    laplace,
    mfvi,
    snapshot,
    svgd,
    swag,
)
from symjax.samplers import (
    adjusted_mclmc,
    baoab,
    chees,
    cyclical,
    dynamic_hmc,
    ghmc,
    hmc,
    izmailov2021,
    mala,
    mclmc,
    nuts,
    sghmc,
    sgld,
    sgnht,
    sms_ubu,
    split_hmc,
    tempering,
)
from symjax.types import Data


class Case(NamedTuple):
    """An algorithm; how many loops a step has, and gradients in the innermost one.

    `numbers` are summed over the devices by themselves: a change of energy, a value.
    `meets` where its chains look at one another. `rare` gradients stand in a
    branch of their own, which mostly does not run.
    """

    name: str
    build: Callable[[Any], Any]
    gradients: int = 1
    loops: int = 0
    numbers: int = 1
    meets: bool = False
    rare: int = 0


SAMPLERS = [
    Case(
        "hmc",
        lambda lp: hmc.build(lp, step_size=0.3, trajectory_length=0.3, num_warmup=9),
        loops=1,
    ),
    Case(
        "dynamic_hmc",
        lambda lp: dynamic_hmc.build(
            lp, step_size=0.2, trajectory_length=0.3, num_warmup=9
        ),
        loops=1,
    ),
    Case(
        "nuts",
        lambda lp: nuts.build(
            lp, step_size=0.2, num_warmup=9, max_num_doublings=4, target_acceptance=0.9
        ),
        loops=2,
    ),
    Case(
        "mala",
        lambda lp: mala.build(
            lp, step_size=0.02, inverse_mass_matrix="diagonal", num_warmup=80
        ),
        loops=1,
    ),
    Case(
        "chees",
        lambda lp: chees.build(lp, step_size=0.2, num_warmup=9),
        loops=1,
        meets=True,
    ),
    Case(
        "ghmc",
        lambda lp: ghmc.build(lp, num_warmup=9),
        meets=True,
    ),
    Case(
        "tempering",
        lambda lp: tempering.build(
            lambda density: hmc.build(density, step_size=0.1, num_steps=2),
            lp,
            temperatures=(1.0, 2.0),
        ),
        loops=1,
        meets=True,
    ),
    Case(
        "mclmc",
        lambda lp: mclmc.build(lp, step_size=0.3, decoherence_length=2.0, num_warmup=9),
        gradients=2,
    ),
    Case(
        "adjusted_mclmc",
        lambda lp: adjusted_mclmc.build(
            lp, step_size=0.3, trajectory_length=0.9, num_warmup=9
        ),
        gradients=2,
        loops=1,
    ),
    Case(
        "split_hmc",
        lambda lp: split_hmc.build(
            lp, step_size=0.1, trajectory_length=0.3, num_blocks=4, num_warmup=9
        ),
        loops=1,
        numbers=2,
    ),
    Case(
        "sghmc",
        lambda lp: sghmc.build(lp, step_size=0.01, friction=5.0, batch_size=6),
    ),
    Case(
        "sgld",
        lambda lp: sgld.build(
            lp,
            step_size=0.01,
            batch_size=6,
            batches="epoch",
            preconditioner="rmsprop",
            num_warmup=3,
        ),
    ),
    Case(
        "sgnht",
        lambda lp: sgnht.build(
            lp, step_size=0.01, friction=5.0, batch_size=6, anchor="start"
        ),
    ),
    Case(
        "baoab",
        lambda lp: baoab.build(
            lp, step_size=0.01, friction=5.0, batch_size=6, batches="sweep"
        ),
    ),
    Case(
        "sghmc with svrg",
        lambda lp: sghmc.build(
            lp, step_size=0.01, friction=5.0, batch_size=6, anchor=4
        ),
        rare=1,
    ),
    Case(
        "sms_ubu",
        lambda lp: sms_ubu.build(lp, step_size=0.01, friction=5.0, batch_size=6),
    ),
    Case(
        "izmailov2021",
        lambda lp: izmailov2021.build(
            lp,
            step_size=1e-3,
            momentum_decay=0.9,
            batch_size=6,
            preconditioner="rmsprop",
        ),
    ),
    Case(
        "cyclical",
        lambda lp: cyclical.build(
            partial(sghmc.build, lp, friction=5.0, batch_size=6),
            step_size=0.01,
            cycle_length=7,
            exploration=0.4,
        ),
        loops=1,
    ),
    # An approximation whose networks are kept like draws.
]

TRAJECTORIES = [
    Case(
        "snapshot",
        lambda lp: snapshot.build(
            lp, optimiser=optax.adam, learning_rate=0.01, cycle_length=4, batch_size=6
        ),
        loops=1,
    ),
]

APPROXIMATIONS = [
    Case(
        "ensemble",
        lambda lp: ensemble.build(lp, optimiser=optax.adam(1e-2), batch_size=6),
    ),
    Case(
        "laplace",
        lambda lp: laplace.build(lp, optimiser=optax.adam(1e-2), batch_size=6),
    ),
    Case(
        "swag",
        lambda lp: swag.build(
            lp,
            optimiser=optax.sgd(1e-2, momentum=0.9),
            num_burn_in=3,
            collect_every=2,
            rank=3,
            batch_size=6,
        ),
    ),
    Case(
        "dropout",
        lambda lp: dropout.build(
            lp, optimiser=optax.adam(1e-2), rate=0.4, num_masks=2, batch_size=6
        ),
    ),
    Case("mfvi", lambda lp: mfvi.build(lp, optimiser=optax.adam(1e-2), batch_size=6)),
    Case(
        "svgd",
        lambda lp: svgd.build(lp, optimiser=optax.adam(1e-2), batch_size=6),
        meets=True,
    ),
    Case(
        "svgd of functions",
        lambda lp: svgd.build(
            lp, optimiser=optax.adam(1e-2), space="functions", batch_size=6
        ),
        numbers=2,
        meets=True,
    ),
]


def apply(params, x):
    """A network as a pytree of a dict, a tuple and a scalar."""
    weight, bias = params["hidden"]
    return jnp.tanh(x @ weight + bias) @ params["out"] + params["shift"]


def start(key, num_chains):
    keys = jax.random.split(key, 4)
    normal = jax.random.normal
    return {
        "hidden": (
            normal(keys[0], (num_chains, 3, 4)),
            normal(keys[1], (num_chains, 4)),
        ),
        "out": normal(keys[2], (num_chains, 4, 1)),
        "shift": normal(keys[3], (num_chains,)),
    }


def data(num_examples=21):
    generator = np.random.default_rng(0)
    x = generator.normal(size=(num_examples, 3)).astype(np.float32)
    y = np.sin(x.sum(axis=1, keepdims=True)).astype(np.float32)
    return Data(x, y, np.ones(num_examples, bool))


def log_posterior(**options):
    return posterior.build(
        apply,
        densities.Prior(dist.Normal(0.0, 1.0)),
        densities.gaussian(0.5),
        **options,
    )
