"""What a run was made with: it is written beside the draws, and may change."""

import importlib.metadata
import platform
import subprocess
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax

from symjax.store.buckets import Place
from symjax.store.files import as_json, flatten


_PACKAGES = (
    "symjax-posteriors",
    "jax",
    "jaxlib",
    "flax",
    "optax",
    "blackjax",
    "numpyro",
    "numpy",
    "orbax-checkpoint",
    "tensorstore",
)


def describe() -> dict[str, str]:
    """Versions, devices and the git commit of symjax, if it is a checkout."""
    entries = {"python": platform.python_version()}
    for name in _PACKAGES:
        try:
            entries[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    kinds = Counter(device.device_kind for device in jax.devices())
    entries["devices"] = ", ".join(f"{count} x {kind}" for kind, count in kinds.items())
    commit = _git_commit(Path(__file__).parents[2])
    if commit:
        entries["git commit of symjax"] = commit
    return entries


def _git_commit(checkout: Path) -> str:
    """The commit, with `-dirty` if files differ; empty for an installed symjax."""
    if not (checkout / ".git").exists():
        return ""
    command = ["git", "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]
    try:
        return subprocess.run(
            command, cwd=checkout, capture_output=True, text=True, timeout=10
        ).stdout.strip()
    except (OSError, subprocess.TimeoutExpired):
        return ""


def changes(began: dict[str, str]) -> list[str]:
    """What is no longer as it was when a run began, one sentence each."""
    now = describe()
    return [
        f"The run began with {name} {before}, this is {now.get(name, 'without')}."
        for name, before in began.items()
        if now.get(name) != before
    ]


def require_same(
    path: Place, began: Mapping[str, Any], given: Mapping[str, Any]
) -> None:
    """Require the configuration that the run in `path` began with.

    Raises:
        ValueError: naming the first entry that differs, and both values.
    """
    before, now = flatten(began), flatten(as_json(given))
    for key in before | now:
        if before.get(key) != now.get(key):
            raise ValueError(
                f"`{key}` must stay {before.get(key, 'unset')}, as the run in {path} "
                f"began, got {now.get(key, 'unset')}. Continue it unchanged, or begin "
                "a new run in another directory."
            )
