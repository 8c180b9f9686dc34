"""An agent of any kind runs on each golden, and its tools are seen through the spans of any instrumentation."""

from __future__ import annotations

import asyncio
import functools
import sys
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from opentelemetry import trace as otel_trace

import goldspan
from goldspan import ConfigurationError, ExpectedTool, Golden, GoldenError, Goldens, evaluate_agent, read_results
from goldspan.testing import agent_cases
from goldspan.testing.results import AgentResults, CaseResult

TOOLS = ("search", "book", "pay")


@goldspan.trace
def search(what: str) -> str:
    return f"found {what}"


@goldspan.trace
def book(what: str) -> str:
    return f"booked {what}"


@goldspan.trace
async def pay(what: str) -> str:
    await asyncio.sleep(0)
    return f"paid {what}"


def golden(golden_id: str, *tools: str, **fields: Any) -> Golden:
    return Golden(golden_id, fields.pop("input", golden_id), tuple(map(ExpectedTool, tools)), **fields)


GOLDENS = [golden("search book", "search", "book"), golden("search", "search"), golden("nothing")]


def call_tools(names: str) -> str:
    """The agent of most tests: it calls the tools that its request names."""
    for name in names.split():
        {"search": search, "book": book}.get(name, lambda _: None)(name)
    return names


def outcomes(results: AgentResults) -> dict[str, str]:
    return {case.golden_id: case.outcome for case in results.cases}


def passed_all(results: AgentResults) -> bool:
    return results.counts["passed"] == len(results.cases) == len(GOLDENS)


# --- agents of every kind ---------------------------------------------------------------------------------------------


async def call_tools_async(names: str) -> str:
    await asyncio.sleep(0.001)
    return call_tools(names)


def stream_tools(names: str) -> Iterator[str]:
    for name in names.split():
        call_tools(name)
        yield name


async def stream_tools_async(names: str) -> AsyncIterator[str]:
    for name in names.split():
        await asyncio.sleep(0.001)
        call_tools(name)
        yield name


def return_awaitable(names: str) -> Awaitable[str]:
    return call_tools_async(names)


class AgentObject:
    async def __call__(self, names: str) -> str:
        return call_tools(names)

    def method(self, names: str) -> str:
        return call_tools(names)


@goldspan.trace(kind="agent")
def decorated(names: str) -> str:
    return call_tools(names)


def start_otel_spans(names: str) -> None:
    tracer = otel_trace.get_tracer("some.framework")
    with tracer.start_as_current_span("invoke", attributes={"gen_ai.operation.name": "invoke_agent"}):
        for name in names.split():
            if name in TOOLS:
                with tracer.start_as_current_span(
                    name, attributes={"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": name}
                ):
                    pass


def use_pool(names: str) -> None:
    with ThreadPoolExecutor(2) as pool:
        for name in names.split():
            pool.submit(call_tools, name).result()


async def use_executor(names: str) -> None:
    await asyncio.get_running_loop().run_in_executor(None, call_tools, names)


async def use_tasks(names: str) -> None:
    await asyncio.gather(*(call_tools_async(name) for name in names.split()))


def leave_thread_behind(names: str) -> None:
    """The tools run after the agent returned: their span starts before, and ends in a background thread."""
    started = threading.Event()

    def work() -> None:
        with otel_trace.get_tracer("app").start_as_current_span("background"):
            started.set()
            time.sleep(0.05)
            call_tools(names)

    threading.Thread(target=work).start()
    started.wait(5)


def use_own_traces(names: str) -> None:
    """A framework that starts each tool as the root of a trace of its own."""
    from opentelemetry.context import Context

    tracer = otel_trace.get_tracer("some.framework")
    for name in names.split():
        if name in TOOLS:
            attributes = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": name}
            tracer.start_span(name, context=Context(), attributes=attributes).end()


AGENTS: dict[str, Callable[..., Any]] = {
    "function": call_tools,
    "coroutine": call_tools_async,
    "generator": stream_tools,
    "async generator": stream_tools_async,
    "awaitable": return_awaitable,
    "object": AgentObject(),
    "method": AgentObject().method,
    "partial": functools.partial(call_tools),
    "lambda": lambda names: call_tools(names),
    "decorated": decorated,
    "OpenTelemetry": start_otel_spans,
    "thread pool": use_pool,
    "executor": use_executor,
    "tasks": use_tasks,
    "background thread": leave_thread_behind,
    "own traces": use_own_traces,
}


@pytest.mark.parametrize("agent", AGENTS.values(), ids=AGENTS)
@pytest.mark.parametrize("concurrency", [1, 4])
def test_the_tools_of_an_agent_of_any_kind_are_seen(agent: Callable[..., Any], concurrency: int) -> None:
    results = evaluate_agent(agent, GOLDENS, concurrency=concurrency)
    if agent in (start_otel_spans, leave_thread_behind):  # their other spans could be those of tools
        assert outcomes(results) == {"search book": "passed", "search": "passed", "nothing": "not_evaluated"}
    else:
        assert passed_all(results)


def test_a_case_fails_if_the_agent_calls_other_tools() -> None:
    results = evaluate_agent(call_tools, [golden("a", "book", input="search"), golden("b", "search", input="search")])
    assert outcomes(results) == {"a": "failed", "b": "passed"}
    assert results.pass_rate == 0.5
    assert "book" in results.cases[0].reason


def test_concurrent_cases_never_share_spans() -> None:
    """Each case calls its own tool many times, while the others do the same in threads and in tasks."""
    goldens = [golden(f"tool_{n}", *[f"tool_{n}"] * 20, order="exact") for n in range(12)]
    tools = {each.id: goldspan.trace(name=each.id)(lambda: time.sleep(0.0005)) for each in goldens}

    def in_threads(name: str) -> None:
        with ThreadPoolExecutor(4) as pool:
            for _ in range(20):
                pool.submit(tools[name])

    async def in_tasks(name: str) -> None:
        for _ in range(20):
            tools[name]()
            await asyncio.sleep(0)

    for agent in (in_threads, in_tasks):
        results = evaluate_agent(agent, goldens, concurrency=12)
        assert [case.reason for case in results.cases if case.outcome != "passed"] == []
        assert {case.unattributed_spans for case in results.cases} == {0}


def test_an_agent_with_a_parameter_named_golden_receives_the_golden() -> None:
    seen: list[tuple[str, Any]] = []

    def agent(text: str, *, golden: Golden) -> None:
        seen.append((text, golden.metadata["user"]))

    evaluate_agent(agent, [golden("a", metadata={"user": "ana"})])
    assert seen == [("a", "ana")]


def test_an_agent_whose_only_parameter_is_golden_needs_no_input() -> None:
    def agent(golden: Golden) -> None:
        call_tools(golden.metadata["tools"])

    results = evaluate_agent(agent, [Golden("a", None, (ExpectedTool("book"),), metadata={"tools": "book"})])
    assert outcomes(results) == {"a": "passed"}


# --- errors, timeouts, retries ----------------------------------------------------------------------------------------


def test_an_agent_that_raises_or_exits_is_an_error_and_the_other_cases_run() -> None:
    def agent(names: str) -> None:
        if names == "search":
            raise ValueError("no such hotel")
        if names == "nothing":
            sys.exit("bye")
        call_tools(names)

    async def agent_async(names: str) -> None:
        agent(names)

    for each in (agent, agent_async):
        results = evaluate_agent(each, GOLDENS)
        assert outcomes(results) == {"search book": "passed", "search": "error", "nothing": "error"}
        assert [case.reason for case in results.cases[1:]] == ["ValueError: no such hotel", "SystemExit: bye"]
        assert results.cases[1].evaluation is None


def test_a_coroutine_that_cancels_itself_is_an_error() -> None:
    async def agent(_: str) -> None:
        raise asyncio.CancelledError

    assert outcomes(evaluate_agent(agent, [golden("a")])) == {"a": "error"}


def test_a_coroutine_that_takes_too_long_is_cancelled() -> None:
    cancelled = []

    async def agent(text: str) -> None:
        try:
            await asyncio.sleep(30)
        except asyncio.CancelledError:
            cancelled.append(text)
            raise

    started = time.monotonic()
    (case,) = evaluate_agent(agent, [golden("slow")], timeout=0.05).cases
    assert time.monotonic() - started < 10
    assert case.outcome == "timeout"
    assert case.reason == "TimeoutError: the agent did not return in 0.05 s"
    assert cancelled == ["slow"]


def test_a_thread_that_takes_too_long_is_left_to_itself_and_its_spans_reach_no_other_case() -> None:
    release = threading.Event()
    done = threading.Event()

    def agent(names: str) -> None:
        if names == "slow":
            release.wait(30)
            call_tools("book book")
            done.set()
        else:
            release.set()
            done.wait(30)
            call_tools(names)

    slow, fast = evaluate_agent(agent, [golden("slow"), golden("search", "search")], timeout=0.2, concurrency=1).cases
    assert slow.outcome == "timeout"
    assert slow.reason.endswith("did not return in 0.2 s; it cannot be stopped and still runs")
    assert fast.outcome == "passed"
    assert fast.evaluation is not None
    assert fast.evaluation["tools_used"] == ["search"]


def test_a_case_is_retried_after_an_error_and_after_a_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agent_cases, "_FIRST_RETRY_DELAY_S", 0.001)
    calls: dict[str, int] = {}

    async def agent(names: str) -> None:
        calls[names] = calls.get(names, 0) + 1
        if calls[names] == 1:
            call_tools("book book book")
            raise ConnectionError
        if calls[names] == 2:
            await asyncio.sleep(30)
        call_tools(names)

    results = evaluate_agent(agent, GOLDENS, retries=2, timeout=0.1)
    assert passed_all(results)
    assert {case.attempts for case in results.cases} == {3}
    assert {case.error for case in results.cases} == {None}
    calls.clear()
    assert outcomes(evaluate_agent(agent, GOLDENS[:1], retries=1, timeout=0.1)) == {"search book": "timeout"}


# --- trials, files, progress ------------------------------------------------------------------------------------------


def flaky_agent() -> Callable[[str], None]:
    """An agent that calls nothing on every second call for a request."""
    calls: dict[str, int] = {}

    def agent(names: str) -> None:
        calls[names] = calls.get(names, 0) + 1
        if calls[names] % 2:
            call_tools(names)

    return agent


def test_trials_give_pass_hat_k_and_pass_at_k() -> None:
    results = evaluate_agent(flaky_agent(), GOLDENS, trials=4)
    assert [case.key for case in results.cases] == [(each.id, trial) for each in GOLDENS for trial in (1, 2, 3, 4)]
    assert [results.pass_hat_k(k) for k in (1, 2, 3)] == pytest.approx([2 / 3, (1 / 6 * 2 + 1) / 3, 1 / 3])
    assert [results.pass_at_k(k) for k in (1, 2, 3)] == pytest.approx([2 / 3, (5 / 6 * 2 + 1) / 3, 1])


def test_results_are_saved_case_by_case(tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    saved: list[int] = []
    progress: list[tuple[str, int, int]] = []

    def on_case(case: CaseResult, done: int, total: int) -> None:
        saved.append(len(read_results(path).cases))
        progress.append((case.golden_id, done, total))

    results = evaluate_agent(call_tools, GOLDENS, results=path, progress=on_case, concurrency=1)
    assert saved == [1, 2, 3]
    assert progress == [("search book", 1, 3), ("search", 2, 3), ("nothing", 3, 3)]
    assert read_results(path) == results
    assert results.header.agent == f"{__name__}:call_tools"


def test_an_interrupted_run_keeps_what_is_done_and_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    ran: list[str] = []

    def agent(names: str) -> None:
        ran.append(names)
        if names == "search" and ran.count("search") == 1:
            raise ValueError
        call_tools(names)

    def interrupt(case: CaseResult, done: int, total: int) -> None:
        if done == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        evaluate_agent(agent, GOLDENS, results=path, concurrency=1, progress=interrupt)
    assert outcomes(read_results(path)) == {"search book": "passed", "search": "error"}
    results = evaluate_agent(agent, GOLDENS, results=path, resume=True)
    assert passed_all(results)
    assert ran == ["search book", "search", "search", "nothing"]
    assert read_results(path).counts == results.counts


def test_the_results_file_holds_arguments_only_if_they_are_kept(tmp_path: Path) -> None:
    def agent(_: str) -> None:
        book("the Ritz in Paris")

    for keep in (False, True):
        evaluate_agent(agent, [golden("a", "book")], results=tmp_path / "results.jsonl", keep_arguments=keep)
        assert ("Ritz" in (tmp_path / "results.jsonl").read_text(encoding="utf-8")) is keep


def test_a_run_is_evaluated_with_the_given_metrics() -> None:
    results = evaluate_agent(call_tools, GOLDENS, metrics=["tool_recall"])
    assert results.header.metrics == ("tool_recall",)
    assert results.mean("tool_recall") == 1
    assert results.mean("tool_precision") is None


def test_golden_files_give_cases_their_source_and_tags(tmp_path: Path) -> None:
    path = tmp_path / "goldens.yaml"
    path.write_text(
        "- {id: a, input: search, tools: [search], tags: [smoke]}\n- {id: p, forbid: [drop], policy: true}\n"
    )
    results = evaluate_agent(call_tools, path)
    (case,) = results.cases
    assert case.tags == ("smoke",)
    assert case.source is not None
    assert (case.source.file, case.source.line) == (str(path), 1)
    assert results.header.goldens == (str(path),)


# --- in an event loop -------------------------------------------------------------------------------------------------


def test_in_an_event_loop_the_asynchronous_function_is_awaited() -> None:
    async def main() -> AgentResults:
        with pytest.raises(ConfigurationError, match=r"write `await goldspan\.evaluate_agent_async"):
            evaluate_agent(call_tools, GOLDENS)
        return await goldspan.evaluate_agent_async(call_tools_async, GOLDENS)

    assert passed_all(asyncio.run(main()))


def test_a_cancelled_run_cancels_its_agents() -> None:
    async def main() -> list[str]:
        ended: list[str] = []

        async def agent(text: str) -> None:
            try:
                await asyncio.sleep(30)
            finally:
                ended.append(text)

        task = asyncio.ensure_future(goldspan.evaluate_agent_async(agent, GOLDENS))
        await asyncio.sleep(0.05)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await asyncio.sleep(0)
        return sorted(ended)

    assert asyncio.run(main()) == sorted(each.id for each in GOLDENS)


# --- wrong use --------------------------------------------------------------------------------------------------------


def no_parameters() -> None: ...


def other_parameter(text: str, session: str) -> None: ...


@pytest.mark.parametrize(
    ("agent", "goldens", "options", "complaint"),
    [
        ("agent", GOLDENS, {}, "the agent must be a function of the request's text, not 'agent'"),
        (no_parameters, GOLDENS, {}, "no_parameters cannot be called with the text of a request"),
        (other_parameter, GOLDENS, {}, "missing a required argument: 'session'"),
        (call_tools, [], {}, "there is no golden to run"),
        (call_tools, [Golden("p", forbid=("drop",), policy=True)], {}, "there is no golden to run"),
        (call_tools, [Golden("a")], {}, "the golden 'a' has no input to run the agent on: add `input`"),
        (
            call_tools,
            [Golden(f"g{n}", " ") for n in range(7)],
            {},
            "the goldens 'g0', 'g1', 'g2', 'g3' and 'g4' and 2 more have no input",
        ),
        (call_tools, GOLDENS, {"concurrency": 0}, "concurrency must be a whole number of at least 1, not 0"),
        (call_tools, GOLDENS, {"trials": True}, "trials must be a whole number of at least 1, not True"),
        (call_tools, GOLDENS, {"retries": -1}, "retries must be a whole number of at least 0, not -1"),
        (call_tools, GOLDENS, {"timeout": 0}, "timeout must be a number of seconds above 0"),
        (call_tools, GOLDENS, {"resume": True}, "resume=True needs `results`"),
        (call_tools, GOLDENS, {"metrics": ["tool_recal"]}, "tool_recall"),
        (call_tools, [golden("a", metrics=("tool_recal",))], {}, "tool_recall"),
        (call_tools, [golden("a", thresholds={"tool_recal": 0.5})], {}, "tool_recall"),
    ],
)
def test_wrong_use_is_one_sentence_that_says_what_to_change(
    agent: Any, goldens: list[Golden], options: dict[str, Any], complaint: str
) -> None:
    with pytest.raises(ConfigurationError) as caught:
        evaluate_agent(agent, goldens, **options)
    assert complaint in str(caught.value)


def test_two_goldens_of_one_id_are_an_error() -> None:
    with pytest.raises(GoldenError, match="'a' is defined twice"):
        evaluate_agent(call_tools, [golden("a"), golden("a")])


def test_a_callable_without_a_signature_is_called_with_the_text() -> None:
    results = evaluate_agent(str.upper if sys.version_info < (3, 10) else max, Goldens([golden("nothing")]))
    assert outcomes(results) == {"nothing": "passed"}
