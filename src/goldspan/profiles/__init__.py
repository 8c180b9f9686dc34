"""Profiles: reproduces the scores of other evaluation tools exactly, with formulas as data.

``peer_profile``: `score`, `prepare`, `describe` and `metric`; a profile is a peer with its options.
``peer_catalog``: the peers as data: options, formulas and quirks.
``peer_options``: data types of peers, their options, formulas and quirks.
``formula_engine``: computes the score that a formula defines.
``case_sides``: reads the called and the expected tools of a case.
``side_preprocessing``: transforms and selects items before the comparison.
``side_pairing``: pairs calls with expectations.
``comparison_rules``: compares names and arguments of a pair.

>>> score("deepeval", ["search", "search"], ["search", "search"]).value
0.5
>>> score("deepeval", ["search", "search"], ["search", "search"], sane=True).value
1.0
"""

from __future__ import annotations

from goldspan.profiles.peer_catalog import PEERS
from goldspan.profiles.peer_profile import Description, Profile, describe, metric, prepare, score

NAMES: tuple[str, ...] = tuple(PEERS)
"""The names of all peers."""

__all__ = ["NAMES", "Description", "Profile", "describe", "metric", "prepare", "score"]
