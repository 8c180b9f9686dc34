"""Any golden file is read, or refused with one sentence, in bounded time."""

from __future__ import annotations

import gc
import json
import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from goldspan.errors import GoldenError
from goldspan.goldens import load_goldens
from goldspan.goldens.golden_files.golden_formats import EMPTY_DOCUMENT, YamlError, parse_yaml
from goldspan.goldens.schema.expected_tools import MAX_CALLS, MAX_NESTING


def written(folder: Path, name: str, content: str) -> Path:
    path = folder / name
    path.write_text(content)
    return path


def complaint(path: Path) -> str:
    with pytest.raises(GoldenError) as caught:
        load_goldens(path)
    text = str(caught.value)
    assert len(text) < 1000
    return text.replace(f"{path.parent}/", "")


def nested(levels: int) -> Any:
    item: Any = "a"
    for _ in range(levels):
        item = {"any_of": [[item]]}
    return item


# --- size limits ------------------------------------------------------------------------------------------------------


def test_alternatives_nested_above_the_maximum_depth_are_refused(tmp_path: Path) -> None:
    (golden,) = load_goldens(written(tmp_path, "g.json", json.dumps([{"id": "g", "tools": [nested(MAX_NESTING)]}])))
    assert len(golden.expected_calls) == 1
    for levels in (MAX_NESTING + 1, 90):
        for key, value in (("tools", [nested(levels)]), ("any_of", [[nested(levels)]])):
            path = written(tmp_path, "g.json", json.dumps([{"id": "g", key: value}]))
            assert complaint(path) == "g.json, golden 'g': alternatives are nested more than 8 levels deep."


@pytest.mark.parametrize(
    ("tools", "fits"),
    [
        pytest.param(["a"] * MAX_CALLS, True, id="so many names"),
        pytest.param(["a"] * (MAX_CALLS + 1), False, id="a name too many"),
        pytest.param([{"any_of": [{"name": f"t{n}"} for n in range(MAX_CALLS - 1)]}], True, id="so many alternatives"),
        pytest.param([{"any_of": [{"name": f"t{n}"} for n in range(MAX_CALLS)]}], False, id="an alternative too many"),
        pytest.param([{"name": "a", "times": 1000}] * 10, True, id="a thousand times each"),
        pytest.param([{"name": "a", "times": 1000}] * 11, False, id="a thousand times once too often"),
        pytest.param(
            [{"parallel": [{"name": "a", "times": {"max": 1000}}] * 11}], False, id="at most a thousand times"
        ),
        pytest.param([{"any_of": ["a", [{"name": "b", "times": {"min": 900}}] * 12]}], False, id="in an alternative"),
    ],
)
def test_a_golden_above_the_maximum_number_of_expected_calls_is_refused(
    tmp_path: Path, tools: list[Any], fits: bool
) -> None:
    path = written(tmp_path, "g.json", json.dumps([{"id": "g", "tools": tools}]))
    if fits:
        assert load_goldens(path)["g"].expected_calls
    else:
        assert complaint(path) == "g.json, golden 'g': expects more than 10,000 calls."


def test_texts_of_ten_million_characters_are_accepted(tmp_path: Path) -> None:
    long = "x" * 10_000_000
    goldens = [{"id": "g", "input": long, "tools": [{"name": "t", "args": {"x": {"folded": long}, "y": long}}]}]
    golden = load_goldens(written(tmp_path, "g.json", json.dumps(goldens)))["g"]
    assert golden.input == long
    assert golden.digest


@pytest.mark.parametrize(
    "golden",
    [
        pytest.param({"id": "g", "tools": [], "order": "x" * 10_000_000}, id="a value"),
        pytest.param({"id": "g", "tools": [], "when": 1, "x" * 10_000_000: 1}, id="a key"),
        pytest.param({"id": "x" * 10_000_000, "tools": [1]}, id="an id"),
        pytest.param({"id": "g", "tools": [{"name": "t", "x" * 10_000_000: 1, "nam": 2}]}, id="a key of a tool"),
        pytest.param({"id": "g", "tools": [{"name": "t", "args": {"x": {"regex": "(" * 10_000_000}}}]}, id="a pattern"),
        pytest.param({"id": "g", "tools": [], "metrics": "x" * 10_000_000}, id="a collection"),
        pytest.param({"id": "g", "tools": [], "threshold": 10**4000}, id="a number"),
        pytest.param({"id": "g", "tools": [{"name": "t", "times": 10**4000}]}, id="a number of times"),
    ],
)
def test_an_error_about_a_value_of_ten_million_characters_is_short(tmp_path: Path, golden: Any) -> None:
    assert complaint(written(tmp_path, "g.json", json.dumps([golden])))


@pytest.mark.e2e
def test_the_warning_about_unknown_keys_lists_a_limited_number(tmp_path: Path) -> None:
    messages: list[str] = []
    golden = {"id": "g", "tools": [], **{f"own{n}": n for n in range(100_000)}}
    (found,) = load_goldens(written(tmp_path, "g.json", json.dumps([golden])), on_warning=messages.append)
    assert len(found.metadata) == 100_000
    assert messages[0].endswith("'own18', 'own19' and 99980 more.")


@pytest.mark.parametrize("pattern", [r"(\w{50}){20}", r"(?:x{1000}){1000}", "(" * 5000 + ")" * 5000])
def test_a_pattern_that_is_too_complex_is_refused(tmp_path: Path, pattern: str) -> None:
    goldens = [{"id": "g", "tools": [{"name": "t", "args": {"x": {"regex": pattern}}}]}]
    assert "cannot be used" in complaint(written(tmp_path, "g.json", json.dumps(goldens)))


def test_a_pattern_with_catastrophic_backtracking_in_other_engines_is_accepted(tmp_path: Path) -> None:
    goldens = [{"id": "g", "tools": [{"name": "t", "args": {"x": {"regex": "(a+)+$"}}}]}]
    assert load_goldens(written(tmp_path, "g.json", json.dumps(goldens)))


# --- JSON -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "content", "sentence"),
    [
        pytest.param("g.json", '[\n {"id": "a",\n "tools": [],\n "id": "b"}]',
                     "g.json, line 4: the key 'id' is repeated.", id="in a golden"),
        pytest.param("g.jsonl", '{"id": "a", "tools": []}\n{"id": "b", "tools": [{"name": "t", "name": "u"}]}',
                     "g.jsonl, line 2: the key 'name' is repeated.", id="in a tool"),
        pytest.param("g.json", '[{"id": "a {\\"", "tools": [{"name": "}{"}], "x": {"id": 1},\n "\\u0069d": 2}]',
                     "g.json, line 2: the key 'id' is repeated.", id="beside texts with braces and quotes"),
    ],
)  # fmt: skip
def test_a_repeated_key_of_a_json_object_is_refused(tmp_path: Path, name: str, content: str, sentence: str) -> None:
    assert complaint(written(tmp_path, name, content)) == sentence


def test_nan_in_json_is_accepted_as_an_argument_and_refused_as_a_threshold(tmp_path: Path) -> None:
    (golden,) = load_goldens(
        written(tmp_path, "g.json", '[{"id": "g", "tools": [{"name": "t", "args": {"x": NaN, "y": -Infinity}}]}]')
    )
    (tool,) = golden.expected_calls
    assert tool.arguments is not None
    assert math.isnan(tool.arguments["x"])
    assert tool.arguments["y"] == -math.inf
    path = written(tmp_path, "g.json", '[{"id": "g", "tools": [], "threshold": NaN}]')
    assert complaint(path) == "g.json, golden 'g': threshold must be a number from 0 to 1, not nan."


# --- YAML -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "problem", "line"),
    [
        pytest.param("a: 1\n*x : 2", "not YAML: found undefined alias 'x'", 2, id="an alias of nothing"),
        pytest.param("&a [*a]", "its aliases hold themselves", 1, id="an alias of what is not yet whole"),
        pytest.param("? [a]\n: b", "the key ['a'] must be text", 1, id="a list for a key"),
        pytest.param("a: &l [x]\n*l : b", "the key ['x'] must be text", 2, id="an alias of a list for a key"),
        pytest.param("a: 1\nb: !!set {x, y}",
                     "not YAML: could not determine a constructor for the tag 'tag:yaml.org,2002:set'", 2, id="a set"),
        pytest.param("a: 1\n---\nb: 2", "holds more than one document", 2, id="two documents"),
        pytest.param("a: {<<: 3}", "the value of '<<' must be a mapping, or a list of mappings", 1,
                     id="merge a number"),
        pytest.param("a: {<<: [{x: 1}, 3]}", "the value of '<<' must be a mapping, or a list of mappings", 1,
                     id="merging a list with a number in it"),
    ],
)  # fmt: skip
def test_unsupported_yaml_is_refused_with_the_problem_and_the_line(text: str, problem: str, line: int) -> None:
    with pytest.raises(YamlError) as caught:
        parse_yaml(text)
    assert (caught.value.problem, caught.value.line) == (problem, line)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        pytest.param("", EMPTY_DOCUMENT, id="nothing"),
        pytest.param("---\n", None, id="an empty document"),
        pytest.param("- !!str 12\n- ! 12\n- '12'\n- |\n  12\n", ["12", "12", "12", "12\n"], id="text"),
        pytest.param("- !!int 12\n- !!float 1\n- !!map {}\n- !!seq []", [12, 1.0, {}, []], id="types that are said"),
        pytest.param("- &a x\n- *a\n- &a y\n- *a", ["x", "x", "y", "y"], id="an anchor that moves on"),
        pytest.param("- &a {x: 1, y: 1}\n- &b {y: 2, z: 2}\n- {z: 3, <<: [*a, *b]}",
                     [{"x": 1, "y": 1}, {"y": 2, "z": 2}, {"x": 1, "y": 1, "z": 3}], id="merging: the first one wins"),
        pytest.param("{<<: {x: 1}, <<: {x: 2, y: 2}}", {"x": 1, "y": 2}, id="merging twice"),
        pytest.param("{'<<': 1}", {"<<": 1}, id="a key in quotes"),
        pytest.param("[-, ., -., 1., .5, 0x1f, 1e3, -0, 1e, 0.5e-1]",
                     ["-", ".", "-.", "1.", ".5", "0x1f", 1000.0, 0, "1e", 0.05], id="what only looks like a number"),
    ],
)  # fmt: skip
def test_yaml_is_parsed_to_the_expected_values(text: str, value: Any) -> None:
    assert parse_yaml(text) == value


# YAML does not combine two escapes into one character, as JSON does beyond U+FFFF.
texts = st.text(st.characters(max_codepoint=0xFFFF, exclude_categories=["Cs"]), max_size=5)
plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | texts,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=15,
)


@given(plain)
def test_parse_yaml_reads_json_as_the_json_module_does(value: Any) -> None:
    text = json.dumps(value)
    assert parse_yaml(text) == json.loads(text)


# --- garbage collection -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("at_work", [True, False])
def test_loading_restores_the_state_of_the_garbage_collector(tmp_path: Path, at_work: bool) -> None:
    good = written(tmp_path, "good.json", '[{"id": "g", "tools": []}]')
    try:
        if not at_work:
            gc.disable()
        load_goldens(good)
        assert gc.isenabled() is at_work
        complaint(written(tmp_path, "bad.json", "[3]"))
        assert gc.isenabled() is at_work
    finally:
        gc.enable()
