"""Finds the store that a command names, by its file or by the folder that holds it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from goldspan.errors import ConfigurationError

STORE_FILE_NAME = "goldspan.db"
"""The name of the store in the data folder of a gateway, and in the folder of the demo."""

StoreArgument = Annotated[
    Path,
    typer.Argument(
        metavar="STORE",
        help=f"The file of a store, or a folder that holds {STORE_FILE_NAME}, such as the data folder of a gateway.",
        show_default=False,
    ),
]

_SQLITE_MAGIC = b"SQLite format 3\0"


def store_file(path: Path) -> Path:
    """Return the file of the store at `path`. Raises `ConfigurationError` where there is none."""
    file = _file_at(path)
    if not file.exists():
        raise ConfigurationError(f"{file}: no such store; `goldspan serve` and a store sink create one")
    return file


def find_store_file(path: Path) -> Path | None:
    """Return the file of the store at `path`, or `None` where the path is not an SQLite file and does not hold one."""
    file = _file_at(path)
    if not file.is_file():
        return None
    with file.open("rb") as content:
        return file if content.read(len(_SQLITE_MAGIC)) == _SQLITE_MAGIC else None


def _file_at(path: Path) -> Path:
    return path / STORE_FILE_NAME if path.is_dir() else path
