"""`goldspan watch`: the requests of a running gateway as they are scored."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Annotated

import typer
from rich.live import Live
from rich.padding import Padding
from rich.text import Text

from goldspan.cli.console import Results, messages, output, warn
from goldspan.cli.feed import Totals, line_of, meets, parameters, reason_of
from goldspan.cli.reading import JsonFlag
from goldspan.cli.remote import MOST_AT_ONCE, AwayError, Document, Remote
from goldspan.errors import ConfigurationError
from goldspan.gateway.settings.tokens import tokens_in, tokens_in_file
from goldspan.model import Unit
from goldspan.sinks.documents import to_json
from goldspan.store import RunFilter
from goldspan.store.protocol import ToolRole, Verdict

EXAMPLES = """
Examples:\n
  goldspan watch\n
  goldspan watch https://gateway.example --token-file read-token --verdict fail\n
  goldspan watch --golden refund --metric tool_recall --below 0.8 --since 1h\n
  goldspan watch --once --since 24h --json > day.jsonl\n
"""
_TOKEN, _TOKEN_FILE = "GOLDSPAN_READ_TOKEN", "GOLDSPAN_READ_TOKEN_FILE"
_EVERY = 1.0
"""Seconds from one look at the gateway to the next."""
_LONGEST = 30.0
"""Seconds, at most, until a gateway that is away is asked again."""
_AT_FIRST, _SINCE = 20, 1000
"""Runs that are shown first: without `--since`, and with it."""


def watch(
    address: Annotated[
        str, typer.Argument(metavar="URL", help="The gateway's address, that of OTLP/HTTP and the API.")
    ] = "http://127.0.0.1:4318",
    verdict: Annotated[Verdict | None, typer.Option("--verdict", help="Runs that came out so.")] = None,
    golden: Annotated[str | None, typer.Option("--golden", metavar="ID", help="Runs judged by that golden.")] = None,
    agent: Annotated[str | None, typer.Option("--agent", metavar="NAME", help="Runs of that agent.")] = None,
    service: Annotated[str | None, typer.Option("--service", metavar="NAME", help="Runs of that service.")] = None,
    unit: Annotated[Unit | None, typer.Option("--unit", help="Runs of that kind.")] = None,
    tool: Annotated[str | None, typer.Option("--tool", metavar="NAME", help="Runs in which that tool ...")] = None,
    tool_role: Annotated[ToolRole, typer.Option("--tool-role", help="... was that.")] = "called",
    metric: Annotated[str | None, typer.Option("--metric", metavar="NAME", help="Runs with a score of it.")] = None,
    below: Annotated[
        float | None, typer.Option("--below", metavar="X", help="Runs whose score of --metric is less.")
    ] = None,
    since: Annotated[
        str | None,
        typer.Option(
            "--since", metavar="TIME", help="Show first what there is from then on: 1h, 7d, 2026-01-31T08:00."
        ),
    ] = None,
    limit: Annotated[
        int | None,
        typer.Option(
            "--limit", metavar="N", min=0, help="So many runs, at most, are shown first; 20, with --since 1000."
        ),
    ] = None,
    once: Annotated[bool, typer.Option("--once", help="Show what there is, and end.")] = False,
    token_file: Annotated[
        Path | None,
        typer.Option(
            "--token-file",
            metavar="FILE",
            help=f"File with a token that may read; else {_TOKEN} or {_TOKEN_FILE}.",
            show_default=False,
        ),
    ] = None,
    ca_file: Annotated[
        Path | None,
        typer.Option("--ca-file", metavar="FILE", help="Authorities that are trusted for https://, PEM."),
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Show the requests of a running gateway as they are scored, the newest last, until you press Ctrl-C.

    The options narrow the choice down. Where the output is no terminal it is one line for each evaluation.

    Exit status: 0 all was shown, 2 there is no gateway or it lets nobody in, 130 it was ended by Ctrl-C.
    """
    if below is not None and metric is None:
        raise ConfigurationError("--below needs --metric, whose scores it limits")
    if tool_role != "called" and tool is None:
        raise ConfigurationError("--tool-role needs --tool, which was that")
    wanted = RunFilter(
        verdict=verdict, golden=golden, agent=agent, service=service, unit=unit, tool=tool, tool_role=tool_role,
        metric=metric, below=below,
    )  # fmt: skip
    remote = Remote(address, _token(token_file), ca_file)
    remote.check()
    after = 0 if once else remote.newest()  # before what is there is asked for, so that nothing falls between the two
    said = parameters(wanted) | ({"since": since} if since else {})
    there = remote.runs(said, limit if limit is not None else _SINCE if since else _AT_FIRST)
    view = _View(remote.address, output(), wanted, as_json=as_json)
    with view.shown(status=not once):
        for run in reversed(there):
            view.show({name: value for name, value in run.items() if name not in _OF_RUNS})
        if not once:
            seen = {(run.get("run_id"), run.get("revision"), run.get("digest")) for run in there}
            _follow(remote, view, after, seen)


_OF_RUNS = ("time", "evaluation_count")
"""What the API says of a run beside its evaluation."""


class _View:
    """What is shown: lines that stay and, on a terminal, one below them that tells how it goes."""

    def __init__(self, address: str, console: Results, wanted: RunFilter, *, as_json: bool) -> None:
        self._address = address
        self._console = console
        self._wanted = wanted
        self._as_json = as_json
        self._totals = Totals()
        self._trouble = ""

    def arrive(self) -> None:
        """Let everything arrive that was shown so far."""
        self._console.arrive()

    @property
    def over(self) -> bool:
        """Whether nobody reads any more."""
        return self._console.quiet

    @contextmanager
    def shown(self, *, status: bool) -> Iterator[None]:
        """Show how it goes while the block runs, where somebody can see it."""
        if self._as_json or not self._console.is_terminal:
            yield
        elif not status:
            yield
            self._console.print(self._totals.told())
        else:
            with Live(get_renderable=self._status, console=self._console, refresh_per_second=2):
                yield

    def show(self, document: Document) -> None:
        """Show an evaluation, if it is wanted."""
        wanted = meets(document, self._wanted)
        self._totals.add(document, wanted=wanted)
        if not wanted:
            return
        if self._as_json:
            self._console.put(to_json(document))
            return
        line, reason = line_of(document, self._console, now=datetime.now().astimezone()), reason_of(document)
        if self._console.is_terminal:
            self._console.print(line)
            if reason:
                self._console.print(Padding(Text(reason, style="italic dim"), (0, 0, 0, 11)))
        else:
            self._console.put(line.plain + (f"  {reason}" if reason else ""))

    def away(self, error: AwayError, pause: float) -> None:
        """Tell that the gateway does not answer."""
        if not self._console.is_terminal and not self._trouble:
            warn(f"{error}; it is asked again until it does")
        self._trouble = f"{error}; asked again in {pause:g} s"

    def back(self) -> None:
        """Tell that it answers again."""
        if not self._console.is_terminal and self._trouble:
            messages().print(f"{self._address} answers again", markup=False)
        self._trouble = ""

    def _status(self) -> Text:
        how = Text(f"○ {self._trouble}", "yellow") if self._trouble else Text(f"● {self._address}", "green")
        return Text.assemble(self._totals.told(), "   ", how, no_wrap=True, overflow="ellipsis")


def _follow(remote: Remote, view: _View, after: int, seen: set[tuple[object, object, object]]) -> None:
    """Show what comes, until nobody reads any more. A gateway that is away is asked again, with growing pauses."""
    pause = _EVERY
    away = False
    while not view.over:
        view.arrive()
        try:
            if away:  # it may have begun anew, with an empty store
                after = min(after, remote.newest())
            found, after = remote.arrivals(after)
        except AwayError as error:
            view.away(error, pause)
            time.sleep(pause)
            away, pause = True, min(pause * 2, _LONGEST)
            continue
        view.back()
        away, pause = False, _EVERY
        for document in found:
            if (document.get("run_id"), document.get("revision"), document.get("digest")) not in seen:
                view.show(document)
        if len(found) < MOST_AT_ONCE:
            seen.clear()
            view.arrive()
            time.sleep(_EVERY)


def _token(file: Path | None) -> str | None:
    """The token that is sent, where there is one: the first, if there are several."""
    if file is not None:
        return tokens_in_file(file, "--token-file")[0]
    if said := os.environ.get(_TOKEN):
        return tokens_in(said, _TOKEN)[0]
    if named := os.environ.get(_TOKEN_FILE):
        return tokens_in_file(Path(named), _TOKEN_FILE)[0]
    return None
