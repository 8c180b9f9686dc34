"""Opens trace files by URL, such as `s3://bucket/traces/`, with fsspec."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import IO, Any, cast

from goldspan._extras import require_extra
from goldspan.errors import TraceFileError

_URL = re.compile(r"[a-zA-Z][a-zA-Z0-9+.-]+://")


def is_url(path: str) -> bool:
    """Returns whether a path is the URL of a file or folder."""
    return _URL.match(path) is not None


def files_below(url: str, is_trace_file: Callable[[str], bool]) -> list[str] | None:
    """Returns the URLs of the trace files in a folder, ordered by name; `None` if the URL is a file.

    Raises `TraceFileError` if nothing is there, or the storage cannot be read.
    """
    with _as_trace_file_error(url):
        files, path = _file_system(url)
        if files.isfile(path):
            return None
        if not files.exists(path):
            raise TraceFileError(f"{url}: no such file or folder")
        found = sorted(name for name in files.find(path) if is_trace_file(name.rsplit("/", 1)[-1]))
        return [files.unstrip_protocol(name) for name in found]


def size_of(url: str) -> int:
    """Returns the size of a file in bytes."""
    with _as_trace_file_error(url):
        files, path = _file_system(url)
        return int(files.size(path) or 0)


@contextmanager
def open_url(url: str) -> Iterator[IO[bytes]]:
    """Opens a file for reading. It can seek."""
    with _as_trace_file_error(url):
        files, path = _file_system(url)
        opened = files.open(path, "rb")
    with opened:
        yield cast("IO[bytes]", opened)


def _file_system(url: str) -> tuple[Any, str]:
    with require_extra("fsspec"):
        from fsspec.core import url_to_fs  # type: ignore[import-untyped]
    files, path = url_to_fs(url)
    return files, path


@contextmanager
def _as_trace_file_error(url: str) -> Iterator[None]:
    """Raises `TraceFileError` for an unknown kind of URL, a missing package, and errors of the storage."""
    try:
        yield
    except (OSError, ValueError, ImportError) as error:
        raise TraceFileError(f"{url}: cannot be read: {error}") from error
