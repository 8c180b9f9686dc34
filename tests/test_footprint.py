"""What it costs to depend on goldspan, apart from time: `benchmarks/footprint.py` measures that."""

from __future__ import annotations

import footprint


def test_importing_goldspan_loads_nothing_that_is_slow_or_optional() -> None:
    assert footprint.loaded_by("import goldspan") == []


def test_decorating_a_tool_loads_nothing_of_that_either() -> None:
    assert footprint.loaded_by("import goldspan; goldspan.trace(print)") == []


def test_what_was_loaded_is_noticed() -> None:
    assert footprint.loaded_by("import goldspan, yaml, google.protobuf") == ["google.protobuf", "yaml"]


def test_a_core_install_stays_small_and_brings_no_tools_of_ours() -> None:
    packages = footprint.core_packages()
    assert {"goldspan", "opentelemetry-sdk", "opentelemetry-api", "typing-extensions"} <= packages
    assert packages.isdisjoint({"pytest", "hypothesis", "ruff", "mypy", "starlette", "jinja2"})
    assert len(packages) <= footprint.PACKAGES_BUDGET
