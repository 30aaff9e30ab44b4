"""Sampler states in object stores: arrays through tensorstore, then a list of them.

Orbax can't write its checkpoints to s3://, and to gs:// only with TensorFlow or gcsfs
besides. A state here is one zarr v3 array a leaf, of which each host writes the parts
on its devices, and a list of the leaves that host 0 writes when all hosts are done.
"""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import tensorstore as ts

from symjax import hosts
from symjax.store.buckets import Bucket
from symjax.store.files import StoreError, explained, read_json, write_json


KEPT = 3
"""States, the newest ones."""
_LIST = "leaves.json"


@dataclass(frozen=True, eq=False)
class BucketSaving:
    """A state that is on its way to an object store.

    Attributes:
        place: Of the state.
        leaves: Path -> dtype and shape.
        futures: Of this host's parts.
    """

    place: Bucket
    leaves: dict[str, list[Any]]
    futures: list[Any]

    @property
    def is_done(self) -> bool:
        """Whether this host's parts are there.

        Raises:
            StoreError: if one could not be written.
        """  # noqa: DOC502
        if not all(future.done() for future in self.futures):
            return False
        with explained("save the sampler state in", self.place):
            for future in self.futures:
                future.result()
        return True

    def wait(self) -> None:
        """Wait until the state is there. To be called by all hosts."""
        with explained("save the sampler state in", self.place):
            for future in self.futures:
                future.exception()
            for future in self.futures:
                future.result()
        hosts.barrier("state")
        if hosts.is_first():
            write_json(self.place / _LIST, self.leaves)


def save(
    folder: Bucket, step: int, named: dict[str, jax.Array], committed: int | None
) -> BucketSaving:
    """Begin to save arrays as `step`; on all hosts, and one save at a time.

    Args:
        folder: Where the steps are.
        step: Its number.
        named: Path -> array.
        committed: The step of the commit record, if there is one: of earlier steps two
            are kept, later ones are deleted.
    """
    place = folder / str(step)
    with explained("save the sampler state in", place):
        if hosts.is_first():
            _delete_others(folder, committed)
            for number, leaf in enumerate(named.values()):
                ts.open(_spec(place, number) | _metadata(leaf), create=True).result()
        hosts.barrier("state arrays")
        futures = []
        for number, leaf in enumerate(named.values()):
            array = ts.open(_spec(place, number)).result()
            futures += [
                # A copy: the chains go on, and may write over what they were given.
                array[part.index].write(np.array(part.data))
                for part in leaf.addressable_shards
                if part.replica_id == 0
            ]
    leaves = {path: [leaf.dtype.name, list(leaf.shape)] for path, leaf in named.items()}
    return BucketSaving(place, leaves, futures)


def describe(place: Bucket) -> dict[str, jax.ShapeDtypeStruct]:
    """Path -> shape and dtype of the arrays of a state.

    Raises:
        StoreError: if there is none, or not a whole one.
    """
    if not (place / _LIST).exists():
        raise StoreError(
            f"There is no whole sampler state in {place}. Begin a new run."
        )
    return {
        path: jax.ShapeDtypeStruct(tuple(shape), jnp.dtype(dtype))
        for path, (dtype, shape) in read_json(place / _LIST).items()
    }


def restore(
    place: Bucket, target: dict[str, jax.ShapeDtypeStruct]
) -> dict[str, jax.Array]:
    """Read the arrays of a state, each host the parts that its devices are to hold.

    Args:
        place: Of the state.
        target: What `describe` told, with the shardings to have.
    """
    numbers = {path: number for number, path in enumerate(read_json(place / _LIST))}
    found = {}
    for path, leaf in target.items():
        array = ts.open(_spec(place, numbers[path])).result()

        def read(index: Any, array: ts.TensorStore = array) -> np.ndarray:
            return array[index].read().result()

        found[path] = jax.make_array_from_callback(leaf.shape, leaf.sharding, read)
    return found


def _delete_others(folder: Bucket, committed: int | None) -> None:
    steps = sorted(int(step.name) for step in folder.iterdir())
    earlier = [step for step in steps if committed is not None and step <= committed]
    for step in set(steps) - set(earlier[1 - KEPT :]):
        (folder / str(step)).remove()


def _spec(place: Bucket, number: int) -> dict[str, Any]:
    return {
        "driver": "zarr3",
        "kvstore": (place / str(number)).spec(),
        # Zeros are written like any others, so that a lost object is an error.
        "store_data_equal_to_fill_value": True,
        "fill_missing_data_reads": False,
    }


def _metadata(leaf: jax.Array) -> dict[str, Any]:
    """A chunk is what one device holds, so that no two hosts write the same one."""
    shape = leaf.sharding.shard_shape(leaf.shape)
    chunk = {"chunk_shape": [max(1, size) for size in shape]}
    codecs = [
        {"name": "bytes", "configuration": {"endian": "little"}},
        {"name": "crc32c"},
    ]
    return {
        "metadata": {
            "shape": list(leaf.shape),
            "data_type": leaf.dtype.name,
            "chunk_grid": {"name": "regular", "configuration": chunk},
            "codecs": codecs,
        }
    }
