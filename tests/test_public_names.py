"""Tests of the public names of goldspan."""

from __future__ import annotations

import inspect
import pydoc
import subprocess
import sys
import types

import pytest

import goldspan

DOCUMENTED = {
    "Comparison", "Evaluation", "ExpectedTool", "Golden", "Goldens", "GoldspanError", "GoldspanWarning", "Match", "Run",
    "LogRecord", "Score", "ScoringProcessor", "SpanRecord", "Tool", "ToolCall", "Vocabulary", "compare", "evaluate",
    "expect", "extract", "instrument", "load_goldens", "load_runs", "trace", "update_current_span",
}  # fmt: skip


def test_the_names_of_the_documentation_are_public() -> None:
    assert DOCUMENTED - set(goldspan.__all__) == set()


def test_public_names_are_sorted_and_unique() -> None:
    assert list(goldspan.__all__) == sorted(set(goldspan.__all__))


@pytest.mark.parametrize("name", goldspan.__all__)
def test_a_public_name_exists_and_has_a_docstring(name: str) -> None:
    value = getattr(goldspan, name)
    if isinstance(value, str):  # __version__
        return
    if isinstance(value, types.ModuleType) or callable(value):
        assert inspect.getdoc(value)
    assert pydoc.render_doc(value)


@pytest.mark.parametrize("module", [goldspan, goldspan.judge, goldspan.sinks, goldspan.profiles])
def test_a_public_function_of_five_parameters_documents_each_group_of_them(module: types.ModuleType) -> None:
    undocumented = [
        name
        for name in module.__all__
        if callable(value := getattr(module, name))
        and not hasattr(value, "__dataclass_fields__")
        and _parameter_count(value) >= 5
        and "Args:" not in f"{inspect.getdoc(value)}{inspect.getdoc(value.__init__)}"
    ]
    assert undocumented == []


def _parameter_count(value: object) -> int:
    try:
        return len(inspect.signature(value).parameters)  # type: ignore[arg-type]
    except ValueError:  # a type of the standard library
        return 0


def test_dir_shows_the_public_names_before_any_is_used() -> None:
    code = "import goldspan; print(*(set(goldspan.__all__) - set(dir(goldspan))))"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, encoding="utf-8")
    assert done.stdout.split() == []


def test_a_public_name_is_the_same_object_each_time() -> None:
    assert all(getattr(goldspan, name) is getattr(goldspan, name) for name in goldspan.__all__)


def test_a_star_import_imports_exactly_the_public_names() -> None:
    namespace: dict[str, object] = {}
    exec("from goldspan import *", namespace)
    assert set(namespace) - {"__builtins__"} == set(goldspan.__all__)


def test_a_misspelt_name_is_an_attribute_error_that_names_it() -> None:
    with pytest.raises(AttributeError, match="no_such_name"):
        goldspan.no_such_name  # noqa: B018


IMPORTING = """
import importlib.abc, sys, threading
import goldspan

started, release = threading.Event(), threading.Event()

class Slow(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name == "goldspan.scoring.metrics.registry":
            started.set()
            release.wait(60)

sys.meta_path.insert(0, Slow())
first = threading.Thread(target=lambda: goldspan.metric)
second = threading.Thread(target=lambda: goldspan.Goldens)
first.start()
started.wait(60)
second.start()
second.join(0.5)
print(second.is_alive())
release.set()
first.join(60), second.join(60)
print("metric" in vars(goldspan), "Goldens" in vars(goldspan))
"""


def test_threads_that_first_use_names_at_the_same_time_import_them_one_after_the_other() -> None:
    """If both imported at once in different orders, Python would break the deadlock with a partially loaded module."""
    done = subprocess.run([sys.executable, "-c", IMPORTING], check=True, capture_output=True, encoding="utf-8")
    assert done.stdout.splitlines() == ["True", "True True"]
    assert done.stderr == ""
