"""Spending and budgets are exact with concurrent threads and processes."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given
from hypothesis import strategies as st

from goldspan.judge import Assessment, Budget, JudgePrompt, Prices, judge_evaluations
from goldspan.judge.cache import SECONDS_PER_DAY, CachedAssessment, JudgeCache, Spending
from goldspan.judge.judge_session import _max_input_tokens
from support.judge_clients import endpoint, evaluation, judging, score
from support.laws import examples
from support.model_endpoint import after, content, failure, hang, opinion, serving

OPINION = Assessment(0.5, "Because.", "faq")
RUNS = [evaluation(input=f"{number:04}") for number in range(40)]
OVER = "OverBudget: the judge's budget of the last 24 hours is spent"


def reserved_tokens(model, **options):
    """The tokens that are reserved for one of those runs."""
    with judging(model, **options) as judge:
        score(judge, RUNS[0])
        return judge.cache.spending_last_day().tokens


def test_the_maximum_cost_of_a_request_is_reserved_before_it_is_sent():
    with serving([hang(0.1)]) as model:
        aside = reserved_tokens(model, retries=0)
        sent = sum(len(message["content"].encode()) for message in model.requests[0].body["messages"])
    assert sent + 1000 < aside < sent + 1000 + 500


@given(st.text(st.characters(codec=None), max_size=300))
def test_the_token_estimate_of_a_prompt_is_at_least_its_size_in_bytes(text):
    question = JudgePrompt(text, ())
    assert _max_input_tokens(question) >= len(text.encode("utf-8", "replace"))


@pytest.mark.parametrize("concurrency", [1, 16])
def test_the_token_budget_is_never_exceeded(concurrency):
    with serving([after(0.01, opinion(0.5, prompt_tokens=1500, completion_tokens=500))]) as model:
        budget = Budget(tokens=30_000)
        with judging(model, concurrency=concurrency, budget=budget) as judge:
            errors = [each.score("tool_selection").error for each in judge_evaluations(RUNS, judge)]
            spent = judge.cache.spending_last_day().tokens
    assert spent == judge.usage.input_tokens + judge.usage.output_tokens == 2000 * judge.usage.requests
    assert (20_000 if concurrency == 1 else 2_000) <= spent <= 30_000  # reservations of other requests are not used
    assert set(errors) == {None, OVER}
    assert (judge.usage.judged, judge.usage.over_budget) == (errors.count(None), errors.count(OVER))
    assert judge.usage.failed == 0


def test_the_cost_budget_is_never_exceeded():
    reply = after(0.01, opinion(0.5, prompt_tokens=1000, completion_tokens=500))
    options = {"budget": Budget(cost=0.1), "prices": Prices(2, 10)}
    with serving([reply]) as model, judging(model, concurrency=8, **options) as judge:
        list(judge_evaluations(RUNS, judge))
        spent = judge.cache.spending_last_day()
    assert spent.cost == pytest.approx(judge.usage.cost) == pytest.approx(0.007 * judge.usage.requests)
    assert 0.05 <= spent.cost <= 0.1 + 1e-9
    assert judge.usage.over_budget == 40 - judge.usage.judged > 0


def test_a_budget_of_zero_sends_no_requests():
    with serving([opinion(0.5)]) as model, judging(model, budget=Budget(tokens=0)) as judge:
        assert score(judge).error == OVER
    assert (len(model.requests), judge.usage.over_budget) == (0, 1)


def test_a_cached_assessment_needs_no_budget(tmp_path):
    with serving([opinion(0.5)]) as model:
        for budget in (Budget(), Budget(tokens=0)):
            with judging(model, budget=budget, cache=tmp_path / "judge.db") as judge:
                assert score(judge).value == 0.5


@pytest.mark.parametrize(
    ("reply", "timeout", "kept"),
    [
        (hang(), 0.3, True),
        (content("{", usage=None), 30, True),
        (failure(500), 30, False),
        (failure(429), 30, False),
        (failure(400), 30, False),
        (opinion(0.5), 30, False),
    ],
)
def test_a_reservation_is_kept_only_if_the_cost_is_unknown(reply, timeout, kept):
    with serving([reply]) as model, judging(model, retries=0, timeout=timeout) as judge:
        score(judge)
        spent = judge.cache.spending_last_day().tokens
        assert (spent > 2000) == kept
        assert kept or spent == judge.usage.input_tokens + judge.usage.output_tokens


def test_the_reservation_includes_a_token_limit_set_with_extra():
    with serving([hang(0.1)]) as model:
        usual = reserved_tokens(model, retries=0)
        extra = {"max_tokens": None, "max_completion_tokens": 9000}
        assert reserved_tokens(endpoint(model, extra=extra), retries=0) == usual + 8000


def test_judges_with_the_same_cache_file_share_the_budget(tmp_path):
    with serving([opinion(0.5, prompt_tokens=1500, completion_tokens=500)]) as model:
        options = {"budget": Budget(tokens=20_000), "cache": tmp_path / "judge.db"}
        with judging(model, **options) as one, judging(model, **options) as other, ThreadPoolExecutor(2) as pool:
            parts = pool.map(
                lambda each: list(judge_evaluations(each[0], each[1])), [(RUNS[:20], one), (RUNS[20:], other)]
            )
            assert sum(map(len, parts)) == 40
            spent = one.cache.spending_last_day().tokens
    assert spent == 2000 * (one.usage.requests + other.usage.requests) <= 20_000
    assert one.usage.over_budget + other.usage.over_budget > 0


# --- the cache file ---------------------------------------------------------------------------------------------------


def test_spending_counts_for_24_hours():
    now = [1_000_000.0]
    with_clock = JudgeCache(clock=lambda: now[0])
    budget = Budget(tokens=100)
    assert with_clock.reserve(60, 1.0, budget.allows) is not None
    now[0] += SECONDS_PER_DAY / 2
    assert with_clock.reserve(41, 1.0, budget.allows) is None
    assert with_clock.reserve(40, 1.0, budget.allows) is not None
    assert with_clock.spending_last_day() == Spending(100, 2.0)
    now[0] += SECONDS_PER_DAY / 2 - 61
    assert with_clock.reserve(1, 0.0, budget.allows) is None
    now[0] += 61
    assert with_clock.spending_last_day() == Spending(40, 1.0)
    assert with_clock.reserve(60, 1.0, budget.allows) is not None
    now[0] += 2 * SECONDS_PER_DAY
    assert with_clock.spending_last_day() == Spending()


def test_adjusting_an_expired_reservation_does_not_enlarge_the_budget():
    now = [1_000_000.0]
    kept = JudgeCache(clock=lambda: now[0])
    minute = kept.reserve(100, 1.0)
    now[0] += 2 * SECONDS_PER_DAY
    kept.adjust_reservation(minute, -100, -1.0)
    assert kept.spending_last_day() == Spending()
    assert kept.reserve(10, 0.0, Budget(tokens=9).allows) is None


def test_fractional_costs_add_up_to_the_budget():
    kept = JudgeCache()
    assert [kept.reserve(1, 0.1, Budget(cost=0.3).allows) is not None for _ in range(4)] == [True, True, True, False]


amounts = st.tuples(st.integers(0, 50), st.integers(0, 50), st.integers(0, 3 * SECONDS_PER_DAY))


@examples(0.6)
@given(st.lists(amounts, max_size=30), st.integers(0, 200))
def test_no_24_hours_exceed_the_budget(attempts, tokens):
    now = [1_000_000.0]
    kept = JudgeCache(clock=lambda: now[0])
    took = []
    for aside, used, seconds in attempts:
        minute = kept.reserve(aside, 0.0, Budget(tokens=tokens).allows)
        if minute is not None:
            kept.adjust_reservation(minute, min(used, aside) - aside, 0.0)
            took.append((now[0], min(used, aside)))
        now[0] += seconds
    kept.close()
    for start, _ in took:
        assert sum(used for at, used in took if start <= at < start + SECONDS_PER_DAY - 60) <= tokens


SPENDING = """
import sys, time
from goldspan.judge import Budget
from goldspan.judge.cache import JudgeCache
kept = JudgeCache(sys.argv[1])
def allows(spent):
    time.sleep(0.001)  # time for the others to come in between
    return Budget(tokens=700).allows(spent)
kept.check()
print("ready", flush=True)
sys.stdin.readline()
print(sum(kept.reserve(7, 0.25, allows) is not None for _ in range(60)))
"""


@pytest.mark.e2e
def test_threads_and_processes_together_never_exceed_the_budget(tmp_path):
    kept = JudgeCache(tmp_path / "judge.db")
    command = [sys.executable, "-c", SPENDING, str(tmp_path / "judge.db")]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    processes = [subprocess.Popen(command, **pipes) for _ in range(3)]
    assert [process.stdout.readline() for process in processes] == ["ready\n"] * 3
    for process in processes:
        process.stdin.write("go\n")
        process.stdin.flush()
    with ThreadPoolExecutor(4) as pool:
        here = sum(pool.map(lambda _: kept.reserve(7, 0.25, Budget(tokens=700).allows) is not None, range(60)))
    there = sum(int(process.communicate(timeout=60)[0]) for process in processes)
    assert here + there == 100
    assert kept.spending_last_day() == Spending(700, 25.0)
    kept.close()


def test_threads_may_create_one_cache_file_concurrently(tmp_path):
    for number in range(10):
        with ThreadPoolExecutor(8) as pool:
            kept = [JudgeCache(tmp_path / f"{number}.db") for _ in range(8)]
            list(pool.map(JudgeCache.check, kept))
            list(pool.map(lambda each: each.reserve(1, 0.5), kept))
        assert {each.spending_last_day() for each in kept} == {Spending(8, 4.0)}
        for each in kept:
            each.close()


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_a_forked_child_reopens_the_cache_file(tmp_path):
    kept = JudgeCache(tmp_path / "judge.db")
    kept.put("a", OPINION, "m")
    held = threading.Event()
    over = threading.Event()

    def hold():
        with kept._lock:
            held.set()
            over.wait(30)

    thread = threading.Thread(target=hold)
    thread.start()
    held.wait(30)
    child = os.fork()  # while another thread holds the lock
    if child == 0:
        status = 1
        try:
            known = kept.get("a") == CachedAssessment(OPINION, "m")
            kept.reserve(7, 0.0)
            kept.put("b", OPINION, "child")
            status = 0 if known else 2
        finally:
            os._exit(status)
    over.set()
    thread.join()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert kept.get("b") == CachedAssessment(OPINION, "child")
    assert kept.spending_last_day().tokens == 7
    kept.close()
