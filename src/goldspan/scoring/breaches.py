"""What of a golden is broken: read off the rows of a comparison, whatever share of it a threshold accepts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache

from goldspan.goldens.naming import Naming, naming
from goldspan.model import (
    ABSENT,
    Agreement,
    AnyOf,
    Comparison,
    ExpectedTool,
    Golden,
    Item,
    Parallel,
    Row,
    Statement,
    ToolCall,
)
from goldspan.scoring.agreement.arguments import argument_share, result_share
from goldspan.scoring.definitions import schemas_of
from goldspan.scoring.identity import is_by, is_called
from goldspan.scoring.matching import EXTRA
from goldspan.scoring.metrics import tools
from goldspan.scoring.metrics.metric import alternatives
from goldspan.scoring.pairing.merits import Schemas


def breaches(seen: Comparison, golden: Golden) -> Iterator[Statement]:
    """Each thing that the golden states and the run breaks."""
    for row in seen.forbidden:
        yield statement("forbidden", row, "was called but forbidden")
    if golden.max_calls is not None and len(seen.calls) > golden.max_calls:
        yield Statement("max_calls", f"{len(seen.calls)} calls were made and {golden.max_calls} are allowed")
    if golden.policy:
        return
    for row in seen.missing:
        yield statement("missing", row, "was not called")
    for row in unwanted(seen, golden):
        yield statement("unexpected", row, "was called but not expected")
    for row, allowed in calls_too_many(seen, golden):
        if allowed is not None:
            yield statement("times", row, f"was called more than {'once' if allowed == 1 else f'{allowed} times'}")
    for row in tools.answers(seen):
        if row.in_order is False and golden.order != "any":
            yield statement("order", row, "was called out of order")
        if differs(row.agreement):
            yield statement("arguments", row, "differs in its arguments")
        if differs(row.result_agreement) and has_result(row):
            yield statement("result", row, "differs in its result")


def statement(about: str, row: Row, what: str) -> Statement:
    """A statement about the expectation or the call of a row."""
    tool = row.expected or row.called
    return Statement(about, f"{tool.name if tool else ''} {what}", row.expected_at, row.called_at)


def differs(agreement: Agreement | None) -> bool:
    """Whether anything differs that could be compared."""
    return agreement is not None and any(difference.note is None for difference in agreement.differences)


def has_result(row: Row) -> bool:
    """Whether the result of a call was captured: of a failed one it may not have been, though it had one."""
    return row.called is not None and row.called.result is not None


def unwanted(seen: Comparison, golden: Golden) -> Sequence[Row]:
    """The calls that nobody expected, where the golden asks for none: where it requires no call, or says so."""
    if not seen.unexpected:
        return ()
    if golden.extra == "penalize" or golden.order == "exact" or not (seen.pairs or seen.missing):
        return seen.unexpected
    if golden.mode == "set":
        return tools.other_tools(seen)
    return seen.unexpected if golden.mode != "recall" else ()


# --- times ------------------------------------------------------------------------------------------------------------


def calls_too_many(seen: Comparison, golden: Golden) -> Iterator[tuple[Row, int | None]]:
    """The calls beyond what `times` allows, each with what is allowed.

    A call is one too many where every expectation that it would meet states how often it may be met. `None` stands
    where arguments or results that were not captured would tell.
    """
    if not _states_times(golden):
        return
    names = naming(golden.vocabulary)
    schemas = schemas_of(seen.run, golden, names)
    unknown = [row.expected for row in tools.answers(seen) if is_unknown(row)]
    for row in seen.rows:
        call = row.called
        if call is None or not (row.verdict == "unexpected" or row.note == EXTRA):
            continue
        would_meet = [(item, _meets(item, call, names, schemas)) for item in _repeatable(golden.tools)]
        surely = [item for item, meets in would_meet if meets is True]
        perhaps = [item for item, meets in would_meet if meets is None]
        if not all(map(_is_limited, surely)) or not any(map(_is_limited, surely + perhaps)):
            continue
        tools_meant = [tool for item in surely for tool in alternatives(item)]
        known = surely and all(map(_is_limited, perhaps)) and not any(tool in tools_meant for tool in unknown)
        yield row, sum(item.times.most or 0 for item in surely) if known else None


def is_unknown(row: Row) -> bool:
    """Whether arguments or a result that the golden states were not captured of the call that answers it."""
    expected = row.expected
    return isinstance(expected, ExpectedTool) and (
        (expected.arguments is not None and row.agreement is None)
        or (expected.result is not ABSENT and not has_result(row))
    )


def _is_limited(item: ExpectedTool | AnyOf) -> bool:
    return item.times.stated and item.times.most is not None


def _meets(item: ExpectedTool | AnyOf, call: ToolCall, names: Naming, schemas: Schemas) -> bool | None:
    """Whether a call would meet an expectation with all that this states; `None`: not known."""
    meant = [tool for tool in alternatives(item) if is_called(tool, call, names) and is_by(tool, call)]
    found = [_fits(tool, call, schemas) for tool in meant]
    return True if True in found else None if None in found else False


def _fits(tool: ExpectedTool, call: ToolCall, schemas: Schemas) -> bool | None:
    shares = []
    if tool.arguments is not None:
        shares.append(argument_share(tool, call, schemas(call)))
    if tool.result is not ABSENT:
        shares.append(None if call.result is None else result_share(tool, call))
    if any(share is not None and share < 1 for share in shares):
        return False
    return None if None in shares else True


@lru_cache(maxsize=2048)
def _states_times(golden: Golden) -> bool:
    return any(map(_is_limited, _repeatable(golden.tools)))


def _repeatable(items: Sequence[Item]) -> Iterator[ExpectedTool | AnyOf]:
    """Every item that may state how often it is expected; of alternatives, those inside that stand for themselves."""
    for item in items:
        if isinstance(item, Parallel):
            yield from _repeatable(item.items)
        elif isinstance(item, AnyOf) and not item.times.stated:
            for option in item.options:
                yield from _repeatable(option)
        else:
            yield item
