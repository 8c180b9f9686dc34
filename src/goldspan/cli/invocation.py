"""How this program is called again, as something to paste into the shell it was called from."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

NAME = "goldspan"


def again(*arguments: object) -> str:
    """A command of this very program: by its name where the shell finds it by that, else as it was called now."""
    words = [*_program(), *map(str, arguments)]
    return subprocess.list2cmdline(words) if os.name == "nt" else shlex.join(words)


def _program() -> list[str]:
    called = Path(sys.argv[0])
    as_module = called.name == "__main__.py"
    script = Path(sys.executable).with_name(NAME) if as_module else called
    found = shutil.which(NAME)
    if found is not None and _place(found) == _place(script):
        return [NAME]
    return [sys.executable, "-m", NAME] if as_module else [str(called)]


def _place(program: str | Path) -> str:
    """Where a program is, whatever leads to it; on Windows it may be called without its ending."""
    return os.path.normcase(os.path.realpath(program)).removesuffix(".exe")
