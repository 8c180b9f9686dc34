"""Renders a report as one self-contained HTML file without scripts."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterator
from hashlib import sha256

from goldspan._version import __version__
from goldspan.web.page_templates import asset_text, render, trusted_html
from goldspan.web.report_data import Report
from goldspan.web.run_details import RunDetails
from goldspan.web.run_list import run_entry

MAX_DETAILS_LENGTH = 3_000_000
"""Characters of all runs that are shown in full; those that do not fit have a line in the list."""


def render_html(report: Report) -> str:
    """The report."""
    whole = list(_detailed_runs(report.failed))
    more = [run_entry(details.run) for details in report.failed[len(whole) :]]
    style = asset_text("page.css").replace("\r\n", "\n")
    return render(
        "report.html",
        report=report,
        failed=whole,
        further=[*more, *report.further.entries],
        left=report.further.left,
        style=trusted_html(style),
        policy=_content_security_policy(style),
        drawing=f"data:image/svg+xml;base64,{_base64_text(asset_text('icon.svg').encode())}",
        version=__version__,
    )


def _detailed_runs(failed: tuple[RunDetails, ...]) -> Iterator[tuple[RunDetails, str, object]]:
    """Runs with what begins their ids and with what is shown below their heads, as many as there is room for."""
    room = MAX_DETAILS_LENGTH
    for details in failed:
        key = f"{run_entry(details.run).anchor}-"
        body = render("_whole.html", details=details, key=key)
        room -= len(body)
        if room < 0:
            return
        yield details, key, trusted_html(body)


def _content_security_policy(style: str) -> str:
    """What the file may do: be styled by what stands in it, and show the drawings in it."""
    digest = _base64_text(sha256(style.encode()).digest())
    return f"default-src 'none'; style-src 'sha256-{digest}'; img-src data:; base-uri 'none'; form-action 'none'"


def _base64_text(content: bytes) -> str:
    return b64encode(content).decode("ascii")
