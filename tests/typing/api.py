"""How goldspan looks to a type checker: `make types` reads this file, nobody runs it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import ConsoleSpanExporter
from typing_extensions import assert_type

import goldspan


@goldspan.trace
def search_hotels(city: str, *, stars: int = 3) -> list[str]:
    return [city] * stars


@goldspan.trace(name="book")
async def book_hotel(hotel: str) -> bool:
    return bool(hotel)


@goldspan.trace
def pages(query: str) -> Iterator[str]:
    yield query


@goldspan.trace(kind="component", golden="rank")
async def ranked(query: str) -> AsyncIterator[int]:
    yield len(query)


@goldspan.metric("few_calls")
def few_calls(seen: goldspan.Comparison) -> float:
    return 1 / max(1, len(seen.calls))


@goldspan.trace(kind="component", metrics=["tool_recall", few_calls])
def routed(query: str) -> str:
    goldspan.update_current_span(input=query, expected_tools=["search", {"name": "book"}], metadata={"tenant": "t1"})
    return query


@goldspan.expect("case-7", tools=["search"])
async def case(question: str) -> bool:
    with goldspan.expect(golden="case-8"):
        assert_type(routed(question), str)
    async with goldspan.expect(metadata={"tenant": "t1"}):
        return bool(question)


class Desk:
    @goldspan.trace
    def refund(self, order: int) -> float:
        return float(order)

    @staticmethod
    @goldspan.trace
    def find(order: int) -> str:
        return str(order)

    @classmethod
    @goldspan.trace
    def close(cls, ticket: str) -> None: ...


@goldspan.trace(kind="agent", golden="book-cheapest")
async def agent(question: str) -> str:
    assert_type(search_hotels(question, stars=4), list[str])
    assert_type(await book_hotel("Ritz"), bool)
    assert_type(Desk().refund(3), float)
    assert_type(Desk.find(3), str)
    for page in pages(question):
        assert_type(page, str)
    async for rank in ranked(question):
        assert_type(rank, int)
    search_hotels(4)  # type: ignore[arg-type]  # a decorated function keeps its signature
    return question


def score_files() -> None:
    goldens = assert_type(goldspan.load_goldens("goldens.yaml"), goldspan.Goldens)
    for run in goldspan.load_runs("traces.jsonl", "more.pb.gz", unit="request"):
        assert_type(run, goldspan.Run)
        assert_type(run.tools_used, tuple[str, ...])
        assert_type(goldens.find(run), goldspan.Match | None)
        result = assert_type(goldspan.evaluate(run, goldens), goldspan.Evaluation)
        for score in result.scores:
            assert_type(score.value, float | None)


def score_lists() -> None:
    seen = assert_type(goldspan.compare(["search", "book"], ["search"]), goldspan.Comparison)
    assert_type([row.called for row in seen.unexpected], list[goldspan.ToolCall | None])
    assert_type(goldspan.evaluate(["search"], ["search"], metrics=["tool_correctness"]), goldspan.Evaluation)


def score_live(provider: TracerProvider) -> None:
    provider.add_span_processor(goldspan.ScoringProcessor(goldens="goldens.yaml", then=ConsoleSpanExporter()))
    goldspan.instrument(goldens="goldens.yaml")


async def tests_of_agents() -> None:
    results = goldspan.evaluate_agent(search_hotels, "goldens.yaml", trials=2)
    assert_type(results.pass_rate, float | None)
    assert_type(results.pass_hat_k(2), float | None)
    assert_type([case.passed for case in results.cases], list[bool | None])
    again = await goldspan.evaluate_agent_async(book_hotel, [goldspan.Golden("a", "Hi.")], timeout=None)
    assert_type(again.evaluations, tuple[goldspan.Evaluation, ...])
