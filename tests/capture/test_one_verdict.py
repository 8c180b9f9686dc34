"""A run and a golden yield the same evaluation, however the run was read."""

from __future__ import annotations

from collections.abc import Callable
from importlib.resources import files
from pathlib import Path

from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import goldspan
from goldspan.demo import REQUESTS, answer_request
from goldspan.model import Evaluation


class RecordingSink:
    """A sink that records evaluations."""

    def __init__(self) -> None:
        self.evaluations: list[Evaluation] = []

    def submit(self, evaluation: Evaluation) -> None:
        self.evaluations.append(evaluation)


def test_a_run_has_the_same_evaluation_live_from_a_file_and_from_lists(
    tmp_path: Path, install: Callable[..., TracerProvider]
) -> None:
    goldens = goldspan.load_goldens(str(files("goldspan.demo") / "goldens.yaml"))
    kept, exporter = RecordingSink(), InMemorySpanExporter()
    install(goldspan.ScoringProcessor(goldens, then=SimpleSpanProcessor(exporter), sinks=[kept]))
    for request in REQUESTS:
        answer_request(request)

    exported = tmp_path / "traces.pb"
    exported.write_bytes(encode_spans(exporter.get_finished_spans()).SerializeToString())
    for unit in ("request", "component"):
        live = [evaluation for evaluation in kept.evaluations if evaluation.run.unit == unit]
        filed = [goldspan.evaluate(run, goldens) for run in goldspan.load_runs(exported, unit=unit)]
        assert len(live) == {"request": len(REQUESTS), "component": 1}[unit]
        assert sorted(live, key=_run_id) == sorted(filed, key=_run_id)
        for evaluation in live:
            if evaluation.golden is None:
                continue
            listed = goldspan.evaluate(evaluation.run.tool_calls, evaluation.golden)
            assert (listed.scores, listed.digest) == (evaluation.scores, evaluation.digest)


def _run_id(evaluation: Evaluation) -> str:
    return evaluation.run.run_id
