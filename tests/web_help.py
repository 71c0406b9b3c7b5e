"""For tests of the page: where things are, what a hostile trace looks like, what a running viewer is."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import Any, NamedTuple

from counterpoint import Edge, Event, Trace, content_ref

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "src" / "counterpoint" / "app" / "viewer" / "page" / "viewer.html"
CPT = (sys.executable, "-c", "from counterpoint.app.cli import main; main()")
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
ARGUMENTS = [
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
]  # fmt: skip
AXE = ROOT / "web" / "node_modules" / "axe-core" / "axe.min.js"
TAGS = ("wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa")
COLOURS = ("color-contrast", "link-in-text-block")  # the only rules of these that look at colours
TOUR_SEEN = "try { localStorage.setItem('counterpoint-tour', 'seen') } catch {}"
"""Runs before the page: a visitor who has been here."""
HOSTILE = "hostile"
TRICKS = (
    "<script>window.__owned = 1</script>",
    "<img src=x onerror='window.__owned = 1'>",
    "[click](javascript:window.__owned=1) <a href='javascript:window.__owned=1'>x</a>",
    "# <b>x</b>\n\n- [a](javascript:window.__owned=1)\n- `<img src=x onerror='window.__owned=1'>`\n\n```<script>\nwindow.__owned=1\n```",
    '{"<img src=x onerror=window.__owned=1>": "<script>window.__owned=1</script>"}',
    "left \u202egnp.exe right\u202c",
    "</script><script>window.__owned = 1</script>",
    "x" * 200_000,
)


class Viewer(NamedTuple):
    """A running viewer."""

    url: str
    token: str
    store: Path


def hostile_trace() -> Trace:
    """A trace whose every text is an attack on whoever shows it."""
    events, contents = [], {}
    for k, trick in enumerate(TRICKS):
        ref = content_ref(trick)
        contents[ref] = trick
        name = trick[:60]
        events.append(Event(id=f"e{k}", t=float(k), type="message", agent=name, role=name, to=name, tool=name, error=name, content_ref=ref, dur=0.5))
    edges = [Edge(f"e{k}", f"e{k + 1}", "message") for k in range(len(TRICKS) - 1)]
    return Trace(trace_id=HOSTILE, task_id=TRICKS[0], system=TRICKS[1], events=events, edges=edges, contents=contents, rewards={"team": 1.0})


def broken(page: Any, *rules: str) -> list[tuple[str, list[str]]]:
    """What axe finds wrong on a page that has it, by these rules or by all of WCAG 2.2 AA."""
    only = {"type": "rule", "values": rules} if rules else {"type": "tag", "values": TAGS}
    found = page.evaluate("only => axe.run(document, { runOnly: only, resultTypes: ['violations'] })", only)
    return [(v["id"], [n["html"][:120] for n in v["nodes"][:3]]) for v in found["violations"]]
