"""A recorded team in the page: its trace is opened, forked at a return, and badges say what was asked again; and one that runs."""

from __future__ import annotations

import re
import subprocess
from typing import Any

from counterpoint import Store
from endpoint_help import FaultServer
from plays_help import plays
from warm_help import programs
from web_help import Viewer

TEAM = ("record", "--task", "T1", "--set", "parts=2", "--width", "2", "-q")


def test_a_recorded_team_is_forked_at_a_return_and_badges_say_what_was_asked_again(page: Any, viewer: Viewer) -> None:
    subprocess.run(
        [f"{programs()}/counterpoint", *TEAM, "--model", "fake:1", "--seed", "1", "--id", "live-team", "--store", str(viewer.store)],
        check=True,
        capture_output=True,
    )
    with Store(viewer.store, read_only=True) as store:
        trace = store.get("live-team")
    at = next(e.id for e in trace.events if e.type == "return")
    page.goto(f"{viewer.url}/t/live-team?e={at}")
    panel = page.get_by_role("region", name="Event")
    panel.get_by_role("button", name="Fork").click()
    form = page.locator("form.fork")
    form.get_by_role("radio", name=re.compile("^Delete")).check()
    form.get_by_role("button", name="Fork and compare").click()
    page.wait_for_url(re.compile("/d/live-team"), timeout=120_000)
    page.get_by_text("first divergence").wait_for()

    fork = page.url.partition("..")[2]
    with Store(viewer.store, read_only=True) as store:
        forked = store.get(fork.replace("%7E", "~"))
    badges = {e.id: (e.extra or {})["badge"] for e in forked.events}
    assert set(badges.values()) == {"reused", "recorded", "re-run"}
    for wanted in ("reused", "recorded", "re-run"):
        page.goto(f"{viewer.url}/t/{fork}?e={next(id_ for id_, badge in badges.items() if badge == wanted)}")
        page.get_by_role("region", name="Event").get_by_text(wanted, exact=False).first.wait_for()


def test_the_live_page_shows_a_team_that_is_being_recorded(page: Any, viewer: Viewer) -> None:
    with FaultServer(plays, delay_s=0.4) as server:
        command = [
            f"{programs()}/counterpoint",
            *TEAM,
            "--model",
            "openai:small",
            "--base-url",
            server.url,
            "--id",
            "live-now",
            "--store",
            str(viewer.store),
        ]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        try:
            page.goto(f"{viewer.url}/live")
            region = page.get_by_role("region", name="Steer")
            region.get_by_role("button", name="Pause lead of live-now").wait_for(timeout=120_000)
            region.get_by_role("row", name=re.compile(r"^lead\.1 ")).wait_for(timeout=120_000)
            page.get_by_role("link", name="live-now").first.wait_for()
            assert process.wait(60) == 0
        finally:
            process.kill()
            process.communicate()
    region.get_by_role("button", name="Pause lead of live-now").wait_for(state="detached")
    page.goto(f"{viewer.url}/t/live-now")
    page.locator("header.trace-head").get_by_text("live-now").first.wait_for()
