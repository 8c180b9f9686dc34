"""An environment for each tracer that goldspan is set up beside: `make recipes` builds them into `.recipes`.

python tests/recipes/environments.py [NAME ...]
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
import venv
from pathlib import Path

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / ".recipes"

REQUIREMENTS: dict[str, tuple[list[str], ...]] = {
    "logfire": (["logfire==5.2.0"],),
    "langfuse": (["langfuse==5.0.4"],),
    # Alone: with all the instrumentations that it asks for, no set of versions is found that goes together.
    "traceloop": (
        ["--no-deps", "traceloop-sdk==0.62.4"],
        [
            *("aiohttp", "colorama", "cuid", "deprecated", "httpx", "jinja2", "requests", "tenacity"),
            *("opentelemetry-instrumentation-logging", "opentelemetry-instrumentation-threading"),
            "opentelemetry-semantic-conventions-ai>=0.5.1,<0.6",
        ],
    ),
    "openinference": (["openinference-instrumentation==0.1.72"],),
    "servers": (["gunicorn==27.0.1", "uvicorn==0.54.0"],),
}
"""What is installed, in the order of the calls of pip, and with the last of them goldspan."""


def python_of(name: str) -> Path:
    """The interpreter of an environment, whether it is there or not."""
    return FOLDER / name / ("Scripts" if sys.platform == "win32" else "bin") / "python"


def is_there(name: str) -> bool:
    """Whether an environment was built, now or some time ago."""
    return _receipt(name).exists()


def is_up_to_date(name: str) -> bool:
    """Whether it also holds what is asked for now."""
    return is_there(name) and _receipt(name).read_text(encoding="utf-8") == _wanted(name)


def build(name: str) -> None:
    """Make an environment anew."""
    shutil.rmtree(FOLDER / name, ignore_errors=True)
    venv.create(FOLDER / name, with_pip=True)
    pip = [str(python_of(name)), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    *alone, together = REQUIREMENTS[name]
    for call in (*alone, ["--editable", str(ROOT), *together]):
        done = subprocess.run([*pip, *call], capture_output=True, encoding="utf-8", check=False)
        if done.returncode:
            sys.exit(f"{name}: {' '.join(call)} cannot be installed\n{done.stderr}")
    _receipt(name).write_text(_wanted(name), encoding="utf-8")


def _receipt(name: str) -> Path:
    return FOLDER / name / "installed.json"


def _wanted(name: str) -> str:
    """Entry points and dependencies of ours are part of it: pip writes them down when it installs."""
    return json.dumps([REQUIREMENTS[name], (ROOT / "pyproject.toml").read_text(encoding="utf-8")])


def main() -> None:
    """Build what is not there."""
    for name in sys.argv[1:] or REQUIREMENTS:
        if is_up_to_date(name):
            continue
        before = time.monotonic()
        build(name)
        size = sum(path.stat().st_size for path in (FOLDER / name).rglob("*") if path.is_file()) >> 20
        print(f"{name}: {time.monotonic() - before:.0f} s, {size} MB in {FOLDER.name}/{name}", flush=True)


if __name__ == "__main__":
    main()
