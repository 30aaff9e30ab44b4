"""Simulation-based calibration of samplers on a tiny network.

Parameters from the prior, data from the likelihood, draws from the posterior of these
data: the rank of what was drawn among them is uniform (Talts et al. 2018, theorem 1).
A U-shaped histogram is a posterior too narrow, a hill one too wide, a slope a bias.

The samplers are lines of `sampler_table.py`, but not all: chains of ChEES, MEADS and
tempered HMC look at one another, and here each has data of its own. Generalised HMC
stands for MEADS, with numbers given. Of the samplers without accept step, whose bias
`check_bias.py` shows, only BAOAB is here.

    python scripts/check_calibration.py
    python scripts/check_calibration.py --only MALA 'split HMC' --num-simulations 6000

Prints p-values of chi-square tests and the effective draws among the ranks' draws, and
writes calibration.png.
"""

from dataclasses import dataclass
from pathlib import Path

import jax
import jax.numpy as jnp
import moments
import numpy as np
import numpyro.distributions as dist
import papers
import sampler_table
import scipy.stats
import tyro

from symjax import checks, densities, posterior
from symjax.plots import style
from symjax.samplers import ghmc
from symjax.types import Data


X = np.linspace(-2, 2, 8)[:, None]
NOISE = 0.5
NUM_DRAWS = 15
"""Draws a simulation, hence 16 ranks."""
QUANTITIES = ("f(-2)", "f(0)", "f(2)", "squared norm")


def network(params, x):
    """1-2-1, tanh: 7 weights."""
    first, bias, last, shift = jnp.split(params, [2, 4, 6])
    return jnp.tanh(x * first + bias) @ last[:, None] + shift


LOG_POSTERIOR = posterior.build(
    network, densities.Prior(dist.Normal(0.0, 1.0)), densities.gaussian(NOISE)
)

SHAPE = sampler_table.Shape(smallest=0.1, largest=1.0, num_params=7, batch_size=8)
"""Of the posteriors. By the curvature at parameters from the prior the smallest has the
median 0.12 and the 1 % quantile 0.06 over data sets."""
NUM_WARMUP = 200
"""Iterations of each simulation that warm up; `slow_warmup` times as many by a line."""
SPACING = 25
"""From one draw to the next, in units of a line's `thinning`: more than there, since
the draws of a simulation should be independent."""

SAMPLERS = {
    name: sampler_table.SAMPLERS[name]
    for name in (
        "HMC",
        "jittered HMC",
        "NUTS",
        "MALA",
        "split HMC",
        "adjusted MCLMC",
        "BAOAB",
    )
}
SAMPLERS["generalised HMC"] = sampler_table.SAMPLERS["MEADS"]._replace(
    # By the rules of MEADS, of the shape instead of the chains.
    build=lambda density, s, _: ghmc.build(
        density, step_size=0.5 * s.smallest, damping=1 / s.largest
    )
)


@dataclass(frozen=True)
class Options:
    """Rank histograms."""

    only: tuple[str, ...] = ("HMC", "NUTS", "BAOAB")
    """Samplers; with no name behind it, all."""
    num_simulations: int = 2000
    out: Path = Path("runs/calibration")


def ranks(sampler, num_simulations):
    """Ranks `(simulation, quantity)`, and draws `(simulation, draw, quantity)`."""
    num_warmup = sampler.slow_warmup * NUM_WARMUP
    thinning = sampler.thinning * SPACING
    algorithm = sampler.build(LOG_POSTERIOR, SHAPE, num_warmup)

    def quantities(params):
        at = network(params, jnp.array([[-2.0], [0.0], [2.0]]))[:, 0]
        return jnp.append(at, jnp.sum(params**2))

    @jax.jit
    @jax.vmap
    def simulate(key):
        keys = jax.random.split(key, 5)
        truth = jax.random.normal(keys[0], (7,))
        noise = NOISE * jax.random.normal(keys[1], X.shape)
        y = network(truth, jnp.asarray(X, truth.dtype)) + noise
        data = Data(jnp.asarray(X, y.dtype), y, jnp.ones(len(X), bool))
        start = jax.random.normal(keys[2], (7,))
        state = algorithm.init(keys[3], start, data)
        state = jax.tree.map(lambda leaf: jnp.asarray(leaf, leaf.dtype), state)

        def step(index, state):
            return algorithm.step(jax.random.fold_in(keys[4], index), state, data)[0]

        state = jax.lax.fori_loop(0, num_warmup, step, state)

        def draw(state, index):
            first = num_warmup + index * thinning
            state = jax.lax.fori_loop(first, first + thinning, step, state)
            return state, quantities(state.position)

        draws = jax.lax.scan(draw, state, jnp.arange(NUM_DRAWS))[1]
        return jnp.sum(draws < quantities(truth), axis=0), draws

    found = simulate(jax.random.split(jax.random.key(0), num_simulations))
    return tuple(map(np.asarray, found))


def p_values(found):
    """Of chi-square tests that the ranks of each quantity are uniform."""
    counts = [np.bincount(column, minlength=NUM_DRAWS + 1) for column in found.T]
    return np.array([scipy.stats.chisquare(count).pvalue for count in counts])


def share_effective(draws):
    """Effective draws for each draw, of the slowest quantity.

    Within simulations: independent draws give a little more than 1, as each is compared
    with the mean of only 15.
    """
    centred = draws - draws.mean(axis=(0, 1))
    sizes = [
        moments.sample_size(centred[..., i] - centred[..., i].mean(1, keepdims=True))
        for i in range(centred.shape[-1])
    ]
    return min(sizes) / centred[..., 0].size


def main():
    options = tyro.cli(Options, description=__doc__)
    papers.require_known(options.only, list(SAMPLERS))
    checks.at_least(1, num_simulations=options.num_simulations)
    names = options.only or tuple(SAMPLERS)
    options.out.mkdir(parents=True, exist_ok=True)
    shape = len(names), len(QUANTITIES)
    fig = style.figure(1.4 * shape[0])
    axes = fig.subplots(*shape, sharex=True, sharey=True, squeeze=False)
    band = scipy.stats.binom.interval(0.99, options.num_simulations, 1 / 16)
    for row, name in zip(axes, names, strict=True):
        found, draws = ranks(SAMPLERS[name], options.num_simulations)
        print(name, p_values(found), f"{share_effective(draws):.2f}")
        for ax, column, quantity in zip(row, found.T, QUANTITIES, strict=True):
            ax.axhspan(*band, color=style.WASH)
            counts = np.bincount(column, minlength=NUM_DRAWS + 1)
            ax.bar(np.arange(NUM_DRAWS + 1), counts, color=style.ACCENT, width=0.9)
            style.dress(ax, title=f"{name}, {quantity}", columns=4)
    fig.savefig(options.out / "calibration.png", dpi=150)


if __name__ == "__main__":
    papers.start(main)
