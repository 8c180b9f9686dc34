"""A run becomes a draft golden that can be written to a file, loaded again, and that the run itself passes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from goldspan import AnyOf, Evaluation, ExpectedTool, Golden, Goldens, Parallel, Run, Times, ToolCall, When, evaluate
from goldspan.goldens import load_goldens
from goldspan.goldens.golden_files.golden_writer import (
    UnwritableError,
    draft_golden,
    draft_to_yaml,
    golden_id_for_text,
    goldens_to_yaml,
    replace_lone_surrogates,
)
from goldspan.model.value_matchers import (
    Anything,
    Approx,
    Contains,
    Equal,
    Folded,
    OfType,
    OneOf,
    Regex,
    Similar,
    Unordered,
)

TRICKS = (
    *(
        "null",
        "true",
        "no",
        "~",
        "",
        " ",
        "1e5",
        "0x1F",
        "12",
        "-",
        "- a",
        "? a",
        "a: b",
        "a #b",
        "#",
        "&a",
        "*a",
        "!!str 1",
    ),
    *(
        "{a: 1}",
        "[a]",
        "'",
        '"',
        "\\",
        "\\n",
        "a\nb",
        "a\r\nb",
        "\tb",
        "---",
        "...",
        "%YAML 1.1",
        "@a",
        "`a`",
        "<<",
        "=",
        "|",
        ">",
    ),
    *(
        "a\x00b",
        "\x85",
        "\u2028",
        "\u2029",
        "\ufeff",
        "\u202eevil",
        "\u200b",
        "\U000e0041",
        "\ufffe",
        "😀",
        "é",
        "ǅ",
        "a,b",
        "a]b",
    ),
)
texts = st.sampled_from(TRICKS) | st.text(max_size=20)
halves = st.sampled_from(("\ud800", "a\udfffb", "\ud83d\ude00"))
scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | texts
WORDS = ("regex", "any", "equal", "contains", "type", "one_of", "approx", "within")
data = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(WORDS) | texts, inner, max_size=3),
    max_leaves=12,
)
names = st.sampled_from(("search", "book_hotel", "bookHotel", "mail")) | texts.filter(bool).filter(
    lambda name: not _has_halves(name)
)
calls = st.builds(
    ToolCall,
    names,
    arguments=st.none()
    | st.dictionaries(st.sampled_from(WORDS) | texts, data, max_size=3)
    | st.lists(scalars, max_size=2),
    error=st.none() | st.just("KeyError"),
    kind=st.sampled_from(("tool", "tool", "tool", "hosted", "agent")),
    outcome=st.none() | st.sampled_from(("ok", "denied")),
    server=st.none() | st.just("orders"),
)
runs = st.builds(
    Run,
    st.sampled_from(("a1:b2", "\ud800")) | texts,
    input=st.none() | texts | halves,
    tool_calls=st.lists(calls, max_size=5).map(tuple),
    agent=st.none() | st.just("support"),
)


def _has_halves(text: str) -> bool:
    return replace_lone_surrogates(text) != text


def loaded(text: str) -> Goldens:
    with TemporaryDirectory() as folder:
        path = Path(folder, "draft.yaml")
        path.write_text(text, encoding="utf-8")
        return load_goldens(path)


def passed(evaluation: Evaluation) -> bool:
    score = evaluation.score("tool_correctness")
    return score is not None and score.value == 1 and evaluation.passed is True


# --- drafts -----------------------------------------------------------------------------------------------------------


def test_a_draft_is_compact_yaml_with_and_without_arguments() -> None:
    run = Run(
        "4bf9:00f0",
        input="I want my money back for order 7.",
        tool_calls=(
            ToolCall("find_order", arguments={"order_id": 7}, error="Timeout"),
            ToolCall("find_order", arguments={"order_id": 7}),
            ToolCall("billing", kind="agent"),
            ToolCall("refund", arguments={"order_id": 7, "note": "it broke: sorry", "filter": {"regex": "x"}}),
        ),
    )
    assert draft_to_yaml(draft_golden(run)) == (
        "  - id: i-want-my-money-back-for-order-7\n"
        "    input: I want my money back for order 7.\n"
        "    tools: [find_order, refund]\n"
    )
    assert draft_to_yaml(draft_golden(run, arguments=True)) == (
        "  - id: i-want-my-money-back-for-order-7\n"
        "    input: I want my money back for order 7.\n"
        "    tools:\n"
        "      - {name: find_order, arguments: {order_id: 7}}\n"
        "      - name: refund\n"
        '        arguments: {order_id: 7, note: "it broke: sorry", filter: {equal: {regex: x}}}\n'
    )


def test_drafts_can_be_appended_to_the_goldens_of_a_file() -> None:
    drafts = [draft_to_yaml(draft_golden(run)) for run in (Run("a", input="Hello?"), Run("b"))]
    pasted = "version: 1\ngoldens:\n" + "".join(drafts)
    assert [golden.id for golden in loaded(pasted)] == ["hello", golden_id_for_text("", "b")]


@given(runs, st.booleans())
def test_a_draft_can_be_loaded_and_its_own_run_passes_it(run: Run, arguments: bool) -> None:
    (golden,) = loaded(draft_to_yaml(draft_golden(run, arguments=arguments)))
    assert golden.input == (replace_lone_surrogates(run.input) if run.input and run.input.strip() else None)
    assert golden.id.isascii()
    assert passed(evaluate(run, golden))


def test_an_agent_call_with_the_name_of_a_server_tool_is_expected_too() -> None:
    run = Run("a", tool_calls=(ToolCall("book", kind="agent"), ToolCall("book", arguments={}, server="orders")))
    (golden,) = loaded(draft_to_yaml(draft_golden(run, arguments=True)))
    assert [tool.arguments for tool in golden.tools if isinstance(tool, ExpectedTool)] == [None, {}]
    assert passed(evaluate(run, golden))


@given(runs)
def test_a_draft_matches_another_run_with_the_same_input(run: Run) -> None:
    goldens = loaded(draft_to_yaml(draft_golden(run)))
    if run.input and run.input.strip() and not _has_halves(run.input):
        assert evaluate(run, goldens).match is not None


@given(st.lists(st.tuples(halves | texts, halves | st.dictionaries(halves | texts, halves | scalars)), max_size=3))
def test_names_and_arguments_that_yaml_cannot_hold_are_omitted_or_replaced(
    named_arguments: Sequence[tuple[str, Any]],
) -> None:
    made = tuple(ToolCall(name, arguments=arguments) for name, arguments in named_arguments)
    (golden,) = loaded(draft_to_yaml(draft_golden(Run("r", tool_calls=made), arguments=True)))
    assert len(golden.tools) == len([name for name, _ in named_arguments if name])


@pytest.mark.parametrize(
    "arguments",
    [
        pytest.param({"deep": [[[]]]}, id="lists in lists"),
        pytest.param({"k" * 2000: 1}, id="a key that is too long for YAML"),
        pytest.param({"n": 10**5000}, id="a number of thousands of digits"),
        pytest.param({1: 2}, id="a key that is no text"),
        pytest.param({"o": object()}, id="no data"),
        pytest.param({"x": math.inf, "y": -math.inf}, id="infinity"),
    ],
)
def test_a_call_with_unwritable_arguments_does_not_affect_the_other_calls(arguments: Mapping[Any, Any]) -> None:
    run = Run("r", tool_calls=(ToolCall("odd", arguments=arguments), ToolCall("fine", arguments={"a": 1})))
    (golden,) = loaded(draft_to_yaml(draft_golden(run, arguments=True)))
    odd, fine = golden.expected_calls
    assert odd.arguments in (None, arguments)
    assert fine.arguments == {"a": 1}
    assert passed(evaluate(run, golden))


def test_arguments_nested_too_deeply_are_omitted_from_a_draft() -> None:
    deep: Any = 1
    for _ in range(90):
        deep = {"a": [deep]}
    run = Run("r", tool_calls=(ToolCall("odd", arguments={"deep": deep}),))
    assert draft_to_yaml(draft_golden(run, arguments=True)).endswith("tools: [odd]\n")


def test_a_retried_call_is_expected_once_and_a_call_that_only_failed_is_expected() -> None:
    made = tuple(ToolCall(name, error=error) for name, error in (("a", "E"), ("b", None), ("A", None), ("c", "E")))
    assert [tool.name for tool in draft_golden(Run("r", tool_calls=made)).expected_calls] == ["b", "A", "c"]


def test_an_agent_call_with_the_name_of_a_called_tool_is_expected() -> None:
    made = (
        ToolCall("plan", error="E", arguments={"a": 1}),
        ToolCall("Plan", kind="agent"),
        ToolCall("x", kind="agent"),
    )
    run = Run("r", tool_calls=made)
    assert [tool.name for tool in draft_golden(run).expected_calls] == ["Plan"]
    assert passed(evaluate(run, draft_golden(run, arguments=True)))


def test_a_draft_of_a_component_run_matches_only_that_component() -> None:
    run = Run("r", unit="component", component="retriever", input="x", tool_calls=(ToolCall("vector_search"),))
    goldens = loaded(draft_to_yaml(draft_golden(run)))
    assert evaluate(run, goldens).match is not None
    assert evaluate(Run("q", input="x"), goldens).match is None


def test_a_draft_of_a_truncated_input_matches_by_its_prefix() -> None:
    whole_text = "tell me everything " * 200
    goldens = loaded(draft_to_yaml(draft_golden(Run("r", input=whole_text[:2000]), is_input_truncated=True)))
    match = evaluate(Run("s", input=whole_text), goldens).match
    assert match is not None
    assert match.how == "when"


@pytest.mark.parametrize(
    ("text", "made"),
    [
        ("Book a room in Zürich!", "book-a-room-in-zurich"),
        ("  7 ", "7"),
        ("null", "null"),
        ("Größe?", "grosse"),
        ("予約してください", "run-"),
        ("", "run-"),
        ("word " * 30, "word-word-word-word-word-word-word-word-word-"),
        ("x" * 200, "x" * 48 + "-"),
    ],
)
def test_the_id_of_a_draft_is_derived_from_the_words_of_the_input(text: str, made: str) -> None:
    assert golden_id_for_text(text, "run").startswith(made)
    assert len(golden_id_for_text(text, "run")) < 60
    (golden,) = loaded(draft_to_yaml(draft_golden(Run("run", input=text))))
    assert golden.id == golden_id_for_text(text, "run")


def test_long_inputs_that_differ_only_at_the_end_have_different_ids() -> None:
    assert golden_id_for_text("word " * 30 + "a", "r") != golden_id_for_text("word " * 30 + "b", "r")
    assert golden_id_for_text("予約", "r1") != golden_id_for_text("予約", "r2")


# --- written goldens --------------------------------------------------------------------------------------------------

matchers = st.sampled_from(
    (
        Anything(),
        Approx(12.5, 0.01),
        Approx(3, None, 0.1),
        Contains(["a", Regex("b+")]),
        Equal({"regex": "x"}),
        Folded("New York"),
        OfType("integer"),
        OneOf(("a", Regex("\\d+"))),
        Similar("a text", 0.8),
        Unordered((1, Anything())),
    )
)
plain = st.integers() | texts
times = st.sampled_from((Times(), Times(0, 1), Times(2, 2), Times(1, None), Times(0, 3)))
tools = st.builds(
    ExpectedTool,
    names,
    st.none() | st.dictionaries(texts, plain | matchers | st.lists(matchers, max_size=2), max_size=3),
    agent=st.none() | st.just("sales"),
    result=matchers | plain,
    times=times,
    match=st.sampled_from(("exact", "subset")),
    ignore=st.sampled_from(((), ("a.b", "c"))),
    defaults=st.sampled_from(({}, {"limit": 10})),
)
alternatives = st.builds(
    AnyOf, st.lists(st.tuples(st.builds(ExpectedTool, names)), min_size=1, max_size=3).map(tuple), times
)
groups = st.builds(Parallel, st.lists(tools, min_size=1, max_size=2).map(tuple))
paths = st.builds(
    AnyOf, st.lists(st.lists(tools | groups, min_size=1, max_size=3).map(tuple), min_size=1, max_size=2).map(tuple)
)
goldens = st.builds(
    Golden,
    texts.filter(bool),
    input=st.none() | texts,
    tools=st.lists(tools | alternatives | groups | paths, max_size=4).map(tuple),
    order=st.sampled_from(("any", "in_order")),
    forbid=st.sampled_from(((), ("delete_*",))),
    max_calls=st.none() | st.integers(0, 9),
    attempts=st.sampled_from(("effective", "all")),
    duplicates=st.sampled_from(("count", "ignore")),
    extra=st.sampled_from(("allow", "penalize")),
    depth=st.sampled_from(("all", "own")),
    mode=st.sampled_from(("recall", "f1")),
    threshold=st.floats(0, 1),
    thresholds=st.sampled_from(({}, {"tool_f1": 0.8})),
    metrics=st.none() | st.just(("tool_recall",)),
    write_tools=st.none() | st.just(("refund",)),
    metadata=st.sampled_from(({}, {"owner": "Ann", "labels": ["a", "b"]})),
    when=st.none() | st.builds(When, agent=st.just("support*"), input=st.none() | st.just(Regex("(?i)refund"))),
    component=st.none() | st.just("retriever"),
)


@given(goldens)
@pytest.mark.filterwarnings("ignore:.*kept as metadata")
def test_a_written_golden_loads_with_the_same_digest_and_metadata(golden: Golden) -> None:
    (found,) = loaded(goldens_to_yaml(golden))
    assert (found.id, found.input, found.when, found.component) == (
        golden.id,
        golden.input,
        golden.when,
        golden.component,
    )
    assert found.digest == golden.digest
    assert found.metadata == golden.metadata


def test_a_written_policy_loads_as_a_policy() -> None:
    (found,) = loaded(goldens_to_yaml(Golden("no-deletes", forbid=("delete_*",), policy=True)))
    assert found.policy


def test_an_expected_result_of_null_is_distinct_from_no_expected_result() -> None:
    golden = Golden("g", tools=(ExpectedTool("a", result=None), ExpectedTool("b")))
    (found,) = loaded(goldens_to_yaml(golden))
    assert found.tools == golden.tools


def test_a_golden_with_a_value_that_yaml_cannot_hold_is_refused() -> None:
    deep: Any = Equal(1)
    for _ in range(70):
        deep = [deep]
    for value in ("\ud800", {"a": {1, 2}}, deep, Equal([[deep]]), {"x": b"bytes"}):
        with pytest.raises(UnwritableError):
            goldens_to_yaml(Golden("g", tools=(ExpectedTool("a", {"x": value}),)))


@given(texts)
def test_a_written_golden_contains_only_printable_characters(text: str) -> None:
    whole_text = goldens_to_yaml(Golden(text or "g", input=text, tools=(ExpectedTool(text or "t", {text: text}),)))
    assert all(character.isprintable() or character == "\n" for character in whole_text)
