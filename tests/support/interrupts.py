"""Programs that tests interrupt with Ctrl-C."""

from __future__ import annotations

import os


def unmeasured(**changes: str) -> dict[str, str]:
    """The environment of a program that a test interrupts at work, with these changes and without coverage measurement.

    coverage takes a lock around what it records, in Python. A `KeyboardInterrupt` that is raised in there leaves the
    lock taken, and the program waits for it without end.
    """
    measuring = ("COVERAGE_PROCESS_START", "COVERAGE_PROCESS_CONFIG")
    return {key: value for key, value in os.environ.items() if key not in measuring} | changes
