"""`to_pandas` and `to_polars`: evaluations and stored runs as data frames, for notebooks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from goldspan._extras import require_extra
from goldspan.errors import ConfigurationError
from goldspan.goldens.spelling import short_repr
from goldspan.model import Evaluation
from goldspan.store.run_export import Column, ColumnType, TableRow, cell_value, table_columns
from goldspan.store.run_records import evaluation_to_document
from goldspan.store.store_protocol import ALL_RUNS, RunFilter

if TYPE_CHECKING:
    from goldspan.store.store_protocol import PandasFrame, PolarsFrame, Store

_MAX_TIME_NS = 2**63 - 1
_PANDAS_TYPES: Mapping[ColumnType, str] = {
    "text": "string",
    "texts": "object",
    "number": "Float64",
    "integer": "Int64",
    "boolean": "boolean",
    "time": "datetime64[us, UTC]",
}
"""The types that have a missing value. In numpy's own types, `None` becomes NaN, `False` or an object."""


def to_pandas(evaluations: Iterable[Evaluation]) -> PandasFrame:
    """Return a pandas data frame with a row for each evaluation, in the order of the evaluations.

    The columns are those of an exported store (docs/store.md): the run, the golden, the verdict, the tools, and a
    column `score.NAME` for each metric of any evaluation. What is not known is a missing value (`pandas.NA`). Values of
    arguments and results are left out. A store and the results of `evaluate_agent` have a method of the same name.

        frame = goldspan.to_pandas(goldspan.evaluate_cases(rows))
        frame.groupby("agent")["passed"].mean()

    Raises:
        MissingExtraError: pandas is not installed.
    """
    require_pandas()
    return pandas_frame(*evaluation_table(evaluations))


def to_polars(evaluations: Iterable[Evaluation]) -> PolarsFrame:
    """Return a polars data frame with a row for each evaluation: as `to_pandas`, and what is not known is null.

    Raises:
        MissingExtraError: polars is not installed.
    """
    require_polars()
    return polars_frame(*evaluation_table(evaluations))


class StoreFrames:
    """The data frames of a store."""

    def to_pandas(self: Store, filter: RunFilter = ALL_RUNS) -> PandasFrame:  # noqa: A002 - the usual name
        """Return a pandas data frame with the columns of an export: a row for each run that matches, newest first."""
        require_pandas()
        return pandas_frame(map(TableRow.of_stored_run, self.iter_runs(filter)), table_columns(self.metrics()))

    def to_polars(self: Store, filter: RunFilter = ALL_RUNS) -> PolarsFrame:  # noqa: A002
        """Return a polars data frame with the columns of an export: a row for each run that matches, newest first."""
        require_polars()
        return polars_frame(map(TableRow.of_stored_run, self.iter_runs(filter)), table_columns(self.metrics()))


def row_of_document(document: Mapping[str, Any]) -> TableRow:
    """Return the row of an evaluation that is in no store. Its time is the start, else the end, of the run."""
    time_ns = document.get("start_ns") or document.get("end_ns")
    is_possible = time_ns is not None and 0 <= time_ns <= _MAX_TIME_NS
    return TableRow(document, time_ns if is_possible else None, evaluation_count=None)


def require_pandas() -> None:
    """Raise `MissingExtraError` if pandas is not installed: before evaluations are read, which may take long."""
    with require_extra("pandas"):
        import pandas  # noqa: F401 - checks that it is installed


def require_polars() -> None:
    """Raise `MissingExtraError` if polars is not installed."""
    with require_extra("polars"):
        import polars  # noqa: F401


def pandas_frame(rows: Iterable[TableRow], columns: Sequence[Column]) -> PandasFrame:
    """Return a pandas data frame. Without rows, it has the columns and their types."""
    import pandas

    values = column_values(rows, columns)
    return pandas.DataFrame(
        {column.name: pandas.Series(values[column.name], dtype=_PANDAS_TYPES[column.column_type]) for column in columns}
    )


def polars_frame(rows: Iterable[TableRow], columns: Sequence[Column]) -> PolarsFrame:
    """Return a polars data frame. Without rows, it has the columns and their types."""
    import polars

    types: Mapping[ColumnType, Any] = {
        "text": polars.String,
        "texts": polars.List(polars.String),
        "number": polars.Float64,
        "integer": polars.Int64,
        "boolean": polars.Boolean,
        "time": polars.Datetime("us", "UTC"),
    }
    schema = {column.name: types[column.column_type] for column in columns}
    return polars.DataFrame(column_values(rows, columns), schema=schema)


def column_values(rows: Iterable[TableRow], columns: Sequence[Column]) -> dict[str, list[Any]]:
    """Return the values of each column, by its name; `None` is a missing value."""
    values: dict[str, list[Any]] = {column.name: [] for column in columns}
    for row in rows:
        for column in columns:
            values[column.name].append(cell_value(column.read(row)))
    return values


def evaluation_table(evaluations: Iterable[Evaluation]) -> tuple[list[TableRow], tuple[Column, ...]]:
    """Return the rows and the columns of evaluations. Those of metrics are sorted by name, as in a store."""
    if not isinstance(evaluations, Iterable):
        raise ConfigurationError(
            f"evaluations must be a list of Evaluation, not {short_repr(evaluations)}; a store and the results of "
            "evaluate_agent have a method of the same name."
        )
    rows: list[TableRow] = []
    metrics: set[str] = set()
    for evaluation in evaluations:
        if not isinstance(evaluation, Evaluation):
            raise ConfigurationError(f"evaluations must be a list of Evaluation, not of {short_repr(evaluation)}.")
        metrics.update(score.metric for score in evaluation.scores)
        rows.append(row_of_document(evaluation_to_document(evaluation, keep_arguments=False)))
    return rows, table_columns(sorted(metrics))
