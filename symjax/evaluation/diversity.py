"""How much do the members of an ensemble, or the draws of a posterior, differ?

Members are all draws of all chains. Entropies are in nats.

References:
    Depeweg, Hernández-Lobato, Doshi-Velez, Udluft (2018), "Decomposition of
    uncertainty in Bayesian deep learning for efficient and risk-sensitive learning",
    section 3. Lakshminarayanan, Pritzel, Blundell (2017), "Simple and scalable
    predictive uncertainty estimation using deep ensembles".
"""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Integer
from scipy import special

from symjax import checks
from symjax.evaluation import arguments
from symjax.evaluation.predictive.summary import Predictions, summarise_predictions


_BLOCK_VALUES = 2**19
_MAX_WIDTH = 2**11
"""Values that are added up in float32: of 200,000, a CPU of eight lanes lost 2e-6."""


def mutual_information(
    logits: Float[np.ndarray | Array, "chain draw example cls"] | Predictions,
) -> Float[np.ndarray, " example"]:
    """Mutual information of the label and the member, in nats, at every example.

    `H(1/S sum_s p_s) - 1/S sum_s H(p_s)` with the entropy `H(p) = -sum_c p_c log p_c`:
    the generalised Jensen-Shannon divergence of the members' predictions, 0 where all
    agree and at most the log of the number of members or of classes. From log-softmax,
    in float64: rounding alone, some 1e-15, can make it negative.

    Args:
        logits: The outputs of every draw, or their `summarise_predictions`.

    Returns:
        One value an example.
    """
    if not isinstance(logits, Predictions):
        logits = summarise_predictions(logits)
    return special.entr(logits.probs).sum(axis=1) - logits.mean_entropy


def pairwise_mutual_information(
    logits: Float[np.ndarray | Array, "chain draw example cls"],
    max_examples: int | None = 1000,
) -> Float[np.ndarray, " pair"]:
    """The mutual information of every pair of members, in nats, averaged over examples.

    `mutual_information` of an ensemble of the two alone, which lies in [0, log 2]; its
    spread over pairs shows members that compute the same function. Cost: a logarithm
    for each pair, example and class, in float32 on the default device, so that a value
    is right to some 1e-6; 1,000 members and 10 classes take about 2 s on two cores for
    1,000 examples and 20 s for 10,000. Fewer examples widen the histogram: the spread
    of pairs that are alike is that of the examples, over the root of their number, so
    that histograms are to be compared at one number of examples.

    Args:
        logits: The outputs of every draw; `S` in all.
        max_examples: Of more examples than this, as many evenly spaced ones are used.
            None takes all.

    Returns:
        Of each pair `i < j`, in the order of `np.triu_indices(S, 1)`.

    Example:
        >>> logits = np.random.default_rng(0).normal(size=(4, 50, 100, 10))
        >>> pairwise_mutual_information(logits).shape  # 200 * 199 / 2
        (19900,)
    """
    checks.at_least(1, max_examples=max_examples)
    logits = arguments.logits(logits)
    num_chains, num_draws, num_examples, num_classes = logits.shape
    count = num_chains * num_draws
    _at_least_two(count)
    kept = np.arange(num_examples)
    if max_examples is not None and num_examples > max_examples:
        kept = np.linspace(0, num_examples - 1, max_examples).astype(int)
    probs = np.empty((count, len(kept), num_classes), np.float32)
    entropy = np.empty(count)
    for i, (chain, draw) in enumerate(np.ndindex(num_chains, num_draws)):
        one = special.softmax(logits[chain, draw, kept].astype(float), axis=-1)
        probs[i], entropy[i] = one, special.entr(one).sum() / len(kept)
    mixed = _sum_of_blocks(probs.reshape(count, -1))
    i, j = np.triu_indices(count, 1)
    is_near = j - i <= count // 2
    offset = np.where(is_near, j - i, count + i - j) - 1
    of_pair = mixed[np.where(is_near, i, j), offset]
    return of_pair / len(kept) - (entropy[i] + entropy[j]) / 2


def disagreement(
    logits: Float[np.ndarray | Array, "chain draw example cls"] | Predictions,
) -> float:
    """How often two members predict different classes, in [0, 1].

    The share of examples, averaged over all pairs of different members.

    Args:
        logits: The outputs of every draw, or their `summarise_predictions`.

    Returns:
        The share.

    Example:
        >>> logits = np.array([[[[2.0, 0.0]], [[3.0, 0.0]], [[0.0, 1.0]]]])
        >>> round(disagreement(logits), 3)
        0.667
    """
    if not isinstance(logits, Predictions):
        logits = summarise_predictions(logits)
    votes = logits.votes.astype(float)
    count = int(votes[0].sum())
    _at_least_two(count)
    same = (votes * (votes - 1)).sum(axis=1) / (count * (count - 1))
    return float(1 - same.mean())


def _sum_of_blocks(
    probs: Float[np.ndarray, "member value"],
) -> Float[np.ndarray, "member offset"]:
    """`_mixed_entropies` of all values, in float64 from blocks that stay in a cache."""
    count, num_values = probs.shape
    width = min(num_values, max(64, _BLOCK_VALUES // count), _MAX_WIDTH)
    # A value that is 0 for all members adds nothing.
    probs = np.pad(probs, [(0, 0), (0, -num_values % width)])
    total = np.zeros((count, count // 2))
    for start in range(0, num_values, width):
        total += np.asarray(_mixed_entropies(probs[:, start : start + width]))
    return total


@jax.jit
def _mixed_entropies(
    probs: Float[np.ndarray | Array, "member value"],
) -> Float[Array, "member offset"]:
    """`-sum m log m` of the mean `m` of each member's values and of the next ones'.

    The next half of them, around the end: so that each pair is taken once.
    """
    half = jnp.asarray(probs) / 2
    count = len(half)
    around = jnp.concatenate([half, half])

    def of_member(i: Integer[Array, ""]) -> Float[Array, " offset"]:
        m = half[i] + jax.lax.dynamic_slice_in_dim(around, i + 1, count // 2)
        # The least normal number: 0 log 0 is 0.
        return -(m * jnp.log(jnp.maximum(m, 2.0**-126))).sum(axis=1)

    return jax.lax.map(of_member, jnp.arange(count))


def _at_least_two(count: int) -> None:
    """Require two members.

    Raises:
        ValueError: If there are fewer.
    """
    if count < 2:
        raise ValueError(
            f"`logits` must hold at least two draws, over all chains; got {count}."
        )
