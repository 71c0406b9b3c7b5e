"""The board of issues in a real browser: filters, one issue, its events, and a decision that is there after a reload."""

from __future__ import annotations

import re
from typing import Any

import pytest

from counterpoint.app.api.issues import decide, issues
from web_help import COLOURS, Viewer, broken

BACKGROUND = "getComputedStyle(document.body).backgroundColor"


def opens(page: Any, viewer: Viewer, path: str) -> None:
    page.goto(viewer.url + path)
    page.wait_for_selector("nav.rail")


def test_the_board_filters_by_state_and_kind_and_the_address_keeps_it(page: Any, viewer: Viewer) -> None:
    opens(page, viewer, "/")
    page.get_by_role("link", name="Issues").click()
    page.get_by_role("heading", name="Issues").wait_for()
    rows = page.locator(".issue-table tbody tr")
    rows.first.wait_for()
    few = rows.count()
    page.get_by_role("button", name=re.compile("^All, those")).click()
    page.wait_for_url(re.compile("state=all"))
    assert rows.count() > few
    page.get_by_role("button", name=re.compile("^Injections")).click()
    page.wait_for_url(re.compile("kind=injection"))
    page.get_by_role("link", name="Orders in what mail.read brings were followed").wait_for()
    assert all(text.startswith("Orders in what") for text in rows.locator("th").all_inner_texts())
    address = page.url
    page.goto("about:blank")
    page.goto(address)
    rows.first.wait_for()
    assert page.get_by_role("button", name=re.compile("^Injections")).get_attribute("aria-pressed") == "true"


def test_an_issue_leads_to_its_events_and_a_decision_is_kept(page: Any, viewer: Viewer) -> None:
    wanted = next(one for one in issues(store=viewer.store) if one.name == "python: times out")
    opens(page, viewer, "/issues")
    page.get_by_role("link", name=wanted.name, exact=True).click()
    page.wait_for_url(re.compile(f"/issues/{wanted.id}"))
    region = page.get_by_role("region", name="Runs")
    region.locator("tbody tr").first.wait_for()
    assert region.locator("tbody tr").count() == wanted.runs
    region.locator("td.events a").first.click()
    page.wait_for_url(re.compile(r"/t/[^?]+\?e=e\d+"))
    page.get_by_role("region", name="Event").get_by_text("timeout").first.wait_for()
    page.go_back()

    try:
        page.get_by_role("textbox", name="Why").fill("asks twice now")
        page.get_by_role("button", name="Resolve").click()
        page.locator("header .badge", has_text="resolved").wait_for()
        page.get_by_text("asks twice now").wait_for()
        page.get_by_role("button", name="Reopen").wait_for()
        assert issues(store=viewer.store).one(wanted.id).state == "resolved"
        opens(page, viewer, "/issues?state=resolved")
        page.get_by_role("link", name=wanted.name, exact=True).wait_for()
        opens(page, viewer, "/issues")
        page.locator(".issue-table tbody tr").first.wait_for()
        assert page.get_by_role("link", name=wanted.name, exact=True).count() == 0
    finally:
        decide(wanted.id, "open", store=viewer.store)


def test_a_query_and_an_issue_that_is_not_there_are_answered_in_words(page: Any, viewer: Viewer) -> None:
    opens(page, viewer, "/issues")
    page.locator(".issue-table tbody tr").first.wait_for()
    page.get_by_role("searchbox", name="Search runs").fill("project:nowhere")
    page.keyboard.press("Enter")
    page.get_by_text("No run matches 'project:nowhere'").wait_for()
    opens(page, viewer, "/issues/00000000")
    page.get_by_text("No issue '00000000'").wait_for()
    page.wrong[:] = [one for one in page.wrong if "404" not in one]


@pytest.mark.parametrize("path", ["/issues", "/issues?state=all", "one"])
def test_axe_finds_nothing(watched: Any, viewer: Viewer, path: str) -> None:
    if path == "one":
        path = f"/issues/{next(iter(issues(store=viewer.store))).id}"
    watched.emulate_media(color_scheme="light")
    opens(watched, viewer, path)
    watched.locator(".issue-table tbody tr").first.wait_for()
    assert broken(watched) == []
    light = watched.evaluate(BACKGROUND)
    watched.emulate_media(color_scheme="dark")
    watched.wait_for_function(f"light => {BACKGROUND} !== light", arg=light)
    assert broken(watched, *COLOURS) == []


def test_on_a_narrow_screen_the_page_itself_does_not_scroll_sideways(page: Any, viewer: Viewer) -> None:
    page.set_viewport_size({"width": 420, "height": 900})
    for path in ("/issues", f"/issues/{next(iter(issues(store=viewer.store))).id}"):
        opens(page, viewer, path)
        page.locator(".issue-table tbody tr").first.wait_for()
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
