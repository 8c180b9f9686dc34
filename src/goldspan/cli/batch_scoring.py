"""Evaluates the runs in traces in several processes, or into a folder of parts, for `score`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from functools import lru_cache
from io import BytesIO
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal, NamedTuple

from goldspan.batch.bounded_extraction import FOLDER_PREFIX
from goldspan.batch.run_spool import RunPlace, read_runs
from goldspan.batch.task_runner import TaskRunner, write_atomically
from goldspan.cases.case_evaluation import Case
from goldspan.cli.console import stdout_console, with_progress_bar
from goldspan.cli.evaluation_summary import EvaluationSummary
from goldspan.cli.input_reading import extract_files_with_progress, no_runs_error, print_losses
from goldspan.cli.output_folder import OutputFolder, content_digest_of
from goldspan.cli.scoring_options import ScoringOptions, scoring_options_from
from goldspan.goldens import Goldens, load_goldens
from goldspan.model import Evaluation, RunUnit
from goldspan.otlp.start_range import StartRange
from goldspan.otlp.trace_files import Loss

PartFormat = Literal["jsonl", "parquet"]
_RUNS_IN_A_CHUNK = 500
"""Runs that a process evaluates at once, if they are not a part of a folder."""


@dataclass(frozen=True)
class ScoringSpec:
    """The options of an evaluation as texts, which other processes can load."""

    goldens: tuple[str, ...]
    metrics: tuple[str, ...]
    profile: str | None
    profile_settings: tuple[str, ...]
    thresholds: tuple[str, ...]
    strict: bool
    rules: tuple[tuple[str, Any], ...]
    verbose: bool

    def load_goldens(self) -> Goldens | None:
        """Load the goldens."""
        return load_goldens(*self.goldens) if self.goldens else None

    def scoring_options(self) -> ScoringOptions:
        """Return the options that the texts state."""
        return scoring_options_from(
            list(self.metrics),
            self.profile,
            list(self.profile_settings),
            list(self.thresholds),
            strict=self.strict,
            **{name: list(value) if isinstance(value, tuple) else value for name, value in self.rules},
        )


def scoring_spec(
    *,
    goldens: Sequence[str] | None,
    metrics: Sequence[str] | None,
    profile: str | None,
    profile_settings: Sequence[str] | None,
    thresholds: Sequence[str] | None,
    strict: bool,
    rules: Mapping[str, Any],
    verbose: bool,
) -> ScoringSpec:
    """Return the values of the command line in a form that is hashable and can be pickled."""
    return ScoringSpec(
        tuple(goldens or ()),
        tuple(metrics or ()),
        profile,
        tuple(profile_settings or ()),
        tuple(thresholds or ()),
        strict,
        tuple((name, tuple(value) if isinstance(value, list) else value) for name, value in rules.items()),
        verbose,
    )


class PartOptions(NamedTuple):
    """Where results are written in parts."""

    folder: Path
    part_format: PartFormat
    runs_in_a_part: int


class _ScoreTask(NamedTuple):
    """Runs to evaluate."""

    places: list[RunPlace]
    spec: ScoringSpec
    limit: int | None
    with_lines: bool
    part: Path | None
    part_format: PartFormat
    metrics: tuple[str, ...]
    """The metrics that have a column in Parquet."""


class _ScoredRuns(NamedTuple):
    """The results of some runs: their JSON if it is printed, and their summary."""

    lines: list[str]
    summary: EvaluationSummary
    part: Path | None


def score_in_processes(
    paths: list[str],
    spec: ScoringSpec,
    *,
    goldens: Goldens | None,
    unit: RunUnit,
    golden_id_attributes: list[str] | None,
    memory: int,
    jobs: int,
    limit: int | None,
    prints_json: bool,
    metrics: Sequence[str],
    start_range: StartRange,
    out: PartOptions | None = None,
) -> EvaluationSummary:
    """Evaluate the runs in traces and return their summary; print the JSON of each, or write it to a folder."""
    options = _Options(
        goldens, unit, golden_id_attributes, memory, jobs, limit, prints_json, tuple(metrics), start_range
    )
    if out is None:
        return _score(paths, spec, options, None)
    folder = OutputFolder(out.folder, paths, _described(spec, options, out), out.part_format)
    if not folder.is_complete:
        folder.complete(_score(paths, spec, options, folder))
    return folder.summary()


class _Options(NamedTuple):
    """The parameters of `score_in_processes`."""

    goldens: Goldens | None
    unit: RunUnit
    golden_id_attributes: list[str] | None
    memory: int
    jobs: int
    limit: int | None
    prints_json: bool
    metrics: tuple[str, ...]
    start_range: StartRange


def _described(spec: ScoringSpec, options: _Options, out: PartOptions) -> dict[str, Any]:
    """The options on which the results depend, for the manifest."""
    return {
        **{name: list(value) if isinstance(value, tuple) else value for name, value in asdict(spec).items()},
        "goldens": content_digest_of(spec.goldens),
        "unit": options.unit,
        "golden_id_attributes": options.golden_id_attributes,
        "out_format": out.part_format,
        "part_runs": out.runs_in_a_part,
        "limit": options.limit,
        "since_ns": options.start_range.since_ns,
        "until_ns": options.start_range.until_ns,
    }


def _score(paths: list[str], spec: ScoringSpec, options: _Options, out: OutputFolder | None) -> EvaluationSummary:
    goldens, unit, golden_id_attributes, memory, jobs, limit, prints_json, metrics, start_range = options
    summary = EvaluationSummary(limit)
    losses: list[Loss] = []
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory(prefix=FOLDER_PREFIX))) if out is None else out.work
        runner = stack.enter_context(TaskRunner(jobs, folder=None if out is None else folder))
        stack.callback(print_losses, losses)
        runs = extract_files_with_progress(
            paths,
            runner,
            folder,
            unit=unit,
            golden_id_attributes=golden_id_attributes,
            components=() if goldens is None else goldens.components,
            memory=memory,
            jobs=jobs,
            on_loss=losses.append,
            start_range=start_range,
        )
        if not len(runs):
            raise no_runs_error(paths, unit, start_range)

        def tasks() -> Iterator[tuple[str, _ScoreTask]]:
            chunk_size = _RUNS_IN_A_CHUNK if out is None else out.runs_in_a_part
            for number, places in enumerate(runs.chunks(chunk_size)):
                part = None if out is None else out.part_path(number)
                form: PartFormat = "jsonl" if out is None else out.part_format
                with_lines = prints_json and out is None
                yield f"score-{number:05}", _ScoreTask(places, spec, limit, with_lines, part, form, metrics)

        console = stdout_console()
        total = -(-len(runs) // (_RUNS_IN_A_CHUNK if out is None else out.runs_in_a_part))
        scored = with_progress_bar(runner.map(score_runs, tasks()), total, "evaluating", is_streamed=prints_json)
        for part in scored:
            for line in part.lines:
                console.write_line(line)
            summary.merge(part.summary)
            if out is not None and part.part is not None:
                out.add_part(part.part, len(part.summary))
    return summary


def score_runs(task: _ScoreTask) -> _ScoredRuns:
    """Evaluate some runs, and write them to their part."""
    from goldspan.sinks.serialization import evaluation_document, to_json

    summary = EvaluationSummary(task.limit)
    evaluate = _evaluator(task.spec)
    evaluations = summary.observe(evaluate(Case(run)) for run in read_runs(task.places))
    if task.part is not None and task.part_format == "parquet":
        _write_parquet(task.part, list(evaluations), task.metrics)
        return _ScoredRuns([], summary, task.part)
    needs_lines = task.with_lines or task.part is not None
    lines = [to_json(evaluation_document(each)) if needs_lines else "" for each in evaluations]
    if task.part is None:
        return _ScoredRuns(lines if task.with_lines else [], summary, None)
    write_atomically(task.part, "".join(f"{line}\n" for line in lines).encode())
    return _ScoredRuns([], summary, task.part)


def _write_parquet(path: Path, evaluations: list[Evaluation], metrics: Sequence[str]) -> None:
    from goldspan.store.data_frames import evaluation_table
    from goldspan.store.run_export import table_columns, write_parquet

    rows, _ = evaluation_table(evaluations)
    content = BytesIO()
    write_parquet(rows, table_columns(metrics), content)
    write_atomically(path, content.getvalue())


@lru_cache(maxsize=1)
def _evaluator(spec: ScoringSpec) -> Callable[[Case], Evaluation]:
    """The function that evaluates a case; each process loads the goldens once."""
    return spec.scoring_options().evaluator(spec.load_goldens(), verbose=spec.verbose)
