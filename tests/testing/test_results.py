"""A results file holds the results of an agent case by case, and survives interruptions."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from threading import Thread

import pytest

from goldspan import Evaluation, Golden, GoldspanWarning, ResultsError, Run, ToolCall, evaluate
from goldspan.model import ExpectedTool, GoldenSource
from goldspan.sinks.serialization import evaluation_document
from goldspan.testing.results import (
    AgentResults,
    CaseError,
    CaseResult,
    Outcome,
    ResultsHeader,
    evaluation_documents,
    goldens_digest,
    shortened_message,
)
from goldspan.testing.results_file import ResultsWriter, read_results
from goldspan.testing.statistics import TrialCount

HEADER = ResultsHeader(
    5,
    ("goldens.yaml",),
    "d1",
    agent="app:agent",
    trials=2,
    metrics=("tool_recall",),
    created="2026-01-01T00:00:00+00:00",
)
BOOK = Golden("book", "Book it.", (ExpectedTool("book", {"hotel": "Ritz"}),))
RUN = Run(
    "t:s",
    trace_ids=("t",),
    span_id="s",
    input="Book it.",
    tool_calls=(ToolCall("book", arguments={"hotel": "Ritz"}, result="ok"),),
)


def case(golden_id: str = "book", outcome: Outcome = "passed", trial: int = 1) -> CaseResult:
    return CaseResult(golden_id, outcome, trial)


def evaluated_case(evaluation: Evaluation, *, keep_arguments: bool = False) -> CaseResult:
    evaluation_dict, run = evaluation_documents(evaluation, keep_arguments=keep_arguments)
    source = GoldenSource("goldens.yaml", 3)
    return CaseResult(
        "book", "passed", 2, ("slow",), source, 3, None, 12.5, evaluation_dict, run, live_evaluation=evaluation
    )


def write(path: Path, *cases: CaseResult, header: ResultsHeader = HEADER, resume: bool = False) -> None:
    with ResultsWriter(path, header, resume=resume) as writer:
        for each in cases:
            writer.write(each)


def test_what_is_written_is_read_back(tmp_path: Path) -> None:
    cases = (
        evaluated_case(evaluate(RUN, BOOK)),
        CaseResult("refund", "error", attempts=2, error=CaseError("ValueError", "no such order")),
    )
    write(tmp_path / "results.jsonl", *cases)
    assert read_results(tmp_path / "results.jsonl") == AgentResults(HEADER, cases)


def test_the_first_line_is_the_header_and_each_other_line_is_a_case(tmp_path: Path) -> None:
    write(tmp_path / "results.jsonl", evaluated_case(evaluate(RUN, BOOK)))
    header, line = map(json.loads, (tmp_path / "results.jsonl").read_text(encoding="utf-8").splitlines())
    assert header == {
        "goldspan_results": 1,
        "goldspan": HEADER.goldspan,
        "scoring_version": 5,
        "goldens": ["goldens.yaml"],
        "goldens_digest": "d1",
        "agent": "app:agent",
        "trials": 2,
        "metrics": ["tool_recall"],
        "keeps_arguments": False,
        "created": "2026-01-01T00:00:00+00:00",
    }
    assert set(line) == {
        "golden_id", "trial", "tags", "source", "outcome", "attempts", "error", "duration_ms", "evaluation", "run",
        "unattributed_spans", "golden_digest",
    }  # fmt: skip
    assert line["source"] == {"file": "goldens.yaml", "line": 3}
    assert line["evaluation"] == json.loads(json.dumps(evaluation_document(evaluate(RUN, BOOK))))


def test_a_run_is_evaluated_again_with_the_same_result_if_arguments_were_kept() -> None:
    first = evaluate(RUN, BOOK)
    kept = evaluated_case(first, keep_arguments=True).to_run()
    assert kept is not None
    assert evaluate(kept, BOOK).digest == first.digest
    assert evaluate(kept, BOOK).scores == first.scores


def test_without_arguments_a_file_holds_names_only_and_the_golden_cannot_be_evaluated_again() -> None:
    names_only = evaluated_case(evaluate(RUN, BOOK))
    assert "Ritz" not in json.dumps(names_only.to_document())
    run = names_only.to_run()
    assert run is not None
    assert run.tools_used == ("book",)
    assert evaluate(run, BOOK).passed is None


def test_values_that_json_cannot_hold_are_left_out() -> None:
    cyclic: dict[str, object] = {}
    cyclic["self"] = cyclic
    run = replace(RUN, tool_calls=(ToolCall("book", arguments=cyclic),))
    document = evaluated_case(evaluate(run, BOOK), keep_arguments=True).run
    assert document is not None
    assert [call["name"] for call in document["tool_calls"]] == ["book"]
    assert "arguments" not in document["tool_calls"][0]


def test_a_later_line_replaces_an_earlier_one_of_the_same_golden_and_trial(tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    write(path, case("a", "timeout"), case("b"), case("a", "passed"), case("a", "failed", trial=2))
    assert [(each.key, each.outcome) for each in read_results(path).cases] == [
        (("a", 1), "passed"), (("b", 1), "passed"), (("a", 2), "failed")
    ]  # fmt: skip


@pytest.mark.parametrize("torn", ['{"golden_id": "b", "outc', "{", '{"golden_id": "b"}', "7"])
def test_an_incomplete_last_line_is_ignored_with_a_warning_and_removed_when_the_run_is_resumed(
    tmp_path: Path, torn: str
) -> None:
    path = tmp_path / "results.jsonl"
    write(path, case("a"))
    complete = path.read_bytes()
    path.write_bytes(complete + torn.encode())
    with pytest.warns(GoldspanWarning, match="line 3: the last line is incomplete"):
        assert [each.golden_id for each in read_results(path).cases] == ["a"]
    with pytest.warns(GoldspanWarning, match="incomplete"):
        write(path, resume=True)
    assert path.read_bytes() == complete
    write(path, case("b"), resume=True)
    assert [each.golden_id for each in read_results(path).cases] == ["a", "b"]


def test_a_complete_last_line_without_a_line_feed_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    write(path, case("a"), case("b"))
    path.write_bytes(path.read_bytes().rstrip(b"\n"))
    assert len(read_results(path).cases) == 2
    write(path, case("c"), resume=True)
    assert [each.golden_id for each in read_results(path).cases] == ["a", "b", "c"]


def test_a_resumed_run_repeats_errors_and_timeouts(tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    outcomes: tuple[Outcome, ...] = ("passed", "failed", "not_evaluated", "error", "timeout")
    write(path, *(case(outcome, outcome) for outcome in outcomes))
    with ResultsWriter(path, HEADER, resume=True) as writer:
        assert [each.outcome for each in writer.previous] == ["passed", "failed", "not_evaluated"]


def test_resuming_without_a_file_begins_one(tmp_path: Path) -> None:
    path = tmp_path / "new" / "results.jsonl"
    write(path, case(), resume=True)
    assert read_results(path).cases == (case(),)


def test_a_new_run_keeps_the_previous_file_under_another_name(tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    write(path, case("old"))
    write(path, case("new"))
    assert [each.golden_id for each in read_results(f"{path}.1").cases] == ["old"]
    assert [each.golden_id for each in read_results(path).cases] == ["new"]


def test_another_file_is_never_replaced(tmp_path: Path) -> None:
    path = tmp_path / "goldens.yaml"
    path.write_text("- {id: a, tools: []}\n")
    for resume in (False, True):
        with pytest.raises(ResultsError, match=r"goldens\.yaml: (exists and )?is not a results file"):
            ResultsWriter(path, HEADER, resume=resume)
    assert path.read_text() == "- {id: a, tools: []}\n"


@pytest.mark.parametrize(
    ("other", "complaint"),
    [
        (replace(HEADER, goldens_digest="d2"), "other goldens"),
        (replace(HEADER, agent="app:other"), "another agent"),
        (replace(HEADER, trials=3), "another number of trials"),
        (replace(HEADER, metrics=None), "other metrics"),
        (replace(HEADER, scoring_version=4), "another scoring version"),
        (replace(HEADER, keeps_arguments=True), "another choice to keep arguments"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_the_results_of_something_else_are_not_resumed(tmp_path: Path, other: ResultsHeader, complaint: str) -> None:
    write(tmp_path / "results.jsonl", header=other)
    with pytest.raises(ResultsError, match=f"has the results of {complaint}; start again without resuming"):
        ResultsWriter(tmp_path / "results.jsonl", HEADER, resume=True)


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ("", "is not a results file"),
        ("not JSON\n", "is not a results file"),
        ('{"golden_id": "a", "outcome": "passed"}\n', "is not a results file"),
        ('{"goldspan_results": 2, "scoring_version": 5}\n', "has version 2 of the format"),
        ('{"goldspan_results": 1}\n', "the header has no scoring_version"),
        ('{"goldspan_results": 1, "scoring_version": 5}\n{"golden_id": "a"}\n', "line 2: is not a case"),
        (
            '{"goldspan_results": 1, "scoring_version": 5}\n{"golden_id": "a", "outcome": "good"}\n',
            "line 2: is not a case",
        ),
        ('{"goldspan_results": 1, "scoring_version": 5}\n\n', "line 2: is not a case"),
    ],
)
def test_an_unreadable_file_is_an_error_that_names_the_problem(tmp_path: Path, content: str, complaint: str) -> None:
    path = tmp_path / "results.jsonl"
    path.write_text(content)
    with pytest.raises(ResultsError, match=complaint) as caught:
        read_results(path)
    assert str(caught.value).startswith(str(path))


def test_a_missing_file_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ResultsError, match="there is no such file"):
        read_results(tmp_path / "results.jsonl")
    with pytest.raises(ResultsError, match="cannot be read"):
        read_results(tmp_path)


def test_a_file_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ResultsError, match="cannot be written"):
        ResultsWriter(tmp_path / "file" / "results.jsonl", HEADER)


def test_threads_that_share_a_writer_never_mix_lines(tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    with ResultsWriter(path, HEADER) as writer:
        threads = [
            Thread(target=lambda name=name: [writer.write(case(f"{name}-{n}")) for n in range(50)]) for name in "abcd"
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(read_results(path).cases) == 200


def test_the_digest_of_goldens_depends_on_ids_inputs_and_expectations_but_not_on_order() -> None:
    other = Golden("other", "Hi.")
    assert goldens_digest([BOOK, other]) == goldens_digest([other, BOOK])
    variants = [
        [BOOK],
        [BOOK, replace(other, id="x")],
        [BOOK, replace(other, input="x")],
        [BOOK, replace(other, order="exact")],
    ]
    assert len({goldens_digest(each) for each in [[BOOK, other], *variants]}) == 5


def test_rates_count_errors_and_timeouts_as_failures_and_leave_out_what_was_not_evaluated() -> None:
    outcomes: tuple[Outcome, ...] = ("passed", "failed", "not_evaluated", "error", "timeout", "passed")
    results = AgentResults(HEADER, tuple(case(f"g{n // 2}", each, n % 2) for n, each in enumerate(outcomes)))
    assert results.counts == {"passed": 2, "failed": 1, "not_evaluated": 1, "error": 1, "timeout": 1}
    assert results.pass_rate == 2 / 5
    assert results.trial_counts == {"g0": TrialCount(1, 2), "g1": TrialCount(0, 1), "g2": TrialCount(1, 2)}
    assert results.pass_hat_k(2) == 0
    assert results.pass_at_k(2) == 1
    interval = results.pass_rate_interval()
    assert interval is not None
    assert interval.low < 2 / 5 < interval.high


def test_what_cannot_be_known_is_none() -> None:
    results = AgentResults(HEADER, (case(outcome="not_evaluated"),))
    assert results.pass_rate is None
    assert results.pass_rate_interval() is None
    assert results.pass_hat_k(1) is None
    assert results.mean("tool_recall") is None
    assert results.evaluations == ()


def test_the_mean_of_a_metric_leaves_out_cases_without_a_value() -> None:
    half = evaluate(["book"], ["book", "pay"])
    results = AgentResults(
        HEADER, (evaluated_case(half), case("error", "error"), evaluated_case(evaluate(["a"], ["a"])))
    )
    assert results.mean("tool_recall") == 0.75
    assert results.mean("argument_correctness") is None
    assert len(results.evaluations) == 2


def test_the_reason_of_a_case_is_that_of_its_evaluation_or_its_error() -> None:
    assert evaluated_case(evaluate(RUN, BOOK)).reason == evaluate(RUN, BOOK).reason
    assert CaseResult("a", "error", error=CaseError("KeyError", "'x'")).reason == "KeyError: 'x'"
    assert CaseResult("a", "error", error=CaseError("KeyError", "")).reason == "KeyError"
    assert case().reason == ""


def test_the_message_of_an_exception_is_bounded_and_never_raises() -> None:
    class HostileError(Exception):
        def __str__(self) -> str:
            raise RuntimeError

    assert shortened_message(ValueError("x" * 5000)) == "x" * 2000 + "…"
    assert shortened_message(ValueError("short")) == "short"
    assert shortened_message(HostileError()) == ""
