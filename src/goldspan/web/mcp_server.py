"""Serves the tools of coding assistants over the Model Context Protocol: stdio and streamable HTTP.

https://modelcontextprotocol.io/specification/
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

from goldspan import _guard
from goldspan._extras import require_extra
from goldspan._version import __version__
from goldspan.errors import GoldspanError
from goldspan.goldens.spelling import did_you_mean, short_repr
from goldspan.web.assistant_results import Json, result_json
from goldspan.web.assistant_tools import INSTRUCTIONS, AssistantTool, AssistantTools
from goldspan.web.display_text import escape_invisible

with require_extra("mcp"):
    import anyio
    import mcp_types as types
    from mcp.server.lowlevel import Server
    from mcp.server.stdio import stdio_server
    from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
    from mcp.shared.exceptions import MCPError
    from starlette.routing import Route
    from starlette.types import Receive, Scope, Send

HTTP_PATH = "/mcp"
"""The path of streamable HTTP in the gateway."""
MAX_CONCURRENT_CALLS = 4
"""Calls of tools that run concurrently; further calls wait."""
MAX_REQUEST_BYTES = 2**20
"""Bytes of a request over HTTP. A larger one gets status 413."""
_FAILURE = "The tool failed; the log of the server has the reason."


def create_server(tools: AssistantTools) -> Server[Any]:
    """Return an MCP server with these tools."""
    handlers = _Handlers(tools)
    return Server(
        "goldspan",
        version=__version__,
        title="goldspan",
        instructions=INSTRUCTIONS,
        on_list_tools=handlers.list_tools,
        on_call_tool=handlers.call_tool,
    )


class _Handlers:
    """Answers the requests of the protocol."""

    def __init__(self, tools: AssistantTools) -> None:
        self._tools = tools
        self._limiter: anyio.CapacityLimiter | None = None

    async def list_tools(self, context: Any, params: Any) -> types.ListToolsResult:
        return types.ListToolsResult(tools=list(map(_tool_definition, self._tools.tools.values())))

    async def call_tool(self, context: Any, params: types.CallToolRequestParams) -> types.CallToolResult:
        if params.name not in self._tools.tools:
            hint = did_you_mean(params.name, self._tools.tools)
            raise MCPError(types.INVALID_PARAMS, f"There is no tool {short_repr(params.name)}.{hint}")
        if self._limiter is None:
            self._limiter = anyio.CapacityLimiter(MAX_CONCURRENT_CALLS)
        call = partial(self._respond, params.name, params.arguments or {})
        return await anyio.to_thread.run_sync(call, limiter=self._limiter)

    def _respond(self, name: str, arguments: Json) -> types.CallToolResult:
        """Call a tool in a thread, because it reads the store."""
        try:
            result = self._tools.call(name, arguments)
        except GoldspanError as error:
            return _tool_error(str(error))
        except Exception as error:  # noqa: BLE001 - an error of one call must not end the connection
            _guard.report_error("answer a tool call of an assistant", error)
            return _tool_error(_FAILURE)
        content = types.TextContent(type="text", text=result_json(result))
        return types.CallToolResult(content=[content], structured_content=result)


def _tool_definition(tool: AssistantTool) -> types.Tool:
    return types.Tool(
        name=tool.name,
        title=tool.title,
        description=tool.description,
        input_schema=tool.input_schema,
        output_schema=tool.output_schema,
        annotations=types.ToolAnnotations(
            title=tool.title,
            read_only_hint=True,
            destructive_hint=False,
            idempotent_hint=True,
            open_world_hint=False,
        ),
    )


def _tool_error(message: str) -> types.CallToolResult:
    """Return an error that the model sees, so that it can correct its arguments."""
    return types.CallToolResult(content=[types.TextContent(type="text", text=escape_invisible(message))], is_error=True)


def serve_stdio(tools: AssistantTools) -> None:
    """Answer the requests on standard input until it ends. Nothing else writes to standard output meanwhile."""
    server = create_server(tools)

    async def serve() -> None:
        async with stdio_server() as (requests, responses):
            await server.run(requests, responses, server.create_initialization_options())

    anyio.run(serve)


@asynccontextmanager
async def mcp_routes(tools: AssistantTools) -> AsyncIterator[list[Route]]:
    """The route of streamable HTTP, which answers while the block runs.

    It is stateless: each request is answered alone, as JSON, so any worker can answer it and no stream stays open. The
    caller authorizes requests and checks their host and origin.
    """
    manager = StreamableHTTPSessionManager(
        create_server(tools), json_response=True, stateless=True, max_request_body_size=MAX_REQUEST_BYTES
    )
    async with manager.run():
        yield [Route(HTTP_PATH, _HttpEndpoint(manager), methods=["POST"])]


class _HttpEndpoint:
    """The ASGI application of the route. starlette would pass a request, and no ASGI scope, to a function."""

    def __init__(self, manager: StreamableHTTPSessionManager) -> None:
        self._manager = manager

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._manager.handle_request(scope, receive, send)
