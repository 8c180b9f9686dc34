"""The command line as a person uses it: what is printed, where, and how it ends."""

from __future__ import annotations

import gzip
import io
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from goldspan.cli.app import run
from goldspan.model import Health

ROOT = Path(__file__).parent.parent.parent
TRACES = ROOT / "examples" / "traces.jsonl"
GOLDENS = ROOT / "examples" / "goldens.yaml"
CAPTURES = ROOT / "tests" / "fixtures" / "captures"
FAMILIES = ROOT / "tests" / "fixtures" / "families"
WITHOUT_CONTENT = FAMILIES / "google_adk-default-retry.pb.gz"
"""Spans of an instrumentation that writes content to log events: names and ids, and nothing else."""
ITS_LOGS = FAMILIES / "google_adk-default-retry.logs.pb.gz"


class Said(NamedTuple):
    """What a command printed and its exit status."""

    status: int
    out: str
    err: str

    @property
    def lines(self) -> list[str]:
        return [line.rstrip() for line in self.out.splitlines()]

    @property
    def documents(self) -> list[dict]:  # type: ignore[type-arg]
        return [json.loads(line) for line in self.out.splitlines()]


WEB_SPAN = {"traceId": "1" * 32, "spanId": "2" * 16, "name": "GET /", "startTimeUnixNano": "1", "endTimeUnixNano": "2"}

Goldspan = Callable[..., Said]


@pytest.fixture
def goldspan(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Goldspan:
    """Run a command in this process."""

    def command(*arguments: object) -> Said:
        monkeypatch.setattr(sys, "argv", ["goldspan", *map(str, arguments)])
        status = run()
        return Said(status, *capsys.readouterr())

    return command


def in_its_own_process(*arguments: object, **environment: str) -> Said:
    """Run a command that sets up a process for good."""
    done = subprocess.run(
        [sys.executable, "-m", "goldspan", *map(str, arguments)],
        capture_output=True,
        encoding="utf-8",
        check=False,
        env={**os.environ, "PYTHONUTF8": "1", **environment},
    )
    return Said(done.returncode, done.stdout, done.stderr)


def test_expected_and_called_stand_side_by_side_failed_runs_first(goldspan: Goldspan) -> None:
    said = goldspan("score", TRACES, "--goldens", GOLDENS)
    assert said.status == 0
    assert said.lines[:10] == [
        "    expected             called",
        "",
        "✗ confirm-by-mail  Book the Roma Inn and mail me the confirmation.",
        "    book_hotel         = book_hotel",
        "    send_email         ✗ —",
        "    Expected send_email was not called.",
        "",
        "✗ read-only  Which bookings do I have?",
        "    list_bookings      = list_bookings",
        "    —                  ! cancel_booking",
    ]
    assert said.lines[-1] == "runs: 4, of which 1 passed, 2 failed, 1 not evaluated"


def test_each_evaluation_is_one_json_object_with_the_promised_keys(goldspan: Goldspan) -> None:
    documents = goldspan("score", TRACES, "--goldens", GOLDENS, "--json").documents
    assert [document["golden_id"] for document in documents] == ["book-cheapest", "confirm-by-mail", "read-only", None]
    first, *_, last = documents
    assert {
        "unit", "run_id", "trace_ids", "span_id", "golden_id", "golden_match", "status", "tools_used",
        "expected_tools", "scores", "revision", "health",
    } <= first.keys()  # fmt: skip
    assert first["golden_match"] == {"how": "input", "similarity": 1.0}
    assert (first["tools_used"], first["expected_tools"]) == (["search_hotels", "book_hotel"],) * 2
    assert {"metric", "value", "passed", "threshold", "label", "reason", "error"} == first["scores"][0].keys()
    assert (last["status"], last["golden_match"], last["expected_tools"]) == ("not_evaluated", None, None)
    assert {score["label"] for score in last["scores"]} == {"not_evaluated"}


def test_verbose_shows_every_score_and_the_values_that_differ(goldspan: Goldspan, tmp_path: Path) -> None:
    goldens = tmp_path / "goldens.json"
    expected = [{"name": "search_hotels", "args": {"city": "Rome"}}]
    question = "Find a hotel in Paris and book the cheapest one."
    goldens.write_text(json.dumps([{"id": "rome", "input": question, "tools": expected}]))
    said = goldspan("score", TRACES, "-g", goldens, "--verbose", "--limit", 1)
    assert "    search_hotels.city: expected 'Rome', called with 'Paris'" in said.lines
    assert any(line.startswith("    argument_correctness  0.0000  (at least 1)") for line in said.lines)
    assert any(line.endswith("golden rome by input") for line in said.lines)
    assert "3 more runs; --limit 0 shows all" in said.lines


@pytest.mark.parametrize(
    ("gates", "status", "told"),
    [
        pytest.param(["passed=0.3"], 0, "", id="met"),
        pytest.param(["passed=0.5"], 1, "gate failed: passed is 0.3333; required: 0.5", id="missed"),
        pytest.param(["tool_recall=0.8", "tool_precision=0.9"], 1, "tool_precision is 0.8333", id="one of two missed"),
        pytest.param(["tool_recall=0.83333333333"], 0, "", id="met to rounding"),
    ],
)
def test_a_gate_that_is_missed_ends_with_1(goldspan: Goldspan, gates: list[str], status: int, told: str) -> None:
    options = [option for gate in gates for option in ("--fail-under", gate)]
    said = goldspan("score", TRACES, "-g", GOLDENS, *options)
    assert (said.status, told in said.err) == (status, True)


def test_a_gate_on_what_could_not_be_measured_is_not_met(goldspan: Goldspan) -> None:
    said = goldspan("score", TRACES, "--fail-under", "tool_recall=0")
    assert said.status == 1
    assert "tool_recall could not be evaluated on any run" in said.err


def test_verbose_shows_how_each_score_came_about(goldspan: Goldspan) -> None:
    said = goldspan("score", TRACES, "-g", GOLDENS, "-m", "tool_correctness", "--verbose", "--limit", 1)
    at = said.lines.index("    tool_correctness      0.5000  (at least 1)")
    assert said.lines[at + 1 : at + 3] == [
        f"{'':26}Expected and called: book_hotel.",
        f"{'':26}Expected but not called: send_email.",
    ]
    plain, verbose = (goldspan("score", TRACES, "-g", GOLDENS, "--json", *more).documents[0] for more in ([], ["-v"]))
    assert ("steps" in plain["scores"][0], "steps" in verbose["scores"][0]) == (False, True)


@pytest.mark.parametrize(
    ("options", "values"),
    [
        pytest.param([], [1.0, 0.5, 1.0, None], id="as the goldens say"),
        pytest.param(["--mode", "exact"], [1.0, 0.0, 0.0, None], id="another mode"),
        pytest.param(["--mode", "f1", "--strict"], [1.0, 0.0, 0.0, None], id="strict"),
        pytest.param(["--order", "exact"], [1.0, 0.0, 0.0, None], id="another order"),
        pytest.param(["--profile", "deepeval", "--profile-option", "should_exact_match=True"], [1.0, 0.0, 0.0, None],
                     id="another tool's number"),
    ],
)  # fmt: skip
def test_what_is_measured_and_by_which_rules_can_be_chosen(
    goldspan: Goldspan, options: list[str], values: list[float | None]
) -> None:
    metric = [] if "--profile" in options else ["-m", "tool_correctness"]
    documents = goldspan("score", TRACES, "-g", GOLDENS, "--json", *metric, *options).documents
    assert [score["value"] for document in documents for score in document["scores"]] == values


def test_rules_that_forbid_and_allow_stand_in_for_those_of_the_goldens(goldspan: Goldspan) -> None:
    options = ["--forbid", "search_*", "--max-calls", 1, "--extra", "allow", "--duplicates", "ignore", "--depth", "own"]
    first, *_ = goldspan("score", TRACES, "-g", GOLDENS, "--json", "--attempts", "all", *options).documents
    assert first["reason"] == (
        "Expected search_hotels was not called; search_hotels was called but forbidden; 2 calls were made and 1 is "
        "allowed."
    )


def test_markdown_is_for_wherever_people_read_it(goldspan: Goldspan) -> None:
    options = ["-m", "tool_correctness", "--format", "markdown", "--limit", 1]
    assert (
        goldspan("score", TRACES, "-g", GOLDENS, *options).out
        == """\
runs: 4, of which 1 passed, 2 failed, 1 not evaluated

| metric | mean | runs | passed |
| --- | --- | --- | --- |
| tool_correctness | 0.8333 | 3 | 2 of 3 |

✗ `confirm-by-mail` Book the Roma Inn and mail me the confirmation.

| expected |  | called |  |
| --- | --- | --- | --- |
| `book_hotel` | = | `book_hotel` |  |
| `send_email` | ✗ | — | missing |

Expected send_email was not called.

| metric | value | at least |  |
| --- | --- | --- | --- |
| `tool_correctness` | 0.5000 | 1 | failed |

3 more runs
"""
    )


def test_goldens_that_belong_to_no_run_are_told(goldspan: Goldspan, tmp_path: Path) -> None:
    goldens = tmp_path / "goldens.yaml"
    goldens.write_text("goldens: [{id: other, input: Something else., tools: [x]}]")
    said = goldspan("score", TRACES, "-g", goldens)
    assert (said.status, said.lines[-1]) == (0, "runs: 4, of which 0 passed, 0 failed, 4 not evaluated")
    assert "none of the 1 goldens matches any of these runs" in said.err


def test_metrics_thresholds_and_attempts_can_be_chosen(goldspan: Goldspan, tmp_path: Path) -> None:
    goldens = tmp_path / "goldens.yaml"
    goldens.write_text("goldens: [{id: g, input: Book a hotel in Porto for me, tools: [book_hotel]}]")
    options = ["-g", goldens, "-m", "tool_precision", "--threshold", "tool_precision=0.9", "--json"]
    traces = CAPTURES / "genai-retry.pb.gz"
    for attempts, value in (("effective", 1.0), ("all", 0.5), ("succeeded", 1.0)):
        (document,) = goldspan("score", traces, *options, "--attempts", attempts).documents
        (score,) = document["scores"]
        assert (score["value"], score["passed"], document["passed"]) == (value, value == 1, value == 1)


def test_the_attribute_that_names_the_golden_can_be_chosen(goldspan: Goldspan, tmp_path: Path) -> None:
    goldens = tmp_path / "goldens.yaml"
    goldens.write_text("goldens: [{id: travel-agent, tools: [search_hotels, book_hotel]}]")
    said = goldspan("score", TRACES, "-g", goldens, "--golden-id-attribute", "gen_ai.agent.name", "--json")
    assert {document["golden_match"]["how"] for document in said.documents} == {"id"}


def test_extract_shows_the_tools_of_each_run_with_what_is_odd_about_them(goldspan: Goldspan) -> None:
    said = goldspan("extract", CAPTURES / "genai-retry.pb.gz", CAPTURES / "openinference-handoff.pb.gz")
    assert said.status == 0
    assert "book_hotel  (failed: nights must be >= 1)" in said.out
    assert "transfer_to_research_agent  (handoff)" in said.out


def test_extract_says_what_is_amiss_and_what_to_switch_on_in_the_instrumentation_at_hand(goldspan: Goldspan) -> None:
    said = goldspan("extract", WITHOUT_CONTENT, TRACES)
    assert said.status == 0
    assert sum("capture: no content recorded" in line for line in said.lines) == 1
    capture = said.lines[said.lines.index("capture") :]
    assert capture[1] == "  no content recorded (1 of 5 runs)"
    assert " ".join(capture).count("OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT=SPAN_AND_EVENT") == 1
    assert "read their files together with those of the spans" in " ".join(capture)


def test_logs_that_are_read_together_with_the_spans_bring_the_content(goldspan: Goldspan) -> None:
    said = goldspan("extract", WITHOUT_CONTENT, ITS_LOGS)
    assert "capture" not in said.out
    (document,) = goldspan("extract", WITHOUT_CONTENT, ITS_LOGS, "--json").documents
    assert all(call["arguments"] for call in document["tool_calls"])


def test_what_the_words_behind_a_tool_mean_is_told(goldspan: Goldspan) -> None:
    said = goldspan("extract", CAPTURES / "traceloop-client-parallel.pb.gz", CAPTURES / "openinference-handoff.pb.gz")
    assert "requested: only a model's message shows the call" in said.lines
    assert "handoff: counts only where a golden names it" in said.lines
    assert "counts only" not in goldspan("extract", CAPTURES / "genai-retry.pb.gz").out


def test_all_of_the_capture_health_and_the_conventions_are_in_the_json(goldspan: Goldspan) -> None:
    (document,) = goldspan("extract", WITHOUT_CONTENT, "--json").documents
    assert (document["health"]["content_off"], document["health"]["arguments_absent"]) == (True, 2)
    assert document["health"].keys() == Health.__dataclass_fields__.keys()
    assert "google_adk" in document["conventions"]


def test_score_says_in_one_line_that_something_is_amiss(goldspan: Goldspan) -> None:
    said = goldspan("score", WITHOUT_CONTENT, TRACES, "-g", GOLDENS)
    assert said.err == "warning: no content recorded (1 of 5 runs): `goldspan extract` says what to do about it\n"
    assert "capture" not in said.out
    assert goldspan("score", TRACES, "-g", GOLDENS).err == ""
    verbose = goldspan("score", WITHOUT_CONTENT, "--verbose")
    assert "    capture: no content recorded" in verbose.lines


def test_the_requests_of_a_conversation_can_be_one_run(goldspan: Goldspan) -> None:
    traces = CAPTURES / "genai-conversation.pb.gz"
    assert len(goldspan("extract", traces, "--json").documents) == 3
    (document,) = goldspan("extract", traces, "--unit", "conversation", "--json").documents
    assert (document["unit"], document["run_id"], len(document["trace_ids"])) == (
        "conversation",
        "session:demo-agent-service:sess-42",
        3,
    )
    assert document["tools_used"] == ["get_weather", "get_weather", "convert_currency"]
    (scored,) = goldspan("score", traces, "--unit", "conversation", "--json").documents
    assert (scored["unit"], scored["tools_used"]) == ("conversation", document["tools_used"])


def test_a_long_error_is_shown_by_its_beginning(goldspan: Goldspan, tmp_path: Path) -> None:
    first, *_ = TRACES.read_text().splitlines()
    trace = json.loads(first)
    spans = [span for scope in trace["resourceSpans"][0]["scopeSpans"] for span in scope["spans"]]
    failed = next(span for span in spans if span["name"].startswith("execute_tool"))
    failed["status"] = {"code": 2, "message": "no such city\nTraceback (most recent call last)\n" + "x" * 500}
    (tmp_path / "traces.json").write_text(json.dumps(trace))
    said = goldspan("extract", tmp_path / "traces.json")
    assert "search_hotels  (failed: no such city)" in said.out
    assert "Traceback" not in said.out


def test_extract_prints_whole_runs_as_json(goldspan: Goldspan) -> None:
    (document,) = goldspan("extract", CAPTURES / "genai-retry.pb.gz", "--json").documents
    assert document["tools_used"] == ["book_hotel", "book_hotel"]
    assert [call["arguments"]["nights"] for call in document["tool_calls"]] == [0, 2]
    assert document["tool_calls"][0]["error"] == "nights must be >= 1"


def test_components_can_be_scored_from_files_too(goldspan: Goldspan, tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    assert in_its_own_process("demo", "--out", kept).status == 0
    said = goldspan("score", kept / "traces.pb", "-g", kept / "goldens.yaml", "--unit", "component", "--json")
    (document,) = said.documents
    assert (document["unit"], document["golden_id"], document["golden_match"]["how"]) == (
        "component",
        "policy-lookup",
        "when",
    )


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        pytest.param(["score", "nowhere.jsonl"], "nowhere.jsonl: no such file", id="missing traces"),
        pytest.param(["score", "{tmp}/garbage.jsonl"], "garbage.jsonl: holds no traces", id="garbage"),
        pytest.param(["score", "{tmp}/other.json"], "other.json", id="some other JSON"),
        pytest.param(["score", "{tmp}/empty.jsonl"], "no request found in empty.jsonl", id="empty"),
        pytest.param(["extract", "{tmp}/empty.jsonl"], "no request found in empty.jsonl", id="nothing to extract"),
        pytest.param(
            ["score", "{traces}", "--unit", "component"],
            "no span is marked or declared as one",
            id="no component",
        ),
        pytest.param(["extract", "{tmp}/web.json"], "docs/conventions.md lists the known ones", id="no agent's traces"),
        pytest.param(["extract", "{traces}", "--unit", "session"], "'conversation'", id="no such unit"),
        pytest.param(["score", "{traces}", "-g", "nowhere.yaml"], "nowhere.yaml", id="missing goldens"),
        pytest.param(["score", "{traces}", "-g", "{tmp}/slip.yaml"], "Did you mean 'arguments'?", id="misspelt key"),
        pytest.param(["score", "{traces}", "-g", "{tmp}/twice.jsonl"], "golden 'a'", id="duplicate id"),
        pytest.param(["score", "{traces}", "-g", "{tmp}/type.yaml"], "threshold", id="wrong type"),
        pytest.param(["score", "{traces}", "-g", "{tmp}/broken.yaml"], "line 3", id="broken YAML"),
        pytest.param(["score", "{traces}", "-m", "tool_recal"], "Did you mean 'tool_recall'?", id="unknown metric"),
        pytest.param(["score", "{traces}", "--threshold", "x=y"], "--threshold takes METRIC=NUMBER", id="no number"),
        pytest.param(
            ["score", "{traces}", "--fail-under", "recall=1"], "this metric is not evaluated", id="no such gate"
        ),
        pytest.param(["score"], "name what to score: files with traces, or --cases FILE", id="nothing to score"),
        pytest.param(["score", "{traces}", "--cases", "c.csv"], "name what to score", id="traces and cases"),
        pytest.param(["score", "{traces}", "--profile", "deepevl"], "Did you mean 'deepeval'?", id="no such peer"),
        pytest.param(["score", "{traces}", "--profile-option", "a=1"], "needs --profile", id="an option of nobody"),
        pytest.param(
            ["score", "{traces}", "--profile", "deepeval", "--profile-option", "strict"],
            "takes KEY=VALUE",
            id="an option without a value",
        ),
        pytest.param(
            ["score", "{traces}", "--order", "exact", "--extra", "allow", "-g", "examples/goldens.yaml"],
            "extra cannot be 'allow'",
            id="rules that contradict each other",
        ),
        pytest.param(["score", "{traces}", "--mode", "recal"], "recal", id="no such mode"),
        pytest.param(["score", "{traces}", "--format", "xml"], "xml", id="no such format"),
        pytest.param(["score", "{traces}", "--attempts", "some"], "some", id="no such attempts"),
        pytest.param(["scroe"], "scroe", id="no such command"),
    ],
)
def test_wrong_use_and_unreadable_input_are_one_clear_message_and_end_with_2(
    goldspan: Goldspan, tmp_path: Path, arguments: list[str], told: str
) -> None:
    files = {
        "garbage.jsonl": "hello\nworld\n",
        "other.json": '{"name": "not a trace"}',
        "empty.jsonl": "",
        "slip.yaml": "goldens: [{id: a, tools: [{name: x, argument: {}}]}]",
        "twice.jsonl": '{"id": "a"}\n{"id": "a"}\n',
        "type.yaml": "goldens: [{id: a, threshold: high}]",
        "broken.yaml": "goldens:\n  - {id: a\n",
        "web.json": json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": [WEB_SPAN]}]}]}),
    }
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    said = goldspan(*(argument.format(tmp=tmp_path, traces=TRACES) for argument in arguments))
    assert (said.status, said.out) == (2, "")
    assert told in " ".join(said.err.split())
    assert "Traceback" not in said.err


def test_what_can_be_read_of_a_damaged_file_is_scored_and_the_rest_is_told(goldspan: Goldspan, tmp_path: Path) -> None:
    first, second, *_ = TRACES.read_text().splitlines()
    damaged = tmp_path / "damaged.jsonl"
    damaged.write_text(f"{first}\n{second[:500]}\n{second}\n")
    said = goldspan("score", damaged, "-g", GOLDENS, "--json")
    assert said.status == 0
    assert [document["golden_id"] for document in said.documents] == ["book-cheapest", "confirm-by-mail"]
    assert "damaged.jsonl, line 2" in said.err


@pytest.mark.parametrize("packed", [True, False], ids=["gzip", "protobuf"])
def test_of_an_export_that_was_cut_off_the_whole_spans_are_read(
    goldspan: Goldspan, tmp_path: Path, packed: bool
) -> None:
    whole = (CAPTURES / "genai-agent-as-tool.pb.gz").read_bytes()
    data = whole if packed else gzip.decompress(whole)
    cut = tmp_path / "cut.pb"
    cut.write_bytes(data[: len(data) * 2 // 3])
    said = goldspan("extract", cut, "--json")
    assert said.status == 0
    (document,) = said.documents
    assert document["tools_used"][:2] == ["convert_currency", "search_docs"]
    assert "cut.pb, end of file: the protobuf message is cut off" in said.err


def test_of_messages_in_a_row_the_one_that_is_cut_off_is_told(goldspan: Goldspan, tmp_path: Path) -> None:
    """As the Collector's file exporter writes with `format: proto`."""
    message = gzip.decompress((CAPTURES / "genai-retry.pb.gz").read_bytes())
    length = len(message).to_bytes(4, "big")
    cut = tmp_path / "traces.pb"
    cut.write_bytes(length + message + length + message[:-40])
    said = goldspan("extract", cut, "--json")
    (document,) = said.documents
    assert document["tools_used"] == ["book_hotel", "book_hotel"]
    assert "traces.pb, message 2: cut off, 40 bytes are missing; everything else was read" in said.err


def test_a_place_that_cannot_be_written_is_one_clear_message(goldspan: Goldspan, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    said = goldspan("demo", "--out", tmp_path / "file" / "below")
    assert (said.status, said.out) == (2, "")
    assert "file" in said.err
    assert "Traceback" not in said.err


def test_many_damaged_places_are_counted_rather_than_listed(goldspan: Goldspan, tmp_path: Path) -> None:
    first, *_ = TRACES.read_text().splitlines()
    damaged = tmp_path / "damaged.jsonl"
    damaged.write_text(first + "\n" + "broken\n" * 20)
    said = goldspan("extract", damaged)
    assert said.status == 0
    assert said.err.count("warning:") == 6
    assert "15 more places could not be read" in said.err


def test_traces_come_from_standard_input_and_from_folders(
    goldspan: Goldspan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    packed = gzip.compress(TRACES.read_bytes())
    (tmp_path / "more").mkdir()
    (tmp_path / "more" / "traces.jsonl.gz").write_bytes(packed)
    assert len(goldspan("extract", tmp_path, "--json").documents) == 4
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BufferedReader(io.BytesIO(packed))))
    assert len(goldspan("extract", "-", "--json").documents) == 4


def test_control_characters_from_traces_are_shown_and_not_obeyed(goldspan: Goldspan, tmp_path: Path) -> None:
    first, *_ = TRACES.read_text().splitlines()
    hostile = tmp_path / "hostile.jsonl"
    hostile.write_text(first.replace("search_hotels", "[red]x[/red]\\u001b[31m\\u202ey"))
    said = goldspan("extract", hostile)
    assert "\x1b" not in said.out
    assert "\u202e" not in said.out
    assert "[red]x[/red]\\x1b[31m\\x202ey" in said.out
    said = goldspan("score", hostile, "-g", GOLDENS)
    assert "\\x1b" in said.out
    assert "\x1b" not in said.out


def test_numbers_that_json_cannot_say_do_not_reach_it(goldspan: Goldspan, tmp_path: Path) -> None:
    first, *_ = TRACES.read_text().splitlines()
    odd = tmp_path / "odd.jsonl"
    odd.write_text(
        first.replace('{\\"city\\":\\"Paris\\"}', '{\\"x\\": NaN}').replace(
            '{\\"city\\": \\"Paris\\"}', '{\\"x\\": NaN}'
        )
    )
    said = goldspan("extract", odd, "--json")
    assert json.loads(said.out)["tool_calls"][0]["arguments"] == {"x": "nan"}


def test_the_demo_shows_right_and_wrong_requests_and_ends_well() -> None:
    said = in_its_own_process("demo")
    assert said.status == 0
    verdicts = [line.split()[:2] for line in said.lines if line[:2] in ("✓ ", "✗ ", "○ ")]
    assert [f"{sign}{name}" for sign, name in verdicts] == [
        "✓book-cheapest", "✗confirm-by-mail", "✗weather", "✗convert", "✗look-before-booking", "✓retry", "✗read-only",
        "✗nothing-is-lost", "○charge", "✗policy-lookup", "✗refund-policy", "✓thanks", "○travel-agent",
    ]  # fmt: skip
    assert "goldens found: 9 by text, 1 by near text, 1 by policy, 1 by component or rule" in said.lines
    assert "  goldspan.passed = False" in said.lines


@pytest.mark.e2e
def test_the_demo_keeps_its_traces_where_it_is_told_and_they_score_the_same_again(
    goldspan: Goldspan, tmp_path: Path
) -> None:
    kept = tmp_path / "kept"
    shown = in_its_own_process("demo", "--out", kept)
    again = goldspan("score", kept / "traces.pb", "-g", kept / "goldens.yaml", "--limit", 0)
    for line in shown.lines:
        if line[:2] in ("✓ ", "✗ ", "○ ") and "policy-lookup" not in line:
            assert line in again.lines


@pytest.mark.e2e
def test_help_shows_examples_and_version_says_which() -> None:
    overview = " ".join(in_its_own_process("--help").out.split())
    assert "Exit status: 0 fine, 1 a gate failed, 2 an option is wrong or the input cannot be read." in overview
    for command in ("score", "extract", "export", "demo"):
        shown = in_its_own_process(command, "--help").out
        assert f"goldspan {command}" in shown
        assert "Examples:" in shown
    assert in_its_own_process("--version").out.startswith("goldspan ")


@pytest.mark.e2e
def test_a_reader_that_has_seen_enough_is_no_error() -> None:
    command = f"{sys.executable} -m goldspan extract {TRACES} {CAPTURES} --json | head -c 10"
    done = subprocess.run(command, shell=True, capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ('{"unit": "', "")


@pytest.mark.e2e
@pytest.mark.parametrize("form", ["text", "json", "markdown"])
@pytest.mark.parametrize(("least", "status"), [("0.1", 0), ("0.9", 1)])
def test_a_gate_decides_though_the_reader_has_seen_enough(form: str, least: str, status: int) -> None:
    said = _to_a_closed_pipe("score", TRACES, "-g", GOLDENS, "--format", form, "--fail-under", f"passed={least}")
    assert (said.status, "gate failed" in said.err, "Traceback" in said.err) == (status, bool(status), False)


@pytest.mark.e2e
@pytest.mark.parametrize(
    "arguments",
    [
        pytest.param(["extract", TRACES], id="tables"),
        pytest.param(["extract", CAPTURES, "--json"], id="documents"),
        pytest.param(["goldens", "schema"], id="schema"),
    ],
)
def test_a_reader_that_has_gone_before_anything_came_is_no_error(arguments: list[object]) -> None:
    said = _to_a_closed_pipe(*arguments)
    assert (said.status, "rror" in said.err) == (0, False)


def _to_a_closed_pipe(*arguments: object) -> Said:
    """What a command says whose output nobody reads."""
    command = [sys.executable, "-m", "goldspan", *map(str, arguments)]
    surroundings = {**os.environ, "PYTHONUNBUFFERED": ""}  # what is short waits for the end of the command
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, encoding="utf-8", env=surroundings
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        err = process.stderr.read()
    return Said(process.returncode, "", err)


@pytest.mark.e2e
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="only Linux has a disk that is always full")
@pytest.mark.parametrize(
    "arguments",
    [
        pytest.param(["--version"], id="a line"),
        pytest.param(["score", TRACES, "-g", GOLDENS], id="tables"),
        pytest.param(["score", TRACES, "-g", GOLDENS, "--json"], id="documents"),
        pytest.param(["goldens", "schema"], id="more than is held back"),
    ],
)
@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_full_disk_is_told_in_a_sentence_and_is_no_failed_gate(arguments: list[object], unbuffered: str) -> None:
    command = [sys.executable, "-m", "goldspan", *map(str, arguments)]
    surroundings = {**os.environ, "PYTHONUNBUFFERED": unbuffered}
    with open("/dev/full", "w") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False, env=surroundings)
    assert (done.returncode, done.stderr) == (2, "error: No space left on device\n")


@pytest.mark.e2e
def test_the_demo_shows_the_same_whatever_the_shell_says_of_telemetry() -> None:
    usual = in_its_own_process("demo")
    settings = {
        "GOLDSPAN_CAPTURE_ARGUMENTS": "off",
        "OTEL_TRACES_SAMPLER": "always_off",
        "OTEL_ATTRIBUTE_VALUE_LENGTH_LIMIT": "10",
    }
    assert in_its_own_process("demo", **settings).lines == usual.lines


@pytest.mark.e2e
def test_a_file_in_place_of_the_demos_folder_is_told(tmp_path: Path) -> None:
    taken = tmp_path / "taken"
    taken.touch()
    said = in_its_own_process("demo", "--out", taken)
    assert (said.status, said.out, "it is a file; --out takes a folder" in said.err) == (2, "", True)


def test_trace_files_with_nothing_in_them_are_said_to_be_empty(goldspan: Goldspan, tmp_path: Path) -> None:
    (tmp_path / "traces.jsonl").touch()
    said = goldspan("extract", tmp_path / "traces.jsonl")
    assert (said.status, said.err) == (2, "error: no request found in traces.jsonl: the file is empty\n")


def test_one_run_that_is_not_shown_is_one(goldspan: Goldspan) -> None:
    assert "1 more run; --limit 0 shows all" in goldspan("score", TRACES, "-g", GOLDENS, "--limit", 3).lines


@pytest.mark.e2e
def test_a_terminal_without_unicode_gets_plain_signs() -> None:
    said = in_its_own_process("score", TRACES, "-g", GOLDENS, PYTHONUTF8="0", PYTHONIOENCODING="ascii")
    assert (said.status, said.err) == (0, "")
    assert "x confirm-by-mail  Book the Roma Inn and mail me the confirmation." in said.lines
    assert "    send_email         x -" in said.lines


# --- components -------------------------------------------------------------------------------------------------------

DECLARED = """
components:
  retrieval: {span: "retrieve*"}
goldens:
  - id: retrieve
    component: retrieval
    tools: [search]
"""


def _otlp_span(span_id: str, parent_id: str | None, name: str, **attributes: str) -> dict[str, object]:
    told = [{"key": key.replace("__", "."), "value": {"stringValue": value}} for key, value in attributes.items()]
    span = {"traceId": "1" * 32, "spanId": span_id * 16, "name": name, "attributes": told}
    times = {"startTimeUnixNano": str(int(span_id) * 10), "endTimeUnixNano": str(int(span_id) * 10 + 5)}
    return {**span, **times} if parent_id is None else {**span, **times, "parentSpanId": parent_id * 16}


@pytest.fixture
def declared(tmp_path: Path) -> tuple[Path, Path]:
    """Traces of an application with a step that nothing marks, and a golden file that declares it."""
    spans = [
        _otlp_span("1", None, "invoke_agent a", gen_ai__operation__name="invoke_agent", gen_ai__agent__name="a"),
        _otlp_span("2", "1", "retrieve all"),
        _otlp_span(
            "3", "2", "execute_tool search", gen_ai__operation__name="execute_tool", gen_ai__tool__name="search"
        ),
    ]
    traces, goldens = tmp_path / "traces.json", tmp_path / "goldens.yaml"
    traces.write_text(json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": spans}]}]}))
    goldens.write_text(DECLARED)
    return traces, goldens


def test_components_that_a_golden_file_declares_are_extracted_and_scored(
    goldspan: Goldspan, declared: tuple[Path, Path]
) -> None:
    traces, goldens = declared
    (run_,) = goldspan("extract", traces, "--unit", "component", "-g", goldens, "--json").documents
    assert (run_["component"], run_["agent"], run_["tools_used"]) == ("retrieval", "a", ["search"])
    (judged,) = goldspan("score", traces, "--unit", "component", "-g", goldens, "--json").documents
    assert (judged["golden_id"], judged["passed"]) == ("retrieve", True)
    nothing = goldspan("extract", traces, "--unit", "component")
    assert (nothing.status, "marked or declared" in nothing.err) == (2, True)


def test_goldens_of_declared_components_are_not_reported_as_matching_no_run(
    goldspan: Goldspan, declared: tuple[Path, Path]
) -> None:
    traces, goldens = declared
    said = goldspan("goldens", "check", goldens, traces)
    assert (said.status, said.out, said.err) == (0, "1 golden read: nothing found\n", "")
