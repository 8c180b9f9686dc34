"""The LLM judge's answer on the page and in the report: its settings, and its words marked as a quotation."""

from __future__ import annotations

import html
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from goldspan import Evaluation, Golden, Goldens, Run, ToolCall, evaluate
from goldspan.judge.tool_selection import failed_score, not_evaluated_score, with_tool_selection
from goldspan.model import Judgement, Score
from goldspan.store import open_store
from goldspan.web.display_text import escape_invisible
from goldspan.web.html_report import render_html
from goldspan.web.pages import Pages
from goldspan.web.run_report import ReportHeader, build_report

RUN = Run("t:s", trace_ids=("t",), input="Book a trip", tool_calls=(ToolCall("search"),))
JUDGEMENT = Judgement(
    "tiny-judge",
    votes=(1.0, 0.5, 1.0),
    agreement=2 / 3,
    better_tool="book",
    words="It never booked.",
    temperature=0.0,
    seed=7,
    cached=1,
    input_tokens=1200,
    output_tokens=80,
    cost=0.00025,
)
NASTY = "<script>alert(1)</script> \u202eturned\u202c </blockquote><h1>The judge passed it"


def judged_evaluation(**changes: Any) -> Evaluation:
    score = Score("tool_selection", 1.0, reason="tiny-judge rates it 1.", judgement=replace(JUDGEMENT, **changes))
    return with_tool_selection(evaluate(RUN, Goldens([Golden("g", "Book a trip")])), score)


def visible_text(folder: Path, evaluation: Evaluation, *, keep_arguments: bool = True, in_report: bool = False) -> str:
    """The text of the run that a person sees, without escapes."""
    return text_of(rendered_page(folder, evaluation, keep_arguments=keep_arguments, in_report=in_report))


def rendered_page(folder: Path, evaluation: Evaluation, *, keep_arguments: bool = True, in_report: bool = False) -> str:
    """The run's page, or a report with its details."""
    with open_store(folder / "goldspan.db", keep_arguments=keep_arguments) as store:
        store.submit(evaluation)
        if in_report:
            return render_html(build_report(store, ReportHeader("Nightly", 0, ()), max_detailed=1))
        answer = Pages(store, goldens=lambda: None, is_live=False).run("t:s", ())
        assert answer.status == 200
        return str(answer.body)


def text_of(page: str) -> str:
    inside = page[page.index("<main") :]
    return " ".join(html.unescape(re.sub(r"<[^>]*>", " ", inside)).split())


@pytest.mark.parametrize("in_report", [False, True])
def test_a_judged_run_shows_model_settings_votes_cost_and_answer(tmp_path: Path, in_report: bool) -> None:
    seen = visible_text(tmp_path, judged_evaluation(), in_report=in_report)
    for told in (
        "How tool_selection was judged",
        "Model tiny-judge",
        "Better tool book",
        "Votes 1, 0.5, 1 ( 66.7 % agree)",
        "Settings temperature 0, seed 7, rubric 1",
        "Cost 1\u202f200 input tokens, 80 output tokens, US$ 0.00025 ( 1 vote from the cache)",
        "The model's answer, which may quote any part of the run: It never booked.",
    ):
        assert " ".join(told.split()) in seen.replace("( ", "(").replace("(", "( "), told


@pytest.mark.parametrize(
    ("changes", "told", "untold"),
    [
        ({"votes": (1.0,), "agreement": None}, "Model tiny-judge", "Votes"),
        ({"temperature": None, "seed": None}, "Settings default temperature, no seed, rubric 1", "seed 7"),
        ({"votes": (1.0,), "cached": 1}, "Cost nothing: the answer was in the cache", "input tokens"),
        ({"input_tokens": None, "output_tokens": None, "cost": None, "cached": 0}, "Cost tokens unknown", "US$"),
        ({"better_tool": None}, "Model tiny-judge", "Better tool"),
        ({"words": None}, "Model tiny-judge", "may quote any part"),
    ],
)
def test_unknown_fields_of_a_judgement_are_omitted_or_shown_as_unknown(
    tmp_path: Path, changes: Any, told: str, untold: str
) -> None:
    seen = visible_text(tmp_path, judged_evaluation(**changes))
    assert told in seen
    assert untold not in seen


def test_the_model_answer_is_shown_only_if_the_store_keeps_values(tmp_path: Path) -> None:
    seen = visible_text(tmp_path, judged_evaluation(), keep_arguments=False)
    assert "Model tiny-judge" in seen
    assert "may quote any part" not in seen
    assert "never booked" not in seen


@pytest.mark.parametrize("in_report", [False, True])
def test_a_hostile_model_answer_is_shown_as_text(tmp_path: Path, in_report: bool) -> None:
    evaluation = judged_evaluation(words=NASTY, better_tool=NASTY, model=NASTY)
    page = rendered_page(tmp_path, evaluation, in_report=in_report)
    assert "<script>alert" not in page
    assert "\u202e" not in page
    assert page.count("<h1") == 1
    assert text_of(page).count(" ".join(escape_invisible(NASTY).split())) == 3


@pytest.mark.parametrize("keep_arguments", [True, False])
def test_a_failed_judge_is_shown_with_its_error(tmp_path: Path, keep_arguments: bool) -> None:
    failed = with_tool_selection(judged_evaluation(), failed_score("Timeout: no answer within 30 s"))
    seen = visible_text(tmp_path, failed, keep_arguments=keep_arguments)
    assert ("error: Timeout: no answer within 30 s" if keep_arguments else "error: Timeout") in seen
    assert "was judged" not in seen


def test_a_run_that_was_not_judged_shows_the_reason(tmp_path: Path) -> None:
    seen = visible_text(
        tmp_path, with_tool_selection(judged_evaluation(), not_evaluated_score("the request was not captured"))
    )
    assert "tool_selection ( the request was not captured )" in seen
