"""The output and the exit status of `goldspan goldens suggest`."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import pytest

from goldspan import Goldens, Run, ToolCall, evaluate, load_goldens
from goldspan.otlp import load_runs
from goldspan.store import open_store
from support.command_line import CommandResult, Goldspan

TRACES = Path(__file__).parent.parent.parent / "examples" / "traces.jsonl"


@pytest.fixture
def goldspan(goldspan: Goldspan) -> Goldspan:
    """Run a command of `goldspan goldens` in this process."""
    return partial(goldspan, "goldens")


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """Return a store with nine good refunds, one that was rated as bad, and one other request."""
    with open_store(tmp_path / "goldspan.db", keep_arguments=True) as opened:
        for number in range(10):
            text = f"Refund order {number}, please."
            calls = [ToolCall("find_order", arguments={"order": number}), ToolCall("refund", arguments={"how": "card"})]
            made = tuple(calls if number else [ToolCall("escalate", arguments={})])
            opened.submit(
                evaluate(
                    Run(f"r{number}", input=text, tool_calls=made, metadata={"rating": 5 if number else 1}), Goldens()
                )
            )
        opened.submit(evaluate(Run("other", input="Hi"), Goldens()))
    return tmp_path / "goldspan.db"


def test_goldens_of_a_store_state_their_support_and_load(goldspan: Goldspan, store: Path, tmp_path: Path) -> None:
    out = tmp_path / "suggested.yaml"
    result = goldspan("suggest", store, "--where", "rating>=4", "--forbid", "--out", out)
    assert result == CommandResult(0, "", f"1 golden written to {out}, from 9 of 9 good runs\n")
    assert (
        out.read_text()
        == """\
version: 1
goldens:
  # from 9 runs; 9 of 9 pass it
  # the order holds in these runs
  - id: refund-order-1-please
    when: {input: {regex: "(?is)^\\\\W*refund\\\\W+order\\\\W.+\\\\Wplease\\\\W*$"}}
    order: in_order
    forbid: [escalate]
    tools:
      # in 9 of 9 runs
      # order copied from the request in 9 of 9 calls
      - {name: find_order, arguments: {order: {type: integer}}}
      # in 9 of 9 runs
      - {name: refund, arguments: {how: card}}
"""
    )
    assert goldspan("check", out) == CommandResult(0, "1 golden read: nothing found\n", "")
    (golden,) = load_goldens(out)
    assert golden.forbid == ("escalate",)


def test_only_passed_runs_of_a_store_are_good_by_default(goldspan: Goldspan, store: Path) -> None:
    result = goldspan("suggest", store.parent)
    assert result == CommandResult(1, "", "warning: no golden: no run is good; --where selects others\n")
    covered = goldspan("suggest", store.parent, "--where", "verdict=not_evaluated", "--min-support", "0.8")
    assert covered.status == 0
    assert "# from 10 runs; 9 of 10 pass it" in covered.out
    assert covered.err == "1 golden, from 10 of 11 good runs; left out: 1 run in 1 group with too few runs\n"


def test_all_runs_of_traces_are_good_by_default(goldspan: Goldspan) -> None:
    result = goldspan("suggest", TRACES, "--min-runs", 1, "--no-arguments")
    assert result.status == 0
    assert "      - search_hotels\n" in result.out
    assert result.err == "4 goldens, from 4 of 4 good runs\n"
    assert goldspan("suggest", TRACES).err == ("warning: no golden: 4 runs in 4 groups with too few runs\n")


def test_results_decide_which_runs_of_traces_are_good(goldspan: Goldspan, tmp_path: Path) -> None:
    ids = [each.run_id for each in load_runs(str(TRACES))]
    results = tmp_path / "results.jsonl"
    results.write_text("".join(json.dumps({"run_id": each, "passed": each == ids[0]}) + "\n" for each in ids))
    assert goldspan("suggest", TRACES, "--results", results, "--min-runs", 1).err == "1 golden, from 1 of 1 good run\n"
    assert goldspan("suggest", TRACES, "--results", results, "--where", "passed=false", "--min-runs", 1).err == (
        "3 goldens, from 3 of 3 good runs\n"
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--out", "{there}"], "the file exists; --force overwrites it"),
        (["--min-support", "0.2"], "the support must be above 0.5 and at most 1, not 0.2"),
        (["--where", "verdict"], "'verdict' is not a condition"),
        (["--where", "verdict=pass"], "a condition on 'verdict' needs evaluations"),
        (["--results", "{missing}"], "No such file"),
    ],
)
def test_a_wrong_option_ends_with_status_2(
    goldspan: Goldspan, tmp_path: Path, arguments: list[str], message: str
) -> None:
    (tmp_path / "there.yaml").write_text("kept")
    places = {"there": tmp_path / "there.yaml", "missing": tmp_path / "missing"}
    result = goldspan("suggest", TRACES, *(argument.format_map(places) for argument in arguments))
    assert result.status == 2
    assert message in result.err
    assert (tmp_path / "there.yaml").read_text() == "kept"


def test_results_do_not_belong_to_a_store(goldspan: Goldspan, store: Path) -> None:
    result = goldspan("suggest", store, "--results", store)
    assert (result.status, "--results belongs to traces" in result.err) == (2, True)


def test_a_golden_that_yaml_cannot_express_loses_its_arguments(goldspan: Goldspan, tmp_path: Path) -> None:
    with open_store(tmp_path / "goldspan.db", keep_arguments=True) as opened:
        for number in range(2):
            calls = (ToolCall("book", arguments={"k" * 2000: 1}),)
            opened.submit(evaluate(Run(str(number), input="x\u0007", tool_calls=calls), Goldens()))
    result = goldspan("suggest", tmp_path, "--where", "covered=false")
    assert (result.status, "      - book\n" in result.out or "tools: [book]" in result.out) == (0, True)


def test_suggested_goldens_use_the_tools_of_an_existing_file_and_load_beside_it(
    goldspan: Goldspan, tmp_path: Path
) -> None:
    existing, out = tmp_path / "goldens.yaml", tmp_path / "more.yaml"
    existing.write_text(
        "tools:\n  book_hotel: {aliases: [reserve]}\ngoldens:\n  - {id: book-it, input: Hi, tools: [], owner: me}\n"
    )
    runs = [
        Run(f"r{number}", input="Book it.", tool_calls=(ToolCall(("reserve", "book_hotel")[number % 2]),))
        for number in range(12)
    ]
    with open_store(tmp_path / "runs.db") as store:
        store.submit_many(evaluate(run, Goldens()) for run in runs)
    where = ("--where", "covered=false")
    alone = goldspan("suggest", tmp_path / "runs.db", *where)
    assert "any_of: [book_hotel, reserve]" in alone.out
    assert "- id: book-it\n" in alone.out
    result = goldspan("suggest", tmp_path / "runs.db", *where, "--goldens", existing, "--out", out)
    assert result.status == 0
    assert out.read_text().startswith(
        "# for use with the golden files of --goldens, whose declared tools apply\nversion"
    )
    assert "1 golden written" in result.err
    assert "owner" in result.err  # the warning about a key that goldspan does not define
    together = load_goldens(existing, out, on_warning=lambda message: None)
    assert [golden.id for golden in together] == ["book-it", "book-it-2"]
    assert [evaluate(run, together).passed for run in runs] == [True] * 12


def test_a_golden_file_that_cannot_be_read_ends_with_status_2(goldspan: Goldspan, store: Path, tmp_path: Path) -> None:
    result = goldspan("suggest", store, "--goldens", tmp_path / "none.yaml")
    assert (result.status, result.out) == (2, "")
    assert "none.yaml" in result.err
