"""A browser for the tests of one module, and somebody with it for each test."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from playwright.sync_api import Browser

from support.browser import Visit, Visiting, open_browser, visit


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    """One for a module, and no longer: while it is there, its thread has a loop of asyncio that runs."""
    with open_browser() as browser:
        yield browser


@pytest.fixture
def visiting(chromium: Browser) -> Iterator[Visiting]:
    """Makes visitors of an address, each with a browser that knows nothing; none may hear a complaint."""
    visits: list[Visit] = []
    with ExitStack() as stack:

        def visiting_(address: str, **how: Any) -> Visit:
            visits.append(stack.enter_context(visit(chromium, address, **how)))
            return visits[-1]

        yield visiting_
    assert [complaint for visit in visits for complaint in visit.complaints] == []
