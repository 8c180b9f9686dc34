"""Measures the decorators of one peer in the peer's own environment, and prints the answer as one line of JSON.

    python capture_worker.py PEER overhead ROUNDS
    python capture_worker.py PEER context

The script imports only the standard library, OpenTelemetry and the peer, which may be goldspan. It discards what a peer
would send over the network at the point where the peer sends it, in batches if the peer sends batches.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import statistics
import sys
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult

TOOLS = 10
REQUESTS = 10
"""Requests in a turn. Turns are short, so that a busy moment of the machine affects both sides equally."""
NAMES = ("search_hotels", "compare_prices", "check_dates", "book_hotel", "send_email")
QUESTION = "Find a hotel in Paris and book the cheapest one."

Decorator = Callable[[Any], Any]


class Kept(SpanExporter):
    """Accepts spans, and keeps the trace, the id and the name of each one while `keeping` is set."""

    def __init__(self) -> None:
        self.keeping = False
        self.seen: set[tuple[Any, Any, str]] = set()

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Keep the spans if requested, and report success."""
        if self.keeping:
            self.seen |= {(span.context.trace_id, span.context.span_id, span.name) for span in spans}
        return SpanExportResult.SUCCESS


@dataclass
class Prepared:
    """A peer that is ready to be measured."""

    agent: Decorator
    tool: Decorator
    kept: Kept
    """Receives the captured spans."""
    flush: Callable[[], object]
    """Flushes the spans that are not exported yet."""


# --- the peers --------------------------------------------------------------------------------------------------------


def _exporting() -> tuple[TracerProvider, Kept]:
    """Create a tracer provider that exports in batches, and discards the spans."""
    provider, kept = TracerProvider(), Kept()
    provider.add_span_processor(BatchSpanProcessor(kept, max_queue_size=1_000_000))
    trace.set_tracer_provider(provider)
    return provider, kept


def goldspan() -> Prepared:
    import goldspan
    from goldspan.capture.threads import carry_context_into_threads

    provider, kept = _exporting()
    carry_context_into_threads()
    return Prepared(goldspan.trace(kind="agent"), goldspan.trace, kept, provider.force_flush)


def deepeval() -> Prepared:
    """Discard finished traces where they are queued for Confident AI, before their conversion to JSON."""
    from deepeval.tracing import observe
    from deepeval.tracing.tracing import trace_manager

    kept = Kept()

    def post_trace(finished: Any) -> None:
        pending = [(finished.uuid, span) for span in finished.root_spans] if kept.keeping else []
        while pending:
            uuid, span = pending.pop()
            kept.seen.add((uuid, span.uuid, span.name))
            pending += [(uuid, child) for child in span.children or ()]

    trace_manager.post_trace = post_trace
    return Prepared(observe(type="agent"), observe(type="tool"), kept, lambda: None)


def galtea() -> Prepared:
    from galtea import traced

    provider, kept = _exporting()
    return Prepared(traced(type="AGENT"), traced(type="TOOL"), kept, provider.force_flush)


def traceloop() -> Prepared:
    from traceloop.sdk import Traceloop
    from traceloop.sdk.decorators import agent, tool

    kept = Kept()
    processor = BatchSpanProcessor(kept, max_queue_size=1_000_000)
    Traceloop.init(app_name="benchmark", processor=processor, telemetry_enabled=False, instruments=set())
    return Prepared(agent(name="agent"), tool(), kept, processor.force_flush)


def opik() -> Prepared:
    """Discard messages where they are queued, before their conversion to JSON."""
    import opik
    from opik.api_objects import opik_client

    kept = Kept()

    def put(message: Any, force: bool = False) -> None:
        if kept.keeping and type(message).__name__ == "CreateSpanMessage":
            kept.seen.add((message.trace_id, message.span_id, message.name))

    client = opik_client.Opik(_show_misconfiguration_message=False, host="http://127.0.0.1:9")
    client._streamer.put = put
    opik_client.set_global_client(client)
    return Prepared(opik.track(name="agent"), opik.track(type="tool"), kept, lambda: None)


def logfire() -> Prepared:
    import logfire

    kept = Kept()
    processor = BatchSpanProcessor(kept, max_queue_size=1_000_000)
    logfire.configure(
        send_to_logfire=False,
        console=False,
        metrics=False,
        additional_span_processors=[processor],
        inspect_arguments=False,
    )
    tool = logfire.instrument(record_return=True)
    return Prepared(logfire.instrument("agent", record_return=True), tool, kept, processor.force_flush)


def langfuse() -> Prepared:
    from langfuse import Langfuse, observe

    kept = Kept()
    client = Langfuse(public_key="pk", secret_key="sk", base_url="http://127.0.0.1:9", span_exporter=kept)
    return Prepared(observe(name="agent", as_type="agent"), observe(as_type="tool"), kept, client.flush)


def openinference() -> Prepared:
    from openinference.instrumentation import TracerProvider as Provider

    provider, kept = Provider(), Kept()
    provider.add_span_processor(BatchSpanProcessor(kept, max_queue_size=1_000_000))
    trace.set_tracer_provider(provider)
    tracer = provider.get_tracer("benchmark")
    return Prepared(tracer.agent(name="agent"), tracer.tool, kept, provider.force_flush)


def mlflow() -> Prepared:
    """Discard finished traces where they are logged."""
    import mlflow
    from mlflow.tracing import provider
    from mlflow.tracing.export.mlflow_v3 import MlflowV3SpanExporter
    from mlflow.tracing.trace_manager import InMemoryTraceManager

    kept = Kept()

    def export(self: Any, spans: Sequence[ReadableSpan]) -> None:
        manager = InMemoryTraceManager.get_instance()
        for span in spans:
            kept.export([span])
            if span.parent is None:
                manager.pop_trace(span.context.trace_id)

    def flush() -> None:
        provider._get_tracer("benchmark").span_processor.force_flush()

    MlflowV3SpanExporter.export = export
    return Prepared(mlflow.trace(name="agent", span_type="AGENT"), mlflow.trace(span_type="TOOL"), kept, flush)


PEERS = (goldspan, deepeval, galtea, traceloop, opik, logfire, langfuse, openinference, mlflow)


# --- overhead of a call -----------------------------------------------------------------------------------------------


def tools() -> list[Callable[..., Any]]:
    """Create the tools of a request: functions with five names, each twice."""
    return [_named(NAMES[number % len(NAMES)], lambda city, nights: _hotel(city, nights)) for number in range(TOOLS)]


def async_tools() -> list[Callable[..., Any]]:
    """Create the same tools as coroutine functions."""

    def made(name: str) -> Callable[..., Any]:
        async def tool(city: str, nights: int) -> dict[str, object]:
            return _hotel(city, nights)

        return _named(name, tool)

    return [made(NAMES[number % len(NAMES)]) for number in range(TOOLS)]


def _hotel(city: str, nights: int) -> dict[str, object]:
    return {"city": city, "nights": nights, "price": 90}


def _named(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    function.__name__ = function.__qualname__ = name
    return function


def bare_requests(provider: TracerProvider) -> dict[str, Callable[[int], None]]:
    """Return functions that create the spans of requests: an agent with ten tools.

    They have the attributes that goldspan's decorators record, as constants.
    """
    tracer = provider.get_tracer("bare")
    question = f'[{{"role": "user", "parts": [{{"type": "text", "content": "{QUESTION}"}}]}}]'
    answer = '[{"role": "assistant", "parts": [{"type": "text", "content": "booked"}], "finish_reason": "stop"}]'
    of_agent = {
        "gen_ai.operation.name": "invoke_agent",
        "gen_ai.agent.name": "agent",
        "gen_ai.input.messages": question,
    }
    result = '{"city":"Paris","nights":2,"price":90}'
    of_tools = [
        {
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.name": tool.__name__,
            "gen_ai.tool.type": "function",
            "gen_ai.tool.call.arguments": '{"city":"Paris","nights":2}',
        }
        for tool in tools()
    ]
    named = [(f"execute_tool {tool.__name__}", tool, found) for tool, found in zip(tools(), of_tools, strict=True)]
    awaited = [(name, tool, found) for (name, _, found), tool in zip(named, async_tools(), strict=True)]

    def agent(question: str) -> str:
        with tracer.start_as_current_span("invoke_agent agent", attributes=of_agent) as span:
            for name, tool, attributes in named:
                with tracer.start_as_current_span(name, attributes=attributes) as tool_span:
                    tool("Paris", nights=2)
                    tool_span.set_attribute("gen_ai.tool.call.result", result)
            span.set_attribute("gen_ai.output.messages", answer)
        return "booked"

    async def async_agent(question: str) -> str:
        with tracer.start_as_current_span("invoke_agent agent", attributes=of_agent) as span:
            for name, tool, attributes in awaited:
                with tracer.start_as_current_span(name, attributes=attributes) as tool_span:
                    await tool("Paris", nights=2)
                    tool_span.set_attribute("gen_ai.tool.call.result", result)
            span.set_attribute("gen_ai.output.messages", answer)
        return "booked"

    return {"sync": _plain(agent), "async": _awaited(async_agent)}


def decorated_requests(peer: Prepared) -> dict[str, Callable[[int], None]]:
    """Return functions that run the same requests with a peer's decorators."""
    traced, awaited = list(map(peer.tool, tools())), list(map(peer.tool, async_tools()))

    @peer.agent
    def agent(question: str) -> str:
        for tool in traced:
            tool("Paris", nights=2)
        return "booked"

    @peer.agent
    async def async_agent(question: str) -> str:
        for tool in awaited:
            await tool("Paris", nights=2)
        return "booked"

    return {"sync": _plain(agent), "async": _awaited(async_agent)}


def _plain(request: Callable[[str], object]) -> Callable[[int], None]:
    def run(times: int) -> None:
        for _ in range(times):
            request(QUESTION)

    return run


def _awaited(request: Callable[[str], Awaitable[object]]) -> Callable[[int], None]:
    async def run(times: int) -> None:
        for _ in range(times):
            await request(QUESTION)

    return lambda times: asyncio.run(run(times))


def overhead(peer: Prepared, rounds: int) -> dict[str, float]:
    """Return the microseconds of a bare span, and the ratios of the peer's spans to it: medians of alternating turns.

    The time is that of the application's thread, without the peer's own threads.
    """
    provider = TracerProvider()
    provider.add_span_processor(BatchSpanProcessor(Kept(), max_queue_size=1_000_000))
    sides = {"bare": bare_requests(provider), "peer": decorated_requests(peer)}
    taken: dict[tuple[str, str], list[float]] = {(side, way): [] for side in sides for way in sides[side]}
    gc.collect()
    gc.freeze()
    for number in range(rounds + 1):
        for way in ("sync", "async"):
            for side in ("bare", "peer") if number % 2 else ("peer", "bare"):
                run = sides[side][way]
                run(1)
                began = time.thread_time()
                run(REQUESTS)
                if number:  # the first round is a warm-up
                    taken[side, way].append((time.thread_time() - began) / REQUESTS / (TOOLS + 1) * 1e6)
        peer.flush()
        provider.force_flush()
    return {
        "bare": statistics.median(taken["bare", "sync"]),
        "sync": ratio(taken["peer", "sync"], taken["bare", "sync"]),
        "async": ratio(taken["peer", "async"], taken["bare", "async"]),
    }


def ratio(taken: Sequence[float], bare: Sequence[float]) -> float:
    """Return the median of the ratios of consecutive turns."""
    return statistics.median(one / other for one, other in zip(taken, bare, strict=True))


# --- tools lost in threads --------------------------------------------------------------------------------------------


def search(city: str, nights: int) -> dict[str, object]:
    return _hotel(city, nights)


async def async_search(city: str, nights: int) -> dict[str, object]:
    return _hotel(city, nights)


def context(peer: Prepared) -> dict[str, str]:
    """Return the number of tools in the agent's trace for each way to run two tools, or the error."""
    tool, atool = peer.tool(search), peer.tool(async_search)

    def in_pool() -> None:
        with ThreadPoolExecutor(2) as pool:
            list(pool.map(tool, ("Paris", "Rome"), (1, 2)))

    def in_threads() -> None:
        started = [threading.Thread(target=tool, args=(city, 1)) for city in ("Paris", "Rome")]
        for thread in started:
            thread.start()
        for thread in started:
            thread.join()

    async def in_executor() -> None:
        loop = asyncio.get_running_loop()
        await asyncio.gather(*(loop.run_in_executor(None, tool, city, 1) for city in ("Paris", "Rome")))

    async def in_gather() -> None:
        await asyncio.gather(atool("Paris", 1), atool("Rome", 2))

    async def in_generator() -> AsyncIterator[str]:
        yield str(await atool("Paris", 1))
        yield str(await atool("Rome", 2))

    ways: dict[str, Callable[[Any], object]] = {
        "ThreadPoolExecutor.map": lambda agent: agent(),
        "threading.Thread": lambda agent: agent(),
        "run_in_executor": lambda agent: asyncio.run(agent()),
        "asyncio.gather": lambda agent: asyncio.run(agent()),
        "async generator": lambda agent: asyncio.run(_consumed(agent())),
    }
    bodies = (in_pool, in_threads, in_executor, in_gather, in_generator)
    return {way: _kept_tools(peer, body, run) for (way, run), body in zip(ways.items(), bodies, strict=True)}


async def _consumed(items: AsyncIterator[str]) -> None:
    async for _ in items:
        pass


def _kept_tools(peer: Prepared, body: Callable[..., Any], run: Callable[[Any], object]) -> str:
    body.__name__ = body.__qualname__ = "agent"
    peer.flush()
    peer.kept.keeping, peer.kept.seen = True, set()
    try:
        run(peer.agent(body))
        peer.flush()
    except Exception as error:  # noqa: BLE001 - the error is the result
        return type(error).__name__
    agents = {found for found, _, name in peer.kept.seen if "agent" in name.lower()}
    return f"{sum(found in agents and 'search' in name for found, _, name in peer.kept.seen)}/2"


def main() -> None:
    """Run the measurement that the command line names, and print its result."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # the peer's own output goes to standard error
    name, measurement, *rest = sys.argv[1:]
    peer = {function.__name__: function for function in PEERS}[name]()
    answer = overhead(peer, *map(int, rest)) if measurement == "overhead" else context(peer)
    print(json.dumps(answer), file=answers, flush=True)
    answers.close()
    os._exit(0)  # some peers wait at exit for what they cannot send


if __name__ == "__main__":
    main()
