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


def test_a_star_import_brings_the_public_names_and_nothing_else() -> None:
    brought: dict[str, object] = {}
    exec("from goldspan import *", brought)
    assert set(brought) - {"__builtins__"} == set(goldspan.__all__)


def test_a_misspelt_name_is_an_attribute_error_that_names_it() -> None:
    with pytest.raises(AttributeError, match="no_such_name"):
        goldspan.no_such_name  # noqa: B018


IMPORTING = """
import importlib.abc, sys, threading
import goldspan

begun, go = threading.Event(), threading.Event()

class Slow(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name == "goldspan.scoring.metrics.registry":
            begun.set()
            go.wait(60)

sys.meta_path.insert(0, Slow())
first = threading.Thread(target=lambda: goldspan.metric)
second = threading.Thread(target=lambda: goldspan.Goldens)
first.start()
begun.wait(60)
second.start()
second.join(0.5)
print(second.is_alive())
go.set()
first.join(60), second.join(60)
print("metric" in vars(goldspan), "Goldens" in vars(goldspan))
"""


def test_threads_that_use_names_for_the_first_time_at_once_import_one_after_the_other() -> None:
    """In different orders, Python would have them wait for each other, and give one of them half a module."""
    done = subprocess.run([sys.executable, "-c", IMPORTING], check=True, capture_output=True, encoding="utf-8")
    assert done.stdout.splitlines() == ["True", "True True"]
    assert done.stderr == ""
