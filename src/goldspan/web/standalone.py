"""A report as one HTML file: it asks for nothing else, runs no script, and is the same wherever it is opened."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterator
from hashlib import sha256

from goldspan._version import __version__
from goldspan.web.assets import asset_text
from goldspan.web.entries import entry_of
from goldspan.web.report import Report
from goldspan.web.runs import Details
from goldspan.web.templates import as_it_is, render

MOST_IN_FULL = 3_000_000
"""Characters of all runs that are shown in full; those that do not fit have a line in the list."""


def as_html(report: Report) -> str:
    """The report."""
    whole = list(_whole(report.failed))
    more = [entry_of(details.run) for details in report.failed[len(whole) :]]
    style = asset_text("page.css").replace("\r\n", "\n")
    return render(
        "report.html",
        report=report,
        failed=whole,
        further=[*more, *report.further.entries],
        left=report.further.left,
        style=as_it_is(style),
        policy=_policy(style),
        drawing=f"data:image/svg+xml;base64,{_in_base64(asset_text('icon.svg').encode())}",
        version=__version__,
    )


def _whole(failed: tuple[Details, ...]) -> Iterator[tuple[Details, str, object]]:
    """Runs with what begins their ids and with what is shown below their heads, as many as there is room for."""
    room = MOST_IN_FULL
    for details in failed:
        key = f"{entry_of(details.run).anchor}-"
        body = render("_whole.html", details=details, key=key)
        room -= len(body)
        if room < 0:
            return
        yield details, key, as_it_is(body)


def _policy(style: str) -> str:
    """What the file may do: be styled by what stands in it, and show the drawings in it."""
    digest = _in_base64(sha256(style.encode()).digest())
    return f"default-src 'none'; style-src 'sha256-{digest}'; img-src data:; base-uri 'none'; form-action 'none'"


def _in_base64(content: bytes) -> str:
    return b64encode(content).decode("ascii")
