"""Tests of what `import goldspan` loads and a core installation contains, with benchmarks/footprint.py."""

from __future__ import annotations

import footprint


def test_importing_goldspan_loads_nothing_that_is_slow_or_optional() -> None:
    assert footprint.loaded_by("import goldspan") == []


def test_decorating_a_tool_loads_nothing_that_is_slow_or_optional() -> None:
    assert footprint.loaded_by("import goldspan; goldspan.trace(print)") == []


def test_loaded_modules_are_reported() -> None:
    assert footprint.loaded_by("import goldspan, yaml, google.protobuf") == ["google.protobuf", "yaml"]


def test_a_core_installation_stays_small_and_contains_no_development_tools() -> None:
    packages = footprint.core_packages()
    assert {"goldspan", "opentelemetry-sdk", "opentelemetry-api", "typing-extensions"} <= packages
    assert packages.isdisjoint({"pytest", "hypothesis", "ruff", "mypy", "starlette", "jinja2"})
    assert len(packages) <= footprint.PACKAGES_BUDGET
