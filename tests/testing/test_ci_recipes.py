"""The recipes for GitHub, GitLab and pre-commit are what these programs accept, and the action's step does its work."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from goldspan.testing.results import ResultsWriter
from support.case_results import evaluated_case, golden_of, results_of

ROOT = Path(__file__).parents[2]
RECIPES = ROOT / "deploy" / "ci"


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


@pytest.mark.skipif(sys.platform == "win32", reason="the action runs bash")
def test_the_step_of_the_action_checks_the_results_and_writes_the_summary(tmp_path: Path) -> None:
    action = yaml.safe_load((RECIPES / "github" / "action.yml").read_text())
    (step,) = action["runs"]["steps"]
    golden = golden_of("refund", "refund", line=4)
    for name, called in (("new.jsonl", []), ("main.jsonl", ["refund"])):
        with ResultsWriter(tmp_path / name, results_of([]).header) as writer:
            writer.write(evaluated_case(golden, called))
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "goldspan").write_text(f'#!/bin/sh\nexec "{sys.executable}" -m goldspan "$@"\n')
    (tmp_path / "bin" / "goldspan").chmod(0o755)
    env = {
        **os.environ,
        "PATH": f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}",
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
