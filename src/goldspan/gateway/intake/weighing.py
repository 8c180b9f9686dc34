"""How much is in a protobuf message, counted on the wire before anything is made of it.

A parser makes up to eighty times as many bytes of memory as a message has, if it consists of nothing but empty
messages. So what is large is counted first: that takes no memory, and ends at the limit.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from goldspan.gateway.intake.answers import too_large
from goldspan.gateway.intake.receptions import check_items
from goldspan.gateway.limits import MIB, Limits
from goldspan.otlp.decoding import DecodeError
from goldspan.otlp.lengths import REQUEST_TAG, varint

_SCOPE_TAG = _ITEM_TAG = 0x12
"""What is in a resource's telemetry, and in a scope's: the same number in all signals."""
_OTHERS = 8
"""Parts of other kinds for each item that is allowed: an item with a resource of its own comes with six."""
_MESSAGE, _TEXTS = 11, (9, 12)
"""The types of fields that matter here, as in descriptor.proto: messages; texts and bytes."""
_DEEPEST = 200
"""Beyond what protobuf's parsers follow: they refuse it afterwards."""
_LARGE = MIB // 4
"""What is smaller takes 20 MiB of memory at most when it is parsed."""
_CUT_OFF = "the protobuf message is broken or cut off"

Table = dict[int, Any]
"""By tag: the table of the message that is there, or `None` for text and bytes."""


def check_outline(body: bytes, limits: Limits) -> None:
    """Raises `Refused` for a request with more items than are allowed, or with very many other parts, and `DecodeError`
    for one that is broken."""
    items = others = 0
    for tag, start, end in _fields(body, 0, len(body)):
        others += 1
        for inner_tag, inner_start, inner_end in _fields(body, start, end) if tag == REQUEST_TAG else ():
            others += 1
            for item_tag, _, _ in _fields(body, inner_start, inner_end) if inner_tag == _SCOPE_TAG else ():
                if item_tag == _ITEM_TAG:
                    items += 1
                else:
                    others += 1
                check_items(max(items, others // _OTHERS), limits)
            check_items(others // _OTHERS, limits)
        check_items(others // _OTHERS, limits)


class Scales:
    """Weighs the large messages of one request: spans, log records, metrics, resources and scopes."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._values = 0
        self.large = min(_LARGE, limits.max_value_bytes)
        """Bytes of a message from which on it is weighed."""

    def weigh(self, message: bytes, table: Table) -> None:
        """Raises `Refused` for more than is allowed, `DecodeError` for what is broken."""
        if len(message) > self.large:
            self._weigh(message, 0, len(message), table, 0)

    def _weigh(self, data: bytes, start: int, end: int, table: Table, depth: int) -> None:
        longest, most = self._limits.max_value_bytes, self._limits.max_values
        for tag, part_start, part_end in _fields(data, start, end):
            self._values += 1
            if self._values > most:
                raise too_large("max_values", f"the request has more than {most:,} values in large spans")
            if tag not in table:
                continue
            inner = table[tag]
            if inner is not None and depth < _DEEPEST:
                self._weigh(data, part_start, part_end, inner, depth + 1)
            elif inner is None and part_end - part_start > longest:
                raise too_large("max_value_bytes", f"a text is longer than {longest:,} bytes")


def table_of(descriptor: Any) -> Table:
    """What `Scales.weigh` has to know of a message, from its protobuf descriptor."""
    if descriptor.full_name not in _TABLES:
        table = _TABLES[descriptor.full_name] = {}
        for field in descriptor.fields:
            tag = field.number << 3 | 2
            if field.type == _MESSAGE:
                table[tag] = table_of(field.message_type)
            elif field.type in _TEXTS:
                table[tag] = None
    return _TABLES[descriptor.full_name]


_TABLES: dict[str, Table] = {}


def _fields(data: bytes, start: int, end: int) -> Iterator[tuple[int, int, int]]:
    """Tag, start and end of the content of each field. Raises `DecodeError` for what is cut off."""
    while start < end:
        tag, content = data[start], start + 1
        if tag >= 0x80:
            tag, content = varint(data, start)
        kind = tag & 7
        if kind == 2:
            size, content = varint(data, content)
            start = content + size
        elif kind == 0:
            _, start = varint(data, content)
        elif kind in (1, 5):
            start = content + (8 if kind == 1 else 4)
        else:  # groups, which OTLP never had
            raise DecodeError(_CUT_OFF)
        if start > end:
            raise DecodeError(_CUT_OFF)
        yield tag, content, start
