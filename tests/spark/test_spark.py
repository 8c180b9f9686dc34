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
from goldspan.goldens import load_goldens
from goldspan.otlp import load_runs, read_records
from goldspan.otlp.parquet_files import write_records
from goldspan.sinks.serialization import evaluation_document, to_json
from recipes.environments import is_built, python_of

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


def requests() -> list[bytes]:
    return [gzip.decompress(path.read_bytes()) for path in CAPTURES]


def expected(folder: Path) -> list[dict[str, Any]]:
    """Return the evaluations of the captures as the single process makes them, by run id."""
    goldens = load_goldens(folder / "goldens.yaml")
    runs = load_runs(*CAPTURES, components=goldens.components)
    return by_run(json.loads(to_json(evaluation_document(goldspan.evaluate(run, goldens)))) for run in runs)


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


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("spark")


@pytest.fixture(scope="module")
def found(folder: Path) -> dict[str, Any]:
    return run_batches(folder, "local[2]")


def test_requests_and_rows_of_spans_give_the_evaluations_of_the_single_process(
    found: dict[str, Any], folder: Path
) -> None:
    assert by_run(found["protobuf"]) == expected(folder)
    assert by_run(found["rows"]) == expected(folder)
    assert by_run(found["skipped"]) == [
        document for document in expected(folder) if document["run_id"] in {each["run_id"] for each in found["skipped"]}
    ]


def test_lines_of_json_give_the_evaluations_of_the_single_process(found: dict[str, Any], folder: Path) -> None:
    goldens = load_goldens(folder / "goldens.yaml")
    runs = load_runs(folder / "requests.jsonl", components=goldens.components)
    wanted = [json.loads(to_json(evaluation_document(goldspan.evaluate(run, goldens)))) for run in runs]
    assert wanted
    assert by_run(found["json"]) == by_run(wanted)


def test_components_are_evaluated_if_they_are_the_unit(found: dict[str, Any], folder: Path) -> None:
    goldens = load_goldens(folder / "goldens.yaml")
    runs = load_runs(*CAPTURES, unit="component", components=goldens.components)
    wanted = [json.loads(to_json(evaluation_document(goldspan.evaluate(run, goldens)))) for run in runs]
    assert by_run(found["components"]) == by_run(wanted)


def test_traces_of_one_run_can_be_kept_apart(found: dict[str, Any]) -> None:
    assert found["traces"]
    assert all(len(document["trace_ids"]) == 1 for document in found["traces"])


def test_a_trace_beyond_the_limit_is_cut_and_says_so(found: dict[str, Any]) -> None:
    cut = [document for document in found["cut"] if "more than 3 spans" in document["reason"]]
    assert cut
    assert not any(document["passed"] for document in cut)


def test_the_columns_are_those_of_an_export(found: dict[str, Any]) -> None:
    columns = found["columns"]
    assert columns.items() >= {
        "run_id": "string", "time": "timestamp", "passed": "boolean", "tools_used": "array<string>",
        "similarity": "double", "revision": "bigint", "scores": "map<string,double>", "document": "string",
    }.items()  # fmt: skip
    row, document = found["row"], json.loads(found["row"]["document"])
    assert (row["golden_id"], row["passed"], row["tools_used"]) == ("hotel", document["passed"], document["tools_used"])
    assert row["scores"] == {score["metric"]: score["value"] for score in document["scores"]}
    start_ns = next(iter(load_runs(*CAPTURES))).start_ns
    assert start_ns is not None


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("unreadable", "TraceFileError: a row of the data frame cannot be read"),
        ("no column", "ConfigurationError: no table of spans or logs"),
        ("other column", "ConfigurationError: the data frame has no column 'message'; it has body."),
        ("metric", "'tool_recal'"),
        ("unit", "ConfigurationError: unknown unit 'span'"),
        ("stitch", "ConfigurationError: stitch must be 'session' or 'trace', not 'agent'."),
        ("on_error", "ConfigurationError: on_error must be 'raise' or 'skip', not 'no'."),
        ("batch", "ConfigurationError: score_stream needs a streaming data frame"),
    ],
)
def test_what_cannot_be_scored_is_refused_with_a_reason(found: dict[str, Any], name: str, words: str) -> None:
    assert words in found[name]


def test_the_processes_of_a_cluster_give_the_evaluations_of_the_single_process(tmp_path: Path) -> None:
    found = run_batches(tmp_path, "local-cluster[2,1,1024]")
    assert by_run(found["protobuf"]) == expected(tmp_path)
    assert by_run(found["rows"]) == expected(tmp_path)


def score_command(*arguments: str | Path, engine: str = "spark") -> subprocess.CompletedProcess[str]:
    """Run `goldspan score` in the environment of Spark."""
    more = ["--engine", "spark", "--spark-master", "local[2]"] if engine == "spark" else []
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


def test_the_command_prints_the_evaluations_and_the_losses_of_the_single_process(traces: Path) -> None:
    arguments = (traces, "-g", traces.parent / "goldens.yaml", "--json")
    with_spark, alone = score_command(*arguments), score_command(*arguments, engine="local")
    assert (with_spark.returncode, alone.returncode) == (0, 0), with_spark.stderr
    assert by_run(list(map(json.loads, with_spark.stdout.splitlines()))) == by_run(
        list(map(json.loads, alone.stdout.splitlines()))
    )
    losses = [line for line in with_spark.stderr.splitlines() if "everything else was read" in line]
    assert sorted(losses) == sorted(line for line in alone.stderr.splitlines() if "everything else was read" in line)
    assert len(losses) == 2


def test_the_command_writes_a_folder_and_checks_the_gates(traces: Path) -> None:
    out = traces.parent / "out"
    arguments = (traces, "-g", traces.parent / "goldens.yaml", "--limit", "0", "--fail-under", "passed=1")
    with_spark = score_command(*arguments, "--out", out, "--out-format", "parquet")
    alone = score_command(*arguments, engine="local")
    assert (with_spark.returncode, alone.returncode) == (1, 1), with_spark.stderr
    summary = "\n\nmetric "
    assert with_spark.stdout.partition(summary)[2] == alone.stdout.partition(summary)[2] != ""
    assert "gate failed: passed is " in with_spark.stderr
    table = pq.read_table(out)
    assert f"runs: {table.num_rows}, of which " in with_spark.stdout
    assert "summary" not in table.column_names


def test_what_the_command_cannot_read_is_an_error_of_one_line(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("no traces")
    refused = score_command(tmp_path / "notes.txt")
    assert refused.returncode == 2
    error = refused.stderr.splitlines()[-1]
    assert error.startswith(f"error: Spark failed: {tmp_path / 'notes.txt'}: holds no traces that can be read")


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


def test_a_killed_stream_continues_and_loses_and_repeats_nothing(tmp_path: Path) -> None:
    (tmp_path / "goldens.yaml").write_text(GOLDENS)
    wanted = expected(tmp_path)
    every = requests()
    half = len(every) // 2
    for number, request in enumerate(every[:half]):
        arrive(tmp_path, number, request)
    with streaming(tmp_path, idle=2, late=120):
        wait_for(tmp_path, bool)
        for number, request in enumerate(every[half:], start=half):
            arrive(tmp_path, number, request)
        time.sleep(1)
    with streaming(tmp_path, idle=2, late=120):
        wait_for(tmp_path, lambda found: len(found) >= len(wanted))
        time.sleep(3)
    assert written(tmp_path) == wanted


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


def test_late_spans_of_a_stream_cause_a_revision_and_repeated_spans_none(tmp_path: Path) -> None:
    (tmp_path / "goldens.yaml").write_text(GOLDENS)
    whole = next(request for path, request in zip(CAPTURES, requests(), strict=True) if "genai-retry" in path.name)
    early, late = divided(whole)
    with streaming(tmp_path, idle=2, late=120):
        arrive(tmp_path, 0, early)
        wait_for(tmp_path, bool)
        arrive(tmp_path, 1, late)
        wait_for(tmp_path, lambda found: any(document["revision"] == 2 for document in found))
        arrive(tmp_path, 2, whole)
        time.sleep(10)
    last = {document["run_id"]: document for document in written(tmp_path)}
    (final,) = [document for document in expected(tmp_path) if document["run_id"] in last]
    assert last[final["run_id"]] == final | {"revision": 2}


def test_the_state_of_a_trace_is_removed_some_time_after_its_evaluation(tmp_path: Path) -> None:
    (tmp_path / "goldens.yaml").write_text(GOLDENS)
    request = requests()[0]
    with streaming(tmp_path, idle=1, late=1):
        arrive(tmp_path, 0, request)
        wait_for(tmp_path, bool)
        time.sleep(8)
        arrive(tmp_path, 1, request)
        # The trace is forgotten, so the repeated spans are a first revision again.
        wait_for(tmp_path, lambda found: len(found) == 2 * len({document["run_id"] for document in found}))
    assert {document["revision"] for document in written(tmp_path)} == {1}
