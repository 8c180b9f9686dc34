"""Requests in OTLP/JSON, read once at the door.

Names in snake_case are fields that OTLP does not know: ignored, as the specification says.
"""

from __future__ import annotations

import gc
import json
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, NoReturn

from goldspan import semconv
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
"""Bytes of a document from which on it is estimated, and waits for others."""
_MAX_EXPANSION = 80
"""Times as many bytes as its own that a document may take: two backslashes, where there are surrogates to repair."""

# Bytes that CPython 3.11 takes for each, on 64 bits; `sys.getsizeof`, with what comes before an object for collecting
# garbage, and with the rounding of its allocator to 16.
_OBJECT_BYTES = 184  # a dict of up to five keys
_ARRAY_BYTES = 96  # a list of up to four places, and its place elsewhere
_SLOT_BYTES = 16  # of an item in a list, or its share of a dict of many keys
_STRING_BYTES = 64  # a str without its characters
_NUMBER_BYTES = 32  # an int or a float
_NEW_KEY_BYTES = 100  # its places in its dict and in the parser's table of keys, when both have just grown
_MAX_CHARACTER_BYTES = 6  # of a character written as \\ud83d\\ude00: it makes its text wide, while it grows by halves
_SURROGATE_REPAIR_BYTES = 136  # for what `json_fields.repaired` looks at: two pieces of text, and their places

_KNOWN_KEYS = tuple(
    f'"{name}":'.encode()
    for name in (
        "key", "value", "stringValue", "intValue", "doubleValue", "boolValue", "traceId", "spanId", "parentSpanId",
        "name", "kind", "startTimeUnixNano", "endTimeUnixNano", "timeUnixNano", "attributes", "body", "asInt",
        "asDouble",
    )
)  # fmt: skip
"""Keys that OTLP's documents repeat. Parsed, each is one object, however often it is there."""
_NARROW_BYTES = bytes(range(0xC4))
"""All bytes of UTF-8 but those with which a character begins that takes two bytes or four in a `str`."""
_CHUNK_BYTES = MIB
_parse_lock = threading.Lock()


@contextmanager
def exclusive_parsing(body: bytes) -> Iterator[None]:
    """Around the parsing of a document, for as long as its values are there: if it is large, waits until no other large
    one is parsed in this process. Not for an event loop, unless the document is small."""
    if len(body) <= LARGE_DOCUMENT_BYTES:
        yield
        return
    with _parse_lock:
        # Parsing makes no cycles, and to look for some among a million new objects, again and again, takes three times
        # as long as to make them: nobody else runs meanwhile.
        collected = gc.isenabled()
        gc.disable()
        try:
            yield
        finally:
            if collected:
                gc.enable()


def check_parsed_size(body: bytes, limits: ResourceLimits) -> None:
    """Raises `Refused` for a document that takes more memory than is allowed when it is parsed."""
    most = limits.max_parsed_bytes
    if (
        len(body) <= min(LARGE_DOCUMENT_BYTES, most // _MAX_EXPANSION)
        or estimate_parsed_bytes(body, known_keys=()) <= most
    ):
        return
    # Objects alone are often enough of it: known keys, which take a while to count, make them no fewer.
    if body.count(b"{") * _OBJECT_BYTES > most or estimate_parsed_bytes(body) > most:
        raise too_large("max_parsed_bytes", f"the JSON takes more than {most:,} bytes when it is parsed")


def estimate_parsed_bytes(body: bytes, known_keys: Sequence[bytes] = _KNOWN_KEYS) -> int:
    """Bytes of memory that a JSON document takes while it is parsed, its text included: about, and rather too many.

    Fewer where `known` keys are counted, which takes most of the time. What stands for structure is counted in texts as
    well: only a parser could tell.
    """
    count = partial(_count_occurrences, body)
    commas, colons, objects, arrays = count(b","), count(b":"), count(b"{"), count(b"[")
    quotes, escaped = count(b'"'), count(b'\\"')
    backslashes = count(b"\\\\")  # the quote after such a pair is not escaped
    # A known name between quotes before a colon is a key, unless the first quote is within a text itself.
    keys = [count(name) - (count(b"\\" + name) if escaped else 0) for name in known_keys]
    texts = (quotes - max(0, escaped - backslashes)) // 2 - sum(keys)
    new_keys = min(texts, max(0, colons - sum(keys)))
    # Each value comes after a comma or is the first in its object or array; those that are no texts are the rest.
    numbers = max(0, commas + 1 - max(0, (quotes - escaped) // 2 - colons))
    content = len(body) - sum(number * len(name) for number, name in zip(keys, known_keys, strict=True))
    surrogates = b"\\ud" in body or b"\\uD" in body
    written = _bytes_per_character(body)
    read = _MAX_CHARACTER_BYTES if surrogates else max(written, 2 if b"\\u" in body else 1)
    return (
        objects * _OBJECT_BYTES
        + arrays * _ARRAY_BYTES
        + commas * _SLOT_BYTES
        + texts * _STRING_BYTES
        + new_keys * _NEW_KEY_BYTES
        + numbers * _NUMBER_BYTES
        + len(body) * written
        + content * read
        + ((backslashes + count(b"\\u")) * _SURROGATE_REPAIR_BYTES + len(body) * written if surrogates else 0)
    )


def _count_occurrences(body: bytes, mark: bytes) -> int:
    """How often a mark is there, about: what lies across two portions is missed. Others may run between portions."""
    return sum(body.count(mark, start, start + _CHUNK_BYTES) for start in range(0, len(body), _CHUNK_BYTES))


def _bytes_per_character(body: bytes) -> int:
    """Bytes of each character in the text of a document: one that is not in ASCII makes all of a `str` wide."""
    if body.isascii():
        return 1
    wide = body.translate(None, _NARROW_BYTES)
    if not wide:
        return 1
    return 2 if max(wide) < 0xF0 else 4


def validate_json_request(signal: Signal, body: bytes, limits: ResourceLimits) -> ValidatedRequest:
    """Check the body of a request; else as `reading.read`. Half a surrogate pair in it becomes U+FFFD."""
    if len(body) > limits.max_values:
        _check_value_count(body, limits)
    check_parsed_size(body, limits)
    try:
        with exclusive_parsing(body):
            return _validate(signal, body, limits)
    except DecodeError as error:
        raise malformed_request(str(error)) from error
    except RecursionError as error:
        raise malformed_request("the JSON nests too deeply", limit="max_depth") from error
    except ValueError as error:
        raise malformed_request(
            f"the body is no JSON, or text in it is not UTF-8 ({_error_position(error)})"
        ) from error


def _validate(signal: Signal, body: bytes, limits: ResourceLimits) -> ValidatedRequest:
    document, written = _parse(body)
    if len(body) > limits.max_value_bytes:
        _check_text_lengths(document, limits)
    sieve = ItemCounter(limits)
    _drop_invalid_items(document, _SIGNAL_FIELDS[signal], sieve, limits)
    if sieve.is_modified:
        written = json.dumps(document, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()
    return sieve.result(written)


def _parse(body: bytes) -> tuple[Any, bytes]:
    """The document, and how it is written once it is repaired. Its text is not kept: it may be four times as long."""
    text = body.decode()
    whole = replace_lone_surrogates(text)
    return _DECODER.decode(whole), body if whole is text else whole.encode()


def _reject_constant(name: str) -> NoReturn:
    """JSON has no NaN and no Infinity: back ends would refuse the whole request."""
    raise ValueError(f"{name} is no number of JSON")


_DECODER = json.JSONDecoder(parse_constant=_reject_constant)


def _error_position(error: ValueError) -> str:
    """What is wrong and where, without anything of what is there."""
    if isinstance(error, json.JSONDecodeError):
        return f"{error.msg} at character {error.pos}"
    if isinstance(error, UnicodeDecodeError):
        return f"{error.reason} at byte {error.start}"
    return str(error)


def _check_value_count(body: bytes, limits: ResourceLimits) -> None:
    """A value comes after a comma or is the first in its object or array. It takes time as well as memory."""
    if sum(map(body.count, (b",", b"{", b"["))) > limits.max_values:
        raise too_large("max_values", f"the request has more than {limits.max_values:,} values")


def _check_text_lengths(document: Any, limits: ResourceLimits) -> None:
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
class _SignalFields:
    """What is particular to a signal: the names of its lists, and what reads an item."""

    resources: str
    scopes: str
    items: str
    read_item: Callable[[dict[str, Any]], object] | None = None


_SIGNAL_FIELDS: dict[Signal, _SignalFields] = {
    "traces": _SignalFields("resourceSpans", "scopeSpans", "spans", otlp_json.decode_span),
    "logs": _SignalFields("resourceLogs", "scopeLogs", "logRecords", otlp_json.decode_log),
    "metrics": _SignalFields("resourceMetrics", "scopeMetrics", "metrics"),
}


def _drop_invalid_items(
    document: Any, signal_fields: _SignalFields, counter: ItemCounter, limits: ResourceLimits
) -> None:
    """Leave out of a document what cannot be read, and the gateway's own. Raises `DecodeError` for another outline."""
    if not isinstance(document, dict):
        raise DecodeError("the body is no JSON object")
    for resource in objects_field(document, signal_fields.resources):
        otlp_json.decode_attributes(object_field(resource, "resource"))
        for scope in objects_field(resource, signal_fields.scopes):
            described = object_field(scope, "scope")
            otlp_json.decode_attributes(described)
            if text_field(described, "name") == semconv.GATEWAY_SCOPE:
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
        if signal_fields.read_item is not None:
            check_attribute_count(len(objects_field(item, "attributes")), limits)
            signal_fields.read_item(item)
    except DecodeError as error:
        counter.reject(str(error))
        return False
    counter.accept()
    return True
