"""Convergence of chains and quality of predictions, from arrays alone."""

from symjax.evaluation import (
    bootstrap,
    calibration,
    discrepancy,
    diversity,
    ood,
    selective,
    temperature_scaling,
)
from symjax.evaluation.bias import SpreadComparison, compare_spread
from symjax.evaluation.calibration import (
    adaptive_calibration_error,
    brier_score,
    classwise_calibration_error,
    decompose_brier,
    expected_calibration_error,
    reliability_curve,
)
from symjax.evaluation.convergence import (
    Convergence,
    share_below,
    slowest,
    summarise,
    summarise_leaves,
)
from symjax.evaluation.discrepancy import (
    ChainDistances,
    MmdTest,
    chain_distances,
    compare_draws,
    mmd,
    mmd_test,
    project,
    sliced_wasserstein,
)
from symjax.evaluation.exchangeability import (
    Exchangeability,
    check_exchangeability,
)
from symjax.evaluation.predictive import (
    Predictions,
    accuracy,
    agreement,
    between_chains,
    chain_disagreement,
    gaussian_mixture_nll,
    moment_matched_nll,
    negative_log_likelihood,
    predict,
    probs_by_chain,
    probs_by_draw,
    probs_from_logits,
    rmse,
    summarise_predictions,
    total_variation,
    wasserstein_per_point,
)
