"""The input, the output and the exit status of `goldspan report`."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from cli.test_commands import GOLDENS, TRACES, in_its_own_process
from support.command_line import Goldspan
from support.page_server import store_in

CASES = [
    {"id": "one", "input": "Book it", "tools_called": [{"name": "book", "arguments": {"n": 1}}],
     "expected_tools": [{"name": "book", "arguments": {"n": 2}}]},
    {"id": "two", "input": "Look", "tools_called": ["look"], "expected_tools": ["look"]},
]  # fmt: skip


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def cases_in(name: str, *more: dict[str, Any]) -> str:
    Path(name).write_text("".join(json.dumps(row) + "\n" for row in (*CASES, *more)))
    return name


def test_traces_are_evaluated_and_written_into_one_html_file(goldspan: Goldspan) -> None:
    result = goldspan("report", TRACES, "--goldens", GOLDENS)
    assert (result.status, result.out, result.err) == (0, "", "report.html is written\n")
    html = Path("report.html").read_text(encoding="utf-8")
    assert html.startswith("<!doctype html>")
    assert "from <bdi>traces.jsonl</bdi>" in html
    assert html.count('<article class="detailed"') == 2


def test_report_and_score_print_the_same_metrics_and_failures(goldspan: Goldspan) -> None:
    how = (TRACES, "-g", GOLDENS, "--threshold", "tool_precision=0.9", "--attempts", "all", "--strict")
    scored = goldspan("score", *how, "--format", "markdown").out
    reported = goldspan("report", *how, "--markdown", "-").out
    assert _metrics(scored) == _metrics(reported)
    assert set(re.findall("✗ `.*?`", reported)) == set(re.findall("✗ `.*?`", scored)) != set()


def _metrics(text: str) -> str:
    """The rows of the table of metrics, without code marks and escapes."""
    table = text.partition("| metric | mean | runs | passed |")[2].partition("\n\n")[0]
    return re.sub(r"[`\\]", "", table)


def test_markdown_alone_writes_no_html_page(goldspan: Goldspan) -> None:
    result = goldspan("report", TRACES, "-g", GOLDENS, "--markdown", "-")
    assert (result.status, result.err) == (0, "")
    assert result.lines[:3] == ["## goldspan report", "", result.lines[2]]
    assert result.lines[2].startswith("4 runs: 1 passed, 2 failed, 1 not evaluated. Pass rate 33.3 %")
    assert list(Path().iterdir()) == []


def test_page_and_summary_can_be_written_together_with_one_on_standard_output(goldspan: Goldspan) -> None:
    result = goldspan(
        "report", TRACES, "-g", GOLDENS, "--out", "-", "--markdown", "summary.md", "--title", "Mine & ours"
    )
    assert result.err == "summary.md is written\n"
    assert "<title>Mine &amp; ours · goldspan</title>" in result.out
    assert result.out.endswith("</html>\n")
    assert Path("summary.md").read_text().startswith("## Mine \\& ours\n")


def test_a_store_is_recognized_by_its_content_and_filters_apply_to_it(goldspan: Goldspan, tmp_path: Path) -> None:
    store, goldens = store_in(tmp_path, times=2)
    assert goldspan("report", store, "-g", goldens, "--markdown", "-").lines[2].startswith("12 runs: 4 passed")
    store.rename("runs.dat")
    assert goldspan("report", "runs.dat", "-g", goldens, "--markdown", "-").lines[2].startswith("12 runs: 4 passed")
    Path("runs.dat").rename("goldspan.db")
    assert "12 runs" in goldspan("report", tmp_path, "--markdown", "-").lines[2]
    narrowed = goldspan("report", tmp_path, "--agent", "travel", "--since", "2026-01-01", "--unit", "request",
                        "--markdown", "-")  # fmt: skip
    assert narrowed.lines[2].startswith("2 runs: 0 passed, 2 failed.")
    assert "Filters: agent travel, since 2026-01-01, kind of run request." in narrowed.lines[2]
    assert "Goldens without a run" not in narrowed.out
    assert goldspan("report", store.parent, "--until", "2025-01-01", "--markdown", "-").lines[2].startswith("0 runs: ")


def test_filters_apply_to_traces(goldspan: Goldspan) -> None:
    result = goldspan("report", TRACES, "-g", GOLDENS, "--golden", "read-only", "--markdown", "-")
    assert result.lines[2].startswith("1 run: 0 passed, 1 failed.")


def test_rows_of_several_files_with_the_same_ids_are_counted_separately(goldspan: Goldspan) -> None:
    result = goldspan("report", "--cases", cases_in("a.jsonl"), "--cases", cases_in("b.jsonl"), "--markdown", "-")
    assert result.lines[2].startswith("4 runs: 2 passed, 2 failed.")


def test_values_are_in_the_report_only_with_the_values_option(goldspan: Goldspan) -> None:
    rows = cases_in("cases.jsonl")
    how = ("report", "--cases", rows, "--metric", "argument_correctness", "--threshold", "argument_correctness=1",
           "--out", "-")  # fmt: skip
    assert "Names only: the store does not keep the values of arguments and results." in goldspan(*how).out
    shown = goldspan(*how, "--values").out
    assert "<del><bdi>2</bdi></del>" in shown
    assert "<ins><bdi>1</bdi></ins>" in shown


def test_invalid_rows_are_listed_as_errors_and_the_other_rows_are_in_the_report(goldspan: Goldspan) -> None:
    result = goldspan("report", "--cases", cases_in("cases.jsonl", {"id": "bad"}))
    assert result.status == 2
    assert "('bad'): tools_called is missing" in result.err
    assert Path("report.html").exists()


@pytest.mark.parametrize(("least", "status"), [("passed=0.3", 0), ("passed=0.4", 1), ("tool_recall=0.9", 1)])
def test_a_failed_gate_sets_the_exit_status_after_the_report_is_written(
    goldspan: Goldspan, least: str, status: int
) -> None:
    result = goldspan("report", TRACES, "-g", GOLDENS, "--fail-under", least)
    assert (result.status, "gate failed" in result.err) == (status, bool(status))
    assert Path("report.html").exists()


def test_gates_apply_to_stores(goldspan: Goldspan, tmp_path: Path) -> None:
    store, _ = store_in(tmp_path)
    assert goldspan("report", store, "--fail-under", "passed=0.5").status == 0
    assert "passed is 0.5000; required: 0.6" in goldspan("report", store, "--fail-under", "passed=0.6").err
    none = goldspan("report", store, "--fail-under", "call_budget=0.6")
    assert (none.status, "call_budget could not be evaluated on any run" in none.err) == (1, True)
    unknown = goldspan("report", store, "--fail-under", "tool_recal=1")
    assert (unknown.status, "Did you mean 'tool_recall'?" in unknown.err) == (2, True)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        pytest.param([], "name what to report on", id="nothing"),
        pytest.param(["{traces}", "--cases", "x.jsonl"], "name what to report on", id="traces and cases"),
        pytest.param(["{traces}", "-o", "-", "--markdown", "-"], "only one of them", id="both on standard output"),
        pytest.param(["goldspan.db", "{traces}"], "a report takes one store", id="a store and traces"),
        pytest.param(["goldspan.db", "--metric", "tool_f1"], "a store holds evaluated runs", id="judging a store"),
        pytest.param(["goldspan.db", "--values"], "a store holds evaluated runs", id="values of a store"),
        pytest.param(["goldspan.db", "--since", "yesterday"], "--since: 'yesterday' is not a time", id="no time"),
        pytest.param(["goldspan.db", "-o", "goldspan.db"], "the file exists", id="over a store"),
        pytest.param(["{traces}", "--markdown", "goldens.yaml"], "does not end in .md", id="over goldens"),
        pytest.param(["nowhere.jsonl"], "nowhere.jsonl: no such file", id="nowhere"),
        pytest.param(["{traces}", "-g", "nowhere.yaml"], "nowhere.yaml", id="no goldens"),
        pytest.param(["{traces}", "-o", "no/such/folder/report.html"], "No such file or directory", id="no folder"),
    ],
)
def test_invalid_arguments_are_refused_and_no_file_changes(
    goldspan: Goldspan, tmp_path: Path, arguments: list[str], message: str
) -> None:
    store_in(tmp_path)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    result = goldspan("report", *(each.format(traces=TRACES) for each in arguments))
    assert (result.status, result.out) == (2, "")
    assert message in result.err
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_goldens_that_match_no_run_cause_a_warning(goldspan: Goldspan, tmp_path: Path) -> None:
    _, others = store_in(tmp_path)
    result = goldspan("report", TRACES, "-g", others)
    assert "warning: none of the 4 goldens matches any of these runs" in result.err


def test_an_existing_report_or_an_empty_file_is_replaced(goldspan: Goldspan) -> None:
    Path("old.html").write_text("old")
    Path("summary").touch()  # a CI runner creates an empty summary file
    assert goldspan("report", TRACES, "-g", GOLDENS, "-o", "old.html", "--markdown", "summary").status == 0
    assert Path("old.html").read_text(encoding="utf-8").startswith("<!doctype html>")
    assert Path("summary").read_text(encoding="utf-8").startswith("## goldspan report")


@pytest.mark.e2e
def test_a_closed_output_pipe_is_not_an_error() -> None:
    command = f"{sys.executable} -m goldspan report {TRACES} -g {GOLDENS} --out - | head -c 9"
    done = subprocess.run(command, shell=True, capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("<!doctype", "")


@pytest.mark.e2e
def test_without_the_web_extra_only_the_markdown_summary_can_be_written(tmp_path: Path) -> None:
    program = (
        "import sys; sys.modules.update(dict.fromkeys(('jinja2', 'markupsafe', 'starlette', 'uvicorn')))\n"
        "class Missing:\n"
        "    def find_spec(self, name, *rest):\n"
        "        if name.partition('.')[0] in ('jinja2', 'markupsafe'): raise ModuleNotFoundError(name=name)\n"
        "for name in ('jinja2', 'markupsafe', 'starlette', 'uvicorn'): del sys.modules[name]\n"
        "sys.meta_path.insert(0, Missing())\n"
        "from goldspan.cli import main; main()"
    )
    page, summary = (
        subprocess.run(
            [sys.executable, "-c", program, "report", TRACES, "-g", GOLDENS, *how],
            capture_output=True, encoding="utf-8", check=False,
        )
        for how in ([], ["--markdown", "-"])
    )  # fmt: skip
    assert (page.returncode, page.stdout) == (2, "")
    assert page.stderr == "error: the page needs an optional part of goldspan: pip install 'goldspan[web]'\n"
    assert (summary.returncode, summary.stderr) == (0, "")
    assert summary.stdout.startswith("## goldspan report")


@pytest.mark.e2e
def test_help_has_examples() -> None:
    shown = in_its_own_process("report", "--help", COLUMNS="200").out
    assert "goldspan report traces.jsonl -g goldens.yaml --markdown - >> $GITHUB_STEP_SUMMARY" in shown
