"""Requests without a golden are grouped by similar text, each group with a draft that its runs pass."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from goldspan import Evaluation, ExpectedTool, Golden, Goldens, Run, ToolCall, evaluate, load_goldens
from goldspan.curation.request_groups import group_similar, mask_variables
from goldspan.model import Health
from goldspan.store import RunFilter, SqliteStore, open_store
from goldspan.store.run_records import evaluation_to_document, run_from_document
from goldspan.web import unmatched_requests as view
from goldspan.web.display_text import escape_invisible
from goldspan.web.pages import Pages
from goldspan.web.unmatched_requests import draft_stored_run, unmatched_requests

NONE = Goldens()


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqliteStore]:
    with open_store(tmp_path / "goldspan.db", keep_arguments=True) as opened:
        yield opened


def evaluated_request(number: int, text: str | None, calls: str = "", **told: Any) -> Evaluation:
    made = tuple(ToolCall(name, arguments={"n": number}) for name in calls.split())
    return evaluate(Run(f"run-{number}", input=text, tool_calls=made, start_ns=number + 1, **told), NONE)


def document(run: Run, *, values: bool = True) -> dict[str, Any]:
    return evaluation_to_document(evaluate(run, NONE), keep_arguments=values)


def page(store: SqliteStore, *, is_live: bool = False) -> str:
    answer = Pages(store, goldens=lambda: None, is_live=is_live).uncovered(())
    assert answer.status == 200
    return answer.body


# --- similar texts ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("Refund order 7, please!", "refund order # please"),
        ("Refund  ORDER #4711-AB: please", "refund order # please"),
        ("Rename \"my cat\" to “Tom” and 'it' to `x`", "rename # to # and # to #"),
        ("don't can't", "don t can t"),
        ("mail ann@example.com or see https://example.com/a?b=1", "mail # or see https example com a b #"),
        ("予約7件をお願いします", "予約 # 件をお願いします"),
        ("9f1b2c3d-aaaa 2026-01-31T08:00:00Z $12.50", "# # #"),
        ("", ""),
        (None, ""),
    ],
)
def test_masking_replaces_the_variable_parts_of_a_request(text: str | None, left: str) -> None:
    assert mask_variables(text) == left


def test_texts_that_differ_in_one_or_two_words_form_one_group() -> None:
    texts = [
        "Book a hotel in Paris for 3 nights",
        "Cancel my subscription",
        "please book a hotel in Rome for 12 nights",
        "Book a hotel in Oslo for 1 nights.",
        "cancel my subscription!",
        "What is the weather?",
    ]
    assert sorted(group_similar(texts)) == [[0, 2, 3], [1, 4], [5]]


def test_texts_with_different_requests_form_separate_groups() -> None:
    assert len(group_similar(["cancel my order 7", "cancel my flight 7", "refund my order 7", None, "", "?!"])) == 4


words = st.lists(
    st.sampled_from(("book", "a", "hotel", "in", "paris", "cancel", "my", "order", "7", "please")), max_size=7
).map(" ".join)


@given(st.lists(words | st.none() | st.text(max_size=9), max_size=25), st.randoms(use_true_random=False))
def test_groups_do_not_depend_on_the_order_of_the_texts(texts: list[str | None], chance: random.Random) -> None:
    def parts(given: Sequence[str | None]) -> list[list[str]]:
        return sorted(sorted(repr(given[at]) for at in group) for group in group_similar(given))

    shuffled = texts.copy()
    chance.shuffle(shuffled)
    assert parts(texts) == parts(shuffled)
    assert sorted(at for group in group_similar(texts) for at in group) == list(range(len(texts)))


def test_long_texts_with_different_ends_form_separate_groups() -> None:
    preamble = "You are given these documents. " * 40
    asked_ = [
        f"{preamble}{question}" for question in ("What does it cost?" * 6, "Who wrote it, and when, and why so?" * 4)
    ]
    assert len(group_similar(asked_)) == 2


# --- groups -----------------------------------------------------------------------------------------------------------


def test_a_group_shows_its_count_typical_request_and_most_frequent_tool_sequence(store: SqliteStore) -> None:
    covered = evaluate(Run("covered", tool_calls=(ToolCall("x"),)), Golden("g", tools=(ExpectedTool("x"),)))
    component = evaluated_request(90, "Part of order 1", unit="component", component="retriever")
    store.submit_many(
        [
            *(
                evaluated_request(number, f"Cancel order {number}", "find cancel", agent="support")
                for number in range(6)
            ),
            evaluated_request(6, "Cancel order 6", "find", service="shop"),
            evaluated_request(7, "Hello there", "greet"),
            evaluated_request(8, None),
            covered,
            component,
        ]
    )
    found = unmatched_requests(store)
    assert (found.total, found.grouped, found.covered, found.omitted_groups, found.omitted_requests) == (
        9,
        9,
        1,
        0,
        0,
    )
    first, *others = found.groups
    assert (first.count, first.tools, first.tools_count, first.sequences) == (7, ("find", "cancel"), 6, 2)
    assert (first.typical, first.newest_ns) == ("Cancel order 5", 7)
    assert [each.run_id for each in first.examples] == ["run-6", "run-5", "run-4", "run-3", "run-2"]
    assert (first.agents, first.services) == (("support",), ("shop",))
    assert "no golden for this input" in first.reason
    assert first.draft == "  - id: cancel-order-5\n    input: Cancel order 5\n    tools: [find, cancel]\n"
    assert [(group.count, group.typical) for group in others] == [(1, None), (1, "Hello there")]


def test_only_runs_that_match_the_filter_are_grouped(store: SqliteStore) -> None:
    store.submit_many(
        [
            evaluated_request(1, "Hello", agent="a"),
            evaluated_request(2, "Hello", agent="b"),
            evaluated_request(3, "Bye", unit="component"),
        ]
    )
    found = unmatched_requests(store, RunFilter(agent="b"))
    assert (found.total, [each.run_id for each in found.groups[0].examples]) == (1, ["run-2"])
    assert [group.typical for group in unmatched_requests(store, RunFilter(unit="component")).groups] == ["Bye"]


def test_only_the_newest_requests_are_grouped_and_the_page_states_the_limit(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(view, "MAX_REQUESTS", 10)
    store.submit_many(evaluated_request(number, f"{'abcdefghijklmnopqrstuvwxyz'[number]} " * 9) for number in range(26))
    found = unmatched_requests(store)
    assert (found.total, found.grouped, len(found.groups)) == (26, 10, 10)
    assert {group.typical and group.typical[0] for group in found.groups} == set("qrstuvwxyz")
    assert "The newest 10 are grouped" in page(store)


def test_groups_beyond_the_largest_are_counted_and_not_shown(store: SqliteStore) -> None:
    chance = random.Random(3)
    texts = ["".join(chance.choices("abcdefghij", k=30)) for _ in range(50)]
    store.submit_many(evaluated_request(number, text) for number, text in enumerate([*texts, "Same", "Same"]))
    found = unmatched_requests(store)
    assert (len(found.groups), found.omitted_groups, found.omitted_requests) == (40, 11, 11)
    assert (found.groups[0].count, found.groups[0].sequences) == (2, 1)
    shown = page(store)
    assert "11 more groups of 11 requests are not shown" in shown
    assert len(shown.encode()) < 300_000


def test_a_group_with_a_long_tool_sequence_is_abbreviated_and_links_to_the_run(store: SqliteStore) -> None:
    store.submit(evaluated_request(1, "Do it all", " ".join(f"tool_number_{number}" for number in range(500))))
    (group,) = unmatched_requests(store).groups
    assert (len(group.tools), group.omitted_tools, group.draft) == (12, 488, None)
    assert "see the run" in page(store)


# --- drafts of stored runs --------------------------------------------------------------------------------------------


def test_a_draft_golden_with_arguments_exists_only_if_the_store_keeps_values() -> None:
    run = Run("r", input="Hi", tool_calls=(ToolCall("a", arguments={"x": 1}), ToolCall("b", arguments=[1])))
    kept = draft_stored_run(document(run))
    assert kept.text.endswith("tools: [a, b]\n")
    assert kept.with_arguments is not None
    assert kept.with_arguments.endswith("tools: [{name: a, arguments: {x: 1}}, b]\n")
    assert draft_stored_run(document(run, values=False)).with_arguments is None


@pytest.mark.parametrize("arguments", [[1, 2], {"x": "y" * 30_000}])
def test_arguments_that_are_not_an_object_or_too_long_yield_no_draft_with_arguments(arguments: Any) -> None:
    assert draft_stored_run(document(Run("r", tool_calls=(ToolCall("a", arguments=arguments),)))).with_arguments is None


def test_a_draft_golden_of_a_truncated_input_matches_the_complete_input(tmp_path: Path) -> None:
    whole = "Tell me everything about " + "it " * 2000
    path = tmp_path / "draft.yaml"
    path.write_text(draft_stored_run(document(Run("r", input=whole))).text)
    assert evaluate(Run("s", input=whole), load_goldens(path)).passed


hostile = st.text(max_size=12) | st.sampled_from(
    ("a: b", "- x", "'", '"\\', "\u202eevil", "a\x00b", "<b>", "null", "\n")
)


@given(hostile, st.lists(st.tuples(hostile.filter(bool), st.dictionaries(hostile, hostile, max_size=2)), max_size=3))
def test_a_draft_golden_needs_no_escaping_and_its_run_passes_it(
    tmp_path_factory: pytest.TempPathFactory, text: str, calls: Sequence[tuple[str, dict[str, str]]]
) -> None:
    made = tuple(ToolCall(name, arguments=arguments) for name, arguments in calls)
    stored = document(Run("r", input=text, tool_calls=made))
    draft = draft_stored_run(stored)
    path = tmp_path_factory.mktemp("drafts") / "draft.yaml"
    for written in filter(None, (draft.text, draft.with_arguments)):
        assert escape_invisible(written) == written
        path.write_text(written, encoding="utf-8")
        (golden,) = load_goldens(path)
        assert evaluate(run_from_document(stored), golden).passed


# --- rendering --------------------------------------------------------------------------------------------------------


def test_the_page_distinguishes_an_empty_store_from_one_without_unmatched_requests(store: SqliteStore) -> None:
    assert "Nothing is stored yet" in page(store)
    assert "See how to send the first one" in page(store, is_live=True)
    store.submit(evaluate(Run("r"), Golden("g")))
    assert "Every request has a golden" in page(store)


def test_hostile_requests_are_shown_as_text(store: SqliteStore) -> None:
    store.submit(evaluated_request(1, "<script>alert(1)</script>\u202e", "<i>", agent="<u>", service="<s>"))
    shown = page(store)
    for tag in ("<script>alert", "<i>", "<u>", "<s>", "\u202e"):
        assert tag not in shown
    assert "&lt;script&gt;alert(1)&lt;/script&gt;⟨U+202E⟩" in shown
    assert "\\u202E" in shown


def test_requests_without_text_show_capture_hints(store: SqliteStore) -> None:
    store.submit_many(
        [
            evaluated_request(1, None, health=Health(content_off=True)),
            evaluated_request(2, None),
            evaluated_request(3, "Hi"),
        ]
    )
    found = unmatched_requests(store)
    assert found.health == []
    store.submit(evaluated_request(4, None, health=Health(content_off=True)))
    assert [(hint.summary, groups_) for hint, groups_ in unmatched_requests(store).health] == [
        ("no content recorded", 1)
    ]
    assert "no content recorded" in page(store)


def test_requests_without_text_show_how_to_match_a_golden_by_id(store: SqliteStore) -> None:
    store.submit(evaluated_request(1, None, "search"))
    shown = page(store)
    assert "The requests were not captured" in shown
    assert "goldspan.golden.id" in shown
