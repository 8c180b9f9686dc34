"""Starts a private PostgreSQL server for tests, without privileges and without durability."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import psycopg

_UNPRIVILEGED_USERS = ("postgres", "nobody")
"""The server refuses to run as root."""


class PostgresServer:
    """A server that listens on a free port of 127.0.0.1 and on a socket in its folder. Any password is accepted."""

    def __init__(self) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="goldspan-postgres-"))
        self._folder.chmod(0o755)
        self._user = self._unprivileged_user()
        if self._user is not None:
            os.chown(self._folder, int(self._user["user"]), int(self._user["group"]))
        self._data = self._folder / "data"
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self._databases = 0
        self._reused: str | None = None
        self._run("initdb", "-D", str(self._data), "-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C", "-N")
        self._process: subprocess.Popen[bytes] | None = None
        self.start()

    def url(self, database: str = "postgres", *, port: int | None = None) -> str:
        return f"postgresql://postgres:secret-word@127.0.0.1:{port or self.port}/{database}"

    def create_database(self) -> str:
        """Create an empty database and return its URL."""
        self._databases += 1
        name = f"test{self._databases}"
        with psycopg.connect(self.url(), autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name}")
        return self.url(name)

    def emptied_database(self) -> str:
        """Return the URL of a database for one store at a time, without runs and weeks: faster than a new database."""
        if self._reused is None:
            self._reused = self.create_database()
        with psycopg.connect(self._reused, autocommit=True) as connection:
            tables = connection.execute(
                "SELECT tablename FROM pg_tables WHERE schemaname = 'goldspan' AND tablename <> 'store'"
            ).fetchall()
            weeks = [f"goldspan.{name}" for (name,) in tables if "_week_" in name]
            if weeks:
                connection.execute(f"DROP TABLE {', '.join(weeks)}")
            if tables:
                rest = [f"goldspan.{name}" for (name,) in tables if "_week_" not in name]
                connection.execute(f"TRUNCATE {', '.join(rest)}")
                connection.execute("UPDATE goldspan.store SET last_run = 0, last_evaluation = 0")
        return self._reused

    def start(self) -> None:
        arguments = ["-D", str(self._data), "-p", str(self.port), "-c", "listen_addresses=127.0.0.1"]
        arguments += ["-c", f"unix_socket_directories={self._folder}", "-c", "max_connections=200"]
        for name in ("fsync", "synchronous_commit", "full_page_writes", "autovacuum"):
            arguments += ["-c", f"{name}=off"]
        with (self._folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [str(shutil.which("postgres")), *arguments], stdout=log, stderr=log, **self._user or {},
                cwd=self._folder,
            )  # fmt: skip
        deadline = time.monotonic() + 30
        while True:
            try:
                psycopg.connect(self.url(), connect_timeout=2).close()
                return
            except psycopg.OperationalError:
                if time.monotonic() > deadline:
                    raise
            time.sleep(0.05)

    def stop(self) -> None:
        """Stop the server, which ends all sessions and writes its data."""
        assert self._process is not None
        self._process.send_signal(signal.SIGINT)
        self._process.wait(30)

    def remove(self) -> None:
        self.stop()
        shutil.rmtree(self._folder)

    def _run(self, program: str, *arguments: str) -> None:
        subprocess.run(
            [str(shutil.which(program)), *arguments],
            check=True, capture_output=True, cwd=self._folder, **self._user or {},
        )  # fmt: skip

    @staticmethod
    def _unprivileged_user() -> Mapping[str, Any] | None:
        if os.geteuid() != 0:
            return None
        known = {entry.pw_name: entry for entry in pwd.getpwall()}
        entry = next(known[name] for name in _UNPRIVILEGED_USERS if name in known)
        return {"user": entry.pw_uid, "group": entry.pw_gid, "extra_groups": []}
