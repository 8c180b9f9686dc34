"""Short hashes of plain values."""

from __future__ import annotations

import hashlib
import json
from typing import Any


def content_digest(value: Any) -> str:
    """A short stable hash of plain values; the order of dictionary keys does not matter."""
    return hashlib.blake2b(_canonical(value).encode(), digest_size=12).hexdigest()


_canonical = json.JSONEncoder(sort_keys=True, separators=(",", ":"), default=repr).encode
