"""Reference bundles: a posterior, its draws and its predictions in one file.

A bundle is what others need to score a method against a reference without sampling it
again. It is an `.npz` file, which needs no symjax to be read, but NumPy, or the modules
`zipfile` and `json`:

    bundle = np.load("digits.npz")
    about = json.loads(bundle["bundle.json"])
    probs = bundle["predictions/probs"].mean(axis=0)     # (example, class)
    labels = bundle["test/labels"]

`bundle.json` says, under these keys, all that is no array:

    format, version  "symjax bundle", and the number of this layout, 1
    name, task       of the data; "classification" or "regression"
    posterior        `problem`: the options of `symjax sample` that define it (network,
                     data, prior, noise, temperature); the same in words; `data`: name,
                     SHA-256 fingerprint and sizes of the data, how targets were scaled
    draws            how many of each chain are stored, of how many of the run, and what
                     rounding them to float16 changed
    diagnostics      of all draws of the run, and of the stored ones after rounding
    provenance       command, seeds, all settings of the sampler, versions, devices
    arrays           name -> [dtype, shape] of every array

Arrays, with the axes in brackets; `kept` are all draws of the run, `draw` the stored:

    draws/PATH                  (chain, draw, ...) float16: one for each leaf of the
                                network's parameters, such as draws/params/Dense_0/bias
    log_posterior               (chain, draw): in nats, up to a constant, as the sampler
                                logged it, before the draws were rounded
    diagnostics/rhat            (example, output): of the probabilities, or the means;
                                rank-normalised split R-hat
    diagnostics/classic_rhat, ess_bulk, ess_tail, mcse_mean   the same axes; mcse_mean
                                is the Monte-Carlo error of the prediction itself

of a classification, averaged over all kept draws, in test order:

    predictions/probs           (chain, example, output): the softmax
    predictions/mean_entropy    (example): of single draws, in nats
    predictions/mean_logits     (example, output)
    predictions/votes           (example, output): draws whose most probable class it is
    test/labels                 (example)

of a regression, in the units of the data:

    predictions/mean, std       (chain, kept, example, output): of every draw's Gaussian
    test/targets                (example, output)

Nothing that is read is trusted: no pickles, no names but those that are listed, no
sizes but those that were said, and nothing is unpacked to the disk.
"""

import io
import json
import os
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Shaped

from symjax.store.bundle_layout import (
    ABOUT,
    FORMAT,
    VERSION,
    DamagedBundleError,
    check,
    num_bytes,
    read_array,
)
from symjax.store.files import StoreError, explained
from symjax.store.leaves import builder
from symjax.types import Params


SHIPPED = Path(__file__).parents[1] / "references"
"""Bundles that come with symjax."""

_SCHEME = "bundle:"
_UNREADABLE = (OSError, EOFError, ValueError, TypeError, RuntimeError, LookupError)
_MAX_ABOUT = 2**20
_MAX_RATIO = 100
"""Arrays may be so many times larger than the file; deflate can do ten times this."""


@dataclass(frozen=True, eq=False)
class Bundle:
    """A bundle; made by `read_bundle`. Its arrays are read when they are asked for.

    Attributes:
        path: The file.
        about: What `bundle.json` says.
    """

    path: Path
    about: dict[str, Any]

    @property
    def name(self) -> str:
        """Of the file, or `bundle:NAME` of one that comes with symjax."""
        if self.path.parent == SHIPPED:
            return f"{_SCHEME}{self.path.stem}"
        return self.path.name

    @property
    def task(self) -> str:
        """Of the data: classification or regression."""
        return self.about["task"]

    @property
    def fingerprint(self) -> str:
        """Of the data, as `data.load` gives it."""
        return self.about["posterior"]["data"]["fingerprint"]

    def read(self, name: str) -> Shaped[np.ndarray, "..."]:
        """One array.

        Args:
            name: Such as "predictions/probs".

        Raises:
            ValueError: if there is no such array.
            DamagedBundleError: if what lies there is not what `bundle.json` says, or
                holds numbers that are not finite.
        """
        if name not in self.about["arrays"]:
            names = ", ".join(self.about["arrays"])
            raise ValueError(f"`name` must be one of {names}, got {name!r}.")
        dtype, shape = self.about["arrays"][name]
        with _opened(self.path) as archive:
            array = read_array(archive, name, np.dtype(dtype), tuple(shape))
        # R-hat of what does not vary is no number, and is left so.
        if not name.startswith("diagnostics/") and not np.isfinite(array).all():
            raise DamagedBundleError(
                self.path, f"{name} holds numbers that are not finite"
            )
        return array

    def draws(self, like: Params = None) -> Params:
        """The stored draws in float32, `(chain, draw, ...)`.

        Args:
            like: A params pytree whose structure the result takes. Without it, the
                result is a nest of dicts by path.
        """
        paths = {
            name.removeprefix("draws").removeprefix("/"): name
            for name in self.about["arrays"]
            if name.split("/")[0] == "draws"
        }
        build = builder(list(paths), like)
        return build([self.read(name).astype(np.float32) for name in paths.values()])


def is_bundle(word: str | os.PathLike[str]) -> bool:
    """Whether this names a bundle: one that comes with symjax, or a file of one."""
    if str(word).startswith(_SCHEME):
        return True
    try:
        with open(word, "rb") as file, zipfile.ZipFile(file) as archive:
            return ABOUT in archive.namelist()
    except (OSError, zipfile.BadZipFile, NotImplementedError, ValueError):
        return False


def write_bundle(
    path: str | os.PathLike[str],
    about: Mapping[str, Any],
    arrays: Mapping[str, Shaped[np.ndarray, "..."]],
) -> None:
    """Write a bundle, whole or not at all; the same contents make the same bytes.

    Args:
        path: The file, whose name ends in .npz.
        about: What the module's text lists, without format, version and arrays.
        arrays: The arrays by name, in the dtypes that they are to have.
    """
    path = Path(path)
    # Not by columns, which a reader would have to know of.
    arrays = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
    table = {name: [a.dtype.str, list(a.shape)] for name, a in arrays.items()}
    said = {"format": FORMAT, "version": VERSION, **about, "arrays": table}
    check(path, said)
    partial = path.with_name(path.name + ".tmp")
    with explained("write", path):
        try:
            with zipfile.ZipFile(partial, "w") as archive:
                text = json.dumps(said, indent=1, allow_nan=False)
                _add(archive, ABOUT, f"{text}\n".encode())
                for name, array in arrays.items():
                    content = io.BytesIO()
                    np.lib.format.write_array(content, array, allow_pickle=False)
                    _add(archive, f"{name}.npy", content.getvalue())
            os.replace(partial, path)
        finally:
            partial.unlink(missing_ok=True)


def read_bundle(path: str | os.PathLike[str]) -> Bundle:
    """Open a bundle and check that it is whole; its arrays are read later.

    Args:
        path: The file, or `bundle:NAME` for one that comes with symjax.

    Returns:
        The bundle.

    Raises:
        StoreError: if there is no such file, or it is no bundle or of a newer symjax.
        DamagedBundleError: if what is in it does not fit together.

    Example:
        >>> bundle = read_bundle("bundle:digits")
        >>> bundle.read("predictions/probs").shape
        (4, 360, 10)
    """
    path = _locate(path)
    with _opened(path) as archive:
        names = archive.namelist()
        if ABOUT not in names:
            raise StoreError(
                f"{path} is no bundle: there is no {ABOUT} in it. Name a file that "
                "symjax export RUN --bundle FILE wrote."
            )
        if archive.getinfo(ABOUT).file_size > _MAX_ABOUT:
            raise DamagedBundleError(
                path, f"its {ABOUT} has more than {_MAX_ABOUT:,} bytes"
            )
        about = json.loads(archive.read(ABOUT))
        check(path, about)
        wanted = [ABOUT, *(f"{name}.npy" for name in about["arrays"])]
        if sorted(names) != sorted(wanted):
            odd = sorted(set(names) ^ set(wanted)) or ["a name twice"]
            raise DamagedBundleError(
                path, f"it does not hold what it lists: {odd[0][:80]}"
            )
    size = num_bytes(about["arrays"])
    if size > _MAX_RATIO * path.stat().st_size:
        raise DamagedBundleError(
            path, f"it would take {size:,} bytes, {_MAX_RATIO} times its own"
        )
    return Bundle(path, about)


def _locate(path: str | os.PathLike[str]) -> Path:
    """The file that was named.

    Raises:
        StoreError: if there is none.
    """
    word = str(path)
    found = Path(word)
    if word.startswith(_SCHEME):
        known = sorted(file.stem for file in SHIPPED.glob("*.npz"))
        name = word.removeprefix(_SCHEME)
        if name not in known:
            raise StoreError(
                f"{word} must name a bundle that comes with symjax, of which there "
                f"are {', '.join(f'{_SCHEME}{one}' for one in known)}; others are "
                "named by their file."
            )
        found = SHIPPED / f"{name}.npz"
    if not found.is_file():
        raise StoreError(f"There is no file {found} to read a bundle from.")
    return found


def _add(archive: zipfile.ZipFile, name: str, content: bytes) -> None:
    """A member without the time of writing."""
    entry = zipfile.ZipInfo(name)
    archive.writestr(entry, content, zipfile.ZIP_DEFLATED, compresslevel=9)


@contextmanager
def _opened(path: Path) -> Iterator[zipfile.ZipFile]:
    """An archive; whatever a damaged or hostile one raises names it.

    Raises:
        StoreError: as it came.
        DamagedBundleError: with the cause of any other.
    """
    try:
        # `ZipFile` leaves a damaged file open that it opened itself.
        with path.open("rb") as file, zipfile.ZipFile(file) as archive:
            yield archive
    except StoreError:
        raise
    except (*_UNREADABLE, zipfile.BadZipFile, zlib.error) as error:
        why = str(error)[:200] or "it ends too early"
        raise DamagedBundleError(path, why) from error
