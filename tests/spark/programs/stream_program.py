"""Scores a stream of OTLP requests in Parquet files, until it is killed.

stream_program.py FOLDER [IDLE LATE]: it reads `in`, and writes `out` with the checkpoint `checkpoint`.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

os.environ["PYSPARK_PYTHON"] = sys.executable

from pyspark.sql import SparkSession

import goldspan.spark
from goldspan.spark.stream_scoring import STATE_STORE, STATE_STORE_SETTING

folder = Path(sys.argv[1])
idle, late = map(float, sys.argv[2:4])
spark = (
    SparkSession.builder.master("local[2]")
    .config("spark.ui.enabled", "false")
    .config("spark.sql.shuffle.partitions", "1")
    .config(STATE_STORE_SETTING, STATE_STORE)
    .getOrCreate()
)
spark.sparkContext.setLogLevel("ERROR")
requests = spark.readStream.schema("value binary").option("maxFilesPerTrigger", 5).parquet(str(folder / "in"))
evaluations = goldspan.spark.score_stream(requests, str(folder / "goldens.yaml"), idle_seconds=idle, late_seconds=late)
query = (
    evaluations.writeStream.format("parquet")
    .option("path", str(folder / "out"))
    .option("checkpointLocation", str(folder / "checkpoint"))
    .trigger(processingTime="1 second")
    .start()
)
print("started", flush=True)
query.awaitTermination()
