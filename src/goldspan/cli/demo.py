"""`goldspan demo`: a scripted agent, really traced, scored and exported, offline."""

from __future__ import annotations

import os
import shutil
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.resources import as_file, files
from pathlib import Path
from typing import Annotated

import typer
from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExporter, SpanExportResult
from rich.console import Console
from rich.text import Text

from goldspan import semconv
from goldspan.capture.processor import ScoringProcessor
from goldspan.cli.console import clean, output
from goldspan.cli.invocation import again
from goldspan.cli.tables import conclusion, evaluation_block
from goldspan.cli.view import STORE
from goldspan.demo import REQUESTS, serve
from goldspan.errors import ConfigurationError
from goldspan.goldens import Goldens, load_goldens
from goldspan.model import Evaluation, MatchedBy
from goldspan.sinks import Sink
from goldspan.store import SqliteStore, open_store

EXAMPLES = """
Examples:\n
  goldspan demo\n
  goldspan demo --out demo && goldspan view demo --goldens demo/goldens.yaml\n
  goldspan demo --out demo && goldspan score demo/traces.pb --goldens demo/goldens.yaml\n
"""
_GOLDENS = "goldens.yaml"
_TRACES = "traces.pb"
_SERVICE = "travel-agent"
_WAYS: Mapping[MatchedBy, str] = {
    "given": "said by the run itself",
    "id": "by id",
    "when": "by component or rule",
    "input": "by text",
    "near": "by near text",
    "policy": "by policy",
}


def demo(
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            metavar="DIR",
            help="Keep the exported traces, the goldens and a store of the results there.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Watch a small scripted agent being scored, request by request. Nothing leaves this machine."""
    _set_apart()
    console = output()
    received = _BackEnd()
    shown = _Printer(console)
    with _kept(out) as store:
        provider = TracerProvider(resource=Resource.create({"service.name": _SERVICE}))
        sinks: list[Sink] = [shown, *store]
        provider.add_span_processor(ScoringProcessor(_goldens(out), then=SimpleSpanProcessor(received), sinks=sinks))
        trace.set_tracer_provider(provider)
        console.print(Text(f"An agent serves {len(REQUESTS)} requests and is scored as it does.\n", style="bold"))
        for request in REQUESTS:
            serve(request)
        provider.shutdown()

    console.print(conclusion(shown.evaluations, what="requests and components"))
    _show_matches(console, shown.evaluations)
    _show_span(console, received.spans)
    if out is not None:
        (out / _TRACES).write_bytes(encode_spans(received.spans).SerializeToString())
    _show_way(console, out)


def _set_apart() -> None:
    """Forget what the shell says of sampling, limits and capture: the demo shows the same everywhere."""
    for name in list(os.environ):
        if name.startswith(("OTEL_", "GOLDSPAN_")) and name != "GOLDSPAN_STRICT":
            del os.environ[name]


class _BackEnd(SpanExporter):
    """Where the spans arrive: as an OTLP exporter would send them, but kept."""

    def __init__(self) -> None:
        self.spans: list[ReadableSpan] = []

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        self.spans.extend(spans)
        return SpanExportResult.SUCCESS


class _Printer:
    """A sink that shows every evaluation at once."""

    def __init__(self, console: Console) -> None:
        self.evaluations: list[Evaluation] = []
        self._console = console

    def submit(self, evaluation: Evaluation) -> None:
        self.evaluations.append(evaluation)
        self._console.print(evaluation_block(evaluation, self._console))


@contextmanager
def _kept(out: Path | None) -> Iterator[list[SqliteStore]]:
    """The store to keep the results in, empty, if there is to be one."""
    if out is None:
        yield []
        return
    if out.exists() and not out.is_dir():
        raise ConfigurationError(f"--out {out}: it is a file; name a folder")
    out.mkdir(parents=True, exist_ok=True)
    with open_store(out / STORE, keep_arguments=True) as store:
        if {tally.name for tally in store.tallies("service")} - {_SERVICE}:
            raise ConfigurationError(
                f"--out {out}: its {STORE} holds runs that are not of the demo; name another folder"
            )
        store.delete_runs([run.run_id for run in store.every()])  # whoever looks at it goes on looking
        yield [store]


def _goldens(out: Path | None) -> Goldens:
    with as_file(files("goldspan.demo") / _GOLDENS) as path:
        if out is not None:
            shutil.copyfile(path, out / _GOLDENS)
        return load_goldens(path)


def _show_matches(console: Console, evaluations: Sequence[Evaluation]) -> None:
    """In which ways runs found their goldens, the usual one first."""
    ways = Counter(_WAYS[evaluation.match.how] for evaluation in evaluations if evaluation.match)
    console.print(Text("goldens found: " + ", ".join(f"{count} {way}" for way, count in ways.most_common())))


def _show_span(console: Console, spans: Sequence[ReadableSpan]) -> None:
    """The results on a request's span, as the back end received it."""
    failed = (span for span in spans if span.attributes and span.attributes.get(semconv.PASSED) is False)
    span = next(failed, None)
    if span is None or not span.attributes:
        return
    console.print(Text(f"\nOn the exported span `{span.name}` of the first request that failed:", style="bold"))
    for key, value in span.attributes.items():
        if key.startswith("goldspan."):
            said = ", ".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)
            console.print(Text.assemble(("  " + key, "cyan"), " = ", clean(said)))


def _show_way(console: Console, out: Path | None) -> None:
    """What to call next, whole in its line, so that it can be pasted."""
    if out is None:
        ways = {"See them in the browser, and keep them:": again("demo", "--out", "demo")}
    else:
        goldens = out / _GOLDENS
        ways = {
            "The traces are kept. Score them again:": again("score", out / _TRACES, "-g", goldens),
            "See them in the browser:": again("view", out, "-g", goldens),
        }
    for what, command in ways.items():
        console.print(Text(f"\n{what}\n  {command}"), soft_wrap=True)
