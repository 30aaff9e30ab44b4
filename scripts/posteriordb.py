"""Twelve posteriors of the public posteriordb, as numpyro models, with reference draws.

Read by `check_posteriordb.py` and by the tests. Data and draws are not part of this
repository: the environment variable SYMJAX_DATA names the folder that holds
`posteriordb/*.npz` (default ../shared/data), each with `data` (JSON), `parameters`
(names) and `draws/NAME` (chain, draw). Magnusson et al. (2025), posteriordb.

Sites are named as the reference draws: a site `beta` of three numbers gives `beta[1]`,
`beta[2]` and `beta[3]`. A model takes its data by name.
"""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from numpyro.distributions import constraints


STEPS_A_YEAR = 20
"""Of Runge and Kutta's fourth order in `lotka_volterra`: an error below 1e-6."""


class Posterior(NamedTuple):
    """A model, its data by name, and reference draws `(chain, draw)` by name."""

    model: Callable
    data: dict
    reference: dict


def flat(name, support: Any = constraints.real, shape=()) -> Any:
    """A site whose density is 1 on its support."""
    return numpyro.sample(name, dist.ImproperUniform(support, (), shape))


def eight_schools(y, sigma):
    z = numpyro.sample("z", dist.Normal(0.0, 1.0).expand(y.shape))
    mu = numpyro.sample("mu", dist.Normal(0.0, 5.0))
    tau = numpyro.sample("tau", dist.HalfCauchy(5.0))
    theta = numpyro.deterministic("theta", mu + tau * z)
    numpyro.sample("y", dist.Normal(theta, sigma), obs=y)


def kilpisjarvi(x, y, pmualpha, psalpha, pmubeta, psbeta):
    alpha = numpyro.sample("alpha", dist.Normal(pmualpha, psalpha))
    beta = numpyro.sample("beta", dist.Normal(pmubeta, psbeta))
    sigma = flat("sigma", constraints.positive)
    numpyro.sample("y", dist.Normal(alpha + beta * x, sigma), obs=y)


def autoregression(y, K):
    alpha = numpyro.sample("alpha", dist.Normal(0.0, 10.0))
    beta = numpyro.sample("beta", dist.Normal(0.0, 10.0).expand([K]))
    sigma = numpyro.sample("sigma", dist.HalfCauchy(2.5))
    past = jnp.stack([y[K - k - 1 : len(y) - k - 1] for k in range(K)], axis=1)
    numpyro.sample("y", dist.Normal(alpha + past @ beta, sigma), obs=y[K:])


def garch(y, sigma1):
    mu = flat("mu")
    alpha0 = flat("alpha0", constraints.positive)
    alpha1 = flat("alpha1", constraints.unit_interval)
    # numpyro's own MCMC constrains an improper site wrongly if its support depends on
    # another site: a proper one whose density is taken out again.
    beta1 = numpyro.sample("beta1", dist.Uniform(0.0, 1 - alpha1))
    numpyro.factor("flat", jnp.log1p(-alpha1))
    first = jnp.asarray(sigma1**2, y.dtype)

    def advance(variance, error):
        variance = alpha0 + alpha1 * error**2 + beta1 * variance
        return variance, variance

    later = jax.lax.scan(advance, first, (y - mu)[:-1])[1]
    scale = jnp.sqrt(jnp.concatenate([first[None], later]))
    numpyro.sample("y", dist.Normal(mu, scale), obs=y)


def gaussian_process(x, y):
    rho = numpyro.sample("rho", dist.Gamma(25.0, 4.0))
    alpha = numpyro.sample("alpha", dist.HalfNormal(2.0))
    sigma = numpyro.sample("sigma", dist.HalfNormal(1.0))
    squares = (x[:, None] - x) ** 2
    covariance = alpha**2 * jnp.exp(-squares / (2 * rho**2)) + sigma * jnp.eye(len(x))
    numpyro.sample("y", dist.MultivariateNormal(0.0, covariance), obs=y)


def mixture(y):
    mu = flat("mu", constraints.ordered_vector, (2,))
    numpyro.factor("prior of mu", dist.Normal(0.0, 2.0).log_prob(mu).sum())
    sigma = numpyro.sample("sigma", dist.HalfNormal(2.0).expand([2]))
    theta = numpyro.sample("theta", dist.Beta(5.0, 5.0))
    log_share = jnp.log(jnp.stack([theta, 1 - theta]))
    nats = log_share + dist.Normal(mu, sigma).log_prob(y[:, None])
    numpyro.factor("y", jax.nn.logsumexp(nats, axis=1).sum())


def linear(x, y, sigma):
    """A regression whose coefficients are flat, given its scale."""
    beta = flat("beta", constraints.real_vector, (x.shape[1],))
    numpyro.sample("y", dist.Normal(x @ beta, sigma), obs=y)


def earnings(earn, height, male):
    z = (height - height.mean()) / height.std(ddof=1)
    x = jnp.stack([jnp.ones_like(z), z, male, male * z], axis=1)
    linear(x, jnp.log(earn), flat("sigma", constraints.positive))


def kidscore(kid_score, mom_hs, mom_iq):
    sigma = numpyro.sample("sigma", dist.HalfCauchy(2.5))
    x = jnp.stack([jnp.ones_like(mom_iq), mom_hs, mom_iq], axis=1)
    linear(x, kid_score, sigma)


def mesquite(weight, diam1, diam2, canopy_height, total_height, group):
    columns = [
        jnp.ones_like(diam1),
        jnp.log(diam1 * diam2 * canopy_height),
        jnp.log(diam1 * diam2),
        jnp.log(diam1 / diam2),
        jnp.log(total_height),
        group,
    ]
    x = jnp.stack(columns, axis=1)
    linear(x, jnp.log(weight), flat("sigma", constraints.positive))


def regression(X, y):
    beta = numpyro.sample("beta", dist.Normal(0.0, 10.0).expand([X.shape[1]]))
    sigma = numpyro.sample("sigma", dist.HalfNormal(10.0))
    numpyro.sample("y", dist.Normal(X @ beta, sigma), obs=y)


def arma(y):
    mu: Any = numpyro.sample("mu", dist.Normal(0.0, 10.0))
    phi = numpyro.sample("phi", dist.Normal(0.0, 2.0))
    theta = numpyro.sample("theta", dist.Normal(0.0, 2.0))
    sigma = numpyro.sample("sigma", dist.HalfCauchy(2.5))
    innovations = y - mu - phi * jnp.concatenate([mu[None], y[:-1]])

    def advance(error, innovation):
        error = innovation - theta * error
        return error, error

    errors = jax.lax.scan(advance, jnp.zeros((), y.dtype), innovations)[1]
    numpyro.factor("y", dist.Normal(0.0, sigma).log_prob(errors).sum())


def lotka_volterra(y, y_init):
    theta = numpyro.sample(
        "theta",
        dist.TruncatedNormal(
            jnp.array([1.0, 0.05, 1.0, 0.05]),
            jnp.array([0.5, 0.05, 0.5, 0.05]),
            low=0.0,
        ),
    )
    sigma = numpyro.sample("sigma", dist.LogNormal(-1.0, 1.0).expand([2]))
    start = numpyro.sample("z_init", dist.LogNormal(np.log(10.0), 1.0).expand([2]))
    z = populations(theta, start, len(y), STEPS_A_YEAR)
    numpyro.sample("y_init", dist.LogNormal(jnp.log(start), sigma), obs=y_init)
    numpyro.sample("y", dist.LogNormal(jnp.log(z), sigma), obs=y)


def populations(theta: Any, start: Any, num_years, num_steps):
    """Prey and predators after 1, 2, ... years, by Runge and Kutta's fourth order."""

    def slope(z):
        u, v = z
        return jnp.stack(
            [(theta[0] - theta[1] * v) * u, (-theta[2] + theta[3] * u) * v]
        )

    def step(z, _):
        h = 1 / num_steps
        k1 = slope(z)
        k2 = slope(z + h / 2 * k1)
        k3 = slope(z + h / 2 * k2)
        k4 = slope(z + h * k3)
        return z + h / 6 * (k1 + 2 * k2 + 2 * k3 + k4), None

    def year(z, _):
        z = jax.lax.scan(step, z, length=num_steps)[0]
        return z, z

    return jax.lax.scan(year, start, length=num_years)[1]


MODELS = {
    "eight_schools-eight_schools_noncentered": eight_schools,
    "kilpisjarvi_mod-kilpisjarvi": kilpisjarvi,
    "arK-arK": autoregression,
    "garch-garch11": garch,
    "gp_pois_regr-gp_regr": gaussian_process,
    "low_dim_gauss_mix-low_dim_gauss_mix": mixture,
    "earnings-logearn_interaction_z": earnings,
    "kidiq-kidscore_momhsiq": kidscore,
    "mesquite-logmesquite_logvash": mesquite,
    "sblrc-blr": regression,
    "arma-arma11": arma,
    "hudson_lynx_hare-lotka_volterra": lotka_volterra,
}


def folder():
    """Where the data sets lie that the repository doesn't hold."""
    beside = Path(__file__).resolve().parents[2] / "shared" / "data"
    return Path(os.environ.get("SYMJAX_DATA", beside)) / "posteriordb"


def load(name):
    """One of `MODELS`, in float64 where JAX has that enabled."""
    model = MODELS[name]
    with np.load(folder() / f"{name}.npz") as file:
        given = json.loads(str(file["data"]))
        reference = {str(p): np.float64(file[f"draws/{p}"]) for p in file["parameters"]}
    names = model.__code__.co_varnames[: model.__code__.co_argcount]
    data = {
        key: np.array(given[key], float) if isinstance(given[key], list) else given[key]
        for key in names
    }
    return Posterior(model, data, reference)


def quantities(draws, names):
    """Draws `(chain, draw)` by the names of the reference, from those by site."""
    found = {}
    for site, leaf in draws.items():
        leaf = np.asarray(leaf)
        if leaf.ndim == 2:
            found[site] = leaf
        else:
            found |= {f"{site}[{i + 1}]": leaf[..., i] for i in range(leaf.shape[-1])}
    return {name: found[name] for name in names}
