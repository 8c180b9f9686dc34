"""`goldspan watch`: prints the runs of a running gateway as they are scored."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from goldspan.cli import options
from goldspan.cli.console import stdout_console
from goldspan.errors import ConfigurationError

EXAMPLES = """
Examples:\n
  goldspan watch\n
  goldspan watch https://gateway.example --token-file read-token --verdict fail\n
  goldspan watch --golden refund --metric tool_recall --below 0.8 --since 1h\n
  goldspan watch --once --since 24h --json > day.jsonl\n
"""
_TOKEN, _TOKEN_FILE = "GOLDSPAN_READ_TOKEN", "GOLDSPAN_READ_TOKEN_FILE"
_INITIAL_RUNS, _INITIAL_RUNS_SINCE = 20, 1000
"""Maximum of runs that are shown at the start: without `--since`, and with it."""


def watch(
    address: Annotated[
        str, typer.Argument(metavar="URL", help="Address of the gateway: that of OTLP/HTTP and the API.")
    ] = "http://127.0.0.1:4318",
    verdict: options.VerdictFilter = None,
    golden: options.GoldenFilter = None,
    agent: options.AgentFilter = None,
    service: options.ServiceFilter = None,
    unit: options.UnitFilter = None,
    tool: options.ToolFilter = None,
    tool_role: options.ToolRoleFilter = "called",
    metric: options.MetricFilter = None,
    below: options.BelowFilter = None,
    since: Annotated[
        str | None,
        typer.Option("--since", metavar="TIME", help="First show the runs since TIME: 1h, 7d, 2026-01-31T08:00."),
    ] = None,
    limit: Annotated[
        int | None,
        typer.Option(
            "--limit", metavar="N", min=0, help="Maximum of runs shown at the start. Default: 20, with --since 1000"
        ),
    ] = None,
    once: Annotated[bool, typer.Option("--once", help="Show the stored runs, and exit.")] = False,
    token_file: Annotated[
        Path | None,
        typer.Option(
            "--token-file",
            metavar="FILE",
            help=f"File with a read token. Default: the variables {_TOKEN} or {_TOKEN_FILE}",
            show_default=False,
        ),
    ] = None,
    ca_file: Annotated[
        Path | None,
        typer.Option("--ca-file", metavar="FILE", help="Certificate authorities to trust for https://, PEM."),
    ] = None,
    as_json: options.JsonFlag = False,
) -> None:
    """Print the runs of a running gateway as they are scored, newest last, until Ctrl-C.

    The options select runs. Output that does not go to a terminal has one line for each evaluation.

    Exit status: 0 all runs were shown, 2 the gateway cannot be reached or rejects the token, 130 ended by Ctrl-C.
    """
    from goldspan.cli.api_client import ApiClient
    from goldspan.cli.live_feed import RUN_ONLY_FIELDS, FeedView, poll, query_parameters
    from goldspan.store import RunFilter

    if below is not None and metric is None:
        raise ConfigurationError("--below needs --metric: it compares the scores of that metric")
    if tool_role != "called" and tool is None:
        raise ConfigurationError("--tool-role needs --tool: it states the role of that tool")
    wanted = RunFilter(
        verdict=verdict, golden=golden, agent=agent, service=service, unit=unit, tool=tool, tool_role=tool_role,
        metric=metric, below=below,
    )  # fmt: skip
    remote = ApiClient(address, _read_token(token_file), ca_file)
    remote.require_goldspan()
    # Read before the stored runs, so that no evaluation is missed between the two requests.
    after = 0 if once else remote.last_sequence_number()
    said = query_parameters(wanted) | ({"since": since} if since else {})
    there = remote.list_runs(said, limit if limit is not None else _INITIAL_RUNS_SINCE if since else _INITIAL_RUNS)
    view = FeedView(remote.address, stdout_console(), wanted, as_json=as_json)
    with view.live_status(status=not once):
        for run in reversed(there):
            view.show({name: value for name, value in run.items() if name not in RUN_ONLY_FIELDS})
        if not once:
            seen = {(run.get("run_id"), run.get("revision"), run.get("digest")) for run in there}
            poll(remote, view, after, seen)


def _read_token(file: Path | None) -> str | None:
    """Return the read token: the first one if several are stated."""
    from goldspan.gateway.receivers.authorization import parse_tokens, read_token_file

    if file is not None:
        return read_token_file(file, "--token-file")[0]
    if said := os.environ.get(_TOKEN):
        return parse_tokens(said, _TOKEN)[0]
    if named := os.environ.get(_TOKEN_FILE):
        return read_token_file(Path(named), _TOKEN_FILE)[0]
    return None
