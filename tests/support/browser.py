"""A real browser that looks at the page, and hears all that it complains of."""

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
"""For what must happen sooner or later, also on a machine that has much else to do."""
PHONE = {"width": 390, "height": 844}
_HEARD = """
document.addEventListener("securitypolicyviolation", (event) =>
  console.error(`against the policy: ${event.violatedDirective} ${event.blockedURI} ${event.sourceFile}`));
"""
_AXE = (Path(axe_playwright_python.__file__).parent / "axe.min.js").read_text(encoding="utf-8")
_OPENED = """(() => {
  for (const each of document.querySelectorAll("details")) each.open = true;
  document.styleSheets[0].insertRule("*::after { content: none !important }");
})()"""
"""Opens all that is folded, and takes away what lies over texts: axe does not see through that."""
_GRAVE = ("serious", "critical")
_TOO_WIDE = """(() => {
  const { scrollWidth, clientWidth } = document.documentElement;
  if (scrollWidth <= clientWidth) return [];
  const beyond = (each) => each.scrollWidth > each.clientWidth + 1 && each.clientWidth > 1;
  const culprits = [...document.querySelectorAll("body *")].filter(beyond).map((each) => each.outerHTML.slice(0, 120));
  return [`${scrollWidth} in ${clientWidth}`, ...culprits];
})()"""
"""Nothing where the page fits; else its width, and what is wider than its place."""
_STREAM = "text/event-stream"


expect.set_options(timeout=PATIENCE_MS)


@contextmanager
def open_browser() -> Iterator[Browser]:
    """A browser without a window. While it is open, nothing else may run a loop of asyncio in this thread."""
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
    """Somebody with a browser that knows nothing yet, at one address."""

    context: BrowserContext
    page: Page
    address: str
    complaints: list[str] = field(default_factory=list)
    """What nobody should ever hear of: errors and warnings of the console, scripts of others, requests to others."""
    responses: list[Response] = field(default_factory=list)

    def open(self, path: str = "/") -> Response:
        """Go to a view, and wait until it is whole."""
        answer = self.page.goto(self.address + path)
        assert answer is not None
        return answer

    def wait_until(self, holds: str) -> None:
        """Wait for what a script says. Playwright's own waiting evaluates text inside the page, as the policy forbids,
        wherever that does not hold at once."""
        until = time.monotonic() + PATIENCE_MS / 1000
        while not self.page.evaluate(holds):
            assert time.monotonic() < until, f"it never held: {holds}"
            self.page.wait_for_timeout(20)

    def leave(self) -> None:
        """Close the browser, for what is visited ends before the test does."""
        self.context.close()

    def weight(self) -> int:
        """Bytes of all that was loaded so far, not compressed."""
        return sum(len(each.body()) for each in self.responses if not _is_stream(each) and each.status == 200)

    def forgive(self, *texts: str) -> None:
        """Take complaints back that each have one of these texts in them; each text must be in one."""
        for text in texts:
            assert any(text in complaint for complaint in self.complaints), (text, self.complaints)
            self.overlook(text)

    def overlook(self, text: str) -> None:
        """Take the complaints back, if there are any, that have this text in them."""
        self.complaints[:] = [complaint for complaint in self.complaints if text not in complaint]

    def grave_findings(self) -> list[str]:
        """What axe-core finds on the page as it is now, all of it opened, that is serious or critical."""
        self.page.evaluate(_OPENED)
        self.page.evaluate(_AXE)
        found: dict[str, Any] = self.page.evaluate("axe.run(document, { resultTypes: ['violations'] })")
        return [
            f"{finding['impact']} {finding['id']}: {node['html'][:200]} {node['failureSummary']}"
            for finding in found["violations"]
            for node in finding["nodes"]
            if finding["impact"] in _GRAVE
        ]

    def too_wide(self) -> list[str]:
        """What makes the page as a whole have to be scrolled sideways."""
        found: list[str] = self.page.evaluate(_TOO_WIDE)
        return found

    def names(self) -> list[str]:
        """The runs in the list, from above, each by its id."""
        links = self.page.get_by_role("region", name="Runs").locator("a[href^='/runs/']")
        return [str(each.get_attribute("href")).removeprefix("/runs/") for each in links.all()]


@contextmanager
def visit(browser: Browser, address: str, **how: Any) -> Iterator[Visit]:
    """Somebody who visits this address. `how`: options of a context of Playwright."""
    context = browser.new_context(**how)
    context.set_default_timeout(PATIENCE_MS)
    context.add_init_script(_HEARD)
    try:
        visit = Visit(context, context.new_page(), address)
        _listen(visit)
        yield visit
    finally:
        context.close()


def _listen(visit: Visit) -> None:
    context = visit.context

    def said(message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            visit.complaints.append(f"console {message.type}: {message.text} {message.location.get('url')}")

    def asked(request: Request) -> None:
        if not request.url.startswith((f"{visit.address}/", "data:")):
            visit.complaints.append(f"request to {request.url}")

    def opened(page: Page) -> None:
        visit.complaints.append(f"another page: {page.url}")

    def alarmed(dialog: Dialog) -> None:
        visit.complaints.append(f"dialog: {dialog.message}")
        dialog.dismiss()

    context.on("console", said)
    context.on("request", asked)
    context.on("response", lambda response: visit.responses.append(response))  # it takes no method of a list
    context.on("page", opened)
    context.on("dialog", alarmed)
    context.on("weberror", lambda error: visit.complaints.append(f"script: {error.error}"))


def _is_stream(response: Response) -> bool:
    return response.headers.get("content-type", "").startswith(_STREAM)


Visiting = Callable[..., Visit]
"""Makes a visitor of an address; see `visit`."""
