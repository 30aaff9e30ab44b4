"""What the draws of a run predict, kept in the run's own folder.

`RUN/predictions/test`, and one folder for each other set of inputs, hold the outputs of
every draw; a second evaluation reads them, an interrupted one goes on. Of corrupted
test points, of which there are many sets, only the average over draws is kept.
"""

import hashlib
import os
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jaxtyping import Array, Float

from symjax import evaluation, progress, store, trees
from symjax.cli import alignment, posteriors, predictors
from symjax.cli.posteriors import Posterior
from symjax.evaluation import temperature_scaling
from symjax.store import Run
from symjax.types import Params


MAX_BYTES = 2**28
"""Draws and their outputs between two records, in host memory."""

_MAX_DEVICE_BYTES = 2**32


def outputs(
    run: Run, built: Posterior, x: Any, *, name: str, key: str
) -> Float[np.ndarray, "chain draw example output"]:
    """The outputs of every draw, read if they were made before.

    Args:
        run: The run.
        built: Its posterior.
        x: Inputs.
        name: What the run is called, for the progress bar.
        key: What the inputs are called; a folder.
    """
    apply, draws = predictors.of_run(run, built)
    num_chains, num_draws = jax.tree.leaves(draws)[0].shape[:2]
    width = _width(built, x)
    most = _most(built, len(x) * width)
    home = store.local(run.path)
    if not os.access(home, os.W_OK):  # Someone else's run is only read.
        return _predict(apply, draws, x, slice(0, num_chains), slice(0, num_draws))
    folder = home / "predictions" / _as_folder(key)
    shape = (num_chains, max(run.num_draws, num_draws), len(x), width)
    with ExitStack() as held:
        folder.parent.mkdir(exist_ok=True)
        held.enter_context(store.hold(folder.parent))
        kept = store.open_predictions(folder, _fingerprint(run, x), shape)
        total, done = num_chains * num_draws, kept.done
        if done < total:
            title = f"Predicting {key} with {name}"
            update = held.enter_context(progress.bar(title, total, done=done))
            for chains, some in kept.missing(num_draws, most):
                kept.write(chains, some, _predict(apply, draws, x, chains, some))
                update(kept.done, "")
    return kept.read(num_draws)


def averages(
    run: Run,
    built: Posterior,
    x: Any,
    *,
    name: str,
    key: str,
    temperatures: tuple[float, float] | None = None,
) -> Float[np.ndarray, "chain draw example output"]:
    """The log of the probabilities averaged over all draws, as logits of one draw.

    Args:
        run: The run, of a classification.
        built: Its posterior.
        x: Inputs.
        name: What the run is called, for the progress bar.
        key: What the inputs are called; a file.
        temperatures: Of the inputs at even and at odd places, which the logits of every
            draw are divided by first.
    """
    apply, draws = predictors.of_run(run, built)
    num_chains, num_draws = jax.tree.leaves(draws)[0].shape[:2]
    total = num_chains * num_draws
    fingerprint = f"{_fingerprint(run, x)} {total}"
    if temperatures is not None:
        key, fingerprint = f"{key}-scaled", f"{fingerprint} {temperatures}"
    home = store.local(run.path)
    file = home / "predictions" / f"{_as_folder(key)}.npz"
    found = store.read_averages(file, fingerprint)
    if found is not None:
        return found
    log_sum = np.full((len(x), _width(built, x)), -np.inf)
    most = _most(built, log_sum.size)
    done = 0
    with progress.bar(f"Predicting {key} with {name}", total) as update:
        for chains, some in store.blocks(num_chains, num_draws, most):
            logits = _predict(apply, draws, x, chains, some)
            if temperatures is not None:
                logits = temperature_scaling.divide(logits, temperatures)
            log_sum = np.logaddexp(log_sum, _log_sum_of_probs(logits))
            done += logits.shape[0] * logits.shape[1]
            update(done, "")
    result = (log_sum - np.log(total))[None, None].astype(np.float32)
    if os.access(home, os.W_OK):
        store.write_averages(file, fingerprint, result)
    return result


def _predict(
    apply: Callable[..., Any], draws: Params, x: Any, chains: slice, some: slice
) -> Float[np.ndarray, "chain draw example output"]:
    """The outputs of a block of draws."""
    block = jax.tree.map(
        lambda leaf: np.stack(
            [np.asarray(leaf[i, some]) for i in range(chains.start, chains.stop)]
        ),
        draws,
    )
    limit = MAX_BYTES
    if jax.default_backend() != "cpu":  # There a full device is a fast one.
        limit = max(limit, min(posteriors.device_bytes() // 8, _MAX_DEVICE_BYTES))
    return evaluation.predict(apply, block, x, max_bytes=limit)


@jax.jit
def _log_sum_of_probs(
    logits: Float[np.ndarray | Array, "chain draw example output"],
) -> Float[Array, "example output"]:
    """The log of the probabilities added up over draws; long work for a host."""
    return jax.nn.logsumexp(jax.nn.log_softmax(logits), axis=(0, 1))


def _width(built: Posterior, x: Any) -> int:
    """How many outputs an example has.

    Raises:
        ValueError: if the network does not take such inputs.
    """
    wanted = built.dataset.test.x.shape[1:]
    if x.shape[1:] != wanted:
        raise ValueError(
            f"The inputs must have the shape {wanted}, as those of "
            f"{built.dataset.name} have, got {x.shape[1:]}."
        )
    example = jax.ShapeDtypeStruct((1, *x.shape[1:]), x.dtype)
    return jax.eval_shape(built.apply, built.shapes, example).shape[-1]


def _most(built: Posterior, num_outputs: int) -> int:
    """Predictions of a block."""
    return max(1, MAX_BYTES // (trees.num_bytes(built.shapes) + 4 * num_outputs))


def _fingerprint(run: Run, x: Any) -> str:
    """Of the run and the inputs."""
    array = np.ascontiguousarray(x)
    digest = hashlib.sha256(f"{array.dtype.str}{array.shape}".encode())
    digest.update(array.data)
    return f"{digest.hexdigest()} {alignment.beginning(run)}"


def _as_folder(key: str) -> str:
    return str(Path(key)).replace(os.sep, "-")
