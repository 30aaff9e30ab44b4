"""From the options of a command to a posterior over the parameters of a network."""

import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from symjax import data as datasets, densities, models, posterior
from symjax.cli import subsets
from symjax.cli.problem import Problem
from symjax.data import Dataset
from symjax.posterior import LogPosterior
from symjax.posterior.force import HALVES
from symjax.types import Data, Key, Params


NOISE_START = 0.5
"""First standard deviation of a learned noise, in units of the normalised targets."""


class Posterior(NamedTuple):
    """All that the options of a problem stand for.

    Attributes:
        dataset: Train and test examples; training inputs are bytes where they were read
            as bytes, which `apply` normalises.
        apply: `(params, x) -> outputs`.
        init: `key -> params` of one network.
        log_posterior: Of the train examples.
        prior_std: Standard deviation of the prior, the smallest of all leaves.
        read_outputs: Outputs to means and noise; None for a classification.
    """

    dataset: Dataset
    apply: Callable[..., Any]
    init: Callable[[Key], Params]
    log_posterior: LogPosterior
    prior_std: Callable[[], float]
    read_outputs: Callable[[Any], tuple[Any, Any]] | None

    @property
    def shapes(self) -> Params:
        """One network's parameters, as `jax.ShapeDtypeStruct`s."""
        return jax.eval_shape(self.init, jax.random.key(0))

    def loss(self, params: Params, data: Data) -> Any:
        """The negative log likelihood of each example, in nats."""
        outputs = self.apply(params, data.x)
        return -self.log_posterior.likelihood(outputs, data.y)


def require_likelihood(problem: Problem) -> None:
    """Require a network that can be sampled, and not only read.

    Raises:
        ValueError: if it has batch normalisation.
    """
    if problem.model in models.BATCH_NORMALISED:
        raise ValueError(
            f"`--model` {problem.model} has batch normalisation: while it is trained, "
            "an example's output depends on the other examples, so that there is no "
            "likelihood to sample from. Such networks can be imported and compared; to "
            "sample or fit, use resnet18_frn or resnet20_frn."
        )


def load(problem: Problem) -> Dataset:
    """The data set, of which only so many examples as were asked for."""
    is_usual = problem.pixels == Problem.pixels
    with named("--data" if is_usual else f"--data, --pixels {problem.pixels}"):
        dataset = datasets.load(
            problem.data, split=problem.split, pixels=problem.pixels
        )
    return subsets.first(dataset, problem.num_train, problem.num_test)


def build(
    problem: Problem, num_chains: int = 1, dataset: Dataset | None = None
) -> Posterior:
    """The network and its log posterior.

    Args:
        problem: The options.
        num_chains: Chains that share a device, for the size of a micro-batch.
        dataset: Loaded; by default it is loaded here.

    Raises:
        ValueError: if the options do not fit each other.
    """
    dataset = load(problem) if dataset is None else dataset
    if dataset.task == "classification":
        if problem.noise != Problem.noise:
            raise ValueError(
                f"`--noise` is for regressions, but {problem.data} has classes. Leave "
                "it out."
            )
        return _assemble(problem, dataset, densities.categorical, 1, num_chains)
    if problem.noise in ("learned", "heteroscedastic"):
        width = 2 if problem.noise == "heteroscedastic" else 1
        return _assemble(problem, dataset, densities.heteroscedastic, width, num_chains)
    try:
        scale = float(problem.noise)
    except ValueError:
        raise ValueError(
            "`--noise` must be learned, heteroscedastic or a number, got "
            f"{problem.noise!r}."
        ) from None
    with named("--noise"):
        likelihood = densities.gaussian(scale)
    return _assemble(problem, dataset, likelihood, 1, num_chains)


def _assemble(
    problem: Problem,
    dataset: Dataset,
    likelihood: Callable[..., Any],
    width: int,
    num_chains: int,
) -> Posterior:
    apply, init, fused = _network(problem, dataset, width)
    dataset, apply, fused = _in_bytes(dataset, apply, fused)
    prior = _prior(problem)
    log_posterior = posterior.build(
        apply,
        prior,
        likelihood,
        temperature=problem.temperature,
        micro_batch=problem.micro_batch,
        force_precision=problem.force_precision,
        force_apply=fused,
    )
    shapes = jax.eval_shape(init, jax.random.key(0))
    if problem.micro_batch is None:
        bounds = {"max_bytes": device_bytes() // 2, "num_chains": num_chains}
        size = posterior.choose_micro_batch(
            log_posterior, shapes, dataset.train, **bounds
        )
        log_posterior = replace(log_posterior, micro_batch=size)
    return Posterior(
        dataset,
        apply,
        init,
        log_posterior,
        lambda: min(jax.tree.leaves(prior.std(shapes))),
        _reader(problem, dataset),
    )


def _network(
    problem: Problem, dataset: Dataset, width: int
) -> tuple[Callable[..., Any], Callable[[Key], Params], Callable[..., Any] | None]:
    """The network's outputs, its first parameters, and the kernels of its gradient."""
    options = {
        name: value
        for name in ("widths", "activation")
        if (value := getattr(problem, name)) is not None
    }
    with named("--model"):
        model = models.build(problem.model, width * dataset.num_outputs, **options)
    learns_noise = dataset.task == "regression" and problem.noise == "learned"
    apply = densities.learned_noise(model.apply) if learns_noise else model.apply

    example = np.array(dataset.train.x[:1])  # A view would keep all examples.

    @jax.jit
    def init(key: Key) -> Params:
        params = model.init(key, jnp.asarray(example))
        return (
            densities.add_noise(params, scale=NOISE_START) if learns_noise else params
        )

    is_half = problem.force_precision in HALVES
    fused = models.fused.find(model) if is_half and not learns_noise else None
    return apply, init, fused


def _in_bytes(
    dataset: Dataset, apply: Callable[..., Any], fused: Callable[..., Any] | None
) -> tuple[Dataset, Callable[..., Any], Callable[..., Any] | None]:
    """The training inputs as bytes, if they came so, and functions that take these."""
    if dataset.train_bytes is None:
        return dataset, apply, fused
    statistics = np.asarray(dataset.input_mean), np.asarray(dataset.input_std)
    if fused is not None:
        fused = models.from_bytes(fused, *statistics)
    train = dataset.train._replace(x=dataset.train_bytes)
    return dataset._replace(train=train), models.from_bytes(apply, *statistics), fused


def _prior(problem: Problem) -> densities.Prior:
    scale = problem.prior_scale
    scales = {"scales": (scale, scale / 10)} if problem.prior == "mixture" else {}
    with named("--prior"):
        return densities.prior(problem.prior, **(scales or {"scale": scale}))


def _reader(problem: Problem, dataset: Dataset) -> Callable[[Any], Any] | None:
    if dataset.task == "classification":
        return None
    if problem.noise in ("learned", "heteroscedastic"):
        return densities.mean_and_scale
    scale = float(problem.noise)
    return lambda outputs: (outputs, np.full_like(outputs, scale))


@contextmanager
def named(option: str) -> Iterator[None]:
    """Say which option, or which run, a value that was refused came from.

    Raises:
        ValueError: what the block raised, with `option` in front.
    """
    try:
        yield
    except ValueError as error:
        raise ValueError(f"{option}: {error}") from error


@contextmanager
def typed(method: str, options: Any) -> Iterator[None]:
    """Name an option as it is typed, where a value was refused by its argument's name.

    Args:
        method: Of the options, such as `swag`, whose `rank` is typed `--swag.rank`.
        options: Its dataclass.

    Raises:
        ValueError: what the block raised, of an option.
        TypeError: the same.
    """
    try:
        yield
    except (ValueError, TypeError) as error:
        found = re.match(r"`(\w+)`(.*)", str(error), re.DOTALL)
        if found is None or not hasattr(options, found[1]):
            raise
        name = f"{method}.{found[1]}".replace("_", "-")
        raise type(error)(f"`--{name}`{found[2]}") from error


def test_targets(dataset: Dataset) -> np.ndarray:
    """Of the test examples, in the data's own units."""
    targets = np.asarray(dataset.test.y)
    if dataset.target_std is None or dataset.target_mean is None:
        return targets
    return targets * dataset.target_std + dataset.target_mean


def device_bytes() -> int:
    """Memory of the first device, in bytes; of the machine, where it is the CPU."""
    device = jax.local_devices()[0]
    stats = device.memory_stats() or {}
    if "bytes_limit" in stats:
        return stats["bytes_limit"]
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return total // len(jax.local_devices())


def resolved(problem: Problem) -> Problem:
    """The problem as it is written down: a file of data by its absolute path."""
    if problem.data.endswith(".npz"):
        return replace(problem, data=str(Path(problem.data).absolute()))
    return problem
