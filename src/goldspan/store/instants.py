"""Points in time as people write them, and as they are shown."""

from __future__ import annotations

import re
from datetime import datetime, timedelta, timezone

from goldspan.errors import ConfigurationError

AGO = r"[0-9]{1,6}[smhdw]"
"""How long ago, as a regular expression: `24h`, `7d`."""
DATE_TIME = (
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}"
    r"([Tt ][0-9]{2}:[0-9]{2}(:[0-9]{2}(\.[0-9]{1,9})?)?([Zz]|[+-][0-9]{2}:[0-9]{2})?)?"
)
"""A date, or a date and a time of RFC 3339, section 5.6, whose seconds and zone may be left out."""

_EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001 - the zone is reckoned with by hand: in the first and the last year it may
# lead out of what a datetime can say
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}


def instant(text: str, now_ns: int) -> int:
    """A point in time in nanoseconds since the Unix epoch, from a date, a date with a time, or how long ago.

    Without a zone it is UTC. Raises `ConfigurationError` for anything else.
    """
    if re.fullmatch(AGO, text):
        return now_ns - int(text[:-1]) * _SECONDS[text[-1]] * 10**9
    try:
        return _of_date(text)
    except ValueError:
        told = f"{text[:60]!r} is no time; write it as 2026-01-31, 2026-01-31T08:00 or 7d"
        raise ConfigurationError(told) from None


def shown_instant(time_ns: int) -> str:
    """A point in time as RFC 3339 has it, in UTC and to the nanosecond."""
    seconds, nanoseconds = divmod(time_ns, 10**9)
    told = datetime.fromtimestamp(seconds, timezone.utc)
    return f"{told:%Y-%m-%dT%H:%M:%S}.{nanoseconds:09}Z"


def _of_date(text: str) -> int:
    found = re.fullmatch(DATE_TIME, text)
    if found is None:
        raise ValueError(text)
    zone = found[4] or "Z"
    ahead = timedelta() if zone in "Zz" else timedelta(hours=int(zone[1:3]), minutes=int(zone[4:6]))
    if ahead >= timedelta(days=1):
        raise ValueError(text)
    written = text.removesuffix(zone) if found[4] else text
    fraction = found[3] or ""
    told = datetime.fromisoformat(written.removesuffix(fraction).upper())
    seconds = (told - _EPOCH) // timedelta(seconds=1) - (-1 if zone[0] == "-" else 1) * (ahead // timedelta(seconds=1))
    return seconds * 10**9 + int(f"{fraction[1:]:0<9}")
