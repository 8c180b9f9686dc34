"""What can be asked of a stored evaluation: the columns beside its document."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from goldspan.extraction.names import fold
from goldspan.model import AnyOf, Evaluation, ExpectedTool, Item
from goldspan.sinks.documents import written
from goldspan.store.documents import kept_input, stored_document
from goldspan.store.protocol import ToolRole

_LATEST = 2**63 - 1
"""Nanoseconds that SQLite can write: until the year 2262."""


@dataclass(frozen=True, slots=True)
class Entry:
    """What is stored of one evaluation."""

    run_id: str
    time_ns: int
    revision: int
    digest: str
    passed: bool | None
    listed: tuple[str | None, ...]
    """Unit, golden, agent, service, environment and session."""
    text: str | None
    """The input as it is searched."""
    tools: tuple[tuple[str, str, str], ...]
    """Each tool as it is searched for, what it was in the run, and its name as it is shown."""
    substitutions: tuple[tuple[str, str], ...]
    """The tool that was expected, and the one that was called in its place."""
    scores: Mapping[str, float | None]
    traces: frozenset[str]
    document: str
    """JSON."""

    @property
    def columns(self) -> tuple[Any, ...]:
        """What stands beside the document in the list of runs, from the revision to the shape."""
        shape = shape_of(self.tools, self.substitutions)
        return (self.revision, self.passed, *self.listed, self.text, shape)


def entry_of(evaluation: Evaluation, *, now_ns: int, keep_arguments: bool) -> Entry:
    """An evaluation as it is stored. A run whose clock goes ahead counts as of now, so that it does not stay first."""
    run, match = evaluation.run, evaluation.match
    asked = kept_input(run)
    listed = (run.unit, match.golden.id if match else None, run.agent, run.service, run.environment, run.session_id)
    return Entry(
        run_id=storable(run.run_id),
        time_ns=max(0, min(run.start_ns or run.end_ns or now_ns, now_ns, _LATEST)),
        revision=evaluation.revision,
        digest=evaluation.digest,
        passed=evaluation.passed,
        listed=tuple(None if text is None else storable(text) for text in listed),
        text=None if asked is None else searched(asked),
        tools=_spelt(_tools(evaluation)),
        substitutions=substitutions_of(
            (fault.tool, fault.instead) for fault in evaluation.faults if fault.kind == "wrong_tool"
        ),
        scores={
            storable(score.metric): None if score.value is None else float(score.value) for score in evaluation.scores
        },
        traces=frozenset(map(storable, run.trace_ids)),
        document=written(lambda values: stored_document(evaluation, keep_arguments=values), values=keep_arguments),
    )


def storable(text: str) -> str:
    """A text that UTF-8 can say: half a surrogate pair becomes the replacement character."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text


def searched(text: str) -> str:
    """A text as it is searched for and searched in: case does not matter."""
    return storable(text).casefold()


def as_tool(name: str) -> str:
    """A tool's name as it is searched for."""
    return storable(fold(name))


def substitutions_of(found: Iterable[tuple[str, str | None]]) -> tuple[tuple[str, str], ...]:
    """Which tool was called in place of which, each two of them once, however they are spelt."""
    spelt: dict[tuple[str, str], tuple[str, str]] = {}
    for expected, called in found:
        spelt.setdefault((as_tool(expected), as_tool(called or "")), (storable(expected), storable(called or "")))
    return tuple(sorted(spelt.values()))


def shape_of(tools: Iterable[tuple[str, str, str]], substitutions: Iterable[tuple[str, str]]) -> int:
    """A number of 64 bits that tells runs apart by what is stored of their tools: equal numbers, equal rows."""
    told = repr((tuple(tools), tuple(substitutions))).encode()
    return int.from_bytes(hashlib.blake2b(told, digest_size=8).digest(), "big", signed=True)


def _spelt(found: Iterable[tuple[str, ToolRole]]) -> tuple[tuple[str, str, str], ...]:
    """Each tool and role once, with the name that comes first."""
    spelt: dict[tuple[str, str], str] = {}
    for name, role in found:
        spelt.setdefault((as_tool(name), role), storable(name))
    return tuple(sorted((tool, role, name) for (tool, role), name in spelt.items()))


def _tools(evaluation: Evaluation) -> Iterator[tuple[str, ToolRole]]:
    for name in evaluation.run.tools_used:
        yield name, "called"
    for row in evaluation.comparison.rows:
        if row.expected is not None and row.verdict in ("paired", "missing"):
            for name in _names(row.expected):
                yield name, "expected"
                if row.verdict == "missing":
                    yield name, "missing"
        if row.called is not None and row.verdict in ("unexpected", "forbidden"):
            yield row.called.name, row.verdict
        if row.called is not None and row.called.error is not None:
            yield row.called.name, "failed"


def _names(item: Item) -> Iterator[str]:
    """The tools that are expected: of alternatives, all of them."""
    if isinstance(item, ExpectedTool):
        yield item.name
        return
    inner = [each for option in item.options for each in option] if isinstance(item, AnyOf) else item.items
    for each in inner:
        yield from _names(each)
