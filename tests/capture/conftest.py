"""The real SDK for every test: global providers are reset before and after it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from opentelemetry import _logs, trace
from opentelemetry.metrics import _internal as metrics_internal
from opentelemetry.sdk.trace import SpanProcessor, TracerProvider
from opentelemetry.util._once import Once

from capture.telemetry import Exported, Install
from goldspan.capture import call_spans, processor, threads


@pytest.fixture(autouse=True)
def _providers_of_no_other_test() -> Iterator[None]:
    _forget_providers()
    call_spans._default_capture.cache_clear()
    yield
    provider = trace._TRACER_PROVIDER
    for known in [*processor._active_processors]:
        known.shutdown()
    for known in (provider, _logs._internal._LOGGER_PROVIDER, metrics_internal._METER_PROVIDER):
        if hasattr(known, "shutdown"):
            known.shutdown()
    _forget_providers()
    assert call_spans._listeners == ()
    threads.stop_carrying_context()
    assert threads._patches == []


def _forget_providers() -> None:
    # The API lets an application set each provider once; its own tests reach in like this.
    trace._TRACER_PROVIDER, trace._TRACER_PROVIDER_SET_ONCE = None, Once()
    _logs._internal._LOGGER_PROVIDER, _logs._internal._LOGGER_PROVIDER_SET_ONCE = None, Once()
    metrics_internal._METER_PROVIDER, metrics_internal._METER_PROVIDER_SET_ONCE = None, Once()
    metrics_internal._PROXY_METER_PROVIDER = metrics_internal._ProxyMeterProvider()


@pytest.fixture
def install() -> Install:
    """Set a global tracer provider with the given processors."""

    def install(*processors: SpanProcessor, **options: Any) -> TracerProvider:
        provider = TracerProvider(**options)
        for one in processors:
            provider.add_span_processor(one)
        trace.set_tracer_provider(provider)
        return provider

    return install


@pytest.fixture
def exported() -> Exported:
    """An exporter, not yet installed."""
    return Exported()


@pytest.fixture
def captured(exported: Exported, install: Install) -> Exported:
    """An exporter that receives every span of the application."""
    install(exported.processor())
    return exported
