"""Shortens the pauses between repeated requests."""

from __future__ import annotations

import pytest

from goldspan.sources import trace_pull


@pytest.fixture(autouse=True)
def _short_pauses(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if not request.node.get_closest_marker("e2e"):
        monkeypatch.setattr(trace_pull, "_FIRST_PAUSE_SECONDS", 0.002)
        monkeypatch.setattr(trace_pull, "_MAX_PAUSE_SECONDS", 0.02)
