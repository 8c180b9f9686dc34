"""Scoring while the application runs: spans in flight, and what happens when a run is complete."""

from __future__ import annotations

from goldspan.online.assembly import Assembly, Ended
from goldspan.online.pipeline import Pipeline

__all__ = ["Assembly", "Ended", "Pipeline"]
