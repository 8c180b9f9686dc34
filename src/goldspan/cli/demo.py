"""`goldspan demo`: traces, evaluates and exports the requests of a scripted agent, offline."""

from __future__ import annotations

import os
import shutil
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.resources import as_file, files
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.text import Text

from goldspan import semconv
from goldspan.cli.console import command_line, stdout_console
from goldspan.cli.options import STORE_FILE_NAME
from goldspan.errors import ConfigurationError
from goldspan.model import Evaluation, MatchMethod
from goldspan.terminal.escapes import escape_control_characters

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import ReadableSpan

    from goldspan.goldens import Goldens
    from goldspan.store import Store

EXAMPLES = """
Examples:\n
  goldspan demo\n
  goldspan demo --out demo && goldspan view demo --goldens demo/goldens.yaml\n
  goldspan demo --out demo && goldspan score demo/traces.pb --goldens demo/goldens.yaml\n
"""
_GOLDENS_FILE = "goldens.yaml"
_TRACES_FILE = "traces.pb"
_SERVICE_NAME = "travel-agent"
_MATCH_DESCRIPTIONS: Mapping[MatchMethod, str] = {
    "given": "given by the run itself",
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
            help="Folder for the exported traces, the goldens and a store of the results. Default: nothing is kept.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Run a small scripted agent and evaluate each of its requests. Needs no network and no model."""
    _isolate_environment()
    from opentelemetry import trace
    from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    from goldspan.capture.processor import ScoringProcessor
    from goldspan.demo import REQUESTS, answer_request
    from goldspan.terminal.evaluation_text import evaluation_block, verdict_summary

    console = stdout_console()
    evaluations: list[Evaluation] = []

    def show(evaluation: Evaluation) -> None:
        evaluations.append(evaluation)
        console.print(evaluation_block(evaluation, console))

    exporter = InMemorySpanExporter()  # in place of an OTLP exporter
    with _open_stores(out) as stores:
        provider = TracerProvider(resource=Resource.create({"service.name": _SERVICE_NAME}))
        provider.add_span_processor(
            ScoringProcessor(_demo_goldens(out), then=SimpleSpanProcessor(exporter), sinks=[show, *stores])
        )
        trace.set_tracer_provider(provider)
        console.print(Text(f"An agent serves {len(REQUESTS)} requests. Each is scored when it ends.\n", style="bold"))
        for request in REQUESTS:
            answer_request(request)
        provider.shutdown()

    spans = exporter.get_finished_spans()
    console.print(verdict_summary(evaluations, noun="requests and components"))
    _show_matches(console, evaluations)
    _show_span(console, spans)
    if out is not None:
        (out / _TRACES_FILE).write_bytes(encode_spans(spans).SerializeToString())
    _show_next_steps(console, out)


def _isolate_environment() -> None:
    """Remove the variables that configure sampling, limits and capture: the demo prints the same everywhere."""
    for name in list(os.environ):
        if name.startswith(("OTEL_", "GOLDSPAN_")) and name != "GOLDSPAN_STRICT":
            del os.environ[name]


@contextmanager
def _open_stores(out: Path | None) -> Iterator[list[Store]]:
    """Open the store for the results, and delete the runs in it; an empty list without `out`."""
    from goldspan.store import open_store

    if out is None:
        yield []
        return
    if out.exists() and not out.is_dir():
        raise ConfigurationError(f"--out {out}: it is a file; --out takes a folder")
    out.mkdir(parents=True, exist_ok=True)
    with open_store(out / STORE_FILE_NAME, keep_arguments=True) as store:
        if {tally.name for tally in store.count_by("service")} - {_SERVICE_NAME}:
            raise ConfigurationError(
                f"--out {out}: its {STORE_FILE_NAME} holds runs of another service; choose another folder"
            )
        store.delete_runs([run.run_id for run in store.iter_runs()])  # an open page keeps working
        yield [store]


def _demo_goldens(out: Path | None) -> Goldens:
    from goldspan.goldens import load_goldens

    with as_file(files("goldspan.demo") / _GOLDENS_FILE) as path:
        if out is not None:
            shutil.copyfile(path, out / _GOLDENS_FILE)
        return load_goldens(path)


def _show_matches(console: Console, evaluations: Sequence[Evaluation]) -> None:
    """Print how the goldens of the runs were found, the most frequent way first."""
    ways = Counter(_MATCH_DESCRIPTIONS[evaluation.match.how] for evaluation in evaluations if evaluation.match)
    console.print(Text("goldens found: " + ", ".join(f"{count} {way}" for way, count in ways.most_common())))


def _show_span(console: Console, spans: Sequence[ReadableSpan]) -> None:
    """Print the results on the span of a failed request, as the back end received it."""
    failed = (span for span in spans if span.attributes and span.attributes.get(semconv.PASSED) is False)
    span = next(failed, None)
    if span is None or not span.attributes:
        return
    console.print(Text(f"\nOn the exported span `{span.name}` of the first request that failed:", style="bold"))
    for key, value in span.attributes.items():
        if key.startswith("goldspan."):
            text = ", ".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)
            console.print(Text.assemble(("  " + key, "cyan"), " = ", escape_control_characters(text)))


def _show_next_steps(console: Console, out: Path | None) -> None:
    """Print the next commands, each on one line that can be pasted."""
    if out is None:
        ways = {"See them in the browser, and keep them:": command_line("demo", "--out", "demo")}
    else:
        goldens = out / _GOLDENS_FILE
        ways = {
            "The traces are kept. Score them again:": command_line("score", out / _TRACES_FILE, "-g", goldens),
            "See them in the browser:": command_line("view", out, "-g", goldens),
        }
    for what, command in ways.items():
        console.print(Text(f"\n{what}\n  {command}"), soft_wrap=True)
