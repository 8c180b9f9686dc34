"""Tests that the benchmarks run and print every figure; `make bench` measures on an idle machine."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
import scoring_cases
from payloads import CAPTURES, payload_a, payload_b
from peers import PEERS, Peer, worker
from peers.environments import Unavailable, Worker, answer, environment

import goldspan
from goldspan.extraction import extract
from goldspan.model import SpanRecord
from goldspan.otlp import read_records
from goldspan.otlp.otlp_protobuf import decode_traces
from support.failing_product import FAILURES

BENCHMARKS = Path(__file__).parent.parent / "benchmarks"


@pytest.mark.e2e
def test_overhead_is_printed_for_every_variant_as_a_ratio_to_bare_spans() -> None:
    done = subprocess.run(
        [sys.executable, BENCHMARKS / "overhead.py", "--rounds", "1"], capture_output=True, text=True, check=True
    )
    lines = [line.split() for line in done.stdout.splitlines() if line.count(" us a span ") == 2]
    ratios = {" ".join(words[:-10]): (words[-6], words[-1]) for words in lines}
    assert list(ratios) == ["bare spans", "@goldspan.trace", "bare spans, scored", "@goldspan.trace, scored"]
    assert ratios["bare spans"] == ("1.00", "1.00")
    verdicts = [line for line in done.stdout.splitlines() if line.startswith(("  ok  ", "  MISSED"))]
    decorated = ("a decorated sync function", "a decorated async function")
    parts = (*decorated, "bare spans: scored", "@goldspan.trace: scored", "@goldspan.trace, scored: all threads")
    assert [part in line for part, line in zip(parts, verdicts, strict=True)] == [True] * 5


@pytest.mark.e2e
def test_the_cost_of_each_failure_of_a_product_is_printed_as_ratios_to_no_sink() -> None:
    done = subprocess.run(
        [sys.executable, BENCHMARKS / "product_outage.py", "--rounds", "1", "--max-queue", "1"],
        capture_output=True,
        text=True,
        check=True,
    )
    lines = [line.split(" us ") for line in done.stdout.splitlines() if line.count(" us ") == 3]
    ratios = {line[0].rsplit(maxsplit=1)[0].strip(): [float(part.split()[0]) for part in line[1:]] for line in lines}
    assert list(ratios) == ["no sink", "healthy", *FAILURES]
    assert ratios["no sink"] == [1, 1, 1]
    assert all(ratio > 0 for row in ratios.values() for ratio in row)
    assert done.stdout.splitlines()[-1].startswith(("  ok  ", "  MISSED"))


@pytest.mark.e2e
def test_cost_memory_speedup_and_growth_of_large_inputs_are_printed() -> None:
    command = [sys.executable, BENCHMARKS / "scale.py", "--spans", "512", "1024", "--memory", "1MB"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert [line[:22].strip() for line in lines if " times parsing (" in line] == [
        "JSON lines",
        "protobuf",
        "JSON lines, --jobs 2",
    ] * 2
    verdicts = [line for line in lines if line.startswith(("    ok  ", "    MISSED"))]
    assert len(verdicts) == 2 * 6 + 1
    assert "cost grows by" in verdicts[-1]


@pytest.mark.e2e
def test_goldspan_loses_no_tool_in_a_thread_which_the_benchmark_shows_without_peers() -> None:
    done = subprocess.run(
        [sys.executable, BENCHMARKS / "context.py", "--check"], capture_output=True, text=True, check=True
    )
    _, ours = done.stdout.splitlines()
    assert ours.split() == ["goldspan", *["2/2"] * 5]


@pytest.mark.e2e
def test_a_peer_whose_decorator_cannot_be_measured_is_named_with_the_reason(tmp_path: Path) -> None:
    offline = {**os.environ, "PIP_NO_INDEX": "1"}
    done = subprocess.run(
        [sys.executable, BENCHMARKS / "context.py", "--peers", str(tmp_path), "--only", "galtea"],
        capture_output=True,
        text=True,
        check=True,
        env=offline,
    )
    assert done.stdout.splitlines()[-1].startswith("galtea==5.12.0 cannot be installed: ")


def test_a_missing_answer_is_reported_with_the_last_line_of_the_error() -> None:
    script = BENCHMARKS / "peers" / "capture_worker.py"
    with pytest.raises(Unavailable, match="cannot be run: KeyError: 'nobody'"):
        answer("nobody", Path(sys.executable), script, "context")


@pytest.mark.e2e
def test_extraction_is_printed_for_both_payloads_as_a_ratio_to_parsing() -> None:
    done = subprocess.run(
        [sys.executable, BENCHMARKS / "extraction.py", "--rounds", "1"], capture_output=True, text=True, check=True
    )
    lines = [line.split(" us a span ") for line in done.stdout.splitlines() if " us a span " in line]
    ratios = [(name.rsplit(maxsplit=1)[0].strip(), float(ratio)) for name, ratio in lines]
    assert [name for name, _ in ratios] == ["parse", "read", "decode", "decode and extract"] * 2
    assert [ratio for name, ratio in ratios if name == "parse"] == [1, 1]


@pytest.mark.e2e
def test_the_profile_gives_each_stage_a_share_of_both_payloads() -> None:
    done = subprocess.run(
        [sys.executable, BENCHMARKS / "profile.py", "--seconds", "0.5", "--functions", "3"],
        capture_output=True,
        text=True,
        check=True,
    )
    rows = [line.split(" | ") for line in done.stdout.splitlines() if line.endswith("% |")]
    stages = [[int(share.strip(" |%")) for share in row[-2:]] for row in rows if len(row) == 4]
    assert len(stages) == 8
    assert all(97 <= sum(shares) <= 103 for shares in zip(*stages, strict=True))  # rounding
    assert len([row for row in rows if len(row) == 2]) == 2 * 3


@pytest.mark.e2e
def test_a_batch_is_given_by_stage_and_as_a_command_as_ratios_to_parsing_json() -> None:
    done = subprocess.run(
        [sys.executable, BENCHMARKS / "batch.py", "--rounds", "1", "--requests", "1"],
        capture_output=True,
        text=True,
        check=True,
    )
    lines = [line.split(" us a span ") for line in done.stdout.splitlines() if " us a span " in line]
    ratios = {name.rsplit(maxsplit=1)[0].strip(): float(ratio) for name, ratio in lines}
    assert list(ratios) == ["json.loads", "read", "extract", "evaluate", "write", "goldspan score --json"]
    assert ratios["json.loads"] == 1


def test_payload_a_is_an_application_in_which_one_span_in_six_is_a_tool_call() -> None:
    data = payload_a()
    spans = decode_traces(data).spans
    assert len(spans) == 512
    assert 900 < len(data) / len(spans) < 1300
    assert len([span for span in spans if "gen_ai.tool.name" in span.attributes]) == round(512 / 6)
    models = [span for span in spans if span.attributes.get("gen_ai.operation.name") == "chat"]
    assert Counter(Counter(span.trace_id for span in models).values()) == {4: 16}
    for span in models:
        messages = span.attributes["gen_ai.input.messages"] + span.attributes["gen_ai.output.messages"]
        assert 1900 < len(messages) < 2100
        assert "tool_call" not in messages
    assert sum(len(run.tool_calls) for run in extract(spans)) == round(512 / 6)


def test_payload_b_holds_every_recorded_capture_and_each_repeat_is_another_trace() -> None:
    requests = [decode_traces(data).spans for data in payload_b()]
    recorded = [record for path in CAPTURES.glob("*.pb.gz") for record in read_records([path])]
    names = {record.name for record in recorded if isinstance(record, SpanRecord)}
    assert names == {span.name for spans in requests for span in spans}
    assert all(400 < len(spans) <= 512 for spans in requests)
    ids = [(span.trace_id, span.span_id) for spans in requests for span in spans]
    assert len(ids) == len(set(ids))


def test_payloads_are_the_same_each_time() -> None:
    assert payload_a() == payload_a()
    assert payload_b() == payload_b()


@pytest.mark.e2e
def test_scoring_is_printed_with_its_budgets_and_needs_no_peer() -> None:
    done = _scoring("--rounds", "1")
    verdicts = [line for line in done.stdout.splitlines() if line.startswith(("  ok  ", "  MISSED"))]
    budgets = ("evaluation of a run of 5 calls", "as expected", "20 by 20 similar arguments")
    assert [budget in line for budget, line in zip(budgets, verdicts, strict=True)] == [True, True, True]
    assert "on average 3.6 calls and 3.5 expected" in done.stdout


@pytest.mark.e2e
def test_a_peer_that_cannot_be_installed_is_named_with_the_reason(tmp_path: Path) -> None:
    offline = {**os.environ, "PIP_NO_INDEX": "1"}
    done = _scoring("--rounds", "1", "--peers", str(tmp_path), "--only", "strands", env=offline)
    *_, last, after = done.stdout.splitlines()
    assert last.startswith("         strands-agents-evals==1.7.0 cannot be installed: ")
    assert "No matching distribution" in last
    assert "axion" in after
    assert list(tmp_path.glob("*/installed.json")) == []


def test_a_folder_with_a_peers_name_that_is_no_environment_is_left_unchanged(tmp_path: Path) -> None:
    mine = tmp_path / "strands" / "notes.txt"
    mine.parent.mkdir()
    mine.write_text("mine")
    peer = next(peer for peer in PEERS if peer.name == "strands")
    with pytest.raises(Unavailable, match="exists, and is no environment"):
        environment(peer, tmp_path)
    assert mine.read_text() == "mine"


def test_a_peer_that_cannot_be_run_is_named_with_the_reason(tmp_path: Path) -> None:
    python = tmp_path / "bin" / "python"
    python.parent.mkdir()
    python.symlink_to(sys.executable)
    with (
        Worker(Peer("strands", "strands-agents-evals==1.7.0", ({},)), python, []) as worker,
        pytest.raises(Unavailable, match="cannot be run: ModuleNotFoundError: No module named 'strands_evals'"),
    ):
        worker.prepare({})


@pytest.mark.parametrize("peer", [pytest.param(peer, id=peer.name) for peer in PEERS])
def test_a_peer_is_timed_with_options_that_its_profile_accepts(peer: Peer) -> None:
    found = [goldspan.profiles.score(peer.name, ["search"], ["search"], **options).value for options in peer.measured]
    assert set(found) <= {0, 1}
    assert peer.requirement.partition("==")[2] == goldspan.profiles.describe(peer.name).version


@pytest.mark.parametrize("asynchronous", [pytest.param(False, id="plain"), pytest.param(True, id="asynchronous")])
def test_a_peer_that_raises_has_no_score_and_the_other_cases_are_scored(asynchronous: bool) -> None:
    def share(case: tuple[int, int]) -> float:
        return case[0] / case[1]

    async def awaited(case: tuple[int, int]) -> float:
        return share(case)

    seconds, scores = worker.timed(awaited if asynchronous else share, [(1, 2), (1, 0), (2, 2)], 0.001)
    assert scores == [0.5, None, 1]
    assert seconds > 0


def test_the_timed_cases_are_deterministic_and_half_of_them_are_correct() -> None:
    made = scoring_cases.cases()
    assert made == scoring_cases.cases()
    assert len(made) == 1000
    assert 0.4 < sum(case.called == case.expected for case in made) / len(made) < 0.6
    assert all(call["args"] for case in made for call in (*case.called, *case.expected))


@pytest.mark.e2e
def test_lookup_is_printed_with_its_budgets_and_answers_as_a_comparison_with_all_goldens_does() -> None:
    options = ["--goldens", "1200", "--queries", "2", "--rounds", "1"]
    done = subprocess.run(
        [sys.executable, BENCHMARKS / "lookup.py", *options], capture_output=True, text=True, check=True
    )
    sets = [line.partition(":")[0] for line in done.stdout.splitlines() if line.startswith("1200")]
    assert sets == ["1200 goldens of words", "1200 goldens of templates"]
    kinds = [line.strip().partition(":")[0].split(maxsplit=1)[1] for line in done.stdout.splitlines() if line[0] == " "]
    near = ["near hit at 90", "miss at 90", "near hit at 90 and the second best", "near hit at 80", "miss at 80"]
    assert kinds == ["exact hit", *near] * 2
    assert done.stdout.count("same answers") == len(near) * 2


def _scoring(*arguments: str, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, BENCHMARKS / "scoring.py", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True, env=env)


@pytest.mark.e2e
def test_the_cost_of_a_judge_is_printed_beside_a_pipeline_without_one() -> None:
    done = subprocess.run(
        [sys.executable, BENCHMARKS / "judge.py", "--rounds", "1"], capture_output=True, text=True, check=True
    )
    lines = [line.partition(" us per run")[0].split() for line in done.stdout.splitlines() if " us per run " in line]
    assert [" ".join(words[:-1]) for words in lines] == ["no judge", "not sampled", "every run judged"]
    assert all(float(words[-1]) > 0 for words in lines)
    assert "verdicts" in done.stdout
    assert "characters of evidence" in done.stdout


@pytest.mark.e2e
def test_a_decorated_request_is_followed_through_the_modules_of_goldspan() -> None:
    done = subprocess.run(
        [sys.executable, BENCHMARKS / "walk.py", "--list"], capture_output=True, text=True, check=True
    )
    first, *modules = done.stdout.splitlines()
    assert first.startswith(f"modules: {len(modules)}, changes of module: ")
    names = [line.split()[-1] for line in modules]
    assert names[0] == "goldspan.capture.call_spans"
    assert "goldspan.scoring.run_comparison" in names
    assert names[-1] == "goldspan.sinks.otel_sinks"  # writes the result's attributes
    assert not {"goldspan.sinks.metric_sink", "goldspan.online.pass_rate_sink"} & {*names}
