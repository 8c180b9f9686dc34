"""Shortens the retry backoff of judges in tests."""

from __future__ import annotations

import pytest

from goldspan.judge import judge_session


@pytest.fixture(autouse=True)
def _short_pauses(monkeypatch):
    monkeypatch.setattr(judge_session, "_INITIAL_BACKOFF_S", 0.02)
