"""Functions as sinks."""

from __future__ import annotations

import functools

import pytest

from goldspan import ConfigurationError, Evaluation
from goldspan.sinks import BackgroundSink, EventSink, FunctionSink, as_sink
from support.evaluation_builders import evaluation


async def save(evaluation: Evaluation) -> None: ...


class Saving:
    async def __call__(self, evaluation: Evaluation) -> None: ...


class AsynchronousSink:
    async def submit(self, evaluation: Evaluation) -> None: ...


def kind(thing: object) -> str:
    return type(thing).__name__


def test_a_function_gets_every_evaluation() -> None:
    got: list[Evaluation] = []
    sink = FunctionSink(got.append)
    for number in (1, 2):
        sink.submit(evaluation(number))
    assert [one.run.span_id for one in got] == [f"{1:016x}", f"{2:016x}"]


def test_what_a_function_raises_is_for_the_guard() -> None:
    with pytest.raises(ZeroDivisionError):
        FunctionSink(lambda one: 1 / 0).submit(evaluation())


def test_a_sink_stays_as_it_is_and_a_function_becomes_one() -> None:
    sink = EventSink()
    assert as_sink(sink) is sink
    got: list[Evaluation] = []
    as_sink(got.append).submit(evaluation())
    assert len(got) == 1


@pytest.mark.parametrize("thing", [save, functools.partial(save), Saving(), AsynchronousSink()], ids=kind)
def test_what_is_asynchronous_gets_a_thread_with_an_event_loop(thing: object) -> None:
    sink = as_sink(thing)  # type: ignore[arg-type]
    assert isinstance(sink, BackgroundSink)
    sink.shutdown()


@pytest.mark.parametrize("function", [save, functools.partial(save), Saving()], ids=kind)
def test_a_coroutine_function_is_refused_where_nobody_would_await_it(function: object) -> None:
    with pytest.raises(ConfigurationError, match=r"never await .*: give it to goldspan\.sinks\.BackgroundSink"):
        FunctionSink(function)  # type: ignore[arg-type]


def test_a_coroutine_that_a_plain_function_returns_is_not_passed_over() -> None:
    sink = as_sink(lambda one: save(one))
    assert isinstance(sink, FunctionSink)
    with pytest.raises(ConfigurationError, match=r"never await <lambda>: give it to goldspan\.sinks\.BackgroundSink"):
        sink.submit(evaluation())


@pytest.mark.parametrize(
    ("thing", "complaint"),
    [
        pytest.param("events", r"or has a method submit\(evaluation\), unlike str", id="a text"),
        pytest.param(None, "unlike NoneType", id="nothing"),
        pytest.param(EventSink, r"EventSink is a class and no sink yet; write EventSink\(\.\.\.\)", id="a class"),
    ],
)
def test_what_is_neither_a_sink_nor_a_function_is_refused(thing: object, complaint: str) -> None:
    with pytest.raises(ConfigurationError, match=complaint):
        as_sink(thing)  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match=complaint):
        BackgroundSink(thing)  # type: ignore[arg-type]


def test_only_a_function_can_be_called() -> None:
    with pytest.raises(ConfigurationError, match="takes a function of an evaluation, not int"):
        FunctionSink(3)  # type: ignore[arg-type]
