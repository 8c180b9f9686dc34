"""Scoring while the application runs: spans in flight, and what happens when a run is complete."""

from __future__ import annotations

from goldspan.online.assembled_spans import AssembledSpans, AssemblyCounts, CompletedSpans, RevisedSpans
from goldspan.online.assembly import Assembly
from goldspan.online.limits import Limits
from goldspan.online.pipeline import Pipeline, check_units
from goldspan.online.scorer import Scorer
from goldspan.online.worker import BackgroundWorker

__all__ = [
    "AssembledSpans",
    "Assembly",
    "AssemblyCounts",
    "BackgroundWorker",
    "CompletedSpans",
    "Limits",
    "Pipeline",
    "RevisedSpans",
    "Scorer",
    "check_units",
]
