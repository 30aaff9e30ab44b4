"""The step-halving check of an unadjusted sampler, made when its run is finished.

The chains go on from where they ended, with half the step size and twice the thinning,
and their predictive spread is compared with that of the run. What is found lies in the
run directory as `bias.json`.
"""

import time
from typing import Any, Literal

import jax
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec as P
from rich.console import Console

from symjax import evaluation, hosts, run, store
from symjax.cli import methods, starts
from symjax.cli.options import Sample
from symjax.cli.posteriors import Posterior
from symjax.evaluation import SpreadComparison
from symjax.evaluation.bias import MIN_DRAWS
from symjax.types import Algorithm


SHARE = 5
"""The check makes this many times fewer draws than the run, at twice the steps each."""

MAX_EXAMPLES = 1000
"""Test points whose predictions are compared."""


def is_wanted(command: Sample) -> bool:
    """Whether a run is of an unadjusted sampler and is to be checked."""
    return command.bias_check and command.sampler in methods.UNADJUSTED


def num_iterations(command: Sample) -> int:
    """Iterations of the check, those before its first draw included; 0 without one."""
    num_draws = _num_draws(command.num_draws)
    if not is_wanted(command) or command.num_draws < num_draws:
        return 0
    return 2 * command.thinning * (num_draws + num_draws // 4)


def check(
    command: Sample, built: Posterior, path: store.Place, console: Console
) -> None:
    """Make the check for a finished run, say what it found, and record it."""
    if hosts.share((path / "bias.json").exists()):
        return
    kept = store.open(path)
    # Fewer than asked for, if the time was up.
    made = kept.committed.num_draws
    num_draws = _num_draws(made)
    if made < num_draws:
        console.print(
            "Whether the step size biases the sampler was not checked: that takes "
            f"{num_draws} draws a chain.",
            highlight=False,
        )
        return
    start = time.monotonic()
    console.print(
        f"Checking the step size's bias: {num_draws} draws a chain at half of it.",
        highlight=False,
    )
    try:
        compared = _compare(command, built, kept, num_draws)
        if compared is None:
            return
    except (ValueError, run.NonFiniteError) as error:
        console.print(
            f"[bold]Warning:[/bold] the step size's bias was not checked. {error}",
            highlight=False,
        )
        return
    found = compared._asdict() | {"seconds": time.monotonic() - start}
    store.write_json(path / "bias.json", found)
    from symjax import report  # It draws, and so takes long to import.

    console.print(report.bias_finding(path.name, compared).text, highlight=False)


def read(kept: store.Run) -> SpreadComparison | Literal["unchecked"] | None:
    """What a report says of a run's bias."""
    file = kept.path / "bias.json"
    if not file.exists():
        options = kept.config.get("options", {})
        return "unchecked" if options.get("sampler") in methods.UNADJUSTED else None
    found = store.read_json(file)
    return SpreadComparison(**{name: found[name] for name in SpreadComparison._fields})


def _num_draws(made: int) -> int:
    return max(MIN_DRAWS, made // SHARE)


def _compare(
    command: Sample, built: Posterior, kept: store.Run, num_draws: int
) -> SpreadComparison | None:
    """The comparison, on host 0; None on others, which only sample."""
    algorithm, halve = methods.halve(command, built)
    state = _last_state(command, built, kept)
    result = run.sample(
        jax.random.fold_in(jax.random.key(command.seed), 1),
        Algorithm(lambda key, state, data: halve(state), algorithm.step),
        state,
        built.dataset.train,
        num_draws=num_draws,
        thinning=2 * command.thinning,
        num_burn_in=2 * command.thinning * (num_draws // 4),
        mesh=starts.make_mesh(command),
        chains_at_once=command.processes.chains_at_once,
    )
    if not hosts.is_first():
        return None
    return evaluation.compare_spread(
        _predictions(built, kept.lazy(built.shapes)),
        _predictions(built, result.draws),
    )


def _last_state(command: Sample, built: Posterior, kept: store.Run) -> Any:
    """Where the chains ended, on the devices."""
    algorithm: Any = methods.build(command, built)

    def begin(key: Any, train: Any) -> Any:
        return algorithm.init(key, built.init(key), train)

    keys = jax.random.split(jax.random.key(0), command.num_chains)
    sharding = NamedSharding(starts.make_mesh(command), P("chain"))
    shapes = jax.tree.map(
        lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=sharding),
        jax.eval_shape(jax.vmap(begin, (0, None)), keys, built.dataset.train),
    )
    return kept.restore(shapes)


def _predictions(built: Posterior, draws: Any) -> np.ndarray:
    """Probabilities, or the means of a regression."""
    outputs = evaluation.predict(
        built.apply, draws, built.dataset.test.x[:MAX_EXAMPLES]
    )
    if built.read_outputs is None:
        return evaluation.probs_by_draw(outputs)
    return np.asarray(built.read_outputs(outputs)[0])
