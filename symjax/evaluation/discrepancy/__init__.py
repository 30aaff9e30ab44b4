"""How far apart are sets of draws? Between chains, MMD, sliced Wasserstein."""

from symjax.evaluation.discrepancy.chains import (
    ChainDistances,
    chain_distances,
    compare_draws,
)
from symjax.evaluation.discrepancy.kernels import MmdTest, mmd, mmd_test
from symjax.evaluation.discrepancy.projections import project, sliced_wasserstein
