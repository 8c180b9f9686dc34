"""Comparisons and evaluations as Markdown and HTML: readable, complete, and safe whatever the names and values are."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from goldspan.model import Comparison, ComparisonRow, ExpectedTool, Golden, ToolCall
from goldspan.model.findings import Agreement, Difference
from goldspan.model.markup import Table, TextSpan, escape_invisible, render_html, render_markdown
from goldspan.model.rendering import SYMBOLS, render_row
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
    format_value,
)
from goldspan.scoring import compare, evaluate
from support.rendered_pages import PARSER, Page, texts


def pay(arguments: Any = None, **more: Any) -> ToolCall:
    return ToolCall("pay", arguments=arguments, **more)


def test_a_comparison_is_a_table_in_markdown() -> None:
    seen = compare(
        [ToolCall("search", arguments={"city": "Rome", "stars": 3}), pay(error="card 4242 refused"), "cancel_trip"],
        [ExpectedTool("search", {"city": "Paris", "stars": 4}), "pay", "send_email"],
    )
    assert (
        seen.to_markdown()
        == """\
| expected |  | called |  |
| --- | --- | --- | --- |
| `search` | ≠ | `search` | differs in `city`, `stars` |
| `pay` | = | `pay` | failed |
| `send_email` | ✗ | — | missing |
| — | + | `cancel_trip` | not expected |"""
    )


def test_an_evaluation_has_its_verdict_its_reason_and_its_scores_too() -> None:
    golden = Golden("book", tools=(ExpectedTool("book"), ExpectedTool("pay")), threshold=1)
    page = evaluate(["book"], golden, input="Book it.", metrics=["tool_correctness", "tool_f1", "tool_order"])
    assert page.to_markdown().splitlines()[0] == "✗ `book` Book it."
    assert "Expected pay was not called." in page.to_markdown()
    assert page.to_markdown().endswith(
        "| `tool_correctness` | 0.5000 | 1 | failed |\n| `tool_f1` | 0.6667 |  |  |\n| `tool_order` | 1.0000 |  |  |"
    )


def test_metrics_without_a_value_are_listed_with_their_reason_below_the_scores() -> None:
    def broken(seen: Comparison) -> float:
        raise ValueError("no | such")

    page = evaluate(["a"], ["a"], metrics=["argument_correctness", "result_correctness", "tool_recall", broken])
    assert page.to_markdown().endswith(
        "| `tool_recall` | 1.0000 |  |  |\n"
        "| `broken` | — |  | error: ValueError: no \\| such |\n\n"
        "Not measured: `argument_correctness` (the golden states no arguments); `result_correctness` "
        "(the golden states no results)"
    )


def test_sections_that_were_not_requested_are_not_shown() -> None:
    page = evaluate(["a"], ["a"], metrics=[], reasons=False)
    assert page.to_markdown() == f"✓ `given`\n\n{page.comparison.to_markdown()}"


@pytest.mark.parametrize(
    ("row", "remark"),
    [
        pytest.param(ComparisonRow("paired", ExpectedTool("pay"), pay()), "", id="as expected"),
        pytest.param(
            ComparisonRow("paired", ExpectedTool("pay"), pay(), in_order=False), "out of order", id="out of order"
        ),
        pytest.param(
            ComparisonRow("paired", ExpectedTool("pay"), pay(), agreement=Agreement(0, (Difference("", {}, 3),))),
            "differs in arguments",
            id="arguments that are no dictionary",
        ),
        pytest.param(
            ComparisonRow("paired", ExpectedTool("pay"), pay(), result_agreement=Agreement(0, (Difference("", 1, 2),))),
            "differs in result",
            id="another result",
        ),
        pytest.param(
            ComparisonRow(
                "paired",
                ExpectedTool("pay"),
                pay(error="no"),
                agreement=Agreement(0.5, (Difference("to.iban", 1, 2),)),
                result_agreement=Agreement(0.5, (Difference("total", 1, 2),)),
                in_order=False,
            ),
            "differs in to.iban, result.total; out of order; failed",
            id="everything at once",
        ),
        pytest.param(ComparisonRow("superseded", None, pay(error="no"), note="made good"), "failed", id="retried"),
        pytest.param(ComparisonRow("tolerated", None, pay(), note="denied"), "denied", id="denied"),
        pytest.param(ComparisonRow("tolerated", None, pay()), "does not count", id="tolerated"),
        pytest.param(
            ComparisonRow("tolerated", ExpectedTool("pay"), note="optional, not called"), "optional, not called",
            id="optional",
        ),
        pytest.param(ComparisonRow("forbidden", None, pay()), "forbidden", id="forbidden"),
    ],
)  # fmt: skip
def test_the_notes_of_a_row_are_shown_as_text(row: ComparisonRow, remark: str) -> None:
    seen = Comparison(None, (row,))
    _, cells = Page(seen.to_html()).cells
    assert cells[-1] == remark


def test_every_sign_of_a_legend_is_there_once() -> None:
    assert len({mark.sign for mark in SYMBOLS}) == len(SYMBOLS) == 8
    assert all(mark.plain.isascii() for mark in SYMBOLS)


def test_calls_of_which_nothing_was_expected_bear_no_note() -> None:
    assert render_row(compare(["a"], None).rows[0]).notes == ()
    assert Comparison(None, ()).to_markdown() == "Nothing was called."
    assert compare([], []).to_markdown() == "Nothing was expected and nothing was called."


def test_a_long_comparison_is_cut_and_says_so() -> None:
    page = compare(["a" * 200] * 501, []).to_markdown()
    assert page.endswith("\n\n1 more rows")
    assert f"`{'a' * 79}…`" in page


def test_an_approximate_pairing_is_reported() -> None:
    page = Comparison(None, (), approximation_reason="too many calls").to_html()
    assert "There may be a better pairing, with too many calls." in page


def test_the_reason_why_two_values_cannot_be_compared_is_shown_next_to_them() -> None:
    row = ComparisonRow(
        "paired", ExpectedTool("a"), ToolCall("a"), agreement=Agreement(0, (Difference("x", 1, 2, "too long"),))
    )
    (contrast,) = render_row(row, values=True).differences
    assert str(contrast) == "x: expected 1, called with 2 (too long)"


def test_notebooks_show_both() -> None:
    result = evaluate(["a"], ["a"])
    assert result._repr_html_() == result.to_html()
    assert result.comparison._repr_markdown_() == result.comparison.to_markdown()


# --- values -----------------------------------------------------------------------------------------------------------

SECRET = compare(
    [ToolCall("pay", arguments={"to": {"iban": "DE02", "name": "Ann"}, "cents": 5})],
    [ExpectedTool("pay", {"to": {"iban": "DE99", "name": "Bob"}, "cents": 6})],
)


def test_values_are_hidden_by_default() -> None:
    for page in (SECRET.to_markdown(), SECRET.to_html(), evaluate([pay({"x": "DE02"})], ["pay"]).to_html()):
        assert "DE" not in page
    shown = SECRET.to_markdown(values=True)
    assert "to.iban: expected 'DE99', called with 'DE02'" in shown
    assert "cents: expected 6, called with 5" in shown


def test_redacted_values_appear_nowhere() -> None:
    def redact(path: str, value: Any) -> Any:
        return "(hidden)" if path.endswith("iban") else value

    for page in (SECRET.to_markdown(values=True, redact=redact), SECRET.to_html(values=True, redact=redact)):
        assert "DE" not in page
        assert "(hidden)" in page
        assert "Ann" in page


def test_redaction_applies_inside_values_that_are_shown_whole() -> None:
    seen: list[str] = []

    def redact(path: str, value: Any) -> Any:
        seen.append(path)
        return "***" if path == "to.iban" else value

    row = ComparisonRow(
        "paired", ExpectedTool("pay"), pay(), agreement=Agreement(0, (Difference("to", {"iban": "DE02"}, [{"a": 1}]),))
    )
    page = Comparison(None, (row,)).to_html(values=True, redact=redact)
    assert "DE02" not in page
    assert seen == ["to", "to.iban", "to", "to[0]", "to[0].a"]


def test_redaction_applies_to_the_request_too() -> None:
    result = evaluate(["a"], ["a"], input="I am Ann.")
    assert "Ann" in result.to_html()
    assert "Ann" not in result.to_html(redact=lambda path, value: "…" if path == "input" else value)


def test_a_redaction_that_fails_lets_nothing_out() -> None:
    def redact(path: str, value: Any) -> Any:
        raise RuntimeError("no key")

    with pytest.raises(RuntimeError, match="no key"):
        SECRET.to_html(values=True, redact=redact)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        pytest.param("Rome", "'Rome'", id="text"),
        pytest.param({"a": [1, None, True]}, "{'a': [1, None, True]}", id="plain data"),
        pytest.param(Anything(), "{'any': True}", id="any"),
        pytest.param(Approx(12.5, within=0.01), "{'approx': 12.5, 'within': 0.01}", id="approx"),
        pytest.param(Contains(["a"]), "{'contains': ['a']}", id="contains"),
        pytest.param(Equal({"regex": "x"}), "{'equal': {'regex': 'x'}}", id="equal"),
        pytest.param(Folded("x"), "{'folded': 'x'}", id="folded"),
        pytest.param(OfType("integer"), "{'type': 'integer'}", id="type"),
        pytest.param(OneOf(("a", Regex("b"))), "{'one_of': ['a', {'regex': 'b'}]}", id="matchers in a matcher"),
        pytest.param(Similar("a", 0.8), "{'similar': 'a', 'threshold': 0.8}", id="similar"),
        pytest.param(Unordered((1, 2)), "{'unordered': [1, 2]}", id="unordered"),
        pytest.param(list(range(9)), "[0, 1, 2, 3, 4, 5, ...]", id="many items"),
        pytest.param([[[[1]]]], "[[[[...]]]]", id="deep"),
        pytest.param([], "[]", id="empty"),
        pytest.param(10**5000, "an integer of thousands of digits", id="an endless number"),
    ],
)
def test_a_value_is_shown_as_a_person_would_write_it_down(value: Any, text: str) -> None:
    assert format_value(value) == text


def test_a_value_is_never_long_however_long_it_is() -> None:
    circle: list[Any] = []
    circle.append(circle)
    for value in ("x" * 10_000_000, circle, {str(n): {str(m): "y" * 99 for m in range(99)} for n in range(99)}):
        assert len(format_value(value)) <= 200


# --- text from elsewhere ----------------------------------------------------------------------------------------------


@given(texts, texts, texts)
def test_a_table_shows_every_text_as_it_is(name: str, other: str, words: str) -> None:
    table = Table(
        ("one", "two"), (((TextSpan(name, "name"),), (TextSpan(other, "name"), TextSpan(": "), TextSpan(words))),)
    )
    wanted = [
        ["one", "two"],
        [escape_invisible(name), f"{escape_invisible(other)}: {escape_invisible(words)}".rstrip()],
    ]
    for page in (Page(render_html([table])), Page(PARSER.render(render_markdown([table])))):
        assert [[cell.rstrip() for cell in row] for row in page.cells] == [
            [cell.rstrip() for cell in row] for row in wanted
        ]
        assert set(page.tags) <= {"div", "table", "thead", "tbody", "tr", "th", "td", "code"}


@given(st.lists(st.tuples(texts, st.sampled_from(["words", "name", "good"])), min_size=1, max_size=4))
def test_a_paragraph_shows_every_text_as_it_is(spans: list[tuple[str, Any]]) -> None:
    paragraph = tuple(TextSpan(text, kind) for text, kind in spans)
    wanted = "".join(escape_invisible(span.text) for span in paragraph).strip()
    for page in (Page(render_html([paragraph])), Page(PARSER.render(render_markdown([paragraph])))):
        assert page.text.strip() == wanted
        assert set(page.tags) <= {"div", "p", "code", "span"}


@given(st.lists(texts, max_size=4), st.lists(texts, max_size=4), texts)
def test_an_evaluation_of_whatever_names_keeps_its_shape(called: list[str], expected: list[str], request: str) -> None:
    result = evaluate(called, expected, input=request)
    for page in (Page(result.to_html(values=True)), Page(PARSER.render(result.to_markdown(values=True)))):
        assert [len(cells) for cells in page.cells] == [4] * len(page.cells)
        measured = sum(score.value is not None for score in result.scores)
        rows = len(result.comparison.rows)
        assert len(page.cells) == measured + 1 + (rows + 1 if rows else 0)
        assert set(page.tags) <= {"div", "p", "span", "table", "thead", "tbody", "tr", "th", "td", "code"}


def test_invisible_characters_are_shown_escaped() -> None:
    assert escape_invisible("a\u202eb\x1b[0m\n\ud800é") == "a\\x202eb\\x1b[0m\\x0a\\xd800é"
