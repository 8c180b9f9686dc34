"""Fills a real product with scored traces, and opens its page of one of them in a browser."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import Tracer
from playwright.sync_api import Browser, Locator, Page

from goldspan import Evaluation, Golden, ScoringProcessor
from goldspan.integrations.product_sink import ProductSink
from goldspan.integrations.scored_runs import VERDICT_NAME
from goldspan.model import ExpectedTool
from support.browser import PATIENCE_MS
from support.metric_readers import Meter
from support.product_programs import ProductProgram

QUESTION = "Book a hotel in Paris, and send me the confirmation."
_TOOLS = ("search_hotels", "book_hotel", "send_email")
_GOLDEN = Golden("book-hotel", QUESTION, tuple(ExpectedTool(name) for name in _TOOLS))
_PATIENCE_S = 120
_PREFERENCES = """
localStorage.setItem("arize-phoenix-theme", "light");
localStorage.setItem("arize-phoenix-preferences", '{"state": {"isSideNavExpanded": false}, "version": 0}');
localStorage.setItem("mlflow.detectIssues.guidanceShown_v1", "true");
localStorage.setItem("mlflow.assistant.fab.autoOpenedOnFirstLoad_v1", "true");
localStorage.setItem("mlflow.assistant.panelOpen_v1", "false");
"""


@dataclass(frozen=True)
class ScoredTraces:
    """The evaluations that the product received, each of a trace of its own."""

    passed: Evaluation
    failed: Evaluation
    outdated: Evaluation
    """The first revision of the third run. It failed."""
    revised: Evaluation
    """The second revision of the same run. It passed."""


def send_scored_traces(program: ProductProgram) -> ScoredTraces:
    """Send the spans of three requests over OTLP, and their scores through a sink; then revise the third."""
    meter = Meter()
    evaluations: list[Evaluation] = []
    sink = ProductSink(program.product, meter_provider=meter.provider)
    exporter = OTLPSpanExporter(f"{program.url}/v1/traces", headers=program.otlp_headers)
    processor = ScoringProcessor(
        [_GOLDEN],
        then=BatchSpanProcessor(exporter, schedule_delay_millis=100),
        sinks=[sink, evaluations.append],
        meter_provider=meter.provider,
        background=True,
    )
    provider = TracerProvider(resource=Resource.create({"service.name": "travel"}))
    provider.add_span_processor(processor)
    tracer = provider.get_tracer("travel")
    for tools in (_TOOLS, ("search_hotels", "cancel_booking", "send_email"), ("search_hotels", "book_hotel")):
        _call_agent(tracer, *tools)
        _settle(processor)
    passed, failed, outdated = evaluations
    revised = replace(passed, run=outdated.run, revision=outdated.revision + 1)
    sink.submit(revised)
    _settle(processor)
    provider.shutdown()
    assert sum(meter.counts("goldspan.sink.dropped").values()) == 0
    return ScoredTraces(passed, failed, outdated, revised)


def _call_agent(tracer: Tracer, *tools: str) -> None:
    """Record the spans of a request."""
    attributes: dict[str, Any] = {
        "gen_ai.operation.name": "invoke_agent",
        "gen_ai.agent.name": "travel",
        "goldspan.golden.id": _GOLDEN.id,
        "input.value": QUESTION,
    }
    with tracer.start_as_current_span("invoke_agent travel", attributes=attributes):
        for tool in tools:
            call = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": tool}
            with tracer.start_as_current_span(f"execute_tool {tool}", attributes=call):
                time.sleep(0.002)  # so that a page shows the calls one after another


def _settle(processor: ScoringProcessor) -> None:
    until = time.monotonic() + _PATIENCE_S
    while not processor.force_flush(10_000):
        assert time.monotonic() < until
        time.sleep(0.1)


@contextmanager
def opened_page(browser: Browser, *, height: int = 860, width: int = 1180) -> Iterator[Page]:
    """Open a page of a fixed size, language and time zone, in light colours and without the products' assistants."""
    context = browser.new_context(
        viewport={"width": width, "height": height},
        color_scheme="light",
        locale="en-GB",
        timezone_id="UTC",
        reduced_motion="reduce",
    )
    context.set_default_timeout(PATIENCE_MS)
    context.add_init_script(_PREFERENCES)
    try:
        yield context.new_page()
    finally:
        context.close()


@dataclass(frozen=True)
class ShownVerdict:
    """The verdict on a run, opened on a product's page."""

    panel: Locator
    """The part of the page with the name, the value and the reason."""
    entries: Locator
    """The scores of that name; more than one if a revision added its score."""


def open_verdict(page: Page, program: ProductProgram, evaluation: Evaluation) -> ShownVerdict:
    """Open the product's page of an evaluation's trace, and click until the reason of the verdict is visible."""
    return _OPEN_VERDICT[program.name](page, program, evaluation)


def show_failed_runs(page: Page, program: ProductProgram) -> Locator:
    """Open the product's list of traces, filter the failed runs, and return the rows."""
    return _SHOW_FAILED[program.name](page, program)


def _open_phoenix_verdict(page: Page, program: ProductProgram, evaluation: Evaluation) -> ShownVerdict:
    page.goto(f"{program.url}/redirects/spans/{evaluation.run.span_id}")
    unfold = page.get_by_role("button", name="Annotations", exact=True)
    unfold.click()
    page.locator("section.card", has=unfold).get_by_text(VERDICT_NAME).click()
    entries = page.get_by_role("list", name=VERDICT_NAME).get_by_role("listitem")
    return ShownVerdict(page.get_by_role("dialog", name=f"{VERDICT_NAME} annotation details"), entries)


def _open_mlflow_verdict(page: Page, program: ProductProgram, evaluation: Evaluation) -> ShownVerdict:
    # The drawer with the trace is hidden from the accessibility tree, so elements are found by their ids.
    page.goto(f"{program.url}/#/experiments/0/traces?selectedEvaluationId=tr-{evaluation.run.trace_ids[0]}")
    page.locator(_component("assessments-pane-toggle")).first.click()
    unfold = page.locator(_component("toggle-assessment-expanded"))
    panel = page.locator(f"xpath=//span[text()='{VERDICT_NAME}']/../../..").filter(has=unfold)
    panel.locator(unfold).click()
    return ShownVerdict(panel, panel.locator(_component("assessment-more-button")))


def _show_failed_in_phoenix(page: Page, program: ProductProgram) -> Locator:
    page.goto(f"{program.url}/projects")
    page.get_by_role("link", name="default").first.click()
    page.locator(".cm-content").first.click()
    page.keyboard.press("ControlOrMeta+A")
    page.keyboard.insert_text(f"annotations['{VERDICT_NAME}'].label == 'fail'")
    return page.locator("tbody tr")


def _show_failed_in_mlflow(page: Page, program: ProductProgram) -> Locator:
    def control(name: str) -> Locator:
        return page.locator(f"[data-component-id='web-shared.traces-table.{name}']")

    page.goto(f"{program.url}/#/experiments/0/traces")
    control("filter.trigger").click()
    control("filter.field").click()
    page.get_by_role("option", name="Feedback", exact=True).click()
    control("filter.key-combobox").click()
    page.get_by_role("option", name=VERDICT_NAME, exact=True).click()
    control("filter.value").fill("false")
    control("filter.apply").click()
    return control("row-select")


_OPEN_VERDICT = {"phoenix": _open_phoenix_verdict, "mlflow": _open_mlflow_verdict}
_SHOW_FAILED = {"phoenix": _show_failed_in_phoenix, "mlflow": _show_failed_in_mlflow}


def _component(name: str) -> str:
    return f"[data-component-id='shared.model-trace-explorer.{name}']"
