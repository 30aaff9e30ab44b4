"""Commands of `symjax`, run in the process of the tests."""

import sys

import pytest

from symjax import cli


def symjax(*words, code=0):
    """Run a command in this process and expect its exit code."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["symjax", *map(str, words)])
        try:
            cli.main()
            status = 0
        except SystemExit as stop:
            status = stop.code or 0
    assert status == code
