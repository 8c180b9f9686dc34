"""Tests with real Spark: batches, a cluster of processes, and a stream that is killed."""

from __future__ import annotations

import base64
import gzip
import json
import os
import re
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

import goldspan
from goldspan.goldens import Goldens, load_goldens
from goldspan.model import RunUnit
from goldspan.otlp import load_runs, read_records
from goldspan.otlp.parquet_files import write_records
from goldspan.sinks.serialization import evaluation_document, to_json
from recipes.environments import is_built, python_of
from support.laws import case

SPARK = "spark"
"""The name of the environment."""
pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif(not is_built(SPARK), reason="Spark needs its environment: make recipes"),
    pytest.mark.needs("java"),
]

PROGRAMS = Path(__file__).parent / "programs"
FIXTURES = Path(__file__).parents[1] / "fixtures"
CAPTURES = sorted((FIXTURES / "captures").glob("*.pb.gz"))
GOLDENS = "goldens: [{id: hotel, when: {input: {contains: hotel}}, tools: [search_hotels, book_hotel]}]"
PATIENCE_S = 300.0
REFUSALS = {
    "unreadable": "TraceFileError: a row of the data frame cannot be read",
    "no column": "ConfigurationError: no table of spans or logs",
    "other column": "ConfigurationError: the data frame has no column 'message'; it has body.",
    "metric": "'tool_recal'",
    "unit": "ConfigurationError: unknown unit 'span'",
    "stitch": "ConfigurationError: stitch must be 'session' or 'trace', not 'agent'.",
    "on_error": "ConfigurationError: on_error must be 'raise' or 'skip', not 'no'.",
    "batch": "ConfigurationError: score_stream needs a streaming data frame",
}
"""The words with which each of these calls in the program is refused."""


def requests() -> list[bytes]:
    return [gzip.decompress(path.read_bytes()) for path in CAPTURES]


def expected(folder: Path) -> list[dict[str, Any]]:
    """Return the evaluations of the captures as the single process makes them, by run id."""
    return documents_of(load_goldens(folder / "goldens.yaml"), *CAPTURES)


def documents_of(goldens: Goldens, *paths: Path, unit: RunUnit = "request") -> list[dict[str, Any]]:
    runs = load_runs(*paths, unit=unit, components=goldens.components)
    return by_run([json.loads(to_json(evaluation_document(goldspan.evaluate(run, goldens)))) for run in runs])


def by_run(documents: Iterator[dict[str, Any]] | list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(documents, key=lambda document: (document["run_id"], document["revision"]))


def run_batches(folder: Path, master: str) -> dict[str, Any]:
    """Write the inputs of the program, run it, and return what it found."""
    (folder / "goldens.yaml").write_text(GOLDENS)
    encoded = [base64.b64encode(request).decode() for request in requests()]
    (folder / "requests.json").write_text(json.dumps(encoded))
    write_records(read_records(CAPTURES), str(folder / "spans.parquet"))
    lines = [gzip.decompress(path.read_bytes()) for path in (FIXTURES / "captures").glob("*.jsonl.gz")]
    (folder / "requests.jsonl").write_bytes(b"".join(lines))
    done = subprocess.run(
        [python_of(SPARK), PROGRAMS / "batch_program.py", folder],
        cwd=folder,
        env={**os.environ, "SPARK_MASTER": master},
        capture_output=True,
        encoding="utf-8",
        check=False,
        timeout=PATIENCE_S,
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def test_data_frames_are_scored_like_files_and_what_cannot_be_scored_is_refused(tmp_path: Path) -> None:
    """One test, because a session of Spark takes long to start."""
    found = run_batches(tmp_path, "local[2]")
    goldens = load_goldens(tmp_path / "goldens.yaml")

    with case("requests and rows"):
        assert by_run(found["protobuf"]) == expected(tmp_path)
        assert by_run(found["rows"]) == expected(tmp_path)
        read = {document["run_id"] for document in found["skipped"]}
        assert by_run(found["skipped"]) == [each for each in expected(tmp_path) if each["run_id"] in read]
    with case("lines of JSON"):
        assert by_run(found["json"]) == documents_of(goldens, tmp_path / "requests.jsonl") != []
    with case("components"):
        assert by_run(found["components"]) == documents_of(goldens, *CAPTURES, unit="component")
    with case("traces of one run are kept apart"):
        assert found["traces"]
        assert all(len(document["trace_ids"]) == 1 for document in found["traces"])
    with case("a trace beyond the limit"):
        cut = [document for document in found["cut"] if "more than 3 spans" in document["reason"]]
        assert cut
        assert not any(document["passed"] for document in cut)
    with case("columns"):
        assert found["columns"].items() >= {
            "run_id": "string", "time": "timestamp", "passed": "boolean", "tools_used": "array<string>",
            "similarity": "double", "revision": "bigint", "scores": "map<string,double>", "document": "string",
        }.items()  # fmt: skip
        row, document = found["row"], json.loads(found["row"]["document"])
        assert (row["golden_id"], row["passed"]) == ("hotel", document["passed"])
        assert row["tools_used"] == document["tools_used"]
        assert row["scores"] == {score["metric"]: score["value"] for score in document["scores"]}
    for name, words in REFUSALS.items():
        with case(name):
            assert words in found[name]


def score_command(*arguments: str | Path, engine: str = "spark") -> subprocess.CompletedProcess[str]:
    """Run `goldspan score` in the environment of Spark, with a cluster of two processes."""
    more = ["--engine", "spark", "--spark-master", "local-cluster[2,1,1024]"] if engine == "spark" else []
    return subprocess.run(
        [python_of(SPARK), "-m", "goldspan", "score", *map(str, arguments), *more],
        capture_output=True,
        encoding="utf-8",
        check=False,
        timeout=PATIENCE_S,
    )


@pytest.fixture
def traces(tmp_path: Path) -> Path:
    """A folder with the captures, a line that cannot be read, and a file that is no trace file."""
    (tmp_path / "goldens.yaml").write_text(GOLDENS)
    traces = tmp_path / "traces"
    traces.mkdir()
    for path in CAPTURES:
        (traces / path.name).write_bytes(path.read_bytes())
    line = next(iter((FIXTURES / "captures").glob("*.jsonl.gz")))
    (traces / "lines.jsonl").write_bytes(gzip.decompress(line.read_bytes()).splitlines()[0] + b"\nnot json\n")
    (traces / "notes.json").write_text("[1]")
    return traces


def test_the_command_writes_and_prints_what_it_does_without_spark(traces: Path) -> None:
    out = traces.parent / "out"
    arguments = (traces, "-g", traces.parent / "goldens.yaml", "--limit", "0", "--fail-under", "passed=1")
    with_spark = score_command(*arguments, "--out", out, "--out-format", "parquet")
    alone = score_command(*arguments, engine="local")
    assert (with_spark.returncode, alone.returncode) == (1, 1), with_spark.stderr
    summary = "\n\nmetric "
    assert with_spark.stdout.partition(summary)[2] == alone.stdout.partition(summary)[2] != ""
    said = sorted(line for line in alone.stderr.splitlines() if "gate failed" in line or "else was read" in line)
    assert sorted(set(said) & set(with_spark.stderr.splitlines())) == said
    assert len(said) == 3
    documents = score_command(*arguments, "--json", engine="local").stdout.splitlines()
    table = pq.read_table(out)
    assert by_run(list(map(json.loads, table["document"].to_pylist()))) == by_run(list(map(json.loads, documents)))
    assert "summary" not in table.column_names


@contextmanager
def streaming(folder: Path, idle: float, late: float) -> Iterator[subprocess.Popen[bytes]]:
    """Run the streaming program, and kill it with its processes at the end of the block."""
    with (folder / "log").open("ab") as log:
        process = subprocess.Popen(
            [python_of(SPARK), PROGRAMS / "stream_program.py", folder, str(idle), str(late)],
            cwd=folder,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    try:
        yield process
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def arrive(folder: Path, number: int, request: bytes) -> None:
    """Add a file with a request to the input of the stream, at once, as Spark expects."""
    incoming = folder / "in"
    incoming.mkdir(exist_ok=True)
    pq.write_table(pa.table({"value": [request]}), folder / "part.parquet")
    (folder / "part.parquet").replace(incoming / f"{number:04}.parquet")


def written(folder: Path) -> list[dict[str, Any]]:
    """Return the evaluations in the committed files of the output."""
    log = folder / "out" / "_spark_metadata"
    paths = set()
    for batch in log.glob("*") if log.exists() else ():
        if re.fullmatch(r"\d+(\.compact)?", batch.name):
            lines = batch.read_text().splitlines()[1:]
            paths |= {json.loads(line)["path"].removeprefix("file://") for line in lines}
    tables = [pq.read_table(path, partitioning=None) for path in sorted(paths)]
    return by_run([json.loads(text) for table in tables for text in table["document"].to_pylist()])


def wait_for(folder: Path, holds: Callable[[list[dict[str, Any]]], bool]) -> None:
    """Wait until a condition holds for what the stream has written."""
    until = time.monotonic() + PATIENCE_S
    while not holds(found := written(folder)):
        assert time.monotonic() < until, f"{found}\n{(folder / 'log').read_text()}"
        time.sleep(1)


def divided(request: bytes) -> tuple[bytes, bytes]:
    """Return a request in two: one half of the spans of each trace, and the other."""
    whole = ExportTraceServiceRequest.FromString(request)
    parts = (ExportTraceServiceRequest(), ExportTraceServiceRequest())
    for resource in whole.resource_spans:
        for scope in resource.scope_spans:
            for half, part in enumerate(parts):
                part.resource_spans.add(resource=resource.resource).scope_spans.add(scope=scope.scope).spans.extend(
                    scope.spans[: len(scope.spans) // 2] if half == 0 else scope.spans[len(scope.spans) // 2 :]
                )
    return parts[0].SerializeToString(), parts[1].SerializeToString()


@pytest.mark.stress
def test_a_killed_stream_continues_and_loses_and_repeats_nothing(tmp_path: Path) -> None:
    """A part of one trace arrives before the kill, and is evaluated; the rest of it arrives after the restart."""
    (tmp_path / "goldens.yaml").write_text(GOLDENS)
    wanted = expected(tmp_path)
    every = requests()
    divided_at = next(number for number, path in enumerate(CAPTURES) if "genai-retry" in path.name)
    early, late = divided(every.pop(divided_at))
    half = len(every) // 2
    for number, request in enumerate([early, *every[:half]]):
        arrive(tmp_path, number, request)
    with streaming(tmp_path, idle=2, late=120):
        wait_for(tmp_path, bool)
        for number, request in enumerate(every[half:], start=half + 1):
            arrive(tmp_path, number, request)
        time.sleep(1)
    with streaming(tmp_path, idle=2, late=15):
        wait_for(tmp_path, lambda found: len(found) >= len(wanted))
        arrive(tmp_path, len(every) + 1, late)
        wait_for(tmp_path, lambda found: any(document["revision"] == 2 for document in found))
        for number, request in enumerate(every[:3], start=len(every) + 2):  # repeated spans change nothing
            arrive(tmp_path, number, request)
        time.sleep(20)
        found = written(tmp_path)
        # The state of a trace is removed some time after its evaluation: its spans are a first revision again.
        arrive(tmp_path, len(every) + 5, every[-1])
        wait_for(tmp_path, lambda later: len(later) > len(found))
    repeated = written(tmp_path)
    assert all(document in wanted for document in repeated if repeated.count(document) == 2)
    assert {document["run_id"] for document in repeated} == {document["run_id"] for document in wanted}
    assert len({(document["run_id"], document["revision"]) for document in found}) == len(found)
    last = {document["run_id"]: document for document in found}
    (revised,) = [run_id for run_id, document in last.items() if document["revision"] == 2]
    assert by_run(list(last.values())) == by_run(
        [document | ({"revision": 2} if document["run_id"] == revised else {}) for document in wanted]
    )
