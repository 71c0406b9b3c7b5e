"""The list, the text, the file and the stream in a real browser: what a user of other viewers expects to be where it is."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from counterpoint import Event, Store, Trace, content_ref
from counterpoint.app.viewer.one_file import reopened
from steer_help import running
from warm_help import programs
from web_help import CPT, Viewer

SHOP = "0a000000-0000-4000-8000-00000000000a"
MARKDOWN = "# Plan\n\nFirst **read**, then:\n\n| step | who |\n|---|---|\n| one | lead |\n\n- [the page](http://x.test/a)\n\n```py\nx = 1\n```"
JSON = '{"found": {"rivers": ["Elbe", "Oder"]}, "n": 2}'
LONG = "\n".join(f"line {k} of the result" for k in range(300))


def opens(page: Any, viewer: Viewer, path: str) -> None:
    page.goto(viewer.url + path)
    page.wait_for_selector("nav.rail")


def test_j_k_and_enter_walk_through_the_list_and_order_is_in_the_address(page: Any, viewer: Viewer) -> None:
    opens(page, viewer, "/")
    page.get_by_role("button", name="tokens").click()
    page.wait_for_url(re.compile(r"[?&]sort=-tokens"))
    page.locator("[role=columnheader][aria-sort=descending]", has_text="tokens").wait_for()  # the address is ahead of the rows
    links = page.locator(".windowed [data-row] a")
    order = [links.nth(k).get_attribute("href") for k in range(3)]
    page.keyboard.press("j")
    page.keyboard.press("j")
    page.keyboard.press("j")
    page.keyboard.press("k")
    page.wait_for_function("href => document.activeElement.getAttribute('href') === href", arg=order[1])
    assert page.locator(".is-at a").get_attribute("href") == order[1]
    page.keyboard.press("Enter")
    page.wait_for_url(re.compile(re.escape(str(order[1]))))
    page.go_back()
    page.wait_for_url(re.compile(r"[?&]sort=-tokens"))
    page.locator("[role=columnheader][aria-sort=descending]", has_text="tokens").wait_for()
    assert links.first.get_attribute("href") == order[0]


def test_columns_make_room_on_a_narrow_screen_and_alerts_are_counted(page: Any, viewer: Viewer) -> None:
    heads = page.locator(".grid-head [role=columnheader]")
    opens(page, viewer, "/?q=mailroom")
    page.locator('a[href="/t/mailroom"]').locator("xpath=ancestor::*[@role='row']").locator(".badge", has_text="⚠").wait_for()
    wide = heads.all_inner_texts()
    page.set_viewport_size({"width": 700, "height": 800})
    page.wait_for_function("n => document.querySelectorAll('.grid-head [role=columnheader]').length < n", arg=len(wide))
    narrow = heads.all_inner_texts()
    assert "busy" in wide
    assert {"title", "errors", "alerts"} <= set(narrow)
    assert not {"busy", "model", "project"} & set(narrow)
    table = page.locator(".grid-table").first
    assert table.evaluate("e => e.scrollWidth <= e.clientWidth")


def test_thousands_of_errors_have_room(page: Any, viewer: Viewer) -> None:
    events = [Event(id=f"e{k}", t=float(k), type="tool_call", agent="a", tool="t", ok=False, error="no") for k in range(4_720)]
    with Store(viewer.store) as store:
        store.add(Trace(trace_id="many-errors", task_id="many-errors", events=events, edges=[]))
    opens(page, viewer, "/?q=many-errors")
    badge = page.get_by_role("cell").locator(".badge", has_text="4.72 k")
    badge.wait_for()
    assert badge.evaluate("e => e.closest('[role=cell]').scrollWidth <= e.closest('[role=cell]').clientWidth")


def test_a_link_to_an_event_that_is_not_there_says_so(page: Any, viewer: Viewer) -> None:
    opens(page, viewer, "/t/research-team?e=e99999")
    page.get_by_text("There is no event e99999 in this trace.").wait_for()


def test_alerts_sort_and_enter_in_the_search_opens_the_first(page: Any, viewer: Viewer) -> None:
    opens(page, viewer, "/?q=mail")
    page.get_by_role("button", name="alerts").click()
    page.wait_for_url(re.compile(r"[?&]sort=-alerts"))
    page.locator("[role=columnheader][aria-sort=descending]", has_text="alerts").wait_for()
    page.keyboard.press("/")
    page.keyboard.press("Enter")
    page.wait_for_url("**/t/mailroom")


def test_enter_waits_for_what_the_query_finds(page: Any, viewer: Viewer) -> None:
    held: list[Any] = []
    opens(page, viewer, "/")
    page.locator(".windowed [data-row] a").first.wait_for()
    page.route("**/api/traces?*mailroom*", lambda route: held.append(route))
    page.keyboard.press("/")
    page.get_by_role("searchbox", name="Search traces").fill("mailroom")
    page.keyboard.press("Enter")
    page.wait_for_url(re.compile(r"[?&]q=mailroom"))  # and no trace that the last query found
    while not held:
        page.wait_for_timeout(20)
    for one in held:
        one.continue_()
    page.wait_for_url("**/t/mailroom")


def test_a_filter_finds_as_many_as_it_says_and_the_list_how_many_there_are(page: Any, viewer: Viewer) -> None:
    for name in ("demo", "Demo", "demo-two"):
        event = Event(id="e0", t=0.0, type="message", agent="a")
        with Store(viewer.store) as store:
            store.add(Trace(trace_id=f"of-{name}", task_id=f"of-{name}", events=[event], edges=[], meta={"project": name}))
    opens(page, viewer, "/")
    filters = page.get_by_role("complementary", name="Filters")
    filters.get_by_role("button", name=re.compile("^Demo 1$")).click()
    said = page.locator(".page-head [role=status]")
    said.filter(has_text=re.compile(r"^1 of \d+ traces in ")).wait_for()
    assert page.locator(".windowed [data-row] a").all_inner_texts() == ["of-Demo"]
    opens(page, viewer, "/?q=no-such-trace")
    said.filter(has_text=re.compile(r"^0 of \d+ traces in ")).wait_for()


def _walk(page: Any, lines: Any, to: int) -> None:
    """Press j or k until this row has the focus; a key that comes before the page listens is pressed again."""
    focused = "rows => rows.findIndex(row => row.contains(document.activeElement))"
    for _ in range(600):
        if (at := lines.evaluate_all(focused)) == to:
            return
        page.keyboard.press("j" if at < to else "k")
        page.wait_for_timeout(200)
    raise AssertionError(f"no key leads to row {to}")


def test_j_k_and_enter_walk_through_credit(page: Any, viewer: Viewer) -> None:
    opens(page, viewer, "/t/research-team?v=credit&m=uniform")
    lines = page.get_by_role("table", name="Credit by agent").locator("[data-row]")
    lines.nth(1).wait_for()
    _walk(page, lines, 1)
    page.keyboard.press("Enter")
    lines.nth(1).locator(".is-selected").wait_for()


@pytest.mark.parametrize(("path", "said"), [("/runs", "No training runs"), ("/diff", "Compare two traces"), ("/compare", "Compare"), ("/no/such", "There is no page at /no/such.")])
def test_every_address_is_a_page(page: Any, viewer: Viewer, path: str, said: str) -> None:
    opens(page, viewer, path)
    page.get_by_role("main").get_by_role("heading").filter(has_text=said).first.wait_for()
    page.wrong[:] = [one for one in page.wrong if "404" not in one or path != "/no/such"]


@pytest.fixture(scope="module")
def texts(viewer: Viewer) -> str:
    """A trace whose texts are Markdown, JSON, and long."""
    said = [("message", MARKDOWN), ("tool_result", JSON), ("tool_result", LONG)]
    events = [Event(id=f"e{k}", t=float(k), type=kind, agent="lead", content_ref=content_ref(text), trusted=k != 2) for k, (kind, text) in enumerate(said)]  # type: ignore[arg-type]
    with Store(viewer.store) as store:
        store.add(Trace(trace_id="texts", task_id="read", events=events, edges=[], contents={content_ref(text): text for _, text in said}))
    return "texts"


def test_markdown_and_json_are_set_and_long_results_are_folded(page: Any, viewer: Viewer, texts: str) -> None:
    opens(page, viewer, f"/t/{texts}?v=text")
    talk = page.get_by_role("region", name="Text", exact=True)
    talk.locator(".md table td", has_text="lead").wait_for()
    assert talk.locator(".md strong").inner_text() == "read"
    assert talk.locator("pre.md-code").inner_text() == "x = 1"
    assert talk.get_by_text("(http://x.test/a)").count() == 1
    assert talk.locator(".talk-body a").count() == 0
    assert talk.locator(".json-name", has_text="rivers").count() == 1
    assert talk.get_by_text("line 299 of the result").count() == 0
    page.keyboard.press("j")
    page.keyboard.press("j")
    page.keyboard.press("j")
    page.wait_for_url(re.compile("e=e2"))
    page.keyboard.press("Enter")
    talk.get_by_role("button", name="load").click()
    talk.get_by_text("line 299 of the result").first.wait_for()
    talk.get_by_role("button", name="Show less").wait_for()
    hatched = talk.locator(".is-untrusted")
    assert hatched.evaluate("e => getComputedStyle(e).backgroundImage") == "none"
    assert "repeating-linear-gradient" in hatched.evaluate("e => getComputedStyle(e, '::before').backgroundImage")


def test_fork_says_why_it_cannot(page: Any, viewer: Viewer) -> None:
    opens(page, viewer, f"/t/{SHOP}?e=msg_a2")
    button = page.locator(".trace-head").get_by_role("button", name="Fork")
    assert button.get_attribute("aria-disabled") == "true"
    button.click(force=True)  # a browser presses it, the driver waits for a button that is on
    page.locator(".toast").get_by_text("This trace was imported").wait_for()


def test_share_downloads_what_was_chosen_and_closes_with_esc(page: Any, viewer: Viewer) -> None:
    opens(page, viewer, f"/t/{SHOP}")
    share = page.locator(".trace-head details", has=page.locator("summary", has_text="Share"))
    share.locator("summary").click()
    share.get_by_label(re.compile("With texts")).uncheck()
    share.get_by_text("--summary").wait_for()
    with page.expect_download() as got:
        share.get_by_role("button", name="Download").click()
    content = reopened(Path(got.value.path()).read_bytes())[1]
    assert got.value.suggested_filename == f"{SHOP}.html"
    assert content["masked"] is not None
    assert content["traces"][SHOP]["texts"] == {}
    page.keyboard.press("Escape")
    assert share.get_attribute("open") is None
    assert share.locator("summary").evaluate("e => e === document.activeElement")


def test_a_dropped_file_opens_in_place_of_the_store(page: Any, viewer: Viewer, tmp_path: Path) -> None:
    file = tmp_path / "shop.html"
    subprocess.run([f"{programs()}/counterpoint", "export", SHOP, "--to", "html", "-o", str(file), "--store", str(viewer.store)], check=True, capture_output=True)
    drop = """([text, name]) => {
      const data = new DataTransfer();
      data.items.add(new File([text], name, { type: "text/html" }));
      document.querySelector(".traces").dispatchEvent(new DragEvent("drop", { dataTransfer: data, bubbles: true, cancelable: true }));
    }"""
    opens(page, viewer, "/")
    page.locator(".traces .grid-table").wait_for()
    page.evaluate(drop, ["{}", "log it.jsonl"])
    page.get_by_role("alert").get_by_text("counterpoint import 'log it.jsonl'").wait_for()
    page.evaluate(drop, [file.read_text(), "shop.html"])
    page.locator(f'h1[title="{SHOP}"]').wait_for()
    page.get_by_text("This page is a file").or_(page.locator(".trace-head")).first.wait_for()
    page.keyboard.press("3")
    page.get_by_role("region", name="Text", exact=True).get_by_text("Both are true").first.wait_for()


@pytest.mark.parametrize(("width", "height"), [(1920, 1080), (1440, 900), (1024, 700), (700, 900)])
def test_the_tour_hides_no_legend(browser: Any, viewer: Viewer, width: int, height: int) -> None:
    context = browser.new_context(viewport={"width": width, "height": height})
    page = context.new_page()
    page.set_default_timeout(120_000)
    page.goto(f"{viewer.url}/t/research-team")
    tour = page.get_by_role("complementary", name="Tour")
    for k in range(6):
        tour.get_by_text(f"{k + 1} of 6").wait_for()
        page.locator(".time-legend").wait_for()
        page.wait_for_function(APART)
        assert page.evaluate("document.querySelector('.tour').getBoundingClientRect().top >= 0")
        tour.get_by_role("button", name="Done" if k == 5 else "Next").click()
    context.close()


APART = """() => {
    const [card, legend] = [".tour", ".time-legend"].map((one) => document.querySelector(one).getBoundingClientRect());
    const inside = legend.top < innerHeight && legend.bottom <= innerHeight;
    return !inside || card.bottom <= legend.top || card.top >= legend.bottom || card.right <= legend.left || card.left >= legend.right;
}"""


def test_the_tour_is_shown_once(browser: Any, viewer: Viewer) -> None:
    context = browser.new_context(viewport={"width": 1440, "height": 900})
    page = context.new_page()
    opens(page, viewer, "/")
    tour = page.get_by_role("complementary", name="Tour")
    for k in range(6):
        tour.get_by_text(f"{k + 1} of 6").wait_for()
        tour.get_by_role("button", name="Done" if k == 5 else "Next").click()
    tour.wait_for(state="detached")
    page.reload()
    page.locator(".grid-table").wait_for()
    assert tour.count() == 0
    page.keyboard.press("Control+k")
    page.get_by_placeholder("What to do?").fill("tour")
    page.keyboard.press("Enter")
    tour.wait_for()
    page.keyboard.press("Escape")
    tour.wait_for(state="detached")
    context.close()


def test_tabs_share_one_stream_and_the_next_goes_on(browser: Any, viewer: Viewer) -> None:
    context = browser.new_context()
    streams: list[str] = []
    context.on("request", lambda request: streams.append(request.url) if "/api/live" in request.url else None)
    first, second = context.new_page(), context.new_page()
    with running(viewer.store, "shared-live", limit_s=60):
        for page in (first, second):
            page.goto(f"{viewer.url}/live")
            page.get_by_role("link", name="shared-live").first.wait_for()
        assert len(streams) == 1
        first.close()
        with second.expect_request("**/api/live"):
            pass
        second.get_by_text("● live").wait_for()
        second.get_by_role("link", name="shared-live").first.wait_for()
        assert len(streams) == 2
        second.keyboard.press("j")
        second.wait_for_function("document.activeElement.getAttribute('href') === '/t/shared-live'")
        second.keyboard.press("Enter")
        second.wait_for_url("**/t/shared-live")
    context.close()
    with Store(viewer.store) as store:
        store.remove("shared-live")


def test_the_page_comes_back_with_its_server(page: Any, tmp_path: Path) -> None:
    import json
    import socket

    with Store(tmp_path / "traces") as store:
        store.add(Trace(trace_id="one", task_id="t", events=[Event(id="e0", t=0.0, type="message", agent="lead")], edges=[]))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]

    def start() -> subprocess.Popen[str]:
        process = subprocess.Popen([*CPT, "view", str(tmp_path / "traces"), "--no-open", "--json", "--port", str(port)], stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        assert json.loads(process.stdout.readline())["url"]
        return process

    server = start()
    try:
        page.goto(f"http://127.0.0.1:{port}/")
        page.get_by_role("link", name="t", exact=True).or_(page.get_by_role("link", name="one")).first.wait_for()
        server.terminate()
        server.wait(20)
        page.get_by_role("searchbox", name="Search traces").fill("lead")
        page.get_by_text("Reconnecting…").wait_for()
        assert page.locator(".grid-table a").count() == 1, "the last data stays"
        page.get_by_role("searchbox", name="Search traces").fill("")
        server = start()
        page.get_by_text("Reconnecting…").wait_for(state="detached")
        page.get_by_text("1 trace in").wait_for()
    finally:
        server.terminate()
        server.wait(20)
    page.wrong[:] = [one for one in page.wrong if "ERR_CONNECTION" not in one and "Failed to load" not in one]


def test_a_tab_says_what_it_shows(page: Any, viewer: Viewer) -> None:
    opens(page, viewer, "/")
    page.wait_for_function("said => document.title === said", arg="Traces · Counterpoint")
    page.get_by_role("link", name="Read many pages at once").first.click()
    page.wait_for_function("said => document.title === said", arg="Read many pages at once · Counterpoint")
    page.go_back()
    page.wait_for_function("said => document.title === said", arg="Traces · Counterpoint")


def test_what_says_copied_was_copied_also_without_a_clipboard(page: Any, viewer: Viewer) -> None:
    page.add_init_script("Object.defineProperty(Navigator.prototype, 'clipboard', { get: () => undefined })")  # as off this machine
    opens(page, viewer, "/c")
    command = page.locator(".command").first
    command.get_by_role("button").click()
    command.get_by_text("copied").wait_for()
    box = page.get_by_role("textbox", name="Sides to compare")
    box.focus()
    page.keyboard.press("Control+V")
    assert box.input_value() == command.locator("code").inner_text()


def test_names_of_any_script_do_not_run_into_numbers_or_turn_sentences(page: Any, viewer: Viewer) -> None:
    names = ["\u0645\u0647\u0646\u062f\u0633", "\u202etluciffid", "a" * 300, "plain"]
    said = {content_ref(name): f"{name} found 42" for name in names}
    events = [Event(id=f"e{k}", t=float(k), type="message", agent=name, content_ref=content_ref(name), tokens_out=3) for k, name in enumerate(names)]
    with Store(viewer.store) as store:
        store.add(Trace(trace_id="scripts", task_id="scripts", events=events, edges=[], contents=said, rewards={"team": 0.5}))
    opens(page, viewer, "/t/scripts?v=credit")
    page.get_by_role("button", name="provenance").click()
    note = page.get_by_role("region", name="First method").get_by_text("Not used in the result")
    note.get_by_text("U+202E").wait_for()
    assert page.locator(".credit-main").evaluate("e => e.scrollWidth <= e.clientWidth")
    page.keyboard.press("1")
    nodes = page.locator(".picture .node")
    nodes.locator("tspan.quiet").first.wait_for()
    for k in range(nodes.count()):
        name, credit = (nodes.nth(k).locator(f"tspan.{kind}").bounding_box() for kind in ("node-name", "quiet"))
        assert name["x"] + name["width"] <= credit["x"] + 1
    assert nodes.nth(1).locator(".node-name").text_content() == "U+202Etluciffid"


def test_a_session_that_hangs_is_seen_in_the_list_and_live(page: Any, viewer: Viewer, tmp_path: Path) -> None:
    import time

    from app.hung_help import claude
    from counterpoint.app.discover import read_logs

    hung = next(read_logs(claude(tmp_path, time.time() - 7_500)))
    with Store(viewer.store) as store:
        store.add(hung)
    try:
        opens(page, viewer, "/?q=open")
        head = page.locator(".grid-head [role=columnheader][aria-sort=descending]")
        head.wait_for()
        assert head.inner_text().split() == ["active", "↓"], "the list comes in an order, and says in which"
        row = page.locator("[role=row]", has_text="Wait for the door to dry.")
        assert "open 2h0" in row.inner_text()
        page.goto(f"{viewer.url}/live")
        page.get_by_role("link", name="Wait for the door to dry.").first.wait_for()
        opened = page.get_by_role("region", name="Open events")
        assert "Bash: sleep 99999" in opened.inner_text()
        assert "at work or stuck" in page.locator(".agents-now").inner_text()
    finally:
        with Store(viewer.store) as store:
            store.remove(hung.trace_id)
