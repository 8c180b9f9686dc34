"""300 runs have the same evaluation in `evaluate_agent`, pytest, the process, a trace file and lists of calls."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

import goldspan
from goldspan import read_results
from goldspan.testing.results import AgentResults
from support.verdict_cases import CASES

RUNNABLE = [
    case
    for case in CASES
    if not case.invisible and ("tools" in case.golden or "any_of" in case.golden) and not case.golden.get("policy")
]
TRIALS = -(-300 // len(RUNNABLE))

AGENT = """
import json, time
from pathlib import Path
from opentelemetry import trace
from opentelemetry.trace import Status, StatusCode

calls = json.loads(Path("calls.json").read_text())

def agent(text, golden):
    tracer = trace.get_tracer("an agent")
    with tracer.start_as_current_span("agent", attributes={"gen_ai.operation.name": "invoke_agent"}):
        answer = json.dumps([{"role": "assistant", "parts": [{"type": "text", "content": "Done."}]}])
        attributes = {"gen_ai.operation.name": "chat", "gen_ai.output.messages": answer}
        tracer.start_span("chat", attributes=attributes).end()
        for call in calls[golden.id]:
            attributes = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": call["name"]}
            for key in ("arguments", "result"):
                if key in call:
                    attributes[f"gen_ai.tool.call.{key}"] = json.dumps(call[key])
            span = tracer.start_span("tool", attributes=attributes)
            if "error" in call:
                span.set_status(Status(StatusCode.ERROR, call["error"]))
            span.end()
            time.sleep(0.0001)  # the order of calls is that of their times
"""
PROGRAM = """
import sys
from pathlib import Path
from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
import goldspan
from app import agent
from goldspan.sinks.serialization import evaluation_document, to_json

live, exporter, provider = [], InMemorySpanExporter(), TracerProvider()
provider.add_span_processor(
    goldspan.ScoringProcessor("goldens.yaml", then=SimpleSpanProcessor(exporter), sinks=[live.append])
)
trace.set_tracer_provider(provider)
trials = int(sys.argv[1])
goldspan.evaluate_agent(agent, "goldens.yaml", trials=trials, results="results.jsonl", keep_arguments=True)
provider.force_flush()
Path("live.jsonl").write_text("".join(to_json(evaluation_document(each)) + "\\n" for each in live))
Path("traces.pb").write_bytes(encode_spans(exporter.get_finished_spans()).SerializeToString())
"""
TESTS = """
import pytest
from app import agent

@pytest.mark.parametrize("trial", range({trials}))
@pytest.mark.goldens("goldens.yaml")
def test_agent(golden_case, trial):
    agent(golden_case.input, golden_case.golden)
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs")
    declared = {name: tool for case in RUNNABLE for name, tool in case.tools.items()}
    goldens = [{"id": case.id, "input": case.id, **case.golden} for case in RUNNABLE]
    document = yaml.safe_dump({"tools": declared, "goldens": goldens}, allow_unicode=True)
    (folder / "goldens.yaml").write_text(document, encoding="utf-8")
    (folder / "calls.json").write_text(json.dumps({case.id: case.calls for case in RUNNABLE}), encoding="utf-8")
    (folder / "app.py").write_text(AGENT, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(TRIALS)],
        cwd=folder,
        capture_output=True,
        encoding="utf-8",
        check=False,
        env={**os.environ, "PYTHONUTF8": "1"},
    )
    assert done.returncode == 0, done.stderr
    return folder


def by_run(lines: str) -> dict[str, Any]:
    return {document["run_id"]: document for document in map(json.loads, lines.splitlines())}


@pytest.mark.e2e
def test_at_least_300_runs_have_the_expected_verdict(folder: Path) -> None:
    expected = {case.id: case.passed for case in RUNNABLE}
    results = read_results(folder / "results.jsonl")
    assert len(results.cases) == len(RUNNABLE) * TRIALS >= 300
    assert [case.golden_id for case in results.cases if case.passed is not expected[case.golden_id]] == []


@pytest.mark.e2e
def test_the_evaluations_of_the_agent_the_process_and_the_file_are_equal_field_by_field(folder: Path) -> None:
    of_agent = {
        case.evaluation["run_id"]: case.evaluation
        for case in read_results(folder / "results.jsonl").cases
        if case.evaluation is not None
    }
    live = by_run((folder / "live.jsonl").read_text(encoding="utf-8"))
    command = [sys.executable, "-m", "goldspan", "score", "traces.pb", "-g", "goldens.yaml", "--json"]
    scored = subprocess.run(command, cwd=folder, capture_output=True, encoding="utf-8", check=True)
    assert of_agent == live
    assert of_agent == by_run(scored.stdout)


@pytest.mark.e2e
def test_the_evaluations_of_the_agent_and_of_pytest_are_equal_field_by_field(folder: Path) -> None:
    (folder / "test_agent.py").write_text(TESTS.format(trials=TRIALS), encoding="utf-8")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--goldspan-report", "out"]
    done = subprocess.run(
        [*command, "--rootdir", str(folder)], cwd=folder, capture_output=True, encoding="utf-8", check=False
    )
    assert done.returncode == pytest.ExitCode.TESTS_FAILED, done.stdout
    of_agent, under_test = read_results(folder / "results.jsonl"), read_results(folder / "out" / "results.jsonl")
    assert by_trial(under_test) == by_trial(of_agent)


def by_trial(results: AgentResults) -> dict[tuple[str, int], dict[str, Any]]:
    """The evaluations without the ids of their traces, which are new each time."""
    of_trace = {"run_id", "trace_ids", "span_id"}
    return {
        case.key: {name: value for name, value in (case.evaluation or {}).items() if name not in of_trace}
        for case in results.cases
    }


@pytest.mark.e2e
def test_the_evaluations_of_the_agent_and_of_lists_of_calls_are_equal(folder: Path) -> None:
    goldens = goldspan.load_goldens(folder / "goldens.yaml")
    calls = {case.id: case.calls for case in RUNNABLE}
    cases = read_results(folder / "results.jsonl").cases
    rows = [{"golden_id": case.golden_id, "tools_called": list(calls[case.golden_id])} for case in cases]
    for case, listed in zip(cases, goldspan.evaluate_cases(rows, goldens), strict=True):
        assert case.evaluation is not None
        assert (case.evaluation["passed"], case.evaluation["reason"]) == (listed.passed, listed.reason)
        assert {score.metric: score.value for score in listed.scores} == {
            score["metric"]: score["value"] for score in case.evaluation["scores"]
        }


@pytest.mark.e2e
def test_a_run_of_the_results_file_is_evaluated_again_with_the_same_digest(folder: Path) -> None:
    goldens = goldspan.load_goldens(folder / "goldens.yaml")
    for case in read_results(folder / "results.jsonl").cases:
        run = case.to_run()
        assert run is not None
        assert case.evaluation is not None
        again = goldspan.evaluate(run, goldens)
        assert (again.digest, again.passed, again.reason) == tuple(
            case.evaluation[key] for key in ("digest", "passed", "reason")
        )
