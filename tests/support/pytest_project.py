"""A project that tests a small agent with the pytest plugin, in processes of its own."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

AGENT = """
import goldspan

@goldspan.trace
def search(city): return ["Roma Inn"]

@goldspan.trace
def book(hotel): return "booked"

@goldspan.trace(kind="agent")
def agent(question):
    if "Book" in question:
        search("Rome")
        book("Casa Roma")
    elif "raise" in question:
        search("Rome")
        raise ValueError("no such hotel")

@goldspan.trace(kind="agent")
async def async_agent(question):
    agent(question)
"""
GOLDENS = """
goldens:
  - {id: book, tags: [fast], input: Book a hotel, tools: [search, book]}
  - {id: refund, input: Refund it, tools: [refund]}
"""
FIRST_TEST = """
import pytest
from app import agent

@pytest.mark.goldens("goldens.yaml")
def test_agent(golden_case):
    agent(golden_case.input)
"""


@pytest.fixture
def project(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    """A project with an agent and goldens."""
    monkeypatch.syspath_prepend(pytester.path)
    pytester.makepyfile(app=AGENT)
    (pytester.path / "goldens.yaml").write_text(GOLDENS)
    return pytester


WITHOUT_OTHERS = ("-p", "no:cacheprovider", "-p", "no:anyio", "-p", "no:hypothesispytest")
"""Plugins that these projects do not need take half of the time to start pytest."""


def run(project: pytest.Pytester, *arguments: str, options: Sequence[str] = WITHOUT_OTHERS) -> pytest.RunResult:
    """Run the tests of a project in a process of their own, because a process has one tracer provider."""
    return project.runpytest_subprocess(*options, *arguments)
