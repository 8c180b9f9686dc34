"""Takes the pictures in `docs/images` of scores on the pages of Phoenix and MLflow, for `make screenshots`.

The servers run in the environments that `make recipes` builds. `python docs/generate_product_screenshots.py FOLDER`
writes the pictures into another folder.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "tests"))  # the tests' helpers start the browser and the products

from support.browser import open_browser  # noqa: E402
from support.product_pages import open_verdict, opened_page, send_scored_traces  # noqa: E402
from support.product_programs import MLflowProgram, PhoenixProgram, ProductProgram  # noqa: E402

IMAGES = Path(__file__).with_name("images")
_RENDERED = """document.fonts.ready.then(() => new Promise((done) => setTimeout(done, 1000)))"""
"""A promise that is fulfilled when everything is rendered, also what a page animates."""


@dataclass(frozen=True, slots=True)
class Picture:
    """The page of one product with the verdict on a failed run."""

    name: str
    program: type[ProductProgram]
    height: int
    width: int = 1180


PICTURES = (
    Picture("phoenix", PhoenixProgram, height=640),
    Picture("mlflow", MLflowProgram, height=640),
)


def take(into: Path) -> None:
    """Take all pictures."""
    into.mkdir(parents=True, exist_ok=True)
    for picture in PICTURES:
        with TemporaryDirectory() as folder:
            program = picture.program(Path(folder))
            program.start()
            try:
                take_picture(picture, program, into)
            finally:
                program.stop()


def take_picture(picture: Picture, program: ProductProgram, into: Path) -> None:
    """Fill a running product, and take the picture of its page."""
    traces = send_scored_traces(program)
    with open_browser() as browser, opened_page(browser, width=picture.width, height=picture.height) as page:
        verdict = open_verdict(page, program, traces.failed)
        verdict.panel.get_by_text(traces.failed.reason, exact=True).wait_for()
        page.evaluate(_RENDERED)
        page.screenshot(path=into / f"{picture.name}.png", animations="disabled")


if __name__ == "__main__":
    take(Path(sys.argv[1]) if len(sys.argv) > 1 else IMAGES)
