"""Formats texts, times and numbers for display, and escapes invisible characters in texts."""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import quote, urlencode

from goldspan.store.query_parameters import format_time

_INVISIBLE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u2028\u2029\u202a-\u202e\u2060-\u2069\ufeff\ufff9-\ufffb"
    "\U000e0000-\U000e007f\ud800-\udfff]"
)
"""Control characters, bidirectional and invisible format characters, and unpaired surrogates."""
_ESCAPED = re.compile("⟨U\\+((?:10|[0-9A-F])?[0-9A-F]{4})⟩")
_DURATION_UNITS = ((1, "ns"), (10**3, "µs"), (10**6, "ms"), (10**9, "s"))
_MINUTE_NS = 60 * 10**9


def escape_invisible(text: str) -> str:
    """Replace each invisible or bidirectional character by its code point.

    >>> escape_invisible("a\\u202eb\\0")
    'a⟨U+202E⟩b⟨U+0000⟩'
    """
    return _INVISIBLE.sub(lambda found: f"⟨U+{ord(found[0]):04X}⟩", text)


def unescape_invisible(text: str) -> str:
    """Undo `escape_invisible`, for the texts that a form sends back.

    >>> unescape_invisible(escape_invisible("a\\u202eb")) == "a\\u202eb"
    True
    """
    return _ESCAPED.sub(
        lambda found: character if _INVISIBLE.fullmatch(character := chr(int(found[1], 16))) else found[0], text
    )


def truncate_value(text: str, length: int) -> str:
    """Return the text, or its beginning and the number of omitted characters."""
    return text if len(text) <= length else f"{text[:length]}… ({len(text) - length} more characters)"


def duration(nanoseconds: int | None) -> str:
    """Format a duration with three digits.

    >>> duration(1_234_567), duration(10 * 10**9), duration(90 * 10**9), duration(None)
    ('1.23 ms', '10 s', '1 min 30 s', 'not known')
    """
    if nanoseconds is None or nanoseconds < 0:
        return "not known"
    if nanoseconds >= _MINUTE_NS:
        minutes, rest = divmod(nanoseconds, _MINUTE_NS)
        return f"{minutes} min {rest // 10**9} s"
    unit, name = next(
        (entry for entry in _DURATION_UNITS if nanoseconds < 999.5 * entry[0]), _DURATION_UNITS[-1]
    )  # 999.6 would be formatted as 1e+03
    return f"{nanoseconds / unit:.3g} {name}"


def percent(share: float | None) -> str:
    """Format a share from 0 to 1 in per cent. Only exactly 1 is 100 %, and only exactly 0 is 0 %.

    >>> percent(0.9999), percent(1.0), percent(None)
    ('99.9 %', '100 %', 'not known')
    """
    if share is None:
        return "not known"
    if share in (0, 1):
        return f"{share:.0%}".replace("%", " %")
    return f"{min(max(share * 100, 0.1), 99.9):.1f} %"


def number(value: float | None) -> str:
    """Format a score with at most four decimal places; `None` is a dash.

    >>> number(0.5), number(1), number(None)
    ('0.5', '1', '—')
    """
    return "—" if value is None else f"{value:.4f}".rstrip("0").rstrip(".")


def dollars(cost: float) -> str:
    """Format a cost in US dollars, with up to six decimal places.

    >>> dollars(0.00025), dollars(12), dollars(0.0)
    ('US$ 0.00025', 'US$ 12', 'US$ 0')
    """
    return f"US$ {cost:.6f}".rstrip("0").rstrip(".")


def grouped(count: int) -> str:
    """Format a count with thin spaces between thousands.

    >>> grouped(100000)
    '100\\u202f000'
    """
    return f"{count:,}".replace(",", "\u202f")


def plural(count: int, word: str) -> str:
    """Format a count with its noun in the singular or plural.

    >>> plural(1, "run"), plural(2, "run")
    ('1 run', '2 runs')
    """
    return f"{grouped(count)} {word}{'' if count == 1 else 's'}"


def instant(time_ns: int) -> str:
    """Format a time in UTC, to the millisecond, for the attribute `datetime` of `<time>`; scripts show local time."""
    return format_time(time_ns)[:-7] + "Z"


def instant_utc(time_ns: int) -> str:
    """Format a time in UTC for readers."""
    return instant(time_ns)[:19].replace("T", " ") + " UTC"


def run_address(run_id: str, revision: int | None = None) -> str:
    """Return the address of a run."""
    path = f"/runs/{quote(run_id.encode('utf-8', 'replace'), safe=':')}"
    return path if revision is None else f"{path}?revision={revision}"


def golden_address(golden_id: str) -> str:
    """Return the address of a golden."""
    return f"/goldens/{quote(golden_id.encode('utf-8', 'replace'), safe='')}"


def list_address(**filters: Any) -> str:
    """Return the address of the run list with these filters."""
    values = {name: str(value) for name, value in filters.items() if value not in (None, "")}
    return "/?" + urlencode(values, errors="replace") if values else "/"
