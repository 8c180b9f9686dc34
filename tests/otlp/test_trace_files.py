"""Spans and log records read from trace files of every format, intact and damaged."""

from __future__ import annotations

import gzip
import io
import json
import os
import random
import subprocess
import sys
from pathlib import Path

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from goldspan.errors import GoldspanWarning, MissingExtraError, TraceFileError
from goldspan.otlp import Loss, read_records
from goldspan.otlp.trace_files import total_bytes
from otlp.payloads import document, line, logs_request, metrics_request, request, spans_of

FIXTURES = Path(__file__).parents[1] / "fixtures" / "otlp"

A, B, C = request("a1", "a2", trace=1), request("b1", trace=2), request("c1", trace=3)
LINES = line(A) + line(B) + line(C)
NAMES = ["a1", "a2", "b1", "c1"]
PRETTY = json.dumps(document(A), indent=2).encode()
METRICS = b'{"resourceMetrics":[{"scopeMetrics":[]}]}\n'


def names(*paths, on_loss=None):
    return [record.name for record in read_records(paths, on_loss=on_loss)]


@pytest.fixture
def read(tmp_path):
    """The names of the records in a file with these contents, and the places of its losses."""

    def read(data, name="anything"):
        path = tmp_path / name
        path.write_bytes(data)
        losses = []
        found = names(path, on_loss=losses.append)
        assert {loss.path for loss in losses} <= {str(path)}
        return found, [loss.where for loss in losses]

    return read


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(LINES, id="one request a line"),
        pytest.param(LINES.rstrip(), id="no final newline"),
        pytest.param(LINES.replace(b"\n", b"\r\n"), id="Windows line ends"),
        pytest.param(b"\xef\xbb\xbf" + LINES, id="byte order mark"),
        pytest.param(b"\n\n" + LINES.replace(b"\n", b"\n  \n"), id="blank lines"),
        pytest.param(LINES.replace(b"\n", b""), id="back to back without newlines"),
        pytest.param(b"[" + LINES.strip().replace(b"\n", b",") + b"]", id="array on one line"),
        pytest.param(b"[" + LINES.strip().replace(b"\n", b",\n") + b"]\n", id="array with one request a line"),
        pytest.param(json.dumps([document(each) for each in (A, B, C)], indent=1).encode(), id="pretty array"),
        pytest.param(PRETTY + b"\n" + line(B) + line(C), id="pretty, then one a line"),
        pytest.param(line(A) + json.dumps(document(B), indent="\t").encode() + line(C), id="pretty in between"),
        pytest.param(json.dumps(document(A), indent=0).encode() + line(B) + line(C), id="newlines without indentation"),
        pytest.param(METRICS + line(A) + METRICS + line(B) + b"{}\n" + line(C), id="metrics in between"),
        pytest.param(b"".join(each.SerializeToString() for each in (A, B, C)), id="protobuf back to back"),
        pytest.param(b"".join(map(gzip.compress, LINES.splitlines(True))), id="gzip of several members"),
        pytest.param(gzip.compress(b"".join(each.SerializeToString() for each in (A, B, C))), id="gzipped protobuf"),
        pytest.param(b"".join(map(zstandard.compress, LINES.splitlines(True))), id="zstd of several frames"),
    ],
)
def test_every_format_of_a_trace_file_yields_the_same_spans(read, data):
    assert read(data) == (NAMES, [])


def test_a_request_over_many_lines_is_one_request(read):
    assert read(PRETTY) == (["a1", "a2"], [])


@pytest.mark.parametrize(
    "data",
    [b"", b"\n \r\n", b"\xef\xbb\xbf", gzip.compress(b"", mtime=0), b"{}", b'{"resourceSpans":[]}', b"[]", METRICS],
    ids=repr,
)
def test_a_valid_file_without_spans_yields_no_records(read, data):
    assert read(data) == ([], [])


A1_AT = PRETTY[: PRETTY.index(b'"a1"')].count(b"\n")
LF = b"\n"
HALF_PRETTY = PRETTY[:-40] + LF
HALF = line(B)[:70] + b"\n"


@pytest.mark.parametrize(
    ("data", "found", "lost"),
    [
        pytest.param(line(A) + b"%&/\n" + line(C), "a1 a2 c1", ["line 2"], id="noise in the middle"),
        pytest.param(line(A) + HALF + line(C), "a1 a2 c1", ["line 2"], id="half a line in the middle"),
        pytest.param(line(A) + b'{"resourceSpans": [\n' + line(C), "a1 a2 c1", ["line 2"], id="half a line, a bracket"),
        pytest.param(b'{"resourceSpans": [\n{?}\n' + line(C), "c1", ["line 2"], id="half a request of two lines"),
        pytest.param(HALF + HALF + line(C), "c1", ["line 1", "line 2"], id="two half lines at the start"),
        pytest.param(line(A) + line(B) + line(C)[:-9], "a1 a2 b1", ["line 3"], id="half a line at the end"),
        pytest.param(line(A) + line(B) + line(C)[:60], "a1 a2 b1", ["line 3"], id="cut off in a text"),
        pytest.param(line(A)[150:] + line(B) + line(C), "b1 c1", ["line 1"], id="starts in the middle of a line"),
        pytest.param(LINES + bytes(500), "a1 a2 b1 c1", ["line 4"], id="zeros at the end"),
        pytest.param(line(A) + bytes(9) + line(B) + line(C), "a1 a2 b1 c1", ["line 2"], id="zeros before a line"),
        pytest.param(line(A) + b'{"level":"info"}\n' + line(C), "a1 a2 c1", ["line 2"], id="other JSON in between"),
        pytest.param(line(A) + b'{"resourceSpans":5}\n' + line(C), "a1 a2 c1", ["line 2"], id="wrong outline"),
        pytest.param(line(A) + b"[" * 99999 + b"\n" + line(C), "a1 a2 c1", [], id="only brackets"),
        pytest.param(line(A) + b'{"a":' * 99999 + b"\n" + line(C), "a1 a2 c1", ["line 2"], id="nested too deeply"),
        pytest.param(line(A).replace(b"a2", b"a\xff"), "a1 a\ufffd", ["line 1"], id="not UTF-8"),
        pytest.param(line(B) + b"{\n" + PRETTY + b"\n" + PRETTY, "b1 a1 a2 a1 a2", ["line 3"], id="a bracket too many"),
        pytest.param(
            line(B) + HALF_PRETTY + PRETTY + b"\n" + PRETTY,
            "b1 a1 a2 a1 a2",
            [f"line {2 + HALF_PRETTY.count(LF)}"],
            id="half a one over many lines",
        ),
        pytest.param(
            line(B) + PRETTY.replace(b'"a1"', b"a1") + b"\n" + PRETTY,
            "b1 a1 a2",
            [f"line {2 + A1_AT}"],
            id="a broken pretty one",
        ),
    ],
)
def test_the_intact_part_of_a_damaged_file_is_read_and_the_place_of_the_loss_is_reported(read, data, found, lost):
    assert read(data) == (found.split(), lost)


@pytest.mark.parametrize(
    "text",
    [PRETTY, json.dumps(document(A)).encode(), json.dumps([document(A)], indent=4).encode()],
    ids=["pretty", "one line", "array"],
)
def test_a_truncated_request_yields_its_complete_spans(read, text):
    cut = text.index(b'"a2"')
    for size in range(cut, len(text) - 20, 7):
        found, lost = read(text[:size])
        assert found[:1] == ["a1"]
        assert lost


def test_a_rejected_span_is_a_loss_and_the_other_spans_are_read(read):
    damaged = request("good", "bad", "worse")
    for span in spans_of(damaged)[1:]:
        span.trace_id = b"short"
    assert read(damaged.SerializeToString()) == (["good"], ["whole file"])
    assert read(line(B) + line(damaged)) == (["b1", "good"], ["line 2"])


def test_a_truncated_protobuf_file_yields_its_complete_spans(read):
    assert read(A.SerializeToString()[:-4]) == (["a1"], ["end of file"])


def many(count):
    """Lines that gzip compresses little."""
    noise = random.Random(1)
    return b"".join(line(request(noise.randbytes(90).hex(), trace=number)) for number in range(1, count + 1))


@pytest.mark.parametrize(
    ("damage", "least"),
    [
        pytest.param(lambda data: data[: len(data) // 2], 900, id="cut off"),
        pytest.param(lambda data: data[:-8] + bytes(8), 2000, id="wrong checksum"),
        pytest.param(lambda data: data + b"trailing", 2000, id="something behind it"),
        pytest.param(lambda data: data[:100_000] + bytes(200) + data[100_200:], 500, id="damaged in the middle"),
    ],
)
def test_damaged_gzip_data_is_read_as_far_as_it_can_be_decompressed(read, damage, least):
    found, lost = read(damage(gzip.compress(many(2000))))
    assert len(found) >= least
    assert "end of file" in lost


@pytest.mark.parametrize(
    ("damage", "least"),
    [
        pytest.param(lambda data: data[: len(data) // 2], 700, id="cut off"),
        pytest.param(lambda data: data + b"trailing", 2000, id="something behind it"),
    ],
)
def test_damaged_zstd_data_is_read_as_far_as_it_can_be_decompressed(read, damage, least):
    found, lost = read(damage(zstandard.compress(many(2000))))
    assert len(found) >= least
    assert "end of file" in lost


def test_a_zstd_file_without_the_zstd_extra_raises_an_error_that_names_the_extra(read, monkeypatch):
    monkeypatch.setitem(sys.modules, "zstandard", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'goldspan\[zstd\]'"):
        read(zstandard.compress(LINES))


def test_a_line_longer_than_any_buffer_is_read(read):
    assert read(line(A) + line(request("x" * 300_000)) + line(C))[0][2] == "x" * 300_000


@given(st.binary(max_size=80), st.integers(1, len(LINES)))
def test_noise_inside_a_file_costs_only_the_lines_that_it_touches(tmp_path_factory, noise, at):
    path = tmp_path_factory.mktemp("noise") / "traces.jsonl"
    path.write_bytes(LINES[:at] + noise + LINES[at:] + b"\n" + LINES)
    losses = []
    assert names(path, on_loss=losses.append)[-4:] == NAMES


@pytest.mark.parametrize(
    ("data", "place"),
    [
        pytest.param(b"Dear diary,\ntoday nothing was traced.\n", "line 1", id="prose"),
        pytest.param(b'{"name": "x", "version": 1}', "line 1", id="other JSON"),
        pytest.param(b"\n\n[1, 2]", "line 3", id="numbers"),
        pytest.param(b"\x89PNG\r\n\x1a\n" + bytes(range(256)), "whole file", id="picture"),
        pytest.param(line(A).replace(b"traceId", b"traceID"), "line 1", id="no valid span"),
        pytest.param(line(A)[:40], "line 1", id="cut off before the first span"),
        pytest.param(A.SerializeToString()[:30], "whole file", id="protobuf cut off before the first span"),
        pytest.param(gzip.compress(LINES)[:12], "end of file", id="gzip cut off before the first byte"),
        pytest.param(bytes(100), "line 1", id="zeros"),
    ],
)
def test_a_file_without_traces_raises_an_error_with_the_file_name_and_the_place(read, tmp_path, data, place):
    with pytest.raises(TraceFileError) as caught:
        read(data, "mine.jsonl")
    assert str(caught.value).startswith(f"{tmp_path / 'mine.jsonl'}: holds no traces")
    assert place in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_long_file_of_another_kind_is_abandoned_early(tmp_path):
    (tmp_path / "app.log").write_bytes(b"2026-01-01 INFO hello\n" * 500 + LINES)
    losses = []
    with pytest.raises(TraceFileError, match="line 1: not JSON"):
        names(tmp_path / "app.log", on_loss=losses.append)
    assert losses == []


def test_spans_and_log_records_keep_their_order_in_the_file(read):
    assert read(line(A) + line(logs_request("asked")) + METRICS + line(B)) == (["a1", "a2", "asked", "b1"], [])


def test_metrics_in_protobuf_are_ignored(read):
    assert read(metrics_request().SerializeToString()) == ([], [])


@pytest.mark.parametrize("stem", ["structured-values", "mcp-js", "logs"])
def test_recorded_exports_are_equal_in_json_and_protobuf(stem):
    suffix = "" if stem == "mcp-js" else ".gz"
    from_protobuf, from_json = (list(read_records([FIXTURES / f"{stem}.{kind}{suffix}"])) for kind in ("pb", "json"))
    assert from_protobuf == from_json
    assert len(from_protobuf) >= 4


def test_structured_attributes_are_decoded_to_lists_and_dictionaries():
    spans = list(read_records([FIXTURES / "structured-values.pb.gz"]))
    chat = next(span for span in spans if span.name == "chat gpt-4o-mini")
    assert chat.attributes["gen_ai.input.messages"][0]["role"] == "user"
    assert chat.attributes["gen_ai.usage.input_tokens"] == 10


class TestFolders:
    def test_all_trace_files_below_a_folder_are_read_in_the_order_of_their_names(self, tmp_path):
        (tmp_path / "deep" / "er").mkdir(parents=True)
        (tmp_path / "b.pb.gz").write_bytes(gzip.compress(A.SerializeToString()))
        (tmp_path / "deep" / "er" / "traces.NDJSON").write_bytes(line(C))
        (tmp_path / "deep" / "b.json").write_bytes(line(B))
        assert names(tmp_path) == NAMES

    def test_files_of_other_kinds_are_ignored_without_a_loss(self, tmp_path):
        (tmp_path / "traces.jsonl").write_bytes(LINES)
        (tmp_path / "notes.md").write_text("not a trace")
        (tmp_path / "folder.json").mkdir()
        losses = []
        assert names(tmp_path, on_loss=losses.append) == NAMES
        assert losses == []

    def test_a_file_without_traces_in_a_folder_is_only_a_loss(self, tmp_path):
        (tmp_path / "package.json").write_text('{"name": "x"}')
        (tmp_path / "traces.jsonl").write_bytes(LINES)
        losses = []
        assert names(tmp_path, on_loss=losses.append) == NAMES
        assert losses == [Loss(str(tmp_path / "package.json"), "whole file", "holds no traces")]
        with pytest.warns(GoldspanWarning, match=r"package\.json, whole file: holds no traces"):
            assert names(tmp_path) == NAMES

    def test_a_folder_in_which_no_file_contains_traces_raises(self, tmp_path):
        (tmp_path / "package.json").write_text('{"name": "x"}')
        with pytest.raises(TraceFileError, match=r"no file in this folder holds traces; the first: .*package\.json"):
            names(tmp_path, on_loss=lambda loss: None)

    def test_a_folder_without_trace_files_raises_an_error_that_lists_the_file_extensions(self, tmp_path):
        (tmp_path / "notes.md").write_text("not a trace")
        with pytest.raises(TraceFileError, match=r"no trace file in this folder; their names end in \.json, \.jsonl"):
            read_records([tmp_path])


def test_several_paths_are_read_in_order(tmp_path):
    for name, made in (("1", C), ("2", A)):
        (tmp_path / name).write_bytes(line(made))
    assert names(tmp_path / "1", str(tmp_path / "2")) == ["c1", "a1", "a2"]


def test_a_missing_path_raises_before_any_file_is_read(tmp_path):
    (tmp_path / "traces.jsonl").write_bytes(LINES)
    with pytest.raises(TraceFileError, match=r"nowhere\.jsonl: no such file or folder"):
        read_records([tmp_path / "traces.jsonl", tmp_path / "nowhere.jsonl"])


def test_a_file_removed_before_it_is_read_raises_an_error_that_names_it(tmp_path):
    path = tmp_path / "traces.jsonl"
    path.write_bytes(LINES)
    spans = read_records([path])
    path.unlink()
    with pytest.raises(TraceFileError, match=r"traces\.jsonl: cannot be read: No such file"):
        next(spans)


@pytest.mark.e2e
def test_standard_input_is_read_as_bytes():
    program = "from goldspan.otlp import read_records; print(*[span.name for span in read_records(['-'])])"
    for data in (LINES, gzip.compress(LINES), A.SerializeToString() + B.SerializeToString() + C.SerializeToString()):
        done = subprocess.run([sys.executable, "-c", program], input=data, capture_output=True, check=True)
        assert done.stdout.decode().split() == NAMES


def test_errors_call_standard_input_by_name(monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BufferedReader(io.BytesIO(b"hello"))))
    with pytest.raises(TraceFileError, match="standard input: holds no traces"):
        names("-")


def test_a_named_pipe_is_read_like_a_file(tmp_path):
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as cat:
        cat.stdin.write(LINES)
        cat.stdin.close()
        assert names(f"/dev/fd/{cat.stdout.fileno()}") == NAMES


def test_each_damaged_file_gives_one_warning_if_no_callback_is_set(tmp_path):
    for name in ("one", "two"):
        (tmp_path / name).write_bytes(line(A) + b"?\n" + line(B) + b"?\n")
    with pytest.warns(GoldspanWarning) as caught:
        assert len(names(tmp_path / "one", tmp_path / "two")) == 6
    first, second = (str(each.message) for each in caught)
    assert f"{tmp_path / 'one'}, line 2: not JSON: no object begins here (column 1) (and 1 more in this file)" in first
    assert f"{tmp_path / 'two'}, line 2" in second


def test_a_file_is_read_line_by_line(tmp_path):
    """The reader yields the first spans before the rest of the file is written."""
    path = tmp_path / "growing.jsonl"
    path.write_bytes(line(A) * 2000)
    with path.open("ab") as file:
        spans = read_records([path])
        assert next(spans).name == "a1"
        file.write(line(request("last")))
        file.flush()
        assert [span.name for span in spans][-1] == "last"


def test_reading_json_does_not_load_protobuf(tmp_path):
    (tmp_path / "traces.jsonl").write_bytes(LINES)
    program = (
        "import sys; from goldspan.otlp import read_records; "
        f"assert len(list(read_records([{str(tmp_path / 'traces.jsonl')!r}]))) == 4; "
        "assert 'google.protobuf' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def test_str_of_a_loss_is_one_line():
    assert str(Loss("traces.jsonl", "line 3", "not JSON")) == "traces.jsonl, line 3: not JSON"


@pytest.mark.parametrize(
    "pack", [pytest.param(bytes, id="plain"), gzip.compress, zstandard.compress], ids=lambda pack: pack.__name__
)
def test_on_read_receives_the_size_of_every_part_of_a_file_that_is_read(tmp_path, pack):
    (tmp_path / "inner").mkdir()
    for name in ("a.jsonl", "inner/b.json", "empty.pb"):
        (tmp_path / name).write_bytes(pack(b"" if name == "empty.pb" else LINES * 400))
    (tmp_path / "notes.txt").write_bytes(b"not read")
    sizes = []
    found = [record.name for record in read_records([tmp_path, tmp_path / "a.jsonl"], on_read=sizes.append)]
    assert found == NAMES * 1200
    assert sum(sizes) == total_bytes([tmp_path, str(tmp_path / "a.jsonl")])
    assert sum(sizes) == 3 * len(pack(LINES * 400)) + len(pack(b""))


def test_on_read_receives_the_decompressed_size_of_standard_input(monkeypatch):
    packed = gzip.compress(LINES)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BufferedReader(io.BytesIO(packed))))
    sizes = []
    assert len(list(read_records(["-"], on_read=sizes.append))) == len(NAMES)
    assert sum(sizes) == len(LINES)
    assert total_bytes(["-"]) is None


def test_total_bytes_of_a_pipe_is_none_and_of_a_missing_file_raises(tmp_path):
    if not hasattr(os, "mkfifo"):
        pytest.skip("no named pipes on this platform")
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "a.jsonl").write_bytes(LINES)
    assert total_bytes([tmp_path / "a.jsonl", tmp_path / "pipe"]) is None
    with pytest.raises(TraceFileError, match="no such file"):
        total_bytes([tmp_path / "nowhere"])
