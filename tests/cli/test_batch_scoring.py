"""`goldspan score` with little memory, in several processes, and into a folder that can be continued."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from goldspan.model import Evaluation
from goldspan.otlp import read_records
from goldspan.otlp.parquet_files import write_records
from otlp.payloads import line, spans_of, tool_request
from support.gateway_process import eventually

ROOT = Path(__file__).parent.parent.parent
TRACES = ROOT / "examples" / "traces.jsonl"
GOLDENS = ROOT / "examples" / "goldens.yaml"
CAPTURES = ROOT / "tests" / "fixtures" / "captures"

TOOLS = ("search", "book", "pay")
MANY_GOLDENS = """
goldens:
  - id: default
    input: "*"
    tools: [search]
"""


@pytest.fixture
def many(tmp_path):
    """A file with 60 requests, one in each line."""
    path = tmp_path / "many.jsonl"
    path.write_bytes(
        b"".join(line(tool_request(TOOLS[number % 3], trace=number + 1, at=number)) for number in range(60))
    )
    return path


class TestMemory:
    @pytest.mark.parametrize("form", ["json", "text", "markdown"])
    def test_changes_no_output(self, goldspan, form):
        plain = goldspan("score", TRACES, CAPTURES, "-g", GOLDENS, "--format", form)
        small = goldspan("score", TRACES, CAPTURES, "-g", GOLDENS, "--format", form, "--memory", "10KB")
        assert small == plain

    @pytest.mark.parametrize("unit", ["component", "conversation"])
    def test_changes_no_unit(self, goldspan, unit):
        plain = goldspan("score", CAPTURES, "--unit", unit, "--json")
        assert goldspan("score", CAPTURES, "--unit", unit, "--json", "--memory", "1") == plain

    @pytest.mark.parametrize("size", ["much", "0", "-5MB", "MB", "5XB"])
    def test_must_be_a_size(self, goldspan, size):
        done = goldspan("score", TRACES, "--memory", size)
        assert done.status == 2
        assert "--memory takes a size such as 256MB or 2GB" in done.err

    def test_that_holds_no_run_is_the_same_error(self, goldspan, tmp_path):
        path = tmp_path / "empty.jsonl"
        path.write_text("")
        done = goldspan("score", path, "--memory", "1")
        assert (done.status, done.err) == (2, goldspan("score", path).err)

    def test_leaves_no_file(self, goldspan, monkeypatch, tmp_path):
        monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
        goldspan("score", TRACES, "--memory", "1", "--json")
        assert list(tmp_path.iterdir()) == []

    @pytest.mark.e2e
    @pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="only Linux tells the peak of one program")
    def test_bounds_what_the_process_takes(self, tmp_path):
        path = tmp_path / "traces.jsonl"
        with path.open("wb") as file:
            for number in range(4000):
                file.write(line(tool_request("search", trace=number + 1, at=number, note="x" * 20_000)))
        # The peak of `getrusage` includes the memory of the process that started the program; that of /proc does not.
        program = (
            "import re, sys; from goldspan.cli.app import run; sys.argv[0] = 'goldspan'; run();"
            "print(int(re.search(r'VmHWM:\\s*(\\d+)', open('/proc/self/status').read())[1]) // 1024, file=sys.stderr)"
        )

        def peak_mb(memory):
            command = [sys.executable, "-c", program, "score", path, "--memory", memory, "--limit", "1"]
            done = subprocess.run(command, capture_output=True, text=True, check=True)
            return done.stdout, int(done.stderr.split()[-1])

        (small, bounded), (large, unbounded) = peak_mb("16MB"), peak_mb("10GB")
        assert small == large
        assert bounded < 150
        assert unbounded > bounded + 50


def hour_text(hour: int) -> str:
    return f"2023-11-14T{hour:02}:13:20"


class TestRange:
    @pytest.fixture
    def hourly(self, tmp_path):
        """A file of lines and one of Parquet with 20 requests each, one in each hour from 2023-11-14 00:13:20."""
        lines, parquet = tmp_path / "hourly.jsonl", tmp_path / "hourly.parquet"
        hour_ns = 3600 * 10**9
        made = [tool_request(TOOLS[hour % 3], trace=hour + 1, at=(hour - 22) * hour_ns) for hour in range(20)]
        for request in made:
            agent, call = spans_of(request)
            call.start_time_unix_nano = agent.start_time_unix_nano + 10
            call.end_time_unix_nano = agent.start_time_unix_nano + 20
        lines.write_bytes(b"".join(map(line, made)))
        write_records(read_records([lines]), str(parquet))
        return lines, parquet

    @pytest.mark.parametrize("options", [(), ("--memory", "1"), ("--out",)], ids=["in memory", "on disk", "in parts"])
    def test_is_that_of_the_starts_of_runs_in_every_format(self, goldspan, tmp_path, hourly, options):
        for path in hourly:
            out = tmp_path / f"out-{path.suffix[1:]}"
            more = ("--out", out) if options == ("--out",) else options
            done = goldspan("score", path, "--since", hour_text(5), "--until", hour_text(8), "--json", *more)
            assert done.status == 0, done.err
            text = (out / "part-00000.jsonl").read_text() if out.exists() else done.out
            assert [json.loads(line)["tools_used"] for line in text.splitlines()] == [["pay"], ["search"], ["book"]]

    @pytest.mark.e2e
    def test_is_the_same_in_processes(self, goldspan, hourly):
        options = ("--since", hour_text(5), "--until", hour_text(8), "--json")
        for path in hourly:
            plain = goldspan("score", path, *options)
            assert len(plain.out.splitlines()) == 3
            assert goldspan("score", path, *options, "--jobs", "2") == plain

    def test_may_have_one_bound(self, goldspan, hourly):
        assert len(goldspan("score", *hourly[:1], "--since", hour_text(5), "--json").documents) == 15
        assert len(goldspan("extract", *hourly[1:], "--until", hour_text(5), "--json").documents) == 5

    def test_without_a_run_is_an_error_that_names_the_options(self, goldspan, tmp_path, hourly):
        for more in ((), ("--memory", "1"), ("--out", tmp_path / "out")):
            done = goldspan("score", *hourly, "--since", "2030-01-01", *more)
            assert done.status == 2
            assert "no request found in hourly.jsonl, hourly.parquet that started in the range" in done.err

    def test_belongs_to_the_results_of_a_folder(self, goldspan, tmp_path, hourly):
        command = ("score", hourly[0], "--out", tmp_path / "out", "--since")
        assert goldspan(*command, hour_text(5)) == goldspan(*command, hour_text(5))
        other = goldspan(*command, hour_text(6))
        assert other.status == 2
        assert "different: since_ns" in other.err

    def test_needs_traces(self, goldspan):
        done = goldspan("score", "--cases", "cases.csv", "--until", "2026-01-01")
        assert (done.status, "--since and --until need traces" in done.err) == (2, True)


class TestOut:
    def test_has_the_same_lines_in_parts(self, goldspan, tmp_path, many):
        lines = goldspan("score", many, "--json").out
        done = goldspan("score", many, "--out", tmp_path / "out", "--part-runs", "25", "--json")
        parts = sorted((tmp_path / "out").glob("part-*.jsonl"))
        assert (done.status, done.out) == (0, "")
        assert [len(part.read_text().splitlines()) for part in parts] == [25, 25, 10]
        assert "".join(part.read_text() for part in parts) == lines

    def test_prints_the_same_table(self, goldspan, tmp_path, many):
        plain = goldspan("score", many, "-g", GOLDENS)
        assert goldspan("score", many, "-g", GOLDENS, "--out", tmp_path / "out") == plain
        assert goldspan("score", many, "-g", GOLDENS, "--out", tmp_path / "out") == plain  # nothing is left to do

    def test_may_be_parquet(self, goldspan, tmp_path, many):
        command = ("score", many, "-g", GOLDENS, "--out", tmp_path / "out", "--out-format", "parquet")
        assert goldspan(*command, "--part-runs", "40").status == 0
        tables = [pq.read_table(part) for part in sorted((tmp_path / "out").glob("part-*.parquet"))]
        assert [table.num_rows for table in tables] == [40, 20]
        assert tables[0].schema == tables[1].schema
        assert tables[0].column("tools_used").to_pylist()[:3] == [["search"], ["book"], ["pay"]]

    def test_has_a_manifest_with_inputs_options_and_parts(self, goldspan, tmp_path, many):
        goldspan("score", many, "--out", tmp_path / "out", "--metric", "tool_recall")
        manifest = json.loads((tmp_path / "out" / "manifest.json").read_text())
        assert (manifest["state"], manifest["runs"]) == ("complete", 60)
        assert manifest["inputs"] == [
            {"path": str(many), "bytes": many.stat().st_size, "modified_ns": many.stat().st_mtime_ns}
        ]
        assert manifest["options"]["metrics"] == ["tool_recall"]
        assert manifest["parts"] == [{"file": "part-00000.jsonl", "runs": 60}]

    def test_with_other_inputs_or_options_is_an_error(self, goldspan, tmp_path, many):
        goldspan("score", many, "--out", tmp_path / "out")
        done = goldspan("score", many, "--out", tmp_path / "out", "--strict", "--unit", "component")
        assert done.status == 2
        assert "other inputs or options; different: strict, unit." in " ".join(done.err.split())
        with many.open("ab") as file:
            file.write(line(tool_request("late", trace=99)))
        done = goldspan("score", many, "--out", tmp_path / "out")
        assert "other inputs or options; different: inputs." in " ".join(done.err.split())

    def test_must_not_be_a_folder_with_something_else(self, goldspan, tmp_path, many):
        done = goldspan("score", many, "--out", tmp_path)
        assert done.status == 2
        assert "the folder is not empty" in " ".join(done.err.split())

    @pytest.mark.parametrize("content", ["{", "[]", '{"version": 99, "parts": []}', '{"version": 1, "parts": 5}'])
    def test_with_a_manifest_of_something_else_is_an_error(self, goldspan, tmp_path, many, content):
        (tmp_path / "out").mkdir()
        (tmp_path / "out" / "manifest.json").write_text(content)
        done = goldspan("score", many, "--out", tmp_path / "out")
        assert done.status == 2
        assert "no manifest of this version" in " ".join(done.err.split())

    def test_that_cannot_be_written_is_an_error(self, goldspan, tmp_path, many):
        (tmp_path / "file").write_text("")
        done = goldspan("score", many, "--out", tmp_path / "file" / "out")
        assert done.status == 2
        assert "cannot be written" in " ".join(done.err.split())

    @pytest.mark.parametrize("options", [("--judge",), ("--to", "phoenix")], ids=" ".join)
    def test_does_not_combine_with_what_needs_all_results(self, goldspan, tmp_path, many, options, monkeypatch):
        monkeypatch.setenv("GOLDSPAN_JUDGE_MODEL", "model")
        done = goldspan("score", many, "--out", tmp_path / "out", *options)
        assert done.status == 2
        assert "--out does not combine with --judge and --to" in " ".join(done.err.split())

    def test_needs_files_that_can_be_read_again(self, goldspan, tmp_path):
        done = goldspan("score", "-", "--out", tmp_path / "out")
        assert done.status == 2
        assert "not standard input" in " ".join(done.err.split())

    def test_needs_traces(self, goldspan, tmp_path):
        done = goldspan("score", "--cases", GOLDENS, "--out", tmp_path / "out")
        assert done.status == 2
        assert "--jobs and --out need traces" in " ".join(done.err.split())

    def test_continues_after_an_error(self, goldspan, tmp_path, many, monkeypatch):
        computed = []
        original = Evaluation.of_fields.__func__

        def fail_late(cls, **values):
            computed.append(values["run"].run_id)
            if len(computed) == 31:
                raise OSError("the disk is full")
            return original(cls, **values)

        command = ("score", many, "--out", tmp_path / "out", "--part-runs", "10")
        with monkeypatch.context() as patched:
            patched.setattr(Evaluation, "of_fields", classmethod(fail_late))
            assert goldspan(*command).status != 0
        manifest = json.loads((tmp_path / "out" / "manifest.json").read_text())
        assert (manifest["state"], len(manifest["parts"])) == ("running", 3)
        before = {part: part.stat().st_mtime_ns for part in (tmp_path / "out").glob("part-*")}
        assert goldspan(*command).status == 0
        assert {part: part.stat().st_mtime_ns for part in before} == before
        lines = "".join(part.read_text() for part in sorted((tmp_path / "out").glob("part-*")))
        assert lines == goldspan("score", many, "--json").out


@pytest.mark.e2e
class TestJobs:
    @pytest.mark.parametrize("form", ["json", "text", "markdown"])
    def test_change_no_output(self, goldspan, many, form):
        plain = goldspan("score", TRACES, CAPTURES, many, "-g", GOLDENS, "--format", form)
        assert goldspan("score", TRACES, CAPTURES, many, "-g", GOLDENS, "--format", form, "--jobs", "2") == plain

    def test_report_what_cannot_be_read(self, goldspan, tmp_path, many):
        (tmp_path / "in").mkdir()
        many.rename(tmp_path / "in" / "a.jsonl")
        (tmp_path / "in" / "b.jsonl").write_text("nothing")
        plain = goldspan("score", tmp_path / "in", "--json")
        assert goldspan("score", tmp_path / "in", "--json", "--jobs", "2") == plain

    def test_read_standard_input(self, many):
        command = [sys.executable, "-m", "goldspan", "score", "-", "--json"]
        with many.open("rb") as first, many.open("rb") as second:
            plain = subprocess.run(command, stdin=first, capture_output=True, check=True)
            done = subprocess.run([*command, "--jobs", "2"], stdin=second, capture_output=True, check=True)
        assert (done.stdout, done.stderr) == (plain.stdout, plain.stderr)

    def test_without_a_run_are_the_same_error(self, goldspan, tmp_path):
        path = tmp_path / "empty.jsonl"
        path.write_text("")
        done = goldspan("score", path, "--jobs", "2")
        assert (done.status, done.err) == (2, goldspan("score", path).err)

    def test_end_with_ctrl_c(self, tmp_path):
        path = large_file(tmp_path)
        command = [sys.executable, "-m", "goldspan", "score", path, "--jobs", "2", "--json"]
        temporary = tmp_path / "temporary"
        temporary.mkdir()
        with subprocess.Popen(
            command,
            env={**os.environ, "TMPDIR": str(temporary)},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            start_new_session=True,
        ) as process:
            eventually(lambda: any(temporary.glob("goldspan-spill-*/*")), "nothing is read", 60)
            os.killpg(process.pid, signal.SIGINT)
            assert process.wait(timeout=30) == 130
            assert process.stderr is not None
            assert process.stderr.read() == b""
        eventually(lambda: not _has_processes(process.pid), "a process of the group is left", 30)
        assert not list(temporary.glob("goldspan-spill-*"))

    def test_continue_after_the_program_was_killed(self, tmp_path, goldspan):
        path = large_file(tmp_path)
        out = tmp_path / "out"
        command = [sys.executable, "-m", "goldspan", "score", path, "--jobs", "2", "--out", out, "--part-runs", "200"]
        kills = 0
        for delay in (2.0, 3.0, 4.0):
            with subprocess.Popen(command, stdout=subprocess.DEVNULL, start_new_session=True) as process:
                try:
                    process.wait(timeout=delay)
                except subprocess.TimeoutExpired:
                    os.killpg(process.pid, signal.SIGKILL)
                    kills += 1
        assert kills > 0
        assert subprocess.run(command, stdout=subprocess.DEVNULL, check=False).returncode == 0
        manifest = json.loads((out / "manifest.json").read_text())
        assert manifest["state"] == "complete"
        assert [each["file"] for each in manifest["parts"]] == sorted(part.name for part in out.glob("part-*"))
        lines = "".join((out / each["file"]).read_text() for each in manifest["parts"])
        assert lines == goldspan("score", path, "--json").out


def _has_processes(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


def large_file(tmp_path: Path) -> Path:
    """A file that takes some seconds to score."""
    path = tmp_path / "large.jsonl"
    with path.open("wb") as file:
        for number in range(4000):
            file.write(line(tool_request(TOOLS[number % 3], trace=number + 1, at=number)))
    return path


class TestSpark:
    @pytest.mark.parametrize(
        ("arguments", "complaint"),
        [
            ((TRACES, "--spark-master", "local"), "--spark-master and --spark-conf need --engine spark"),
            ((TRACES, "--spark-conf", "a=b"), "--spark-master and --spark-conf need --engine spark"),
            (("--cases", "cases.jsonl", "--engine", "spark"), "--engine spark needs traces"),
            ((TRACES, "--engine", "spark", "--jobs", "2"), "--jobs and --memory do not apply to --engine spark"),
            ((TRACES, "--engine", "spark", "--memory", "1GB"), "--jobs and --memory do not apply to --engine spark"),
            ((TRACES, "--engine", "spark", "--spark-conf", "=b"), "--spark-conf takes KEY=VALUE"),
            ((TRACES, "--engine", "spark", "--to", "phoenix"), "--engine spark does not combine with --judge and --to"),
            ((TRACES, "--engine", "spark", "--spark-conf", "a=b"), "goldspan[spark]"),
            ((TRACES, "--engine", "spark", "--out", ROOT), "it exists; --engine spark writes a new folder"),
            (("-", "--engine", "spark"), "--engine spark cannot read -: name files that the executors can open"),
        ],
    )
    def test_wrong_use_is_an_error_of_one_sentence(self, goldspan, arguments, complaint):
        done = goldspan("score", *arguments)
        assert done.status == 2
        assert complaint in " ".join(done.err.split())
