"""Every key of a golden file is parsed to its model object, and an invalid one is refused with a reason."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from goldspan.errors import GoldenError
from goldspan.goldens import load_goldens
from goldspan.goldens.schema.expected_tools import MAX_NESTING
from goldspan.goldens.schema.golden_parser import parse_expected_tools
from goldspan.model import AnyOf, ExpectedItem, ExpectedTool, Golden, Parallel, Times
from goldspan.model.value_matchers import Regex

A, B, C = map(ExpectedTool, "abc")


def written(folder: Path, content: Any, name: str = "g.json") -> Path:
    path = folder / name
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


def loaded(folder: Path, golden: Mapping[str, Any], **head: Any) -> Golden:
    """The one golden of a file with this head."""
    (found,) = load_goldens(written(folder, {**head, "goldens": [{"id": "g", **golden}]}))
    return found


def complaint(folder: Path, content: Any) -> str:
    """The error message of loading a file, without the name of the file."""
    with pytest.raises(GoldenError) as caught:
        load_goldens(written(folder, content))
    return str(caught.value).partition("g.json")[2].lstrip(":, ")


# --- items of tools ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("item", "meant"),
    [
        pytest.param("a", A, id="a name"),
        pytest.param({"name": "a"}, A, id="a mapping with a name"),
        pytest.param({"name": "a", "args": {"x": 1}}, ExpectedTool("a", {"x": 1}), id="arguments"),
        pytest.param({"name": "a", "arguments": None}, A, id="arguments left open"),
        pytest.param({"name": "a", "server": "s"}, ExpectedTool("a", server="s"), id="a server"),
        pytest.param({"name": "a", "result": {"ok": True}}, ExpectedTool("a", result={"ok": True}), id="a result"),
        pytest.param({"name": "a", "output": None}, ExpectedTool("a", result=None), id="nothing is to come back"),
        pytest.param({"name": "a", "result": {"regex": "x+"}}, ExpectedTool("a", result=Regex("x+")), id="a matcher"),
        pytest.param({"name": "a", "match": "subset"}, ExpectedTool("a", match="subset"), id="a subset"),
        pytest.param({"name": "a", "ignore": "trace_id"}, ExpectedTool("a", ignore=("trace_id",)), id="ignore one"),
        pytest.param({"name": "a", "ignore": ["x", "y.z"]}, ExpectedTool("a", ignore=("x", "y.z")), id="ignore some"),
        pytest.param({"name": "a", "defaults": {"x.y": 1}}, ExpectedTool("a", defaults={"x.y": 1}), id="defaults"),
        pytest.param({"name": "a", "optional": True}, ExpectedTool("a", times=Times(0, 1)), id="optional"),
        pytest.param({"name": "a", "optional": False}, A, id="not optional"),
        pytest.param({"name": "a", "times": 3}, ExpectedTool("a", times=Times(3, 3)), id="three times"),
        pytest.param({"name": "a", "times": {"min": 2}}, ExpectedTool("a", times=Times(2, None)), id="at least twice"),
        pytest.param({"name": "a", "times": {"max": 2}}, ExpectedTool("a", times=Times(1, 2)), id="at most twice"),
        pytest.param({"name": "a", "times": {"min": 0, "max": 2}}, ExpectedTool("a", times=Times(0, 2)), id="0 to 2"),
        pytest.param(
            {"name": "a", "optional": True, "times": {"max": 2}},
            ExpectedTool("a", times=Times(0, 2)),
            id="optional, and at most twice",
        ),
        pytest.param({"any_of": ["a", {"name": "b"}]}, AnyOf(((A,), (B,))), id="alternative calls"),
        pytest.param({"any_of": ["a", ["b", "c"]]}, AnyOf(((A,), (B, C))), id="alternative trajectories"),
        pytest.param(
            {"any_of": ["a", "b"], "optional": True}, AnyOf(((A,), (B,)), Times(0, 1)), id="optional alternatives"
        ),
        pytest.param({"any_of": ["a", ["b", "c"]], "optional": True}, AnyOf(((A,), (B, C)), Times(0, 1)), id="both"),
        pytest.param({"any_of": ["a", "b"], "times": 2}, AnyOf(((A,), (B,)), Times(2, 2)), id="twice one of two"),
        pytest.param({"any_of": [["a"], {"any_of": ["b"]}]}, AnyOf(((A,), (AnyOf(((B,),)),))), id="nested"),
        pytest.param({"parallel": ["a", "b"]}, Parallel((A, B)), id="parallel calls"),
        pytest.param(
            {"parallel": [{"any_of": ["a", "b"], "times": 2}, "c"]},
            Parallel((AnyOf(((A,), (B,)), Times(2, 2)), C)),
            id="parallel alternatives",
        ),
        pytest.param(
            {"any_of": [[{"parallel": ["a", "b"]}, "c"], "c"]},
            AnyOf(((Parallel((A, B)), C), (C,))),
            id="parallel calls in a trajectory",
        ),
    ],
)
def test_an_item_of_tools_is_parsed_equally_from_files_and_from_python(
    tmp_path: Path, item: Any, meant: ExpectedItem
) -> None:
    assert loaded(tmp_path, {"tools": [item]}).tools == (meant,)
    assert parse_expected_tools([item], "expected") == (meant,)


def test_any_of_at_the_top_of_a_golden_equals_one_any_of_item_in_tools(tmp_path: Path) -> None:
    golden = loaded(tmp_path, {"any_of": [["a", "b"], "c"]})
    assert golden.tools == (AnyOf(((A, B), (C,))),)
    assert golden == loaded(tmp_path, {"tools": [{"any_of": [["a", "b"], "c"]}]})


@pytest.mark.parametrize(
    ("item", "sentence"),
    [
        pytest.param({"name": "a", "times": 0}, ": times must be a whole number from 1 to 1,000, not 0.", id="never"),
        pytest.param({"name": "a", "times": 10**9}, ": times must be a whole number from 1 to 1,000, not 1000000000.",
                     id="a thousand million times"),
        pytest.param({"name": "a", "times": True}, ": times must be a whole number, not True.", id="times true"),
        pytest.param({"name": "a", "times": 1.5}, ": times must be a whole number, not 1.5.", id="one and a half"),
        pytest.param({"name": "a", "times": {}}, ": times has neither min nor max.", id="no times"),
        pytest.param({"name": "a", "times": {"min": 3, "max": 2}}, ", times: max is 2, and min is 3.", id="backwards"),
        pytest.param({"name": "a", "times": {"mins": 3}}, ".times: unknown key 'mins'. Did you mean 'min'?", id="slip"),
        pytest.param({"name": "a", "times": {"min": -1}}, ".times: min must be a whole number from 0 to 1,000, not -1.",
                     id="less than none"),
        pytest.param({"name": "a", "optional": True, "times": 3},
                     ": 'optional' and 'times: 3' contradict each other; `times: {min: 0, max: 3}` allows fewer "
                     "calls.", id="optional, and three times"),
        pytest.param({"name": "a", "optional": True, "times": {"min": 1}},
                     ": 'optional' and 'min: 1' contradict each other; keep one of them.", id="optional, and one"),
        pytest.param({"name": "a", "optional": "yes"}, ": optional must be true or false, not 'yes'.", id="yes"),
        pytest.param({"name": "a", "match": "subsets"},
                     ": match must be exact or subset, not 'subsets'. Did you mean 'subset'?", id="misspelt match"),
        pytest.param({"name": "a", "ignore": ["x..y"]},
                     ": ignore[0] must be a key or a path such as 'options.trace_id', not 'x..y'.", id="no path"),
        pytest.param({"name": "a", "ignore": 3}, ": ignore must be a list, not 3.", id="ignore a number"),
        pytest.param({"name": "a", "defaults": [1]}, ": defaults must be a mapping, not [1].", id="defaults in a list"),
        pytest.param({"name": "a", "effect": "write"},
                     ": the key 'effect' is declared under 'tools' in the header of the file.", id="effect"),
        pytest.param({"name": "a", "result": 1, "output": 2},
                     ": 'output' and 'result' are the same key; keep one of them.", id="two results"),
        pytest.param({"name": "a", "any_of": ["b"]},
                     ": the key 'name' belongs to a call, and cannot stand beside 'any_of'.", id="name and any_of"),
        pytest.param({"any_of": []}, ": any_of must not be empty.", id="no alternatives"),
        pytest.param({"any_of": ["a", []]}, ": any_of[1] must not be empty.", id="an empty trajectory"),
        pytest.param({"any_of": "a"}, ": any_of must be a list, not 'a'.", id="one alternative, no list"),
        pytest.param({"any_of": ["a", 3]},
                     ".any_of[1]: must be the name of a tool or a mapping with its name, not 3.", id="a number"),
        pytest.param({"any_of": [["a", {"nam": "b"}]]},
                     ".any_of[0][1]: unknown key 'nam'. Did you mean 'name'?", id="slip in a trajectory"),
        pytest.param({"any_of": ["a", ["b", "c"]], "times": 2},
                     ": only alternatives that are single calls can be expected several times.", id="two trajectories"),
        pytest.param({"any_of": ["a", {"name": "b", "times": 2}], "times": 2},
                     ": only alternatives that are single calls can be expected several times.", id="twice twice"),
        pytest.param({"parallel": []}, ": parallel must not be empty.", id="nothing in parallel"),
        pytest.param({"parallel": ["a"], "optional": True},
                     ": the key 'optional' belongs to a call, and cannot stand beside 'parallel'.", id="optional"),
        pytest.param({"parallel": ["a", {"parallel": ["b"]}]},
                     ".parallel[1]: 'parallel' cannot be nested; move its items to the outer one.", id="twice"),
        pytest.param({"parallel": ["a", {"any_of": ["b", ["c", "d"]]}]},
                     ".parallel[1]: alternatives inside 'parallel' must be single calls.", id="trajectory in parallel"),
        pytest.param({"name": "a\ud800"}, ": name must be text of whole characters, not 'a\\ud800'.", id="half letter"),
        pytest.param({"name": "a", "args": {"x": {"regex": "("}}},
                     ", arguments.x: regex '(' cannot be used: unclosed group.", id="a broken pattern"),
        pytest.param({"name": "a", "result": [{"approx": 1, "withn": 2}]},
                     ", result[0]: unknown key 'withn'. Did you mean 'within'?", id="slip in a matcher of the result"),
    ],
)  # fmt: skip
def test_an_invalid_item_is_refused_with_its_place_and_the_reason(tmp_path: Path, item: Any, sentence: str) -> None:
    assert complaint(tmp_path, [{"id": "g", "tools": ["x", item]}]) == f"golden 'g', tools[1]{sentence}"
    with pytest.raises(GoldenError) as caught:
        parse_expected_tools(["x", item], "expected")
    assert str(caught.value) == f"expected[1]{sentence}"


# --- rules of a golden and defaults -----------------------------------------------------------------------------------

RULES: dict[str, Any] = {
    "order": "in_order",
    "forbid": ["delete_*"],
    "max_calls": 8,
    "depth": "own",
    "attempts": "all",
    "duplicates": "ignore",
    "extra": "allow",
    "mode": "f1",
    "threshold": 0.9,
    "thresholds": {"tool_f1": 0.75},
    "metrics": ["tool_f1", "few_calls"],
}
MEANT = {**RULES, "forbid": ("delete_*",), "metrics": ("tool_f1", "few_calls")}


@pytest.mark.parametrize("rule", RULES)
def test_a_rule_is_set_by_the_golden_or_by_the_defaults_of_its_file(tmp_path: Path, rule: str) -> None:
    by_itself = loaded(tmp_path, {"tools": ["a"], rule: RULES[rule]})
    by_default = loaded(tmp_path, {"tools": ["a"]}, defaults={rule: RULES[rule]})
    assert by_itself == by_default == Golden("g", tools=(A,), **{rule: MEANT[rule]})
    other = loaded(tmp_path, {"tools": ["a"], rule: RULES[rule]}, defaults={"order": "any", "max_calls": 1})
    assert getattr(other, rule) == MEANT[rule]


def test_match_of_a_golden_applies_to_calls_without_their_own_match(tmp_path: Path) -> None:
    tools = ["a", {"name": "b", "match": "exact"}, {"any_of": ["c"]}]
    golden = loaded(tmp_path, {"tools": tools, "match": "subset"})
    assert [tool.match for tool in golden.expected_calls] == ["subset", "exact", "subset"]
    assert golden == loaded(tmp_path, {"tools": tools}, defaults={"match": "subset"})


def test_write_tools_can_be_set_in_the_defaults(tmp_path: Path) -> None:
    golden = loaded(tmp_path, {"tools": []}, defaults={"write_tools": ["book"]})
    assert golden.write_tools == ("book",)


def test_metrics_can_name_a_collection_that_any_loaded_file_declares(tmp_path: Path) -> None:
    (tmp_path / "metrics.yaml").write_text("metrics: {core: [tool_recall, tool_f1]}")
    goldens = written(tmp_path, {"goldens": [{"id": "g", "tools": [], "metrics": "core"}, {"id": "h", "tools": []}],
                                 "defaults": {"metrics": "small"}, "metrics": {"small": ["tool_f1"]}})  # fmt: skip
    found = load_goldens(goldens, tmp_path / "metrics.yaml")
    assert [golden.metrics for golden in found] == [("tool_recall", "tool_f1"), ("tool_f1",)]


def test_the_first_line_of_a_json_lines_file_can_declare_metrics(tmp_path: Path) -> None:
    lines = '{"metrics": {"core": ["tool_f1"]}}\n{"id": "g", "tools": [], "metrics": "core"}'
    (golden,) = load_goldens(written(tmp_path, lines, "g.jsonl"))
    assert golden.metrics == ("tool_f1",)


@pytest.mark.parametrize(
    ("golden", "sentence"),
    [
        pytest.param({"tools": [], "any_of": ["a"]},
                     ": 'any_of' and 'tools' exclude each other; keep one of them.", id="two expectations"),
        pytest.param({"tools": None}, ": tools must be a list, not None.", id="tools with nothing behind"),
        pytest.param({"any_of": []}, ": any_of must not be empty.", id="no alternatives"),
        pytest.param({"any_of": ["a", []]}, ": any_of[1] must not be empty.", id="an empty trajectory"),
        pytest.param({"tools": [], "times": 2}, ": the key 'times' belongs to an item of 'tools'.", id="times"),
        pytest.param({"tools": [], "max_calls": -1}, ": max_calls must be 0 or more, not -1.", id="a negative budget"),
        pytest.param({"tools": [], "max_calls": 1.5}, ": max_calls must be a whole number, not 1.5.", id="half a call"),
        pytest.param({"tools": [], "mode": "recal"},
                     ": mode must be recall, precision, f1, exact or set, not 'recal'. Did you mean 'recall'?",
                     id="misspelt mode"),
        pytest.param({"tools": [], "thresholds": {"tool_f1": 2}},
                     ", thresholds: tool_f1 must be a number from 0 to 1, not 2.", id="threshold of a metric"),
        pytest.param({"tools": [], "metrics": "core"},
                     ": metrics names 'core', and no such collection is declared. One metric is written as ['core'].",
                     id="no collection"),
        pytest.param({"tools": [], "metrics": "smal"},
                     ": metrics names 'smal', and no such collection is declared. Did you mean 'small'?",
                     id="misspelt collection"),
        pytest.param({"tools": [], "metrics": [3]}, ": metrics[0] must be text, not 3. Write it in quotes.", id="3"),
        pytest.param({"tools": ["a"], "order": "exact", "extra": "allow"},
                     ": 'order: exact' and 'extra: allow' contradict each other; keep one of them.", id="exact, extra"),
        pytest.param({"tools": [], "forbidden": ["x"]}, ": the key 'forbidden' is written 'forbid'.", id="forbidden"),
    ],
)  # fmt: skip
def test_an_invalid_golden_is_refused_with_the_reason(tmp_path: Path, golden: dict[str, Any], sentence: str) -> None:
    file = {"metrics": {"small": ["tool_f1"]}, "goldens": [{"id": "g", **golden}]}
    assert complaint(tmp_path, file) == f"golden 'g'{sentence}"


@pytest.mark.parametrize(
    ("head", "sentence"),
    [
        pytest.param({"defaults": {"order": "exact", "extra": "allow"}},
                     "golden 'g': 'order: exact' and 'extra: allow' contradict each other; keep one of them.",
                     id="defaults that contradict each other"),
        pytest.param({"defaults": {"metrics": "core"}},
                     "defaults: metrics names 'core', and no such collection is declared. One metric is written as "
                     "['core'].", id="unknown collection"),
        pytest.param({"defaults": {"tools": []}}, "defaults: unknown key 'tools'.", id="tools for all"),
        pytest.param({"defaults": {"thresholds": {"tool_f1": "x"}}},
                     "defaults.thresholds: tool_f1 must be a number, not 'x'.", id="a threshold in words"),
        pytest.param({"metrics": {"core": "tool_f1"}}, "metrics: core must be a list, not 'tool_f1'.", id="one metric"),
        pytest.param({"tools": {"a": {"ignore": [""]}}}, "tool 'a': ignore[0] must not be empty.", id="ignore nothing"),
        pytest.param({"tools": {"a": {"parameters": "x"}}}, "tool 'a': parameters must be a mapping, not 'x'.",
                     id="a schema that is a word"),
        pytest.param({"tools": {"a": {"defaults": {"x": {"y": [{"": {}}] * 2, "z": 1}}, "efect": 1}}},
                     "tool 'a': unknown key 'efect'. Did you mean 'effect'?", id="slip in a declaration"),
    ],
)  # fmt: skip
def test_an_invalid_file_header_is_refused_with_the_reason(tmp_path: Path, head: dict[str, Any], sentence: str) -> None:
    assert complaint(tmp_path, {**head, "goldens": [{"id": "g", "tools": []}]}) == sentence


def test_two_files_cannot_declare_a_collection_differently(tmp_path: Path) -> None:
    one = written(tmp_path, {"metrics": {"core": ["tool_f1"]}, "goldens": [{"id": "g", "tools": []}]}, "one.json")
    two = written(tmp_path, {"metrics": {"core": ["tool_recall"]}}, "two.json")
    with pytest.raises(GoldenError) as caught:
        load_goldens(one, two)
    assert str(caught.value) == f"{two}, metrics 'core': {one} declares them differently."


# --- unknown keys -----------------------------------------------------------------------------------------------------


def test_unknown_keys_become_metadata_under_their_paths(tmp_path: Path) -> None:
    own = {
        "id": "g",
        "model": "m",
        "code": 7,
        "any_of": [["a", {"name": "b", "why": "x"}], {"parallel": ["c"], "by": 1}],
    }
    messages: list[str] = []
    (golden,) = load_goldens(written(tmp_path, [own]), on_warning=messages.append)
    assert dict(golden.metadata) == {"model": "m", "code": 7, "any_of[0][1].why": "x", "any_of[1].by": 1}
    assert messages == [
        f"{tmp_path}/g.json: keys that are not goldspan's are kept as metadata: 'model', 'code', 'why' and 'by'."
    ]


# --- argument declarations in the vocabulary --------------------------------------------------------------------------


def test_ignore_and_defaults_of_a_declared_tool_apply_to_all_its_expected_calls(tmp_path: Path) -> None:
    vocabulary = {"search": {"aliases": "find", "ignore": ["trace_id"], "defaults": {"limit": 10, "lang": "en"}}}
    calls = ["find", {"name": "search", "ignore": ["page", "trace_id"], "defaults": {"limit": 5}}, "other"]
    golden = loaded(tmp_path, {"tools": [calls[0], {"any_of": calls[1:]}]}, tools=vocabulary)
    assert golden.expected_calls == (
        ExpectedTool("find", ignore=("trace_id",), defaults={"limit": 10, "lang": "en"}),
        ExpectedTool("search", ignore=("trace_id", "page"), defaults={"limit": 5, "lang": "en"}),
        ExpectedTool("other"),
    )


def test_an_ambiguous_tool_name_inherits_no_declaration(tmp_path: Path) -> None:
    vocabulary = {"mcp__orders__add": {"ignore": "x"}, "mcp__stock__add": {"ignore": "y"}}
    golden = loaded(tmp_path, {"tools": ["add", "orders_add"]}, tools=vocabulary)
    assert golden.tools == (ExpectedTool("add"), ExpectedTool("orders_add", ignore=("x",)))


# --- in Python --------------------------------------------------------------------------------------------------------


def test_model_objects_and_dictionaries_can_be_mixed_in_expected_tools() -> None:
    given_ = [{"any_of": (A, [B, {"name": "c"}])}, {"parallel": (A, AnyOf(((B,),)))}, MappingProxyType({"name": "c"})]
    assert parse_expected_tools(given_, "expected") == (AnyOf(((A,), (B, C))), Parallel((A, AnyOf(((B,),)))), C)


def test_a_list_that_contains_itself_is_refused() -> None:
    endless: list[Any] = ["a"]
    endless.append({"any_of": endless})
    with pytest.raises(GoldenError, match=f"expected: alternatives are nested more than {MAX_NESTING} levels deep"):
        parse_expected_tools(endless, "expected")


# --- laws -------------------------------------------------------------------------------------------------------------

names = st.sampled_from(["search", "book", "mcp__orders__add"])
times = st.one_of(st.just(Times()), st.builds(Times, st.integers(0, 2), st.integers(2, 5) | st.none()))
calls = st.builds(
    ExpectedTool,
    names,
    st.none() | st.dictionaries(st.sampled_from("xyz"), st.integers() | st.text() | st.lists(st.booleans())),
    times=times,
    match=st.sampled_from(["exact", "subset"]),
    ignore=st.lists(st.sampled_from(["a", "b.c"]), unique=True).map(tuple),
    defaults=st.dictionaries(st.sampled_from(["d", "e.f"]), st.integers()),
)
once = st.builds(ExpectedTool, names)
single = st.builds(AnyOf, st.lists(st.tuples(once), min_size=1, max_size=3).map(tuple), times)
groups = st.builds(Parallel, st.lists(calls | single, min_size=1, max_size=3).map(tuple))
trajectories = st.lists(calls | single | groups, min_size=1, max_size=3).map(tuple)
whole = st.builds(
    AnyOf, st.lists(trajectories, min_size=1, max_size=3).map(tuple), st.sampled_from([Times(), Times(0, 1)])
)


def as_written(item: ExpectedItem) -> dict[str, Any]:
    """An item in its written form."""
    if isinstance(item, Parallel):
        return {"parallel": [as_written(each) for each in item.items]}
    written_form: dict[str, Any] = {}
    if item.times != Times():
        written_form["times"] = {"min": item.times.least, "max": item.times.most}
    if isinstance(item, AnyOf):
        return {**written_form, "any_of": [[as_written(each) for each in option] for option in item.options]}
    written_form |= {
        "name": item.name,
        "match": item.match,
        "ignore": list(item.ignore),
        "defaults": dict(item.defaults),
    }
    return written_form if item.arguments is None else {**written_form, "arguments": item.arguments}


@given(st.lists(calls | single | groups | whole, max_size=4).map(tuple))
def test_parsing_a_written_item_gives_the_same_item(meant: tuple[ExpectedItem, ...]) -> None:
    assert parse_expected_tools([as_written(item) for item in meant], "expected") == meant
