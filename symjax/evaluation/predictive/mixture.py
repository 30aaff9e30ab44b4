"""The log density of the average over draws, for any likelihood."""

import math

import numpy as np
from jaxtyping import Array, Float
from scipy import special


def mixture_nll(
    log_density: Float[np.ndarray | Array, "chain draw example"],
) -> float:
    """The negative log density of the average over draws, in nats an example.

    Args:
        log_density: Of every example under every draw, in nats.

    Returns:
        `-log(1/S sum_s exp(log_density_s))`, averaged over examples.
    """
    values = np.asarray(log_density, dtype=float)
    values = values.reshape(-1, values.shape[2])
    log_sum = np.asarray(special.logsumexp(values, axis=0))
    return float(math.log(len(values)) - log_sum.mean())
