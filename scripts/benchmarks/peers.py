"""Side by side with what one would use instead: time a leapfrog, effective samples.

One model, data, prior, step and length, in one run: HMC of symjax, of blackjax and of
numpyro (the kernels in one loop, and numpyro's own `MCMC`), and one written in PyTorch,
with and without `torch.compile`, where torch can be imported; it runs one chain, and is
compared for each chain. What numpyro's `MCMC` traces and compiles again at each run is
in its times. The step is what symjax's warm-up finds, or `--step-size`.
"""

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from numpyro.infer import HMC, MCMC

from benchmarks import contenders, figures, problems, sampling, torch_hmc
from benchmarks.problems import Scale, WithPeers


Peer: TypeAlias = Literal[
    "symjax", "blackjax", "numpyro", "numpyro MCMC", "torch", "torch.compile"
]


@dataclass(frozen=True)
class Peers:
    """symjax beside blackjax, numpyro and PyTorch."""

    problem: WithPeers = "digits"
    scale: Scale = "full"
    peers: tuple[Peer, ...] = (
        "symjax", "blackjax", "numpyro", "numpyro MCMC", "torch", "torch.compile",
    )  # fmt: skip
    num_chains: int = 4
    num_leapfrogs: int = 50
    step_size: float | None = None
    """Default: of symjax's warm-up."""
    force: str | None = None
    """Precision of all gradients; of torch, TF32 unless it is float32."""
    micro_batch: int | None = None
    prior_std: float = 1.0
    num_climb: int = 500
    """Optimisation steps before the chains begin."""
    num_warmup: int = 100
    num_draws: int = 100
    """Of each chain, in each repeat."""
    repeats: int = 5
    out: Path = figures.OUT


def main(options):
    problem = problems.build(
        options.problem,
        options.scale,
        force=options.force,
        micro_batch=options.micro_batch,
        std=options.prior_std,
    )
    params = sampling.climb(problem, options.num_chains, options.num_climb)
    step_size = options.step_size or 1e-2
    if options.num_warmup:
        length = options.num_leapfrogs * step_size
        settled = sampling.settle(
            problem,
            params,
            length=length,
            num_warmup=options.num_warmup,
            step_size=step_size,
        )
        params, found = settled
        step_size = options.step_size or found
    calls, notes = {}, [f"Step size {step_size:.3g}."]
    for name in options.peers:
        if "torch" in name and not torch_hmc.available():
            notes.append(f"{name} is left out: torch cannot be imported.")
            continue
        if name == "numpyro MCMC":
            notes.append("numpyro MCMC compiles again in every run, which counts.")
        calls[name] = _peer(name, problem, params, step_size, options)
    figures.report("peers", options, _compare(problem, calls, options, notes), notes)


def _peer(name, problem, params, step_size, options):
    """A call that makes draws: `() -> predictions (chain, draw, example)`."""
    if "torch" in name:
        return _torch(name, problem, params, step_size, options)
    if name == "numpyro MCMC":
        return _mcmc(problem, params, step_size, options)
    build = contenders.CONTENDERS[name]
    init, step = build(problem.log_density, step_size, options.num_leapfrogs)
    begin, sample = sampling.sampler(
        problem, init, step, contenders.position, options.num_draws
    )
    keys = jax.random.split(jax.random.key(3), options.num_chains)
    states, number = [begin(keys, params, problem.data)], iter(range(10**6))

    def run():
        now = jax.vmap(jax.random.fold_in, (0, None))(keys, next(number))
        state, made, _ = sample(now, states.pop(), problem.data)
        states.append(state)
        return made

    return run


def _mcmc(problem, params, step_size, options):
    """Numpyro's front end, with the chains in one program."""
    make: Any = HMC
    kernel = make(
        potential_fn=lambda p: -problem.log_density(p, problem.data),
        step_size=step_size,
        num_steps=options.num_leapfrogs,
        trajectory_length=None,
        adapt_step_size=False,
        adapt_mass_matrix=False,
    )
    mcmc = MCMC(
        kernel,
        num_warmup=0,
        num_samples=options.num_draws,
        num_chains=options.num_chains,
        chain_method="vectorized",
        progress_bar=False,
    )
    several = options.num_chains > 1
    start = params if several else jax.tree.map(lambda leaf: leaf[0], params)
    x, y = (leaf[: sampling.NUM_PREDICTIONS] for leaf in problem.test[:2])

    @jax.jit
    def predict(draws):
        one = lambda p: jax.nn.softmax(problem.apply(p, x))[jnp.arange(len(y)), y]
        return jax.lax.map(lambda chain: jax.lax.map(one, chain), draws)

    key = jax.random.key(3)
    runs = iter(range(10**6))

    def run():
        mcmc.run(jax.random.fold_in(key, next(runs)), init_params=start)
        mcmc.post_warmup_state = mcmc.last_state
        return predict(mcmc.get_samples(group_by_chain=True))

    return run


def _torch(name, problem, params, step_size, options):
    one = jax.device_get(jax.tree.map(lambda leaf: leaf[0], params))
    is_resnet = options.problem == "resnet"
    chain = torch_hmc.Sampler(
        torch_hmc.resnet if is_resnet else torch_hmc.mlp,
        one,
        problem.data,
        std=options.prior_std,
        force=options.force,
        micro_batch=options.micro_batch,
        compiles=name == "torch.compile",
    )
    _check(problem, chain, one)
    test = problem.test[:2]
    x, y = (np.asarray(leaf)[: sampling.NUM_PREDICTIONS] for leaf in test)

    def run():
        made = []
        for _ in range(options.num_draws):
            chain.transition(step_size, options.num_leapfrogs)
            made.append(chain.predict(x, y))
        return np.array(made)[None]

    return run


def _check(problem, chain, params):
    """Require the log posterior of both to be the same up to the prior's constant."""
    value, slope = chain.gradient(chain.params)
    expected = jax.jit(jax.value_and_grad(problem.log_density))(params, problem.data)
    ours = torch_hmc.to_torch(jax.device_get(expected[1]))
    for path, leaf in slope.items():
        error = (leaf - ours[path]).norm() / (1e-6 + ours[path].norm())
        assert float(error) < 0.02, f"{path}: {float(error)}, value {float(value)}"


def _compare(problem, calls, options, notes):
    made, taken = {name: [] for name in calls}, {name: [] for name in calls}
    # The first two are not timed: numpyro compiles for its start, and then once more.
    for repeat in range(-2, options.repeats):
        for name, call in calls.items():
            begin = time.perf_counter()
            predictions = jax.block_until_ready(call())
            seconds = time.perf_counter() - begin
            if repeat >= 0:
                made[name].append(np.asarray(predictions))
                taken[name].append(seconds / len(predictions))
    case = f"{problem.name}, {options.num_chains} chains"
    case += f", {options.num_leapfrogs} leapfrogs"
    found, rates, ours = [], {}, "symjax"
    for name in calls:
        one = 1e3 * np.array(taken[name]) / (options.num_draws * options.num_leapfrogs)
        sizes = [sampling.sample_size(draws) / len(draws) for draws in made[name]]
        rates[name] = np.array(sizes) / taken[name]
        if options.num_draws > 1 and all(map(sampling.stands_still, made[name])):
            notes.append(f"{name} moved no chain: its time is not that of a sampler.")
        found += [
            figures.figure(case, f"{name}, a leapfrog of a chain", "ms", one),
            figures.figure(case, f"{name}, effective samples", "1/s", rates[name]),
        ]
    for name in [name for name in calls if ours in calls and name != ours]:
        ratio = np.array(taken[ours]) / taken[name]
        words = f"a leapfrog of {ours} over {name}"
        # To be faster than what compiles again is no feat.
        goal = None if name == "numpyro MCMC" else 1.0
        found.append(figures.figure(case, words, "x", ratio, at_most=goal))
    return found
