"""Judges ask again soon, where they are tested."""

from __future__ import annotations

import pytest

from goldspan.judge import sessions


@pytest.fixture(autouse=True)
def _short_pauses(monkeypatch):
    monkeypatch.setattr(sessions, "_FIRST_PAUSE_S", 0.02)
