"""`goldspan score`: judge every run in some traces by its golden."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated

import typer
from rich.console import Console
from rich.text import Text

from goldspan.cli.console import messages, output, warn
from goldspan.cli.reading import GoldenIdAttribute, JsonFlag, Paths, UnitOption, runs_in
from goldspan.cli.tables import capture_notice, conclusion, evaluation_blocks, summary_table
from goldspan.errors import ConfigurationError
from goldspan.goldens import load_goldens
from goldspan.model import Attempts, Evaluation
from goldspan.scoring import evaluate
from goldspan.scoring.metrics import METRICS, resolve
from goldspan.sinks.documents import evaluation_document, to_json

GATE_FAILED = 1
_PASSED = "passed"
"""What `--fail-under` calls the share of judged runs that passed."""
_TOLERANCE = 1e-9

EXAMPLES = """
Examples:\n
  goldspan score traces.jsonl --goldens goldens.yaml\n
  goldspan score traces/ -g goldens.yaml --fail-under passed=0.95 --fail-under tool_recall=0.8\n
  goldspan score traces.pb.gz -g goldens.jsonl --attempts all --json > scores.jsonl\n
"""


def score(
    paths: Paths,
    goldens: Annotated[
        list[str] | None,
        typer.Option(
            "--goldens", "-g", metavar="FILE", help="Golden file (YAML, JSON, JSON lines); may be given again."
        ),
    ] = None,
    metric: Annotated[
        list[str] | None,
        typer.Option(
            "--metric", "-m", metavar="NAME", help=f"Measure only this; may be given again: {', '.join(METRICS)}."
        ),
    ] = None,
    threshold: Annotated[
        list[str] | None,
        typer.Option("--threshold", metavar="METRIC=X", help="A run fails below X; stands in for the golden's own."),
    ] = None,
    fail_under: Annotated[
        list[str] | None,
        typer.Option(
            "--fail-under",
            metavar="METRIC=X",
            help="Exit with 1 if the metric's mean, or the share `passed`, is below X.",
        ),
    ] = None,
    attempts: Annotated[
        Attempts | None, typer.Option("--attempts", help="Which attempts count; stands in for the goldens' own.")
    ] = None,
    unit: UnitOption = "request",
    golden_id_attribute: GoldenIdAttribute = None,
    limit: Annotated[int, typer.Option("--limit", min=0, help="Runs shown, failed ones first; 0 shows all.")] = 20,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Every score and difference of the runs shown.")
    ] = False,
    as_json: JsonFlag = False,
) -> None:
    """Judge each run by its golden: expected and called side by side, scores, and why."""
    known = load_goldens(*goldens) if goldens else None
    thresholds = _limits(threshold, "--threshold")
    gates = _limits(fail_under, "--fail-under")
    metrics = resolve(metric, thresholds)
    _check_gates(gates, [chosen.name for chosen in metrics])
    evaluations: list[Evaluation] = []
    console = output()
    for run in runs_in(paths, unit=unit, golden_id_attributes=golden_id_attribute):
        evaluation = evaluate(run, known, metrics=metrics, attempts=attempts)
        evaluations.append(evaluation)
        if as_json:
            console.file.write(to_json(evaluation_document(evaluation)) + "\n")
    if not as_json:
        _show(evaluations, console, limit=limit, verbose=verbose)
    if known is not None and not any(evaluation.match for evaluation in evaluations):
        warn(f"none of the {len(known)} goldens belongs to any of these runs, neither by id nor by input")
    if notice := capture_notice([evaluation.run for evaluation in evaluations]):
        warn(f"{notice}: `goldspan extract` says what to do about it")
    if not _all_met(gates, evaluations):
        raise typer.Exit(GATE_FAILED)


def _show(evaluations: Sequence[Evaluation], console: Console, *, limit: int, verbose: bool) -> None:
    ordered = sorted(evaluations, key=lambda evaluation: _URGENCY[evaluation.passed])
    shown = ordered[:limit] if limit else ordered
    console.print(evaluation_blocks(shown, console, verbose=verbose))
    if len(shown) < len(ordered):
        console.print(Text(f"{len(ordered) - len(shown)} more runs; --limit 0 shows all", style="dim"))
    console.print()
    console.print(summary_table(evaluations))
    console.print()
    console.print(conclusion(evaluations))


_URGENCY = {False: 0, None: 1, True: 2}


def _limits(given: Iterable[str] | None, option: str) -> dict[str, float]:
    limits: dict[str, float] = {}
    for text in given or ():
        name, _, number = text.partition("=")
        try:
            limits[name.strip()] = float(number)
        except ValueError:
            raise ConfigurationError(f"{option} takes METRIC=NUMBER, such as tool_recall=0.8, not {text!r}") from None
    return limits


def _check_gates(gates: Mapping[str, float], metrics: Sequence[str]) -> None:
    for name in gates:
        if name not in (_PASSED, *metrics):
            raise ConfigurationError(
                f"--fail-under {name}: no such metric is measured; there are {', '.join((_PASSED, *metrics))}"
            )


def _all_met(gates: Mapping[str, float], evaluations: Sequence[Evaluation]) -> bool:
    """Whether every gate is met; each that is not is told. What could not be measured meets no gate."""
    met = True
    for name, least in gates.items():
        values = _values(name, evaluations)
        mean = sum(values) / len(values) if values else None
        if mean is None or mean < least - _TOLERANCE:
            met = False
            found = "could not be measured on any run" if mean is None else f"is {mean:.4f}"
            messages().print(Text(f"gate failed: {name} {found}, and {least:g} is wanted", style="bold red"))
    return met


def _values(name: str, evaluations: Sequence[Evaluation]) -> list[float]:
    if name == _PASSED:
        return [float(evaluation.passed) for evaluation in evaluations if evaluation.passed is not None]
    scores = (evaluation.score(name) for evaluation in evaluations)
    return [score.value for score in scores if score is not None and score.value is not None]
