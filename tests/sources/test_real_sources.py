"""Runs that are read out of real Phoenix and MLflow servers equal those of the files with the same spans."""

from __future__ import annotations

import gzip
import hashlib
import os
import shutil
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from goldspan import Run, load_runs
from goldspan.goldens.lookup.golden_lookup import NO_INPUT_REASON
from recipes.environments import is_built
from support.command_line import Goldspan
from support.command_line import goldspan as goldspan  # a fixture
from support.gateway_process import eventually
from support.product_programs import MLflowProgram, PhoenixProgram, ProductProgram

pytestmark = pytest.mark.e2e

FIXTURES = Path(__file__).parents[1] / "fixtures"
FILES = sorted(
    path
    for folder in ("captures", "families")
    for path in (FIXTURES / folder).glob("*.pb.gz")
    if not path.name.endswith(".logs.pb.gz")
)
"""Traces of real instrumentations, one OTLP request in each file."""
WHOLE_TIME = ("--since", "2020-01-01", "--until", "2100-01-01")
PATIENCE_S = 60
OVERLOAD_S = 600
"""How long Phoenix may refuse spans until it has stored those that it accepted."""
TRACES = max(100, round(10_000 * float(os.environ.get("STRESS", "1"))))


@pytest.fixture(
    params=[
        pytest.param(
            program,
            id=program.name,
            marks=pytest.mark.skipif(
                not is_built(program.name), reason=f"{program.name} needs its environment: make recipes"
            ),
        )
        for program in (PhoenixProgram, MLflowProgram)
    ],
)
def program(request, tmp_path) -> Iterator[ProductProgram]:
    folder = tmp_path / "product"
    folder.mkdir()
    product = request.param(folder)
    product.start()
    yield product
    product.stop()


def send(program: ProductProgram, body: bytes) -> None:
    """Send an OTLP request, and repeat it while the product is overloaded, as exporters do."""
    headers = {"content-type": "application/x-protobuf", **program.otlp_headers}
    request = urllib.request.Request(f"{program.url}/v1/traces", body, headers)
    until = time.monotonic() + OVERLOAD_S
    while True:
        try:
            return urllib.request.urlopen(request, timeout=60).close()
        except urllib.error.HTTPError as error:
            if error.code != 503 or time.monotonic() > until:
                raise
        time.sleep(1)


def source_url(program: ProductProgram) -> str:
    return f"{program.name}://127.0.0.1:{program.port}"


def write_goldens(path: Path, runs: Sequence[Run]) -> None:
    """Write a golden for each text of a request; every second run misses a tool."""
    by_input: dict[str, dict[str, Any]] = {}
    for number, run in enumerate(runs):
        tools: list[Any] = [{"name": call.name, "arguments": call.arguments or {}} for call in run.tool_calls]
        if run.input:
            golden = {"id": f"golden-{number}", "input": run.input, "tools": tools + ["missing"] * (number % 2)}
            by_input.setdefault(run.input, golden)
    path.write_text(yaml.safe_dump({"goldens": list(by_input.values())}), encoding="utf-8")


_WITHOUT_INPUT = f"No golden applies to this run: {NO_INPUT_REASON}."


def scored(goldspan: Goldspan, *arguments: object) -> dict[str, dict[str, Any]]:
    """Return what `goldspan score` prints about each run.

    Its health, and which setting would record a missing input, depend on scopes, which the products drop.
    """
    result = goldspan("score", *arguments, "--json")
    assert result.status == 0, result.err
    found = {}
    for document in result.documents:
        if document["reason"].startswith(_WITHOUT_INPUT):
            document["reason"] = _WITHOUT_INPUT
        found[document["run_id"]] = {
            name: value for name, value in document.items() if name not in ("health", "digest")
        }
    return found


def calls(runs: Iterator[Run]) -> dict[str, Any]:
    """Return the calls of each run."""
    return {
        run.run_id: [(call.name, call.arguments, call.result, call.kind, bool(call.error)) for call in run.tool_calls]
        for run in runs
    }


def test_the_verdicts_of_all_recorded_traces(program, tmp_path, goldspan) -> None:
    for path in FILES:
        send(program, gzip.decompress(path.read_bytes()))
    goldens, folder = tmp_path / "goldens.yaml", tmp_path / "pulled"
    write_goldens(goldens, list(load_runs(*FILES)))
    wanted = scored(goldspan, *FILES, "--goldens", goldens)
    assert len(wanted) > 90
    assert {document["passed"] for document in wanted.values()} == {True, False, None}
    found: dict[str, dict[str, Any]] = {}

    def has_all_runs() -> bool:  # Phoenix stores spans after it has accepted them
        shutil.rmtree(folder, ignore_errors=True)
        found.clear()
        found.update(scored(goldspan, *pull, "--goldens", goldens))
        return found == wanted

    def differences() -> str:
        return "\n".join(
            f"{run_id}: {name}: {value!r} became {found.get(run_id, {}).get(name)!r}"
            for run_id, document in wanted.items()
            for name, value in document.items()
            if found.get(run_id, {}).get(name) != value
        )

    pull = (source_url(program), *WHOLE_TIME, "--save-traces", folder)
    eventually(has_all_runs, differences, PATIENCE_S)
    assert calls(load_runs(folder)) == calls(load_runs(*FILES))


def copies(count: int) -> Iterator[ExportTraceServiceRequest]:
    """Yield requests with copies of recorded traces, each with ids of its own, a hundred in each request."""
    recorded = [
        ExportTraceServiceRequest.FromString(gzip.decompress((FIXTURES / "captures" / f"{name}.pb.gz").read_bytes()))
        for name in ("genai-retry", "genai-mcp", "openinference-client-retry", "traceloop-client-parallel")
    ]
    request = ExportTraceServiceRequest()
    for number in range(count):
        copy = ExportTraceServiceRequest()
        copy.CopyFrom(recorded[number % len(recorded)])
        for span in (s for r in copy.resource_spans for scope in r.scope_spans for s in scope.spans):
            for name in ("trace_id", "span_id", "parent_span_id"):
                if old := getattr(span, name):
                    setattr(span, name, hashlib.sha256(old + number.to_bytes(4, "big")).digest()[: len(old)])
        request.MergeFrom(copy)
        if number % 100 == 99 or number == count - 1:
            yield request
            request = ExportTraceServiceRequest()


@pytest.mark.stress
def test_ten_thousand_traces(program, tmp_path, goldspan) -> None:
    file, goldens, folder = tmp_path / "traces.pb", tmp_path / "goldens.yaml", tmp_path / "pulled"
    with file.open("wb") as output:
        for request in copies(TRACES):
            send(program, body := request.SerializeToString())
            output.write(body)
    write_goldens(goldens, list(load_runs(file)))
    wanted = scored(goldspan, file, "--goldens", goldens)
    seconds = 0.0

    def has_all_traces() -> bool:
        nonlocal seconds
        shutil.rmtree(folder, ignore_errors=True)
        began = time.monotonic()
        found = goldspan("extract", *pull, "--json")
        seconds = time.monotonic() - began
        return len(found.documents) == len(wanted)

    pull = (source_url(program), *WHOLE_TIME, "--save-traces", folder)
    eventually(has_all_traces, "not all traces arrived", PATIENCE_S + TRACES / 10)
    found = scored(goldspan, folder, "--goldens", goldens)
    print(f"{program.name}: {TRACES} traces, {len(found)} runs read in {seconds:.0f} s")
    assert found == wanted
    assert calls(load_runs(folder)) == calls(load_runs(file))
