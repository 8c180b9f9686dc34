"""What the tools were given and what came back: arguments and results."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from goldspan.model import ABSENT, Agreement, Comparison, Row
from goldspan.scoring.metrics.metric import Part
from goldspan.scoring.metrics.tools import answers


def argument_correctness(seen: Comparison) -> float | None:
    """How far the arguments agree, on average over the calls whose arguments are stated by the golden and captured."""
    return _mean([row.agreement.share for row in answers(seen) if row.agreement])


def result_correctness(seen: Comparison) -> float | None:
    """How far the results agree, on average over the calls whose result is stated by the golden and captured."""
    return _mean([row.result_agreement.share for row in answers(seen) if row.result_agreement])


def why_no_arguments(seen: Comparison) -> str:
    """Why there are no arguments to compare."""
    if seen.golden is None or all(tool.arguments is None for tool in seen.golden.calls):
        return "the golden states no arguments"
    if all(getattr(row.expected, "arguments", None) is None for row in answers(seen)):
        return "no tool whose arguments are stated was called"
    return "the arguments of the calls were not captured"


def why_no_results(seen: Comparison) -> str:
    """Why there are no results to compare."""
    if seen.golden is None or all(tool.result is ABSENT for tool in seen.golden.calls):
        return "the golden states no results"
    if all(getattr(row.expected, "result", ABSENT) is ABSENT for row in answers(seen)):
        return "no tool whose result is stated was called"
    return "the results of the calls were not captured"


def account_of_arguments(seen: Comparison) -> Iterator[Part]:
    """Which calls agree in their arguments, and in which of them the others differ."""
    judged = [(row, row.agreement) for row in answers(seen) if row.agreement]
    yield from _agreements(judged, "arguments")


def account_of_results(seen: Comparison) -> Iterator[Part]:
    """Which calls agree in their results, and in which parts of them the others differ."""
    judged = [(row, row.result_agreement) for row in answers(seen) if row.result_agreement]
    yield from _agreements(judged, "result")


def differing(row: Row, agreement: Agreement, what: str) -> str:
    """`book in nights and breakfast (0.5)`: a call, where it differs, and how far it agrees."""
    keys = [difference.key or f"the whole {what}" for difference in agreement.differences]
    more = f" and {len(keys) - _KEYS} more" if len(keys) > _KEYS else ""
    where = f" in {', '.join(keys[:_KEYS])}{more}" if keys else ""
    return f"{_name(row)}{where} ({agreement.share:.3g})"


_KEYS = 3


def _agreements(judged: Iterable[tuple[Row, Agreement]], what: str) -> Iterator[Part]:
    judged = list(judged)
    yield Part(f"{what} agree", [_name(row) for row, agreement in judged if agreement.share == 1])
    differ = [differing(row, agreement, what) for row, agreement in judged if agreement.share < 1]
    yield Part(f"{what} differ", differ, fault=True)


def _name(row: Row) -> str:
    return row.expected.name if row.expected else ""


def _mean(shares: Sequence[float]) -> float | None:
    return sum(shares) / len(shares) if shares else None
