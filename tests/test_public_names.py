"""The public names: what `import goldspan` offers."""

from __future__ import annotations

import inspect
import pydoc
import subprocess
import sys
import types

import pytest

import goldspan

PROMISED = {
    "Comparison", "Evaluation", "ExpectedTool", "Golden", "Goldens", "GoldspanError", "GoldspanWarning", "Match", "Run",
    "LogRecord", "Score", "ScoringProcessor", "SpanRecord", "Tool", "ToolCall", "Vocabulary", "compare", "evaluate",
    "expect", "extract", "instrument", "load_goldens", "load_runs", "trace", "update_current_span",
}  # fmt: skip


def test_the_names_of_the_documentation_are_public() -> None:
    assert PROMISED - set(goldspan.__all__) == set()


def test_public_names_are_sorted_and_stand_there_once() -> None:
    assert list(goldspan.__all__) == sorted(set(goldspan.__all__))


@pytest.mark.parametrize("name", goldspan.__all__)
def test_a_public_name_is_there_and_says_what_it_is(name: str) -> None:
    value = getattr(goldspan, name)
    if isinstance(value, str):  # __version__
        return
    if isinstance(value, types.ModuleType) or callable(value):
        assert inspect.getdoc(value)
    assert pydoc.render_doc(value)


def test_dir_shows_the_public_names_before_any_is_used() -> None:
    code = "import goldspan; print(*(set(goldspan.__all__) - set(dir(goldspan))))"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, encoding="utf-8")
    assert done.stdout.split() == []


def test_a_public_name_is_the_same_object_each_time() -> None:
    assert all(getattr(goldspan, name) is getattr(goldspan, name) for name in goldspan.__all__)


def test_a_star_import_brings_the_public_names_and_nothing_else() -> None:
    brought: dict[str, object] = {}
    exec("from goldspan import *", brought)
    assert set(brought) - {"__builtins__"} == set(goldspan.__all__)


def test_a_misspelt_name_is_an_attribute_error_that_names_it() -> None:
    with pytest.raises(AttributeError, match="no_such_name"):
        goldspan.no_such_name  # noqa: B018
