"""Tests of the API over a store: responses match the stored data, and no request makes the server fail."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

import pytest

from goldspan import Evaluation, ExpectedTool, Golden, Goldens, Run, ToolCall, evaluate
from goldspan.gateway import api_routes as api
from goldspan.model import ToolDefinition, When
from goldspan.store import RunFilter, open_store
from support.api_server import ApiServer, serving

NOW = 1_800_000_000 * 10**9
HOUR = 3600 * 10**9
REFUND = Golden("refund", "Money back!", threshold=1, tools=(ExpectedTool("find_order"), ExpectedTool("refund")))
STRICT = replace(REFUND, tools=(ExpectedTool("find_order", {"order": 7}), ExpectedTool("refund")))
CALLS = (ToolCall("find_order", arguments={"order": 7}, result="found"), ToolCall("refund", arguments={"order": 7}))


def run(number: int = 1, **said: Any) -> Run:
    trace_id = f"{number:031x}a"
    told: dict[str, Any] = {
        "trace_ids": (trace_id,), "input": "Money back!", "tool_calls": CALLS[:1], "agent": "support",
        "start_ns": NOW - number * HOUR,
    }  # fmt: skip
    return Run(f"{trace_id}:{number:016x}", **{**told, **said})


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "goldspan.db"


@pytest.fixture
def world(path: Path) -> Iterator[ApiServer]:
    with open_store(path, clock=lambda: NOW) as store, serving(ApiServer(store, Goldens([REFUND]))) as served:
        yield served


@pytest.fixture
def knowing(path: Path) -> Iterator[ApiServer]:
    """A store that keeps arguments."""
    with open_store(path, keep_arguments=True) as store, serving(ApiServer(store, Goldens([REFUND]))) as served:
        yield served


def ids(answer: Any) -> list[str]:
    return [each["run_id"] for each in answer["runs"]]


def run_path(asked: Run) -> str:
    return f"/api/v1/runs/{quote(asked.run_id, safe='')}"


# --- runs -------------------------------------------------------------------------------------------------------------


def test_the_runs_are_listed_newest_first_each_with_what_came_out(world: ApiServer) -> None:
    world.store.submit_many([evaluate(run(2), REFUND), evaluate(run(1, tool_calls=CALLS), REFUND)])
    answer = world.get("/api/v1/runs")
    assert ids(answer) == [run(1).run_id, run(2).run_id]
    assert answer["next_cursor"] is None
    failed = answer["runs"][1]
    told = {name: failed[name] for name in ("revision", "verdict", "status", "passed", "reason", "golden_id")}
    assert told == {
        "revision": 1, "verdict": "fail", "status": "scored", "passed": False,
        "reason": "Expected refund was not called.", "golden_id": "refund",
    }  # fmt: skip
    assert (failed["tools_used"], [call["name"] for call in failed["tool_calls"]]) == (["find_order"], ["find_order"])
    assert (failed["trace_ids"], failed["time"]) == ([f"{2:031x}a"], "2027-01-15T06:00:00.000000000Z")
    assert {"metric": "tool_recall", "value": 0.5}.items() <= failed["scores"][1].items()


@pytest.mark.parametrize(
    ("asked", "meant"),
    [
        ({"verdict": "pass"}, RunFilter(verdict="pass")),
        ({"verdict": "not_evaluated"}, RunFilter(verdict="not_evaluated")),
        ({"metric": "tool_recall", "below": "0.75"}, RunFilter(metric="tool_recall", below=0.75)),
        ({"metric": "call_budget"}, RunFilter(metric="call_budget")),
        ({"agent": "travel"}, RunFilter(agent="travel")),
        ({"golden": "refund"}, RunFilter(golden="refund")),
        ({"covered": "false"}, RunFilter(covered=False)),
        ({"covered": "true"}, RunFilter(covered=True)),
        ({"tool": "FindOrder"}, RunFilter(tool="FindOrder")),
        ({"tool": "refund", "tool_role": "missing"}, RunFilter(tool="refund", tool_role="missing")),
        ({"service": "shop"}, RunFilter(service="shop")),
        ({"environment": "test"}, RunFilter(environment="test")),
        ({"unit": "component"}, RunFilter(unit="component")),
        ({"session_id": "s & é"}, RunFilter(session_id="s & é")),
        ({"trace_id": f"{3:031x}A"}, RunFilter(trace_id=f"{3:031x}a")),
        ({"text": "MONEY"}, RunFilter(text="money")),
        ({"since": "2027-01-15T04:00:00Z"}, RunFilter(since_ns=NOW - 4 * HOUR)),
        ({"until": "2027-01-15T06:00:00+02:00"}, RunFilter(until_ns=NOW - 4 * HOUR)),
        ({"since": "7d"}, RunFilter()),
        ({"until": "7d"}, RunFilter(until_ns=0)),
    ],
    ids=lambda value: urlencode(value) if isinstance(value, dict) else "",
)
def test_every_filter_of_the_store_is_a_parameter(world: ApiServer, asked: dict[str, str], meant: RunFilter) -> None:
    runs = [
        (run(1, tool_calls=CALLS), REFUND),
        (run(2, service="shop", environment="test"), REFUND),
        (run(3, agent="travel", session_id="s & é"), replace(REFUND, max_calls=3)),
        (run(4, unit="component", component="find", input="Hello?"), None),
        (run(5), None),
    ]
    world.store.submit_many(evaluate(*each) for each in runs)
    expected = [each.run_id for each in world.store.runs(meant).items]
    assert ids(world.get(f"/api/v1/runs?{urlencode(asked)}")) == expected


def test_pages_lead_through_all_runs(world: ApiServer) -> None:
    world.store.submit_many(evaluate(run(number), REFUND) for number in range(1, 8))
    seen, cursor = [], {}
    while True:
        page = world.get(f"/api/v1/runs?{urlencode({'limit': 3, 'agent': 'support', **cursor})}")
        seen.append(ids(page))
        if page["next_cursor"] is None:
            break
        cursor = {"cursor": page["next_cursor"]}
    assert [len(each) for each in seen] == [3, 3, 1]
    assert [each for page in seen for each in page] == [run(number).run_id for number in range(1, 8)]


def test_a_page_of_large_runs_ends_early_and_the_next_one_goes_on(
    world: ApiServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.store.submit_many(evaluate(run(number), None) for number in range(1, 131))
    monkeypatch.setattr(api, "MAX_PAGE_CHARACTERS", 1)
    first = world.get("/api/v1/runs?limit=1000")
    assert len(first["runs"]) == api.PAGE_BATCH
    second = world.get(f"/api/v1/runs?limit=60&cursor={first['next_cursor']}")
    assert ids(second)[0] == run(api.PAGE_BATCH + 1).run_id
    arrived = world.get("/api/v1/evaluations?limit=1000")
    assert (len(arrived["evaluations"]), arrived["next_after"]) == (api.PAGE_BATCH, api.PAGE_BATCH)
    monkeypatch.undo()
    assert len(world.get("/api/v1/runs?limit=120")["runs"]) == 120
    assert len(world.get("/api/v1/evaluations?limit=1000")["evaluations"]) == 130


@pytest.mark.parametrize(
    ("query", "told"),
    [
        ("verdict=failed", "verdict must be pass, fail or not_evaluated, not 'failed'."),
        ("verdit=fail", "There is no parameter 'verdit' here. Did you mean 'verdict'?"),
        ("sesionId=5", "Did you mean 'session_id'?"),
        ("zzz=1", "There is no parameter 'zzz' here."),
        ("agent=a&agent=b", "The parameter 'agent' is given twice."),
        ("below=0.5", "`below` needs the `metric` whose score it limits"),
        ("metric=tool_recall&below=NaN", "below must be a number, not 'NaN'."),
        ("metric=tool_recall&below=low", "below must be a number, not 'low'."),
        ("tool_role=missing", "`tool_role` 'missing' needs a `tool`"),
        ("covered=yes", "covered must be true or false, not 'yes'."),
        ("limit=0", "limit must be a whole number from 1 to 1000, not '0'."),
        ("limit=1001", "limit must be a whole number from 1 to 1000, not '1001'."),
        ("limit=", "limit must be a whole number from 1 to 1000, not ''."),
        ("limit=%D9%A5", "limit must be a whole number from 1 to 1000"),
        ("cursor=1;DROP", "is not a cursor"),
        ("trace_id=abc", "trace_id must be 32 hexadecimal digits, not 'abc'."),
        ("since=yesterday", "since must be a time such as 2026-01-31T08:00:00Z"),
        ("until=2026-01-31T08:00:00+02:00", "(in a URL + is %2B)"),
        (f"{'x' * 5000}=1", "There is no parameter 'xxx"),
    ],
)
def test_what_means_nothing_is_refused_in_words(world: ApiServer, query: str, told: str) -> None:
    status, code, message = world.refused("GET", f"/api/v1/runs?{query}")
    assert (status, code) == (400, "invalid_parameter")
    assert told in message
    assert len(message) < 300


def test_one_run_is_shown_with_all_its_revisions(world: ApiServer) -> None:
    first = evaluate(run(), REFUND)
    second = replace(evaluate(run(tool_calls=CALLS), REFUND), revision=2)
    world.store.submit_many([first, second])
    for path in (run_path(run()), f"/api/v1/runs/{run().run_id}"):  # a colon need not be encoded
        answer = world.get(path)
        assert (answer["run_id"], answer["revision"], answer["verdict"]) == (run().run_id, 2, "pass")
        assert [(each["revision"], each["verdict"]) for each in answer["evaluations"]] == [(1, "fail"), (2, "pass")]
        assert answer["evaluation_count"] == 2


@pytest.mark.parametrize("run_id", ["case/7", "a b?c#d%", "ü:1", "x/rescore/y", "\x00", "a\nb\n", "..", "="])
def test_the_id_of_a_run_may_be_any_text(world: ApiServer, run_id: str) -> None:
    world.store.submit(evaluate(replace(run(), run_id=run_id), None))
    status, _, body = world.ask("GET", f"/api/v1/runs/{quote(run_id, safe='')}")
    assert (status, body["run_id"]) == (200, run_id)


@pytest.mark.parametrize(
    ("method", "url"),
    [
        ("GET", "/api/v1/runs/no:such"),
        ("GET", "/api/v1/runs/"),
        ("GET", "/api/v1/runs/%ff"),
        ("POST", "/api/v1/runs/no:such/rescore"),
        ("POST", "/api/v1/runs//rescore"),
        ("GET", "/api/v1/no/such"),
        ("GET", "/api/v1/no%0Asuch"),
        ("PUT", "/api/v2/runs"),
        ("GET", "/api/"),
    ],
)
def test_what_is_not_there_is_said_to_be_not_there(world: ApiServer, method: str, url: str) -> None:
    assert world.refused(method, url)[:2] == (404, "not_found")


@pytest.mark.parametrize(
    ("method", "url", "allowed"),
    [
        ("POST", "/api/v1/runs", "GET, HEAD"),
        ("OPTIONS", "/api/v1/runs", "GET, HEAD"),
        ("DELETE", "/api/v1/runs/a:b", "GET, HEAD"),
        ("GET", f"/api/v1/traces/{'a' * 32}", "DELETE"),
        ("PATCH", "/api/v1/openapi.json", "GET, HEAD"),
    ],
)
def test_a_method_that_is_not_one_of_the_path_is_told_which_are(
    world: ApiServer, method: str, url: str, allowed: str
) -> None:
    status, headers, body = world.ask(method, url)
    assert (status, headers["allow"], body["error"]["code"]) == (405, allowed, "method_not_allowed")


def test_the_head_of_an_answer_can_be_asked_for(world: ApiServer) -> None:
    status, headers, body = world.ask("HEAD", "/api/v1/runs")
    assert (status, body) == (200, None)
    assert int(headers["content-length"]) > 0


# --- polling for evaluations ------------------------------------------------------------------------------------------


def test_whoever_polls_gets_every_evaluation_once(world: ApiServer) -> None:
    assert world.get("/api/v1/evaluations") == {"evaluations": [], "next_after": 0}
    world.store.submit_many(evaluate(run(number), REFUND) for number in (2, 1, 3))
    first = world.get("/api/v1/evaluations?after=0&limit=2")
    assert [each["run_id"] for each in first["evaluations"]] == [run(2).run_id, run(1).run_id]
    world.store.submit(replace(evaluate(run(2), REFUND), revision=2))
    rest = world.get(f"/api/v1/evaluations?after={first['next_after']}")
    assert [(each["run_id"], each["revision"]) for each in rest["evaluations"]] == [
        (run(3).run_id, 1), (run(2).run_id, 2)
    ]  # fmt: skip
    assert world.get(f"/api/v1/evaluations?after={rest['next_after']}")["evaluations"] == []
    assert world.get(f"/api/v1/evaluations?after={2**63 - 1}")["next_after"] == 2**63 - 1


@pytest.mark.parametrize("query", ["after=-1", f"after={2**63}", "after=x", "cursor=1-1", "after=1e3"])
def test_a_place_that_is_none_is_refused(world: ApiServer, query: str) -> None:
    assert world.refused("GET", f"/api/v1/evaluations?{query}")[:2] == (400, "invalid_parameter")


# --- rescoring --------------------------------------------------------------------------------------------------------


def rescore(world: ApiServer, asked: Run) -> tuple[int, Any]:
    status, _, body = world.ask("POST", f"{run_path(asked)}/rescore")
    return status, body


def test_a_run_is_judged_once_more_by_the_goldens_of_now(world: ApiServer) -> None:
    world.store.submit(evaluate(run(), world.goldens))
    assert rescore(world, run()) == (200, {"changed": False, "run": world.get("/api/v1/runs")["runs"][0]})
    world.goldens = Goldens([replace(REFUND, tools=REFUND.tools[:1])])
    status, body = rescore(world, run())
    assert (status, body["changed"], body["run"]["revision"], body["run"]["verdict"]) == (200, True, 2, "pass")
    assert [each["verdict"] for each in world.get(run_path(run()))["evaluations"]] == ["fail", "pass"]
    assert rescore(world, run())[1]["changed"] is False
    world.goldens = Goldens()
    assert rescore(world, run())[1]["run"]["verdict"] == "not_evaluated"


def test_with_the_values_arguments_are_judged_once_more_too(knowing: ApiServer) -> None:
    tools = (ToolDefinition("find_order", parameters={"properties": {"order": {"type": "integer"}}}),)
    called = run(tool_calls=(ToolCall("find_order", arguments={"order": "8"}), *CALLS[1:]), available_tools=tools)
    knowing.goldens = Goldens([STRICT])
    before = evaluate(called, knowing.goldens)
    knowing.store.submit(before)
    assert rescore(knowing, called)[1]["changed"] is False
    knowing.goldens = Goldens([replace(STRICT, tools=(ExpectedTool("find_order", {"order": 8}), *STRICT.tools[1:]))])
    status, body = rescore(knowing, called)
    assert (status, body["changed"], body["run"]["passed"]) == (200, True, True)
    again = knowing.store.current_revision(called.run_id)
    assert again == (2, evaluate(called, knowing.goldens).digest)


FAILED = (ToolCall("find_order", error="KeyError: 7"), *CALLS)


def unusual(seen: Any) -> float:
    """A custom metric."""
    return 0.5


@pytest.mark.parametrize(
    ("kept", "goldens", "told"),
    [
        pytest.param(run(), [STRICT], "The golden refund compares arguments or results", id="arguments"),
        pytest.param(
            run(), [replace(REFUND, tools=(ExpectedTool("refund", result=1),))], "compares arguments", id="result"
        ),
        pytest.param(run(), [replace(REFUND, duplicates="ignore")], "compares arguments", id="duplicates"),
        pytest.param(run(tool_calls=FAILED), [REFUND], "A call failed", id="failure"),
        pytest.param(
            run(tool_calls=(CALLS[0], replace(CALLS[0], arguments={"order": 8}))),
            [REFUND],
            "The score of redundant_calls depends on arguments",
            id="repeats",
        ),
    ],
)
def test_a_score_that_would_be_less_well_informed_does_not_replace_one(
    world: ApiServer, kept: Run, goldens: list[Golden], told: str
) -> None:
    world.store.submit(evaluate(kept, REFUND))
    world.goldens = Goldens(goldens)
    status, body = rescore(world, kept)
    assert (status, body["error"]["code"]) == (409, "not_kept")
    assert told in body["error"]["message"]
    assert "--keep-arguments" in body["error"]["message"]
    assert world.store.current_revision(kept.run_id) == (1, evaluate(kept, REFUND).digest)


def test_a_metric_of_somebody_elses_may_look_at_anything(world: ApiServer) -> None:
    world.rescore = lambda again: evaluate(again, REFUND, metrics=[unusual])
    world.store.submit(evaluate(run(), REFUND))
    assert "The metric unusual may use arguments" in rescore(world, run())[1]["error"]["message"]


def test_a_failure_that_nothing_came_after_needs_no_arguments(world: ApiServer) -> None:
    alone = run(tool_calls=FAILED[:1])
    world.store.submit(evaluate(alone, None))
    assert rescore(world, alone)[1]["run"]["golden_id"] == "refund"


@pytest.mark.parametrize(
    ("kept", "goldens", "told"),
    [
        pytest.param(run(expected_tools=("refund",)), [REFUND], "The run states its own expectations", id="stated"),
        pytest.param(
            run(attributes={"tenant": "a"}),
            [replace(REFUND, input=None, when=When(attributes={"tenant": "a"}))],
            "the attribute tenant of the run's span",
            id="attribute",
        ),
        pytest.param(run(input="x" * 2001), [REFUND], "Only the first 2000 characters of the input", id="long"),
    ],
)
def test_what_no_store_keeps_decides_nothing(knowing: ApiServer, kept: Run, goldens: list[Golden], told: str) -> None:
    knowing.goldens = Goldens(goldens)
    knowing.store.submit(evaluate(kept, knowing.goldens))
    status, body = rescore(knowing, kept)
    assert (status, body["error"]["code"]) == (409, "not_kept")
    assert told in body["error"]["message"]


@pytest.mark.parametrize("look", [len, list])
def test_metrics_that_look_at_all_attributes_look_at_what_no_store_keeps(
    knowing: ApiServer, look: Callable[[Any], Any]
) -> None:
    def of_attributes(seen: Any) -> float:
        return float(not look(seen.run.attributes))

    knowing.rescore = lambda again: evaluate(again, REFUND, metrics=[of_attributes])
    knowing.store.submit(evaluate(run(), REFUND))
    assert "use the attribute * of" in rescore(knowing, run())[1]["error"]["message"]


def test_a_long_input_does_not_matter_where_the_run_names_its_golden(world: ApiServer) -> None:
    long = run(input="x" * 3000, golden_id="refund")
    world.store.submit(evaluate(long, None))
    assert rescore(world, long)[1]["run"]["golden_id"] == "refund"


def test_a_run_that_was_stored_by_an_older_version_is_left_as_it_is(world: ApiServer) -> None:
    with closing(sqlite3.connect(world.store.path)) as other:
        world.store.submit(evaluate(run(), REFUND))
        other.execute("UPDATE evaluations SET document = json_remove(document, '$.states_expectations')")
        other.commit()
    assert "An older goldspan stored this run" in rescore(world, run())[1]["error"]["message"]


def test_what_was_judged_without_the_values_lacks_them_although_values_are_kept_now(path: Path) -> None:
    with open_store(path) as before:
        before.submit(evaluate(run(), None))
    with open_store(path, keep_arguments=True) as store, serving(ApiServer(store, Goldens([REFUND]))) as world:
        assert rescore(world, run())[1]["changed"] is True
        world.goldens = Goldens([STRICT])
        assert rescore(world, run())[0] == 409


def test_what_became_known_meanwhile_is_not_replaced(world: ApiServer) -> None:
    world.store.submit(evaluate(run(), None))
    late = replace(evaluate(run(tool_calls=CALLS), None), revision=2)

    def meanwhile(again: Run) -> Evaluation:
        world.store.submit(late)
        return evaluate(again, REFUND)

    world.rescore = meanwhile
    status, body = rescore(world, run())
    assert (status, body["error"]["code"]) == (409, "changed_meanwhile")
    assert world.store.current_revision(run().run_id) == (2, late.digest)
    world.rescore = None
    assert rescore(world, run())[1]["run"]["revision"] == 3


# --- deletions --------------------------------------------------------------------------------------------------------


def test_a_trace_is_deleted_forgotten_and_not_stored_again(world: ApiServer) -> None:
    joined = replace(run(2), trace_ids=(*run(2).trace_ids, *run(1).trace_ids))
    world.store.submit_many([evaluate(run(1), None), evaluate(joined, None), evaluate(run(3), None)])
    path = f"/api/v1/traces/{run(1).trace_ids[0].upper()}"
    assert world.ask("DELETE", path)[::2] == (200, {"deleted": 2})
    assert world.forgotten == [run(1).trace_ids[0]]
    world.store.submit(replace(evaluate(run(1), None), revision=2))
    assert ids(world.get("/api/v1/runs")) == [run(3).run_id]
    assert world.ask("DELETE", path)[::2] == (200, {"deleted": 0})


@pytest.mark.parametrize("trace_id", ["abc", "a" * 33, "g" * 32, "a" * 31 + "%0A", "٣" * 32, "%ff" * 32])
def test_what_is_no_trace_id_deletes_nothing(world: ApiServer, trace_id: str) -> None:
    path = f"/api/v1/traces/{quote(trace_id, safe='%')}"
    assert world.refused("DELETE", path)[:2] == (400, "invalid_parameter")
    assert world.forgotten == []


# --- an unavailable store ---------------------------------------------------------------------------------------------


def test_a_store_that_is_locked_is_asked_again_later_and_can_be_read_meanwhile(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with (
        open_store(path, timeout=0.05) as store,
        serving(ApiServer(store)) as world,
        closing(sqlite3.connect(path, isolation_level=None)) as other,
    ):
        store.submit(evaluate(run(), None))
        other.execute("BEGIN IMMEDIATE")
        asked = f"/api/v1/traces/{'a' * 32}"
        status, headers, body = world.ask("DELETE", asked)
        assert (status, body["error"]["code"]) == (503, "unavailable")
        assert int(headers["retry-after"]) > 0
        assert str(path) not in body["error"]["message"]
        assert f"{path}: another process holds a lock on it" in caplog.text
        assert len(world.get("/api/v1/runs")["runs"]) == 1
        other.execute("ROLLBACK")
        assert world.ask("DELETE", asked)[0] == 200


def test_while_requests_wait_for_the_store_others_are_answered(world: ApiServer) -> None:
    """All slots but one wait: the event loop and the last slot serve the other requests."""
    world.store.submit(evaluate(run(), None))
    begun, go_on = threading.Semaphore(0), threading.Event()

    def slow(again: Run) -> Evaluation:
        begun.release()
        assert go_on.wait(60)
        return evaluate(again, None)

    world.rescore = slow
    waiting = [
        threading.Thread(target=rescore, args=(world, run())) for _ in range(api.MAX_CONCURRENT_API_REQUESTS - 1)
    ]
    for thread in waiting:
        thread.start()
    assert all(begun.acquire(timeout=60) for _ in waiting)
    assert ids(world.get("/api/v1/runs")) == [run().run_id]
    go_on.set()
    for thread in waiting:
        thread.join()


def test_the_body_of_a_request_that_needs_none_is_passed_over(world: ApiServer) -> None:
    world.store.submit(evaluate(run(), None))
    assert world.ask("POST", f"{run_path(run())}/rescore", b"{}" * 1000)[0] == 200
