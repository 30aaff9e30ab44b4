"""The folder of what was read once: images decoded, data sets prepared."""

import os
from pathlib import Path


CACHE_VARIABLE = "SYMJAX_CACHE"


def folder(kind: str) -> Path:
    """Where things of a kind are kept; it may be deleted at any time."""
    if named := os.environ.get(CACHE_VARIABLE):
        return Path(named, kind)
    user = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(user, "symjax", kind)
