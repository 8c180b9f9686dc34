"""Defines the columns of the evaluations that a data frame contains."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from goldspan.model import Evaluation
from goldspan.sinks.serialization import evaluation_document, to_json
from goldspan.store.data_frames import row_of_document
from goldspan.store.run_export import BASE_COLUMNS, ColumnType, cell_value
from goldspan.store.run_records import evaluation_to_document

if TYPE_CHECKING:
    import pyarrow as pa  # type: ignore[import-untyped]

_SPARK_TYPES: Final[Mapping[ColumnType, str]] = {
    "text": "string",
    "texts": "array<string>",
    "number": "double",
    "integer": "bigint",
    "boolean": "boolean",
    "time": "timestamp",
}
_COLUMNS = tuple(column for column in BASE_COLUMNS if column.name != "evaluations")
EVALUATION_SCHEMA: Final = ", ".join(
    [
        *(f"{column.name} {_SPARK_TYPES[column.column_type]}" for column in _COLUMNS),
        "scores map<string, double>",
        "document string",
    ]
)
"""The columns of an exported store, the score of each metric by its name, and the evaluation as JSON, as the command
`goldspan score --json` prints it. What is not known is null."""


def evaluation_batch(evaluations: Sequence[Evaluation]) -> pa.RecordBatch:
    """Return a row for each evaluation."""
    import pyarrow as pa

    arrow_types: Mapping[ColumnType, Any] = {
        "text": pa.string(),
        "texts": pa.list_(pa.string()),
        "number": pa.float64(),
        "integer": pa.int64(),
        "boolean": pa.bool_(),
        "time": pa.timestamp("us", tz="UTC"),
    }
    rows = [row_of_document(evaluation_to_document(evaluation, keep_arguments=False)) for evaluation in evaluations]
    columns = {
        column.name: pa.array([cell_value(column.read(row)) for row in rows], arrow_types[column.column_type])
        for column in _COLUMNS
    }
    scores = [[(score.metric, score.value) for score in evaluation.scores] for evaluation in evaluations]
    documents = [to_json(evaluation_document(evaluation)) for evaluation in evaluations]
    columns["scores"] = pa.array(scores, pa.map_(pa.string(), pa.float64()))
    columns["document"] = pa.array(documents, pa.string())
    return pa.RecordBatch.from_pydict(columns)
