"""A real OpenTelemetry Collector with the files of deploy/, in front of gateways and behind one.

A span is acknowledged if the Collector, or the gateway, answered the request with 200. No kill may lose one. Sending is
at least once, so a span can arrive twice; it changes no run.
"""

from __future__ import annotations

import http.client
import json
import os
import random
import re
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest

from capture.receivers import plain
from goldspan.store import open_store
from recipes.environments import COLLECTOR, is_built
from support.collector_process import Collector, collecting
from support.gateway_agent_runs import GOLDENS, Request, request
from support.gateway_process import PATIENCE_S, Gateway, eventually, free_port, serving
from support.recording_backend import back_end, span_names

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif(not is_built(COLLECTOR), reason="the Collector needs its environment: make recipes"),
]

TOKEN = "a-token-of-the-gateways"
RUNS = 40
SPANS_PER_RUN = 3
STRESS_RUNS = max(200, round(100_000 / SPANS_PER_RUN * float(os.environ.get("STRESS", "1"))))
"""100,000 spans; `STRESS=0.1` sends a tenth."""
RUNS_PER_REQUEST = 20
KILLS = 6
PASSED = (True, ["book", "search"])
VENDOR_TOKEN = {"VENDOR_TOKEN": "secret"}


def runs(count: int) -> list[Request]:
    """Return runs that pass, each in two requests: the parts must reach the same gateway."""
    draw = random.Random(count)
    return [request(number, draw, parts=2, filler=50) for number in range(count)]


def batches(made: Sequence[Request]) -> Iterator[bytes]:
    """Yield requests with parts of several runs each. The second parts follow in requests of their own."""
    for start in range(0, len(made), RUNS_PER_REQUEST):
        some = made[start : start + RUNS_PER_REQUEST]
        for part in range(2):
            yield b"".join(run.bodies[part] for run in some)  # protobuf merges messages that are joined


class Sender:
    """Sends requests over one connection, and repeats each until it is acknowledged, as an SDK does."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._connection: http.client.HTTPConnection | None = None
        self.repeated = 0

    def send(self, body: bytes) -> None:
        until = time.monotonic() + PATIENCE_S
        while self._status(body) != 200:
            assert time.monotonic() < until, "a request was not acknowledged"
            self.repeated += 1
            time.sleep(0.05)

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _status(self, body: bytes) -> int | None:
        if self._connection is None:
            self._connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=60)
        try:
            self._connection.request("POST", "/v1/traces", body, {"Content-Type": "application/x-protobuf"})
            answer = self._connection.getresponse()
            answer.read()
        except (OSError, http.client.HTTPException):
            self.close()
            return None
        return answer.status


def gateway_options(folder: Path) -> tuple[str, ...]:
    """Return the options of a gateway that evaluates the runs soon after their last span."""
    folder.mkdir(exist_ok=True)
    (folder / "goldens.yaml").write_text(GOLDENS)
    tokens = folder / "tokens"
    tokens.write_text(TOKEN)
    tokens.chmod(0o600)
    return ("--goldens", str(folder / "goldens.yaml"), "--grace", "0.5", "--token-file", str(tokens))


def front_settings(gateways: Sequence[Gateway]) -> dict[str, Any]:
    """Return the addresses of the gateways for collector-in-front.yaml."""
    places = [f"127.0.0.1:{gateway.grpc_port}" for gateway in gateways]
    return {
        "exporters": {
            "load_balancing": {"resolver": {"static": {"hostnames": places}}},
            "otlp_grpc/metrics": {"endpoint": places[0]},
        }
    }


def behind_settings(vendor: str, folder: Path) -> dict[str, Any]:
    """Return the address of the vendor, and the path of the results, for collector-behind.yaml."""
    return {
        "exporters": {
            "otlp_http": {"endpoint": vendor, "compression": "none", "retry_on_failure": {"initial_interval": "100ms"}},
            "file/results": {"path": str(folder / "results.jsonl")},
        }
    }


def verdicts(gateway: Gateway) -> dict[str, Any]:
    """Return the verdict and the called tools of each run in the store of a gateway."""
    with open_store(gateway.data / "goldspan.db", read_only=True) as store:
        documents = {run.run_id: run.current.document for run in store.iter_runs()}
    return {run_id: (document["passed"], sorted(document["tools_used"])) for run_id, document in documents.items()}


def results(path: Path) -> tuple[set[str], int]:
    """Return the ids of the runs in the file of the results, and the number of documents that are cut off.

    A Collector that was killed can leave a part of a document, which the next document follows on the same line.
    """
    decoder, found, cut_off = json.JSONDecoder(), set[str](), 0
    for line in path.read_text(encoding="utf-8").splitlines():
        for piece in re.split(r'(?={"resourceLogs")', line):
            if not piece:
                continue
            try:
                document, _ = decoder.raw_decode(piece)
            except ValueError:
                cut_off += 1
                continue
            records = (
                record
                for resource in document["resourceLogs"]
                for scope in resource["scopeLogs"]
                for record in scope["logRecords"]
            )
            for record in records:
                found |= {
                    attribute["value"]["stringValue"]
                    for attribute in record["attributes"]
                    if attribute["key"] == "goldspan.run.id"
                }
    return found, cut_off


def test_a_collector_in_front_sends_each_trace_to_one_gateway(tmp_path: Path) -> None:
    made = runs(RUNS)
    with ExitStack() as stack:
        gateways = [
            stack.enter_context(serving(folder, *gateway_options(folder), grpc=True))
            for folder in (tmp_path / "gateway-1", tmp_path / "gateway-2")
        ]
        settings = front_settings(gateways)
        front = stack.enter_context(
            collecting("collector-in-front.yaml", tmp_path / "front", settings, {"GOLDSPAN_TOKEN": TOKEN})
        )
        sender = stack.enter_context(closing(Sender(front.http_port)))
        for body in batches(made):
            sender.send(body)

        def parts() -> list[dict[str, Any]]:
            return [verdicts(gateway) for gateway in gateways]

        eventually(lambda: sum(map(len, parts())) >= RUNS, lambda: f"{parts()}\n{front.log}")
        one, other = parts()
        assert one
        assert other
        assert one | other == dict.fromkeys((run.run_id for run in made), PASSED)
        assert not one.keys() & other.keys()


def test_a_collector_behind_the_gateway_gets_the_telemetry_and_the_results(tmp_path: Path) -> None:
    made = runs(RUNS)
    with ExitStack() as stack:
        vendor = stack.enter_context(back_end())
        settings = behind_settings(vendor.address, tmp_path / "behind")
        behind = stack.enter_context(collecting("collector-behind.yaml", tmp_path / "behind", settings, VENDOR_TOKEN))
        options = (*gateway_options(tmp_path / "gateway"), "--forward", f"http://127.0.0.1:{behind.http_port}")
        gateway = stack.enter_context(serving(tmp_path / "gateway", *options))
        for body in batches(made):
            status, answer = gateway.post(body, authorization=f"Bearer {TOKEN}")
            assert status == 200, answer
        eventually(lambda: len(vendor.spans) >= RUNS * SPANS_PER_RUN, lambda: behind.log)
        assert vendor.spans == Counter(name for body in batches(made) for name in span_names(body))
        file = tmp_path / "behind" / "results.jsonl"
        eventually(lambda: file.exists() and len(results(file)[0]) >= RUNS, lambda: behind.log)
        assert results(file) == ({run.run_id for run in made}, 0)


class Killer:
    """Kills and restarts programs in turn, at equal distances during the sending."""

    def __init__(self, programs: Sequence[Gateway | Collector], bodies: int, kills: int) -> None:
        self._programs = programs
        self._at = {round((number + 1) * bodies / (kills + 1)) for number in range(kills)}
        self._restarts: dict[int, threading.Thread] = {}
        self.kills = 0

    def before(self, number: int) -> None:
        """Kill a program if it is time, and start it again in a thread, so that sending continues meanwhile."""
        if number not in self._at:
            return
        index = self.kills % len(self._programs)
        if index in self._restarts:
            self._restarts[index].join()  # a few short requests can be sent before the last restart has ended
        self.kills += 1
        self._programs[index].kill()
        self._restarts[index] = threading.Thread(target=self._restart, args=(self._programs[index],))
        self._restarts[index].start()

    def wait(self) -> None:
        """Wait until each program runs again."""
        for restart in self._restarts.values():
            restart.join()

    @staticmethod
    def _restart(program: Gateway | Collector) -> None:
        time.sleep(0.5)
        program.start()


@pytest.mark.stress
def test_no_kill_of_a_collector_in_front_or_of_a_gateway_loses_a_span(tmp_path: Path) -> None:
    made = runs(STRESS_RUNS)
    bodies = list(batches(made))
    began = time.monotonic()
    with ExitStack() as stack:
        gateways = []
        for folder in (tmp_path / "gateway-1", tmp_path / "gateway-2"):
            gateway = Gateway(folder, gateway_options(folder), grpc_port=free_port())
            stack.callback(gateway.kill)
            gateway.start()
            gateways.append(gateway)
        (tmp_path / "front").mkdir()
        front = Collector(
            "collector-in-front.yaml", tmp_path / "front", front_settings(gateways), {"GOLDSPAN_TOKEN": TOKEN}
        )
        stack.callback(front.kill)
        front.start()
        killer = Killer([front, *gateways], len(bodies), KILLS)
        sender = stack.enter_context(closing(Sender(front.http_port)))
        for number, body in enumerate(bodies):
            killer.before(number)
            sender.send(body)
        killer.wait()
        wanted = {run.run_id for run in made}

        def found() -> dict[str, Any]:
            return verdicts(gateways[0]) | verdicts(gateways[1])

        eventually(lambda: found().keys() >= wanted, lambda: f"{len(wanted - found().keys())} runs are missing", 600)
        wrong = {run_id: verdict for run_id, verdict in found().items() if verdict != PASSED}
        print(
            f"\nin front: {len(made) * SPANS_PER_RUN} spans, {killer.kills} kills, {sender.repeated} attempts again; "
            f"{len(found())} runs scored, {len(wrong)} of them wrong; {time.monotonic() - began:.0f} s"
        )
        assert not wrong


@pytest.mark.stress
def test_no_kill_of_a_gateway_or_of_the_collector_behind_it_loses_a_span(tmp_path: Path) -> None:
    made = runs(STRESS_RUNS)
    bodies = list(batches(made))
    began = time.monotonic()
    with ExitStack() as stack:
        vendor = stack.enter_context(back_end())
        (tmp_path / "behind").mkdir()
        settings = behind_settings(vendor.address, tmp_path / "behind")
        behind = Collector("collector-behind.yaml", tmp_path / "behind", settings, VENDOR_TOKEN)
        stack.callback(behind.kill)
        behind.start()
        options = gateway_options(tmp_path / "gateway")[:4]  # no token, as the sender has none
        gateway = Gateway(
            tmp_path / "gateway", (*options, "--forward", f"http://127.0.0.1:{behind.http_port}"), grpc_port=0
        )
        stack.callback(gateway.kill)
        gateway.start()
        killer = Killer([behind, gateway], len(bodies), KILLS)
        sender = stack.enter_context(closing(Sender(gateway.http_port)))
        for number, body in enumerate(bodies):
            killer.before(number)
            sender.send(body)
        killer.wait()
        names = {name for body in bodies for name in span_names(body)}
        eventually(
            lambda: vendor.spans.keys() >= names,
            lambda: f"the vendor lacks {len(names - vendor.spans.keys())} spans\n{behind.log[-2000:]}",
            600,
        )
        wanted, file = {run.run_id for run in made}, tmp_path / "behind" / "results.jsonl"
        eventually(lambda: verdicts(gateway).keys() >= wanted, "runs are missing in the store", 600)

        def told() -> set[Any]:
            return {plain(event.attributes).get("goldspan.run.id") for event in vendor.events}

        eventually(lambda: told() >= wanted, lambda: f"{len(wanted - told())} results are missing at the vendor", 600)
        eventually(lambda: results(file)[0] >= wanted, lambda: "results are missing in the file", 60)
        written, cut_off = results(file)
        twice = sum(vendor.spans.values()) - len(names)
        print(
            f"\nbehind: {len(names)} spans, {killer.kills} kills, {sender.repeated} attempts repeated; at the vendor "
            f"{twice} spans twice and {len(wanted & told())} results; {len(wanted & written)} results in the file, "
            f"{cut_off} documents cut off; {time.monotonic() - began:.0f} s"
        )
        assert all(verdict == PASSED for verdict in verdicts(gateway).values())
