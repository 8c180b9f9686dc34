"""What is spent, and what may be: exact whatever happens at once, in threads and in processes."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from goldspan.judge import Budget, Opinion, Prices, Question, judged
from goldspan.judge.ledger import DAY, Known, Ledger, Spent
from goldspan.judge.sessions import _most_input
from judge_asking import endpoint, evaluation, judging, score
from judge_serving import after, content, failure, hang, opinion, serving

OPINION = Opinion(0.5, "Because.", "faq")
RUNS = [evaluation(input=f"{number:04}") for number in range(40)]
OVER = "OverBudget: the judge's budget of the last 24 hours is spent"


def most(model, **options):
    """The tokens that are set aside for one of those runs."""
    with judging(model, **options) as judge:
        score(judge, RUNS[0])
        return judge.ledger.spent().tokens


def test_what_a_question_may_cost_at_most_is_set_aside_before_it_is_asked():
    with serving([hang(0.1)]) as model:
        aside = most(model, retries=0)
        sent = sum(len(message["content"].encode()) for message in model.requests[0].body["messages"])
    assert sent + 1000 < aside < sent + 1000 + 500


@given(st.text(st.characters(codec=None), max_size=300))
def test_a_question_has_no_more_tokens_than_bytes(text):
    question = Question(text, ())
    assert _most_input(question) >= len(text.encode("utf-8", "replace"))


@pytest.mark.parametrize("concurrency", [1, 16])
def test_the_budget_of_tokens_is_never_passed(concurrency):
    with serving([after(0.01, opinion(0.5, prompt_tokens=1500, completion_tokens=500))]) as model:
        budget = Budget(tokens=30_000)
        with judging(model, concurrency=concurrency, budget=budget) as judge:
            errors = [each.score("tool_selection").error for each in judged(RUNS, judge)]
            spent = judge.ledger.spent().tokens
    assert spent == judge.usage.input_tokens + judge.usage.output_tokens == 2000 * judge.usage.requests
    assert (20_000 if concurrency == 1 else 2_000) <= spent <= 30_000  # what is set aside for others is not used
    assert set(errors) == {None, OVER}
    assert (judge.usage.judged, judge.usage.over_budget) == (errors.count(None), errors.count(OVER))
    assert judge.usage.failed == 0


def test_the_budget_of_money_is_never_passed():
    reply = after(0.01, opinion(0.5, prompt_tokens=1000, completion_tokens=500))
    options = {"budget": Budget(cost=0.1), "prices": Prices(2, 10)}
    with serving([reply]) as model, judging(model, concurrency=8, **options) as judge:
        list(judged(RUNS, judge))
        spent = judge.ledger.spent()
    assert spent.cost == pytest.approx(judge.usage.cost) == pytest.approx(0.007 * judge.usage.requests)
    assert 0.05 <= spent.cost <= 0.1 + 1e-9
    assert judge.usage.over_budget == 40 - judge.usage.judged > 0


def test_a_budget_of_nothing_asks_nothing():
    with serving([opinion(0.5)]) as model, judging(model, budget=Budget(tokens=0)) as judge:
        assert score(judge).error == OVER
    assert (len(model.requests), judge.usage.over_budget) == (0, 1)


def test_what_is_known_costs_nothing_and_needs_no_budget(tmp_path):
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
def test_what_may_have_cost_something_stays_set_aside(reply, timeout, kept):
    with serving([reply]) as model, judging(model, retries=0, timeout=timeout) as judge:
        score(judge)
        spent = judge.ledger.spent().tokens
        assert (spent > 2000) == kept
        assert kept or spent == judge.usage.input_tokens + judge.usage.output_tokens


def test_members_of_ones_own_that_allow_longer_answers_are_allowed_for():
    with serving([hang(0.1)]) as model:
        usual = most(model, retries=0)
        extra = {"max_tokens": None, "max_completion_tokens": 9000}
        assert most(endpoint(model, extra=extra), retries=0) == usual + 8000


def test_several_judges_share_the_budget_of_a_file(tmp_path):
    with serving([opinion(0.5, prompt_tokens=1500, completion_tokens=500)]) as model:
        options = {"budget": Budget(tokens=20_000), "cache": tmp_path / "judge.db"}
        with judging(model, **options) as one, judging(model, **options) as other, ThreadPoolExecutor(2) as pool:
            parts = pool.map(lambda each: list(judged(each[0], each[1])), [(RUNS[:20], one), (RUNS[20:], other)])
            assert sum(map(len, parts)) == 40
            spent = one.ledger.spent().tokens
    assert spent == 2000 * (one.usage.requests + other.usage.requests) <= 20_000
    assert one.usage.over_budget + other.usage.over_budget > 0


# --- the ledger itself ------------------------------------------------------------------------------------------------


def test_what_was_spent_counts_for_24_hours():
    now = [1_000_000.0]
    with_clock = Ledger(clock=lambda: now[0])
    budget = Budget(tokens=100)
    assert with_clock.spend(60, 1.0, budget.allows) is not None
    now[0] += DAY / 2
    assert with_clock.spend(41, 1.0, budget.allows) is None
    assert with_clock.spend(40, 1.0, budget.allows) is not None
    assert with_clock.spent() == Spent(100, 2.0)
    now[0] += DAY / 2 - 61
    assert with_clock.spend(1, 0.0, budget.allows) is None
    now[0] += 61
    assert with_clock.spent() == Spent(40, 1.0)
    assert with_clock.spend(60, 1.0, budget.allows) is not None
    now[0] += 2 * DAY
    assert with_clock.spent() == Spent()


def test_what_is_put_right_later_does_not_make_room_twice():
    now = [1_000_000.0]
    kept = Ledger(clock=lambda: now[0])
    minute = kept.spend(100, 1.0)
    now[0] += 2 * DAY
    kept.settle(minute, -100, -1.0)
    assert kept.spent() == Spent()
    assert kept.spend(10, 0.0, Budget(tokens=9).allows) is None


def test_small_amounts_add_up_to_the_budget():
    kept = Ledger()
    assert [kept.spend(1, 0.1, Budget(cost=0.3).allows) is not None for _ in range(4)] == [True, True, True, False]


amounts = st.tuples(st.integers(0, 50), st.integers(0, 50), st.integers(0, 3 * DAY))


@settings(max_examples=60)
@given(st.lists(amounts, max_size=30), st.integers(0, 200))
def test_within_no_24_hours_more_is_spent_than_allowed(attempts, tokens):
    now = [1_000_000.0]
    kept = Ledger(clock=lambda: now[0])
    took = []
    for aside, used, seconds in attempts:
        minute = kept.spend(aside, 0.0, Budget(tokens=tokens).allows)
        if minute is not None:
            kept.settle(minute, min(used, aside) - aside, 0.0)
            took.append((now[0], min(used, aside)))
        now[0] += seconds
    kept.close()
    for start, _ in took:
        assert sum(used for at, used in took if start <= at < start + DAY - 60) <= tokens


SPENDING = """
import sys, time
from goldspan.judge import Budget
from goldspan.judge.ledger import Ledger
kept = Ledger(sys.argv[1])
def allows(spent):
    time.sleep(0.001)  # time for the others to come in between
    return Budget(tokens=700).allows(spent)
kept.check()
print("ready", flush=True)
sys.stdin.readline()
print(sum(kept.spend(7, 0.25, allows) is not None for _ in range(60)))
"""


def test_threads_and_processes_never_pass_it_together(tmp_path):
    kept = Ledger(tmp_path / "judge.db")
    command = [sys.executable, "-c", SPENDING, str(tmp_path / "judge.db")]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    processes = [subprocess.Popen(command, **pipes) for _ in range(3)]
    assert [process.stdout.readline() for process in processes] == ["ready\n"] * 3
    for process in processes:
        process.stdin.write("go\n")
        process.stdin.flush()
    with ThreadPoolExecutor(4) as pool:
        here = sum(pool.map(lambda _: kept.spend(7, 0.25, Budget(tokens=700).allows) is not None, range(60)))
    there = sum(int(process.communicate(timeout=60)[0]) for process in processes)
    assert here + there == 100
    assert kept.spent() == Spent(700, 25.0)
    kept.close()


def test_many_may_open_a_new_file_at_once(tmp_path):
    for number in range(10):
        with ThreadPoolExecutor(8) as pool:
            kept = [Ledger(tmp_path / f"{number}.db") for _ in range(8)]
            list(pool.map(Ledger.check, kept))
            list(pool.map(lambda each: each.spend(1, 0.5), kept))
        assert {each.spent() for each in kept} == {Spent(8, 4.0)}
        for each in kept:
            each.close()


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_a_forked_child_opens_the_file_anew(tmp_path):
    kept = Ledger(tmp_path / "judge.db")
    kept.keep("a", OPINION, "m")
    held = threading.Event()
    over = threading.Event()

    def hold():
        with kept._lock:
            held.set()
            over.wait(30)

    thread = threading.Thread(target=hold)
    thread.start()
    held.wait(30)
    child = os.fork()  # while another thread is in the middle of something
    if child == 0:
        status = 1
        try:
            known = kept.find("a") == Known(OPINION, "m")
            kept.spend(7, 0.0)
            kept.keep("b", OPINION, "child")
            status = 0 if known else 2
        finally:
            os._exit(status)
    over.set()
    thread.join()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert kept.find("b") == Known(OPINION, "child")
    assert kept.spent().tokens == 7
    kept.close()
