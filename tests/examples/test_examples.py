"""The examples: each runs offline in its environment, and prints what its README shows."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from importlib.metadata import distributions
from pathlib import Path

import pytest

from recipes.environments import FOLDER, SPRING_AI, is_built, python_of, spring_ai_program
from support.docs_examples import ROOT, blocks, commands, matches
from support.gateway_process import eventually, serving
from support.notebook_cells import saved_outputs

EXAMPLES = ROOT / "examples"
ENVIRONMENTS = {
    "anthropic_client": "openai_agents",
    "celery_worker": "servers",
    "compose": "collector",
    "crewai": "crewai",
    "fastapi_streaming": "servers",
    "google_adk": "google_adk",
    "handoff": "openai_agents",
    "langgraph": "langgraph",
    "llama_index": "openinference",
    "mastra": "mastra",
    "mcp_server": "mcp",
    "notebook": None,
    "openai_agents": "openai_agents",
    "openai_client": "openai_agents",
    "pydantic_ai": "pydantic_ai",
    "retriever": None,
    "smolagents": "openinference",
    "spring_ai": SPRING_AI,
    "tool_tests": None,
    "vercel_ai": "node",
}
"""The environment of each example; `None`: that of the tests."""
QUICK = ("retriever",)
"""The examples that `make test` runs."""
IN_JAVASCRIPT = ("mastra", "vercel_ai")
"""The examples in JavaScript, whose environments hold packages of npm."""
OTHERWISE_RUN = ("compose", "notebook", "spring_ai", *IN_JAVASCRIPT)
"""The examples with a test of their own; that of `compose` is in `test_compose_example.py`."""
FOLDERS = sorted(path.name for path in EXAMPLES.iterdir() if path.is_dir() and path.name != "__pycache__")
NOT_RUN = ("pip install", "npm install", "mvn", "goldspan serve")
"""The commands that the tests replace by their own environments and gateway."""
UNREACHABLE = "http://127.0.0.1:9"


def _require_environment(example: str) -> None:
    name = ENVIRONMENTS[example]
    if name is not None and not is_built(name):
        pytest.skip(f"{name}'s environment is missing: make recipes")


def _python(example: str) -> Path:
    name = ENVIRONMENTS[example]
    is_other = name is None or name == SPRING_AI or example in IN_JAVASCRIPT
    return Path(sys.executable) if is_other else python_of(name)


def _node_modules(example: str) -> Path:
    return FOLDER / str(ENVIRONMENTS[example]) / "node_modules"


def _readme(example: str) -> str:
    return (EXAMPLES / example / "README.md").read_text(encoding="utf-8")


def _copy(example: str, folder: Path) -> Path:
    copy = shutil.copytree(
        EXAMPLES / example, folder / example, ignore=shutil.ignore_patterns("__pycache__", "node_modules", "target")
    )
    if example in IN_JAVASCRIPT:
        (copy / "node_modules").symlink_to(_node_modules(example))
    elif ENVIRONMENTS[example] == SPRING_AI:
        (copy / "target").symlink_to(spring_ai_program().parent)
    return copy


def _offline(example: str) -> dict[str, str]:
    """The variables of a process that finds the programs of its environment, and no server outside the machine."""
    proxies = dict.fromkeys(("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"), UNREACHABLE)
    rest = {name: value for name, value in os.environ.items() if name.upper() not in proxies}
    path = os.pathsep.join([str(_python(example).parent), os.environ["PATH"]])
    return {**rest, **proxies, "NO_PROXY": "127.0.0.1,localhost", "PATH": path}


def _shown_commands(example: str) -> Iterator[tuple[str, str, int]]:
    """Yield each command of a README that is run, with its output and its exit status."""
    for block in blocks(_readme(example)):
        for command in commands(block.text) if block.language == "console" else ():
            if not command.text.startswith(NOT_RUN):
                yield command.text, command.shown, int(block.notes.get("exit status", "0"))


def _run(command: str, folder: Path, environment: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command,
        shell=True,
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        encoding="utf-8",
        check=False,
        timeout=120,
    )


@pytest.mark.parametrize(
    "example",
    [
        name if name in QUICK else pytest.param(name, marks=pytest.mark.e2e)
        for name in FOLDERS
        if name not in OTHERWISE_RUN
    ],
)
def test_an_example_prints_offline_what_its_readme_shows(example: str, tmp_path: Path) -> None:
    _require_environment(example)
    folder = _copy(example, tmp_path)
    shown = list(_shown_commands(example))
    assert shown
    for command, output, status in shown:
        done = _run(command, folder, _offline(example))
        assert matches(output, done.stdout), done.stdout
        assert done.returncode == status, done.stdout


@pytest.mark.e2e
@pytest.mark.needs("node")
@pytest.mark.parametrize("example", IN_JAVASCRIPT)
def test_an_agent_in_javascript_is_scored_by_the_gateway_as_its_readme_shows(example: str, tmp_path: Path) -> None:
    _assert_scored_by_the_gateway(example, tmp_path, "OTEL_EXPORTER_OTLP_ENDPOINT", "")


@pytest.mark.e2e
@pytest.mark.needs("java")
def test_an_agent_in_java_is_scored_by_the_gateway_as_its_readme_shows(tmp_path: Path) -> None:
    setting = "MANAGEMENT_OPENTELEMETRY_TRACING_EXPORT_OTLP_ENDPOINT"
    _assert_scored_by_the_gateway("spring_ai", tmp_path, setting, "/v1/traces")


def _assert_scored_by_the_gateway(example: str, tmp_path: Path, setting: str, path: str) -> None:
    """Run an agent that exports to the address that a variable sets, and compare both outputs with the README."""
    _require_environment(example)
    folder = _copy(example, tmp_path)
    (agent, replies, _), (watch, verdicts, _) = _shown_commands(example)
    with serving(tmp_path, "--goldens", str(folder / "goldens.yaml"), "--grace", "0.1") as gateway:
        environment = {**_offline(example), setting: gateway.address + path}
        done = _run(agent, folder, environment)
        assert matches(replies, done.stdout), done.stdout
        eventually(lambda: len(gateway.get("/api/v1/runs")["runs"]) == 2, lambda: gateway.log)
        done = _run(watch.replace("watch", f"watch {gateway.address}"), folder, environment)
        assert matches(verdicts, done.stdout), done.stdout


@pytest.mark.e2e
def test_the_cells_of_the_notebook_have_the_outputs_that_it_holds(tmp_path: Path) -> None:
    folder = _copy("notebook", tmp_path)
    program = ROOT / "tests" / "support" / "notebook_cells.py"
    done = _run(f"python {program} agent.ipynb", folder, _offline("notebook"))
    assert done.returncode == 0, done.stdout
    assert json.loads(done.stdout) == saved_outputs(folder / "agent.ipynb")


@pytest.mark.parametrize("example", FOLDERS)
def test_an_example_is_short_and_shows_one_run_that_passes_and_one_that_fails(example: str) -> None:
    programs = [
        path
        for path in (EXAMPLES / example).iterdir()
        if path.suffix in (".py", ".mjs", ".java") or path.name == "compose.yaml"
    ]
    lines = sum(len(path.read_text(encoding="utf-8").splitlines()) for path in programs)
    assert 30 <= lines <= 120 or example == "notebook"
    readme = _readme(example)
    assert len(readme.splitlines()) <= 50
    assert re.search(r"\bpassed\b|✓", readme)
    assert re.search(r"\bFAILED\b|✗", readme)


@pytest.mark.e2e
@pytest.mark.parametrize("example", [name for name in FOLDERS if name != "compose"])
def test_the_environment_of_an_example_has_what_its_requirements_name(example: str) -> None:
    _require_environment(example)
    if example in IN_JAVASCRIPT:
        required = json.loads((EXAMPLES / example / "package.json").read_text(encoding="utf-8"))["dependencies"]
        missing = {name for name in required if not (_node_modules(example) / name).is_dir()}
    elif ENVIRONMENTS[example] == SPRING_AI:
        missing = set() if spring_ai_program().exists() else {"agent.jar"}  # Maven resolves the others
    else:
        names = (EXAMPLES / example / "requirements.txt").read_text(encoding="utf-8").split()
        assert "goldspan" in names
        folders = [str(path) for path in _python(example).parents[1].glob("[Ll]ib*/python*/site-packages")]
        missing = set(names) - {each.metadata["Name"].lower() for each in distributions(path=folders)}
    assert missing - {"jupyterlab"} == set()  # the tests run the cells of the notebook without it


def test_the_index_names_every_example_and_every_example_has_an_environment() -> None:
    index = (EXAMPLES / "README.md").read_text(encoding="utf-8")
    assert sorted(re.findall(r"^\| \[[^]]+\]\((\w+)\)", index, flags=re.MULTILINE)) == FOLDERS
    assert sorted(ENVIRONMENTS) == FOLDERS
