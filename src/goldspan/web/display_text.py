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
"""Control characters, those that turn the direction of text or hide in it, and halves of surrogate pairs."""
_ESCAPED = re.compile("⟨U\\+((?:10|[0-9A-F])?[0-9A-F]{4})⟩")
_DURATION_UNITS = ((1, "ns"), (10**3, "µs"), (10**6, "ms"), (10**9, "s"))
_MINUTE_NS = 60 * 10**9


def escape_invisible(text: str) -> str:
    """A text in which nothing is hidden: what cannot be seen, or moves what can, is told by its number.

    >>> visible("a\\u202eb\\0")
    'a⟨U+202E⟩b⟨U+0000⟩'
    """
    return _INVISIBLE.sub(lambda found: f"⟨U+{ord(found[0]):04X}⟩", text)


def unescape_invisible(shown: str) -> str:
    """The text that is shown so: a form hands back what `visible` made of it.

    >>> meant(visible("a\\u202eb")) == "a\\u202eb"
    True
    """
    return _ESCAPED.sub(
        lambda found: character if _INVISIBLE.fullmatch(character := chr(int(found[1], 16))) else found[0], shown
    )


def truncate_value(text: str, length: int) -> str:
    """A text, or its beginning and how much there is more of it."""
    return text if len(text) <= length else f"{text[:length]}… ({len(text) - length} more characters)"


def duration(nanoseconds: int | None) -> str:
    """How long something took, in three digits.

    >>> duration(1_234_567), duration(10 * 10**9), duration(90 * 10**9), duration(None)
    ('1.23 ms', '10 s', '1 min 30 s', 'not known')
    """
    if nanoseconds is None or nanoseconds < 0:
        return "not known"
    if nanoseconds >= _MINUTE_NS:
        minutes, rest = divmod(nanoseconds, _MINUTE_NS)
        return f"{minutes} min {rest // 10**9} s"
    unit, name = next(
        (each for each in _DURATION_UNITS if nanoseconds < 999.5 * each[0]), _DURATION_UNITS[-1]
    )  # 999.6 would be 1e+03
    return f"{nanoseconds / unit:.3g} {name}"


def percent(share: float | None) -> str:
    """A share of one in per cent; only all is 100 %, and only nothing is 0 %.

    >>> percent(0.9999), percent(1.0), percent(None)
    ('99.9 %', '100 %', 'not known')
    """
    if share is None:
        return "not known"
    if share in (0, 1):
        return f"{share:.0%}".replace("%", " %")
    return f"{min(max(share * 100, 0.1), 99.9):.1f} %"


def number(value: float | None) -> str:
    """A score in at most four digits after the point; what is not known is a dash.

    >>> number(0.5), number(1), number(None)
    ('0.5', '1', '—')
    """
    return "—" if value is None else f"{value:.4f}".rstrip("0").rstrip(".")


def dollars(cost: float) -> str:
    """What something cost, also where that is very little.

    >>> dollars(0.00025), dollars(12), dollars(0.0)
    ('US$ 0.00025', 'US$ 12', 'US$ 0')
    """
    return f"US$ {cost:.6f}".rstrip("0").rstrip(".")


def grouped(count: int) -> str:
    """A count with thin spaces between thousands.

    >>> grouped(100000)
    '100\\u202f000'
    """
    return f"{count:,}".replace(",", "\u202f")


def plural(count: int, word: str) -> str:
    """A count with its word.

    >>> plural(1, "run"), plural(2, "run")
    ('1 run', '2 runs')
    """
    return f"{grouped(count)} {word}{'' if count == 1 else 's'}"


def instant(time_ns: int) -> str:
    """A point in time for the `datetime` of a `<time>`, to the millisecond, in UTC; scripts show it in the zone of
    whoever looks."""
    return format_time(time_ns)[:-7] + "Z"


def instant_utc(time_ns: int) -> str:
    """A point in time as it is shown where no script runs."""
    return instant(time_ns)[:19].replace("T", " ") + " UTC"


def run_address(run_id: str, revision: int | None = None) -> str:
    """Where a run is shown."""
    path = f"/runs/{quote(run_id.encode('utf-8', 'replace'), safe=':')}"
    return path if revision is None else f"{path}?revision={revision}"


def golden_address(golden_id: str) -> str:
    """Where a golden is shown."""
    return f"/goldens/{quote(golden_id.encode('utf-8', 'replace'), safe='')}"


def list_address(**filters: Any) -> str:
    """Where the runs are listed that the filters mean."""
    said = {name: str(value) for name, value in filters.items() if value not in (None, "")}
    return "/?" + urlencode(said, errors="replace") if said else "/"
