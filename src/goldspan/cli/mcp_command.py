"""`goldspan mcp`: gives a coding assistant read-only access to a store, over stdio."""

from __future__ import annotations

from typing import Annotated

import typer

from goldspan.cli import options

EXAMPLES = """
Examples:\n
  goldspan mcp goldspan.db --goldens goldens.yaml\n
  claude mcp add goldspan -- goldspan mcp goldspan-data --goldens goldens.yaml\n
\n
The configuration of most assistants:\n
  {"mcpServers": {"goldspan": {"command": "goldspan", "args": ["mcp", "/path/to/goldspan.db"]}}}\n
"""


def mcp(
    store: options.StoreArgument,
    goldens: Annotated[
        list[str] | None,
        typer.Option(
            "--goldens",
            "-g",
            metavar="FILE",
            help="Golden file: shows what a golden says, and evaluates calls with it. Reloaded when it changes. May be "
            "repeated.",
        ),
    ] = None,
) -> None:
    """Give a coding assistant read-only access to stored runs and goldens, over the Model Context Protocol.

    The assistant starts the command and talks to it over standard input and output. It can list failing goldens and
    runs, compare expected and called tools of one run, draft goldens for requests without one, and evaluate a list of
    calls. It can change nothing.
    """
    from goldspan.goldens.golden_files.hot_reload import ReloadingGoldens
    from goldspan.store import open_store
    from goldspan.web.assistant_tools import AssistantTools
    from goldspan.web.mcp_server import serve_stdio

    reloading = ReloadingGoldens(goldens) if goldens else None
    with open_store(options.store_location(store), read_only=True) as opened:
        serve_stdio(AssistantTools(opened, goldens=lambda: None if reloading is None else reloading.current))
