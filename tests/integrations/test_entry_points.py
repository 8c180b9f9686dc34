"""Products by their names in the application and in the gateway, and the order of spans and scores."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult

from goldspan import ConfigurationError, Evaluation, ScoringProcessor
from goldspan.capture.environment import read_environment
from goldspan.capture.setup import build_processor
from goldspan.gateway.settings.gateway_settings import GatewaySettings
from goldspan.integrations.product_sink import ProductSink
from goldspan.sinks import EventSink
from support.gateway_process import eventually, serving
from support.gateway_scoring_harness import asking, request
from support.metric_readers import Meter
from support.product_server import Request, ScoreTable, StoredRows, accepted, failed, product_server
from support.span_builders import trace_id

GOLDENS = "goldens: [{id: g, when: {agent: helper}, tools: [search]}]"
AGENT = {"gen_ai.operation.name": "invoke_agent", "goldspan.golden.id": "g"}


@pytest.fixture
def processors() -> Iterator[list[ScoringProcessor]]:
    created: list[ScoringProcessor] = []
    yield created
    for processor in created:
        processor.shutdown()


# --- names ------------------------------------------------------------------------------------------------------------


def test_instrument_accepts_names_sinks_and_functions(processors, monkeypatch):
    monkeypatch.setenv("PHOENIX_COLLECTOR_ENDPOINT", "https://phoenix.example")
    seen: list[Evaluation] = []
    sinks = ["events", "phoenix", "mlflow:https://mlflow.example", seen.append]
    processors.append(build_processor(read_environment({}), sinks=sinks))
    events, phoenix, mlflow, _ = processors[0].sinks
    assert isinstance(events, EventSink)
    assert isinstance(phoenix, ProductSink)
    assert isinstance(mlflow, ProductSink)
    assert (phoenix.name, phoenix._product.base_url) == ("phoenix", "https://phoenix.example")
    assert (mlflow.name, mlflow._product.base_url) == ("mlflow", "https://mlflow.example")


def test_the_variable_names_products(processors):
    processors.append(
        build_processor(read_environment({"GOLDSPAN_SINKS": "metrics,phoenix:http://localhost:1,phoenix"}))
    )
    _, *products = processors[0].sinks
    assert [sink.name for sink in products] == ["phoenix", "phoenix"]
    assert processors[0].annotated_spans == "none"


def test_a_list_of_sinks_must_be_a_list():
    with pytest.raises(ConfigurationError, match="sinks= must be a list"):
        build_processor(read_environment({}), sinks="phoenix")


def test_the_gateway_rejects_a_wrong_product():
    for value, message in {
        "phoenx": "Did you mean 'phoenix'",
        "phoenix:localhost:6006": "the address of phoenix is written as https://host/path",
        "mlflow:": "lacks an address",
    }.items():
        with pytest.raises(ValueError, match=message):
            GatewaySettings(products=value)
    assert GatewaySettings(products=["phoenix", "mlflow:https://m"]).products == ("phoenix", "mlflow:https://m")


# --- order ------------------------------------------------------------------------------------------------------------


class Exporter(SpanExporter):
    """Sends spans nowhere, and says that they were sent."""

    def __init__(self) -> None:
        self.exported = threading.Event()

    def export(self, spans):
        self.exported.set()
        return SpanExportResult.SUCCESS

    def shutdown(self) -> None:
        """Do nothing."""


@pytest.mark.parametrize("end", ["force_flush", "shutdown"])
def test_the_last_spans_are_exported_before_the_last_scores_are_written(end):
    rows, exporter, meter = StoredRows(), Exporter(), Meter()

    def answer(got: Request):
        return rows.store(got) if exporter.exported.is_set() else failed(404)

    with product_server(answer) as server:
        sink = ProductSink(ScoreTable(server.url), meter_provider=meter.provider)
        then = BatchSpanProcessor(exporter, schedule_delay_millis=3_600_000)
        processor = ScoringProcessor(then=then, sinks=[sink], background=True)
        provider = TracerProvider()
        provider.add_span_processor(processor)
        with provider.get_tracer("test").start_as_current_span("invoke_agent", attributes=AGENT):
            pass
        assert getattr(processor, end)() is not False
        assert len(rows.revisions) == 1
        provider.shutdown()
    assert meter.counts("goldspan.sink.dropped") == {}


@pytest.mark.parametrize("exports_itself", [True, False])
def test_the_exit_of_the_process_does_not_wait_long_for_spans_that_others_export(exports_itself):
    class Sink:
        needs_exported_spans = True

        def submit(self, evaluation: Evaluation) -> None: ...

        def force_flush(self, timeout_millis: int) -> bool:
            timeouts.append(timeout_millis)
            return False

    timeouts: list[int] = []
    then = Exporter() if exports_itself else None
    processor = ScoringProcessor(then=then, sinks=[Sink()], background=True)
    try:
        processor._finish_at_exit()
        assert processor.force_flush() is False
    finally:
        processor.shutdown()
    at_exit, explicit = timeouts
    assert explicit > 1000
    assert (at_exit > 1000) == exports_itself


def test_an_exporter_that_cannot_flush_does_not_keep_the_others_from_ending(monkeypatch):
    monkeypatch.delenv("GOLDSPAN_STRICT", raising=False)
    ended: list[str] = []

    class Sink:
        needs_exported_spans = True

        def submit(self, evaluation: Evaluation) -> None: ...

        def shutdown(self) -> None:
            ended.append("sink")

    class Then(BatchSpanProcessor):
        def force_flush(self, timeout_millis: int = 30_000) -> bool:
            raise OSError("the exporter is broken")

        def shutdown(self) -> None:
            super().shutdown()
            ended.append("exporter")

    ScoringProcessor(then=Then(Exporter()), sinks=[Sink()], background=True).shutdown()
    assert ended == ["sink", "exporter"]


# --- the gateway ------------------------------------------------------------------------------------------------------


def gateway_environment(url: str) -> Mapping[str, str]:
    return {"PHOENIX_COLLECTOR_ENDPOINT": url, "PHOENIX_API_KEY": "secret-0123456789"}


def test_the_gateway_writes_the_scores_of_its_runs(tmp_path: Path):
    (tmp_path / "goldens.yaml").write_text(GOLDENS)
    options = ("-g", "goldens.yaml", "--product", "phoenix", "--grace", "0")
    with product_server(lambda _: accepted({"data": []})) as server:
        with serving(tmp_path, *options, environment=gateway_environment(server.url)) as gateway:
            gateway.post(request(*asking(1, "search")))
            eventually(lambda: bool(server.received), lambda: gateway.log)
            assert f"writes scores to phoenix ({server.url})" in gateway.log
            gateway.post(request(*asking(2, "search")))
            eventually(lambda: len(gateway.get("/api/v1/runs")["runs"]) == 2, lambda: gateway.log)
        assert "secret-0123456789" not in gateway.log
    annotations = [each for got in server.received for each in got.body["data"]]
    verdicts = [each for each in annotations if each["name"] == "goldspan.passed"]
    ids = {each["metadata"]["goldspan.run.id"].partition(":")[0] for each in verdicts}
    assert ids == {trace_id(1), trace_id(2)}  # also what was scored just before the shutdown
    assert {got.headers["authorization"] for got in server.received} == {"Bearer secret-0123456789"}


@pytest.mark.e2e
def test_a_product_that_is_down_delays_neither_the_gateway_nor_its_end(tmp_path: Path):
    (tmp_path / "goldens.yaml").write_text(GOLDENS)
    options = ("-g", "goldens.yaml", "--product", "phoenix:http://127.0.0.1:1", "--grace", "0")
    with serving(tmp_path, *options) as gateway:
        for number in range(1, 6):
            assert gateway.post(request(*asking(number, "search")))[0] == 200
        eventually(lambda: len(gateway.get("/api/v1/runs")["runs"]) == 5, lambda: gateway.log)
        eventually(lambda: "scores cannot be written now and are kept" in gateway.log, lambda: gateway.log)
    assert "phoenix: 5 evaluations could not be written before the end" in gateway.log
