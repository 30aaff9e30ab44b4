"""Dictionaries, lists and scalars as YAML, for Kubernetes and SkyPilot.

The standard library writes no YAML, but a JSON string is a double-quoted YAML scalar
(YAML 1.2, section 7.3.1), so quoting is JSON's and cannot go wrong. Only JSON's pairs
of surrogates mean something else to YAML: what is beyond 16 bits gets YAML's escape.
"""

import json
import re
from typing import Any


_PLAIN_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_./-]*")
# Words that YAML 1.1, which PyYAML still reads, takes for booleans and null.
_WORDS = {"y", "n", "yes", "no", "on", "off", "true", "false", "null"}


def dump(value: Any) -> str:
    """The document of one value."""
    return "\n".join(_lines(value)) + "\n"


def _lines(value: Any) -> list[str]:
    if isinstance(value, dict) and value:
        lines = []
        for name, item in value.items():
            lines += _after(f"{_key(name)}:", item)
        return lines
    if isinstance(value, list) and value:
        lines = []
        for item in value:
            first, *rest = _lines(item)
            lines += [f"- {first}", *(f"  {line}" for line in rest)]
        return lines
    return [_scalar(value)]


def _after(key: str, value: Any) -> list[str]:
    """The lines of one item of a mapping."""
    if isinstance(value, str) and _is_block(value):
        return [f"{key} |", *(f"  {line}".rstrip() for line in value.splitlines())]
    lines = _lines(value)
    if isinstance(value, dict | list) and value:
        return [key, *(f"  {line}" for line in lines)]
    return [f"{key} {lines[0]}"]


def _key(name: str) -> str:
    is_plain = _PLAIN_KEY.fullmatch(name) and name.lower() not in _WORDS
    return name if is_plain else _scalar(name)


def _scalar(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return "".join(char if char.isprintable() else _escape(char) for char in text)


def _escape(char: str) -> str:
    return f"\\u{ord(char):04x}" if ord(char) < 0x10000 else f"\\U{ord(char):08x}"


def _is_block(text: str) -> bool:
    """Whether a literal block keeps the text as it is: then it is easier to read."""
    lines = text.splitlines()
    return (
        len(lines) > 1
        and text == "\n".join(lines) + "\n"
        and bool(lines[0].strip())
        and bool(lines[-1].strip())
        and not lines[0].startswith(" ")
        and all(line == line.rstrip() and line.isprintable() for line in lines)
    )
