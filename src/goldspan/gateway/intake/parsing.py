"""What parsing a JSON document takes, estimated from its bytes, and one large document at a time.

Python's parser makes up to thirty times as many bytes of objects as a document has, and nobody else runs while it
does. So what it would take is counted first, in a fraction of the time and without memory, and large documents wait for
each other: together they take what one may take.
"""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial

from goldspan.gateway.intake.answers import too_large
from goldspan.gateway.limits import MIB, Limits

LARGE = MIB
"""Bytes of a document from which on it is estimated, and waits for others."""
_WORST = 80
"""Times as many bytes as its own that a document may take: two backslashes, where there are surrogates to repair."""

# Bytes that CPython 3.11 takes for each, on 64 bits; `sys.getsizeof`, with what comes before an object for collecting
# garbage, and with the rounding of its allocator to 16.
_OBJECT = 184  # a dict of up to five keys
_ARRAY = 96  # a list of up to four places, and its place elsewhere
_PLACE = 16  # of an item in a list, or its share of a dict of many keys
_TEXT = 64  # a str without its characters
_NUMBER = 32  # an int or a float
_NEW_KEY = 100  # its places in its dict and in the parser's table of keys, when both have just grown
_WIDEST = 6  # of a character written as \\ud83d\\ude00: it makes its text wide, while it grows by halves
_REPAIR = 136  # for what `json_fields.repaired` looks at: two pieces of text, and their places

_KNOWN = tuple(
    f'"{name}":'.encode()
    for name in (
        "key", "value", "stringValue", "intValue", "doubleValue", "boolValue", "traceId", "spanId", "parentSpanId",
        "name", "kind", "startTimeUnixNano", "endTimeUnixNano", "timeUnixNano", "attributes", "body", "asInt",
        "asDouble",
    )
)  # fmt: skip
"""Keys that OTLP's documents repeat. Parsed, each is one object, however often it is there."""
_BELOW_LATIN_2 = bytes(range(0xC4))
"""All bytes of UTF-8 but those with which a character begins that takes two bytes or four in a `str`."""
_PORTION = MIB
_turn = threading.Lock()


@contextmanager
def turn(body: bytes) -> Iterator[None]:
    """Around the parsing of a document, for as long as its values are there: if it is large, waits until no other large
    one is parsed in this process. Not for an event loop, unless the document is small."""
    if len(body) <= LARGE:
        yield
        return
    with _turn:
        # Parsing makes no cycles, and to look for some among a million new objects, again and again, takes three times
        # as long as to make them: nobody else runs meanwhile.
        collected = gc.isenabled()
        gc.disable()
        try:
            yield
        finally:
            if collected:
                gc.enable()


def check_size(body: bytes, limits: Limits) -> None:
    """Raises `Refused` for a document that takes more memory than is allowed when it is parsed."""
    most = limits.max_parsed_bytes
    if len(body) <= min(LARGE, most // _WORST) or parsed_size(body, known=()) <= most:
        return
    # Objects alone are often enough of it: known keys, which take a while to count, make them no fewer.
    if body.count(b"{") * _OBJECT > most or parsed_size(body) > most:
        raise too_large("max_parsed_bytes", f"the JSON takes more than {most:,} bytes when it is parsed")


def parsed_size(body: bytes, known: Sequence[bytes] = _KNOWN) -> int:
    """Bytes of memory that a JSON document takes while it is parsed, its text included: about, and rather too many.

    Fewer where `known` keys are counted, which takes most of the time. What stands for structure is counted in texts as
    well: only a parser could tell.
    """
    count = partial(_count, body)
    commas, colons, objects, arrays = count(b","), count(b":"), count(b"{"), count(b"[")
    quotes, escaped = count(b'"'), count(b'\\"')
    backslashes = count(b"\\\\")  # the quote after such a pair is not escaped
    # A known name between quotes before a colon is a key, unless the first quote is within a text itself.
    keys = [count(name) - (count(b"\\" + name) if escaped else 0) for name in known]
    texts = (quotes - max(0, escaped - backslashes)) // 2 - sum(keys)
    new_keys = min(texts, max(0, colons - sum(keys)))
    # Each value comes after a comma or is the first in its object or array; those that are no texts are the rest.
    numbers = max(0, commas + 1 - max(0, (quotes - escaped) // 2 - colons))
    content = len(body) - sum(number * len(name) for number, name in zip(keys, known, strict=True))
    surrogates = b"\\ud" in body or b"\\uD" in body
    written = _width(body)
    read = _WIDEST if surrogates else max(written, 2 if b"\\u" in body else 1)
    return (
        objects * _OBJECT
        + arrays * _ARRAY
        + commas * _PLACE
        + texts * _TEXT
        + new_keys * _NEW_KEY
        + numbers * _NUMBER
        + len(body) * written
        + content * read
        + ((backslashes + count(b"\\u")) * _REPAIR + len(body) * written if surrogates else 0)
    )


def _count(body: bytes, mark: bytes) -> int:
    """How often a mark is there, about: what lies across two portions is missed. Others may run between portions."""
    return sum(body.count(mark, start, start + _PORTION) for start in range(0, len(body), _PORTION))


def _width(body: bytes) -> int:
    """Bytes of each character in the text of a document: one that is not in ASCII makes all of a `str` wide."""
    if body.isascii():
        return 1
    wide = body.translate(None, _BELOW_LATIN_2)
    if not wide:
        return 1
    return 2 if max(wide) < 0xF0 else 4
