"""The end of a fit: what was fitted, and the draws from it."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import jax
import numpy as np
from jax.sharding import PartitionSpec as P
from threadpoolctl import threadpool_limits

from symjax import mesh as meshes
from symjax.run.chunks import Programs, all_finite
from symjax.run.errors import NonFiniteError
from symjax.run.memory import Memory, reading_of
from symjax.store import Run
from symjax.types import Keys


def conclude(
    programs: Programs,
    kept: Run | Memory,
    iteration: int,
    state: Any,
    draw: Callable[[Any, Any], Any],
) -> None:
    """Keep where members' optimisation ended, and what is drawn and told of them.

    Args:
        programs: Of the run.
        kept: Where.
        iteration: Steps done.
        state: The last, of all members.
        draw: `(key, fitted) -> draws, told`, of one member.
    """
    read = reading_of(kept)
    ends = read(state.position)
    kept.keep_warmup(ends.values, ends.chains)
    # Killed from here on, a run goes on with the finish.
    kept.commit(state, iteration=iteration, num_draws=0)
    fitted = state
    if programs.finish is not None:
        with _lone_decompositions():
            fitted, finite = programs.finish(programs.keys[:, 3], state, programs.data)
            finite = meshes.read_all(finite).values
        _check_members("fitted by", finite)

    def draw_all(keys: Keys, fitted: Any) -> Any:
        draws, told = jax.vmap(draw)(keys, fitted)
        return draws, told, all_finite(draws)

    drawing = programs.compiled(draw_all, P("chain"), P("chain"))
    made, *small = drawing(programs.keys[:, 2], fitted)
    told, finite = meshes.read_all(small).values
    # A finite state may stand for deviations that are not.
    _check_members("drawn from", finite)
    chains, draws = read(made)
    kept.append(draws, 0, None, iteration, chains)
    if told is not None:
        kept.keep_fitted({k: v.tolist() for k, v in told._asdict().items()})


@contextmanager
def _lone_decompositions() -> Iterator[None]:
    """Let matrices be decomposed on several devices of one CPU.

    jaxlib calls SciPy's OpenBLAS for it, whose threads wait for each other for ever
    when several devices call it at once: an eigh of 550 rows on 8 virtual devices hangs
    with jaxlib 0.10 and SciPy 1.17. With one thread a call it does not.
    """
    devices = jax.local_devices()
    if devices[0].platform != "cpu" or len(devices) == 1:
        yield
        return
    with threadpool_limits(1, user_api="blas"):
        yield


def _check_members(what: str, is_finite: np.ndarray) -> None:
    """Require what is finite of all members.

    Raises:
        NonFiniteError: naming the others.
    """
    if not is_finite.all():
        members = ", ".join(map(str, np.flatnonzero(~is_finite)))
        raise NonFiniteError(
            f"What was {what} member {members} is not finite. Make `learning_rate` "
            "smaller, or optimise for longer."
        )
