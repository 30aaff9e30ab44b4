"""The posterior of Xiao, Liu and Bamler (2023): data, network, prior, and scales."""

from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import jax

from symjax import data as datasets, symmetry
from symjax.cli import posteriors, subsets
from symjax.cli.posteriors import Posterior
from symjax.cli.problem import Problem as Options
from symjax.types import Data


LEARNING_RATE, BATCH_SIZE = 1e-3, 100


@dataclass(frozen=True)
class Scale:
    """How large the experiment is."""

    num_train: int
    num_test: int
    width: int
    num_epochs: int
    num_chains: int
    num_draws: int
    num_warmup: int
    step_size: float
    num_samples: int
    num_members: int = 5

    @property
    def num_steps(self):
        """Of an optimisation."""
        return self.num_epochs * max(1, self.num_train // BATCH_SIZE)


SCALES = {
    "tiny": Scale(300, 200, 8, 300, 2, 12, 5, 3e-2, 20, 3),
    "small": Scale(1000, 1000, 64, 200, 2, 100, 50, 5e-3, 50),
    "paper": Scale(60_000, 10_000, 512, 50, 4, 1000, 50, 1e-3, 200),
}
DATA = {"tiny": "digits", "small": "mnist", "paper": "mnist"}


class Problem(NamedTuple):
    """The posterior, its symmetries and its data.

    `options` are those that `symjax` builds the same posterior from, `built`.
    """

    options: Options
    built: Posterior
    apply: Any
    init: Any
    log_posterior: Any
    spec: Any
    train: Data
    test: Data
    scale: Scale
    config: dict[str, Any]
    seed: int
    key: Any


def build(name, scale, seed):
    """The problem of a data set, at a scale by its name.

    Raises:
        SystemExit: if the data are no images with classes, or the seed is negative.
    """
    if seed < 0:
        raise SystemExit(f"`--seed` must be at least 0, got {seed}.")
    scale = SCALES[scale]
    try:
        dataset = datasets.load(name, pixels="unit")
    except ValueError as error:
        raise SystemExit(f"`--data`: {error}") from error
    if dataset.task != "classification":
        raise SystemExit(f"`--data` must be images with classes, got {name}.")
    num_train = min(scale.num_train, len(dataset.train.y))
    num_test = min(scale.num_test, len(dataset.test.y))
    options = posteriors.resolved(
        Options(
            data=name,
            pixels="unit",
            num_train=num_train,
            num_test=num_test,
            model="mlp",
            widths=(scale.width,),
            activation="relu",
        )
    )
    dataset = subsets.first(dataset, num_train, num_test)
    built = posteriors.build(options, scale.num_chains, dataset)
    train, test = built.dataset.train, built.dataset.test
    return Problem(
        options,
        built,
        built.apply,
        built.init,
        built.log_posterior,
        symmetry.infer(built.apply, built.shapes, train.x[:2]),
        train,
        test,
        scale,
        {"scale": asdict(scale), "data": built.dataset.fingerprint, "seed": seed},
        seed,
        jax.random.key(seed),
    )
