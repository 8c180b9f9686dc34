"""Renders a report as one self-contained HTML file without scripts."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterable, Iterator
from hashlib import sha256

from goldspan._version import __version__
from goldspan.web.page_templates import asset_text, render, trusted_html
from goldspan.web.run_details import RunDetails
from goldspan.web.run_list import run_entry
from goldspan.web.run_report import Report

MAX_DETAILS_LENGTH = 3_000_000
"""Characters of all detailed runs; a run that does not fit has a line in the list."""


def render_html(report: Report) -> str:
    """Return the report as HTML."""
    detailed = list(_detailed_runs(report.failed))
    not_detailed = [run_entry(details.run) for details in report.failed[len(detailed) :]]
    style = asset_text("page.css").replace("\r\n", "\n")
    return render(
        "report.html",
        report=report,
        detailed=detailed,
        more_failed=[*not_detailed, *report.more_failed.entries],
        omitted=report.more_failed.omitted,
        style=trusted_html(style),
        policy=_content_security_policy(style),
        icon_url=f"data:image/svg+xml;base64,{_base64_text(asset_text('icon.svg').encode())}",
        version=__version__,
    )


def _detailed_runs(failed: Iterable[RunDetails]) -> Iterator[tuple[RunDetails, str, object]]:
    """Yield runs with the prefix of their element ids and their rendered sections, up to `MAX_DETAILS_LENGTH`."""
    remaining_length = MAX_DETAILS_LENGTH
    for details in failed:
        id_prefix = f"{run_entry(details.run).anchor}-"
        body = render("_detailed_run.html", details=details, key=id_prefix)
        remaining_length -= len(body)
        if remaining_length < 0:
            return
        yield details, id_prefix, trusted_html(body)


def _content_security_policy(style: str) -> str:
    """Return a policy that allows the inlined style sheet and images in data URLs, and nothing else."""
    digest = _base64_text(sha256(style.encode()).digest())
    return f"default-src 'none'; style-src 'sha256-{digest}'; img-src data:; base-uri 'none'; form-action 'none'"


def _base64_text(content: bytes) -> str:
    return b64encode(content).decode("ascii")
