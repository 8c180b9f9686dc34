"""What the model of each agent answers to a request: one tool call a turn, and then a text."""

from __future__ import annotations

import os
from collections import Counter
from typing import Any

SEARCH = ("search_hotels", {"city": "Paris"})
BOOK = ("book_hotel", {"hotel": "Paris Inn"})
CALLS: dict[str, list[tuple[str, dict[str, Any]]]] = {
    "Find a hotel in Paris and book it.": [SEARCH, BOOK],
    "Cancel my booking.": [SEARCH],
    "Book the second time.": [SEARCH, BOOK],
    "Raise an error.": [SEARCH],
    "Hang.": [SEARCH],
}
HOURS = 3600.0

_requests = Counter[str]()
"""How often each test has made the request that succeeds the second time."""


def next_call(request: str, results: int) -> tuple[str, dict[str, Any]] | None:
    """Return the call that the model requests after it has received a number of results; `None`: it answers."""
    calls = CALLS[request]
    if request == "Book the second time.":
        test = os.environ["PYTEST_CURRENT_TEST"]
        _requests[test] += results == 0
        if _requests[test] == 1:
            calls = calls[:1]
    if results < len(calls):
        return calls[results]
    if request == "Raise an error.":
        raise ConnectionError("the model is overloaded")
    return None


def is_hanging(request: str, results: int) -> bool:
    """Whether the model never answers."""
    return request == "Hang." and results == 1
