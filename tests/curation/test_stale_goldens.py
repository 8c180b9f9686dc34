"""Goldens that recent runs no longer use, or that state the exception, are found."""

from __future__ import annotations

from collections.abc import Sequence

from goldspan import ExpectedTool, Golden, Goldens, Run, ToolCall
from goldspan.curation.stale_goldens import StaleFinding, find_stale_goldens
from goldspan.model import AnyOf, Parallel, ToolDefinition


def runs_of(*sequences: str, golden: str | None = None, offered: Sequence[str] = ()) -> list[tuple[Run, str | None]]:
    tools = tuple(map(ToolDefinition, offered))
    return [
        (
            Run(f"{number}", input="x", tool_calls=tuple(map(ToolCall, calls.split())), available_tools=tools),
            golden,
        )
        for number, calls in enumerate(sequences)
    ]


def kinds(findings: list[StaleFinding]) -> list[tuple[str, str, str]]:
    return [(finding.kind, finding.golden_id, finding.sentence) for finding in findings]


def test_goldens_that_no_run_matched_are_found() -> None:
    goldens = Goldens([Golden("a", input="x"), Golden("b", input="y"), Golden("c", input="z")])
    assert kinds(find_stale_goldens(goldens, runs_of("", ""), {"b": "2026-01-31T08:00:00Z"})) == [
        ("unmatched", "b", "no run matched it; the last one was at 2026-01-31T08:00:00Z"),
        ("unmatched", "c", "no run matched it; no stored run ever did"),
    ]


def test_the_stored_golden_counts_where_the_lookup_cannot_find_it() -> None:
    goldens = Goldens([Golden("by-attribute", tools=(ExpectedTool("a"),))])
    assert find_stale_goldens(goldens, runs_of("a", golden="by-attribute"), {}) == []
    assert [one.kind for one in find_stale_goldens(goldens, runs_of("a", golden="gone"), {})] == ["unmatched"]


def test_tools_that_were_neither_called_nor_offered_are_found() -> None:
    goldens = Goldens(
        [Golden("a", input="x", tools=(ExpectedTool("used"), ExpectedTool("offered"), ExpectedTool("gone")))]
    )
    assert kinds(find_stale_goldens(goldens, runs_of("used", offered=["Offered"]), {})) == [
        ("unused_tool", "a", "gone was neither called nor offered in any run")
    ]


def test_an_alternative_that_became_the_rule_is_found() -> None:
    choice = AnyOf(((ExpectedTool("mail"),), (ExpectedTool("text"),)))
    longer = AnyOf(((ExpectedTool("find"), ExpectedTool("cancel")), (ExpectedTool("refund"),)))
    golden = Golden("a", input="x", tools=(Parallel((ExpectedTool("go"), choice)), longer))
    runs = runs_of(*["go mail find cancel"] * 9, "go text refund")
    assert kinds(find_stale_goldens(Goldens([golden]), runs, {})) == [
        ("ruling_alternative", "a", "mail of mail or text was chosen in 9 of 10 runs"),
        ("ruling_alternative", "a", "find + cancel of find + cancel or refund was chosen in 9 of 10 runs"),
    ]
    assert find_stale_goldens(Goldens([golden]), runs[1:], {}) == []
    both = runs_of(*["go mail text find cancel refund"] * 12)
    assert [one.kind for one in find_stale_goldens(Goldens([golden]), both, {})] == []


def test_a_failure_that_most_runs_share_is_found() -> None:
    goldens = Goldens([Golden("a", input="x", tools=(ExpectedTool("find"), ExpectedTool("mail")))])
    runs = runs_of(*["find"] * 6, *["find mail"] * 4)
    assert kinds(find_stale_goldens(goldens, runs, {})) == [
        ("common_failure", "a", "mail was not called in 6 of 10 evaluated runs")
    ]
    assert find_stale_goldens(goldens, runs_of(*["find"] * 4, *["find mail"] * 6), {}) == []
    assert find_stale_goldens(goldens, runs_of(*["find"] * 5, *["find mail"] * 4), {}) == []
