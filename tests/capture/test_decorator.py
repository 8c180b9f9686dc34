"""Decorated functions behave as before, and each call creates one GenAI span."""

from __future__ import annotations

import asyncio
import functools
import gc
import inspect
import json
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pydantic
import pytest
from opentelemetry import context, trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF
from opentelemetry.trace import NoOpTracerProvider, SpanKind, StatusCode

import goldspan
from capture.telemetry import Exported, Install
from goldspan import semconv
from goldspan.capture import environment
from goldspan.capture.sdk_spans import to_span_record
from goldspan.scoring.metrics import registry

HOTELS = [{"name": "Ritz", "price": 900}]
MESSAGES = [
    {"role": "system", "content": "You are a concierge."},
    {"role": "user", "content": "Hello."},
    {"role": "assistant", "content": "Where to?"},
    {"role": "user", "content": [{"type": "text", "text": "Paris?"}]},
]


class UserMessage(pydantic.BaseModel):
    """A user message with the fields of LangChain's."""

    content: str
    type: str = "human"


@goldspan.trace
def search_hotels(city: str, *nights: int, stars: int = 3, **wishes: bool) -> list[dict[str, Any]]:
    """Hotels in a city."""
    return HOTELS


@goldspan.trace
async def book_hotel(name: str) -> dict[str, str]:
    await asyncio.sleep(0)
    return {"booked": name}


def test_a_tool_call_creates_an_execute_tool_span_with_arguments_and_result(captured: Exported) -> None:
    assert search_hotels("Paris", 1, 2, stars=4, pool=True) == HOTELS
    span = captured.one("execute_tool search_hotels")
    assert span.kind is SpanKind.INTERNAL
    assert span.status.status_code is StatusCode.UNSET
    assert span.attributes == {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "search_hotels",
        "gen_ai.tool.type": "function",
        "gen_ai.tool.call.arguments": '{"city":"Paris","nights":[1,2],"stars":4,"pool":true}',
        "gen_ai.tool.call.result": json.dumps(HOTELS, separators=(",", ":")),
    }


def test_an_agent_call_creates_an_invoke_agent_span_with_messages(captured: Exported) -> None:
    @goldspan.trace(kind="agent", name="concierge", golden="book-cheapest")
    def agent(user: int, question: str) -> str:
        return "Booked."

    agent(7, question="A hotel in Paris?")
    attributes = captured.attributes("invoke_agent concierge")
    assert attributes["gen_ai.operation.name"] == "invoke_agent"
    assert attributes["gen_ai.agent.name"] == "concierge"
    assert attributes["goldspan.golden.id"] == "book-cheapest"
    assert json.loads(attributes["gen_ai.input.messages"]) == [
        {"role": "user", "parts": [{"type": "text", "content": "A hotel in Paris?"}]}
    ]
    assert json.loads(attributes["gen_ai.output.messages"]) == [
        {"role": "assistant", "parts": [{"type": "text", "content": "Booked."}], "finish_reason": "stop"}
    ]


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        pytest.param(((), {"user": "u1", "question": "Paris?"}), "Paris?", id="first text in the order of declaration"),
        pytest.param(((3, "u1"), {}), "u1", id="the first that is text"),
        pytest.param(((3,), {"user": 4}), '{"question":3,"user":4}', id="no text: the arguments as JSON"),
        pytest.param(((3,), {"messages": MESSAGES, "user": "u1"}), "Paris?", id="messages go before a text"),
        pytest.param((("Rome?",), {"history": MESSAGES}), "Rome?", id="other lists of messages go behind it"),
        pytest.param((("Rome?",), {"messages": []}), "Rome?", id="no message yet"),
        pytest.param(((MESSAGES,), {}), "Paris?", id="messages by another name"),
        pytest.param((({"messages": MESSAGES, "step": 1},), {}), "Paris?", id="a state that holds messages"),
        pytest.param((({"messages": [("user", "Rome?")]},), {}), "Rome?", id="pairs, as LangChain accepts them"),
        pytest.param((([UserMessage(content="Oslo?")],), {}), "Oslo?", id="messages that are objects"),
        pytest.param((({"parts": [1]},), {}), '{"question":{"parts":[1]}}', id="nothing that anybody said"),
        pytest.param(((["x" * 40_000, {"content": ""}],), {}), '{"question": ["' + "x" * 32_753 + "…", id="too long"),
    ],
)
def test_the_input_of_an_agent_is_the_user_message_or_first_text_argument(
    captured: Exported, arguments: tuple[tuple[Any, ...], dict[str, Any]], expected: str
) -> None:
    @goldspan.trace(kind="agent")
    def agent(question: Any, user: Any = None, **rest: Any) -> None: ...

    args, kwargs = arguments
    agent(*args, **kwargs)
    (message,) = json.loads(captured.attributes("invoke_agent agent")["gen_ai.input.messages"])
    assert message["parts"][0]["content"] == expected


@pytest.mark.parametrize("kind", ["agent", "component"])
def test_a_call_without_arguments_has_no_input(captured: Exported, kind: Any) -> None:
    @goldspan.trace(kind=kind, name="idle")
    def idle() -> None: ...

    idle()
    (span,) = captured.spans
    assert not [key for key in span.attributes or {} if "input" in key]


def test_a_component_span_has_its_name_input_and_output(captured: Exported) -> None:
    @goldspan.trace(kind="component", golden="rank")
    def ranking(query: str) -> dict[str, int]:
        return {"best": 1}

    ranking("cheap")
    assert captured.attributes("ranking") == {
        "goldspan.component.name": "ranking",
        "goldspan.golden.id": "rank",
        "goldspan.component.input": "cheap",
        "goldspan.component.output": '{"best":1}',
    }


def test_the_span_of_a_component_has_the_names_of_its_metrics(
    captured: Exported, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry, "_registered", {})

    @goldspan.metric("few_calls", needs_golden=False)
    def few_calls(seen: goldspan.Comparison) -> float:
        return 1 / max(1, len(seen.calls))

    @goldspan.trace(kind="component", metrics=["tool_recall", few_calls, "few_calls", "registered_later"])
    def ranking(query: str) -> None: ...

    ranking("cheap")
    assert captured.attributes("ranking")["goldspan.metrics"] == ("tool_recall", "few_calls", "registered_later")
    (run,) = goldspan.extract(map(to_span_record, captured.spans), unit="component")
    judged = {score.metric: (score.value, score.error is None) for score in goldspan.evaluate(run, ["search"]).scores}
    assert judged == {"tool_recall": (0.0, True), "few_calls": (1.0, True), "registered_later": (None, False)}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        pytest.param({"metrics": ["tool_recall"]}, "only an agent or a component can have", id="of a tool"),
        pytest.param({"kind": "agent", "metrics": "tool_recall"}, "metrics must be a list", id="no list"),
        pytest.param({"kind": "agent", "metrics": 3}, "metrics must be a list", id="no list at all"),
        pytest.param({"kind": "agent", "metrics": [len]}, "not a registered metric", id="not registered"),
    ],
)
def test_invalid_metrics_are_rejected_at_decoration(options: dict[str, Any], message: str) -> None:
    with pytest.raises(goldspan.ConfigurationError, match=message):
        goldspan.trace(**options)


def test_arguments_and_results_are_not_captured_if_disabled(captured: Exported) -> None:
    @goldspan.trace(name="pay", capture_arguments=False, capture_result=False)
    def pay(card: str) -> str:
        return card

    pay("4111")
    assert "4111" not in str(captured.attributes("execute_tool pay"))


def _pay(**options: Any) -> dict[str, Callable[..., str]]:
    def pay(user: int, card: str, *codes: int, note: str = "", **more: str) -> str:
        return "paid by 4111"

    return {kind: goldspan.trace(kind=kind, **options)(pay) for kind in ("tool", "agent", "component")}


_INPUTS = {
    "tool": "gen_ai.tool.call.arguments",
    "agent": "gen_ai.input.messages",
    "component": "goldspan.component.input",
}
_SPANS = {"tool": "execute_tool pay", "agent": "invoke_agent pay", "component": "pay"}


@pytest.mark.parametrize("from_environment", [False, True])
def test_only_the_listed_arguments_are_captured(
    captured: Exported, monkeypatch: pytest.MonkeyPatch, from_environment: bool
) -> None:
    """The decorator or the environment lists them."""
    names = ["user", "codes", "more_of_it"]
    if from_environment:
        monkeypatch.setenv("GOLDSPAN_CAPTURE_ARGUMENTS", ",".join(names))
    pays = _pay() if from_environment else _pay(capture_arguments=iter(names))
    for pay in pays.values():
        pay(7, "4111", 1, 2, note="4111", more_of_it="x", other="4111")
    attributes = {kind: captured.attributes(name) for kind, name in _SPANS.items()}
    assert json.loads(attributes["tool"][_INPUTS["tool"]]) == {"user": 7, "codes": [1, 2], "more_of_it": "x"}
    assert _INPUTS["agent"] not in attributes["agent"]
    assert _INPUTS["component"] not in attributes["component"]
    assert ("4111" not in str(attributes)) is from_environment  # only names in the environment exclude results


@pytest.mark.parametrize("kind", ["agent", "component"])
def test_the_input_is_captured_if_its_parameter_is_listed(captured: Exported, kind: str) -> None:
    _pay(capture_arguments=["card"])[kind](7, "4111", note="secret")
    written = captured.attributes(_SPANS[kind])[_INPUTS[kind]]
    assert "4111" in written
    assert "secret" not in written


@pytest.mark.parametrize(
    ("kind", "names", "given", "written"),
    [
        pytest.param("component", ["user"], (7, 8), '{"user":7}', id="an input without text is all that is named"),
        pytest.param("component", ["note"], (7, 8), None, id="and unknown where nothing is"),
        pytest.param("tool", [], (7, 8), None, id="nothing is named"),
        pytest.param("tool", [], (), "{}", id="nothing is given"),
    ],
)
def test_an_uncaptured_input_is_unknown_and_an_empty_one_is_empty(
    captured: Exported, kind: Any, names: list[str], given: tuple[int, ...], written: str | None
) -> None:
    @goldspan.trace(kind=kind, name="pay", capture_arguments=names)
    def pay(user: object = None, card: object = None) -> None: ...

    pay(*given)
    assert captured.attributes(_SPANS[kind]).get(_INPUTS[kind]) == written


@pytest.mark.parametrize(
    ("text", "options", "arguments", "result"),
    [
        pytest.param("", {}, True, True, id="nothing is said"),
        pytest.param("on", {}, True, True, id="on"),
        pytest.param("off", {}, False, False, id="off"),
        pytest.param("off", {"capture_arguments": True}, True, False, id="off, but for arguments"),
        pytest.param("off", {"capture_result": True}, False, True, id="off, but for results"),
        pytest.param("on", {"capture_arguments": False, "capture_result": False}, False, False, id="on, but not here"),
    ],
)
def test_the_environment_variable_sets_the_default_for_captured_content(
    captured: Exported,
    monkeypatch: pytest.MonkeyPatch,
    text: str,
    options: dict[str, bool],
    arguments: bool,
    result: bool,
) -> None:
    pay = _pay(**options)["tool"]
    monkeypatch.setenv("GOLDSPAN_CAPTURE_ARGUMENTS", text)  # it is read at the first call
    pay(7, "4111")
    monkeypatch.setenv("GOLDSPAN_CAPTURE_ARGUMENTS", "")  # and not again
    pay(7, "4111")
    for span in captured.spans:
        assert ("gen_ai.tool.call.arguments" in (span.attributes or {})) is arguments
        assert ("gen_ai.tool.call.result" in (span.attributes or {})) is result


@pytest.mark.parametrize("names", ["city", 3, [3]], ids=str)
def test_capture_arguments_rejects_values_that_are_not_lists_of_names(names: Any) -> None:
    with pytest.raises(goldspan.ConfigurationError, match="a list of names"):
        goldspan.trace(capture_arguments=names)


# --- every kind of callable -------------------------------------------------------------------------------------------


class Desk:
    """Methods of every kind, with the decorator on either side."""

    @goldspan.trace
    def method(self, x: int) -> int:
        return x

    @goldspan.trace
    async def async_method(self, x: int) -> int:
        return x

    @goldspan.trace
    @classmethod
    def above_class(cls, x: int) -> int:
        return x

    @classmethod
    @goldspan.trace
    def below_class(cls, x: int) -> int:
        return x

    @goldspan.trace
    @staticmethod
    def above_static(x: int) -> int:
        return x

    @staticmethod
    @goldspan.trace
    def below_static(x: int) -> int:
        return x

    def __call__(self, x: int) -> int:
        return x


desk = Desk()


@pytest.mark.parametrize(
    ("call", "name"),
    [
        pytest.param(lambda: desk.method(1), "method", id="method"),
        pytest.param(lambda: Desk.method(desk, 1), "method", id="method through its class"),
        pytest.param(lambda: asyncio.run(desk.async_method(1)), "async_method", id="async method"),
        pytest.param(lambda: Desk.above_class(1), "above_class", id="above classmethod"),
        pytest.param(lambda: desk.below_class(1), "below_class", id="below classmethod"),
        pytest.param(lambda: Desk.above_static(1), "above_static", id="above staticmethod"),
        pytest.param(lambda: desk.below_static(1), "below_static", id="below staticmethod"),
        pytest.param(lambda: goldspan.trace(lambda x: x)(1), "<lambda>", id="lambda"),
        pytest.param(lambda: goldspan.trace(desk)(1), "Desk", id="callable object"),
        pytest.param(lambda: goldspan.trace(desk.__call__)(1), "__call__", id="bound method"),
        pytest.param(lambda: goldspan.trace(functools.partial(_add, 0))(x=1), "_add", id="partial"),
    ],
)
def test_every_kind_of_callable_is_traced_without_its_receiver(
    captured: Exported, call: Callable[[], int], name: str
) -> None:
    assert call() == 1
    attributes = captured.attributes(f"execute_tool {name}")
    assert json.loads(attributes["gen_ai.tool.call.arguments"]) == {"x": 1}
    assert attributes["gen_ai.tool.call.result"] == "1"


def _add(y: int, x: int) -> int:
    return x + y


def test_a_builtin_without_a_signature_can_be_a_tool(captured: Exported) -> None:
    assert goldspan.trace(max)(1, 2) == 2
    assert captured.attributes("execute_tool max")["gen_ai.tool.call.result"] == "2"


def test_a_tool_can_have_an_argument_named_self(captured: Exported) -> None:
    def introduce(self: str) -> str:
        return self

    goldspan.trace(introduce)("me")
    assert captured.attributes("execute_tool introduce")["gen_ai.tool.call.arguments"] == '{"self":"me"}'


def test_a_decorated_function_keeps_its_signature_name_docstring_and_kind() -> None:
    def tool(city: str, stars: int = 3) -> list[str]:
        """Find."""

    async def acting(x: int) -> int: ...
    def counting(n: int) -> Iterator[int]:
        yield n

    async def streaming(n: int) -> AsyncIterator[int]:
        yield n

    for function in (tool, acting, counting, streaming):
        traced = goldspan.trace(function)
        assert inspect.signature(traced) == inspect.signature(function)
        assert (traced.__name__, traced.__doc__, traced.__wrapped__) == (function.__name__, function.__doc__, function)
        for kind in (inspect.iscoroutinefunction, inspect.isgeneratorfunction, inspect.isasyncgenfunction):
            assert kind(traced) == kind(function)


# --- failure and interruption -----------------------------------------------------------------------------------------


class UnspeakableError(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")


@pytest.mark.parametrize(
    ("error", "kind", "description"),
    [
        pytest.param(ValueError("no rooms"), "ValueError", "ValueError: no rooms", id="with a message"),
        pytest.param(KeyError(), "KeyError", "KeyError", id="without a message"),
        pytest.param(
            json.JSONDecodeError("bad", "x", 0),
            "json.decoder.JSONDecodeError",
            "json.decoder.JSONDecodeError: bad: line 1 column 1 (char 0)",
            id="of a module",
        ),
    ],
)
def test_an_exception_is_recorded_on_the_span_and_raised_unchanged(
    captured: Exported, error: Exception, kind: str, description: str
) -> None:
    @goldspan.trace
    def tool() -> None:
        raise error

    with pytest.raises(type(error)) as caught:
        tool()
    assert caught.value is error
    assert error.__context__ is None
    span = captured.one("execute_tool tool")
    assert span.status.status_code is StatusCode.ERROR
    assert span.status.description == description
    assert (span.attributes or {})["error.type"] == kind
    assert [event.name for event in span.events] == ["exception"]
    assert "gen_ai.tool.call.result" not in (span.attributes or {})


def test_an_exception_whose_str_fails_is_recorded_as_an_error(captured: Exported) -> None:
    @goldspan.trace
    async def tool() -> None:
        raise UnspeakableError

    with pytest.raises(UnspeakableError):
        asyncio.run(tool())
    span = captured.one("execute_tool tool")
    assert span.status.status_code is StatusCode.ERROR
    assert str(span.status.description).endswith("UnspeakableError")


def test_a_call_with_wrong_arguments_raises_type_error(captured: Exported) -> None:
    with pytest.raises(TypeError, match="missing 1 required positional argument"):
        search_hotels()  # type: ignore[call-arg]
    assert captured.one("execute_tool search_hotels").status.status_code is StatusCode.ERROR


def test_a_cancelled_call_has_status_unset_and_no_result(captured: Exported) -> None:
    @goldspan.trace
    async def slow() -> str:
        await asyncio.sleep(60)
        return "never"

    async def cancel() -> None:
        task = asyncio.create_task(slow())
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(cancel())
    span = captured.one("execute_tool slow")
    assert span.status.status_code is StatusCode.UNSET
    assert not span.events
    assert "gen_ai.tool.call.result" not in (span.attributes or {})


# --- parents of spans -------------------------------------------------------------------------------------------------


def test_tool_spans_are_children_of_the_span_of_their_agent(captured: Exported) -> None:
    @goldspan.trace(kind="agent")
    async def agent(question: str) -> None:
        search_hotels("Paris")
        await asyncio.gather(book_hotel("Ritz"), book_hotel("Savoy"))

    asyncio.run(agent("hi"))
    *tools, root = captured.spans
    assert root.parent is None
    assert [tool.parent for tool in tools] == [root.context] * 3
    assert not trace.get_current_span().get_span_context().is_valid


def test_no_span_is_created_if_instrumentation_is_suppressed(captured: Exported) -> None:
    token = context.attach(context.set_value(context._SUPPRESS_INSTRUMENTATION_KEY, True))
    try:
        search_hotels("Paris")
        assert asyncio.run(book_hotel("Ritz")) == {"booked": "Ritz"}
        assert list(_numbers(2)) == [0, 1]
    finally:
        context.detach(token)
    assert captured.names == []


@goldspan.trace
def _numbers(n: int) -> Iterator[int]:
    yield from range(n)


def test_a_decorated_function_works_without_a_tracer_provider() -> None:
    assert search_hotels("Paris") == HOTELS
    trace.set_tracer_provider(NoOpTracerProvider())
    assert search_hotels("Paris") == HOTELS
    assert not trace.get_current_span().get_span_context().is_valid


def test_a_provider_that_is_set_after_the_first_call_is_used(exported: Exported, install: Install) -> None:
    search_hotels("Paris")
    install(exported.processor())
    search_hotels("Rome")
    assert exported.names == ["execute_tool search_hotels"]


def test_concurrent_first_calls_of_a_function_lose_no_span(exported: Exported, monkeypatch: pytest.MonkeyPatch) -> None:
    """A thread neither skips nor waits for a lookup in progress on another thread."""

    class Slow(TracerProvider):
        def get_tracer(self, *args: Any, **kwargs: Any) -> trace.Tracer:
            time.sleep(0.05)
            return super().get_tracer(*args, **kwargs)

    def captured() -> bool:
        time.sleep(0.05)
        return True

    @goldspan.trace
    def find(number: int) -> int:
        return -number

    monkeypatch.setattr(environment, "captured_arguments", captured)
    trace.set_tracer_provider(provider := Slow())
    provider.add_span_processor(exported.processor())
    threads = [threading.Thread(target=find, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
        time.sleep(0.01)  # each starts during the lookups of the first
    for thread in threads:
        thread.join()
    captured_calls = [
        (span.attributes[semconv.TOOL_CALL_ARGUMENTS], span.attributes[semconv.TOOL_CALL_RESULT])
        for span in exported.spans
        if span.attributes
    ]
    assert sorted(captured_calls) == [(f'{{"number":{number}}}', str(-number)) for number in range(8)]


def test_a_function_whose_span_is_not_sampled_still_runs(exported: Exported, install: Install) -> None:
    install(exported.processor(), sampler=ALWAYS_OFF)
    assert search_hotels("Paris") == HOTELS
    assert exported.names == []


# --- generators -------------------------------------------------------------------------------------------------------


def _current() -> str:
    return getattr(trace.get_current_span(), "name", "nothing")


@goldspan.trace
def count(n: int) -> Iterator[Any]:
    for _ in range(n):
        search_hotels("Paris")
        yield _current()
    return "done"


@goldspan.trace
async def acount(n: int) -> AsyncIterator[Any]:
    for _ in range(n):
        await book_hotel("Ritz")
        yield _current()


def test_the_span_of_a_generator_is_current_only_in_its_body(captured: Exported) -> None:
    seen = [(item, _current()) for item in count(2)]
    assert seen == [("execute_tool count", "nothing")] * 2
    *tools, root = captured.spans
    assert {tool.parent.span_id for tool in tools if tool.parent} == {root.context.span_id}
    assert (root.attributes or {})["gen_ai.tool.call.result"] == '["execute_tool count","execute_tool count"]'


def test_the_span_of_an_async_generator_is_current_only_in_its_body(captured: Exported) -> None:
    async def consume() -> list[tuple[str, str]]:
        return [(item, _current()) async for item in acount(2)]

    assert asyncio.run(consume()) == [("execute_tool acount", "nothing")] * 2
    assert captured.names[-1] == "execute_tool acount"
    assert {span.context.trace_id for span in captured.spans} == {captured.spans[0].context.trace_id}


def test_a_span_that_a_generator_keeps_open_is_current_only_in_its_body(captured: Exported) -> None:
    @goldspan.trace
    def body() -> Iterator[str]:
        with trace.get_tracer("app").start_as_current_span("inner"):
            yield _current()
            yield _current()
        yield _current()

    assert [(item, _current()) for item in body()] == [
        ("inner", "nothing"),
        ("inner", "nothing"),
        ("execute_tool body", "nothing"),
    ]


def test_a_decorated_generator_supports_send_throw_and_return(captured: Exported) -> None:
    @goldspan.trace
    def echo() -> Any:
        got = None
        while got != "stop":
            try:
                got = yield got
            except KeyError as error:
                got = repr(error)
        return "returned"

    running = echo()
    assert next(running) is None
    assert running.send("a") == "a"
    assert running.throw(KeyError("k")) == "KeyError('k')"
    with pytest.raises(StopIteration) as stop:
        running.send("stop")
    assert stop.value.value == "returned"
    assert captured.attributes("execute_tool echo")["gen_ai.tool.call.result"] == """[null,"a","KeyError('k')"]"""


def test_a_decorated_async_generator_supports_asend_and_athrow(captured: Exported) -> None:
    @goldspan.trace
    async def echo() -> Any:
        got = None
        while got != "stop":
            try:
                got = yield got
            except KeyError as error:
                got = repr(error)

    async def converse() -> None:
        running = echo()
        assert await running.asend(None) is None
        assert await running.asend("a") == "a"
        assert await running.athrow(KeyError("k")) == "KeyError('k')"
        with pytest.raises(StopAsyncIteration):
            await running.asend("stop")

    asyncio.run(converse())
    assert captured.attributes("execute_tool echo")["gen_ai.tool.call.result"] == """[null,"a","KeyError('k')"]"""


@pytest.mark.e2e
def test_a_generator_that_is_not_exhausted_ends_its_span(captured: Exported) -> None:
    closed = count(3)
    next(closed)
    closed.close()
    collected = count(3)
    next(collected)
    del collected
    gc.collect()
    for _ in count(3):
        break
    gc.collect()
    spans = [span for span in captured.spans if span.name == "execute_tool count"]
    assert len(spans) == 3
    assert {span.status.status_code for span in spans} == {StatusCode.UNSET}
    assert {(span.attributes or {})["gen_ai.tool.call.result"] for span in spans} == {'["execute_tool count"]'}
    assert _current() == "nothing"


def test_an_async_generator_can_be_closed_from_another_task(
    captured: Exported, caplog: pytest.LogCaptureFixture
) -> None:
    async def consume() -> None:
        running = acount(3)
        await anext_(running)
        await asyncio.create_task(running.aclose())

    async def anext_(running: Any) -> Any:
        return await running.__anext__()

    asyncio.run(consume())
    assert captured.one("execute_tool acount").status.status_code is StatusCode.UNSET
    assert caplog.records == []


def test_an_async_generator_left_by_break_ends_its_span(captured: Exported) -> None:
    async def consume() -> None:
        async for _ in acount(3):
            break
        gc.collect()
        await asyncio.sleep(0)

    asyncio.run(consume())
    assert captured.names[-1] == "execute_tool acount"


@pytest.mark.parametrize("asynchronous", [False, True])
def test_a_generator_that_raises_halfway_is_recorded_as_an_error(captured: Exported, asynchronous: bool) -> None:
    @goldspan.trace(name="tool")
    def plain() -> Iterator[int]:
        yield 1
        raise ValueError("cut off")

    @goldspan.trace(name="tool")
    async def streaming() -> AsyncIterator[int]:
        yield 1
        raise ValueError("cut off")

    async def consume() -> list[int]:
        return [item async for item in streaming()]

    with pytest.raises(ValueError, match="cut off"):
        asyncio.run(consume()) if asynchronous else list(plain())
    assert captured.one("execute_tool tool").status.description == "ValueError: cut off"


def test_a_generator_that_raises_in_close_is_recorded_as_an_error(captured: Exported) -> None:
    @goldspan.trace
    def stubborn() -> Iterator[int]:
        try:
            yield 1
        finally:
            raise OSError("cannot close")

    running = stubborn()
    next(running)
    with pytest.raises(OSError, match="cannot close"):
        running.close()
    assert captured.one("execute_tool stubborn").status.status_code is StatusCode.ERROR


def test_the_output_of_an_agent_that_streams_text_is_the_whole_text(captured: Exported) -> None:
    @goldspan.trace(kind="agent")
    async def agent(question: str) -> AsyncIterator[str]:
        for word in ("All ", "done", "."):
            yield word

    async def consume() -> None:
        async for _ in agent("hi"):
            pass

    asyncio.run(consume())
    (message,) = json.loads(captured.attributes("invoke_agent agent")["gen_ai.output.messages"])
    assert message["parts"][0]["content"] == "All done."


# --- invalid use ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("use", "message"),
    [
        pytest.param(lambda: goldspan.trace(kind="chain"), "one of tool, agent, component", id="unknown kind"),  # type: ignore[call-overload]
        pytest.param(
            lambda: goldspan.trace(golden="g"), "only an agent or a component can have", id="golden for a tool"
        ),
        pytest.param(lambda: goldspan.trace(Desk), "decorate the methods of a class", id="a class"),
        pytest.param(lambda: goldspan.trace(kind="agent")(3), "not 3", id="not callable"),  # type: ignore[type-var]
    ],
)
def test_invalid_use_of_the_decorator_raises_at_decoration(use: Callable[[], object], message: str) -> None:
    with pytest.raises(goldspan.ConfigurationError, match=message):
        use()
