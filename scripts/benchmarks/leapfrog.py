"""HMC's time a leapfrog over that of bare gradients, and beside its peers.

All with the same number of gradients of the same log posterior, step and length; the
bare loop computes value and gradient and adds the gradient once. What HMC does once a
transition (momentum, both energies, the choice) counts.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import jax

from benchmarks import figures, problems
from benchmarks.contenders import CONTENDERS
from benchmarks.problems import Name, Scale


NUM_STEPS = {"digits": 50, "mnist": 100, "resnet": 20, "lenet": 50, "cnn_lstm": 20}
"""Leapfrogs of a transition."""


@dataclass(frozen=True)
class Leapfrog:
    """A leapfrog of HMC over a bare gradient; beside blackjax and numpyro."""

    problems: tuple[Name, ...] = ("digits",)
    """digits: MLP 64-32-10, mnist: MLP 784-512-512-512-10, resnet: ResNet-20-FRN of
    50,000 images, lenet: LeNet-5 of 2,000, cnn_lstm: the CNN-LSTM of 5,000 texts."""
    scale: Scale = "full"
    contenders: tuple[Literal["symjax", "blackjax", "numpyro"], ...] = (
        "symjax",
        "blackjax",
        "numpyro",
    )
    num_chains: int | None = None
    """Default: 4 of digits, 1 of the others."""
    num_leapfrogs: int | None = None
    """Of a transition. Default: 50, of mnist 100, of resnet and cnn_lstm 20."""
    num_transitions: int | None = None
    """Between two looks at the clock. Default: 10 of digits, 1 of the others."""
    force: str | None = None
    """Precision of the gradient."""
    micro_batch: int | None = None
    repeats: int = 9
    out: Path = figures.OUT


def main(options):
    found = []
    for name in options.problems:
        found += _measure(name, options)
    notes = ["Memory: arguments, results and scratch of the compiled transitions."]
    figures.report("leapfrog", options, found, notes)


def _measure(name, options):
    problem = problems.build(
        name, options.scale, force=options.force, micro_batch=options.micro_batch
    )
    is_small = name == "digits"
    num_chains = options.num_chains or (4 if is_small else 1)
    num_steps = options.num_leapfrogs or NUM_STEPS[name]
    num_transitions = problems.num_transitions(name, options.num_transitions)
    params = problems.starts(problem, num_chains)
    keys = jax.random.split(jax.random.key(1), num_chains)
    count = num_steps * num_transitions
    bare = problems.gradients(problem, count).lower(params, problem.data).compile()
    calls = {"bare": lambda: bare(params, problem.data)}
    held = {"bare": figures.memory(bare)}
    for contender in options.contenders:
        init, step = CONTENDERS[contender](problem.log_density, 1e-4, num_steps)
        begin, advance = problems.transitions(init, step, num_transitions)
        state = begin(keys, params, problem.data)
        program = advance.lower(keys, state, problem.data).compile()
        held[contender] = figures.memory(program)
        calls[contender] = lambda run=program, at=state: run(keys, at, problem.data)
    times = figures.interleaved(calls, options.repeats)
    case = f"{problem.name}, {num_chains} chains, {num_steps} leapfrogs"
    found = [figures.figure(case, "bare gradient", "ms", 1e3 * times["bare"] / count)]
    for contender in options.contenders:
        ratio = times[contender] / times["bare"]
        goal = 1.03 if contender == "symjax" else None
        words = f"{contender} over bare gradients"
        found.append(figures.figure(case, words, "x", ratio, at_most=goal))
    for contender in options.contenders:
        if "symjax" in times and contender != "symjax":
            ratio = times["symjax"] / times[contender]
            words = f"symjax over {contender}"
            found.append(figures.figure(case, words, "x", ratio, at_most=1.0))
    found += [
        figures.figure(case, f"memory, {contender}", "MB", num_bytes / 1e6)
        for contender, num_bytes in held.items()
        if num_bytes is not None
    ]
    return found
