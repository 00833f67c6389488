"""JSON as Orbit takes it: checked before it is sent, so that the error names the place and what would be right."""

from __future__ import annotations

import json
import math
from typing import Any

#: Lists and objects within each other that a payload may have.
DEEPEST = 120
#: Whole numbers that the API carries, exactly: what 64 bits hold, with a sign or without.
LEAST_INTEGER = -(2**63)
LARGEST_INTEGER = 2**64 - 1


class NotJson(ValueError):
    """A value cannot be sent. The message says which, and why."""


def encode(value: Any, name: str) -> bytes:
    """The JSON text of a value. `name` is what errors call it: `output`, `input`."""
    _check(value, name, 1)
    try:
        return json.dumps(value, allow_nan=False, ensure_ascii=False, separators=(",", ":")).encode()
    except UnicodeEncodeError:
        raise NotJson(f"{name} holds half of a surrogate pair, which is no Unicode text") from None


def decode(text: bytes) -> Any:
    """The value of a JSON text. Whole numbers stay exact, whatever their size. Raises `ValueError`."""
    return json.loads(text, parse_constant=_no_constant)


def plain(text: str) -> str:
    """The text, with what Unicode does not allow replaced."""
    return text.encode("utf-8", "replace").decode()


def _check(value: Any, path: str, depth: int) -> None:
    if value is None or isinstance(value, (str, bool)):
        return
    if isinstance(value, int):
        if not LEAST_INTEGER <= value <= LARGEST_INTEGER:
            raise NotJson(f"{path} is a whole number that 64 bits do not hold; send it as a text")
    elif isinstance(value, float):
        if not math.isfinite(value):
            raise NotJson(f"{path} is {value!r}, which JSON cannot say; send null or a text")
    elif isinstance(value, (dict, list, tuple)):
        if depth > DEEPEST:
            raise NotJson(f"{path[:200]} … is nested deeper than {DEEPEST} levels")
        if isinstance(value, dict):
            for key, item in value.items():
                if not isinstance(key, str):
                    raise NotJson(f"{path} has the key {key!r}; keys are texts")
                _check(item, f"{path}.{key}", depth + 1)
        else:
            for index, item in enumerate(value):
                _check(item, f"{path}[{index}]", depth + 1)
    else:
        kind = type(value).__qualname__
        raise NotJson(f"{path} is of type {kind}; give dict, list, str, int, float, bool or None")


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON")
