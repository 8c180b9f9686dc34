"""Drives an MCP server with the client of the official SDK, for tests that run without the SDK.

Standard input is a JSON object: `mode` of the client; `command`, or `url` and optionally `token`; and `steps`. A step
is a list: `["list"]`, `["call", NAME, ARGUMENTS]`, `["pages", NAME, MEMBER, ARGUMENTS]`, `["together", NAME, ARGUMENTS,
TIMES]`, `["write", PATH, TEXT]` or `["until", TEXT, NAME, ARGUMENTS]`. Standard output is a JSON object with what the
server says about itself and the result of each step.
"""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import httpx2
from mcp import Client, StdioServerParameters
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError

PATIENCE_S = 60


async def run_step(client: Any, step: list[Any]) -> Any:
    kind, *rest = step
    if kind == "list":
        tools = (await client.list_tools()).tools
        return [tool.model_dump(mode="json", by_alias=True, exclude_none=True) for tool in tools]
    if kind == "write":
        Path(rest[0]).write_text(rest[1], encoding="utf-8")
        return None
    if kind == "call":
        return await call(client, *rest)
    if kind == "together":
        name, arguments, times = rest
        return await asyncio.gather(*(call(client, name, arguments) for _ in range(times)))
    if kind == "until":
        text, *called = rest
        async with asyncio.timeout(PATIENCE_S):
            while text not in json.dumps(answer := await call(client, *called)):
                await asyncio.sleep(0.1)
        return answer
    assert kind == "pages"
    name, member, arguments = rest
    pages, cursor = [], {}
    while True:
        answer = await call(client, name, {**arguments, **cursor})
        pages.append(answer["structured"]["recorded_data"][member])
        if answer["structured"]["next_cursor"] is None:
            return pages
        cursor = {"cursor": answer["structured"]["next_cursor"]}


async def call(client: Any, name: str, arguments: Any) -> dict[str, Any]:
    try:
        result = await client.call_tool(name, arguments)
    except MCPError as error:
        return {"protocol_error": error.code, "message": error.message}
    return {
        "is_error": result.is_error,
        "texts": [block.text for block in result.content],
        "structured": result.structured_content,
    }


async def main() -> None:
    asked = json.load(sys.stdin)
    target: Any = None
    if "command" in asked:
        command, *arguments = asked["command"]
        target = StdioServerParameters(command=command, args=arguments, env=asked.get("env"))
    else:
        headers = {"Authorization": f"Bearer {asked['token']}"} if "token" in asked else {}
        http = httpx2.AsyncClient(headers=headers, trust_env=False, timeout=PATIENCE_S)
        target = streamable_http_client(asked["url"], http_client=http)
    async with Client(target, mode=asked["mode"], read_timeout_seconds=PATIENCE_S) as client:
        said = {
            "protocol": client.protocol_version,
            "name": client.server_info.name,
            "version": client.server_info.version,
            "instructions": client.instructions,
            "results": [await run_step(client, step) for step in asked["steps"]],
        }
    json.dump(said, sys.stdout)


if __name__ == "__main__":
    asyncio.run(main())
