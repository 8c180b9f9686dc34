"""The output and the exit status of `goldspan goldens`."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from goldspan.goldens.schema.golden_models import golden_json_schema
from goldspan.otlp import load_runs
from support.command_line import CommandResult, Goldspan

ROOT = Path(__file__).parent.parent.parent
TRACES = ROOT / "examples" / "traces.jsonl"
GOLDENS = ROOT / "examples" / "goldens.yaml"


@pytest.fixture
def goldspan(goldspan: Goldspan) -> Goldspan:
    """Run a command of `goldspan goldens` in this process."""
    return partial(goldspan, "goldens")


@pytest.fixture
def written(tmp_path: Path) -> Callable[[str, str], Path]:
    def write(name: str, content: str) -> Path:
        path = tmp_path / name
        path.write_text(content)
        return path

    return write


Written = Callable[[str, str], Path]


def test_check_finds_nothing_in_valid_goldens(goldspan: Goldspan) -> None:
    assert goldspan("check", GOLDENS) == CommandResult(0, "4 goldens read: nothing found\n", "")


def test_check_reports_all_errors_at_once(goldspan: Goldspan, written: Written) -> None:
    one = written(
        "one.yaml",
        """\
defaults: {order: sorted}
goldens:
  - {id: a, tools: [x, {nam: y}], threshold: 2}
  - {id: b, toools: []}
  - {id: c, tools: [], metrics: core}
  - {id: d, tools: [], note: kept}
""",
    )
    two = written("two.yaml", "- {id: d, tools: []}\n- {id: e, tools: []}\n")
    result = goldspan("check", one, two)
    assert result.status == 1
    assert result.out.replace(f"{one.parent}/", "").splitlines() == [
        "one.yaml, defaults: order must be any, in_order or exact, not 'sorted'.",
        "one.yaml, golden 'a': threshold must be a number from 0 to 1, not 2.",
        "one.yaml, golden 'a', tools[1]: unknown key 'nam'. Did you mean 'name'?",
        "one.yaml, golden 'b': unknown key 'toools'. Did you mean 'tools'?",
        "two.yaml, golden 'd': the id is already taken, in one.yaml.",
        "3 goldens read: 5 found",
    ]
    assert result.err == f"warning: {one}: keys that are not goldspan's are kept as metadata: 'note'.\n"


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        pytest.param(
            "tools: {a: {aliases: [b]}, b: {}}\ngoldens: [{id: g, tools: [a]}]",
            "g.yaml, tool 'b': the name is equivalent to the alias 'b' of 'a'; a name must not stand for two tools.",
            id="a vocabulary that contradicts itself",
        ),
        pytest.param(
            "defaults: {metrics: core}\ngoldens: [{id: g, tools: [a]}]",
            "g.yaml, defaults: metrics names 'core', and no such collection is declared. "
            "One metric is written as ['core'].",
            id="an unknown collection for all",
        ),
    ],
)
def test_an_error_in_the_header_does_not_prevent_the_check_of_the_goldens(
    goldspan: Goldspan, written: Written, content: str, sentence: str
) -> None:
    path = written("g.yaml", content)
    result = goldspan("check", path)
    assert result.status == 1
    assert result.out.replace(f"{path.parent}/", "").splitlines() == [sentence, "1 golden read: 1 found"]


def test_check_compares_goldens_with_traces(goldspan: Goldspan) -> None:
    result = goldspan("check", GOLDENS, TRACES)
    assert result.status == 1
    assert result.out.splitlines() == [
        "golden 'confirm-by-mail': the tool 'send_email' was neither called nor offered in any run.",
        "golden 'look-up-policy': the tool 'search_policies' was neither called nor offered in any run.",
        "golden 'look-up-policy': the tool 'read_policy' was neither called nor offered in any run.",
        "golden 'read-only': 'delete_*' is forbidden, and no known tool has a name like that.",
        "golden 'look-up-policy' belongs to none of these runs.",
        "4 goldens read: 5 found",
    ]


def test_check_prints_findings_as_json_objects(goldspan: Goldspan, written: Written) -> None:
    path = written("g.jsonl", '{"id": "a", "input": "x", "tools": []}\n{"id": "b", "input": "x", "tools": ["y"]}')
    result = goldspan("check", path, "--json")
    assert result.status == 1
    assert json.loads(result.out) == {
        "finding": "disagreement",
        "goldens": ["a", "b"],
        "message": "goldens 'a' and 'b' have the same input and disagree in tools: by input none is found.",
    }


def test_the_goldens_option_adds_golden_files_in_json(goldspan: Goldspan, written: Written) -> None:
    tools = written("tools.json", '{"tools": {"search_hotels": {"aliases": ["find"]}}}')
    goldens = written("g.jsonl", '{"id": "book-cheapest", "tools": ["find"]}')
    result = goldspan("check", goldens, TRACES, "--goldens", tools, "--json")
    assert [json.loads(line)["finding"] for line in result.out.splitlines()] == ["unmatched"]


def test_an_option_selects_the_attribute_that_holds_the_golden_id(goldspan: Goldspan, written: Written) -> None:
    agents = {run.agent for run in load_runs(TRACES)}
    goldens = written("g.json", json.dumps([{"id": agent, "tools": []} for agent in agents]))
    assert goldspan("check", goldens, TRACES).status == 1
    assert goldspan("check", goldens, TRACES, "--golden-id-attribute", "gen_ai.agent.name").status == 0


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        pytest.param(["none.yaml"], "none.yaml: cannot be read: there is no such file.", id="no file"),
        pytest.param([TRACES.with_name("README.md")], "a golden file's name ends in", id="no golden file"),
        pytest.param([GOLDENS, "none.jsonl"], "none.jsonl", id="no traces"),
    ],
)
def test_unreadable_input_ends_with_exit_status_2(goldspan: Goldspan, arguments: list[object], sentence: str) -> None:
    result = goldspan("check", *arguments)
    assert result.status == 2
    assert sentence in result.err


def test_the_schema_is_printed(goldspan: Goldspan) -> None:
    result = goldspan("schema")
    assert result.status == 0
    assert json.loads(result.out) == golden_json_schema()


@pytest.mark.parametrize("command", ["check", "schema"])
def test_help_shows_examples(goldspan: Goldspan, command: str) -> None:
    assert f"goldspan goldens {command}" in goldspan(command, "--help").out
