"""Runs and goldens as notebooks and terminals display them: bounded, escaped, and without values unless requested."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from goldspan import (
    AnyOf,
    ExpectedTool,
    Golden,
    Goldens,
    Health,
    Parallel,
    Run,
    Times,
    ToolCall,
    When,
    evaluate,
    load_goldens,
)
from goldspan.extraction.reconciliation.run_assembly import _Run
from goldspan.model.notebook_display import NotebookDisplay
from support.rendered_pages import PARSER, Page, texts

RUN = Run(
    "t:s",
    input="Pay Ann.",
    agent="bank",
    tool_calls=(
        ToolCall("find", arguments={"name": "Ann"}, result=["DE02"]),
        ToolCall("pay", arguments={"to": {"iban": "DE02"}}, error="declined: DE02"),
        ToolCall("ask", kind="agent", agent="helper"),
        ToolCall("refund", outcome="denied"),
        ToolCall("log", evidence="requested"),
        ToolCall("mail", error_guess="Error: no"),
    ),
    health=Health(orphan_spans=2, arguments_absent=1),
)
OPTIONAL = Times(least=0)


def test_a_run_displays_its_calls_and_what_is_unusual_about_them() -> None:
    assert (
        RUN.to_markdown()
        == """\
`bank` Pay Ann.

| called |  |
| --- | --- |
| `find` |  |
| `pay` | failed |
| `ask` | agent; by helper |
| `refund` | denied |
| `log` | requested |
| `mail` | may have failed |

Telemetry was lost or guessed: `orphan_spans`, `arguments_absent`"""
    )


def test_a_run_displays_values_only_on_request_and_after_redaction() -> None:
    assert not any("DE02" in page for page in (RUN.to_markdown(), RUN.to_html(), str(RUN)))
    _, *cells = Page(RUN.to_html(values=True)).cells
    assert cells[0] == ["find", "", "{'name': 'Ann'}", "['DE02']"]
    assert cells[1] == ["pay", "failed", "{'to': {'iban': 'DE02'}}", "'declined: DE02'"]
    assert cells[3] == ["refund", "denied", "—", "—"]
    seen: list[str] = []

    def redact(path: str, value: Any) -> Any:
        seen.append(path)
        return "…" if isinstance(value, str) else value

    for page in (RUN.to_html(values=True, redact=redact), RUN.to_markdown(values=True, redact=redact)):
        assert not any(secret in page for secret in ("DE02", "Ann"))
    assert {"input", "name", "to.iban", "result[0]", "result"} < set(seen)


@pytest.mark.parametrize(
    ("run", "text"),
    [
        (Run("t:s"), "No tool was called."),
        (
            Run("t:s", health=Health(calls_invisible=True)),
            "No tool call was captured, and the telemetry would not show one.",
        ),
    ],
)
def test_no_captured_call_is_not_displayed_as_no_call(run: Run, text: str) -> None:
    assert text in Page(run.to_html()).text


def test_a_run_of_many_calls_displays_the_first_ones_and_the_number_of_the_others() -> None:
    page = Page(Run("t:s", tool_calls=tuple(ToolCall(f"tool{at}") for at in range(1502))).to_html())
    assert [row[0] for row in page.cells[1:]] == [f"tool{at}" for at in range(500)]
    assert page.text.endswith("1002 more calls")


def test_a_run_is_named_by_its_component_its_agent_or_its_id() -> None:
    runs = (Run("t:s", component="search", agent="bank"), Run("t:s", agent="bank"), Run("t:s"), Run(""))
    assert [run.to_markdown().splitlines()[0] for run in runs] == ["`search`", "`bank`", "`t:s`", "`run`"]


@given(texts, st.lists(texts, max_size=4), texts)
def test_a_run_of_whatever_names_and_values_keeps_its_shape(agent: str, names: list[str], value: str) -> None:
    calls = tuple(ToolCall(name, arguments={value: value}, result=value, agent=value) for name in names)
    run = Run("t:s", agent=agent, input=value, tool_calls=calls)
    for page in (Page(run.to_html(values=True)), Page(PARSER.render(run.to_markdown(values=True)))):
        assert [len(cells) for cells in page.cells] == ([4] * (len(calls) + 1) if calls else [])
        assert set(page.tags) <= {"div", "p", "span", "table", "thead", "tbody", "tr", "th", "td", "code"}


# --- goldens ----------------------------------------------------------------------------------------------------------

GOLDENS = Goldens(
    [
        Golden(
            "book",
            "Find a hotel and book it.",
            tools=(
                ExpectedTool("search", {"city": "Paris"}),
                AnyOf(((ExpectedTool("mail", {"to": "Ann"}),), (ExpectedTool("sms"),)), times=OPTIONAL),
                Parallel((ExpectedTool("log"), ExpectedTool("notify", {"who": "Bob"}))),
            ),
            order="in_order",
            forbid=("delete_*", "drop"),
            max_calls=8,
        ),
        Golden("limits", policy=True, max_calls=9),
        Golden(
            "rule",
            when=When("sup*", service="shop", span="chat", attributes={"tier": "gold"}, input="refund"),
            component="cart",
        ),
    ]
)


def test_goldens_display_what_each_is_for_and_what_it_expects() -> None:
    assert (
        GOLDENS.to_markdown()
        == """\
3 goldens

| golden | for | expected tools | rules |
| --- | --- | --- | --- |
| `book` | Find a hotel and book it. | `search`, `mail or sms` (optional), `log & notify` | \
order: in_order; forbid: `delete_*`, `drop`; max_calls: 8 |
| `limits` | every run without another golden | — | max_calls: 9 |
| `rule` | component `cart`, agent `sup*`, service `shop`, span `chat`, attribute `tier`, input 'refund' | — |  |"""
    )


def test_goldens_display_expected_arguments_only_on_request_and_after_redaction() -> None:
    assert "Paris" not in GOLDENS.to_html()
    _, book, *_ = Page(GOLDENS.to_html(values=True)).cells
    assert book[2] == "search {'city': 'Paris'}, mail or sms (optional) {'to': 'Ann'}, log & notify {'who': 'Bob'}"
    page = GOLDENS.to_html(values=True, redact=lambda path, value: "…" if isinstance(value, str) else value)
    assert not any(text in page for text in ("Paris", "Ann", "Bob", "hotel", "refund"))


def test_a_file_of_a_thousand_goldens_displays_the_first_ones_and_the_number_of_the_others(tmp_path: Any) -> None:
    lines = [f"{{id: g{at}, input: Request {at}., tools: [t{at}]}}" for at in range(1000)]
    (tmp_path / "goldens.yaml").write_text("goldens:\n" + "".join(f"  - {line}\n" for line in lines))
    page = Page(load_goldens(tmp_path / "goldens.yaml")._repr_html_())
    assert page.text.startswith("1000 goldens")
    assert [row[0] for row in page.cells[1:]] == [f"g{at}" for at in range(50)]
    assert page.text.endswith("950 more goldens")


def test_a_golden_of_many_tools_and_patterns_displays_the_first_ones_of_each() -> None:
    many = Golden("many", tools=tuple(map(ExpectedTool, ["a"] * 30)), forbid=("x*",) * 25)
    group = Golden("group", tools=(AnyOf(((ExpectedTool("n" * 50, {"x": "v" * 50}),),) * 400),))
    _, first, second = Page(Goldens([many, group]).to_html(values=True)).cells
    assert first[2] == f"{'a, ' * 20}10 more"
    assert first[3] == f"forbid: {'x*, ' * 20}5 more"
    assert len(second[2]) < 2000


def test_no_goldens_and_one_golden_are_displayed_too() -> None:
    assert Goldens().to_markdown() == "0 goldens"
    assert Goldens([Golden("a", "b")]).to_markdown().startswith("1 golden\n")


@given(texts, texts, texts)
def test_goldens_of_whatever_names_keep_their_shape(golden_id: str, name: str, value: str) -> None:
    golden = Golden(
        golden_id,
        value,
        tools=(ExpectedTool(name, {value: value}), AnyOf(((ExpectedTool(name),), (ExpectedTool(value),)))),
        forbid=(name, value),
        when=When(agent=name, attributes={value: 1}),
    )
    shown = Goldens([golden])
    for page in (Page(shown.to_html(values=True)), Page(PARSER.render(shown.to_markdown(values=True)))):
        assert [len(cells) for cells in page.cells] == [4, 4]
        assert set(page.tags) <= {"div", "p", "span", "table", "thead", "tbody", "tr", "th", "td", "code"}


# --- notebooks and terminals ------------------------------------------------------------------------------------------


class Printer:
    """The part of IPython's pretty printer that chooses the text of a value, and to which values write."""

    def __init__(self) -> None:
        self.shown = ""

    def text(self, text: str) -> None:
        self.shown += text

    def pretty(self, value: object) -> None:
        """Use the first class that itself has a method: a subclass's `__repr__` goes before an inherited method."""
        for cls in type(value).__mro__:
            if "_repr_pretty_" in vars(cls):
                vars(cls)["_repr_pretty_"](value, self, False)
                return
            if "__repr__" in vars(cls):
                self.text(repr(value))
                return


@pytest.mark.parametrize("value", [RUN, GOLDENS, evaluate(RUN, GOLDENS), evaluate(RUN, GOLDENS).comparison])
def test_notebooks_and_terminals_display_the_same(value: NotebookDisplay) -> None:
    printer = Printer()
    printer.pretty(value)
    assert printer.shown == str(value) == value._repr_markdown_() == value.to_markdown()
    assert value._repr_html_() == value.to_html()


def test_a_displayed_run_is_still_a_slotted_value_that_copies_compares_and_pickles() -> None:
    assert not hasattr(RUN, "__dict__")
    assert copy.deepcopy(RUN) == RUN == pickle.loads(pickle.dumps(RUN))
    assert repr(RUN).startswith("Run(run_id='t:s', unit='request'")
    built = _Run(run_id="t:s", health=Health())
    assert type(built) is Run
    assert built.to_html() == Run("t:s").to_html()
