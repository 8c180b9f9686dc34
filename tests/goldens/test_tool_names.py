"""Golden files declare tools and servers once for all goldens that are loaded together."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from goldspan import evaluate
from goldspan.errors import GoldenError, GoldspanWarning
from goldspan.goldens import Goldens, load_goldens
from goldspan.model import ExpectedTool, Golden, Run, Tool, ToolCall, Vocabulary

HEAD: dict[str, Any] = {
    "tools": {
        "search_hotels": {"aliases": ["hotel.search", "find_hotels"], "effect": "read"},
        "book_hotel": {
            "effect": "write",
            "server": "travel",
            "description": "Book a room.",
            "parameters": {"type": "object", "properties": {"nights": {"type": "integer"}}},
        },
        "mcp__orders__add": None,
    },
    "servers": ["billing"],
}
ROW = {"id": "book", "tools": ["search_hotels", {"name": "add", "server": "orders"}]}
VOCABULARY = Vocabulary(
    tools=(
        Tool("search_hotels", ("hotel.search", "find_hotels"), effect="read"),
        Tool(
            "book_hotel",
            server="travel",
            effect="write",
            description="Book a room.",
            parameters={"type": "object", "properties": {"nights": {"type": "integer"}}},
        ),
        Tool("mcp__orders__add"),
    ),
    servers=("billing",),
)


def written(folder: Path, name: str, content: str) -> Path:
    path = folder / name
    path.write_text(content)
    return path


def vocabulary(folder: Path, yaml: str) -> Vocabulary:
    return load_goldens(written(folder, "v.yaml", f"{yaml}\ngoldens: [{{id: a, tools: []}}]")).vocabulary


@pytest.mark.parametrize(
    ("name", "content"),
    [
        pytest.param("g.yaml", json.dumps({**HEAD, "goldens": [ROW]}), id="YAML"),
        pytest.param("g.json", json.dumps({**HEAD, "version": 1, "goldens": [ROW]}), id="JSON"),
        pytest.param("g.jsonl", f"{json.dumps(HEAD)}\n{json.dumps(ROW)}\n", id="the first of JSON lines"),
        pytest.param(
            "g.jsonl", f"\n{json.dumps({'version': 1, **HEAD})}\n\n{json.dumps(ROW)}", id="after a blank line"
        ),
    ],
)
def test_every_file_format_can_declare_tools_and_servers(tmp_path: Path, name: str, content: str) -> None:
    goldens = load_goldens(written(tmp_path, name, content))
    assert goldens.vocabulary == VOCABULARY
    tools = (ExpectedTool("search_hotels"), ExpectedTool("add", server="orders"))
    assert list(goldens) == [Golden("book", tools=tools, vocabulary=VOCABULARY)]


def test_the_first_line_of_a_json_lines_file_can_set_only_defaults(tmp_path: Path) -> None:
    (golden,) = load_goldens(written(tmp_path, "g.jsonl", '{"defaults": {"order": "exact"}}\n{"id": "a", "tools": []}'))
    assert golden == Golden("a", order="exact")


def test_files_that_are_loaded_together_share_one_vocabulary(tmp_path: Path) -> None:
    tools = written(tmp_path, "tools.yaml", json.dumps(HEAD))
    goldens = written(tmp_path, "goldens.jsonl", json.dumps(ROW))
    same = written(tmp_path, "more.yaml", json.dumps({"tools": {"mcp__orders__add": {}}, "goldens": []}))
    loaded = load_goldens(goldens, tools, same)
    assert loaded.vocabulary == loaded["book"].vocabulary == VOCABULARY


@pytest.mark.parametrize(
    ("yaml", "tool"),
    [
        pytest.param("tools: {a: }", Tool("a"), id="nothing to say of it"),
        pytest.param("tools: {a: {aliases: b}}", Tool("a", ("b",)), id="one alias"),
        pytest.param("tools: {a: {alias: b}}", Tool("a", ("b",)), id="one alias by its singular"),
        pytest.param("tools: {a: {schema: {type: object}}}", Tool("a", parameters={"type": "object"}), id="schema"),
        pytest.param("tools: {a: {aliases: [A, a]}}", Tool("a", ("A", "a")), id="aliases that say nothing new"),
    ],
)
def test_a_tool_declaration_has_short_forms(tmp_path: Path, yaml: str, tool: Tool) -> None:
    assert vocabulary(tmp_path, yaml).tools == (tool,)


def test_unknown_keys_of_a_tool_become_metadata_with_a_warning(tmp_path: Path) -> None:
    with pytest.warns(GoldspanWarning, match="kept as metadata: 'owner'"):
        (tool,) = vocabulary(tmp_path, "tools: {a: {owner: billing team}}").tools
    assert tool == Tool("a", metadata={"owner": "billing team"})


# --- errors -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("head", "sentence"),
    [
        pytest.param("tools: [a]", "tools must be a mapping, not ['a'].", id="a list of tools"),
        pytest.param("servers: orders", "servers must be a list, not 'orders'.", id="one server, no list"),
        pytest.param("server: [orders]", "unknown key 'server'. Did you mean 'servers'?", id="misspelt servers"),
        pytest.param("tools: {3: {}}", "tools: the name of a tool must be text, not 3.", id="a number for a name"),
        pytest.param("tools: {'': {}}", "tools: the name of a tool must be text, not ''.", id="no name"),
        pytest.param(
            "tools: {a: read}", "tool 'a': must be a mapping with keys such as 'aliases', not 'read'.", id="a word"
        ),
        pytest.param(
            "tools: {a: {effect: writes}}",
            "tool 'a': effect must be read or write, not 'writes'. Did you mean 'write'?",
            id="effect",
        ),
        pytest.param(
            "tools: {a: {efect: write}}", "tool 'a': unknown key 'efect'. Did you mean 'effect'?", id="misspelt key"
        ),
        pytest.param("tools: {a: {aliases: [b, 3]}}", "tool 'a': aliases[1] must be text, not 3. Write it in quotes.",
                     id="a number for an alias"),
        pytest.param("tools: {a: {aliases: ['']}}", "tool 'a': aliases[0] must not be empty.", id="an empty alias"),
        pytest.param("tools: {a: {alias: b, aliases: [c]}}",
                     "tool 'a': 'aliases' and 'alias' are the same key; keep one of them.", id="aliases twice"),
        pytest.param(
            "tools: {mcp__orders__add: {server: stock}}",
            "tool 'mcp__orders__add': the name 'mcp__orders__add' names server 'orders', but 'server' is 'stock'.",
            id="two servers for one tool",
        ),
        pytest.param(
            "tools: {a: {aliases: [x]}, b: {aliases: [X]}}",
            "tool 'b': the alias 'X' is equivalent to the alias 'x' of 'a'; a name must not stand for two tools.",
            id="one alias for two tools",
        ),
        pytest.param(
            "tools: {a: {aliases: [b]}, b: {}}",
            "tool 'b': the name is equivalent to the alias 'b' of 'a'; a name must not stand for two tools.",
            id="an alias that is another tool's name",
        ),
        pytest.param(
            "tools: {web_search: {}, WebSearch: {}}",
            "tool 'WebSearch': the name is equivalent to the name of 'web_search'; "
            "a name must not stand for two tools.",
            id="two names that are one when folded",
        ),
        pytest.param(
            "tools: {add: {server: orders}, sum: {aliases: [orders_add]}}",
            "tool 'sum': the alias 'orders_add' is equivalent to the name of 'add'; "
            "a name must not stand for two tools.",
            id="an alias that is another tool's name with its server",
        ),
    ],
)  # fmt: skip
def test_an_error_in_a_vocabulary_names_the_place_and_the_problem(tmp_path: Path, head: str, sentence: str) -> None:
    with pytest.raises(GoldenError) as caught:
        vocabulary(tmp_path, head)
    start, message = str(caught.value).split("v.yaml", 1)
    assert (start, message.lstrip(",: ")) == (f"{tmp_path}/", sentence)


def test_tools_of_different_servers_can_have_the_same_name(tmp_path: Path) -> None:
    yaml = "tools: {mcp__orders__add: {}, mcp__stock__add: {}, add: {}}"
    assert [tool.name for tool in vocabulary(tmp_path, yaml).tools] == ["mcp__orders__add", "mcp__stock__add", "add"]


def test_two_files_cannot_declare_a_tool_differently(tmp_path: Path) -> None:
    one = written(tmp_path, "one.yaml", "tools: {a: {effect: read}}\ngoldens: [{id: g, tools: [a]}]")
    two = written(tmp_path, "two.yaml", "tools: {a: {effect: write}}")
    with pytest.raises(GoldenError) as caught:
        load_goldens(one, two)
    assert str(caught.value) == f"{two}, tool 'a': {one} declares it differently."


def test_files_that_declare_only_a_vocabulary_are_refused(tmp_path: Path) -> None:
    path = written(tmp_path, "tools.jsonl", json.dumps(HEAD))
    with pytest.raises(GoldenError, match=r"tools\.jsonl: the file holds no golden\."):
        load_goldens(path)


def test_a_tool_expected_by_its_name_and_forbidden_by_its_alias_is_refused(tmp_path: Path) -> None:
    row = {"id": "a", "tools": ["search_hotels"], "forbid": ["hotel_search"]}
    path = written(tmp_path, "g.json", json.dumps({**HEAD, "goldens": [row]}))
    with pytest.raises(GoldenError, match="'search_hotels' is both expected and forbidden"):
        load_goldens(path)


def test_a_tool_of_one_server_can_be_expected_and_that_of_another_forbidden(tmp_path: Path) -> None:
    row = {"id": "a", "tools": ["mcp__orders__add"], "forbid": ["mcp__stock__add"]}
    assert load_goldens(written(tmp_path, "g.json", json.dumps([row])))["a"].forbid == ("mcp__stock__add",)


# --- goldens made in code ---------------------------------------------------------------------------------------------


def test_a_set_of_goldens_passes_its_vocabulary_to_goldens_without_one() -> None:
    other = Vocabulary(servers=("other",))
    goldens = Goldens([Golden("a"), Golden("b", vocabulary=other)], vocabulary=VOCABULARY)
    assert [golden.vocabulary for golden in goldens] == [VOCABULARY, other]
    assert Goldens([Golden("a")]).vocabulary == Vocabulary()


def test_the_digest_of_a_golden_depends_on_its_vocabulary_without_descriptions() -> None:
    changes = [
        Vocabulary(),
        Vocabulary((Tool("a"),)),
        Vocabulary((Tool("a", ("b",)),)),
        Vocabulary((Tool("a", server="s"),)),
        Vocabulary((Tool("a", effect="read"),)),
        Vocabulary((Tool("a", parameters={"type": "object"}),)),
        Vocabulary(servers=("s",)),
    ]
    assert len({Golden("g", vocabulary=vocabulary).digest for vocabulary in changes}) == len(changes)
    described = Vocabulary((Tool("a", description="words"),))
    assert Golden("g", vocabulary=described).digest == Golden("g", vocabulary=changes[1]).digest


@pytest.mark.parametrize(
    ("declared", "called", "known"),
    [
        pytest.param((), "mcp__orders__add", True, id="the call says it"),
        pytest.param((), "orders_add", True, id="the call begins with it"),
        pytest.param((), "add", False, id="the call does not"),
        pytest.param((Tool("add", server="orders"),), "add", True, id="there is one such tool"),
        pytest.param((Tool("mcp__orders__add"),), "add", True, id="there is one, as hosts write it"),
        pytest.param((Tool("add"),), "add", False, id="the tool is declared without its server"),
        pytest.param((Tool("add", server="orders"), Tool("add", server="stock")), "add", False, id="there are two"),
        pytest.param((Tool("mcp__orders__add", ("plus",)),), "plus", True, id="by another name"),
    ],
)
def test_a_call_passes_only_when_its_server_is_known_and_is_undetermined_otherwise(
    declared: tuple[Tool, ...], called: str, known: bool
) -> None:
    run = Run("r", tool_calls=(ToolCall(called),))
    golden = Golden("g", tools=(ExpectedTool("mcp__orders__add"),), vocabulary=Vocabulary(declared))
    evaluation = evaluate(run, golden)
    assert evaluation.passed is (True if known else None), evaluation.reason
