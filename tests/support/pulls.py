"""Reads traces from a source into a folder as `goldspan score` does, and compares them with files."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import goldspan
from goldspan.model.runs import Run
from goldspan.otlp.trace_files import read_records
from goldspan.sources.pull_folder import PullFolder
from goldspan.sources.source_catalog import create_source
from goldspan.sources.time_window import TimeWindow
from goldspan.sources.trace_pull import TracePull
from support.recorded_products import CAPTURES

HOUR = TimeWindow(1_790_000_000 * 10**9, 1_790_003_600 * 10**9)
"""An hour of 2026."""


def pull(
    url: str,
    folder: Path,
    window: TimeWindow = HOUR,
    *,
    environment: Mapping[str, str] | None = None,
    page_size: int | None = None,
) -> list[str]:
    """Read the traces of a window into a folder, or continue an interrupted pull, and return the notices."""
    source = create_source(url, environment or {})
    if page_size is not None:
        source.page_size = page_size
    trace_pull = TracePull(source, url, PullFolder(folder), give_up_after=0)
    return [notice for progress in trace_pull.run(trace_pull.resume(window)) for notice in progress.notices]


def spans_by_trace(folder: Path) -> Counter[str]:
    """Count the spans of each trace in a folder. A trace that was read twice has twice as many."""
    files = sorted(folder.glob("traces-*.jsonl"))
    return Counter(record.trace_id for record in read_records(files) if record.trace_id is not None)


def runs_of(*paths: Path) -> dict[str, Run]:
    """Return the runs of files or folders by their ids."""
    return {run.run_id: run for run in goldspan.load_runs(*paths)}


@cache
def captured_runs() -> dict[str, Run]:
    """Return the runs of the files with the recorded traces."""
    return runs_of(*CAPTURES)


def contents_of(runs: Mapping[str, Run]) -> dict[str, Any]:
    """Return what every tool keeps of the runs: names, arguments, results and texts, without times and error texts."""
    return {
        run_id: (
            *(run.unit, run.agent, run.service, run.session_id, run.input, run.output, run.trace_ids),
            [(call.name, call.arguments, call.outcome, call.call_id, call.result) for call in run.tool_calls],
        )
        for run_id, run in runs.items()
    }
