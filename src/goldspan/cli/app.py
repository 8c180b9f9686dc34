"""The commands put together, and the one place where a person's mistake becomes an exit status."""

from __future__ import annotations

import sys
import warnings
from io import TextIOWrapper
from typing import Annotated, TextIO

import typer

from goldspan._version import __version__
from goldspan.cli import demo, export, extract, goldens_command, report, score, serve, view, watch
from goldspan.cli.console import discard_stdout, flush_stdout, print_error, print_warning
from goldspan.errors import GoldspanError, GoldspanWarning

USAGE_ERROR = 2
INTERRUPTED = 130

app = typer.Typer(
    name="goldspan",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command(epilog=demo.EXAMPLES)(demo.demo)
app.command(epilog=score.EXAMPLES)(score.score)
app.command(epilog=extract.EXAMPLES)(extract.extract)
app.command(epilog=export.EXAMPLES)(export.export)
app.command(epilog=serve.EXAMPLES)(serve.serve)
app.command(epilog=view.EXAMPLES)(view.view)
app.command(epilog=report.EXAMPLES)(report.report)
app.command(epilog=watch.EXAMPLES)(watch.watch)
app.add_typer(goldens_command.app, name="goldens")


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"goldspan {__version__}")
        raise typer.Exit


@app.callback()
def goldspan(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Say which one.")
    ] = False,
) -> None:
    """Did the agent call the right tools? Scores agent runs from their OpenTelemetry traces, without an LLM.

    Exit status: 0 fine, 1 a gate failed, 2 wrong use or unreadable input.
    """


def run() -> int:
    """Run the command that the arguments name; its exit status."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="replace")  # what a terminal cannot show is no reason to stop
    with warnings.catch_warnings():
        warnings.simplefilter("always", GoldspanWarning)
        warnings.showwarning = _show_warning
        try:
            app()
        except SystemExit as left:
            return _flush_output(left.code if isinstance(left.code, int) else int(left.code is not None))
        except GoldspanError as error:
            print_error(str(error))
            return USAGE_ERROR
        except KeyboardInterrupt:
            return INTERRUPTED
        except OSError as error:
            return _output_error(error)
    return _flush_output(0)


def _flush_output(status: int) -> int:
    """The exit status, once all that was written has arrived, so that Python has nothing to complain of at its exit."""
    try:
        flush_stdout()
    except OSError as error:
        return _output_error(error)
    return status


def _output_error(error: OSError) -> int:
    """Say what the system would not do."""
    try:
        flush_stdout()
    except OSError:
        discard_stdout()  # as on a disk that is full
    print_error(f"{error.filename}: {error.strerror}" if error.filename is not None else error.strerror or str(error))
    return USAGE_ERROR


def _show_warning(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    if issubclass(category, GoldspanWarning):
        print_warning(str(message))
    else:
        sys.stderr.write(warnings.formatwarning(message, category, filename, lineno, line))
