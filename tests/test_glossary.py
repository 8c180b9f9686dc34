"""The glossary: each of its names exists, and no retired name comes back."""

from __future__ import annotations

import ast
import importlib
import importlib.util
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "goldspan"
GLOSSARY = (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8")
ROWS = re.findall(r"^\| (?!term |-)(.+?) \| .*\| `(goldspan[\w.:]*)` \|$", GLOSSARY, re.MULTILINE)

RETIRED_MODULES = {
    "account", "asking", "attendance", "closing", "counting", "cutting", "dealing", "dialogues", "doors", "entrance",
    "figures", "flight", "forest", "gathering", "gauges", "handover", "histories", "inflating", "instants", "intake",
    "judging", "ledger", "lines", "losses", "merits", "notation", "notices", "opinions", "origins", "outlets", "pacing",
    "packing", "pairing", "parameters", "portions", "questions", "receptions", "remote", "resemblance", "resuming",
    "secrecy", "shapes", "shelves", "spoken", "standalone", "statements", "straying", "strays", "sweep", "tallies",
    "turns", "twins", "uncovered", "unsettled", "upgrades", "views", "wording", "worker_asking", "words", "writing",
}  # fmt: skip
"""File names that were metaphors or inventions."""
RETIRED_DEFINITIONS = {
    "account_of", "are_quiet", "asked_text", "by_merit", "fell", "gathered", "is_there", "may_call", "plain_sailing",
    "plant", "said_to_fail", "told_of", "Bundle", "Glance", "Ledger", "Merits", "Patience", "Places", "Strays",
}  # fmt: skip
"""Functions and classes of the same kind."""
NAMES_FOR_SEVERAL_MODULES = {"__init__", "demo"}
"""`goldspan demo` is a command, and the agent that it runs is a package."""


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


def test_no_retired_module_name_comes_back() -> None:
    assert {path.stem for path in modules()} & RETIRED_MODULES == set()
    assert {path.name for path in SOURCE.rglob("*") if path.is_dir()} & RETIRED_MODULES == set()


def test_no_retired_function_or_class_comes_back() -> None:
    defined = {
        node.name
        for path in modules()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
    }
    assert defined & RETIRED_DEFINITIONS == set()


def test_no_two_modules_share_a_name() -> None:
    """Families of instrumentations excepted: one framework may have several conventions."""
    places: dict[str, list[str]] = defaultdict(list)
    for path in modules():
        if "conventions" not in path.parts and path.stem not in NAMES_FOR_SEVERAL_MODULES:
            places[path.stem].append(str(path.relative_to(SOURCE)))
    assert {name: found for name, found in places.items() if len(found) > 1} == {}


def test_no_two_public_classes_share_a_name() -> None:
    places: dict[str, list[str]] = defaultdict(list)
    for path in modules():
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places[node.name].append(str(path.relative_to(SOURCE)))
    assert {name: found for name, found in places.items() if len(found) > 1} == {}
