"""The output and the exit status of `goldspan goldens import`."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from goldspan import load_goldens
from goldspan.cli.app import run


@pytest.fixture
def dataset(tmp_path: Path) -> Path:
    """Return a dataset of deepeval with one golden that can be imported and two that cannot."""
    rows = [{"input": "Refund", "expected_tools": [{"name": "refund"}]}, {"input": "a"}, {"input": "b"}]
    (path := tmp_path / "dataset.json").write_text(json.dumps(rows))
    return path


def goldspan(monkeypatch: pytest.MonkeyPatch, *arguments: object) -> int:
    monkeypatch.setattr(sys, "argv", ["goldspan", "goldens", "import", *map(str, arguments)])
    return run()


def test_the_goldens_are_printed_and_losses_are_warnings(
    dataset: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert goldspan(monkeypatch, dataset) == 0
    out, err = capsys.readouterr()
    assert out == "version: 1\ngoldens:\n  - id: refund\n    input: Refund\n    tools: [refund]\n"
    assert err == (
        "warning: not carried over: goldens without expected_tools: 2, first in golden 2\n1 golden of deepeval\n"
    )


def test_the_written_file_loads_and_is_not_overwritten(
    dataset: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "goldens.yaml"
    assert goldspan(monkeypatch, dataset, "--from", "deepeval", "--out", out) == 0
    assert f"1 golden of deepeval written to {out}\n" in capsys.readouterr().err
    assert len(load_goldens(out)) == 1
    assert goldspan(monkeypatch, dataset, "--out", out) == 2
    assert "the file exists; --force overwrites it" in capsys.readouterr().err
    assert goldspan(monkeypatch, dataset, "--out", out, "--force") == 0


def test_a_dataset_without_expectations_ends_with_status_1(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (path := tmp_path / "d.json").write_text('[{"inputs": {"q": "x"}, "outputs": {}}]')
    assert goldspan(monkeypatch, path) == 1
    assert capsys.readouterr().err.endswith(f"warning: {path}: no golden in this file of langsmith\n")


def test_an_unknown_format_ends_with_status_2(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (path := tmp_path / "d.json").write_text("{}")
    assert goldspan(monkeypatch, path) == 2
    assert "the format is not recognised; --from names it" in capsys.readouterr().err
