"""Predictions of many draws, and how good and how alike they are.

Every metric counts every row: rows that only pad the example count are to be sliced
away by the caller. Averages are taken in float64 on the host.
"""

from symjax.evaluation.predictive.classification import (
    BetweenChains,
    accuracy,
    agreement,
    between_chains,
    chain_disagreement,
    negative_log_likelihood,
    probs_by_chain,
    probs_by_draw,
    probs_from_logits,
    total_variation,
)
from symjax.evaluation.predictive.mixture import mixture_nll
from symjax.evaluation.predictive.outputs import predict
from symjax.evaluation.predictive.regression import (
    gaussian_mixture_nll,
    moment_matched_nll,
    rmse,
    wasserstein_per_point,
)
from symjax.evaluation.predictive.summary import Predictions, summarise_predictions
