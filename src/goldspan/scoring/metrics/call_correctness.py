"""What the tools were given and what came back: arguments and results."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from goldspan.goldens.tool_names import tool_name_matcher
from goldspan.model import ABSENT, NO_VOCABULARY, Agreement, Comparison, ComparisonRow, CorrectnessMode, Golden
from goldspan.scoring.metrics.metric import MetricEvidence, alternative_calls


def tool_correctness(seen: Comparison) -> float | None:
    """How far the right tools were called, in the golden's `mode` and `order`.

    `recall`: of the expected tools, the share that was called as the order wants it; with `order: exact` the same as
    `exact`. `precision`, `f1`: those pairs beside the calls, or beside both. `exact`: 1 if the calls are the expected
    ones, as the order wants them, and no others, else 0. `set`: 1 if the same tools were called, however often and
    whenever, else 0. Where nothing is expected, 1 if nothing was called, else 0.
    """
    if seen.golden is None:
        return None
    if not (seen.pairs or seen.missing):
        return 0.0 if seen.unexpected or seen.forbidden else 1.0
    return _MODES[_mode(seen.golden)](seen)


def tool_recall(seen: Comparison) -> float | None:
    """Of the expected tools, the share that was called."""
    expected = len(seen.pairs) + len(seen.missing)
    return len(seen.pairs) / expected if expected else None


def tool_precision(seen: Comparison) -> float | None:
    """Of the calls that count, the share that was expected."""
    called = len(seen.pairs) + len(seen.unexpected) + len(seen.forbidden)
    return len(seen.pairs) / called if called else None


def tool_f1(seen: Comparison) -> float | None:
    """The harmonic mean of recall and precision."""
    whole = 2 * len(seen.pairs) + _error_count(seen)
    return 2 * len(seen.pairs) / whole if whole else None


def tool_order(seen: Comparison) -> float | None:
    """Of the expected tools that were called, optional ones too, the share that came in order."""
    answered = matched_rows(seen)
    return sum([row.in_order is True for row in answered]) / len(answered) if answered else None


def met_share(seen: Comparison) -> float | None:
    """Of the expected tools, the share that was called as the order wants it, whatever the golden's `mode`."""
    return _recall(seen) if seen.pairs or seen.missing else None


def matched_rows(seen: Comparison) -> tuple[ComparisonRow, ...]:
    """The expectations that found their call, also those that need not be met."""
    if not seen.tolerated:
        return seen.pairs
    return (*seen.pairs, *(row for row in seen.tolerated if row.expected and row.called))


# --- the modes of tool_correctness, where something is expected -------------------------------------------------------


def _recall(seen: Comparison) -> float:
    return _met_count(seen) / (len(seen.pairs) + len(seen.missing))


def _precision(seen: Comparison) -> float:
    called = len(seen.pairs) + len(seen.unexpected) + len(seen.forbidden)
    return _met_count(seen) / called if called else 0.0


def _f1(seen: Comparison) -> float:
    return 2 * _met_count(seen) / (2 * len(seen.pairs) + _error_count(seen))


def _exact(seen: Comparison) -> float:
    return float(not _error_count(seen) and not _out_of_order_rows(seen))


def _set(seen: Comparison) -> float:
    """A call too many of an expected tool, and a call too few of one that was called, are no other tool."""
    if not _error_count(seen):
        return 1.0
    read = tool_name_matcher(seen.golden.vocabulary if seen.golden else NO_VOCABULARY)
    called = {key for row in matched_rows(seen) if row.called for key in read.called_keys(row.called)}
    missing = (alternative_calls(row.expected) for row in seen.missing if row.expected)
    return float(
        not seen.forbidden
        and not calls_of_other_tools(seen)
        and not any(all(read.expected_keys(tool).isdisjoint(called) for tool in tools) for tools in missing)
    )


def calls_of_other_tools(seen: Comparison) -> list[ComparisonRow]:
    """The unexpected calls of tools that answer no expectation at all."""
    read = tool_name_matcher(seen.golden.vocabulary if seen.golden else NO_VOCABULARY)
    rows = matched_rows(seen)
    wanted = {
        key
        for row in rows
        if row.expected
        for tool in alternative_calls(row.expected)
        for key in read.expected_keys(tool)
    }
    return [row for row in seen.unexpected if row.called and read.called_keys(row.called).isdisjoint(wanted)]


_MODES: Mapping[CorrectnessMode, Callable[[Comparison], float]] = {
    "recall": _recall,
    "precision": _precision,
    "f1": _f1,
    "exact": _exact,
    "set": _set,
}


def _mode(golden: Golden) -> CorrectnessMode:
    """The golden's mode; recall of an exact order is exactness."""
    return "exact" if golden.order == "exact" and golden.mode == "recall" else golden.mode


def _is_ordered(seen: Comparison) -> bool:
    return seen.golden is not None and seen.golden.order != "any"


def _met_count(seen: Comparison) -> int:
    """How many expectations were met as the order wants it."""
    return sum([pair.in_order is True for pair in seen.pairs]) if _is_ordered(seen) else len(seen.pairs)


def _out_of_order_rows(seen: Comparison) -> list[ComparisonRow]:
    """The calls that did not come where the order wants them."""
    return [row for row in matched_rows(seen) if row.in_order is False] if _is_ordered(seen) else []


def _error_count(seen: Comparison) -> int:
    return len(seen.missing) + len(seen.unexpected) + len(seen.forbidden)


# --- accounts ---------------------------------------------------------------------------------------------------------


def explain_correctness(seen: Comparison) -> Iterator[MetricEvidence]:
    """What was met, missed and out of order, and what else was called where that counts."""
    yield from explain_recall(seen)
    mode = _mode(seen.golden) if seen.golden else "recall"
    if mode != "set":
        yield MetricEvidence("called out of order", _out_of_order_rows(seen), is_fault=True)
    if mode != "recall" or not (seen.pairs or seen.missing):
        yield from _explain_surplus_calls(seen)


def explain_recall(seen: Comparison) -> Iterator[MetricEvidence]:
    """What was expected."""
    yield MetricEvidence("expected and called", seen.pairs)
    yield MetricEvidence("expected but not called", seen.missing, is_fault=True)


def explain_precision(seen: Comparison) -> Iterator[MetricEvidence]:
    """What was called."""
    yield MetricEvidence("expected and called", seen.pairs)
    yield from _explain_surplus_calls(seen)


def explain_f1(seen: Comparison) -> Iterator[MetricEvidence]:
    """What was expected and what was called."""
    yield from explain_recall(seen)
    yield from _explain_surplus_calls(seen)


def explain_order(seen: Comparison) -> Iterator[MetricEvidence]:
    """What was called in order, and what was not."""
    answered = matched_rows(seen)
    yield MetricEvidence("called in order", [row for row in answered if row.in_order])
    yield MetricEvidence("called out of order", [row for row in answered if not row.in_order], is_fault=True)


def _explain_surplus_calls(seen: Comparison) -> Iterator[MetricEvidence]:
    yield MetricEvidence("called but not expected", seen.unexpected, is_fault=True)
    yield MetricEvidence("called but forbidden", seen.forbidden, is_fault=True)


def argument_correctness(seen: Comparison) -> float | None:
    """How far the arguments agree, on average over the calls whose arguments are stated by the golden and captured."""
    return _mean([row.agreement.share for row in matched_rows(seen) if row.agreement])


def result_correctness(seen: Comparison) -> float | None:
    """How far the results agree, on average over the calls whose result is stated by the golden and captured."""
    return _mean([row.result_agreement.share for row in matched_rows(seen) if row.result_agreement])


def why_missing_arguments(seen: Comparison) -> str:
    """Why there are no arguments to compare."""
    if seen.golden is None or all(tool.arguments is None for tool in seen.golden.expected_calls):
        return "the golden states no arguments"
    if all(getattr(row.expected, "arguments", None) is None for row in matched_rows(seen)):
        return "no tool whose arguments are stated was called"
    return "the arguments of the calls were not captured"


def why_missing_results(seen: Comparison) -> str:
    """Why there are no results to compare."""
    if seen.golden is None or all(tool.result is ABSENT for tool in seen.golden.expected_calls):
        return "the golden states no results"
    if all(getattr(row.expected, "result", ABSENT) is ABSENT for row in matched_rows(seen)):
        return "no tool whose result is stated was called"
    return "the results of the calls were not captured"


def explain_arguments(seen: Comparison) -> Iterator[MetricEvidence]:
    """Which calls agree in their arguments, and in which of them the others differ."""
    judged = [(row, row.agreement) for row in matched_rows(seen) if row.agreement]
    yield from _explain_agreements(judged, "arguments")


def explain_results(seen: Comparison) -> Iterator[MetricEvidence]:
    """Which calls agree in their results, and in which parts of them the others differ."""
    judged = [(row, row.result_agreement) for row in matched_rows(seen) if row.result_agreement]
    yield from _explain_agreements(judged, "result")


def describe_difference(row: ComparisonRow, agreement: Agreement, what: str) -> str:
    """`book in nights and breakfast (0.5)`: a call, where it differs, and how far it agrees."""
    keys = [difference.key or f"the whole {what}" for difference in agreement.differences]
    more = f" and {len(keys) - _MAX_KEYS} more" if len(keys) > _MAX_KEYS else ""
    where = f" in {', '.join(keys[:_MAX_KEYS])}{more}" if keys else ""
    return f"{_expected_name(row)}{where} ({agreement.share:.3g})"


_MAX_KEYS = 3


def _explain_agreements(judged: Iterable[tuple[ComparisonRow, Agreement]], what: str) -> Iterator[MetricEvidence]:
    judged = list(judged)
    yield MetricEvidence(f"{what} agree", [_expected_name(row) for row, agreement in judged if agreement.share == 1])
    differ = [describe_difference(row, agreement, what) for row, agreement in judged if agreement.share < 1]
    yield MetricEvidence(f"{what} differ", differ, is_fault=True)


def _expected_name(row: ComparisonRow) -> str:
    return row.expected.name if row.expected else ""


def _mean(shares: Sequence[float]) -> float | None:
    return sum(shares) / len(shares) if shares else None
