"""What most measures of a classifier need of its draws, in one pass over the logits."""

import functools
import os
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import numpy as np
from jaxtyping import Array, Float, Integer

from symjax.evaluation import arguments
from symjax.evaluation.predictive.mixture import mixture_nll


# Values of a block, 1 MB in float64: what stays in a core's cache.
_BLOCK_VALUES = 2**17


class Predictions(NamedTuple):
    """Averages over the draws, in float64.

    Attributes:
        probs_by_chain: The softmax averaged over the draws of each chain.
        mean_entropy: Entropy of a draw's probabilities, in nats, averaged over draws.
        mean_logits: Logits averaged over chains and draws.
        votes: Number of draws whose most probable class it is; the first of equals.
        log_likelihood: Log probability of the label under every draw, in nats; None
            where no labels were given.
    """

    probs_by_chain: Float[np.ndarray, "chain example cls"]
    mean_entropy: Float[np.ndarray, " example"]
    mean_logits: Float[np.ndarray, "example cls"]
    votes: Integer[np.ndarray, "example cls"]
    log_likelihood: Float[np.ndarray, "chain draw example"] | None

    @property
    def probs(self) -> Float[np.ndarray, "example cls"]:
        """The predictive probabilities: the softmax averaged over chains and draws."""
        return self.probs_by_chain.mean(axis=0)

    @property
    def negative_log_likelihood(self) -> float:
        """That of the mixture over draws, in nats an example.

        Raises:
            ValueError: If the summary was made without labels.
        """
        if self.log_likelihood is None:
            raise ValueError("`labels` must be given to `summarise_predictions`.")
        return mixture_nll(self.log_likelihood)


def summarise_predictions(
    logits: Float[np.ndarray | Array, "chain draw example cls"],
    labels: Integer[np.ndarray | Array, " label"] | None = None,
) -> Predictions:
    """Take what most measures need from the logits, in one pass over them.

    In blocks of examples, in float64, by as many threads as there are cores: 72 million
    logits take about a second on two. The measures that ask for `logits` and average
    over draws take the result in their place, so that a table pays for one pass.

    Args:
        logits: The outputs of every draw.
        labels: True classes.

    Returns:
        The averages.

    Example:
        >>> logits = np.random.default_rng(0).normal(size=(4, 50, 100, 10))
        >>> predictions = summarise_predictions(logits)
        >>> predictions.probs.shape, predictions.votes.sum(axis=1)[0]
        ((100, 10), np.int64(200))
    """
    logits = arguments.logits(logits)
    num_chains, _, num_examples, num_classes = logits.shape
    if labels is not None:
        labels = arguments.labels(labels, num_examples, num_classes)
    result = Predictions(
        probs_by_chain=np.empty((num_chains, num_examples, num_classes)),
        mean_entropy=np.empty(num_examples),
        mean_logits=np.empty((num_examples, num_classes)),
        votes=np.empty((num_examples, num_classes), int),
        log_likelihood=None if labels is None else np.empty(logits.shape[:3]),
    )
    width = max(1, min(512, _BLOCK_VALUES // num_classes))
    blocks = [slice(i, i + width) for i in range(0, num_examples, width)]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(functools.partial(_fill, result, logits, labels), blocks))
    return result


def _fill(
    result: Predictions,
    logits: Float[np.ndarray, "chain draw example cls"],
    labels: Integer[np.ndarray, " example"] | None,
    examples: slice,
) -> None:
    """Write the averages of some examples into the result."""
    num_chains, num_draws, _, num_classes = logits.shape
    width = len(result.mean_entropy[examples])
    rows = np.arange(width)
    step = max(1, _BLOCK_VALUES // (width * num_classes))
    entropy, total = np.zeros(width), np.zeros((num_classes, width))
    votes = np.zeros(width * num_classes, int)
    for chain in range(num_chains):
        probs = np.zeros((num_classes, width))
        for start in range(0, num_draws, step):
            draws = slice(start, start + step)
            block = logits[chain, draws, examples]
            chosen = rows * num_classes + block.argmax(axis=-1)
            votes += np.bincount(chosen.ravel(), minlength=votes.size)
            # The classes in front: sums over them are then sums of long rows.
            z = np.moveaxis(block, -1, 0).astype(float, order="C")
            total += z.sum(axis=1)
            z -= z.max(axis=0)
            p = np.exp(z)
            norm = p.sum(axis=0)
            p /= norm
            log_norm = np.log(norm)
            probs += p.sum(axis=1)
            entropy += (log_norm - np.einsum("cde,cde->de", p, z)).sum(axis=0)
            if labels is not None and result.log_likelihood is not None:
                of_label = z[labels[examples], :, rows].T - log_norm
                result.log_likelihood[chain, draws, examples] = of_label
        result.probs_by_chain[chain, examples] = probs.T / num_draws
    count = num_chains * num_draws
    result.mean_entropy[examples] = entropy / count
    result.mean_logits[examples] = total.T / count
    result.votes[examples] = votes.reshape(width, num_classes)
