"""Runs from what exporters, SDKs, Collectors, Tempo and Jaeger write, in files and folders."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import get_args

from goldspan.errors import ConfigurationError
from goldspan.extraction import extract
from goldspan.model import ComponentSelector, Run, RunUnit, TelemetryRecord
from goldspan.otlp.trace_files import Loss, OnLoss, read_records

__all__ = ["Loss", "load_runs", "read_records"]


def load_runs(
    *paths: str | os.PathLike[str],
    unit: RunUnit = "request",
    golden_id_attributes: Sequence[str] | None = None,
    components: Sequence[ComponentSelector] = (),
    on_loss: OnLoss | None = None,
) -> Iterator[Run]:
    """The runs in trace files, folders and standard input (`-`), in the order of their start.

    Spans of one trace, and the log records that belong to it, may be spread over all of them. What a file is shows
    in its contents: OTLP in protobuf and JSON, one request or many, what Tempo and Jaeger answer, and spans as SDKs
    put themselves into JSON.

    `golden_id_attributes` are the span attributes that may name a run's golden; the default is the variable
    `GOLDSPAN_GOLDEN_ID_ATTRIBUTE`, else `goldspan.golden.id`, then `test.case.name`. `components` are spans that
    count as components though nothing marks them, as `Goldens.components` has them from golden files. `on_loss` is
    called for each place that cannot be read; without it, each file that has some gives one `GoldspanWarning`.

    Raises `TraceFileError` for what does not exist (at once) or holds no traces (when the first run is asked for), and
    `ConfigurationError` where there is nothing to read or no such unit.
    """
    if not paths:
        raise ConfigurationError("load_runs() needs at least one trace file, folder or '-' for standard input")
    if unit not in get_args(RunUnit):
        raise ConfigurationError(f"unknown unit {unit!r}; choose one of {', '.join(get_args(RunUnit))}")
    return _extract_runs(read_records(paths, on_loss=on_loss), unit, golden_id_attributes, components)


def _extract_runs(
    records: Iterator[TelemetryRecord],
    unit: RunUnit,
    attributes: Sequence[str] | None,
    components: Sequence[ComponentSelector],
) -> Iterator[Run]:
    yield from extract(records, unit=unit, golden_id_attributes=attributes, components=components)
