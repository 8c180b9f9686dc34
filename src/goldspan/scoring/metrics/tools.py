"""Which tools were called: correctness, recall, precision, F1 and order."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from goldspan.goldens.naming import naming
from goldspan.model import NO_VOCABULARY, Comparison, Golden, Mode, Row
from goldspan.scoring.metrics.metric import Part, alternatives


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
    whole = 2 * len(seen.pairs) + _wrong(seen)
    return 2 * len(seen.pairs) / whole if whole else None


def tool_order(seen: Comparison) -> float | None:
    """Of the expected tools that were called, optional ones too, the share that came in order."""
    answered = answers(seen)
    return sum([row.in_order is True for row in answered]) / len(answered) if answered else None


def share_met(seen: Comparison) -> float | None:
    """Of the expected tools, the share that was called as the order wants it, whatever the golden's `mode`."""
    return _recall(seen) if seen.pairs or seen.missing else None


def answers(seen: Comparison) -> tuple[Row, ...]:
    """The expectations that found their call, also those that need not be met."""
    if not seen.tolerated:
        return seen.pairs
    return (*seen.pairs, *(row for row in seen.tolerated if row.expected and row.called))


# --- the modes of tool_correctness, where something is expected -------------------------------------------------------


def _recall(seen: Comparison) -> float:
    return _met(seen) / (len(seen.pairs) + len(seen.missing))


def _precision(seen: Comparison) -> float:
    called = len(seen.pairs) + len(seen.unexpected) + len(seen.forbidden)
    return _met(seen) / called if called else 0.0


def _f1(seen: Comparison) -> float:
    return 2 * _met(seen) / (2 * len(seen.pairs) + _wrong(seen))


def _exact(seen: Comparison) -> float:
    return float(not _wrong(seen) and not _misplaced(seen))


def _set(seen: Comparison) -> float:
    """A call too many of an expected tool, and a call too few of one that was called, are no other tool."""
    if not _wrong(seen):
        return 1.0
    read = naming(seen.golden.vocabulary if seen.golden else NO_VOCABULARY)
    called = {key for row in answers(seen) if row.called for key in read.called(row.called)}
    missing = (alternatives(row.expected) for row in seen.missing if row.expected)
    return float(
        not seen.forbidden
        and not other_tools(seen)
        and not any(all(read.wanted(tool).isdisjoint(called) for tool in tools) for tools in missing)
    )


def other_tools(seen: Comparison) -> list[Row]:
    """The unexpected calls of tools that answer no expectation at all."""
    read = naming(seen.golden.vocabulary if seen.golden else NO_VOCABULARY)
    rows = answers(seen)
    wanted = {key for row in rows if row.expected for tool in alternatives(row.expected) for key in read.wanted(tool)}
    return [row for row in seen.unexpected if row.called and read.called(row.called).isdisjoint(wanted)]


_MODES: Mapping[Mode, Callable[[Comparison], float]] = {
    "recall": _recall,
    "precision": _precision,
    "f1": _f1,
    "exact": _exact,
    "set": _set,
}


def _mode(golden: Golden) -> Mode:
    """The golden's mode; recall of an exact order is exactness."""
    return "exact" if golden.order == "exact" and golden.mode == "recall" else golden.mode


def _is_ordered(seen: Comparison) -> bool:
    return seen.golden is not None and seen.golden.order != "any"


def _met(seen: Comparison) -> int:
    """How many expectations were met as the order wants it."""
    return sum([pair.in_order is True for pair in seen.pairs]) if _is_ordered(seen) else len(seen.pairs)


def _misplaced(seen: Comparison) -> list[Row]:
    """The calls that did not come where the order wants them."""
    return [row for row in answers(seen) if row.in_order is False] if _is_ordered(seen) else []


def _wrong(seen: Comparison) -> int:
    return len(seen.missing) + len(seen.unexpected) + len(seen.forbidden)


# --- accounts ---------------------------------------------------------------------------------------------------------


def account_of_correctness(seen: Comparison) -> Iterator[Part]:
    """What was met, missed and out of order, and what else was called where that counts."""
    yield from account_of_recall(seen)
    mode = _mode(seen.golden) if seen.golden else "recall"
    if mode != "set":
        yield Part("called out of order", _misplaced(seen), fault=True)
    if mode != "recall" or not (seen.pairs or seen.missing):
        yield from _surplus(seen)


def account_of_recall(seen: Comparison) -> Iterator[Part]:
    """What was expected."""
    yield Part("expected and called", seen.pairs)
    yield Part("expected but not called", seen.missing, fault=True)


def account_of_precision(seen: Comparison) -> Iterator[Part]:
    """What was called."""
    yield Part("expected and called", seen.pairs)
    yield from _surplus(seen)


def account_of_f1(seen: Comparison) -> Iterator[Part]:
    """What was expected and what was called."""
    yield from account_of_recall(seen)
    yield from _surplus(seen)


def account_of_order(seen: Comparison) -> Iterator[Part]:
    """What was called in order, and what was not."""
    answered = answers(seen)
    yield Part("called in order", [row for row in answered if row.in_order])
    yield Part("called out of order", [row for row in answered if not row.in_order], fault=True)


def _surplus(seen: Comparison) -> Iterator[Part]:
    yield Part("called but not expected", seen.unexpected, fault=True)
    yield Part("called but forbidden", seen.forbidden, fault=True)
