"""What an assembly gives out: spans in which runs came to their end, or changed; and what did not come as it should."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import TypeAlias

from goldspan.model import Run, SpanRecord, Unit

Place: TypeAlias = tuple[Unit, str]
"""Of what: the unit and the id of a run."""
Revision: TypeAlias = "tuple[int, str | None]"
"""The number of a revision and the digest of what it says."""


class Known(dict[Place, Revision]):
    """What was given out of one trace: the latest revision of each run.

    `None` for the digest: it is that of the run as the spans show it that were there before. Revision 0: nothing was
    given out of it yet, or it was not to be scored.
    """

    __slots__ = ("_noting", "latest")

    def __init__(self) -> None:
        super().__init__()
        self.latest = 0
        """The number of the latest portion that was concluded: what was seen earlier says less."""
        self._noting = threading.Lock()

    def note(self, place: Place, known: Revision | None, new: Revision) -> bool:
        """Put something new in the place of what was `known`; `False` where another thread has done so meanwhile.

        What was not noted is not given out. So no revision is given out twice, nor what was seen earlier after what was
        seen later, whoever takes longer to judge it.
        """
        with self._noting:
            if self.get(place) != known:
                return False
            self[place] = new
            return True

    def note_first(self, place: Place, digest: str | None) -> bool:
        """Put the first revision; `False` where another thread has given out one meanwhile, of what was seen later."""
        with self._noting:
            if place in self and self[place][0] > 0:
                return False
            self[place] = (1, digest)
            return True


@dataclass(frozen=True, slots=True)
class Ended:
    """The spans in which something came to its end: extract them, and take the runs that it `holds`."""

    unit: Unit
    spans: tuple[SpanRecord, ...]
    span_id: str | None = None
    """The span the run stands on; `None`: take every run but those on spans `given` before."""
    given: frozenset[str] = frozenset()
    unended: int = 0
    """Spans of it that have not ended."""
    known: Known = field(default_factory=Known)
    """What was given out of its trace and may change. To be kept up to date."""

    @property
    def grows(self) -> bool:
        """Whether it is likely to change, so that what is given out of it is to be noted."""
        return self.unended > 0 or self.unit == "component"

    def holds(self, run: Run) -> bool:
        """Whether the run came to its end here, and not before or somewhere else."""
        return run.span_id not in self.given if self.span_id is None else run.span_id == self.span_id


@dataclass(frozen=True, slots=True)
class Revised:
    """The spans of requests that were given out before, and with those that came late: some runs are others now."""

    before: tuple[SpanRecord, ...]
    after: tuple[SpanRecord, ...]
    there: frozenset[str]
    """The spans that have ended. Runs that stand on others are still in flight, unless they were given out before."""
    known: Known
    """What was given out of its trace and may change, or changed before. To be kept up to date."""
    number: int = 0
    """Grows with each of a process."""

    def is_outdated(self) -> bool:
        """Whether another thread has concluded meanwhile what was seen later."""
        return self.number < self.known.latest


Portion: TypeAlias = Ended | Revised


@dataclass(slots=True)
class Counts:
    """What happened to spans and traces that did not come as they should, since the process began."""

    late: int = 0
    """Spans that ended after their run was scored. It is scored again, unless they come too late for that."""
    too_late: int = 0
    """Spans that ended when their run was no longer kept, or whose start was never seen."""
    duplicates: int = 0
    """Spans that ended twice."""
    evicted: int = 0
    """Traces that were taken as they were because too much was in flight."""
    unended: int = 0
    """Traces that were taken as they were because nothing had happened in them for long."""
    unscored: int = 0
    """Spans that were not taken in, and those in flight of the same traces: each counts once."""
