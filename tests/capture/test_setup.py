"""`goldspan.instrument()`: one line, in any program, that never takes anything away."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
from pathlib import Path

import pytest
from opentelemetry import _logs, metrics, trace
from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk._logs.export import InMemoryLogRecordExporter, SimpleLogRecordProcessor
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.trace import NoOpTracerProvider

import goldspan
from capture.telemetry import Exported, Install
from goldspan import ExpectedTool, Golden
from goldspan.capture.settings import Settings, from_environment

GOLDENS = [Golden("g", tools=(ExpectedTool("search"),))]


@goldspan.trace
def search(query: str) -> str:
    return query


@goldspan.trace(kind="agent", golden="g")
def agent(question: str) -> str:
    return search(question)


@pytest.fixture
def quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    """No exporters but those a test names."""
    for signal in ("TRACES", "LOGS", "METRICS"):
        monkeypatch.setenv(f"OTEL_{signal}_EXPORTER", "none")


def test_beside_an_existing_provider_it_adds_and_never_replaces(
    exported: Exported, install: Install, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "goldspan")
    provider = install(exported.processor())
    goldspan.instrument(GOLDENS)
    agent("hi")
    assert trace.get_tracer_provider() is provider
    assert exported.names == ["execute_tool search", "invoke_agent agent"]
    assert list(exported.attributes("invoke_agent agent")["goldspan.tools_used"]) == ["search"]
    told = [(record.levelname, record.getMessage()) for record in caplog.records]
    assert [level for level, _ in told] == ["INFO", "WARNING", "WARNING"]
    assert "attributes of @goldspan.trace spans" in told[0][1]
    assert "nothing receives events" in told[1][1]
    assert "nothing receives metrics" in told[2][1]


def test_beside_existing_providers_of_every_signal_all_sinks_are_live(
    exported: Exported, install: Install, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "goldspan")
    events, reader = InMemoryLogRecordExporter(), InMemoryMetricReader()
    logger_provider = LoggerProvider()
    logger_provider.add_log_record_processor(SimpleLogRecordProcessor(events))
    _logs.set_logger_provider(logger_provider)
    metrics.set_meter_provider(MeterProvider([reader]))
    install()
    goldspan.instrument(GOLDENS, then=exported.processor())
    agent("hi")
    assert list(exported.attributes("invoke_agent agent")["goldspan.tools_used"]) == ["search"]
    assert len(events.get_finished_logs()) > 0
    assert "goldspan.score" in str(reader.get_metrics_data())
    (record,) = caplog.records
    assert record.getMessage().endswith("attributes of runs' spans, events, metrics")


@pytest.mark.usefixtures("quiet")
def test_a_second_call_adds_nothing(exported: Exported, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "goldspan")
    running = goldspan.instrument(GOLDENS, then=exported.processor())
    goldspan.instrument(GOLDENS, then=exported.processor()).shutdown()
    assert "adds no second one" in caplog.records[-1].getMessage()
    agent("hi")
    assert len(exported.spans) == 2
    running.force_flush()
    running.shutdown()


@pytest.mark.usefixtures("quiet")
def test_where_a_scoring_processor_is_at_work_nothing_is_added(exported: Exported, install: Install) -> None:
    install(goldspan.ScoringProcessor(GOLDENS, then=exported.processor()))
    goldspan.instrument()
    agent("hi")
    assert len(exported.spans) == 2


@pytest.mark.usefixtures("quiet")
def test_it_can_be_started_again_after_a_shutdown(exported: Exported) -> None:
    goldspan.instrument(GOLDENS).shutdown()
    goldspan.instrument(GOLDENS, then=exported.processor())
    agent("hi")
    assert exported.names == ["execute_tool search", "invoke_agent agent"]


@pytest.mark.usefixtures("quiet")
def test_goldens_metrics_and_thresholds_may_come_from_the_environment(
    exported: Exported, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    path = tmp_path / "goldens.yaml"
    path.write_text("goldens: [{id: g, tools: [search, book]}]")
    monkeypatch.setenv("GOLDSPAN_GOLDENS", str(path))
    monkeypatch.setenv("GOLDSPAN_METRICS", "tool_recall")
    monkeypatch.setenv("GOLDSPAN_THRESHOLDS", "tool_recall=0.9")
    goldspan.instrument(then=exported.processor())
    agent("hi")
    attributes = exported.attributes("invoke_agent agent")
    assert attributes["goldspan.score.tool_recall"] == 0.5
    assert attributes["goldspan.passed"] is False
    assert "goldspan.score.tool_correctness" not in attributes


@pytest.mark.parametrize("exporters", ["console", "console, console"])
def test_without_providers_a_program_gets_its_own_from_the_environment(tmp_path: Path, exporters: str) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        "import goldspan\n"
        "goldspan.instrument()\n"
        "@goldspan.trace\n"
        "def search(query): return query\n"
        "@goldspan.trace(kind='agent')\n"
        "def agent(question): return search(question)\n"
        "agent('hi')\n"
    )
    settings = {"OTEL_TRACES_EXPORTER": exporters, "OTEL_LOGS_EXPORTER": "console", "OTEL_METRICS_EXPORTER": "console"}
    done = subprocess.run(
        [sys.executable, program],
        env={**os.environ, **settings, "OTEL_SERVICE_NAME": "desk"},
        capture_output=True,
        encoding="utf-8",
        check=True,
        timeout=60,
    )
    decoder, shown, rest = json.JSONDecoder(), [], done.stdout.lstrip()
    while rest:
        document, end = decoder.raw_decode(rest)
        shown.append(document)
        rest = rest[end:].lstrip()
    spans = {document["name"]: document for document in shown if "name" in document}
    assert done.stdout.count('"goldspan.tools_used"') == exporters.count("console")
    assert spans["invoke_agent agent"]["attributes"]["goldspan.tools_used"] == ["search"]
    assert spans["invoke_agent agent"]["resource"]["attributes"]["service.name"] == "desk"
    assert any("gen_ai.evaluation.name" in document.get("attributes", {}) for document in shown)
    assert any("resource_metrics" in document for document in shown)


@pytest.mark.usefixtures("quiet")
@pytest.mark.parametrize(
    ("variable", "value", "message"),
    [
        pytest.param(
            "OTEL_TRACES_EXPORTER", "oltp", "no exporter 'oltp' is installed; there are console, otlp", id="exporter"
        ),
        pytest.param("GOLDSPAN_METRICS", "tool_recal", "tool_recal", id="metric"),
        pytest.param("GOLDSPAN_THRESHOLDS", "tool_recall:1", "'tool_recall:1' is not of the form", id="threshold"),
        pytest.param("GOLDSPAN_MAX_SPANS", "many", "GOLDSPAN_MAX_SPANS: 'many'", id="number"),
        pytest.param("GOLDSPAN_MAX_TRACES", "0", "at least 1", id="zero"),
        pytest.param("GOLDSPAN_GOLDENS", "none.yaml", "none.yaml", id="file"),
    ],
)
def test_a_wrong_variable_is_named_and_leaves_the_program_as_it_was(
    monkeypatch: pytest.MonkeyPatch, variable: str, value: str, message: str
) -> None:
    monkeypatch.setenv(variable, value)
    with pytest.raises(goldspan.GoldspanError, match=message):
        goldspan.instrument()
    assert isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider)


def test_an_unknown_protocol_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "http/json")
    with pytest.raises(goldspan.ConfigurationError, match="OTEL_EXPORTER_OTLP_TRACES_PROTOCOL: unknown protocol"):
        goldspan.instrument()


def test_a_provider_that_takes_no_processors_is_refused() -> None:
    trace.set_tracer_provider(NoOpTracerProvider())
    with pytest.raises(goldspan.ConfigurationError, match="NoOpTracerProvider"):
        goldspan.instrument()


def test_an_empty_environment_says_nothing() -> None:
    assert from_environment({}) == Settings()
    assert from_environment({"GOLDSPAN_GOLDENS": " , ", "GOLDSPAN_MAX_SPANS": " "}) == Settings()


def test_every_variable_is_in_the_table() -> None:
    import goldspan.capture.settings as module

    variables = {value for value in vars(module).values() if isinstance(value, str) and value.startswith("GOLDSPAN_")}
    assert variables
    assert all(f"| `{variable}` |" in str(module.__doc__) for variable in variables)


def test_several_values_are_separated_by_commas() -> None:
    settings = from_environment(
        {
            "GOLDSPAN_GOLDENS": "a.yaml, b.yaml",
            "GOLDSPAN_GOLDEN_ID_ATTRIBUTE": "case.id",
            "GOLDSPAN_THRESHOLDS": "tool_recall=1, tool_f1 = 0.5",
            "GOLDSPAN_MAX_TRACES": "5",
        }
    )
    assert settings.goldens == ("a.yaml", "b.yaml")
    assert settings.golden_id_attributes == ("case.id",)
    assert settings.thresholds == {"tool_recall": 1.0, "tool_f1": 0.5}
    assert settings.max_traces == 5


def test_the_providers_made_are_the_sdks(monkeypatch: pytest.MonkeyPatch) -> None:
    for signal in ("TRACES", "LOGS", "METRICS"):
        monkeypatch.setenv(f"OTEL_{signal}_EXPORTER", "console")
    goldspan.instrument(GOLDENS)
    assert isinstance(trace.get_tracer_provider(), TracerProvider)
    assert isinstance(_logs.get_logger_provider(), LoggerProvider)
    assert isinstance(metrics.get_meter_provider(), MeterProvider)
