"""The posterior of Xiao, Liu and Bamler (2023): data, network, prior, and scales."""

from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import jax
import numpy as np

from symjax import data as datasets, densities, models, posterior, symmetry
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


SCALES = {
    "tiny": Scale(300, 200, 8, 300, 2, 12, 5, 3e-2, 20, 3),
    "small": Scale(1000, 1000, 64, 200, 2, 100, 50, 5e-3, 50),
    "paper": Scale(60_000, 10_000, 512, 50, 4, 1000, 50, 1e-3, 200),
}
DATA = {"tiny": "digits", "small": "mnist", "paper": "mnist"}


class Problem(NamedTuple):
    """The posterior, its symmetries and its data."""

    apply: Any
    init: Any
    log_posterior: Any
    spec: Any
    train: Data
    test: Data
    scale: Scale
    config: dict[str, Any]
    key: Any


def build(name, scale, seed):
    """The problem of a data set, at a scale by its name.

    Raises:
        SystemExit: if the data are no images with classes, or the seed is negative.
    """
    if seed < 0:
        raise SystemExit(f"`--seed` must be at least 0, got {seed}.")
    scale, dataset = SCALES[scale], datasets.load(name)
    if dataset.input_range is None or dataset.task != "classification":
        raise SystemExit(f"`--data` must be images with classes, got {name}.")
    rng = np.random.default_rng(seed)
    rows = np.sort(rng.permutation(len(dataset.train.y))[: scale.num_train])
    low, high = dataset.train.x.min(), dataset.train.x.max()

    def part(examples, rows):
        # The smallest number is that of a blank pixel: blank becomes exactly 0.
        x = ((examples.x[rows] - low) / (high - low)).reshape(len(rows), -1)
        return Data(x, examples.y[rows], examples.mask[rows])

    train = part(dataset.train, rows)
    test = part(dataset.test, np.arange(len(dataset.test.y))[: scale.num_test])
    model = models.build(
        "mlp", dataset.num_outputs, widths=(scale.width,), activation="relu"
    )
    log_posterior = posterior.build(
        model.apply, densities.prior("normal"), densities.categorical
    )
    params = model.init(jax.random.key(0), train.x[:1])
    return Problem(
        model.apply,
        lambda key: model.init(key, train.x[:1]),
        log_posterior,
        symmetry.infer(model.apply, params, train.x[:2]),
        train,
        test,
        scale,
        {"scale": asdict(scale), "data": dataset.fingerprint, "seed": seed},
        jax.random.key(seed),
    )
