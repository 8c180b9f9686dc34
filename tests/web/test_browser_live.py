"""The page of a running gateway in a real browser shows new runs of a real exporter without a reload."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from playwright.sync_api import Locator, expect

from goldspan import Goldens, Run, ToolCall, evaluate, semconv
from goldspan.store import open_store
from goldspan.web import http_routes
from goldspan.web.pages import Pages
from support.browser import Visit, Visiting
from support.gateway_process import Gateway, serving
from support.page_server import served

pytestmark = pytest.mark.needs("chromium")

GOLDENS = """
version: 1
goldens:
  - id: order
    when: {input: {contains: order}}
    tools: [find_order]
"""
TOKEN = "a-token-to-read-with"


@contextmanager
def sending(gateway: Gateway, **headers: str) -> Iterator[Callable[..., float]]:
    """Sends a request of an agent as an application does, and returns when it is exported."""
    provider = TracerProvider(resource=Resource({"service.name": "shop"}), shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(gateway.address + "/v1/traces", headers=headers)))
    tracer = provider.get_tracer("agents")

    def send(asked: str, tool: str = "find_order", agent: str = "support") -> float:
        said = json.dumps([{"role": "user", "parts": [{"type": "text", "content": asked}]}])
        about = {semconv.OPERATION: semconv.INVOKE_AGENT, semconv.AGENT_NAME: agent, semconv.INPUT_MESSAGES: said}
        call = {semconv.OPERATION: semconv.EXECUTE_TOOL, semconv.TOOL_NAME: tool}
        with (
            tracer.start_as_current_span(f"invoke_agent {agent}", attributes=about),
            tracer.start_as_current_span(f"execute_tool {tool}", attributes=call),
        ):
            pass
        assert provider.force_flush()
        return time.monotonic()

    yield send
    provider.shutdown()


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    folder = tmp_path_factory.mktemp("gateway")
    (folder / "goldens.yaml").write_text(GOLDENS)
    with serving(folder, "--goldens", "goldens.yaml", "--grace", "0.1", "--idle", "1") as gateway:
        yield gateway


@pytest.fixture
def visit(visiting: Visiting, gateway: Gateway) -> Visit:
    """A visitor whose run list is connected to the stream."""
    visit = visiting(gateway.address)
    visit.open()
    expect(visit.page.get_by_text("listening", exact=True)).to_be_visible()
    return visit


def run_with(visit: Visit, text: str) -> Locator:
    """The listed run with this request."""
    return visit.page.get_by_role("region", name="Runs").get_by_role("listitem").filter(has_text=text)


@pytest.mark.e2e
def test_an_exported_request_appears_in_the_list_without_a_reload(visit: Visit, gateway: Gateway) -> None:
    with sending(gateway) as send:
        for number in range(5):
            began = send(f"Where is order A{number}?")
            expect(run_with(visit, f"Where is order A{number}?")).to_be_visible()
            print(f"shown {time.monotonic() - began:.2f} s after the exporter sent it")
    first = run_with(visit, "Where is order A4?")
    expect(first).to_contain_text("passed")
    expect(first).to_contain_text("find_order")
    first.get_by_role("link", name="order").click()
    expect(visit.page.get_by_role("region", name="Expected vs. called").first).to_contain_text("find_order")


@pytest.mark.e2e
def test_the_list_is_frozen_while_paused_and_catches_up_when_resumed(visit: Visit, gateway: Gateway) -> None:
    visit.page.get_by_role("button", name="Pause").click()
    before = visit.names()
    with sending(gateway) as send:
        send("order P1")
        send("order P2")
    expect(visit.page.get_by_text("paused, new runs are waiting")).to_be_visible()
    assert visit.names() == before
    visit.page.get_by_role("button", name="Resume").click()
    expect(run_with(visit, "order P1")).to_be_visible()
    expect(run_with(visit, "order P2")).to_be_visible()
    expect(visit.page.get_by_text("listening", exact=True)).to_be_visible()


@pytest.mark.e2e
def test_only_new_runs_that_match_the_filters_appear(visit: Visit, gateway: Gateway) -> None:
    visit.page.get_by_role("search").get_by_label("Agent").fill("billing")
    visit.page.wait_for_url("**/?agent=billing")
    with sending(gateway) as send:
        send("order F1", agent="support")
        send("order F2", agent="billing")
    expect(run_with(visit, "order F2")).to_be_visible()
    expect(run_with(visit, "order F1")).to_have_count(0)
    assert visit.page.url.endswith("/?agent=billing")


@pytest.mark.e2e
def test_new_runs_change_neither_focus_nor_scroll_position(visit: Visit, gateway: Gateway) -> None:
    with sending(gateway) as send:
        for number in range(12):
            send(f"order S{number}")
        expect(run_with(visit, "order S11")).to_be_visible()
        looked_at = run_with(visit, "order S0").get_by_role("link")
        looked_at.focus()
        looked_at.scroll_into_view_if_needed()
        place = looked_at.bounding_box()
        for number in range(12, 16):
            send(f"order S{number}")
            expect(run_with(visit, f"order S{number}")).to_have_count(1)
            expect(looked_at).to_be_focused()
        now = looked_at.bounding_box()
    assert place is not None
    assert now is not None
    assert abs(now["y"] - place["y"]) < 2


@pytest.mark.e2e
def test_new_runs_do_not_disturb_a_field_that_the_user_types_in(visit: Visit, gateway: Gateway) -> None:
    since = visit.page.get_by_role("search").get_by_label("Since")
    since.focus()
    with sending(gateway) as send:
        for number in range(3):
            send(f"order T{number}")
            expect(run_with(visit, f"order T{number}")).to_be_visible()
            expect(since).to_be_focused()
    visit.page.keyboard.insert_text("1h")
    visit.page.wait_for_url("**/?since=1h")
    expect(since).to_be_focused()
    expect(run_with(visit, "order T2")).to_be_visible()


@pytest.mark.e2e
def test_the_first_runs_replace_the_empty_list(visiting: Visiting, tmp_path: Path) -> None:
    with (
        open_store(tmp_path / "goldspan.db") as store,
        served(Pages(store, goldens=lambda: None, is_live=True)) as address,
    ):
        visit = visiting(address)
        visit.open()
        expect(visit.page.get_by_role("heading", name="No request has been scored yet")).to_be_visible()
        for number in range(3):
            run = Run(f"run-{number}", input=f"asked {number}", tool_calls=(ToolCall("search"),))
            store.submit(evaluate(run, Goldens([])))
            expect(run_with(visit, f"asked {number}")).to_be_visible()
        expect(visit.page.get_by_role("heading", name="No request")).to_have_count(0)
        expect(visit.page.get_by_role("img", name="Runs over time")).to_be_visible()
        visit.leave()


@pytest.mark.e2e
def test_a_hostile_request_is_shown_as_text(visit: Visit, gateway: Gateway) -> None:
    hostile = "order <img src=x onerror=alert(1)> \u202e </script><script>alert(2)</script> {{ 7 * 7 }} \x1b"
    with sending(gateway) as send:
        send(hostile, tool=f"t {hostile}", agent=f"a {hostile}")
    run = run_with(visit, "order <img src=x onerror=alert(1)> ⟨U+202E⟩ </script>").first
    expect(run).to_be_visible()
    run.get_by_role("link").click()
    about = visit.page.get_by_role("region", name="About the run")
    expect(about).to_contain_text("a order <img src=x onerror=alert(1)>")


@pytest.mark.e2e
def test_the_page_reconnects_to_a_restarted_gateway(visiting: Visiting, tmp_path: Path) -> None:
    (tmp_path / "goldens.yaml").write_text(GOLDENS)
    gateway = Gateway(tmp_path, ("--goldens", "goldens.yaml", "--grace", "0.1", "--idle", "1"))
    try:
        gateway.start()
        visit = visiting(gateway.address)
        visit.open()
        expect(visit.page.get_by_text("listening", exact=True)).to_be_visible()
        assert gateway.stop() == 0  # open streams do not delay the shutdown
        expect(visit.page.get_by_text("connection lost, reconnecting")).to_be_visible()
        gateway.start()
        with sending(gateway) as send:
            send("order R1")
        expect(run_with(visit, "order R1")).to_be_visible()
        expect(visit.page.get_by_text("listening", exact=True)).to_be_visible()
        visit.overlook("net::ERR_")
        visit.leave()
    finally:
        gateway.kill()


@pytest.mark.e2e
def test_the_page_retries_a_refused_stream(visiting: Visiting, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Browsers do not reconnect a stream after an error response."""
    monkeypatch.setattr(http_routes, "MAX_STREAMS", 0)
    with (
        open_store(tmp_path / "goldspan.db") as store,
        served(Pages(store, goldens=lambda: None, is_live=True)) as address,
    ):
        visit = visiting(address)
        visit.open()
        expect(visit.page.get_by_text("connection lost, reconnecting")).to_be_visible()
        monkeypatch.setattr(http_routes, "MAX_STREAMS", 1)
        expect(visit.page.get_by_text("listening", exact=True)).to_be_visible()
        store.submit(evaluate(Run("run", input="asked"), Goldens([])))
        expect(run_with(visit, "asked")).to_be_visible()
        visit.forgive("status of 503")
        visit.leave()


@pytest.mark.e2e
def test_the_page_keeps_the_list_and_reports_a_store_failure(visiting: Visiting, tmp_path: Path) -> None:
    path = tmp_path / "goldspan.db"
    with open_store(path) as store, open_store(path) as closed:
        store.submit(evaluate(Run("run", input="asked"), Goldens([])))
        site = Pages(store, goldens=lambda: None, is_live=True)
        with served(site) as address:
            visit = visiting(address)
            visit.open()
            closed.close()
            site._store = closed
            verdict = visit.page.get_by_role("search").get_by_label("Verdict")
            verdict.select_option("not evaluated")
            expect(visit.page.get_by_role("status")).to_contain_text("the list could not be loaded")
            expect(visit.page.get_by_role("main")).to_contain_text("the store does not answer")
            expect(run_with(visit, "asked")).to_be_visible()
            site._store = store
            verdict.select_option("any")
            expect(visit.page.get_by_text("listening", exact=True)).to_be_visible()
            visit.forgive("status of 503")
            visit.leave()


# --- with tokens ------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    folder = tmp_path_factory.mktemp("guarded")
    (folder / "goldens.yaml").write_text(GOLDENS)
    write_token_files(folder, TOKEN)
    options = ("--goldens", "goldens.yaml", "--grace", "0.1", "--idle", "1")
    with serving(folder, *options, "--token-file", "ingest", "--read-token-file", "read") as gateway:
        yield gateway


def write_token_files(folder: Path, token: str) -> None:
    for name, text in (("ingest", "a-token-to-send-with"), ("read", token)):
        (folder / name).write_text(f"{text}\n")
        (folder / name).chmod(0o600)


def submit_token(visit: Visit, token: str) -> None:
    visit.page.get_by_label("Read token").fill(token)
    visit.page.get_by_role("button", name="Log in").click()


@pytest.mark.e2e
@pytest.mark.parametrize(
    "how", [{"color_scheme": "light"}, {"color_scheme": "dark", "viewport": {"width": 390, "height": 700}}]
)
def test_the_login_page_is_accessible(visiting: Visiting, guarded: Gateway, how: dict[str, object]) -> None:
    visit = visiting(guarded.address, **how)
    assert visit.open("/goldens").status == 401
    visit.forgive("status of 401")
    assert visit.grave_findings() == []
    assert visit.too_wide() == []
    assert visit.weight() < 100_000
    visit.page.keyboard.press("Tab")
    expect(visit.page.get_by_label("Read token")).to_be_focused()


@pytest.mark.e2e
def test_a_user_logs_in_with_a_read_token_and_logs_out(visiting: Visiting, guarded: Gateway) -> None:
    visit = visiting(guarded.address)
    visit.open("/?agent=support")
    submit_token(visit, "a guess")
    expect(visit.page.get_by_role("alert")).to_contain_text("This token does not permit reading")
    submit_token(visit, TOKEN)
    visit.page.wait_for_url("**/?agent=support")
    expect(visit.page.get_by_text("listening", exact=True)).to_be_visible()
    with sending(guarded, Authorization="Bearer a-token-to-send-with") as send:
        send("order E1")
    expect(run_with(visit, "order E1")).to_be_visible()
    assert TOKEN not in visit.page.evaluate("document.cookie + document.documentElement.outerHTML")
    visit.page.get_by_role("button", name="Log out").click()
    expect(visit.page.get_by_role("heading", name="A token is needed")).to_be_visible()
    visit.forgive("status of 401")


@pytest.mark.e2e
def test_the_page_shows_the_login_form_again_after_its_token_is_replaced(visiting: Visiting, tmp_path: Path) -> None:
    write_token_files(tmp_path, TOKEN)
    gateway = Gateway(tmp_path, ("--token-file", "ingest", "--read-token-file", "read"))
    try:
        gateway.start()
        visit = visiting(gateway.address)
        visit.open()
        submit_token(visit, TOKEN)
        expect(visit.page.get_by_text("listening", exact=True)).to_be_visible()
        assert gateway.stop() == 0
        write_token_files(tmp_path, "another-token-to-read-with")
        gateway.start()
        expect(visit.page.get_by_role("heading", name="A token is needed")).to_be_visible()
        submit_token(visit, "another-token-to-read-with")
        expect(visit.page.get_by_text("listening", exact=True)).to_be_visible()
        visit.forgive("status of 401")
        visit.overlook("net::ERR_")
        visit.leave()
    finally:
        gateway.kill()
