"""A pytree's entries over (chain, column): zarr v3 arrays through tensorstore."""

import math
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
import tensorstore as ts

from symjax import trees
from symjax.store.buckets import Bucket, Place
from symjax.store.files import explained, write_json


Leaves: TypeAlias = dict[str, jax.ShapeDtypeStruct]
"""Path -> shape and dtype of one entry, in the pytree's order."""

Selection: TypeAlias = slice | int | Sequence[int]
"""Which chains or draws; an `int` keeps its axis, with one entry."""


@dataclass(eq=False)
class Group:
    """A folder with one array `(chain, column, *leaf.shape)` for each leaf.

    Attributes:
        folder: Where it is; its name says in errors what the columns are.
        leaves: What one entry is.
        column: Name of the second axis, "draw" or "iteration".
        num_chains: Size of the first axis.
        length: Size of the second axis, as planned.
        chunk_bytes: A chunk holds as many entries of one chain as fit in this, and at
            least one.
        written: Columns that are on the disk, all of them from the first on.
    """

    folder: Place
    leaves: Leaves
    column: str
    num_chains: int
    length: int
    chunk_bytes: int
    written: int

    def create(self) -> None:
        """Lay out the empty arrays, with the group metadata that zarr readers need."""
        groups = {self.folder}
        for path in self.leaves:
            groups.update(self._place(path).parents[: path.count("/") + 1])
        for group in sorted(groups):
            with explained("create", group):
                group.mkdir()
            node = {"zarr_format": 3, "node_type": "group", "attributes": {}}
            write_json(group / "zarr.json", node)
        with explained("create the arrays in", self.folder):
            _wait(
                ts.open(
                    {
                        **self._spec(path),
                        "create": True,
                        "metadata": self._metadata(path),
                    }
                )
                for path in self.leaves
            )

    def write(
        self, tree: Any, start: int, committed: int, chains: np.ndarray | None = None
    ) -> None:
        """Write a pytree with leaves `(chain, n, ...)` into columns `start` on.

        A chunk that holds earlier columns is read, filled up and replaced as a whole:
        its file is written beside it, flushed to the disk, and renamed.

        Args:
            tree: As planned in structure, shapes and dtypes.
            start: First column.
            committed: Columns before this one are not touched.
            chains: Which chains the leaves hold; all by default.

        Raises:
            ValueError: if the columns or the tree are not as planned.
        """
        chains = np.arange(self.num_chains) if chains is None else chains
        values = self._checked(tree, len(chains))
        stop = start + values[0].shape[1]
        if not committed <= start <= self.written or stop > self.length:
            raise ValueError(
                f"`start_{self.column}` must be from {committed} (committed) to "
                f"{self.written} (written), and the end at most {self.length} "
                f"(planned), got {start} to {stop}."
            )
        self.written = start
        if start < stop and len(chains):
            with explained("write to", self.folder):
                _wait(
                    array.oindex[chains, start:stop].write(value)
                    for array, value in zip(self._arrays.values(), values, strict=True)
                )
        self.written = stop

    def read(
        self, paths: Iterable[str], chains: Selection, columns: Selection, stop: int
    ) -> list[np.ndarray]:
        """Read `chains` and `columns`, of the columns before `stop`, and no others."""
        rows = np.atleast_1d(np.arange(self.num_chains)[chains])
        cells = np.atleast_1d(np.arange(stop)[columns])
        if not (rows.size and cells.size):  # tensorstore would look for a chunk.
            leaves = [self.leaves[path] for path in paths]
            shape = (rows.size, cells.size)
            return [np.empty((*shape, *leaf.shape), leaf.dtype) for leaf in leaves]
        with explained("read", self.folder):
            return _wait(
                self._arrays[path].oindex[rows, cells].read() for path in paths
            )

    def _checked(self, tree: Any, num_chains: int) -> list[np.ndarray]:
        if trees.paths(tree) != list(self.leaves):
            raise ValueError(
                f"`{self.folder.name}` must have the leaves {list(self.leaves)}, got "
                f"{trees.paths(tree)}."
            )
        values = [np.asarray(leaf) for leaf in jax.tree.leaves(tree)]
        count = values[0].shape[1:2]
        for value, (path, leaf) in zip(values, self.leaves.items(), strict=True):
            shape = (num_chains, *count, *leaf.shape)
            if value.shape != shape or value.dtype != leaf.dtype:
                raise ValueError(
                    f"`{self.folder.name}` must have {leaf.dtype.name} {shape} at "
                    f"{path or 'its one leaf'}, got {value.dtype.name} {value.shape}."
                )
        return values

    @cached_property
    def _arrays(self) -> dict[str, ts.TensorStore]:
        with explained("open the arrays in", self.folder):
            opened = _wait(
                ts.open({**self._spec(path), "open": True}) for path in self.leaves
            )
        return dict(zip(self.leaves, opened, strict=True))

    def _place(self, path: str) -> Place:
        """The folder of an array; a pytree that is one array has the empty path."""
        return self.folder / (path or "value")

    def _spec(self, path: str) -> dict[str, Any]:
        place = self._place(path)
        if isinstance(place, Bucket):
            kvstore = place.spec()
        else:
            # It refuses the dots of ../RUN.
            path = os.path.realpath(place)
            kvstore = {"driver": "file", "path": path, "file_io_sync": True}
        return {
            "driver": "zarr3",
            "kvstore": kvstore,
            # Zeros make a file like any others, so that a lost file is an error.
            "store_data_equal_to_fill_value": True,
            "fill_missing_data_reads": False,
        }

    def _metadata(self, path: str) -> dict[str, Any]:
        leaf = self.leaves[path]
        entry_bytes = max(1, math.prod(leaf.shape) * leaf.dtype.itemsize)
        per_chunk = min(self.length, max(1, self.chunk_bytes // entry_bytes))
        chunk = {"chunk_shape": [1, per_chunk, *leaf.shape]}
        is_float = jnp.issubdtype(leaf.dtype, jnp.floating)
        name = self._place(path).name
        axes = [f"{name}_dim_{i}" for i in range(len(leaf.shape))]
        return {
            "shape": [self.num_chains, self.length, *leaf.shape],
            "data_type": leaf.dtype.name,
            "chunk_grid": {"name": "regular", "configuration": chunk},
            # Uncompressed: draws are noise, and a chunk of constant size overwrites all
            # that a killed process left in the file beside it.
            "codecs": [
                {"name": "bytes", "configuration": {"endian": "little"}},
                {"name": "crc32c"},
            ],
            **({"fill_value": "NaN"} if is_float else {}),
            "dimension_names": ["chain", self.column, *axes],
        }


def _wait(futures: Iterable[Any]) -> list[Any]:
    """All results; an error is raised when nothing is under way any more."""
    futures = list(futures)
    for future in futures:
        future.exception()
    return [future.result() for future in futures]
