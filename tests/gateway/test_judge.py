"""Tests of a gateway with a judge and a model endpoint."""

from __future__ import annotations

import json
import socket
import sqlite3
import time
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor

from goldspan import Goldens, Run, evaluate, semconv
from goldspan.gateway.server import GatewayWorker
from goldspan.gateway.settings.gateway_settings import GatewaySettings
from support.gateway_process import PATIENCE_S, Gateway, eventually
from support.gateway_process import serving as started
from support.gateway_scoring_harness import request
from support.model_endpoint import Model, failure, hang, opinion
from support.model_endpoint import serving as modelled
from support.recording_backend import BackEnd, back_end
from support.span_builders import agent, inside, tool, trace_id

QUICK = ("--grace", "0.2", "--idle", "1", "--goldens", "goldens.yaml")
KEY = "sk-not-to-be-seen-anywhere"
WORDS = "The weather was asked for and never looked up"
ASKED = "Book a trip to a town called Elsewhere"
PASSED = "an-argument-that-is-a-secret"
OFFERED = json.dumps([{"type": "function", "name": name} for name in ("search", "book", "weather")])
GOLDENS = f"""
goldens:
  - {{id: trip, input: {ASKED}, tools: [search, book]}}
"""


def trip(*numbers: int, alike: bool = True) -> bytes:
    """Returns a request of an agent with its offered tools, for each of these traces."""
    spans = []
    for number in numbers:
        root = agent("helper", asked=ASKED, trace_id=trace_id(number), gen_ai__tool__definitions=OFFERED)
        passed = {"a": PASSED} if alike else {"a": number}
        spans += [root, *(tool(name, passed, **inside(root)) for name in ("search", "book"))]
    return request(*spans, service="shop")


@contextmanager
def judging(
    folder: Path, model: Model, *options: str, there: BackEnd | None = None, **judge: object
) -> Iterator[Gateway]:
    """Runs a gateway that judges every run with that model."""
    (folder / "goldens.yaml").write_text(GOLDENS)
    said = {"model": "tiny-judge", "url": model.url, "api_key": KEY, "sample": 1, "prices": "1,10", **judge}
    environment = {f"GOLDSPAN_JUDGE_{name.upper()}": str(value) for name, value in said.items()}
    forward = ("--forward", there.address) if there else ()
    with started(folder, *QUICK, *forward, *options, environment=environment) as gateway:
        yield gateway
    assert KEY not in gateway.log


def revisions(gateway: Gateway, number: int = 0) -> list[Any]:
    """Returns the stored evaluations of the run in a trace, the oldest first."""
    runs = gateway.get(f"/api/v1/runs?trace_id={trace_id(number)}")["runs"]
    return [each for run in runs for each in gateway.get(f"/api/v1/runs/{run['run_id']}")["evaluations"]]


def runs(gateway: Gateway) -> int:
    """Returns the number of stored evaluations."""
    number, cursor = 0, ""
    while True:
        page = gateway.get(f"/api/v1/runs?limit=1000{cursor}")
        number += len(page["runs"])
        if page["next_cursor"] is None:
            return number
        cursor = f"&cursor={page['next_cursor']}"


def score_of(document: Mapping[str, Any], metric: str = "tool_selection") -> Any:
    return next((score for score in document["scores"] if score["metric"] == metric), None)


def judged(gateway: Gateway, number: int = 0) -> Any:
    """Returns the run in a trace, after the judge has rated it."""
    eventually(lambda: len(revisions(gateway, number)) == 2, lambda: gateway.log)
    return revisions(gateway, number)[-1]


def judge_metrics(gateway: Gateway) -> dict[str, float]:
    """Returns the judge's metrics in `/metrics`, summed over labels and workers."""
    with urllib.request.urlopen(gateway.address + "/metrics") as answer:
        lines = [line for line in answer.read().decode().splitlines() if line.startswith("goldspan_judge_")]
    found: dict[str, float] = {}
    for name, _, value in (line.rpartition(" ") for line in lines):
        kept = name.partition("{")[0]
        found[kept] = found.get(kept, 0.0) + float(value)
    return found


def wait_for_counter(gateway: Gateway, name: str, number: float) -> None:
    """Waits until the counter has this value."""
    eventually(
        lambda: judge_metrics(gateway).get(f"goldspan_judge_{name}_total") == number,
        lambda: str(judge_metrics(gateway)),
    )


def bytes_in(folder: Path) -> bytes:
    """Returns everything that was written there."""
    return b"".join(path.read_bytes() for path in folder.rglob("*") if path.is_file())


# --- a working judge --------------------------------------------------------------------------------------------------


def test_a_verdict_is_exported_and_stored_as_a_revision_without_the_explanation(tmp_path: Path) -> None:
    good = opinion(0.25, "T3", WORDS, prompt_tokens=1000, completion_tokens=100)
    with modelled([good]) as model, back_end() as there:
        (tmp_path / "goldspan.yaml").write_text("{log_level: debug, log_format: json}")
        with judging(tmp_path, model, there=there) as gateway:
            _export(gateway)
            eventually(lambda: _selection(there) is not None, lambda: gateway.log)
            (run,) = gateway.get("/api/v1/runs")["runs"]
            first, second = gateway.get(f"/api/v1/runs/{run['run_id']}")["evaluations"]
            assert [first["revision"], second["revision"]] == [1, 2]
            assert (first["verdict"], second["verdict"]) == ("pass", "pass")
            assert score_of(first) is None
            score = score_of(second)
            assert score["value"] == 0.25
            assert (score["judgement"]["model"], score["judgement"]["better_tool"]) == ("tiny-judge", "weather")
            event = _selection(there)
            assert event is not None
            assert event[semconv.EVALUATION_VALUE].double_value == 0.25
            assert event[semconv.REVISION].int_value == 2
            assert event["goldspan.judge.cost"].double_value == pytest.approx(0.002)
            assert len([name for name in map(_metric_of, there.events) if name == "tool_selection"]) == 1
            wait_for_counter(gateway, "requests", 1)
            wait_for_counter(gateway, "tokens", 1100)
            assert judge_metrics(gateway)["goldspan_judge_spent_total"] == pytest.approx(0.002)
            (asked,) = model.requests
            assert asked.headers["authorization"] == f"Bearer {KEY}"
            assert PASSED in asked.body["messages"][1]["content"]
            assert "judge: tiny-judge at 127.0.0.1" in gateway.log
            assert "httpx" not in gateway.log  # which logs every request
        numbers = [number for body in there.bodies["/v1/metrics"] for number in _histogram(body)]
        assert 0.25 in numbers
        sent = b"".join(body for bodies in there.bodies.values() for body in bodies)
        for secret in (KEY, WORDS):
            assert secret.encode() not in sent
            assert secret not in gateway.log
        assert KEY.encode() not in bytes_in(tmp_path)
        with closing(sqlite3.connect(gateway.data / "goldspan.db")) as store:
            assert WORDS not in "".join(document for (document,) in store.execute("SELECT document FROM evaluations"))


def _export(gateway: Gateway) -> None:
    """Exports a run as an agent does."""
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(OTLPSpanExporter(gateway.address + "/v1/traces")))
    tracer = provider.get_tracer("agents")
    said = json.dumps([{"role": "user", "content": ASKED}])
    about = {semconv.OPERATION: semconv.INVOKE_AGENT, semconv.INPUT_MESSAGES: said, semconv.TOOL_DEFINITIONS: OFFERED}
    with tracer.start_as_current_span("invoke_agent helper", attributes=about):
        for name in ("search", "book"):
            called = {semconv.OPERATION: semconv.EXECUTE_TOOL, semconv.TOOL_NAME: name}
            with tracer.start_as_current_span("execute_tool", attributes=called) as made:
                made.set_attribute("gen_ai.tool.call.arguments", json.dumps({"a": PASSED}))
    provider.shutdown()


def _metric_of(event: Any) -> str:
    told = {pair.key: pair.value for pair in event.attributes}
    return str(told[semconv.EVALUATION_NAME].string_value)


def _selection(there: BackEnd) -> dict[str, Any] | None:
    for event in there.events:
        if event.event_name == "gen_ai.evaluation.result" and _metric_of(event) == "tool_selection":
            return {pair.key: pair.value for pair in event.attributes}
    return None


def _histogram(body: bytes) -> Iterator[float]:
    """Returns the sums of the scores of `tool_selection`."""
    for resource in ExportMetricsServiceRequest.FromString(body).resource_metrics:
        for metric in [metric for scope in resource.scope_metrics for metric in scope.metrics]:
            for point in metric.histogram.data_points:
                if "tool_selection" in {pair.value.string_value for pair in point.attributes}:
                    yield point.sum


@pytest.mark.e2e
def test_the_explanation_of_the_judge_is_stored_with_keep_arguments_and_shown(tmp_path: Path) -> None:
    with modelled([opinion(0.5, None, WORDS)]) as model, judging(tmp_path, model, "--keep-arguments") as gateway:
        gateway.post(trip(0))
        document = judged(gateway)
        assert score_of(document)["judgement"]["words"] == WORDS
        with urllib.request.urlopen(f"{gateway.address}/runs/{document['run_id']}") as answer:
            shown = answer.read().decode()
        assert WORDS in shown
        assert "tiny-judge" in shown


@pytest.mark.e2e
def test_the_judge_is_asked_about_a_deterministic_sample_of_the_runs(tmp_path: Path) -> None:
    numbers = (1, 2, 2**63, 2**64 - 3)  # sampling uses the lower half of the ids; two of them are sampled
    with modelled([opinion(1.0)]) as model, judging(tmp_path, model, sample=0.5) as gateway:
        gateway.post(trip(*numbers))
        judged(gateway, 1)
        judged(gateway, 2)
        wait_for_counter(gateway, "requests", 2)
        assert [len(revisions(gateway, number)) for number in numbers] == [2, 2, 1, 1]
        assert len(model.requests) == 2


@pytest.mark.e2e
def test_a_combined_verdict_can_fail_a_run_that_had_passed(tmp_path: Path) -> None:
    (tmp_path / "goldspan.yaml").write_text("thresholds: {tool_correctness: 0.8}\njudge: {combination: min}\n")
    with modelled([opinion(0.25, "T3")]) as model, judging(tmp_path, model) as gateway:
        gateway.post(trip(0))
        document = judged(gateway)
        first, _ = revisions(gateway)
        assert (first["verdict"], document["verdict"]) == ("pass", "fail")
        assert score_of(document, "tool_correctness")["value"] == 0.25
        path = f"{gateway.address}/api/v1/runs/{document['run_id']}/rescore"
        with urllib.request.urlopen(urllib.request.Request(path, method="POST")) as answer:
            assert json.loads(answer.read())["changed"] is False  # the prompt contains the known tools
        (tmp_path / "goldens.yaml").write_text(GOLDENS.replace("[search, book]", "[search, mail]"))

        def changed() -> bool:
            with urllib.request.urlopen(urllib.request.Request(path, method="POST")) as answer:
                return bool(json.loads(answer.read())["changed"])

        eventually(changed, lambda: gateway.log)
        rescored = revisions(gateway)[-1]
        assert rescored["revision"] == 3
        assert (score_of(rescored)["value"], score_of(rescored, "tool_correctness")["value"]) == (0.25, 0.25)
        assert len(model.requests) == 1


@pytest.mark.e2e
def test_cached_answers_of_the_judge_survive_a_restart(tmp_path: Path) -> None:
    with modelled([opinion(0.5)]) as model:
        with judging(tmp_path, model) as gateway:
            gateway.post(trip(0))
            judged(gateway)
        assert (tmp_path / "data" / "judge.db").stat().st_mode & 0o077 == 0
        with judging(tmp_path, model) as gateway:
            gateway.post(trip(1))
            assert score_of(judged(gateway, 1))["judgement"]["cached"] == 1
        assert len(model.requests) == 1


# --- a failing judge --------------------------------------------------------------------------------------------------


@pytest.mark.e2e
def test_a_failing_judge_leaves_the_verdict_unchanged_and_records_the_error(tmp_path: Path) -> None:
    (tmp_path / "goldspan.yaml").write_text(
        "thresholds: {tool_correctness: 0.8}\njudge: {combination: min}\nlog_level: debug\n"
    )
    broken = failure(500, message=f"I choke on {PASSED} and {KEY}")
    with modelled([broken]) as model, judging(tmp_path, model, timeout=30) as gateway:
        gateway.post(trip(0))
        document = judged(gateway)
        assert document["verdict"] == "pass"
        assert score_of(document, "tool_correctness")["value"] == 1.0
        score = score_of(document)
        assert (score["value"], score["passed"], score["error"]) == (None, None, "EndpointError")
        wait_for_counter(gateway, "failed", 1)
        assert len(model.requests) > 1  # the request was retried
        assert PASSED not in gateway.log


@pytest.mark.e2e
def test_a_hanging_judge_does_not_delay_responses_scoring_or_shutdown(tmp_path: Path) -> None:
    with modelled([hang(PATIENCE_S)]) as model, back_end() as there:
        (tmp_path / "goldspan.yaml").write_text(
            f"drain_seconds: 4\ntelemetry: {{endpoint: '{there.address}', interval: 3600}}\n"
        )
        with judging(tmp_path, model, timeout=PATIENCE_S) as gateway:
            slowest = 0.0
            for number in range(20):
                began = time.monotonic()
                assert gateway.post(trip(number))[0] == 200
                slowest = max(slowest, time.monotonic() - began)
            assert slowest < PATIENCE_S / 10
            eventually(lambda: len(gateway.get("/api/v1/runs")["runs"]) == 20, lambda: gateway.log)
            eventually(lambda: len(model.requests) == 4, "as many as may be asked about at once are not")
            began = time.monotonic()
            assert gateway.stop() == 0
            assert time.monotonic() - began < PATIENCE_S / 4
            gateway.start()
            assert [len(revisions(gateway, number)) for number in range(20)] == [1] * 20
        numbers = [number for body in there.bodies["/v1/metrics"] for number in _sums(body, "goldspan.judge.dropped")]
        assert max(numbers) == 20


def _sums(body: bytes, name: str) -> Iterator[int]:
    for resource in ExportMetricsServiceRequest.FromString(body).resource_metrics:
        for metric in [metric for scope in resource.scope_metrics for metric in scope.metrics]:
            if metric.name == name:
                yield from (point.as_int for point in metric.sum.data_points)


@pytest.mark.e2e
def test_verdicts_that_arrive_during_shutdown_are_stored_and_forwarded(tmp_path: Path) -> None:
    def slowly(_: object, __: int) -> Any:
        time.sleep(0.5)
        return opinion(0.75)

    with modelled(slowly) as model, back_end() as there, judging(tmp_path, model, there=there) as gateway:
        gateway.post(trip(0))
        eventually(lambda: len(model.requests) == 1, lambda: gateway.log)
        assert gateway.stop() == 0
        assert _selection(there) is not None
        gateway.start()
        assert len(revisions(gateway)) == 2


def test_a_verdict_that_arrives_after_the_store_is_closed_is_counted_as_dropped(tmp_path: Path) -> None:
    worker = GatewayWorker(GatewaySettings(data=tmp_path, judge={"model": "m", "url": "http://127.0.0.1:1/v1"}))
    worker._judge_verdicts.put(evaluate(Run("t:s"), Goldens([])).with_revision(2))
    worker.close()
    assert worker._judge is not None
    assert worker._judge.usage.dropped == 1


@pytest.mark.e2e
def test_runs_beyond_the_queue_of_the_judge_are_counted_and_evaluated(tmp_path: Path) -> None:
    (tmp_path / "goldspan.yaml").write_text("drain_seconds: 1\n")
    with modelled([hang(PATIENCE_S)]) as model, judging(tmp_path, model, timeout=PATIENCE_S) as gateway:
        for start in range(0, 1100, 275):
            assert gateway.post(trip(*range(start, start + 275)))[0] == 200
        eventually(lambda: runs(gateway) == 1100, lambda: gateway.log)
        wait_for_counter(gateway, "dropped", 100)


@pytest.mark.e2e
def test_a_kill_loses_only_the_pending_request_to_the_judge(tmp_path: Path) -> None:
    held: list[bool] = [True]

    def once(_: object, __: int) -> Any:
        return hang(PATIENCE_S) if held[0] else opinion(0.5)

    with modelled(once) as model, judging(tmp_path, model, timeout=PATIENCE_S) as gateway:
        body = trip(0)
        gateway.post(body)
        eventually(lambda: len(revisions(gateway)) == 1 and len(model.requests) == 1, lambda: gateway.log)
        gateway.kill()
        held[0] = False
        gateway.start()
        gateway.post(body)
        gateway.post(trip(1))
        judged(gateway, 1)
        assert [len(revisions(gateway, number)) for number in (0, 1)] == [1, 2]
        assert len(model.requests) == 2


@pytest.mark.e2e
@pytest.mark.skipif(not hasattr(socket, "SO_REUSEPORT"), reason="where only one process can listen on a port")
def test_workers_share_one_budget(tmp_path: Path) -> None:
    # The judge reserves about 2,000 tokens per request, which uses 4,000: two fit, and a third concurrent one.
    good = opinion(1.0, prompt_tokens=4000, completion_tokens=0)
    limits: dict[str, object] = {"daily_tokens": 10_000, "max_tokens": 10, "concurrency": 1}
    with modelled([good]) as model, judging(tmp_path, model, "--workers", "2", **limits) as gateway:
        gateway.post(trip(*range(40), alike=False))
        eventually(lambda: len(gateway.get("/api/v1/runs")["runs"]) == 40, lambda: gateway.log)
        wait_for_counter(gateway, "runs", 40)
        assert 2 <= len(model.requests) <= 3
        wait_for_counter(gateway, "over_budget", 40 - len(model.requests))
        eventually(
            lambda: sum(len(revisions(gateway, number)) == 2 for number in range(40)) == len(model.requests),
            lambda: gateway.log,
        )


@pytest.mark.e2e
def test_without_a_model_there_is_no_judge_and_no_cache_file(tmp_path: Path) -> None:
    (tmp_path / "goldens.yaml").write_text(GOLDENS)
    with started(tmp_path, *QUICK) as gateway:
        gateway.post(trip(0))
        eventually(lambda: len(revisions(gateway)) == 1, lambda: gateway.log)
        assert judge_metrics(gateway) == {}
        assert "the judge (judge.model)" in gateway.log
        assert not (gateway.data / "judge.db").exists()


@pytest.mark.e2e
def test_an_invalid_cache_file_of_the_judge_is_a_startup_error_naming_the_setting(tmp_path: Path) -> None:
    (tmp_path / "answers.db").write_text("this is no database" * 100)
    with modelled([opinion(1.0)]) as model, pytest.raises(AssertionError) as told:  # noqa: SIM117 - the gateway does not start
        with judging(tmp_path, model, cache="answers.db"):
            pass
    assert "GOLDSPAN_JUDGE_CACHE: answers.db: " in str(told.value)
    assert "Traceback" not in str(told.value)
