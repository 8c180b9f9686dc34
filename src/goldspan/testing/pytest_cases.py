"""Turns golden files into tests, and fails a test whose golden is not met, for the pytest plugin."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeAlias

import pytest

from goldspan.errors import GoldspanError
from goldspan.goldens import Goldens, load_goldens
from goldspan.model import Golden
from goldspan.testing.agent_cases import select_goldens
from goldspan.testing.assertions import failure_text
from goldspan.testing.captured_calls import GoldenCase

CASE_KEY = pytest.StashKey[GoldenCase]()
"""The capture of a test, kept with the test for its report."""

MarkedGolden: TypeAlias = tuple[Golden, Goldens, tuple[str, ...]]
"""A golden, all goldens of its files, and the files: the arguments of `GoldenCase`."""

_loaded_goldens: dict[tuple[str, ...], Goldens] = {}
"""Golden files are loaded once a session, however many tests name them."""


def load_marked_goldens(metafunc: pytest.Metafunc, marker: pytest.Mark, fixture: str) -> list[MarkedGolden]:
    """Return the goldens that a marker names. Wrong use ends the collection with one sentence."""
    where = f"{metafunc.definition.nodeid}: @pytest.mark.{marker.name}"
    if fixture not in metafunc.fixturenames:
        pytest.fail(f"{where} needs the fixture: add the parameter `{fixture}` to the test.", pytrace=False)
    if not marker.args or marker.kwargs:
        pytest.fail(f'{where} takes the names of golden files, such as "goldens.yaml".', pytrace=False)
    try:
        files = tuple(_find_file(str(name), metafunc) for name in marker.args)
        if files not in _loaded_goldens:
            _loaded_goldens[files] = load_goldens(*files)
        goldens = _loaded_goldens[files]
        return [(golden, goldens, files) for golden in select_goldens(goldens)]
    except GoldspanError as error:
        pytest.fail(f"{where}: {error}", pytrace=False)


def _find_file(name: str, metafunc: pytest.Metafunc) -> str:
    """Return the path of a golden file: beside the test file, else in the root directory of the tests."""
    folders = (metafunc.definition.path.parent, metafunc.config.rootpath)
    for folder in folders:
        if (file := folder / name).exists():
            return str(_shown_path(file))
    listed = " and ".join(str(_shown_path(folder / name)) for folder in dict.fromkeys(folders))
    raise GoldspanError(f"there is no golden file {listed}.")


def _shown_path(file: Path) -> Path:
    """Return a path relative to the current directory if it is inside, as CI systems show it."""
    try:
        return file.resolve().relative_to(Path.cwd())
    except ValueError:
        return file


@contextmanager
def open_golden_case(request: pytest.FixtureRequest, marker: str) -> Iterator[GoldenCase]:
    """Capture the spans of a test."""
    if not hasattr(request, "param"):
        pytest.fail(
            f'{request.fixturename} needs goldens: mark the test with @pytest.mark.{marker}("goldens.yaml").',
            pytrace=False,
        )
    with GoldenCase(*request.param) as case:
        request.node.stash[CASE_KEY] = case
        yield case


def fail_unless_passed(test: pytest.Item) -> None:
    """Fail a test, with the comparison as its message, unless its captured run passes its golden."""
    __tracebackhide__ = True
    evaluation = test.stash[CASE_KEY].evaluate()
    if evaluation.passed is not True:
        pytest.fail(failure_text(evaluation), pytrace=False)
