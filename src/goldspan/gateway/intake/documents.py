"""Requests in OTLP/JSON, read once at the door.

Names in snake_case are fields that OTLP does not know: ignored, as the specification says.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NoReturn

from goldspan import semconv
from goldspan.gateway.intake import parsing
from goldspan.gateway.intake.answers import too_large
from goldspan.gateway.intake.receptions import Reception, Sieve, check_attributes, unreadable
from goldspan.gateway.limits import Limits
from goldspan.gateway.signals import Signal
from goldspan.otlp import otlp_json
from goldspan.otlp.decoding import DecodeError
from goldspan.otlp.json_fields import object_of, objects_of, repaired, text_of


def read(signal: Signal, body: bytes, limits: Limits) -> Reception:
    """Check the body of a request; else as `reading.read`. Half a surrogate pair in it becomes U+FFFD."""
    if len(body) > limits.max_values:
        _check_values(body, limits)
    parsing.check_size(body, limits)
    try:
        with parsing.turn(body):
            return _read(signal, body, limits)
    except DecodeError as error:
        raise unreadable(str(error)) from error
    except RecursionError as error:
        raise unreadable("the JSON nests too deeply", limit="max_depth") from error
    except ValueError as error:
        raise unreadable(f"the body is no JSON, or text in it is not UTF-8 ({_place(error)})") from error


def _read(signal: Signal, body: bytes, limits: Limits) -> Reception:
    document, written = _parsed(body)
    if len(body) > limits.max_value_bytes:
        _check_texts(document, limits)
    sieve = Sieve(limits)
    _sift(document, _SHAPES[signal], sieve, limits)
    if sieve.changed:
        written = json.dumps(document, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()
    return sieve.reception(written)


def _parsed(body: bytes) -> tuple[Any, bytes]:
    """The document, and how it is written once it is repaired. Its text is not kept: it may be four times as long."""
    text = body.decode()
    whole = repaired(text)
    return _DECODER.decode(whole), body if whole is text else whole.encode()


def _no_number(name: str) -> NoReturn:
    """JSON has no NaN and no Infinity: back ends would refuse the whole request."""
    raise ValueError(f"{name} is no number of JSON")


_DECODER = json.JSONDecoder(parse_constant=_no_number)


def _place(error: ValueError) -> str:
    """What is wrong and where, without anything of what is there."""
    if isinstance(error, json.JSONDecodeError):
        return f"{error.msg} at character {error.pos}"
    if isinstance(error, UnicodeDecodeError):
        return f"{error.reason} at byte {error.start}"
    return str(error)


def _check_values(body: bytes, limits: Limits) -> None:
    """A value comes after a comma or is the first in its object or array. It takes time as well as memory."""
    if sum(map(body.count, (b",", b"{", b"["))) > limits.max_values:
        raise too_large("max_values", f"the request has more than {limits.max_values:,} values")


def _check_texts(document: Any, limits: Limits) -> None:
    longest = limits.max_value_bytes // 4  # a character has four bytes at most
    waiting = [document]
    while waiting:
        part = waiting.pop()
        if isinstance(part, dict):
            waiting.extend(part)
            waiting.extend(part.values())
        elif isinstance(part, list):
            waiting.extend(part)
        elif isinstance(part, str) and len(part) > longest and len(part.encode()) > limits.max_value_bytes:
            raise too_large("max_value_bytes", f"a text is longer than {limits.max_value_bytes:,} bytes")


@dataclass(frozen=True, slots=True)
class _Shape:
    """What is particular to a signal: the names of its lists, and what reads an item."""

    resources: str
    scopes: str
    items: str
    read_item: Callable[[dict[str, Any]], object] | None = None


_SHAPES: dict[Signal, _Shape] = {
    "traces": _Shape("resourceSpans", "scopeSpans", "spans", otlp_json.span_of),
    "logs": _Shape("resourceLogs", "scopeLogs", "logRecords", otlp_json.log_of),
    "metrics": _Shape("resourceMetrics", "scopeMetrics", "metrics"),
}


def _sift(document: Any, shape: _Shape, sieve: Sieve, limits: Limits) -> None:
    """Leave out of a document what cannot be read, and the gateway's own. Raises `DecodeError` for another outline."""
    if not isinstance(document, dict):
        raise DecodeError("the body is no JSON object")
    for resource in objects_of(document, shape.resources):
        otlp_json.attributes_of(object_of(resource, "resource"))
        for scope in objects_of(resource, shape.scopes):
            described = object_of(scope, "scope")
            otlp_json.attributes_of(described)
            if text_of(described, "name") == semconv.GATEWAY_SCOPE:
                scope.clear()
                sieve.changed = True
                continue
            items = objects_of(scope, shape.items)
            kept = [item for item in items if _is_good(item, shape, sieve, limits)]
            if len(kept) < len(items):
                scope[shape.items] = kept


def _is_good(item: dict[str, Any], shape: _Shape, sieve: Sieve, limits: Limits) -> bool:
    try:
        if shape.read_item is not None:
            check_attributes(len(objects_of(item, "attributes")), limits)
            shape.read_item(item)
    except DecodeError as error:
        sieve.reject(str(error))
        return False
    sieve.keep()
    return True
