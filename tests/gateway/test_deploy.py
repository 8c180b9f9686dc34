"""Tests of the files in deploy/: their programs can read them, and they use only settings and paths that exist."""

from __future__ import annotations

import configparser
import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from goldspan.cli.app import app
from goldspan.gateway.receivers.authorization import PUBLIC_PATHS
from goldspan.gateway.resource_limits import ResourceLimits
from goldspan.gateway.settings.gateway_settings import GatewaySettings, JudgeConfig, TelemetryConfig
from goldspan.gateway.settings.kafka_config import KafkaConfig
from goldspan.gateway.settings.settings_loader import load_settings, variable_name
from support.docs_examples import ROOT
from support.gateway_process import eventually, free_port, serving

DEPLOY = ROOT / "deploy"
FILES = sorted(file for folder in (DEPLOY, DEPLOY / "kafka") for file in folder.iterdir() if file.is_file())


def text_of(name: str) -> str:
    return (DEPLOY / name).read_text(encoding="utf-8")


def variables() -> set[str]:
    """Returns every environment variable that the gateway reads."""
    nested = {
        "limits": ResourceLimits.__dataclass_fields__,
        "judge": JudgeConfig.model_fields,
        "kafka": KafkaConfig.model_fields,
        "telemetry": TelemetryConfig.model_fields,
    }
    plain = {variable_name(name) for name in GatewaySettings.model_fields if name not in nested}
    return plain | {variable_name(f"{name}.{field}") for name, fields in nested.items() for field in fields}


def load_with(
    monkeypatch: pytest.MonkeyPatch, folder: Path, environment: Mapping[str, str], path: Path | None = None
) -> GatewaySettings:
    """Returns the settings of a file and an environment, on a machine with token files."""
    monkeypatch.chdir(folder)
    for name, value in environment.items():
        if name.endswith("TOKEN_FILE"):
            value = str(folder / name)
            Path(value).write_text("a-token")
            Path(value).chmod(0o600)
        monkeypatch.setenv(name, value)
    return load_settings(path)


# --- Docker -----------------------------------------------------------------------------------------------------------


def instructions() -> list[tuple[str, str]]:
    """Returns the instructions of the Dockerfile with their arguments, with continued lines joined."""
    text = re.sub(r"^#.*\n", "", text_of("Dockerfile"), flags=re.MULTILINE)
    lines = re.sub(r"\\\n\s*", "", text).splitlines()
    return [(name, rest.strip()) for name, _, rest in (line.partition(" ") for line in lines if line)]


def last_stage() -> dict[str, str]:
    """Returns the last argument of each instruction."""
    said = instructions()
    start = max(at for at, (name, _) in enumerate(said) if name == "FROM")
    return dict(said[start:])


def image_environment() -> dict[str, str]:
    return dict(pair.split("=", 1) for pair in shlex.split(last_stage()["ENV"].replace("$PATH", "")))


def test_the_dockerfile_uses_only_instructions_of_docker() -> None:
    known = {"ARG", "CMD", "COPY", "ENTRYPOINT", "ENV", "EXPOSE", "FROM", "HEALTHCHECK", "RUN", "STOPSIGNAL", "USER"}
    said = [name for name, _ in instructions()]
    assert set(said) <= known | {"VOLUME", "WORKDIR"}
    assert said[0] == "FROM"
    for name in ("ENTRYPOINT", "HEALTHCHECK"):
        assert json.loads(re.sub(r"^.*CMD ", "", last_stage()[name]))


def test_the_image_is_slim_runs_unprivileged_and_contains_no_secret() -> None:
    stage = last_stage()
    assert stage["FROM"].endswith("-slim")
    user, _, group = stage["USER"].partition(":")
    assert int(user) > 0
    assert int(group) > 0
    assert not [name for name in image_environment() if name.endswith("TOKEN")]
    assert shlex.split(stage["EXPOSE"]) == [image_environment()[f"GOLDSPAN_{way}_PORT"] for way in ("GRPC", "HTTP")]
    assert stage["VOLUME"] == stage["WORKDIR"] == image_environment()["GOLDSPAN_DATA"]
    copied = [
        source for name, said in instructions() if name == "COPY" for source in said.split()[:-1] if "=" not in source
    ]
    assert all((ROOT / source).exists() for source in copied if not source.startswith("/"))


def test_the_image_needs_tokens_to_listen_on_all_addresses(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    environment = {name: value for name, value in image_environment().items() if name.startswith("GOLDSPAN_")}
    with pytest.raises(Exception, match=r"0\.0\.0\.0 is reachable from other machines and no tokens are set"):
        load_with(monkeypatch, tmp_path, environment)
    settings = load_with(monkeypatch, tmp_path, {**environment, "GOLDSPAN_TOKEN_FILE": "secret"})
    assert (settings.host, settings.ingest_tokens, settings.insecure) == ("0.0.0.0", ("a-token",), False)


@pytest.mark.e2e
def test_the_health_check_of_the_image_succeeds_only_with_a_running_gateway(tmp_path: Path) -> None:
    python, *rest = json.loads(re.sub(r"^.*CMD ", "", last_stage()["HEALTHCHECK"]))
    assert python == "python"

    def check(port: int) -> int:
        command = [sys.executable, *(part.replace(":4318/", f":{port}/") for part in rest)]
        return subprocess.run(command, stderr=subprocess.DEVNULL, check=False).returncode

    with serving(tmp_path) as gateway:
        assert check(gateway.http_port) == 0
    assert check(free_port()) != 0


# --- compose ----------------------------------------------------------------------------------------------------------


def test_compose_connects_the_agent_to_the_gateway_and_the_gateway_to_jaeger(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    compose = yaml.safe_load(text_of("compose.yaml"))
    gateway, agent = compose["services"]["gateway"], compose["services"]["agent"]
    settings = load_with(monkeypatch, tmp_path, {**_ours(image_environment()), **gateway["environment"]})
    (behind,) = settings.back_ends
    assert behind.endpoint.split("//")[1].split(":")[0] in compose["services"]
    assert agent["environment"]["OTEL_EXPORTER_OTLP_ENDPOINT"] == f"http://gateway:{settings.http_port}"
    assert {port.rpartition(":")[2] for port in gateway["ports"]} == {str(settings.http_port), str(settings.grpc_port)}
    assert all(
        port.startswith("127.0.0.1:") for service in compose["services"].values() for port in service.get("ports", ())
    )
    assert {secret["source"] for secret in gateway["secrets"]} == set(compose["secrets"])
    assert {f"/run/secrets/{secret['target']}" for secret in gateway["secrets"]} == {
        gateway["environment"][f"GOLDSPAN_{way}TOKEN_FILE"] for way in ("", "READ_")
    }
    mounted = dict(volume.split(":")[:2] for service in (gateway, agent) for volume in service["volumes"])
    assert all((DEPLOY / source).exists() for source in mounted if source.startswith("."))
    assert {*settings.goldens, str(settings.data), agent["entrypoint"][1]} <= set(mounted.values())
    assert set(compose["volumes"]) == {source for source in mounted if not source.startswith(".")}


@pytest.mark.e2e
def test_the_agent_of_compose_passes_its_goldens(tmp_path: Path) -> None:
    with serving(tmp_path, "--goldens", str(DEPLOY / "goldens.yaml"), "--grace", "0.2") as gateway:
        agent = subprocess.Popen(
            [sys.executable, DEPLOY / "agent.py"],
            env={**os.environ, "OTEL_EXPORTER_OTLP_ENDPOINT": gateway.address, "OTEL_BSP_SCHEDULE_DELAY": "50"},
        )
        try:
            passed = "/api/v1/runs?verdict=pass&agent=travel"
            eventually(lambda: bool(gateway.get(passed)["runs"]), lambda: gateway.log)
        finally:
            agent.kill()
            agent.wait()


# --- systemd ----------------------------------------------------------------------------------------------------------


def unit() -> configparser.ConfigParser:
    parser = configparser.ConfigParser(strict=False, interpolation=None, empty_lines_in_values=False)
    parser.optionxform = str  # type: ignore[assignment]
    parser.read_string(text_of("goldspan.service"))
    return parser


def test_the_systemd_unit_is_hardened() -> None:
    service = unit()["Service"]
    wanted = {
        "DynamicUser": "yes", "NoNewPrivileges": "yes", "ProtectSystem": "strict", "ProtectHome": "yes",
        "PrivateTmp": "yes", "PrivateDevices": "yes", "CapabilityBoundingSet": "", "StateDirectory": "goldspan",
        "MemoryDenyWriteExecute": "yes", "LockPersonality": "yes", "RestrictNamespaces": "yes",
    }  # fmt: skip
    assert {name: service[name] for name in wanted} == wanted
    assert unit().sections() == ["Unit", "Service", "Install"]


def test_the_systemd_unit_uses_its_own_folder_and_credentials(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    said = re.findall(r"^Environment=(\w+)=(.*)$", text_of("goldspan.service"), flags=re.MULTILINE)
    environment = {name: value.replace("%S", "/var/lib") for name, value in said}
    settings = load_with(monkeypatch, tmp_path, environment, DEPLOY / "goldspan.yaml")
    assert settings.data == Path("/var/lib", unit()["Service"]["StateDirectory"])
    credentials = re.findall(r"^LoadCredential=([\w-]+):", text_of("goldspan.service"), flags=re.MULTILINE)
    assert {value for _, value in said if value.startswith("%d/")} == {f"%d/{name}" for name in credentials}
    assert int(unit()["Service"]["TimeoutStopSec"]) > settings.drain_seconds


# --- Kubernetes -------------------------------------------------------------------------------------------------------


def manifests(name: str = "kubernetes.yaml") -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = {}
    for manifest in yaml.safe_load_all(text_of(name)):
        assert {"apiVersion", "kind", "metadata"} <= set(manifest)
        found.setdefault(manifest["kind"], []).append(manifest)
    return found


@pytest.mark.parametrize(("name", "secrets"), [("kubernetes.yaml", "tokens"), ("kafka/workers.yaml", "secrets")])
def test_the_kubernetes_manifests_are_consistent(name: str, secrets: str) -> None:
    found = manifests(name)
    (stateful,), (secret,), (config) = found["StatefulSet"], found["Secret"], found["ConfigMap"]
    pod = stateful["spec"]["template"]
    (container,) = pod["spec"]["containers"]
    labels = pod["metadata"]["labels"]
    assert stateful["spec"]["selector"]["matchLabels"] == labels
    assert all(service["spec"]["selector"] == labels for service in found["Service"])
    assert stateful["spec"]["serviceName"] in {service["metadata"]["name"] for service in found["Service"]}
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    for service in found["Service"]:
        assert all(ports[port["targetPort"]] == port["port"] for port in service["spec"]["ports"])
    volumes = {volume["name"]: volume for volume in pod["spec"]["volumes"]}
    claimed = {claim["metadata"]["name"] for claim in stateful["spec"]["volumeClaimTemplates"]}
    assert {mount["name"] for mount in container["volumeMounts"]} == {*volumes, *claimed}
    assert volumes[secrets]["secret"]["secretName"] == secret["metadata"]["name"]
    assert volumes["settings"]["configMap"]["name"] == config[0]["metadata"]["name"]
    for name in ("startupProbe", "livenessProbe", "readinessProbe"):
        probe = container[name]["httpGet"]
        assert probe["path"] in PUBLIC_PATHS
        assert ports[probe["port"]] == 4318
    assert container["resources"].keys() == {"requests", "limits"}
    assert container["securityContext"]["readOnlyRootFilesystem"]
    assert pod["spec"]["securityContext"]["runAsNonRoot"]
    assert str(pod["spec"]["securityContext"]["runAsUser"]) == last_stage()["USER"].split(":")[0]


def test_the_kubernetes_settings_are_valid_settings_of_the_gateway(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (config,), (secret,), (stateful,) = (manifests()[kind] for kind in ("ConfigMap", "Secret", "StatefulSet"))
    spec = stateful["spec"]["template"]["spec"]
    (container,) = spec["containers"]
    environment = {variable["name"]: variable["value"] for variable in container["env"]}
    mounted = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
    assert {Path(path).name for path in environment.values()} == set(secret["stringData"])
    assert {str(Path(path).parent) for path in environment.values()} == {mounted["tokens"]}
    assert not any(secret["stringData"].values()), "a token that everybody knows is none"
    assert container["args"] == ["--config", f"{mounted['settings']}/goldspan.yaml"]
    path = tmp_path / "goldspan.yaml"
    path.write_text(config["data"]["goldspan.yaml"])
    settings = load_with(monkeypatch, tmp_path, {**_ours(image_environment()), **environment}, path)
    assert str(settings.data) == mounted["data"]
    assert settings.goldens == (f"{mounted['settings']}/goldens.yaml",)
    assert settings.drain_seconds < spec["terminationGracePeriodSeconds"]
    (tmp_path / "goldens.yaml").write_text(config["data"]["goldens.yaml"])
    assert _cli("goldens", "check", str(tmp_path / "goldens.yaml")).exit_code == 0


@pytest.mark.parametrize("topic", ["otlp_spans", "goldspan_evaluations", "goldspan_spans"])
def test_the_manifest_of_the_topics_creates_the_default_topics(topic: str) -> None:
    (job,) = manifests("kafka/topics.yaml")["Job"]
    (container,) = job["spec"]["template"]["spec"]["containers"]
    assert f"create {topic} --partitions 12" in container["args"][0]
    assert topic in {KafkaConfig().topic, KafkaConfig().results_topic, KafkaConfig().keyed_topic}


def test_the_settings_of_the_kafka_workers_are_valid(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    found = manifests("kafka/workers.yaml")
    (config,), (secret,), (stateful,) = (found[kind] for kind in ("ConfigMap", "Secret", "StatefulSet"))
    spec = stateful["spec"]["template"]["spec"]
    (container,) = spec["containers"]
    mounted = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
    assert not any(secret["stringData"].values()), "a token that everybody knows is none"
    environment = {each["name"]: each.get("value", "goldspan-kafka-0") for each in container["env"]}
    options = tmp_path / "options"
    options.write_text("security.protocol=SASL_SSL\nsasl.mechanism=SCRAM-SHA-512\nsasl.username=u\nsasl.password=p\n")
    options.chmod(0o600)
    path = tmp_path / "goldspan.yaml"
    path.write_text(config["data"]["goldspan.yaml"].replace(f"{mounted['secrets']}/options", str(options)))
    settings = load_with(monkeypatch, tmp_path, {**_ours(image_environment()), **environment}, path)
    kafka = settings.kafka_settings()
    assert kafka is not None
    assert (kafka.instance_id, kafka.options["sasl.password"]) == ("goldspan-kafka-0", "p")
    assert settings.drain_seconds < spec["terminationGracePeriodSeconds"]
    assert set(secret["stringData"]) == {"read", "options"}


def test_the_collector_writes_the_topics_that_the_workers_read() -> None:
    exporter = yaml.safe_load(text_of("kafka/collector.yaml"))["exporters"]["kafka"]
    assert exporter["partition_traces_by_id"] is True
    assert exporter["traces"] == {"topic": KafkaConfig().topic, "encoding": "otlp_proto"}


# --- the Collector, and all of them -----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["collector-in-front.yaml", "collector-behind.yaml", "kafka/collector.yaml"])
def test_the_collector_pipelines_use_exactly_the_configured_components(name: str) -> None:
    collector = yaml.safe_load(text_of(name))
    used = {("extensions", name) for name in collector["service"].get("extensions", ())}
    for pipeline in collector["service"]["pipelines"].values():
        used |= {(kind, component) for kind, components in pipeline.items() for component in components}
    configured = {(kind, each) for kind, each in _components(collector)}
    assert used == configured


def _components(collector: dict[str, Any]) -> Iterator[tuple[str, str]]:
    for kind in ("extensions", "receivers", "processors", "exporters"):
        yield from ((kind, name) for name in collector.get(kind, ()))


def test_the_collector_in_front_routes_a_trace_to_one_gateway() -> None:
    collector = yaml.safe_load(text_of("collector-in-front.yaml"))
    balancing = collector["exporters"]["load_balancing"]
    assert balancing["routing_key"] == "traceID"
    assert len(balancing["resolver"]["static"]["hostnames"]) > 1
    assert {place.rpartition(":")[2] for place in balancing["resolver"]["static"]["hostnames"]} == {"4317"}
    headless = [service for service in manifests()["Service"] if service["spec"].get("clusterIP") == "None"]
    assert f"{headless[0]['metadata']['name']}.default.svc" in text_of("collector-in-front.yaml")


def test_the_example_settings_are_valid(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    settings = load_with(monkeypatch, tmp_path, {}, DEPLOY / "goldspan.yaml")
    assert [behind.name for behind in settings.back_ends] == ["collector"]
    assert settings.is_loopback
    commented = re.sub(r"^#(  .*)$", r"\1", text_of("goldspan.yaml"), flags=re.MULTILINE)
    (tmp_path / "all.yaml").write_text(commented)
    settings = load_with(
        monkeypatch, tmp_path, {"VENDOR_TOKEN": "secret", "OPENAI_API_KEY": "k"}, tmp_path / "all.yaml"
    )
    assert [behind.name for behind in settings.back_ends] == ["collector", "vendor"]
    assert settings.judge.model is not None


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_every_named_variable_and_option_of_the_gateway_exists(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert set(re.findall(r"\bGOLDSPAN_[A-Z_]+\b", text)) <= variables()
    commands = re.findall(r"goldspan serve ((?:--?[\w-]+ ?\S* ?)+)", text)
    named = {option for command in commands for option in re.findall(r"--[\w-]+", command)}
    help_text = _cli("serve", "--help").output
    assert {option for option in named if option not in help_text} == set()


def _cli(*arguments: str) -> Any:
    return CliRunner().invoke(app, arguments, env={"COLUMNS": "200", "TERM": "dumb", "NO_COLOR": "1"})


def _ours(environment: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in environment.items() if name.startswith("GOLDSPAN_")}
