"""`goldspan goldens`: checks golden files, and prints their JSON Schema."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.text import Text

from goldspan.cli import options
from goldspan.cli.console import print_warning, stdout_console, with_known_total
from goldspan.errors import GoldenError
from goldspan.model import RunUnit
from goldspan.terminal.escapes import escape_control_characters

if TYPE_CHECKING:
    from goldspan.goldens.golden_files.golden_loader import GoldenLibrary
    from goldspan.scoring.golden_lint import LintFinding

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


def check(
    paths: Annotated[
        list[str],
        typer.Argument(
            metavar="FILE [TRACES]",
            help="A golden file, optionally followed by traces to check it against. The first path is a golden file, "
            "and so is every other path that ends in .yaml or .yml; the rest are files or folders with traces, as "
            "`goldspan score` reads them.",
            show_default=False,
        ),
    ],
    goldens: Annotated[
        list[str] | None,
        typer.Option(
            "--goldens", "-g", metavar="FILE", help="A further golden file, for example in JSON. May be repeated."
        ),
    ] = None,
    golden_id_attribute: options.GoldenIdAttribute = None,
    as_json: options.JsonFlag = False,
) -> None:
    """Check golden files for errors, and for goldens that match the same runs (by input, `when` or component) but
    contradict or repeat each other.

    With traces, also report tools, forbidden patterns and aliases that occur in no run, and goldens that match no run.

    Exit status: 0 nothing was found, 1 something was found, 2 a file cannot be read.
    """
    from goldspan.goldens.golden_files.golden_loader import read_golden_files
    from goldspan.scoring.golden_lint import lint_goldens

    files, traces = _split_paths(paths)
    findings: list[LintFinding] = []
    library = read_golden_files(
        [Path(file) for file in (*files, *(goldens or ()))], lambda error: findings.extend(_load_error_findings(error))
    )
    for warning in library.warnings:
        print_warning(warning)
    findings += lint_goldens(library.entries)
    if traces:
        findings += _lint_against_traces(library, traces, golden_id_attribute)
    _print_findings(findings, library, as_json=as_json)
    if findings:
        raise typer.Exit(FINDINGS_EXIT_STATUS)


def schema() -> None:
    """Print the JSON Schema of golden files, for editors and validators."""
    from goldspan.goldens.schema.golden_models import golden_json_schema

    stdout_console().write_line(json.dumps(golden_json_schema(), indent=2, sort_keys=True))


def _split_paths(paths: Sequence[str]) -> tuple[list[str], list[str]]:
    """Split the paths into golden files and traces, by file name: no trace format is YAML."""
    first, *others = paths
    files = [path for path in others if Path(path).suffix.lower() in (".yaml", ".yml")]
    return [first, *files], [path for path in others if path not in files]


def _load_error_findings(error: GoldenError) -> list[LintFinding]:
    from goldspan.goldens.schema.golden_validation import GoldenValidationError
    from goldspan.scoring.golden_lint import LintFinding

    sentences = error.messages if isinstance(error, GoldenValidationError) else (str(error),)
    return [LintFinding("mistake", sentence) for sentence in sentences]


def _lint_against_traces(
    library: GoldenLibrary, traces: list[str], golden_id_attributes: list[str] | None
) -> list[LintFinding]:
    """Find what the goldens name and no run in the traces has."""
    from goldspan.cli.input_reading import extract_runs, load_runs_with_progress
    from goldspan.scoring.golden_lint import RunCoverage

    coverage = RunCoverage(library.entries, library.vocabulary)
    for run in load_runs_with_progress(
        traces, unit="request", golden_id_attributes=golden_id_attributes, description="comparing"
    ):
        coverage.add_run(run)
    # A golden that matches no request may match a component or a conversation. Standard input can be read only once.
    others: list[RunUnit] = [] if "-" in traces else ["component", "conversation"]
    for unit in others:
        if not coverage.all_matched:
            runs = extract_runs(
                traces,
                unit=unit,
                golden_id_attributes=golden_id_attributes,
                components=library.components,
                on_loss=lambda _: None,  # reported already
            )
            for run in with_known_total(runs, "comparing"):
                coverage.add_run(run)
    return list(coverage.findings())


def _print_findings(findings: Sequence[LintFinding], library: GoldenLibrary, *, as_json: bool) -> None:
    from goldspan.sinks.serialization import to_json

    console = stdout_console()
    if as_json:
        for finding in findings:
            document = {"finding": finding.kind, "goldens": list(finding.goldens), "message": finding.sentence}
            console.write_line(to_json(document))
        return
    for finding in findings:
        console.print(Text(escape_control_characters(finding.sentence)), soft_wrap=True)
    number = len(library.entries)
    summary = Text(f"{number} golden{'s' * (number != 1)} read: ")
    style = "yellow" if findings else "green"
    console.print(summary.append(f"{len(findings) or 'nothing'} found", style=style))
