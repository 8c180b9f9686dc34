"""Scoring while the application runs: spans in flight, and what happens when a run is complete."""

from __future__ import annotations

from goldspan.online.assembly import Assembly
from goldspan.online.limits import Limits
from goldspan.online.pipeline import Pipeline, check_units
from goldspan.online.portions import Counts, Ended, Portion, Revised
from goldspan.online.scorer import Scorer
from goldspan.online.worker import Worker

__all__ = ["Assembly", "Counts", "Ended", "Limits", "Pipeline", "Portion", "Revised", "Scorer", "Worker", "check_units"]
