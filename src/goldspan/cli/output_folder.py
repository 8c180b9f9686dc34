"""The folder of `score --out`: the parts with results, and a manifest to continue from."""

from __future__ import annotations

import hashlib
import json
import os
import pickle
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from goldspan._version import __version__
from goldspan.batch.task_runner import write_atomically
from goldspan.cli.evaluation_summary import EvaluationSummary
from goldspan.errors import BatchError
from goldspan.otlp.trace_files import list_files, part_bytes

MANIFEST = "manifest.json"
_WORK, _SUMMARY = "work", "summary.pickle"
_VERSION = 1


class OutputFolder:
    """The folder of one batch. It is complete when its manifest says so."""

    def __init__(
        self, path: Path, inputs: list[str], options: Mapping[str, Any], part_format: Literal["jsonl", "parquet"]
    ) -> None:
        """Create the folder, or continue the batch in it.

        Raises `BatchError` if it holds something else, or a batch with other inputs or options.
        """
        self.path, self.part_format = path, part_format
        self.runs_in_a_part: int = options["part_runs"]
        self.work = path.absolute() / _WORK
        """What a restart continues from; removed when the batch is complete."""
        stated = {"inputs": _describe(inputs), "options": dict(options), "goldspan": __version__}
        text = json.dumps(stated, sort_keys=True)
        fingerprint = hashlib.sha256(text.encode()).hexdigest()
        described = json.loads(text)  # as it is in the manifest, where a tuple is a list
        self._manifest: dict[str, Any] = {
            "version": _VERSION,
            "state": "running",
            "fingerprint": fingerprint,
            **described,
            "parts": [],
        }
        before = self._read_manifest()
        if before is not None:
            self._check(before)
            self._manifest["state"] = before["state"]
            self._manifest["parts"] = before["parts"]
        elif path.exists() and any(path.iterdir()):
            raise BatchError(f"--out {path}: the folder is not empty and holds no {MANIFEST} of goldspan")
        try:
            self.work.mkdir(parents=True, exist_ok=True)
            self._write()
        except OSError as error:
            raise BatchError(f"--out {path}: it cannot be written: {error.strerror or error}") from error

    @property
    def is_complete(self) -> bool:
        """Whether all parts are written."""
        return bool(self._manifest["state"] == "complete")

    def part_path(self, number: int) -> Path:
        """Return the file of a part."""
        return self.path.absolute() / f"part-{number:05}.{self.part_format}"

    def add_part(self, part: Path, runs: int) -> None:
        """Note that a part is written."""
        entry = {"file": part.name, "runs": runs}
        if entry not in self._manifest["parts"]:
            self._manifest["parts"].append(entry)
            self._write()

    def complete(self, summary: EvaluationSummary) -> None:
        """Note that all parts are written, and remove what a restart would have continued from, except the summary."""
        self._manifest["state"] = "complete"
        self._manifest["runs"] = sum(part["runs"] for part in self._manifest["parts"])
        # A killed process may have left files that it had not completed.
        for file in (*self.work.iterdir(), *self.path.glob(".part-*"), *self.path.glob(f".{MANIFEST}.*")):
            file.unlink()
        write_atomically(self.work / _SUMMARY, pickle.dumps(summary))
        self._write()

    def summary(self) -> EvaluationSummary:
        """Return the summary of a complete batch."""
        summary: EvaluationSummary = pickle.loads((self.work / _SUMMARY).read_bytes())
        return summary

    def _write(self) -> None:
        write_atomically(self.path / MANIFEST, json.dumps(self._manifest, indent=2).encode() + b"\n")

    def _read_manifest(self) -> dict[str, Any] | None:
        file = self.path / MANIFEST
        if not file.exists():
            return None
        try:
            found = json.loads(file.read_bytes())
            if found["version"] == _VERSION and isinstance(found["parts"], list):
                return dict(found)
        except (OSError, ValueError, TypeError, KeyError):
            pass
        raise BatchError(f"{file}: this is no manifest of this version of goldspan; name another folder")

    def _check(self, before: Mapping[str, Any]) -> None:
        """Raises `BatchError` if the folder has the results of other inputs or options."""
        if before.get("fingerprint") == self._manifest["fingerprint"]:
            return
        changed = [key for key in ("inputs", "goldspan") if before.get(key) != self._manifest[key]]
        options, known = self._manifest["options"], before.get("options") or {}
        changed += sorted(key for key in options.keys() | known.keys() if options.get(key) != known.get(key))
        raise BatchError(
            f"--out {self.path}: the folder has results of other inputs or options; different: {', '.join(changed)}. "
            "Name another folder"
        )


def _describe(inputs: Sequence[str]) -> list[dict[str, Any]]:
    """Return the files of the inputs with their sizes and times, so that a change is noticed."""
    described = []
    for file in list_files(inputs):
        if not file.can_be_opened_again:
            raise BatchError("--out needs files that can be read again, and not standard input or a pipe")
        is_local = os.path.exists(file.path)
        modified = os.stat(file.path).st_mtime_ns if is_local else None
        path = os.path.abspath(file.path) if is_local else file.path
        described.append({"path": path, "bytes": part_bytes(file), "modified_ns": modified})
    return described


def content_digest_of(paths: Sequence[str]) -> list[str]:
    """Return a hash of the contents of each file, for example of golden files."""
    return [hashlib.sha256(Path(path).read_bytes()).hexdigest() for path in paths]
