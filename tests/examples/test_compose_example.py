"""The files of examples/compose agree with each other, and the programs that exist here run with them.

The Collector, the gateway and the agent are real processes instead of containers; their addresses differ.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml

from recipes.environments import COLLECTOR, collector_program, is_built
from support.collector_process import collecting
from support.docs_examples import ROOT, blocks, commands, matches
from support.gateway_process import eventually, serving
from support.promql_checks import Known, metrics_in, scraped

FOLDER = ROOT / "examples" / "compose"
DEPLOY = ROOT / "deploy"


def loaded(path: Path) -> Any:
    return yaml.safe_load(path.read_text(encoding="utf-8"))


COMPOSE = loaded(FOLDER / "compose.yaml")
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
PROMETHEUS = loaded(FOLDER / "prometheus.yaml")
(DATA_SOURCE,) = loaded(FOLDER / "grafana" / "datasources.yaml")["datasources"]
(PROVIDER,) = loaded(FOLDER / "grafana" / "dashboards.yaml")["providers"]
DASHBOARD = DEPLOY / "grafana-dashboard.json"
LISTENING = {
    "collector": {4317, 4318},
    "gateway": {4317, 4318},
    "grafana": {3000},
    "prometheus": {9090},
}
"""The ports of each service: those of its image, of deploy/Dockerfile, and of deploy/collector-in-front.yaml."""
VARIABLES = ("INGEST_TOKEN", "READ_TOKEN")
"""The variables that a user sets."""

needs_collector = pytest.mark.skipif(
    not is_built(COLLECTOR), reason="the Collector needs its environment: make recipes"
)


def mounts(service: str) -> dict[str, str]:
    """Return the mounted files and volumes of a service, by their path in the container."""
    pairs = (volume.split(":") for volume in SERVICES[service].get("volumes", ()))
    files = {target: source for source, target, *_ in pairs}
    secrets = {f"/run/secrets/{each['target']}": each["source"] for each in SERVICES[service].get("secrets", ())}
    return files | secrets


def file_at(service: str, path: str) -> Path:
    """Return the file on this machine that a container has at a path."""
    return (FOLDER / mounts(service)[path]).resolve()


def addresses() -> Iterator[str]:
    """Yield each address of a service that a file names, as `host:port`."""
    for service in SERVICES.values():
        for value in service.get("environment", {}).values():
            yield from re.findall(r"\bhttp://([\w.-]+:\d+)", value)
    overlay = loaded(FOLDER / "collector.yaml")["exporters"]
    yield from overlay["load_balancing"]["resolver"]["static"]["hostnames"]
    yield overlay["otlp_grpc/metrics"]["endpoint"]
    for scrape in PROMETHEUS["scrape_configs"]:
        for static in scrape["static_configs"]:
            yield from static["targets"]
    yield urlsplit(DATA_SOURCE["url"]).netloc


@pytest.mark.e2e
def test_the_compose_file_conforms_to_the_specification() -> None:
    check = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec"]
    done = subprocess.run([*check, FOLDER / "compose.yaml"], capture_output=True, encoding="utf-8", check=False)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("service", SERVICES)
def test_every_mounted_file_volume_and_secret_of_a_service_exists(service: str) -> None:
    declared = {*COMPOSE["volumes"], *COMPOSE["secrets"]}
    missing = [
        source
        for source in mounts(service).values()
        if source not in declared and not (source.startswith(".") and (FOLDER / source).is_file())
    ]
    assert missing == []
    build = SERVICES[service].get("build")
    assert build is None or (FOLDER / build["context"] / build["dockerfile"]).is_file()


def test_every_volume_secret_and_file_is_mounted() -> None:
    mounted = {source for service in SERVICES for source in mounts(service).values()}
    assert {*COMPOSE["volumes"], *COMPOSE["secrets"]} <= mounted
    files = {path for path in FOLDER.rglob("*") if path.is_file()} - {FOLDER / "README.md", FOLDER / "compose.yaml"}
    assert files <= {(FOLDER / source).resolve() for source in mounted}


def test_every_address_names_a_service_and_a_port_on_which_it_listens() -> None:
    found = sorted(set(addresses()))
    assert found == ["collector:4318", "gateway:4317", "gateway:4318", "prometheus:9090"]
    for address in found:
        host, port = address.split(":")
        assert host in SERVICES
        assert int(port) in LISTENING[host]
    for name, service in SERVICES.items():
        for published in service.get("ports", ()):
            interface, _, port = published.split(":")
            assert interface == "127.0.0.1"
            assert int(port) in LISTENING[name]
        assert set(service.get("depends_on", ())) <= SERVICES.keys()


def test_the_ports_are_those_of_the_image_and_of_the_collector() -> None:
    image = (DEPLOY / "Dockerfile").read_text(encoding="utf-8")
    assert {int(port) for port in re.findall(r"GOLDSPAN_(?:HTTP|GRPC)_PORT=(\d+)", image)} == LISTENING["gateway"]
    protocols = loaded(DEPLOY / "collector-in-front.yaml")["receivers"]["otlp"]["protocols"].values()
    assert {int(each["endpoint"].rpartition(":")[2]) for each in protocols} == LISTENING["collector"]


def test_every_path_in_a_command_or_a_setting_is_mounted() -> None:
    named = [("agent", SERVICES["agent"]["entrypoint"][1])]
    for service in ("collector", "prometheus"):
        named += [(service, option.partition("=")[2]) for option in SERVICES[service]["command"]]
    named += [(name, value) for name in ("gateway", "grafana") for value in SERVICES[name]["environment"].values()]
    named += [("prometheus", f"/etc/prometheus/{name}") for name in PROMETHEUS["rule_files"]]
    named += [("prometheus", each["authorization"]["credentials_file"]) for each in PROMETHEUS["scrape_configs"]]
    assert [(name, path) for name, path in named if path.startswith("/") and path not in mounts(name)] == []


def test_the_collector_and_the_gateway_have_the_same_token_and_prometheus_may_read() -> None:
    gateway, secrets = SERVICES["gateway"]["environment"], COMPOSE["secrets"]
    ingest = secrets[mounts("gateway")[gateway["GOLDSPAN_TOKEN_FILE"]]]["environment"]
    read = mounts("gateway")[gateway["GOLDSPAN_READ_TOKEN_FILE"]]
    assert (ingest, secrets[read]["environment"]) == VARIABLES
    assert SERVICES["collector"]["environment"]["GOLDSPAN_TOKEN"].startswith(f"${{{ingest}:?")
    (scrape,) = PROMETHEUS["scrape_configs"]
    assert mounts("prometheus")[scrape["authorization"]["credentials_file"]] == read


def test_prometheus_has_the_job_and_the_rules_of_deploy() -> None:
    original = loaded(DEPLOY / "prometheus.yaml")
    assert [each["job_name"] for each in PROMETHEUS["scrape_configs"]] == [
        each["job_name"] for each in original["scrape_configs"]
    ]
    for name in PROMETHEUS["rule_files"]:
        assert file_at("prometheus", f"/etc/prometheus/{name}") == DEPLOY / name
    assert PROMETHEUS["rule_files"] == original["rule_files"]


def test_grafana_finds_prometheus_and_the_dashboard_whose_queries_other_tests_check() -> None:
    assert (DATA_SOURCE["type"], DATA_SOURCE["isDefault"]) == ("prometheus", True)
    dashboards = [path for path in mounts("grafana") if path.startswith(PROVIDER["options"]["path"] + "/")]
    assert [file_at("grafana", path) for path in dashboards] == [DASHBOARD]
    assert [SERVICES["grafana"]["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"]] == dashboards
    for folder, name in (("datasources", "datasources.yaml"), ("dashboards", "dashboards.yaml")):
        provisioned = f"/etc/grafana/provisioning/{folder}/goldspan.yaml"
        assert file_at("grafana", provisioned) == FOLDER / "grafana" / name
        assert loaded(FOLDER / "grafana" / name)["apiVersion"] == 1


@pytest.mark.e2e
@needs_collector
def test_the_collector_accepts_its_files() -> None:
    files = [file_at("collector", option.partition("=")[2]) for option in SERVICES["collector"]["command"]]
    done = subprocess.run(
        [collector_program(), "validate", *(f"--config={file}" for file in files)],
        env={**os.environ, "GOLDSPAN_TOKEN": "a-token"},
        capture_output=True,
        encoding="utf-8",
        check=False,
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.e2e
@needs_collector
def test_the_runs_of_the_agent_are_those_of_the_readme_and_the_dashboard_has_their_metrics(tmp_path: Path) -> None:
    tokens = {"GOLDSPAN_TOKEN": "ingest-token", "GOLDSPAN_READ_TOKEN": "read-token"}
    as_in_the_image = {"GOLDSPAN_HOST": "0.0.0.0"}  # another address would not accept the name `gateway`
    goldens = file_at("gateway", SERVICES["gateway"]["environment"]["GOLDSPAN_GOLDENS"])
    with serving(
        tmp_path, "--goldens", str(goldens), "--grace", "0.1", grpc=True, environment=tokens | as_in_the_image
    ) as gateway:
        text = (FOLDER / "collector.yaml").read_text(encoding="utf-8")
        overlay = yaml.safe_load(text.replace("gateway:4317", f"127.0.0.1:{gateway.grpc_port}"))
        with collecting("collector-in-front.yaml", tmp_path / "collector", overlay, tokens) as collector:
            endpoint = f"http://127.0.0.1:{collector.http_port}"
            agent = subprocess.Popen(
                [sys.executable, file_at("agent", SERVICES["agent"]["entrypoint"][1])],
                env={**os.environ, "OTEL_EXPORTER_OTLP_ENDPOINT": endpoint, "OTEL_BSP_SCHEDULE_DELAY": "50"},
            )
            try:
                eventually(lambda: len(_watched(gateway.address).splitlines()) >= 4, lambda: gateway.log)
            finally:
                agent.kill()
                agent.wait()
        block = next(each for each in blocks((FOLDER / "README.md").read_text(encoding="utf-8")))
        (shown,) = (each.shown for each in commands(block.text) if "goldspan watch" in each.text)
        first = "".join(_watched(gateway.address).splitlines(keepends=True)[:4])
        assert matches(shown, first), first
        exported = _scraped_as_by_prometheus(gateway.address, tokens["GOLDSPAN_READ_TOKEN"])
    assert _metrics_of_the_panel("Pass rate") <= exported.keys()


def _watched(address: str) -> str:
    command = [sys.executable, "-m", "goldspan", "watch", address, "--once"]
    environment = {**os.environ, "GOLDSPAN_READ_TOKEN": "read-token", "NO_PROXY": "*"}
    return subprocess.run(command, env=environment, capture_output=True, encoding="utf-8", check=True).stdout


def _scraped_as_by_prometheus(address: str, token: str) -> Known:
    (scrape,) = PROMETHEUS["scrape_configs"]
    request = urllib.request.Request(address + "/metrics")
    request.add_header("Authorization", f"Bearer {token}")
    request.add_header("Host", scrape["static_configs"][0]["targets"][0])
    with urllib.request.urlopen(request) as answer:
        return scraped(answer.read().decode(), job=scrape["job_name"])


def _metrics_of_the_panel(title: str) -> set[str]:
    panels = json.loads(DASHBOARD.read_text(encoding="utf-8"))["panels"]
    (panel,) = (each for each in panels if each["title"] == title)
    queries = (re.sub(r"\$__\w+", "1m", target["expr"]) for target in panel["targets"])
    return {name for query in queries for name in metrics_in(query)}
