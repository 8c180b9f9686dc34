"""Every command that reads a store accepts its file or the folder that holds it."""

from __future__ import annotations

from pathlib import Path

import pytest

from goldspan import ToolCall, evaluate
from goldspan.cli.options import find_store, store_location
from goldspan.errors import ConfigurationError
from goldspan.gateway.settings.gateway_settings import STORE_FILE
from goldspan.model import Run
from goldspan.store import open_store
from support.command_line import Goldspan


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The data folder of a gateway."""
    data = tmp_path / "goldspan-data"
    data.mkdir()
    with open_store(data / STORE_FILE) as store:
        store.submit(evaluate(Run("r", input="Hi", tool_calls=(ToolCall("find"),)), ["find"]))
    return data


def test_a_store_is_found_by_its_file_and_by_its_folder(folder: Path) -> None:
    assert store_location(folder) == store_location(folder / STORE_FILE) == folder / STORE_FILE
    assert find_store(folder) == folder / STORE_FILE


@pytest.mark.parametrize("name", ["nowhere", "nowhere.db", "."])
def test_a_path_without_a_store_is_an_error_that_names_the_file(tmp_path: Path, name: str) -> None:
    with pytest.raises(ConfigurationError, match=r": no such store; `goldspan serve` and a store sink create one"):
        store_location(tmp_path / name)
    assert find_store(tmp_path / name) is None


def test_export_accepts_the_data_folder_of_a_gateway(goldspan: Goldspan, folder: Path, tmp_path: Path) -> None:
    result = goldspan("export", folder, tmp_path / "runs.csv")
    assert (result.status, result.err) == (0, f"1 run written to {tmp_path / 'runs.csv'}\n")


def test_report_accepts_the_data_folder_of_a_gateway(goldspan: Goldspan, folder: Path) -> None:
    result = goldspan("report", folder, "--markdown", "-")
    assert (result.status, "1 run: 1 passed" in result.out) == (0, True)
