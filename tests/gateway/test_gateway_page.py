"""Tests of docs/gateway.md: its commands and outputs are those of a gateway, and its tables are current."""

from __future__ import annotations

import json
import re
import runpy
import shlex
import subprocess
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from capture.receivers import plain
from goldspan.cli.app import app
from goldspan.gateway.exporting.backends import Backend
from goldspan.gateway.resource_limits import LIMITS
from goldspan.gateway.settings.settings_loader import load_settings
from support.docs_examples import ROOT, Block, blocks, commands, matches
from support.gateway_process import Gateway, eventually, serving
from support.recording_backend import back_end

PAGE = (ROOT / "docs" / "gateway.md").read_text(encoding="utf-8")
BLOCKS = list(blocks(PAGE))
COMMANDS = [command for block in BLOCKS if block.language == "console" for command in commands(block.text)]


def test_the_tables_of_the_pages_are_current() -> None:
    """`make docs` generates them."""
    generator = runpy.run_path(str(ROOT / "docs" / "generate_gateway.py"))
    for path in generator["PAGES"]:
        text = path.read_text(encoding="utf-8")
        assert generator["page"](text) == text
    assert all(f"| `{limit.name}` |" in PAGE for limit in LIMITS)


@pytest.mark.e2e
@pytest.mark.needs("curl", "python3")
def test_the_posted_example_spans_give_the_run_on_the_page(tmp_path: Path) -> None:
    for name in ("goldens.yaml", "spans.json"):
        (tmp_path / name).write_text(_file(name).text, encoding="utf-8")
    start = next(command.text for command in COMMANDS if command.text.startswith("goldspan serve"))
    post, ask = [command for command in COMMANDS if command.text.startswith("curl")][:2]
    with serving(tmp_path, *shlex.split(start)[2:], environment={"GOLDSPAN_GRACE": "0.2"}) as gateway:
        assert matches(post.shown, _run(post.text, gateway))
        eventually(lambda: matches(ask.shown, _run(ask.text, gateway)), lambda: _run(ask.text, gateway))


@pytest.mark.e2e
def test_a_back_end_receives_the_event_on_the_page_for_the_example_spans(tmp_path: Path) -> None:
    (tmp_path / "goldens.yaml").write_text(_file("goldens.yaml").text, encoding="utf-8")
    with (
        back_end() as behind,
        serving(tmp_path, "--goldens", "goldens.yaml", "--grace", "0.2", "--forward", behind.address) as gateway,
    ):
        gateway.post(_file("spans.json").text.encode(), Content_Type="application/json")
        eventually(lambda: bool(behind.events), lambda: gateway.log)
    event = behind.events[0]
    came = {
        "event_name": event.event_name,
        "trace_id": event.trace_id.hex(),
        "span_id": event.span_id.hex(),
        "attributes": plain(event.attributes),
    }
    assert came in [json.loads(block.text) for block in BLOCKS if block.language == "json"]
    assert behind.bodies["/v1/traces"] == [_file("spans.json").text.encode()]


def _file(name: str) -> Block:
    return next(block for block in BLOCKS if block.notes.get("file") == name)


def _run(command: str, gateway: Gateway) -> str:
    """Returns the output of a command of the page, with the address of this gateway."""
    line = command.replace("127.0.0.1:4318", f"127.0.0.1:{gateway.http_port}")
    done = subprocess.run(
        ["sh", "-c", line], cwd=gateway.folder, capture_output=True, encoding="utf-8", check=False, timeout=60
    )
    return done.stdout + done.stderr


@pytest.mark.parametrize(
    "command", [each.text for each in COMMANDS if each.text.startswith("goldspan serve") and not each.shown]
)
def test_the_gateway_accepts_every_command_on_the_page(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(app, [*shlex.split(command)[1:], "--print-config"])
    assert done.exit_code == 0, done.output


def test_the_example_of_back_ends_is_valid_and_the_table_lists_every_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("VENDOR_TOKEN", "secret")
    (tmp_path / "goldspan.yaml").write_text(_file("back-ends.yaml").text)
    collector, vendor = load_settings().back_ends
    assert (collector.protocol, collector.compression) == ("grpc", "gzip")
    assert vendor.headers == {"authorization": "Bearer secret"}
    table = PAGE[PAGE.index("| `endpoint` |") :].partition("\n\n")[0]
    told = set(re.findall(r"`(\w+)`", "\n".join(line.split("|")[1] for line in table.splitlines())))
    assert told == {field.name for field in fields(Backend)} - {"insecure"}


def test_the_collector_on_the_page_matches_the_one_in_deploy() -> None:
    shown: Any = next(yaml.safe_load(block.text) for block in BLOCKS if "load_balancing" in block.text)
    whole = yaml.safe_load((ROOT / "deploy" / "collector-in-front.yaml").read_text(encoding="utf-8"))
    there = whole["exporters"]["load_balancing"]
    assert shown["exporters"]["load_balancing"]["routing_key"] == there["routing_key"]
    assert shown["exporters"]["load_balancing"]["protocol"]["otlp"].items() <= there["protocol"]["otlp"].items()
