"""Metrics of the expected calls: whether they were made, their order, arguments and results."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from goldspan.goldens.tool_names import tool_name_matcher
from goldspan.model import ABSENT, NO_VOCABULARY, Agreement, Comparison, ComparisonRow, CorrectnessMode, Golden
from goldspan.scoring.metrics.metric import MetricEvidence, alternative_calls


def tool_correctness(comparison: Comparison) -> float | None:
    """Measures whether the right tools were called, in the golden's `mode` and `order`.

    `recall`: the share of the expected tools that was called, in the required order; with `order: exact` the same as
    `exact`. `precision`, `f1`: the same pairs, relative to the calls, or to both. `exact`: 1 if exactly the expected
    calls were made, in the required order, else 0. `set`: 1 if the same tools were called, in any number and order,
    else 0. If nothing is expected: 1 if nothing was called, else 0.
    """
    if comparison.golden is None:
        return None
    if not (comparison.pairs or comparison.missing):
        return 0.0 if comparison.unexpected or comparison.forbidden else 1.0
    return _MODES[_mode(comparison.golden)](comparison)


def tool_recall(comparison: Comparison) -> float | None:
    """Returns the share of the expected tools that was called."""
    expected = len(comparison.pairs) + len(comparison.missing)
    return len(comparison.pairs) / expected if expected else None


def tool_precision(comparison: Comparison) -> float | None:
    """Returns the share of the calls that was expected."""
    called = len(comparison.pairs) + len(comparison.unexpected) + len(comparison.forbidden)
    return len(comparison.pairs) / called if called else None


def tool_f1(comparison: Comparison) -> float | None:
    """Returns the harmonic mean of recall and precision."""
    total = 2 * len(comparison.pairs) + _error_count(comparison)
    return 2 * len(comparison.pairs) / total if total else None


def tool_order(comparison: Comparison) -> float | None:
    """Returns the share of the called expected tools, including optional ones, that is in order."""
    matched = matched_rows(comparison)
    return sum([row.in_order is True for row in matched]) / len(matched) if matched else None


def met_share(comparison: Comparison) -> float | None:
    """Returns the share of the expected tools that was called in the required order, for every `mode`."""
    return _recall(comparison) if comparison.pairs or comparison.missing else None


def matched_rows(comparison: Comparison) -> tuple[ComparisonRow, ...]:
    """Returns the expectations that were matched with a call, including optional ones."""
    if not comparison.tolerated:
        return comparison.pairs
    return (*comparison.pairs, *(row for row in comparison.tolerated if row.expected and row.called))


# --- the modes of tool_correctness, if something is expected ----------------------------------------------------------


def _recall(comparison: Comparison) -> float:
    return _met_count(comparison) / (len(comparison.pairs) + len(comparison.missing))


def _precision(comparison: Comparison) -> float:
    called = len(comparison.pairs) + len(comparison.unexpected) + len(comparison.forbidden)
    return _met_count(comparison) / called if called else 0.0


def _f1(comparison: Comparison) -> float:
    return 2 * _met_count(comparison) / (2 * len(comparison.pairs) + _error_count(comparison))


def _exact(comparison: Comparison) -> float:
    return float(not _error_count(comparison) and not _out_of_order_rows(comparison))


def _set(comparison: Comparison) -> float:
    """Returns 1 if the same tools were called. Extra and missing calls of a tool that was called do not count."""
    if not _error_count(comparison):
        return 1.0
    names = tool_name_matcher(comparison.golden.vocabulary if comparison.golden else NO_VOCABULARY)
    called = {key for row in matched_rows(comparison) if row.called for key in names.called_keys(row.called)}
    missing = (alternative_calls(row.expected) for row in comparison.missing if row.expected)
    return float(
        not comparison.forbidden
        and not calls_of_other_tools(comparison)
        and not any(all(names.expected_keys(tool).isdisjoint(called) for tool in tools) for tools in missing)
    )


def calls_of_other_tools(comparison: Comparison) -> list[ComparisonRow]:
    """Returns the unexpected calls of tools that match no expectation."""
    names = tool_name_matcher(comparison.golden.vocabulary if comparison.golden else NO_VOCABULARY)
    rows = matched_rows(comparison)
    expected = {
        key
        for row in rows
        if row.expected
        for tool in alternative_calls(row.expected)
        for key in names.expected_keys(tool)
    }
    return [row for row in comparison.unexpected if row.called and names.called_keys(row.called).isdisjoint(expected)]


_MODES: Mapping[CorrectnessMode, Callable[[Comparison], float]] = {
    "recall": _recall,
    "precision": _precision,
    "f1": _f1,
    "exact": _exact,
    "set": _set,
}


def _mode(golden: Golden) -> CorrectnessMode:
    """Returns the golden's mode; `recall` with `order: exact` is `exact`."""
    return "exact" if golden.order == "exact" and golden.mode == "recall" else golden.mode


def _is_ordered(comparison: Comparison) -> bool:
    return comparison.golden is not None and comparison.golden.order != "any"


def _met_count(comparison: Comparison) -> int:
    """Returns the number of expectations that were met in the required order."""
    return (
        sum([pair.in_order is True for pair in comparison.pairs]) if _is_ordered(comparison) else len(comparison.pairs)
    )


def _out_of_order_rows(comparison: Comparison) -> list[ComparisonRow]:
    """Returns the calls that break the required order."""
    return [row for row in matched_rows(comparison) if row.in_order is False] if _is_ordered(comparison) else []


def _error_count(comparison: Comparison) -> int:
    return len(comparison.missing) + len(comparison.unexpected) + len(comparison.forbidden)


# --- evidence ---------------------------------------------------------------------------------------------------------


def explain_correctness(comparison: Comparison) -> Iterator[MetricEvidence]:
    """Yield met, missing and out-of-order expectations, and other calls if the mode counts them."""
    yield from explain_recall(comparison)
    mode = _mode(comparison.golden) if comparison.golden else "recall"
    if mode != "set":
        yield MetricEvidence("called out of order", _out_of_order_rows(comparison), is_fault=True)
    if mode != "recall" or not (comparison.pairs or comparison.missing):
        yield from _explain_surplus_calls(comparison)


def explain_recall(comparison: Comparison) -> Iterator[MetricEvidence]:
    """Yield the expectations with and without a call."""
    yield MetricEvidence("expected and called", comparison.pairs)
    yield MetricEvidence("expected but not called", comparison.missing, is_fault=True)


def explain_precision(comparison: Comparison) -> Iterator[MetricEvidence]:
    """Yield the expected and the other calls."""
    yield MetricEvidence("expected and called", comparison.pairs)
    yield from _explain_surplus_calls(comparison)


def explain_f1(comparison: Comparison) -> Iterator[MetricEvidence]:
    """Yield the expectations and the other calls."""
    yield from explain_recall(comparison)
    yield from _explain_surplus_calls(comparison)


def explain_order(comparison: Comparison) -> Iterator[MetricEvidence]:
    """Yield the expected calls that are in order and those that are not."""
    matched = matched_rows(comparison)
    yield MetricEvidence("called in order", [row for row in matched if row.in_order])
    yield MetricEvidence("called out of order", [row for row in matched if not row.in_order], is_fault=True)


def _explain_surplus_calls(comparison: Comparison) -> Iterator[MetricEvidence]:
    yield MetricEvidence("called but not expected", comparison.unexpected, is_fault=True)
    yield MetricEvidence("called but forbidden", comparison.forbidden, is_fault=True)


# --- arguments and results --------------------------------------------------------------------------------------------


def argument_correctness(comparison: Comparison) -> float | None:
    """Returns the mean agreement of the arguments that the golden states and that were captured."""
    return _mean([row.agreement.share for row in matched_rows(comparison) if row.agreement])


def result_correctness(comparison: Comparison) -> float | None:
    """Returns the mean agreement of the results that the golden states and that were captured."""
    return _mean([row.result_agreement.share for row in matched_rows(comparison) if row.result_agreement])


def why_missing_arguments(comparison: Comparison) -> str:
    """Returns why there are no arguments to compare."""
    if comparison.golden is None or all(tool.arguments is None for tool in comparison.golden.expected_calls):
        return "the golden states no arguments"
    if all(getattr(row.expected, "arguments", None) is None for row in matched_rows(comparison)):
        return "no tool whose arguments are stated was called"
    return "the arguments of the calls were not captured"


def why_missing_results(comparison: Comparison) -> str:
    """Returns why there are no results to compare."""
    if comparison.golden is None or all(tool.result is ABSENT for tool in comparison.golden.expected_calls):
        return "the golden states no results"
    if all(getattr(row.expected, "result", ABSENT) is ABSENT for row in matched_rows(comparison)):
        return "no tool whose result is stated was called"
    return "the results of the calls were not captured"


def explain_arguments(comparison: Comparison) -> Iterator[MetricEvidence]:
    """Yield the calls whose arguments agree, and the others with the arguments that differ."""
    compared = [(row, row.agreement) for row in matched_rows(comparison) if row.agreement]
    yield from _explain_agreements(compared, "arguments")


def explain_results(comparison: Comparison) -> Iterator[MetricEvidence]:
    """Yield the calls whose results agree, and the others with the parts that differ."""
    compared = [(row, row.result_agreement) for row in matched_rows(comparison) if row.result_agreement]
    yield from _explain_agreements(compared, "result")


def describe_difference(row: ComparisonRow, agreement: Agreement, part: str) -> str:
    """Returns a call, the keys that differ, and its share of agreement: `book in nights and breakfast (0.5)`."""
    keys = [difference.key or f"the whole {part}" for difference in agreement.differences]
    more = f" and {len(keys) - _MAX_KEYS} more" if len(keys) > _MAX_KEYS else ""
    where = f" in {', '.join(keys[:_MAX_KEYS])}{more}" if keys else ""
    return f"{_expected_name(row)}{where} ({agreement.share:.3g})"


_MAX_KEYS = 3


def _explain_agreements(compared: Sequence[tuple[ComparisonRow, Agreement]], part: str) -> Iterator[MetricEvidence]:
    agree = [_expected_name(row) for row, agreement in compared if agreement.share == 1]
    yield MetricEvidence(f"{part} agree", agree)
    differ = [describe_difference(row, agreement, part) for row, agreement in compared if agreement.share < 1]
    yield MetricEvidence(f"{part} differ", differ, is_fault=True)


def _expected_name(row: ComparisonRow) -> str:
    return row.expected.name if row.expected else ""


def _mean(shares: Sequence[float]) -> float | None:
    return sum(shares) / len(shares) if shares else None
