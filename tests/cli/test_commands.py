"""The output and the exit status of the commands."""

from __future__ import annotations

import gzip
import io
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from goldspan.model import Health
from support.command_line import CommandResult, Goldspan

ROOT = Path(__file__).parent.parent.parent
TRACES = ROOT / "examples" / "traces.jsonl"
GOLDENS = ROOT / "examples" / "goldens.yaml"
CAPTURES = ROOT / "tests" / "fixtures" / "captures"
FAMILIES = ROOT / "tests" / "fixtures" / "families"
WITHOUT_CONTENT = FAMILIES / "google_adk-default-retry.pb.gz"
"""Spans without content: this instrumentation writes the content to log events."""
ITS_LOGS = FAMILIES / "google_adk-default-retry.logs.pb.gz"


WEB_SPAN = {"traceId": "1" * 32, "spanId": "2" * 16, "name": "GET /", "startTimeUnixNano": "1", "endTimeUnixNano": "2"}


def in_its_own_process(*arguments: object, **environment: str) -> CommandResult:
    """Run a command that changes the state of its process permanently, in a subprocess."""
    done = subprocess.run(
        [sys.executable, "-m", "goldspan", *map(str, arguments)],
        capture_output=True,
        encoding="utf-8",
        check=False,
        env={**os.environ, "PYTHONUTF8": "1", **environment},
    )
    return CommandResult(done.returncode, done.stdout, done.stderr)


def test_score_prints_expected_and_called_side_by_side_with_failed_runs_first(goldspan: Goldspan) -> None:
    result = goldspan("score", TRACES, "--goldens", GOLDENS)
    assert result.status == 0
    assert result.lines[:10] == [
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
    assert result.lines[-1] == "runs: 4, of which 1 passed, 2 failed, 1 not evaluated"


def test_each_evaluation_is_one_json_object_with_the_documented_keys(goldspan: Goldspan) -> None:
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
    result = goldspan("score", TRACES, "-g", goldens, "--verbose", "--limit", 1)
    assert "    search_hotels.city: expected 'Rome', called with 'Paris'" in result.lines
    assert any(line.startswith("    argument_correctness  0.0000  (at least 1)") for line in result.lines)
    assert any(line.endswith("golden rome by input") for line in result.lines)
    assert "3 more runs; --limit 0 shows all" in result.lines


@pytest.mark.parametrize(
    ("gates", "status", "message"),
    [
        pytest.param(["passed=0.3"], 0, "", id="met"),
        pytest.param(["passed=0.5"], 1, "gate failed: passed is 0.3333; required: 0.5", id="missed"),
        pytest.param(["tool_recall=0.8", "tool_precision=0.9"], 1, "tool_precision is 0.8333", id="one of two missed"),
        pytest.param(["tool_recall=0.83333333333"], 0, "", id="met to rounding"),
    ],
)
def test_a_failed_gate_ends_with_exit_status_1(goldspan: Goldspan, gates: list[str], status: int, message: str) -> None:
    options = [option for gate in gates for option in ("--fail-under", gate)]
    result = goldspan("score", TRACES, "-g", GOLDENS, *options)
    assert (result.status, message in result.err) == (status, True)


def test_a_gate_on_a_metric_that_could_not_be_evaluated_fails(goldspan: Goldspan) -> None:
    result = goldspan("score", TRACES, "--fail-under", "tool_recall=0")
    assert result.status == 1
    assert "tool_recall could not be evaluated on any run" in result.err


def test_verbose_shows_the_steps_of_each_score(goldspan: Goldspan) -> None:
    result = goldspan("score", TRACES, "-g", GOLDENS, "-m", "tool_correctness", "--verbose", "--limit", 1)
    at = result.lines.index("    tool_correctness      0.5000  (at least 1)")
    assert result.lines[at + 1 : at + 3] == [
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
def test_options_select_the_metric_and_the_rules(
    goldspan: Goldspan, options: list[str], values: list[float | None]
) -> None:
    metric = [] if "--profile" in options else ["-m", "tool_correctness"]
    documents = goldspan("score", TRACES, "-g", GOLDENS, "--json", *metric, *options).documents
    assert [score["value"] for document in documents for score in document["scores"]] == values


def test_rules_on_the_command_line_replace_those_of_the_goldens(goldspan: Goldspan) -> None:
    options = ["--forbid", "search_*", "--max-calls", 1, "--extra", "allow", "--duplicates", "ignore", "--depth", "own"]
    first, *_ = goldspan("score", TRACES, "-g", GOLDENS, "--json", "--attempts", "all", *options).documents
    assert first["reason"] == (
        "Expected search_hotels was not called; search_hotels was called but forbidden; 2 calls were made and 1 is "
        "allowed."
    )


def test_format_markdown_prints_tables(goldspan: Goldspan) -> None:
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


def test_goldens_that_match_no_run_cause_a_warning(goldspan: Goldspan, tmp_path: Path) -> None:
    goldens = tmp_path / "goldens.yaml"
    goldens.write_text("goldens: [{id: other, input: Something else., tools: [x]}]")
    result = goldspan("score", TRACES, "-g", goldens)
    assert (result.status, result.lines[-1]) == (0, "runs: 4, of which 0 passed, 0 failed, 4 not evaluated")
    assert "none of the 1 goldens matches any of these runs" in result.err


def test_options_select_metrics_thresholds_and_attempts(goldspan: Goldspan, tmp_path: Path) -> None:
    goldens = tmp_path / "goldens.yaml"
    goldens.write_text("goldens: [{id: g, input: Book a hotel in Porto for me, tools: [book_hotel]}]")
    options = ["-g", goldens, "-m", "tool_precision", "--threshold", "tool_precision=0.9", "--json"]
    traces = CAPTURES / "genai-retry.pb.gz"
    for attempts, value in (("effective", 1.0), ("all", 0.5), ("succeeded", 1.0)):
        (document,) = goldspan("score", traces, *options, "--attempts", attempts).documents
        (score,) = document["scores"]
        assert (score["value"], score["passed"], document["passed"]) == (value, value == 1, value == 1)


def test_an_option_selects_the_attribute_that_holds_the_golden_id(goldspan: Goldspan, tmp_path: Path) -> None:
    goldens = tmp_path / "goldens.yaml"
    goldens.write_text("goldens: [{id: travel-agent, tools: [search_hotels, book_hotel]}]")
    result = goldspan("score", TRACES, "-g", goldens, "--golden-id-attribute", "gen_ai.agent.name", "--json")
    assert {document["golden_match"]["how"] for document in result.documents} == {"id"}


def test_extract_shows_the_tools_of_each_run_with_errors_and_handoffs(goldspan: Goldspan) -> None:
    result = goldspan("extract", CAPTURES / "genai-retry.pb.gz", CAPTURES / "openinference-handoff.pb.gz")
    assert result.status == 0
    assert "book_hotel  (failed: nights must be >= 1)" in result.out
    assert "transfer_to_research_agent  (handoff)" in result.out


def test_extract_reports_missing_content_and_the_setting_that_records_it(goldspan: Goldspan) -> None:
    result = goldspan("extract", WITHOUT_CONTENT, TRACES)
    assert result.status == 0
    assert sum("capture: no content recorded" in line for line in result.lines) == 1
    capture = result.lines[result.lines.index("capture") :]
    assert capture[1] == "  no content recorded (1 of 5 runs)"
    assert " ".join(capture).count("OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT=SPAN_AND_EVENT") == 1
    assert "read their files together with those of the spans" in " ".join(capture)


def test_content_in_log_events_is_joined_with_the_spans(goldspan: Goldspan) -> None:
    result = goldspan("extract", WITHOUT_CONTENT, ITS_LOGS)
    assert "capture" not in result.out
    (document,) = goldspan("extract", WITHOUT_CONTENT, ITS_LOGS, "--json").documents
    assert all(call["arguments"] for call in document["tool_calls"])


def test_extract_explains_the_notes_beside_the_tools_that_it_prints(goldspan: Goldspan) -> None:
    result = goldspan("extract", CAPTURES / "traceloop-client-parallel.pb.gz", CAPTURES / "openinference-handoff.pb.gz")
    assert "requested: only a model's message shows the call" in result.lines
    assert "handoff: counts only where a golden names it" in result.lines
    assert "counts only" not in goldspan("extract", CAPTURES / "genai-retry.pb.gz").out


def test_the_json_of_extract_contains_capture_health_and_conventions(goldspan: Goldspan) -> None:
    (document,) = goldspan("extract", WITHOUT_CONTENT, "--json").documents
    assert (document["health"]["content_off"], document["health"]["arguments_absent"]) == (True, 2)
    assert document["health"].keys() == Health.__dataclass_fields__.keys()
    assert "google_adk" in document["conventions"]


def test_score_warns_of_missing_content_in_one_line(goldspan: Goldspan) -> None:
    result = goldspan("score", WITHOUT_CONTENT, TRACES, "-g", GOLDENS)
    assert result.err == "warning: no content recorded (1 of 5 runs): `goldspan extract` says what to do about it\n"
    assert "capture" not in result.out
    assert goldspan("score", TRACES, "-g", GOLDENS).err == ""
    verbose = goldspan("score", WITHOUT_CONTENT, "--verbose")
    assert "    capture: no content recorded" in verbose.lines


def test_unit_conversation_joins_the_requests_of_a_session_into_one_run(goldspan: Goldspan) -> None:
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


def test_only_the_first_line_of_a_tool_error_is_shown(goldspan: Goldspan, tmp_path: Path) -> None:
    first, *_ = TRACES.read_text().splitlines()
    trace = json.loads(first)
    spans = [span for scope in trace["resourceSpans"][0]["scopeSpans"] for span in scope["spans"]]
    failed = next(span for span in spans if span["name"].startswith("execute_tool"))
    failed["status"] = {"code": 2, "message": "no such city\nTraceback (most recent call last)\n" + "x" * 500}
    (tmp_path / "traces.json").write_text(json.dumps(trace))
    result = goldspan("extract", tmp_path / "traces.json")
    assert "search_hotels  (failed: no such city)" in result.out
    assert "Traceback" not in result.out


def test_extract_prints_whole_runs_as_json(goldspan: Goldspan) -> None:
    (document,) = goldspan("extract", CAPTURES / "genai-retry.pb.gz", "--json").documents
    assert document["tools_used"] == ["book_hotel", "book_hotel"]
    assert [call["arguments"]["nights"] for call in document["tool_calls"]] == [0, 2]
    assert document["tool_calls"][0]["error"] == "nights must be >= 1"


class Demo(NamedTuple):
    """What `goldspan demo` printed, and the folder in which it kept its traces and goldens."""

    shown: CommandResult
    folder: Path


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Demo:
    kept = tmp_path_factory.mktemp("demo") / "kept"
    return Demo(in_its_own_process("demo", "--out", kept), kept)


def test_unit_component_scores_components_from_files(goldspan: Goldspan, demo: Demo) -> None:
    kept = demo.folder
    result = goldspan("score", kept / "traces.pb", "-g", kept / "goldens.yaml", "--unit", "component", "--json")
    (document,) = result.documents
    assert (document["unit"], document["golden_id"], document["golden_match"]["how"]) == (
        "component",
        "policy-lookup",
        "when",
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
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
        pytest.param(["score"], "name what to score: files with traces, a tool such as phoenix", id="nothing to score"),
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
def test_wrong_options_and_unreadable_input_end_with_a_message_and_exit_status_2(
    goldspan: Goldspan, tmp_path: Path, arguments: list[str], message: str
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
    result = goldspan(*(argument.format(tmp=tmp_path, traces=TRACES) for argument in arguments))
    assert (result.status, result.out) == (2, "")
    assert message in " ".join(result.err.split())
    assert "Traceback" not in result.err


def test_the_readable_part_of_a_damaged_file_is_scored_and_the_rest_reported(
    goldspan: Goldspan, tmp_path: Path
) -> None:
    first, second, *_ = TRACES.read_text().splitlines()
    damaged = tmp_path / "damaged.jsonl"
    damaged.write_text(f"{first}\n{second[:500]}\n{second}\n")
    result = goldspan("score", damaged, "-g", GOLDENS, "--json")
    assert result.status == 0
    assert [document["golden_id"] for document in result.documents] == ["book-cheapest", "confirm-by-mail"]
    assert "damaged.jsonl, line 2" in result.err


@pytest.mark.parametrize("packed", [True, False], ids=["gzip", "protobuf"])
def test_the_complete_spans_of_a_truncated_export_are_read(goldspan: Goldspan, tmp_path: Path, packed: bool) -> None:
    whole = (CAPTURES / "genai-agent-as-tool.pb.gz").read_bytes()
    data = whole if packed else gzip.decompress(whole)
    cut = tmp_path / "cut.pb"
    cut.write_bytes(data[: len(data) * 2 // 3])
    result = goldspan("extract", cut, "--json")
    assert result.status == 0
    (document,) = result.documents
    assert document["tools_used"][:2] == ["convert_currency", "search_docs"]
    assert "cut.pb, end of file: the protobuf message is cut off" in result.err


def test_a_truncated_message_in_a_length_prefixed_file_is_reported(goldspan: Goldspan, tmp_path: Path) -> None:
    """The Collector's file exporter writes this format with `format: proto`."""
    message = gzip.decompress((CAPTURES / "genai-retry.pb.gz").read_bytes())
    length = len(message).to_bytes(4, "big")
    cut = tmp_path / "traces.pb"
    cut.write_bytes(length + message + length + message[:-40])
    result = goldspan("extract", cut, "--json")
    (document,) = result.documents
    assert document["tools_used"] == ["book_hotel", "book_hotel"]
    assert "traces.pb, message 2: cut off, 40 bytes are missing; everything else was read" in result.err


def test_an_unwritable_output_path_ends_with_a_clear_message(goldspan: Goldspan, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    result = goldspan("demo", "--out", tmp_path / "file" / "below")
    assert (result.status, result.out) == (2, "")
    assert "file" in result.err
    assert "Traceback" not in result.err


def test_a_long_list_of_damaged_places_is_shortened_to_a_count(goldspan: Goldspan, tmp_path: Path) -> None:
    first, *_ = TRACES.read_text().splitlines()
    damaged = tmp_path / "damaged.jsonl"
    damaged.write_text(first + "\n" + "broken\n" * 20)
    result = goldspan("extract", damaged)
    assert result.status == 0
    assert result.err.count("warning:") == 6
    assert "15 more places could not be read" in result.err


def test_traces_are_read_from_standard_input_and_from_folders(
    goldspan: Goldspan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    packed = gzip.compress(TRACES.read_bytes())
    (tmp_path / "more").mkdir()
    (tmp_path / "more" / "traces.jsonl.gz").write_bytes(packed)
    assert len(goldspan("extract", tmp_path, "--json").documents) == 4
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BufferedReader(io.BytesIO(packed))))
    assert len(goldspan("extract", "-", "--json").documents) == 4


def test_control_characters_from_traces_are_escaped(goldspan: Goldspan, tmp_path: Path) -> None:
    first, *_ = TRACES.read_text().splitlines()
    hostile = tmp_path / "hostile.jsonl"
    hostile.write_text(first.replace("search_hotels", "[red]x[/red]\\u001b[31m\\u202ey"))
    result = goldspan("extract", hostile)
    assert "\x1b" not in result.out
    assert "\u202e" not in result.out
    assert "[red]x[/red]\\x1b[31m\\x202ey" in result.out
    result = goldspan("score", hostile, "-g", GOLDENS)
    assert "\\x1b" in result.out
    assert "\x1b" not in result.out


def test_nan_in_arguments_is_written_to_json_as_text(goldspan: Goldspan, tmp_path: Path) -> None:
    first, *_ = TRACES.read_text().splitlines()
    odd = tmp_path / "odd.jsonl"
    odd.write_text(
        first.replace('{\\"city\\":\\"Paris\\"}', '{\\"x\\": NaN}').replace(
            '{\\"city\\": \\"Paris\\"}', '{\\"x\\": NaN}'
        )
    )
    result = goldspan("extract", odd, "--json")
    assert json.loads(result.out)["tool_calls"][0]["arguments"] == {"x": "nan"}


def test_the_demo_shows_passed_and_failed_requests_and_exits_with_0(demo: Demo) -> None:
    result = demo.shown
    assert result.status == 0
    verdicts = [line.split()[:2] for line in result.lines if line[:2] in ("✓ ", "✗ ", "○ ")]
    assert [f"{sign}{name}" for sign, name in verdicts] == [
        "✓book-cheapest", "✗confirm-by-mail", "✗weather", "✗convert", "✗look-before-booking", "✓retry", "✗read-only",
        "✗nothing-is-lost", "○charge", "✗policy-lookup", "✗refund-policy", "✓thanks", "○travel-agent",
    ]  # fmt: skip
    assert "goldens found: 9 by text, 1 by near text, 1 by policy, 1 by component or rule" in result.lines
    assert "  goldspan.passed = False" in result.lines


@pytest.mark.e2e
def test_the_traces_that_the_demo_keeps_score_the_same_again(goldspan: Goldspan, demo: Demo) -> None:
    shown, kept = demo
    again = goldspan("score", kept / "traces.pb", "-g", kept / "goldens.yaml", "--limit", 0)
    for line in shown.lines:
        if line[:2] in ("✓ ", "✗ ", "○ ") and "policy-lookup" not in line:
            assert line in again.lines


@pytest.mark.e2e
def test_help_shows_examples_and_version_prints_the_version() -> None:
    overview = " ".join(in_its_own_process("--help").out.split())
    assert "Exit status: 0 fine, 1 a gate failed, 2 an option is wrong or the input cannot be read." in overview
    for command in ("score", "extract", "export", "demo"):
        shown = in_its_own_process(command, "--help").out
        assert f"goldspan {command}" in shown
        assert "Examples:" in shown
    assert in_its_own_process("--version").out.startswith("goldspan ")


@pytest.mark.e2e
def test_a_closed_output_pipe_is_not_an_error() -> None:
    command = f"{sys.executable} -m goldspan extract {TRACES} {CAPTURES} --json | head -c 10"
    done = subprocess.run(command, shell=True, capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ('{"unit": "', "")


@pytest.mark.e2e
@pytest.mark.parametrize("form", ["text", "json", "markdown"])
@pytest.mark.parametrize(("least", "status"), [("0.1", 0), ("0.9", 1)])
def test_a_gate_sets_the_exit_status_although_the_output_pipe_is_closed(form: str, least: str, status: int) -> None:
    result = _to_a_closed_pipe("score", TRACES, "-g", GOLDENS, "--format", form, "--fail-under", f"passed={least}")
    assert (result.status, "gate failed" in result.err, "Traceback" in result.err) == (status, bool(status), False)


@pytest.mark.e2e
@pytest.mark.parametrize(
    "arguments",
    [
        pytest.param(["extract", TRACES], id="tables"),
        pytest.param(["extract", CAPTURES, "--json"], id="documents"),
        pytest.param(["goldens", "schema"], id="schema"),
    ],
)
def test_a_pipe_closed_before_the_first_output_is_not_an_error(arguments: list[object]) -> None:
    result = _to_a_closed_pipe(*arguments)
    assert (result.status, "rror" in result.err) == (0, False)


def _to_a_closed_pipe(*arguments: object) -> CommandResult:
    """The result of a command whose output pipe is closed."""
    command = [sys.executable, "-m", "goldspan", *map(str, arguments)]
    surroundings = {**os.environ, "PYTHONUNBUFFERED": ""}  # short output stays in the buffer until the command ends
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, encoding="utf-8", env=surroundings
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        err = process.stderr.read()
    return CommandResult(process.returncode, "", err)


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
def test_a_full_disk_ends_with_one_message_and_exit_status_2(arguments: list[object], unbuffered: str) -> None:
    command = [sys.executable, "-m", "goldspan", *map(str, arguments)]
    surroundings = {**os.environ, "PYTHONUNBUFFERED": unbuffered}
    with open("/dev/full", "w") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False, env=surroundings)
    assert (done.returncode, done.stderr) == (2, "error: No space left on device\n")


@pytest.mark.e2e
def test_the_demo_ignores_telemetry_settings_in_the_environment() -> None:
    usual = in_its_own_process("demo")
    settings = {
        "GOLDSPAN_CAPTURE_ARGUMENTS": "off",
        "OTEL_TRACES_SAMPLER": "always_off",
        "OTEL_ATTRIBUTE_VALUE_LENGTH_LIMIT": "10",
    }
    assert in_its_own_process("demo", **settings).lines == usual.lines


@pytest.mark.e2e
def test_demo_refuses_a_file_as_its_output_folder(tmp_path: Path) -> None:
    taken = tmp_path / "taken"
    taken.touch()
    result = in_its_own_process("demo", "--out", taken)
    assert (result.status, result.out, "it is a file; --out takes a folder" in result.err) == (2, "", True)


def test_an_empty_trace_file_is_reported_as_empty(goldspan: Goldspan, tmp_path: Path) -> None:
    (tmp_path / "traces.jsonl").touch()
    result = goldspan("extract", tmp_path / "traces.jsonl")
    assert (result.status, result.err) == (2, "error: no request found in traces.jsonl: the file is empty\n")


def test_one_hidden_run_is_counted_in_the_singular(goldspan: Goldspan) -> None:
    assert "1 more run; --limit 0 shows all" in goldspan("score", TRACES, "-g", GOLDENS, "--limit", 3).lines


@pytest.mark.e2e
def test_an_output_encoding_without_unicode_gets_ascii_signs() -> None:
    result = in_its_own_process("score", TRACES, "-g", GOLDENS, PYTHONUTF8="0", PYTHONIOENCODING="ascii")
    assert (result.status, result.err) == (0, "")
    assert "x confirm-by-mail  Book the Roma Inn and mail me the confirmation." in result.lines
    assert "    send_email         x -" in result.lines


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
    encoded = [{"key": key.replace("__", "."), "value": {"stringValue": value}} for key, value in attributes.items()]
    span = {"traceId": "1" * 32, "spanId": span_id * 16, "name": name, "attributes": encoded}
    times = {"startTimeUnixNano": str(int(span_id) * 10), "endTimeUnixNano": str(int(span_id) * 10 + 5)}
    return {**span, **times} if parent_id is None else {**span, **times, "parentSpanId": parent_id * 16}


@pytest.fixture
def declared(tmp_path: Path) -> tuple[Path, Path]:
    """Traces with an unmarked component, and a golden file that declares it."""
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
    (evaluated,) = goldspan("score", traces, "--unit", "component", "-g", goldens, "--json").documents
    assert (evaluated["golden_id"], evaluated["passed"]) == ("retrieve", True)
    nothing = goldspan("extract", traces, "--unit", "component")
    assert (nothing.status, "marked or declared" in nothing.err) == (2, True)


def test_goldens_of_declared_components_are_not_reported_as_matching_no_run(
    goldspan: Goldspan, declared: tuple[Path, Path]
) -> None:
    traces, goldens = declared
    result = goldspan("goldens", "check", goldens, traces)
    assert (result.status, result.out, result.err) == (0, "1 golden read: nothing found\n", "")
