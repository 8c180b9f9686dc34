"""Golden files in all formats are read, and every error in them is one sentence that names its place."""

from __future__ import annotations

import json
import math
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest

import goldspan
from goldspan.errors import GoldenError, GoldspanWarning
from goldspan.goldens import Goldens, load_goldens
from goldspan.model import ExpectedTool, Golden, GoldenSource, Tool, Vocabulary

HOTELS = """\
version: 1
defaults: {order: in_order, threshold: 0.75, attempts: all}
goldens:
  - id: book-cheapest
    input: Search for hotels in Paris and book the cheapest one.
    tools: [search_hotels, book_hotel]
  - id: refund
    order: exact
    attempts: succeeded
    threshold: 1
    tools:
      - find_order
      - {name: refund, arguments: {order_id: "17", amount: 12.5}}
    forbid: ["delete_*"]
"""


def written(folder: Path, name: str, content: str | bytes) -> Path:
    path = folder / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def from_yaml(folder: Path, text: str) -> list[Golden]:
    return list(load_goldens(written(folder, "goldens.yaml", text)))


def complaint(folder: Path, name: str, content: str | bytes) -> str:
    """The error message of loading that file, without the folder."""
    path = written(folder, name, content)
    with pytest.raises(GoldenError) as caught:
        load_goldens(path)
    text = str(caught.value)
    assert "\n" not in text
    assert text.endswith((".", "?"))
    return text.replace(f"{folder}/", "")


# --- reading ----------------------------------------------------------------------------------------------------------


def test_a_yaml_file_is_read_with_its_defaults(tmp_path: Path) -> None:
    book, refund = from_yaml(tmp_path, HOTELS)
    assert book == Golden(
        "book-cheapest",
        input="Search for hotels in Paris and book the cheapest one.",
        tools=(ExpectedTool("search_hotels"), ExpectedTool("book_hotel")),
        order="in_order",
        attempts="all",
        threshold=0.75,
    )
    assert refund == Golden(
        "refund",
        tools=(ExpectedTool("find_order"), ExpectedTool("refund", {"order_id": "17", "amount": 12.5})),
        order="exact",
        forbid=("delete_*",),
        attempts="succeeded",
        threshold=1.0,
    )


def test_yaml_json_and_json_lines_files_give_the_same_goldens(tmp_path: Path) -> None:
    rows = [
        {"id": "a", "input": "Hi", "expected_tools": [{"name": "search", "args": {"q": "x"}}, "book"]},
        {"id": "b", "tools": [], "forbid": ["delete_*"]},
    ]
    paths = [
        written(tmp_path, "list.json", json.dumps(rows)),
        written(tmp_path, "object.json", json.dumps({"version": 1, "goldens": rows})),
        written(tmp_path, "lines.jsonl", "\n".join(json.dumps(row) for row in rows)),
        written(tmp_path, "lines.ndjson", "\n\n".join(json.dumps(row) for row in rows) + "\n"),
        written(tmp_path, "windows.jsonl", "\ufeff" + "\r\n".join(json.dumps(row) for row in rows)),
        written(tmp_path, "same.yml", "goldens: " + json.dumps(rows)),
        written(tmp_path, "list.yaml", json.dumps(rows)),
    ]
    first, *others = [list(load_goldens(path)) for path in paths]
    assert first == [
        Golden("a", input="Hi", tools=(ExpectedTool("search", {"q": "x"}), ExpectedTool("book"))),
        Golden("b", forbid=("delete_*",)),
    ]
    assert all(other == first for other in others)


def test_several_files_form_one_set_of_goldens_in_file_order(tmp_path: Path) -> None:
    first = written(tmp_path, "1.jsonl", '{"id": "b", "tools": []}')
    second = written(tmp_path, "2.yaml", "- {id: a, tools: []}")
    goldens = load_goldens(first, str(second))
    assert [golden.id for golden in goldens] == ["b", "a"]


def test_a_decorated_name_is_kept_as_written(tmp_path: Path) -> None:
    (golden,) = from_yaml(tmp_path, "- {id: a, tools: [mcp__orders__add]}")
    assert golden.tools == (ExpectedTool("mcp__orders__add"),)


@pytest.mark.parametrize(
    ("scalar", "value"),
    [
        pytest.param("no", "no", id="the answer no"),
        pytest.param("on", "on", id="a switch"),
        pytest.param("020", "020", id="a number that begins with zero"),
        pytest.param("14:30", "14:30", id="a time"),
        pytest.param("2024-05-20", "2024-05-20", id="a day"),
        pytest.param("1_000", "1_000", id="digits with an underscore"),
        pytest.param("True", "True", id="capital letters"),
        pytest.param("true", True, id="true"),
        pytest.param("null", None, id="null"),
        pytest.param("~", None, id="tilde"),
        pytest.param("", None, id="nothing"),
        pytest.param("-12", -12, id="whole number"),
        pytest.param("1.50", 1.5, id="number"),
        pytest.param("1e3", 1000.0, id="power of ten"),
        pytest.param("-.inf", -math.inf, id="infinity"),
        pytest.param("'12'", "12", id="quoted"),
    ],
)
def test_yaml_arguments_have_only_the_types_that_json_has(tmp_path: Path, scalar: str, value: Any) -> None:
    (golden,) = from_yaml(tmp_path, f"- id: a\n  tools:\n    - name: book\n      arguments:\n        x: {scalar}\n")
    arguments = golden.tools[0].arguments
    assert arguments is not None
    assert arguments["x"] == value
    assert type(arguments["x"]) is type(value)


def test_nan_is_accepted_as_an_argument(tmp_path: Path) -> None:
    (golden,) = from_yaml(tmp_path, "- {id: a, tools: [{name: book, arguments: {x: .nan}}]}")
    arguments = golden.tools[0].arguments
    assert arguments is not None
    assert math.isnan(arguments["x"])
    assert golden.digest


def test_yaml_anchors_and_merge_keys_are_supported(tmp_path: Path) -> None:
    text = """\
goldens:
  - &base {id: a, tools: &tools [search, book], threshold: 0.9}
  - {<<: *base, id: b}
  - {id: c, tools: *tools}
"""
    a, b, c = from_yaml(tmp_path, text)
    assert (b.tools, b.threshold) == (a.tools, 0.9)
    assert (c.tools, c.threshold) == (a.tools, 1.0)


@pytest.mark.parametrize(
    "arguments",
    [
        pytest.param({"type": "refund"}, id="a key called type"),
        pytest.param({"filter": {"type": "hotel", "any": "x"}}, id="keys like matchers with other values"),
        pytest.param({"any": True}, id="an argument called any"),
        pytest.param({"filter": {"regex": "a", "flags": "i", "field": "b"}}, id="a regex among other keys"),
        pytest.param({"filter": {"any": "x"}}, id="any of something"),
        pytest.param({"filter": {}}, id="an empty dictionary"),
        pytest.param({"filter": {"type": ["string"]}}, id="a list of types"),
    ],
)
def test_arguments_that_only_resemble_matchers_stay_plain_data(tmp_path: Path, arguments: dict[str, Any]) -> None:
    row = {"id": "a", "tools": [{"name": "search", "arguments": arguments}]}
    (golden,) = load_goldens(written(tmp_path, "g.json", json.dumps([row])))
    assert golden.tools[0].arguments == arguments


# --- unknown keys -----------------------------------------------------------------------------------------------------


def test_unknown_keys_become_metadata_with_one_warning_per_file(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        "eval.json",
        json.dumps(
            {
                "description": "from the review of May",
                "goldens": [
                    {"id": "a", "tools": [{"name": "t", "reasoning": "why"}], "set": "x", "turn": 0},
                    {"id": "b", "tools": [], "set": "y", "reference": "..."},
                ],
            }
        ),
    )
    with pytest.warns(GoldspanWarning) as caught:
        goldens = load_goldens(path)
    (warning,) = caught
    prefix = "keys that are not goldspan's are kept as metadata"
    assert str(warning.message) == f"{path}: {prefix}: 'description', 'set', 'turn', 'reasoning' and 'reference'."
    assert caught[0].filename == __file__
    assert dict(goldens["a"].metadata) == {"set": "x", "turn": 0, "tools[0].reasoning": "why"}
    assert dict(goldens["b"].metadata) == {"set": "y", "reference": "..."}


def test_on_warning_receives_the_warnings_instead_of_the_warnings_module(tmp_path: Path) -> None:
    messages: list[str] = []
    path = written(tmp_path, "g.jsonl", '{"id": "a", "tools": [], "case": 1}')
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        load_goldens(path, on_warning=messages.append)
    assert messages == [f"{path}: keys that are not goldspan's are kept as metadata: 'case'."]


def test_write_tools_are_read_without_a_warning(tmp_path: Path) -> None:
    (golden,) = from_yaml(tmp_path, "- {id: a, tools: [], write_tools: [book, cancel]}")
    assert golden.write_tools == ("book", "cancel")


# --- errors -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("golden", "sentence"),
    [
        pytest.param(
            "{id: a, tools: [x, y, {name: z, argument: {q: 1}}]}",
            "golden 'a', tools[2]: unknown key 'argument'. Did you mean 'arguments'?",
            id="misspelt key of a tool",
        ),
        pytest.param(
            "{id: a, toools: [x]}", "golden 'a': unknown key 'toools'. Did you mean 'tools'?", id="misspelt key"
        ),
        pytest.param(
            "{id: a, expectedTools: [x]}",
            "golden 'a': unknown key 'expectedTools'. Did you mean 'expected_tools'?",
            id="camel case",
        ),
        pytest.param("{tools: [x]}", "goldens[0]: id is missing.", id="no id"),
        pytest.param("{id: 12, tools: []}", "goldens[0]: id must be text, not 12. Write it in quotes.", id="number"),
        pytest.param("{id: '', tools: []}", "goldens[0]: id must not be empty.", id="empty id"),
        pytest.param(
            "{id: a}",
            "golden 'a': tools is missing; `tools: []` means that no tool may be called.",
            id="no tools",
        ),
        pytest.param("{id: a, tools: x}", "golden 'a': tools must be a list, not 'x'.", id="one tool, no list"),
        pytest.param(
            "{id: a, tools: [x], expected_tools: [y]}",
            "golden 'a': 'expected_tools' and 'tools' are the same key; keep one of them.",
            id="two names of one field",
        ),
        pytest.param(
            "{id: a, tools: [7]}",
            "golden 'a', tools[0]: must be the name of a tool or a mapping with its name, not 7.",
            id="a tool that is a number",
        ),
        pytest.param("{id: a, tools: ['']}", "golden 'a', tools[0]: name must not be empty.", id="empty name"),
        pytest.param("{id: a, tools: [{args: {}}]}", "golden 'a', tools[0]: name is missing.", id="tool without name"),
        pytest.param(
            "{id: a, tools: [{name: x, arguments: [1]}]}",
            "golden 'a', tools[0]: arguments must be a mapping, not [1].",
            id="arguments in a list",
        ),
        pytest.param(
            "{id: a, tools: [{name: x, arguments: {y: {1: z}}}]}",
            "golden 'a', tools[0]: the key 1 in the arguments must be text.",
            id="an argument whose name is a number",
        ),
        pytest.param("{id: a, tools: [], 1: x}", "golden 'a': the key 1 must be text.", id="a key that is a number"),
        pytest.param(
            "{id: a, tools: [], order: inorder}",
            "golden 'a': order must be any, in_order or exact, not 'inorder'. Did you mean 'in_order'?",
            id="misspelt order",
        ),
        pytest.param(
            "{id: a, tools: [], order: 1}",
            "golden 'a': order must be any, in_order or exact, not 1.",
            id="order that is a number",
        ),
        pytest.param(
            "{id: a, tools: [], attempts: never}",
            "golden 'a': attempts must be effective, all or succeeded, not 'never'.",
            id="unknown attempts",
        ),
        pytest.param(
            "{id: a, tools: [], threshold: 1.5}",
            "golden 'a': threshold must be a number from 0 to 1, not 1.5.",
            id="threshold too high",
        ),
        pytest.param(
            "{id: a, tools: [], threshold: -1}",
            "golden 'a': threshold must be a number from 0 to 1, not -1.",
            id="threshold too low",
        ),
        pytest.param(
            "{id: a, tools: [], threshold: .nan}",
            "golden 'a': threshold must be a number from 0 to 1, not nan.",
            id="threshold that is no number",
        ),
        pytest.param(
            "{id: a, tools: [], threshold: high}",
            "golden 'a': threshold must be a number, not 'high'.",
            id="threshold in words",
        ),
        pytest.param(
            "{id: a, tools: [], forbid: [x, 3]}",
            "golden 'a': forbid[1] must be text, not 3. Write it in quotes.",
            id="number among the forbidden",
        ),
        pytest.param("{id: a, tools: [], input: [hi]}", "golden 'a': input must be text, not ['hi'].", id="input"),
        pytest.param(
            "{id: a, tools: [book_hotel], forbid: [BookHotel]}",
            "golden 'a': 'book_hotel' is both expected and forbidden.",
            id="expected and forbidden",
        ),
        pytest.param(
            "{id: a, tools: [{name: mcp__stock__add, server: orders}]}",
            "golden 'a', tools[0]: the name 'mcp__stock__add' names server 'stock', but 'server' is 'orders'.",
            id="two servers for one tool",
        ),
        pytest.param("[x]", "goldens[0]: a golden must be a mapping, not ['x'].", id="a golden that is a list"),
        pytest.param(
            f"{{id: a, tools: [], order: {'x' * 100}}}",
            f"golden 'a': order must be any, in_order or exact, not '{'x' * 27}...{'x' * 28}'.",
            id="a long value is shortened",
        ),
    ],
)
def test_an_error_in_a_golden_names_the_place_and_the_problem(tmp_path: Path, golden: str, sentence: str) -> None:
    assert complaint(tmp_path, "goldens.yaml", f"- {golden}\n") == f"goldens.yaml, {sentence}"


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        pytest.param("version: 2\ngoldens: []", "g.yaml: the file holds no golden.", id="no golden"),
        pytest.param(
            "version: 2\ngoldens: [{id: a, tools: []}]", "g.yaml: version must be 1, not 2.", id="unknown version"
        ),
        pytest.param(
            "metrics: [tool_f1]\ngoldens: [{id: a, tools: []}]",
            "g.yaml: metrics must be a mapping, not ['tool_f1'].",
            id="collections of metrics without names",
        ),
        pytest.param(
            "default: {order: any}\ngoldens: [{id: a, tools: []}]",
            "g.yaml: unknown key 'default'. Did you mean 'defaults'?",
            id="misspelt defaults",
        ),
        pytest.param(
            "defaults: {order: sorted}\ngoldens: [{id: a, tools: []}]",
            "g.yaml, defaults: order must be any, in_order or exact, not 'sorted'.",
            id="wrong default",
        ),
        pytest.param(
            "defaults: {colour: red}\ngoldens: [{id: a, tools: []}]",
            "g.yaml, defaults: unknown key 'colour'.",
            id="default of nothing",
        ),
        pytest.param("defaults:\ngoldens: [{id: a}]", "g.yaml: defaults must be a mapping, not None.", id="no default"),
        pytest.param("goldens: {id: a}", "g.yaml: 'goldens' must be a list, not {'id': 'a'}.", id="goldens no list"),
        pytest.param("golden:\n- id: a", "g.yaml: has no 'goldens'.", id="no goldens"),
        pytest.param("hello", "g.yaml: holds 'hello' where a list of goldens was expected.", id="a word"),
        pytest.param("", "g.yaml: the file is empty.", id="empty"),
        pytest.param("# soon\n", "g.yaml: the file is empty.", id="only a comment"),
        pytest.param(
            "- id: a\n  tools: []\n  id: b\n  tools: [x]\n",
            "g.yaml, line 3: the key 'id' is repeated.",
            id="forgotten dash",
        ),
        pytest.param(
            "goldens:\n  - id: a\n    tools: [x\n  - id: b\n",
            "g.yaml, line 4: not YAML: did not find expected ',' or ']'.",
            id="open bracket",
        ),
        pytest.param(
            "a:\n\t- b",
            "g.yaml, line 2: not YAML: found character that cannot start any token; indent with spaces, not with tabs.",
            id="a tab",
        ),
        pytest.param("a: \x07", "g.yaml: not YAML: the character '\\x07' is not allowed.", id="control character"),
        pytest.param("- !!int x", "g.yaml: not YAML: invalid literal for int() with base 10: 'x'.", id="wrong tag"),
        pytest.param("- " + "9" * 5000, "g.yaml: holds a number of thousands of digits.", id="endless number"),
        pytest.param(
            "- !!python/object/apply:os.system [x]",
            "g.yaml, line 1: not YAML: could not determine a constructor for the tag "
            "'tag:yaml.org,2002:python/object/apply:os.system'.",
            id="code",
        ),
    ],
)
def test_an_error_in_a_yaml_file_names_the_place_and_the_problem(tmp_path: Path, content: str, sentence: str) -> None:
    assert complaint(tmp_path, "g.yaml", content) == sentence


@pytest.mark.parametrize(
    ("name", "content", "sentence"),
    [
        pytest.param(
            "g.jsonl",
            '{"id": "a", "tools": []}\n{"id": "b", "tools": [}\n',
            "g.jsonl, line 2: not JSON: expecting value at column 23.",
            id="broken line",
        ),
        pytest.param("g.jsonl", '\n{"tools": []}', "g.jsonl, line 2: id is missing.", id="line without id"),
        pytest.param(
            "g.json", '[{"id": "a"},\n}]', "g.json, line 2: not JSON: expecting value at column 1.", id="broken JSON"
        ),
        pytest.param("g.jsonl", "[" * 100_000, "g.jsonl, line 1: is nested too deeply.", id="nested lines"),
        pytest.param("g.json", "9" * 5000, "g.json, line 1: holds a number of thousands of digits.", id="endless"),
        pytest.param("g.jsonl", b'{"id": "a"}\n\xff\xfe', "g.jsonl, line 2: the file is not UTF-8 text.", id="bytes"),
        pytest.param("g.jsonl", " \n", "g.jsonl: the file is empty.", id="blank"),
        pytest.param("g.json", "[]", "g.json: the file holds no golden.", id="no golden"),
        pytest.param(
            "g.txt",
            "x",
            "g.txt: a golden file's name ends in .yaml, .yml, .json, .jsonl or .ndjson.",
            id="unknown ending",
        ),
        pytest.param(
            "g.jsonl",
            '{"id": "a", "tools": []}\n{"id": "a", "tools": []}',
            "g.jsonl, golden 'a': the id is already taken.",
            id="id twice",
        ),
    ],
)
def test_an_error_in_a_json_file_names_the_place_and_the_problem(
    tmp_path: Path, name: str, content: str | bytes, sentence: str
) -> None:
    assert complaint(tmp_path, name, content) == sentence


def test_an_id_that_two_files_define_is_refused(tmp_path: Path) -> None:
    first = written(tmp_path, "one.yaml", "- {id: a, tools: []}")
    second = written(tmp_path, "two.yaml", "- {id: a, tools: []}")
    with pytest.raises(GoldenError) as caught:
        load_goldens(first, second)
    assert str(caught.value) == f"{second}, golden 'a': the id is already taken, in {first}."


def test_a_missing_file_is_reported_in_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(GoldenError) as caught:
        load_goldens(tmp_path / "none.yaml")
    assert str(caught.value) == f"{tmp_path / 'none.yaml'}: cannot be read: there is no such file."


def test_a_directory_is_refused_as_a_golden_file(tmp_path: Path) -> None:
    (tmp_path / "folder.yaml").mkdir()
    with pytest.raises(GoldenError, match=r"folder\.yaml: cannot be read: is a directory\."):
        load_goldens(tmp_path / "folder.yaml")


def test_loading_without_any_file_is_an_error() -> None:
    with pytest.raises(GoldenError, match="no golden file is given"):
        load_goldens()


# --- hostile files ----------------------------------------------------------------------------------------------------


def test_a_yaml_alias_bomb_is_refused(tmp_path: Path) -> None:
    layers = [f"l{n}: &l{n} [{', '.join([f'*l{n - 1}'] * 10)}]" for n in range(1, 12)]
    text = complaint(tmp_path, "g.yaml", "\n".join(["l0: &l0 [x, x]", *layers, "goldens: *l11"]))
    assert text == "g.yaml: its aliases stand for far more than the file holds."


def test_a_yaml_merge_key_bomb_is_refused(tmp_path: Path) -> None:
    layers = [f"l{n}: &l{n} {{<<: [{', '.join([f'*l{n - 1}'] * 10)}]}}" for n in range(1, 12)]
    text = complaint(tmp_path, "g.yaml", "\n".join(["l0: &l0 {x: y}", *layers]))
    assert text == "g.yaml: its aliases stand for far more than the file holds."


def test_a_yaml_value_that_contains_itself_is_refused(tmp_path: Path) -> None:
    assert "aliases" in complaint(tmp_path, "g.yaml", "- &a {id: a, tools: [{name: t, arguments: {x: *a}}]}")


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("[" * 150 + "]" * 150, id="some brackets"),
        pytest.param("[" * 100_000 + "]" * 100_000, id="brackets"),
        pytest.param("- " * 100_000 + "x", id="dashes"),
        pytest.param("{a: " * 100_000, id="never closed"),
    ],
)
def test_deeply_nested_yaml_is_refused(tmp_path: Path, text: str) -> None:
    assert complaint(tmp_path, "g.yaml", text) == "g.yaml: is nested too deeply."


def test_arguments_nested_above_the_maximum_depth_are_refused(tmp_path: Path) -> None:
    arguments = '{"x": ' + '{"y": [' * 60 + "1" + "]}" * 60 + "}"
    text = complaint(tmp_path, "g.jsonl", f'{{"id": "a", "tools": [{{"name": "t", "args": {arguments}}}]}}')
    assert text == "g.jsonl, golden 'a', tools[0]: the arguments are nested more than 100 levels deep."


# --- imports ----------------------------------------------------------------------------------------------------------


def test_importing_goldens_and_scoring_loads_neither_pydantic_rapidfuzz_nor_yaml() -> None:
    slow = {"pydantic", "rapidfuzz", "yaml"}
    code = f"import sys, goldspan.goldens, goldspan.scoring; print(*{slow} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, encoding="utf-8")
    assert done.stdout.split() == []


def test_load_goldens_is_a_public_name_of_the_package() -> None:
    assert goldspan.goldens.load_goldens is load_goldens
    with pytest.raises(AttributeError, match="no_such_name"):
        goldspan.goldens.no_such_name  # noqa: B018


# --- the lines of goldens ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "text", "lines"),
    [
        ("goldens.yaml", HOTELS, [4, 7]),
        ("list.yaml", "# a comment\n\n- # the first\n  id: a\n  tools: []\n- {id: b, tools: []}\n", [4, 6]),
        ("alias.yaml", "goldens:\n- &a {id: a, tools: []}\n-\n  <<: *a\n  id: b\n", [2, 4]),
        ("merged.yaml", "x: &x {goldens: [{id: a, tools: []}]}\n<<: *x\nservers: []\n", [None]),
        ("inner.yaml", "- id: a\n  tools:\n  - {name: t}\n- id: b\n  tools: []\n", [1, 4]),
        ("goldens.jsonl", '{"version": 1}\n\n{"id": "a", "tools": []}\n{"id": "b", "tools": []}\n', [3, 4]),
        ("list.json", ' [\n{\n"id": "a", "tools": [\n]},\n {"id": "b", "tools": []}]', [3, 5]),
        (
            "mapping.json",
            (
                '{"servers": ["goldens", "}"],\n "version": 1 , "goldens" :\n[ {"id": "a\\"]", "tools": []}\n,\n\n'
                '{"id":"b","tools":[{"name": "t"}]}\n],\n"metrics": {}}'
            ),
            [3, 6],
        ),
    ],
    ids=lambda value: value if isinstance(value, str) and value.endswith((".yaml", ".json", ".jsonl")) else "",
)
def test_a_golden_knows_its_file_and_the_line_of_its_first_key(
    tmp_path: Path, name: str, text: str, lines: list[int | None]
) -> None:
    path = written(tmp_path, name, text)
    sources = [golden.source for golden in load_goldens(path, on_warning=lambda _: None)]
    assert sources == [GoldenSource(str(path), line) for line in lines]


def test_the_source_of_a_golden_is_not_part_of_its_value(tmp_path: Path) -> None:
    (read,) = from_yaml(tmp_path, "- {id: a, input: hi, tools: [search]}")
    made = Golden("a", "hi", (ExpectedTool("search"),))
    assert made.source is None
    assert read == made
    assert (read.digest, hash(read), repr(read)) == (made.digest, hash(made), repr(made))
    assert Goldens([read], vocabulary=Vocabulary((Tool("search"),)))["a"].source == read.source


@pytest.mark.parametrize(
    ("tags", "expected"), [("[slow, 7]", ("slow", "7")), ("slow", ("slow",)), ("{a: 1}", ()), ("null", ())]
)
def test_the_tags_of_a_golden_are_metadata_without_a_warning(
    tmp_path: Path, tags: str, expected: tuple[str, ...]
) -> None:
    path = written(tmp_path, "goldens.yaml", f"- {{id: a, tools: [], tags: {tags}}}")
    (golden,) = load_goldens(path, on_warning=pytest.fail)
    assert golden.tags == expected
    assert Golden("b").tags == ()
