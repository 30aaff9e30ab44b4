"""The posteriors of `izmailov2021_uci.py`: one network, and many splits of a data set.

All splits of a data set have equally many examples. They are stacked, and every chain
is told which one is its own, so that the chains of all splits run in one program.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist

from symjax import data, densities, evaluation, models, posterior
from symjax.data import Dataset
from symjax.types import Algorithm, Approximation, Data


WIDTH = 50


class Problem(NamedTuple):
    """The posteriors of all splits of a data set.

    Attributes:
        name: Of the data set.
        words: Options of `symjax sample` that name the first split.
        datasets: Each split.
        train: Of all splits, leaves `(split, example, ...)`.
        apply: `(params, x) -> outputs (example, 2)`.
        init: `key -> params` of one network.
        log_posterior: Of the parameters, given the training examples of one split.
        information: Fisher information that a target has of each output,
            `(example, output)`, given the outputs.
        prior_variance: Of every weight and bias.
    """

    name: str
    words: str
    datasets: list[Dataset]
    train: Data
    apply: Any
    init: Any
    log_posterior: Any
    information: Any
    prior_variance: float

    @property
    def num_splits(self) -> int:
        """How many there are."""
        return len(self.datasets)


def build(name: str, kind: str, num_splits: int, prior_variance: float) -> Problem:
    """Read a data set, split it and build the network's posterior.

    Args:
        name: `boston`, `concrete`, `energy`, `yacht` or `naval`, or `diabetes` from
            scikit-learn, with random splits.
        kind: Of split, `standard` or `reference`: permutations by key 0, 1, 2 and so
            on, which are the paper's if our rows are in the order of theirs.
        num_splits: The first so many of them.
        prior_variance: Of every weight and bias.
    """
    words = "--data diabetes"
    if name == "diabetes":
        datasets = [data.load(name, seed=k) for k in range(num_splits)]
    else:
        prefix = "izmailov" if kind == "reference" else ""
        splits = [f"{prefix}{k}" for k in range(num_splits)]
        datasets = [data.load(f"uci:{name}", split=split) for split in splits]
        words = f"--data uci:{name} --split {splits[0]}"
    train = jax.tree.map(lambda *leaves: np.stack(leaves), *(d.train for d in datasets))
    model = models.build("mlp", 2, widths=(WIDTH,), activation="relu")
    log_posterior = posterior.build(
        model.apply,
        densities.prior("normal", variance=prior_variance),
        likelihood,
        # TF32 would not resolve a noise of a thousandth of the targets.
        force_precision="float32",
    )
    init = jax.jit(lambda key: model.init(key, jnp.zeros((1, train.x.shape[-1]))))
    return Problem(
        name,
        words,
        datasets,
        train,
        model.apply,
        init,
        log_posterior,
        information,
        prior_variance,
    )


def likelihood(outputs: Any, targets: Any) -> Any:
    """As the paper's code has it: without the floor of `densities.heteroscedastic`.

    Naval's noise is a thousandth of its targets, which is that floor.
    """
    mean, std = mean_and_std(outputs)
    return dist.Normal(mean, std).log_prob(targets).sum(axis=-1)


def information(outputs: Any) -> Any:
    """Fisher information that a target has of each output, `(example, output)`."""
    raw = outputs[:, 1]
    slope = jax.nn.sigmoid(raw) / jax.nn.softplus(raw)
    return jnp.stack([1 / jax.nn.softplus(raw) ** 2, 2 * slope**2], axis=1)


def mean_and_std(outputs: Any) -> tuple[Any, Any]:
    """Means and standard deviations of normalised targets, `(..., 1)` each."""
    mean, raw = jnp.split(outputs, 2, axis=-1)
    return mean, jax.nn.softplus(raw)


def predict(problem: Problem, draws: Any, x: Any) -> tuple[np.ndarray, np.ndarray]:
    """Means and standard deviations of every draw, `(chain, draw, example, 1)`."""
    outputs = evaluation.predict(problem.apply, draws, x)
    mean, std = mean_and_std(jnp.asarray(outputs))
    return np.asarray(mean), np.asarray(std)


class State(NamedTuple):
    """A chain's own state, and the number of its split."""

    position: Any
    inner: Any
    split: Any


def own(train: Data, split: Any) -> Data:
    """The training examples of one split."""
    return Data(*(jnp.asarray(leaf)[split] for leaf in train))


def on_splits(method: Any) -> Any:
    """The same sampler or approximation, for chains of which each has its own split.

    A chain starts at `{"network": params, "split": number}`; the data of the new method
    are a `Problem.train`, on a mesh whose data axis is one device.
    """

    def init(key: Any, params: Any, train: Data) -> State:
        number = params["split"]
        inner = method.init(key, params["network"], own(train, number))
        return State(inner.position, inner, number)

    def step(key: Any, state: State, train: Data) -> tuple[State, Any]:
        inner, info = method.step(key, state.inner, own(train, state.split))
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
