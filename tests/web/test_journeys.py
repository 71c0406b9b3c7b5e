"""The journeys of a user in a real browser: open, find, read, compare, fork, diff, share, reopen; by mouse and by keys alone.

Then those of a team that runs or ran: forked at a return, watched, paused, told something and stopped. One file, because it shares
a browser, a viewer and a store.
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from counterpoint import Store
from counterpoint.audits.blame.judge import blame
from counterpoint.lab.bench.expert_chat import broken_chats
from endpoint_help import FaultServer
from plays_help import plays
from steer_help import running
from warm_help import programs
from web_help import COLOURS, HOSTILE, TRICKS, Viewer, broken

BACKGROUND = "getComputedStyle(document.body).backgroundColor"
TEAM = ("play", "--task", "T1", "--set", "parts=2", "--cap", "width=2", "-q")
SHOP = "0a000000-0000-4000-8000-00000000000a"


def opens(page: Any, viewer: Viewer, path: str) -> None:
    page.goto(viewer.url + path)
    page.wait_for_selector("nav.rail")


def trace(page: Any, viewer: Viewer, name: str, query: str = "") -> None:
    opens(page, viewer, f"/t/{name}{query}")
    page.locator(f'h1[title="{name}"]').wait_for()


def simulated(viewer: Viewer) -> str:
    with Store(viewer.store, read_only=True) as store:
        return next(name for name in store.ids() if name.startswith("wide_verify"))


def test_open_the_list_and_a_trace(page: Any, viewer: Viewer) -> None:
    opens(page, viewer, "/")
    page.get_by_role("link", name="Find out what the records show").click()
    page.get_by_role("heading", name="Find out what the records show").wait_for()
    assert "/t/research-team" in page.url
    page.go_back()
    page.get_by_role("link", name="Plan, write and review a change").wait_for()
    page.get_by_role("button", name="Show ids").click()
    page.get_by_role("link", name="code-team").wait_for()


def test_find_the_slowest_agent_and_read_its_text(page: Any, viewer: Viewer) -> None:
    trace(page, viewer, "research-team")
    page.get_by_role("list", name="Answers").get_by_role("link", name=re.compile("^slowest")).or_(
        page.get_by_role("list", name="Answers").get_by_role("button", name=re.compile("^slowest"))
    ).first.click()
    page.keyboard.press("3")
    talk = page.get_by_role("region", name="Text")
    talk.get_by_text("analyst").first.wait_for()


def test_search_filters_and_the_address_restores_it(page: Any, viewer: Viewer) -> None:
    trace(page, viewer, "research-team")
    page.keyboard.press("/")
    page.keyboard.type("kind:spawn")
    page.keyboard.press("Enter")
    page.wait_for_url(re.compile(r"[?&]f=kind(:|%3A)spawn"))
    address = page.url
    page.goto("about:blank")
    page.goto(address)
    box = page.get_by_role("searchbox", name="Search events")
    box.wait_for()
    assert box.input_value() == "kind:spawn"


def test_an_event_says_what_caused_it(page: Any, viewer: Viewer) -> None:
    trace(page, viewer, SHOP, "?e=msg_a2")
    panel = page.get_by_role("region", name="Event")
    panel.get_by_text("Caused by").wait_for()
    said = panel.inner_text()
    assert "msg_b2" in said
    assert "Both are true" in said


def test_two_credit_methods_side_by_side_and_sums_that_close(page: Any, viewer: Viewer) -> None:
    trace(page, viewer, simulated(viewer), "?v=credit")
    page.get_by_role("region", name="Credit").wait_for()
    first = page.get_by_role("region", name="First method")
    first.get_by_text("Chosen: the run can be replayed").wait_for()
    page.get_by_role("navigation", name="Credit methods").get_by_role("button", name=re.compile("^ledger")).click()
    first.get_by_text("✓").first.wait_for()
    page.keyboard.press("b")
    page.get_by_role("region", name="Second method").wait_for()


def test_one_credit_method_stands_under_its_name_everywhere_and_a_thumb_is_kept(page: Any, viewer: Viewer) -> None:
    trace(page, viewer, "code-team", "?v=map")
    page.get_by_role("button", name="It did not: team = 0").click()
    page.get_by_role("group", name="How it came out").get_by_text(re.compile("^team 0")).wait_for()
    trace(page, viewer, "code-team", "?v=credit")
    page.get_by_role("region", name="What became of each agent's work").get_by_text("not identified").wait_for()
    page.get_by_role("button", name="provenance").click()
    page.get_by_role("region", name="First method").get_by_role("heading", name=re.compile("^provenance")).wait_for()


def test_a_note_is_kept_in_the_store_and_taken_back(page: Any, viewer: Viewer) -> None:
    name = simulated(viewer)
    trace(page, viewer, name, "?e=e9")
    page.get_by_label("Note", exact=True).fill("why <b>this</b> worker?")
    page.get_by_label("Label").select_option("question")
    page.get_by_role("button", name="Add").click()
    said = page.get_by_role("region", name="Notes here")
    said.get_by_text("why <b>this</b> worker?").wait_for()
    page.reload()
    said.get_by_text("question").wait_for()
    with Store(viewer.store, read_only=True) as store:
        (kept,) = store.annotations(name)
    assert (kept.event, kept.label, kept.text) == ("e9", "question", "why <b>this</b> worker?")
    page.get_by_role("button", name="Take back").click()
    said.wait_for(state="detached")


def test_blame_ranks_steps_and_steps_through_them(page: Any, viewer: Viewer) -> None:
    trace(page, viewer, SHOP, "?v=blame")
    region = page.get_by_role("region", name="Blame")
    region.get_by_text("Nothing says that this run failed").wait_for()
    with Store(viewer.store) as store:
        store.add(next(chat for chat in broken_chats(range(40), shapes=["panel"]) if blame(chat).stands_out))
        failed = store.ids()[-1]
    trace(page, viewer, failed, "?v=blame")
    suspects = region.get_by_role("list", name="Suspects, the largest share first").locator("article")
    suspects.first.wait_for()
    first, second = (suspects.nth(i).get_by_role("button") for i in (0, 1))
    region.get_by_role("button", name="Next suspect").click()
    assert first.get_attribute("aria-pressed") == "true"
    page.keyboard.press("]")
    assert second.get_attribute("aria-pressed") == "true"
    page.keyboard.press("[")
    assert first.get_attribute("aria-pressed") == "true"
    shown = region.locator("p.why").get_by_role("button")
    assert shown.count() == 2
    shown.last.click()
    region.locator('p.why button[aria-pressed="true"]').get_by_text(shown.last.inner_text()).wait_for()
    page.keyboard.press("7")
    page.get_by_role("region", name="Advise").get_by_text(re.compile("^counterpoint advise")).wait_for()


def test_safety_shows_where_untrusted_content_came_from(page: Any, viewer: Viewer) -> None:
    trace(page, viewer, SHOP, "?v=safety")
    region = page.get_by_role("region", name="Safety")
    region.get_by_text("from outside").first.wait_for()
    assert "WebFetch" in region.inner_text()


def test_fork_from_the_page_and_see_the_difference(page: Any, viewer: Viewer) -> None:
    name = simulated(viewer)
    trace(page, viewer, name)
    page.keyboard.press("/")
    page.keyboard.type("kind:message")
    page.keyboard.press("Enter")
    page.wait_for_url(re.compile(r"[?&]f=kind(:|%3A)message"))
    page.keyboard.press("Escape")
    found = page.evaluate("fetch(`/api/t/${location.pathname.split('/')[2]}/find?q=kind:message`).then(r => r.json())")
    assert found["events"]
    page.goto(f"{viewer.url}/t/{name}?e={_id_of(page, name, found['events'][0])}")
    panel = page.get_by_role("region", name="Event")
    panel.get_by_role("button", name="Fork").click()
    form = page.locator("form.fork")
    form.wait_for()
    form.get_by_role("button", name=re.compile("fork|run", re.I)).first.click()
    page.wait_for_url(re.compile("/d/"), timeout=120_000)
    page.get_by_text("first divergence").wait_for()


# Types one more letter in the very task in which the search box's wait is over and the letters so far are looked for.
_TYPES_MEANWHILE = """() => {
  const box = document.querySelector('input[aria-label="Search events"]'), later = window.setTimeout;
  window.setTimeout = (f, ms, ...rest) => {
    if (ms !== 150) return later(f, ms, ...rest);
    window.setTimeout = later;
    return later(() => { f(); box.value += "t"; box.dispatchEvent(new InputEvent("input", { bubbles: true })); }, ms);
  };
}"""


def test_a_letter_typed_while_the_last_ones_are_looked_for_is_kept(page: Any, viewer: Viewer) -> None:
    trace(page, viewer, "panel")
    box = page.get_by_label("Search events")
    box.wait_for()
    page.evaluate(_TYPES_MEANWHILE)
    box.fill("agen")
    page.wait_for_url(re.compile(r"[?&]f=agent(&|$)"), timeout=60_000)
    assert box.input_value() == "agent"


def _id_of(page: Any, name: str, n: int) -> str:
    return str(page.evaluate(f"fetch('/api/t/{name}/event/{n}').then(r => r.json())")["id"])


def test_two_traces_picked_from_the_list_become_a_diff(page: Any, viewer: Viewer) -> None:
    opens(page, viewer, "/")
    for name in ("panel", "build"):
        page.get_by_role("checkbox", name=f"Pick {name} to compare").check()
    page.get_by_role("button", name="Diff").or_(page.get_by_role("main").get_by_role("link", name="Diff")).first.click()
    page.wait_for_url(re.compile("/d/"))
    page.get_by_text("first divergence").wait_for()


def test_share_as_a_file_and_reopen_it_from_disk(page: Any, viewer: Viewer, tmp_path: Path) -> None:
    file = tmp_path / "shop.html"
    done = subprocess.run([f"{programs()}/counterpoint", "export", SHOP, "--to", "html", "-o", str(file), "--store", str(viewer.store)], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    assert "masked" in done.stdout + done.stderr
    assert "eve@example.org" not in file.read_text()
    page.goto(file.as_uri())
    page.locator(f'h1[title="{SHOP}"]').wait_for()
    assert page.evaluate("document.contentType") == "text/html"
    page.keyboard.press("3")
    talk = page.get_by_role("region", name="Text")
    talk.get_by_text("Both are true").first.wait_for()


# Every page, and what is on it when it shows all that it has.
PAGES = {
    "/": "a[href='/t/research-team']",
    "/t/research-team": "section.time canvas",
    "/t/research-team?v=credit": "section.work li >> nth=0",
    "/t/research-team?v=safety": "role=region[name='Safety']",
    "/t/research-team?v=text": "role=region[name='Text'] >> text=analyst >> nth=0",
    "/d/panel..build": "text=first divergence",
    "/r": "main >> text=/No training runs|Runs/",
    "/c": "main h1",
    "/c?s=race:released": "table.race",
    "/live": "main >> text=/Nothing is running|Latest events/",
}


@pytest.mark.parametrize("path", PAGES)
def test_axe_finds_nothing(watched: Any, viewer: Viewer, path: str) -> None:
    """All rules in the light theme; in the dark one, which has the same elements, the rules that look at colours."""
    watched.emulate_media(color_scheme="light")
    opens(watched, viewer, path)
    watched.locator(PAGES[path]).first.wait_for()
    assert broken(watched) == []
    light = watched.evaluate(BACKGROUND)
    watched.emulate_media(color_scheme="dark")
    watched.wait_for_function(f"light => {BACKGROUND} !== light", arg=light)
    assert broken(watched, *COLOURS) == []


def test_keys_alone(page: Any, viewer: Viewer) -> None:
    trace(page, viewer, "research-team")
    page.locator("section.time canvas").last.focus()
    page.keyboard.press("ArrowRight")
    page.wait_for_url(re.compile(r"[?&]e="))
    first = page.url
    page.keyboard.press("ArrowRight")
    page.wait_for_url(lambda address: address != first)
    for key, region in (("4", "Credit"), ("5", "Safety"), ("3", "Text"), ("1", "Map of agents")):
        page.keyboard.press(key)
        page.get_by_role("region", name=region).first.wait_for()
    page.keyboard.press("?")
    page.get_by_role("dialog").first.wait_for()
    page.keyboard.press("Escape")
    page.keyboard.press("t")


def test_hostile_text_is_text(page: Any, viewer: Viewer) -> None:
    trace(page, viewer, HOSTILE, "?v=time&e=e1")
    for key, region in (("3", "Text"), ("1", "Map of agents"), ("5", "Safety"), ("4", "Credit")):
        page.keyboard.press(key)
        page.get_by_role("region", name=region).first.wait_for()
    page.keyboard.press("3")
    for k in range(len(TRICKS)):
        page.evaluate("to => { history.pushState(null, '', to); dispatchEvent(new PopStateEvent('popstate')); }", f"/t/{HOSTILE}?v=text&e=e{k}")
        page.get_by_role("region", name="Event").get_by_text(f"e{k}", exact=True).first.wait_for()
    opens(page, viewer, "/")
    page.get_by_role("button", name="Show ids").click()
    page.get_by_role("link", name=HOSTILE).wait_for()
    assert page.evaluate("window.__owned") is None
    assert page.locator("a[href^='javascript']").count() == 0


def test_the_timeline_can_be_read(page: Any, viewer: Viewer) -> None:
    """axe cannot see into a canvas: what is drawn must stand out from what it is drawn on, by WCAG's 3:1 for graphics."""
    for theme in ("light", "dark"):
        page.emulate_media(color_scheme=theme)
        trace(page, viewer, "team-300")
        drawn = page.wait_for_function(
            """() => {
              const canvas = [...document.querySelectorAll("section.time canvas")].sort((a, b) => b.width * b.height - a.width * a.height)[0];
              const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
              const colours = new Map();
              for (let i = 0; i < data.length; i += 4) {
                if (data[i + 3] < 200) continue;
                const key = (data[i] << 16) | (data[i + 1] << 8) | data[i + 2];
                colours.set(key, (colours.get(key) ?? 0) + 1);
              }
              const body = getComputedStyle(document.body).backgroundColor.match(/\\d+/g).map(Number);
              const light = ([r, g, b]) => [r, g, b].map(v => v / 255).map(v => v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
                .reduce((sum, v, k) => sum + v * [0.2126, 0.7152, 0.0722][k], 0);
              const under = light(body);
              let drawn = 0;
              for (const [key, count] of colours) {
                const over = light([key >> 16, (key >> 8) & 255, key & 255]);
                const ratio = (Math.max(over, under) + 0.05) / (Math.min(over, under) + 0.05);
                if (ratio >= 3) drawn += count;
              }
              return drawn > 2000;
            }"""
        )
        assert drawn.json_value()


# -- teams that run


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
    page.locator('h1[title="live-now"]').wait_for()


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
    page.locator("a[href='/t/steered-live']").wait_for()
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


def test_the_story_is_one_list_and_prints_alone(page: Any, viewer: Viewer) -> None:
    trace(page, viewer, "panel")
    page.keyboard.press("8")
    region = page.get_by_role("region", name="Story")
    region.locator("li").first.wait_for()
    with Store(viewer.store, read_only=True) as store:
        members = store.get("panel").members
    assert region.locator("li").count() == len(members)
    assert region.get_by_text("was given").count() == len(members)
    page.emulate_media(media="print")
    assert region.is_visible()
    assert not page.locator("nav.rail").is_visible()
    assert not page.get_by_role("region", name="Event").is_visible()
    assert page.evaluate("document.querySelector('.story').getBoundingClientRect().width > 0.9 * innerWidth")
    page.emulate_media(media="screen")
