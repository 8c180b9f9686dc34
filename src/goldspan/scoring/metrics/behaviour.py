"""Metrics of failures, repeated and unknown calls, limits and side effects.

A side effect is a successful call of a tool that writes. The golden declares these tools with `write_tools`, which is a
complete list, or in the vocabulary of its file. For a tool that neither declares, MCP's `readOnlyHint` in the telemetry
applies.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

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
from goldspan.model.name_folding import fold_name
from goldspan.scoring.arguments.multisets import certainly_differ, equality_keys, plain_keys
from goldspan.scoring.metrics.call_correctness import describe_difference
from goldspan.scoring.metrics.metric import MetricEvidence, alternative_calls, summarize_names
from goldspan.scoring.run_comparison import assuming_suspected_failures, compare_run


def tool_success(comparison: Comparison) -> float | None:
    """Returns the share of the calls with a known outcome that did not fail. Needs no golden."""
    known = [call.succeeded for call in comparison.calls if call.succeeded is not None]
    return sum(known) / len(known) if known else None


def success_bounds(comparison: Comparison) -> tuple[float, float]:
    """Returns the share of calls that did not fail, if all calls with an unknown outcome failed, and if none did."""
    outcomes = [call.succeeded for call in comparison.calls]
    if not outcomes:
        return 1.0, 1.0
    return outcomes.count(True) / len(outcomes), 1 - outcomes.count(False) / len(outcomes)


def redundant_calls(comparison: Comparison) -> float | None:
    """Returns the share of the calls that repeat no earlier successful call. Needs no golden.

    A repeat has the same tool and the same arguments. A retry of a failed call is not a repeat; whether a call that may
    have failed was retried or repeated is not known.
    """
    calls = comparison.calls
    if not calls:
        return None
    repeated = _repeated_calls(calls)
    return None if repeated is None else 1 - len(repeated) / len(calls)


def unknown_tools(comparison: Comparison) -> float | None:
    """Returns the share of the calls whose tool the agent was offered or the golden's file declares.

    Needs no golden. Tools that the model's provider executes do not count.
    """
    if not comparison.run.available_tools:
        return None
    calls = _agent_tool_calls(comparison)
    return 1 - len(_unknown_tool_calls(comparison, calls)) / len(calls) if calls else None


def forbidden_tools(comparison: Comparison) -> float | None:
    """Returns 1 if no forbidden tool was called, else 0."""
    forbids = comparison.golden is not None and comparison.golden.forbid
    return float(not comparison.forbidden) if forbids else None


def call_budget(comparison: Comparison) -> float | None:
    """Returns 1 if the golden allows the number of calls, else the allowed share: 0.8 if 8 of 10 calls are allowed."""
    allowed = comparison.golden.max_calls if comparison.golden else None
    if allowed is None:
        return None
    return 1.0 if len(comparison.calls) <= allowed else allowed / len(comparison.calls)


def has_calls(comparison: Comparison) -> bool:
    """Whether any call was made."""
    return bool(comparison.calls)


def why_missing_success(comparison: Comparison) -> str:
    """Returns why the share of failed calls, or its threshold, is undecided."""
    unknown = [call for call in comparison.calls if call.succeeded is None]
    return (
        f"whether {summarize_names([call.name for call in unknown])} failed is not known"
        if unknown
        else "no tool was called"
    )


def why_missing_redundant_calls(comparison: Comparison) -> str:
    """Returns why repeats cannot be counted."""
    if not comparison.calls:
        return "no tool was called"
    ended = [replace(call, evidence="executed", error_guess=None) for call in comparison.calls]
    if _repeated_calls(ended) is None:
        return "the arguments of calls of one tool were not captured"
    return "whether a call that was made again had failed is not known"


def why_missing_unknown_tools(comparison: Comparison) -> str:
    """Returns why unknown tools cannot be counted."""
    return (
        "no tool was called" if comparison.run.available_tools else "the tools the agent was offered were not captured"
    )


# --- evidence ---------------------------------------------------------------------------------------------------------


def explain_success(comparison: Comparison) -> Iterator[MetricEvidence]:
    """Yield the calls that succeeded and those that failed."""
    yield MetricEvidence("succeeded", [call for call in comparison.calls if call.succeeded])
    yield MetricEvidence("failed", [call for call in comparison.calls if call.succeeded is False], is_fault=True)
    if unknown := [call for call in comparison.calls if call.succeeded is None]:
        yield MetricEvidence("not known to have succeeded or failed", unknown)


def explain_redundant_calls(comparison: Comparison) -> Iterator[MetricEvidence]:
    """Yield the calls, and those that repeat an earlier one."""
    yield MetricEvidence("called", comparison.calls)
    yield MetricEvidence("called again with the same arguments", _repeated_calls(comparison.calls) or (), is_fault=True)


def explain_unknown_tools(comparison: Comparison) -> Iterator[MetricEvidence]:
    """Yield the calls, and those of tools that the agent does not have."""
    calls = _agent_tool_calls(comparison)
    yield MetricEvidence("called", calls)
    yield MetricEvidence(
        "called but not among the agent's tools", _unknown_tool_calls(comparison, calls), is_fault=True
    )


def explain_forbidden_tools(comparison: Comparison) -> Iterator[MetricEvidence]:
    """Yield the forbidden calls."""
    yield MetricEvidence("called but forbidden", comparison.forbidden, is_fault=True)


def explain_call_budget(comparison: Comparison) -> Iterator[MetricEvidence]:
    """Yield the number of calls, and the allowed number."""
    allowed = comparison.golden.max_calls if comparison.golden else None
    yield MetricEvidence(f"of {allowed} allowed calls were made", [str(len(comparison.calls))], is_fault=True)


# --- helpers ----------------------------------------------------------------------------------------------------------


def _repeated_calls(calls: Sequence[ToolCall]) -> list[ToolCall] | None:
    """Returns the calls that repeat an earlier successful one; `None`: not known, because arguments were not captured
    or the earlier call may have failed."""
    by_tool: dict[str, list[ToolCall]] = {}
    for call in calls:
        by_tool.setdefault(fold_name(call.name), []).append(call)
    repeated: list[ToolCall] = []
    if len(by_tool) == len(calls):  # as in most runs
        return repeated
    for tool_calls in by_tool.values():
        repeated_of_tool = _repeated_calls_of_tool(tool_calls) if len(tool_calls) > 1 else []
        if repeated_of_tool is None:
            return None
        repeated += repeated_of_tool
    return repeated


def _repeated_calls_of_tool(calls: Sequence[ToolCall]) -> list[ToolCall] | None:
    """Returns the repeated calls among those of one tool."""
    stated = [call.arguments for call in calls]
    if len(calls) == 2 and certainly_differ(*stated):  # as most do
        return []
    keys = plain_keys(stated) if len(calls) <= _MAX_PAIRWISE_CALLS else None
    succeeded: set[Hashable] = set()
    maybe_failed: set[Hashable] = set()
    repeated: list[ToolCall] = []
    for call, arguments in zip(calls, equality_keys(stated) if keys is None else keys, strict=True):
        if (succeeded or maybe_failed) and (call.arguments is None or None in succeeded or None in maybe_failed):
            return None
        # Arguments without a key, such as values of the application's types, equal no others.
        key = None if call.arguments is None else (call.server, id(call) if arguments is None else arguments)
        if key in succeeded:
            repeated.append(call)
        elif key in maybe_failed:
            return None
        elif call.succeeded is not False:
            (succeeded if call.succeeded else maybe_failed).add(key)
    return repeated


_MAX_PAIRWISE_CALLS = 6
"""Up to this number, calls are compared in pairs: fifteen pairs take half the time of the keys of six calls."""


def _agent_tool_calls(comparison: Comparison) -> list[ToolCall]:
    return [call for call in comparison.calls if call.kind == "tool"]


def _unknown_tool_calls(comparison: Comparison, calls: Sequence[ToolCall]) -> list[ToolCall]:
    vocabulary = comparison.golden.vocabulary if comparison.golden else NO_VOCABULARY
    known = _offered_keys(tuple(tool.name for tool in comparison.run.available_tools), vocabulary)
    names = tool_name_matcher(vocabulary)
    return [call for call in calls if known.isdisjoint(names.called_keys(call)) and not names.is_declared(call)]


@lru_cache(maxsize=64)
def _offered_keys(offered: tuple[str, ...], vocabulary: Vocabulary) -> NameKeys:
    """Returns the name keys of the offered tools, which their calls share."""
    names = tool_name_matcher(vocabulary)
    return frozenset().union(*(names.expected_keys(ExpectedTool(name)) for name in offered))


# --- side effects -----------------------------------------------------------------------------------------------------


def effect_correctness(comparison: Comparison) -> float | None:
    """Returns the share of the expected and the made changes that is right, by tool and agreement of arguments.

    A change is a successful call of a tool that writes. Reads, failed calls, tolerated calls and the order do not
    count. The value is 1 if no change was expected and none was made. Arguments that were not captured count as right.
    The value is `None` if no tool has a declared effect, or if it depends on calls that may have failed.
    """
    return _share_if_certain(_write_tools_of_run(comparison), comparison)


def declared_effect_share(comparison: Comparison) -> float | None:
    """Returns the same share, with the effects that the golden and its file declare and without those of telemetry."""
    golden = comparison.golden
    return (
        None
        if golden is None
        else _share_if_certain(_declared_write_tools(golden.vocabulary, golden.write_tools, ()), comparison)
    )


def effect_threshold(golden: Golden) -> float | None:
    """Returns 1 if the golden or its file declares a tool that writes: every change must then be right."""
    return None if _declared_write_tools(golden.vocabulary, golden.write_tools, ()) is None else 1.0


def _share_if_certain(effects: _WriteTools | None, comparison: Comparison) -> float | None:
    if effects is None:
        return None
    share = effects.share(comparison)
    failed = assuming_suspected_failures(comparison)
    return share if failed is None or effects.share(failed) == share else None


def why_missing_effects(comparison: Comparison) -> str:
    """Returns why the share of right changes cannot be computed."""
    unknown = "whether a call that was to change something failed is not known"
    return "no tool has a declared effect" if _write_tools_of_run(comparison) is None else unknown


def explain_effects(comparison: Comparison) -> Iterator[MetricEvidence]:
    """Yield the changes that are right, that have wrong arguments, that are missing, and that are unexpected."""
    effects = _write_tools_of_run(comparison)
    if effects is None:
        return
    changes = effects.changes(comparison)
    yield MetricEvidence("changes as expected", [row for row, share in changes if share == 1])
    wrong = [row for row, share in changes if share < 1]
    made = [row for row in wrong if row.called is not None and row.called.error is None]
    differ = [describe_difference(row, row.agreement, "arguments") for row in made if row.expected and row.agreement]
    yield MetricEvidence("changes that differ", differ, is_fault=True)
    missing = [row for row in wrong if row.called is None or row.called.error is not None]
    yield MetricEvidence("expected changes that were not made", missing, is_fault=True)
    yield MetricEvidence("changes that nobody expected", [row for row in made if not row.expected], is_fault=True)


@dataclass(frozen=True, slots=True)
class _WriteTools:
    """The tools that write."""

    naming: ToolNameMatcher
    write_keys: NameKeys

    def share(self, comparison: Comparison) -> float:
        """Returns the share of the expected and the made changes that is right."""
        shares = [share for _, share in self.changes(comparison)]
        return sum(shares) / len(shares) if shares else 1.0

    def changes(self, comparison: Comparison) -> list[tuple[ComparisonRow, float]]:
        """Returns the rows of the expected and the made changes, each with the share that is right."""
        found = self._shares(comparison.rows)
        if (
            comparison.golden is None
            or all(share == 1 for _, share in found)
            or _is_best_pairing(found, comparison.golden)
        ):
            return found
        return self._shares(_compare_changes_only([row for row, _ in found], comparison.run, comparison.golden))

    def _shares(self, rows: Iterable[ComparisonRow]) -> list[tuple[ComparisonRow, float]]:
        return [(row, share) for row in rows if (share := self._share(row)) is not None]

    def _share(self, row: ComparisonRow) -> float | None:
        """Returns how far the change of a row is right, 0 to 1; `None`: the row is not a change."""
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
        """Whether a change was expected: every alternative is a tool that writes."""
        return not any(
            self.write_keys.isdisjoint(self.naming.expected_keys(tool)) for tool in alternative_calls(expected)
        )


def _is_best_pairing(changes: Iterable[tuple[ComparisonRow, float]], golden: Golden) -> bool:
    """Whether only the agreement decided the pairing: the golden requires no order, and no call failed."""
    return golden.order == "any" and all(row.called is None or row.called.error is None for row, _ in changes)


def _compare_changes_only(changes: Sequence[ComparisonRow], run: Run, golden: Golden) -> Sequence[ComparisonRow]:
    """Compare only the changes, so that each is matched with the one that agrees best."""
    tools = [replace(row.expected, times=_TIMES_BY_VERDICT.get(row.verdict, ONCE)) for row in changes if row.expected]
    made = [row.called for row in changes if row.called and row.called.error is None]
    # The positions in `concurrent_with` are not valid in the shorter list.
    calls = [replace(call, concurrent_with=()) for call in made]
    only = Golden("changes", tools=tuple(tools), forbid=golden.forbid, attempts="all", vocabulary=golden.vocabulary)
    return compare_run(replace(run, tool_calls=tuple(calls)), only).rows


_TIMES_BY_VERDICT: Mapping[RowVerdict, Times] = {"tolerated": Times(0, 1)}


def _write_tools_of_run(comparison: Comparison) -> _WriteTools | None:
    golden = comparison.golden
    if golden is None:
        return None
    listed = golden.write_tools
    offered = comparison.run.available_tools if listed is None else ()
    hints = tuple([(tool.name, tool.read_only) for tool in offered if tool.read_only is not None])
    if listed is None and not hints and not golden.vocabulary.tools:
        return None
    return _declared_write_tools(golden.vocabulary, listed, hints)


@lru_cache(maxsize=256)
def _declared_write_tools(
    vocabulary: Vocabulary, listed: tuple[str, ...] | None, hints: tuple[tuple[str, bool], ...]
) -> _WriteTools | None:
    """Returns the tools that write, from a vocabulary, a golden's `write_tools`, and the hints of offered tools."""
    if listed is None and not hints and all(tool.effect is None for tool in vocabulary.tools):
        return None
    names = tool_name_matcher(vocabulary)
    declared = [(tool.effect, ExpectedTool(tool.name, server=tool.server)) for tool in vocabulary.tools if tool.effect]
    declared_keys = frozenset[str]().union(*(names.expected_keys(tool) for _, tool in declared))
    hinted = [names.expected_keys(ExpectedTool(name)) for name, is_read_only in hints if not is_read_only]
    write_keys = [keys for keys in hinted if declared_keys.isdisjoint(keys)]
    write_keys += [names.expected_keys(tool) for effect, tool in declared if effect == "write"]
    write_keys += [names.expected_keys(ExpectedTool(name)) for name in listed or ()]
    return _WriteTools(names, frozenset().union(*write_keys))
