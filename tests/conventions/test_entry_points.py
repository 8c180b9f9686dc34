"""Conventions of other packages, loaded from their entry points."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from support.wheels import install, run_python

PACKAGE = "acme_goldspan"
CONVENTION = """
from goldspan.conventions.convention import AttributeMap, Convention

CONVENTION = Convention(
    name="acme",
    title="Acme's own agent",
    source="https://acme.example",
    versions="1",
    roles={"acme.step": {"tool": "tool", "turn": "agent"}},
    attributes_by_role={
        "tool": AttributeMap(name=("acme.tool",), arguments=("acme.given",)),
        "agent": AttributeMap(name=("acme.agent",), input=("acme.question",)),
    },
)

def __getattr__(name):
    # Each of the other entry points fails to load in a different way.
    if name == "RAISES":
        raise RuntimeError("no licence")
    if name == "EXITS":
        raise SystemExit(3)
    if name == "MISDECLARED":
        described = {"title": "", "source": "", "versions": ""}
        return Convention(name="misdeclared", roles={"acme.step": {"turn": "agnet"}}, **described)
    raise AttributeError(name)
"""
ENTRY_POINTS = f"""[goldspan.conventions]
acme = {PACKAGE}:CONVENTION
exits = {PACKAGE}:EXITS
misdeclared = {PACKAGE}:MISDECLARED
missing = {PACKAGE}:MISSING
raises = {PACKAGE}:RAISES
wrong_type = {PACKAGE}:__name__
"""
SPANS = """
import json

SPANS = [
    ("work", {"acme.step": "turn", "acme.agent": "planner", "acme.question": "Where to?"}),
    ("work", {"acme.step": "tool", "acme.tool": "atlas", "acme.given": '{"city": "Oslo"}'}),
    ("work", {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "weather"}),
]
"""
FROM_SPANS = (
    SPANS
    + """
from goldspan.extraction import extract
from goldspan.model import SpanRecord

root = f"{1:016x}"
runs = extract([
    SpanRecord("1" * 32, f"{number:016x}", root if number > 1 else None, name, named, number * 10, number * 10 + 5)
    for number, (name, named) in enumerate(SPANS, 1)
])
print(json.dumps([[run.agent, run.input, run.tools_used, run.tool_calls[0].arguments] for run in runs]))
"""
)
LIVE = (
    SPANS
    + """
import goldspan
from opentelemetry.sdk.trace import TracerProvider

evaluations = []
processor = goldspan.ScoringProcessor(sinks=[evaluations.append])
provider = TracerProvider()
provider.add_span_processor(processor)
tracer = provider.get_tracer("acme")
(name, named), *tools = SPANS
for _ in range(2):
    with tracer.start_as_current_span(name, attributes=named):
        for name, attributes in tools:
            tracer.start_span(name, attributes=attributes).end()
provider.shutdown()
runs = [evaluation.run for evaluation in evaluations]
print(json.dumps([[run.agent, run.input, run.tools_used, run.tool_calls[0].arguments] for run in runs]))
"""
)
RUN = ["planner", "Where to?", ["atlas", "weather"], {"city": "Oslo"}]
REASONS = {
    "exits": "loading it raises SystemExit: 3",
    "misdeclared": "convention 'misdeclared': roles['acme.step']['turn'] is 'agnet', which is not a role. "
    "Did you mean 'agent'? The roles are: tool, agent, entry, model, component, aside.",
    "missing": "loading it raises AttributeError: MISSING",
    "raises": "loading it raises RuntimeError: no licence",
    "wrong_type": "it is a str, not a Convention",
}


@pytest.fixture(scope="module")
def installed_package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return install(PACKAGE, CONVENTION, ENTRY_POINTS, under=tmp_path_factory.mktemp("package"))


@pytest.mark.e2e
def test_a_convention_of_an_installed_package_is_used_without_configuration(installed_package: Path) -> None:
    assert json.loads(run_python(FROM_SPANS, beside=installed_package).stdout) == [RUN]


def test_spans_of_a_convention_that_is_not_installed_are_not_read(tmp_path: Path) -> None:
    [[agent, request, tools, _]] = json.loads(run_python(FROM_SPANS, beside=tmp_path).stdout)
    assert (agent, request, tools) == (None, None, ["weather"])


@pytest.mark.parametrize(("program", "runs"), [(FROM_SPANS, [RUN]), (LIVE, [RUN, RUN])], ids=["spans", "live"])
def test_an_unusable_convention_is_skipped_with_one_warning(
    installed_package: Path, program: str, runs: list[object]
) -> None:
    finished = run_python(program, beside=installed_package, warnings="always")
    assert json.loads(finished.stdout) == runs
    for name, reason in REASONS.items():
        warning = f"GoldspanWarning: {PACKAGE}: the entry point {name!r} of goldspan.conventions is ignored: {reason}\n"
        assert finished.stderr.count(warning) == 1
    assert finished.stderr.count("GoldspanWarning") == len(REASONS)


def test_a_trace_file_is_read_even_if_an_installed_convention_is_unusable(
    installed_package: Path, tmp_path: Path
) -> None:
    attribute = {"key": "acme.step", "value": {"stringValue": "turn"}}
    times = {"startTimeUnixNano": "1", "endTimeUnixNano": "2"}
    span = {"traceId": "1" * 32, "spanId": "2" * 16, "name": "trip", "attributes": [attribute], **times}
    file = tmp_path / "traces.json"
    file.write_text(json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": [span]}]}]}), encoding="utf-8")
    program = f"import goldspan\nprint([run.span_name for run in goldspan.load_runs({str(file)!r})])"
    finished = run_python(program, beside=installed_package, warnings="always")
    assert finished.stdout == "['trip']\n"
    assert finished.stderr.count("GoldspanWarning") == len(REASONS)


def test_an_installed_convention_precedes_the_built_in_conventions(installed_package: Path) -> None:
    code = "from goldspan.conventions import installed_conventions; print(installed_conventions().members[0].name)"
    assert run_python(code, beside=installed_package).stdout.strip() == "acme"
