"""Error bars of the comparison with a reference: which test points, which chains?

References:
    Efron, Tibshirani (1993), "An introduction to the bootstrap", chapter 6. McCarthy,
    Snowden (1985), "The bootstrap and finite population sampling", Vital and Health
    Statistics 2(95), section 2 (one fewer are drawn, so that the variance of a mean
    comes out unbiased). Owen (2007), "The pigeonhole bootstrap", Annals of Applied
    Statistics 1(2) (rows and columns drawn together).
"""

import math
from typing import NamedTuple

import numpy as np
from jaxtyping import Array, Float

from symjax import checks
from symjax.evaluation import arguments


class Estimate(NamedTuple):
    """A measure and its standard errors.

    Attributes:
        value: The measure on all test points and chains.
        standard_error: Of both: had other test points and other chains been drawn.
        over_examples: Had other test points been drawn, the chains kept.
        over_chains: Had other chains of the reference been run, the test points kept.
            None for one chain, and `standard_error` is then that of the test points.
    """

    value: float
    standard_error: float
    over_examples: float
    over_chains: float | None


class ReferenceComparison(NamedTuple):
    """How alike predictions are to those of a reference.

    Attributes:
        agreement: Share of examples with the same predicted class, see
            `evaluation.agreement`.
        total_variation: See `evaluation.total_variation`.
    """

    agreement: Estimate
    total_variation: Estimate


def compare_to_reference(
    probs_by_chain: Float[np.ndarray | Array, "chain example cls"],
    reference_probs_by_chain: Float[np.ndarray | Array, "chain2 example2 cls2"],
    num_replicates: int = 200,
    seed: int = 0,
) -> ReferenceComparison:
    """Agreement and total variation to a reference, with bootstrap standard errors.

    The method's chains are averaged and kept as they are: what they would add is seen
    by running the method again. Of `C` chains of the reference each replicate draws
    `C - 1`, with replacement, and averages them: drawing `C` makes the error too small
    by `sqrt(1 - 1/C)`. With few chains the error is itself rough, to some
    `1 / sqrt(2 C)` of it; with two it is right on average over repetitions only. A mean
    of fewer chains is noisier, which moves all replicates alike: their spread is used,
    not their mean. Where chains differ at each point by itself, `standard_error` counts
    that in both drawings and is on the safe side (Owen 2007): by up to 1.4 in trials
    with 200 points and 4 chains.

    Args:
        probs_by_chain: The predictive probabilities of each chain of the method; one
            chain for a file of predictions.
        reference_probs_by_chain: Those of the reference.
        num_replicates: Bootstrap replicates; 200 give the error to some 5 %.
        seed: Of the replicates.

    Returns:
        The two estimates.

    Example:
        >>> probs = np.random.default_rng(0).dirichlet([1.0, 1.0], (4, 100))
        >>> compare_to_reference(probs[:1], probs[1:]).agreement.value
        0.57
    """
    checks.at_least(2, num_replicates=num_replicates)
    p = arguments.probs(probs_by_chain, "probs_by_chain").mean(axis=0)
    q = arguments.probs(reference_probs_by_chain, "reference_probs_by_chain")
    arguments.same_shape("reference_probs_by_chain", q.shape[1:], p.shape)
    chosen = p.argmax(axis=1)

    def compare(reference: Float[np.ndarray, "example cls"]) -> np.ndarray:
        same = reference.argmax(axis=1) == chosen
        return np.stack([same, abs(reference - p).sum(axis=1) / 2])

    random = np.random.default_rng(seed)
    whole = compare(q.mean(axis=0))
    if len(q) == 1:
        resampled = np.broadcast_to(whole, (num_replicates, *whole.shape))
    else:
        flat = q.reshape(len(q), -1)
        weights = _resampled(random, len(q), num_replicates)
        resampled = np.stack([compare((w @ flat).reshape(p.shape)) for w in weights])
    return ReferenceComparison(
        *_estimates(whole, resampled, num_chains=len(q), random=random)
    )


def compare_chains(
    probs_by_chain: Float[np.ndarray | Array, "chain example cls"],
    num_replicates: int = 200,
    seed: int = 0,
) -> ReferenceComparison:
    """The reference's own ceiling with standard errors: each chain to the others.

    The values of `between_chains`. Each replicate draws one chain fewer, with
    replacement, and averages their agreement and total variation to all other chains:
    that the others vary too, and jointly, is left out.

    Args:
        probs_by_chain: The predictive probabilities of each chain, two or more.
        num_replicates: Bootstrap replicates.
        seed: Of the replicates.

    Returns:
        The two estimates.

    Raises:
        ValueError: If there is one chain only.
    """
    checks.at_least(2, num_replicates=num_replicates)
    p = arguments.probs(probs_by_chain, "probs_by_chain")
    if len(p) < 2:
        raise ValueError("`probs_by_chain` must hold at least 2 chains; got 1.")
    others = (p.sum(axis=0) - p) / (len(p) - 1)
    each = np.stack(
        [p.argmax(axis=2) == others.argmax(axis=2), abs(p - others).sum(axis=2) / 2],
        axis=1,
    )
    random = np.random.default_rng(seed)
    weights = _resampled(random, len(p), num_replicates)
    return ReferenceComparison(
        *_estimates(
            each.mean(axis=0),
            np.tensordot(weights, each, axes=1),
            num_chains=len(p),
            random=random,
        )
    )


def _resampled(
    random: np.random.Generator, num_chains: int, num_replicates: int
) -> Float[np.ndarray, "replicate chain"]:
    """Weights of the chains in each replicate; they sum to 1."""
    drawn = num_chains - 1
    counts = random.multinomial(drawn, np.ones(num_chains) / num_chains, num_replicates)
    return counts / drawn


def _estimates(
    whole: Float[np.ndarray, "measure example"],
    resampled: Float[np.ndarray, "replicate measure example"],
    *,
    num_chains: int,
    random: np.random.Generator,
) -> list[Estimate]:
    """Values and errors of measures that are averages over examples.

    Args:
        whole: Of every example, with all chains.
        resampled: The same with the chains of each replicate.
        num_chains: Of the reference.
        random: Draws the examples.
    """
    num_examples = whole.shape[1]
    both = np.empty(resampled.shape[:2])
    for i, values in enumerate(resampled):
        places = random.integers(num_examples, size=num_examples)
        both[i] = values[:, places].mean(axis=1)
    # The bootstrap of a mean needs no replicates.
    over_examples = whole.std(axis=1) / math.sqrt(num_examples)
    over_chains = resampled.mean(axis=2).std(axis=0, ddof=1)
    joint = over_examples if num_chains == 1 else both.std(axis=0, ddof=1)
    return [
        Estimate(
            value=float(whole[i].mean()),
            standard_error=float(joint[i]),
            over_examples=float(over_examples[i]),
            over_chains=None if num_chains == 1 else float(over_chains[i]),
        )
        for i in range(len(whole))
    ]
