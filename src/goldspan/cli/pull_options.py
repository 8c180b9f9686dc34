"""Reads traces out of other tools for `score` and `extract`: options, progress and notices."""

from __future__ import annotations

import time
from collections.abc import Generator, Iterator
from contextlib import closing
from datetime import datetime, timezone
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated

import typer

from goldspan.errors import ConfigurationError, GoldspanError, TraceFileError

if TYPE_CHECKING:
    from goldspan.otlp.start_range import StartRange
    from goldspan.sources.time_window import TimeWindow
    from goldspan.sources.trace_pull import PullProgress

_PANEL = "Traces from other tools"

MaxTracesOption = Annotated[
    int | None,
    typer.Option(
        "--max-traces",
        metavar="N",
        min=1,
        help="Of a tool, stop after the latest N traces. Default: 100000",
        rich_help_panel=_PANEL,
    ),
]
SaveTracesOption = Annotated[
    Path | None,
    typer.Option(
        "--save-traces",
        metavar="FOLDER",
        help="Keep the traces of a tool in this folder. If reading is interrupted, the repeated command continues; "
        "later commands can read the folder instead of the tool.",
        rich_help_panel=_PANEL,
    ),
]
_DEFAULT_NS = 24 * 3600 * 10**9
"""How long before now the traces of a tool began, if no time is named."""


def pulled_traces(
    context: typer.Context,
    paths: list[str] | None,
    *,
    start_range: StartRange,
    max_traces: int | None,
    save_traces: Path | None,
) -> list[str]:
    """Return the paths with a folder in place of each URL of a tool, after its traces were read.

    A temporary folder exists as long as the command's context. Raises `ConfigurationError`, and `TraceFileError` if a
    tool cannot be read or has no traces.
    """
    from goldspan.sources.source_catalog import is_source_url

    all_paths = list(paths or ())
    urls = list(dict.fromkeys(filter(is_source_url, all_paths)))
    if not urls:
        if not all_paths and start_range.is_bounded:
            raise ConfigurationError("--since and --until need traces: rows of --cases have no time")
        for option, value in {"--max-traces": max_traces, "--save-traces": save_traces}.items():
            if value is not None:
                raise ConfigurationError(f"{option} needs a tool to read traces from, such as phoenix://localhost:6006")
        return all_paths
    if save_traces is not None and len(urls) > 1:
        raise ConfigurationError("--save-traces keeps the traces of one tool; name one URL in each command")
    window = _window(start_range)
    folders = {}
    for url in urls:
        folder = save_traces or Path(context.with_resource(TemporaryDirectory(prefix="goldspan-traces-")))
        _pull(url, folder, window, max_traces, is_kept=save_traces is not None)
        folders[url] = str(folder)
    return [folders.get(path, path) for path in all_paths]


def _window(start_range: StartRange) -> TimeWindow:
    from goldspan.sources.time_window import TimeWindow

    now_ns = time.time_ns()
    start_ns = now_ns - _DEFAULT_NS if start_range.since_ns is None else start_range.since_ns
    end_ns = now_ns if start_range.until_ns is None else start_range.until_ns
    if start_ns >= end_ns:
        raise ConfigurationError("--since must be a time before --until")
    return TimeWindow(start_ns, end_ns)


def _pull(url: str, path: Path, window: TimeWindow, max_traces: int | None, *, is_kept: bool) -> None:
    """Read the traces of a tool into a folder."""
    from goldspan.cli.console import print_warning
    from goldspan.sources.pull_folder import PullFolder
    from goldspan.sources.source_catalog import create_source
    from goldspan.sources.trace_pull import DEFAULT_MAX_TRACES, TracePull

    source = create_source(url)
    folder = PullFolder(path)
    pull = TracePull(source, url, folder, max_traces=max_traces or DEFAULT_MAX_TRACES)
    state = pull.resume(window)
    traces = state.traces
    try:
        with closing(_with_status(pull.run(state), source.name)) as shown:
            for progress in shown:
                traces = progress.traces
                for notice in progress.notices:
                    print_warning(notice)
    except (KeyboardInterrupt, GoldspanError):
        if is_kept:
            print_warning(f"{traces} traces were read; repeat the command to continue")
        raise
    if not traces:
        raise TraceFileError(
            f"{source.name} has no traces from {_minute(state.start_ns)} to {_minute(state.end_ns)} ({source.base_url})"
        )


def _with_status(steps: Iterator[PullProgress], name: str) -> Generator[PullProgress, None, None]:
    """Yield the steps; on a terminal a status line shows how many traces were read."""
    from goldspan.cli.console import stderr_console

    console = stderr_console()
    if not console.is_terminal:
        yield from steps
        return
    with console.status(f"reading traces from {name}") as status:
        for progress in steps:
            status.update(f"reading traces from {name}: {progress.traces} traces")
            yield progress


def _minute(time_ns: int) -> str:
    return f"{datetime.fromtimestamp(time_ns // 10**9, timezone.utc):%Y-%m-%d %H:%M} UTC"
