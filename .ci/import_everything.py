"""Import every module of the installed goldspan, with whatever is installed beside it.

Without an extra, modules that need it say so, and nothing else fails. `--all`: nothing may be missing.
"""

import importlib
import pkgutil
import sys

import goldspan
from goldspan.errors import MissingExtraError

names = [module.name for module in pkgutil.walk_packages(goldspan.__path__, "goldspan.")]
wanting = []
for name in names:
    if name.endswith("__main__"):  # importing that one would run the command line
        continue
    try:
        importlib.import_module(name)
    except MissingExtraError:
        if "--all" in sys.argv:
            raise
        wanting.append(name)
print(f"{len(names) - len(wanting)} modules import, {len(wanting)} say which extra they need")
