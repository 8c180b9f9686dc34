"""Stored runs as Parquet: the one door to pyarrow."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice
from typing import IO, Any

from goldspan.errors import MissingExtraError
from goldspan.store.columns import Column, Kind
from goldspan.store.entries import storable
from goldspan.store.protocol import StoredRun

_GROUP = 5000
"""Runs in a row group: so many are in memory at once."""


def check_installed() -> None:
    """Raise `MissingExtraError` where pyarrow is not installed."""
    try:
        import pyarrow.parquet  # type: ignore[import-untyped]  # noqa: F401 - whether it can be
    except ImportError:
        raise MissingExtraError("writing Parquet", "parquet") from None


def write_parquet(runs: Iterable[StoredRun], columns: Sequence[Column], file: IO[bytes]) -> None:
    """Write runs as a table with typed columns, a row group at a time."""
    import pyarrow as pa
    from pyarrow.parquet import ParquetWriter

    kinds: dict[Kind, Any] = {
        "text": pa.string(),
        "texts": pa.list_(pa.string()),
        "number": pa.float64(),
        "integer": pa.int64(),
        "boolean": pa.bool_(),
        "time": pa.timestamp("us", tz="UTC"),
    }
    schema = pa.schema([(column.name, kinds[column.kind]) for column in columns])
    waiting = iter(runs)
    with ParquetWriter(file, schema) as writer:
        while group := list(islice(waiting, _GROUP)):
            arrays = [[_plain(column.read(run)) for run in group] for column in columns]
            writer.write_table(pa.table(arrays, schema=schema))


def _plain(value: Any) -> Any:
    if isinstance(value, str):
        return storable(value)
    return list(map(storable, value)) if isinstance(value, list) else value
