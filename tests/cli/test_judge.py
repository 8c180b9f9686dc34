"""`goldspan score --judge`: a model is asked beside the comparison, over real HTTP."""

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


class Said(NamedTuple):
    """What a command printed and its exit status."""

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
        """The line that says what asking came to."""
        (line,) = [line for line in self.err.splitlines() if line.startswith("tool_selection: ")]
        return line.removeprefix("tool_selection: ")


def score_in(document: dict[str, Any], metric: str) -> dict[str, Any]:
    (score,) = [score for score in document["scores"] if score["metric"] == metric]
    return score


def offering(*rows: dict[str, Any], tools: list[Any] | None = None) -> list[dict[str, Any]]:
    return [{"available_tools": OFFERED if tools is None else tools, **row} for row in rows]


@pytest.fixture
def score(tmp_path, monkeypatch, capsys):
    """Run `goldspan score` in a folder of its own, with no variables but those that are given."""
    monkeypatch.chdir(tmp_path)
    for name in list(os.environ):
        if name.startswith("GOLDSPAN_JUDGE_") or name == "OPENAI_API_KEY":
            monkeypatch.delenv(name)

    def command(*options, rows=None, model=None, **variables) -> Said:
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
        return Said(status, *capsys.readouterr())

    return command


def request_in(received) -> str:
    """What the user of the run asked."""
    return evidence_in(received)["request"]


def evidence_in(received) -> dict[str, Any]:
    return json.loads(received.body["messages"][1]["content"].partition("<run>\n")[2].partition("\n</run>")[0])


# --- asking -----------------------------------------------------------------------------------------------------------


def test_every_row_is_asked_about_after_the_comparison_and_the_order_stays(score):
    opinions = {"Book a trip.": opinion(0.5, "T3"), "Mail me.": opinion(1.0), "Rest.": opinion(0.0)}
    with serving(lambda received, _: opinions[request_in(received)]) as model:
        said = score("--json", rows=offering(*ROWS), model=model)
    assert said.status == 0
    assert [document["run_id"] for document in said.documents] == ["trip", "mail", "rest"]
    assert [(each["value"], each["judgement"]["better_tool"]) for each in said.selections] == [
        (0.5, "mail"),
        (1.0, None),
        (0.0, None),
    ]
    assert [score_in(document, "tool_recall")["value"] for document in said.documents] == [1.0, 1.0, None]
    assert said.summary == "3 runs judged by tiny-judge; 3 requests, 300 tokens in and 60 out"


def test_runs_of_traces_are_asked_about_alike(score):
    Path("tools.json").write_text(json.dumps(["search_hotels", "book_hotel"]))
    with serving([opinion(1.0)]) as model:
        said = score("-g", GOLDENS, "--judge-tools", "tools.json", "--json", model=model)
    assert [each["value"] for each in said.selections] == [1.0] * 4
    assert {request_in(received) for received in model.requests} >= {"Tell me a joke.", "Which bookings do I have?"}


def test_rows_without_offered_tools_or_a_request_are_not_asked_about_and_the_summary_says_why(score):
    rows = [ROWS[0], ROWS[1], *offering({"id": "mute", "tools_called": []})]
    with serving([opinion(1.0)]) as model:
        said = score("--json", rows=rows, model=model)
    assert model.requests == []
    assert [each["value"] for each in said.selections] == [None] * 3
    assert said.summary == (
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
def test_offered_tools_are_read_from_a_file_as_they_are_written_anywhere(score, text, shown):
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
def test_a_file_without_tools_is_an_error_before_anything_is_asked(score, data, sentence):
    if data is not None:
        Path("tools").write_bytes(data)
    with serving([opinion(1.0)]) as model:
        said = score("--judge-tools", "tools", rows=ROWS, model=model)
    assert (said.status, said.out, model.requests) == (2, "", [])
    assert re.search(sentence, said.err)


def test_flags_go_before_variables_and_variables_say_the_rest(score):
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
        said = score("--judge-votes", 3, "--judge-show", "arguments", rows=rows, model=model, **variables)
    assert said.status == 0
    bodies = [received.body for received in model.requests]
    assert [body["seed"] for body in bodies] == [7, 8, 9]
    assert {(body["model"], body["temperature"]) for body in bodies} == {("m", 0.5)}
    assert evidence_in(model.requests[0])["calls"] == [{"tool": "book", "arguments": {"city": "Oslo"}}]


def test_the_model_may_be_named_by_a_variable_alone_and_is_asked_only_with_the_flag(score):
    with serving([opinion(1.0)]) as model:
        variables = {"GOLDSPAN_JUDGE_MODEL": "named", "GOLDSPAN_JUDGE_URL": model.url}
        without = score(rows=offering(*ROWS), **variables)
        assert (model.requests, "tool_selection" in without.out + without.err) == ([], False)
        asked = score("--judge", rows=offering(*ROWS), **variables)
    assert asked.summary.startswith("3 runs judged")
    assert {received.body["model"] for received in model.requests} == {"named"}


def test_all_runs_are_asked_about_whatever_share_is_sampled_in_applications(score):
    with serving([opinion(1.0)]) as model:
        said = score(rows=offering(*ROWS), model=model, GOLDSPAN_JUDGE_SAMPLE="0")
    assert said.summary.startswith("3 runs judged")
    assert len(model.requests) == 3


# --- what is shown ----------------------------------------------------------------------------------------------------


def test_the_models_words_are_shown_where_everything_is_and_nowhere_else(score):
    rows = offering(*ROWS[:1])
    with serving([opinion(0.5, "T3", "The secret plan.\x1b[31m")]) as model:
        verbose, brief, as_json, as_markdown = (
            score(*options, rows=rows, model=model) for options in (["-v"], [], ["--json"], ["--format", "markdown"])
        )
    lines = [line.strip() for line in verbose.out.splitlines()]
    assert "tiny-judge: The secret plan. [31m" in lines
    assert "asked with temperature 0, seed 0, rubric 1, 100 tokens in, 20 out" in lines
    assert "tiny-judge rates the choice of tools 0.5; mail would have been better." in brief.out
    for said in (brief, as_json, as_markdown):
        assert said.status == 0
        assert "secret" not in said.out + said.err
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


def test_several_votes_and_what_they_cost_are_shown(score):
    scores = [0.2, 0.8, 0.9]
    with serving(lambda _, number: opinion(scores[number % 3])) as model:
        said = score(
            "-v", "--judge-votes", 3, rows=offering(*ROWS[:1]), model=model, GOLDSPAN_JUDGE_PRICES="1,10"
        )  # fmt: skip
    assert "asked with temperature 0, seed 0, rubric 1, votes 0.2, 0.8, 0.9, 300 tokens in, 60 out, $0.0009" in said.out
    assert said.summary == "1 run judged by tiny-judge; 3 requests, 300 tokens in and 60 out, $0.0009"


def test_tokens_that_an_endpoint_does_not_tell_are_not_said_to_be_none(score):
    answer = json.dumps({"reason": "Fine.", "better_tool": None, "score": 1})
    with serving([content(answer, usage=None)]) as model:
        said = score(rows=offering(*ROWS), model=model, GOLDSPAN_JUDGE_PRICES="1,10")
    assert said.summary == "3 runs judged by tiny-judge; 3 requests; the endpoint does not report tokens"


# --- the cache and the budget -----------------------------------------------------------------------------------------


def test_a_second_run_with_the_same_cache_makes_no_request_and_says_so(score):
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


def test_when_the_budget_is_spent_the_rest_is_not_asked_about_and_the_summary_says_what_to_do(score):
    options = ("--json", "--judge-daily-tokens", 8000, "--judge-cache", "judge.db")
    with serving([opinion(1.0, prompt_tokens=7000)]) as model:  # an answer alone may take 1,000 more
        said = score(*options, rows=offering(*ROWS), model=model, GOLDSPAN_JUDGE_CONCURRENCY="1")
        again = score(*options, rows=offering({**ROWS[0], "input": "Else?"}), model=model)
        assert len(model.requests) == 1
    assert (said.status, again.status) == (0, 0)
    assert "warning" not in said.err
    assert [(each["value"], each["error"]) for each in said.selections] == [(1.0, None), *[(None, "OverBudget")] * 2]
    assert said.summary == (
        "1 run judged by tiny-judge; 1 request, 7,000 tokens in and 20 out; 2 not judged because the budget of 8,000 "
        "tokens (--judge-daily-tokens) for 24 hours is spent: raise it, or judge the rest later; --judge-cache keeps "
        "the answers"
    )
    assert again.selections[0]["error"] == "OverBudget"


def test_a_million_tokens_a_day_are_the_budget_where_nothing_is_said_and_off_is_no_limit(score):
    with serving([opinion(1.0, prompt_tokens=999_900)]) as model:
        options = ("--judge-cache", "judge.db")
        first = score(*options, rows=offering(ROWS[0]), model=model)
        second = score(*options, rows=offering(ROWS[1]), model=model)
        third = score(*options, "--judge-daily-tokens", "off", rows=offering(ROWS[1]), model=model)
    assert first.summary.startswith("1 run judged")
    assert "the budget of 1,000,000 tokens" in second.summary
    assert third.summary.startswith("1 run judged")


def test_a_budget_of_money_is_told_by_its_variable(score):
    variables = {"GOLDSPAN_JUDGE_DAILY_COST": "0.0001", "GOLDSPAN_JUDGE_PRICES": "10,10"}
    with serving([opinion(1.0)]) as model:
        said = score("--judge-daily-tokens", "off", rows=offering(*ROWS), model=model, **variables)
    assert model.requests == []
    assert "3 not judged because the budget of $0.0001 (GOLDSPAN_JUDGE_DAILY_COST) for 24 hours is spent" in said.err


# --- combining and gates ----------------------------------------------------------------------------------------------


def test_deepevals_example_is_1_compared_and_the_lower_of_both_with_a_judge(score):
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


def test_min_lowers_tool_correctness_where_no_other_number_is_asked_for(score):
    with serving([opinion(0.25)]) as model:
        apart = score("--json", rows=offering(ROWS[0]), model=model).documents[0]
        lowered = score("--json", "--judge-combination", "min", rows=offering(ROWS[0]), model=model).documents[0]
        told = score("--judge-combination", "min", "-m", "tool_recall", rows=offering(ROWS[0]), model=model)
    assert score_in(apart, "tool_correctness")["value"] == 1.0
    assert score_in(lowered, "tool_correctness")["value"] == 0.25
    assert told.status == 2
    assert told.err == "error: --judge-combination min lowers tool_correctness, which --metric leaves out\n"


@pytest.mark.parametrize(("value", "status"), [(0.69, 1), (0.71, 0)])
def test_a_command_can_fail_under_what_the_model_says(score, value, status):
    with serving([opinion(value)]) as model:
        said = score("--fail-under", "tool_selection=0.7", rows=offering(*ROWS), model=model)
    assert said.status == status
    assert ("gate failed: tool_selection is 0.6900; required: 0.7" in said.err) is (status == 1)


@pytest.mark.parametrize(
    "option",
    [("--fail-under", "tool_selection=0.7"), ("--threshold", "tool_selection=0.7"), ("--metric", "tool_selection")],
    ids=lambda option: option[0],
)
def test_without_a_judge_its_metric_is_refused_with_what_to_say(score, option):
    said = score(*option, rows=ROWS)
    assert said.status == 2
    assert said.err == (
        f"error: {option[0]} tool_selection: only the LLM judge computes this metric; turn it on with "
        "`goldspan score --judge`\n"
    )


def test_a_report_of_traces_asks_nobody_and_says_who_does(score, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["goldspan", "report", str(TRACES), "--fail-under", "tool_selection=0.7"])
    assert run() == 2
    assert "turn it on with `goldspan score --judge`" in capsys.readouterr().err


def test_a_threshold_makes_a_gate_of_it_and_stands_in_for_that_of_a_golden(score):
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


# --- what goes wrong --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("reply", "kind", "told"),
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
def test_a_judge_that_fails_is_told_once_and_costs_no_other_number(score, reply, kind, told):
    with serving([reply]) as model:
        said = score("--json", rows=offering(*ROWS), model=model, GOLDSPAN_JUDGE_API_KEY="the-key")
    assert said.status == 0
    assert [(each["value"], each["error"]) for each in said.selections] == [(None, kind)] * 3
    assert score_in(said.documents[0], "tool_recall")["value"] == 1.0
    assert said.err.splitlines()[0] == f"warning: the judge failed: {told}"
    assert said.err.count(told) == 1
    assert said.summary.startswith("0 runs judged by m; ")
    assert said.summary.endswith(f"; 3 failed ({kind} 3)")
    assert "the-key" not in said.out + said.err


def test_an_endpoint_that_is_not_there_is_an_error_in_the_scores_too(score, monkeypatch):
    monkeypatch.setattr("goldspan.judge.judge_session._INITIAL_BACKOFF_S", 0.05)
    with serving([opinion(1.0)]) as model:
        pass
    said = score("--json", rows=offering(*ROWS), model=model)
    assert said.status == 0
    assert [each["error"] for each in said.selections] == ["Unreachable"] * 3
    assert said.summary.endswith("; 3 failed (Unreachable 3)")


def test_a_gate_is_not_met_by_a_judge_that_fails(score):
    with serving([failure(401)]) as model:
        said = score("--fail-under", "tool_selection=0.1", rows=offering(*ROWS), model=model)
    assert said.status == 1
    assert "gate failed: tool_selection could not be evaluated on any run; required: 0.1" in said.err


def test_a_row_at_which_the_judge_fails_costs_no_other_row(score):
    with serving(lambda received, _: failure(401) if request_in(received) == "Mail me." else opinion(1.0)) as model:
        said = score("--json", rows=offering(*ROWS), model=model)
    assert [each["value"] for each in said.selections] == [1.0, None, 1.0]
    assert said.summary.endswith("; 1 failed (EndpointRefused 1)")


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
def test_what_cannot_be_is_told_before_anything_is_judged(score, options, sentence):
    said = score(*options, rows=offering(*ROWS))
    assert (said.status, said.out) == (2, "")
    assert said.err.startswith(f"error: {sentence}")


def test_a_variable_that_says_nothing_is_pointed_out(score):
    with serving([opinion(1.0)]) as model:
        said = score(rows=offering(*ROWS), model=model, GOLDSPAN_JUDGE_VOTE="3")
    assert "warning: there is no setting GOLDSPAN_JUDGE_VOTE; did you mean GOLDSPAN_JUDGE_VOTES?" in said.err


def test_the_key_is_sent_to_the_endpoint_and_there_is_no_option_for_it(score):
    with serving([opinion(1.0)]) as model:
        said = score("-v", rows=offering(*ROWS), model=model, GOLDSPAN_JUDGE_API_KEY="the-key")
    assert {received.headers["authorization"] for received in model.requests} == {"Bearer the-key"}
    assert "the-key" not in said.out + said.err
    command = typer.main.get_command(app).commands["score"].callback()
    options = [option for each in command.params for option in each.opts]
    assert "--judge-model" in options
    assert not [option for option in options if "key" in option and option.startswith("--judge")]


def test_without_the_extra_it_is_said_what_to_install(score, monkeypatch):
    monkeypatch.setitem(sys.modules, "httpx2", None)
    said = score("--judge-model", "m", "--judge-url", "http://localhost/v1", rows=offering(*ROWS))
    assert said.status == 2
    assert "goldspan[judge]" in said.err


def test_the_options_offer_what_there_is():
    def offered(option):
        return set(get_args(get_args(get_args(option)[0])[0]))

    assert offered(JudgeShowOption) == set(CALL_DETAILS)
    assert offered(JudgeCombinationOption) == set(COMBINATIONS)


# --- on a terminal ----------------------------------------------------------------------------------------------------


def process(*options, rows, model, **streams):
    """The command as a process of its own."""
    Path("cases").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    asked = ["--cases", "cases", "--judge-model", "m", "--judge-url", model.url]
    return subprocess.Popen(
        [sys.executable, "-m", "goldspan", "score", *asked, *map(str, options)],
        env=unmeasured(TERM="xterm-256color", PYTHONUTF8="1"),
        **streams,
    )


@pytest.mark.e2e
@pytest.mark.skipif(os.name == "nt", reason="Windows sends no such signal to a process")
def test_it_can_be_cancelled_while_the_model_is_silent(score):
    with serving([hang(60)]) as model:
        command = process(rows=offering(*ROWS), model=model, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        eventually(lambda: len(model.requests) == 3, "nothing is asked")
        command.send_signal(signal.SIGINT)
        started = time.monotonic()
        _, told = command.communicate(timeout=30)
        assert command.returncode == 130
        assert time.monotonic() - started < 10
    assert told == b""


def test_the_bar_counts_what_the_model_has_judged(score):
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
        except OSError:  # Linux says so when the other side has closed
            pass
        os.close(ours)
        assert command.wait(60) == 0
    plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", shown.decode())
    counts = [int(found) for found in re.findall(r"evaluating +\S+ +(\d+)/40", plain)]
    assert {0, 40} < set(counts)
    assert counts == sorted(counts)
    assert "40 runs judged by tiny-judge; 40 requests" in plain
