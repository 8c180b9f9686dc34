"""The default sinks."""

from __future__ import annotations

from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk._logs.export import InMemoryLogRecordExporter, SimpleLogRecordProcessor

from goldspan import ExpectedTool, Golden, Goldens
from goldspan.capture.processor_options import default_sinks
from goldspan.online import CompletedSpans, Pipeline
from support.metric_readers import Meter
from support.span_builders import agent, inside, tool


def test_default_sinks_emit_through_the_given_providers_and_count_tools_by_name() -> None:
    meter, exporter, logs = Meter(), InMemoryLogRecordExporter(), LoggerProvider()
    logs.add_log_record_processor(SimpleLogRecordProcessor(exporter))
    goldens = Goldens([Golden("g", tools=(ExpectedTool("search"),))])
    pipeline = Pipeline(goldens, sinks=default_sinks(logs, meter.provider))
    root = agent(goldspan__golden__id="g")
    (evaluation,) = pipeline.evaluate_spans(CompletedSpans("request", (root, tool("search", **inside(root)))))
    assert len(exporter.get_finished_logs()) == len(evaluation.scores)
    assert meter.counts("goldspan.tools", "goldspan.tool") == {("search",): 1}
    assert meter.counts("goldspan.pass_rate", "goldspan.metric", "goldspan.golden.id")["verdict", "g"] == 1.0
    logs.shutdown()


def test_default_sinks_without_providers_observe_nothing() -> None:
    sinks = default_sinks()
    observed: list[object] = []
    sinks[-1]._read = observed.append  # type: ignore[attr-defined]
    Pipeline(sinks=sinks).evaluate_spans(CompletedSpans("request", (agent(),)))
    assert observed == []
