"""One recorded export of each family of instrumentations, and the runs that it yields.

`pytest tests/conventions/test_families.py --update-snapshots` writes the snapshots again. A person reviews every
change in them.
"""

from __future__ import annotations

import json
from itertools import groupby
from pathlib import Path

import pytest

import goldspan
from goldspan.sinks.serialization import run_document, to_json

FAMILIES = Path(__file__).parent.parent / "fixtures" / "families"


def _name(path: Path) -> str:
    return path.name.partition(".")[0]


_PAYLOADS = sorted(path for path in FAMILIES.iterdir() if not path.name.endswith(".runs.json"))
RECORDED = {name: list(paths) for name, paths in groupby(_PAYLOADS, key=_name)}
"""Trace and log payloads of one recording have the same name before the first dot."""


@pytest.mark.parametrize("name", RECORDED)
def test_a_recorded_export_yields_the_runs_of_its_snapshot(name: str, pytestconfig: pytest.Config) -> None:
    snapshot = FAMILIES / f"{name}.runs.json"
    runs = [json.loads(to_json(run_document(run))) for run in goldspan.load_runs(*RECORDED[name])]
    if pytestconfig.getoption("--update-snapshots"):
        snapshot.write_text(json.dumps(runs, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    assert runs == json.loads(snapshot.read_text(encoding="utf-8"))
