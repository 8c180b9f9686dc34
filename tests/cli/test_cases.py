"""`goldspan score --cases` evaluates case files in the formats of other evaluation tools."""

from __future__ import annotations

import csv
import io
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from goldspan.cases.case_evaluation import parse_case
from goldspan.cases.case_files import read_case_rows
from goldspan.cli.app import run
from goldspan.errors import GoldspanError
from support.command_line import Goldspan
from support.interrupts import unmeasured


class CommandResult(NamedTuple):
    """The exit status and the output of a command."""

    status: int
    out: str
    err: str

    @property
    def documents(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.out.splitlines()]

    @property
    def errors(self) -> list[str]:
        return [line.removeprefix("error: ") for line in self.err.splitlines()]


ScoreCases = Callable[..., CommandResult]

ROWS: list[dict[str, Any]] = [
    {"id": "trip", "input": "Book a trip.", "tools_called": ["search", "book"], "expected_tools": ["search", "book"]},
    {"id": "mail", "tools_used": [{"name": "book", "error": "full"}], "expected_tools": ["book", "mail"]},
    {"id": "rest", "tools_called": ["rest"]},
]


@pytest.fixture
def score_cases(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> ScoreCases:
    """Write a case file and score it."""
    monkeypatch.chdir(tmp_path)

    def command(content: str | bytes, *options: object, file: str = "cases") -> CommandResult:
        Path(file).write_bytes(content.encode() if isinstance(content, str) else content)
        monkeypatch.setattr(sys, "argv", ["goldspan", "score", "--cases", file, *map(str, options)])
        status = run()
        return CommandResult(status, *capsys.readouterr())

    return command


def json_lines(rows: list[dict[str, Any]]) -> str:
    return "".join(f"{json.dumps(row)}\n" for row in rows)


def test_cases_are_printed_in_the_same_form_as_runs(score_cases: ScoreCases) -> None:
    result = score_cases(json_lines(ROWS), "--threshold", "tool_correctness=1")
    assert result.status == 0
    assert [line.rstrip() for line in result.out.splitlines()][:11] == [
        "    expected             called",
        "",
        "✗ mail",
        "    book               = book (failed)",
        "    mail               ✗ —",
        "    Expected mail was not called; book failed.",
        "",
        "○ rest",
        "    —                  · rest",
        "    No golden applies to this run: none was given.",
        "",
    ]
    assert result.out.splitlines()[-1] == "runs: 3, of which 1 passed, 1 failed, 1 not evaluated"


def test_each_case_is_one_json_object_with_its_own_id(score_cases: ScoreCases) -> None:
    documents = score_cases(json_lines(ROWS), "--json").documents
    assert [document["run_id"] for document in documents] == ["trip", "mail", "rest"]
    assert [document["status"] for document in documents] == ["scored", "scored", "not_evaluated"]
    assert documents[0]["golden_match"] == {"how": "given", "similarity": 1.0}
    assert (documents[1]["tools_used"], documents[1]["expected_tools"]) == (["book"], ["book", "mail"])


SAME = [
    {"id": "1", "tools_called": ["a", "b"], "expected_tools": ["a"]},
    {"id": "2", "tools_called": [], "expected_tools": []},
]


def test_cases_can_come_from_standard_input(goldspan: Goldspan, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BufferedReader(io.BytesIO(json_lines(SAME).encode()))))
    result = goldspan("score", "--cases", "-", "--json")
    assert (result.status, [document["run_id"] for document in result.documents]) == (0, ["1", "2"])


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(json_lines(SAME), id="JSON lines"),
        pytest.param("\n" + json_lines(SAME).replace("\n", "\r\n\r\n"), id="blank lines and Windows"),
        pytest.param(json.dumps(SAME), id="a JSON list"),
        pytest.param(json.dumps(SAME, indent=2), id="a JSON list over many lines"),
        pytest.param("\ufeff" + json.dumps(SAME), id="a byte order mark"),
        pytest.param("id,tools_called,expected_tools\n1,a;b,a\n2,[],[]\n", id="CSV"),
        pytest.param("\ufeffid,tools_called,expected_tools\r\n1,a|b,a\r\n2,[],[]", id="CSV of Windows"),
        pytest.param("id;Tools Used;Expected Tools\n1;a,b;a\n2;[];[]\n", id="CSV of a spreadsheet in Europe"),
        pytest.param("id\ttools_called\texpected_tools\n1\ta;b\ta\n\n2\t[]\t[]\n", id="tabs"),
        pytest.param('id,tools_called,expected_tools\n1,"[""a"", ""b""]","a"\n2,"[]","[]"\n', id="lists in JSON"),
        pytest.param("id,tools_called,expected_tools\n1,\"['a', 'b']\",['a']\n2,[],[]\n", id="lists of pandas"),
        pytest.param(
            'id,note,tools_called,expected_tools\n1,"two\nlines",a;b,a\n2,,[],[],\n'.replace("[],\n", "[]\n"),
            id="lines inside a cell",
        ),
    ],
)  # fmt: skip
def test_the_format_of_a_case_file_is_detected_from_its_content(score_cases: ScoreCases, content: str) -> None:
    documents = score_cases(content, "--json").documents
    assert [(document["run_id"], document["tools_used"], document["expected_tools"]) for document in documents] == [
        ("1", ["a", "b"], ["a"]),
        ("2", [], []),
    ]


def test_rows_use_the_golden_that_they_name_or_whose_input_they_share(score_cases: ScoreCases) -> None:
    Path("goldens.yaml").write_text(
        "tools: {book: {aliases: [reserve]}}\n"
        "goldens: [{id: g, input: Book it., tools: [book]}, {id: h, metrics: [tool_recall], tools: []}]"
    )
    rows = [
        {"golden_id": "g", "tools_called": ["reserve"], "expected_tools": ["other"]},
        {"input": "book it.", "tools_called": []},
        {"golden_id": "none", "tools_called": []},
        {"golden_id": "h", "tools_called": ["x"]},
        {"tools_called": ["reserve"], "expected_tools": ["book"]},
    ]
    documents = score_cases(json_lines(rows), "-g", "goldens.yaml", "--json").documents
    assert [document["golden_id"] for document in documents] == ["g", "g", None, "h", "row 5"]
    assert [document["passed"] for document in documents] == [True, False, None, False, True]
    assert [len(document["scores"]) > 1 for document in documents] == [True, True, True, False, True]
    result = score_cases(json_lines(rows), "-g", "goldens.yaml", "--limit", 0, "--verbose")
    assert (result.status, "row 5   judged by its own expected tools" in result.out) == (0, True)


def test_a_profile_replaces_the_default_metrics_or_is_added_to_named_metrics(score_cases: ScoreCases) -> None:
    rows = json_lines([{"tools_called": ["b", "a"], "expected_tools": ["a", "b"]}])
    options = ["--profile", "deepeval", "--profile-option", "should_consider_ordering=true", "--json"]
    (score,) = score_cases(rows, *options).documents[0]["scores"]
    assert (score["value"], score["passed"]) == (0.5, True)
    assert len(score_cases(rows, *options, "-m", "tool_f1").documents[0]["scores"]) == 2
    words = ["--profile", "axion", "--profile-option", "scoring=precision", "--json"]
    assert score_cases(rows, *words).documents[0]["scores"][0]["value"] == 1


def test_gates_apply_to_cases(score_cases: ScoreCases) -> None:
    assert score_cases(json_lines(ROWS), "--fail-under", "passed=0.5").status == 0
    assert score_cases(json_lines(ROWS), "--fail-under", "passed=0.6").status == 1
    result = score_cases(json_lines(ROWS), "--fail-under", "tool_recall=0.9")
    assert (result.status, result.errors) == (1, ["gate failed: tool_recall is 0.7500; required: 0.9"])


def test_several_case_files_are_evaluated_together(score_cases: ScoreCases) -> None:
    Path("more.csv").write_text("tools_called,expected_tools\na,a\n")
    documents = score_cases(json_lines(ROWS), "--cases", "more.csv", "--json", "--concurrency", 4).documents
    assert [document["run_id"] for document in documents] == ["trip", "mail", "rest", "row 1"]


names = st.lists(st.text(st.characters(categories=["L", "N"]), min_size=1, max_size=5), max_size=3)
notes = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1).filter(
    lambda text: text.lstrip() == text
)


@given(st.lists(st.tuples(names, st.none() | names, notes), min_size=1))
def test_csv_and_json_lines_of_the_same_rows_give_equal_cases(
    rows: list[tuple[list[str], list[str] | None, str]],
) -> None:
    keys = ("tools_called", "expected_tools", "note")
    cells = [
        (";".join(called) or "[]", None if expected is None else json.dumps(expected), note)
        for called, expected, note in rows
    ]
    with tempfile.TemporaryDirectory() as folder:
        table, lines = Path(folder, "table"), Path(folder, "lines")
        with table.open("w", encoding="utf-8", newline="") as file:
            csv.writer(file).writerows([keys, *cells])
        lines.write_text(json_lines([dict(zip(keys, row, strict=True)) for row in rows]), encoding="utf-8")
        of_table, of_lines = (
            [parse_case(row, number) for number, (_, row) in enumerate(read_case_rows(str(path), pytest.fail))]
            for path in (table, lines)
        )
    assert of_table == of_lines
    assert [case.run.tools_used for case in of_lines] == [tuple(called) for called, _, _ in rows]


# --- errors -----------------------------------------------------------------------------------------------------------


def test_invalid_rows_are_reported_and_the_other_rows_are_evaluated(score_cases: ScoreCases) -> None:
    content = (
        json_lines(ROWS[:1])
        + '{"id": "slip", "tool_called": []}\n{"id": "cut\n5\n'
        + json_lines(ROWS[1:])
        + '{"id": "last", "tools_called": 5}'
    )
    result = score_cases(content, "--json", "--fail-under", "tool_recall=1")
    assert result.status == 2
    assert [document["run_id"] for document in result.documents] == ["trip", "mail", "rest"]
    assert result.errors == [
        "cases, line 2 ('slip'): unknown key 'tool_called'. Did you mean 'tools_called'?",
        "cases, line 3: not JSON: invalid control character at at column 12.",
        "cases, line 4: a case must be a dictionary, not 5.",
        "cases, line 7 ('last'): tools_called must be a list of tools, not 5.",
        "gate failed: tool_recall is 0.7500; required: 1",
    ]


def test_invalid_rows_of_a_table_are_reported_with_their_line_numbers(score_cases: ScoreCases) -> None:
    content = (
        b'id,tools_called,expected_tools\n1,a,a\n2,,a\n3,a,a,a\n4,"a\nb",a\n5,"a"b,a\n6,[a,a\n'
        + "7,a,a,é\n8,a,é\n".encode("latin-1")
        + b'9,a\n10,"a,a\n'
    )
    result = score_cases(content, "--json")
    assert [document["run_id"] for document in result.documents] == ["1", "4", "9"]
    assert result.errors == [
        "cases, line 3 ('2'): tools_called is missing; write [] if no tool was called.",
        "cases, line 4: has 4 cells, but the table has 3 columns.",
        "cases, line 7: not CSV: ',' expected after '\"'.",
        "cases, line 8 ('6'): tools_called starts like a list, but is not a valid one: '[a'.",
        "cases, line 9: is not UTF-8 text.",
        "cases, line 10: is not UTF-8 text.",
        "cases, line 12: not CSV: unexpected end of data.",
    ]


def test_only_the_first_20_invalid_rows_are_listed(score_cases: ScoreCases) -> None:
    result = score_cases("{}\n" * 30)
    assert (result.status, result.out) == (2, "")
    assert len(result.errors) == 21
    assert result.errors[-1] == "10 more rows are invalid"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        pytest.param("", "cases: holds no row.", id="an empty file"),
        pytest.param("\n \n", "cases: holds no row.", id="blank lines"),
        pytest.param("[1, 2", "cases: not JSON: expecting ',' delimiter at column 6.", id="a broken list"),
        pytest.param("[\n1 2]", "cases, line 2: not JSON: expecting ',' delimiter at column 3.", id="a later line"),
        pytest.param("[" * 100_000, "cases: is nested too deeply", id="nested without end"),
        pytest.param(f"[{'9' * 10_000}]", "a number of thousands of digits", id="a number without end"),
        pytest.param("hello world\n", "is neither JSON nor the header of a table", id="some text"),
        pytest.param(
            "id,expected_tools\n1,a\n", "with a column 'tools_called', but 'id,expected_tools'", id="no calls"
        ),
        pytest.param("id,tools_called,id\n1,a,2\n", "line 1: the column 'id' is repeated", id="a column twice"),
        pytest.param(b"\x1f\x8b\x08\x00\xff\xfe", "cases: holds no row.", id="no text at all"),
    ],
)
def test_a_file_without_cases_ends_with_an_error_message(
    score_cases: ScoreCases, content: str | bytes, message: str
) -> None:
    result = score_cases(content)
    assert (result.status, result.out) == (2, "")
    assert message in result.err
    assert "Traceback" not in result.err


@pytest.mark.parametrize(("path", "message"), [("nowhere.csv", "there is no such file"), (".", "is a directory")])
def test_an_unreadable_file_is_refused_with_a_clear_message(tmp_path: Path, path: str, message: str) -> None:
    with pytest.raises(GoldspanError, match=message):
        list(read_case_rows(str(tmp_path / path), print))


def test_long_cells_are_read_and_lines_above_the_limit_are_skipped(
    score_cases: ScoreCases, monkeypatch: pytest.MonkeyPatch
) -> None:
    long = "x" * 500_000
    result = score_cases(f"id,output,tools_called,expected_tools\n1,{long},a,a\n", "--json")
    assert (result.status, len(result.documents)) == (0, 1)
    monkeypatch.setattr("goldspan.cases.case_files._MAX_ROW_LENGTH", 1000)
    result = score_cases(f'{json_lines(SAME[:1])}{{"x": "{long}"}}\n{json_lines(SAME[1:])}', "--json")
    assert [document["run_id"] for document in result.documents] == ["1", "2"]
    assert result.errors == ["cases, line 2: is longer than 1,000 characters."]
    monkeypatch.setattr("goldspan.cases.case_files._MAX_LIST_LENGTH", 1000)
    assert "write one row per line" in score_cases(json.dumps(SAME * 100, indent=1)).err


# --- in a subprocess --------------------------------------------------------------------------------------------------


@pytest.mark.e2e
@pytest.mark.skipif(sys.platform == "win32", reason="Windows sends no such signal")
def test_sigint_ends_the_command_while_metrics_are_running(tmp_path: Path) -> None:
    cases = tmp_path / "cases.jsonl"
    cases.write_text(json_lines(SAME * 10))
    program = """
import signal, sys, time
from goldspan.scoring.metrics.registry import metric
from goldspan.cli import main

signal.signal(signal.SIGINT, signal.default_int_handler)  # what a shell starts in the background ignores it

@metric("slow")
def slow(seen):
    while True:
        print("begun", file=sys.stderr, flush=True)  # also as the program ends
        time.sleep(0.001)

main()
"""
    command = [sys.executable, "-c", program, "score", "--cases", str(cases), "-m", "slow", "--concurrency", "4"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, encoding="utf-8", env=unmeasured()) as process:
        try:
            assert process.stderr is not None
            assert process.stderr.readline().startswith("begun")
            os.kill(process.pid, signal.SIGINT)
            _, rest = process.communicate(timeout=30)
        finally:
            process.kill()
    assert process.returncode == 130
    assert "Traceback" not in rest
