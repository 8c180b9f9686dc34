"""Programs under a scoring processor, and the same spans read back from a file."""

from __future__ import annotations

import random
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import Tracer

import goldspan
from goldspan import Evaluation, Goldens
from goldspan.model import RunUnit

AGENT = {"gen_ai.operation.name": "invoke_agent"}
TOOL = {"gen_ai.operation.name": "execute_tool"}

Place = tuple[str, str]
"""The unit and the id of a run."""


class Program:
    """The tracer of an application, with all its evaluations and exported spans."""

    def __init__(self, goldens: Any = None, **options: Any) -> None:
        self.evaluations: list[Evaluation] = []
        self.exporter = InMemorySpanExporter()
        self.processor = goldspan.ScoringProcessor(
            goldens, then=self.exporter, sinks=[self.evaluations.append], **options
        )
        self.provider = TracerProvider()
        self.provider.add_span_processor(self.processor)

    @property
    def tracer(self) -> Tracer:
        """The tracer that creates spans without the decorator."""
        return self.provider.get_tracer("app")

    @property
    def goldens(self) -> Goldens:
        """The goldens that it is evaluated with."""
        return self.processor.goldens

    def latest(self, *units: RunUnit) -> dict[Place, Evaluation]:
        """The last revision of each run, after everything is evaluated."""
        assert self.processor.force_flush()
        in_order = sorted(self.evaluations, key=lambda each: each.revision)
        return {place_of(each): each for each in in_order if not units or each.run.unit in units}

    def exported(self) -> list[ReadableSpan]:
        """The exported spans."""
        assert self.processor.force_flush()
        return list(self.exporter.get_finished_spans())

    def from_file(self, path: Path, *units: RunUnit, shuffled: random.Random | None = None) -> dict[Place, Evaluation]:
        """The evaluation of each run after the exported spans are written to a file and read back."""
        spans = self.exported()
        if shuffled is not None:
            shuffled.shuffle(spans)
        path.write_bytes(encode_spans(spans).SerializeToString())
        return evaluated(path, self.goldens, *units)

    def close(self) -> None:
        """End the application."""
        self.provider.shutdown()


def evaluated(path: Path, goldens: Goldens, *units: RunUnit) -> dict[Place, Evaluation]:
    """The evaluations of the runs in a file."""
    found: Iterable[RunUnit] = units or ("request", "component")
    runs = [run for unit in found for run in goldspan.load_runs(path, unit=unit, components=goldens.components)]
    return {place_of(each): each for each in (goldspan.evaluate(run, goldens) for run in runs)}


def place_of(evaluation: Evaluation) -> Place:
    """The unit and the id of the evaluated run."""
    return evaluation.run.unit, evaluation.run.run_id
