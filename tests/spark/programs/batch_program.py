"""Scores data frames in several forms in one Spark session, and prints what it found as JSON.

batch_program.py FOLDER: it has `requests.json` (OTLP requests in base64), `spans.parquet`, and `goldens.yaml`.
"""

from __future__ import annotations

import base64
import json
import os
import random
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ["PYSPARK_PYTHON"] = sys.executable

from pyspark.sql import DataFrame, SparkSession

import goldspan
import goldspan.spark

MASTER = os.environ.get("SPARK_MASTER", "local[2]")


def main() -> None:
    folder = Path(sys.argv[1])
    spark = (
        SparkSession.builder.master(MASTER)
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "4")
        .config("spark.sql.legacy.parquet.nanosAsLong", "true")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("OFF")
    requests = [base64.b64decode(text) for text in json.loads((folder / "requests.json").read_text())]
    shuffled = [*requests, *requests[:3]]
    random.Random(1).shuffle(shuffled)
    protobuf = spark.createDataFrame([(bytearray(request),) for request in shuffled], "value binary").repartition(3)
    rows = spark.read.parquet(str(folder / "spans.parquet"))
    broken = spark.createDataFrame([(bytearray(b"\x08nothing"),), (bytearray(requests[0]),)], "body binary")
    goldens = str(folder / "goldens.yaml")
    found: dict[str, Any] = {
        "protobuf": documents(goldspan.spark.score(protobuf, goldens)),
        "rows": documents(goldspan.spark.score(rows, goldens)),
    }
    if MASTER.startswith("local["):
        lines = spark.read.text(str(folder / "requests.jsonl"))
        found |= {
            "json": documents(goldspan.spark.score(lines, goldens)),
            "traces": documents(goldspan.spark.score(protobuf, goldens, stitch="trace")),
            "components": documents(goldspan.spark.score(protobuf, goldens, unit="component")),
            "cut": documents(goldspan.spark.score(protobuf, goldens, max_spans=3)),
            "skipped": documents(goldspan.spark.score(broken, goldens, otlp_column="body", on_error="skip")),
            "columns": dict(goldspan.spark.score(protobuf, goldens).dtypes),
            "unreadable": refusal(lambda: goldspan.spark.score(broken, goldens, otlp_column="body").collect()),
            "no column": refusal(lambda: goldspan.spark.score(broken, goldens)),
            "other column": refusal(lambda: goldspan.spark.score(broken, goldens, otlp_column="message")),
            "metric": refusal(lambda: goldspan.spark.score(protobuf, goldens, metrics=["tool_recal"])),
            "unit": refusal(lambda: goldspan.spark.score(protobuf, goldens, unit="span")),  # type: ignore[arg-type]
            "stitch": refusal(lambda: goldspan.spark.score(protobuf, goldens, stitch="agent")),  # type: ignore[arg-type]
            "on_error": refusal(lambda: goldspan.spark.score(protobuf, goldens, on_error="no")),  # type: ignore[arg-type]
            "batch": refusal(lambda: goldspan.spark.score_stream(protobuf, goldens)),
            "row": row(goldspan.spark.score(protobuf, goldens)),
        }
    print(json.dumps(found))


def documents(evaluations: DataFrame) -> list[Any]:
    return [json.loads(each.document) for each in evaluations.select("document").collect()]


def row(evaluations: DataFrame) -> dict[str, Any]:
    """Return the row of the first run that has a golden."""
    first = evaluations.where("golden_id is not null").orderBy("run_id").first()
    assert first is not None
    return json.loads(json.dumps(first.asDict(), default=str))


def refusal(attempt: Callable[[], object]) -> str:
    try:
        attempt()
    except Exception as error:  # noqa: BLE001 - Spark has many
        return f"{type(error).__name__}: {error}"
    return "nothing was raised"


main()
