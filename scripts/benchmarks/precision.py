"""HMC with forces of several precisions, the accept step always in full float32.

For each: the step size that its own warm-up finds for the same acceptance; then
acceptance, seconds and effective samples (of test predictions) a second. Beside it, at
the step size of the first, the true change of energy over a trajectory, in float64 on
the CPU, and how far the accept step's own change is from that.
"""

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks import figures, problems, sampling
from benchmarks.problems import Name, Scale
from symjax import energies, hamiltonian
from symjax.samplers import hmc


@dataclass(frozen=True)
class Precision:
    """Acceptance, effective samples a second and errors of energies, by force."""

    problem: Name = "mnist"
    scale: Scale = "full"
    forces: tuple[str, ...] = ("float32", "tensorfloat32", "float16", "bfloat16")
    """Values of `force_precision`, and for resnet on a GPU: 'float16, fused'."""
    num_examples: int | None = None
    """Default: all."""
    micro_batch: int | None = None
    prior_std: float = 0.1
    length: float = 0.05
    """Of a trajectory, for all; the leapfrogs follow the step size."""
    step_size: float = 1e-3
    """The first one of the warm-up."""
    target: float = 0.8
    """Acceptance."""
    num_chains: int = 2
    num_climb: int = 300
    num_warmup: int = 60
    num_draws: int = 60
    """Of each chain, in each repeat; 0 leaves out acceptance and samples."""
    num_energies: int = 8
    """Trajectories whose energies are computed in float64; 0 leaves this out."""
    lengths: tuple[float, ...] = ()
    """Of these trajectories. Default: that of the chains."""
    repeats: int = 3
    out: Path = figures.OUT


def main(options):
    built = {
        force: problems.build(
            options.problem,
            options.scale,
            force=force,
            micro_batch=options.micro_batch,
            num_examples=options.num_examples,
            std=options.prior_std,
        )
        for force in options.forces
    }
    first = built[options.forces[0]]
    modes = sampling.climb(first, options.num_chains, options.num_climb)
    found, runs, base = [], {}, None
    for force, problem in built.items():
        if base is None or options.num_draws:
            settled = sampling.settle(
                problem,
                modes,
                length=options.length,
                num_warmup=options.num_warmup,
                step_size=options.step_size,
                target=options.target,
            )
            base = base or settled
            runs[force] = _sampler(problem, settled, options)
        if options.num_energies:
            found += _energies(problem, force, base, options)
    if options.num_draws:
        found = [*_compare(first, runs, options), *found]
    figures.report("precision", options, found)


def _sampler(problem, settled, options):
    """A call that goes on sampling: its seconds, predictions and Info."""
    num_steps = hamiltonian.count_steps(options.length, settled.step_size)
    algorithm = hmc.build(
        problem.log_density, step_size=settled.step_size, num_steps=num_steps
    )
    begin, sample = sampling.sampler(
        problem,
        algorithm.init,
        algorithm.step,
        lambda state: state.position,
        options.num_draws,
    )
    keys = jax.random.split(jax.random.key(3), options.num_chains)
    states = [begin(keys, settled.params, problem.data)]
    results: list[Any] = []

    def run():
        now = jax.vmap(jax.random.fold_in, (0, None))(keys, len(results))
        state, made, info = sample(now, states.pop(), problem.data)
        states.append(state)
        results.append((made, info))
        return made

    return run, results, settled.step_size, num_steps


def _compare(problem, runs, options):
    calls = {force: run[0] for force, run in runs.items()}
    taken = figures.interleaved(calls, options.repeats)
    found, rates = [], {}
    for force, (_, results, step_size, num_steps) in runs.items():
        case = f"{problem.name}, force {force}"
        kept = results[1:]  # The first is not timed.
        acceptance = [np.mean(info.acceptance_rate) for _, info in kept]
        sizes = np.array([sampling.sample_size(made) for made, _ in kept])
        rates[force] = sizes / taken[force]
        leapfrog = 1e3 * taken[force] / (options.num_draws * num_steps)
        found += [
            figures.figure(case, "step size", "", step_size),
            figures.figure(case, "acceptance", "", acceptance),
            figures.figure(case, "a leapfrog of all chains", "ms", leapfrog),
            figures.figure(case, "effective samples", "1/s", rates[force]),
        ]
        first = options.forces[0]
        if force != first:
            words = f"effective samples a second, over {first}"
            ratio = rates[force] / rates[first]
            found.append(figures.figure(case, words, "x", ratio))
    return found


def _energies(problem, force, settled, options):
    """Trajectories of the first chain, their energies here and in float64."""
    position = jax.tree.map(lambda leaf: leaf[0], settled.params)

    @jax.jit
    def trajectory(key, position, data, num_steps):
        start = hamiltonian.evaluate(problem.log_density, position, data)
        momentum_key, _ = jax.random.split(key)
        metric = energies.metric(1.0)
        momentum = metric.sample_momentum(momentum_key, position)
        _, outcome, end = hamiltonian.transition(
            key,
            start,
            problem.log_density,
            data,
            step_size=jnp.float32(settled.step_size),
            inverse_mass_matrix=1.0,
            num_leapfrogs=num_steps,
        )
        return outcome.energy_change, momentum, end.position, end.momentum

    found = []
    for length in options.lengths or (options.length,):
        num_steps = hamiltonian.count_steps(length, settled.step_size)
        true, ours = [], []
        for key in jax.random.split(jax.random.key(4), options.num_energies):
            made = trajectory(key, position, problem.data, num_steps)
            change, *points = jax.device_get(made)
            ours.append(float(change))
            start = jax.device_get(position)
            true.append(_change_in_float64(problem, start, *points))
        error = np.abs(np.array(ours) - true)
        case = f"{problem.name}, force {force}, step {settled.step_size:.3g} of "
        case += f"{options.forces[0]}, {num_steps} leapfrogs"
        found += [
            figures.figure(case, "true change of energy", "nats", true),
            figures.figure(case, "error of the accept step's", "nats", error),
        ]
    return found


def _change_in_float64(problem, start, momentum, end, end_momentum):
    """The energy of the end less that of the start, on the CPU."""
    cpu = jax.devices("cpu")[0]
    with jax.enable_x64(True), jax.default_device(cpu):
        double = partial(jax.tree.map, lambda x: jnp.asarray(np.asarray(x, np.float64)))
        x, y, mask = map(np.asarray, problem.data)
        density, total = problem.log_density, 0.0
        likelihood = jax.jit(lambda p, x, y: density.likelihood(density.apply(p, x), y))
        sides = double(start), double(end)
        for begin in range(0, len(y), 5000):
            rows = slice(begin, begin + 5000)
            some = jnp.asarray(x[rows], jnp.float64), jnp.asarray(y[rows])
            before, after = (likelihood(p, *some) for p in sides)
            total += float(jnp.sum(jnp.where(mask[rows], after - before, 0.0)))
        total += float(density.prior.difference(*sides))
        squares = [
            float(sum(np.sum(np.square(leaf, dtype=np.float64)) for leaf in leaves))
            for leaves in map(jax.tree.leaves, (momentum, end_momentum))
        ]
    return (squares[1] - squares[0]) / 2 - total
