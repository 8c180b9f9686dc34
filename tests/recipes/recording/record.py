"""Records the exports of instrumentations, and what the recorded program really did, for `make recordings`.

python tests/recipes/recording/record.py [NAME ...]

Each program in this folder drives a real framework, whose model answers from `scenarios.json`. A recording is a payload
of OTLP, as it came over the socket, and the truth that the tools wrote down; both go to `tests/fixtures/recorded`.
"""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent)]  # a script: makes its neighbours importable

from environments import FOLDER, ROOT, build, is_up_to_date, python_of  # noqa: E402
from receiver import Payloads, receiver  # noqa: E402
from scripted_model import scripted_model, turns_of  # noqa: E402

RECORDED = ROOT / "tests" / "fixtures" / "recorded"
SCENARIOS: Mapping[str, list[dict[str, Any]]] = json.loads((HERE / "scenarios.json").read_text(encoding="utf-8"))
_PRIVATE = (b"/tmp", b"/work", b"/root", b"/home", b"/Users", b"site-packages", b"node_modules")


@dataclass(frozen=True)
class Recording:
    """One framework with one instrumentation."""

    environment: str
    program: str
    settings: Mapping[str, str] = field(default_factory=dict)
    """Environment variables of the program; `{endpoint}` stands for the receiver."""
    form: str | None = None
    """The form that the model fills in at each turn, if the framework supports nothing else."""


RECORDINGS: dict[str, Recording] = {
    "google_genai-opentelemetry": Recording(
        "google_genai",
        "record_google_genai.py",
        {"INSTRUMENTATION": "opentelemetry", "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT": "SPAN_ONLY"},
    ),
    "google_genai-openinference": Recording(
        "google_genai", "record_google_genai.py", {"INSTRUMENTATION": "openinference"}
    ),
    "braintrust-opentelemetry": Recording(
        "braintrust", "record_braintrust.py", {"OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT": "SPAN_ONLY"}
    ),
    "haystack-openinference": Recording("haystack", "record_haystack.py"),
    "instructor-openinference": Recording("instructor", "record_instructor.py", form="Step"),
    "instructor_early-openinference": Recording("instructor_early", "record_instructor.py", form="Step"),
    "mastra-otel_exporter": Recording("mastra", "record_mastra.mjs"),
    "openai_agents-weave": Recording("weave", "record_weave_agents.py"),
    "openai-weave": Recording("weave", "record_weave_conversation.py"),
}


def main() -> None:
    """Record the named recordings, or all of them."""
    for name in sys.argv[1:] or RECORDINGS:
        if not is_up_to_date(RECORDINGS[name].environment):
            build(RECORDINGS[name].environment)
        for scenario in SCENARIOS:
            _record(name, scenario)


def _record(name: str, scenario: str) -> None:
    recording, requests = RECORDINGS[name], SCENARIOS[scenario]
    target = RECORDED / name
    target.mkdir(parents=True, exist_ok=True)
    truth = target / f"{scenario}.truth.json"
    turns = turns_of(requests, recording.form)
    with receiver() as (endpoint, payloads), scripted_model(turns) as (model, unsaid):
        done = subprocess.run(
            [*_interpreter(recording), HERE / recording.program],
            env=_environment(recording, requests, endpoint, model, truth),
            capture_output=True,
            encoding="utf-8",
            check=False,
            timeout=120,
        )
    if done.returncode or unsaid:
        sys.exit(f"{name}, {scenario}: exit code {done.returncode}, {len(unsaid)} turns not asked for\n{done.stderr}")
    _keep(target / scenario, payloads)
    print(f"{name}, {scenario}: {sum(_span_counts(payloads))} spans")


def _interpreter(recording: Recording) -> list[str | Path]:
    return ["node"] if recording.program.endswith(".mjs") else [python_of(recording.environment), "-W", "ignore"]


def _environment(
    recording: Recording, requests: Iterable[Mapping[str, Any]], endpoint: str, model: str, truth: Path
) -> dict[str, str]:
    shared = {
        "NO_PROXY": "127.0.0.1",
        "OTEL_EXPORTER_OTLP_ENDPOINT": endpoint,
        "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf",
        "OTEL_SERVICE_NAME": "recording",
        "OTEL_NODE_RESOURCE_DETECTORS": "none",
        "RECORDING_INPUTS": json.dumps([request["input"] for request in requests]),
        "RECORDING_MODEL": model,
        "RECORDING_PACKAGES": str(FOLDER / recording.environment),
        "RECORDING_TRUTH": str(truth),
    }
    own = {key: value.format(endpoint=endpoint) for key, value in recording.settings.items()}
    return {**os.environ, **shared, **own}


def _keep(target: Path, payloads: Payloads) -> None:
    for suffix, message in ((".pb.gz", payloads.traces), (".logs.pb.gz", payloads.logs)):
        payload = message.SerializeToString()
        found = [text.decode() for text in _PRIVATE if text in payload]
        if found:
            sys.exit(f"{target.name}{suffix} holds paths of this machine: {', '.join(found)}")
        if payload:
            target.with_name(target.name + suffix).write_bytes(gzip.compress(payload, mtime=0))


def _span_counts(payloads: Payloads) -> Iterable[int]:
    return (len(scope.spans) for resource in payloads.traces.resource_spans for scope in resource.scope_spans)


if __name__ == "__main__":
    main()
