"""What changed the world: the successful calls of tools that are declared to write.

The golden declares it: by `write_tools`, which names them all, or in the vocabulary of its file. Of a tool of which
neither says anything, the telemetry may know what its MCP server does: `readOnlyHint`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from goldspan.goldens.naming import Keys, Naming, naming
from goldspan.model import (
    ONCE,
    AnyOf,
    Comparison,
    ExpectedTool,
    Golden,
    Row,
    Run,
    Times,
    ToolCall,
    Verdict,
    Vocabulary,
)
from goldspan.scoring.guesses import if_failed
from goldspan.scoring.matching import compare_run
from goldspan.scoring.metrics.metric import Part, alternatives
from goldspan.scoring.metrics.values import differing


def effect_correctness(seen: Comparison) -> float | None:
    """Of the changes that were expected or made, the share that is right: the tool, and how far its arguments agree.

    A change is a successful call of a tool that writes. Reads do not count, expected or not, and neither do failed
    calls, what the golden tolerates, and the order. 1 where nothing was to change and nothing did. Arguments that were
    not captured are taken for right: the name alone decides. `None` where no tool has a declared effect, and where it
    depends on calls that may have failed.
    """
    return _share(_effects(seen), seen)


def stated_share(seen: Comparison) -> float | None:
    """The same by what the golden and its file declare alone, and not by what the telemetry says of tools."""
    golden = seen.golden
    return None if golden is None else _share(_declared(golden.vocabulary, golden.write_tools, ()), seen)


def threshold_of(golden: Golden) -> float | None:
    """1 where the golden or its file declares what changes something: then every change has to be right."""
    return None if _declared(golden.vocabulary, golden.write_tools, ()) is None else 1.0


def _share(effects: _Effects | None, seen: Comparison) -> float | None:
    if effects is None:
        return None
    share = effects.share(seen)
    failed = if_failed(seen)
    return share if failed is None or effects.share(failed) == share else None


def why_no_share(seen: Comparison) -> str:
    """Why it cannot be told how much of what changed is right."""
    unknown = "whether a call that was to change something failed is not known"
    return "no tool has a declared effect" if _effects(seen) is None else unknown


def account_of_effects(seen: Comparison) -> Iterator[Part]:
    """Which changes are right, wrong in their arguments, lacking, and not wanted."""
    effects = _effects(seen)
    if effects is None:
        return
    changes = effects.changes(seen)
    yield Part("changes as expected", [row for row, share in changes if share == 1])
    wrong = [row for row, share in changes if share < 1]
    made = [row for row in wrong if row.called is not None and row.called.error is None]
    differ = [differing(row, row.agreement, "arguments") for row in made if row.expected and row.agreement]
    yield Part("changes that differ", differ, fault=True)
    lacking = [row for row in wrong if row.called is None or row.called.error is not None]
    yield Part("expected changes that were not made", lacking, fault=True)
    yield Part("changes that nobody expected", [row for row in made if not row.expected], fault=True)


@dataclass(frozen=True, slots=True)
class _Effects:
    """Which tools change something."""

    naming: Naming
    writing: Keys

    def share(self, seen: Comparison) -> float:
        """The share of changes, expected or made, that is right."""
        shares = [share for _, share in self.changes(seen)]
        return sum(shares) / len(shares) if shares else 1.0

    def changes(self, seen: Comparison) -> list[tuple[Row, float]]:
        """The rows of changes, expected or made, each with how far it is right."""
        found = self._shares(seen.rows)
        if seen.golden is None or all(share == 1 for _, share in found) or _stand_best(found, seen.golden):
            return found
        return self._shares(_side_by_side([row for row, _ in found], seen.run, seen.golden))

    def _shares(self, rows: Iterable[Row]) -> list[tuple[Row, float]]:
        return [(row, share) for row in rows if (share := self._share(row)) is not None]

    def _share(self, row: Row) -> float | None:
        """How far the change of this row is right, 0 to 1; `None` where it is about no change."""
        if row.called is not None and self._changed(row.called):
            if row.expected is not None:
                return row.agreement.share if row.agreement else 1.0
            return 0.0 if row.verdict in ("unexpected", "forbidden") else None
        if row.verdict in ("paired", "missing") and row.expected is not None and self._wanted(row.expected):
            return 0.0
        return None

    def _changed(self, call: ToolCall) -> bool:
        return call.error is None and call.made and not self.writing.isdisjoint(self.naming.called(call))

    def _wanted(self, expected: ExpectedTool | AnyOf) -> bool:
        """Whether a change was expected: of alternatives, one that only reads would have done."""
        return not any(self.writing.isdisjoint(self.naming.wanted(tool)) for tool in alternatives(expected))


def _stand_best(changes: Iterable[tuple[Row, float]], golden: Golden) -> bool:
    """Whether nothing but likeness decided what stands beside what: no order, and no call that failed."""
    return golden.order == "any" and all(row.called is None or row.called.error is None for row, _ in changes)


def _side_by_side(changes: Sequence[Row], run: Run, golden: Golden) -> Sequence[Row]:
    """The same changes compared by themselves, each beside the one that it is most like."""
    tools = [replace(row.expected, times=_TIMES.get(row.verdict, ONCE)) for row in changes if row.expected]
    made = [row.called for row in changes if row.called and row.called.error is None]
    # They are fewer now: the positions by which they speak of each other hold no longer.
    calls = [replace(call, concurrent_with=()) for call in made]
    alone = Golden("changes", tools=tuple(tools), forbid=golden.forbid, attempts="all", vocabulary=golden.vocabulary)
    return compare_run(replace(run, tool_calls=tuple(calls)), alone).rows


_TIMES: Mapping[Verdict, Times] = {"tolerated": Times(0, 1)}


def _effects(seen: Comparison) -> _Effects | None:
    golden = seen.golden
    if golden is None:
        return None
    listed = golden.write_tools
    offered = seen.run.available_tools if listed is None else ()
    hints = tuple([(tool.name, tool.read_only) for tool in offered if tool.read_only is not None])
    if listed is None and not hints and not golden.vocabulary.tools:
        return None
    return _declared(golden.vocabulary, listed, hints)


@lru_cache(maxsize=256)
def _declared(
    vocabulary: Vocabulary, listed: tuple[str, ...] | None, hints: tuple[tuple[str, bool], ...]
) -> _Effects | None:
    """What changes something, by a vocabulary, the names that a golden lists, and which offered tools only read."""
    if listed is None and not hints and all(tool.effect is None for tool in vocabulary.tools):
        return None
    read = naming(vocabulary)
    declared = [(tool.effect, ExpectedTool(tool.name, server=tool.server)) for tool in vocabulary.tools if tool.effect]
    said = frozenset[str]().union(*(read.wanted(tool) for _, tool in declared))
    changing = [ExpectedTool(name) for name, reads in hints if not reads]
    writing = [read.wanted(tool) for tool in changing if said.isdisjoint(read.wanted(tool))]
    writing += [read.wanted(tool) for effect, tool in declared if effect == "write"]
    writing += [read.wanted(ExpectedTool(name)) for name in listed or ()]
    return _Effects(read, frozenset().union(*writing))
