"""The table that `Goldens` displays in notebooks: which runs each golden is for, and what it expects."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from goldspan.model import ExpectedItem, ExpectedTool, Golden, Parallel
from goldspan.model.markup import EMPTY_CELL, Block, Cell, Table, TextSpan, join_spans, shorten_request, truncate
from goldspan.model.value_matchers import Redaction, format_value

_MAX_GOLDENS = 50
_MAX_ITEMS = 20
"""The number of goldens, and of expected tools and forbidden patterns of one golden, that are shown."""


def golden_blocks(
    goldens: Sequence[Golden], *, values: bool = False, redact: Redaction | None = None
) -> Iterator[Block]:
    """Yield the number of goldens and the table of the first ones; expected arguments only if `values` is true."""
    yield (TextSpan(f"{len(goldens)} {'golden' if len(goldens) == 1 else 'goldens'}"),)
    if goldens:
        rows = (_golden_cells(golden, values, redact) for golden in goldens[:_MAX_GOLDENS])
        yield Table(("golden", "for", "expected tools", "rules"), tuple(rows))
    if len(goldens) > _MAX_GOLDENS:
        yield (TextSpan(f"{len(goldens) - _MAX_GOLDENS} more goldens", "quiet"),)


def _golden_cells(golden: Golden, values: bool, redact: Redaction | None) -> tuple[Cell, ...]:
    tools = [_item_spans(item, values, redact) for item in golden.tools[:_MAX_ITEMS]]
    if len(golden.tools) > _MAX_ITEMS:
        tools.append((TextSpan(f"{len(golden.tools) - _MAX_ITEMS} more", "quiet"),))
    return (
        (TextSpan(truncate(golden.id), "name"),),
        join_spans(_scope_spans(golden, redact), ", ") or EMPTY_CELL,
        join_spans(tools, ", ") or EMPTY_CELL,
        join_spans(_rule_spans(golden), "; "),
    )


def _scope_spans(golden: Golden, redact: Redaction | None) -> Iterator[Cell]:
    """Yield the runs that the golden is for: those of its request, or those that fit its conditions."""
    if golden.policy:
        yield (TextSpan("every run without another golden"),)
    if golden.component is not None:
        yield (TextSpan("component "), TextSpan(truncate(golden.component), "name"))
    if golden.input is not None:
        yield (TextSpan(shorten_request(str(golden.input if redact is None else redact("input", golden.input)))),)
    if (when := golden.when) is not None:
        for word, pattern in (("agent", when.agent), ("service", when.service), ("span", when.span)):
            if pattern is not None:
                yield (TextSpan(f"{word} "), TextSpan(truncate(pattern), "name"))
        for name in when.attributes:
            yield (TextSpan("attribute "), TextSpan(truncate(name), "name"))
        if when.input is not None:
            yield (TextSpan(f"input {format_value(when.input, 'input', redact)}"),)


def _item_spans(item: ExpectedItem, values: bool, redact: Redaction | None) -> Cell:
    """Return the name of an expected tool or group, and the expected arguments if they are shown."""
    spans = [TextSpan(truncate(item.name), "name")]
    if not isinstance(item, Parallel) and item.is_optional:
        spans.append(TextSpan(" (optional)", "quiet"))
    if values:
        spans += [TextSpan(f" {text}") for text in _argument_texts(item, redact)]
    return spans


def _argument_texts(item: ExpectedItem, redact: Redaction | None) -> Iterator[str]:
    """Yield the expected arguments of each call of an item."""
    if isinstance(item, ExpectedTool):
        if item.arguments is not None:
            yield format_value(item.arguments, "", redact)
        return
    inner = item.items if isinstance(item, Parallel) else [each for option in item.options for each in option]
    for each in inner[:_MAX_ITEMS]:
        yield from _argument_texts(each, redact)


def _rule_spans(golden: Golden) -> Iterator[Cell]:
    """Yield the rules that limit order and calls, as the golden file writes them."""
    if golden.order != "any":
        yield (TextSpan(f"order: {golden.order}"),)
    if golden.forbid:
        patterns = [[TextSpan(truncate(pattern), "name")] for pattern in golden.forbid[:_MAX_ITEMS]]
        if len(golden.forbid) > _MAX_ITEMS:
            patterns.append([TextSpan(f"{len(golden.forbid) - _MAX_ITEMS} more", "quiet")])
        yield (TextSpan("forbid: "), *join_spans(patterns, ", "))
    if golden.max_calls is not None:
        yield (TextSpan(f"max_calls: {golden.max_calls}"),)
