"""Prepares the environment of programs that tests interrupt with Ctrl+C."""

from __future__ import annotations

import os


def unmeasured(**changes: str) -> dict[str, str]:
    """Return the environment of a program that a test interrupts, with these changes and without coverage measurement.

    coverage records under a lock, in Python. A `KeyboardInterrupt` that is raised there never releases the lock, and
    the program waits for it forever.
    """
    measuring = ("COVERAGE_PROCESS_START", "COVERAGE_PROCESS_CONFIG")
    return {key: value for key, value in os.environ.items() if key not in measuring} | changes
