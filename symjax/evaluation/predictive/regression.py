"""Regression: errors of the predictive mean, and two densities, each by its name."""

import math
from typing import Any

import numpy as np
from jaxtyping import Array, Float

from symjax.evaluation import arguments, transport
from symjax.evaluation.predictive.mixture import mixture_nll


def rmse(
    mean: Float[np.ndarray | Array, "chain draw example *output"],
    targets: Float[np.ndarray | Array, "..."],
) -> float:
    """The root mean square error of the predictive mean, in the unit of the targets.

    Args:
        mean: The mean of every draw.
        targets: True values, `(example, *output)`.

    Returns:
        The root of the mean over examples and outputs.
    """
    centre, truth, _ = _regression(mean, targets)
    return float(np.sqrt(((centre.mean(axis=(0, 1)) - truth) ** 2).mean()))


def gaussian_mixture_nll(
    mean: Float[np.ndarray | Array, "chain draw example *output"],
    std: Float[np.ndarray | Array, "..."],
    targets: Float[np.ndarray | Array, "..."],
) -> float:
    """The negative log density of the mixture of the draws' Gaussians: the NLL.

    `-log(1/S sum_s prod_o N(y_o; mean_so, std_so))` in nats an example; with targets
    divided by a scale, add `log(scale)` for every output to undo it.

    Args:
        mean: The mean of every draw.
        std: The noise standard deviation of every draw, of the shape of `mean`.
        targets: True values, `(example, *output)`.

    Returns:
        The mean over examples.
    """
    centre, truth, scale = _regression(mean, targets, std)
    log_density = _log_normal(truth, centre, scale)
    return mixture_nll(log_density.reshape(*centre.shape[:3], -1).sum(axis=-1))


def moment_matched_nll(
    mean: Float[np.ndarray | Array, "chain draw example *output"],
    std: Float[np.ndarray | Array, "..."],
    targets: Float[np.ndarray | Array, "..."],
) -> float:
    """The negative log density of one Gaussian with the mixture's mean and variance.

    Not the predictive density: where draws disagree it hides their modes. The variance
    is the mean of `std^2` plus the variance of `mean` over draws, output by output.

    Args:
        mean: The mean of every draw.
        std: The noise standard deviation of every draw, of the shape of `mean`.
        targets: True values, `(example, *output)`.

    Returns:
        The mean over examples, in nats.
    """
    centre, truth, scale = _regression(mean, targets, std)
    spread = np.sqrt((scale**2).mean(axis=(0, 1)) + centre.var(axis=(0, 1)))
    log_density = _log_normal(truth, centre.mean(axis=(0, 1)), spread)
    return float(-log_density.reshape(len(truth), -1).sum(axis=1).mean())


def wasserstein_per_point(
    samples: Float[np.ndarray | Array, "sample example"],
    reference_samples: Float[np.ndarray | Array, "sample2 example2"],
) -> Float[np.ndarray, " example"]:
    """The Wasserstein-1 distance of predictive samples to a reference's, by test point.

    Of samples of the predictive distribution, the noise included, in the unit of the
    targets. Its mean over examples is the score of regression in the 2021 competition,
    there with 1,000 samples of each and a minus sign.

    Args:
        samples: Predictive samples of the method, over all chains and draws.
        reference_samples: Those of the reference. Their number may differ.

    Returns:
        The distance at each example; 0 for equal samples in any order.

    Raises:
        ValueError: If there is no sample, the examples differ in number, or a sample is
            not finite.

    References:
        Wilson, Izmailov, Hoffman, Gal, Li, Pradier, Vikram, Foong, Lotfi, Farquhar
        (2022), "Evaluating approximate inference in Bayesian deep learning", NeurIPS
        2021 Competitions and Demonstrations Track.

    Example:
        >>> wasserstein_per_point(np.array([[0.0], [1.0]]), np.array([[3.0]]))
        array([2.5])
    """
    one = arguments.finite(samples, "samples")
    two = arguments.finite(reference_samples, "reference_samples")
    if one.shape[1] != two.shape[1] or not min(one.size, two.size):
        raise ValueError(
            "`samples` and `reference_samples` must hold at least one sample of the "
            f"same examples; got the shapes {one.shape} and {two.shape}."
        )
    return transport.mean_cost(one, two, 1)


def _log_normal(
    y: Float[np.ndarray, "..."],
    mean: Float[np.ndarray, "..."],
    std: Float[np.ndarray, "..."],
) -> Float[np.ndarray, "..."]:
    return -(((y - mean) / std) ** 2) / 2 - np.log(std) - math.log(2 * math.pi) / 2


def _regression(
    mean: Float[np.ndarray | Array, "chain draw example *output"],
    targets: Float[np.ndarray | Array, "..."],
    std: Float[np.ndarray | Array, "..."] | None = None,
) -> tuple[Float[np.ndarray, "..."], Float[np.ndarray, "..."], Any]:
    """Means, targets and standard deviations in float64, their shapes checked.

    Raises:
        ValueError: If a standard deviation is not positive.
    """
    mean = arguments.finite(mean, "mean").astype(float)
    targets = arguments.finite(targets, "targets").astype(float)
    arguments.same_shape("targets", targets.shape, mean.shape[2:])
    if std is None:
        return mean, targets, None
    std = arguments.finite(std, "std").astype(float)
    arguments.same_shape("std", std.shape, mean.shape)
    if std.min() <= 0:
        raise ValueError(f"`std` must be positive; the smallest is {std.min()}.")
    return mean, targets, std
