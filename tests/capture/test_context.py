"""Threads, pools and tasks that a request starts belong to that request only."""

from __future__ import annotations

import asyncio
import contextvars
import functools
import gc
import random
import sys
import threading
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from multiprocessing import get_context
from types import ModuleType
from typing import Any

import pytest
from opentelemetry import context as otel_context
from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import StatusCode

import goldspan
from capture.telemetry import Exported, Install
from goldspan.capture import threads
from goldspan.capture.threads import carry_context_into_threads, stop_carrying_context
from goldspan.model import Evaluation

START, SUBMIT = threading.Thread.start, ThreadPoolExecutor.submit


@pytest.fixture(autouse=True)
def _threads_as_they_were() -> Iterator[None]:
    yield
    stop_carrying_context()
    assert (threading.Thread.start, ThreadPoolExecutor.submit) == (START, SUBMIT)
    assert threads._patches == []


@pytest.fixture
def carrying() -> None:
    carry_context_into_threads()


@goldspan.trace
def search(query: str) -> str:
    return query.upper()


@goldspan.trace
async def book(query: str) -> str:
    await asyncio.sleep(0)
    return query.upper()


# --- every way to run two tools ---------------------------------------------------------------------------------------


def in_pool_map(one: str, other: str) -> None:
    with ThreadPoolExecutor(2) as pool:
        assert list(pool.map(search, [one, other])) == [one.upper(), other.upper()]


def in_pool_submit(one: str, other: str) -> None:
    with ThreadPoolExecutor(1) as pool:
        for future in [pool.submit(search, one), pool.submit(search, query=other)]:
            future.result()


def in_a_pool_of_a_pool(one: str, other: str) -> None:
    with ThreadPoolExecutor(1) as pool:
        pool.submit(in_pool_map, one, other).result()


def _joined(*started: threading.Thread) -> None:
    for thread in started:
        thread.start()
    for thread in started:
        thread.join()


def in_threads(one: str, other: str) -> None:
    _joined(*(threading.Thread(target=search, args=(query,)) for query in (one, other)))


class Searching(threading.Thread):
    """A thread that overrides `run`."""

    def __init__(self, query: str) -> None:
        super().__init__(daemon=True)
        self.query = query

    def run(self) -> None:
        search(self.query)


def in_threads_of_a_class(one: str, other: str) -> None:
    _joined(Searching(one), Searching(other))


def in_threads_with_a_run_of_their_own(one: str, other: str) -> None:
    started = [threading.Thread() for _ in range(2)]
    for thread, query in zip(started, (one, other), strict=True):
        thread.run = functools.partial(search, query)  # type: ignore[method-assign]
    _joined(*started)


def in_a_thread_of_a_thread(one: str, other: str) -> None:
    _joined(threading.Thread(target=in_threads, args=(one, other)))


def in_timers(one: str, other: str) -> None:
    _joined(*(threading.Timer(0, search, (query,)) for query in (one, other)))


def in_loop_executor(one: str, other: str) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        await asyncio.gather(*(loop.run_in_executor(None, search, query) for query in (one, other)))

    asyncio.run(main())


def in_to_thread(one: str, other: str) -> None:
    async def main() -> None:
        await asyncio.gather(asyncio.to_thread(search, one), asyncio.to_thread(search, other))

    asyncio.run(main())


def in_gather(one: str, other: str) -> None:
    async def main() -> None:
        await asyncio.gather(book(one), book(other))

    asyncio.run(main())


def in_tasks(one: str, other: str) -> None:
    async def main() -> None:
        for task in [asyncio.create_task(book(one)), asyncio.create_task(book(other))]:
            await task

    asyncio.run(main())


def in_a_loop_of_another_thread(one: str, other: str) -> None:
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        for query in (one, other):
            asyncio.run_coroutine_threadsafe(book(query), loop).result()
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


def in_an_async_generator(one: str, other: str) -> None:
    async def body() -> AsyncIterator[str]:
        yield await book(one)
        yield await book(other)

    async def main() -> None:
        async for _ in body():
            pass

    asyncio.run(main())


def in_a_decorated_generator(one: str, other: str) -> None:
    @goldspan.trace(kind="component")
    def body() -> Iterator[str]:
        yield search(one)
        yield search(other)

    assert list(body()) == [one.upper(), other.upper()]


WITHOUT_THREADS = (in_gather, in_tasks, in_to_thread, in_an_async_generator, in_a_decorated_generator)
IN_THREADS = (
    in_pool_map,
    in_pool_submit,
    in_a_pool_of_a_pool,
    in_threads,
    in_threads_of_a_class,
    in_threads_with_a_run_of_their_own,
    in_a_thread_of_a_thread,
    in_timers,
    in_loop_executor,
)
WAYS = (*WITHOUT_THREADS, *IN_THREADS, in_a_loop_of_another_thread)
EACH_WAY = pytest.mark.parametrize("way", [pytest.param(way, id=way.__name__) for way in WAYS])


@pytest.mark.usefixtures("carrying")
@EACH_WAY
def test_tool_spans_in_threads_and_tasks_are_in_the_trace_of_their_agent(
    captured: Exported, way: Callable[[str, str], None]
) -> None:
    goldspan.trace(kind="agent", name="agent")(way)("paris", "rome")
    assert len({span.context.trace_id for span in captured.spans}) == 1
    assert captured.one("invoke_agent agent").parent is None
    queries = [span.attributes["gen_ai.tool.call.result"] for span in captured.spans if "execute" in span.name]  # type: ignore[index]
    assert sorted(queries) == ['"PARIS"', '"ROME"']
    assert not trace.get_current_span().get_span_context().is_valid


@pytest.mark.usefixtures("carrying")
def test_spans_of_other_instrumentations_in_pools_keep_their_parent(captured: Exported) -> None:
    tracer = trace.get_tracer("app")

    def tool(name: str) -> None:
        tracer.start_span(name).end()

    with tracer.start_as_current_span("request"), ThreadPoolExecutor(2) as pool:
        list(pool.map(tool, "ab"))
    *tools, request = captured.spans
    assert [span.parent for span in tools] == [request.context] * 2


@pytest.mark.parametrize("way", [pytest.param(way, id=way.__name__) for way in IN_THREADS])
def test_tool_spans_in_threads_lose_their_trace_without_context_propagation(
    captured: Exported, way: Callable[[str, str], None]
) -> None:
    goldspan.trace(kind="agent", name="agent")(way)("paris", "rome")
    assert len({span.context.trace_id for span in captured.spans}) == 3


def test_a_partially_imported_threading_instrumentation_is_treated_as_inactive(
    captured: Exported, monkeypatch: pytest.MonkeyPatch
) -> None:
    half = ModuleType("opentelemetry.instrumentation.threading")
    monkeypatch.setitem(sys.modules, half.__name__, half)
    carry_context_into_threads()
    goldspan.trace(kind="agent", name="agent")(in_pool_map)("paris", "rome")
    assert len({span.context.trace_id for span in captured.spans}) == 1


def test_context_propagation_stays_active_if_a_new_owner_starts_while_the_last_one_stops(
    captured: Exported, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Asker:
        """An owner of context propagation."""

    last, next_one, stop = Asker(), Asker(), threads._unpatch_threads

    def stop_slowly() -> None:
        beginning.start()
        beginning.join(0.2)  # without the lock it would be done by then
        stop()

    beginning = threading.Thread(target=threads.carry_context_for, args=(next_one,))
    threads.carry_context_for(last)
    with monkeypatch.context() as patched:
        patched.setattr(threads, "_unpatch_threads", stop_slowly)
        threads.stop_carrying_context_for(last)
        beginning.join()
    goldspan.trace(kind="agent", name="agent")(in_pool_map)("paris", "rome")
    assert len({span.context.trace_id for span in captured.spans}) == 1
    threads.stop_carrying_context_for(next_one)
    assert threads._patches == []


# --- threads that outlive a request -----------------------------------------------------------------------------------


def _in_request(work: Callable[[], Any]) -> trace.SpanContext:
    with trace.get_tracer("app").start_as_current_span("request") as span:
        work()
    return span.get_span_context()


@pytest.mark.usefixtures("carrying")
@pytest.mark.parametrize("way", ["submit", "map", "run_in_executor"])
def test_pool_threads_use_the_context_of_the_request_that_submits_the_task(captured: Exported, way: str) -> None:
    seen: list[trace.SpanContext] = []

    def work(_: int) -> None:
        seen.append(trace.get_current_span().get_span_context())

    async def awaited(pool: ThreadPoolExecutor) -> None:
        await asyncio.get_running_loop().run_in_executor(pool, work, 0)

    def use(pool: ThreadPoolExecutor) -> None:
        if way == "submit":
            pool.submit(work, 0).result()
        elif way == "map":
            list(pool.map(work, [0]))
        else:
            asyncio.run(awaited(pool))

    with ThreadPoolExecutor(1) as pool:
        requests = [_in_request(lambda: use(pool)) for _ in range(3)]
        use(pool)
        assert len(pool._threads) == 1
    assert seen == [*requests, trace.INVALID_SPAN_CONTEXT]


@pytest.mark.usefixtures("carrying")
def test_callbacks_of_a_process_pool_belong_to_no_request(captured: Exported) -> None:
    """The first request starts the callback thread of a process pool."""
    seen: list[bool] = []
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        future = []
        _in_request(lambda: future.append(pool.submit(pow, 2, 3)))
        future[0].add_done_callback(lambda _: seen.append(trace.get_current_span().get_span_context().is_valid))
        assert future[0].result() == 8
    assert seen == [False]


@pytest.mark.usefixtures("carrying")
def test_a_thread_keeps_the_context_in_which_it_was_started(captured: Exported) -> None:
    ended, seen = threading.Event(), []

    def work() -> None:
        ended.wait(60)
        seen.append(trace.get_current_span().get_span_context())

    thread = threading.Thread(target=work)
    request = _in_request(thread.start)
    ended.set()
    thread.join()
    assert seen == [request]


@pytest.mark.usefixtures("carrying")
def test_a_thread_started_in_an_empty_context_belongs_to_no_request(captured: Exported) -> None:
    seen = []
    thread = threading.Thread(target=lambda: seen.append(trace.get_current_span().get_span_context().is_valid))
    _in_request(lambda: contextvars.Context().run(thread.start))
    thread.join()
    assert seen == [False]


@pytest.mark.usefixtures("carrying")
def test_threads_of_the_sdk_belong_to_no_request(install: Install, exported: Exported) -> None:
    install()
    before = {*threading.enumerate()}
    made: list[BatchSpanProcessor] = []
    _in_request(lambda: made.append(BatchSpanProcessor(exported.exporter)))
    (thread,) = {*threading.enumerate()} - before
    assert "run" not in vars(thread)
    assert not threads._is_shared_thread(threading.Thread(target=search))
    assert threads._is_shared_thread(thread)
    made[0].shutdown()


# --- switching it on and off ------------------------------------------------------------------------------------------


def test_context_propagation_is_enabled_and_disabled_idempotently() -> None:
    carry_context_into_threads()
    first = (threading.Thread.start, ThreadPoolExecutor.submit)
    carry_context_into_threads()
    assert (threading.Thread.start, ThreadPoolExecutor.submit) == first != (START, SUBMIT)
    stop_carrying_context()
    stop_carrying_context()
    assert (threading.Thread.start, ThreadPoolExecutor.submit) == (START, SUBMIT)


def test_context_propagation_is_active_until_the_last_processor_shuts_down(
    exported: Exported, install: Install
) -> None:
    first = goldspan.ScoringProcessor(then=exported.processor(), sinks=[])
    second = goldspan.ScoringProcessor(sinks=[])
    without = goldspan.ScoringProcessor(sinks=[], threads=False)
    install(first)
    _in_request(lambda: in_threads("a", "b"))
    assert len({span.context.trace_id for span in exported.spans}) == 1
    first.shutdown()
    without.shutdown()
    assert threading.Thread.start is not START
    second.shutdown()
    assert (threading.Thread.start, ThreadPoolExecutor.submit) == (START, SUBMIT)


def test_a_processor_with_threads_disabled_does_not_patch_threads() -> None:
    goldspan.ScoringProcessor(sinks=[], threads=False)
    assert threading.Thread.start is START


def test_propagation_enabled_by_the_application_survives_processor_shutdown() -> None:
    carry_context_into_threads()
    goldspan.ScoringProcessor(sinks=[]).shutdown()
    assert threading.Thread.start is not START


@pytest.mark.parametrize("instrumented", [True, False])
def test_threads_are_not_patched_if_a_threading_instrumentation_is_active(
    monkeypatch: pytest.MonkeyPatch, instrumented: bool
) -> None:
    """Replaces `opentelemetry-instrumentation-threading`, which requires one version of the SDK."""

    class ThreadingInstrumentor:
        is_instrumented_by_opentelemetry = instrumented

    module = ModuleType(threads._INSTRUMENTATION)
    module.ThreadingInstrumentor = ThreadingInstrumentor  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, threads._INSTRUMENTATION, module)
    carry_context_into_threads()
    assert (threading.Thread.start is START) == instrumented


def test_a_later_patch_of_thread_start_is_kept_when_propagation_is_disabled(
    captured: Exported, monkeypatch: pytest.MonkeyPatch
) -> None:
    carry_context_into_threads()
    ours = threading.Thread.start

    def start(thread: threading.Thread) -> None:
        return ours(thread)

    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", start)
        stop_carrying_context()
        assert threading.Thread.start is start
        _in_request(lambda: in_threads("a", "b"))
        assert len({span.context.trace_id for span in captured.spans}) == 3
        carry_context_into_threads()
        assert threading.Thread.start is start
        captured.exporter.clear()
        _in_request(lambda: in_threads("a", "b"))
        assert len({span.context.trace_id for span in captured.spans}) == 1


@pytest.mark.usefixtures("carrying")
def test_a_thread_that_cannot_be_started_is_unchanged(captured: Exported) -> None:
    thread = threading.Thread(target=search, args=("a",))
    _in_request(thread.start)
    thread.join()
    with pytest.raises(RuntimeError, match="only be started once"):
        _in_request(thread.start)
    assert "run" not in vars(thread)


@pytest.mark.usefixtures("carrying")
def test_an_exception_in_a_pool_task_is_raised_by_its_future(captured: Exported) -> None:
    def fail() -> None:
        raise KeyError("no rooms")

    def use() -> None:
        with ThreadPoolExecutor(1) as pool, pytest.raises(KeyError, match="no rooms"):
            pool.submit(fail).result()

    _in_request(use)


@pytest.mark.usefixtures("carrying")
def test_tasks_of_interpreter_pools_are_not_wrapped(captured: Exported) -> None:
    class Interpreters(ThreadPoolExecutor):
        """Like `InterpreterPoolExecutor` of Python 3.14, which pickles tasks."""

        __module__ = threads._INTERPRETERS

        def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
            return super().submit(fn, *args, **kwargs)

    class Ours(Interpreters):
        pass

    seen: list[bool] = []

    def use() -> None:
        with Ours(1) as pool:
            pool.submit(lambda: seen.append(trace.get_current_span().get_span_context().is_valid)).result()

    _in_request(use)
    assert seen == [False]


# --- coroutines and generators that end elsewhere ---------------------------------------------------------------------


@goldspan.trace(name="stream")
async def astream(steps: int = 3) -> AsyncIterator[int]:
    for step in range(steps):
        await book("x")
        yield step


@goldspan.trace(name="stream")
def stream(steps: int = 3) -> Iterator[int]:
    for step in range(steps):
        search("x")
        yield step


@goldspan.trace(name="stream")
async def waiting() -> AsyncIterator[int]:
    yield 0
    await asyncio.get_running_loop().create_future()
    yield 1


async def _close_in_another_task() -> None:
    running: Any = astream()
    await running.__anext__()
    await asyncio.create_task(running.aclose())


async def _close_in_another_context() -> None:
    running: Any = astream()
    await running.__anext__()
    await asyncio.get_running_loop().create_task(running.aclose(), **_context())


def _context() -> dict[str, Any]:
    return {"context": contextvars.Context()} if sys.version_info >= (3, 11) else {}


async def _read_in_turns_by_many_tasks() -> None:
    running: Any = astream()
    for _ in range(3):
        await asyncio.create_task(running.__anext__())
    with pytest.raises(StopAsyncIteration):
        await asyncio.create_task(running.__anext__())


async def _leave_to_the_collector() -> None:
    async for _ in astream():
        break
    gc.collect()
    await asyncio.sleep(0)


async def _leave_to_the_collector_of_another_task() -> None:
    held: list[Any] = [astream()]
    await held[0].__anext__()

    async def drop() -> None:
        held.clear()
        gc.collect()
        await asyncio.sleep(0)

    await asyncio.create_task(drop())


async def _leave_to_the_end_of_the_loop() -> None:
    running: Any = astream()
    await running.__anext__()
    _kept.append(running)


async def _cancel_halfway_through_a_step() -> None:
    running: Any = waiting()
    await running.__anext__()
    step = asyncio.create_task(running.__anext__())
    await asyncio.sleep(0)
    step.cancel()
    with pytest.raises(asyncio.CancelledError):
        await step


_kept: list[Any] = []


@pytest.mark.e2e
@pytest.mark.parametrize(
    "consume",
    [
        pytest.param(consume, id=consume.__name__.strip("_"))
        for consume in (
            _close_in_another_task,
            _close_in_another_context,
            _read_in_turns_by_many_tasks,
            _leave_to_the_collector,
            _leave_to_the_collector_of_another_task,
            _leave_to_the_end_of_the_loop,
            _cancel_halfway_through_a_step,
        )
    ],
)
def test_an_async_generator_ends_its_span_however_it_is_closed(
    captured: Exported, caplog: pytest.LogCaptureFixture, consume: Callable[[], Any]
) -> None:
    asyncio.run(consume())
    _kept.clear()
    gc.collect()
    span = captured.one("execute_tool stream")
    assert span.status.status_code is StatusCode.UNSET
    assert {tool.parent.span_id for tool in captured.spans if tool.parent} <= {span.context.span_id}
    assert caplog.records == []


def _step(coroutine: Any) -> None:
    """Run the first step of a coroutine in a copied context, as an event loop does."""
    contextvars.copy_context().run(coroutine.send, None)


@pytest.mark.parametrize(
    "begin",
    [
        pytest.param(lambda: book("x"), id="a coroutine"),
        pytest.param(lambda: astream().__anext__(), id="one step of an async generator"),
    ],
)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_closing_an_unawaited_coroutine_ends_its_span_and_logs_nothing(
    captured: Exported, caplog: pytest.LogCaptureFixture, begin: Callable[[], Any]
) -> None:
    coroutine = begin()
    _step(coroutine)
    coroutine.close()
    del coroutine
    gc.collect()
    assert "execute_tool book" in captured.names
    assert not trace.get_current_span().get_span_context().is_valid
    assert caplog.records == []


def test_a_custom_runtime_context_of_opentelemetry_is_supported(
    captured: Exported, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Stack(list[Context]):
        """A runtime context as `OTEL_PYTHON_CONTEXT` can select."""

        def attach(self, context: Context) -> object:
            self.append(context)
            return object()

        def get_current(self) -> Context:
            return self[-1]

        def detach(self, _: object) -> None:
            self.pop()

    stack = Stack([Context()])
    monkeypatch.setattr(otel_context, "_RUNTIME_CONTEXT", stack)
    goldspan.trace(kind="agent", name="agent")(lambda: search("a") + asyncio.run(book("b")))()
    assert len({span.context.trace_id for span in captured.spans}) == 1
    assert stack == [Context()]


@pytest.mark.parametrize("by", ["close", "the collector"])
def test_a_generator_can_end_in_another_thread(captured: Exported, caplog: pytest.LogCaptureFixture, by: str) -> None:
    held = [stream()]
    next(held[0])

    def end() -> None:
        running = held.pop()
        next(running)
        if by == "close":
            running.close()  # type: ignore[attr-defined]
        del running
        gc.collect()

    _joined(threading.Thread(target=end))
    span = captured.one("execute_tool stream")
    assert (span.attributes or {})["gen_ai.tool.call.result"] == "[0,1]"
    assert [tool.parent for tool in captured.spans[:2]] == [span.context] * 2
    assert caplog.records == []


# --- many requests at once --------------------------------------------------------------------------------------------

TOOLS = [goldspan.trace(name=f"tool_{number}")(lambda request, step: request * step) for number in range(5)]


@goldspan.trace(name="slow_tool")
async def slow_tool(request: int, step: int) -> int:
    for _ in range(step % 3):
        await asyncio.sleep(0)
    return request * step


def plan(request: int) -> list[tuple[str, int]]:
    """The tool calls of a request, in order, seeded by its number."""
    chance = random.Random(request)
    return [(chance.choice(["slow_tool", *(f"tool_{n}" for n in range(5))]), step) for step in range(2 + request % 6)]


def call(name: str, request: int, step: int) -> int:
    return TOOLS[int(name[-1])](request, step)


@goldspan.trace(kind="agent")
async def asynchronous_agent(question: str, pool: ThreadPoolExecutor) -> None:
    request = int(question)
    loop = asyncio.get_running_loop()

    async def act(name: str, step: int) -> None:
        if name == "slow_tool":
            await slow_tool(request, step)
        elif step % 3:
            await loop.run_in_executor(pool, call, name, request, step)
        else:
            call(name, request, step)

    steps = plan(request)
    if request % 2:
        await asyncio.gather(*(act(*step) for step in steps))
    else:
        for step in steps:
            await act(*step)


@goldspan.trace(kind="agent")
def threaded_agent(question: str, pool: ThreadPoolExecutor) -> None:
    request, futures = int(question), []
    for name, step in plan(request):
        if name == "slow_tool":
            asyncio.run(slow_tool(request, step))
        elif step % 3:
            futures.append(pool.submit(call, name, request, step))
        else:
            _joined(threading.Thread(target=call, args=(name, request, step)))
    for future in futures:
        future.result()


class Evaluations:
    """A sink that records evaluations."""

    def __init__(self) -> None:
        self.seen: list[Evaluation] = []

    def submit(self, evaluation: Evaluation) -> None:
        self.seen.append(evaluation)

    def by_request(self) -> dict[int, list[list[tuple[str, Any]]]]:
        """The calls of each run, by request."""
        found = defaultdict(list)
        for evaluation in self.seen:
            calls = [(tool.name, tool.arguments) for tool in evaluation.run.tool_calls]
            found[int(evaluation.run.input or "-1")].append(sorted(calls, key=lambda made: made[1]["step"]))
        return found


@pytest.mark.e2e
@pytest.mark.usefixtures("carrying")
@pytest.mark.parametrize("exporting", [False, True], ids=["beside other processors", "before an exporter"])
def test_all_runs_of_16_threads_and_1000_tasks_have_exactly_their_tool_calls(
    exported: Exported, install: Install, exporting: bool
) -> None:
    sink = Evaluations()
    then = exported.exporter if exporting else None
    provider = install(goldspan.ScoringProcessor(sinks=[sink], then=then))
    tasks, of_a_thread = range(1000), [range(1000 + 20 * number, 1020 + 20 * number) for number in range(16)]
    with ThreadPoolExecutor(4) as pool:

        def requests_of_a_thread(numbers: range) -> None:
            for number in numbers:
                threaded_agent(str(number), pool)

        async def requests_of_tasks() -> None:
            await asyncio.gather(*(asynchronous_agent(str(number), pool) for number in tasks))

        started = [threading.Thread(target=requests_of_a_thread, args=(numbers,)) for numbers in of_a_thread]
        for thread in started:
            thread.start()
        asyncio.run(requests_of_tasks())
        for thread in started:
            thread.join()
    assert provider.force_flush(300_000)
    expected = {
        request: [[(name, {"request": request, "step": step}) for name, step in plan(request)]]
        for request in range(1000 + 16 * 20)
    }
    assert sink.by_request() == expected
