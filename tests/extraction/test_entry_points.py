"""A convention that comes in a package of somebody else's: installed with pip, found by its entry point."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from support.wheels import install, run_python

PACKAGE = "acme_goldspan"
CONVENTION = """
from goldspan.conventions.convention import Convention, Places

CONVENTION = Convention(
    name="acme",
    title="Acme's own agent",
    source="https://acme.example",
    versions="1",
    roles={"acme.step": {"tool": "tool", "turn": "agent"}},
    of={
        "tool": Places(name=("acme.tool",), arguments=("acme.given",)),
        "agent": Places(name=("acme.agent",), input=("acme.question",)),
    },
)
"""
REPORT = """
import json
from goldspan.extraction import extract
from goldspan.model import SpanRecord

def span(number, parent, **attributes):
    named = {key.replace("__", "."): value for key, value in attributes.items()}
    return SpanRecord("1" * 32, f"{number:016x}", parent, "work", named, number * 10, number * 10 + 5)

runs = extract([
    span(1, None, acme__step="turn", acme__agent="planner", acme__question="Where to?"),
    span(2, f"{1:016x}", acme__step="tool", acme__tool="atlas", acme__given='{"city": "Oslo"}'),
    span(3, f"{1:016x}", gen_ai__operation__name="execute_tool", gen_ai__tool__name="weather"),
])
print(json.dumps([[run.agent, run.input, run.tools_used, run.tool_calls[0].arguments] for run in runs]))
"""


ENTRY_POINTS = f"""[goldspan.conventions]
acme = {PACKAGE}:CONVENTION
broken = {PACKAGE}:MISSING
wrong = {PACKAGE}:__name__
"""


@pytest.fixture(scope="module")
def installed_package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return install(PACKAGE, CONVENTION, ENTRY_POINTS, under=tmp_path_factory.mktemp("package"))


def test_a_package_that_offers_a_convention_needs_only_be_installed(installed_package: Path) -> None:
    assert json.loads(run_python(REPORT, beside=installed_package).stdout) == [
        ["planner", "Where to?", ["atlas", "weather"], {"city": "Oslo"}]
    ]


def test_without_the_package_its_spans_say_nothing(tmp_path: Path) -> None:
    [[agent, asked, tools, _]] = json.loads(run_python(REPORT, beside=tmp_path).stdout)
    assert (agent, asked, tools) == (None, None, ["weather"])


def test_an_offer_that_cannot_be_used_is_named_and_left_out(installed_package: Path) -> None:
    said = run_python(REPORT, beside=installed_package, warnings="always").stderr
    assert "the convention 'broken' cannot be loaded" in said
    assert "the entry point 'wrong' of goldspan.conventions is no goldspan Convention" in said


def test_a_package_that_knows_better_is_believed_first(installed_package: Path) -> None:
    code = "from goldspan.conventions import installed; print(installed().members[0].name)"
    assert run_python(code, beside=installed_package).stdout.strip() == "acme"
