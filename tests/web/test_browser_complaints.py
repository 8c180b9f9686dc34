"""The test visitors report every problem of a page that has all of them."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from goldspan.web.http_routes import CONTENT_SECURITY_POLICY
from support.browser import PHONE, Visiting

pytestmark = pytest.mark.needs("chromium")

BAD = """<!doctype html><html lang="en"><title>Bad</title><link rel="stylesheet" href="/look">
<script>document.title = "run"</script><script src="/script"></script>
<img src="http://127.0.0.2:9/picture.png" alt="of another"><img src="/nowhere">
<p class="faint">text that nobody can read</p><p class="wide">wide</p><a href="/"></a>"""
LOOK = ".faint { color: #eee; background: #fff } .wide { width: 2000px }"
SCRIPT = "console.warn('a warning'); alert('an alert'); throw new Error('a failure');"


class _Bad(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        parts = {"/script": ("text/javascript", SCRIPT), "/look": ("text/css", LOOK)}
        media, body = parts.get(self.path, ("text/html", BAD))
        self.send_response(404 if self.path == "/nowhere" else 200)
        self.send_header("Content-Type", media)
        self.send_header("Content-Security-Policy", CONTENT_SECURITY_POLICY)
        self.end_headers()
        self.wfile.write(body.encode())

    def log_message(self, *_: object) -> None:
        """Suppresses the log."""


@pytest.fixture
def address() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), _Bad) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        thread.join()


@pytest.mark.e2e
def test_a_visit_reports_every_problem_of_a_page(visiting: Visiting, address: str) -> None:
    visit = visiting(address, viewport=PHONE)
    visit.open()
    visit.page.wait_for_load_state("load")
    findings = " ".join(visit.grave_findings())
    assert "color-contrast" in findings
    assert "image-alt" in findings
    assert "link-name" in findings
    assert visit.too_wide()[0] == "2008 in 390"
    assert visit.weight() >= len(BAD) + len(LOOK) + len(SCRIPT)
    assert visit.page.title() == "Bad"
    visit.forgive("against the policy: script-src-elem", "against the policy: img-src")
    visit.forgive("console warning: a warning", "dialog: an alert", "script: a failure", "status of 404")
    visit.forgive("request to http://127.0.0.2:9/picture.png")
    visit.overlook("console error")  # the browser's own message about the same problem
