"""Scores data frames of spans with Apache Spark; needs the extra `spark`.

Modules in reading order:

``frame_scoring``: `score`, which evaluates every run in a data frame of spans.
``stream_scoring``: `score_stream`, which evaluates the runs in a stream of spans.
``trace_processor``: keeps the spans of the traces of a stream until they are idle.
``telemetry_frames``: reads spans and log records from rows, and packs those of each trace.
``file_reading``: reads trace files on the executors, for `goldspan score --engine spark`.
``record_packing``: packs records as bytes.
``partition_scoring``: extracts and evaluates the runs of packed traces.
``evaluation_rows``: the columns of evaluations.
"""

from __future__ import annotations

from goldspan.spark.evaluation_rows import EVALUATION_SCHEMA
from goldspan.spark.frame_scoring import score
from goldspan.spark.stream_scoring import STATE_STORE, STATE_STORE_SETTING, score_stream

__all__ = ["EVALUATION_SCHEMA", "STATE_STORE", "STATE_STORE_SETTING", "score", "score_stream"]
