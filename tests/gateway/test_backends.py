"""Tests of the configuration of back ends."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pytest

from goldspan.errors import ConfigurationError
from goldspan.gateway.exporting.backends import Backend, parse_backends

SECRET = "open-sesame-4711"


@pytest.mark.parametrize(
    ("url", "protocol", "endpoint", "insecure", "name"),
    [
        ("http://collector:4318", "http", "http://collector:4318", True, "collector:4318"),
        ("HTTP://Collector:4318/", "http", "http://Collector:4318", True, "collector:4318"),
        ("https://otlp.example.com/otlp/", "http", "https://otlp.example.com/otlp", False, "otlp.example.com:443"),
        ("http://localhost", "http", "http://localhost", True, "localhost:80"),
        ("http://[::1]:4318", "http", "http://[::1]:4318", True, "[::1]:4318"),
        ("grpc://collector:4317", "grpc", "collector:4317", True, "collector:4317"),
        ("grpcs://collector", "grpc", "collector:4317", False, "collector:4317"),
        ("grpc://[::1]", "grpc", "[::1]:4317", True, "[::1]:4317"),
    ],
)
def test_a_url_determines_protocol_endpoint_and_name(
    url: str, protocol: str, endpoint: str, insecure: bool, name: str
) -> None:
    backend = Backend.parse(url)
    assert (backend.protocol, backend.endpoint, backend.insecure, backend.name) == (protocol, endpoint, insecure, name)
    assert backend.signals == {"traces", "logs", "metrics"}
    assert backend.consumers["traces"] == f"forward/{name}/traces"


def test_a_mapping_sets_every_option_of_a_back_end(tmp_path: Path) -> None:
    backend = Backend.parse(
        {
            "endpoint": "http://collector:4317",
            "protocol": "grpc",
            "name": "main",
            "compression": "gzip",
            "timeout_seconds": 2,
            "signals": ["traces", "logs"],
            "headers": {"X-Team": "tools"},
        }
    )
    assert backend == Backend(
        "main",
        "collector:4317",
        "grpc",
        insecure=True,
        headers={"x-team": "tools"},
        compression="gzip",
        timeout_seconds=2.0,
        signals=frozenset({"traces", "logs"}),
    )
    assert list(backend.consumers) == ["traces", "logs"]
    assert pickle.loads(pickle.dumps(backend)) == backend


def test_a_single_signal_needs_no_list() -> None:
    assert Backend.parse({"endpoint": "http://tempo:4318", "signals": "traces"}).signals == {"traces"}


def test_header_values_come_from_the_environment_and_are_redacted() -> None:
    backend = Backend.parse(
        {"endpoint": "http://collector:4318", "headers": {"Authorization": "Bearer ${TOKEN}"}},
        environment={"TOKEN": f"{SECRET}\n"},
    )
    assert backend.headers == {"authorization": f"Bearer {SECRET}"}
    assert SECRET not in repr(backend) + str(backend)
    assert backend.redact(f"no such token: '{SECRET}'") == "no such token: '***'"
    assert backend.redact(f"no: Bearer {SECRET}") == "no: ***"


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (17, r"forward: a back end is a URL or a mapping with an endpoint, not 17"),
        ({}, r"forward, 'endpoint': is missing; write http://host:4318"),
        ("", r"forward, 'endpoint': is missing"),
        ("collector:4318", r"'collector:4318' is not the URL of a back end; write http://host:4318"),
        ("http://", r"'http://' is not the URL of a back end"),
        ("http://host:99999", r"forward, 'endpoint': is not a URL"),
        (f"http://user:{SECRET}@host", r"must not contain a password"),
        (f"http://host?key={SECRET}", r"must end with its path"),
        ("http://host:4318/v1/traces", r"must not end in /v1/traces, which the gateway appends"),
        ({"endpoint": "http://h", "header": {}}, r"unknown key 'header'. Did you mean 'headers'\?"),
        ({"endpoint": "http://h", "xyzzy": 1}, r"unknown key 'xyzzy'. The keys are name, endpoint"),
        ({"endpoint": "http://h", "protocol": "udp"}, r"'protocol': must be 'http' or 'grpc', not 'udp'"),
        ({"endpoint": "grpc://h", "protocol": "http"}, r"'protocol': 'http' contradicts the endpoint's grpc://"),
        ({"endpoint": "http://h", "compression": "zip"}, r"'compression': must be 'none' or 'gzip', not 'zip'"),
        ({"endpoint": "http://h", "name": ""}, r"'name': must be a text of at most 100 characters"),
        ({"endpoint": "http://h", "name": "a\nb"}, r"'name': must be a text of at most 100 characters"),
        ({"endpoint": "http://h", "timeout_seconds": 0}, r"'timeout_seconds': must be above 0 and at most 600, not 0"),
        (
            {"endpoint": "http://h", "timeout_seconds": True},
            r"'timeout_seconds': must be above 0 and at most 600, not True",
        ),
        ({"endpoint": "http://h", "signals": []}, r"'signals': must be a list of traces, logs and metrics"),
        ({"endpoint": "http://h", "signals": {"traces": 1}}, r"'signals': must be a list of traces, logs and metrics"),
        ({"endpoint": "http://h", "signals": ["spans"]}, r"'signals': 'spans' is not one of traces, logs and metrics"),
        ({"endpoint": "http://h", "ca_file": "x"}, r"'ca_file': has no effect on a plain text connection"),
        ({"endpoint": "https://h", "ca_file": "/nowhere"}, r"'ca_file': cannot be read: .*No such file"),
        ({"endpoint": "https://h", "ca_file": [SECRET]}, r"'ca_file': cannot be read"),
        ({"endpoint": "https://h", "ca_file": __file__}, r"forward, 'ca_file': the PEM files cannot be used"),
        ({"endpoint": "https://h", "key_file": __file__}, r"'key_file': requires certificate_file"),
        ({"endpoint": "http://h", "headers": SECRET}, r"'headers': must be a mapping of names to values"),
        ({"endpoint": "http://h", "headers": {"a b": SECRET}}, r"'headers': 'a b' is not a header name"),
        ({"endpoint": "http://h", "headers": {3: SECRET}}, r"'headers': 3 is not a header name"),
        ({"endpoint": "http://h", "headers": {"Content-Type": SECRET}}, r"the gateway sets Content-Type itself"),
        ({"endpoint": "grpc://h", "headers": {"x-bin": SECRET}}, r"the gateway sets x-bin itself"),
        ({"endpoint": "grpc://h", "headers": {"grpc-x": SECRET}}, r"the gateway sets grpc-x itself"),
        ({"endpoint": "http://h", "headers": {"x": [SECRET]}}, r"the value of x must be text"),
        ({"endpoint": "http://h", "headers": {"x": f"{SECRET}\nhost: y"}}, r"the value of x contains characters that"),
        (
            {"endpoint": "http://h", "headers": {"x": "${NOPE}"}},
            r"x requires the environment variable NOPE, which is not",
        ),
    ],
)
def test_an_error_names_the_setting_and_shows_no_secret(given: Any, told: str) -> None:
    with pytest.raises(ConfigurationError, match=told) as caught:
        Backend.parse(given, environment={})
    assert str(caught.value).startswith("forward")
    if "ca_file" not in told:
        assert SECRET not in str(caught.value)


def test_back_ends_have_unique_names() -> None:
    first, second = parse_backends(["http://a:1", {"endpoint": "http://a:1", "name": "b"}])
    assert (first.name, second.name) == ("a:1", "b")
    assert parse_backends([]) == ()
    with pytest.raises(ConfigurationError, match=r"forward\[2\]: another back end has the name 'a:1'"):
        parse_backends(["http://a:1", "http://b:1", "http://a:1/path"])
    with pytest.raises(ConfigurationError, match=r"forward\[1\], 'endpoint': is missing"):
        parse_backends(["http://a:1", {}])
