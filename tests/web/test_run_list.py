"""Entries of the run list."""

from __future__ import annotations

from pathlib import Path

from goldspan import ExpectedTool, Golden, Goldens, Run, ToolCall, evaluate
from goldspan.extraction.capture_diagnostics import Hint
from goldspan.model import Evaluation
from goldspan.store import StoredRun, open_store
from goldspan.web.run_list import RunEntry, comparison_rows, golden_id_of, match_description, run_entry, run_name
from support.page_server import evaluation, goldens_in, trip_run


def stored(tmp_path: Path, evaluated: Evaluation, *, keep_arguments: bool = True) -> StoredRun:
    with open_store(tmp_path / "goldspan.db", keep_arguments=keep_arguments) as store:
        store.submit(evaluated)
        found = store.run(evaluated.run.run_id)
        assert found is not None
        return found


def entry(tmp_path: Path, evaluated: Evaluation) -> RunEntry:
    return run_entry(stored(tmp_path, evaluated))


def test_an_entry_shows_the_verdict_golden_and_comparison_rows_of_its_run(tmp_path: Path) -> None:
    goldens, _ = goldens_in(tmp_path)
    shown = entry(tmp_path, evaluation(trip_run(0), goldens))
    assert (shown.mark.meaning, shown.name, shown.request) == ("failed", "trip/lisbon", "Plan a trip to Lisbon")
    assert (shown.golden_id, shown.matched_by) == ("trip/lisbon", "the same text")
    assert (shown.agent, shown.service, shown.revision) == ("travel", "shop", 1)
    rows = {(line.expected, line.mark.meaning, line.called) for line in shown.rows}
    assert ("search_hotels", "expected and called", "search_hotels") in rows
    assert ("book_trip", "missing", None) in rows
    assert (None, "forbidden", "delete_booking") in rows
    failed = next(line for line in shown.rows if line.called == "search_flights")
    assert "failed" in failed.notes


def test_a_run_without_a_golden_is_named_by_its_component_agent_service_or_id(tmp_path: Path) -> None:
    told = {"component": "plan", "agent": "travel", "service": "shop"}
    for name in ("plan", "travel", "shop", "nobody's"):
        run = Run(f"run of {name}" if told else name, **told)  # type: ignore[arg-type]
        document = stored(tmp_path, evaluation(run)).current.document
        assert (run_name(document), golden_id_of(document), match_description(document)) == (name, None, None)
        told = dict(list(told.items())[1:])


def test_an_entry_describes_how_the_golden_was_matched(tmp_path: Path) -> None:
    goldens = Goldens([Golden("g", "Book a room in Paris, please", tools=(ExpectedTool("book"),))])
    by_id = entry(tmp_path, evaluation(Run("id", golden_id="g", input="whatever"), goldens))
    assert (by_id.golden_id, by_id.matched_by) == ("g", "its id")
    own = entry(tmp_path, evaluate(Run("own", expected_tools=(ExpectedTool("book"),)), Goldens([])))
    assert (own.golden_id, own.matched_by) == (None, "the expectations of the run itself")


def test_a_match_by_near_text_shows_the_similarity(tmp_path: Path) -> None:
    goldens = Goldens([Golden("g", "Find a hotel in Paris and book the cheapest one.", tools=(ExpectedTool("book"),))])
    run = Run("near", input="Find me a hotel in Paris and book the cheapest one")
    assert (entry(tmp_path, evaluation(run, goldens)).matched_by or "").startswith("near text (0.")


def test_the_anchor_of_an_entry_depends_only_on_the_run_id(tmp_path: Path) -> None:
    ids = ["a", "b", "a\n<b> '\"", "\ud800"]
    anchors = [entry(tmp_path, evaluation(Run(run_id))).anchor for run_id in ids]
    assert len({*anchors}) == len(ids)
    assert all(anchor.replace("-", "").isalnum() and anchor.isascii() for anchor in anchors)
    assert anchors[0] == entry(tmp_path, evaluation(Run("a", input="more"))).anchor


def test_long_names_are_truncated(tmp_path: Path) -> None:
    long = "n" * 5_000
    run = Run(long, input=long, agent=long, tool_calls=(ToolCall(long),))
    shown = entry(tmp_path, evaluation(run, Goldens([Golden("g", long, tools=(ExpectedTool(long),))])))
    assert max(len(shown.name), len(shown.request), *(len(line.called or "") for line in shown.rows)) <= 80


def test_differing_values_are_shown_only_if_the_store_keeps_values(tmp_path: Path) -> None:
    golden = Golden("g", tools=(ExpectedTool("pay", {"sum": 1}),))
    evaluated = evaluate(Run("r", tool_calls=(ToolCall("pay", arguments={"sum": 2}),)), golden)
    for keeps in (True, False):
        folder = tmp_path / str(keeps)
        folder.mkdir()
        document = stored(folder, evaluated, keep_arguments=keeps).current.document
        (line,) = comparison_rows(document)
        assert (line.mark.meaning, line.differing) == ("differs", ("sum",))
        expected = [("sum", "1", "2")] if keeps else []
        assert [(each.path, each.expected, each.called) for each in line.differences] == expected


def test_a_difference_has_a_hint_only_if_another_matcher_accepts_the_value(tmp_path: Path) -> None:
    golden = Golden("g", tools=(ExpectedTool("pay", {"to": "Bank", "sum": 1}),))
    evaluated = evaluate(Run("r", tool_calls=(ToolCall("pay", arguments={"to": "bank", "sum": 2}),)), golden)
    document = stored(tmp_path, evaluated).current.document
    (line,) = comparison_rows(document)
    assert [each.hint for each in line.differences] == ["differs only in case: {folded: ...} accepts it", None]
    assert [sorted(each) for each in document["rows"][0]["differences"]] == [
        ["called", "expected", "hint", "note", "path"],
        ["called", "expected", "note", "path"],
    ]


def test_differences_that_the_first_version_stored_as_text_are_shown_as_notes(tmp_path: Path) -> None:
    golden = Golden("g", tools=(ExpectedTool("pay", {"sum": 1}),))
    evaluated = evaluate(Run("r", tool_calls=(ToolCall("pay", arguments={"sum": 2}),)), golden)
    document = dict(stored(tmp_path, evaluated).current.document)
    document["rows"] = [{**row, "differences": ["sum: expected 1, called with 2"]} for row in document["rows"]]
    (line,) = comparison_rows(document)
    assert line.differences == ()
    assert line.notes == ("sum: expected 1, called with 2",)


def test_an_entry_lists_capture_hints(tmp_path: Path) -> None:
    lacking = Run("r", conventions=("genai",), tool_calls=(ToolCall("pay"),))
    shown = entry(tmp_path, evaluation(lacking))
    assert all(isinstance(hint, Hint) for hint in shown.hints)
