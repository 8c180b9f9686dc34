"""What SQLite and the system raise, in words for people."""

from __future__ import annotations

import errno
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from goldspan.errors import StoreError


@contextmanager
def explained(path: Path, advice: Mapping[str, str]) -> Iterator[None]:
    """Turn what is raised into a `StoreError` that names the file and says what to do.

    `advice` is by words that are in what SQLite says: its codes came to Python only with 3.11. It has `unable to open`
    and `readonly database`, for what the system says, too.
    """
    try:
        yield
    except sqlite3.Error as error:
        told = next((told for words, told in advice.items() if words in str(error)), "SQLite refuses")
        raise StoreError(f"{path}: {told} ({error})") from error
    except OSError as error:
        refused = isinstance(error, PermissionError) or error.errno == errno.EROFS
        told = advice["readonly database" if refused else "unable to open"]
        raise StoreError(f"{path}: {told} ({error.strerror})") from error
