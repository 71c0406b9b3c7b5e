"""A running team steered from the page: paused, told something and stopped, by mouse and by keys, with a second press each time."""

from __future__ import annotations

import re
from typing import Any

from counterpoint.store import Store
from steer_help import running
from web_help import COLOURS, Viewer, broken


def orders(page: Any) -> Any:
    return page.get_by_role("list", name="Orders")


def test_an_agent_is_paused_and_told_and_the_team_is_stopped(page: Any, viewer: Viewer) -> None:
    with running(viewer.store, "steered-live", limit_s=60) as process:
        page.goto(f"{viewer.url}/live")
        region = page.get_by_role("region", name="Steer")
        region.get_by_role("button", name="Pause lead.1 of steered-live").click()
        dialog = page.get_by_role("dialog")
        dialog.get_by_role("button", name="Cancel").click()
        dialog.wait_for(state="hidden")
        assert orders(page).get_by_role("listitem").count() == 0
        region.get_by_role("button", name="Pause lead.1 of steered-live").click()
        dialog.get_by_role("button", name="Pause lead.1").click()
        orders(page).get_by_text(re.compile(r"pause lead\.1 applied at e\d+")).wait_for()
        row = region.get_by_role("row", name=re.compile(r"^lead\.1 "))
        row.get_by_text("paused").wait_for()

        # By keys alone: Tab to the dialog's field, Enter in its button.
        button = region.get_by_role("button", name="Message lead.2 of steered-live")
        button.focus()
        page.keyboard.press("Enter")
        dialog.wait_for()
        page.keyboard.type("only the second ledger")
        page.keyboard.press("Tab")
        page.keyboard.press("Tab")
        page.keyboard.press("Enter")
        orders(page).get_by_text(re.compile(r"message lead\.2 applied at e\d+")).wait_for()
        assert button.evaluate("button => button === document.activeElement"), "the focus comes back"

        region.get_by_role("button", name="Stop lead.1 of steered-live").click()
        assert dialog.get_by_role("checkbox").is_checked()
        dialog.get_by_role("button", name="Stop lead.1").click()
        orders(page).get_by_text(re.compile(r"stop lead\.1 applied at e\d+")).wait_for()
        region.get_by_role("row", name=re.compile(r"^lead\.1 ")).get_by_text("stopped").wait_for()
        region.get_by_role("button", name="Stop the team of steered-live").click()
        dialog.get_by_role("button", name="Stop the team").click()
        orders(page).get_by_text(re.compile(r"stop the team applied at e\d+")).wait_for()
        assert process.wait(20) == 0

    with Store(viewer.store, read_only=True) as store:
        trace = store.get("steered-live")
    told = [(e.to, (e.extra or {})["order"]["action"]) for e in trace.events if e.type == "human_intervention"]
    assert [one for one in told if one[0] == "lead.1"][:2] == [("lead.1", "pause"), ("lead.1", "stop")]
    assert "only the second ledger" in trace.contents.values()
    page.goto(f"{viewer.url}/t/steered-live")
    page.locator("header.trace-head").get_by_text("steered", exact=False).nth(1).wait_for()
    page.goto(f"{viewer.url}/?q=steered")
    page.get_by_role("link", name="steered-live").wait_for()
    page.goto(f"{viewer.url}/d/panel..steered-live")
    page.locator(".sides").get_by_text("☉ steered").wait_for()


def test_a_refusal_is_shown(page: Any, viewer: Viewer) -> None:
    with running(viewer.store, "refusing", limit_s=60) as process:
        page.goto(f"{viewer.url}/live")
        page.get_by_role("button", name="Pause lead.2 of refusing").click()
        process.kill()
        process.wait()
        dialog = page.get_by_role("dialog")
        dialog.get_by_role("button", name="Pause lead.2").click()
        dialog.get_by_text("is not running").wait_for()
        dialog.get_by_role("button", name="Cancel").click()
        orders(page).get_by_text("refused").wait_for()
    page.wrong[:] = [one for one in page.wrong if "409" not in one]
    with Store(viewer.store) as store:
        store.remove("refusing")


def test_axe_finds_nothing_while_a_team_is_steered(watched: Any, viewer: Viewer) -> None:
    with running(viewer.store, "axe", limit_s=60):
        watched.emulate_media(color_scheme="light")
        watched.goto(f"{viewer.url}/live")
        watched.get_by_role("button", name="Pause lead.1 of axe").click()
        watched.get_by_role("dialog").get_by_role("button", name="Pause lead.1").click()
        orders(watched).get_by_text(re.compile("applied at")).wait_for()
        watched.get_by_role("button", name="Stop lead.1 of axe").click()
        assert broken(watched) == []
        watched.emulate_media(color_scheme="dark")
        watched.wait_for_selector(":root[data-theme=dark]", state="attached")
        assert broken(watched, *COLOURS) == []
        watched.keyboard.press("Escape")
        assert broken(watched) == []
    with Store(viewer.store) as store:
        store.remove("axe")
