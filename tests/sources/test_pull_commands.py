"""Tests of `goldspan score` and `goldspan extract` with the URL of a tool."""

from __future__ import annotations

import json
import re
import tempfile
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
import yaml
from rich.console import Console

from goldspan import load_runs
from goldspan.sources import trace_pull
from goldspan.store.query_parameters import format_time
from support.command_line import Goldspan
from support.command_line import goldspan as goldspan  # a fixture
from support.product_server import Request, accepted, failed, product_server
from support.recorded_products import CAPTURES, MLflowApi, PhoenixApi, whole_window

WHOLE_TIME = ("--since", "2020-01-01", "--until", "2100-01-01")


@pytest.fixture(autouse=True)
def _own_temporary_folder(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path_factory.mktemp("temporary")))


@pytest.fixture
def goldens(tmp_path: Path) -> Path:
    """A golden for each text of a request; every second one has a tool that was not called."""
    found: dict[str, Any] = {}
    for number, run in enumerate(load_runs(*CAPTURES)):
        if run.input:
            tools = [call.name for call in run.tool_calls] + ["missing"] * (number % 2)
            found.setdefault(run.input, {"id": f"golden-{number}", "input": run.input, "tools": tools})
    path = tmp_path / "goldens.yaml"
    path.write_text(yaml.safe_dump({"goldens": list(found.values())}), encoding="utf-8")
    return path


def verdicts(goldspan: Goldspan, *arguments: object) -> dict[str, tuple[Any, ...]]:
    result = goldspan("score", *arguments, "--json")
    assert result.status == 0, result.err
    names = ("golden_id", "passed", "tools_used", "scores")
    return {document["run_id"]: tuple(document[name] for name in names) for document in result.documents}


@pytest.mark.parametrize("api", [PhoenixApi, pytest.param(MLflowApi, marks=pytest.mark.e2e)])
def test_the_verdicts_are_those_of_the_files(api: Any, goldspan: Goldspan, goldens: Path) -> None:
    with product_server(api()) as server:
        url = f"{'phoenix' if api is PhoenixApi else 'mlflow'}+{server.url}"
        found = verdicts(goldspan, url, *WHOLE_TIME, "--goldens", goldens)
    assert found == verdicts(goldspan, *CAPTURES, "--goldens", goldens)
    assert {verdict[1] for verdict in found.values()} >= {True, False}
    assert list(Path(tempfile.gettempdir()).iterdir()) == []


def test_extract_reads_a_tool_and_files_together(goldspan: Goldspan) -> None:
    with product_server(PhoenixApi()) as server:
        result = goldspan("extract", f"phoenix+{server.url}", CAPTURES[0], *WHOLE_TIME, "--json")
    assert result.status == 0
    assert {run["run_id"] for run in result.documents} == {run.run_id for run in load_runs(*CAPTURES)}


def test_the_range_of_time_keeps_runs_of_files_and_of_the_tool_beside_them(goldspan: Goldspan) -> None:
    runs = sorted(load_runs(*CAPTURES), key=lambda run: run.start_ns or 0)
    half = len(runs) // 2
    between = sum(run.start_ns or 0 for run in runs[half - 1 : half + 1]) // 2
    since, expected = format_time(between), {run.run_id for run in runs[half:]}
    with product_server(PhoenixApi()) as server:
        window = ("--since", since, "--until", "2100-01-01", "--json")
        beside = goldspan("extract", f"phoenix+{server.url}", CAPTURES[0], *window)
        files = goldspan("extract", *CAPTURES, *window)
    assert {run["run_id"] for run in files.documents} == expected
    assert {run["run_id"] for run in beside.documents} == expected


@pytest.mark.e2e
def test_two_tools_are_read(goldspan: Goldspan) -> None:
    with product_server(PhoenixApi()) as phoenix, product_server(MLflowApi()) as mlflow:
        urls = f"phoenix+{phoenix.url}", f"mlflow+{mlflow.url}"
        result = goldspan("extract", *urls, *urls, *WHOLE_TIME, "--json")
        refused = goldspan("extract", *urls, "--save-traces", "folder")
    assert result.status == 0
    searches = [request for request in phoenix.received if request.path.endswith("/traces")]
    assert len(searches) == 1
    assert refused.status == 2
    assert "--save-traces keeps the traces of one tool; name one URL in each command" in refused.err


def test_the_window_ends_now_and_begins_a_day_before(goldspan: Goldspan) -> None:
    with product_server(lambda request: accepted({"data": [], "next_cursor": None})) as server:
        result = goldspan("score", f"phoenix+{server.url}")
        goldspan("score", f"phoenix+{server.url}", "--since", "2026-01-31", "--until", "2026-02-01")
    assert result.status == 2
    minute = r"\d{4}-\d\d-\d\d \d\d:\d\d UTC"
    assert re.search(rf"phoenix has no traces from {minute} to {minute} \({server.url}\)", result.err), result.err
    day, named = ([trace_time(request, edge) for edge in ("start_time", "end_time")] for request in server.received)
    assert round((day[1] - day[0]) / 3600) == 24
    assert named[1] - named[0] == 24 * 3600


def trace_time(request: Request, edge: str) -> float:
    from goldspan.sources.time_window import nanoseconds

    return nanoseconds(request.query[edge]) / 1e9


def test_saved_traces_are_read_again_without_the_tool(goldspan: Goldspan, goldens: Path, tmp_path: Path) -> None:
    folder = tmp_path / "saved"
    with product_server(PhoenixApi()) as server:
        options = (f"phoenix+{server.url}", *WHOLE_TIME, "--save-traces", folder)
        found = verdicts(goldspan, *options, "--goldens", goldens)
        again = goldspan("score", *options)
    assert verdicts(goldspan, folder, "--goldens", goldens) == found
    assert again.status == 2
    assert "score this folder, or name another one" in " ".join(again.err.split())


def test_the_repeated_command_continues(goldspan: Goldspan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trace_pull, "GIVE_UP_SECONDS", 0)
    monkeypatch.setattr("goldspan.sources.phoenix_source.PhoenixSource.page_size", 2)
    api, requests = PhoenixApi(), []

    def answer(request: Request) -> Any:
        requests.append(request)
        return failed(401) if len(requests) == 6 else api(request)

    with product_server(answer) as server:
        options = (f"phoenix+{server.url}", *WHOLE_TIME, "--save-traces", tmp_path / "saved", "--json")
        first = goldspan("extract", *options)
        second = goldspan("extract", *options)
    assert first.status == 2
    assert first.out == ""
    assert "4 traces were read; repeat the command to continue" in first.err
    assert second.status == 0, second.err
    assert {run["run_id"] for run in second.documents} == {run.run_id for run in load_runs(*CAPTURES)}


def test_the_number_of_traces_is_limited_with_a_warning(goldspan: Goldspan) -> None:
    with product_server(PhoenixApi()) as server:
        result = goldspan("extract", f"phoenix+{server.url}", *WHOLE_TIME, "--max-traces", 2, "--json")
    assert result.status == 0
    assert len({run["trace_ids"][0] for run in result.documents}) == 2
    assert "only the latest 2 traces were read; --max-traces allows no more" in " ".join(result.err.split())


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("phoenix://", "--since", "2026-01-02", "--until", "2026-01-01"), "--since must be a time before --until"),
        (("phoenix://", "--since", "soon"), "--since"),
        (("phoenix://", "--max-traces", "0"), "Invalid value"),
        (("phoenix://user:secret@host",), "contains credentials"),
        (("langfuse://",), "LANGFUSE_PUBLIC_KEY"),
        (("traces.jsonl", "--since", "24h", "--until", "48h"), "--since must be a time before --until"),
        (("traces.jsonl", "--until", "soon"), "--until"),
        (("traces.jsonl", "--max-traces", "3"), "--max-traces needs a tool to read traces from, such as phoenix://"),
        (("traces.jsonl", "--save-traces", "folder"), "--save-traces needs a tool"),
    ],
)
@pytest.mark.parametrize("command", ["score", "extract"])
def test_a_wrong_use_is_an_error(
    command: str, arguments: tuple[str, ...], text: str, goldspan: Goldspan, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("LANGFUSE_PUBLIC_KEY", raising=False)
    result = goldspan(command, *arguments)
    assert result.status == 2
    assert text in " ".join(result.err.split())
    assert "secret" not in result.err


def test_a_terminal_shows_how_many_traces_were_read(goldspan: Goldspan, monkeypatch: pytest.MonkeyPatch) -> None:
    output = StringIO()
    terminal = Console(file=output, force_terminal=True, width=100)
    monkeypatch.setattr("goldspan.cli.console.stderr_console", lambda: terminal)
    with product_server(PhoenixApi()) as server:
        result = goldspan("extract", f"phoenix+{server.url}", *WHOLE_TIME, "--json")
    assert result.status == 0
    assert "reading traces from phoenix" in output.getvalue()


def test_the_help_shows_an_example(goldspan: Goldspan) -> None:
    for command in ("score", "extract"):
        assert "://" in goldspan(command, "--help").out


def test_the_state_of_a_folder_is_not_read_as_traces(goldspan: Goldspan, tmp_path: Path) -> None:
    folder = tmp_path / "saved"
    with product_server(MLflowApi()) as server:
        goldspan("extract", f"mlflow+{server.url}", *WHOLE_TIME, "--save-traces", folder)
    state = json.loads((folder / "pull-state").read_text(encoding="utf-8"))
    assert state["is_complete"] is True
    assert state["start_ns"] < whole_window().start_ns
    result = goldspan("extract", folder, "--json")
    assert len(result.documents) == len(list(load_runs(*CAPTURES)))
