"""Assessments are cached by the content of their prompt, in an SQLite file."""

from __future__ import annotations

import os
import shutil
import sqlite3
import stat
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from goldspan import ToolDefinition
from goldspan.errors import ConfigurationError, StoreError
from goldspan.judge import Assessment, Judge, ModelEndpoint, Prices, Usage, judge_evaluations
from goldspan.judge import cache as ledger
from goldspan.judge.cache import CachedAssessment, JudgeCache
from support.judge_clients import endpoint, evaluation, judging, score
from support.model_endpoint import content, failure, opinion, serving

RUNS = [evaluation(input=str(number)) for number in range(5)]
OPINION = Assessment(0.5, "Because.", "faq")


def test_a_cached_assessment_is_not_requested_again(tmp_path):
    with serving([opinion(0.5, "T2", "Because.")]) as model:
        for times in range(3):
            with judging(model, cache=tmp_path / "judge.db", prices=Prices(1, 10)) as judge:
                found = [each.score("tool_selection") for each in judge_evaluations(RUNS, judge)]
                assert judge.cache.spending_last_day().tokens == 5 * 120
            assert {(each.value, each.judgement.better_tool, each.judgement.words) for each in found} == {
                (0.5, "faq", "Because.")
            }
            judgement = found[0].judgement
            assert judgement.model == "tiny-judge"
            if times == 0:
                expected = Usage(requests=5, input_tokens=500, output_tokens=100, cost=pytest.approx(0.0015), judged=5)
                assert (judgement.cached, judgement.input_tokens, judgement.cost) == (0, 100, pytest.approx(0.0003))
            else:
                expected = Usage(cost=0.0, judged=5, cached=5)
                assert (judgement.cached, judgement.input_tokens, judgement.cost) == (1, 0, 0)
            assert judge.usage == expected
        assert len(model.requests) == 5


def test_without_a_file_assessments_are_cached_per_judge():
    with serving([opinion(0.5)]) as model:
        for _ in range(2):
            with judging(model) as judge:
                list(judge_evaluations(RUNS, judge))
                list(judge_evaluations(RUNS, judge))
            assert (judge.usage.requests, judge.usage.judged, judge.usage.cached) == (5, 10, 5)


PROGRAM = """
import sys
from goldspan.judge import Judge, ModelEndpoint, judge_evaluations
from support.judge_clients import KEY, evaluation
judge = Judge(ModelEndpoint("tiny", base_url=sys.argv[1], api_key=KEY), cache=sys.argv[2])
runs = [evaluation(input=str(number)) for number in range(5)]
scores = [each.score("tool_selection").value for each in judge_evaluations(runs, judge)]
print(*scores, judge.usage.requests, judge.usage.cached)
"""


def output_of_other_process(model, file):
    """The output of another process about the same runs."""
    command = [sys.executable, "-c", PROGRAM, model.url, file]
    environment = {"PYTHONPATH": ":".join(filter(None, sys.path))}
    return subprocess.run(command, capture_output=True, text=True, check=True, env=environment).stdout.split()


@pytest.mark.e2e
def test_the_cache_file_is_shared_between_processes(tmp_path):
    with serving([opinion(0.5)]) as model:
        assert output_of_other_process(model, tmp_path / "judge.db") == ["0.5"] * 5 + ["5", "0"]
        assert output_of_other_process(model, tmp_path / "judge.db") == ["0.5"] * 5 + ["0", "5"]
        with judging(model, cache=tmp_path / "judge.db") as judge:
            list(judge_evaluations(RUNS, judge))
        assert (judge.usage.requests, judge.usage.cached) == (0, 5)


@pytest.mark.parametrize(
    "other",
    [
        *({"temperature": 0.5}, {"temperature": None}, {"seed": 1}, {"seed": None}, {"max_tokens": 999}),
        *({"show": "names"}, {"model": "another"}),
    ],
)
def test_a_request_with_other_options_is_cached_separately(tmp_path, other):
    of = evaluation(tool_calls=(replace(evaluation().run.tool_calls[0], arguments={"a": 1}),))
    with serving([opinion(0.5)]) as model:
        for options in ({}, other, {}, other):
            with judging(model, cache=tmp_path / "judge.db", **options) as judge:
                assert score(judge, of).value == 0.5
        assert len(model.requests) == 2


@pytest.mark.parametrize(
    "said",
    [
        {"input": "Another request."},
        {"output": None},
        {"tool_calls": ()},
        {"available_tools": (ToolDefinition("faq"), ToolDefinition("search"))},
    ],
)
def test_a_run_with_another_prompt_is_cached_separately(said):
    with serving([opinion(0.5)]) as model, judging(model, concurrency=1) as judge:
        list(judge_evaluations([evaluation(), evaluation(**said), evaluation(), evaluation(session_id="t")], judge))
    assert (judge.usage.requests, judge.usage.cached) == (2, 2)


@pytest.mark.parametrize("options", [{"extra": {"top_p": 1}}, {"answer_form": "text"}])
def test_an_endpoint_with_another_url_model_or_options_is_cached_separately(tmp_path, options):
    with serving([opinion(0.5)]) as model, serving([opinion(0.7)]) as other:
        for ask in (
            endpoint(model),
            endpoint(model, **options),
            endpoint(other),
            ModelEndpoint("x", base_url=model.url),
        ):
            with judging(ask, cache=tmp_path / "judge.db") as judge:
                score(judge)
            assert judge.usage.requests == 1
        with judging(endpoint(model, api_key="another"), cache=tmp_path / "judge.db") as judge:
            assert score(judge).value == 0.5
    assert judge.usage.requests == 0


def test_each_vote_is_cached(tmp_path):
    replies = [opinion(0.2), opinion(0.4), opinion(0.9), opinion(1.0)]
    for seed in (0, None):
        with serving(replies) as model:
            for votes, requests, value in ((1, 1, 0.2), (3, 2, 0.4), (3, 0, 0.4), (4, 1, 0.65)):
                with judging(model, votes=votes, seed=seed, cache=tmp_path / f"{seed}.db") as judge:
                    found = score(judge)
                assert (found.value, judge.usage.requests) == (pytest.approx(value), requests)
                assert found.judgement.cached == votes - requests
                assert judge.usage.cached == (requests == 0)


@pytest.mark.parametrize("reply", [content("{"), failure(400), opinion(2)])
def test_failed_requests_are_not_cached(reply):
    with serving([reply, opinion(0.5)]) as model, judging(model, retries=0) as judge:
        assert [score(judge).value, score(judge).value, score(judge).value] == [None, 0.5, 0.5]
    assert (judge.usage.requests, judge.usage.judged, judge.usage.cached, judge.usage.failed) == (2, 2, 1, 1)


def test_the_cache_contains_only_a_hash_of_the_prompt(tmp_path):
    with serving([opinion(0.5)]) as model, judging(model, cache=tmp_path / "judge.db") as judge:
        score(judge, evaluation(input="a secret request", output="a secret answer"))
    assert all(b"secret" not in file.read_bytes() for file in tmp_path.iterdir())
    assert {stat.S_IMODE(file.stat().st_mode) for file in tmp_path.iterdir()} == {0o600}


def test_the_cache_files_are_readable_by_the_owner_only(tmp_path):
    kept = JudgeCache(tmp_path / "judge.db")
    kept.put("a", OPINION, "m")
    files = {file.name: stat.S_IMODE(file.stat().st_mode) for file in tmp_path.iterdir()}
    assert files == {"judge.db": 0o600, "judge.db-wal": 0o600, "judge.db-shm": 0o600}
    kept.close()


@pytest.mark.parametrize(("file", "bound"), [("judge.db", "MAX_ENTRIES"), (None, "MAX_ENTRIES_IN_MEMORY")])
def test_the_oldest_assessments_are_evicted_first(file, bound, tmp_path, monkeypatch):
    monkeypatch.setattr(ledger, bound, 100)
    monkeypatch.setattr(ledger, "_EVICT_EVERY", 10)
    kept = JudgeCache(file and tmp_path / file)
    for number in range(1000):
        kept.put(str(number), OPINION, None)
        kept.put(str(number), Assessment(1.0), "later")
    assert kept.get("999") == CachedAssessment(OPINION, None)
    assert 100 <= kept._connection.execute("SELECT count(*) FROM answers").fetchone()[0] <= 110
    kept.close()
    assert kept.get("880") is None
    kept.close()


# --- unusable files ---------------------------------------------------------------------------------------------------


def something_else(file):
    with closing(sqlite3.connect(file)) as connection:
        connection.execute("CREATE TABLE mine (a)")
        connection.commit()


def of_another_version(file):
    JudgeCache(file).check()
    with closing(sqlite3.connect(file)) as connection:
        connection.execute("PRAGMA user_version = 99")


def claimed(file):
    with closing(sqlite3.connect(file)) as connection:
        connection.execute("PRAGMA application_id = 5")


def cut_off(file):
    with closing(JudgeCache(file)) as kept:
        kept.check()
    file.write_bytes(file.read_bytes()[:3000])


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (lambda file: file.write_text("Dear diary, " * 99), "not a database"),
        (lambda file: file.mkdir(), "directory"),
        (cut_off, "malformed"),
        (something_else, "it is the database of another program; name another one"),
        (claimed, "it is the database of another program; name another one"),
        (
            of_another_version,
            r"a newer goldspan wrote it \(version 99, this one knows 1\): delete it, or name another one",
        ),
    ],
)
def test_an_unusable_cache_file_is_refused_immediately_and_not_changed(tmp_path, make, why):
    file = tmp_path / "judge.db"
    make(file)
    before = file.read_bytes() if file.is_file() else None
    with pytest.raises(ConfigurationError, match=why) as cause:
        Judge(ModelEndpoint("tiny"), cache=file)
    assert str(file) in str(cause.value)
    assert (file.read_bytes() if file.is_file() else None) == before


def test_a_missing_cache_folder_is_refused_immediately(tmp_path):
    with pytest.raises(ConfigurationError, match="No such file or directory"):
        Judge(ModelEndpoint("tiny"), cache=tmp_path / "not there" / "judge.db")
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def unprivileged_folder():
    """A world-readable folder, with an unprivileged effective user."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o755)
    was = os.geteuid()
    yield folder, (lambda: os.seteuid(65534)) if was == 0 else (lambda: folder.chmod(0o555))
    os.seteuid(was)
    folder.chmod(0o755)
    shutil.rmtree(folder)


def test_a_read_only_cache_location_is_refused_immediately(unprivileged_folder):
    folder, become = unprivileged_folder
    (folder / "old.db").touch(0o444)
    become()
    for name in ("new.db", "old.db"):
        with pytest.raises(ConfigurationError, match=f"{name}: the judge's answers cannot be kept there: .*denied"):
            Judge(ModelEndpoint("tiny"), cache=folder / name)


def test_a_locked_cache_file_is_an_error_until_it_is_unlocked(tmp_path, monkeypatch):
    monkeypatch.setattr(ledger, "_LOCK_TIMEOUT_S", 0.1)
    with serving([opinion(0.5)]) as model, judging(model, cache=tmp_path / "judge.db") as judge:
        with closing(sqlite3.connect(tmp_path / "judge.db", isolation_level=None)) as other:
            other.execute("BEGIN EXCLUSIVE")
            found = score(judge)
            assert "the judge's answers cannot be kept there: database is locked" in found.error
            assert (found.value, len(model.requests)) == (
                None,
                0,
            )  # a request whose spending cannot be recorded is not sent
        assert score(judge).value == 0.5
    assert (judge.usage.failed, judge.usage.judged, judge.usage.requests) == (1, 1, 1)


def test_a_cache_file_that_is_damaged_while_in_use_is_an_error_in_the_score(tmp_path):
    file = tmp_path / "judge.db"
    with serving([opinion(0.5)]) as model, judging(model, cache=file) as judge:
        judge.cache.close()
        file.write_bytes(b"x" * 4096)
        found = score(judge)
    assert found.error.startswith(f"StoreError: {file}: the judge's answers cannot be kept there: ")
    assert judge.usage.failed == 1


def test_a_failed_transaction_does_not_block_the_next_one(tmp_path):
    kept = JudgeCache(tmp_path / "judge.db")

    def fail(spent):
        raise sqlite3.OperationalError("disk I/O error")

    with pytest.raises(StoreError, match="disk I/O error"):
        kept.reserve(5, 0.0, fail)
    assert kept.reserve(5, 0.0) is not None
    assert kept.spending_last_day().tokens == 5
    kept.close()


@pytest.mark.e2e
def test_processes_may_create_one_cache_file_concurrently(tmp_path):
    with serving([opinion(0.5)]) as model, ThreadPoolExecutor(4) as pool:
        told = list(pool.map(lambda _: output_of_other_process(model, tmp_path / "judge.db"), range(4)))
        assert all(each[:5] == ["0.5"] * 5 for each in told)
        assert sum(int(each[5]) for each in told) == len(model.requests)
        assert all(int(each[5]) + int(each[6]) == 5 for each in told)
