"""Lends connections from a pool, and repeats work whose connection was lost."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeAlias, TypeVar

from goldspan._extras import require_extra
from goldspan.errors import ConfigurationError, StoreError

with require_extra("postgres"):
    import psycopg
    from psycopg.conninfo import conninfo_to_dict
    from psycopg_pool import ConnectionPool, PoolTimeout

ResultT = TypeVar("ResultT")
Session: TypeAlias = "psycopg.Connection[tuple[Any, ...]]"

SCHEMA = "goldspan"
"""The schema of all tables, so that the database can also be used by other programs."""
_MAX_CONNECTIONS = 8
"""Connections of one process. Threads that need more wait."""
_FIRST_PAUSE_S, _MAX_PAUSE_S = 0.02, 0.5
"""Pauses between attempts; each is twice as long as the one before."""
_CONNECT_SLICE_S = 0.25
"""How often a wait for a connection checks why the server refuses."""

_SESSION_SETTINGS: Mapping[str, str] = {
    "search_path": f"{SCHEMA}, public",  # the operators of an extension are in public
    "jit": "off",  # compiling takes longer than a query may
    "client_min_messages": "warning",
}
_DEFAULT_PARAMETERS: Mapping[str, tuple[str, str]] = {
    "application_name": ("PGAPPNAME", "goldspan"),
    "connect_timeout": ("PGCONNECT_TIMEOUT", "5"),
    "tcp_user_timeout": ("", "15000"),  # milliseconds until a connection without response counts as lost
}
"""Parameters of libpq: the variable that also sets each of them, and the value if neither sets it."""

_TRANSIENT_STATES = ("08", "40001", "40P01", "53300", "55P03", "57P01", "57P02", "57P03", "25006")
"""SQLSTATE codes, or their classes, after which the same work can succeed: lost connections, deadlocks, lock timeouts,
too many connections, a server that starts or stops, and one that has become a standby."""
_TRANSIENT_REFUSALS = ("starting up", "shutting down", "recovery mode", "too many", "remaining connection slots")
"""Words of a refused connection after which a later one can succeed."""
_MISSING_PARTITION = "23514"
_ADVICE: Mapping[str, str] = {
    "28": "the server refuses the user or the password",
    "3D": "the database does not exist; create it with `createdb`",
    "42501": "the user lacks a privilege; grant it, or let the owner open the store once",
    "53100": "the disk of the server is full",
    "55P03": "another program holds a lock on the tables",
    "25006": "the server accepts no writes; name the primary server, not a standby",
    "57014": "the server cancelled the statement: its statement_timeout is too short",
}
"""What to do about an error of the server, by SQLSTATE code or its class."""


class MissingPartitionError(StoreError):
    """No partition holds the time of a run: another process dropped it."""


class _ReportingConnection(psycopg.Connection[Any]):
    """A connection that records why it could not be opened; the pool itself only reports that time is up."""

    @classmethod
    def connect(cls, conninfo: str = "", **arguments: Any) -> Any:
        """Open a connection, and pass an error to `on_failure` too."""
        on_failure = arguments.pop("on_failure")
        try:
            return super().connect(conninfo, **arguments)
        except psycopg.Error as error:
            on_failure(error)
            raise


class Sessions:
    """Runs work in sessions of a server. It can be used from any thread, and after a fork.

    Work that fails because its connection was lost, or because of another transaction, is repeated until `timeout`
    seconds have passed. So work must have the same effect when it is done twice.
    """

    def __init__(self, url: str, *, display_name: str, read_only: bool, timeout: float) -> None:
        self.display_name = display_name
        self.read_only = read_only
        self._timeout = timeout
        self._parameters = _parameters_of(url, display_name)
        self._lock = threading.Lock()
        self._pool: ConnectionPool[Any] | None = None
        self._process_id = os.getpid()
        self._last_failure: psycopg.Error | None = None
        self._closed = False

    def read(self, work: Callable[[Session], ResultT], *, is_snapshot: bool = False) -> ResultT:
        """Return the result of work that only reads.

        With `is_snapshot`, all its statements see the same state; without it, it may run one statement only.
        """

        def attempt(session: Session, _: int) -> ResultT:
            if not is_snapshot:
                return work(session)
            session.isolation_level, session.read_only = psycopg.IsolationLevel.REPEATABLE_READ, True
            with session.transaction():
                return work(session)

        return self._repeat(attempt)

    def write(self, work: Callable[[Session, int], ResultT]) -> ResultT:
        """Return the result of work in one transaction. `work` also gets the number of failed attempts before."""
        if self.read_only:
            raise StoreError(f"{self.display_name}: it was opened with read_only=True")

        def attempt(session: Session, failures: int) -> ResultT:
            session.isolation_level, session.read_only = psycopg.IsolationLevel.READ_COMMITTED, False
            with session.transaction():
                return work(session, failures)

        return self._repeat(attempt)

    def close(self) -> None:
        """Close all connections; running work fails."""
        with self._lock:
            self._closed = True
            if self._pool is not None and self._process_id == os.getpid():
                self._pool.close()

    def _repeat(self, attempt: Callable[[Session, int], ResultT]) -> ResultT:
        deadline = time.monotonic() + self._timeout
        pause, failures = _FIRST_PAUSE_S, 0
        while True:
            try:
                with self._session(deadline) as session:
                    return attempt(session, failures)
            except psycopg.Error as error:
                if not _is_transient(error) or time.monotonic() + pause > deadline:
                    raise self._store_error(error) from error
            failures += 1
            time.sleep(pause)
            pause = min(2 * pause, _MAX_PAUSE_S)

    @contextmanager
    def _session(self, deadline: float) -> Iterator[Session]:
        """Lend a connection. Raises the error of the server if it refuses connections for good."""
        pool = self._pool_of_this_process()
        self._last_failure = None
        while True:
            try:
                session = pool.getconn(timeout=_CONNECT_SLICE_S)
                break
            except PoolTimeout:
                is_late = time.monotonic() > deadline
                if (failure := self._failure()) is not None and (is_late or not _is_transient(failure)):
                    raise failure from None
                if is_late:
                    raise
        try:
            yield session
        finally:
            pool.putconn(session)

    def _pool_of_this_process(self) -> ConnectionPool[Any]:
        with self._lock:
            if self._closed:
                raise StoreError(f"{self.display_name}: the store was closed")
            if self._process_id != os.getpid():
                _inherited.append(self._pool)
                self._pool, self._process_id = None, os.getpid()
            if self._pool is None:
                self._pool = ConnectionPool(
                    kwargs={**self._parameters, "autocommit": True, "on_failure": self._record_failure},
                    connection_class=_ReportingConnection,
                    configure=self._configure,
                    min_size=0,
                    max_size=_MAX_CONNECTIONS,
                    reconnect_timeout=_CONNECT_SLICE_S,  # afterwards, the next caller tries again
                    name="goldspan",
                    open=True,
                )
            return self._pool

    def _configure(self, session: Session) -> None:
        settings = {**_SESSION_SETTINGS, "lock_timeout": f"{max(1, round(self._timeout * 1000))}ms"}
        columns = ", ".join("set_config(%s, %s, false)" for _ in settings)
        session.execute(f"SELECT {columns}", [text for pair in settings.items() for text in pair])

    def _failure(self) -> psycopg.Error | None:
        return self._last_failure

    def _record_failure(self, error: psycopg.Error) -> None:
        self._last_failure = error

    def _store_error(self, error: psycopg.Error) -> StoreError:
        state = error.sqlstate or ""
        if state == _MISSING_PARTITION:
            return MissingPartitionError(f"{self.display_name}: {_text_of(error)}")
        advice = next((text for code, text in _ADVICE.items() if state.startswith(code)), None)
        if advice is None:
            advice = "the server refuses" if state else "the server cannot be reached"
        return StoreError(f"{self.display_name}: {advice} ({_text_of(error)})")


_inherited: list[object] = []
"""Pools of the parent process; kept referenced so that the garbage collector does not close their connections."""


def _parameters_of(url: str, display_name: str) -> dict[str, Any]:
    """Return the parameters of libpq. An error does not repeat the URL, which may contain a password."""
    try:
        parameters = conninfo_to_dict(url)
    except psycopg.Error:
        raise ConfigurationError(
            f"{display_name}: it is no valid URL; it must look like postgresql://user@host:5432/database, with special "
            "characters percent-encoded"
        ) from None
    for name, (variable, value) in _DEFAULT_PARAMETERS.items():
        if name not in parameters and not os.environ.get(variable):
            parameters[name] = value
    return parameters


def _is_transient(error: psycopg.Error) -> bool:
    if error.sqlstate is not None:
        return error.sqlstate.startswith(_TRANSIENT_STATES)
    if not isinstance(error, psycopg.OperationalError):
        return False
    text = str(error)  # a connection that could not be opened has no code
    return "FATAL" not in text or any(words in text for words in _TRANSIENT_REFUSALS)


def _text_of(error: psycopg.Error) -> str:
    """Return the message of an error on one line, without details, which may contain values."""
    return (error.diag.message_primary or str(error)).strip().replace("\n", "; ")
