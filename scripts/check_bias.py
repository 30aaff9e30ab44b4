"""The bias of the unadjusted samplers as a function of their step size.

Independent coordinates of density exp(-x^2 / 2 - cos(1.5 x + 0.5) / 2), exact
gradients, thousands of chains in float64: how far the mean of x^2 is from its value by
quadrature. The order
is the slope of its logarithm: 1 for SGLD and SGNHT, 2 for the symmetric splittings and
for SGHMC. (Its friction is of the first order, but on a Gaussian of variance s^2 its
positions have the variance s^2 / (1 - e^2 / (2 s^2 (2 - a e))). SGNHT's thermostat
holds the mean of p^2 at 1, where SGHMC has 1 / (1 - a e / 2), and so cools positions.)

    python scripts/check_bias.py --only BAOAB SGLD
    python scripts/check_bias.py --plot-only           # from the results that are there

Writes one JSON a sampler and bias.png. Points within three standard errors of no bias
are hollow and not in the fit.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import scipy.integrate
import tyro

from symjax import interop
from symjax.plots import style
from symjax.samplers import baoab, mclmc, sghmc, sgld, sgnht, sms_ubu


class Line(NamedTuple):
    """A sampler of one step size, the step sizes to try, and the predicted order."""

    build: Callable
    step_sizes: tuple[float, ...]
    order: int


LINES = {
    "SGLD": Line(
        lambda density, h: sgld.build(density, step_size=h, batch_size=1),
        (0.01, 0.015, 0.022, 0.033, 0.05),
        1,
    ),
    "SGHMC": Line(
        lambda density, h: sghmc.build(
            density, step_size=h, friction=1.0, batch_size=1
        ),
        (0.16, 0.2, 0.25, 0.31, 0.38),
        2,
    ),
    "SGNHT": Line(
        lambda density, h: sgnht.build(
            density, step_size=h, friction=2.0, batch_size=1
        ),
        (0.02, 0.03, 0.045, 0.065, 0.09),
        1,
    ),
    "BAOAB": Line(
        lambda density, h: baoab.build(
            density, step_size=h, friction=0.5, batch_size=1
        ),
        (0.35, 0.42, 0.5, 0.6, 0.7),
        2,
    ),
    "SMS-UBU": Line(
        lambda density, h: sms_ubu.build(
            density, step_size=h, friction=1.0, batch_size=1
        ),
        (0.2, 0.26, 0.34, 0.44, 0.57),
        2,
    ),
    "MCLMC": Line(
        lambda density, h: mclmc.build(density, step_size=h, decoherence_length=2.0),
        (0.8, 1.0, 1.25, 1.55, 1.9),
        2,
    ),
}


@dataclass(frozen=True)
class Options:
    """Bias by step size."""

    only: tuple[str, ...] = tuple(LINES)
    """Samplers to run; others keep the results that are there."""
    num_chains: int = 4096
    num_params: int = 8
    time: float = 600.0
    """Way of a chain in units of its step size, after a tenth that is left out."""
    plot_only: bool = False
    """Sample nothing, draw the results that are there."""
    out: Path = Path("runs/bias")


def log_density(x):
    return -jnp.sum(x**2 / 2 + jnp.cos(1.5 * x + 0.5) / 2)


def exact():
    """The mean of x^2, by quadrature."""

    def integral(power):
        return scipy.integrate.quad(
            lambda x: x**power * np.exp(-(x**2) / 2 - np.cos(1.5 * x + 0.5) / 2),
            -12,
            12,
            epsabs=1e-12,
        )[0]

    return integral(2) / integral(0)


def main():
    options = tyro.cli(Options, description=__doc__)
    jax.config.update("jax_enable_x64", True)
    options.out.mkdir(parents=True, exist_ok=True)
    for name in () if options.plot_only else options.only:
        line = LINES[name]
        points = [measure(line, h, options) for h in line.step_sizes]
        (options.out / f"{name}.json").write_text(json.dumps(points))
        slope, error = fit(np.array(points))
        print(f"{name:10s} order {slope:.2f} +- {error:.2f}, predicted {line.order}")
    found = {name: options.out / f"{name}.json" for name in LINES}
    results = {
        name: np.array(json.loads(path.read_text()))
        for name, path in found.items()
        if path.exists()
    }
    draw(results).savefig(options.out / "bias.png", dpi=150)


def measure(line, step_size, options):
    """Step size, relative bias of the mean of x^2, and its standard error."""
    algorithm = line.build(interop.from_function(log_density), step_size)
    num_steps = int(options.time / step_size)
    num_first = num_steps // 10

    @jax.jit
    @jax.vmap
    def chain(key):
        start_key, init_key, key = jax.random.split(key, 3)
        start = jax.random.normal(start_key, (options.num_params,)) * 0.7
        state = algorithm.init(init_key, start, None)
        state = jax.tree.map(lambda leaf: jnp.asarray(leaf, leaf.dtype), state)

        def advance(index, carry):
            state, total = carry
            state, _ = algorithm.step(jax.random.fold_in(key, index), state, None)
            square = jnp.mean(state.position**2)
            return state, total + jnp.where(index < num_first, 0.0, square)

        total = jax.lax.fori_loop(0, num_steps, advance, (state, 0.0))[1]
        return total / (num_steps - num_first)

    means = np.asarray(chain(jax.random.split(jax.random.key(0), options.num_chains)))
    error = means.std(ddof=1) / np.sqrt(len(means))
    return step_size, means.mean() / exact() - 1, error / exact()


def is_clear(points):
    """Which biases can be told from none."""
    return np.abs(points[:, 1]) > 3 * points[:, 2]


def fit(points):
    """Slope of log |bias| by log step size, and its standard error."""
    points = points[is_clear(points)]
    if len(points) < 2:
        return np.nan, np.nan
    h, bias, error = points.T
    weights = (bias / error) ** 2
    x = np.log(h) - np.average(np.log(h), weights=weights)
    slope = np.sum(weights * x * np.log(np.abs(bias))) / np.sum(weights * x**2)
    return slope, np.sum(weights * x**2) ** -0.5


def draw(results):
    """Bias by step size on logarithmic axes, the orders 1 and 2 beside each other."""
    fig = style.figure(3.6)
    axes = fig.subplots(1, 2, sharey=True)
    for ax, order in zip(axes, (1, 2), strict=True):
        names = [name for name in results if LINES[name].order == order]
        for name, colour in zip(names, style.colours(len(names)), strict=True):
            points = results[name]
            h, bias, error = points.T
            size, clear = 100 * np.abs(bias), is_clear(points)
            slope, slope_error = fit(points)
            ax.errorbar(
                h,
                size,
                100 * error,
                fmt="none",
                color=colour,
                linewidth=1,
            )
            ax.plot(h[~clear], size[~clear], "o", mfc="white", color=colour)
            label = f"{name}: {slope:.2f} ± {slope_error:.2f}"
            ax.plot(h[clear], size[clear], "o", color=colour, label=label, ms=5)
            if clear.any():
                middle = np.exp(np.mean(np.log(size[clear] / h[clear] ** order)))
                ax.plot(h, middle * h**order, color=colour, linewidth=1, alpha=0.6)
        style.dress(
            ax,
            title=f"Predicted order {order}",
            xlabel="step size h",
            ylabel="bias of the mean of x², %" if order == 1 else "",
            columns=2,
        )
        ax.set_xscale("log")
        ax.set_yscale("log")
        ax.set_xticks((0.01, 0.02, 0.05, 0.1) if order == 1 else (0.2, 0.5, 1.0, 2.0))
        if order == 2:
            ax.set_xlim(right=5)  # Room for the legend.
        for axis in (ax.xaxis, ax.yaxis):
            axis.set_major_formatter("{x:g}")
        ax.minorticks_off()
        ax.legend(
            loc=("lower right", "upper right")[order - 1],
            frameon=False,
            fontsize=style.SMALL,
            labelcolor=style.INK,
        )
    return fig


if __name__ == "__main__":
    main()
