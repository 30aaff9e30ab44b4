"""Compiled programs are kept, so that the next run of the same kind starts at once."""

import os
from pathlib import Path
from typing import Any

import jax
from rich.console import Console

from symjax import hosts


def keep(console: Console) -> None:
    """Keep what JAX compiles from now on in the user's cache folder, and say so.

    JAX's own variables go first: JAX_COMPILATION_CACHE_DIR names another folder, and
    JAX_ENABLE_COMPILATION_CACHE=false keeps nothing.
    """
    settings: Any = jax.config
    given = settings.jax_compilation_cache_dir
    if given or "JAX_COMPILATION_CACHE_DIR" in os.environ:
        return
    # Of several processes only the first would write; the others, who compile what it
    # finds, may wait for its part of the tuning on GPUs.
    if not settings.jax_enable_compilation_cache or hosts.count() > 1:
        return
    try:
        folder = _folder()
        folder.mkdir(parents=True, exist_ok=True)
    except (OSError, RuntimeError) as error:  # The second: there is no home.
        console.print(f"Compiled programs are not kept: {error}.", style="dim")
        return
    jax.config.update("jax_compilation_cache_dir", str(folder))
    console.print(
        f"Compiled programs are kept in {folder} (JAX_ENABLE_COMPILATION_CACHE=false "
        "keeps none).",
        style="dim",
        highlight=False,
        soft_wrap=True,
        markup=False,
    )


def _folder() -> Path:
    """`symjax/jax` in the folder that XDG_CACHE_HOME names, if its path is absolute."""
    named = Path(os.environ.get("XDG_CACHE_HOME", ""))
    return (named if named.is_absolute() else Path.home() / ".cache") / "symjax" / "jax"
