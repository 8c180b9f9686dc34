"""`goldspan.instrument()` in programs with and without providers."""

from __future__ import annotations

import importlib
import inspect
import json
import logging
import os
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

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
from goldspan import ExpectedTool, Golden, Goldens
from goldspan.capture import processor as processor_module
from goldspan.capture import providers, setup
from goldspan.capture.environment import VARIABLES, EnvironmentSettings, captured_arguments, read_environment
from goldspan.capture.processor_options import ProcessorOptions
from goldspan.conventions import classification
from goldspan.judge.judge import JudgeSettings
from goldspan.online import Limits
from goldspan.store import open_store
from support.docs_examples import ROOT

GOLDENS = [Golden("g", tools=(ExpectedTool("search"),))]


@goldspan.trace
def search(query: str) -> str:
    return query


@goldspan.trace(kind="agent", golden="g")
def agent(question: str) -> str:
    return search(question)


@pytest.fixture
def quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    """No exporters, unless a test sets them."""
    for signal in ("TRACES", "LOGS", "METRICS"):
        monkeypatch.setenv(f"OTEL_{signal}_EXPORTER", "none")


def test_instrument_adds_to_an_existing_provider_and_replaces_nothing(
    exported: Exported, install: Install, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "goldspan")
    provider = install(exported.processor())
    goldspan.instrument(GOLDENS)
    agent("hi")
    assert trace.get_tracer_provider() is provider
    assert exported.names == ["execute_tool search", "invoke_agent agent"]
    assert list(exported.attributes("invoke_agent agent")["goldspan.tools_used"]) == ["search"]
    messages = [(record.levelname, record.getMessage()) for record in caplog.records]
    assert [level for level, _ in messages] == ["INFO", "WARNING", "WARNING"]
    assert "attributes of @goldspan.trace spans" in messages[0][1]
    assert "nothing receives events" in messages[1][1]
    assert "nothing receives metrics" in messages[2][1]


def test_all_sinks_emit_through_existing_providers_of_every_signal(
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
def test_a_second_call_of_instrument_adds_nothing(exported: Exported, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "goldspan")
    running = goldspan.instrument(GOLDENS, then=exported.processor())
    goldspan.instrument(GOLDENS, then=exported.processor()).shutdown()
    assert "is already active in this process" in caplog.records[-1].getMessage()
    agent("hi")
    assert len(exported.spans) == 2
    running.force_flush()
    running.shutdown()


@pytest.mark.usefixtures("quiet")
@pytest.mark.parametrize("beside", [False, True])
def test_concurrent_calls_of_instrument_add_one_processor(
    exported: Exported, monkeypatch: pytest.MonkeyPatch, beside: bool
) -> None:
    made, seen = [], []
    if beside:
        trace.set_tracer_provider(TracerProvider())

    def slow(*given: Any, **options: Any) -> Any:
        time.sleep(0.05)
        return goldspan.ScoringProcessor(*given, **options)

    monkeypatch.setattr(setup, "ScoringProcessor", slow)
    options = {"sinks": [seen.append], "then": exported.processor(), "background": False}
    calling = [threading.Thread(target=lambda: made.append(goldspan.instrument(**options))) for _ in range(8)]
    for thread in calling:
        thread.start()
    for thread in calling:
        thread.join()
    assert sorted(each.added_processor for each in made) == [False] * 7 + [True]
    assert trace.get_tracer_provider() is not None
    goldspan.trace(kind="agent")(str.upper)("find it")
    assert len(seen) == len(exported.names) == 1


def test_instrument_adds_nothing_if_a_scoring_processor_is_active(exported: Exported, install: Install) -> None:
    install(goldspan.ScoringProcessor(GOLDENS, then=exported.processor()))
    goldspan.instrument()
    agent("hi")
    assert len(exported.spans) == 2


@pytest.mark.usefixtures("quiet")
def test_instrument_can_be_called_again_after_a_shutdown(exported: Exported) -> None:
    goldspan.instrument(GOLDENS).shutdown()
    goldspan.instrument(GOLDENS, then=exported.processor())
    agent("hi")
    assert exported.names == ["execute_tool search", "invoke_agent agent"]


@pytest.mark.usefixtures("quiet")
def test_an_instrumentation_that_was_shut_down_emits_nothing_after_a_restart(
    exported: Exported, install: Install
) -> None:
    install(exported.processor())
    results: list[tuple[str, bool | None]] = []
    for name in ("first", "second"):
        sink = lambda evaluation, name=name: results.append((name, evaluation.passed))  # noqa: E731
        running = goldspan.instrument(GOLDENS, sinks=[sink])
        agent("hi")
        running.shutdown()
    agent("hi")
    assert results == [("first", True), ("second", True)]


@pytest.mark.usefixtures("quiet")
def test_goldens_metrics_and_thresholds_are_read_from_the_environment(
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


@pytest.mark.usefixtures("quiet")
@pytest.mark.parametrize(("unknown", "passed"), [(None, None), ("ignore", True), ("fail", False)])
def test_the_environment_sets_the_verdict_of_runs_that_cannot_be_evaluated(
    exported: Exported, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, unknown: str | None, passed: bool | None
) -> None:
    path = tmp_path / "goldens.yaml"
    path.write_text("goldens: [{id: g, tools: [{name: search, arguments: {query: hi}}]}]")
    monkeypatch.setenv("GOLDSPAN_GOLDENS", str(path))
    monkeypatch.setenv("GOLDSPAN_CAPTURE_ARGUMENTS", "off")
    if unknown is not None:
        monkeypatch.setenv("GOLDSPAN_UNKNOWN", unknown)
    goldspan.instrument(then=exported.processor())
    agent("hi")
    attributes = exported.attributes("invoke_agent agent")
    assert attributes.get("goldspan.passed") is passed
    assert "the arguments of search were not captured" in attributes["goldspan.reason"]


@pytest.mark.parametrize(
    ("exporters", "times"),
    [("console", 1), ("console, console", 2), pytest.param("goldspan", 1, id="ours, and what stands behind it")],
)
def test_instrument_creates_missing_providers_from_the_environment(tmp_path: Path, exporters: str, times: int) -> None:
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
    settings["GOLDSPAN_THEN_EXPORTER"] = "console"
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
    assert done.stdout.count('"goldspan.tools_used"') == times
    assert spans["invoke_agent agent"]["attributes"]["goldspan.tools_used"] == ["search"]
    assert spans["invoke_agent agent"]["resource"]["attributes"]["service.name"] == "desk"
    assert any("gen_ai.evaluation.name" in document.get("attributes", {}) for document in shown)
    assert any("resource_metrics" in document for document in shown)


@pytest.mark.usefixtures("quiet")
@pytest.mark.parametrize(
    ("variable", "value", "message"),
    [
        pytest.param(
            "OTEL_TRACES_EXPORTER",
            "oltp",
            "no exporter 'oltp' is installed; valid names: console, goldspan, otlp",
            id="exporter",
        ),
        pytest.param("GOLDSPAN_METRICS", "tool_recal", "GOLDSPAN_METRICS: unknown metric 'tool_recal'", id="metric"),
        pytest.param("GOLDSPAN_THRESHOLDS", "tool_recall:1", "'tool_recall:1' is not of the form", id="threshold"),
        pytest.param("GOLDSPAN_MAX_SPANS", "many", "GOLDSPAN_MAX_SPANS: 'many'", id="number"),
        pytest.param("GOLDSPAN_MAX_TRACES", "0", "at least 1", id="zero"),
        pytest.param("GOLDSPAN_GOLDENS", "none.yaml", "GOLDSPAN_GOLDENS: none.yaml: cannot be read", id="file"),
        pytest.param("GOLDSPAN_BACKGROUND", "maybe", "GOLDSPAN_BACKGROUND: 'maybe' is neither on nor off", id="switch"),
        pytest.param("GOLDSPAN_LATE", "-1", "GOLDSPAN_LATE: '-1' is not a number of at least 0", id="negative"),
        pytest.param("GOLDSPAN_IDLE", "0", "GOLDSPAN_IDLE: '0' is not a number of seconds above 0", id="no time"),
        pytest.param(
            "GOLDSPAN_SETTLE", "soon", "GOLDSPAN_SETTLE: 'soon' is not a number of at least 0", id="no number"
        ),
        pytest.param("GOLDSPAN_BUDGET", "nan", "GOLDSPAN_BUDGET: 'nan'", id="not a number"),
        pytest.param("GOLDSPAN_RELOAD", "inf", "GOLDSPAN_RELOAD: 'inf'", id="no end"),
        pytest.param("GOLDSPAN_SAMPLE", "2", "GOLDSPAN_SAMPLE: '2' is not a share", id="share"),
        pytest.param("GOLDSPAN_SAMPLE_RULES", "all", "GOLDSPAN_SAMPLE_RULES: sampling rule 'all'", id="rule"),
        pytest.param("GOLDSPAN_UNITS", "span", "GOLDSPAN_UNITS: 'span'", id="unit"),
        pytest.param("GOLDSPAN_UNKNOWN", "pass", "GOLDSPAN_UNKNOWN: 'pass' is none of not_evaluated", id="unknown"),
        pytest.param("GOLDSPAN_SINKS", "evnets", "GOLDSPAN_SINKS: there is no sink 'evnets'", id="sink"),
        pytest.param("GOLDSPAN_SINKS", "evnets", "store:PATH, .*phoenix, .* Did you mean 'events'", id="nearest sink"),
        pytest.param("GOLDSPAN_SINKS", "phenix:http://x", "Did you mean 'phoenix'", id="nearest product"),
        pytest.param("GOLDSPAN_SINKS", "phoenix:", "the product 'phoenix:' lacks an address", id="no address"),
        pytest.param("GOLDSPAN_SINKS", "mlflow:here", "the address of mlflow is written as https", id="address"),
        pytest.param("GOLDSPAN_SINKS", "jsnol:a.jsonl", "Did you mean 'jsonl:a.jsonl'", id="nearest sink with a path"),
        pytest.param("GOLDSPAN_SINKS", "jsonl:", "the sink 'jsonl:' lacks a path; write jsonl:PATH", id="empty path"),
        pytest.param("GOLDSPAN_SINKS", "store", "the sink 'store' lacks a path; write store:PATH", id="no path"),
        pytest.param("GOLDSPAN_SINKS", "events:x", "the sink 'events' takes no path", id="path for no file"),
        pytest.param("GOLDSPAN_THEN_EXPORTER", "otlp,goldspan", "cannot forward to itself", id="behind itself"),
        pytest.param("GOLDSPAN_SAMPLE", "10%", "GOLDSPAN_SAMPLE: '10%' is not a share from 0 to 1", id="percent"),
        pytest.param(
            "GOLDSPAN_RELOAD", "0", "GOLDSPAN_RELOAD: '0' is not a number of seconds above 0, nor off", id="or off"
        ),
        pytest.param(
            "GOLDSPAN_NEAR", "101", "GOLDSPAN_NEAR: '101' is not a number from 0 to 100, nor off", id="similarity"
        ),
        pytest.param(
            "GOLDSPAN_THRESHOLDS",
            "tool_recal=1",
            "GOLDSPAN_THRESHOLDS: unknown metric 'tool_recal'",
            id="threshold of no metric",
        ),
        pytest.param(
            "GOLDSPAN_THRESHOLDS",
            "tool_recall=nan",
            "GOLDSPAN_THRESHOLDS: the threshold for the metric 'tool_recall' must be a number",
            id="threshold that is no number",
        ),
    ],
)
def test_an_error_names_the_invalid_variable_and_no_provider_is_set(
    monkeypatch: pytest.MonkeyPatch, variable: str, value: str, message: str
) -> None:
    monkeypatch.setenv(variable, value)
    if variable == "GOLDSPAN_THEN_EXPORTER":
        monkeypatch.setenv("OTEL_TRACES_EXPORTER", "goldspan")
    with pytest.raises(goldspan.GoldspanError, match=message):
        goldspan.instrument()
    assert isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider)


def test_variables_for_settings_given_in_code_are_not_read(exported: Exported, monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("GOLDSPAN_METRICS", "GOLDSPAN_THRESHOLDS", "GOLDSPAN_GOLDENS"):
        monkeypatch.setenv(variable, "no_such_thing=1")
    running = goldspan.instrument([], metrics=["tool_recall"], thresholds={"tool_recall": 1})
    assert running.added_processor
    running.shutdown()


def test_a_misspelled_variable_is_logged_with_the_nearest_setting(
    exported: Exported, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for variable in ("GOLDSPAN_GOLDEN", "GOLDSPAN_SAMPEL", "GOLDSPAN_SERVICE_HOST", "GOLDSPAN_PORT"):
        monkeypatch.setenv(variable, "1")  # the last two are what Kubernetes sets for a service of that name
    goldspan.instrument().shutdown()
    assert [line for line in caplog.messages if "no setting" in line] == [
        "goldspan: there is no setting GOLDSPAN_GOLDEN; did you mean GOLDSPAN_GOLDENS?",
        "goldspan: there is no setting GOLDSPAN_SAMPEL; did you mean GOLDSPAN_SAMPLE?",
    ]


def test_an_unknown_otlp_protocol_is_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "http/json")
    with pytest.raises(goldspan.ConfigurationError, match="OTEL_EXPORTER_OTLP_TRACES_PROTOCOL: unknown protocol"):
        goldspan.instrument()


@pytest.mark.parametrize(("protocol", "package"), [("", "grpc"), ("grpc", "grpc"), ("http/protobuf", "http")])
def test_spans_are_exported_over_the_configured_protocol(
    monkeypatch: pytest.MonkeyPatch, protocol: str, package: str
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", protocol)
    monkeypatch.setenv("OTEL_TRACES_EXPORTER", "otlp")
    (exporter,) = providers.span_exporters()
    assert f".otlp.proto.{package}." in type(exporter).__module__
    exporter.shutdown()


def test_an_exporter_over_grpc_without_grpcio_is_a_configuration_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_TRACES_EXPORTER", "otlp")
    for name in [name for name in sys.modules if name.startswith("opentelemetry.exporter.otlp.proto.grpc")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "grpc", None)
    with pytest.raises(goldspan.ConfigurationError, match=r"grpc.*_TRACES_PROTOCOL=http/protobuf"):
        providers.span_exporters()


def test_a_missing_exporter_over_grpc_is_a_configuration_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_TRACES_EXPORTER", "otlp")
    monkeypatch.setattr(providers, "entry_points", lambda **named: entry_points(**named) if len(named) < 2 else ())
    with pytest.raises(goldspan.ConfigurationError, match=r"no exporter 'otlp_proto_grpc'.*PROTOCOL=http/protobuf"):
        providers.span_exporters()


def test_a_provider_that_accepts_no_processors_is_rejected() -> None:
    trace.set_tracer_provider(NoOpTracerProvider())
    with pytest.raises(goldspan.ConfigurationError, match="NoOpTracerProvider"):
        goldspan.instrument()


def test_an_empty_environment_yields_the_default_settings() -> None:
    assert read_environment({}) == EnvironmentSettings()
    assert read_environment({"GOLDSPAN_GOLDENS": " , ", "GOLDSPAN_MAX_SPANS": " "}) == EnvironmentSettings()


def test_the_settings_page_lists_every_variable_as_in_the_code() -> None:
    page = (ROOT / "docs" / "settings.md").read_text(encoding="utf-8")
    rows = [line for line in page.splitlines() if line.startswith("| `GOLDSPAN_")]
    assert rows == [f"| `{variable.name}` | {variable.meaning} | {variable.default} |" for variable in VARIABLES]


def test_every_setting_corresponds_to_an_existing_argument() -> None:
    """A setting with an owner has the name of an argument of that owner."""
    takers = {"goldens": Goldens, "processor": goldspan.ScoringProcessor, "limits": Limits, "judge": JudgeSettings}
    owned = [
        (row.name, row.metadata["owner"]) for row in fields(EnvironmentSettings) if row.metadata["owner"] is not None
    ]
    rows = [(name.removeprefix("judge_") if of == "judge" else name, of) for name, of in owned]
    assert len(rows) > 10
    assert [name for name, of in rows if name not in inspect.signature(takers[of]).parameters] == []


def test_every_limit_has_a_variable_with_the_same_default() -> None:
    rows = {
        row.name: row.metadata["default"] for row in fields(EnvironmentSettings) if row.metadata["owner"] == "limits"
    }
    assert rows == {limit.name: f"{limit.default:.12g}" for limit in fields(Limits)}


def test_instrument_accepts_every_option_of_the_processor() -> None:
    parameters = set(inspect.signature(goldspan.ScoringProcessor).parameters)
    assert set(ProcessorOptions.__annotations__) == parameters - {"goldens", "then"}


def test_the_variable_for_golden_id_attributes_is_the_same_live_and_for_files() -> None:
    assert classification.GOLDEN_ID_VARIABLE in {variable.name for variable in VARIABLES}


def test_lists_and_numbers_are_parsed_from_variables() -> None:
    settings = read_environment(
        {
            "GOLDSPAN_GOLDENS": "a.yaml, b.yaml",
            "GOLDSPAN_GOLDEN_ID_ATTRIBUTE": "case.id",
            "GOLDSPAN_THRESHOLDS": "tool_recall=1, tool_f1 = 0.5",
            "GOLDSPAN_MAX_TRACES": "5",
            "GOLDSPAN_NEAR": "off",
            "GOLDSPAN_MARGIN": "0",
            "GOLDSPAN_RELOAD": "off",
            "GOLDSPAN_BACKGROUND": "no",
            "GOLDSPAN_UNITS": "request, conversation",
            "GOLDSPAN_UNKNOWN": " ignore",
        }
    )
    assert settings.arguments_for("goldens") == {"near": None, "margin": 0}
    assert read_environment({"GOLDSPAN_NEAR": "87.5"}).arguments_for("goldens") == {"near": 87.5}
    assert settings.arguments_for("limits") == {"max_traces": 5}
    assert settings.arguments_for("processor") == {
        "golden_id_attributes": ("case.id",),
        "thresholds": {"tool_recall": 1.0, "tool_f1": 0.5},
        "background": False,
        "unknown": "ignore",
        "units": ("request", "conversation"),
        "reload": None,
    }
    assert settings.goldens == ("a.yaml", "b.yaml")
    assert settings.golden_id_attributes == ("case.id",)
    assert settings.thresholds == {"tool_recall": 1.0, "tool_f1": 0.5}
    assert settings.max_traces == 5


def test_created_providers_are_those_of_the_sdk(monkeypatch: pytest.MonkeyPatch) -> None:
    for signal in ("TRACES", "LOGS", "METRICS"):
        monkeypatch.setenv(f"OTEL_{signal}_EXPORTER", "console")
    goldspan.instrument(GOLDENS)
    assert isinstance(trace.get_tracer_provider(), TracerProvider)
    assert isinstance(_logs.get_logger_provider(), LoggerProvider)
    assert isinstance(metrics.get_meter_provider(), MeterProvider)


@pytest.mark.usefixtures("quiet")
@pytest.mark.parametrize("variable", ["GOLDSPAN_DISABLED", "OTEL_SDK_DISABLED"])
def test_instrument_does_nothing_if_disabled_by_the_environment(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, variable: str
) -> None:
    caplog.set_level(logging.INFO, "goldspan")
    monkeypatch.setenv(variable, "true")
    running = goldspan.instrument(GOLDENS)
    assert not running.added_processor
    running.force_flush()
    running.shutdown()
    assert isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider)
    assert variable in caplog.text


@pytest.mark.usefixtures("quiet")
def test_arguments_take_precedence_over_the_environment(exported: Exported, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GOLDSPAN_METRICS", "tool_recall")
    monkeypatch.setenv("GOLDSPAN_THRESHOLDS", "tool_precision=0.1")
    goldspan.instrument(GOLDENS, then=exported.processor(), metrics=["tool_precision"])
    agent("hi")
    scores = [key for key in exported.attributes("invoke_agent agent") if key.startswith("goldspan.score.")]
    assert scores == ["goldspan.score.tool_precision"]


@pytest.mark.usefixtures("quiet")
def test_sinks_are_read_from_the_environment(
    exported: Exported, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("GOLDSPAN_SINKS", f"attributes, events, spans, jsonl:{tmp_path}/a.jsonl, store:{tmp_path}/a.db")
    running = goldspan.instrument(GOLDENS, then=exported.processor())
    agent("hi")
    running.shutdown()
    (line,) = (tmp_path / "a.jsonl").read_text().splitlines()
    assert json.loads(line)["tools_used"] == ["search"]
    with open_store(tmp_path / "a.db", read_only=True) as store:
        assert len(store.runs().items) == 1
    assert "evaluate request" in exported.names


@pytest.mark.usefixtures("quiet")
def test_the_store_of_a_setting_is_closed_with_the_processor(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Python 3.13 warns of a database that nobody closed."""
    opened = []
    monkeypatch.setattr("goldspan.store.open_store", lambda path: opened.append(open_store(path)) or opened[-1])
    monkeypatch.setenv("GOLDSPAN_SINKS", f"store:{tmp_path}/a.db")
    running = goldspan.instrument(GOLDENS)
    assert opened[0].count().total == 0
    running.shutdown()
    with pytest.raises(Exception, match="closed"):
        opened[0].count()


@pytest.mark.usefixtures("quiet")
@pytest.mark.parametrize(
    ("given", "written"), [({}, False), ({"attributes": True}, True), ({"sinks": []}, True)], ids=str
)
def test_spans_are_unchanged_if_the_configured_sinks_do_not_include_attributes(
    exported: Exported,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    given: Any,
    written: bool,
) -> None:
    caplog.set_level(logging.INFO, "goldspan")
    monkeypatch.setenv("GOLDSPAN_SINKS", f"jsonl:{tmp_path}/a.jsonl")
    goldspan.instrument(GOLDENS, then=exported.processor(), **given)
    agent("hi")
    assert ("goldspan.tools_used" in exported.attributes("invoke_agent agent")) is written
    (record,) = caplog.records
    places = ["attributes of runs' spans"] * written + ["other sinks"] * ("sinks" not in given)
    assert record.getMessage().endswith(f"results go to {', '.join(places)}")


@pytest.mark.usefixtures("quiet")
def test_attributes_are_not_logged_as_a_destination_if_no_span_is_exported(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "goldspan")
    goldspan.instrument(GOLDENS, sinks=[]).shutdown()
    (record,) = caplog.records
    assert record.getMessage().endswith("goldens: 1; results go to nowhere")


@pytest.mark.usefixtures("quiet")
def test_the_log_states_if_results_go_nowhere(install: Install, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "goldspan")
    install()
    goldspan.instrument(GOLDENS, sinks=[], background=True)
    (record,) = caplog.records
    assert record.getMessage().endswith("results go to nowhere")


@pytest.mark.usefixtures("quiet")
def test_every_run_is_scored_if_only_some_traces_are_exported(
    exported: Exported, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    results = tmp_path / "results.jsonl"
    monkeypatch.setenv("GOLDSPAN_SINKS", f"attributes,jsonl:{results}")
    monkeypatch.setenv("GOLDSPAN_EXPORT_SAMPLE", "0.5")
    running = goldspan.instrument(GOLDENS, then=exported.processor())
    for _ in range(100):
        agent("hi")
    running.shutdown()
    assert len(results.read_text().splitlines()) == 100
    assert 0 < len(exported.spans) < 200


@pytest.mark.usefixtures("quiet")
def test_export_sampling_is_rejected_if_another_provider_exports(
    install: Install, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GOLDSPAN_EXPORT_SAMPLE", "0.5")
    goldspan.instrument(GOLDENS).shutdown()  # without exporters the setting is accepted
    with pytest.raises(goldspan.ConfigurationError, match="GOLDSPAN_EXPORT_SAMPLE"):
        goldspan.instrument(GOLDENS)


@pytest.mark.usefixtures("quiet")
def test_sampling_and_limits_are_read_from_the_environment(exported: Exported, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GOLDSPAN_SAMPLE", "0")
    monkeypatch.setenv("GOLDSPAN_SAMPLE_RULES", "agent=agent:1")
    monkeypatch.setenv("GOLDSPAN_MAX_SPANS", "50")
    goldspan.instrument(GOLDENS, then=exported.processor())
    agent("hi")
    assert "goldspan.passed" in exported.attributes("invoke_agent agent")
    goldspan.trace(kind="agent", name="other")(search)("hi")
    assert "goldspan.passed" not in exported.attributes("invoke_agent other")


@pytest.mark.usefixtures("quiet")
@pytest.mark.parametrize(("text", "traces"), [("", 1), ("on", 1), ("off", 2)])
def test_tools_in_threads_are_part_of_their_request_unless_disabled(
    exported: Exported, monkeypatch: pytest.MonkeyPatch, text: str, traces: int
) -> None:
    monkeypatch.setenv("GOLDSPAN_THREADS", text)
    running = goldspan.instrument(GOLDENS, then=exported.processor())

    @goldspan.trace(kind="agent", golden="g")
    def threaded(question: str) -> str:
        with ThreadPoolExecutor(1) as pool:
            return pool.submit(search, question).result()

    threaded("hi")
    running.shutdown()
    assert len({span.context.trace_id for span in exported.spans}) == traces


@pytest.mark.usefixtures("quiet")
def test_running_a_notebook_cell_again_duplicates_nothing(exported: Exported) -> None:
    cell = "import importlib, goldspan; importlib.reload(goldspan); goldspan.instrument(GOLDENS, then=exported)"
    for _ in range(3):
        exec(cell, {"GOLDENS": GOLDENS, "exported": exported.processor()})
        importlib.reload(setup)
    agent("hi")
    assert exported.names == ["execute_tool search", "invoke_agent agent"]


@pytest.mark.usefixtures("quiet")
def test_reloading_the_processor_module_keeps_active_processors(exported: Exported) -> None:
    running = goldspan.instrument(GOLDENS, then=exported.processor())
    (processor,) = active_processors_now()
    importlib.reload(processor_module)
    assert processor_module.has_active_processor()
    assert active_processors_now() == [processor]
    assert not goldspan.instrument(GOLDENS).added_processor
    agent("hi")
    running.shutdown()
    assert not processor_module.has_active_processor()
    assert exported.names == ["execute_tool search", "invoke_agent agent"]


def test_the_last_results_reach_the_log_exporter_at_exit_with_an_existing_provider(tmp_path: Path) -> None:
    """The logger provider is created last, so exit handlers shut it down first."""
    program = tmp_path / "program.py"
    program.write_text(
        "from opentelemetry import _logs, trace\n"
        "from opentelemetry.sdk._logs import LoggerProvider\n"
        "from opentelemetry.sdk._logs.export import ConsoleLogRecordExporter, SimpleLogRecordProcessor\n"
        "from opentelemetry.sdk.trace import TracerProvider\n"
        "import goldspan\n"
        "trace.set_tracer_provider(TracerProvider())\n"
        "logs = LoggerProvider()\n"
        "logs.add_log_record_processor(SimpleLogRecordProcessor(ConsoleLogRecordExporter()))\n"
        "_logs.set_logger_provider(logs)\n"
        "goldspan.instrument(background=True)\n"
        "@goldspan.trace(kind='agent')\n"
        "def agent(question): return question\n"
        "agent('hi')\n"
    )
    done = subprocess.run([sys.executable, program], capture_output=True, encoding="utf-8", check=True, timeout=60)
    assert "gen_ai.evaluation.result" in done.stdout


@pytest.mark.parametrize(
    ("text", "captured_"), [("", True), ("on", True), ("off", False), ("city, nights", ("city", "nights"))]
)
def test_captured_arguments_parses_the_capture_variable(text: str, captured_: object) -> None:
    assert captured_arguments({"GOLDSPAN_CAPTURE_ARGUMENTS": text}) == captured_


@pytest.mark.usefixtures("quiet")
def test_changed_golden_files_are_reloaded_with_the_lookup_settings_of_the_environment(
    exported: Exported, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    path = tmp_path / "goldens.yaml"
    path.write_text("goldens: [{id: g, tools: [search]}]")
    monkeypatch.setenv("GOLDSPAN_GOLDENS", str(path))
    monkeypatch.setenv("GOLDSPAN_RELOAD", "0.01")
    monkeypatch.setenv("GOLDSPAN_NEAR", "off")
    goldspan.instrument(then=exported.processor())
    (processor,) = active_processors_now()
    assert processor.goldens.near is None
    path.write_text("goldens: [{id: g, tools: [search]}, {id: another, tools: [book]}]")
    until = time.monotonic() + 60
    while "another" not in processor.goldens:
        assert time.monotonic() < until, "the goldens are not read again"
        time.sleep(0.01)
        agent("hi")  # new goldens are adopted with the next run


def active_processors_now() -> list[goldspan.ScoringProcessor]:
    return list(processor_module._active_processors)
