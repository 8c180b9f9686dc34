"""`goldspan view`: serves the page of a store to a browser on this machine."""

from __future__ import annotations

import sys
import webbrowser
from typing import Annotated

import typer

from goldspan.cli import options
from goldspan.cli.console import stderr_console

EXAMPLES = """
Examples:\n
  goldspan view goldspan.db\n
  goldspan view goldspan-data --goldens goldens.yaml\n
  goldspan view runs.db --port 0 --no-open\n
"""
DEFAULT_PORT = 4319
_KEEP_ARGUMENTS_HINT = "`goldspan serve --keep-arguments`, or open_store(..., keep_arguments=True), stores them."


def view(
    store: options.StoreArgument,
    goldens: Annotated[
        list[str] | None,
        typer.Option(
            "--goldens",
            "-g",
            metavar="FILE",
            help="Golden file: shows which goldens no run matches, and what a golden says. May be repeated.",
        ),
    ] = None,
    port: Annotated[
        int, typer.Option("--port", metavar="PORT", min=0, max=65535, help="Port to listen on; 0 picks a free one.")
    ] = DEFAULT_PORT,
    open_browser: Annotated[
        bool | None,
        typer.Option(
            "--open/--no-open", help="Open the page in the browser. Default: only on a terminal.", show_default=False
        ),
    ] = None,
) -> None:
    """Show stored runs in a browser: expected and called tools, goldens by pass rate, and requests without a golden.

    The page updates while other processes write to the store. It listens on 127.0.0.1 only. Ctrl-C ends it.
    """
    from goldspan.goldens import load_goldens
    from goldspan.store import open_store
    from goldspan.web.http_routes import LocalServer
    from goldspan.web.pages import Pages

    loaded_goldens = load_goldens(*goldens) if goldens else None
    with open_store(options.store_location(store), read_only=True) as opened:
        pages = Pages(opened, goldens=lambda: loaded_goldens, is_live=False, keeps_values=_KEEP_ARGUMENTS_HINT)
        server = LocalServer(pages, port)
        stderr_console().print(f"{opened.location} is shown at {server.address}  (Ctrl-C ends it)")
        if open_browser or (open_browser is None and sys.stdout.isatty()):
            webbrowser.open(server.address)
        server.serve()
