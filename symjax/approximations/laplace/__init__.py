"""Laplace approximations: a Gaussian at a mode, its precision from the curvature there.

The likelihood's curvature is the generalised Gauss-Newton matrix G, the prior's that of
normal distributions, P. Of a posterior tempered by T the approximation is

    N(mode, T (G + d P)^(-1)),

with d = 1, the posterior's own prior, or d where the evidence is largest. Members are
independent modes, found like those of an ensemble: draws of several are a mixture.

A network whose weights are drawn from that Gaussian predicts badly where G is small and
the network is not linear in its weights. G is the exact curvature of the network
linearised at the mode, and `linearise` predicts with that one.

References:
    MacKay (1992), A practical Bayesian framework for backpropagation networks.
    Daxberger et al. (2021), Laplace redux: effortless Bayesian deep learning.
    Immer, Korzepa, Bauer (2021), Improving predictions of Bayesian neural nets via
    local linearization, section 3.
    Immer et al. (2021), Scalable marginal likelihood estimation for model selection in
    deep learning, section 3.
"""

from symjax.approximations.laplace.ggn import ROW_BYTES
from symjax.approximations.laplace.layers import find_last_layer
from symjax.approximations.laplace.linearised import (
    Around,
    Linearised,
    around,
    linearise,
)
from symjax.approximations.laplace.method import (
    Fitted,
    Info,
    State,
    Told,
    build,
    log_evidence,
)
from symjax.approximations.laplace.structures import count_gradients
