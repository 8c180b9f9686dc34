"""The pages of real Phoenix and MLflow servers show the score, the value and the reason of a run, once."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Page, expect

from goldspan.integrations.scored_runs import VERDICT_NAME
from recipes.environments import is_built
from support.browser import open_browser
from support.product_pages import ScoredTraces, open_verdict, opened_page, send_scored_traces, show_failed_runs
from support.product_programs import MLflowProgram, PhoenixProgram, ProductProgram

pytestmark = [pytest.mark.e2e, pytest.mark.needs("chromium")]

Filled = tuple[ProductProgram, ScoredTraces]
VALUES = {"phoenix": {True: "1.00pass", False: "0.00fail"}, "mlflow": {True: "True", False: "False"}}
"""What the page of a product shows as the value of a verdict."""


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(
            program,
            id=program.name,
            marks=pytest.mark.skipif(
                not is_built(program.name), reason=f"{program.name} needs its environment: make recipes"
            ),
        )
        for program in (PhoenixProgram, MLflowProgram)
    ],
)
def filled(request, tmp_path_factory) -> Iterator[Filled]:
    """A product with the scores of a run that passed, of one that failed, and of one that was revised."""
    program = request.param(tmp_path_factory.mktemp(request.param.name))
    program.start()
    try:
        yield program, send_scored_traces(program)
    finally:
        program.stop()


@pytest.fixture
def page() -> Iterator[Page]:
    with open_browser() as browser, opened_page(browser) as page:
        yield page


@pytest.mark.parametrize("which", ["passed", "failed"])
def test_the_page_of_a_trace_shows_the_name_the_value_and_the_reason_of_its_verdict(
    filled: Filled, page: Page, which: str
) -> None:
    program, traces = filled
    evaluation = getattr(traces, which)
    assert evaluation.passed is (which == "passed")
    verdict = open_verdict(page, program, evaluation)
    expect(verdict.panel.get_by_text(VERDICT_NAME, exact=True)).to_be_visible()
    expect(verdict.panel).to_contain_text(VALUES[program.name][evaluation.passed])
    expect(verdict.panel.get_by_text(evaluation.reason, exact=True)).to_be_visible()
    expect(verdict.entries).to_have_count(1)


def test_the_page_of_a_revised_run_shows_the_later_score_and_no_other(filled: Filled, page: Page) -> None:
    program, traces = filled
    assert (traces.outdated.passed, traces.revised.passed) == (False, True)
    verdict = open_verdict(page, program, traces.revised)
    expect(verdict.panel).to_contain_text(VALUES[program.name][True])
    expect(verdict.panel).not_to_contain_text(VALUES[program.name][False])
    expect(verdict.panel.get_by_text(traces.revised.reason, exact=True)).to_be_visible()
    expect(verdict.panel).not_to_contain_text(traces.outdated.reason)
    expect(verdict.entries).to_have_count(1)


def test_the_filter_of_the_documentation_shows_the_failed_run_only(filled: Filled, page: Page) -> None:
    program, _ = filled
    expect(show_failed_runs(page, program)).to_have_count(1)
