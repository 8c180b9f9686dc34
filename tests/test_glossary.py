"""Tests that each name in the glossary exists, and that no module, definition or test file has a retired name."""

from __future__ import annotations

import importlib
import importlib.util
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "goldspan"
TESTS = ROOT / "tests"
GLOSSARY = (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8")
ROWS = re.findall(r"^\| (?!term |-)(.+?) \| .*\| `(goldspan[\w.:]*)` \|$", GLOSSARY, re.MULTILINE)

RETIRED_MODULES = {
    "account", "asking", "at_work", "attendance", "authority", "callables", "choosing", "closing", "conduct",
    "counting", "cutting", "dealing", "delimited", "dialogues", "documents", "doors", "drafted", "effort",
    "enriching", "entrance", "feed", "figures", "filtering", "flattened", "flight", "forest", "forking",
    "forwarding", "gathering", "gauges", "golden_ids", "handover", "hints", "histories", "inflating", "instants",
    "intake", "invocation", "judging", "ledger", "lengths", "lines", "listening", "looked_at", "losses", "merits",
    "nearness", "notation", "notices", "offers", "opening", "opinions", "origins", "outbox", "outcomes", "outlets",
    "pacing", "packing", "pairing", "parameters", "portions", "questions", "reading", "receptions", "recognition",
    "reloading", "remote", "reprs", "resemblance", "resuming", "review", "said", "secrecy", "shapes", "shelves",
    "splitting", "spoken", "standalone", "statements", "straying", "strays", "sweep", "tallies", "turns", "twins",
    "uncovered", "unsettled", "upgrades", "viewing", "views", "weighing", "wording", "worker_asking", "words",
    "writing", "yaml_values",
}  # fmt: skip
"""File names that were metaphors or inventions. The tests of a module have its name, so the set holds for them too."""
RETIRED_DEFINITIONS = {
    "account_of", "are_quiet", "asked_text", "begins_late", "by_family", "by_merit", "fell", "gathered", "is_there",
    "may_call", "plain_sailing", "plant", "said_to_fail", "told_of", "usual_sinks", "Bundle", "Dialogue", "Glance",
    "Ledger", "Merits", "Patience", "Places", "Portion", "Strays",
}  # fmt: skip
"""Functions and classes of the same kind, in the code and in the helpers of the tests."""
VAGUE_DEFINITIONS = {
    "asked", "asking", "cut", "deal", "given", "judging", "kept", "look", "made", "meant", "said", "stated",
    "taken", "tell", "told", "whole", "written",
}  # fmt: skip
"""A participle or a verb with two readings does not say what a function returns or does."""
NAMES_FOR_SEVERAL_MODULES = {"__init__", "demo"}
"""`goldspan demo` is a command, and the agent that it runs is a package."""
DEFINITION = re.compile(r"^\s*(?:(?:async )?def|class) (\w+)", re.MULTILINE)
PUBLIC_CLASS = re.compile(r"^class ([A-Za-z]\w*)", re.MULTILINE)


def modules() -> Iterator[Path]:
    return SOURCE.rglob("*.py")


@pytest.mark.parametrize(("term", "name"), ROWS, ids=[term for term, _ in ROWS])
def test_the_code_has_the_name_that_the_glossary_gives(term: str, name: str) -> None:
    module, _, attribute = name.partition(":")
    if attribute:
        assert hasattr(importlib.import_module(module), attribute)
    else:
        assert importlib.util.find_spec(module) is not None


def test_the_glossary_defines_each_term_once() -> None:
    terms = [term for term, _ in ROWS]
    assert len(ROWS) > 50
    assert len(terms) == len(set(terms))


def defined_names(files: Iterable[Path]) -> set[str]:
    """Return the names of all functions and classes, without the tests themselves."""
    names = {name for path in files for name in DEFINITION.findall(path.read_text(encoding="utf-8"))}
    return {name for name in names if not name.startswith("test_")}


def test_no_module_has_a_retired_name() -> None:
    assert {path.stem for path in modules()} & RETIRED_MODULES == set()
    assert {path.name for path in SOURCE.rglob("*") if path.is_dir()} & RETIRED_MODULES == set()


def test_no_test_file_has_a_retired_name() -> None:
    assert {path.stem.removeprefix("test_") for path in TESTS.rglob("*.py")} & RETIRED_MODULES == set()


def test_no_function_or_class_has_a_retired_name() -> None:
    assert defined_names(modules()) & (RETIRED_DEFINITIONS | VAGUE_DEFINITIONS) == set()


def test_no_helper_of_a_test_has_a_retired_name() -> None:
    assert defined_names(TESTS.rglob("*.py")) & RETIRED_DEFINITIONS == set()


def test_no_two_modules_share_a_name() -> None:
    """Conventions are an exception, because one framework may have several."""
    places: dict[str, list[str]] = defaultdict(list)
    for path in modules():
        if "conventions" not in path.parts and path.stem not in NAMES_FOR_SEVERAL_MODULES:
            places[path.stem].append(str(path.relative_to(SOURCE)))
    assert {name: found for name, found in places.items() if len(found) > 1} == {}


def test_no_two_public_classes_share_a_name() -> None:
    places: dict[str, list[str]] = defaultdict(list)
    for path in modules():
        for name in PUBLIC_CLASS.findall(path.read_text(encoding="utf-8")):
            places[name].append(str(path.relative_to(SOURCE)))
    assert {name: found for name, found in places.items() if len(found) > 1} == {}
