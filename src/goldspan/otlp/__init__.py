"""Decodes trace files of OTLP exporters, SDKs, the Collector, Tempo and Jaeger, and loads their runs.

Modules in reading order:

``trace_files``: reads records from files, folders and standard input.
``start_range``: which runs of files are needed, by their start.
``remote_files``: opens files by URL with fsspec.
``streams``: decompresses bytes and splits them into lines.
``format_detection``: detects the format of a byte stream by its first bytes.
``parquet_files``: reads and writes Parquet files with spans as rows.
``span_rows``: converts records to rows of a table and back.
``wire_format``: splits protobuf bytes into messages and fields without decoding them.
``decode_results``: the results of decoders, and rules that all formats share.
``otlp_protobuf``: decodes OTLP requests in protobuf.
``protobuf_errors``: what protobuf raises for bytes that are no message.
``protobuf_attributes``: decodes protobuf attributes lazily.
``protobuf_signals``: decodes a protobuf message of an unknown signal.
``json_documents``: finds JSON documents in text and decodes those of each format.
``json_fields``: reads and checks the fields of JSON objects.
``otlp_json``: decodes OTLP/JSON.
``jaeger_json``: decodes the JSON of Jaeger.
``sdk_json``: decodes the JSON of OpenTelemetry SDKs.
"""

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
    """Loads the runs in trace files, folders and standard input.

    The spans of one trace, and its log records, may be spread over several files. The format is detected from the
    contents: OTLP in protobuf or JSON (one request or many), API responses of Tempo and Jaeger, the JSON of
    OpenTelemetry SDKs, and Parquet with the columns of OpenTelemetry's ClickHouse exporter (extra `parquet`).

    Args:
        paths: Files, folders, or `-` for standard input. URLs such as `s3://bucket/traces` need the extra `fsspec`.
        unit: What a run is.
        golden_id_attributes: The span attributes that may name a run's golden. Default: the variable
            `GOLDSPAN_GOLDEN_ID_ATTRIBUTE`, else `goldspan.golden.id`, then `test.case.name`.
        components: Selects spans that count as components without a mark, for example `Goldens.components`.
        on_loss: Called for each place that cannot be read. Without it, each file with such places causes one
            `GoldspanWarning`.

    Returns:
        An iterator over the runs, by start time.

    Raises:
        TraceFileError: A path does not exist (raised at once), or contains no traces (raised with the first run).
        ConfigurationError: There is no path, or the unit is unknown.
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
