"""What a run requires of its sampler, its schedule and its parameters."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from symjax.types import Params


def restart_at(num_warmup: int) -> int:
    """Half of the warm-up.

    Raises:
        ValueError: if that is too short to tell who stands still.
    """
    if num_warmup < 40:
        raise ValueError(
            "`restart_stuck` needs a warm-up of at least 40 iterations, in which to "
            f"see which chains stand still, got {num_warmup}."
        )
    return num_warmup // 2


def check_dtypes(params: Params) -> None:
    """Require the precision of step sizes and noise, which a step would change to.

    Raises:
        TypeError: naming the leaf.
    """
    wanted = jnp.zeros(()).dtype
    for path, leaf in jax.tree_util.tree_leaves_with_path(params):
        found = jnp.result_type(leaf)
        if jnp.issubdtype(found, jnp.floating) and found != wanted:
            where = f" at {jax.tree_util.keystr(path)}" if path else ""
            raise TypeError(
                f"`params` must be {wanted} on every leaf, got {found}{where}. "
                "Convert it with `astype`."
            )


def check_restart(info: Any) -> None:
    """Require chains that can be stuck, and of which one may take another's place.

    Raises:
        ValueError: if they can't or may not.
    """
    if not hasattr(info, "is_accepted"):
        raise ValueError(
            "`restart_stuck` must be left out for a sampler without accept step, whose "
            "chains do not stand still."
        )
    if hasattr(info, "temperature"):
        raise ValueError(
            "`restart_stuck` must be left out for chains of different temperatures: "
            "one can't take another's place, and swaps free them."
        )


def check_schedule(schedule: Callable[[Any], Any] | None, total: int) -> None:
    """Require a positive step size to the end of the run, at up to 10,000 iterations.

    Raises:
        ValueError: naming the first iteration without one.
    """
    if schedule is None:
        return
    iterations = np.unique(np.linspace(0, total - 1, min(total, 10_000)).astype(int))
    sizes = np.asarray(jax.jit(jax.vmap(schedule))(iterations))
    bad = np.flatnonzero(~(np.isfinite(sizes) & (sizes > 0)))
    if len(bad):
        raise ValueError(
            f"`step_size` must be positive for all {total} iterations of the run, got "
            f"{sizes[bad[0]]:.3g} at iteration {iterations[bad[0]]}. Make the schedule "
            "as long as the run, warm-up included, or give it an end above 0."
        )
