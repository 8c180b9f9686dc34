"""How much work may go into one comparison, so that a hostile or huge run costs a second and not an hour."""

from __future__ import annotations

MOST_STEPS = 20_000_000
"""A step is one turn of an innermost loop, about a tenth of a microsecond."""


class Effort:
    """The work that is left, and what had to be given up for want of it.

    It counts steps and not time, so that the same comparison comes out the same on every machine.
    """

    def __init__(self, steps: int = MOST_STEPS) -> None:
        self.left = steps
        self.given_up: str | None = None
        """What could not be done as well as possible; `None`: nothing."""

    def covers(self, steps: int) -> bool:
        """Whether so many steps may be done; if so, they are spent."""
        if steps > self.left:
            return False
        self.left -= steps
        return True

    def give_up(self, what: str) -> None:
        """Remember that something was not done as well as possible; the first thing is what is told."""
        self.given_up = self.given_up or what
