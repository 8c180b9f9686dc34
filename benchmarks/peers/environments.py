"""Creates an environment for each peer on first use, and runs a process in it that measures the peer."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import venv
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from peers import Options, Peer

WORKER = Path(__file__).with_name("worker.py")


class Unavailable(Exception):  # noqa: N818 - printed for the user, not an error of the program
    """A peer cannot be installed or run; the message states the reason."""


def environment(peer: Peer, folder: Path) -> Path:
    """Return the interpreter of the peer's environment. Create it if it is missing or has another version.

    Raises `Unavailable`.
    """
    home = folder / peer.name
    python = home / ("Scripts" if sys.platform == "win32" else "bin") / "python"
    receipt = home / "installed.json"
    wanted = json.dumps([peer.requirement, peer.alone, *peer.needs])
    if receipt.exists() and receipt.read_text(encoding="utf-8") == wanted:
        return python
    if home.exists() and not (home / "pyvenv.cfg").exists():
        raise Unavailable(f"cannot be installed: {home} exists, and is no environment")
    print(f"  installing {peer.requirement} into {home}", file=sys.stderr)
    shutil.rmtree(home, ignore_errors=True)
    venv.create(home, with_pip=True)
    if peer.alone:
        _install(python, ["--no-deps", peer.requirement])
        _install(python, peer.needs)
    else:
        _install(python, [peer.requirement, *peer.needs])
    receipt.write_text(wanted, encoding="utf-8")
    return python


def _install(python: Path, requirements: Sequence[str]) -> None:
    pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *requirements]
    done = subprocess.run(pip, capture_output=True, encoding="utf-8", check=False)
    if done.returncode:
        raise Unavailable(f"cannot be installed: {_last_line(done.stderr)}")


def answer(name: str, python: Path, script: Path, *arguments: object) -> Any:
    """Run a script about the peer in an environment, and return the JSON in its last line of output.

    The script runs in a temporary folder, because some peers write files into it. Raises `Unavailable`.
    """
    command = [str(python), "-I", str(script), name, *map(str, arguments)]
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        done = subprocess.run(
            command,
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            check=False,
            cwd=folder,
            env={**os.environ, **_QUIET},
        )
    if done.returncode or not done.stdout:
        raise Unavailable(f"cannot be run: {_last_line(done.stderr)}")
    return json.loads(done.stdout.splitlines()[-1])


class Worker:
    """A process that runs a peer in the peer's environment. It ends with the `with` block."""

    def __init__(self, peer: Peer, python: Path, cases: Sequence[Any]) -> None:
        self._log = python.parent.parent / "worker.log"
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [python, "-I", WORKER, peer.name],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                encoding="utf-8",
                cwd=python.parent.parent,
                env={**os.environ, **_QUIET},
            )
        self._ask(cases=cases)

    def prepare(self, options: Options) -> None:
        """Prepare the peer with these options. Raises `Unavailable`."""
        self._ask(options=options)

    def round(self, at_least: float) -> tuple[float, list[float | None]]:
        """Score all cases repeatedly for `at_least` seconds.

        Returns the seconds to score all cases once, and the scores: `None` if the peer raises.
        """
        seconds, scores = self._ask(round=at_least)
        return seconds, scores

    def _ask(self, **question: Any) -> Any:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with contextlib.suppress(BrokenPipeError):  # it has ended, and its log states the reason
            print(json.dumps(question), file=self._process.stdin, flush=True)
        line = self._process.stdout.readline()
        if not line:
            self._end()
            raise Unavailable(f"cannot be run: {_last_line(self._log.read_text(encoding='utf-8', errors='replace'))}")
        return json.loads(line)

    def __enter__(self) -> Worker:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()

    def _end(self) -> None:
        with contextlib.suppress(BrokenPipeError):
            self._process.communicate()


_QUIET = {
    "DEEPEVAL_TELEMETRY_OPT_OUT": "YES",
    "DEEPEVAL_UPDATE_WARNING_OPT_IN": "NO",
    "RAGAS_DO_NOT_TRACK": "true",
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "LANGSMITH_TRACING": "false",
    "LITELLM_LOCAL_MODEL_COST_MAP": "true",
    "OPIK_SENTRY_ENABLE": "false",
    "TRACELOOP_TELEMETRY": "false",
    "LOGFIRE_IGNORE_NO_CONFIG": "1",
}
"""Disables the peers' telemetry to their vendors."""


def _last_line(text: str) -> str:
    return next(filter(None, map(str.strip, reversed(text.splitlines()))), "no output")
