"""`goldspan export --to` and `goldspan score --to` write scores into products, or print what they would send."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from goldspan.integrations.phoenix import Phoenix
from goldspan.integrations.scored_runs import scored_run
from goldspan.store import open_store
from integrations.recording_server import Answer, recording_server
from support.command_line import Goldspan
from support.command_line import goldspan as goldspan  # a fixture
from support.evaluation_builders import evaluation
from support.interrupts import unmeasured
from support.product_server import Request

RUNS = 7


@pytest.fixture(autouse=True)
def _no_token(monkeypatch):
    monkeypatch.delenv("PHOENIX_API_KEY", raising=False)


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """A store with seven runs, of which the first two failed."""
    path = tmp_path / "goldspan.db"
    with open_store(path) as opened:
        opened.submit_many(evaluation(number, "book" if number < 3 else "search") for number in range(1, RUNS + 1))
    return path


def delivered(requests: list[Request]) -> Counter[str]:
    """Count how often the scores of each run were in a request to Phoenix."""
    return Counter(
        run_id
        for request in requests
        for run_id in {row["identifier"].partition(":")[2] for row in request.body["data"]}
    )


def accept(_: Request) -> Answer:
    return Answer(200, {"data": []})


def test_export_writes_the_scores_of_a_store_and_then_nothing_again(goldspan: Goldspan, store: Path):
    with recording_server(accept) as (url, requests):
        first = goldspan("export", store, "--to", f"phoenix:{url}")
        assert len(delivered(requests)) == RUNS
        second = goldspan("export", store, "--to", f"phoenix:{url}")
        assert set(delivered(requests).values()) == {1}
    assert (first.status, first.out, first.err) == (0, "", f"phoenix ({url}): {RUNS} written\n")
    assert (second.status, second.err) == (0, f"phoenix ({url}): 0 written, {RUNS} already there\n")
    assert (store.parent / "goldspan.db.delivered").exists()


def test_export_sends_a_run_again_whose_revision_changed(goldspan: Goldspan, store: Path):
    with recording_server(accept) as (url, requests):
        goldspan("export", store, "--to", f"phoenix:{url}")
        with open_store(store) as opened:
            opened.submit(replace(evaluation(4, "book"), revision=2))
        del requests[:]
        result = goldspan("export", store, "--to", f"phoenix:{url}")
        (row, *_) = requests[0].body["data"]
    assert result.err == f"phoenix ({url}): 1 written, 6 already there\n"
    assert (row["metadata"]["goldspan.revision"], row["result"]["label"]) == (2, "fail")


def test_export_sends_the_selected_runs_to_each_product(goldspan: Goldspan, store: Path):
    with recording_server(accept) as (one, of_one), recording_server(accept) as (two, of_two):
        options = ("--to", f"phoenix:{one}", "--to", f"phoenix:{two}", "--to", f"phoenix:{one}")
        result = goldspan("export", store, *options, "--verdict", "fail")
    failed = {evaluation(number).run.run_id: 1 for number in (1, 2)}
    assert (result.status, delivered(of_one), delivered(of_two)) == (0, failed, failed)


def test_the_scores_in_a_store_are_those_that_a_sink_sends(goldspan: Goldspan, store: Path):
    with recording_server(accept) as (url, requests):
        goldspan("export", store, "--to", f"phoenix:{url}", "--trace", f"{1:032x}")
    run = scored_run(evaluation(1, "book"))
    assert run is not None
    (live,) = Phoenix(url).requests([run])
    assert [request.body for request in requests] == [live.body]


def test_the_folder_of_a_gateway_is_not_changed_if_the_state_is_elsewhere(
    goldspan: Goldspan, store: Path, tmp_path: Path
):
    before = store.read_bytes()
    state = tmp_path / "elsewhere" / "state"
    state.parent.mkdir()
    with recording_server(accept) as (url, _):
        assert goldspan("export", store, "--to", f"phoenix:{url}", "--state", state).status == 0
    assert store.read_bytes() == before
    assert state.exists()
    assert not (tmp_path / "goldspan.db.delivered").exists()


def test_what_was_not_written_is_named_and_changes_the_exit_status(goldspan: Goldspan, store: Path):
    unknown, refused = f"{2:016x}", f"{5:016x}"

    def answer(request: Request) -> Answer:
        spans = {row["span_id"] for row in request.body["data"]}
        if refused in spans:
            return Answer(422, {"detail": "too long"})
        return (
            Answer(404, {"detail": f"Spans with IDs {unknown} do not exist."}) if unknown in spans else accept(request)
        )

    with recording_server(answer) as (url, _):
        result = goldspan("export", store, "--to", f"phoenix:{url}")
        again = goldspan("export", store, "--to", f"phoenix:{url}")
    assert result.status == again.status == 1
    assert result.err.splitlines() == [
        f"phoenix ({url}): 5 written, 1 refused, 1 not found",
        f"  refused: run {evaluation(5).run.run_id}: phoenix answered 422 to POST /v1/span_annotations: too long",
        f"  not found: run {evaluation(2).run.run_id}, trace {2:032x}",
    ]
    assert again.err.startswith(f"phoenix ({url}): 0 written, 5 already there, 1 refused, 1 not found\n")


def test_more_refused_runs_than_are_named_are_counted(goldspan: Goldspan, store: Path):
    with recording_server(lambda _: Answer(422, {"detail": "no"})) as (url, _):
        result = goldspan("export", store, "--to", f"phoenix:{url}")
    assert len(result.err.splitlines()) == 7
    assert result.err.endswith("  and 2 more refused\n")


def test_export_waits_as_long_as_the_product_asks(goldspan: Goldspan, store: Path):
    at: list[float] = []

    def answer(request: Request) -> Answer:
        at.append(time.monotonic())
        return Answer(429, {"detail": "slow down"}, {"retry-after": "1"}) if len(at) == 1 else accept(request)

    with recording_server(answer) as (url, requests):
        result = goldspan("export", store, "--to", f"phoenix:{url}")
        assert len(delivered(requests[1:])) == RUNS
    assert (result.status, result.err.splitlines()[-1]) == (0, f"phoenix ({url}): {RUNS} written")
    assert at[1] - at[0] >= 0.95


def test_a_product_that_is_down_is_given_up(goldspan: Goldspan, store: Path):
    with recording_server(lambda _: Answer(500, {"detail": "down"})) as (url, _):
        result = goldspan("export", store, "--to", f"phoenix:{url}", "--give-up-after", "0s")
    assert result.status == 1
    assert result.err.splitlines()[-3:] == [
        f"phoenix ({url}): 0 written, {RUNS} pending",
        "  phoenix answered 500 to POST /v1/span_annotations: down",
        "  phoenix accepted nothing for too long; repeat the command to continue",
    ]


def test_a_wrong_token_is_reported_at_once_and_never_shown(goldspan: Goldspan, store: Path, monkeypatch):
    monkeypatch.setenv("PHOENIX_API_KEY", "s3cret-t0ken")
    with recording_server(lambda got: Answer(401, {"detail": got.headers["authorization"]})) as (url, requests):
        result = goldspan("export", store, "--to", f"phoenix:{url}")
        assert len(requests) == 1
    assert result.status == 1
    assert "  correct the address or the token, and repeat the command to continue" in result.err
    assert "s3cret" not in result.err


def test_a_dry_run_prints_the_requests_and_sends_nothing(goldspan: Goldspan, store: Path, monkeypatch):
    monkeypatch.setenv("PHOENIX_API_KEY", "s3cret-t0ken")
    with recording_server(accept) as (url, requests):
        command = ("export", store, "--to", f"phoenix:{url}")
        dry = goldspan(*command, "--dry-run", "--json")
        readable = goldspan(*command, "--dry-run")
        assert requests == []
        assert not (store.parent / "goldspan.db.delivered").exists()
        goldspan(*command)
        sent = [(got.method, f"{url}{got.path}?sync=true", got.body) for got in requests]
        nothing = goldspan(*command, "--dry-run")
    assert [(one["method"], one["url"], one["body"]) for one in dry.documents] == sent != []
    assert {frozenset(one) for one in dry.documents} == {frozenset(("product", "method", "url", "body"))}
    assert dry.err == readable.err == f"dry run: {len(sent)} request to phoenix ({url}), none was sent\n"
    line, _, body = readable.out.partition("\n")
    assert (line, json.loads(body)) == (f"POST {sent[0][1]}", sent[0][2])
    assert "s3cret" not in dry.out + dry.err + readable.out + readable.err
    assert (nothing.status, nothing.out) == (0, "")


@pytest.mark.parametrize(
    ("name", "variables", "note"),
    [
        ("mlflow", {}, "batchGetInfos"),
        ("opik", {}, "the traces are searched first"),
        ("braintrust", {"BRAINTRUST_API_KEY": "s3cret"}, "replace the <placeholders>"),
        ("langsmith", {"LANGSMITH_API_KEY": "s3cret"}, "the id of the project is read first"),
        ("langfuse", {"LANGFUSE_PUBLIC_KEY": "pk", "LANGFUSE_SECRET_KEY": "s3cret"}, "does not accept lists"),
    ],
)
def test_a_dry_run_says_how_the_requests_depend_on_the_product(
    goldspan: Goldspan, store: Path, monkeypatch, name: str, variables: dict[str, str], note: str
):
    for variable, value in variables.items():
        monkeypatch.setenv(variable, value)
    with recording_server(accept) as (url, requests):
        result = goldspan("export", store, "--to", f"{name}:{url}", "--dry-run", "--json")
        assert requests == []
    assert (result.status, {one["product"] for one in result.documents}) == (0, {name})
    assert "  what is sent can differ: " in result.err
    assert note in result.err
    assert "s3cret" not in result.out + result.err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "name where to export: either a file OUT, or a product with --to"),
        (("runs.csv", "--to", "phoenix"), "name where to export: either a file OUT, or a product with --to"),
        (("runs.csv", "--dry-run"), "--dry-run needs --to"),
        (("runs.csv", "--state", "s"), "--state needs --to"),
        (("runs.csv", "--rate", "1"), "--rate needs --to"),
        (("runs.csv", "--give-up-after", "1m"), "--give-up-after needs --to"),
        (("--to", "phoenix", "--json"), "--json needs --dry-run"),
        (("--to", "phenix"), "Did you mean 'phoenix'?"),
        (("--to", "phoenix", "--give-up-after", "soon"), "'soon' is not a duration; write it as 30s, 10m or 2h"),
        (("--to", "phoenix:http://user:pw@host", "--dry-run"), "without a password or a query"),
        (("--to", "datadog"), "datadog needs the variable DD_API_KEY"),
    ],
)
def test_wrong_options_are_an_error(
    goldspan: Goldspan, store: Path, monkeypatch, tmp_path: Path, arguments: tuple[str, ...], message: str
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("DD_API_KEY", raising=False)
    result = goldspan("export", store, *arguments)
    assert result.status == 2
    assert message in result.err
    assert not (tmp_path / "runs.csv").exists()


@pytest.fixture
def traces(tmp_path: Path) -> tuple[Path, Path]:
    """Traces with two runs, and a golden for the first of them."""
    spans = [_agent_span(number) for number in (1, 2)]
    path = tmp_path / "traces.jsonl"
    path.write_text("\n".join(json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": two}]}]}) for two in spans))
    goldens = tmp_path / "goldens.yaml"
    goldens.write_text("goldens:\n- {id: first, tools: [search]}\n")
    return path, goldens


def _agent_span(number: int) -> list[dict[str, Any]]:
    def span(span_id: int, name: str, parent: int | None = None, **attributes: str) -> dict[str, Any]:
        return {
            "traceId": f"{number:032x}",
            "spanId": f"{span_id:016x}",
            "parentSpanId": "" if parent is None else f"{parent:016x}",
            "name": name,
            "startTimeUnixNano": "1760000000000000000",
            "endTimeUnixNano": "1760000001000000000",
            "attributes": [
                {"key": key.replace("__", "."), "value": {"stringValue": value}} for key, value in attributes.items()
            ],
        }

    return [
        span(
            number * 10,
            "invoke_agent travel",
            gen_ai__operation__name="invoke_agent",
            gen_ai__agent__name="travel",
            **({"goldspan__golden__id": "first"} if number == 1 else {}),
        ),
        span(
            number * 10 + 1,
            "execute_tool search",
            number * 10,
            gen_ai__operation__name="execute_tool",
            gen_ai__tool__name="search",
        ),
    ]


def test_score_prints_the_results_and_writes_the_scores(goldspan: Goldspan, traces: tuple[Path, Path]):
    path, goldens = traces
    with recording_server(accept) as (url, requests):
        result = goldspan("score", path, "-g", goldens, "--to", f"phoenix:{url}", "--rate", "0")
        plain = goldspan("score", path, "-g", goldens)
        assert len(delivered(requests)) == 2
        spans = {row["span_id"] for request in requests for row in request.body["data"]}
    assert spans == {f"{10:016x}", f"{20:016x}"}
    assert (result.status, result.out) == (0, plain.out)
    assert f"phoenix ({url}): 2 written\n" in result.err
    assert [entry.name for entry in path.parent.iterdir() if "delivered" in entry.name] == []


def test_score_with_a_state_file_sends_only_what_changed(goldspan: Goldspan, traces: tuple[Path, Path]):
    path, goldens = traces
    with recording_server(accept) as (url, requests):
        command = ("score", path, "-g", goldens, "--to", f"phoenix:{url}", "--state", path.parent / "state")
        goldspan(*command)
        again = goldspan(*command)
        goldens.write_text("goldens:\n- {id: first, tools: [book]}\n")
        changed = goldspan(*command)
    assert f"phoenix ({url}): 0 written, 2 already there" in again.err
    assert f"phoenix ({url}): 1 written, 1 already there" in changed.err
    assert len(requests) == 2


def test_a_dry_run_of_score_prints_the_requests_instead_of_the_results(goldspan: Goldspan, traces: tuple[Path, Path]):
    path, goldens = traces
    with recording_server(accept) as (url, requests):
        result = goldspan("score", path, "-g", goldens, "--to", f"phoenix:{url}", "--dry-run", "--json")
        assert requests == []
    (request,) = result.documents
    assert request["url"] == f"{url}/v1/span_annotations?sync=true"
    assert {row["span_id"] for row in request["body"]["data"]} == {f"{10:016x}", f"{20:016x}"}


def test_score_fails_if_a_score_was_not_written(goldspan: Goldspan, traces: tuple[Path, Path]):
    path, goldens = traces
    with recording_server(lambda _: Answer(401, {"detail": "who?"})) as (url, _):
        result = goldspan("score", path, "-g", goldens, "--to", f"phoenix:{url}")
    assert result.status == 1
    assert "repeat the command to write all runs again, which updates them" in result.err


def test_the_scores_of_cases_cannot_be_sent(goldspan: Goldspan, tmp_path: Path):
    cases = tmp_path / "cases.csv"
    cases.write_text("tools_called,expected_tools\na,a\n")
    result = goldspan("score", "--cases", cases, "--to", "phoenix")
    assert (result.status, "--to needs traces" in result.err) == (2, True)


def test_ctrl_c_ends_the_export_to_all_products(goldspan: Goldspan, store: Path):
    def answer(request: Request) -> Answer:
        os.kill(os.getpid(), signal.SIGINT)
        return accept(request)

    with recording_server(answer) as (one, of_one), recording_server(accept) as (two, of_two):
        result = goldspan("export", store, "--to", f"phoenix:{one}", "--to", f"phoenix:{two}", "--rate", "3")
        assert (len(delivered(of_one)), of_two) == (3, [])
    assert result.status == 130
    assert result.err == f"phoenix ({one}): 3 written, 4 pending\n  interrupted; repeat the command to continue\n"
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_ctrl_c_after_the_last_run_is_no_interruption(goldspan: Goldspan, store: Path):
    def answer(request: Request) -> Answer:
        os.kill(os.getpid(), signal.SIGINT)
        return accept(request)

    with recording_server(answer) as (url, _):
        result = goldspan("export", store, "--to", f"phoenix:{url}")
    assert (result.status, result.err) == (0, f"phoenix ({url}): {RUNS} written\n")


@pytest.fixture
def large_store(tmp_path: Path) -> Path:
    path = tmp_path / "goldspan.db"
    with open_store(path) as opened:
        opened.submit_many(evaluation(number) for number in range(1, 151))
    return path


@pytest.mark.skipif(sys.platform == "win32", reason="sends SIGINT")
def test_an_interrupted_export_continues_and_delivers_each_run_once(goldspan: Goldspan, large_store: Path):
    with recording_server(accept) as (url, requests):
        command = [sys.executable, "-m", "goldspan", "export", large_store, "--to", f"phoenix:{url}", "--rate", "20"]
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=unmeasured()) as process:
            until = time.monotonic() + 60
            while len(requests) < 2:
                assert process.poll() is None
                assert time.monotonic() < until
                time.sleep(0.01)
            process.send_signal(signal.SIGINT)
            _, err = process.communicate(timeout=30)
        written = len(delivered(requests))
        assert 20 <= written < 150
        assert process.returncode == 130
        assert err.splitlines() == [
            f"phoenix ({url}): {written} written, {150 - written} pending",
            "  interrupted; repeat the command to continue",
        ]
        result = goldspan("export", large_store, "--to", f"phoenix:{url}", "--rate", "0")
        assert result.err == f"phoenix ({url}): {150 - written} written, {written} already there\n"
        assert len(delivered(requests)) == 150
        assert set(delivered(requests).values()) == {1}
