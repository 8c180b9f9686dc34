"""Import every module of the installed goldspan: none may need more than the core dependencies."""

import importlib
import pkgutil

import goldspan

names = [module.name for module in pkgutil.walk_packages(goldspan.__path__, "goldspan.")]
for name in names:
    if not name.endswith("__main__"):  # importing that one would run the command line
        importlib.import_module(name)
print(f"{len(names)} modules import with the core dependencies alone")
