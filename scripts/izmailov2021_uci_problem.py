"""The posteriors of `izmailov2021_uci.py`: one network, and many splits of a data set.

All splits of a data set have equally many examples. They are stacked, and every chain
is told which one is its own, so that the chains of all splits run in one program.
"""

import os
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import sklearn.datasets

from symjax import densities, evaluation, models, posterior
from symjax.data import arrays
from symjax.data.sources import DEFAULT_FOLDER, FOLDER_VARIABLE, Arrays
from symjax.types import Algorithm, Approximation, Data


WIDTH = 50


class Problem(NamedTuple):
    """The posteriors of all splits of a data set.

    Attributes:
        name: Of the data set.
        raw: Each split as it was read.
        train: Normalised x, y and mask, leaves `(split, example, ...)`.
        test_x: Normalised, `(split, example, column)`.
        centre: What was subtracted from the targets, `(split,)`.
        unit: What they were then divided by, `(split,)`.
        apply: `(params, x) -> outputs (example, 2)`.
        init: `key -> params` of one network.
        log_posterior: Of the parameters, given the training examples of one split.
    """

    name: str
    raw: list[Arrays]
    train: Data
    test_x: np.ndarray
    centre: np.ndarray
    unit: np.ndarray
    apply: Any
    init: Any
    log_posterior: Any

    @property
    def num_splits(self) -> int:
        """How many there are."""
        return len(self.raw)


def build(name: str, kind: str, num_splits: int, prior_variance: float) -> Problem:
    """Read a data set, split it and build the network's posterior.

    Args:
        name: `boston`, `concrete`, `energy`, `yacht`, `naval`, or `diabetes` from
            scikit-learn.
        kind: Of split, `standard` or `reference`, see `split`.
        num_splits: The first so many of them.
        prior_variance: Of every weight and bias.
    """
    raw = split(name, kind, num_splits)
    x, x_test, y, centre, unit = [], [], [], [], []
    for one in raw:
        train, test, _, _ = arrays.normalise(one.x_train, one.x_test)
        target, _, mean, std = arrays.normalise(one.y_train, one.y_test)
        x.append(train)
        x_test.append(test)
        y.append(target)
        centre.append(mean.item())
        unit.append(std.item())
    model = models.build("mlp", 2, widths=(WIDTH,), activation="relu")
    x, y = np.stack(x), np.stack(y)
    log_posterior = posterior.build(
        model.apply,
        densities.prior("normal", variance=prior_variance),
        likelihood,
        # TF32 would not resolve a noise of a thousandth of the targets.
        force_precision="highest",
    )
    return Problem(
        name,
        raw,
        Data(x, y, np.ones(x.shape[:2], bool)),
        np.stack(x_test),
        np.array(centre),
        np.array(unit),
        model.apply,
        jax.jit(lambda key: model.init(key, jnp.zeros((1, x.shape[-1])))),
        log_posterior,
    )


def likelihood(outputs: Any, targets: Any) -> Any:
    """As the paper's code has it: without the floor of `densities.heteroscedastic`.

    Naval's noise is a thousandth of its targets, which is that floor.
    """
    mean, std = mean_and_std(outputs)
    return dist.Normal(mean, std).log_prob(targets).sum(axis=-1)


def mean_and_std(outputs: Any) -> tuple[Any, Any]:
    """Means and standard deviations of normalised targets, `(..., 1)` each."""
    mean, raw = jnp.split(outputs, 2, axis=-1)
    return mean, jax.nn.softplus(raw)


def predict(problem: Problem, draws: Any, x: Any) -> tuple[np.ndarray, np.ndarray]:
    """Means and standard deviations of every draw, `(chain, draw, example, 1)`."""
    outputs = evaluation.predict(problem.apply, draws, x)
    mean, std = mean_and_std(jnp.asarray(outputs))
    return np.asarray(mean), np.asarray(std)


def split(name: str, kind: str, num_splits: int) -> list[Arrays]:
    """Train and test examples of each split, as they are in the file.

    `standard` splits are those of Hernandez-Lobato and Gal that the file holds.
    `reference` splits are made as Izmailov et al. make theirs: 90 % of a permutation by
    JAX's key 0, 1, 2 and so on, with the generator as it was then
    (`jax_threefry_partitionable` off). They are theirs if our rows are in their order.

    Raises:
        ValueError: if the splits are not there.
    """
    if name == "diabetes":
        bunch: Any = sklearn.datasets.load_diabetes()
        x, y, masks = bunch.data, bunch.target[:, None], np.zeros((0, 0), bool)
    else:
        folder = Path(os.environ.get(FOLDER_VARIABLE, DEFAULT_FOLDER))
        path = folder / "uci" / f"{name}.npz"
        if not path.is_file():
            raise ValueError(
                f"{path} is not there; {FOLDER_VARIABLE} names the folder with uci/."
            )
        with np.load(path, allow_pickle=False) as file:
            x, y, masks = file["x"], file["y"], file["test_mask"]
    if kind == "reference":
        masks = np.stack([_permuted(len(x), seed) for seed in range(num_splits)])
    if len(masks) < num_splits:
        raise ValueError(f"{name} has {len(masks)} {kind} splits, not {num_splits}.")
    return [Arrays(x[~m], y[~m], x[m], y[m]) for m in masks[:num_splits]]


def _permuted(num_rows: int, seed: int) -> np.ndarray:
    """Which rows are test examples; their order plays no part."""
    with jax.threefry_partitionable(False):
        order = np.asarray(jax.random.permutation(jax.random.PRNGKey(seed), num_rows))
    mask = np.zeros(num_rows, bool)
    mask[order[int(0.9 * num_rows) :]] = True
    return mask


class State(NamedTuple):
    """A chain's own state, and the number of its split."""

    position: Any
    inner: Any
    split: Any


def on_splits(method: Any) -> Any:
    """The same sampler or approximation, for chains of which each has its own split.

    A chain starts at `{"network": params, "split": number}`; the data of the new method
    are a `Problem.train`, on a mesh whose data axis is one device.
    """

    def own(data: Data, split: Any) -> Data:
        return Data(*(jnp.asarray(leaf)[split] for leaf in data))

    def init(key: Any, params: Any, data: Data) -> State:
        number = params["split"]
        inner = method.init(key, params["network"], own(data, number))
        return State(inner.position, inner, number)

    def step(key: Any, state: State, data: Data) -> tuple[State, Any]:
        inner, info = method.step(key, state.inner, own(data, state.split))
        return State(inner.position, inner, state.split), info

    if isinstance(method, Algorithm):
        return Algorithm(init, step, method.num_warmup, method.schedule)
    return Approximation(init, step, lambda key, state: method.sample(key, state.inner))


def place(params: Any) -> Any:
    """Starts of chains, leaves `(split * chain, ...)`, with the numbers of the splits.

    Args:
        params: Leaves `(split, chain, ...)`.
    """
    num_splits, num_chains = jax.tree.leaves(params)[0].shape[:2]
    return {
        "network": jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), params),
        "split": np.repeat(np.arange(num_splits), num_chains),
    }


def by_split(tree: Any, num_splits: int) -> Any:
    """Leaves `(split * chain, ...)` as `(split, chain, ...)`."""
    return jax.tree.map(
        lambda leaf: leaf.reshape(num_splits, -1, *leaf.shape[1:]), tree
    )


def each_split(draws: Any) -> list[Any]:
    """Draws of every split, from leaves `(split, chain, draw, ...)`."""
    count = len(jax.tree.leaves(draws)[0])
    return [jax.tree.map(lambda leaf, i=i: leaf[i], draws) for i in range(count)]
