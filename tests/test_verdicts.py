"""Tests that a golden and a run have the same verdict and reason in every interface of goldspan."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode
from typer.testing import CliRunner

import goldspan
from goldspan.cli.app import app
from goldspan.model import SpanRecord
from support.gateway_process import eventually, serving
from support.gateway_scoring_harness import json_request, request
from support.span_builders import agent, inside, model, says, tool, trace_id, user
from support.verdict_cases import CASES, Case

VISIBLE = [case for case in CASES if not case.invisible]


def write_goldens(folder: Path) -> Path:
    """Write the goldens of all cases into one file, with the vocabulary that the cases declare."""
    declared = {name: tool for case in CASES for name, tool in case.tools.items()}
    goldens = [{"id": case.id, **case.golden} for case in CASES]
    path = folder / "goldens.yaml"
    path.write_text(yaml.safe_dump({"tools": declared, "goldens": goldens}, allow_unicode=True), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def goldens(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_goldens(tmp_path_factory.mktemp("goldens"))


def attributes_of(call: Mapping[str, Any]) -> dict[str, Any]:
    result = {"gen_ai__tool__call__result": json.dumps(call["result"])} if "result" in call else {}
    return result | ({"failed": call["error"]} if "error" in call else {})


def spans_of(case: Case, number: int) -> list[SpanRecord]:
    """Build the run as spans of the GenAI conventions; if calls are visible, with the model's answer."""
    root = agent("main", trace_id=trace_id(number), goldspan__golden__id=case.id)
    spans = [root]
    if not case.invisible:
        spans.append(model(asked=[user("Go on.")], answered=[says("Done.")], **inside(root)))
    made = [tool(each["name"], each.get("arguments"), **attributes_of(each), **inside(root)) for each in case.calls]
    return [*spans, *made]


def is_as_expected(case: Case, passed: bool | None, reason: str) -> bool:
    return passed is case.passed and case.says in reason


@pytest.mark.parametrize("case", VISIBLE, ids=lambda case: case.id)
def test_evaluate_has_the_verdict(case: Case, goldens: Path) -> None:
    result = goldspan.evaluate(list(case.calls), goldspan.load_goldens(goldens)[case.id])
    assert is_as_expected(case, result.passed, result.reason), (result.passed, result.reason)


@pytest.mark.parametrize(
    "case", [case for case in VISIBLE if "tools" in case.golden and not case.tools], ids=lambda case: case.id
)
def test_evaluate_with_every_key_as_a_keyword_has_the_verdict(case: Case) -> None:
    rules = {key: value for key, value in case.golden.items() if key != "tools"}
    result = goldspan.evaluate(list(case.calls), case.golden["tools"], **rules)
    assert is_as_expected(case, result.passed, result.reason), (result.passed, result.reason)


def test_cases_have_the_verdict(goldens: Path) -> None:
    rows = [{"golden_id": case.id, "tools_called": list(case.calls)} for case in VISIBLE]
    results = goldspan.evaluate_cases(rows, goldspan.load_goldens(goldens))
    assert not wrong((case, result.passed, result.reason) for case, result in zip(VISIBLE, results, strict=True))


def test_trace_files_have_the_verdict(goldens: Path, tmp_path: Path) -> None:
    traces = tmp_path / "traces.jsonl"
    lines = [json_request(*spans_of(case, number)).decode() for number, case in enumerate(CASES)]
    traces.write_text("\n".join(lines), encoding="utf-8")
    outcome = CliRunner().invoke(app, ["score", str(traces), "--goldens", str(goldens), "--json"])
    assert outcome.exit_code == 0, outcome.output
    found = {each["golden_id"]: each for each in map(json.loads, outcome.stdout.splitlines())}
    assert not wrong((case, found[case.id]["passed"], found[case.id]["reason"]) for case in CASES)
    assert all(found[case.id]["status"] == ("not_evaluated" if case.passed is None else "scored") for case in CASES)


def test_the_processor_has_the_verdict(goldens: Path) -> None:
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(goldspan.ScoringProcessor(goldens, then=SimpleSpanProcessor(exporter)))
    tracer = provider.get_tracer("tests")
    for number, case in enumerate(CASES):
        root, *others = spans_of(case, number)
        with tracer.start_as_current_span(root.name, attributes=dict(root.attributes)):
            for each in others:
                with tracer.start_as_current_span(each.name, attributes=dict(each.attributes)) as span:
                    if each.status == "error":
                        span.set_status(StatusCode.ERROR, "boom")
    provider.shutdown()
    roots = {span.attributes["goldspan.golden.id"]: span.attributes for span in exporter.get_finished_spans()
             if span.parent is None}  # fmt: skip
    assert not wrong((case, roots[case.id].get("goldspan.passed"), roots[case.id]["goldspan.reason"]) for case in CASES)


def test_the_gateway_has_the_verdict(goldens: Path, tmp_path: Path) -> None:
    with serving(tmp_path, "--goldens", str(goldens), environment={"GOLDSPAN_GRACE": "0.1"}) as gateway:
        ids = []
        for number, case in enumerate(CASES):
            spans = spans_of(case, number)
            assert gateway.post(request(*spans))[0] == 200
            ids.append(f"{spans[0].trace_id}:{spans[0].span_id}")

        def stored() -> dict[str, Any]:
            runs = gateway.get("/api/v1/runs?limit=200")["runs"]
            return {run["run_id"]: run for run in runs}

        eventually(lambda: len(stored()) == len(CASES), lambda: gateway.log)
        found = [gateway.get(f"/api/v1/runs/{run_id}") for run_id in ids]
    assert not wrong((case, run["passed"], run["reason"]) for case, run in zip(CASES, found, strict=True))


@pytest.mark.e2e
@pytest.mark.parametrize(("unknown", "passed"), [("ignore", True), ("fail", False)])
def test_the_setting_unknown_determines_the_verdict_of_the_gateway(unknown: str, passed: bool, tmp_path: Path) -> None:
    path = tmp_path / "goldens.yaml"
    path.write_text("goldens: [{id: refund, tools: [{name: refund, arguments: {order: 7}}]}]", encoding="utf-8")
    root = agent("main", goldspan__golden__id="refund")
    environment = {"GOLDSPAN_GRACE": "0.1", "GOLDSPAN_UNKNOWN": unknown}
    with serving(tmp_path, "--goldens", str(path), environment=environment) as gateway:
        assert gateway.post(request(root, tool("refund", **inside(root))))[0] == 200
        eventually(lambda: gateway.get("/api/v1/runs")["runs"], lambda: gateway.log)
        run = gateway.get(f"/api/v1/runs/{root.trace_id}:{root.span_id}")
    assert run["passed"] is passed
    assert [each["about"] for each in run["unjudged"]] == ["arguments"]


def wrong(found: Iterator[tuple[Case, bool | None, str]]) -> list[tuple[str, bool | None, str]]:
    return [(case.id, passed, reason) for case, passed, reason in found if not is_as_expected(case, passed, reason)]
