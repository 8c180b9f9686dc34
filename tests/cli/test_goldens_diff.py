"""The output and the exit status of `goldspan goldens diff` and `goldspan goldens stale`."""

from __future__ import annotations

import json
import time
from functools import partial
from pathlib import Path

import pytest

from goldspan import Goldens, Run, ToolCall, evaluate, load_goldens
from goldspan.store import open_store
from support.command_line import CommandResult, Goldspan

ROOT = Path(__file__).parent.parent.parent
TRACES = ROOT / "examples" / "traces.jsonl"
GOLDENS = ROOT / "examples" / "goldens.yaml"


@pytest.fixture
def goldspan(goldspan: Goldspan) -> Goldspan:
    """Run a command of `goldspan goldens` in this process."""
    return partial(goldspan, "goldens")


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    """Return two golden files that differ in one golden of each kind."""
    (old := tmp_path / "old.yaml").write_text(
        "goldens: [{id: book, input: Book, tools: [search]}, {id: gone, tools: [x], note: n}]"
    )
    (new := tmp_path / "new.yaml").write_text(
        "goldens: [{id: book, input: Book, order: exact, tools: [search, book]}, {id: added, tools: []}]"
    )
    return old, new


@pytest.fixture
def store(tmp_path: Path, files: tuple[Path, Path]) -> Path:
    """Return a store of three runs of one golden, two of which the new golden fails."""
    goldens = Goldens(list(load_goldens(files[0], on_warning=lambda _: None)))
    with open_store(tmp_path / "goldspan.db", keep_arguments=True) as opened:
        for number, calls in enumerate(("search", "search", "search book")):
            made = tuple(map(ToolCall, calls.split()))
            opened.submit(evaluate(Run(f"r{number}", input="Book", tool_calls=made, start_ns=time.time_ns()), goldens))
    return tmp_path / "goldspan.db"


def test_diff_prints_the_changes_of_goldens(goldspan: Goldspan, files: tuple[Path, Path]) -> None:
    assert goldspan("diff", *files) == CommandResult(
        0,
        "changed book\n  now requires book\n  order any -> exact\n"
        "added added: allows no tool\nremoved gone: requires x\ngoldens: 1 added, 1 removed, 1 changed\n",
        "",
    )
    assert goldspan("diff", *files, "--fail-on-change").status == 1
    assert goldspan("diff", files[0], files[0], "--fail-on-change") == CommandResult(
        0, "goldens: 0 added, 0 removed, 0 changed\n", ""
    )


def test_diff_prints_the_verdicts_that_change_on_stored_runs(
    goldspan: Goldspan, files: tuple[Path, Path], store: Path
) -> None:
    result = goldspan("diff", *files, "--on", store, "--limit", 1)
    assert result.status == 0
    assert result.out.splitlines()[-3:] == [
        "r1 (book): pass -> fail. Expected book was not called.",
        "... and 1 more; --limit 0 shows all",
        "3 runs: pass -> fail 2",
    ]
    assert goldspan("diff", *files, "--on", store, "--fail-on-change").status == 1
    some = goldspan("diff", *files, "--on", store, "--where", "tool=book", "--fail-on-change")
    assert (some.status, some.out.splitlines()[-1]) == (0, "1 runs: no verdict changes")


def test_diff_evaluates_traces_too_and_prints_json(
    goldspan: Goldspan, files: tuple[Path, Path], tmp_path: Path
) -> None:
    renamed = tmp_path / "renamed.yaml"
    renamed.write_text(GOLDENS.read_text().replace("- id: ", "- id: new-").replace("{id: ", "{id: new-"))
    result = goldspan("diff", GOLDENS, renamed, "--on", TRACES)
    assert "same verdict by another golden" in result.out.splitlines()[-1]
    documents = [json.loads(line) for line in goldspan("diff", *files, "--on", TRACES, "--json").out.splitlines()]
    assert documents[0] == {
        "change": "changed", "golden": "book", "sentences": ["now requires book", "order any -> exact"]
    }  # fmt: skip
    assert documents[-1] == {
        "change": "summary", "runs": 4, "verdicts": [{"old": "no_golden", "new": "no_golden", "runs": 4}]
    }  # fmt: skip
    changes = goldspan("diff", GOLDENS, renamed, "--on", TRACES, "--json").out
    assert any(json.loads(line)["change"] == "verdict" for line in changes.splitlines())


def test_stale_prints_what_recent_runs_show(goldspan: Goldspan, files: tuple[Path, Path], store: Path) -> None:
    result = goldspan("stale", files[0], store)
    assert result == CommandResult(
        1,
        "golden 'gone': no run matched it; no stored run ever did.\n"
        "golden 'gone': x was neither called nor offered in any run.\n"
        "2 goldens and 3 runs read: 1 found\n",
        "",
    )
    documents = [json.loads(line) for line in goldspan("stale", files[0], store.parent, "--json").out.splitlines()]
    assert documents[0] == {
        "finding": "unmatched", "golden": "gone", "message": "no run matched it; no stored run ever did", "runs": 0
    }  # fmt: skip


def test_stale_finds_nothing_in_goldens_that_are_used(goldspan: Goldspan, store: Path, tmp_path: Path) -> None:
    (used := tmp_path / "used.yaml").write_text("goldens: [{id: book, input: Book, tools: [search]}]")
    assert goldspan("stale", used, store).out == "1 goldens and 3 runs read: nothing found\n"
    later = goldspan("stale", used, store, "--since", "2100-01-01")
    assert later.status == 1
    assert later.err == "warning: the store has no run since 2100-01-01\n"
    assert "no run matched it; the last one was at 20" in later.out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["stale", GOLDENS], "name golden files and then a store"),
        (["stale", GOLDENS, "missing.db"], "no such store"),
        (["stale", GOLDENS, "missing.db", "--since", "soon"], "--since: 'soon' is not a time"),
        (["diff", GOLDENS, "missing.yaml"], "missing.yaml"),
        (["diff", GOLDENS, GOLDENS, "--on", TRACES, "--where", "verdict=pass"], "needs evaluations"),
    ],
)
def test_a_wrong_argument_ends_with_status_2(goldspan: Goldspan, arguments: list[object], message: str) -> None:
    result = goldspan(*arguments)
    assert result.status == 2
    assert message in result.err
