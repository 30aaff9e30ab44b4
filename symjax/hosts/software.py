"""What computes on this host: packages, settings of JAX, devices, symjax's files."""

import hashlib
import importlib.metadata
import os
from pathlib import Path

import jax


_COMPUTES = (
    "blackjax",
    "flax",
    "jax",
    "jaxlib",
    "ml-dtypes",
    "numpy",
    "numpyro",
    "optax",
    "orbax-checkpoint",
    "scikit-learn",
    "scipy",
    "symjax-posteriors",
    "tensorstore",
)
_COMPUTES_BESIDE = ("jax-", "jaxlib-", "libtpu", "nvidia-", "rocm")
"""Beginnings of names: JAX's plugins, and the libraries that these call."""

_SETTINGS = (
    "jax_default_matmul_precision",
    "jax_default_prng_impl",
    "jax_enable_x64",
    "jax_numpy_dtype_promotion",
    "jax_threefry_partitionable",
)
_FLAGS = ("XLA_FLAGS", "LIBTPU_INIT_ARGS")
"""Variables of the environment that change what is compiled."""


def describe() -> dict[str, str]:
    """What must be the same on all hosts, or chains are wrong without a sign of it.

    Of symjax's files each by itself: uncommitted edits differ on one commit, and the
    file that differs is named.
    """
    kinds = {device.device_kind for device in jax.local_devices()}
    return (
        _packages()
        | {name: str(getattr(jax.config, name)) for name in _SETTINGS}
        | {name: _words(os.environ.get(name, "")) for name in _FLAGS}
        | {"the kind of device": ", ".join(sorted(kinds))}
        # JAX gathers the values of hosts only if they have as many.
        | {"the number of devices": str(jax.local_device_count())}
        | _files(Path(__file__).parents[1])
    )


def _packages() -> dict[str, str]:
    """The versions of the installed packages that take part in computing."""
    names = {
        (distribution.name or "").lower().replace("_", "-")
        for distribution in importlib.metadata.distributions()
    }
    return {
        name: importlib.metadata.version(name)
        for name in sorted(names)
        if name in _COMPUTES or name.startswith(_COMPUTES_BESIDE)
    }


def _words(flags: str) -> str:
    """Flags in one order, without those that say where a host writes what it does."""
    return " ".join(sorted(flag for flag in flags.split() if "dump" not in flag))


def _files(package: Path) -> dict[str, str]:
    """The beginning of a hash of each Python file."""
    return {
        f"{package.name}/{file.relative_to(package).as_posix()}": hashlib.sha256(
            file.read_bytes()
        ).hexdigest()[:8]
        for file in sorted(package.rglob("*.py"))
    }
