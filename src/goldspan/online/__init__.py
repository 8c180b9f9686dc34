"""Scores spans while the application runs: assembles runs, evaluates them and submits the evaluations.

Modules in reading order:

- ``scorer``: `Scorer` connects the assembly, the pipeline and the drop counters of one process.
- ``assembly``: `Assembly` collects spans until a run is complete.
- ``live_traces``: stores the traces in flight and the traces whose runs were released.
- ``span_forest``: the trees of spans in flight, and the queries on them.
- ``assembled_spans``: the results of the assembly, and the compact encoding of stored spans.
- ``pipeline``: `Pipeline` evaluates complete runs and submits the evaluations to the sinks.
- ``session_requests``: the latest requests of each session, which together are a conversation.
- ``judge_revisions``: submits the verdicts of a judge as revisions.
- ``sampling``: selects the runs that are scored and the traces that are exported.
- ``limits``: the bounds of the spans in flight.
- ``worker``: the background thread with its queue.
- ``pass_rate_sink``: pass rates as gauges, and an event for each change.
- ``pass_rate_statistics``: the counts, confidence intervals and change detection behind them.
"""

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
