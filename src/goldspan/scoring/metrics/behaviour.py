"""What changed the world: the successful calls of tools that are declared to write.

The golden declares it: by `write_tools`, which names them all, or in the vocabulary of its file. Of a tool of which
neither says anything, the telemetry may know what its MCP server does: `readOnlyHint`.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import combinations, starmap

from goldspan.content.tools import fold_name
from goldspan.goldens.tool_names import NameKeys, ToolNameMatcher, tool_name_matcher
from goldspan.model import (
    NO_VOCABULARY,
    ONCE,
    AnyOf,
    Comparison,
    ComparisonRow,
    ExpectedTool,
    Golden,
    RowVerdict,
    Run,
    Times,
    ToolCall,
    Vocabulary,
)
from goldspan.scoring.arguments.multisets import certainly_differ, equality_keys
from goldspan.scoring.metrics.call_correctness import describe_difference
from goldspan.scoring.metrics.metric import MetricEvidence, alternative_calls, summarize_names
from goldspan.scoring.run_comparison import assuming_suspected_failures, compare_run


def tool_success(seen: Comparison) -> float | None:
    """Of the calls that were made and are known to have failed or not, the share that did not. Needs no golden."""
    known = [call.succeeded for call in seen.calls if call.succeeded is not None]
    return sum(known) / len(known) if known else None


def success_bounds(seen: Comparison) -> tuple[float, float]:
    """The share of calls that did not fail if all of which it is not known failed, and if none of them did."""
    went = [call.succeeded for call in seen.calls]
    return (went.count(True) / len(went), 1 - went.count(False) / len(went)) if went else (1.0, 1.0)


def redundant_calls(seen: Comparison) -> float | None:
    """Of the calls that were made, the share that repeats no earlier successful one. Needs no golden.

    A repeat has the same tool and the same arguments. To try again what failed is no repeat; of what may have failed
    it is not known.
    """
    calls = seen.calls
    if not calls:
        return None
    if len({fold_name(call.name) for call in calls}) == len(calls):  # as in most runs
        return 1.0
    repeated = _repeated_calls(calls)
    return None if repeated is None else 1 - len(repeated) / len(calls)


def unknown_tools(seen: Comparison) -> float | None:
    """Of the calls that were made, the share whose tool the agent was offered, or the golden's file declares.

    Needs no golden. What the model's provider runs is no tool of the agent's and does not count.
    """
    if not seen.run.available_tools:
        return None
    calls = _agent_tool_calls(seen)
    return 1 - len(_unknown_tool_calls(seen, calls)) / len(calls) if calls else None


def forbidden_tools(seen: Comparison) -> float | None:
    """1 if no forbidden tool was called, else 0."""
    forbids = seen.golden is not None and seen.golden.forbid
    return float(not seen.forbidden) if forbids else None


def call_budget(seen: Comparison) -> float | None:
    """1 if no more calls were made than the golden allows, else the share that it allows: 8 of 10 calls are 0.8."""
    allowed = seen.golden.max_calls if seen.golden else None
    if allowed is None:
        return None
    return 1.0 if len(seen.calls) <= allowed else allowed / len(seen.calls)


def has_calls(seen: Comparison) -> bool:
    """Whether any call was made."""
    return bool(seen.calls)


def why_missing_success(seen: Comparison) -> str:
    """Why it cannot be told how many calls failed, or whether so few did."""
    unknown = [call for call in seen.calls if call.succeeded is None]
    return (
        f"whether {summarize_names([call.name for call in unknown])} failed is not known"
        if unknown
        else "no tool was called"
    )


def why_missing_redundant_calls(seen: Comparison) -> str:
    """Why repeats cannot be counted."""
    if not seen.calls:
        return "no tool was called"
    ended = [replace(call, evidence="executed", error_guess=None) for call in seen.calls]
    if _repeated_calls(ended) is None:
        return "the arguments of calls of one tool were not captured"
    return "whether a call that was made again had failed is not known"


def why_missing_unknown_tools(seen: Comparison) -> str:
    """Why it cannot be told which tools the agent has."""
    return "no tool was called" if seen.run.available_tools else "the tools the agent was offered were not captured"


# --- accounts ---------------------------------------------------------------------------------------------------------


def explain_success(seen: Comparison) -> Iterator[MetricEvidence]:
    """Which calls succeeded and which failed."""
    yield MetricEvidence("succeeded", [call for call in seen.calls if call.succeeded])
    yield MetricEvidence("failed", [call for call in seen.calls if call.succeeded is False], is_fault=True)
    if unknown := [call for call in seen.calls if call.succeeded is None]:
        yield MetricEvidence("not known to have succeeded or failed", unknown)


def explain_redundant_calls(seen: Comparison) -> Iterator[MetricEvidence]:
    """Which calls repeat an earlier one."""
    yield MetricEvidence("called", seen.calls)
    yield MetricEvidence("called again with the same arguments", _repeated_calls(seen.calls) or (), is_fault=True)


def explain_unknown_tools(seen: Comparison) -> Iterator[MetricEvidence]:
    """Which calls are of a tool that the agent has not."""
    calls = _agent_tool_calls(seen)
    yield MetricEvidence("called", calls)
    yield MetricEvidence("called but not among the agent's tools", _unknown_tool_calls(seen, calls), is_fault=True)


def explain_forbidden_tools(seen: Comparison) -> Iterator[MetricEvidence]:
    """Which calls are forbidden."""
    yield MetricEvidence("called but forbidden", seen.forbidden, is_fault=True)


def explain_call_budget(seen: Comparison) -> Iterator[MetricEvidence]:
    """How many calls were made, and how many are allowed."""
    allowed = seen.golden.max_calls if seen.golden else None
    yield MetricEvidence(f"of {allowed} allowed calls were made", [str(len(seen.calls))], is_fault=True)


# --- helpers ----------------------------------------------------------------------------------------------------------


def _repeated_calls(calls: Sequence[ToolCall]) -> list[ToolCall] | None:
    """The calls that repeat an earlier successful one; `None` where it is not known, because arguments that would tell
    were not captured or the earlier one may have failed."""
    of_tool: dict[str, list[ToolCall]] = {}
    for call in calls:
        of_tool.setdefault(fold_name(call.name), []).append(call)
    repeated: list[ToolCall] = []
    for alike in of_tool.values():
        again = _repeated_calls_of_tool(alike) if len(alike) > 1 else []
        if again is None:
            return None
        repeated += again
    return repeated


def _repeated_calls_of_tool(calls: Sequence[ToolCall]) -> list[ToolCall] | None:
    """The same of the calls of one tool."""
    if len(calls) <= _MAX_PAIRWISE_CALLS and all(
        starmap(certainly_differ, combinations([call.arguments for call in calls], 2))
    ):
        return []  # as in most runs
    before: set[Hashable] = set()
    perhaps: set[Hashable] = set()
    again: list[ToolCall] = []
    for call, arguments in zip(calls, equality_keys([call.arguments for call in calls]), strict=True):
        if (before or perhaps) and (call.arguments is None or None in before or None in perhaps):
            return None
        # Arguments without a key, such as values of a program's own types, are like no others.
        key = None if call.arguments is None else (call.server, id(call) if arguments is None else arguments)
        if key in before:
            again.append(call)
        elif key in perhaps:
            return None
        elif call.succeeded is not False:
            (before if call.succeeded else perhaps).add(key)
    return again


_MAX_PAIRWISE_CALLS = 6
"""So many calls are looked at two by two: fifteen pairs take half the time that the keys of six calls do."""


def _agent_tool_calls(seen: Comparison) -> list[ToolCall]:
    return [call for call in seen.calls if call.kind == "tool"]


def _unknown_tool_calls(seen: Comparison, calls: Sequence[ToolCall]) -> list[ToolCall]:
    vocabulary = seen.golden.vocabulary if seen.golden else NO_VOCABULARY
    known = _offered_keys(tuple(tool.name for tool in seen.run.available_tools), vocabulary)
    read = tool_name_matcher(vocabulary)
    return [call for call in calls if known.isdisjoint(read.called_keys(call)) and not read.is_declared(call)]


@lru_cache(maxsize=64)
def _offered_keys(offered: tuple[str, ...], vocabulary: Vocabulary) -> NameKeys:
    """What the names of these tools have in common with those of their calls."""
    read = tool_name_matcher(vocabulary)
    return frozenset().union(*(read.expected_keys(ExpectedTool(name)) for name in offered))


def effect_correctness(seen: Comparison) -> float | None:
    """Of the changes that were expected or made, the share that is right: the tool, and how far its arguments agree.

    A change is a successful call of a tool that writes. Reads do not count, expected or not, and neither do failed
    calls, what the golden tolerates, and the order. 1 where nothing was to change and nothing did. Arguments that were
    not captured are taken for right: the name alone decides. `None` where no tool has a declared effect, and where it
    depends on calls that may have failed.
    """
    return _share_if_certain(_write_tools_of_run(seen), seen)


def declared_effect_share(seen: Comparison) -> float | None:
    """The same by what the golden and its file declare alone, and not by what the telemetry says of tools."""
    golden = seen.golden
    return (
        None
        if golden is None
        else _share_if_certain(_declared_write_tools(golden.vocabulary, golden.write_tools, ()), seen)
    )


def effect_threshold(golden: Golden) -> float | None:
    """1 where the golden or its file declares what changes something: then every change has to be right."""
    return None if _declared_write_tools(golden.vocabulary, golden.write_tools, ()) is None else 1.0


def _share_if_certain(effects: _WriteTools | None, seen: Comparison) -> float | None:
    if effects is None:
        return None
    share = effects.share(seen)
    failed = assuming_suspected_failures(seen)
    return share if failed is None or effects.share(failed) == share else None


def why_missing_effects(seen: Comparison) -> str:
    """Why it cannot be told how much of what changed is right."""
    unknown = "whether a call that was to change something failed is not known"
    return "no tool has a declared effect" if _write_tools_of_run(seen) is None else unknown


def explain_effects(seen: Comparison) -> Iterator[MetricEvidence]:
    """Which changes are right, wrong in their arguments, lacking, and not wanted."""
    effects = _write_tools_of_run(seen)
    if effects is None:
        return
    changes = effects.changes(seen)
    yield MetricEvidence("changes as expected", [row for row, share in changes if share == 1])
    wrong = [row for row, share in changes if share < 1]
    made = [row for row in wrong if row.called is not None and row.called.error is None]
    differ = [describe_difference(row, row.agreement, "arguments") for row in made if row.expected and row.agreement]
    yield MetricEvidence("changes that differ", differ, is_fault=True)
    lacking = [row for row in wrong if row.called is None or row.called.error is not None]
    yield MetricEvidence("expected changes that were not made", lacking, is_fault=True)
    yield MetricEvidence("changes that nobody expected", [row for row in made if not row.expected], is_fault=True)


@dataclass(frozen=True, slots=True)
class _WriteTools:
    """Which tools change something."""

    naming: ToolNameMatcher
    write_keys: NameKeys

    def share(self, seen: Comparison) -> float:
        """The share of changes, expected or made, that is right."""
        shares = [share for _, share in self.changes(seen)]
        return sum(shares) / len(shares) if shares else 1.0

    def changes(self, seen: Comparison) -> list[tuple[ComparisonRow, float]]:
        """The rows of changes, expected or made, each with how far it is right."""
        found = self._shares(seen.rows)
        if seen.golden is None or all(share == 1 for _, share in found) or _is_best_pairing(found, seen.golden):
            return found
        return self._shares(_compare_changes_only([row for row, _ in found], seen.run, seen.golden))

    def _shares(self, rows: Iterable[ComparisonRow]) -> list[tuple[ComparisonRow, float]]:
        return [(row, share) for row in rows if (share := self._share(row)) is not None]

    def _share(self, row: ComparisonRow) -> float | None:
        """How far the change of this row is right, 0 to 1; `None` where it is about no change."""
        if row.called is not None and self._is_write(row.called):
            if row.expected is not None:
                return row.agreement.share if row.agreement else 1.0
            return 0.0 if row.verdict in ("unexpected", "forbidden") else None
        if row.verdict in ("paired", "missing") and row.expected is not None and self._is_expected_write(row.expected):
            return 0.0
        return None

    def _is_write(self, call: ToolCall) -> bool:
        return call.error is None and call.was_made and not self.write_keys.isdisjoint(self.naming.called_keys(call))

    def _is_expected_write(self, expected: ExpectedTool | AnyOf) -> bool:
        """Whether a change was expected: of alternatives, one that only reads would have done."""
        return not any(
            self.write_keys.isdisjoint(self.naming.expected_keys(tool)) for tool in alternative_calls(expected)
        )


def _is_best_pairing(changes: Iterable[tuple[ComparisonRow, float]], golden: Golden) -> bool:
    """Whether nothing but likeness decided what stands beside what: no order, and no call that failed."""
    return golden.order == "any" and all(row.called is None or row.called.error is None for row, _ in changes)


def _compare_changes_only(changes: Sequence[ComparisonRow], run: Run, golden: Golden) -> Sequence[ComparisonRow]:
    """The same changes compared by themselves, each beside the one that it is most like."""
    tools = [replace(row.expected, times=_TIMES_BY_VERDICT.get(row.verdict, ONCE)) for row in changes if row.expected]
    made = [row.called for row in changes if row.called and row.called.error is None]
    # They are fewer now: the positions by which they speak of each other hold no longer.
    calls = [replace(call, concurrent_with=()) for call in made]
    alone = Golden("changes", tools=tuple(tools), forbid=golden.forbid, attempts="all", vocabulary=golden.vocabulary)
    return compare_run(replace(run, tool_calls=tuple(calls)), alone).rows


_TIMES_BY_VERDICT: Mapping[RowVerdict, Times] = {"tolerated": Times(0, 1)}


def _write_tools_of_run(seen: Comparison) -> _WriteTools | None:
    golden = seen.golden
    if golden is None:
        return None
    listed = golden.write_tools
    offered = seen.run.available_tools if listed is None else ()
    hints = tuple([(tool.name, tool.read_only) for tool in offered if tool.read_only is not None])
    if listed is None and not hints and not golden.vocabulary.tools:
        return None
    return _declared_write_tools(golden.vocabulary, listed, hints)


@lru_cache(maxsize=256)
def _declared_write_tools(
    vocabulary: Vocabulary, listed: tuple[str, ...] | None, hints: tuple[tuple[str, bool], ...]
) -> _WriteTools | None:
    """What changes something, by a vocabulary, the names that a golden lists, and which offered tools only read."""
    if listed is None and not hints and all(tool.effect is None for tool in vocabulary.tools):
        return None
    read = tool_name_matcher(vocabulary)
    declared = [(tool.effect, ExpectedTool(tool.name, server=tool.server)) for tool in vocabulary.tools if tool.effect]
    said = frozenset[str]().union(*(read.expected_keys(tool) for _, tool in declared))
    changing = [ExpectedTool(name) for name, reads in hints if not reads]
    writing = [read.expected_keys(tool) for tool in changing if said.isdisjoint(read.expected_keys(tool))]
    writing += [read.expected_keys(tool) for effect, tool in declared if effect == "write"]
    writing += [read.expected_keys(ExpectedTool(name)) for name in listed or ()]
    return _WriteTools(read, frozenset().union(*writing))
