"""Serves the API of a real store on a real socket; its client checks each response against the OpenAPI document."""

from __future__ import annotations

import asyncio
import http.client
import json
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import jsonschema
import uvicorn
from starlette.applications import Starlette

from goldspan import Evaluation, Goldens, Run, evaluate
from goldspan.gateway.api_routes import api_routes
from goldspan.gateway.openapi import OPERATIONS, openapi_document
from goldspan.store import SqliteStore

DOCUMENT = json.loads(json.dumps(openapi_document()))


@dataclass
class ApiServer:
    """A store, the current goldens, and the traces that the API dropped."""

    store: SqliteStore
    goldens: Goldens = field(default_factory=Goldens)
    forgotten: list[str] = field(default_factory=list)
    rescore: Callable[[Run], Evaluation] | None = None
    """Replaces the evaluation with the goldens."""
    port: int = 0

    def judge(self, run: Run) -> Evaluation:
        return self.rescore(run) if self.rescore is not None else evaluate(run, self.goldens)

    def get(self, path: str) -> Any:
        status, _, body = self.ask("GET", path)
        assert status == 200, body
        return body

    def refused(self, method: str, path: str) -> tuple[int, str, str]:
        status, _, body = self.ask(method, path)
        return status, body["error"]["code"], body["error"]["message"]

    def ask(self, method: str, path: str, body: bytes | None = None) -> tuple[int, Mapping[str, str], Any]:
        """Return status, headers in lower case, and the body, after checking it against the OpenAPI document."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        try:
            connection.request(method, path, body)
            answer = connection.getresponse()
            headers = {name.lower(): value for name, value in answer.getheaders()}
            content = answer.read()
        finally:
            connection.close()
        assert headers["content-type"] == "application/json"
        read = json.loads(content) if content else None
        _check(method, path.split("?")[0], answer.status, read)
        return answer.status, headers, read


class _Server(uvicorn.Server):
    """Ends when it is told to. uvicorn looks ten times a second, and waits for as long again."""

    async def main_loop(self) -> None:
        await self.on_tick(0)
        while not self.should_exit:
            await asyncio.sleep(0.005)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        for server in self.servers:
            server.close()
        while self.server_state.connections:
            await asyncio.sleep(0.005)


@contextmanager
def serving(world: ApiServer) -> Iterator[ApiServer]:
    """Serve the API of a store on a free port until the block ends."""
    listening = socket.create_server(("127.0.0.1", 0))
    app = Starlette(routes=api_routes(world.store, evaluate=world.judge, drop_pending_trace=world.forgotten.append))
    server = _Server(uvicorn.Config(app, lifespan="off", ws="none", log_config=None))
    thread = threading.Thread(target=server.run, args=([listening],))
    thread.start()
    world.port = listening.getsockname()[1]
    try:
        yield world
    finally:
        server.should_exit = True
        thread.join()
        listening.close()


def _check(method: str, path: str, status: int, body: Any) -> None:
    parts = path.split("/")
    for operation in OPERATIONS:
        wanted = operation.path.split("/")
        same = len(parts) == len(wanted) and all(
            each == part or each.startswith("{") for each, part in zip(wanted, parts, strict=True)
        )
        if same and operation.method == method:
            response = DOCUMENT["paths"][operation.path][method.lower()]["responses"][str(status)]
            schema = response["content"]["application/json"]["schema"] | {"components": DOCUMENT["components"]}
            jsonschema.Draft202012Validator(schema).validate(body)
            return
