"""A judge of a live agent: called over HTTP on its own thread, without blocking the agent."""

from __future__ import annotations

import logging
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from opentelemetry import trace

import goldspan
from capture.telemetry import Exported, Install
from goldspan import Evaluation, ExpectedTool, Golden
from goldspan.capture.environment import read_environment
from goldspan.capture.setup import build_judge
from goldspan.judge import Judge, ModelEndpoint
from support.docs_examples import ROOT
from support.model_endpoint import Reply, failure, hang, opinion, serving

GOLDENS = [Golden("g", input="find it", tools=(ExpectedTool("search"),))]
KEY = "sk-a-key-that-nobody-may-see"


@goldspan.trace
def search(query: str) -> str:
    return query


@goldspan.trace(kind="agent")
def agent(question: str, *, available: tuple[str, ...] = ("search", "look_up")) -> str:
    goldspan.update_current_span(available_tools=available)
    return search(question)


class RecordingSink:
    """A sink that records evaluations."""

    def __init__(self) -> None:
        self.evaluations: list[Evaluation] = []

    def submit(self, evaluation: Evaluation) -> None:
        self.evaluations.append(evaluation)

    def selections(self) -> list[tuple[int, Any]]:
        """The revisions that have a score of the judge, with that score."""
        found = [(each.revision, each.score("tool_selection")) for each in self.evaluations]
        return [(revision, score.value) for revision, score in found if score is not None]


def judge_at(url: str, **options: Any) -> Judge:
    """A judge with a drain timeout that is long enough for slow machines."""
    return Judge(ModelEndpoint("tiny", base_url=url, api_key=KEY), **{"drain_timeout": 60.0} | options)


def test_the_verdict_of_the_judge_arrives_after_the_span_of_the_agent_was_exported(
    exported: Exported, install: Install
) -> None:
    kept, gone = RecordingSink(), threading.Event()

    def answer(*_: object) -> Reply:
        assert gone.wait(60)
        return opinion(0.25, "T2")

    with serving(answer) as model:
        processor = goldspan.ScoringProcessor(
            GOLDENS, then=exported.processor(), sinks=[kept], judge=judge_at(model.url), background=False
        )
        install(processor)
        agent("find it")
        assert [each.revision for each in kept.evaluations] == [1]
        gone.set()
        assert processor.force_flush()
    assert kept.selections() == [(2, 0.25)]
    attributes = exported.attributes("invoke_agent agent")
    assert attributes["goldspan.revision"] == 1
    assert "goldspan.score.tool_selection" not in attributes
    (request,) = model.requests
    assert "find it" in request.body["messages"][1]["content"]


def test_requests_of_the_judge_are_not_traced(exported: Exported, install: Install) -> None:
    """An instrumented client would create spans for them, which would be judged as runs."""
    seen: list[Any] = []

    async def asking(question: object) -> dict[str, Any]:
        seen.append(trace.get_current_span().get_span_context().is_valid)
        search("as an application's own function would")
        return {"score": 1, "reason": ""}

    kept = RecordingSink()
    processor = goldspan.ScoringProcessor(
        GOLDENS, then=exported.processor(), sinks=[kept], judge=Judge(asking, drain_timeout=60.0), background=False
    )
    install(processor)
    agent("find it")
    assert processor.force_flush()
    assert seen == [False]
    assert exported.names == ["execute_tool search", "invoke_agent agent"]
    assert kept.selections() == [(2, 1.0)]


def test_a_hanging_judge_blocks_neither_the_agent_nor_the_shutdown(exported: Exported, install: Install) -> None:
    kept = RecordingSink()
    judge_options = {"drain_timeout": 0.2, "concurrency": 2, "max_queue": 3}
    with serving([hang()]) as model:
        judge = judge_at(model.url, **judge_options)
        processor = goldspan.ScoringProcessor(GOLDENS, then=exported.processor(), sinks=[kept], judge=judge)
        install(processor)
        began = time.monotonic()
        for _ in range(10):
            agent("find it")
        while len(model.requests) < 2 and time.monotonic() - began < 60:
            time.sleep(0.01)
        began = time.monotonic()
        assert not processor.force_flush()
        processor.shutdown()
        assert time.monotonic() - began < 10
    assert len(kept.evaluations) == 10
    assert len(exported.names) == 20
    assert judge.usage.dropped == 10
    assert judge.usage.requests == 2


def test_a_judge_that_always_fails_yields_a_score_with_an_error_and_raises_nothing(
    exported: Exported, install: Install, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    kept = RecordingSink()
    with serving([failure(500, message=f"no luck with {KEY}")]) as model:
        judge = judge_at(model.url, retries=1)
        processor = goldspan.ScoringProcessor(GOLDENS, then=exported.processor(), sinks=[kept], judge=judge)
        install(processor)
        agent("find it")
        assert processor.force_flush()
    first, second = kept.evaluations
    score = second.score("tool_selection")
    assert score is not None
    assert score.error == "EndpointError: the endpoint answered 500: no luck with [key]"
    assert (first.passed, second.passed) == (True, True)
    assert KEY not in caplog.text
    assert judge.usage.failed == 1
    assert judge.usage.requests == 2


def test_environment_variables_configure_the_judge(
    monkeypatch: pytest.MonkeyPatch, exported: Exported, install: Install, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "goldspan")
    with serving([opinion(0.25)]) as model:
        variables = {
            "MODEL": "tiny", "URL": model.url, "API_KEY": KEY, "SAMPLE": "1", "COMBINATION": "min", "VOTES": "3",
            "THRESHOLD": "0.6", "TEMPERATURE": "off", "SEED": "off", "SHOW": "names", "PRICES": "1,2",
            "DAILY_COST": "5", "DAILY_TOKENS": "off", "ANSWER_FORM": "text", "EXTRA": '{"top_p": 0.5}',
        }  # fmt: skip
        for name, value in variables.items():
            monkeypatch.setenv(f"GOLDSPAN_JUDGE_{name}", value)
        monkeypatch.setenv("OTEL_TRACES_EXPORTER", "none")
        kept = RecordingSink()
        install()
        instrumentation = goldspan.instrument(GOLDENS, then=exported.processor(), sinks=[kept])
        agent("find it")
        instrumentation.shutdown()
    assert f"to the model ModelEndpoint('tiny', base_url='{model.url}')" in caplog.text
    assert KEY not in caplog.text
    verdict = kept.evaluations[-1]
    score = verdict.score("tool_selection")
    assert score is not None
    assert score.judgement is not None
    assert score.judgement.votes == (0.25, 0.25, 0.25)
    assert score.judgement.cost == pytest.approx(3 * (100 * 1 + 20 * 2) / 1e6)
    assert (score.passed, verdict.passed) == (False, False)
    assert verdict.changes == ("tool_selection", "tool_correctness")
    body = model.requests[0].body
    assert set(body) == {"model", "messages", "max_tokens", "top_p"}
    assert "arguments" not in body["messages"][1]["content"].partition("</run>")[0].partition('"calls"')[2]
    assert model.requests[0].headers["authorization"] == f"Bearer {KEY}"


def test_without_a_model_no_module_of_the_judge_is_imported(tmp_path: Path) -> None:
    program = (
        "import sys, goldspan\n"
        "goldspan.instrument()\n"
        "print(sorted(name for name in sys.modules if name.startswith(('goldspan.judge', 'httpx2'))))\n"
    )
    settings = {"OTEL_TRACES_EXPORTER": "none", "OTEL_METRICS_EXPORTER": "none", "OTEL_LOGS_EXPORTER": "none"}
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, cwd=tmp_path, env=settings, check=True
    )
    assert done.stdout == "[]\n", done.stderr


@pytest.mark.parametrize(
    ("variable", "value", "sentence"),
    [
        ("URL", "ftp://here", "GOLDSPAN_JUDGE_MODEL: the judge's URL is written as https://"),
        ("URL", "https://user:pass@here/v1", "without a password"),
        ("VOTES", "0", "GOLDSPAN_JUDGE_VOTES: '0' is not a whole number"),
        ("SHOW", "some", "GOLDSPAN_JUDGE_SHOW: 'some' is none of names, arguments, all"),
        ("PRICES", "1", "GOLDSPAN_JUDGE_PRICES: '1' is not two prices"),
        ("EXTRA", "[1]", "is no JSON object"),
        ("DAILY_COST", "1", "a budget in dollars needs prices"),
        ("URL", "https://api.openai.com/v1", "set OPENAI_API_KEY or GOLDSPAN_JUDGE_API_KEY"),
    ],
)
def test_an_invalid_setting_of_the_judge_raises_in_instrument(
    monkeypatch: pytest.MonkeyPatch, variable: str, value: str, sentence: str
) -> None:
    monkeypatch.setenv("GOLDSPAN_JUDGE_MODEL", "tiny")
    monkeypatch.setenv("GOLDSPAN_JUDGE_URL", "http://127.0.0.1:9/v1")
    monkeypatch.setenv(f"GOLDSPAN_JUDGE_{variable}", value)
    with pytest.raises(goldspan.ConfigurationError) as caught:
        goldspan.instrument()
    assert sentence in str(caught.value)


def test_openai_api_key_is_sent_only_to_the_endpoint_of_openai(
    monkeypatch: pytest.MonkeyPatch, install: Install
) -> None:
    monkeypatch.setenv("GOLDSPAN_JUDGE_MODEL", "tiny")
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    settings = read_environment()
    assert KEY not in repr(settings)
    build_judge(settings).close()
    with serving([opinion(1)]) as model:
        monkeypatch.setenv("GOLDSPAN_JUDGE_URL", model.url)
        monkeypatch.setenv("GOLDSPAN_JUDGE_SAMPLE", "1")
        judge = build_judge(read_environment())
        judge.drain_timeout = 60.0
        processor = goldspan.ScoringProcessor(GOLDENS, sinks=[RecordingSink()], judge=judge)
        install(processor)
        agent("find it")
        assert processor.force_flush()
    (request,) = model.requests
    assert "authorization" not in request.headers


def test_a_value_that_is_not_a_judge_is_rejected() -> None:
    with pytest.raises(goldspan.ConfigurationError, match=r"judge= must be a goldspan\.judge\.Judge, not 'gpt'"):
        goldspan.ScoringProcessor(judge="gpt")  # type: ignore[arg-type]


@pytest.mark.e2e
def test_a_program_waits_at_exit_for_verdicts_up_to_the_drain_timeout(tmp_path: Path) -> None:
    """The last verdict is kept if the judge answers in time; a hanging judge does not block the exit."""
    program = ROOT / "tests" / "capture" / "judged_program.py"
    for behaviour, drain, selections in (("answers", "60", 1), ("hangs", "2", 0)):
        out = tmp_path / f"{behaviour}.jsonl"
        with serving([opinion(0.5) if behaviour == "answers" else hang()]) as model:
            began = time.monotonic()
            subprocess.run([sys.executable, program, model.url, out, drain], check=True, timeout=60)
            took = time.monotonic() - began
        assert out.read_text().count('"metric": "tool_selection"') == selections
        assert took < 30
