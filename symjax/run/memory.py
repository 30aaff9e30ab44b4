"""A run kept in the host's memory, for runs without a directory."""

from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from symjax import mesh as meshes
from symjax.store import Commit, Run
from symjax.types import Params


class Memory:
    """Takes what `store.Run` takes; nothing survives the process."""

    def __init__(self) -> None:
        self.committed = Commit(iteration=0, num_draws=0, finished=False)
        self._draws: list[Params] = []
        self._infos: list[Any] = []
        self.warmup: Params = None
        self.fitted: dict[str, list[float]] | None = None

    def append(
        self,
        draws: Params | None,
        start_draw: int,
        info: Any | None,
        start_iteration: int,
        chains: np.ndarray | None = None,
    ) -> None:
        """Keep draws `(chain, n, ...)` and Info `(chain, m)` after those before."""
        del start_draw, start_iteration, chains
        if draws is not None:
            self._draws.append(draws)
        if info is not None:
            self._infos.append(info)

    def keep_warmup(self, params: Params, chains: np.ndarray | None = None) -> None:
        """Keep where the chains are after their warm-up, `(chain, ...)`."""
        del chains
        self.warmup = params

    def keep_fitted(self, fitted: dict[str, list[float]]) -> None:
        """Keep what is said of the members of an approximation."""
        self.fitted = fitted

    is_saved = True

    def commit(  # noqa: PLR0913
        self,
        state: Any,
        *,
        iteration: int,
        num_draws: int,
        finished: bool = False,
        wait: bool = True,
    ) -> None:
        """Nothing to do: memory is as durable as it gets."""

    def settle(self) -> None:
        """Nothing to wait for."""

    def read(self) -> Params:
        """All draws, leaves `(chain, draw, ...)`."""
        return jax.tree.map(lambda *parts: np.concatenate(parts, 1), *self._draws)

    def info(self) -> dict[str, Any]:
        """Info of all iterations, fields `(chain, iteration)`."""
        whole = jax.tree.map(lambda *parts: np.concatenate(parts, 1), *self._infos)
        return whole._asdict()


def reading_of(kept: Run | Memory) -> Callable[[Any], meshes.Own]:
    """A host writes its own chains into a run directory, and remembers all of them."""
    return meshes.read_all if isinstance(kept, Memory) else meshes.read_own
