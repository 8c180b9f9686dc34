"""What the commands say and how: results to standard output, everything else to standard error."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.text import Text

PROGRAM_NAME = "goldspan"


def command_line(*arguments: object) -> str:
    """A command of this very program: by its name where the shell finds it by that, else as it was called now."""
    words = [*_program_words(), *map(str, arguments)]
    return subprocess.list2cmdline(words) if os.name == "nt" else shlex.join(words)


def _program_words() -> list[str]:
    called = Path(sys.argv[0])
    as_module = called.name == "__main__.py"
    script = Path(sys.executable).with_name(PROGRAM_NAME) if as_module else called
    found = shutil.which(PROGRAM_NAME)
    if found is not None and _real_path(found) == _real_path(script):
        return [PROGRAM_NAME]
    return [sys.executable, "-m", PROGRAM_NAME] if as_module else [str(called)]


def _real_path(program: str | Path) -> str:
    """Where a program is, whatever leads to it; on Windows it may be called without its ending."""
    return os.path.normcase(os.path.realpath(program)).removesuffix(".exe")


T = TypeVar("T")

_PIPED_WIDTH = 140
"""Columns, where the output is no terminal and so has no width of its own."""
_STATUS_INTERVAL = 100
"""So many items from one sign of progress to the next."""
_BAR_INTERVAL_S = 0.1
"""Seconds from one to the next, where they tell how much is done: each takes as long as many an item."""
_BAR_WIDTH = 24
"""Columns of a bar; what stands beside it has room on a terminal of 80."""


class ResultsConsole(Console):
    """Standard output. Its reader may have seen enough (`goldspan score ... | head`): then it is `quiet`."""

    def write_line(self, text: str) -> None:
        """Write a line as it is, whatever its length and its characters."""
        try:
            self.file.write(text + "\n")
        except BrokenPipeError:
            self.on_broken_pipe()

    def flush(self) -> None:
        """Let everything arrive that was put so far; whether anybody reads on shows here."""
        try:
            self.file.flush()
        except BrokenPipeError:
            self.on_broken_pipe()

    def on_broken_pipe(self) -> None:
        """Write nothing more and go on, where rich would leave with the exit status of a gate that failed."""
        self.quiet = True
        discard_stdout()


def stdout_console() -> ResultsConsole:
    """Where results go."""
    return ResultsConsole(soft_wrap=False, highlight=False, width=_console_width())


def flush_stdout() -> None:
    """Let everything arrive that was written so far."""
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        discard_stdout()


def discard_stdout() -> None:
    """Take standard output away from a reader that is gone or a disk that is full, so that Python can leave quietly."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _console_width() -> int | None:
    """The terminal's own width, or that in `COLUMNS`; a pipe has neither."""
    return None if sys.stdout.isatty() or "COLUMNS" in os.environ else _PIPED_WIDTH


def stderr_console() -> Console:
    """Where everything goes that is not the result, behind the results so far where both go to one place."""
    flush_stdout()
    return Console(stderr=True, highlight=False, soft_wrap=True)


def print_error(sentence: str) -> None:
    """Say what is wrong."""
    stderr_console().print(Text.assemble(("error: ", "bold red"), escape_control_characters(sentence)))


def print_warning(sentence: str) -> None:
    """Say what was lost or passed over."""
    stderr_console().print(Text.assemble(("warning: ", "yellow"), escape_control_characters(sentence)))


def escape_control_characters(text: str) -> str:
    """Text from traces made harmless for a terminal: control and bidirectional characters are shown, not obeyed."""
    if text.isprintable():
        return text
    return "".join(
        character if character.isprintable() or character == "\n" else f"\\x{ord(character):02x}" for character in text
    )


def with_status(items: Iterable[T], describe: Callable[[int], str]) -> Iterator[T]:
    """The items, with a line of progress on a terminal while they come."""
    console = stderr_console()
    if not console.is_terminal:
        yield from items
        return
    with console.status(describe(0)) as status:
        for number, item in enumerate(items, start=1):
            if number % _STATUS_INTERVAL == 0:
                status.update(describe(number))
            yield item


def with_progress_bar(items: Iterable[T], total: int, description: str, *, is_streamed: bool = False) -> Iterator[T]:
    """The items, with a bar on a terminal that says how many of them have come and how long the rest may take.

    `streamed`: what is made of them is written to standard output at once, so that there is no bar where that is the
    terminal.
    """
    with _progress_bar(
        description, total, MofNCompleteColumn(), wanted=not (is_streamed and sys.stdout.isatty())
    ) as done:
        for item in items:
            yield item
            done(1)


def with_known_total(items: Collection[T], doing: str, /) -> Iterable[T]:
    """Things of which it is known how many they are, with that bar."""
    return with_progress_bar(items, len(items), doing)


@contextmanager
def byte_progress_bar(total: int | None, doing: str) -> Iterator[Callable[[int], None]]:
    """A bar on a terminal of how much was read, of how much if that is known; it is told each number of bytes."""
    with _progress_bar(doing, total, DownloadColumn()) as done:
        yield done


@contextmanager
def _progress_bar(
    doing: str, total: int | None, done_so_far: ProgressColumn, *, wanted: bool = True
) -> Iterator[Callable[[int], None]]:
    """A bar that is told how much more is done. It is gone when the block is left, however that is."""
    console = stderr_console()
    if not wanted or not console.is_terminal:
        yield _ignore_progress
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(_BAR_WIDTH),
        done_so_far,
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, transient=True, refresh_per_second=4) as progress:
        task = progress.add_task(doing, total=total)
        done, told = 0, time.monotonic()

        def advance(number: int) -> None:
            nonlocal done, told
            done += number
            if (now := time.monotonic()) >= told + _BAR_INTERVAL_S:
                progress.update(task, completed=done)
                told = now

        yield advance
        progress.update(task, completed=done)


def _ignore_progress(number: int) -> None:
    """Where there is no terminal."""
