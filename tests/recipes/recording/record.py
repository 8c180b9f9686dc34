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

from environments import FOLDER, ROOT, build, go_program, is_up_to_date, java_class_path, python_of  # noqa: E402
from receiver import Payloads, receiver  # noqa: E402
from scripted_model import MODEL, scripted_model, turns_of  # noqa: E402

RECORDED = ROOT / "tests" / "fixtures" / "recorded"
SCENARIOS: Mapping[str, list[dict[str, Any]]] = json.loads((HERE / "scenarios.json").read_text(encoding="utf-8"))
_PRIVATE = (b"/tmp", b"/work", b"/root", b"/home", b"/Users", b"site-packages", b"node_modules")


@dataclass(frozen=True)
class Recording:
    """One framework with one instrumentation."""

    environment: str
    program: str
    settings: Mapping[str, str] = field(default_factory=dict)
    """Environment variables of the program; `{endpoint}` stands for the receiver, and `{model}` for the model."""
    form: str | None = None
    """The form that the model fills in at each turn, if the framework supports nothing else."""


_SPRING_AI = {
    "MANAGEMENT_OPENTELEMETRY_TRACING_EXPORT_OTLP_ENDPOINT": "{endpoint}/v1/traces",
    "MANAGEMENT_OTLP_METRICS_EXPORT_ENABLED": "false",
    "MANAGEMENT_TRACING_SAMPLING_PROBABILITY": "1",
    "SPRING_AI_OPENAI_API_KEY": "none",
    "SPRING_AI_OPENAI_BASE_URL": "{model}/v1",
    "SPRING_AI_OPENAI_CHAT_OPTIONS_MODEL": MODEL,
    "SPRING_APPLICATION_NAME": "recording",
}
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
    "genkit-go": Recording("genkit", "go/genkit/main.go"),
    "google_adk-java": Recording("google_adk_java", "java/google_adk/Record.java", {"OTEL_METRICS_EXPORTER": "none"}),
    "haystack-openinference": Recording("haystack", "record_haystack.py"),
    "instructor-openinference": Recording("instructor", "record_instructor.py", form="Step"),
    "instructor_early-openinference": Recording("instructor_early", "record_instructor.py", form="Step"),
    "langchain4j-java_agent": Recording(
        "langchain4j_java",
        "java/langchain4j/Record.java",
        {
            "JAVA_TOOL_OPTIONS": f"-javaagent:{FOLDER}/langchain4j_java/libraries/opentelemetry-javaagent-2.33.1.jar",
            "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT": "true",
            "OTEL_JAVA_ENABLED_RESOURCE_PROVIDERS": "io.opentelemetry.sdk.autoconfigure.EnvironmentResourceProvider",
            "OTEL_LOGS_EXPORTER": "otlp",
            "OTEL_METRICS_EXPORTER": "none",
        },
    ),
    "mastra-otel_exporter": Recording("mastra", "record_mastra.mjs"),
    "spring_ai-content": Recording(
        "spring_ai_java",
        "java/spring_ai/Record.java",
        {
            **_SPRING_AI,
            "SPRING_AI_CHAT_CLIENT_OBSERVATIONS_LOG_COMPLETION": "true",
            "SPRING_AI_CHAT_CLIENT_OBSERVATIONS_LOG_PROMPT": "true",
            "SPRING_AI_CHAT_OBSERVATIONS_LOG_COMPLETION": "true",
            "SPRING_AI_CHAT_OBSERVATIONS_LOG_PROMPT": "true",
            "SPRING_AI_TOOLS_OBSERVATIONS_INCLUDE_CONTENT": "true",
        },
    ),
    "spring_ai-default": Recording("spring_ai_java", "java/spring_ai/Record.java", _SPRING_AI),
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
            _command(recording),
            env=_environment(recording, requests, endpoint, model, truth),
            capture_output=True,
            encoding="utf-8",
            check=False,
            timeout=120,
        )
    if done.returncode or unsaid:
        failure = f"{name}, {scenario}: exit code {done.returncode}, {len(unsaid)} turns not asked for"
        sys.exit(f"{failure}\n{done.stdout}{done.stderr}")
    _keep(target / scenario, payloads)
    print(f"{name}, {scenario}: {sum(_span_counts(payloads))} spans")


def _command(recording: Recording) -> list[str | Path]:
    if recording.program.endswith(".mjs"):
        return ["node", HERE / recording.program]
    if recording.program.endswith(".go"):
        return [go_program(recording.environment)]
    if recording.program.endswith(".java"):
        return ["java", "-cp", java_class_path(recording.environment), f"recording.{Path(recording.program).stem}"]
    return [python_of(recording.environment), "-W", "ignore", HERE / recording.program]


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
    own = {key: value.format(endpoint=endpoint, model=model) for key, value in recording.settings.items()}
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
