"""Every peer's number, to the last digit: their formulas as data over one engine, quirks and all.

>>> score("deepeval", ["search", "search"], ["search", "search"]).value
0.5
>>> score("deepeval", ["search", "search"], ["search", "search"], sane=True).value
1.0
"""

from __future__ import annotations

from goldspan.scoring.profiles.comparisons import metric
from goldspan.scoring.profiles.description import Description, describe
from goldspan.scoring.profiles.profile import Profile, prepare, score
from goldspan.scoring.profiles.table import PEERS

NAMES: tuple[str, ...] = tuple(PEERS)
"""The peers that there are."""

__all__ = ["NAMES", "Description", "Profile", "describe", "metric", "prepare", "score"]
