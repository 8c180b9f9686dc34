"""Every peer's number, to the last digit: their formulas as data over one engine, quirks and all.

>>> score("deepeval", ["search", "search"], ["search", "search"]).value
0.5
>>> score("deepeval", ["search", "search"], ["search", "search"], sane=True).value
1.0
"""

from __future__ import annotations

from goldspan.profiles.peer_catalog import PEERS
from goldspan.profiles.peer_profile import Description, Profile, describe, metric, prepare, score

NAMES: tuple[str, ...] = tuple(PEERS)
"""The peers that there are."""

__all__ = ["NAMES", "Description", "Profile", "describe", "metric", "prepare", "score"]
