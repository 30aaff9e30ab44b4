"""Runs in the formats of others: NumPy's `.npz` and ArviZ."""

import os
import warnings
import zipfile
from pathlib import Path
from typing import Any

import numpy as np

from symjax.store.files import explained
from symjax.store.runs import Run


_ARVIZ_NAMES = {
    "is_divergent": "diverging",
    "log_density": "lp",
    "num_steps": "n_steps",
}


def export_npz(run: Run, path: str | os.PathLike[str]) -> None:
    """Write committed draws and Info to an uncompressed `.npz`, one leaf at a time.

    Args:
        run: The run.
        path: The file. Its arrays are named as in the run directory:
            `draws/params/Dense_0/kernel` `(chain, draw, ...)` and
            `info/acceptance_rate` `(chain, iteration)`.
    """
    path = Path(path)
    partial = path.with_name(path.name + ".tmp")
    with explained("write", path):
        try:
            with zipfile.ZipFile(partial, "w", zipfile.ZIP_STORED) as archive:
                for name in run.leaves:
                    member = f"draws/{name}" if name else "draws"
                    _add(archive, member, run.read_leaf(name))
                for name, values in run.info().items():
                    _add(archive, f"info/{name}", values)
            os.replace(partial, path)
        finally:
            partial.unlink(missing_ok=True)


def _add(archive: zipfile.ZipFile, name: str, values: np.ndarray) -> None:
    with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
        np.lib.format.write_array(member, values, allow_pickle=False)


def export_arviz(run: Run) -> Any:
    """Committed draws, and Info of their iterations, as ArviZ wants them.

    Holds all draws in memory. Variables are named by their path with dots
    (`params.Dense_0.kernel`), since xarray keeps `/` for groups.

    Args:
        run: The run.

    Returns:
        `arviz.InferenceData` for ArviZ before 1.0, `xarray.DataTree` from then on.

    Raises:
        ImportError: if ArviZ is not installed.
    """
    try:
        with warnings.catch_warnings():
            # ArviZ 0.23 announces 1.0 at import.
            warnings.simplefilter("ignore", FutureWarning)
            import arviz
    except ImportError as error:
        raise ImportError('pip install "symjax-posteriors[arviz]"') from error
    groups = {
        "posterior": {
            name.replace("/", ".") or "value": run.read_leaf(name)
            for name in run.leaves
        }
    }
    if run.kept is not None:
        kept = run.kept_iterations
        groups["sample_stats"] = {
            _ARVIZ_NAMES.get(name, name): values[:, kept]
            for name, values in run.info().items()
        }
    from_dict: Any = arviz.from_dict
    if arviz.__version__.startswith("0."):
        return from_dict(**groups)
    return from_dict(groups)
