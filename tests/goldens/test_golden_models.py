"""The published JSON Schema accepts every golden file that the parser reads and refuses the others."""

from __future__ import annotations

import json
from typing import Any

import jsonschema
import pytest

from goldspan.goldens.golden_files.golden_formats import parse_yaml
from goldspan.goldens.schema.golden_models import golden_json_schema
from support.docs_examples import ROOT, blocks

PUBLISHED = ROOT / "docs" / "goldens.schema.json"


@pytest.fixture(scope="module")
def validator() -> jsonschema.Draft202012Validator:
    published = json.loads(PUBLISHED.read_text(encoding="utf-8"))
    jsonschema.Draft202012Validator.check_schema(published)
    return jsonschema.Draft202012Validator(published)


def test_the_published_schema_equals_the_generated_schema() -> None:
    """Update the file with `goldspan goldens schema > docs/goldens.schema.json`."""
    assert without_redundant_keys(json.loads(PUBLISHED.read_text(encoding="utf-8"))) == without_redundant_keys(
        golden_json_schema()
    )


def without_redundant_keys(schema: Any) -> Any:
    """A schema without the redundant keys that only some versions of pydantic write."""
    if isinstance(schema, list):
        return [without_redundant_keys(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    silent = {"propertyNames"} | ({"enum"} if "const" in schema else set())
    return {
        key: without_redundant_keys(each)
        for key, each in schema.items()
        if key not in silent and not (key == "additionalProperties" and each is True)
    }


def golden_files() -> list[Any]:
    """Every golden file of the documentation and the examples."""
    found = [pytest.param((ROOT / "examples" / "goldens.yaml").read_text(), id="examples/goldens.yaml")]
    for page in sorted((ROOT / "docs").glob("*.md")):
        for block in blocks(page.read_text(encoding="utf-8")):
            name = block.notes.get("file", "")
            if block.language == "yaml" and "goldens:" in block.text and name not in WRONG:
                found.append(pytest.param(block.text, id=f"{page.name}, {name or f'line {block.line}'}"))
    return found


WRONG = ("slip.yaml", "wrong.yaml", "back-ends.yaml", "goldspan.yaml", "judged.yaml")
"""Examples with deliberate errors, and settings files that name golden files."""


@pytest.mark.parametrize("text", golden_files())
def test_the_schema_accepts_every_golden_file_of_the_documentation(
    validator: jsonschema.Draft202012Validator, text: str
) -> None:
    validator.validate(parse_yaml(text))


@pytest.mark.parametrize(
    "golden",
    [
        pytest.param(
            {"id": "g", "expected_tools": [{"name": "a", "args": {"x": {"regex": "a"}}, "output": 1}]}, id="names"
        ),
        pytest.param({"id": "g", "any_of": ["a", ["b", {"parallel": ["c"]}]], "owner": "me"}, id="alternatives"),
        pytest.param(
            {"id": "g", "tools": [{"name": "a", "times": {"min": 2, "max": None}}], "metrics": "core"}, id="times"
        ),
        pytest.param(
            {"id": "g", "tools": [{"name": "a", "arguments": {"x": {"approx": "?"}}}], "input": None}, id="data"
        ),
        pytest.param({"id": "g", "forbid": ["delete_*"]}, id="a policy that forbids"),
        pytest.param(
            {"id": "g", "max_calls": 0, "when": {"agent": "support"}}, id="a policy that limits, for some runs"
        ),
        pytest.param({"id": "g", "policy": True, "input": None, "component": "retriever"}, id="a policy that says so"),
        pytest.param({"id": "g", "tools": [], "forbid": ["x"], "policy": False}, id="no policy"),
        pytest.param(
            {
                "id": "g",
                "tools": [],
                "when": {"input": {"regex": "refund"}, "attributes": {"a": 1, "b": {"any": True}}},
            },
            id="conditions",
        ),
        pytest.param({"id": "g", "tools": [{"name": "a", "agent": "clerk"}], "when": {"span": "x"}}, id="an agent"),
    ],
)
def test_the_schema_accepts_valid_goldens(validator: jsonschema.Draft202012Validator, golden: Any) -> None:
    validator.validate([golden])
    validator.validate({"version": 1, "goldens": [golden]})


@pytest.mark.parametrize(
    "golden",
    [
        pytest.param({"tools": []}, id="no id"),
        pytest.param({"id": 1, "tools": []}, id="an id that is a number"),
        pytest.param({"id": "g"}, id="nothing expected"),
        pytest.param({"id": "g", "tools": [], "any_of": ["a"]}, id="two expectations"),
        pytest.param({"id": "g", "tools": [], "expected_tools": []}, id="the same twice"),
        pytest.param({"id": "g", "tools": [], "order": "sorted"}, id="an unknown order"),
        pytest.param({"id": "g", "tools": [], "threshold": 2}, id="a threshold of two"),
        pytest.param({"id": "g", "tools": [], "when": {}}, id="conditions that say nothing"),
        pytest.param({"id": "g", "tools": [], "when": None}, id="conditions left empty"),
        pytest.param({"id": "g", "tools": [], "when": {"tool": "a"}}, id="an unknown condition"),
        pytest.param({"id": "g", "tools": [], "when": {"input": {"approx": 1}}}, id="a matcher of numbers for a text"),
        pytest.param({"id": "g", "tools": [], "component": 3}, id="a component that is a number"),
        pytest.param({"id": "g", "forbid": []}, id="a policy that forbids nothing"),
        pytest.param({"id": "g", "forbid": ["a"], "input": "x"}, id="a policy with an input"),
        pytest.param({"id": "g", "forbid": ["a"], "policy": False}, id="neither tools nor policy"),
        pytest.param({"id": "g", "tools": ["a"], "policy": True}, id="a policy that expects something"),
        pytest.param({"id": "g", "tools": [3]}, id="a number for a tool"),
        pytest.param({"id": "g", "tools": [{"args": {}}]}, id="a tool without a name"),
        pytest.param({"id": "g", "tools": [{"name": "a", "any_of": ["b"]}]}, id="a call and alternatives"),
        pytest.param({"id": "g", "tools": [{"any_of": ["b"], "arguments": {}}]}, id="alternatives with arguments"),
        pytest.param({"id": "g", "tools": [{"name": "a", "times": 0}]}, id="never"),
        pytest.param({"id": "g", "tools": [{"name": "a", "arguments": [1]}]}, id="arguments in a list"),
    ],
)
def test_the_schema_refuses_invalid_goldens(validator: jsonschema.Draft202012Validator, golden: Any) -> None:
    assert not validator.is_valid([golden])
    assert not validator.is_valid({"goldens": [golden]})


@pytest.mark.parametrize(
    "file",
    [
        pytest.param({"golden": []}, id="misspelt goldens"),
        pytest.param({"version": 2, "goldens": []}, id="another version"),
        pytest.param({"goldens": [], "defaults": {"tools": []}}, id="tools for all"),
        pytest.param({"goldens": [], "tools": ["a"]}, id="a list of declared tools"),
        pytest.param({"goldens": [], "metrics": ["tool_f1"]}, id="a collection without a name"),
        pytest.param({"goldens": [], "components": {"a": {}}}, id="a component of no span"),
        pytest.param({"goldens": [], "components": {"a": {"name": "x"}}}, id="a component by an unknown key"),
        pytest.param("goldens", id="a word"),
    ],
)
def test_the_schema_refuses_invalid_golden_files(validator: jsonschema.Draft202012Validator, file: Any) -> None:
    assert not validator.is_valid(file)
