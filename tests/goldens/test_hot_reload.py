"""Goldens are reloaded when their files change, and an invalid file changes nothing."""

from __future__ import annotations

import gc
import json
import logging
import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from goldspan import _guard
from goldspan.errors import ConfigurationError, GoldenError
from goldspan.goldens import Goldens
from goldspan.goldens.golden_files.hot_reload import ReloadingGoldens
from support.forked_children import fork, forking

NEVER = 3600.0
"""An interval longer than any test: these tests call `check_now`."""
SOON = 0.01


def golden(*ids: str) -> str:
    return json.dumps([{"id": each, "tools": []} for each in ids])


def ids(goldens: Goldens) -> list[str]:
    return [each.id for each in goldens]


def write(path: Path, text: str) -> None:
    """Write a file with a new modification time, however coarse the clock of the file system is."""
    before = path.stat().st_mtime_ns if path.exists() else 0
    path.write_text(text)
    if path.stat().st_mtime_ns == before:
        os.utime(path, ns=(before + 1_000_000, before + 1_000_000))


def wait_until(condition: Callable[[], bool]) -> None:
    """Wait for another thread, with a timeout far longer than any machine needs."""
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(SOON)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "g.json"
    write(path, golden("a"))
    return path


@pytest.fixture
def reloading(file: Path) -> Iterator[ReloadingGoldens]:
    goldens = ReloadingGoldens([file], interval=NEVER)
    yield goldens
    goldens.close()


# --- check_now --------------------------------------------------------------------------------------------------------


def test_an_error_in_the_first_load_is_raised(tmp_path: Path) -> None:
    with pytest.raises(GoldenError, match="there is no such file"):
        ReloadingGoldens([tmp_path / "none.yaml"])


@pytest.mark.parametrize("interval", [0, -1, float("nan"), "1", None, True])
def test_an_invalid_interval_is_refused(file: Path, interval: Any) -> None:
    with pytest.raises(ConfigurationError) as raised:
        ReloadingGoldens(file, interval=interval)
    assert str(raised.value) == f"interval must be a number of seconds above 0, not {interval!r}."


def test_a_single_path_is_accepted_without_a_list(file: Path) -> None:
    for path in (file, str(file)):
        goldens = ReloadingGoldens(path, interval=NEVER)
        assert ids(goldens.current) == ["a"]
        goldens.close()


def test_an_unchanged_file_is_not_reloaded(reloading: ReloadingGoldens) -> None:
    before = reloading.current
    assert not reloading.check_now()
    assert reloading.current is before
    assert (reloading.reloads, reloading.failures) == (0, 0)


def test_a_changed_file_is_reloaded(reloading: ReloadingGoldens, file: Path) -> None:
    write(file, golden("a", "b"))
    assert reloading.check_now()
    assert ids(reloading.current) == ["a", "b"]
    assert (reloading.reloads, reloading.failures) == (1, 0)


def test_a_changed_file_is_reloaded_after_the_working_directory_changes(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(file.parent)
    goldens = ReloadingGoldens(file.name, interval=NEVER)
    monkeypatch.chdir("/")
    write(file, golden("a", "b"))
    assert goldens.check_now()
    assert ids(goldens.current) == ["a", "b"]
    goldens.close()


def test_a_replaced_file_with_the_same_size_and_time_is_reloaded(reloading: ReloadingGoldens, file: Path) -> None:
    state = file.stat()
    other = file.with_name("new.json")
    other.write_text(golden("b"))
    os.utime(other, ns=(state.st_mtime_ns, state.st_mtime_ns))  # same size and time; only the inode differs
    other.replace(file)
    assert reloading.check_now()
    assert ids(reloading.current) == ["b"]


def test_a_reload_keeps_near_and_margin(file: Path) -> None:
    goldens = ReloadingGoldens([file], interval=NEVER, near=None, margin=7)
    write(file, golden("b"))
    assert goldens.check_now()
    assert (goldens.current.near, goldens.current.margin) == (None, 7)
    goldens.close()


def test_a_change_of_any_of_several_files_reloads_all(tmp_path: Path, file: Path) -> None:
    other = tmp_path / "other.yaml"
    write(other, "- {id: x, tools: []}")
    goldens = ReloadingGoldens([file, str(other)], interval=NEVER)
    write(other, "- {id: y, tools: []}")
    assert goldens.check_now()
    assert ids(goldens.current) == ["a", "y"]
    goldens.close()


def test_an_invalid_file_keeps_the_goldens_and_logs_each_problem_once(
    reloading: ReloadingGoldens, file: Path, caplog: pytest.LogCaptureFixture
) -> None:
    before = reloading.current
    for text in ('[{"id": "a", "tools": [', '[{"id": "a", "tools": [ ', '[{"id": "a", "tool": []}]', "[{"):
        write(file, text)
        assert not reloading.check_now()
        assert not reloading.check_now()  # the file is not read again before it changes
    assert reloading.current is before
    assert (reloading.reloads, reloading.failures) == (0, 4)
    logged = [record.getMessage() for record in caplog.records if record.levelno == logging.ERROR]
    assert len(logged) == len(set(logged)) == 4
    assert all(f"{file}" in message for message in logged)
    assert "unknown key 'tool'" in logged[2]
    write(file, "[{ ")
    assert not reloading.check_now()
    write(file, "[{")
    assert not reloading.check_now()
    assert reloading.failures == 6
    again = [record.getMessage() for record in caplog.records if record.levelno == logging.ERROR]
    assert again.count(logged[3]) == 1
    write(file, golden("b"))
    assert reloading.check_now()
    assert ids(reloading.current) == ["b"]


def test_a_removed_file_keeps_the_goldens_until_it_exists_again(reloading: ReloadingGoldens, file: Path) -> None:
    file.unlink()
    assert not reloading.check_now()
    assert ids(reloading.current) == ["a"]
    write(file, golden("b"))
    assert reloading.check_now()
    assert ids(reloading.current) == ["b"]


def test_an_unreadable_file_is_logged_and_raises_nothing(
    reloading: ReloadingGoldens, file: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file.unlink()
    file.mkdir()
    assert not reloading.check_now()
    assert reloading.failures == 1
    assert "is a directory" in caplog.text.lower()


def test_unknown_keys_in_a_reloaded_file_are_logged(
    reloading: ReloadingGoldens, file: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write(file, '[{"id": "a", "tools": [], "owner": "100 %s"}]')
    assert reloading.check_now()
    assert "keys that are not goldspan's are kept as metadata: 'owner'" in caplog.text


def test_listeners_are_called_on_reload_and_on_failure(file: Path) -> None:
    notifications: list[object] = []
    goldens = ReloadingGoldens(
        [file], interval=NEVER, on_reload=lambda new: notifications.append(ids(new)), on_failure=notifications.append
    )
    write(file, golden("b"))
    goldens.check_now()
    write(file, "")
    goldens.check_now()
    assert notifications == [["b"], f"{file}: the file is empty."]
    goldens.close()


def test_an_exception_in_a_listener_is_counted_and_not_propagated(file: Path) -> None:
    def broken(_: object) -> None:
        raise ZeroDivisionError

    goldens = ReloadingGoldens([file], interval=NEVER, on_reload=broken, on_failure=broken)
    write(file, golden("b"))
    assert goldens.check_now()
    write(file, "")
    assert not goldens.check_now()
    assert ids(goldens.current) == ["b"]
    assert _guard.failure_counts["call a reload listener"] == 2
    goldens.close()


# --- background thread ------------------------------------------------------------------------------------------------


def watchers() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "goldspan-goldens"]


def test_a_background_thread_reloads_changed_files_until_close(file: Path) -> None:
    wait_until(lambda: not watchers())  # threads of other tests
    goldens = ReloadingGoldens([file], interval=SOON)
    assert not watchers()  # nothing has read `current` yet
    assert ids(goldens.current) == ["a"]
    (thread,) = watchers()
    assert thread.daemon
    write(file, golden("b"))
    wait_until(lambda: ids(goldens.current) == ["b"])
    write(file, "broken")
    wait_until(lambda: goldens.failures == 1)
    write(file, golden("c"))
    wait_until(lambda: ids(goldens.current) == ["c"])
    goldens.close()
    wait_until(lambda: not watchers())
    goldens.close()
    assert ids(goldens.current) == ["c"]
    assert not watchers()


def test_an_infinite_interval_does_not_end_the_thread(file: Path) -> None:
    goldens = ReloadingGoldens(file, interval=float("inf"))
    assert ids(goldens.current) == ["a"]
    thread = goldens._thread
    assert thread is not None
    thread.join(0.05)  # a thread that cannot wait that long ends at once with an error
    assert thread.is_alive()
    goldens.close()


def test_concurrent_readers_start_only_one_background_thread(file: Path) -> None:
    wait_until(lambda: not watchers())
    goldens = ReloadingGoldens([file], interval=NEVER)
    together = threading.Barrier(8)

    def ask() -> None:
        together.wait()
        assert ids(goldens.current) == ["a"]

    asking = [threading.Thread(target=ask) for _ in range(8)]
    for thread in asking:
        thread.start()
    for thread in asking:
        thread.join()
    assert len(watchers()) == 1
    goldens.close()
    wait_until(lambda: not watchers())


def test_the_background_thread_ends_when_the_goldens_are_garbage_collected(file: Path) -> None:
    goldens = ReloadingGoldens([file], interval=SOON)
    assert ids(goldens.current) == ["a"]
    del goldens
    gc.collect()
    wait_until(lambda: not watchers())


def test_a_listener_can_close_the_reloading_goldens(file: Path) -> None:
    goldens = ReloadingGoldens([file], interval=SOON, on_reload=lambda _: goldens.close())
    assert ids(goldens.current) == ["a"]
    write(file, golden("b"))
    wait_until(lambda: not watchers())
    assert ids(goldens.current) == ["b"]


def test_the_goldens_stay_available_when_no_thread_can_be_started(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    goldens = ReloadingGoldens([file], interval=SOON)
    assert ids(goldens.current) == ["a"]
    assert ids(goldens.current) == ["a"]
    assert _guard.failure_counts["watch golden files"] == 1


@forking
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
@pytest.mark.parametrize("closed", [False, True])
def test_a_forked_child_starts_its_own_background_thread(file: Path, closed: bool) -> None:
    goldens = ReloadingGoldens([file], interval=SOON)
    assert ids(goldens.current) == ["a"]
    if closed:
        goldens.close()
        wait_until(lambda: not watchers())

    def watches() -> bool:
        none_yet = not watchers()
        reads = ids(goldens.current) == ["a"]
        if not closed:
            write(file, golden("child"))
            wait_until(lambda: ids(goldens.current) == ["child"])
        return none_yet and reads and len(watchers()) == (not closed)

    assert fork(watches)()
    goldens.close()
