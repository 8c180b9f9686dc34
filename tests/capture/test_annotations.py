"""Annotations of a running program reach its spans and never raise."""

from __future__ import annotations

import asyncio
import contextvars
import json
import logging
import threading
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry import baggage, context, trace
from opentelemetry.baggage.propagation import W3CBaggagePropagator
from opentelemetry.sdk.trace import Span, SpanProcessor
from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

import goldspan
from capture.telemetry import Exported, Install
from goldspan import _guard
from goldspan.capture.annotations import encode_expected_tools, encode_tool_definitions, expected_attributes
from goldspan.capture.sdk_spans import to_span_record
from goldspan.goldens.schema.golden_parser import parse_expected_tools
from goldspan.model import AnyOf, ExpectedTool, Parallel, Times, ToolDefinition
from goldspan.model.value_matchers import (
    Anything,
    Approx,
    Contains,
    Equal,
    Folded,
    OfType,
    OneOf,
    Regex,
    Similar,
    Unordered,
)


class Expecting(SpanProcessor):
    """Writes expectations to spans, as the scoring processor does."""

    def on_start(self, span: Span, parent_context: context.Context | None = None) -> None:
        if attributes := expected_attributes(parent_context, span.parent):
            span.set_attributes(attributes)


@pytest.fixture
def expecting(exported: Exported, install: Install) -> Exported:
    """An exporter of spans with their expectations."""
    install(Expecting(), exported.processor())
    return exported


def work(*names: str) -> None:
    """Create nested spans."""
    if names:
        with trace.get_tracer("app").start_as_current_span(names[0]):
            work(*names[1:])


def goldens_of(exported: Exported) -> dict[str, Any]:
    return {span.name: (span.attributes or {}).get("goldspan.golden.id") for span in exported.spans}


# --- update_current_span ----------------------------------------------------------------------------------------------


def test_update_current_span_writes_values_that_extraction_reads_back(captured: Exported) -> None:
    refund = ExpectedTool("refund", {"order": 7, "note": Regex(".*")})

    @goldspan.trace(kind="agent")
    def desk(question: str) -> str:
        goldspan.update_current_span(
            input={"order": 7},
            output="Done",
            golden="refund-1",
            expected_tools=["search", {"name": "book", "optional": True}, refund],
            available_tools=["search", {"name": "book", "description": "Books"}],
            metadata={"tenant": "t1", "retries": 2, "paid": True, "tags": ["a", "b"], "none": None},
        )
        return "?"

    desk("Money back")
    assert captured.attributes("invoke_agent desk")["goldspan.input"] == '{"order":7}'
    (run,) = goldspan.extract(map(to_span_record, captured.spans))
    assert (run.input, run.output, run.golden_id) == ('{"order":7}', "Done", "refund-1")
    assert parse_expected_tools(run.expected_tools or (), "expected") == (
        ExpectedTool("search"),
        ExpectedTool("book", times=Times(0, 1)),
        refund,
    )
    assert [tool.name for tool in run.available_tools] == ["book", "search"]
    assert run.metadata == {"tenant": "t1", "retries": 2, "paid": True, "tags": '["a","b"]'}


def test_the_last_value_counts_and_omitted_values_are_kept(captured: Exported) -> None:
    with trace.get_tracer("app").start_as_current_span("work"):
        goldspan.update_current_span(input="one", golden="g1")
        goldspan.update_current_span(input="two")
        goldspan.update_current_span()
    assert captured.attributes("work") == {"goldspan.input": "two", "goldspan.golden.id": "g1"}


def test_a_component_can_declare_its_available_tools(captured: Exported) -> None:
    @goldspan.trace(kind="component")
    def route() -> None:
        goldspan.update_current_span(
            available_tools=[ToolDefinition("search", "Finds", {"type": "object"}, read_only=True)]
        )

    route()
    (run,) = goldspan.extract(map(to_span_record, captured.spans), unit="component")
    (search,) = run.available_tools
    assert (search.name, search.description, search.parameters) == ("search", "Finds", {"type": "object"})
    assert search.read_only is True


def test_long_texts_are_truncated_like_captured_values(captured: Exported) -> None:
    with trace.get_tracer("app").start_as_current_span("work"):
        goldspan.update_current_span(output="x" * 100_000)
    assert captured.attributes("work")["goldspan.output"] == "x" * 32_768 + "…"


def test_values_are_converted_to_a_form_that_every_exporter_can_write(captured: Exported) -> None:
    with trace.get_tracer("app").start_as_current_span("work"):
        goldspan.update_current_span(
            input="half a \ud83d",
            golden="g\ud83d",
            metadata={"great": 1 << 63, "least": -(1 << 63), "k\ud83d": "\ud83d"},
        )
    assert captured.attributes("work") == {
        "goldspan.input": "half a ?",
        "goldspan.golden.id": "g?",
        "goldspan.metadata.great": "9223372036854775808",
        "goldspan.metadata.least": -(1 << 63),
        "goldspan.metadata.k?": "?",
    }


def test_update_current_span_ignores_its_arguments_without_a_recording_span() -> None:
    class Untouchable:
        def __iter__(self) -> Iterator[Any]:
            raise AssertionError

    goldspan.update_current_span(expected_tools=Untouchable(), golden=3)  # type: ignore[arg-type]
    assert not _guard.failure_counts


WRONG: dict[str, Any] = {
    "golden": 3,
    "expected_tools": "search",
    "available_tools": [3],
    "metadata": ["tenant"],
}


@pytest.mark.parametrize("what", WRONG)
def test_an_invalid_value_is_omitted_and_logged_once(
    what: str, captured: Exported, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.delenv("GOLDSPAN_STRICT")
    with caplog.at_level(logging.ERROR), trace.get_tracer("app").start_as_current_span("work"):
        goldspan.update_current_span(input="Hi", **{what: WRONG[what]})
        goldspan.update_current_span(**{what: WRONG[what]})
    assert captured.attributes("work") == {"goldspan.input": "Hi"}
    assert [record.getMessage() for record in caplog.records] == [
        f"goldspan could not write {what} on a span; your application goes on, this is logged once"
    ]
    assert _guard.failure_counts == {f"write {what} on a span": 2}


@pytest.mark.parametrize(
    ("write", "given", "message"),
    [
        (encode_expected_tools, "search", "expected tools must be a list, not 'search'"),
        (encode_expected_tools, [""], "an expected tool must be a name, a dictionary or an ExpectedTool, not ''"),
        (encode_expected_tools, 3, "expected tools must be a list, not 3"),
        (encode_tool_definitions, {"name": "search"}, "available tools must be a list, not {'name': 'search'}"),
        (encode_tool_definitions, [3], "an available tool must be a name, a dictionary or a ToolDefinition, not 3"),
    ],
)
def test_an_invalid_list_of_tools_raises_a_specific_error(write: Any, given: Any, message: str) -> None:
    with pytest.raises(goldspan.ConfigurationError) as raised:
        write(given)
    assert str(raised.value) == message


# --- encoded expectations ---------------------------------------------------------------------------------------------

_data = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.dictionaries(st.sampled_from(["a", "b", "regex", "type", "equal"]), inner, max_size=2)
    ),
    max_leaves=5,
)
_text = st.text("ab", min_size=1, max_size=3)
_matchers = st.one_of(
    st.just(Anything()),
    st.builds(Approx, st.integers(0, 9).map(float), st.none() | st.just(0.5), st.none() | st.just(0.1)),
    st.builds(Contains, _text | st.lists(_text, max_size=2)),
    st.builds(Equal, _data),
    st.builds(Folded, _text),
    st.builds(OfType, st.sampled_from(["integer", "string"])),
    st.builds(OneOf, st.lists(_data, min_size=1, max_size=2).map(tuple)),
    st.builds(Regex, _text),
    st.builds(Similar, _text, st.just(0.8)),
    st.builds(Unordered, st.lists(_text, max_size=2).map(tuple)),
)
_values = st.one_of(_data, _matchers, st.lists(_matchers, max_size=2), st.dictionaries(st.just("in"), _matchers))
_times = st.sampled_from([Times(), Times(0, 1), Times(2, 2), Times(0, 3), Times(1, None), Times(0, None)])
_calls = st.builds(
    ExpectedTool,
    st.sampled_from(["search", "book"]),
    st.none() | st.dictionaries(st.sampled_from(["a", "b"]), _values, max_size=2),
    server=st.none() | st.just("shop"),
    times=_times,
    match=st.sampled_from(["exact", "subset"]),
    ignore=st.sampled_from([(), ("a.b",)]),
    defaults=st.sampled_from([{}, {"a": 1}]),
    agent=st.none() | st.just("planner"),
) | st.builds(lambda name, result: ExpectedTool(name, result=result), st.just("search"), _values)
_single = st.builds(ExpectedTool, st.sampled_from(["search", "book"]))
_any_of = st.builds(
    AnyOf, st.lists(st.lists(_calls, min_size=1, max_size=2).map(tuple), min_size=1, max_size=2).map(tuple)
) | st.builds(AnyOf, st.lists(_single.map(lambda call: (call,)), min_size=1, max_size=2).map(tuple), _times)
_parallel = st.builds(Parallel, st.lists(_calls, min_size=1, max_size=2).map(tuple))


def _alike(value: Any) -> Any:
    """A value with tuples as lists and without `Equal` around plain data."""
    if isinstance(value, Equal):
        return _alike(value.value)
    if isinstance(value, dict):
        return {key: _alike(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_alike(each) for each in value]
    if isinstance(value, OneOf | Unordered | Contains):
        return type(value).__name__, _alike(next(getattr(value, name) for name in type(value).__slots__))
    return value


def _meaning(item: Any) -> Any:
    if isinstance(item, ExpectedTool):
        fields = {name: getattr(item, name) for name in type(item).__slots__}
        return fields | {"arguments": _alike(item.arguments), "result": _alike(item.result)}
    if isinstance(item, Parallel):
        return [_meaning(each) for each in item.items]
    return item.times, [[_meaning(each) for each in option] for option in item.options]


@given(st.lists(_calls | _any_of | _parallel, max_size=3))
def test_encoded_expected_tools_are_parsed_to_an_equivalent_value(expected: list[Any]) -> None:
    written = json.loads(json.dumps(encode_expected_tools(expected)))
    assert list(map(_meaning, parse_expected_tools(written, "expected"))) == list(map(_meaning, expected))


def test_dictionaries_of_expected_tools_can_contain_model_objects() -> None:
    given: list[Any] = [{"any_of": [ExpectedTool("a"), [{"name": "b", "arguments": {"n": OneOf((1, Anything()))}}]]}]
    assert encode_expected_tools(given) == [
        {"any_of": ["a", [{"name": "b", "arguments": {"n": {"one_of": [1, {"any": True}]}}}]]}
    ]


# --- expect -----------------------------------------------------------------------------------------------------------


def test_expect_applies_to_the_outermost_spans_that_start_inside_its_block(expecting: Exported) -> None:
    work("before")
    with goldspan.expect("g1", tools=["search"], metadata={"tenant": "t1"}):
        work("outer", "inner", "innermost")
        work("again")
    work("after")
    expected = {"goldspan.golden.id": "g1", "goldspan.expected_tools": '["search"]', "goldspan.metadata.tenant": "t1"}
    assert {span.name: dict(span.attributes or {}) for span in expecting.spans} == {
        name: expected if name in ("outer", "again") else {}
        for name in ("before", "outer", "inner", "innermost", "again", "after")
    }


def test_expect_inside_a_span_applies_to_the_children_of_that_span(expecting: Exported) -> None:
    with trace.get_tracer("app").start_as_current_span("POST /chat"):
        with goldspan.expect("g1"):
            work("agent", "tool")
        work("other")
    assert goldens_of(expecting) == {"POST /chat": None, "agent": "g1", "tool": None, "other": None}


def test_nested_expect_blocks_are_merged_and_the_inner_block_takes_precedence(expecting: Exported) -> None:
    with goldspan.expect("g1", metadata={"tenant": "t1", "n": 1}):
        with goldspan.expect("g2", metadata={"n": 2}):
            work("both")
        with trace.get_tracer("app").start_as_current_span("outer"), goldspan.expect(tools=[]):
            work("inner")
    expected = {"goldspan.golden.id": "g2", "goldspan.metadata.tenant": "t1", "goldspan.metadata.n": 2}
    assert expecting.attributes("both") == expected
    assert expecting.attributes("inner") == {"goldspan.expected_tools": "[]"}
    assert goldens_of(expecting)["outer"] == "g1"


def test_expect_applies_to_a_new_root_span_inside_its_block(expecting: Exported) -> None:
    with trace.get_tracer("app").start_as_current_span("outer"), goldspan.expect("g1"):
        own = trace.set_span_in_context(trace.INVALID_SPAN)
        trace.get_tracer("app").start_span("root", context=own).end()
        trace.get_tracer("app").start_span("elsewhere", context=context.Context()).end()
    assert goldens_of(expecting) == {"root": "g1", "elsewhere": None, "outer": None}


def test_an_exception_propagates_and_ends_the_block(expecting: Exported) -> None:
    with pytest.raises(KeyError), goldspan.expect("g1"):
        raise KeyError
    work("after")
    assert goldens_of(expecting) == {"after": None}


def test_an_expect_block_is_reentrant(expecting: Exported) -> None:
    block = goldspan.expect("g1")
    with block, block:
        work("a")
    work("b")
    assert goldens_of(expecting) == {"a": "g1", "b": None}


def test_threads_that_share_an_expect_object_enter_and_leave_it_independently(
    expecting: Exported, caplog: pytest.LogCaptureFixture
) -> None:
    block = goldspan.expect("g1")
    first_inside, second_inside = threading.Event(), threading.Event()

    def enters_first_and_leaves_first() -> None:
        with block:
            first_inside.set()
            assert second_inside.wait(timeout=60)
        work("after the first")

    def enters_second_and_leaves_second() -> None:
        assert first_inside.wait(timeout=60)
        with block:
            second_inside.set()
            first.result(timeout=60)
            work("in the second")
        work("after the second")

    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(enters_first_and_leaves_first)
        pool.submit(enters_second_and_leaves_second).result(timeout=60)
    assert goldens_of(expecting) == {"after the first": None, "in the second": "g1", "after the second": None}
    assert not caplog.records


def test_tasks_that_share_an_expect_object_enter_and_leave_it_independently(
    expecting: Exported, caplog: pytest.LogCaptureFixture
) -> None:
    block = goldspan.expect("g1")

    async def task(name: str, inside: asyncio.Event, left: asyncio.Event) -> None:
        async with block:
            inside.set()
            await left.wait()
            work(name)
        work(f"after {name}")

    async def main() -> None:
        first, second, left = asyncio.Event(), asyncio.Event(), asyncio.Event()
        tasks = [asyncio.create_task(task("a", first, second)), asyncio.create_task(task("b", second, left))]
        await tasks[0]
        left.set()
        await tasks[1]

    asyncio.run(main())
    assert goldens_of(expecting) == {"a": "g1", "after a": None, "b": "g1", "after b": None}
    assert not caplog.records


def test_leaving_a_block_in_another_context_does_not_change_that_context(
    expecting: Exported, caplog: pytest.LogCaptureFixture
) -> None:
    block = goldspan.expect("g1")
    contextvars.Context().run(block.__enter__)
    with goldspan.expect("g2"):
        block.__exit__(None, None, None)
        work("a")
    work("b")
    assert goldens_of(expecting) == {"a": "g2", "b": None}
    assert not caplog.records


def test_an_invalid_argument_of_expect_is_logged_and_the_others_apply(
    expecting: Exported, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.delenv("GOLDSPAN_STRICT")
    with goldspan.expect(7, tools=["search"]):  # type: ignore[arg-type]
        work("a")
    assert expecting.attributes("a") == {"goldspan.expected_tools": '["search"]'}
    assert "golden must be the id of a golden, not 7" in caplog.text


def test_expect_as_a_decorator_applies_to_every_call(expecting: Exported) -> None:
    @goldspan.expect("g1")
    def plain(name: str) -> str:
        """What it does."""
        work(name)
        return name

    assert (plain("a"), plain("b"), plain.__name__, plain.__doc__) == ("a", "b", "plain", "What it does.")
    work("c")
    assert goldens_of(expecting) == {"a": "g1", "b": "g1", "c": None}


def test_expect_decorates_instance_class_and_static_methods(expecting: Exported) -> None:
    class Suite:
        @goldspan.expect("g1")
        def plain(self, name: str) -> None:
            work(name)

        @goldspan.expect("g1")
        @classmethod
        def of_class(cls, name: str) -> None:
            work(name)

        @goldspan.expect("g1")
        @staticmethod
        def static(name: str) -> None:
            work(name)

    Suite().plain("a")
    Suite.of_class("b")
    Suite().static("c")
    assert goldens_of(expecting) == dict.fromkeys("abc", "g1")


def test_expect_on_a_recursive_function_applies_at_every_depth(expecting: Exported) -> None:
    @goldspan.expect("g1")
    def counted(number: int) -> None:
        if number:
            counted(number - 1)
        work(str(number))

    counted(2)
    work("after")
    assert goldens_of(expecting) == {"0": "g1", "1": "g1", "2": "g1", "after": None}


@pytest.mark.parametrize(
    ("decorated", "message"),
    [
        (goldspan.expect, "the id of a golden, as in @goldspan.expect('refund'), or tools"),
        (goldspan.expect("g1"), "decorate the methods of a class"),
    ],
)
def test_expect_rejects_classes_and_use_without_arguments(decorated: Any, message: str) -> None:
    class Suite:
        """A decorated class whose tests would not be collected."""

    with pytest.raises(goldspan.ConfigurationError) as raised:
        decorated(Suite)
    assert message in str(raised.value)


def test_concurrent_calls_of_coroutine_functions_do_not_interfere(expecting: Exported) -> None:
    @goldspan.expect("decorated")
    async def decorated(name: str) -> None:
        await asyncio.sleep(0)
        work(name)

    async def entered(name: str) -> None:
        async with goldspan.expect(name):
            await asyncio.sleep(0)
            work(name)
        work(f"after {name}")

    async def main() -> None:
        await asyncio.gather(*map(decorated, "ab"), *map(entered, "cd"))

    asyncio.run(main())
    after = {"after c": None, "after d": None}
    assert goldens_of(expecting) == {"a": "decorated", "b": "decorated", "c": "c", "d": "d", **after}


def test_a_function_decorated_with_expect_can_be_called_from_many_threads(expecting: Exported) -> None:
    barrier = threading.Barrier(4)

    @goldspan.expect("g1")
    def plain(name: str) -> None:
        barrier.wait(timeout=60)
        work(name)
        barrier.wait(timeout=60)

    def in_own_context(name: str) -> None:
        contextvars.Context().run(plain, name)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(in_own_context, "abcd"))
    assert goldens_of(expecting) == dict.fromkeys("abcd", "g1")


def test_expect_rejects_generator_functions() -> None:
    def plain() -> Iterator[int]:
        yield 1

    async def asynchronous() -> AsyncIterator[int]:
        yield 1

    for function in (plain, asynchronous):
        with pytest.raises(goldspan.ConfigurationError, match="around the loop that consumes it"):
            goldspan.expect("g1")(function)


def test_expect_around_the_consumer_applies_to_a_generator(expecting: Exported) -> None:
    @goldspan.trace(kind="agent")
    def stream(question: str) -> Iterator[str]:
        work("step")
        yield question

    with goldspan.expect("g1"):
        assert list(stream("Hi")) == ["Hi"]
    assert goldens_of(expecting) == {"invoke_agent stream": "g1", "step": None}


# --- across services --------------------------------------------------------------------------------------------------


def test_a_golden_is_propagated_in_baggage_to_the_first_span_of_another_service(expecting: Exported) -> None:
    carrier: dict[str, str] = {}
    with goldspan.expect("refund 1", tools=["search"]), trace.get_tracer("app").start_as_current_span("client"):
        W3CBaggagePropagator().inject(carrier)
        TraceContextTextMapPropagator().inject(carrier)
    assert carrier["baggage"] == "goldspan.golden.id=refund+1"
    arrived = TraceContextTextMapPropagator().extract(
        carrier, W3CBaggagePropagator().extract(carrier, context.Context())
    )
    token = context.attach(arrived)
    try:
        work("server", "inner")
    finally:
        context.detach(token)
    assert goldens_of(expecting) == {"client": "refund 1", "server": "refund 1", "inner": None}
    assert "goldspan.expected_tools" not in expecting.attributes("server")


def test_a_golden_id_in_the_baggage_applies_to_local_root_spans() -> None:
    carrying = baggage.set_baggage("goldspan.golden.id", "g1", context.Context())
    remote = SpanContext(1, 2, is_remote=True, trace_flags=TraceFlags(1))
    local = SpanContext(1, 2, is_remote=False, trace_flags=TraceFlags(1))
    golden_attribute = {"goldspan.golden.id": "g1"}
    assert [expected_attributes(carrying, parent) for parent in (None, remote, local)] == [
        golden_attribute,
        golden_attribute,
        None,
    ]
    for odd in ("", 3, None):
        assert expected_attributes(baggage.set_baggage("goldspan.golden.id", odd, context.Context()), None) is None


def test_without_expectations_there_are_no_attributes() -> None:
    parent = SpanContext(1, 2, is_remote=False)
    assert expected_attributes(None, None) is None
    assert expected_attributes(context.Context(), parent) is None


def test_expect_inside_a_remote_span_applies_to_its_children() -> None:
    remote = SpanContext(1, 2, is_remote=True, trace_flags=TraceFlags(1))
    token = context.attach(trace.set_span_in_context(NonRecordingSpan(remote)))
    try:
        with goldspan.expect(tools=["a"]):
            assert expected_attributes(None, remote) == {"goldspan.expected_tools": '["a"]'}
    finally:
        context.detach(token)
