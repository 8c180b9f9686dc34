"""`goldspan run`: its output, its exit status, and how it is interrupted and resumed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from goldspan import GoldspanError, Run, evaluate, load_goldens, read_results
from goldspan.cli import agent_results
from goldspan.cli.agent_results import exit_despite_hanging_agents, filter_goldens
from goldspan.testing.agent_calls import load_agent
from goldspan.testing.span_capture import span_capture
from support.command_line import Goldspan

BOT = """
import asyncio, sys, time
import goldspan

@goldspan.trace
def search_hotels(city): return [f"{city} Inn"]

@goldspan.trace
def book_hotel(hotel): return f"booked {hotel}"

def answer(request):
    print("thinking about", request)
    hotel, *_ = search_hotels("Paris")
    if "book" in request:
        book_hotel(hotel)
    if "joke" in request:
        raise ValueError("no jokes")

class Bots:
    async def forgetful(self, request):
        search_hotels("Paris")

    async def slow(self, request):
        await asyncio.sleep(0 if "joke" in request else 60)

bots = Bots()
calls = {}

def flaky(request):
    calls[request] = calls.get(request, 0) + 1
    if calls[request] % 2:
        answer(request.replace("joke", ""))

def plain(request):
    pass
"""
GOLDENS = """
goldens:
  - id: book
    input: Find a hotel and book it.
    tools: [search_hotels, {name: book_hotel, arguments: {hotel: Paris Inn}}]
    tags: [smoke, write]
  - id: find
    input: Find a hotel.
    tools: [search_hotels]
    tags: [smoke]
  - id: joke
    input: Tell a joke.
    tools: [search_hotels]
"""


@pytest.fixture(autouse=True)
def _project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    (tmp_path / "bot_of_tests.py").write_text(BOT)
    (tmp_path / "goldens.yaml").write_text(GOLDENS)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    yield
    sys.modules.pop("bot_of_tests", None)


ANSWER = ("run", "bot_of_tests:answer", "-g", "goldens.yaml")


def test_failures_errors_and_a_summary_are_printed(goldspan: Goldspan) -> None:
    result = goldspan("run", "bot_of_tests:bots.forgetful", "-g", "goldens.yaml")
    assert result.status == 0
    assert "    Expected book_hotel was not called." in result.lines
    assert result.lines[-1].startswith(
        "cases: 3, of which 2 passed, 1 failed; pass rate 0.6667, 95 % interval 0.2077 to"
    )
    assert any(line.split() == ["tool_recall", "0.8333", "3"] for line in result.lines)
    assert "results: goldspan-results.jsonl" in result.err


def test_an_error_is_one_line_and_what_the_agent_prints_goes_to_standard_error(goldspan: Goldspan) -> None:
    result = goldspan(*ANSWER)
    assert "error joke  ValueError: no jokes" in result.lines
    assert result.lines[-1].startswith("cases: 3, of which 2 passed, 0 failed, 1 raised; pass rate")
    assert "thinking" not in result.out
    assert "thinking about Find a hotel." in result.err


def test_json_prints_the_lines_of_the_results_file(goldspan: Goldspan) -> None:
    result = goldspan(*ANSWER, "--json")
    saved = Path("goldspan-results.jsonl").read_text(encoding="utf-8").splitlines()
    assert result.out.splitlines() == saved[1:]
    header = json.loads(saved[0])
    assert (header["agent"], header["goldens"]) == ("bot_of_tests:answer", ["goldens.yaml"])
    assert {document["golden_id"]: document["source"]["line"] for document in result.documents} == {
        "book": 3, "find": 7, "joke": 11
    }  # fmt: skip


def test_an_evaluation_in_the_results_is_what_score_prints_for_the_run(goldspan: Goldspan) -> None:
    goldspan(*ANSWER, "--keep-arguments")
    goldens = load_goldens("goldens.yaml")
    for case in read_results("goldspan-results.jsonl").cases[:2]:
        run = case.to_run()
        assert isinstance(run, Run)
        assert case.evaluation is not None
        assert evaluate(run, goldens).digest == case.evaluation["digest"]


@pytest.mark.parametrize(
    ("gates", "status"),
    [
        (["passed=0.6"], 0),
        (["passed=0.7"], 1),
        (["tool_recall=1"], 0),
        (["tool_recall=1", "passed=1"], 1),
        (["argument_correctness=1"], 0),
        (["result_correctness=0"], 1),
    ],
)
def test_the_exit_status_is_that_of_the_gates(goldspan: Goldspan, gates: list[str], status: int) -> None:
    result = goldspan(*ANSWER, *(word for gate in gates for word in ("--fail-under", gate)))
    assert result.status == status
    assert ("gate failed" in result.err) is bool(status)


def test_cases_without_a_verdict_count_as_not_passed_on_request(goldspan: Goldspan) -> None:
    Path("unknown.yaml").write_text("- {id: a, input: Hi., tools: [search_hotels], metrics: [unknown_tools], "
                                    "thresholds: {unknown_tools: 1}}\n")  # fmt: skip
    command = ("run", "bot_of_tests:bots.forgetful", "-g", "unknown.yaml")
    assert goldspan(*command, "--fail-under", "passed=0", "--fail-on-unknown").status == 0
    result = goldspan(*command, "--fail-under", "passed=0.5", "--fail-on-unknown")
    assert result.status == 1
    assert "a, trial 1 (a):" in result.err
    assert result.lines[-1] == "cases: 1, of which 0 passed, 0 failed, 1 not evaluated"


def test_trials_print_pass_hat_k_and_pass_at_k_and_the_unreliable_goldens(goldspan: Goldspan) -> None:
    command = ("run", "bot_of_tests:flaky", "-g", "goldens.yaml", "--trials", "2", "--concurrency", "1")
    result = goldspan(*command, "--fail-under", "pass^2=0.1", "--fail-under", "pass@2=1")
    assert result.status == 1
    assert "gate failed: pass^2 is 0.0000; required: 0.1" in result.err
    assert "pass@2" not in result.err
    rows = [line.split() for line in result.lines]
    assert ["k", "pass^k", "95", "%", "interval", "pass@k", "95", "%", "interval"] in rows
    assert ["1", "0.5000", "0.5000", "to", "0.5000", "0.5000", "0.5000", "to", "0.5000"] in rows
    assert ["2", "0.0000", "0.0000", "to", "0.0000", "1.0000", "1.0000", "to", "1.0000"] in rows
    assert [row for row in rows if row[1:] == ["1", "of", "2"]] == [
        [name, "1", "of", "2"] for name in ("book", "find", "joke")
    ]
    assert "trial 2:" in result.lines
    assert result.lines[-1] == "cases: 6, of which 3 passed, 3 failed"


def test_failures_beyond_the_limit_are_counted(goldspan: Goldspan) -> None:
    result = goldspan("run", "bot_of_tests:plain", "-g", "goldens.yaml", "--limit", "1")
    assert "2 more cases did not pass; --limit 0 shows all" in result.lines
    assert "more cases" not in goldspan("run", "bot_of_tests:plain", "-g", "goldens.yaml", "--limit", "0").out


def test_golden_and_tag_select_goldens(goldspan: Goldspan) -> None:
    def ran(*arguments: str) -> list[str]:
        return sorted(document["golden_id"] for document in goldspan(*ANSWER, "--json", *arguments).documents)

    assert ran("--golden", "find") == ["find"]
    assert ran("--tag", "smoke") == ["book", "find"]
    assert ran("--tag", "smoke", "--golden", "find", "--golden", "joke") == ["find"]


def test_no_selection_keeps_the_goldens_and_a_selection_keeps_their_declarations() -> None:
    Path("declared.yaml").write_text("servers: [shop]\ngoldens:\n- {id: a, tools: [], tags: x}\n- {id: b, tools: []}\n")
    goldens = load_goldens("declared.yaml", near=None)
    assert filter_goldens(goldens, None, []) is goldens
    selected = filter_goldens(goldens, None, ["x"])
    assert [golden.id for golden in selected] == ["a"]
    assert (selected.vocabulary, selected.near) == (goldens.vocabulary, None)


@pytest.mark.e2e
def test_what_no_instrumentation_shows_is_explained() -> None:
    code = "from goldspan.cli import main; main()"
    Path("bare.py").write_text("def agent(request): pass\n")
    command = [sys.executable, "-c", code, "run", "bare:agent", "-g", "goldens.yaml"]
    done = subprocess.run(command, capture_output=True, encoding="utf-8", check=False)
    assert done.returncode == 0
    assert done.stdout.splitlines()[-1] == "cases: 3, of which 0 passed, 0 failed, 3 not evaluated"
    assert "@goldspan.trace" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["bot_of_tests:answer"], "name the goldens to run the agent on: --goldens FILE"),
        (["bot_of_tests", "-g", "goldens.yaml"], "the agent is named as MODULE:FUNCTION, such as app.agents:answer"),
        (["bot_of_tests:answr", "-g", "goldens.yaml"], "has no 'answr'. Did you mean 'answer'?"),
        (["bot_of_tests:bots.fast", "-g", "goldens.yaml"], "has no 'fast'."),
        (["no_such_bot:answer", "-g", "goldens.yaml"], "there is no module 'no_such_bot'"),
        (["os.no_such:answer", "-g", "goldens.yaml"], "there is no module 'os.no_such'"),
        (["broken:answer", "-g", "goldens.yaml"], "importing it failed: No module named 'no_such_dependency'"),
        (["raising:answer", "-g", "goldens.yaml"], "importing it failed: ZeroDivisionError: division by zero"),
        (["bot_of_tests:answer", "-g", "no.yaml"], "no.yaml: cannot be read: there is no such file"),
        (["bot_of_tests:answer", "-g", "empty.yaml"], "empty.yaml: the file holds no golden"),
        (["bot_of_tests:answer", "-g", "twice.yaml"], "golden 'a': the id is already taken"),
        (["bot_of_tests:answer", "-g", "without_input.yaml"], "the golden 'a' has no input to run the agent on"),
        (["bot_of_tests:answer", "-g", "goldens.yaml", "--golden", "bok"], "has the id 'bok'. Did you mean 'book'?"),
        (["bot_of_tests:answer", "-g", "goldens.yaml", "--tag", "smok"], "no golden has the tag 'smok'. Did you mean"),
        (["bot_of_tests:answer", "-g", "goldens.yaml", "--tag", "smoke", "--golden", "joke"], "no golden has both"),
        (["bot_of_tests:answer", "-g", "goldens.yaml", "--fail-under", "pass^2=1"], "pass^2: this metric is not"),
        (["bot_of_tests:answer", "-g", "goldens.yaml", "--metric", "tool_recal"], "Did you mean 'tool_recall'?"),
        (["bot_of_tests:answer", "-g", "goldens.yaml", "--results", "goldens.yaml"], "is not a results file"),
    ],
)  # fmt: skip
def test_wrong_use_is_one_sentence_and_exit_status_2(goldspan: Goldspan, arguments: list[str], complaint: str) -> None:
    Path("broken.py").write_text("import no_such_dependency\n")
    Path("raising.py").write_text("1 / 0\n")
    Path("empty.yaml").write_text("goldens: []\n")
    Path("twice.yaml").write_text("- {id: a, input: x, tools: []}\n- {id: a, input: y, tools: []}\n")
    Path("without_input.yaml").write_text("- {id: a, tools: []}\n")
    result = goldspan("run", *arguments)
    assert result.status == 2
    assert complaint in result.err
    assert result.err.startswith("error: ")
    assert len(result.err.splitlines()) == 1
    assert result.out == ""


def test_an_agent_is_found_in_the_current_directory_by_an_attribute_path() -> None:
    assert load_agent("bot_of_tests:bots.forgetful").__name__ == "forgetful"
    with pytest.raises(GoldspanError, match="MODULE:FUNCTION"):
        load_agent(":answer")


def test_a_resumed_run_repeats_only_what_raised(goldspan: Goldspan) -> None:
    goldspan(*ANSWER)
    result = goldspan(*ANSWER, "--resume", "--json")
    assert [document["golden_id"] for document in result.documents] == ["joke"]
    assert len(read_results("goldspan-results.jsonl").cases) == 3


def start(*arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "goldspan", "run", *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, encoding="utf-8")


@pytest.mark.e2e
@pytest.mark.skipif(os.name == "nt", reason="Windows has no signals")
def test_an_interrupted_command_keeps_what_is_done_and_says_how_to_go_on() -> None:
    process = start("bot_of_tests:bots.slow", "-g", "goldens.yaml")
    results = Path("goldspan-results.jsonl")
    deadline = time.monotonic() + 60
    while not (results.exists() and results.read_bytes().count(b"\n") == 2) and time.monotonic() < deadline:
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "interrupted: 1 of 3 cases are done and in goldspan-results.jsonl; --resume runs the others" in err
    assert [case.golden_id for case in read_results(results).cases] == ["joke"]


HANGING = """
import threading
from concurrent.futures import ThreadPoolExecutor
import goldspan

@goldspan.trace
def tool(): ...

def agent(request):
    ThreadPoolExecutor().submit(threading.Event().wait).result()
"""


@pytest.mark.e2e
def test_an_agent_that_hangs_in_a_thread_pool_does_not_keep_the_command_from_exiting() -> None:
    Path("hanging.py").write_text(HANGING)
    process = start("hanging:agent", "-g", "goldens.yaml", "--timeout", "0.2", "--fail-under", "passed=1")
    out, _ = process.communicate(timeout=60)
    assert process.returncode == 1
    assert out.splitlines()[-1].startswith("cases: 3, of which 0 passed, 0 failed, 3 timed out")
    assert "it cannot be stopped and still runs" in " ".join(out.split())


def test_the_program_ends_itself_only_if_an_agent_still_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    ended: list[int] = []
    monkeypatch.setattr(agent_results, "_EXIT_GRACE_S", 0.01)
    exit_despite_hanging_agents(1, ended.append)
    time.sleep(0.1)
    assert ended == []
    capture = span_capture()
    capture.finish_case(capture.begin_case("hangs"), still_runs=lambda: not ended)
    exit_despite_hanging_agents(1, ended.append)
    deadline = time.monotonic() + 10
    while not ended and time.monotonic() < deadline:
        time.sleep(0.01)
    assert ended == [1]


@pytest.mark.e2e
def test_a_terminal_shows_failures_above_a_progress_bar() -> None:
    pytest.importorskip("pty", reason="Windows has no pseudo-terminals")
    from cli.test_terminal import on_a_terminal, plain

    shown = plain(on_a_terminal(*ANSWER))
    assert "running bot_of_tests:answer" in shown
    assert "3/3" in shown
    assert "error joke  ValueError: no jokes" in shown
    assert shown.index("error joke") < shown.index("cases: 3, of which")
