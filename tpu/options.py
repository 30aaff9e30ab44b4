"""How options are read, and what `--help` says of them."""

import argparse


class Help(argparse.ArgumentDefaultsHelpFormatter):
    """Says the default of an option that has one worth saying."""

    def _get_help_string(self, action: argparse.Action) -> str | None:
        if action.required or action.default in (None, False, []):
            return action.help
        return super()._get_help_string(action)


def count(word: str) -> int:
    """A number of things that there must be."""
    return _at_least(1, int(word))


def limit(word: str) -> int:
    """A number that may be 0."""
    return _at_least(0, int(word))


def _at_least(least: int, value: int) -> int:
    if value < least:
        raise argparse.ArgumentTypeError(f"expected at least {least}, got {value}")
    return value
