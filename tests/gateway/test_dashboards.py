"""Tests of the dashboard and the alerts in deploy/: a gateway exports every metric and label that they use."""

from __future__ import annotations

import json
import re
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping
from itertools import combinations, count
from pathlib import Path
from typing import Any

import pytest
import yaml
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTracePartialSuccess,
    ExportTraceServiceResponse,
)
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.trace import format_trace_id, set_span_in_context

from goldspan import semconv
from goldspan._guard import suppress_errors
from goldspan.gateway.gateway_counters import COUNTERS, GatewayCounters
from goldspan.gateway.internal_telemetry import InternalTelemetry
from goldspan.gateway.kafka.kafka_worker import register_kafka_gauges
from goldspan.gateway.openapi import OPERATIONS
from goldspan.gateway.resource_limits import ResourceLimits
from goldspan.gateway.settings.gateway_settings import GatewaySettings
from goldspan.sinks.drop_counters import DROP_COUNTERS, DropCounters
from support.docs_examples import ROOT
from support.faulty_backends import BUSY, WRONG, Answer, HttpBackEnd, running
from support.gateway_process import Gateway, eventually, serving
from support.gateway_scoring_harness import request
from support.model_endpoint import failure, opinion
from support.model_endpoint import serving as modelled
from support.promql_checks import faults_of, label_values, metrics_in, scraped
from support.span_builders import agent, span, trace_id

DEPLOY = ROOT / "deploy"
DASHBOARD: dict[str, Any] = json.loads((DEPLOY / "grafana-dashboard.json").read_text(encoding="utf-8"))
RULES_TEXT = (DEPLOY / "prometheus-rules.yaml").read_text(encoding="utf-8")
RULES = [rule for group in yaml.safe_load(RULES_TEXT)["groups"] for rule in group["rules"]]
PROMETHEUS = yaml.safe_load((DEPLOY / "prometheus.yaml").read_text(encoding="utf-8"))
JOB = PROMETHEUS["scrape_configs"][0]["job_name"]
VARIABLES = {each["name"]: each for each in DASHBOARD["templating"]["list"]}
PANELS = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]

GOLDENS = """
goldens:
  - {id: trip, input: Book a trip, tools: [search, book], forbid: [wipe], threshold: 1}
"""
BY_GRAFANA = {"__range": "6h", "__rate_interval": "1m", "__interval": "15s"}
"""The values of Grafana's own variables."""
ACCEPTED_BY_PROMETHEUS = (
    "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,"
    "application/openmetrics-text;version=0.0.1;q=0.5,text/plain;version=1.0.0;escaping=allow-utf-8;q=0.4,"
    "text/plain;version=0.0.4;q=0.3,*/*;q=0.2"
)
"""The Accept header of Prometheus 3."""

Known = dict[str, dict[str, set[str]]]


# --- the metrics of a gateway -----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def known(tmp_path_factory: pytest.TempPathFactory) -> Known:
    """All metrics with their labels: those that a gateway exports here, and those that it only declares."""
    found = _declared(tmp_path_factory.mktemp("declared"))
    for name, labels in _exported_by_a_gateway(tmp_path_factory.mktemp("gateway")).items():
        for label, values in labels.items():
            found.setdefault(name, {}).setdefault(label, set()).update(values)
    return found


def _declared(folder: Path) -> Known:
    """Increments every counter once, because a counter exists only from its first increment."""
    telemetry = InternalTelemetry(GatewaySettings(data=folder))
    register_kafka_gauges(telemetry.meter_provider, None, None)
    counting, losses = GatewayCounters(telemetry.meter_provider), DropCounters(telemetry.meter_provider)
    for counted in COUNTERS:
        topic = {"topic": "otlp_spans"} if "by topic" in counted.description else {}
        counting.add(counted.name, **topic)
    for loss in DROP_COUNTERS:
        losses.add(loss.name)
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("GOLDSPAN_STRICT", "0")
        with suppress_errors("be right"):
            raise ValueError
    text = telemetry.render()[0].decode()
    telemetry.stop()
    return scraped(text, job=JOB)


def _exported_by_a_gateway(folder: Path) -> Known:
    (folder / "goldens.yaml").write_text(GOLDENS)
    limits = {
        "GOLDSPAN_LIMITS__MAX_BODY_BYTES": "200000",
        "GOLDSPAN_LIMITS__MAX_JOURNAL_BYTES": "2000000",
        "GOLDSPAN_LIMITS__MAX_BACKLOG_BYTES": "2000000",
        "GOLDSPAN_DRAIN_SECONDS": "0.5",
    }
    options = ("--goldens", "goldens.yaml", "--grace", "0.2", "--idle", "1")
    judged = [opinion(0.25, "T2"), failure(400), opinion(1.0)]
    with (
        modelled(judged) as model, running(HttpBackEnd()) as away, running(HttpBackEnd()) as strict,
        running(HttpBackEnd()) as picky,
    ):  # fmt: skip
        away.behave = lambda _: BUSY
        strict.behave = lambda _: WRONG
        partial = ExportTracePartialSuccess(rejected_spans=1)
        picky.behave = lambda _: Answer(body=ExportTraceServiceResponse(partial_success=partial).SerializeToString())
        forward = [word for behind in (away, strict, picky) for word in ("--forward", behind.url)]
        judge = {"MODEL": "tiny", "URL": model.url, "SAMPLE": "1", "PRICES": "1,2", "THRESHOLD": "0.5"}
        limits |= {f"GOLDSPAN_JUDGE_{name}": said for name, said in judge.items()}
        with serving(folder, *options, *forward, environment=limits) as gateway:
            _export(gateway)
            _send_refused_requests(gateway)
            eventually(lambda: _all_happened(_scrape(gateway)), lambda: gateway.log)
            return _scrape(gateway)


def _export(gateway: Gateway) -> None:
    """Sends runs with and without a golden, with tools of all verdicts, and one that a late span changes."""
    resource = Resource({"service.name": "shop", "deployment.environment.name": "test"})
    provider = TracerProvider(resource=resource, shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(OTLPSpanExporter(gateway.address + "/v1/traces")))
    tracer = provider.get_tracer("agents")
    for asked, tools in (("Book a trip", "search book"), ("Book a trip", "search! mail wipe"), ("Sing", "hum")):
        with tracer.start_as_current_span("invoke_agent helper", attributes=_of_agent(asked)):
            for tool in tools.split():
                with tracer.start_as_current_span("execute_tool", attributes=_of_tool(tool.strip("!"))) as made:
                    if tool.endswith("!"):
                        made.set_attribute(semconv.ERROR_TYPE, "TimeoutError")
    root = tracer.start_span("invoke_agent helper", attributes=_of_agent("Book a trip"))
    late = tracer.start_span("execute_tool", set_span_in_context(root), attributes=_of_tool("search"))
    root.end()
    trace = format_trace_id(root.get_span_context().trace_id)
    eventually(lambda: bool(gateway.get(f"/api/v1/runs?trace_id={trace}")["runs"]), lambda: gateway.log)
    late.end()
    provider.shutdown()


def _of_agent(asked: str) -> dict[str, str]:
    said = json.dumps([{"role": "user", "content": asked}])
    offered = json.dumps([{"type": "function", "name": name} for name in ("search", "book")])
    about = {semconv.OPERATION: semconv.INVOKE_AGENT, semconv.AGENT_NAME: "helper", semconv.INPUT_MESSAGES: said}
    return about | {semconv.TOOL_DEFINITIONS: offered}


def _of_tool(name: str) -> dict[str, str]:
    return {semconv.OPERATION: semconv.EXECUTE_TOOL, semconv.TOOL_NAME: name}


def _send_refused_requests(gateway: Gateway) -> None:
    """Sends requests that are invalid, too large, or exceed the journal."""
    assert gateway.post(request(agent(), span(trace_id="0" * 32)))[0] == 200
    assert gateway.post(bytes(300_000))[0] == 413
    numbers = count(100)
    filler = "x" * 150_000
    eventually(
        lambda: gateway.post(request(span(filler, trace_id=trace_id(next(numbers)))))[0] == 503, "it never fills"
    )


def _all_happened(told: Known) -> bool:
    """Whether all metrics exist that are exported only after an event."""
    gateway = ("rejected", "forwarded", "forward_retries", "forward_rejected", "forward_left_out")
    names = {f"goldspan_gateway_{name}_total" for name in gateway} | {
        f"goldspan_{name}_total" for name in ("evaluations", "revisions", "tools", "health")
    }
    names |= {f"goldspan_judge_{name}_total" for name in ("requests", "tokens", "spent", "runs", "failed")}
    outcomes = told.get("goldspan_judge_runs_total", {}).get("goldspan_outcome", set())
    metrics = told.get("goldspan_score_count", {}).get("goldspan_metric", set())
    limits = told.get("goldspan_gateway_refused_total", {}).get("goldspan_limit", set())
    judged = {"judged", "failed"} <= outcomes and "tool_selection" in metrics
    return judged and names <= told.keys() and limits == {"max_body_bytes", "max_journal_bytes"}


def _scrape(gateway: Gateway) -> Known:
    with urllib.request.urlopen(gateway.address + "/metrics") as answer:
        return scraped(answer.read().decode(), job=JOB)


def test_metric_names_do_not_depend_on_the_accept_header(tmp_path: Path) -> None:
    telemetry = InternalTelemetry(GatewaySettings(data=tmp_path))
    GatewayCounters(telemetry.meter_provider).add(semconv.GATEWAY_FORWARD_RETRIES, backend="b")
    for accept in ("", ACCEPTED_BY_PROMETHEUS):
        assert b'\ngoldspan_gateway_forward_retries_total{goldspan_backend="b",' in telemetry.render(accept)[0]
    telemetry.stop()


# --- the dashboard ----------------------------------------------------------------------------------------------------


def queries_of(panel: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yields the queries of a panel with the values of Grafana's variables, and their legends."""
    for target in panel["targets"]:
        yield filled(target["expr"]), target["legendFormat"]


def filled(query: str) -> str:
    """Replaces Grafana's own variables by values; variables of the dashboard remain in texts."""
    used = set(re.findall(r"\$\{?(\w+)", query))
    assert used <= VARIABLES.keys() | BY_GRAFANA.keys(), query
    return re.sub(r"\$(__\w+)", lambda found: BY_GRAFANA[found[1]], query)


def labels_in(legend: str) -> list[str]:
    """Returns the labels of the result that a legend or a Prometheus template uses."""
    return re.findall(r"\{\{\s*(?:\$labels\.)?(\w+)\s*\}\}", legend)


@pytest.mark.e2e
@pytest.mark.parametrize("panel", PANELS, ids=lambda panel: panel["title"])
def test_a_panel_queries_only_metrics_and_labels_that_the_gateway_exports(panel: dict[str, Any], known: Known) -> None:
    faults = [
        fault for query, legend in queries_of(panel) for fault in faults_of(query, known, around=labels_in(legend))
    ]
    assert faults == []
    colored = [each["matcher"]["options"] for each in panel["fieldConfig"]["overrides"] if _is_by_name(each)]
    values = {value for labels in known.values() for of_label in labels.values() for value in of_label}
    assert set(colored) <= values
    for step in panel.get("transformations", ()):
        named = {*step["options"].get("renameByName", ()), *step["options"].get("indexByName", ())}
        labels = {name for name in named if not name.startswith("Value #")}
        assert all(faults_of(query, known, around=labels) == [] for query, _ in queries_of(panel))


def _is_by_name(override: Mapping[str, Any]) -> bool:
    return bool(override["matcher"]["id"] == "byName")


@pytest.mark.e2e
def test_the_variables_query_only_labels_that_the_gateway_exports(known: Known) -> None:
    queries = [filled(each["query"]["query"]) for each in VARIABLES.values() if each["type"] == "query"]
    assert [fault for query in queries for fault in faults_of(label_values(query), known)] == []
    assert len(queries) == 6
    whatever = {name for name, each in VARIABLES.items() if each.get("allValue") == ".*"}
    assert whatever == {"environment", "unit", "agent", "golden", "metric"}  # the rules use no metrics of other jobs


def test_every_metric_of_the_gateway_is_on_the_dashboard(known: Known) -> None:
    shown = {name for panel in PANELS for query, _ in queries_of(panel) for name in metrics_in(query)}
    mine = {name for name in known if name.startswith("goldspan_") and not name.endswith("_created")}
    assert mine - shown == set()


def test_the_dashboard_declares_what_a_grafana_import_needs() -> None:
    assert DASHBOARD["id"] is None
    assert {"__inputs", "__requires", "uid", "title", "schemaVersion", "time", "panels"} <= DASHBOARD.keys()
    needed = {each["id"] for each in DASHBOARD["__requires"] if each["type"] == "panel"}
    assert needed == {panel["type"] for panel in PANELS}
    asked = [panel["datasource"] for panel in PANELS] + [t["datasource"] for panel in PANELS for t in panel["targets"]]
    asked += [each["datasource"] for each in VARIABLES.values() if each["type"] == "query"]
    assert all(each == {"type": "prometheus", "uid": "${datasource}"} for each in asked)
    assert VARIABLES["datasource"]["query"] == "prometheus"


def test_panels_have_unique_ids_and_do_not_overlap() -> None:
    ids = [panel["id"] for panel in DASHBOARD["panels"]]
    assert len(ids) == len(set(ids))
    for panel in PANELS:
        refs = [target["refId"] for target in panel["targets"]]
        assert len(refs) == len(set(refs)), panel["title"]
    places = [panel["gridPos"] for panel in DASHBOARD["panels"]]
    assert all(place["x"] >= 0 and place["x"] + place["w"] <= 24 for place in places)
    assert not [(one, other) for one, other in combinations(places, 2) if _overlap(one, other)]


def _overlap(one: Mapping[str, int], other: Mapping[str, int]) -> bool:
    return all(one[at] < other[at] + other[size] and other[at] < one[at] + one[size] for at, size in ("xw", "yh"))


@pytest.mark.parametrize("panel", PANELS, ids=lambda panel: panel["title"])
def test_a_panel_has_a_description_and_a_unit(panel: dict[str, Any]) -> None:
    assert len(panel["description"].split()) > 10
    overridden = [each["id"] for override in panel["fieldConfig"]["overrides"] for each in override["properties"]]
    assert {"unit"} & {*panel["fieldConfig"]["defaults"], *panel["options"].get("yAxis", ()), *overridden}


# --- the rules --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule["alert"])
def test_a_rule_queries_only_metrics_and_labels_that_the_gateway_exports(rule: dict[str, Any], known: Known) -> None:
    taken = [label for text in rule["annotations"].values() for label in labels_in(text)]
    assert faults_of(rule["expr"], known, around=taken) == []


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule["alert"])
def test_a_rule_has_a_severity_a_summary_and_a_description(rule: dict[str, Any]) -> None:
    assert rule.keys() <= {"alert", "expr", "for", "labels", "annotations"}
    assert re.fullmatch(r"Goldspan[A-Za-z]+", rule["alert"])
    assert re.fullmatch(r"\d+[smh]", rule.get("for", "0s"))
    assert rule["labels"]["severity"] in ("page", "ticket", "note")
    assert rule["annotations"].keys() == {"summary", "description"}
    assert not rule["annotations"]["summary"].endswith(".")
    assert len(rule["annotations"]["description"].split()) > 10
    known = {
        parameter.name
        for operation in OPERATIONS
        if operation.name == "runs"
        for parameter in operation.query_parameters
    }
    for asked in re.findall(r"GET\s+/api/v1/runs\?([^\s)]+)", rule["annotations"]["description"]):
        said = urllib.parse.parse_qsl(re.sub(r"\{\{.*?\}\}", "x", asked), strict_parsing=True)
        assert {name for name, _ in said} <= known


def test_alerts_and_groups_have_unique_names() -> None:
    names = [group["name"] for group in yaml.safe_load(RULES_TEXT)["groups"]]
    assert len(names) == len(set(names))
    alerts = [rule["alert"] for rule in RULES]
    assert len(alerts) == len(set(alerts))


def test_every_counter_that_should_be_zero_has_an_alert() -> None:
    alerted = {name for rule in RULES for name in metrics_in(rule["expr"])}
    wanted = [counted.name for counted in COUNTERS if "Should be zero" in counted.description]
    assert {f"{name.replace('.', '_')}_total" for name in wanted} <= alerted


def test_rules_and_dashboard_use_the_default_maximum_size_of_the_journal() -> None:
    size = str(ResourceLimits().max_journal_bytes)
    assert size in RULES_TEXT
    assert size in json.dumps(DASHBOARD)


def test_prometheus_scrapes_the_gateway_and_reads_the_rules() -> None:
    (scrape,) = PROMETHEUS["scrape_configs"]
    (static,) = scrape["static_configs"]
    assert static["targets"] == [f"127.0.0.1:{GatewaySettings().http_port}"]
    assert all((DEPLOY / name).is_file() for name in PROMETHEUS["rule_files"])


# --- the check itself -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("query", "legend", "fault"),
    [
        ("rate(goldspan_evaluation_total[5m])", "", "no metric 'goldspan_evaluation_total'"),
        ("goldspan_evaluations", "", "no metric 'goldspan_evaluations'"),
        ("goldspan_score_total", "", "no metric 'goldspan_score_total'"),
        ("sum(goldspan_gateway_journal_size)", "", "no metric 'goldspan_gateway_journal_size'"),
        ('goldspan_tools_total{tool="x"}', "", "goldspan_tools_total has no label 'tool'"),
        ('goldspan_tools_total{goldspan_verdict="absent"}', "", "never has goldspan_verdict='absent'"),
        ('goldspan_evaluations_total{goldspan_label=~"pass|failed"}', "", "never has goldspan_label='failed'"),
        ('up{job="gateway"}', "", "up never has job='gateway'"),
        ("sum by (goldspan_agent) (goldspan_evaluations_total)", "", "no label 'goldspan_agent' to group by"),
        ("sum by (job) (goldspan_evaluations_total)", "{{goldspan_label}}", "its result has no label 'goldspan_label'"),
        ("rate(goldspan_tools_total[5m]) > 0", "{{ $labels.agent }}", "its result has no label 'agent'"),
        ("up / on (goldspan_tool) goldspan_tools_total", "", "no label 'goldspan_tool' to match on"),
        ("absent(up{job=\"goldspan\"})", "{{instance}}", "its result has no label 'instance'"),
        ("up and on (job) up{nothing='x'}", "", "up has no label 'nothing'"),
        ("sum without (job) (up)", "{{job}}", "its result has no label 'job'"),
        ("sum(up", "", "unclosed left parenthesis"),
    ],
)  # fmt: skip
def test_a_query_of_an_unknown_metric_or_label_is_detected(query: str, legend: str, fault: str, known: Known) -> None:
    (found,) = faults_of(query, known, around=labels_in(legend))
    assert fault in found
