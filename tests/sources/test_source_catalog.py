"""Tests of the URLs of trace sources."""

from __future__ import annotations

import re

import pytest

from goldspan.errors import ConfigurationError
from goldspan.sources.source_catalog import SOURCES, create_source, is_source_url

SETTINGS = {
    "LANGFUSE_PUBLIC_KEY": "pk",
    "LANGFUSE_SECRET_KEY": "sk",
}


@pytest.mark.parametrize("name", SOURCES)
@pytest.mark.parametrize("rest", ["//localhost:6006", "", "//", "//host/path?name=value"])
def test_the_url_of_a_source_is_recognised(name: str, rest: str) -> None:
    assert is_source_url(f"{name}:{rest}")
    assert is_source_url(f"{name}+https:{rest}")


@pytest.mark.parametrize(
    "text", ["traces.jsonl", "phoenix", "./phoenix://x", "-", "C:\\traces", "http://localhost", "phoenix+ftp://x", ""]
)
def test_another_text_is_the_path_of_a_file(text: str) -> None:
    assert not is_source_url(text)
    with pytest.raises(ConfigurationError, match=f"^{re.escape(repr(text))} is not the URL of a trace source: "):
        create_source(text, SETTINGS)


@pytest.mark.parametrize(
    ("url", "base_url"),
    [
        ("phoenix://localhost:6006", "http://localhost:6006"),
        ("phoenix://127.0.0.1:6006/", "http://127.0.0.1:6006"),
        ("phoenix://[::1]:6006", "http://[::1]:6006"),
        ("phoenix://app.localhost", "http://app.localhost"),
        ("phoenix://10.0.0.1:6006", "https://10.0.0.1:6006"),
        ("phoenix://app.phoenix.example/s/team/", "https://app.phoenix.example/s/team"),
        ("phoenix+http://phoenix:6006", "http://phoenix:6006"),
        ("phoenix+https://localhost", "https://localhost"),
    ],
)
def test_the_address_of_a_url(url: str, base_url: str) -> None:
    assert create_source(url, {}).base_url == base_url


@pytest.mark.parametrize("name", SOURCES)
@pytest.mark.parametrize("rest", ["", "//"])
def test_a_url_without_a_host_is_the_address_in_the_variables_of_the_tool(name: str, rest: str) -> None:
    variables = {
        "PHOENIX_COLLECTOR_ENDPOINT": "https://phoenix.example",
        "MLFLOW_TRACKING_URI": "https://mlflow.example",
        "LANGFUSE_BASE_URL": "https://langfuse.example",
        "TEMPO_URL": "https://tempo.example",
        "JAEGER_URL": "https://jaeger.example",
    }
    source = create_source(f"{name}:{rest}", SETTINGS | variables)
    assert source.name == name
    assert source.base_url == f"https://{name}.example"


@pytest.mark.parametrize("name", SOURCES)
def test_the_default_address_is_that_of_the_tool(name: str) -> None:
    source = create_source(f"{name}://", SETTINGS)
    assert source.base_url.startswith(("http://localhost:", "http://127.0.0.1:", "https://cloud.langfuse.com"))


@pytest.mark.parametrize(
    ("url", "text"),
    [
        (
            "phoenix://user:secret@host",
            "contains credentials; tokens are only in variables: PHOENIX_",
        ),
        ("phoenix://host?projekt=a", "has no parameter 'projekt'; its parameters: project$"),
        ("langfuse://host?project=a", "has no parameter 'project'; its parameters: none$"),
        ("phoenix://host?project=a&project=b", "has the parameter 'project' twice"),
        ("phoenix://host#part", "must not have a fragment"),
        ("phoenix:///path", "has no host; write phoenix://HOST:PORT"),
        ("phoenix://:6006", "has no host; write phoenix://HOST:PORT"),
        ("phoenix://host:port", "is invalid: Port could not be cast"),
        ("phoenix://[::1", "is invalid: Invalid IPv6 URL"),
    ],
)
def test_the_error_of_a_url_says_what_is_wrong(url: str, text: str) -> None:
    with pytest.raises(ConfigurationError, match=text) as caught:
        create_source(url, SETTINGS)
    assert "secret" not in str(caught.value)
