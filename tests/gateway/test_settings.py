"""Tests of the settings in goldspan.yaml, environment and flags, and of the error messages."""

from __future__ import annotations

import json
import os
import pickle
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import jsonschema
import pytest
import yaml
from pydantic import ValidationError

from goldspan.capture import environment as of_processor
from goldspan.errors import ConfigurationError, GoldspanWarning
from goldspan.gateway.resource_limits import ResourceLimits
from goldspan.gateway.settings.gateway_settings import GatewaySettings, JudgeConfig, TelemetryConfig
from goldspan.gateway.settings.settings_display import print_config, settings_json_schema, startup_lines
from goldspan.gateway.settings.settings_loader import load_settings, variable_name
from goldspan.judge.judge import SETTING_NAMES, JudgeSettings

SECRET = "s3cr3t-of-mine"


@pytest.fixture(autouse=True)
def _isolated_folder_and_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in [name for name in os.environ if name.startswith("GOLDSPAN_")]:
        monkeypatch.delenv(name)


@pytest.fixture
def write_settings(tmp_path: Path) -> Callable[[str], Path]:
    """Writes goldspan.yaml."""

    def write(text: str) -> Path:
        path = tmp_path / "goldspan.yaml"
        path.write_text(text, encoding="utf-8")
        return path

    return write


WriteSettings = Callable[[str], Path]


def secret_file(path: Path, text: str) -> Path:
    path.write_text(text)
    path.chmod(0o600)
    return path


def refusal(**flags: object) -> str:
    with pytest.raises(ConfigurationError) as raised:
        load_settings(None, flags)
    return str(raised.value)


# --- precedence -------------------------------------------------------------------------------------------------------


def test_the_defaults_listen_on_the_loopback_interface_and_forward_nothing() -> None:
    settings = load_settings()
    assert (settings.host, settings.http_port, settings.grpc_port) == ("127.0.0.1", 4318, 4317)
    assert settings.is_loopback
    assert settings.back_ends == settings.results == settings.ingest_tokens == settings.read_tokens == ()
    assert settings.limits == ResourceLimits()


def test_flags_override_the_environment_and_the_environment_overrides_the_file(
    write_settings: WriteSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_settings("http_port: 1\ngrpc_port: 2\nidle: 3\nlimits: {max_spans: 4, max_ratio: 5}\n")
    monkeypatch.setenv("GOLDSPAN_GRPC_PORT", "20")
    monkeypatch.setenv("GOLDSPAN_IDLE", "30")
    monkeypatch.setenv("GOLDSPAN_LIMITS__MAX_SPANS", "40")
    settings = load_settings(None, {"idle": 300})
    assert (settings.http_port, settings.grpc_port, settings.idle) == (1, 20, 300)
    assert settings.limits == ResourceLimits(max_spans=40, max_ratio=5)


def test_an_explicit_file_replaces_goldspan_yaml(write_settings: WriteSettings, tmp_path: Path) -> None:
    write_settings("workers: 2\n")
    (tmp_path / "other.yaml").write_text("grace: 1\n")
    settings = load_settings(tmp_path / "other.yaml")
    assert (settings.workers, settings.grace) == (1, 1)


@pytest.mark.parametrize("text", ["", "# nothing yet\n", "limits:\ntelemetry:\n", "~\n"])
def test_an_empty_file_gives_the_defaults(write_settings: WriteSettings, text: str) -> None:
    write_settings(text)
    assert dict(load_settings()) == dict(GatewaySettings())


def test_an_empty_variable_is_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GOLDSPAN_HTTP_PORT", "")
    assert load_settings().http_port == 4318


def test_settings_created_in_code_read_neither_file_nor_environment(
    write_settings: WriteSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_settings("http_port: 1\n")
    monkeypatch.setenv("GOLDSPAN_GRPC_PORT", "2")
    assert dict(GatewaySettings()) == dict(GatewaySettings(http_port=4318, grpc_port=4317))


def test_lists_in_variables_are_separated_by_commas(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, text in {
        "GOLDENS": "a.yaml, b.yaml",
        "FORWARD": "http://one:4318,grpc://two:4317",
        "RESULTS": "spans,events",
        "UNITS": "request",
        "METRICS": "tool_recall",
        "THRESHOLDS": "tool_recall=0.5, passed=1",
        "GOLDEN_ID_ATTRIBUTE": "case,test",
        "ALLOWED_HOSTS": "one.example,two.example",
        "TELEMETRY__ENDPOINT": "http://three:4318",
        "NEAR": "off",
    }.items():
        monkeypatch.setenv(f"GOLDSPAN_{name}", text)
    settings = load_settings()
    assert settings.goldens == ("a.yaml", "b.yaml")
    assert [back_end.protocol for back_end in settings.back_ends] == ["http", "grpc"]
    assert settings.results == ("events", "spans")
    assert (settings.units, settings.metrics) == (("request",), ("tool_recall",))
    assert settings.thresholds == {"tool_recall": 0.5, "passed": 1}
    assert settings.golden_id_attributes == ("case", "test")
    assert settings.host_names == {"one.example", "two.example", "localhost", "127.0.0.1", "::1"}
    assert settings.telemetry.endpoint == "http://three:4318"
    assert settings.near is None


def test_back_ends_with_headers_can_be_set_as_json_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KEY", SECRET)
    monkeypatch.setenv("GOLDSPAN_FORWARD", '{"endpoint": "https://one", "headers": {"x-key": "${KEY}"}}')
    (back_end,) = load_settings().back_ends
    assert back_end.headers == {"x-key": SECRET}


def test_variables_shared_with_the_processor_have_the_same_meaning(monkeypatch: pytest.MonkeyPatch) -> None:
    said = {
        "GOLDENS": "a.yaml,b.yaml",
        "NEAR": "80",
        "MARGIN": "2",
        "GOLDEN_ID_ATTRIBUTE": "case",
        "METRICS": "tool_recall",
        "THRESHOLDS": "tool_recall=0.5",
        "UNITS": "request",
        "UNKNOWN": "ignore",
        "BUDGET": "2",
        "IDLE": "7",
        "LIFETIME": "8",
        "LATE": "9",
    }
    for name, text in said.items():
        monkeypatch.setenv(f"GOLDSPAN_{name}", text)
    there, here = of_processor.read_environment(), load_settings()
    judging = ("metrics", "thresholds", "units", "unknown", "budget")
    for field in ("goldens", "near", "margin", "golden_id_attributes", *judging):
        assert getattr(here, field) == getattr(there, field), field
    assert (here.idle, here.lifetime, here.late) == (there.idle, there.lifetime, there.late)


def test_judge_variables_have_the_same_meaning_in_the_processor(monkeypatch: pytest.MonkeyPatch) -> None:
    said = {
        "MODEL": "m",
        "URL": "http://models:1/v1",
        "API_KEY": "k",
        "SAMPLE": "0.5",
        "COMBINATION": "min",
        "THRESHOLD": "0.7",
        "VOTES": "3",
        "TEMPERATURE": "off",
        "SEED": "4",
        "SHOW": "names",
        "EXPLAIN": "on",
        "TIMEOUT": "5",
        "CONCURRENCY": "6",
        "DAILY_TOKENS": "off",
        "DAILY_COST": "7.5",
        "PRICES": "0.25,2",
        "CACHE": "answers.db",
        "ANSWER_FORM": "text",
        "MAX_TOKENS": "800",
        "EXTRA": '{"reasoning_effort": "low"}',
    }
    for name, text in said.items():
        monkeypatch.setenv(f"GOLDSPAN_JUDGE_{name}", text)
    there = JudgeSettings(**of_processor.read_environment().arguments_for("judge"))
    settings = load_settings()
    assert settings.judge.to_judge_settings(settings.data) == replace(there, cache=Path("answers.db"))
    assert {name.lower() for name in said} == JudgeConfig.model_fields.keys() == set(SETTING_NAMES)


def test_the_defaults_of_the_judge_are_those_of_the_library() -> None:
    assert JudgeConfig().to_judge_settings(Path("data")) is None
    assert JudgeConfig(model="m").to_judge_settings(Path("data")) == JudgeSettings(
        model="m", cache=Path("data/judge.db")
    )


def test_the_openai_judge_uses_openai_api_key(write_settings: WriteSettings, monkeypatch: pytest.MonkeyPatch) -> None:
    write_settings("judge: {model: m}")
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    told = refusal()
    assert told.startswith("goldspan.yaml, judge.model: the judge needs a key for https://api.openai.com/v1: ")
    monkeypatch.setenv("OPENAI_API_KEY", SECRET)
    assert load_settings().judge.model == "m"
    assert not Path("goldspan-data").exists()  # no file was opened


def test_the_processor_reports_no_variable_of_the_gateway_as_misspelled() -> None:
    paths = [*GatewaySettings.model_fields, *(f"limits.{name}" for name in ResourceLimits.__dataclass_fields__)]
    paths += [f"telemetry.{name}" for name in TelemetryConfig.model_fields]
    paths += [f"judge.{name}" for name in JudgeConfig.model_fields]
    assert of_processor.misspelled_variables({variable_name(path): "" for path in paths}) == []


def test_variables_of_the_processor_and_of_kubernetes_are_ignored(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    own = {
        variable_name(path)
        for path in (*GatewaySettings.model_fields, *(f"judge.{name}" for name in JudgeConfig.model_fields))
    }
    for variable in of_processor.VARIABLES:
        if variable.name not in own:
            monkeypatch.setenv(variable.name, "whatever")
    for name in ("SERVICE_HOST", "SERVICE_PORT", "SERVICE_PORT_HTTP", "PORT", "PORT_4318_TCP", "PORT_4318_TCP_ADDR"):
        monkeypatch.setenv(f"GOLDSPAN_{name}", "tcp://10.0.0.1:4318")
    assert dict(load_settings()) == dict(GatewaySettings())


# --- mistakes ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("http_prt: 1", ": unknown setting 'http_prt'; did you mean 'http_port'?"),
        ("limits: {max_span: 1}", ": unknown setting 'limits.max_span'; did you mean 'limits.max_spans'?"),
        ("max_body_bytes: 1", ": unknown setting 'max_body_bytes'; did you mean 'limits.max_body_bytes'?"),
        ("telemetry: {zzzz: 1}", ": unknown setting 'telemetry.zzzz'; the settings are endpoint, interval and headers"),
        ("workers: two", ", workers: must be an integer, not 'two'"),
        ("workers: 33", ", workers: must be at most 32, not 33"),
        ("workers: 1.5", ", workers: must be an integer, not 1.5"),
        ("idle: 0", ", idle: must be above 0, not 0"),
        ("idle: .inf", ", idle: must be a finite number, not inf"),
        ("grace: -1", ", grace: must be at least 0, not -1"),
        ("enrich: perhaps", ", enrich: must be true or false, not 'perhaps'"),
        ("host: ''", ", host: must not be empty, not ''"),
        ("host: 3", ", host: must be text, not 3"),
        ("goldens: 3", ", goldens: must be a list, not 3"),
        ("data: [a]", ", data: must be a path"),
        ("log_format: xml", ", log_format: must be text or json, not 'xml'"),
        ("results: [events, wishes]", ", results[1]: must be events, metrics, spans or attributes, not 'wishes'"),
        ("limits: 3", ", limits: must be a mapping, not 3"),
        ("limits: {max_spans: 0}", ", limits.max_spans: must be an integer of at least 1, not 0"),
        ("limits: {max_spans: many}", ", limits.max_spans: must be an integer, not 'many'"),
        ("telemetry: 3", ", telemetry: must be a mapping, not 3"),
        (
            "telemetry: {endpoint: collector}",
            ", telemetry.endpoint: must look like http://collector:4318; passwords and keys belong in headers",
        ),
        ("judge: m", ", judge: must be a mapping, not 'm'"),
        ("judge: {modle: m}", ": unknown setting 'judge.modle'; did you mean 'judge.model'?"),
        ("judge: {model: ''}", ", judge.model: must not be empty, not ''"),
        ("judge: {sample: 2}", ", judge.sample: must be at most 1, not 2"),
        ("judge: {show: some}", ", judge.show: must be names, arguments or all, not 'some'"),
        ("judge: {combination: max}", ", judge.combination: must be apart or min, not 'max'"),
        ("judge: {votes: 0}", ", judge.votes: must be at least 1, not 0"),
        ("judge: {seed: -1}", ", judge.seed: must be at least 0, not -1"),
        ("judge: {url: models}", ", judge.url: must look like https://api.openai.com/v1; keys belong in api_key"),
        ("judge: {daily_cost: 1}", ", judge.daily_cost: requires prices: the cost of one million tokens"),
        (
            "judge: {prices: [1]}",
            ", judge.prices: must be two prices, for one million input tokens and output tokens: ",
        ),
        ("judge: {prices: [1, x]}", ", judge.prices[1]: must be a number, not 'x'"),
        ("judge: {extra: low}", ", judge.extra: must be a JSON object"),
        ("thresholds: tool_recall", ", thresholds: must look like tool_correctness=0.8, several separated by commas"),
        ("thresholds: {a: b}", ", thresholds a: must be a number, not 'b'"),
        ("units: [request, thing]", ", units[1]: must be request, component or conversation, not 'thing'"),
        ("near: 101", ", near: must be at most 100, not 101"),
        (
            "forward: [http://x, {endpoint: http://y, nmae: z}]",
            ", forward[1]: unknown key 'nmae'. Did you mean 'name'?",
        ),
        ("forward: '{'", ", forward: is not valid JSON"),
        ("forward: 3", ", forward: must be a list"),
        ("results: [events]", ", results: events require a back end: set forward"),
        ("enrich: true", ", enrich: requires a back end: set forward"),
        (
            "{enrich: false, results: attributes, forward: http://x}",
            ", enrich: contradicts attributes in results; remove one of them",
        ),
        ("tls_cert: a.pem", ", tls_cert: requires tls_key"),
        ("tls_key: a.pem", ", tls_key: requires tls_cert"),
        ("{tls_key: a.pem, tls_cert: b.pem}", ", tls_cert: b.pem cannot be read: no such file or directory"),
        ("grpc_port: 4318", ", grpc_port: HTTP and gRPC cannot share port 4318"),
        ("allowed_origins: ['*']", ", allowed_origins: an origin must look like https://grafana.example"),
        ("token_file: none", ", token_file: none cannot be read: no such file or directory"),
        ("- host", ": must contain settings, such as `workers: 2`, not ['host']"),
        ("host: a\n- b", ", line 2: not YAML: "),
        ("host: a\nhost: b", ", line 2: the key 'host' is repeated"),
    ],
)
def test_an_error_in_the_file_is_one_sentence_with_its_place(
    write_settings: WriteSettings, text: str, told: str
) -> None:
    write_settings(text)
    said = refusal()
    assert said.startswith(f"goldspan.yaml{told}")
    assert "\n" not in said
    assert "pydantic" not in said


def test_an_unreadable_file_is_named_in_the_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"^other\.yaml cannot be read: no such file or directory$"):
        load_settings("other.yaml")
    (tmp_path / "goldspan.yaml").write_bytes(b"\xff\xfe")
    assert refusal() == "goldspan.yaml is not UTF-8 text"


@pytest.mark.parametrize(
    ("name", "text", "told"),
    [
        ("HTTP_PORT", "x", "GOLDSPAN_HTTP_PORT: must be an integer, not 'x'"),
        ("LIMITS__MAX_SPANS", "0", "GOLDSPAN_LIMITS__MAX_SPANS: must be an integer of at least 1, not 0"),
        ("JUDGE__MODEL", "m", "unknown setting GOLDSPAN_JUDGE__MODEL; did you mean GOLDSPAN_JUDGE_MODEL?"),
        ("JUDGE_MODLE", "m", "unknown setting GOLDSPAN_JUDGE_MODLE; did you mean GOLDSPAN_JUDGE_MODEL?"),
        ("JUDGE_VOTES", "no", "GOLDSPAN_JUDGE_VOTES: must be an integer, not 'no'"),
        (
            "LIMITS__MAX_SPAN",
            "1",
            "unknown setting GOLDSPAN_LIMITS__MAX_SPAN; did you mean GOLDSPAN_LIMITS__MAX_SPANS?",
        ),
        ("LIMITS", "many", "GOLDSPAN_LIMITS: must be a mapping, not 'many'"),
        (
            "MAX_BODY_BYTES",
            "1",
            "unknown setting GOLDSPAN_MAX_BODY_BYTES; did you mean GOLDSPAN_LIMITS__MAX_BODY_BYTES?",
        ),
        ("FORWRD", "http://x", "unknown setting GOLDSPAN_FORWRD; did you mean GOLDSPAN_FORWARD?"),
        (
            "GOLDEN_ID_ATTRIBUTES",
            "x",
            "unknown setting GOLDSPAN_GOLDEN_ID_ATTRIBUTES; did you mean GOLDSPAN_GOLDEN_ID_ATTRIBUTE?",
        ),
        ("TELEMETRY__ZZZZZZZZZZZZ", "x", "unknown setting GOLDSPAN_TELEMETRY__ZZZZZZZZZZZZ"),
        ("FORWARD", "ftp://x", "GOLDSPAN_FORWARD[0], 'endpoint': 'ftp://x' is not the URL of a back end"),
        ("TOKEN", "# none\n", "GOLDSPAN_TOKEN contains no token"),
        (
            "TOKEN",
            f"good\n{SECRET} {SECRET}",
            "GOLDSPAN_TOKEN, line 2: a token may contain only letters, digits and -._~+/",
        ),
    ],
)
def test_an_error_in_the_environment_names_the_variable(
    monkeypatch: pytest.MonkeyPatch, name: str, text: str, told: str
) -> None:
    monkeypatch.setenv(f"GOLDSPAN_{name}", text)
    said = refusal()
    assert said.startswith(told)
    assert SECRET not in said


def test_an_error_in_a_flag_names_the_flag() -> None:
    assert refusal(http_port=70000) == "--http-port: must be at most 65535, not 70000"
    assert refusal(allowed_origins=["*"]).startswith("--allowed-origin: ")
    assert refusal(host="0.0.0.0").startswith("--host: 0.0.0.0 is reachable from other machines")


# --- access -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.8.8", "::1", "localhost", "LOCALHOST"])
def test_loopback_addresses_need_no_token(host: str) -> None:
    settings = GatewaySettings(host=host)
    assert settings.is_loopback
    assert settings.host_names is not None
    assert "localhost" in settings.host_names


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "gateway.example"])
def test_other_addresses_need_a_token_or_the_insecure_flag(host: str, tmp_path: Path) -> None:
    told = refusal(host=host)
    for way_out in ("--token-file", "GOLDSPAN_TOKEN", "--insecure"):
        assert way_out in told
    with pytest.raises(ValidationError):
        GatewaySettings(host=host)
    assert load_settings(None, {"host": host, "insecure": True}).host_names is None
    path = secret_file(tmp_path / "tokens", f"# of the team\n\n{SECRET}\nanother==\n")
    assert load_settings(None, {"host": host, "token_file": str(path)}).ingest_tokens == (SECRET, "another==")


def test_tokens_are_read_from_files_and_variables_without_duplicates(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GOLDSPAN_READ_TOKEN", "one\ntwo")
    path = secret_file(tmp_path / "tokens", "two\r\nthree\r\n")
    settings = load_settings(None, {"read_token_file": str(path)})
    assert settings.read_tokens == ("two", "three", "one")
    assert settings.ingest_tokens == ()


def test_a_token_file_that_is_not_utf_8_is_refused(tmp_path: Path) -> None:
    (tmp_path / "tokens").write_bytes(b"\xff\xff")
    assert refusal(token_file="tokens") == "--token-file: tokens is not UTF-8 text"


@pytest.mark.skipif(os.name != "posix", reason="there are no such bits elsewhere")
def test_a_token_file_that_others_can_read_causes_a_warning(tmp_path: Path) -> None:
    path = secret_file(tmp_path / "tokens", "token")
    path.chmod(0o644)
    with pytest.warns(GoldspanWarning, match=f"is readable by every user of this machine: chmod o-r {path}"):
        load_settings(None, {"token_file": path})


def test_readable_certificate_and_key_files_are_accepted(tmp_path: Path) -> None:
    for name in ("cert.pem", "key.pem"):
        secret_file(tmp_path / name, "...")
    assert load_settings(None, {"tls_cert": "cert.pem", "tls_key": "key.pem"}).tls_cert == Path("cert.pem")


# --- results ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("said", "results", "enrich"),
    [
        ({}, ("events", "metrics"), False),
        ({"results": "spans"}, ("spans",), False),
        ({"results": ["attributes", "events"]}, ("events", "attributes"), True),
        ({"enrich": True}, ("events", "metrics", "attributes"), True),
        ({"enrich": True, "results": "attributes"}, ("attributes",), True),
        ({"enrich": False}, ("events", "metrics"), False),
    ],
)
def test_enrich_is_equivalent_to_attributes_in_results(
    said: dict[str, object], results: tuple[str, ...], enrich: bool
) -> None:
    settings = GatewaySettings(forward="http://x:4318", **said)
    assert (settings.results, settings.enrich) == (results, enrich)


# --- display ----------------------------------------------------------------------------------------------------------

EVERYTHING = f"""
host: 0.0.0.0
data: 'a folder: with # signs'
goldens: ["1.yaml", 'true', "né😀.yaml", "-", "two\\nlines"]
forward:
  - http://plain:4318
  - endpoint: https://cloud.example
    name: cloud
    headers: {{authorization: "Bearer ${{CLOUD_KEY}}", x-key: {SECRET}}}
    signals: [traces, logs]
    timeout_seconds: 2.5
results: attributes
workers: 3
token: {SECRET}
thresholds: {{tool_recall: 0.25}}
near: off
budget: 0.5
limits: {{max_spans: 7}}
judge:
  {{model: m, url: "http://a:1/v1", api_key: {SECRET}, temperature: 'off', prices: [0.25, 2], extra: {{a: 1}}}}
telemetry: {{endpoint: "http://c:4318", headers: {{x-key: {SECRET}}}}}
"""


def test_the_printed_configuration_loads_to_the_same_settings_without_secrets(
    write_settings: WriteSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CLOUD_KEY", SECRET)
    write_settings(EVERYTHING)
    monkeypatch.setenv("GOLDSPAN_READ_TOKEN", SECRET)
    monkeypatch.setenv("GOLDSPAN_LIMITS__MAX_RATIO", "9")
    settings = load_settings(None, {"grace": 1.5})
    printed = print_config(settings)
    assert SECRET not in printed
    lines = printed.splitlines()
    for line in (
        "host: 0.0.0.0  # file goldspan.yaml",
        "http_port: 4318  # default",
        "grace: 1.5  # flag --grace",
        "  max_spans: 7  # file goldspan.yaml",
        "  max_ratio: 9  # environment GOLDSPAN_LIMITS__MAX_RATIO",
        "# token is hidden  # file goldspan.yaml",
        "# read_token is hidden  # environment GOLDSPAN_READ_TOKEN",
        "  headers: {}  # hidden: x-key  # file goldspan.yaml",
        "  # api_key is hidden  # file goldspan.yaml",
        "  prices: [0.25, 2]  # file goldspan.yaml",
        "  temperature: null  # file goldspan.yaml",
    ):
        assert line in lines
    write_settings(printed)
    monkeypatch.delenv("GOLDSPAN_READ_TOKEN")
    monkeypatch.delenv("GOLDSPAN_LIMITS__MAX_RATIO")
    monkeypatch.setenv("GOLDSPAN_TOKEN", SECRET)
    again = load_settings()
    hidden = {"token", "read_token", "forward", "telemetry", "judge"}
    assert again.judge == settings.judge.model_copy(update={"api_key": None})
    for name in GatewaySettings.model_fields.keys() - hidden:
        assert getattr(again, name) == getattr(settings, name), name
    assert [back_end.endpoint for back_end in again.back_ends] == [back_end.endpoint for back_end in settings.back_ends]
    assert again.back_ends[1].headers == {"authorization": f"Bearer {SECRET}"}


def test_the_printed_defaults_load_to_the_defaults(write_settings: WriteSettings) -> None:
    write_settings(print_config(GatewaySettings()))
    assert dict(load_settings()) == dict(GatewaySettings())


def test_no_text_of_the_settings_shows_a_secret(write_settings: WriteSettings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CLOUD_KEY", SECRET)
    write_settings(EVERYTHING)
    settings = load_settings()
    shown = [repr(settings), str(settings), print_config(settings), *startup_lines(settings, 4318, 4317)]
    shown += [repr(settings.judge.to_judge_settings(settings.data)), json.dumps(settings_json_schema())]
    assert SECRET not in "\n".join(shown)


@pytest.mark.parametrize(
    "text",
    [
        f"token: [{SECRET}]",
        f"{{forward: {SECRET}}}",
        f"{{forward: [{{endpoint: http://x, headers: {SECRET}}}]}}",
        f"{{forward: http://user:{SECRET}@x}}",
        f"{{telemetry: {{headers: {{x: [{SECRET}]}}}}}}",
        f"{{telemetry: {{endpoint: http://user:{SECRET}@x}}}}",
        f"{{judge: {{model: m, api_key: [{SECRET}]}}}}",
        f"{{judge: {{model: m, api_key: {SECRET} {SECRET}}}}}",
        f"{{judge: {{model: m, url: http://user:{SECRET}@x}}}}",
        f"{{judge: {{model: m, extra: {SECRET}}}}}",
    ],
)
def test_no_error_shows_a_possible_secret(write_settings: WriteSettings, text: str) -> None:
    write_settings(text)
    said = refusal()
    assert SECRET not in said or "is not the URL of a back end" in said  # a place where no secret belongs


def test_pickled_settings_are_equal(write_settings: WriteSettings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CLOUD_KEY", SECRET)
    write_settings(EVERYTHING)
    settings = load_settings()
    there = pickle.loads(pickle.dumps(settings))
    assert there == settings
    assert there.back_ends == settings.back_ends
    assert there.origin_of("host").name == "goldspan.yaml"


def test_the_json_schema_accepts_valid_and_rejects_invalid_settings() -> None:
    schema = settings_json_schema()
    json.dumps(schema)
    jsonschema.Draft202012Validator.check_schema(schema)
    validator = jsonschema.Draft202012Validator(schema)
    assert list(validator.iter_errors(yaml.safe_load(print_config(GatewaySettings())))) == []
    assert list(validator.iter_errors(yaml.safe_load(EVERYTHING.replace(": off", ": 'off'")))) == []
    for wrong in ({"http_prt": 1}, {"workers": 0}, {"limits": {"max_span": 1}}, {"forward": [{"nmae": "x"}]}):
        assert list(validator.iter_errors(wrong))


def test_the_json_schema_describes_every_setting() -> None:
    schema = settings_json_schema()
    limits = schema["$defs"]["ResourceLimits"]["properties"]
    assert [name for name, field in schema["properties"].items() if not field.get("description")] == []
    assert [name for name, field in limits.items() if not field.get("description")] == []


# --- startup ----------------------------------------------------------------------------------------------------------


def test_the_startup_lines_state_addresses_and_disabled_features() -> None:
    assert startup_lines(GatewaySettings(), 4318, 4317)[0].endswith(
        "listens on http://127.0.0.1:4318 (the page, OTLP/HTTP, API, /metrics)"
    )
    assert startup_lines(GatewaySettings(), 4318, 4317)[1:] == [
        "OTLP/gRPC on 127.0.0.1:4317",
        "access: this machine only, without a token",
        "goldens: none; runs are stored but not evaluated",
        f"store: {Path('goldspan-data/goldspan.db')}, kept without limit, without arguments and results",
        (
            "off: TLS (tls_cert, tls_key), forwarding (forward), writing scores to products (products), "
            "the judge (judge.model), own metrics over OTLP (telemetry)"
        ),
    ]


def test_the_startup_lines_state_access_and_back_ends(tmp_path: Path) -> None:
    settings = GatewaySettings(
        host="::",
        token="one\ntwo",
        read_token="three",
        tls_cert="cert.pem",
        tls_key="key.pem",
        goldens="a.yaml,b.yaml",
        forward=["http://one:4318", {"endpoint": "grpcs://two:4317", "name": "cloud", "signals": ["traces"]}],
        results="events,metrics,spans,attributes",
        products="phoenix,mlflow:https://mlflow.example",
        workers=2,
        keep_days=30,
        max_store_bytes=1000,
        keep_arguments=True,
        judge={"model": "m", "daily_cost": 2, "prices": (1, 2)},
        telemetry={"endpoint": "http://c:4318"},
    )
    store = Path("goldspan-data/goldspan.db")
    first, *others = startup_lines(settings, 1, None)
    assert "https://[::]:1" in first
    assert others == [
        "access: every client that can connect, with a token (2 that may send and 1 that may read)",
        "forwards to http://one:4318, in plain text",
        "forwards to cloud: two:4317 (gRPC), traces only",
        "results to the same back ends: events, metrics, spans and attributes",
        "writes scores to phoenix (http://localhost:6006)",
        "writes scores to mlflow (https://mlflow.example)",
        "goldens: a.yaml, b.yaml",
        f"store: {store}, kept for 30 days and up to 1000 bytes, with arguments and results",
        (
            "judge: m at api.openai.com judges 10 % of the runs, within 1000000 tokens and 2 US dollars a day; "
            "it receives the requests and answers of agents, and of their calls arguments and results"
        ),
        "2 workers",
        "off: gRPC (grpc_port)",
    ]
    partly = GatewaySettings(token="one", max_store_bytes=5, forward="http://x:1", tls_cert="a", tls_key="b")
    lines = startup_lines(partly, 1, 2)
    assert "OTLP/gRPC on 127.0.0.1:2 (TLS)" in lines
    assert "access: this machine only, with a token (1 that may send; nobody may read)" in lines
    assert "results to it: events and metrics" in lines
    assert any("kept up to 5 bytes" in line for line in lines)
    assert lines[-1] == (
        "off: spans to back ends (results), attributes to back ends (results), "
        "writing scores to products (products), the judge (judge.model), own metrics over OTLP (telemetry)"
    )
    judge = {"model": "m", "url": "http://models:1/v1", "sample": 1, "show": "names", "daily_tokens": "off"}
    assert (
        "judge: m at models:1 judges 100 % of the runs, within no budget; it receives the requests and answers of "
        "agents, and of their calls names of tools"
    ) in startup_lines(GatewaySettings(judge=judge), 1, 2)
