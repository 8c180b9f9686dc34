"""Finds the requirements of a golden that a run breaks, and those that its telemetry does not decide."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from functools import lru_cache

from goldspan.goldens.tool_names import ToolNameMatcher, explicit_server, tool_name_matcher
from goldspan.model import (
    ABSENT,
    Agreement,
    AnyOf,
    Comparison,
    ComparisonRow,
    ExpectedItem,
    ExpectedTool,
    Golden,
    Parallel,
    RequirementResult,
    ToolCall,
    fast_constructor,
)
from goldspan.scoring.arguments.agreement import FULL_AGREEMENT, argument_share, result_share
from goldspan.scoring.matching.best_match import EXTRA
from goldspan.scoring.matching.match_costs import SchemaLookup, schema_lookup
from goldspan.scoring.matching.slot_plan import is_call_of, matches_agent
from goldspan.scoring.metrics import call_correctness
from goldspan.scoring.metrics.metric import alternative_calls


def find_violations(comparison: Comparison, golden: Golden) -> Iterator[RequirementResult]:
    """Yield each requirement of the golden that the run breaks."""
    for row in comparison.forbidden:
        yield row_statement("forbidden", row, "was called but forbidden")
    if golden.max_calls is not None and len(comparison.calls) > golden.max_calls:
        yield RequirementResult(
            "max_calls", f"{len(comparison.calls)} calls were made and {golden.max_calls} are allowed"
        )
    if golden.policy:
        return
    for row in comparison.missing:
        yield row_statement("missing", row, "was not called")
    for row in penalized_calls(comparison, golden):
        yield row_statement("unexpected", row, "was called but not expected")
    for row, allowed in calls_over_limit(comparison, golden):
        if allowed is not None:
            yield row_statement("times", row, f"was called more than {'once' if allowed == 1 else f'{allowed} times'}")
    is_ordered = golden.order != "any"
    for row in call_correctness.matched_rows(comparison):
        if is_ordered and row.in_order is False:
            yield row_statement("order", row, "was called out of order")
        if row.agreement is FULL_AGREEMENT and row.result_agreement is None:  # as most are
            continue
        if has_differences(row.agreement):
            yield row_statement("arguments", row, "differs in its arguments")
        if has_differences(row.result_agreement) and has_result(row):
            yield row_statement("result", row, "differs in its result")


def row_statement(about: str, row: ComparisonRow, what: str) -> RequirementResult:
    """Returns a result about the expectation or the call of a row."""
    tool = row.expected or row.called
    return _RequirementResult(about, f"{tool.name if tool else ''} {what}", row.expected_at, row.called_at)


_RequirementResult = fast_constructor(RequirementResult)


def has_differences(agreement: Agreement | None) -> bool:
    """Whether values differ that could be compared."""
    if agreement is None or not agreement.differences:
        return False
    return any(difference.note is None for difference in agreement.differences)


def has_result(row: ComparisonRow) -> bool:
    """Whether the result of a call was captured. The result of a failed call is often missing."""
    return row.called is not None and row.called.result is not None


def penalized_calls(comparison: Comparison, golden: Golden) -> Sequence[ComparisonRow]:
    """Returns the unexpected calls that make the run fail: all, if the golden requires no call or penalizes them."""
    if not comparison.unexpected:
        return ()
    if golden.extra == "penalize" or golden.order == "exact" or not (comparison.pairs or comparison.missing):
        return comparison.unexpected
    if golden.mode == "set":
        return call_correctness.calls_of_other_tools(comparison)
    return comparison.unexpected if golden.mode != "recall" else ()


# --- times ------------------------------------------------------------------------------------------------------------


def calls_over_limit(comparison: Comparison, golden: Golden) -> Iterator[tuple[ComparisonRow, int | None]]:
    """Yield the calls beyond the number that `times` allows, each with that number.

    A call exceeds the limit if every expectation that it meets states a limit. The number is `None` if arguments or
    results that were not captured decide it.
    """
    if not _has_call_limits(golden):
        return
    names = tool_name_matcher(golden.vocabulary)
    schemas = schema_lookup(comparison.run, golden, names)
    unknown = [row.expected for row in call_correctness.matched_rows(comparison) if has_unknown_content(row)]
    for row in comparison.rows:
        call = row.called
        if call is None or not (row.verdict == "unexpected" or row.note == EXTRA):
            continue
        would_meet = [(item, _satisfies(item, call, names, schemas)) for item in _repeatable_items(golden.tools)]
        met = [item for item, meets in would_meet if meets is True]
        maybe_met = [item for item, meets in would_meet if meets is None]
        if not all(map(_has_call_limit, met)) or not any(map(_has_call_limit, met + maybe_met)):
            continue
        met_tools = [tool for item in met for tool in alternative_calls(item)]
        is_known = met and all(map(_has_call_limit, maybe_met)) and not any(tool in met_tools for tool in unknown)
        yield row, sum(item.times.most or 0 for item in met) if is_known else None


def has_unknown_content(row: ComparisonRow) -> bool:
    """Whether the golden states arguments or a result that were not captured for the matched call."""
    expected = row.expected
    return isinstance(expected, ExpectedTool) and (
        (expected.arguments is not None and row.agreement is None)
        or (expected.result is not ABSENT and not has_result(row))
    )


def _has_call_limit(item: ExpectedTool | AnyOf) -> bool:
    return item.times.stated and item.times.most is not None


def _satisfies(
    item: ExpectedTool | AnyOf, call: ToolCall, names: ToolNameMatcher, schemas: SchemaLookup
) -> bool | None:
    """Whether a call meets an expectation completely; `None`: not known."""
    tools = [tool for tool in alternative_calls(item) if is_call_of(tool, call, names) and matches_agent(tool, call)]
    found = [_satisfies_tool(tool, call, schemas) for tool in tools]
    return True if True in found else None if None in found else False


def _satisfies_tool(tool: ExpectedTool, call: ToolCall, schemas: SchemaLookup) -> bool | None:
    shares = []
    if tool.arguments is not None:
        shares.append(argument_share(tool, call, schemas(call)))
    if tool.result is not ABSENT:
        shares.append(None if call.result is None else result_share(tool, call))
    if any(share is not None and share < 1 for share in shares):
        return False
    return None if None in shares else True


@lru_cache(maxsize=2048)
def _has_call_limits(golden: Golden) -> bool:
    return any(map(_has_call_limit, _repeatable_items(golden.tools)))


def _repeatable_items(items: Sequence[ExpectedItem]) -> Iterator[ExpectedTool | AnyOf]:
    """Yield every item that can state `times`, including the items inside alternatives without `times`."""
    for item in items:
        if isinstance(item, Parallel):
            yield from _repeatable_items(item.items)
        elif isinstance(item, AnyOf) and not item.times.stated:
            for option in item.options:
                yield from _repeatable_items(option)
        else:
            yield item


CALLS_NOT_VISIBLE = "no tool call was seen, and nothing shows that one would have been"
"""The reason of a run whose telemetry would not show a tool call."""

_REPEATS_UNKNOWN = "whether {tool} was called again with the same arguments is not known"


def find_unknowns(comparison: Comparison, golden: Golden) -> Iterator[RequirementResult]:
    """Yield each requirement of the golden that the telemetry does not decide."""
    if golden.policy:
        return
    rows: Sequence[ComparisonRow] = call_correctness.matched_rows(comparison)
    if _states_only_arguments(golden):
        # Arguments that differ in values that could be compared are known.
        rows = [row for row in rows if row.agreement is not FULL_AGREEMENT and not has_differences(row.agreement)]
    names = tool_name_matcher(golden.vocabulary) if rows else None
    for row in rows:
        expected, called = row.expected, row.called
        if called is None or not isinstance(expected, ExpectedTool):
            continue
        is_compared = row.agreement is not None and not row.agreement.differences
        if (
            expected.arguments is not None
            and not is_compared
            and (why := _why_not_compared(row.agreement, "arguments", bool(called.raw_arguments)))
        ):
            yield _unknown_statement("arguments", row, why)
        if expected.result is not ABSENT and (why := _why_result_not_compared(row)):
            yield _unknown_statement("result", row, why)
        if expected.agent is not None and called.agent is None:
            yield _unknown_statement("agent", row, "which agent called {tool} is not known")
        if names and explicit_server(expected) is not None and not names.is_server_known(expected, called):
            why = f"the server of {called.name} is not known; declare it under tools, or expect it of any server"
            yield RequirementResult("server", why, row.expected_at, row.called_at)
    for row, allowed in calls_over_limit(comparison, golden):
        if allowed is None:
            yield _unknown_statement("times", row, _REPEATS_UNKNOWN)


@lru_cache(maxsize=2048)
def _states_only_arguments(golden: Golden) -> bool:
    """Whether a golden states no result, agent or server, so that only arguments can be unknown."""
    return all(
        tool.result is ABSENT and tool.agent is None and explicit_server(tool) is None for tool in golden.expected_calls
    )


def tool_with_unknown_repeats(comparison: Comparison, golden: Golden) -> str | None:
    """Returns a tool for which it is relevant, and not known, whether two calls had the same arguments; else `None`.

    With `attempts: effective` a failed call does not count if it is retried, and with `duplicates: ignore` a call does
    not count if it repeats an earlier one.
    """
    if golden.policy or not (golden.attempts == "effective" or golden.duplicates == "ignore"):
        return None
    failures_matter = golden.duplicates != "ignore"
    if failures_matter and comparison.is_all_successful:
        return None
    calls = [row.called for row in comparison.rows if row.called is not None and row.called.was_made]
    if failures_matter and all(call.error is None for call in calls):
        return None
    names = tool_name_matcher(golden.vocabulary)
    by_tool: dict[Hashable, list[ToolCall]] = {}
    for call in calls:
        by_tool.setdefault(names.tool_identity(call), []).append(call)
    for same in by_tool.values():
        counts = golden.duplicates == "ignore" or any(call.error is not None for call in same[:-1])
        if len(same) > 1 and counts and any(call.arguments is None for call in same):
            return same[0].name
    return None


def unknown_repeats_statement(tool: str) -> RequirementResult:
    """Returns the result for a verdict that depends on whether two calls of a tool had the same arguments."""
    return RequirementResult("repeats", f"whether {tool} was called again with the same arguments is not known")


def _unknown_statement(about: str, row: ComparisonRow, why: str) -> RequirementResult:
    tool = row.expected or row.called
    return RequirementResult(about, why.format(tool=tool.name if tool else ""), row.expected_at, row.called_at)


def _why_not_compared(agreement: Agreement | None, what: str, unread: bool = False) -> str | None:
    """Returns why arguments or a result could not be compared; `None`: they were compared."""
    was = "was" if what == "result" else "were"
    if agreement is None:
        return f"the {what} of {{tool}} {was} not {'readable' if unread else 'captured'}"
    if agreement.differences and not has_differences(agreement):
        note = next(iter(agreement.differences)).note or ""
        return f"the {what} of {{tool}} could not be compared, because {note.replace('{', '{{').replace('}', '}}')}"
    return None


def _why_result_not_compared(row: ComparisonRow) -> str | None:
    agreement = row.result_agreement
    lacks = agreement is not None and agreement.differences and not has_result(row)
    return _why_not_compared(None if lacks else agreement, "result")
