"""Classifiers: predictive probabilities, and their quality and likeness.

References:
    Izmailov, Vikram, Hoffman, Wilson (2021), "What are Bayesian neural network
    posteriors really like?", section 6 (agreement, total variation).
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Array, Float, Integer
from scipy import special

from symjax.evaluation import arguments
from symjax.evaluation.predictive.summary import summarise_predictions


class BetweenChains(NamedTuple):
    """How alike the chains of one method are: the ceiling for any other method.

    Attributes:
        agreement: Share of examples, see `agreement`.
        total_variation: See `total_variation`.
    """

    agreement: float
    total_variation: float


def probs_by_draw(
    logits: Float[np.ndarray | Array, "chain draw example cls"],
) -> Float[np.ndarray, "chain draw example cls"]:
    """The softmax of every draw: what function-space convergence is measured on."""
    return special.softmax(arguments.finite(logits, "logits"), axis=-1)


def probs_by_chain(
    logits: Float[np.ndarray | Array, "chain draw example cls"],
) -> Float[np.ndarray, "chain example cls"]:
    """The predictive probabilities of every chain: the softmax averaged over draws."""
    return summarise_predictions(logits).probs_by_chain


def probs_from_logits(
    logits: Float[np.ndarray | Array, "chain draw example cls"],
) -> Float[np.ndarray, "example cls"]:
    """The predictive probabilities: the softmax averaged over chains and draws."""
    return probs_by_chain(logits).mean(axis=0)


def accuracy(
    probs: Float[np.ndarray | Array, "example cls"],
    labels: Integer[np.ndarray | Array, " label"],
) -> float:
    """The share of examples whose most probable class is the label."""
    probs = arguments.probs(probs)
    labels = arguments.labels(labels, *probs.shape)
    return float((probs.argmax(axis=1) == labels).mean())


def negative_log_likelihood(
    logits: Float[np.ndarray | Array, "chain draw example cls"],
    labels: Integer[np.ndarray | Array, " label"],
) -> float:
    """The negative log likelihood of the mixture over draws, in nats an example.

    `-log(1/S sum_s softmax(logits_s)[label])`, by log-sum-exp over draws: finite where
    a probability underflows.

    Args:
        logits: The outputs of every draw.
        labels: True classes.

    Returns:
        The mean over examples.
    """
    return summarise_predictions(logits, labels).negative_log_likelihood


def agreement(
    probs: Float[np.ndarray | Array, "example cls"],
    reference_probs: Float[np.ndarray | Array, "..."],
) -> float:
    """The share of examples for which both predict the same class."""
    p, q = _both(probs, reference_probs)
    return float((p.argmax(axis=1) == q.argmax(axis=1)).mean())


def total_variation(
    probs: Float[np.ndarray | Array, "example cls"],
    reference_probs: Float[np.ndarray | Array, "..."],
) -> float:
    """The total variation distance of the predictions, in [0, 1].

    The mean over examples of `1/2 sum_c |p_c - q_c|`.
    """
    p, q = _both(probs, reference_probs)
    return float(abs(p - q).sum(axis=1).mean() / 2)


def between_chains(
    probs_by_chain: Float[np.ndarray | Array, "chain example cls"],
) -> BetweenChains:
    """Agreement and total variation of each chain with the mean of the others.

    The average over chains. All chains but one stand in for the reference that methods
    are compared with; pairs would count one chain's noise on both sides, and set the
    ceiling too low.

    Args:
        probs_by_chain: The predictive probabilities of each chain.

    Returns:
        The two averages.
    """
    p = arguments.probs(probs_by_chain, "probs_by_chain")
    others = _others(p)
    pairs = list(zip(p, others, strict=True))
    return BetweenChains(
        agreement=float(np.mean([agreement(one, rest) for one, rest in pairs])),
        total_variation=float(np.mean([total_variation(a, b) for a, b in pairs])),
    )


def chain_disagreement(
    probs_by_chain: Float[np.ndarray | Array, "chain example cls"],
) -> Float[np.ndarray, " example"]:
    """How far the chains are apart on each example, in [0, 1].

    The total variation of each chain to the mean of the others, averaged over chains;
    its mean over examples is that of `between_chains`.
    """
    p = arguments.probs(probs_by_chain, "probs_by_chain")
    return abs(p - _others(p)).sum(axis=2).mean(axis=0) / 2


def _both(
    probs: Float[np.ndarray | Array, "example cls"],
    reference_probs: Float[np.ndarray | Array, "..."],
) -> tuple[Float[np.ndarray, "example cls"], Float[np.ndarray, "example cls"]]:
    p, q = arguments.probs(probs), arguments.probs(reference_probs, "reference_probs")
    arguments.same_shape("reference_probs", q.shape, p.shape)
    return p, q


def _others(
    p: Float[np.ndarray, "chain example cls"],
) -> Float[np.ndarray, "chain example cls"]:
    """For each chain the mean of the other chains.

    Raises:
        ValueError: If there is one chain only.
    """
    if len(p) < 2:
        raise ValueError("`probs_by_chain` must hold at least 2 chains; got 1.")
    return np.stack([np.delete(p, i, axis=0).mean(axis=0) for i in range(len(p))])
