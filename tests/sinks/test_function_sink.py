"""Functions as sinks."""

from __future__ import annotations

import functools

import pytest

from goldspan import ConfigurationError, Evaluation, ScoringProcessor, instrument
from goldspan.sinks import BackgroundSink, EventSink, FunctionSink, as_sink
from support.evaluation_builders import evaluation


async def save(evaluation: Evaluation) -> None: ...


class Saving:
    async def __call__(self, evaluation: Evaluation) -> None: ...


class AsynchronousSink:
    async def submit(self, evaluation: Evaluation) -> None: ...


def kind(thing: object) -> str:
    return type(thing).__name__


def test_a_function_sink_calls_its_function_with_every_evaluation() -> None:
    got: list[Evaluation] = []
    sink = FunctionSink(got.append)
    for number in (1, 2):
        sink.submit(evaluation(number))
    assert [one.run.span_id for one in got] == [f"{1:016x}", f"{2:016x}"]


def test_a_function_sink_propagates_exceptions_of_its_function() -> None:
    with pytest.raises(ZeroDivisionError):
        FunctionSink(lambda one: 1 / 0).submit(evaluation())


def test_as_sink_returns_a_sink_unchanged_and_wraps_a_function() -> None:
    sink = EventSink()
    assert as_sink(sink) is sink
    got: list[Evaluation] = []
    as_sink(got.append).submit(evaluation())
    assert len(got) == 1


@pytest.mark.parametrize("thing", [save, functools.partial(save), Saving(), AsynchronousSink()], ids=kind)
def test_as_sink_wraps_async_functions_and_sinks_in_a_background_sink(thing: object) -> None:
    sink = as_sink(thing)  # type: ignore[arg-type]
    assert isinstance(sink, BackgroundSink)
    sink.shutdown()


@pytest.mark.parametrize("function", [save, functools.partial(save), Saving()], ids=kind)
def test_a_function_sink_rejects_coroutine_functions(function: object) -> None:
    with pytest.raises(ConfigurationError, match=r"never await .*: pass it to goldspan\.sinks\.BackgroundSink"):
        FunctionSink(function)  # type: ignore[arg-type]


def test_a_coroutine_returned_by_a_plain_function_raises_an_error() -> None:
    sink = as_sink(lambda one: save(one))
    assert isinstance(sink, FunctionSink)
    with pytest.raises(ConfigurationError, match=r"never await <lambda>: pass it to goldspan\.sinks\.BackgroundSink"):
        sink.submit(evaluation())


class Misnamed:
    def submitt(self, evaluation: Evaluation) -> None: ...


class TwoParameters:
    def submit(self, evaluation: Evaluation, revision: int) -> None: ...


def takes_nothing() -> None: ...


def takes_two(evaluation: Evaluation, revision: int) -> None: ...


def takes_defaults(evaluation: Evaluation, revision: int = 1) -> None: ...


NAMES = [
    pytest.param("events", r"sink 'events' is a name, .* Did you mean goldspan\.sinks\.EventSink\(\)\?", id="a name"),
    pytest.param("evnts", r"Did you mean goldspan\.sinks\.EventSink\(\)\?", id="a misspelled name"),
    pytest.param("jsonl:x", r"Did you mean goldspan\.sinks\.JsonLinesSink\(path\)\?", id="a name with a path"),
]
WRONG_SINKS = [
    pytest.param(None, r"sink NoneType is neither a function .* submit\(evaluation\)\.$", id="nothing"),
    pytest.param(Misnamed(), "sink Misnamed is neither .* rename it to 'submit'", id="a misspelled method"),
    pytest.param(EventSink, r"sink EventSink is a class; pass an instance: EventSink\(\.\.\.\)", id="a class"),
    pytest.param(takes_nothing, r"takes_nothing\(\).* cannot be called with one argument", id="no parameter"),
    pytest.param(takes_two, r"cannot be called with one argument; write takes_two\(evaluation\)", id="two parameters"),
    pytest.param(TwoParameters(), r"write TwoParameters\.submit\(evaluation\)", id="a method with two parameters"),
]


@pytest.mark.parametrize(("thing", "complaint"), [*NAMES, *WRONG_SINKS])
def test_as_sink_rejects_values_that_are_neither_sinks_nor_functions(thing: object, complaint: str) -> None:
    with pytest.raises(ConfigurationError, match=complaint):
        as_sink(thing)  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match=complaint):
        BackgroundSink(thing)  # type: ignore[arg-type]


@pytest.mark.parametrize(("thing", "complaint"), WRONG_SINKS)
def test_the_processor_and_instrument_reject_invalid_sinks(thing: object, complaint: str) -> None:
    with pytest.raises(ConfigurationError, match=complaint):
        ScoringProcessor(sinks=[thing])  # type: ignore[list-item]
    with pytest.raises(ConfigurationError, match=complaint):
        instrument(sinks=[thing])  # type: ignore[list-item]


@pytest.mark.parametrize(("name", "complaint"), NAMES)
def test_the_processor_rejects_names_of_sinks(name: str, complaint: str) -> None:
    with pytest.raises(ConfigurationError, match=complaint):
        ScoringProcessor(sinks=[name])  # type: ignore[list-item]


@pytest.mark.parametrize(
    ("name", "complaint"),
    [
        ("evnts", "there is no sink 'evnts'; .* Did you mean 'events'"),
        ("jsonl", "the sink 'jsonl' lacks a path; write jsonl:PATH"),
        ("phoenx", "there is no sink 'phoenx'; .*mlflow.* Did you mean 'phoenix'"),
        ("phoenix:localhost", "the address of phoenix is written as https://host/path"),
    ],
)
def test_instrument_rejects_names_of_no_sink(name: str, complaint: str) -> None:
    with pytest.raises(ConfigurationError, match=complaint):
        instrument(sinks=[name])


@pytest.mark.parametrize(
    "function", [takes_defaults, print, lambda *evaluations: None], ids=["defaults", "print", "any"]
)
def test_functions_with_optional_further_parameters_are_accepted(function: object) -> None:
    assert isinstance(as_sink(function), FunctionSink)  # type: ignore[arg-type]


def test_a_function_sink_rejects_values_that_are_not_callable() -> None:
    with pytest.raises(ConfigurationError, match="needs a function of an evaluation, not int"):
        FunctionSink(3)  # type: ignore[arg-type]
