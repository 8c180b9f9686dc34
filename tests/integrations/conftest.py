"""Shortens the pauses of the delivery in tests."""

from __future__ import annotations

import pytest

from goldspan.integrations import product_sink, score_delivery


@pytest.fixture(autouse=True)
def _short_pauses(request, monkeypatch):
    if request.node.get_closest_marker("e2e"):
        return
    monkeypatch.setattr(score_delivery, "_FIRST_PAUSE_SECONDS", 0.002)
    monkeypatch.setattr(score_delivery, "_MAX_PAUSE_SECONDS", 0.02)
    monkeypatch.setattr(score_delivery, "_MISCONFIGURED_PAUSE_SECONDS", 0.004)
    monkeypatch.setattr(product_sink, "_FIRST_REPEAT_SECONDS", 0.01)
    monkeypatch.setattr(product_sink, "_FLUSH_REPEAT_SECONDS", 0.01)
    monkeypatch.setattr(product_sink, "UNKNOWN_TRACE_FLUSH_SECONDS", 0.5)
    monkeypatch.setattr(product_sink, "_MIN_WAIT_SECONDS", 0.001)
