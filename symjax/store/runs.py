"""`Run`: what can be done with the folder of one run."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import jax
import numpy as np

from symjax import hosts
from symjax.store import commits, environment
from symjax.store.arrays import Group, Leaves, Selection
from symjax.store.buckets import Place
from symjax.store.commits import Commit, Ledger
from symjax.store.files import read_json, write_json
from symjax.store.leaves import StoredLeaf, builder
from symjax.types import Params


DRAW_CHUNK_BYTES = 2**20
INFO_CHUNK_BYTES = 64 * 2**10
_FITTED = "fitted.json"


@dataclass(frozen=True, eq=False)
class Run:
    """A run directory. Make one with `create`, find one with `open`.

    Attributes:
        path: The folder, or that of a bucket.
        config: The resolved configuration it began with.
        environment: Versions, devices and git commit it began with.
        created: When, ISO 8601, UTC.
        num_chains: Chains, or members of an ensemble.
        num_draws: Draws planned for each chain.
        num_iterations: Iterations planned, warm-up included.
        kept: The iterations (from 0) after which a draw is kept, one for each draw;
            None where draws do not belong to iterations.
        leaves: Path, shape and dtype of every leaf of one draw.
        fields: The same for the Info of one iteration.
    """

    path: Place
    config: dict[str, Any]
    environment: dict[str, str]
    created: str
    num_chains: int
    num_draws: int
    num_iterations: int
    kept: range | None
    leaves: Leaves
    fields: Leaves

    @cached_property
    def draw_arrays(self) -> Group:
        """What lies in `draws/`."""
        written = self.committed.num_draws
        return self._group("draws", self.leaves, "draw", self.num_draws, written)

    @cached_property
    def warmup_arrays(self) -> Group:
        """What lies in `warmup/`."""
        return self._group("warmup", self.leaves, "draw", 1, 0)

    @cached_property
    def info_arrays(self) -> Group:
        """What lies in `info/`."""
        written, length = self.committed.iteration, self.num_iterations
        return self._group("info", self.fields, "iteration", length, written)

    def _group(
        self, name: str, leaves: Leaves, column: str, length: int, written: int
    ) -> Group:
        size = DRAW_CHUNK_BYTES if column == "draw" else INFO_CHUNK_BYTES
        folder = self.path / name
        return Group(folder, leaves, column, self.num_chains, length, size, written)

    @property
    def num_discarded(self) -> int:
        """First iterations, of which no draw is kept."""
        return 0 if self.kept is None else self.kept.start + 1 - self.kept.step

    @property
    def kept_iterations(self) -> list[int]:
        """Those that gave the committed draws, fewer than planned in a run cut short.

        Empty where the run does not record them.
        """
        return [] if self.kept is None else [*self.kept[: self.committed.num_draws]]

    @property
    def committed(self) -> Commit:
        """The commit record, as it is on the disk now."""
        return commits.read(self.path)

    @cached_property
    def _ledger(self) -> Ledger:
        return Ledger(self.path)

    def append(
        self,
        draws: Params,
        start_draw: int,
        info: Any,
        start_iteration: int,
        chains: np.ndarray | None = None,
    ) -> None:
        """Write draws and Info behind the committed ones; readers don't see them yet.

        Args:
            draws: Params pytree, leaves `(chain, n, ...)`; None for no draws.
            start_draw: Number of the first draw.
            info: Info, fields `(chain, m)`; None for none.
            start_iteration: Number of the first iteration.
            chains: Which chains the leaves hold; all by default.
        """
        done = self._ledger.last
        if draws is not None:
            self.draw_arrays.write(draws, start_draw, done.num_draws, chains)
        if info is not None:
            self.info_arrays.write(info, start_iteration, done.iteration, chains)

    def keep_warmup(self, params: Params, chains: np.ndarray | None = None) -> None:
        """Write where chains are, `(chain, ...)`, after what is discarded."""
        alone = jax.tree.map(lambda leaf: np.asarray(leaf)[:, None], params)
        self.warmup_arrays.write(alone, 0, 0, chains)

    def keep_fitted(self, fitted: dict[str, list[float]]) -> None:
        """Write what is said of an approximation's members: by name, a number each."""
        if hosts.is_first():
            write_json(self.path / _FITTED, fitted)

    @property
    def fitted(self) -> dict[str, list[float]] | None:
        """What an approximation says of its members, by name; None if nothing."""
        file = self.path / _FITTED
        return read_json(file) if file.exists() else None

    def commit(
        self,
        state: Any,
        *,
        iteration: int,
        num_draws: int,
        finished: bool = False,
        wait: bool = True,
    ) -> None:
        """Save the sampler's state, then make everything appended count.

        At an iteration whose state is already committed, only the record is replaced.
        To be called by all hosts.

        Args:
            state: Pytree of arrays, typed PRNG keys included.
            iteration: Iterations done.
            num_draws: Draws appended of each chain.
            finished: Whether the run is at its end.
            wait: False to go on while the state is being saved: what was appended then
                counts from the next `settle` or `commit` on.

        Raises:
            ValueError: if the record would go back, or past what was appended.
        """  # noqa: DOC502
        self.settle()
        record = Commit(iteration, num_draws, finished, has_state=True)
        written = self.info_arrays.written, self.draw_arrays.written
        commits.check(record, self._ledger.last, *written)
        self._ledger.begin(record, state)
        if wait:
            self.settle()

    @property
    def is_saved(self) -> bool:
        """Whether `settle` need not wait, as far as this host knows."""
        return self._ledger.is_saved

    def settle(self) -> None:
        """Wait for the state that is being saved, if one is; to be called by all hosts.

        What was appended before it then counts.
        """
        self._ledger.settle()

    def restore(self, like: Any) -> Any:
        """Read the committed state, bit for bit what was committed.

        Args:
            like: A state of the same structure, concrete or of `ShapeDtypeStruct`s;
                its shardings are those of the result.

        Returns:
            The state.

        Raises:
            StoreError: if no state was committed yet, or it can't be read.
        """  # noqa: DOC502
        from symjax.store import states  # Its Orbax takes long to import.

        iteration = commits.require_state(self.path, self.committed)
        # Chunks that will be filled up must be whole: better told now than in hours.
        for group in (self.draw_arrays, self.info_arrays):
            group.read(group.leaves, slice(None), slice(-1, None), group.written)
        return states.restore(self.path / "state", iteration, like)

    def read(
        self,
        *,
        chains: Selection = slice(None),
        draws: Selection = slice(None),
        like: Params = None,
    ) -> Params:
        """Read committed draws, no more of them than asked.

        Args:
            chains: Which chains.
            draws: Which of the committed draws.
            like: A params pytree whose structure the result takes. Without it, the
                result is a nest of dicts by path, as flax's params are.

        Returns:
            NumPy arrays `(chain, draw, ...)`.
        """
        build = builder(list(self.leaves), like)
        stop = self.committed.num_draws
        return build(self.draw_arrays.read(self.leaves, chains, draws, stop))

    def warmup(self, like: Params = None) -> Params:
        """Where the chains were before the first iteration that counts.

        It belongs to no draw, so that whatever draws are compared with, such as what
        they are aligned to, can be taken from it. Of an approximation, it is where the
        optimisation of each member ended.

        Args:
            like: A params pytree whose structure the result takes, as in `read`.

        Returns:
            NumPy arrays `(chain, ...)`; None for a run without a warm-up, or whose
            warm-up or optimisation is not over.
        """
        before = self.num_iterations if self.kept is None else self.num_discarded
        is_over = 0 < before <= self.committed.iteration
        if not is_over or not self.warmup_arrays.folder.exists():
            return None
        values = self.warmup_arrays.read(self.leaves, slice(None), slice(None), 1)
        return builder(list(self.leaves), like)([value[:, 0] for value in values])

    def lazy(self, like: Params = None) -> Params:
        """The committed draws, read only when they are indexed.

        For `evaluation.predict` and `evaluation.summarise`, which then hold few of
        them at a time.

        Args:
            like: A params pytree whose structure the result takes, as in `read`.

        Returns:
            `StoredLeaf`s `(chain, draw, ...)`.
        """
        stop, arrays = self.committed.num_draws, self.draw_arrays
        leaves = [StoredLeaf(arrays, path, stop) for path in self.leaves]
        return builder(list(self.leaves), like)(leaves)

    def read_leaf(
        self,
        path: str,
        *,
        chains: Selection = slice(None),
        draws: Selection = slice(None),
    ) -> np.ndarray:
        """Read committed draws of one leaf, such as `params/Dense_0/kernel`.

        Args:
            path: One of `leaves`.
            chains: Which chains.
            draws: Which of the committed draws.

        Returns:
            `(chain, draw, ...)`.

        Raises:
            ValueError: if there is no such leaf.
        """
        if path not in self.leaves:
            names = ", ".join(self.leaves)
            raise ValueError(f"`path` must be one of {names}, got {path!r}.")
        return self.draw_arrays.read([path], chains, draws, self.committed.num_draws)[0]

    def info(self) -> dict[str, np.ndarray]:
        """Every field of Info, `(chain, iteration)`, of the committed iterations."""
        stop = self.committed.iteration
        values = self.info_arrays.read(self.fields, slice(None), slice(None), stop)
        return dict(zip(self.fields, values, strict=True))

    def check_config(self, config: Mapping[str, Any]) -> list[str]:
        """Require the configuration the run began with.

        Args:
            config: The configuration to continue with.

        Returns:
            What else changed (versions, devices, git commit), one sentence each: draws
            to come may then differ from those of an uninterrupted run.

        Raises:
            ValueError: naming the first entry that differs, and both values.
        """  # noqa: DOC502
        environment.require_same(self.path, self.config, config)
        return environment.changes(self.environment)
