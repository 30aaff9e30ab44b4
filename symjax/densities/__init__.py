"""Priors of the parameters and likelihoods of the outputs, in summed nats."""

from symjax.densities.likelihoods import (
    SCALE_FLOOR,
    add_noise,
    bernoulli,
    categorical,
    gaussian,
    heteroscedastic,
    learned_noise,
    mean_and_scale,
)
from symjax.densities.priors import Prior, prior
