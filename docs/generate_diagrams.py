"""Draws the diagrams in `docs/diagrams` as SVG, for `make docs`.

A diagram is 400 units wide, so that a phone shows it without scrolling. It has its own background, so that it can be
read in light and in dark mode.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from html import escape
from pathlib import Path

FOLDER = Path(__file__).with_name("diagrams")
WIDTH = 400
_COLOURS = {"plain": "#ffffff", "given": "#fdf3d3", "pass": "#dff3e4", "fail": "#fde4e2", "unknown": "#e9e6dc"}
_STYLE = (
    "text{font:14px system-ui,sans-serif;fill:#1d1a12}.small{font-size:12px;fill:#4d4634}"
    ".box{stroke:#6b5a24;stroke-width:1.2}.line{stroke:#6b5a24;stroke-width:1.5;fill:none}"
)


@dataclass
class Drawing:
    """Boxes, lines and texts on a background."""

    height: int
    parts: list[str] = field(default_factory=list)

    def box(self, x: int, y: int, width: int, title: str, note: str = "", kind: str = "plain") -> None:
        """Add a box with a title and a smaller note below it; it is 36 units high, with a note 52."""
        height = 52 if note else 36
        self.parts.append(
            f'<rect class="box" x="{x}" y="{y}" width="{width}" height="{height}" rx="6" fill="{_COLOURS[kind]}"/>'
        )
        self.text(x + width // 2, y + 23, title)
        if note:
            self.text(x + width // 2, y + 41, note, small=True)

    def text(self, x: int, y: int, words: str, *, small: bool = False, anchor: str = "middle") -> None:
        """Add a text."""
        style = ' class="small"' if small else ""
        self.parts.append(f'<text{style} x="{x}" y="{y}" text-anchor="{anchor}">{escape(words)}</text>')

    def line(self, *points: tuple[int, int], arrow: bool = True, dashed: bool = False) -> None:
        """Add a line through the points, with an arrow at its end."""
        path = " ".join(f"{x},{y}" for x, y in points)
        more = (' marker-end="url(#arrow)"' if arrow else "") + (' stroke-dasharray="4 4"' if dashed else "")
        self.parts.append(f'<polyline class="line" points="{path}"{more}/>')

    def to_svg(self) -> str:
        """Return the drawing as an SVG file."""
        head = (
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{self.height}" '
            f'viewBox="0 0 {WIDTH} {self.height}">'
        )
        marker = (
            '<defs><marker id="arrow" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="7" markerHeight="7" '
            'orient="auto"><path d="M0,0 L10,5 L0,10 z" fill="#6b5a24"/></marker></defs>'
        )
        background = f'<rect width="{WIDTH}" height="{self.height}" rx="8" fill="#fbfaf6"/>'
        return "\n".join([head, f"<style>{_STYLE}</style>", marker, background, *self.parts, "</svg>\n"])


def evaluation() -> Drawing:
    """Draw how spans become an evaluation."""
    drawing = Drawing(460)
    drawing.box(20, 16, 220, "spans and log records", "of any instrumentation", "given")
    drawing.box(20, 108, 220, "run", "one request and its tool calls")
    drawing.box(270, 108, 110, "golden", "what is expected", "given")
    drawing.box(20, 200, 360, "comparison", "each call and each expectation is in one row")
    drawing.box(20, 292, 170, "scores", "one number per metric")
    drawing.box(210, 292, 170, "verdict", "passed, failed, or neither")
    drawing.box(20, 392, 360, "evaluation", "on the span, as events and metrics, in a store")
    drawing.line((130, 68), (130, 106))
    drawing.text(140, 91, "extraction", small=True, anchor="start")
    drawing.line((130, 160), (130, 198))
    drawing.text(140, 183, "lookup and matching", small=True, anchor="start")
    drawing.line((325, 160), (325, 198))
    drawing.line((105, 252), (105, 290))
    drawing.line((295, 252), (295, 290))
    drawing.line((105, 344), (105, 390))
    drawing.line((295, 344), (295, 390))
    return drawing


def matching() -> Drawing:
    """Draw the pairing of expected and called tools."""
    drawing = Drawing(290)
    drawing.text(85, 28, "expected", small=True)
    drawing.text(315, 28, "called, in time", small=True)
    for y, name, kind in (
        (42, "find_order", "pass"),
        (102, "refund, amount 12.5", "fail"),
        (162, "send_email", "fail"),
    ):
        drawing.box(10, y, 150, name, kind=kind)
    called = ((42, "refund 125", "fail"), (102, "find_order", "pass"), (162, "delete_order", "fail"))
    for y, name, kind in called:
        drawing.box(240, y, 150, name, kind=kind)
    drawing.line((160, 60), (240, 120), arrow=False)
    drawing.line((160, 120), (240, 60), arrow=False)
    drawing.text(85, 216, "missing", small=True)
    drawing.text(315, 216, "forbidden", small=True)
    drawing.text(200, 246, "find_order is paired; refund is paired, and differs in amount.", small=True)
    drawing.text(200, 268, "Both may be in any order, unless the golden states one.", small=True)
    return drawing


def verdict() -> Drawing:
    """Draw how the verdict is decided."""
    drawing = Drawing(290)
    drawing.box(20, 16, 220, "Is a rule broken?")
    drawing.box(20, 112, 220, "Was every rule evaluated?")
    drawing.box(20, 226, 220, "passed", kind="pass")
    drawing.box(290, 16, 96, "failed", kind="fail")
    drawing.box(270, 112, 116, "not evaluated", kind="unknown")
    drawing.line((240, 34), (288, 34))
    drawing.text(264, 27, "yes", small=True)
    drawing.line((130, 52), (130, 110))
    drawing.text(140, 86, "no", small=True, anchor="start")
    drawing.line((240, 130), (268, 130))
    drawing.text(254, 123, "no", small=True)
    drawing.line((130, 148), (130, 224))
    drawing.text(140, 191, "yes", small=True, anchor="start")
    return drawing


def revisions() -> Drawing:
    """Draw when a run is scored, and scored again."""
    drawing = Drawing(350)
    drawing.text(16, 28, "time", small=True, anchor="start")
    drawing.line((30, 36), (30, 330))
    events = (
        (44, "tool span ends: find_order", "given"),
        (100, "the request's span ends", "given"),
        (156, "revision 1: failed, refund is missing", "fail"),
        (212, "late span arrives: refund", "given"),
        (268, "revision 2: passed", "pass"),
    )
    for y, words, kind in events:
        drawing.line((30, y + 18), (58, y + 18), arrow=False)
        drawing.box(60, y, 324, words, kind=kind)
    drawing.text(60, 330, "The evaluation with the highest revision counts.", small=True, anchor="start")
    return drawing


DIAGRAMS = {each.__name__: each for each in (evaluation, matching, verdict, revisions)}


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for name, draw in DIAGRAMS.items():
        (FOLDER / f"{name}.svg").write_text(draw().to_svg(), encoding="utf-8")
