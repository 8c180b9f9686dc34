"""`goldspan check`: decides whether the results of an agent are good enough to merge."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from goldspan.cli import options
from goldspan.cli.console import print_warning, stderr_console, stdout_console
from goldspan.errors import ConfigurationError

if TYPE_CHECKING:
    from goldspan.testing.check_reports import CheckOutcome
    from goldspan.testing.gates import Gate
    from goldspan.testing.results import AgentResults

GATE_FAILED = 1
_DEFAULT_GATE = "passed=1"

EXAMPLES = """
Examples:\n
  goldspan check results.jsonl\n
  goldspan check results.jsonl --fail-under passed=0.95 --fail-under-tag checkout:passed=1\n
  goldspan check results.jsonl --fail-under 'pass^3=0.8' --fail-under-golden refund:argument_correctness=1\n
  goldspan check results.jsonl --baseline main.jsonl --junit junit.xml --markdown $GITHUB_STEP_SUMMARY\n
  goldspan check old.jsonl --baseline older.jsonl --rescore --goldens goldens.yaml\n
"""


def check(
    results: Annotated[
        Path, typer.Argument(metavar="RESULTS", help="The results file of `goldspan run` or of pytest.")
    ],
    baseline: Annotated[
        Path | None,
        typer.Option(
            "--baseline",
            "-b",
            metavar="FILE",
            help="The results of an accepted build. The check fails if these results are worse than chance explains.",
        ),
    ] = None,
    fail_under: Annotated[
        list[str] | None,
        typer.Option(
            "--fail-under",
            metavar="METRIC=X",
            help="Fail if the mean of the metric, the pass rate `passed`, `pass^K` or `pass@K` is below X. Default "
            f"without --baseline: {_DEFAULT_GATE}.",
        ),
    ] = None,
    fail_under_tag: Annotated[
        list[str] | None,
        typer.Option("--fail-under-tag", metavar="TAG:METRIC=X", help="The same for the goldens with a tag."),
    ] = None,
    fail_under_golden: Annotated[
        list[str] | None,
        typer.Option("--fail-under-golden", metavar="ID:METRIC=X", help="The same for one golden."),
    ] = None,
    tolerance: Annotated[
        float,
        typer.Option(
            "--tolerance", metavar="X", min=0, max=1, help="The drop from the baseline that is accepted, of each rate."
        ),
    ] = 0.04,
    significance: Annotated[
        float,
        typer.Option(
            "--significance", metavar="P", min=0, max=1, help="The accepted chance of a false alarm by the baseline."
        ),
    ] = 0.03,
    fail_on_unknown: Annotated[
        bool | None,
        typer.Option(
            "--fail-on-unknown/--no-fail-on-unknown",
            help="Count cases that could not be evaluated as failed. Default: only if the variable CI is set.",
        ),
    ] = None,
    allow_errors: Annotated[
        bool, typer.Option("--allow-errors", help="Cases in which the agent raised or timed out only count as failed.")
    ] = False,
    rescore: Annotated[
        bool,
        typer.Option("--rescore", help="Evaluate the runs again, with the golden files and the scoring of today."),
    ] = False,
    goldens: Annotated[
        list[str] | None,
        typer.Option(
            "--goldens", "-g", metavar="FILE", help="The golden files for --rescore. Default: those of the results."
        ),
    ] = None,
    junit: Annotated[
        Path | None, typer.Option("--junit", metavar="FILE", help="Write JUnit XML.", show_default=False)
    ] = None,
    markdown: Annotated[
        Path | None,
        typer.Option("--markdown", metavar="FILE", help="Append a summary as Markdown.", show_default=False),
    ] = None,
    github: Annotated[
        bool | None,
        typer.Option(
            "--github/--no-github",
            help="Print annotations for GitHub. Default: if the variable GITHUB_ACTIONS is set.",
            show_default=False,
        ),
    ] = None,
    format: Annotated[  # noqa: A002 - the name of the option
        Literal["text", "json", "markdown"],
        typer.Option("--format", metavar="FORM", help="Output format: text, json or markdown."),
    ] = "text",
    as_json: options.JsonFlag = False,
) -> None:
    """Decide whether the results of an agent are good enough, alone and against a baseline, and report it to CI.

    Exit status: 0 if they are, 1 if not, 2 if a file cannot be read or an option is wrong.
    """
    from goldspan.cli.scoring_options import is_ci
    from goldspan.testing.check_reports import CheckOutcome, junit_xml, markdown_summary
    from goldspan.testing.gates import check_gates, count_unknown_as_failed
    from goldspan.testing.regressions import compare_with_baseline
    from goldspan.testing.results_file import read_results

    if goldens and not rescore:
        raise ConfigurationError("--goldens needs --rescore: without it, no run is evaluated")
    gates = _parse_options(fail_under, fail_under_tag, fail_under_golden, has_baseline=baseline is not None)
    current = _comparable(read_results(results), str(results), rescore=rescore, goldens=goldens)
    if not current.cases:
        raise ConfigurationError(f"{results}: holds no cases")
    is_strict = is_ci() if fail_on_unknown is None else fail_on_unknown
    outcome = CheckOutcome(
        results=current,
        gates=check_gates(current, gates, is_strict=is_strict),
        baseline=None
        if baseline is None
        else compare_with_baseline(
            _comparable(read_results(baseline), str(baseline), rescore=rescore, goldens=goldens),
            count_unknown_as_failed(current) if is_strict else current,
            tolerance=tolerance,
            significance=significance,
        ),
        fails_on_errors=not allow_errors,
    )
    if unknown := current.counts["not_evaluated"]:
        counted = "as failed" if is_strict else "in no pass rate; --fail-on-unknown counts them as failed"
        print_warning(f"cases that could not be evaluated: {unknown}; they count {counted}")
    _print_outcome(outcome, "json" if as_json else format)
    if junit is not None:
        _write(junit, junit_xml(outcome))
    if markdown is not None:
        _write(markdown, markdown_summary(outcome), append=True)
    if bool(os.environ.get("GITHUB_ACTIONS")) if github is None else github:
        _print_annotations(outcome)
    if not outcome.passed:
        raise typer.Exit(GATE_FAILED)


def _parse_options(
    fail_under: list[str] | None, tags: list[str] | None, ids: list[str] | None, *, has_baseline: bool
) -> list[Gate]:
    from goldspan.testing.gates import parse_gates

    gates = parse_gates(fail_under, "--fail-under")
    gates += parse_gates(tags, "--fail-under-tag", "tag")
    gates += parse_gates(ids, "--fail-under-golden", "golden")
    return gates if gates or has_baseline else parse_gates([_DEFAULT_GATE], "--fail-under")


def _comparable(found: AgentResults, name: str, *, rescore: bool, goldens: list[str] | None) -> AgentResults:
    """Return the results, evaluated with this scoring version. Raises `ResultsError` if they are not."""
    from goldspan.goldens import load_goldens
    from goldspan.testing.rescoring import require_current_version
    from goldspan.testing.rescoring import rescore as evaluate_again

    if not rescore:
        require_current_version(found, name)
        return found
    files = goldens or list(found.header.goldens)
    if not files:
        raise ConfigurationError(f"{name}: names no golden files; --goldens FILE names them")
    return evaluate_again(found, load_goldens(*files), name)


def _print_outcome(outcome: CheckOutcome, form: Literal["text", "json", "markdown"]) -> None:
    from goldspan.testing.check_reports import check_document, markdown_summary

    console = stdout_console()
    if form == "json":
        from goldspan.sinks.serialization import to_json  # deferred: imports OpenTelemetry

        console.write_line(to_json(check_document(outcome)))
    elif form == "markdown":
        console.write_line(markdown_summary(outcome).removesuffix("\n"))
    else:
        from goldspan.cli.tables import check_blocks

        console.print(check_blocks(outcome))


def _print_annotations(outcome: CheckOutcome) -> None:
    """Print the workflow commands, which GitHub reads from standard output and from standard error."""
    from goldspan.testing.check_reports import github_annotations

    console = stderr_console()
    for annotation in github_annotations(outcome):
        console.file.write(f"{annotation}\n")
    console.file.flush()


def _write(file: Path, text: str, *, append: bool = False) -> None:
    try:
        with file.open("a" if append else "w", encoding="utf-8") as opened:
            opened.write(text)
    except OSError as error:
        raise ConfigurationError(f"{file}: cannot be written: {error.strerror}") from error
