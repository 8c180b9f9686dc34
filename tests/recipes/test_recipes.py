"""Tests of the programs of docs/recipes.md, each in an environment with its tracer."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from capture.receivers import Received, http_receiver, plain
from recipes.environments import REQUIREMENTS, is_built, python_of
from support.docs_examples import ROOT, blocks

PAGE = (ROOT / "docs" / "recipes.md").read_text(encoding="utf-8")


def _programs() -> dict[str, str]:
    """Return the programs of the page, by the name in the comment above each one."""
    names = re.findall(r"^<!-- recipe: (\w+) -->$", PAGE, flags=re.MULTILINE)
    lines = PAGE.splitlines()
    marks = [lines.index(f"<!-- recipe: {name} -->") for name in names]
    found = list(blocks(PAGE))
    return {
        name: next(block.text for block in found if block.line > mark) for name, mark in zip(names, marks, strict=True)
    }


PROGRAMS = _programs()


@pytest.fixture
def python(request: pytest.FixtureRequest) -> Path:
    """The interpreter for a recipe: that of the tests if goldspan's own dependencies are enough."""
    name = request.param
    if name == "plain":
        return Path(sys.executable)
    if not is_built(name):
        pytest.skip(f"{name}'s environment is missing: make recipes")
    return python_of(name)


@pytest.fixture
def received() -> Iterator[tuple[str, Received]]:
    with http_receiver() as receiver:
        yield receiver


def run(python: Path, program: str, endpoint: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a program whose tracer sends to the receiver, in a folder with the goldens of the page."""
    (folder / "goldens.yaml").write_text(next(block.text for block in blocks(PAGE) if block.language == "yaml"))
    (folder / "program.py").write_text(program)
    settings = {
        "GOLDSPAN_STRICT": "0",
        "OTEL_EXPORTER_OTLP_ENDPOINT": endpoint,
        "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf",
        "LANGFUSE_BASE_URL": endpoint,
        "LANGFUSE_PUBLIC_KEY": "pk-lf-1",
        "LANGFUSE_SECRET_KEY": "sk-lf-1",
        "TRACELOOP_BASE_URL": endpoint,
        "TRACELOOP_API_KEY": "none",
        "TRACELOOP_TELEMETRY": "false",
        "NO_PROXY": "127.0.0.1",
    }
    return subprocess.run(
        [python, "program.py"],
        cwd=folder,
        env={**os.environ, **settings},
        capture_output=True,
        encoding="utf-8",
        check=False,
        timeout=120,
    )


TOOLS = {
    "plain": ["execute_tool book_hotel", "execute_tool search_hotels", "invoke_agent travel"],
    "logfire": ["call {tool}", "call {tool}", "invoke_agent travel"],
    "langfuse": ["book_hotel", "search_hotels", "travel"],
    "traceloop": ["book_hotel.tool", "search_hotels.tool", "travel.workflow"],
    "openinference": ["book_hotel", "search_hotels", "travel"],
}
"""The spans that each program makes."""


@pytest.mark.e2e
@pytest.mark.parametrize(("python", "name"), [(name, name) for name in TOOLS], indirect=["python"], ids=list(TOOLS))
def test_beside_it_every_run_is_scored_and_every_span_still_arrives(
    python: Path, name: str, received: tuple[str, Received], tmp_path: Path
) -> None:
    endpoint, got = received
    done = run(python, PROGRAMS[name], endpoint, tmp_path)
    assert done.returncode == 0, done.stderr
    names = [span.name for scope in got._scopes("resource_spans", "scope_spans") for span in scope.spans]
    assert sorted(name for name in names if name != "evaluate request") == TOOLS[name], done.stderr
    results = _results(got)
    assert results["passed"], done.stderr
    assert results["tools_used"] in (["search_hotels", "book_hotel"], None)
    assert "Traceback" not in done.stderr


def _results(got: Received) -> dict[str, object]:
    """The verdict on the run, wherever it arrived."""
    for span in got.spans.values():
        attributes = plain(span.attributes)
        if "goldspan.passed" in attributes:
            return {"passed": attributes["goldspan.passed"], "tools_used": attributes["goldspan.tools_used"]}
    labels = [plain(event.attributes).get("gen_ai.evaluation.score.label") for event in got.events]
    return {"passed": "pass" in labels and "fail" not in labels, "tools_used": None}


@pytest.mark.e2e
def test_every_recipe_of_the_page_is_run() -> None:
    assert set(PROGRAMS) == set(TOOLS)
    others = {"servers", "rotel", "schemathesis", "data_frames", "spark", "mcp"}
    others |= {"pydantic_ai", "openai_agents", "langgraph", "google_adk", "crewai"}
    assert set(REQUIREMENTS) == set(TOOLS) - {"plain"} | others
