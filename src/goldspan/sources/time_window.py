"""`TimeWindow`: which traces are read; `SliceCursor` divides it if a search returns no cursor."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


@dataclass(frozen=True, slots=True)
class TimeWindow:
    """The traces that began at `start_ns` or later and before `end_ns`, in nanoseconds since the Unix epoch."""

    start_ns: int
    end_ns: int


@dataclass(frozen=True, slots=True)
class SliceCursor:
    """The slice of a window that is read next, for tools whose search returns the first traces and no cursor.

    The slices go from the end of the window to its start. A slice with too many traces is halved and read again; after
    a slice that could be read, the next is twice as long.
    """

    end_ns: int
    width_ns: int

    @classmethod
    def first(cls, window: TimeWindow) -> SliceCursor:
        """Return the slice that is the whole window."""
        return cls(window.end_ns, window.end_ns - window.start_ns)

    @classmethod
    def from_json(cls, value: Mapping[str, int]) -> SliceCursor:
        """Return the slice that `to_json` described."""
        return cls(value["end_ns"], value["width_ns"])

    def to_json(self) -> dict[str, int]:
        """Return the slice as a JSON value."""
        return {"end_ns": self.end_ns, "width_ns": self.width_ns}

    def slice_of(self, window: TimeWindow) -> TimeWindow:
        """Return the part of the window that is read next."""
        return TimeWindow(max(window.start_ns, self.end_ns - self.width_ns), self.end_ns)

    def halved(self, window: TimeWindow, unit_ns: int) -> SliceCursor | None:
        """Return the later half of the slice, in whole units of the tool's clock; `None` if it is one unit long."""
        current = self.slice_of(window)
        half = (current.end_ns - current.start_ns) // 2 // unit_ns * unit_ns
        return SliceCursor(self.end_ns, half) if half else None

    def following(self, window: TimeWindow) -> SliceCursor | None:
        """Return the slice before this one; `None` at the start of the window."""
        start_ns = self.slice_of(window).start_ns
        return SliceCursor(start_ns, self.width_ns * 2) if start_ns > window.start_ns else None


def rfc3339(time_ns: int) -> str:
    """Return a time in RFC 3339 with microseconds, in UTC."""
    time = _EPOCH + timedelta(microseconds=time_ns // 1000)
    return time.isoformat(timespec="microseconds").replace("+00:00", "Z")


def nanoseconds(text: str) -> int:
    """Return the nanoseconds since the Unix epoch of a time in RFC 3339. Raises `ValueError` for any other text."""
    time = datetime.fromisoformat(text.replace("Z", "+00:00"))
    if time.tzinfo is None:
        time = time.replace(tzinfo=timezone.utc)
    return (time - _EPOCH) // timedelta(microseconds=1) * 1000
