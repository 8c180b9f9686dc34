"""`goldspan goldens`: what is odd about golden files, and the schema of their language."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from goldspan.cli.console import escape_control_characters, print_warning, stdout_console, with_known_total
from goldspan.cli.input_options import GoldenIdAttribute, JsonFlag, extract_runs, load_runs_with_progress
from goldspan.errors import GoldenError
from goldspan.goldens.golden_files.golden_loader import GoldenLibrary, read_golden_files
from goldspan.goldens.schema.golden_models import golden_json_schema as language_schema
from goldspan.goldens.schema.golden_validation import GoldenValidationError
from goldspan.model import RunUnit
from goldspan.scoring.golden_lint import LintFinding, RunCoverage, lint_goldens
from goldspan.sinks.serialization import to_json

FINDINGS_EXIT_STATUS = 1

CHECK_EXAMPLES = """
Examples:\n
  goldspan goldens check goldens.yaml\n
  goldspan goldens check goldens/*.yaml traces.jsonl\n
  goldspan goldens check refunds.jsonl --goldens tools.json traces/ --json\n
"""
SCHEMA_EXAMPLES = """
Examples:\n
  goldspan goldens schema > goldens.schema.json\n
"""

app = typer.Typer(no_args_is_help=True, context_settings={"help_option_names": ["-h", "--help"]})


@app.callback()
def goldens() -> None:
    """Look after golden files."""


@app.command(epilog=CHECK_EXAMPLES, short_help="Say what is wrong or odd about goldens, also beside traces.")
def check(
    paths: Annotated[
        list[str],
        typer.Argument(
            metavar="FILE [TRACES]",
            help="A golden file, and perhaps traces to lay it beside. The first path is a golden file, and so is every "
            "other that ends in .yaml or .yml; the rest are files or folders with traces, as `goldspan score` reads "
            "them.",
            show_default=False,
        ),
    ],
    goldens: Annotated[
        list[str] | None,
        typer.Option("--goldens", "-g", metavar="FILE", help="A further golden file, in JSON; may be given again."),
    ] = None,
    golden_id_attribute: GoldenIdAttribute = None,
    as_json: JsonFlag = False,
) -> None:
    """Say what is wrong or odd about goldens: all mistakes at once, goldens for the same runs (by input, `when` or
    component) that disagree or are the same, and, beside traces, tools, forbidden patterns and aliases that no run
    knows, and goldens of no run.

    Exit status: 0 nothing was found, 1 something was, 2 a file cannot be read.
    """
    files, traces = _split_paths(paths)
    findings: list[LintFinding] = []
    library = read_golden_files(
        [Path(file) for file in (*files, *(goldens or ()))], lambda error: findings.extend(_load_error_findings(error))
    )
    for told in library.warnings:
        print_warning(told)
    findings += lint_goldens(library.entries)
    if traces:
        findings += _lint_against_traces(library, traces, golden_id_attribute)
    _print_findings(findings, library, as_json=as_json)
    if findings:
        raise typer.Exit(FINDINGS_EXIT_STATUS)


@app.command(epilog=SCHEMA_EXAMPLES)
def schema() -> None:
    """Print the JSON Schema of golden files, for editors and other programs."""
    stdout_console().write_line(json.dumps(language_schema(), indent=2, sort_keys=True))


def _split_paths(paths: Sequence[str]) -> tuple[list[str], list[str]]:
    """Golden files and traces, told apart by how their names end: no trace is in YAML."""
    first, *others = paths
    files = [path for path in others if Path(path).suffix.lower() in (".yaml", ".yml")]
    return [first, *files], [path for path in others if path not in files]


def _load_error_findings(error: GoldenError) -> list[LintFinding]:
    sentences = error.messages if isinstance(error, GoldenValidationError) else (str(error),)
    return [LintFinding("mistake", sentence) for sentence in sentences]


def _lint_against_traces(
    library: GoldenLibrary, traces: list[str], golden_id_attributes: list[str] | None
) -> list[LintFinding]:
    """What the goldens know that no run of the traces does."""
    beside = RunCoverage(library.entries, library.vocabulary)
    for run in load_runs_with_progress(
        traces, unit="request", golden_id_attributes=golden_id_attributes, description="comparing"
    ):
        beside.add_run(run)
    # A golden of no request may be one of a component or of a conversation. Standard input comes once only.
    others: list[RunUnit] = [] if "-" in traces else ["component", "conversation"]
    for unit in others:
        if not beside.all_matched:
            runs = extract_runs(
                traces,
                unit=unit,
                golden_id_attributes=golden_id_attributes,
                components=library.components,
                on_loss=lambda _: None,  # told already
            )
            for run in with_known_total(runs, "comparing"):
                beside.add_run(run)
    return list(beside.findings())


def _print_findings(findings: Sequence[LintFinding], library: GoldenLibrary, *, as_json: bool) -> None:
    console = stdout_console()
    if as_json:
        for finding in findings:
            document = {"finding": finding.kind, "goldens": list(finding.goldens), "message": finding.sentence}
            console.write_line(to_json(document))
        return
    for finding in findings:
        console.print(Text(escape_control_characters(finding.sentence)), soft_wrap=True)
    number = len(library.entries)
    said = Text(f"{number} golden{'s' * (number != 1)} read: ")
    style = "yellow" if findings else "green"
    console.print(said.append(f"{len(findings) or 'nothing'} found", style=style))
