"""Writes results to standard output, and errors, warnings and progress to standard error."""

from __future__ import annotations

import os
import shlex
import sys
import time
from collections.abc import Callable, Collection, Generator, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal, Protocol, TypeVar

from rich.console import Console
from rich.text import Text

from goldspan.terminal.escapes import escape_control_characters

PROGRAM_NAME = "goldspan"


def command_line(*arguments: object) -> str:
    """Return a shell command that runs this program: by its name where the shell finds it, else as it was started."""
    import subprocess  # deferred: few commands need it

    words = [*_program_words(), *map(str, arguments)]
    return subprocess.list2cmdline(words) if os.name == "nt" else shlex.join(words)


def _program_words() -> list[str]:
    import shutil

    started_as = Path(sys.argv[0])
    is_module = started_as.name == "__main__.py"
    script = Path(sys.executable).with_name(PROGRAM_NAME) if is_module else started_as
    on_path = shutil.which(PROGRAM_NAME)
    if on_path is not None and _real_path(on_path) == _real_path(script):
        return [PROGRAM_NAME]
    return [sys.executable, "-m", PROGRAM_NAME] if is_module else [str(started_as)]


def _real_path(program: str | Path) -> str:
    """Return the path of a program with symbolic links resolved, and without `.exe`: Windows allows to omit it."""
    return os.path.normcase(os.path.realpath(program)).removesuffix(".exe")


T = TypeVar("T")

_PIPED_WIDTH = 140
"""Columns of output that does not go to a terminal."""
_STATUS_INTERVAL = 100
"""Items between two updates of a status line."""
_BAR_INTERVAL_S = 0.1
"""Seconds between two updates of a progress bar: an update takes longer than many items do."""
_BAR_WIDTH = 24
"""Columns of a bar, so that the text beside it fits on a terminal of 80 columns."""


class ResultsConsole(Console):
    """Standard output. It becomes `quiet` when its reader closes the pipe (`goldspan score ... | head`)."""

    def write_line(self, text: str) -> None:
        """Write a line without wrapping and without markup."""
        try:
            self.file.write(text + "\n")
        except BrokenPipeError:
            self.on_broken_pipe()

    def flush(self) -> None:
        """Flush the output; this also detects a closed pipe."""
        try:
            self.file.flush()
        except BrokenPipeError:
            self.on_broken_pipe()

    def on_broken_pipe(self) -> None:
        """Discard all further output. Rich would exit with status 1, which means that a gate failed."""
        self.quiet = True
        discard_stdout()


def stdout_console() -> ResultsConsole:
    """Return a console for results."""
    return ResultsConsole(soft_wrap=False, highlight=False, width=_console_width())


def flush_stdout() -> None:
    """Flush standard output, and discard it if its reader closed the pipe."""
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        discard_stdout()


def discard_stdout() -> None:
    """Redirect standard output to the null device, so that Python reports no error for it at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _console_width() -> int | None:
    """Return `None` to let rich use the width of the terminal or of `COLUMNS`, and a fixed width for a pipe."""
    return None if sys.stdout.isatty() or "COLUMNS" in os.environ else _PIPED_WIDTH


def stderr_console() -> Console:
    """Return a console for everything but results. Flushes standard output first, to keep the order of lines."""
    flush_stdout()
    return Console(stderr=True, highlight=False, soft_wrap=True)


def print_error(sentence: str) -> None:
    """Print an error message."""
    stderr_console().print(Text.assemble(("error: ", "bold red"), escape_control_characters(sentence)))


def print_warning(sentence: str) -> None:
    """Print a warning."""
    stderr_console().print(Text.assemble(("warning: ", "yellow"), escape_control_characters(sentence)))


def with_status(items: Iterable[T], describe: Callable[[int], str]) -> Iterator[T]:
    """Yield the items; on a terminal a status line shows the progress."""
    console = stderr_console()
    if not console.is_terminal:
        yield from items
        return
    with console.status(describe(0)) as status:
        for number, item in enumerate(items, start=1):
            if number % _STATUS_INTERVAL == 0:
                status.update(describe(number))
            yield item


def with_progress_bar(
    items: Iterable[T], total: int, description: str, *, is_streamed: bool = False
) -> Generator[T, None, None]:
    """Yield the items; on a terminal a bar shows how many are done and how long the rest may take.

    `is_streamed`: the caller writes each item to standard output at once. Then no bar is shown where standard output
    is the terminal.
    """
    is_shown = not (is_streamed and sys.stdout.isatty())
    with _progress_bar(description, total, "items", is_shown=is_shown) as advance:
        for item in items:
            yield item
            advance(1)


def with_known_total(items: Collection[T], description: str, /) -> Iterable[T]:
    """Yield the items of a collection with a progress bar."""
    return with_progress_bar(items, len(items), description)


@contextmanager
def byte_progress_bar(total: int | None, description: str) -> Iterator[Callable[[int], None]]:
    """Show how many bytes were read, and of how many where that is known; yields a function that adds bytes."""
    with _progress_bar(description, total, "bytes") as advance:
        yield advance


class _Advance(Protocol):
    """Advances a bar."""

    def __call__(self, number: int, new_total: int | None = None, /) -> None: ...


@contextmanager
def _progress_bar(
    description: str,
    total: int | None,
    unit: Literal["items", "bytes"],
    *,
    is_shown: bool = True,
    console: Console | None = None,
) -> Iterator[_Advance]:
    """Show a bar while the block runs; yields a function that advances it. The default console is standard error."""
    console = console or stderr_console()
    if not is_shown or not console.is_terminal:
        yield _ignore_progress
        return
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    columns = (
        TextColumn("{task.description}"),
        BarColumn(_BAR_WIDTH),
        DownloadColumn() if unit == "bytes" else MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, transient=True, refresh_per_second=4) as progress:
        task = progress.add_task(description, total=total)
        done, updated_at = 0, time.monotonic()

        def advance(number: int, new_total: int | None = None) -> None:
            nonlocal done, updated_at
            done += number
            if new_total is not None and new_total != progress.tasks[0].total:
                progress.update(task, total=new_total)
            if (now := time.monotonic()) >= updated_at + _BAR_INTERVAL_S:
                progress.update(task, completed=done)
                updated_at = now

        yield advance
        progress.update(task, completed=done)


@contextmanager
def results_progress_bar(results: Console, description: str) -> Iterator[Callable[[int, int], None]]:
    """Show a bar below the results that are printed meanwhile; yields a function of the done and the total items."""
    with _progress_bar(description, None, "items", console=results if results.is_terminal else None) as advance:
        done_before = 0

        def update(done: int, total: int) -> None:
            nonlocal done_before
            advance(done - done_before, total)
            done_before = done

        yield update


def _ignore_progress(number: int, new_total: int | None = None) -> None:
    """Do nothing: there is no terminal."""
