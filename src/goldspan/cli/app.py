"""Assembles the commands, and turns errors into messages and exit statuses."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Mapping
from importlib import import_module
from inspect import getdoc
from io import TextIOWrapper
from typing import Annotated, Any, NamedTuple, TextIO

import typer
from typer.core import TyperCommand, TyperGroup

from goldspan._version import __version__
from goldspan.cli.console import discard_stdout, flush_stdout, print_error, print_warning
from goldspan.errors import GoldspanError, GoldspanWarning

USAGE_ERROR = 2
INTERRUPTED = 130


class Outline(NamedTuple):
    """What the help of a group shows of a command, and where the command is defined."""

    summary: str
    """The first paragraph of the command's help."""
    module: str
    """The module in `goldspan.cli` that defines the command as a function of the same name."""
    examples: str = "EXAMPLES"
    """The name of the examples in that module."""
    function: str | None = None
    """The name of the function, if it is not that of the command."""


COMMANDS = {
    "demo": Outline(
        "Run a small scripted agent and evaluate each of its requests. Needs no network and no model.", "demo"
    ),
    "score": Outline(
        "Compare the tool calls of each run with its golden, and print expected and called tools, scores and reasons.",
        "score",
    ),
    "run": Outline("Run an agent on the input of each golden, and evaluate the tools that it called.", "run"),
    "extract": Outline(
        "Print the tools that each run called, in order, and what is missing in the capture of its spans.", "extract"
    ),
    "convert": Outline("Write the spans and logs in trace files to one Parquet file, one row for each.", "convert"),
    "export": Outline(
        "Export the runs of a store, newest first, to a file, or their scores to products such as Phoenix and MLflow.",
        "export",
    ),
    "serve": Outline(
        "Run a gateway: receive OpenTelemetry from agents in any language, forward it, and score the runs in it.",
        "serve",
    ),
    "view": Outline(
        "Show stored runs in a browser: expected and called tools, goldens by pass rate, and requests without a "
        "golden.",
        "view",
    ),
    "mcp": Outline(
        "Give a coding assistant read-only access to stored runs and goldens, over the Model Context Protocol.",
        "mcp_command",
        function="mcp",
    ),
    "report": Outline(
        "Write a report on stored runs, or on traces, as one HTML file for CI artifacts and mail.", "report"
    ),
    "check": Outline(
        "Decide whether the results of an agent are good enough, alone and against a baseline, and report it to CI.",
        "check",
    ),
    "watch": Outline("Print the runs of a running gateway as they are scored, newest last, until Ctrl-C.", "watch"),
}
"""The commands in the order of the help."""
GOLDENS_COMMANDS = {
    "check": Outline("Check golden files, alone or against traces.", "goldens_command", "CHECK_EXAMPLES"),
    "suggest": Outline(
        "Suggest goldens from good runs, as YAML with comments that state the support.", "goldens_suggest"
    ),
    "import": Outline(
        "Import a dataset of another evaluation tool as goldens, and print what could not be carried over.",
        "goldens_import",
        function="import_dataset",
    ),
    "diff": Outline(
        "Compare two golden files by what they state and, with --on, by their verdicts on the same runs.",
        "goldens_diff",
        "DIFF_EXAMPLES",
    ),
    "stale": Outline(
        "Find goldens that no recent run matched, whose tools are gone, or that state what has become the exception.",
        "goldens_diff",
        "STALE_EXAMPLES",
    ),
    "schema": Outline(
        "Print the JSON Schema of golden files, for editors and validators.", "goldens_command", "SCHEMA_EXAMPLES"
    ),
}
"""The commands of `goldspan goldens`."""


def _shown_parameters(parameters: list[Any]) -> list[Any]:
    """Prepare the parameters of a command for its help.

    Each flag gets an empty metavar: typer shows a flag as an option that takes a `<bool>`. The flag `--help` gets a
    default: typer imports pydantic to convert a flag that has none.
    """
    for parameter in parameters:
        if getattr(parameter, "is_flag", False):
            parameter.metavar = ""
            if parameter.name == "help":
                parameter.default = False
    return parameters


class Command(TyperCommand):
    """A command whose help shows flags without a value."""

    def get_params(self, ctx: Any) -> list[Any]:
        """Return the parameters as the help shows them."""
        return _shown_parameters(super().get_params(ctx))


class CommandGroup(TyperGroup):
    """A group that imports a command only when the command is run, or when its own help is shown.

    `commands` holds outlines, which are enough for the help of the group. The callback of an outline returns the
    command itself.
    """

    def get_params(self, ctx: Any) -> list[Any]:
        """Return the parameters as the help shows them."""
        return _shown_parameters(super().get_params(ctx))

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Return the name of the command, the command and the remaining arguments."""
        name, command, remaining = super().resolve_command(ctx, args)
        is_outline = command is not None and not isinstance(command, TyperGroup)
        return name, command.callback() if is_outline else command, remaining  # type: ignore[union-attr,misc]


def _group(outlines: Mapping[str, Outline], **settings: Any) -> typer.Typer:
    """Return a group of these commands."""
    group = typer.Typer(
        cls=CommandGroup,
        no_args_is_help=True,
        add_completion=False,
        rich_markup_mode="rich",
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
        **settings,
    )
    for name, outline in outlines.items():
        group.command(name, cls=Command, help=outline.summary)(_importer(name, outline))
    return group


def _importer(name: str, outline: Outline) -> Callable[[], Any]:
    """Return a function that imports a command."""

    def import_command() -> Any:
        module = import_module(f"goldspan.cli.{outline.module}")
        function = getattr(module, outline.function or name)
        single = typer.Typer(add_completion=False, rich_markup_mode="rich")
        single.command(name, cls=Command, help=_paragraphs(function), epilog=getattr(module, outline.examples))(
            function
        )
        return typer.main.get_command(single)

    return import_command


def _paragraphs(function: Callable[..., Any]) -> str:
    """Return the docstring with each paragraph on one line: typer would keep the line breaks of all but the first."""
    paragraphs = (getdoc(function) or "").split("\n\n")
    return "\n\n".join(" ".join(paragraph.splitlines()) for paragraph in paragraphs)


app = _group(COMMANDS, name="goldspan")
_goldens = _group(GOLDENS_COMMANDS)
app.add_typer(_goldens, name="goldens")


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


@_goldens.callback()
def goldens() -> None:
    """Check, suggest, import and compare goldens, and print the JSON Schema of golden files."""


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
