"""Our samplers against the reference draws of twelve posteriors of posteriordb.

Each posterior is sampled on numpyro's unconstrained space, made round by the curvature
at its mode (a linear map, so that the density stays what it is), by 16 chains in
float64. Of every parameter the mean, standard deviation, 5 % and 95 % quantile are
compared with those of the 10,000 reference draws, in units of the joint Monte-Carlo
error. numpyro's own NUTS on the same models, not made round, says whether the models
themselves are right.

    python scripts/check_posteriordb.py --only garch-garch11 arK-arK --samplers hmc
    python scripts/check_posteriordb.py --table-only   # from the results that are there

Writes one JSON a posterior, so that several processes can share the work, and table.md.
The largest of 28 independent scores is below 3.5 in 99 of 100 cases.
"""

import json
import time
from dataclasses import dataclass
from pathlib import Path

import jax
import jax.numpy as jnp
import moments
import numpy as np
import posteriordb
import scipy.optimize
import tyro
from jax.flatten_util import ravel_pytree
from numpyro.infer import MCMC, NUTS
from sampler_table import SAMPLERS, Shape

from symjax import interop, mesh, run


NAMES = ("HMC", "NUTS", "ChEES", "MCLMC")
ORACLE = "numpyro NUTS"


@dataclass(frozen=True)
class Options:
    """Twelve posteriors, our samplers and numpyro's NUTS."""

    only: tuple[str, ...] = tuple(posteriordb.MODELS)
    """Posteriors to sample."""
    samplers: tuple[str, ...] = (ORACLE, *NAMES)
    """Samplers to run; others keep the results that are there."""
    num_chains: int = 16
    num_draws: int = 1000
    num_warmup: int = 500
    """Iterations that adapt the step size, discarded."""
    table_only: bool = False
    """Sample nothing, write the table of the results that are there."""
    out: Path = Path("runs/posteriordb")
    seed: int = 0


def main():
    options = tyro.cli(Options, description=__doc__)
    jax.config.update("jax_enable_x64", True)
    options.out.mkdir(parents=True, exist_ok=True)
    for name in () if options.table_only else options.only:
        path = options.out / f"{name}.json"
        results = json.loads(path.read_text()) if path.exists() else {}
        for sampler in options.samplers:
            results[sampler] = check(posteriordb.load(name), sampler, options)
            print(f"{name:40s} {sampler:14s} {results[sampler]}", flush=True)
            path.write_text(json.dumps(results, indent=2))
    text = table(options.out)
    (options.out / "table.md").write_text(text)
    print(text)


def check(posterior, sampler, options):
    """The scores of one sampler on one posterior, and what they cost."""
    start = time.perf_counter()
    sample = numpyro_nuts if sampler == ORACLE else ours
    draws, num_gradients = sample(posterior, sampler, options)
    draws = posteriordb.quantities(draws, posterior.reference)
    scores = {
        name: moments.scores(
            moments.of_draws(leaf), moments.of_draws(posterior.reference[name])
        ).tolist()
        for name, leaf in draws.items()
    }
    return {
        "largest": float(np.abs(list(scores.values())).max()),
        "gradients": num_gradients,
        "sample_size": min(map(moments.sample_size, draws.values())),
        "rhat": max(map(moments.rhat, draws.values())),
        "seconds": time.perf_counter() - start,
        "scores": scores,
    }


def ours(posterior, sampler, options):
    """Draws of a sampler of symjax by site, and all its gradients, warm-up included."""
    line = SAMPLERS[sampler]
    key = jax.random.key(options.seed)
    target = interop.from_numpyro(
        key, posterior.model, options.num_chains, kwargs=posterior.data
    )
    centre, factor, unravel = round_off(target)

    def log_density(params, data):
        return target.log_density(unravel(centre + factor @ params), data)

    algorithm = line.build(
        interop.Density(log_density),
        Shape(1.0, 1.0, len(centre)),
        line.slow_warmup * options.num_warmup,
    )
    result = run.sample(
        key,
        algorithm,
        jax.random.normal(key, (options.num_chains, len(centre))),
        target.data,
        num_draws=options.num_draws,
        thinning=line.thinning,
        mesh=mesh.make_mesh(options.num_chains, jax.devices()[:1]),
    )
    draws = jax.vmap(jax.vmap(unravel))(centre + result.draws @ factor.T)
    return target.constrain(draws), int(line.gradients(result.info))


def round_off(target):
    """The mode, and a map that makes the curvature there 1 in all directions."""
    first = jax.tree.map(lambda leaf: leaf[0], target.params)
    _, unravel = ravel_pytree(first)

    @jax.jit
    def energy(flat):
        return -target.log_density(unravel(flat), target.data)

    gradient, curvature = jax.jit(jax.grad(energy)), jax.jit(jax.hessian(energy))
    starts = jax.vmap(lambda p: ravel_pytree(p)[0])(target.params)
    with np.errstate(all="ignore"):
        ends = [
            scipy.optimize.minimize(
                lambda x: np.nan_to_num(float(energy(x)), nan=1e30, posinf=1e30),
                start,
                jac=lambda x: np.nan_to_num(np.asarray(gradient(x))),
                method="BFGS",
            )
            for start in np.asarray(starts)
        ]
    best = min(ends, key=lambda end: end.fun)
    covariance = np.linalg.inv(np.asarray(curvature(best.x)))
    return jnp.asarray(best.x), jnp.asarray(np.linalg.cholesky(covariance)), unravel


def numpyro_nuts(posterior, sampler, options):
    """Draws by site and gradients after the warm-up, with a dense mass matrix."""
    del sampler
    mcmc = MCMC(
        NUTS(posterior.model, dense_mass=True, target_accept_prob=0.9),
        num_warmup=2 * options.num_warmup,
        num_samples=options.num_draws,
        num_chains=options.num_chains,
        chain_method="vectorized",
        progress_bar=False,
    )
    extra = ("num_steps",)
    mcmc.run(jax.random.key(options.seed), extra_fields=extra, **posterior.data)
    gradients = int(mcmc.get_extra_fields()["num_steps"].sum())
    return mcmc.get_samples(group_by_chain=True), gradients


def table(folder):
    """Of each posterior and sampler: largest score, and gradients in thousands."""
    found = {name: folder / f"{name}.json" for name in posteriordb.MODELS}
    results = {n: json.loads(p.read_text()) for n, p in found.items() if p.exists()}
    samplers = [
        name
        for name in (ORACLE, *NAMES)
        if any(name in result for result in results.values())
    ]

    def cell(entry):
        if entry is None:
            return ""
        return f"{entry['largest']:.1f} ({entry['gradients'] / 1000:,.0f}k)"

    rows = [
        [f"`{name.split('-', 1)[1]}`", *(cell(result.get(s)) for s in samplers)]
        for name, result in results.items()
    ]
    return moments.table(["posterior", *samplers], rows)


if __name__ == "__main__":
    main()
