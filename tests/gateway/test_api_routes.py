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
def running_api(path: Path) -> Iterator[ApiServer]:
    with open_store(path, clock=lambda: NOW) as store, serving(ApiServer(store, Goldens([REFUND]))) as served:
        yield served


@pytest.fixture
def argument_server(path: Path) -> Iterator[ApiServer]:
    """An API server over a store that keeps arguments."""
    with open_store(path, keep_arguments=True) as store, serving(ApiServer(store, Goldens([REFUND]))) as served:
        yield served


def ids(answer: Any) -> list[str]:
    return [each["run_id"] for each in answer["runs"]]


def run_path(asked: Run) -> str:
    return f"/api/v1/runs/{quote(asked.run_id, safe='')}"


# --- runs -------------------------------------------------------------------------------------------------------------


def test_runs_are_listed_newest_first_with_their_verdicts_and_scores(running_api: ApiServer) -> None:
    running_api.store.submit_many([evaluate(run(2), REFUND), evaluate(run(1, tool_calls=CALLS), REFUND)])
    answer = running_api.get("/api/v1/runs")
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
def test_every_run_filter_of_the_store_is_a_query_parameter(
    running_api: ApiServer, asked: dict[str, str], meant: RunFilter
) -> None:
    runs = [
        (run(1, tool_calls=CALLS), REFUND),
        (run(2, service="shop", environment="test"), REFUND),
        (run(3, agent="travel", session_id="s & é"), replace(REFUND, max_calls=3)),
        (run(4, unit="component", component="find", input="Hello?"), None),
        (run(5), None),
    ]
    running_api.store.submit_many(evaluate(*each) for each in runs)
    expected = [each.run_id for each in running_api.store.runs(meant).items]
    assert ids(running_api.get(f"/api/v1/runs?{urlencode(asked)}")) == expected


def test_following_the_cursor_lists_every_run_once(running_api: ApiServer) -> None:
    running_api.store.submit_many(evaluate(run(number), REFUND) for number in range(1, 8))
    seen, cursor = [], {}
    while True:
        page = running_api.get(f"/api/v1/runs?{urlencode({'limit': 3, 'agent': 'support', **cursor})}")
        seen.append(ids(page))
        if page["next_cursor"] is None:
            break
        cursor = {"cursor": page["next_cursor"]}
    assert [len(each) for each in seen] == [3, 3, 1]
    assert [each for page in seen for each in page] == [run(number).run_id for number in range(1, 8)]


def test_a_page_of_large_runs_ends_early_and_the_next_page_continues_after_it(
    running_api: ApiServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    running_api.store.submit_many(evaluate(run(number), None) for number in range(1, 131))
    monkeypatch.setattr(api, "MAX_PAGE_CHARACTERS", 1)
    first = running_api.get("/api/v1/runs?limit=1000")
    assert len(first["runs"]) == api.PAGE_BATCH
    second = running_api.get(f"/api/v1/runs?limit=60&cursor={first['next_cursor']}")
    assert ids(second)[0] == run(api.PAGE_BATCH + 1).run_id
    arrived = running_api.get("/api/v1/evaluations?limit=1000")
    assert (len(arrived["evaluations"]), arrived["next_after"]) == (api.PAGE_BATCH, api.PAGE_BATCH)
    monkeypatch.undo()
    assert len(running_api.get("/api/v1/runs?limit=120")["runs"]) == 120
    assert len(running_api.get("/api/v1/evaluations?limit=1000")["evaluations"]) == 130


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
def test_an_invalid_query_parameter_is_refused_with_an_explanation(
    running_api: ApiServer, query: str, told: str
) -> None:
    status, code, message = running_api.refused("GET", f"/api/v1/runs?{query}")
    assert (status, code) == (400, "invalid_parameter")
    assert told in message
    assert len(message) < 300


def test_a_run_is_returned_with_all_its_revisions(running_api: ApiServer) -> None:
    first = evaluate(run(), REFUND)
    second = replace(evaluate(run(tool_calls=CALLS), REFUND), revision=2)
    running_api.store.submit_many([first, second])
    for path in (run_path(run()), f"/api/v1/runs/{run().run_id}"):  # a colon need not be encoded
        answer = running_api.get(path)
        assert (answer["run_id"], answer["revision"], answer["verdict"]) == (run().run_id, 2, "pass")
        assert [(each["revision"], each["verdict"]) for each in answer["evaluations"]] == [(1, "fail"), (2, "pass")]
        assert answer["evaluation_count"] == 2


@pytest.mark.parametrize("run_id", ["case/7", "a b?c#d%", "ü:1", "x/rescore/y", "\x00", "a\nb\n", "..", "="])
def test_a_run_id_may_be_any_text(running_api: ApiServer, run_id: str) -> None:
    running_api.store.submit(evaluate(replace(run(), run_id=run_id), None))
    status, _, body = running_api.ask("GET", f"/api/v1/runs/{quote(run_id, safe='')}")
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
def test_unknown_runs_and_paths_are_answered_404(running_api: ApiServer, method: str, url: str) -> None:
    assert running_api.refused(method, url)[:2] == (404, "not_found")


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
def test_an_unsupported_method_is_answered_405_with_the_allowed_methods(
    running_api: ApiServer, method: str, url: str, allowed: str
) -> None:
    status, headers, body = running_api.ask(method, url)
    assert (status, headers["allow"], body["error"]["code"]) == (405, allowed, "method_not_allowed")


def test_a_head_request_returns_the_headers_without_a_body(running_api: ApiServer) -> None:
    status, headers, body = running_api.ask("HEAD", "/api/v1/runs")
    assert (status, body) == (200, None)
    assert int(headers["content-length"]) > 0


# --- polling for evaluations ------------------------------------------------------------------------------------------


def test_polling_returns_every_evaluation_once(running_api: ApiServer) -> None:
    assert running_api.get("/api/v1/evaluations") == {"evaluations": [], "next_after": 0}
    running_api.store.submit_many(evaluate(run(number), REFUND) for number in (2, 1, 3))
    first = running_api.get("/api/v1/evaluations?after=0&limit=2")
    assert [each["run_id"] for each in first["evaluations"]] == [run(2).run_id, run(1).run_id]
    running_api.store.submit(replace(evaluate(run(2), REFUND), revision=2))
    rest = running_api.get(f"/api/v1/evaluations?after={first['next_after']}")
    assert [(each["run_id"], each["revision"]) for each in rest["evaluations"]] == [
        (run(3).run_id, 1), (run(2).run_id, 2)
    ]  # fmt: skip
    assert running_api.get(f"/api/v1/evaluations?after={rest['next_after']}")["evaluations"] == []
    assert running_api.get(f"/api/v1/evaluations?after={2**63 - 1}")["next_after"] == 2**63 - 1


@pytest.mark.parametrize("query", ["after=-1", f"after={2**63}", "after=x", "cursor=1-1", "after=1e3"])
def test_an_invalid_polling_position_is_refused(running_api: ApiServer, query: str) -> None:
    assert running_api.refused("GET", f"/api/v1/evaluations?{query}")[:2] == (400, "invalid_parameter")


# --- rescoring --------------------------------------------------------------------------------------------------------


def rescore(running_api: ApiServer, asked: Run) -> tuple[int, Any]:
    status, _, body = running_api.ask("POST", f"{run_path(asked)}/rescore")
    return status, body


def test_rescoring_evaluates_a_run_with_the_current_goldens(running_api: ApiServer) -> None:
    running_api.store.submit(evaluate(run(), running_api.goldens))
    assert rescore(running_api, run()) == (200, {"changed": False, "run": running_api.get("/api/v1/runs")["runs"][0]})
    running_api.goldens = Goldens([replace(REFUND, tools=REFUND.tools[:1])])
    status, body = rescore(running_api, run())
    assert (status, body["changed"], body["run"]["revision"], body["run"]["verdict"]) == (200, True, 2, "pass")
    assert [each["verdict"] for each in running_api.get(run_path(run()))["evaluations"]] == ["fail", "pass"]
    assert rescore(running_api, run())[1]["changed"] is False
    running_api.goldens = Goldens()
    assert rescore(running_api, run())[1]["run"]["verdict"] == "not_evaluated"


def test_rescoring_compares_arguments_if_the_store_keeps_them(argument_server: ApiServer) -> None:
    tools = (ToolDefinition("find_order", parameters={"properties": {"order": {"type": "integer"}}}),)
    called = run(tool_calls=(ToolCall("find_order", arguments={"order": "8"}), *CALLS[1:]), available_tools=tools)
    argument_server.goldens = Goldens([STRICT])
    before = evaluate(called, argument_server.goldens)
    argument_server.store.submit(before)
    assert rescore(argument_server, called)[1]["changed"] is False
    argument_server.goldens = Goldens(
        [replace(STRICT, tools=(ExpectedTool("find_order", {"order": 8}), *STRICT.tools[1:]))]
    )
    status, body = rescore(argument_server, called)
    assert (status, body["changed"], body["run"]["passed"]) == (200, True, True)
    again = argument_server.store.current_revision(called.run_id)
    assert again == (2, evaluate(called, argument_server.goldens).digest)


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
def test_rescoring_is_refused_if_it_needs_values_that_are_not_stored(
    running_api: ApiServer, kept: Run, goldens: list[Golden], told: str
) -> None:
    running_api.store.submit(evaluate(kept, REFUND))
    running_api.goldens = Goldens(goldens)
    status, body = rescore(running_api, kept)
    assert (status, body["error"]["code"]) == (409, "not_kept")
    assert told in body["error"]["message"]
    assert "--keep-arguments" in body["error"]["message"]
    assert running_api.store.current_revision(kept.run_id) == (1, evaluate(kept, REFUND).digest)


def test_rescoring_is_refused_for_a_custom_metric_that_may_use_arguments(running_api: ApiServer) -> None:
    running_api.rescore = lambda again: evaluate(again, REFUND, metrics=[unusual])
    running_api.store.submit(evaluate(run(), REFUND))
    assert "The metric unusual may use arguments" in rescore(running_api, run())[1]["error"]["message"]


def test_a_failed_call_without_later_calls_is_rescored_without_arguments(running_api: ApiServer) -> None:
    alone = run(tool_calls=FAILED[:1])
    running_api.store.submit(evaluate(alone, None))
    assert rescore(running_api, alone)[1]["run"]["golden_id"] == "refund"


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
def test_rescoring_is_refused_if_it_needs_a_value_that_no_store_keeps(
    argument_server: ApiServer, kept: Run, goldens: list[Golden], told: str
) -> None:
    argument_server.goldens = Goldens(goldens)
    argument_server.store.submit(evaluate(kept, argument_server.goldens))
    status, body = rescore(argument_server, kept)
    assert (status, body["error"]["code"]) == (409, "not_kept")
    assert told in body["error"]["message"]


@pytest.mark.parametrize("look", [len, list])
def test_rescoring_is_refused_for_a_metric_that_reads_all_attributes(
    argument_server: ApiServer, look: Callable[[Any], Any]
) -> None:
    def of_attributes(seen: Any) -> float:
        return float(not look(seen.run.attributes))

    argument_server.rescore = lambda again: evaluate(again, REFUND, metrics=[of_attributes])
    argument_server.store.submit(evaluate(run(), REFUND))
    assert "use the attribute * of" in rescore(argument_server, run())[1]["error"]["message"]


def test_a_run_with_a_truncated_input_is_rescored_if_it_names_its_golden(running_api: ApiServer) -> None:
    long = run(input="x" * 3000, golden_id="refund")
    running_api.store.submit(evaluate(long, None))
    assert rescore(running_api, long)[1]["run"]["golden_id"] == "refund"


def test_a_run_that_an_older_version_stored_is_not_rescored(running_api: ApiServer) -> None:
    with closing(sqlite3.connect(running_api.store.path)) as other:
        running_api.store.submit(evaluate(run(), REFUND))
        other.execute("UPDATE evaluations SET document = json_remove(document, '$.states_expectations')")
        other.commit()
    assert "An older goldspan stored this run" in rescore(running_api, run())[1]["error"]["message"]


def test_a_run_stored_without_arguments_lacks_them_after_keep_arguments_is_enabled(path: Path) -> None:
    with open_store(path) as before:
        before.submit(evaluate(run(), None))
    with open_store(path, keep_arguments=True) as store, serving(ApiServer(store, Goldens([REFUND]))) as running_api:
        assert rescore(running_api, run())[1]["changed"] is True
        running_api.goldens = Goldens([STRICT])
        assert rescore(running_api, run())[0] == 409


def test_rescoring_does_not_replace_a_revision_that_is_stored_meanwhile(running_api: ApiServer) -> None:
    running_api.store.submit(evaluate(run(), None))
    late = replace(evaluate(run(tool_calls=CALLS), None), revision=2)

    def meanwhile(again: Run) -> Evaluation:
        running_api.store.submit(late)
        return evaluate(again, REFUND)

    running_api.rescore = meanwhile
    status, body = rescore(running_api, run())
    assert (status, body["error"]["code"]) == (409, "changed_meanwhile")
    assert running_api.store.current_revision(run().run_id) == (2, late.digest)
    running_api.rescore = None
    assert rescore(running_api, run())[1]["run"]["revision"] == 3


# --- deletions --------------------------------------------------------------------------------------------------------


def test_a_deleted_trace_is_dropped_from_memory_and_not_stored_again(running_api: ApiServer) -> None:
    joined = replace(run(2), trace_ids=(*run(2).trace_ids, *run(1).trace_ids))
    running_api.store.submit_many([evaluate(run(1), None), evaluate(joined, None), evaluate(run(3), None)])
    path = f"/api/v1/traces/{run(1).trace_ids[0].upper()}"
    assert running_api.ask("DELETE", path)[::2] == (200, {"deleted": 2})
    assert running_api.forgotten == [run(1).trace_ids[0]]
    running_api.store.submit(replace(evaluate(run(1), None), revision=2))
    assert ids(running_api.get("/api/v1/runs")) == [run(3).run_id]
    assert running_api.ask("DELETE", path)[::2] == (200, {"deleted": 0})


@pytest.mark.parametrize("trace_id", ["abc", "a" * 33, "g" * 32, "a" * 31 + "%0A", "٣" * 32, "%ff" * 32])
def test_an_invalid_trace_id_is_refused_and_deletes_nothing(running_api: ApiServer, trace_id: str) -> None:
    path = f"/api/v1/traces/{quote(trace_id, safe='%')}"
    assert running_api.refused("DELETE", path)[:2] == (400, "invalid_parameter")
    assert running_api.forgotten == []


# --- an unavailable store ---------------------------------------------------------------------------------------------


def test_a_locked_store_answers_deletions_with_503_and_can_still_be_read(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with (
        open_store(path, timeout=0.05) as store,
        serving(ApiServer(store)) as running_api,
        closing(sqlite3.connect(path, isolation_level=None)) as other,
    ):
        store.submit(evaluate(run(), None))
        other.execute("BEGIN IMMEDIATE")
        asked = f"/api/v1/traces/{'a' * 32}"
        status, headers, body = running_api.ask("DELETE", asked)
        assert (status, body["error"]["code"]) == (503, "unavailable")
        assert int(headers["retry-after"]) > 0
        assert str(path) not in body["error"]["message"]
        assert f"{path}: another process holds a lock on it" in caplog.text
        assert len(running_api.get("/api/v1/runs")["runs"]) == 1
        other.execute("ROLLBACK")
        assert running_api.ask("DELETE", asked)[0] == 200


def test_requests_are_answered_while_others_wait_for_the_store(running_api: ApiServer) -> None:
    """All slots but one wait: the event loop and the last slot serve the other requests."""
    running_api.store.submit(evaluate(run(), None))
    begun, go_on = threading.Semaphore(0), threading.Event()

    def slow(again: Run) -> Evaluation:
        begun.release()
        assert go_on.wait(60)
        return evaluate(again, None)

    running_api.rescore = slow
    waiting = [
        threading.Thread(target=rescore, args=(running_api, run())) for _ in range(api.MAX_CONCURRENT_API_REQUESTS - 1)
    ]
    for thread in waiting:
        thread.start()
    assert all(begun.acquire(timeout=60) for _ in waiting)
    assert ids(running_api.get("/api/v1/runs")) == [run().run_id]
    go_on.set()
    for thread in waiting:
        thread.join()


def test_a_body_that_a_request_does_not_need_is_ignored(running_api: ApiServer) -> None:
    running_api.store.submit(evaluate(run(), None))
    assert running_api.ask("POST", f"{run_path(run())}/rescore", b"{}" * 1000)[0] == 200
