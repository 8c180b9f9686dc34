"""`JsonLinesSink` writes one evaluation per line."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from goldspan import ConfigurationError, Evaluation, ExpectedTool, Golden, Run, ToolCall, evaluate
from goldspan.sinks import JsonLinesSink, serialization
from support.evaluation_builders import evaluation

posix = pytest.mark.skipif(sys.platform == "win32", reason="this system has no such files")


def read(*paths: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for path in paths for line in path.read_text().splitlines()]


def secret() -> Evaluation:
    call = ToolCall("search", arguments={"q": "secret-7"})
    return evaluate(Run("1:2", tool_calls=(call,)), Golden("g", tools=(ExpectedTool("search", {"q": "secret-8"}),)))


def test_each_evaluation_is_written_immediately_as_one_line(tmp_path: Path) -> None:
    sink = JsonLinesSink(tmp_path / "evaluations.jsonl")
    for number in (1, 2):
        sink.submit(evaluation(number))
        lines = read(tmp_path / "evaluations.jsonl")
        assert [line["span_id"] for line in lines] == [f"{at:016x}" for at in range(1, number + 1)]
    assert lines[0]["passed"] is True
    sink.close()


def test_argument_values_are_written_only_if_arguments_is_enabled(tmp_path: Path) -> None:
    path = tmp_path / "evaluations.jsonl"
    for arguments in (False, True):
        sink = JsonLinesSink(str(path), arguments=arguments)
        sink.submit(secret())
        sink.shutdown()
    without, with_them = path.read_text().splitlines()
    assert "secret" not in without
    assert json.loads(with_them)["tool_calls"][0]["arguments"] == {"q": "secret-7"}


class Unspeakable:
    def __repr__(self) -> str:
        raise TypeError("no words for it")


ENDLESS: dict[str, Any] = {}
ENDLESS["self"] = ENDLESS


@pytest.mark.parametrize(
    "arguments", [ENDLESS, {"n": 10**5000}, {"u": Unspeakable()}], ids=["endless", "long number", "unspeakable"]
)
def test_a_line_with_arguments_that_cannot_be_serialized_is_written_without_values(
    tmp_path: Path, arguments: Any
) -> None:
    sink = JsonLinesSink(tmp_path / "evaluations.jsonl", arguments=True)
    sink.submit(evaluate(Run("1:2", tool_calls=(ToolCall("search", arguments=arguments),)), None))
    sink.submit(secret())
    sink.close()
    without, whole = read(tmp_path / "evaluations.jsonl")
    assert (without["tools_used"], "tool_calls" in without) == (["search"], False)
    assert whole["tool_calls"][0]["arguments"] == {"q": "secret-7"}


def test_existing_content_is_kept_and_a_truncated_last_line_does_not_corrupt_new_lines(tmp_path: Path) -> None:
    path = tmp_path / "evaluations.jsonl"
    path.write_text('{"span_id": "before"}\n{"span_')
    sink = JsonLinesSink(path)
    sink.submit(evaluation())
    sink.close()
    first, torn, last = path.read_text().splitlines()
    assert (json.loads(first)["span_id"], torn, json.loads(last)["span_id"]) == ("before", '{"span_', f"{1:016x}")


@posix
def test_a_new_file_is_created_after_the_file_was_moved_or_deleted(tmp_path: Path) -> None:
    path, moved = tmp_path / "evaluations.jsonl", tmp_path / "moved"
    sink = JsonLinesSink(path)
    sink.submit(evaluation(1))
    path.rename(moved)
    sink.submit(evaluation(2))
    assert [line["span_id"] for line in read(moved, path)] == [f"{1:016x}", f"{2:016x}"]
    path.unlink()
    sink.submit(evaluation(3))
    assert [line["span_id"] for line in read(path)] == [f"{3:016x}"]
    sink.close()


@posix
def test_a_file_is_rotated_at_its_size_limit_and_the_previous_file_is_kept(tmp_path: Path) -> None:
    path, before = tmp_path / "evaluations.jsonl", tmp_path / "evaluations.jsonl.1"
    sink = JsonLinesSink(path, rotate_bytes=1)
    sink.submit(evaluation(1))  # one line is always kept whole
    size = path.stat().st_size
    assert not before.exists()
    sink.close()
    sink = JsonLinesSink(path, rotate_bytes=3 * size)
    for number in range(2, 10):
        sink.submit(evaluation(number))
        assert path.stat().st_size <= 3 * size
    assert [int(line["span_id"], 16) for line in read(before, path)] == [4, 5, 6, 7, 8, 9]
    sink.close()


@posix
def test_a_line_that_waits_for_the_lock_of_a_renamed_file_goes_to_the_new_file(tmp_path: Path) -> None:
    import fcntl

    path, moved = tmp_path / "evaluations.jsonl", tmp_path / "moved"
    sink = JsonLinesSink(path, rotate_bytes=1_000_000)
    sink.submit(evaluation(1))
    with path.open() as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        waiting = threading.Thread(target=sink.submit, args=(evaluation(2),))
        waiting.start()
        waiting.join(0.05)
        assert waiting.is_alive()
        path.rename(moved)
        fcntl.flock(other, fcntl.LOCK_UN)
        waiting.join()
    assert [line["span_id"] for line in read(moved, path)] == [f"{1:016x}", f"{2:016x}"]
    assert len(read(path)) == 1
    sink.close()


def test_lines_written_by_concurrent_threads_are_not_interleaved(tmp_path: Path) -> None:
    path = tmp_path / "evaluations.jsonl"
    sink = JsonLinesSink(path)

    def write(base: int) -> None:
        for number in range(50):
            sink.submit(evaluation(base + number))

    threads = [threading.Thread(target=write, args=(1_000 * at,)) for at in range(1, 9)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    sink.close()
    written = {int(line["span_id"], 16) for line in read(path)}
    assert written == {1_000 * at + number for at in range(1, 9) for number in range(50)}


FORKING = """
import os, sys, threading
from goldspan.sinks import JsonLinesSink
from support.evaluation_builders import evaluation

path, rotate = sys.argv[1], int(sys.argv[2]) or None
sink = JsonLinesSink(path, rotate_bytes=rotate)
children = []
for at in range(4):
    child = os.fork()
    if not child:
        for number in range(50):
            sink.submit(evaluation(1_000 * (at + 1) + number))
        os._exit(0)
    children.append(child)
for number in range(50):
    sink.submit(evaluation(number + 1))
for child in children:
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
print("done")
"""
NUMBERS = {1_000 * at + number for at in range(1, 5) for number in range(50)} | set(range(1, 51))


def _run(program: str, *arguments: object) -> str:
    here = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    command = [sys.executable, "-c", program, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": here})
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")
def test_lines_written_by_forked_processes_are_not_interleaved(tmp_path: Path) -> None:
    path = tmp_path / "evaluations.jsonl"
    assert _run(FORKING, path, 0) == "done\n"
    assert {int(line["span_id"], 16) for line in read(path)} == NUMBERS


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")
def test_rotation_by_forked_processes_loses_no_line_of_the_last_two_files(tmp_path: Path) -> None:
    path = tmp_path / "evaluations.jsonl"
    probe = JsonLinesSink(tmp_path / "probe")
    probe.submit(evaluation(4_049))
    probe.close()
    size = (tmp_path / "probe").stat().st_size
    assert _run(FORKING, path, size * 130) == "done\n"  # 250 lines: one rotation and no more
    assert sorted(int(line["span_id"], 16) for line in read(tmp_path / "evaluations.jsonl.1", path)) == sorted(NUMBERS)


# --- errors ---------------------------------------------------------------------------------------------------------


def test_an_unwritable_path_or_invalid_rotate_bytes_is_rejected_at_construction(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"cannot write evaluations to .*no.such: No such file or directory"):
        JsonLinesSink(tmp_path / "no" / "such")
    with pytest.raises(ConfigurationError, match="rotate_bytes must be at least 1, not 0"):
        JsonLinesSink(tmp_path / "a", rotate_bytes=0)


def test_rotation_is_rejected_on_systems_without_file_locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serialization, "_SUPPORTS_FLOCK", False)
    with pytest.raises(ConfigurationError, match="rotate_bytes needs file locks, which this system does not support"):
        JsonLinesSink(tmp_path / "a", rotate_bytes=1_000)


def test_submit_after_close_raises_value_error(tmp_path: Path) -> None:
    sink = JsonLinesSink(tmp_path / "a.jsonl")
    sink.close()
    sink.close()
    with pytest.raises(ValueError, match=r"a\.jsonl has been closed"):
        sink.submit(evaluation())


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no disk that is always full")
def test_every_submit_to_a_full_disk_raises_os_error() -> None:
    sink = JsonLinesSink("/dev/full")
    for _ in range(2):
        with pytest.raises(OSError, match="No space left on device"):
            sink.submit(evaluation())
    sink.close()


LIMITED = """
import os, resource, signal, sys
from goldspan.sinks import JsonLinesSink
from support.evaluation_builders import evaluation

signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
sink = JsonLinesSink(sys.argv[1])
sink.submit(evaluation(1))
size = os.stat(sys.argv[1]).st_size
resource.setrlimit(resource.RLIMIT_FSIZE, (size + size // 2, resource.RLIM_INFINITY))
for number in (2, 3):
    try:
        sink.submit(evaluation(number))
    except OSError as error:
        print(type(error).__name__)
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
sink.submit(evaluation(4))
"""


@posix
def test_a_partially_written_line_does_not_corrupt_later_lines(tmp_path: Path) -> None:
    path = tmp_path / "evaluations.jsonl"
    assert _run(LIMITED, path) == "OSError\nOSError\n"
    first, torn, last = path.read_text().splitlines()
    assert json.loads(first)["span_id"] == f"{1:016x}"
    assert first.startswith(torn[:60])
    assert json.loads(last)["span_id"] == f"{4:016x}"
