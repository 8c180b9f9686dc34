"""The examples: each runs offline in its environment, and prints what its README shows."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from importlib.metadata import distributions
from pathlib import Path

import pytest

from recipes.environments import is_built, python_of
from support.docs_examples import ROOT, blocks, commands, matches

EXAMPLES = ROOT / "examples"
ENVIRONMENTS = {
    "anthropic_client": "openai_agents",
    "fastapi_streaming": "servers",
    "handoff": "openai_agents",
    "langgraph": "langgraph",
    "mcp_server": "mcp",
    "openai_agents": "openai_agents",
    "openai_client": "openai_agents",
    "pydantic_ai": "pydantic_ai",
    "retriever": None,
    "tool_tests": None,
}
"""The environment of each example; `None`: that of the tests."""
QUICK = ("retriever",)
"""The examples that `make test` runs."""
FOLDERS = sorted(path.name for path in EXAMPLES.iterdir() if path.is_dir() and path.name != "__pycache__")
UNREACHABLE = "http://127.0.0.1:9"


def _python(example: str) -> Path:
    name = ENVIRONMENTS[example]
    if name is None:
        return Path(sys.executable)
    if not is_built(name):
        pytest.skip(f"{name}'s environment is missing: make recipes")
    return python_of(name)


def _readme(example: str) -> str:
    return (EXAMPLES / example / "README.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    "example", [name if name in QUICK else pytest.param(name, marks=pytest.mark.e2e) for name in FOLDERS]
)
def test_an_example_prints_offline_what_its_readme_shows(example: str, tmp_path: Path) -> None:
    python = _python(example)
    folder = shutil.copytree(EXAMPLES / example, tmp_path / example, ignore=shutil.ignore_patterns("__pycache__"))
    proxies = dict.fromkeys(("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"), UNREACHABLE)
    environment = {
        **{name: value for name, value in os.environ.items() if name.upper() not in proxies},
        **proxies,
        "NO_PROXY": "127.0.0.1,localhost",
        "PATH": os.pathsep.join([str(python.parent), os.environ["PATH"]]),
    }
    ran = 0
    for block in blocks(_readme(example)):
        for command in commands(block.text) if block.language == "console" else ():
            if command.text.startswith("pip install"):
                continue
            done = subprocess.run(
                command.text,
                shell=True,
                cwd=folder,
                env=environment,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                encoding="utf-8",
                check=False,
                timeout=120,
            )
            assert matches(command.shown, done.stdout), done.stdout
            assert done.returncode == int(block.notes.get("exit status", "0")), done.stdout
            ran += 1
    assert ran


@pytest.mark.parametrize("example", FOLDERS)
def test_an_example_is_short_and_shows_one_run_that_passes_and_one_that_fails(example: str) -> None:
    programs = [
        path for path in (EXAMPLES / example).iterdir() if path.suffix in (".py", ".mjs", ".ts", ".java", ".ipynb")
    ]
    lines = sum(len(path.read_text(encoding="utf-8").splitlines()) for path in programs)
    assert 30 <= lines <= 120, lines
    readme = _readme(example)
    assert len(readme.splitlines()) <= 50
    assert re.search(r"\bpassed\b", readme)
    assert re.search(r"\b(FAILED|failed)\b", readme)


@pytest.mark.e2e
@pytest.mark.parametrize("example", FOLDERS)
def test_the_environment_of_an_example_has_what_its_requirements_name(example: str) -> None:
    required = (EXAMPLES / example / "requirements.txt").read_text(encoding="utf-8").split()
    assert "goldspan" in [re.split(r"\W", name)[0] for name in required]
    folders = [str(path) for path in _python(example).parents[1].glob("[Ll]ib*/python*/site-packages")]
    installed = {_normalized(each.metadata["Name"]) for each in distributions(path=folders)}
    assert {name for name in required if _normalized(re.split(r"[\[=<>]", name)[0]) not in installed} == set()


def _normalized(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def test_the_index_names_every_example_and_every_example_has_an_environment() -> None:
    index = (EXAMPLES / "README.md").read_text(encoding="utf-8")
    assert re.findall(r"^\| \[[^]]+\]\((\w+)\)", index, flags=re.MULTILINE) == [
        *sorted(FOLDERS, key=lambda name: index.find(f"]({name})"))
    ]
    assert set(ENVIRONMENTS) == set(FOLDERS)
