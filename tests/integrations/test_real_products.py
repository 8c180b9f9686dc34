"""Scores of 200 runs reach the right spans of real Phoenix and MLflow servers, once."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import Tracer

from goldspan import Evaluation, ScoringProcessor
from goldspan.integrations.product_sink import ProductSink
from goldspan.integrations.score_delivery import ScoreDelivery
from goldspan.integrations.scored_runs import RunScore, scored_run
from goldspan.store import open_store
from recipes.environments import is_built
from support.command_line import CommandResult
from support.command_line import goldspan as goldspan  # a fixture
from support.gateway_process import eventually, serving
from support.metric_readers import Meter
from support.product_programs import MLflowProgram, PhoenixProgram, ProductProgram, ShownScore
from support.product_server import client_of

pytestmark = pytest.mark.e2e

GOLDENS = """
goldens:
- {id: both, tools: [search, book]}
- {id: refund, tools: [refund], forbid: [delete]}
"""
RUNS = 200
PATIENCE_S = 120


@pytest.fixture(
    scope="module",
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
def program(request, tmp_path_factory) -> Iterator[ProductProgram]:
    product = request.param(tmp_path_factory.mktemp(request.param.name))
    product.start()
    yield product
    product.stop()


def call_agent(tracer: Tracer, *tools: str, golden: str | None) -> None:
    """Record the spans of a request."""
    attributes: dict[str, Any] = {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "travel"}
    if golden:
        attributes["goldspan.golden.id"] = golden
    with tracer.start_as_current_span("invoke_agent travel", attributes=attributes):
        for tool in tools:
            call = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": tool}
            with tracer.start_as_current_span(f"execute_tool {tool}", attributes=call):
                pass


class Application:
    """A process that exports its spans to a product, and writes the scores of its runs into it."""

    def __init__(self, program: ProductProgram, goldens: str, *, exports_later: bool = False) -> None:
        self.evaluations: list[Evaluation] = []
        self.meter = Meter()
        self.sink = ProductSink(program.product, meter_provider=self.meter.provider)
        self.exporter = OTLPSpanExporter(f"{program.url}/v1/traces", headers=program.otlp_headers)
        # A batch processor with a long delay exports when it is flushed.
        delay = 3_600_000 if exports_later else 100
        self.spans = BatchSpanProcessor(self.exporter, max_queue_size=10_000, schedule_delay_millis=delay)
        self.processor = ScoringProcessor(
            goldens,
            then=None if exports_later else self.spans,
            sinks=[self.sink, self.evaluations.append],
            meter_provider=self.meter.provider,
            background=True,
        )
        self.provider = TracerProvider()
        self.provider.add_span_processor(self.processor)
        if exports_later:
            self.provider.add_span_processor(self.spans)
        self.tracer = self.provider.get_tracer("agent")

    def run(self, *tools: str, golden: str | None = "both") -> None:
        call_agent(self.tracer, *tools, golden=golden)

    def settle(self) -> None:
        until = time.monotonic() + PATIENCE_S
        while not self.processor.force_flush(10_000):
            assert time.monotonic() < until
            time.sleep(0.1)

    @property
    def dropped(self) -> int:
        return sum(self.meter.counts("goldspan.sink.dropped").values())


@pytest.fixture
def goldens(tmp_path) -> str:
    path = tmp_path / "goldens.yaml"
    path.write_text(GOLDENS)
    return str(path)


def shown_in_phoenix(score: RunScore) -> ShownScore:
    return ShownScore(score.value, score.comment, score.label)


def shown_in_mlflow(score: RunScore) -> ShownScore | None:
    comment = score.comment
    if score.value is None:
        if not score.is_verdict:
            return None
        return ShownScore({"error_code": "NOT_EVALUATED", "error_message": comment or "not evaluated"}, comment)
    return ShownScore(bool(score.value) if score.is_verdict else score.value, comment)


def assert_shown(program: ProductProgram, evaluation: Evaluation) -> None:
    """Check that a product shows exactly the scores of one evaluation on its span."""
    run = scored_run(evaluation)
    assert run is not None
    assert run.span_id is not None
    shown = program.scores(run.trace_id, run.span_id)
    assert all(len(scores) == 1 for scores in shown.values())
    metadata = [one.metadata for (one,) in shown.values()]
    expect = shown_in_phoenix if program.name == "phoenix" else shown_in_mlflow
    expected = {score.name: expect(score) for score in run.scores}
    if program.name == "mlflow" and run.expected_tools is not None:
        expected["goldspan.expected_tools"] = ShownScore(list(run.expected_tools), None)
    expected = {name: score for name, score in expected.items() if score is not None}
    seen = {name: replace(one, comment=one.comment or None, metadata=None) for name, (one,) in shown.items()}
    assert seen == expected
    wanted = dict(run.metadata) if program.name == "phoenix" else {key: str(text) for key, text in run.metadata.items()}
    assert all({key: text for key, text in one.items() if text != ""} == wanted for one in metadata)


def test_scores_of_two_hundred_runs_are_on_their_spans(program, goldens):
    application = Application(program, goldens)
    for number in range(RUNS):
        match number % 4:
            case 0:
                application.run("search", "book")
            case 1:
                application.run("search", "cancel")
            case 2:
                application.run("refund", "delete", golden="refund")
            case _:
                application.run("search", golden=None)
    application.settle()
    assert application.dropped == 0
    assert len(application.evaluations) == RUNS
    assert {evaluation.passed for evaluation in application.evaluations} == {True, False, None}
    for evaluation in application.evaluations:
        assert_shown(program, evaluation)
    traces = {evaluation.run.trace_ids[0]: evaluation.passed for evaluation in application.evaluations}
    failed = {trace_id for trace_id, passed in traces.items() if passed is False}
    assert program.failed_traces & traces.keys() == failed
    application.provider.shutdown()
    assert application.dropped == 0


def test_a_revision_updates_the_scores_and_adds_none(program, goldens):
    application = Application(program, goldens)
    application.run("search", "cancel")
    application.run("search", "book")
    application.run("search", golden=None)
    application.settle()
    first, second, third = application.evaluations
    # The revisions exchange what was found, so that known becomes unknown and the reverse.
    revisions = [
        replace(second, run=first.run, revision=2),
        replace(third, run=second.run, revision=2),
        replace(first, run=third.run, revision=2),
    ]
    for revision in revisions:
        application.sink.submit(revision)
    application.settle()
    for revision in revisions:
        assert_shown(program, revision)
    application.provider.shutdown()
    assert application.dropped == 0


def test_scores_that_arrive_before_their_spans_are_written_later(program, goldens):
    application = Application(program, goldens, exports_later=True)
    for _ in range(3):
        application.run("search", "book")
    assert application.processor.force_flush(10_000) is False  # the product does not know the traces
    assert application.dropped == 0
    assert application.spans.force_flush(10_000)
    application.settle()
    assert len(application.evaluations) == 3
    for evaluation in application.evaluations:
        assert_shown(program, evaluation)
    application.provider.shutdown()
    assert application.dropped == 0


def test_an_unknown_trace_does_not_keep_known_ones_from_their_scores(program, goldens):
    application = Application(program, goldens)
    application.run("search", "book")
    application.settle()
    application.provider.shutdown()
    (known,) = application.evaluations
    trace_id, span_id = f"{time.time_ns():032x}", f"{time.time_ns():016x}"
    run = replace(known.run, run_id=f"{trace_id}:{span_id}", trace_ids=(trace_id,), span_id=span_id)
    unknown = replace(known, run=run)
    runs = [scored_run(unknown), scored_run(replace(known, passed=False, revision=2))]
    with client_of(program.product) as client:
        result = ScoreDelivery(program.product, client).deliver([run for run in runs if run is not None])
    assert (result.written_count, result.not_found) == (1, runs[:1])
    assert_shown(program, replace(known, passed=False, revision=2))


def test_the_gateway_forwards_spans_and_writes_their_scores(program, tmp_path):
    (tmp_path / "goldens.yaml").write_text(GOLDENS.replace("id: both,", "id: both, when: {agent: travel},"))
    forward = [{"endpoint": program.url, "headers": program.otlp_headers, "signals": ["traces"]}]
    environment = {"GOLDSPAN_FORWARD": json.dumps(forward), "GOLDSPAN_RESULTS": "spans"}
    options = ("-g", "goldens.yaml", "--product", f"{program.name}:{program.url}", "--grace", "0.2")
    with serving(tmp_path, *options, environment=environment) as gateway:
        provider = TracerProvider()
        provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(f"{gateway.address}/v1/traces")))
        tracer = provider.get_tracer("agent")
        for number in range(20):
            call_agent(tracer, "search", "book" if number % 2 else "cancel", golden=None)
        provider.shutdown()
        eventually(lambda: len(gateway.get("/api/v1/runs")["runs"]) == 20, lambda: gateway.log)
        runs = gateway.get("/api/v1/runs")["runs"]
    verdicts = {}
    for run in runs:
        (verdict,) = program.scores(run["trace_ids"][0], run["span_id"])["goldspan.passed"]
        assert verdict.metadata["goldspan.run.id"] == run["run_id"]
        assert verdict.value == run["passed"]
        verdicts[run["run_id"]] = verdict.value
    assert sorted(map(bool, verdicts.values())) == [False] * 10 + [True] * 10


def test_scores_arrive_after_the_product_was_restarted(program, goldens):
    application = Application(program, goldens)
    application.run("search", "cancel")
    application.settle()
    (first,) = application.evaluations
    program.stop()
    try:
        application.sink.submit(replace(first, passed=None, revision=2))
        assert application.sink.force_flush(60_000) is False
        application.sink.submit(replace(first, passed=True, revision=3))
        assert application.sink.force_flush(60_000) is False
    finally:
        program.start()
    application.settle()
    assert_shown(program, replace(first, passed=True, revision=3))
    application.provider.shutdown()
    assert application.dropped == 0


def exported_counts(result: CommandResult) -> dict[str, int]:
    """Return the counts that `goldspan export --to` prints, by their names."""
    return {name: int(count) for count, name in re.findall(r"[:,] (\d+) ([a-z ]+)", result.err.splitlines()[0])}


def test_the_scores_of_a_store_are_exported_once_and_a_revision_updates_them(program, goldens, tmp_path, goldspan):
    evaluations: list[Evaluation] = []
    path = tmp_path / "goldspan.db"
    exporter = OTLPSpanExporter(f"{program.url}/v1/traces", headers=program.otlp_headers)
    with open_store(path) as store:
        provider = TracerProvider()
        provider.add_span_processor(
            ScoringProcessor(goldens, then=BatchSpanProcessor(exporter), sinks=[store, evaluations.append])
        )
        tracer = provider.get_tracer("agent")
        for number in range(RUNS):
            call_agent(tracer, "search", "book" if number % 2 else "cancel", golden="both" if number % 3 else None)
        provider.shutdown()
    assert len(evaluations) == RUNS
    command = ("export", path, "--to", f"{program.name}:{program.url}", "--rate", "0")
    dry = goldspan(*command, "--dry-run", "--json")
    assert (dry.status, {one["product"] for one in dry.documents}) == (0, {program.name})
    assert not any(program.scores(one.run.trace_ids[0], one.run.span_id or "") for one in evaluations[:3])

    written, until = 0, time.monotonic() + PATIENCE_S
    while True:
        result = goldspan(*command)
        written += exported_counts(result)["written"]
        if result.status == 0:
            break
        # The product stores the spans that it received last.
        assert exported_counts(result).keys() <= {"written", "already there", "not found"}, result.err
        assert time.monotonic() < until
        time.sleep(0.5)
    assert written == RUNS
    for evaluation in evaluations:
        assert_shown(program, evaluation)
    assert exported_counts(goldspan(*command)) == {"written": 0, "already there": RUNS}

    first, second, third, *_ = evaluations
    revisions = [
        replace(second, run=first.run, revision=2),
        replace(third, run=second.run, revision=2),
        replace(first, run=third.run, revision=2),
    ]
    with open_store(path) as store:
        store.submit_many(revisions)
    assert exported_counts(goldspan(*command)) == {"written": 3, "already there": RUNS - 3}
    for evaluation in (*revisions, *evaluations[3:10]):
        assert_shown(program, evaluation)
