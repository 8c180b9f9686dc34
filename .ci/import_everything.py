"""Imports every module of the installed goldspan, for the check of the wheel.

A module that needs an extra that is not installed may raise `MissingExtraError`; with `--all` only the MCP server may,
which has an extra of its own. The modules of the pytest plugin are left out where pytest, which imports them, is not
installed.
"""

import importlib
import importlib.util
import pkgutil
import sys

import goldspan
from goldspan.errors import MissingExtraError

has_pytest = importlib.util.find_spec("pytest") is not None
names = [module.name for module in pkgutil.walk_packages(goldspan.__path__, "goldspan.")]
if not has_pytest:
    names = [name for name in names if not name.startswith("goldspan.testing.pytest_")]
without_extra = []
for name in names:
    if name.endswith("__main__"):  # importing it runs the command line
        continue
    try:
        importlib.import_module(name)
    except MissingExtraError:
        if "--all" in sys.argv and name != "goldspan.web.mcp_server":
            raise
        without_extra.append(name)
print(f"{len(names) - len(without_extra)} modules import, {len(without_extra)} name the extra that they need")
