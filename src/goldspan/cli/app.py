"""Assembles the commands, and turns errors into messages and exit statuses."""

from __future__ import annotations

import sys
import warnings
from io import TextIOWrapper
from typing import Annotated, TextIO

import typer

from goldspan._version import __version__
from goldspan.cli import demo, export, extract, goldens_command, report, score, serve, view, watch
from goldspan.cli.command_help import Command, CommandGroup
from goldspan.cli.console import discard_stdout, flush_stdout, print_error, print_warning
from goldspan.errors import GoldspanError, GoldspanWarning

USAGE_ERROR = 2
INTERRUPTED = 130

app = typer.Typer(
    cls=CommandGroup,
    name="goldspan",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command(cls=Command, epilog=demo.EXAMPLES)(demo.demo)
app.command(cls=Command, epilog=score.EXAMPLES)(score.score)
app.command(cls=Command, epilog=extract.EXAMPLES)(extract.extract)
app.command(cls=Command, epilog=export.EXAMPLES)(export.export)
app.command(cls=Command, epilog=serve.EXAMPLES)(serve.serve)
app.command(cls=Command, epilog=view.EXAMPLES)(view.view)
app.command(cls=Command, epilog=report.EXAMPLES)(report.report)
app.command(cls=Command, epilog=watch.EXAMPLES)(watch.watch)
app.add_typer(goldens_command.app, name="goldens")


def _print_version(is_requested: bool) -> None:
    if is_requested:
        typer.echo(f"goldspan {__version__}")
        raise typer.Exit


@app.callback()
def goldspan(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Evaluate whether an AI agent called the right tools: compares OpenTelemetry traces with goldens.

    Exit status: 0 fine, 1 a gate failed, 2 an option is wrong or the input cannot be read.
    """


def run() -> int:
    """Run the command that the arguments name, and return its exit status."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="replace")  # a character that the terminal cannot show does not end the program
    with warnings.catch_warnings():
        warnings.simplefilter("always", GoldspanWarning)
        warnings.showwarning = _show_warning
        try:
            app()
        except SystemExit as end:
            return _flush_output(end.code if isinstance(end.code, int) else int(end.code is not None))
        except GoldspanError as error:
            print_error(str(error))
            return USAGE_ERROR
        except KeyboardInterrupt:
            return INTERRUPTED
        except OSError as error:
            return _output_error(error)
    return _flush_output(0)


def _flush_output(status: int) -> int:
    """Flush standard output and return the exit status: Python would report unflushed output when it exits."""
    try:
        flush_stdout()
    except OSError as error:
        return _output_error(error)
    return status


def _output_error(error: OSError) -> int:
    """Print the error of the operating system, and return the exit status for it."""
    try:
        flush_stdout()
    except OSError:
        discard_stdout()  # for example on a full disk
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
