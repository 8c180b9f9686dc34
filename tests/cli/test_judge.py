"""`goldspan score --judge` requests judgements from a model over real HTTP."""

from __future__ import annotations

import json
import os
import re
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple, get_args

import pytest
import typer

from goldspan.cli.app import app, run
from goldspan.cli.options import JudgeCombinationOption, JudgeShowOption
from goldspan.judge.prompts import CALL_DETAILS
from goldspan.judge.tool_selection import COMBINATIONS
from support.gateway_process import eventually
from support.interrupts import unmeasured
from support.model_endpoint import after, content, failure, hang, opinion, serving

ROOT = Path(__file__).parents[2]
TRACES = ROOT / "examples" / "traces.jsonl"
GOLDENS = ROOT / "examples" / "goldens.yaml"
OFFERED = ["search", "book", "mail"]
ROWS: list[dict[str, Any]] = [
    {"id": "trip", "input": "Book a trip.", "tools_called": ["search", "book"], "expected_tools": ["book"]},
    {"id": "mail", "input": "Mail me.", "tools_called": ["mail"], "expected_tools": ["mail"]},
    {"id": "rest", "input": "Rest.", "tools_called": ["book"]},
]
SHOES = {
    "input": "What if these shoes don't fit?",
    "output": "We offer a 30-day full refund at no extra cost.",
    "tools_called": [{"name": "WebSearch"}, {"name": "ToolQuery"}],
    "expected_tools": [{"name": "WebSearch"}],
}


class CommandResult(NamedTuple):
    """The exit status and the output of a command."""

    status: int
    out: str
    err: str

    @property
    def documents(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.out.splitlines()]

    @property
    def selections(self) -> list[dict[str, Any]]:
        return [score_in(document, "tool_selection") for document in self.documents]

    @property
    def summary(self) -> str:
        """The summary line of the judge."""
        (line,) = [line for line in self.err.splitlines() if line.startswith("tool_selection: ")]
        return line.removeprefix("tool_selection: ")


def score_in(document: dict[str, Any], metric: str) -> dict[str, Any]:
    (score,) = [score for score in document["scores"] if score["metric"] == metric]
    return score


def offering(*rows: dict[str, Any], tools: list[Any] | None = None) -> list[dict[str, Any]]:
    return [{"available_tools": OFFERED if tools is None else tools, **row} for row in rows]


@pytest.fixture
def score(tmp_path, monkeypatch, capsys):
    """Run `goldspan score` in a temporary folder with only the given judge variables."""
    monkeypatch.chdir(tmp_path)
    for name in list(os.environ):
        if name.startswith("GOLDSPAN_JUDGE_") or name == "OPENAI_API_KEY":
            monkeypatch.delenv(name)

    def command(*options, rows=None, model=None, **variables) -> CommandResult:
        source = [TRACES]
        if rows is not None:
            Path("cases").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
            source = ["--cases", "cases"]
        asked = ["--judge-model", "m", "--judge-url", model.url] if model else []
        with monkeypatch.context() as patch:
            patch.setattr(sys, "argv", ["goldspan", "score", *map(str, (*source, *asked, *options))])
            for name, value in variables.items():
                patch.setenv(name, value)
            status = run()
        return CommandResult(status, *capsys.readouterr())

    return command


def request_in(received) -> str:
    """The request of the run in a judge request."""
    return evidence_in(received)["request"]


def evidence_in(received) -> dict[str, Any]:
    return json.loads(received.body["messages"][1]["content"].partition("<run>\n")[2].partition("\n</run>")[0])


# --- requests ---------------------------------------------------------------------------------------------------------


def test_every_row_is_judged_and_the_output_order_stays(score):
    opinions = {"Book a trip.": opinion(0.5, "T3"), "Mail me.": opinion(1.0), "Rest.": opinion(0.0)}
    with serving(lambda received, _: opinions[request_in(received)]) as model:
        result = score("--json", rows=offering(*ROWS), model=model)
    assert result.status == 0
    assert [document["run_id"] for document in result.documents] == ["trip", "mail", "rest"]
    assert [(each["value"], each["judgement"]["better_tool"]) for each in result.selections] == [
        (0.5, "mail"),
        (1.0, None),
        (0.0, None),
    ]
    assert [score_in(document, "tool_recall")["value"] for document in result.documents] == [1.0, 1.0, None]
    assert result.summary == "3 runs judged by tiny-judge; 3 requests, 300 tokens in and 60 out"


def test_runs_from_traces_are_judged(score):
    Path("tools.json").write_text(json.dumps(["search_hotels", "book_hotel"]))
    with serving([opinion(1.0)]) as model:
        result = score("-g", GOLDENS, "--judge-tools", "tools.json", "--json", model=model)
    assert [each["value"] for each in result.selections] == [1.0] * 4
    assert {request_in(received) for received in model.requests} >= {"Tell me a joke.", "Which bookings do I have?"}


def test_rows_without_offered_tools_or_a_request_are_not_judged_and_the_summary_says_why(score):
    rows = [ROWS[0], ROWS[1], *offering({"id": "mute", "tools_called": []})]
    with serving([opinion(1.0)]) as model:
        result = score("--json", rows=rows, model=model)
    assert model.requests == []
    assert [each["value"] for each in result.selections] == [None] * 3
    assert result.summary == (
        "0 runs judged by m; 0 requests, 0 tokens in and 0 out; 2 not judged: the tools the agent was offered were not "
        "captured (name them with --judge-tools FILE); 1 not judged: the request was not captured "
        "(`goldspan extract` says how to capture it)"
    )


OPENAI = [{"type": "function", "function": {"name": "book", "description": "Books.", "parameters": {"a": 1}}}]
ANTHROPIC = [{"name": "book", "description": "Books.", "input_schema": {"a": 1}}]
MCP = {"tools": [{"name": "book", "description": "Books.", "inputSchema": {"a": 1}}], "nextCursor": "x"}
DEFINED = [{"id": "T1", "name": "book", "description": "Books.", "parameters": {"a": 1}}]
NAMED = [{"id": "T1", "name": "search"}, {"id": "T2", "name": "book"}]


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        pytest.param('["search", "book"]', NAMED, id="names in JSON"),
        pytest.param("- search\n- book\n", NAMED, id="names in YAML"),
        pytest.param("tools: [search, {name: book}]", NAMED, id="below a key, in YAML"),
        pytest.param(json.dumps(OPENAI), DEFINED, id="OpenAI"),
        pytest.param(json.dumps(ANTHROPIC), DEFINED, id="Anthropic"),
        pytest.param(json.dumps(MCP), DEFINED, id="MCP"),
        pytest.param(json.dumps({"jsonrpc": "2.0", "id": 1, "result": MCP}), DEFINED, id="MCP with its envelope"),
        pytest.param("\ufeff" + json.dumps(MCP), DEFINED, id="a byte order mark"),
    ],
)
def test_offered_tools_are_read_from_files_in_all_common_formats(score, text, shown):
    Path("tools").write_text(text, encoding="utf-8")
    with serving([opinion(1.0)]) as model:
        score("--judge-tools", "tools", rows=ROWS[:1], model=model)
    assert evidence_in(model.requests[0])["tools"] == shown


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        pytest.param(b"{}", "expected a list of tools, found .*", id="a mapping"),
        pytest.param(b"[]", "expected a list of tools, found an empty list", id="empty"),
        pytest.param(b"", "expected a list of tools, found an empty list", id="nothing"),
        pytest.param(b"[5]", "must hold names or definitions of tools, not 5", id="no tool"),
        pytest.param(b"- a\n b: [", "line 2: not YAML", id="no YAML"),
        pytest.param(b"\xff", "is not UTF-8 text", id="no text"),
        pytest.param(None, "cannot be read: No such file", id="no file"),
    ],
)
def test_an_invalid_tools_file_is_refused_before_any_request(score, data, sentence):
    if data is not None:
        Path("tools").write_bytes(data)
    with serving([opinion(1.0)]) as model:
        result = score("--judge-tools", "tools", rows=ROWS, model=model)
    assert (result.status, result.out, model.requests) == (2, "", [])
    assert re.search(sentence, result.err)


def test_options_take_precedence_over_environment_variables(score):
    variables = {
        "GOLDSPAN_JUDGE_MODEL": "other",
        "GOLDSPAN_JUDGE_VOTES": "1",
        "GOLDSPAN_JUDGE_TEMPERATURE": "0.5",
        "GOLDSPAN_JUDGE_SEED": "7",
        "GOLDSPAN_JUDGE_SHOW": "all",
    }
    called = [{"name": "book", "arguments": {"city": "Oslo"}, "result": "done"}]
    rows = offering({"input": "Book.", "tools_called": called})
    with serving([opinion(1.0)]) as model:
        result = score("--judge-votes", 3, "--judge-show", "arguments", rows=rows, model=model, **variables)
    assert result.status == 0
    bodies = [received.body for received in model.requests]
    assert [body["seed"] for body in bodies] == [7, 8, 9]
    assert {(body["model"], body["temperature"]) for body in bodies} == {("m", 0.5)}
    assert evidence_in(model.requests[0])["calls"] == [{"tool": "book", "arguments": {"city": "Oslo"}}]


def test_a_model_named_by_a_variable_is_used_only_with_the_judge_option(score):
    with serving([opinion(1.0)]) as model:
        variables = {"GOLDSPAN_JUDGE_MODEL": "named", "GOLDSPAN_JUDGE_URL": model.url}
        without = score(rows=offering(*ROWS), **variables)
        assert (model.requests, "tool_selection" in without.out + without.err) == ([], False)
        asked = score("--judge", rows=offering(*ROWS), **variables)
    assert asked.summary.startswith("3 runs judged")
    assert {received.body["model"] for received in model.requests} == {"named"}


def test_the_command_judges_all_runs_whatever_the_sampling_variable(score):
    with serving([opinion(1.0)]) as model:
        result = score(rows=offering(*ROWS), model=model, GOLDSPAN_JUDGE_SAMPLE="0")
    assert result.summary.startswith("3 runs judged")
    assert len(model.requests) == 3


# --- output -----------------------------------------------------------------------------------------------------------


def test_the_text_of_the_model_is_shown_only_with_verbose(score):
    rows = offering(*ROWS[:1])
    with serving([opinion(0.5, "T3", "The secret plan.\x1b[31m")]) as model:
        verbose, brief, as_json, as_markdown = (
            score(*options, rows=rows, model=model) for options in (["-v"], [], ["--json"], ["--format", "markdown"])
        )
    lines = [line.strip() for line in verbose.out.splitlines()]
    assert "tiny-judge: The secret plan. [31m" in lines
    assert "asked with temperature 0, seed 0, rubric 1, 100 tokens in, 20 out" in lines
    assert "tiny-judge rates the choice of tools 0.5; mail would have been better." in brief.out
    for result in (brief, as_json, as_markdown):
        assert result.status == 0
        assert "secret" not in result.out + result.err
    assert as_json.selections[0]["judgement"] == {
        "model": "tiny-judge",
        "votes": [0.5],
        "agreement": None,
        "better_tool": "mail",
        "temperature": 0.0,
        "seed": 0,
        "rubric": 1,
        "cached": 0,
        "input_tokens": 100,
        "output_tokens": 20,
        "cost": None,
    }


def test_votes_and_their_cost_are_shown(score):
    scores = [0.2, 0.8, 0.9]
    with serving(lambda _, number: opinion(scores[number % 3])) as model:
        result = score(
            "-v", "--judge-votes", 3, rows=offering(*ROWS[:1]), model=model, GOLDSPAN_JUDGE_PRICES="1,10"
        )  # fmt: skip
    assert (
        "asked with temperature 0, seed 0, rubric 1, votes 0.2, 0.8, 0.9, 300 tokens in, 60 out, $0.0009" in result.out
    )
    assert result.summary == "1 run judged by tiny-judge; 3 requests, 300 tokens in and 60 out, $0.0009"


def test_tokens_that_the_endpoint_does_not_report_are_not_shown_as_0(score):
    answer = json.dumps({"reason": "Fine.", "better_tool": None, "score": 1})
    with serving([content(answer, usage=None)]) as model:
        result = score(rows=offering(*ROWS), model=model, GOLDSPAN_JUDGE_PRICES="1,10")
    assert result.summary == "3 runs judged by tiny-judge; 3 requests; the endpoint does not report tokens"


# --- the cache and the budget -----------------------------------------------------------------------------------------


def test_a_second_run_with_the_same_cache_makes_no_request(score):
    options = ("--json", "--judge-cache", "judge.db")
    with serving([opinion(0.5, "T1")]) as model:
        first = score(*options, rows=offering(*ROWS), model=model)
        second = score(*options, rows=offering(*ROWS), model=model)
        assert len(model.requests) == 3
    assert first.summary == "3 runs judged by tiny-judge; 3 requests, 300 tokens in and 60 out"
    assert second.summary == "3 runs judged by tiny-judge, 3 of them from the cache; 0 requests, 0 tokens in and 0 out"
    assert [each["value"] for each in second.selections] == [each["value"] for each in first.selections]
    assert [each["judgement"]["cached"] for each in second.selections] == [1, 1, 1]
    if os.name == "posix":
        assert stat.S_IMODE(os.stat("judge.db").st_mode) == 0o600


def test_runs_beyond_the_budget_are_not_judged_and_the_summary_says_what_to_do(score):
    options = ("--json", "--judge-daily-tokens", 8000, "--judge-cache", "judge.db")
    with serving([opinion(1.0, prompt_tokens=7000)]) as model:  # a request reserves 1,000 more for its answer
        result = score(*options, rows=offering(*ROWS), model=model, GOLDSPAN_JUDGE_CONCURRENCY="1")
        again = score(*options, rows=offering({**ROWS[0], "input": "Else?"}), model=model)
        assert len(model.requests) == 1
    assert (result.status, again.status) == (0, 0)
    assert "warning" not in result.err
    assert [(each["value"], each["error"]) for each in result.selections] == [(1.0, None), *[(None, "OverBudget")] * 2]
    assert result.summary == (
        "1 run judged by tiny-judge; 1 request, 7,000 tokens in and 20 out; 2 not judged because the budget of 8,000 "
        "tokens (--judge-daily-tokens) for 24 hours is spent: raise it, or judge the rest later; --judge-cache keeps "
        "the answers"
    )
    assert again.selections[0]["error"] == "OverBudget"


def test_the_default_budget_is_a_million_tokens_per_day_and_off_disables_it(score):
    with serving([opinion(1.0, prompt_tokens=999_900)]) as model:
        options = ("--judge-cache", "judge.db")
        first = score(*options, rows=offering(ROWS[0]), model=model)
        second = score(*options, rows=offering(ROWS[1]), model=model)
        third = score(*options, "--judge-daily-tokens", "off", rows=offering(ROWS[1]), model=model)
    assert first.summary.startswith("1 run judged")
    assert "the budget of 1,000,000 tokens" in second.summary
    assert third.summary.startswith("1 run judged")


def test_the_message_about_a_spent_cost_budget_names_its_variable(score):
    variables = {"GOLDSPAN_JUDGE_DAILY_COST": "0.0001", "GOLDSPAN_JUDGE_PRICES": "10,10"}
    with serving([opinion(1.0)]) as model:
        result = score("--judge-daily-tokens", "off", rows=offering(*ROWS), model=model, **variables)
    assert model.requests == []
    assert "3 not judged because the budget of $0.0001 (GOLDSPAN_JUDGE_DAILY_COST) for 24 hours is spent" in result.err


# --- combining and gates ----------------------------------------------------------------------------------------------


def test_combination_min_gives_the_lower_of_the_profile_score_and_the_judge_score(score):
    profile = ("--profile", "deepeval", "--json")
    compared = score(*profile, rows=[SHOES])
    assert score_in(compared.documents[0], "deepeval")["value"] == 1.0
    combined = (*profile, "--judge-combination", "min")
    tools = [{"name": "WebSearch", "description": "Searches the web."}, {"name": "ToolQuery"}, {"name": "Refund"}]
    shoes = offering(SHOES, tools=tools)
    with serving([opinion(0.4, "T3"), opinion(1.0)]) as model:
        lower = score(*combined, rows=shoes, model=model).documents[0]
        higher = score(*combined, rows=shoes, model=model).documents[0]
        missing = {**shoes[0], "expected_tools": ["WebSearch", "Refund"]}
        below = score(*combined, rows=[missing], model=model).documents[0]
    assert [score_in(each, "deepeval")["value"] for each in (lower, higher, below)] == [0.4, 1.0, 0.5]
    assert [score_in(each, "tool_selection")["value"] for each in (lower, higher, below)] == [0.4, 1.0, 1.0]
    assert [each["passed"] for each in (lower, higher, below)] == [False, True, False]


def test_combination_min_lowers_tool_correctness_by_default(score):
    with serving([opinion(0.25)]) as model:
        apart = score("--json", rows=offering(ROWS[0]), model=model).documents[0]
        lowered = score("--json", "--judge-combination", "min", rows=offering(ROWS[0]), model=model).documents[0]
        refused = score("--judge-combination", "min", "-m", "tool_recall", rows=offering(ROWS[0]), model=model)
    assert score_in(apart, "tool_correctness")["value"] == 1.0
    assert score_in(lowered, "tool_correctness")["value"] == 0.25
    assert refused.status == 2
    assert refused.err == "error: --judge-combination min lowers tool_correctness, which --metric leaves out\n"


@pytest.mark.parametrize(("value", "status"), [(0.69, 1), (0.71, 0)])
def test_fail_under_accepts_the_metric_of_the_judge(score, value, status):
    with serving([opinion(value)]) as model:
        result = score("--fail-under", "tool_selection=0.7", rows=offering(*ROWS), model=model)
    assert result.status == status
    assert ("gate failed: tool_selection is 0.6900; required: 0.7" in result.err) is (status == 1)


@pytest.mark.parametrize(
    "option",
    [("--fail-under", "tool_selection=0.7"), ("--threshold", "tool_selection=0.7"), ("--metric", "tool_selection")],
    ids=lambda option: option[0],
)
def test_without_the_judge_option_its_metric_is_refused_with_a_hint(score, option):
    result = score(*option, rows=ROWS)
    assert result.status == 2
    assert result.err == (
        f"error: {option[0]} tool_selection: only the LLM judge computes this metric; turn it on with "
        "`goldspan score --judge`\n"
    )


def test_report_refuses_a_gate_on_the_metric_of_the_judge(score, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["goldspan", "report", str(TRACES), "--fail-under", "tool_selection=0.7"])
    assert run() == 2
    assert "turn it on with `goldspan score --judge`" in capsys.readouterr().err


def test_a_threshold_option_for_tool_selection_replaces_that_of_the_golden(score):
    Path("goldens.yaml").write_text(
        "goldens: [{id: g, input: Mail me., tools: [mail], thresholds: {tool_selection: 0.9}}]"
    )
    row = {name: value for name, value in ROWS[1].items() if name != "expected_tools"}
    with serving([opinion(0.8)]) as model:

        def judged(*options):
            document = score(*options, "-g", "goldens.yaml", "--json", rows=offering(row), model=model).documents[0]
            return score_in(document, "tool_selection")["threshold"], document["passed"]

        assert judged() == (0.9, False)
        assert judged("--judge-threshold", 0.7) == (0.9, False)
        assert judged("--threshold", "tool_selection=0.7") == (0.7, True)
        assert judged("--threshold", "tool_selection=0.85") == (0.85, False)
        assert judged("-m", "tool_recall", "--threshold", "tool_selection=0.7") == (0.7, True)
        plain = score("--judge-threshold", 0.85, "--json", rows=offering(ROWS[1]), model=model).documents[0]
    assert (score_in(plain, "tool_selection")["threshold"], plain["passed"]) == (0.85, False)


# --- failures ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("reply", "kind", "message"),
    [
        pytest.param(
            failure(500, retry_after="0"),
            "EndpointError",
            "EndpointError: the endpoint answered 500: The model has failed.",
            id="500",
        ),
        pytest.param(
            failure(401, message="Incorrect API key provided: the-key."),
            "EndpointRefused",
            "EndpointRefused: the endpoint answered 401: Incorrect API key provided: [key].",
            id="a wrong key",
        ),
        pytest.param(
            content("I cannot."), "MalformedAnswer", "MalformedAnswer: the model's answer is not JSON", id="no JSON"
        ),
    ],
)
def test_a_failing_judge_is_reported_once_and_affects_no_other_metric(score, reply, kind, message):
    with serving([reply]) as model:
        result = score("--json", rows=offering(*ROWS), model=model, GOLDSPAN_JUDGE_API_KEY="the-key")
    assert result.status == 0
    assert [(each["value"], each["error"]) for each in result.selections] == [(None, kind)] * 3
    assert score_in(result.documents[0], "tool_recall")["value"] == 1.0
    assert result.err.splitlines()[0] == f"warning: the judge failed: {message}"
    assert result.err.count(message) == 1
    assert result.summary.startswith("0 runs judged by m; ")
    assert result.summary.endswith(f"; 3 failed ({kind} 3)")
    assert "the-key" not in result.out + result.err


def test_an_unreachable_endpoint_is_an_error_in_each_score(score, monkeypatch):
    monkeypatch.setattr("goldspan.judge.judge_session._INITIAL_BACKOFF_S", 0.05)
    with serving([opinion(1.0)]) as model:
        pass
    result = score("--json", rows=offering(*ROWS), model=model)
    assert result.status == 0
    assert [each["error"] for each in result.selections] == ["Unreachable"] * 3
    assert result.summary.endswith("; 3 failed (Unreachable 3)")


def test_a_gate_fails_when_the_judge_fails(score):
    with serving([failure(401)]) as model:
        result = score("--fail-under", "tool_selection=0.1", rows=offering(*ROWS), model=model)
    assert result.status == 1
    assert "gate failed: tool_selection could not be evaluated on any run; required: 0.1" in result.err


def test_a_judge_failure_on_one_row_does_not_affect_the_others(score):
    with serving(lambda received, _: failure(401) if request_in(received) == "Mail me." else opinion(1.0)) as model:
        result = score("--json", rows=offering(*ROWS), model=model)
    assert [each["value"] for each in result.selections] == [1.0, None, 1.0]
    assert result.summary.endswith("; 1 failed (EndpointRefused 1)")


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        pytest.param(["--judge"], "--judge needs a model", id="no model"),
        pytest.param(["--judge-votes", "3"], "--judge-votes needs --judge", id="an option alone"),
        pytest.param(["--judge-daily-tokens", "1"], "--judge-daily-tokens needs --judge", id="another option alone"),
        pytest.param(["--judge-tools", "x"], "--judge-tools needs --judge", id="tools alone"),
        pytest.param(
            ["--judge-model", "m"],
            "the judge needs a key for https://api.openai.com/v1: set OPENAI_API_KEY or GOLDSPAN_JUDGE_API_KEY",
            id="no key",
        ),
        pytest.param(
            ["--judge-model", "m", "--judge-url", "https://key@host/v1"],
            "the judge's URL is written as https://api.openai.com/v1, without a password",
            id="a password in the URL",
        ),
        pytest.param(
            ["--judge-model", "m", "--judge-url", "http://localhost/v1", "--judge-daily-tokens", "many"],
            "--judge-daily-tokens takes an integer or off, not 'many'",
            id="no number",
        ),
        pytest.param(
            ["--judge-model", "m", "--judge-url", "http://localhost/v1", "--judge-cache", "cases"],
            "cases: the judge's answers cannot be kept there",
            id="no cache",
        ),
    ],
)
def test_invalid_judge_options_are_refused_before_any_row_is_judged(score, options, sentence):
    result = score(*options, rows=offering(*ROWS))
    assert (result.status, result.out) == (2, "")
    assert result.err.startswith(f"error: {sentence}")


def test_an_unknown_judge_variable_causes_a_warning(score):
    with serving([opinion(1.0)]) as model:
        result = score(rows=offering(*ROWS), model=model, GOLDSPAN_JUDGE_VOTE="3")
    assert "warning: there is no setting GOLDSPAN_JUDGE_VOTE; did you mean GOLDSPAN_JUDGE_VOTES?" in result.err


def test_the_api_key_comes_only_from_the_environment_and_is_not_printed(score):
    with serving([opinion(1.0)]) as model:
        result = score("-v", rows=offering(*ROWS), model=model, GOLDSPAN_JUDGE_API_KEY="the-key")
    assert {received.headers["authorization"] for received in model.requests} == {"Bearer the-key"}
    assert "the-key" not in result.out + result.err
    command = typer.main.get_command(app).commands["score"].callback()
    options = [option for each in command.params for option in each.opts]
    assert "--judge-model" in options
    assert not [option for option in options if "key" in option and option.startswith("--judge")]


def test_without_the_extra_the_error_names_the_package_to_install(score, monkeypatch):
    monkeypatch.setitem(sys.modules, "httpx2", None)
    result = score("--judge-model", "m", "--judge-url", "http://localhost/v1", rows=offering(*ROWS))
    assert result.status == 2
    assert "goldspan[judge]" in result.err


def test_the_choices_of_the_options_equal_the_supported_values():
    def offered(option):
        return set(get_args(get_args(get_args(option)[0])[0]))

    assert offered(JudgeShowOption) == set(CALL_DETAILS)
    assert offered(JudgeCombinationOption) == set(COMBINATIONS)


# --- on a terminal ----------------------------------------------------------------------------------------------------


def process(*options, rows, model, **streams):
    """The command in a subprocess."""
    Path("cases").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    asked = ["--cases", "cases", "--judge-model", "m", "--judge-url", model.url]
    return subprocess.Popen(
        [sys.executable, "-m", "goldspan", "score", *asked, *map(str, options)],
        env=unmeasured(TERM="xterm-256color", PYTHONUTF8="1"),
        **streams,
    )


@pytest.mark.e2e
@pytest.mark.skipif(os.name == "nt", reason="Windows sends no such signal to a process")
def test_sigint_ends_the_command_while_the_model_does_not_answer(score):
    with serving([hang(60)]) as model:
        command = process(rows=offering(*ROWS), model=model, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        eventually(lambda: len(model.requests) == 3, "nothing is asked")
        command.send_signal(signal.SIGINT)
        started = time.monotonic()
        _, stderr = command.communicate(timeout=30)
        assert command.returncode == 130
        assert time.monotonic() - started < 10
    assert stderr == b""


@pytest.mark.e2e
def test_the_progress_bar_counts_the_judged_runs(score):
    pty = pytest.importorskip("pty", reason="Windows has no pseudo-terminals")
    ours, theirs = pty.openpty()
    rows = offering(*({**ROWS[0], "id": str(number), "input": f"Trip {number}."} for number in range(40)))
    with serving([after(0.1, opinion(1.0))]) as model:
        command = process(rows=rows, model=model, stdout=subprocess.DEVNULL, stderr=theirs)
        os.close(theirs)
        shown = b""
        try:
            while piece := os.read(ours, 65536):
                shown += piece
        except OSError:  # Linux raises it when the other side is closed
            pass
        os.close(ours)
        assert command.wait(60) == 0
    plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", shown.decode())
    counts = [int(found) for found in re.findall(r"evaluating +\S+ +(\d+)/40", plain)]
    assert {0, 40} < set(counts)
    assert counts == sorted(counts)
    assert "40 runs judged by tiny-judge; 40 requests" in plain
