"""Every sampler as the scripts that check it run it: one line each.

The settings follow from what a sampler may be told of a posterior: its smallest and
largest standard deviation, how many parameters, and how many examples a minibatch has.
They aim at a small bias, not at speed.
"""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from symjax import isokinetic
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


class Shape(NamedTuple):
    """What is known of a posterior; `batch_size` is None where the gradient is exact.

    Standard deviations are of the parameters along the axes of the density.
    """

    smallest: float
    largest: float
    num_params: int
    batch_size: int | None = None

    @property
    def batch(self):
        """Examples, where a sampler wants a number."""
        return self.batch_size or 1

    @property
    def langevin_step(self):
        """A step of SGLD; bias and heating grow with it."""
        return (0.005 if self.batch_size else 0.03) * self.smallest**2

    @property
    def momentum(self):
        """Step size and friction of samplers with a momentum."""
        step = (0.01 if self.batch_size else 0.1) * self.smallest
        return {"step_size": step, "friction": 2 / self.largest}


class Sampler(NamedTuple):
    """One line of the table.

    Attributes:
        build: `(log_density, shape, num_warmup) -> Algorithm`.
        thinning: Iterations for each draw.
        gradients: `info -> gradients` of all iterations in it; one each by default.
        is_exact: Whether an accept step, or an exact importance weight, makes it so.
        slow_warmup: What multiplies the iterations of warm-up.
        num_rungs: Every so many chains one is of the density itself.
    """

    build: Callable
    thinning: int = 1
    gradients: Callable = lambda info: info[0].size
    is_exact: bool = True
    slow_warmup: int = 1
    num_rungs: int = 1


def _minibatch(sampler, options):
    """A line for a sampler that follows minibatches."""

    def build(density, shape, num_warmup):
        return sampler(
            density,
            batch_size=shape.batch,
            num_warmup=num_warmup,
            **options(shape),
        )

    return Sampler(build, thinning=100, is_exact=False, slow_warmup=20)


def _leapfrogs(info):
    return int(info.num_steps.sum())


SAMPLERS = {
    "HMC": Sampler(
        lambda density, s, warmup: hmc.build(
            density,
            step_size=0.3 * s.smallest,
            # A quarter turn, 1.6, would be half a turn of an axis of the Gaussian, and
            # HMC of fixed length never mixes there.
            trajectory_length=1.35 * s.largest,
            num_warmup=warmup,
        ),
        gradients=_leapfrogs,
    ),
    "jittered HMC": Sampler(
        lambda density, s, warmup: dynamic_hmc.build(
            density,
            step_size=0.3 * s.smallest,
            trajectory_length=1.6 * s.largest,
            num_warmup=warmup,
        ),
        gradients=_leapfrogs,
    ),
    "NUTS": Sampler(
        lambda density, s, warmup: nuts.build(
            density, step_size=0.3 * s.smallest, num_warmup=warmup
        ),
        gradients=_leapfrogs,
    ),
    "ChEES": Sampler(
        lambda density, s, warmup: chees.build(
            density, step_size=0.3 * s.smallest, num_warmup=warmup
        ),
        gradients=_leapfrogs,
    ),
    "MALA": Sampler(
        lambda density, s, warmup: mala.build(
            density, step_size=0.1 * s.smallest**2, num_warmup=warmup
        ),
        thinning=20,
        slow_warmup=4,
    ),
    "split HMC": Sampler(
        lambda density, s, warmup: split_hmc.build(
            density,
            step_size=0.3 * s.smallest,
            trajectory_length=1.35 * s.largest,
            num_blocks=4,
            num_warmup=warmup,
        ),
        # Of a block, 2 (num_blocks - 1) a step, and one more at a trajectory's end.
        gradients=lambda info: (6 * _leapfrogs(info) + info.num_steps.size) // 4,
    ),
    "MEADS": Sampler(
        lambda density, s, warmup: ghmc.build(density, num_warmup=warmup),
        thinning=20,
        slow_warmup=4,
    ),
    "tempered HMC": Sampler(
        lambda density, s, warmup: tempering.build(
            lambda part: hmc.build(
                part, step_size=0.3 * s.smallest, num_steps=10, num_warmup=warmup
            ),
            density,
            temperatures=(1.0, 1.7, 3.0),
        ),
        gradients=lambda info: 10 * info.step_size.size,
        num_rungs=3,
    ),
    "adjusted MCLMC": Sampler(
        lambda density, s, warmup: adjusted_mclmc.build(
            density,
            step_size=0.3 * s.smallest * s.num_params**0.5,
            trajectory_length=1.35 * s.largest * s.num_params**0.5,
            num_warmup=warmup,
        ),
        gradients=lambda info: isokinetic.GRADIENTS_PER_STEP * _leapfrogs(info),
    ),
    "MCLMC": Sampler(
        lambda density, s, warmup: mclmc.build(
            density,
            step_size=0.3 * s.smallest * s.num_params**0.5,
            decoherence_length=mclmc.rule_length(s.largest, s.num_params),
            num_warmup=warmup,
            target_energy_variance=1e-5,
        ),
        thinning=10,
        gradients=lambda info: isokinetic.GRADIENTS_PER_STEP * info.step_size.size,
        is_exact=False,
        slow_warmup=10,
    ),
    "SGLD": _minibatch(sgld.build, lambda s: {"step_size": s.langevin_step}),
    "SGHMC": _minibatch(sghmc.build, lambda s: s.momentum),
    "Izmailov et al.": _minibatch(
        izmailov2021.build,
        lambda s: {
            "step_size": s.momentum["step_size"] ** 2,
            "momentum_decay": 1 - s.momentum["step_size"] * s.momentum["friction"],
            "batches": "replacement",
        },
    ),
    "SGNHT": _minibatch(sgnht.build, lambda s: s.momentum),
    "BAOAB": _minibatch(baoab.build, lambda s: s.momentum),
    "SMS-UBU": _minibatch(sms_ubu.build, lambda s: s.momentum),
    "cyclical BAOAB": Sampler(
        lambda density, s, warmup: cyclical.build(
            partial(
                baoab.build,
                density,
                friction=s.momentum["friction"],
                batch_size=s.batch,
                num_warmup=warmup,
            ),
            step_size=2 * s.momentum["step_size"],
            cycle_length=2000,
            exploration=0.1,
        ),
        thinning=100,
        gradients=lambda info: int(info.step_size.size / 0.9),
        is_exact=False,
        slow_warmup=20,
    ),
}
