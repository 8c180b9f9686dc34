"""Builds third-party packages as real wheels, which pip installs and entry points announce."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

WHEEL = """Wheel-Version: 1.0
Generator: tests
Root-Is-Purelib: true
Tag: py3-none-any
"""


def install(name: str, code: str, entry_points: str, *, under: Path) -> Path:
    """Install a package of one module with pip into a directory, and return the directory."""
    target = under / "installed"
    wheel = under / f"{name}-1-py3-none-any.whl"
    info = f"{name}-1.dist-info"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr(f"{name}.py", code)
        archive.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1\n")
        archive.writestr(f"{info}/WHEEL", WHEEL)
        archive.writestr(f"{info}/entry_points.txt", entry_points)
        archive.writestr(f"{info}/RECORD", "")
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--target", str(target)]
    subprocess.run([*pip, str(wheel)], check=True, capture_output=True)
    return target


def run_python(code: str, *, beside: Path, warnings: str = "ignore") -> subprocess.CompletedProcess[str]:
    """Run code in a process that finds the packages of that directory first."""
    paths = [str(beside), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    return subprocess.run(
        [sys.executable, "-W", warnings, "-c", code], env=environment, capture_output=True, text=True, check=True
    )
