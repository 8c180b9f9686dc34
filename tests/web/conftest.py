"""A browser for the tests of one module, with a new context for each test."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from playwright.sync_api import Browser

from support.browser import Visit, Visiting, open_browser, visit
from support.command_line import goldspan

__all__ = ["goldspan"]


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    """One browser per module. While it is open, an asyncio loop runs in its thread."""
    with open_browser() as browser:
        yield browser


@pytest.fixture
def visiting(chromium: Browser) -> Iterator[Visiting]:
    """Creates visitors with an empty browser context each; a test fails if one of them reports a problem."""
    visits: list[Visit] = []
    with ExitStack() as stack:

        def visiting_(address: str, **how: Any) -> Visit:
            visits.append(stack.enter_context(visit(chromium, address, **how)))
            return visits[-1]

        yield visiting_
    assert [complaint for visit in visits for complaint in visit.complaints] == []
