"""Tests of what a release consists of: the recipes of other package systems, the chart, the workflows and the notes."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import goldspan
from goldspan._extras import _EXTRAS
from recipes.environments import HELM, helm_program, is_built
from support.docs_examples import ROOT

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

CHART = ROOT / "deploy" / "helm" / "goldspan"
RECIPE = ROOT / "deploy" / "conda" / "recipe.yaml"
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
SCRIPTS = sorted(path for path in (ROOT / ".ci").iterdir() if path.read_bytes().startswith(b"#!/usr/bin/env bash"))
NEEDS_HELM = pytest.mark.skipif(not is_built(HELM), reason="Helm needs its environment: make recipes")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def load_yaml(path: Path) -> Any:
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def requirements(lines: list[str]) -> dict[str, str]:
    parsed = [Requirement(line) for line in lines]
    return {canonicalize_name(each.name): str(each.specifier) for each in parsed}


# --- versions and notes -----------------------------------------------------------------------------------------------


def test_every_file_that_states_a_version_states_that_of_the_package() -> None:
    chart = load_yaml(CHART / "Chart.yaml")
    assert chart["version"] == chart["appVersion"] == goldspan.__version__
    assert load_yaml(RECIPE)["context"]["version"] == goldspan.__version__


def test_the_version_has_release_notes_and_a_section_in_the_changelog() -> None:
    notes = (ROOT / "docs" / "releases" / f"{goldspan.__version__}.md").read_text(encoding="utf-8")
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert notes.startswith(f"# goldspan {goldspan.__version__}\n")
    assert re.search(rf"^## \[{re.escape(goldspan.__version__)}\] - \d{{4}}-\d\d-\d\d$", changelog, flags=re.MULTILINE)


def test_the_classifiers_name_the_pythons_that_the_workflow_tests() -> None:
    tested = load_yaml(ROOT / ".github" / "workflows" / "ci.yml")["jobs"]["pythons"]["strategy"]["matrix"]["python"]
    named = [each.rpartition(" ")[2] for each in PROJECT["classifiers"] if re.search(r":: 3\.\d+$", each)]
    assert named == [version for version in tested if not version.endswith("t")]
    assert PROJECT["requires-python"] == f">={named[0]}"


# --- conda ------------------------------------------------------------------------------------------------------------


def test_the_conda_recipe_has_the_dependencies_and_the_command_of_the_package() -> None:
    recipe = load_yaml(RECIPE)
    run = requirements(recipe["requirements"]["run"])
    assert run.pop("python") == PROJECT["requires-python"]
    assert run == requirements(PROJECT["dependencies"])
    (command,) = recipe["build"]["python"]["entry_points"]
    assert command == f"goldspan = {PROJECT['scripts']['goldspan']}"
    assert recipe["about"]["summary"] == PROJECT["description"]
    assert recipe["about"]["license"] == PROJECT["license"]
    licences = {str(path.relative_to(ROOT)) for pattern in PROJECT["license-files"] for path in ROOT.glob(pattern)}
    assert set(recipe["about"]["license_file"]) == licences


# --- workflows and scripts --------------------------------------------------------------------------------------------


@pytest.mark.e2e
@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_a_workflow_has_the_form_of_github(path: Path) -> None:
    """tests/testing/test_ci_recipes.py checks the workflows with actionlint."""
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.github-workflows", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_a_workflow_grants_reading_only_and_pins_its_actions(path: Path) -> None:
    workflow = load_yaml(path)
    assert workflow["permissions"] == {"contents": "read"}
    actions = re.findall(r"uses: (\S+)", path.read_text(encoding="utf-8"))
    assert [action for action in actions if not re.search(r"^\./|@(v\d+|release/v\d+|[0-9a-f]{40})$", action)] == []
    named = set(re.findall(r"(\.ci/[\w-]+)", path.read_text(encoding="utf-8")))
    assert [name for name in named if not (ROOT / name).is_file()] == []


def test_the_release_is_published_with_the_identity_of_the_workflow_and_not_with_a_token() -> None:
    text = (ROOT / ".github" / "workflows" / "release.yml").read_text(encoding="utf-8")
    jobs = yaml.safe_load(text)["jobs"]
    assert jobs["pypi"]["permissions"] == {"id-token": "write"}
    assert jobs["build"]["needs"] == "checks"
    assert set(re.findall(r"secrets\.(\w+)", text)) == {"GITHUB_TOKEN"}
    attested = [step["with"]["subject-path"] for step in jobs["build"]["steps"] if "attest" in step.get("uses", "")]
    assert attested == ["dist/*", "dist/*"]


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.name)
def test_bash_can_parse_a_script(path: Path) -> None:
    done = subprocess.run(["bash", "-n", str(path)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert path.stat().st_mode & 0o100


def test_the_tests_of_the_core_import_no_package_of_another_extra() -> None:
    """`.ci/check-pythons` installs zstandard and httpx2 beside the core."""
    script = (ROOT / ".ci" / "check-pythons").read_text(encoding="utf-8")
    (folders,) = re.findall(r"^tests=\(tests/\{(\S+)\}", script, flags=re.MULTILINE)
    ignored = set(re.findall(r"--ignore (\S+)", script))
    paths = [path for folder in folders.split(",") for path in sorted((ROOT / "tests" / folder).rglob("test_*.py"))]
    extras = {module for _, modules in _EXTRAS.values() for module in modules if "." not in module}
    extras -= {"zstandard", "httpx2", "grpc"}
    found = [
        (str(path.relative_to(ROOT)), name)
        for path in paths
        if str(path.relative_to(ROOT)) not in ignored
        for name in re.findall(r"^(?:import|from) (\w+)", path.read_text(encoding="utf-8"), flags=re.MULTILINE)
        if name in extras
    ]
    assert found == []


def test_docker_sends_exactly_what_the_image_copies() -> None:
    sent = re.findall(r"^!(\S+)$", (ROOT / ".dockerignore").read_text(encoding="utf-8"), flags=re.MULTILINE)
    copies = re.findall(
        r"^COPY (?!--)(.+)$", (ROOT / "deploy" / "Dockerfile").read_text(encoding="utf-8"), re.MULTILINE
    )
    assert sorted(sent) == sorted(source for line in copies for source in line.split()[:-1])


# --- the Helm chart ---------------------------------------------------------------------------------------------------


def render_chart(release: str, *arguments: str) -> dict[tuple[str, str], dict[str, Any]]:
    """Return the manifests of the chart by kind and name, without the labels and annotations that Helm requires."""
    command = [str(helm_program()), "template", release, str(CHART), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return by_name(yaml.safe_load_all(done.stdout))


def by_name(manifests: Any) -> dict[tuple[str, str], dict[str, Any]]:
    named = {(each["kind"], each["metadata"]["name"]): each for each in map(without_labels, manifests) if each}
    for manifest in named.values():
        if manifest["kind"] == "ConfigMap":  # the order and the notation of the keys do not matter
            manifest["data"] = {name: yaml.safe_load(text) for name, text in manifest["data"].items()}
    return named


def without_labels(value: Any) -> Any:
    added = {"app.kubernetes.io/instance", "app.kubernetes.io/version", "app.kubernetes.io/managed-by", "helm.sh/chart"}
    if isinstance(value, Mapping):
        kept = {name: without_labels(each) for name, each in value.items() if name not in added}
        kept.pop("annotations", None)
        return kept
    return [without_labels(each) for each in value] if isinstance(value, list) else value


def manifests(name: str) -> dict[tuple[str, str], dict[str, Any]]:
    return by_name(yaml.safe_load_all((ROOT / "deploy" / name).read_text(encoding="utf-8")))


def pod_of(manifests: Mapping[tuple[str, str], dict[str, Any]]) -> dict[str, Any]:
    (stateful,) = (each for (kind, _), each in manifests.items() if kind == "StatefulSet")
    spec: dict[str, Any] = stateful["spec"]["template"]["spec"]
    return spec


@pytest.mark.e2e
@NEEDS_HELM
@pytest.mark.parametrize("values", ["values.yaml", "values-kafka.yaml"])
def test_helm_finds_no_fault_in_the_chart(values: str) -> None:
    command = [str(helm_program()), "lint", "--strict", str(CHART), "--values", str(CHART / values)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.e2e
@NEEDS_HELM
def test_the_chart_gives_the_manifests_of_kubernetes_yaml() -> None:
    rendered, written = render_chart("goldspan"), manifests("kubernetes.yaml")
    assert pod_of(rendered)["containers"][0].pop("image") == f"goldspan:{goldspan.__version__}"
    assert rendered.keys() == written.keys()
    for name, manifest in written.items():
        if name[0] == "StatefulSet":
            manifest["spec"]["template"]["spec"]["containers"][0].pop("image", None)
        assert rendered[name] == manifest


@pytest.mark.e2e
@NEEDS_HELM
def test_the_chart_gives_workers_that_do_what_those_of_the_kafka_manifest_do() -> None:
    """The names of the port, of the headless service and of the volume with the secrets differ."""
    rendered = render_chart("goldspan-kafka", "--values", str(CHART / "values-kafka.yaml"))
    written = manifests("kafka/workers.yaml")
    name = ("ConfigMap", "goldspan-kafka")
    assert rendered[name]["data"] == written[name]["data"]
    name = ("StatefulSet", "goldspan-kafka")
    assert rendered[name]["spec"]["replicas"] == written[name]["spec"]["replicas"]
    assert rendered[name]["spec"]["volumeClaimTemplates"] == written[name]["spec"]["volumeClaimTemplates"]
    here, there = pod_of(rendered), pod_of(written)
    assert here["securityContext"] == there["securityContext"]
    for key in ("args", "env", "resources", "securityContext"):
        assert here["containers"][0][key] == there["containers"][0][key]
    assert [port["containerPort"] for port in here["containers"][0]["ports"]] == [4318]
    assert {kind for kind, _ in rendered} == {kind for kind, _ in written}


@pytest.mark.e2e
@NEEDS_HELM
def test_the_chart_uses_a_secret_that_exists_and_creates_none() -> None:
    rendered = render_chart("prod", "--set", "tokens.existingSecret=vault,replicas=2,storage.className=fast")
    assert "Secret" not in {kind for kind, _ in rendered}
    assert {"name": "tokens", "secret": {"secretName": "vault", "defaultMode": 0o440}} in pod_of(rendered)["volumes"]
    spec = rendered["StatefulSet", "prod-goldspan"]["spec"]
    assert spec["replicas"] == 2
    assert spec["serviceName"] == "prod-goldspan-each"
    assert spec["volumeClaimTemplates"][0]["spec"]["storageClassName"] == "fast"


def test_the_default_values_have_the_form_that_the_chart_checks() -> None:
    schema = json.loads((CHART / "values.schema.json").read_text(encoding="utf-8"))
    values, kafka = load_yaml(CHART / "values.yaml"), load_yaml(CHART / "values-kafka.yaml")
    jsonschema.validate(values, schema)
    jsonschema.validate(kafka, schema)
    assert values.keys() == schema["properties"].keys() - {"global"}
    with pytest.raises(jsonschema.ValidationError, match="'replica' was unexpected"):
        jsonschema.validate({"replica": 2}, schema)


def test_the_settings_of_the_chart_are_those_of_kubernetes_yaml() -> None:
    """This needs no Helm. The gateway accepts the settings: tests/gateway/test_deploy.py."""
    values = load_yaml(CHART / "values.yaml")
    data = manifests("kubernetes.yaml")["ConfigMap", "goldspan"]["data"]
    assert {"goldspan.yaml": values["settings"], "goldens.yaml": values["goldens"]} == data
    pod = pod_of(manifests("kubernetes.yaml"))
    assert values["resources"] == pod["containers"][0]["resources"]
    assert values["terminationGracePeriodSeconds"] == pod["terminationGracePeriodSeconds"]
