"""Zero-code scoring: programs run by `opentelemetry-instrument` with a real receiver."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from importlib.metadata import entry_points
from pathlib import Path

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult

import goldspan
from capture.receivers import Received, http_receiver, plain
from capture.telemetry import Exported, Install
from goldspan import ExpectedTool, Golden, _guard
from goldspan.capture.exporter import ScoringExporter, start_from_environment
from goldspan.capture.zero_code import post_instrument

GOLDENS = [Golden("g", input="Book a hotel.", tools=(ExpectedTool("search"), ExpectedTool("book")))]

AGENT = """
from opentelemetry import trace

tracer = trace.get_tracer("somebody's")

def call(tool):
    with tracer.start_as_current_span(f"execute_tool {tool}") as span:
        span.set_attributes({"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": tool})

with tracer.start_as_current_span("invoke_agent travel") as span:
    span.set_attributes({"gen_ai.operation.name": "invoke_agent", "goldspan.golden.id": "g"})
    call("search")
    call("book")
print("served")
"""


class Program:
    """A program that does not use goldspan, in a folder with goldens."""

    def __init__(self, folder: Path, endpoint: str) -> None:
        (folder / "goldens.yaml").write_text("goldens: [{id: g, tools: [search, book]}]")
        (folder / "agent.py").write_text(AGENT)
        self.folder = folder
        self._endpoint = endpoint

    def run(self, **environment: str) -> subprocess.CompletedProcess[str]:
        settings = {"OTEL_EXPORTER_OTLP_ENDPOINT": self._endpoint, "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf"}
        inherited = {name: value for name, value in os.environ.items() if name != "GOLDSPAN_STRICT"}
        return subprocess.run(
            [Path(sys.executable).with_name("opentelemetry-instrument"), sys.executable, "agent.py"],
            cwd=self.folder,
            env={**inherited, **settings, **environment},
            capture_output=True,
            encoding="utf-8",
            check=True,
            timeout=120,
        )


@pytest.fixture
def received() -> Iterator[tuple[str, Received]]:
    with http_receiver() as receiver:
        yield receiver


@pytest.fixture
def program(tmp_path: Path, received: tuple[str, Received]) -> Program:
    return Program(tmp_path, received[0])


def _evaluations(received: Received) -> int:
    """The number of scored runs according to the metrics."""
    if "goldspan.evaluations" not in received.metrics:
        return 0
    return sum(point.as_int for point in received.metrics["goldspan.evaluations"].sum.data_points)


@pytest.mark.e2e
def test_the_exporter_variable_scores_an_unmodified_program(program: Program, received: tuple[str, Received]) -> None:
    done = program.run(OTEL_TRACES_EXPORTER="goldspan", GOLDSPAN_GOLDENS="goldens.yaml")
    _, got = received
    assert done.stdout == "served\n"
    assert sorted(got.spans) == ["execute_tool book", "execute_tool search", "invoke_agent travel"]
    assert sum(len(scope.spans) for scope in got._scopes("resource_spans", "scope_spans")) == 3
    attributes = plain(got.spans["invoke_agent travel"].attributes)
    assert attributes["goldspan.tools_used"] == ["search", "book"]
    assert attributes["goldspan.passed"] is True
    assert {event.event_name for event in got.events} == {"gen_ai.evaluation.result"}
    assert _evaluations(got) == 1


@pytest.mark.e2e
def test_the_goldens_variable_alone_enables_scoring_under_auto_instrumentation(
    program: Program, received: tuple[str, Received]
) -> None:
    program.run(GOLDSPAN_GOLDENS="goldens.yaml")
    _, got = received
    assert sorted(got.spans) == ["execute_tool book", "execute_tool search", "invoke_agent travel"]
    assert not any(key.startswith("goldspan.score") for key in plain(got.spans["invoke_agent travel"].attributes))
    assert len(got.events) > 0
    assert _evaluations(got) == 1


@pytest.mark.e2e
def test_scoring_can_be_enabled_without_goldens(program: Program, received: tuple[str, Received]) -> None:
    program.run(GOLDSPAN_ENABLED="1")
    assert _evaluations(received[1]) == 1


@pytest.mark.e2e
@pytest.mark.parametrize(
    "environment",
    [
        pytest.param({}, id="nothing asks for it"),
        pytest.param({"GOLDSPAN_GOLDENS": "goldens.yaml", "GOLDSPAN_ENABLED": "0"}, id="switched off"),
        pytest.param({"GOLDSPAN_GOLDENS": "goldens.yaml", "GOLDSPAN_DISABLED": "true"}, id="disabled"),
        pytest.param(
            {"GOLDSPAN_GOLDENS": "goldens.yaml", "GOLDSPAN_DISABLED": "true", "OTEL_TRACES_EXPORTER": "goldspan"},
            id="disabled, with the exporter",
        ),
        pytest.param(
            {"GOLDSPAN_GOLDENS": "goldens.yaml", "GOLDSPAN_ENABLED": "0", "OTEL_TRACES_EXPORTER": "goldspan"},
            id="switched off, with the exporter",
        ),
    ],
)
def test_spans_are_forwarded_and_not_scored_if_scoring_is_not_enabled(
    program: Program, received: tuple[str, Received], environment: dict[str, str]
) -> None:
    done = program.run(**environment)
    _, got = received
    assert "goldspan" not in done.stderr
    assert len(got.spans) == 3
    assert len(got.events) == 0
    assert _evaluations(got) == 0


@pytest.mark.e2e
@pytest.mark.parametrize(
    ("environment", "complaint"),
    [
        pytest.param({"GOLDSPAN_GOLDENS": "none.yaml"}, "none.yaml", id="a golden file that is not there"),
        pytest.param({"GOLDSPAN_ENABLED": "perhaps"}, "GOLDSPAN_ENABLED: 'perhaps'", id="a wrong value"),
        pytest.param(
            {"GOLDSPAN_GOLDENS": "none.yaml", "OTEL_TRACES_EXPORTER": "goldspan"}, "none.yaml", id="with the exporter"
        ),
        pytest.param(
            {"GOLDSPAN_IDLE": "soon", "OTEL_TRACES_EXPORTER": "goldspan"},
            "'soon'",
            id="a time, with the exporter",
        ),
        pytest.param(
            {"GOLDSPAN_ENABLED": "perhaps", "OTEL_TRACES_EXPORTER": "goldspan"},
            "GOLDSPAN_ENABLED: 'perhaps'",
            id="whether it is wanted, with the exporter",
        ),
    ],
)
def test_a_configuration_error_is_logged_once_and_counted_and_the_program_continues(
    program: Program, received: tuple[str, Received], environment: dict[str, str], complaint: str
) -> None:
    done = program.run(**environment)
    _, got = received
    assert done.stdout == "served\n"
    assert done.stderr.count("your application goes on") == 1
    (line,) = [line for line in done.stderr.splitlines() if "goldspan" in line]
    assert complaint in line
    assert "Traceback" not in done.stderr
    assert len(got.spans) == 3
    assert _evaluations(got) == 0
    (point,) = got.metrics["goldspan.internal_errors"].sum.data_points
    assert point.as_int == 1


@pytest.mark.e2e
def test_an_unknown_downstream_exporter_is_logged_with_the_loss_of_spans(program: Program) -> None:
    done = program.run(OTEL_TRACES_EXPORTER="goldspan", GOLDSPAN_THEN_EXPORTER="oltp", GOLDSPAN_GOLDENS="goldens.yaml")
    assert done.stdout == "served\n"
    (line,) = [line for line in done.stderr.splitlines() if "goldspan" in line]
    assert "no span of this process is exported, and nothing is scored" in line
    assert "GOLDSPAN_THEN_EXPORTER: no exporter 'oltp' is installed" in line
    assert "Traceback" not in done.stderr


def test_the_exporter_and_the_hook_are_registered_as_entry_points() -> None:
    (exporter,) = entry_points(group="opentelemetry_traces_exporter", name="goldspan")
    (hook,) = entry_points(group="opentelemetry_post_instrument", name="goldspan")
    assert exporter.load() is ScoringExporter
    assert hook.load() is post_instrument


def test_a_program_without_scoring_imports_only_the_zero_code_hook() -> None:
    code = (
        "import sys; from goldspan.capture.zero_code import post_instrument; post_instrument();"
        "print(*sorted(name for name in sys.modules if name.startswith('goldspan')))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, encoding="utf-8")
    own = ["goldspan._locks", "goldspan._version"]
    assert done.stdout.split() == ["goldspan", *own, "goldspan.capture", "goldspan.capture.zero_code"]


# --- the exporter without the hook -----------------------------------------------------------------------------------


def _provider(exporter: SpanExporter, install: Install, batch: int = 512) -> TracerProvider:
    return install(BatchSpanProcessor(exporter, max_export_batch_size=batch, schedule_delay_millis=3_600_000))


def _call(tool: str) -> None:
    with trace.get_tracer("theirs").start_as_current_span(f"execute_tool {tool}") as span:
        span.set_attributes({"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": tool})


def _serve(provider: TracerProvider, *, flush_after_each: bool = False) -> None:
    tracer = provider.get_tracer("theirs")
    with tracer.start_as_current_span("POST /ask"), tracer.start_as_current_span("invoke_agent travel") as span:
        span.set_attributes({"gen_ai.operation.name": "invoke_agent", "goldspan.golden.id": "g"})
        for tool in ("search", "book"):
            _call(tool)
            if flush_after_each:
                provider.force_flush()


def test_a_request_in_one_batch_is_exported_with_its_results_as_attributes(
    exported: Exported, install: Install
) -> None:
    provider = _provider(ScoringExporter(GOLDENS, then=exported.exporter), install)
    _serve(provider)
    provider.force_flush()
    assert exported.names == ["execute_tool search", "execute_tool book", "invoke_agent travel", "POST /ask"]
    assert exported.attributes("invoke_agent travel")["goldspan.tools_used"] == ["search", "book"]
    assert exported.attributes("invoke_agent travel")["goldspan.passed"] is True
    assert not any(key.startswith("goldspan.score") for key in exported.attributes("POST /ask"))


def test_a_request_that_arrives_in_many_batches_is_scored_once(
    exported: Exported, install: Install, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    results = tmp_path / "results.jsonl"
    monkeypatch.setenv("GOLDSPAN_SINKS", f"attributes,jsonl:{results}")
    provider = _provider(ScoringExporter(GOLDENS, then=exported.exporter), install)
    _serve(provider, flush_after_each=True)
    assert exported.names == ["execute_tool search", "execute_tool book"]
    provider.shutdown()
    assert exported.attributes("invoke_agent travel")["goldspan.tools_used"] == ["search", "book"]
    assert results.read_text().count('"run_id"') == 1


def test_a_request_whose_root_never_arrives_is_scored_at_shutdown(
    exported: Exported, install: Install, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    results = tmp_path / "results.jsonl"
    monkeypatch.setenv("GOLDSPAN_SINKS", f"jsonl:{results}")
    provider = _provider(ScoringExporter(GOLDENS, then=exported.exporter), install)
    root = provider.get_tracer("theirs").start_span("POST /ask")
    with trace.use_span(root):
        _call("search")
    provider.force_flush()
    assert not results.read_text()
    provider.shutdown()
    assert '"tools_used":["search"]' in results.read_text().replace(": ", ":")


def test_the_exporter_does_not_score_if_a_scoring_processor_is_active(exported: Exported, install: Install) -> None:
    provider = _provider(ScoringExporter(GOLDENS, then=exported.exporter), install)
    goldspan.instrument(GOLDENS, sinks=[])
    _serve(provider)
    provider.force_flush()
    assert len(exported.spans) == 4
    assert not any(key.startswith("goldspan.score") for span in exported.spans for key in span.attributes or {})


def test_the_exporter_starts_a_scoring_processor_if_possible(exported: Exported, install: Install) -> None:
    provider = _provider(ScoringExporter(GOLDENS, then=exported.exporter), install)
    _serve(provider)
    start_from_environment()
    _serve(provider)
    provider.force_flush()
    assert len(exported.spans) == 8
    runs = [span for span in exported.spans if "goldspan.passed" in (span.attributes or {})]
    assert [run.name for run in runs] == ["invoke_agent travel"] * 2
    provider.shutdown()


@pytest.mark.usefixtures("install")
def test_a_misconfigured_exporter_forwards_spans_and_logs_one_error(
    exported: Exported, install: Install, caplog: pytest.LogCaptureFixture
) -> None:
    provider = _provider(ScoringExporter("none.yaml", then=exported.exporter), install)
    for _ in range(2):
        _serve(provider)
        provider.force_flush()
    assert len(exported.spans) == 8
    (record,) = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert "goldspan could not start from the environment" in record.getMessage()
    assert sum(_guard.failure_counts.values()) == 1


def test_an_exporter_without_a_downstream_exporter_logs_it(install: Install, caplog: pytest.LogCaptureFixture) -> None:
    provider = _provider(ScoringExporter(GOLDENS, then="none"), install)
    _serve(provider)
    assert provider.force_flush()
    assert "OTEL_TRACES_EXPORTER=goldspan has no downstream exporter that receives the spans" in caplog.text


def test_force_flush_of_the_exporter_succeeds_if_the_downstream_flush_does(exported: Exported) -> None:
    assert ScoringExporter(GOLDENS, then=exported.exporter).force_flush()


class _Failing(SpanExporter):
    def export(self, spans: object) -> SpanExportResult:
        return SpanExportResult.FAILURE


def test_the_exporter_scores_all_runs_and_forwards_a_sample_of_whole_traces(
    exported: Exported, install: Install, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    results = tmp_path / "results.jsonl"
    monkeypatch.setenv("GOLDSPAN_SINKS", f"jsonl:{results}")
    monkeypatch.setenv("GOLDSPAN_EXPORT_SAMPLE", "0.5")
    provider = _provider(ScoringExporter(GOLDENS, then=exported.exporter), install)
    for _ in range(64):
        _serve(provider)
        provider.force_flush()
    provider.shutdown()
    assert len(results.read_text().splitlines()) == 64
    sizes = Counter(span.context.trace_id for span in exported.spans)
    assert 0 < len(sizes) < 64
    assert set(sizes.values()) == {4}


def test_a_disabled_exporter_only_forwards_spans(
    exported: Exported, install: Install, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GOLDSPAN_ENABLED", "0")
    provider = _provider(ScoringExporter(GOLDENS, then=exported.exporter), install)
    start_from_environment()
    _serve(provider)
    provider.force_flush()
    assert len(exported.spans) == 4
    assert not any(key.startswith("goldspan.score") for span in exported.spans for key in span.attributes or {})


def test_a_failure_of_the_downstream_exporter_is_returned() -> None:
    assert ScoringExporter(GOLDENS, then=_Failing()).export([]) is SpanExportResult.FAILURE


def test_downstream_exporters_can_be_given_by_name(install: Install, capsys: pytest.CaptureFixture[str]) -> None:
    provider = _provider(ScoringExporter(GOLDENS, then="console"), install)
    _serve(provider)
    provider.force_flush()
    provider.shutdown()
