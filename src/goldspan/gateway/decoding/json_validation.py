"""Validates OTLP/JSON requests for the receivers, and estimates the memory that parsing takes.

Names in snake_case are not OTLP/JSON fields. They are ignored, as the specification requires.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, NoReturn

from goldspan import semconv
from goldspan._garbage_collection import garbage_collection_paused
from goldspan.gateway.decoding.export_response import (
    ItemCounter,
    ValidatedRequest,
    check_attribute_count,
    malformed_request,
    too_large,
)
from goldspan.gateway.resource_limits import MIB, ResourceLimits, Signal
from goldspan.otlp import otlp_json
from goldspan.otlp.decode_results import DecodeError
from goldspan.otlp.json_fields import object_field, objects_field, replace_lone_surrogates, text_field

LARGE_DOCUMENT_BYTES = MIB
"""The memory of larger documents is estimated, and only one of them is parsed at a time."""
_MAX_EXPANSION = 80
"""Maximum ratio of memory to document size: two backslashes in a document with surrogates to repair."""

# Bytes per value in 64-bit CPython 3.11: `sys.getsizeof` plus the garbage collector's header, rounded up to 16 as the
# allocator does.
_OBJECT_BYTES = 184  # a dict of up to five keys
_ARRAY_BYTES = 96  # a list of up to four slots, and its own slot in its parent
_SLOT_BYTES = 16  # an item in a list, or its share of a dict with many keys
_STRING_BYTES = 64  # a str, without its characters
_NUMBER_BYTES = 32  # an int or a float
_NEW_KEY_BYTES = 100  # its slots in its dict and in the parser's key table, when both have just grown
_MAX_CHARACTER_BYTES = 6  # with \\ud83d\\ude00 in it, a str is 4 bytes wide and over-allocated by half
_SURROGATE_REPAIR_BYTES = 136  # for `json_fields.replace_lone_surrogates`: two pieces of text and their slots

_KNOWN_KEYS = tuple(
    f'"{name}":'.encode()
    for name in (
        "key", "value", "stringValue", "intValue", "doubleValue", "boolValue", "traceId", "spanId", "parentSpanId",
        "name", "kind", "startTimeUnixNano", "endTimeUnixNano", "timeUnixNano", "attributes", "body", "asInt",
        "asDouble",
    )
)  # fmt: skip
"""Keys that OTLP documents repeat. The parser creates one str per key, however often it occurs."""
_NARROW_BYTES = bytes(range(0xC4))
"""All bytes except the UTF-8 lead bytes of characters that take two or four bytes in a `str`."""
_CHUNK_BYTES = MIB
_parse_lock = threading.Lock()


def validate_json_request(signal: Signal, body: bytes, limits: ResourceLimits) -> ValidatedRequest:
    """Validate a JSON body, as `validate_request` does. A lone surrogate becomes U+FFFD."""
    if len(body) > limits.max_values:
        _check_value_count(body, limits)
    check_parsed_size(body, limits)
    try:
        with exclusive_parsing(body):
            return _validate(signal, body, limits)
    except DecodeError as error:
        raise malformed_request(str(error)) from error
    except RecursionError as error:
        raise malformed_request("the JSON is nested too deeply", limit="max_depth") from error
    except ValueError as error:
        raise malformed_request(
            f"the body is not JSON, or text in it is not UTF-8 ({_error_position(error)})"
        ) from error


def _validate(signal: Signal, body: bytes, limits: ResourceLimits) -> ValidatedRequest:
    document, repaired_body = _parse(body)
    if len(body) > limits.max_value_bytes:
        _check_text_lengths(document, limits)
    counter = ItemCounter(limits)
    _drop_invalid_items(document, _SIGNAL_FIELDS[signal], counter, limits)
    if counter.is_modified:
        repaired_body = json.dumps(document, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()
    return counter.result(repaired_body)


def _parse(body: bytes) -> tuple[Any, bytes]:
    """Return the document and its repaired body. The text is not kept: it can take four times as many bytes."""
    text = body.decode()
    repaired = replace_lone_surrogates(text)
    return _DECODER.decode(repaired), body if repaired is text else repaired.encode()


def _reject_constant(name: str) -> NoReturn:
    """Reject NaN and Infinity. JSON has neither, and back ends would refuse the whole request."""
    raise ValueError(f"{name} is not a JSON number")


_DECODER = json.JSONDecoder(parse_constant=_reject_constant)


def _error_position(error: ValueError) -> str:
    """Describe an error and its position without quoting the body."""
    if isinstance(error, json.JSONDecodeError):
        return f"{error.msg} at character {error.pos}"
    if isinstance(error, UnicodeDecodeError):
        return f"{error.reason} at byte {error.start}"
    return str(error)


def _check_value_count(body: bytes, limits: ResourceLimits) -> None:
    """Raise `RequestRefused` for too many values, which cost time and memory.

    Each value follows a comma or is the first in its object or array.
    """
    if sum(map(body.count, (b",", b"{", b"["))) > limits.max_values:
        raise too_large("max_values", f"the request has more than {limits.max_values:,} values")


def _check_text_lengths(document: Any, limits: ResourceLimits) -> None:
    min_characters = limits.max_value_bytes // 4  # a character has at most four bytes in UTF-8
    waiting = [document]
    while waiting:
        part = waiting.pop()
        if isinstance(part, dict):
            waiting.extend(part)
            waiting.extend(part.values())
        elif isinstance(part, list):
            waiting.extend(part)
        elif isinstance(part, str) and len(part) > min_characters and len(part.encode()) > limits.max_value_bytes:
            raise too_large("max_value_bytes", f"a string is longer than {limits.max_value_bytes:,} bytes")


@dataclass(frozen=True, slots=True)
class _SignalFields:
    """The list names of a signal, and the function that decodes one of its items."""

    resources: str
    scopes: str
    items: str
    decode_item: Callable[[dict[str, Any]], object] | None = None


_SIGNAL_FIELDS: dict[Signal, _SignalFields] = {
    "traces": _SignalFields("resourceSpans", "scopeSpans", "spans", otlp_json.decode_span),
    "logs": _SignalFields("resourceLogs", "scopeLogs", "logRecords", otlp_json.decode_log),
    "metrics": _SignalFields("resourceMetrics", "scopeMetrics", "metrics"),
}


def _drop_invalid_items(
    document: Any, signal_fields: _SignalFields, counter: ItemCounter, limits: ResourceLimits
) -> None:
    """Drop items that cannot be decoded and the gateway's own telemetry.

    Raises `DecodeError` if the document does not have the structure of a request.
    """
    if not isinstance(document, dict):
        raise DecodeError("the body is not a JSON object")
    for resource in objects_field(document, signal_fields.resources):
        otlp_json.decode_attributes(object_field(resource, "resource"))
        for scope in objects_field(resource, signal_fields.scopes):
            scope_description = object_field(scope, "scope")
            otlp_json.decode_attributes(scope_description)
            if text_field(scope_description, "name") == semconv.GATEWAY_SCOPE:
                scope.clear()
                counter.is_modified = True
                continue
            items = objects_field(scope, signal_fields.items)
            kept = [item for item in items if _is_valid_item(item, signal_fields, counter, limits)]
            if len(kept) < len(items):
                scope[signal_fields.items] = kept


def _is_valid_item(
    item: dict[str, Any], signal_fields: _SignalFields, counter: ItemCounter, limits: ResourceLimits
) -> bool:
    try:
        if signal_fields.decode_item is not None:
            check_attribute_count(len(objects_field(item, "attributes")), limits)
            signal_fields.decode_item(item)
    except DecodeError as error:
        counter.reject(str(error))
        return False
    counter.accept()
    return True


@contextmanager
def exclusive_parsing(body: bytes) -> Iterator[None]:
    """Allow one large document at a time in this process; small documents do not wait.

    The block covers the parsing and the use of the parsed values. It blocks the thread: an event loop must use it only
    for small documents.
    """
    if len(body) <= LARGE_DOCUMENT_BYTES:
        yield
        return
    # Parsing creates no reference cycles. Collections take three times as long as the parsing of a million objects, and
    # no other thread runs meanwhile.
    with _parse_lock, garbage_collection_paused():
        yield


def check_parsed_size(body: bytes, limits: ResourceLimits) -> None:
    """Raise `RequestRefused` if parsing the document takes more memory than the limit."""
    max_bytes = limits.max_parsed_bytes
    if (
        len(body) <= min(LARGE_DOCUMENT_BYTES, max_bytes // _MAX_EXPANSION)
        or estimate_parsed_bytes(body, known_keys=()) <= max_bytes
    ):
        return
    # The objects alone often exceed the limit. Counting the known keys is slow and does not change their number.
    if body.count(b"{") * _OBJECT_BYTES > max_bytes or estimate_parsed_bytes(body) > max_bytes:
        raise too_large("max_parsed_bytes", f"the JSON takes more than {max_bytes:,} bytes when it is parsed")


def estimate_parsed_bytes(body: bytes, known_keys: Sequence[bytes] = _KNOWN_KEYS) -> int:
    """Return the approximate memory, in bytes, that parsing a JSON document takes, including its text.

    The estimate errs on the high side. `known_keys` lowers it, and counting them takes most of the time. Structural
    characters inside strings are counted as well, since only a parser can tell them apart.
    """
    count = partial(_count_occurrences, body)
    commas, colons, objects, arrays = count(b","), count(b":"), count(b"{"), count(b"[")
    quotes, escaped = count(b'"'), count(b'\\"')
    backslashes = count(b"\\\\")  # a quote after such a pair is not escaped
    # A known name in quotes before a colon is a key, unless its first quote is escaped inside a string.
    keys = [count(name) - (count(b"\\" + name) if escaped else 0) for name in known_keys]
    texts = (quotes - max(0, escaped - backslashes)) // 2 - sum(keys)
    new_keys = min(texts, max(0, colons - sum(keys)))
    # Each value follows a comma or is the first in its object or array. The values that are not strings remain.
    numbers = max(0, commas + 1 - max(0, (quotes - escaped) // 2 - colons))
    content = len(body) - sum(number * len(name) for number, name in zip(keys, known_keys, strict=True))
    surrogates = b"\\ud" in body or b"\\uD" in body
    body_width = _bytes_per_character(body)
    string_width = _MAX_CHARACTER_BYTES if surrogates else max(body_width, 2 if b"\\u" in body else 1)
    return (
        objects * _OBJECT_BYTES
        + arrays * _ARRAY_BYTES
        + commas * _SLOT_BYTES
        + texts * _STRING_BYTES
        + new_keys * _NEW_KEY_BYTES
        + numbers * _NUMBER_BYTES
        + len(body) * body_width
        + content * string_width
        + ((backslashes + count(b"\\u")) * _SURROGATE_REPAIR_BYTES + len(body) * body_width if surrogates else 0)
    )


def _count_occurrences(body: bytes, mark: bytes) -> int:
    """Count occurrences chunk by chunk, so that other threads can run. Misses those across a chunk boundary."""
    return sum(body.count(mark, start, start + _CHUNK_BYTES) for start in range(0, len(body), _CHUNK_BYTES))


def _bytes_per_character(body: bytes) -> int:
    """Return the bytes per character of the document as a `str`: its widest character determines them."""
    if body.isascii():
        return 1
    wide = body.translate(None, _NARROW_BYTES)
    if not wide:
        return 1
    return 2 if max(wide) < 0xF0 else 4
