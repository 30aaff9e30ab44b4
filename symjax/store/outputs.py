"""Predictions of a run's draws on one set of inputs, kept beside the draws.

A folder of two files: `outputs.npy`, whose shape is that of all planned draws, and
`record.json`, which says of which inputs they are and how many are there. Blocks are on
the disk before the record is replaced, so that what it counts is whole whenever the
process is killed.
"""

import math
import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float, Shaped

from symjax.store.files import StoreError, explained, flush, read_json, write_json


_RECORD = "record.json"
_OUTPUTS = "outputs.npy"
_REMEDY = "Delete the folder; the predictions are then made again."


@dataclass(frozen=True, eq=False)
class StoredPredictions:
    """Outputs `(chain, draw, example, output)`, of which the first draws are there.

    Attributes:
        folder: Where they are.
        shape: Of all that are planned.
    """

    folder: Path
    shape: tuple[int, int, int, int]

    @property
    def done(self) -> int:
        """How many predictions count: of all chains of one draw, then of the next."""
        return read_json(self.folder / _RECORD)["done"]

    def missing(self, num_draws: int, most: int) -> Iterator[tuple[slice, slice]]:
        """The `blocks` that the first `num_draws` draws lack, in the order to write."""
        yield from blocks(self.shape[0], num_draws, most, done=self.done)

    def write(
        self,
        chains: slice,
        draws: slice,
        outputs: Float[np.ndarray, "chain draw example output"],
    ) -> None:
        """Write one of the `missing` blocks, and count it once it is on the disk."""
        file = self.folder / _OUTPUTS
        entry = 4 * math.prod(self.shape[2:])
        with explained("write", file), file.open("r+b") as stream:
            _skip_header(stream)
            begin = stream.tell()
            for chain, block in zip(
                range(chains.start, chains.stop), outputs, strict=True
            ):
                stream.seek(begin + entry * (chain * self.shape[1] + draws.start))
                stream.write(np.ascontiguousarray(block, "<f4").data)
            stream.flush()
            os.fsync(stream.fileno())
        record = read_json(self.folder / _RECORD)
        done = (draws.stop - 1) * self.shape[0] + chains.stop
        write_json(self.folder / _RECORD, record | {"done": done})

    def read(self, num_draws: int) -> Float[np.ndarray, "chain draw example output"]:
        """The outputs of the first draws, read from the disk as they are used.

        Raises:
            StoreError: if the file is not what was written.
        """
        file = self.folder / _OUTPUTS
        with explained("read", file, _REMEDY):
            outputs = np.load(file, mmap_mode="r", allow_pickle=False)
        if outputs.shape != self.shape or outputs.dtype != np.float32:
            raise StoreError(
                f"{file} must hold float32 {self.shape}, but holds {outputs.dtype} "
                f"{outputs.shape}. {_REMEDY}"
            )
        return outputs[:, :num_draws]


def open_predictions(
    folder: Path, fingerprint: str, shape: tuple[int, int, int, int]
) -> StoredPredictions:
    """Predictions to be read or gone on with; begun anew where there are others.

    Args:
        folder: A folder of theirs.
        fingerprint: Of the run and the inputs.
        shape: `(chain, draw, example, output)`, of all planned draws.
    """
    kept = StoredPredictions(folder, shape)
    made_of = {"fingerprint": fingerprint, "shape": list(shape)}
    if _record(folder).items() >= made_of.items():
        return kept
    with explained("create", folder):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        with (folder / _OUTPUTS).open("wb") as stream:
            header = {"descr": "<f4", "fortran_order": False, "shape": shape}
            np.lib.format.write_array_header_1_0(stream, header)
            # No space is taken before it is written to.
            stream.truncate(stream.tell() + 4 * math.prod(shape))
        flush(folder)
    write_json(folder / _RECORD, made_of | {"done": 0})
    return kept


def blocks(
    num_chains: int, num_draws: int, most: int, done: int = 0
) -> Iterator[tuple[slice, slice]]:
    """Draws of all chains a few at a time: of one draw, then of the next.

    Args:
        num_chains: Chains.
        num_draws: Draws of each.
        most: In a block, of one draw of one chain each.
        done: How many have been.

    Yields:
        Which chains and which draws.
    """
    draw, chain = divmod(done, num_chains)
    group = most // num_chains
    while draw < num_draws:
        if chain or not group:
            stop = min(chain + most, num_chains)
            yield slice(chain, stop), slice(draw, draw + 1)
            draw, chain = draw + stop // num_chains, stop % num_chains
        else:
            stop = min(draw + group, num_draws)
            yield slice(0, num_chains), slice(draw, stop)
            draw = stop


def read_averages(
    file: Path, fingerprint: str
) -> Shaped[np.ndarray, "chain draw example output"] | None:
    """What `write_averages` kept of the same run, draws and inputs; else None."""
    if not file.exists():
        return None
    with (
        explained("read", file, "Delete it; it is then made again."),
        np.load(file, allow_pickle=False) as kept,
    ):
        return kept["outputs"] if str(kept["fingerprint"]) == fingerprint else None


def write_averages(
    file: Path,
    fingerprint: str,
    outputs: Shaped[np.ndarray, "chain draw example output"],
) -> None:
    """Replace a file of few outputs in one step."""
    partial = file.with_name(file.name + ".tmp")
    with explained("write", file):
        file.parent.mkdir(parents=True, exist_ok=True)
        try:
            with partial.open("wb") as stream:
                np.savez(stream, outputs=outputs, fingerprint=fingerprint)
                stream.flush()
                os.fsync(stream.fileno())
            os.replace(partial, file)
        finally:
            partial.unlink(missing_ok=True)


def _record(folder: Path) -> dict[str, Any]:
    """What a folder of predictions says of itself; empty where there is none."""
    file = folder / _RECORD
    return read_json(file) if file.exists() else {}


def _skip_header(stream: Any) -> None:
    """Go to where the numbers of an .npy file begin."""
    np.lib.format.read_magic(stream)
    np.lib.format.read_array_header_1_0(stream)
