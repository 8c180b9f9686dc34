"""Errors in tracing never reach the decorated function."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, Span, SpanProcessor, TracerProvider

import goldspan
from capture.telemetry import Install
from goldspan import _guard


class Failing(SpanProcessor):
    """A third-party processor that raises at a given place."""

    def __init__(self, place: str) -> None:
        self._place = place

    def on_start(self, span: Span, parent_context: Any = None) -> None:
        self._perhaps("on_start")
        if self._place == "set_attribute":
            span.set_attribute = lambda *_: self._perhaps("set_attribute")  # type: ignore[method-assign]

    def on_end(self, span: ReadableSpan) -> None:
        self._perhaps("on_end")

    def _perhaps(self, place: str) -> None:
        if place == self._place:
            raise RuntimeError(place)


@goldspan.trace
def search(city: str) -> str:
    if not city:
        raise ValueError("no city")
    return city.upper()


@goldspan.trace
async def book(city: str) -> str:
    return city.upper()


@pytest.mark.parametrize(
    ("place", "counted"),
    [
        pytest.param("on_start", "open a span for a decorated function", id="opening"),
        pytest.param("set_attribute", "describe the outcome of a decorated function", id="describing"),
        pytest.param("on_end", "end the span of a decorated function", id="ending"),
    ],
)
def test_an_error_in_tracing_is_counted_and_logged_and_the_function_still_runs(
    install: Install, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, place: str, counted: str
) -> None:
    monkeypatch.setenv("GOLDSPAN_STRICT", "0")
    provider: TracerProvider = install()
    provider.add_span_processor(Failing(place))
    assert (search("paris"), asyncio.run(book("rome"))) == ("PARIS", "ROME")
    with pytest.raises(ValueError, match="no city"):
        search("")
    assert _guard.failure_counts[counted] >= 2
    assert [record.getMessage().partition(";")[0] for record in caplog.records] == [f"goldspan could not {counted}"]
    assert not trace.get_current_span().get_span_context().is_valid
