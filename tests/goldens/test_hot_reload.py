"""Goldens are read again when their files change, and a broken file changes nothing."""

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
"""An interval that no test outlasts: these look when they are told to."""
SOON = 0.01


def golden(*ids: str) -> str:
    return json.dumps([{"id": each, "tools": []} for each in ids])


def ids(goldens: Goldens) -> list[str]:
    return [each.id for each in goldens]


def write(path: Path, text: str) -> None:
    """Write a file so that the time of its change tells, however coarse the clock of the file system is."""
    before = path.stat().st_mtime_ns if path.exists() else 0
    path.write_text(text)
    if path.stat().st_mtime_ns == before:
        os.utime(path, ns=(before + 1_000_000, before + 1_000_000))


def wait_until(condition: Callable[[], bool]) -> None:
    """Wait for another thread; far longer than it needs on any machine before that is a failure."""
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


# --- at a word --------------------------------------------------------------------------------------------------------


def test_what_is_wrong_at_the_start_is_loud(tmp_path: Path) -> None:
    with pytest.raises(GoldenError, match="there is no such file"):
        ReloadingGoldens([tmp_path / "none.yaml"])


@pytest.mark.parametrize("interval", [0, -1, float("nan"), "1", None, True])
def test_what_is_no_interval_is_refused(file: Path, interval: Any) -> None:
    with pytest.raises(ConfigurationError) as raised:
        ReloadingGoldens(file, interval=interval)
    assert str(raised.value) == f"interval must be a number of seconds above 0, not {interval!r}."


def test_a_single_file_needs_no_list(file: Path) -> None:
    for path in (file, str(file)):
        goldens = ReloadingGoldens(path, interval=NEVER)
        assert ids(goldens.current) == ["a"]
        goldens.close()


def test_a_file_that_did_not_change_is_not_read_again(reloading: ReloadingGoldens) -> None:
    before = reloading.current
    assert not reloading.check_now()
    assert reloading.current is before
    assert (reloading.reloads, reloading.failures) == (0, 0)


def test_a_changed_file_is_read_again(reloading: ReloadingGoldens, file: Path) -> None:
    write(file, golden("a", "b"))
    assert reloading.check_now()
    assert ids(reloading.current) == ["a", "b"]
    assert (reloading.reloads, reloading.failures) == (1, 0)


def test_a_changed_file_is_read_again_wherever_the_process_has_moved_to(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(file.parent)
    goldens = ReloadingGoldens(file.name, interval=NEVER)
    monkeypatch.chdir("/")
    write(file, golden("a", "b"))
    assert goldens.check_now()
    assert ids(goldens.current) == ["a", "b"]
    goldens.close()


def test_a_file_that_another_replaces_is_read_again(reloading: ReloadingGoldens, file: Path) -> None:
    state = file.stat()
    other = file.with_name("new.json")
    other.write_text(golden("b"))
    os.utime(other, ns=(state.st_mtime_ns, state.st_mtime_ns))  # of the same size and time: only another file
    other.replace(file)
    assert reloading.check_now()
    assert ids(reloading.current) == ["b"]


def test_the_settings_are_kept(file: Path) -> None:
    goldens = ReloadingGoldens([file], interval=NEVER, near=None, margin=7)
    write(file, golden("b"))
    assert goldens.check_now()
    assert (goldens.current.near, goldens.current.margin) == (None, 7)
    goldens.close()


def test_any_of_several_files_may_change(tmp_path: Path, file: Path) -> None:
    other = tmp_path / "other.yaml"
    write(other, "- {id: x, tools: []}")
    goldens = ReloadingGoldens([file, str(other)], interval=NEVER)
    write(other, "- {id: y, tools: []}")
    assert goldens.check_now()
    assert ids(goldens.current) == ["a", "y"]
    goldens.close()


def test_a_broken_file_keeps_the_goldens_and_is_logged_once_for_each_problem(
    reloading: ReloadingGoldens, file: Path, caplog: pytest.LogCaptureFixture
) -> None:
    before = reloading.current
    for text in ('[{"id": "a", "tools": [', '[{"id": "a", "tools": [ ', '[{"id": "a", "tool": []}]', "[{"):
        write(file, text)
        assert not reloading.check_now()
        assert not reloading.check_now()  # it is tried again when it changes, and not before
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


def test_a_file_that_is_gone_keeps_the_goldens_until_it_is_back(reloading: ReloadingGoldens, file: Path) -> None:
    file.unlink()
    assert not reloading.check_now()
    assert ids(reloading.current) == ["a"]
    write(file, golden("b"))
    assert reloading.check_now()
    assert ids(reloading.current) == ["b"]


def test_a_file_that_cannot_be_read_for_whatever_reason_raises_nothing(
    reloading: ReloadingGoldens, file: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file.unlink()
    file.mkdir()
    assert not reloading.check_now()
    assert reloading.failures == 1
    assert "is a directory" in caplog.text.lower()


def test_keys_of_ones_own_are_told_in_the_log(
    reloading: ReloadingGoldens, file: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write(file, '[{"id": "a", "tools": [], "owner": "100 %s"}]')
    assert reloading.check_now()
    assert "keys that are not goldspan's are kept as metadata: 'owner'" in caplog.text


def test_who_listens_is_told(file: Path) -> None:
    told: list[object] = []
    goldens = ReloadingGoldens(
        [file], interval=NEVER, on_reload=lambda new: told.append(ids(new)), on_failure=told.append
    )
    write(file, golden("b"))
    goldens.check_now()
    write(file, "")
    goldens.check_now()
    assert told == [["b"], f"{file}: the file is empty."]
    goldens.close()


def test_what_a_listener_raises_is_counted_and_goes_no_further(file: Path) -> None:
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


# --- by itself --------------------------------------------------------------------------------------------------------


def watchers() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "goldspan-goldens"]


def test_a_thread_reads_a_changed_file_again(file: Path) -> None:
    wait_until(lambda: not watchers())  # those of other tests
    goldens = ReloadingGoldens([file], interval=SOON)
    assert not watchers()  # nobody has asked for anything yet
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


def test_an_interval_that_is_longer_than_a_thread_can_wait_is_waited_for(file: Path) -> None:
    goldens = ReloadingGoldens(file, interval=float("inf"))
    assert ids(goldens.current) == ["a"]
    thread = goldens._thread
    assert thread is not None
    thread.join(0.05)  # it would have ended with an error at once, which fails this test
    assert thread.is_alive()
    goldens.close()


def test_many_threads_that_ask_at_once_start_one(file: Path) -> None:
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


def test_the_thread_ends_when_nobody_holds_the_goldens_any_more(file: Path) -> None:
    goldens = ReloadingGoldens([file], interval=SOON)
    assert ids(goldens.current) == ["a"]
    del goldens
    gc.collect()
    wait_until(lambda: not watchers())


def test_a_listener_may_close_what_tells_it(file: Path) -> None:
    goldens = ReloadingGoldens([file], interval=SOON, on_reload=lambda _: goldens.close())
    assert ids(goldens.current) == ["a"]
    write(file, golden("b"))
    wait_until(lambda: not watchers())
    assert ids(goldens.current) == ["b"]


def test_a_process_that_can_start_no_thread_keeps_its_goldens(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
def test_a_forked_child_watches_with_a_thread_of_its_own(file: Path, closed: bool) -> None:
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
