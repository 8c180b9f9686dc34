"""Tests of the folder with the pages that were read."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from goldspan.errors import ConfigurationError, TraceFileError
from goldspan.sources.pull_folder import STATE_NAME, PullFolder, PullState
from goldspan.sources.time_window import TimeWindow

STATE = PullState("phoenix://host", 1, 2, cursor={"end_ns": 2}, pages=1, traces=7)


def test_a_new_folder_is_created_and_has_no_state(tmp_path: Path) -> None:
    folder = PullFolder(tmp_path / "new" / "folder")
    assert folder.path.is_dir()
    assert folder.state is None


def test_the_state_is_that_of_the_last_page(tmp_path: Path) -> None:
    folder = PullFolder(tmp_path)
    folder.write_page(1, [{"a": 1}, {"b": 2}])
    folder.write_state(STATE)
    assert folder.state == PullFolder(tmp_path).state == STATE
    assert STATE.window == TimeWindow(1, 2)
    assert (tmp_path / "traces-000001.jsonl").read_text() == '{"a":1}\n{"b":2}\n'


def test_a_page_without_documents_has_no_file(tmp_path: Path) -> None:
    folder = PullFolder(tmp_path)
    folder.write_page(1, [])
    folder.write_state(STATE)
    assert [path.name for path in tmp_path.iterdir()] == [STATE_NAME]


def test_a_page_that_the_state_does_not_know_is_replaced(tmp_path: Path) -> None:
    folder = PullFolder(tmp_path)
    folder.write_state(STATE)
    folder.write_page(2, [{"page": "interrupted"}])
    PullFolder(tmp_path).write_page(2, [{"page": "again"}])
    assert (tmp_path / "traces-000002.jsonl").read_text() == '{"page":"again"}\n'


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", "null", '{"version": 2}', '{"version": 1}', json.dumps({"version": 1, "source": "a", "more": 1})],
)
def test_a_damaged_state_is_an_error(text: str, tmp_path: Path) -> None:
    (tmp_path / STATE_NAME).write_text(text)
    with pytest.raises(ConfigurationError, match="is damaged or of another version; name a new folder"):
        PullFolder(tmp_path)


def test_a_state_that_is_not_text_is_an_error(tmp_path: Path) -> None:
    (tmp_path / STATE_NAME).write_bytes(b"\xff\xfe\xff")
    with pytest.raises(TraceFileError, match="cannot be used as a folder for traces"):
        PullFolder(tmp_path)


def test_a_folder_with_other_files_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(ConfigurationError, match="contains other files; name a new folder for the traces"):
        PullFolder(tmp_path)


def test_the_path_of_a_file_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(TraceFileError, match="cannot be used as a folder for traces"):
        PullFolder(tmp_path / "file")


@pytest.mark.skipif(sys.platform == "win32", reason="a folder cannot be deleted while it is in use")
def test_a_page_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    folder = PullFolder(tmp_path / "folder")
    folder.path.rmdir()
    with pytest.raises(TraceFileError, match=r"traces-000001\.jsonl: cannot be written: No such file"):
        folder.write_page(1, [{}])
