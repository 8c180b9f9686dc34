"""`goldspan view`: what a store holds, in a browser on this machine."""

from __future__ import annotations

import sys
import webbrowser
from pathlib import Path
from typing import Annotated

import typer

from goldspan.cli.console import stderr_console
from goldspan.errors import ConfigurationError
from goldspan.goldens import load_goldens
from goldspan.store import open_store

EXAMPLES = """
Examples:\n
  goldspan view goldspan.db\n
  goldspan view goldspan-data --goldens goldens.yaml\n
  goldspan view runs.db --port 0 --no-open\n
"""
DEFAULT_PORT = 4319
STORE_FILE_NAME = "goldspan.db"
"""The file of the store in a folder of a gateway's data, or of the demo."""
_KEEP_ARGUMENTS_HINT = "`goldspan serve --keep-arguments`, or open_store(..., keep_arguments=True), stores them."


def view(
    store: Annotated[
        Path,
        typer.Argument(
            metavar="STORE",
            help=f"The file of the store, or a folder with {STORE_FILE_NAME} in it.",
            show_default=False,
        ),
    ],
    goldens: Annotated[
        list[str] | None,
        typer.Option(
            "--goldens", "-g", metavar="FILE", help="Golden file, to tell which were never met; may be given again."
        ),
    ] = None,
    port: Annotated[
        int, typer.Option("--port", metavar="PORT", min=0, max=65535, help="Port on this machine; 0: one that is free.")
    ] = DEFAULT_PORT,
    open_it: Annotated[
        bool | None,
        typer.Option(
            "--open/--no-open", help="Show it in the browser at once; on a terminal it does.", show_default=False
        ),
    ] = None,
) -> None:
    """Look at stored runs in a browser: expected beside called, goldens, tools, and requests that no golden covers.

    The page follows what is written to the store meanwhile. Nobody but this machine reaches it. Ctrl-C ends it.
    """
    from goldspan.web.local_server import LocalServer
    from goldspan.web.pages import Pages  # slow to load, and of an extra

    known = load_goldens(*goldens) if goldens else None
    with open_store(_store_path(store), read_only=True) as opened:
        site = Pages(opened, goldens=lambda: known, is_live=False, keeps_values=_KEEP_ARGUMENTS_HINT)
        viewer = LocalServer(site, port)
        stderr_console().print(f"{opened.path} is shown at {viewer.address}  (Ctrl-C ends it)")
        if open_it or (open_it is None and sys.stdout.isatty()):
            webbrowser.open(viewer.address)
        viewer.serve()


def _store_path(store: Path) -> Path:
    found = store / STORE_FILE_NAME if store.is_dir() else store
    if not found.exists():
        raise ConfigurationError(
            f"{found}: there is no such store; a goldspan serve writes one, and so does a store sink"
        )
    return found
