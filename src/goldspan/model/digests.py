"""Short hashes of plain values."""

from __future__ import annotations

import hashlib
import json
from dataclasses import fields, is_dataclass
from typing import Any


def content_digest(value: Any) -> str:
    """A short stable hash of plain values and of dataclasses; the order of dictionary keys does not matter."""
    return hashlib.blake2b(_canonical(value).encode(), digest_size=12).hexdigest()


def _plain(value: Any) -> Any:
    if is_dataclass(value):
        return [type(value).__name__, {each.name: getattr(value, each.name) for each in fields(value)}]
    return repr(value)


_canonical = json.JSONEncoder(sort_keys=True, separators=(",", ":"), default=_plain).encode
