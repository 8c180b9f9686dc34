"""Opens the page in a real browser, and collects its errors, warnings and foreign requests."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import axe_playwright_python
from playwright.sync_api import (
    Browser,
    BrowserContext,
    ConsoleMessage,
    Dialog,
    Page,
    Request,
    Response,
    expect,
    sync_playwright,
)

_OPTIONS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
PATIENCE_MS = 30_000
"""The longest wait for what must happen, also on a busy machine."""
PHONE = {"width": 390, "height": 844}
_REPORT_VIOLATIONS = """
document.addEventListener("securitypolicyviolation", (event) =>
  console.error(`against the policy: ${event.violatedDirective} ${event.blockedURI} ${event.sourceFile}`));
"""
_AXE = (Path(axe_playwright_python.__file__).parent / "axe.min.js").read_text(encoding="utf-8")
_UNFOLD = """(() => {
  for (const each of document.querySelectorAll("details")) each.open = true;
  document.styleSheets[0].insertRule("*::after { content: none !important }");
})()"""
"""Opens all details elements, and removes overlays of texts, because axe cannot check texts below them."""
_SEVERE = ("serious", "critical")
_TOO_WIDE = """(() => {
  const { scrollWidth, clientWidth } = document.documentElement;
  if (scrollWidth <= clientWidth) return [];
  const beyond = (each) => each.scrollWidth > each.clientWidth + 1 && each.clientWidth > 1;
  const culprits = [...document.querySelectorAll("body *")].filter(beyond).map((each) => each.outerHTML.slice(0, 120));
  return [`${scrollWidth} in ${clientWidth}`, ...culprits];
})()"""
"""Returns an empty list if the page fits; else its width, and the elements that are too wide."""
_STREAM = "text/event-stream"


expect.set_options(timeout=PATIENCE_MS)


@contextmanager
def open_browser() -> Iterator[Browser]:
    """Open a headless browser. While it is open, nothing else may run an asyncio loop in this thread."""
    program = shutil.which("chromium")
    assert program is not None
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=list(_OPTIONS))
        try:
            yield browser
        finally:
            browser.close()


@dataclass
class Visit:
    """A new browser context at one address."""

    context: BrowserContext
    page: Page
    address: str
    complaints: list[str] = field(default_factory=list)
    """Console errors and warnings, script errors, dialogs, further pages, and requests to other hosts."""
    responses: list[Response] = field(default_factory=list)

    def open(self, path: str = "/") -> Response:
        """Go to a view, and wait until it is loaded."""
        answer = self.page.goto(self.address + path)
        assert answer is not None
        return answer

    def wait_until(self, holds: str) -> None:
        """Wait until a script returns true. Playwright's own waiting evaluates text inside the page, which the content
        security policy forbids, unless the condition holds at once."""
        until = time.monotonic() + PATIENCE_MS / 1000
        while not self.page.evaluate(holds):
            assert time.monotonic() < until, f"it never became true: {holds}"
            self.page.wait_for_timeout(20)

    def leave(self) -> None:
        """Close the browser before the test ends the server."""
        self.context.close()

    def weight(self) -> int:
        """Return the bytes of all loaded responses, uncompressed."""
        return sum(len(each.body()) for each in self.responses if not _is_stream(each) and each.status == 200)

    def forgive(self, *texts: str) -> None:
        """Remove the complaints that contain one of these texts; each text must occur."""
        for text in texts:
            assert any(text in complaint for complaint in self.complaints), (text, self.complaints)
            self.overlook(text)

    def overlook(self, text: str) -> None:
        """Remove the complaints that contain this text, if any."""
        self.complaints[:] = [complaint for complaint in self.complaints if text not in complaint]

    def grave_findings(self) -> list[str]:
        """Return the serious and critical findings of axe-core on the current page, with all details open."""
        self.page.evaluate(_UNFOLD)
        self.page.evaluate(_AXE)
        found: dict[str, Any] = self.page.evaluate("axe.run(document, { resultTypes: ['violations'] })")
        return [
            f"{finding['impact']} {finding['id']}: {node['html'][:200]} {node['failureSummary']}"
            for finding in found["violations"]
            for node in finding["nodes"]
            if finding["impact"] in _SEVERE
        ]

    def too_wide(self) -> list[str]:
        """Return the elements that make the page scroll horizontally."""
        found: list[str] = self.page.evaluate(_TOO_WIDE)
        return found

    def names(self) -> list[str]:
        """Return the ids of the runs in the list, from top to bottom."""
        links = self.page.get_by_role("region", name="Runs").locator("a[href^='/runs/']")
        return [str(each.get_attribute("href")).removeprefix("/runs/") for each in links.all()]


@contextmanager
def visit(browser: Browser, address: str, **options: Any) -> Iterator[Visit]:
    """Open a visit to this address. `options` are those of a Playwright context."""
    context = browser.new_context(**options)
    context.set_default_timeout(PATIENCE_MS)
    context.add_init_script(_REPORT_VIOLATIONS)
    try:
        visit = Visit(context, context.new_page(), address)
        _listen(visit)
        yield visit
    finally:
        context.close()


def _listen(visit: Visit) -> None:
    context = visit.context

    def on_console(message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            visit.complaints.append(f"console {message.type}: {message.text} {message.location.get('url')}")

    def on_request(request: Request) -> None:
        if not request.url.startswith((f"{visit.address}/", "data:")):
            visit.complaints.append(f"request to {request.url}")

    def on_page(page: Page) -> None:
        visit.complaints.append(f"another page: {page.url}")

    def on_dialog(dialog: Dialog) -> None:
        visit.complaints.append(f"dialog: {dialog.message}")
        dialog.dismiss()

    context.on("console", on_console)
    context.on("request", on_request)
    context.on("response", lambda response: visit.responses.append(response))  # Playwright rejects a built-in method
    context.on("page", on_page)
    context.on("dialog", on_dialog)
    context.on("weberror", lambda error: visit.complaints.append(f"script: {error.error}"))


def _is_stream(response: Response) -> bool:
    return response.headers.get("content-type", "").startswith(_STREAM)


Visiting = Callable[..., Visit]
"""Opens a visit to an address; see `visit`."""
