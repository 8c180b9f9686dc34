"""Takes the pictures in `docs/images`, for `make screenshots`: the page with the runs of the demo and of the tutorial.

The script replaces the times, durations and ids of the runs by fixed ones, so that a picture changes only if the page
changes. `python docs/generate_screenshots.py FOLDER` writes the pictures into another folder.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from pathlib import Path
from tempfile import TemporaryDirectory

from playwright.sync_api import Browser, Page

from goldspan import Run, evaluate, load_goldens, read_results
from goldspan.otlp import load_runs
from goldspan.store import open_store

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "tests"))  # the tests' helpers start the browser and the page

from support.browser import PHONE, open_browser  # noqa: E402
from support.docs_examples import blocks  # noqa: E402
from support.page_server import viewing  # noqa: E402

IMAGES = Path(__file__).with_name("images")
MAX_BYTES = 120_000
"""The largest size of a picture."""

_RENDERED = """document.fonts.ready.then(() => new Promise((done) =>
  requestAnimationFrame(() => requestAnimationFrame(done))))"""
"""A promise that is fulfilled when everything is rendered."""
_MS = 10**6
_NOW = datetime(2026, 3, 12, 10, 0, tzinfo=timezone.utc)
_INTERVAL_NS = 97 * 1000 * _MS
"""The time between two requests."""


@dataclass(frozen=True, slots=True)
class Picture:
    """One view of the page."""

    name: str
    path: str
    height: int = 860
    width: int = 1180
    dark: bool = False
    unfolds: str | None = None
    """The text of an element that is opened first."""
    of_tutorial: bool = False
    """Whether the runs are those of the tutorial, not those of the demo."""


PICTURES = (
    Picture("runs", "/"),
    Picture("run", "/runs/{convert}"),
    Picture("run-dark", "/runs/{look-before-booking}", dark=True),
    Picture("goldens", "/goldens", height=780),
    Picture("uncovered", "/uncovered", height=520, unfolds="Draft golden"),
    Picture("runs-phone", "/", height=PHONE["height"], width=PHONE["width"]),
    Picture("tutorial-runs", "/", height=720, of_tutorial=True),
    Picture("tutorial-failed", "/runs/{agent}", height=700, of_tutorial=True),
)


def take(into: Path) -> None:
    """Take all pictures."""
    into.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory() as demo, TemporaryDirectory() as tutorial, open_browser() as browser:
        for folder, names in ((Path(demo), _fill(Path(demo))), (Path(tutorial), _fill_with_tutorial(Path(tutorial)))):
            with viewing(folder, "shown.db", "--goldens", "goldens.yaml") as view:
                for picture in PICTURES:
                    if picture.of_tutorial is (folder == Path(tutorial)):
                        _take(picture, browser, view.address + picture.path.format(**names), into)


def _take(picture: Picture, browser: Browser, address: str, into: Path) -> None:
    with _open_page(browser, picture) as page:
        page.goto(address)
        for chart in page.locator("[data-trend]").all():
            chart.locator("canvas").wait_for()
        if picture.unfolds is not None:
            page.locator("summary", has_text=picture.unfolds).click()
        page.evaluate(_RENDERED)
        page.screenshot(path=into / f"{picture.name}.png", animations="disabled")


def _fill(folder: Path) -> dict[str, str]:
    """Store the demo's runs with fixed times, and return the id of each run by its golden."""
    command = [sys.executable, "-m", "goldspan", "demo", "--out", str(folder)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    goldens = load_goldens(folder / "goldens.yaml")
    units = ("request", "component")
    runs = [run for unit in units for run in load_runs(folder / "traces.pb", unit=unit, components=goldens.components)]
    runs.sort(key=lambda run: run.start_ns or 0)
    began = int(_NOW.timestamp()) * 10**9 - len(runs) * _INTERVAL_NS
    names: dict[str, str] = {}
    with open_store(folder / "shown.db", keep_arguments=True) as store:
        for number, run in enumerate(runs, start=1):
            evaluation = evaluate(_with_fixed_times(run, number, began + number * _INTERVAL_NS), goldens)
            store.submit(evaluation)
            names[evaluation.name] = evaluation.run.run_id
    return names


def _fill_with_tutorial(folder: Path) -> dict[str, str]:
    """Store a run of each agent of the tutorial, and return the id of each run by the module of its agent."""
    for block in blocks(Path(__file__).with_name("tutorial.md").read_text(encoding="utf-8")):
        if "file" in block.notes:
            (folder / block.notes["file"]).write_text(block.text, encoding="utf-8")
    goldens = load_goldens(folder / "goldens.yaml")
    names: dict[str, str] = {}
    with open_store(folder / "shown.db", keep_arguments=True) as store:
        for number, module in enumerate(("agent", "agent2"), start=1):
            command = [sys.executable, "-m", "goldspan", "run", f"{module}:answer", "--goldens", "goldens.yaml"]
            results = ["--results", f"{module}.jsonl", "--keep-arguments"]
            subprocess.run([*command, *results], cwd=folder, check=True, capture_output=True)
            (case,) = read_results(folder / f"{module}.jsonl").cases
            run = case.to_run()
            assert run is not None
            began = int(_NOW.timestamp()) * 10**9 - (3 - number) * _INTERVAL_NS
            evaluation = evaluate(_with_fixed_times(run, number, began), goldens)
            store.submit(evaluation)
            names[module] = evaluation.run.run_id
    return names


def _with_fixed_times(run: Run, number: int, began: int) -> Run:
    """Return the run with a fixed id, start and durations of its calls."""
    calls = tuple(
        replace(call, start_ns=began + (2 + 34 * at) * _MS, end_ns=began + (33 + 34 * at) * _MS)
        for at, call in enumerate(run.tool_calls)
    )
    trace = f"{number:032x}"
    return replace(
        run,
        run_id=f"{trace}:{number:016x}",
        trace_ids=(trace,),
        tool_calls=calls,
        start_ns=began,
        end_ns=began + (4 + 34 * len(calls)) * _MS,
    )


@contextmanager
def _open_page(browser: Browser, picture: Picture) -> Iterator[Page]:
    """Open a page of the picture's size, with a fixed time, time zone and language."""
    context = browser.new_context(
        viewport={"width": picture.width, "height": picture.height},
        color_scheme="dark" if picture.dark else "light",
        locale="en-GB",
        timezone_id="UTC",
        reduced_motion="reduce",
    )
    try:
        page = context.new_page()
        page.clock.set_fixed_time(_NOW)
        yield page
    finally:
        context.close()


if __name__ == "__main__":
    take(Path(sys.argv[1]) if len(sys.argv) > 1 else IMAGES)
