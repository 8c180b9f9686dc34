"""A retriever that is scored as a component, apart from the request that it serves: `python agent.py`."""

import re
from pathlib import Path

from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider

import goldspan

MANUAL = [
    "The pool is open from 8 to 20.",
    "The bar beside the pool is open from 16 to 23.",
    "Dogs are welcome for 15 euros a night.",
]


def words(text: str) -> set[str]:
    return set(re.findall(r"\w+", text.lower()))


@goldspan.trace
def keyword_search(query: str, limit: int) -> list[str]:
    return [passage for passage in MANUAL if words(passage) & words(query)][:limit]


@goldspan.trace
def rerank(query: str, passages: list[str]) -> list[str]:
    return sorted(passages, key=lambda passage: len(words(passage) & words(query)), reverse=True)


@goldspan.trace(kind="component")
def retriever(query: str) -> list[str]:
    passages = keyword_search(query, limit=3)
    return rerank(query, passages) if len(query) > 20 else passages  # a mistake: short queries need it too


@goldspan.trace
def search_manual(query: str) -> list[str]:
    return retriever(query)


@goldspan.trace(kind="agent")
def concierge(question: str) -> str:
    return search_manual(question.strip("?"))[0]


def show(evaluation: goldspan.Evaluation) -> None:
    verdict = {True: "passed", False: "FAILED", None: "not evaluated"}[evaluation.passed]
    print(f"  {evaluation.name} {verdict}: {evaluation.reason}")


trace.set_tracer_provider(TracerProvider())  # in production, with an exporter
goldspan.instrument(Path(__file__).with_name("goldens.yaml"), sinks=[show])  # in production, without `sinks`

for question in ("Until when is the pool open?", "Is the bar open now?"):
    print(question)
    print(f"  {concierge(question)}")
