"""The data frames of the results of an agent: one row for each case, also if the agent raised."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from goldspan.store.data_frames import pandas_frame, polars_frame, require_pandas, require_polars, row_of_document
from goldspan.store.run_export import Column, TableRow, document_column, table_columns

if TYPE_CHECKING:
    from goldspan.store.store_protocol import PandasFrame, PolarsFrame

CASE_COLUMNS = (
    document_column("trial", "integer"),
    document_column("outcome"),
    document_column("attempts", "integer"),
    document_column("duration_ms", "number"),
    document_column("tags", "texts"),
)
"""The columns of a case, which precede those of its evaluation."""
_CASE_KEYS = (*(column.name for column in CASE_COLUMNS), "golden_id", "passed", "reason")
"""What a case knows even if it was not evaluated."""


class _Results(Protocol):
    """What the frames are made of."""

    @property
    def cases(self) -> Iterable[Any]: ...

    @property
    def metric_names(self) -> list[str]: ...


class ResultFrames:
    """The data frames of agent results.

    Each case is a row, in the order of the cases, with the columns of `goldspan.to_pandas` and those of the case. A
    case in which the agent raised or timed out has not passed, and its other cells are missing values.
    """

    def to_pandas(self: _Results) -> PandasFrame:
        """Return a pandas data frame with a row for each case. Raises `MissingExtraError` without pandas."""
        require_pandas()
        return pandas_frame(map(_case_row, self.cases), _columns(self))

    def to_polars(self: _Results) -> PolarsFrame:
        """Return a polars data frame with a row for each case. Raises `MissingExtraError` without polars."""
        require_polars()
        return polars_frame(map(_case_row, self.cases), _columns(self))


def _columns(results: _Results) -> Sequence[Column]:
    return *CASE_COLUMNS, *table_columns(sorted(results.metric_names))


def _case_row(case: Any) -> TableRow:
    """Return the row of a `CaseResult`. The documents of its run and its evaluation are one document in a store."""
    document = {**(case.run or {}), **(case.evaluation or {}), **{key: getattr(case, key) for key in _CASE_KEYS}}
    return row_of_document(document | {"tags": list(case.tags)})
