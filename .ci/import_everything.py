"""Imports every module of the installed goldspan, for the check of the wheel.

A module that needs an extra that is not installed may raise `MissingExtraError`; with `--all` only the modules may
that have an extra of their own: the MCP server, the store in PostgreSQL, the receiver of Kafka, and Spark. The modules
of the pytest plugin are left out where pytest, which imports them, is not installed.
"""

import importlib
import importlib.util
import pkgutil
import sys

import goldspan
from goldspan.errors import MissingExtraError

OWN_EXTRAS = ("goldspan.web.mcp_server", "goldspan.store.postgres", "goldspan.gateway.kafka", "goldspan.spark")


def find_modules() -> list[str]:
    """Return the names of all modules; of a package that cannot be imported, only its own."""
    return [module.name for module in pkgutil.walk_packages(goldspan.__path__, "goldspan.", onerror=lambda _: None)]


has_pytest = importlib.util.find_spec("pytest") is not None
names = find_modules()
if not has_pytest:
    names = [name for name in names if not name.startswith("goldspan.testing.pytest_")]
without_extra = []
for name in names:
    if name.endswith("__main__"):  # importing it runs the command line
        continue
    try:
        importlib.import_module(name)
    except MissingExtraError:
        if "--all" in sys.argv and not name.startswith(OWN_EXTRAS):
            raise
        without_extra.append(name)
print(f"{len(names) - len(without_extra)} modules import, {len(without_extra)} name the extra that they need")
