"""The page's timeline in a real browser: script CPU per frame while panning and zooming, first picture, select, filter, memory.

Times of a frame are CPU of the page's main thread inside scripts, from the browser's own trace, so that a busy machine does not
matter; the rest is wall time. No server runs: the page's questions are answered from here by the functions the server has.
Needs Debian's Chromium and the built page (or VIEWER_PAGE, the path of another one).
"""

from __future__ import annotations

import json
import os
import shutil
from bisect import bisect_right
from pathlib import Path
from statistics import median
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

import msgspec
from _timing import arguments, percentile, report, row

from counterpoint.app.viewer.api import event_of, question
from counterpoint.app.viewer.one_file import PAGE
from counterpoint.app.viewer.server import Shell
from counterpoint.app.viewer.trace_view import LARGE
from counterpoint.testing import synthetic_trace
from counterpoint.trace import Trace

HOST = "http://viewer.test"
FLAGS = ["--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking", "--disable-component-update"]
SCRIPTS = {"FireAnimationFrame", "EventDispatch", "TimerFire", "RunMicrotasks"}
"""What the browser's trace calls the running of a page's own code, outermost."""

DRIVE = """async ([frames, zooms]) => {
  const sight = document.querySelector(".time-sight"), box = sight.getBoundingClientRect();
  const wheel = (x, deltaX, deltaY) => sight.dispatchEvent(new WheelEvent("wheel", {
    bubbles: true, cancelable: true, clientX: box.left + box.width * x, clientY: box.top + box.height / 2, deltaX, deltaY }));
  for (let i = 0; i < frames; i++) {
    await new Promise((done) => requestAnimationFrame(() => {
      performance.mark("bench-frame");
      if (zooms) wheel(0.5 + 0.3 * Math.sin(i / 20), 0, Math.floor(i / 30) % 2 ? 90 : -90);
      else wheel(0.5, Math.floor(i / 40) % 2 ? -60 : 60, 0);
      done();
    }));
  }
}"""


def answer(traces: dict[str, Trace], shell: Shell, url: str) -> dict[str, Any]:
    """What the server would say, as playwright wants it."""
    parts = urlsplit(url)
    if not parts.path.startswith("/api/t/"):
        page = shell.response()
        return {"status": 200, "headers": dict(page.headers), "body": bytes(page.body)}
    name, _, asked = (unquote(part) for part in parts.path.removeprefix("/api/t/").partition("/"))
    words = dict(parse_qsl(parts.query))
    trace = traces[name]
    is_event = asked.startswith("event/")
    said = event_of(trace, asked.removeprefix("event/"), words, None) if is_event else question(asked)(trace, words)
    kind = "application/octet-stream" if isinstance(said, bytes) else "application/json"
    return {"status": 200, "content_type": kind, "body": said if isinstance(said, bytes) else msgspec.json.encode(said)}


class Viewer:
    """The page on one trace, in a browser of its own."""

    def __init__(self, play: Any, trace: Trace) -> None:
        """Opens nothing yet; what takes long to work out is worked out here."""
        self.trace = trace
        shell = Shell({"token": "bench", "version": "bench"}, page_path())
        self.browser = play.chromium.launch(executable_path=shutil.which("chromium"), headless=True, args=FLAGS)
        self.page = self.browser.new_page(viewport={"width": 1440, "height": 900})
        said: dict[str, dict[str, Any]] = {}
        for path in ("", "/bins") if len(trace.events) > LARGE else ("", "/columns"):
            url = f"{HOST}/api/t/{trace.trace_id}{path}"
            said[url] = answer({trace.trace_id: trace}, shell, url)

        def fulfil(route: Any) -> None:
            url = route.request.url
            route.fulfill(**(said.get(url) or answer({trace.trace_id: trace}, shell, url)))

        self.page.route(f"{HOST}/**", fulfil)
        self.page.add_init_script(PICTURE)
        self.cdp = self.page.context.new_cdp_session(self.page)

    def open(self) -> float:
        """Milliseconds from the request of the page to the first picture of the lanes, less the waiting for answers from here."""
        self.page.goto(f"{HOST}/t/{self.trace.trace_id}")
        self.page.wait_for_selector(".time-sight canvas[data-drawn=strips], .time-sight canvas[data-drawn=exact]")
        return float(self.page.evaluate(OWN_TIME))

    def frames(self, frames: int, *, zooms: bool) -> list[float]:
        """Script CPU of each frame in milliseconds while the wheel turns."""
        self.browser.start_tracing(page=self.page, categories=["devtools.timeline", "blink.user_timing"])
        self.page.evaluate(DRIVE, [frames, zooms])
        return cpu_by_frame(json.loads(self.browser.stop_tracing())["traceEvents"])[5:]

    def took(self, script: str) -> float:
        """Milliseconds of a script of the page that waits for the frame after what it did."""
        return float(self.page.evaluate(script))

    def memory_mb(self) -> float:
        """What the page's scripts hold, with its arrays."""
        self.cdp.send("HeapProfiler.collectGarbage")
        used = self.cdp.send("Runtime.getHeapUsage")
        return float(used["usedSize"] + used.get("backingStorageSize", 0)) / 1e6

    def close(self) -> None:
        self.browser.close()


def cpu_by_frame(events: list[dict[str, Any]]) -> list[float]:
    """Milliseconds of thread time in scripts between one mark of the driver and the next."""
    marks = sorted((e["ts"], e["pid"], e["tid"]) for e in events if e["name"] == "bench-frame" and "user_timing" in e["cat"])
    if not marks:
        return []
    _, pid, tid = marks[0]
    starts = [ts for ts, _, _ in marks]
    spent = [0.0] * len(starts)
    runs = [e for e in events if e["name"] in SCRIPTS and e.get("ph") == "X" and (e["pid"], e["tid"]) == (pid, tid)]
    until = 0.0
    for run in sorted(runs, key=lambda e: float(e["ts"])):
        # What runs inside another run is in its time; a frame begins with the callback that set its mark.
        if run["ts"] < until:
            continue
        until = run["ts"] + run["dur"]
        frame = bisect_right(starts, until) - 1
        if frame >= 0:
            spent[frame] += run.get("tdur", run["dur"]) / 1e3
    return spent


PICTURE = """{
  const look = () => {
    if (document.querySelector(".time-sight canvas")?.dataset.drawn) window.firstPicture = performance.now();
    else requestAnimationFrame(look);
  };
  requestAnimationFrame(look);
}"""
OWN_TIME = """() => {
  const asked = [...performance.getEntriesByType("navigation"), ...performance.getEntriesByType("resource")];
  const waited = asked.filter((one) => one.responseEnd <= window.firstPicture && !/(methods|credit)/.test(one.name));
  return window.firstPicture - waited.reduce((sum, one) => sum + one.responseEnd - one.startTime, 0);
}"""
AFTER = "await new Promise((done) => requestAnimationFrame(() => setTimeout(done)));"
SELECT = f"""async () => {{
  const sight = document.querySelector(".time-sight"), box = sight.getBoundingClientRect();
  const begin = performance.now();
  const at = {{ bubbles: true, clientX: box.left + box.width / 2, clientY: box.top + 60, button: 0, pointerId: 1 }};
  sight.setPointerCapture = () => {{}};
  sight.dispatchEvent(new PointerEvent("pointerdown", at));
  sight.dispatchEvent(new PointerEvent("pointerup", at));
  {AFTER}
  return performance.now() - begin;
}}"""
WORDS = ("kind:tool_call", "kind:spawn", "tokens>500", "failed", "agent:worker")
FILTER = """async () => {
  const field = document.querySelector("input[type=search]"), said = document.querySelector(".trace-search [role=status]");
  const before = said.textContent, begin = performance.now();
  field.value = "%s";
  field.dispatchEvent(new Event("input", { bubbles: true }));
  while (said.textContent === before) await new Promise((done) => setTimeout(done));
  await new Promise((done) => requestAnimationFrame(() => setTimeout(done)));
  return performance.now() - begin;
}"""
TYPING = 150
"""Milliseconds that the search waits for the next key."""


def page_path() -> Path:
    return Path(os.environ.get("VIEWER_PAGE", PAGE))


def rows_of(play: Any, name: str, trace: Trace, limits: tuple[float, float, float], frames: int) -> list[dict[str, Any]]:
    """`limits`: milliseconds to the first picture, to a selection, megabytes."""
    viewer = Viewer(play, trace)
    first, select, memory = limits
    what = f"{len(trace.events):,} events, {name}"
    try:
        out = [row(f"first picture, {what}", viewer.open(), None, "ms", limit=first)]
        viewer.page.wait_for_timeout(1500)
        for zooms, verb in ((False, "pan"), (True, "zoom")):
            viewer.page.keyboard.press("f")
            if not zooms:
                for _ in range(3):
                    viewer.page.keyboard.press("w")
            taken = viewer.frames(frames, zooms=zooms)
            out.append(row(f"{verb}, script CPU per frame p95, {what}", percentile(taken, 0.95), None, "ms", limit=8))
        folds = viewer.page.locator(".time-label button[aria-expanded=false]")
        for _ in range(folds.count() if len(trace.events) <= LARGE else 0):
            folds.last.click()
        viewer.page.select_option(".time-choice >> nth=2 >> select", "all")
        viewer.page.wait_for_timeout(1500)
        viewer.page.keyboard.press("f")
        taken = viewer.frames(frames, zooms=True)
        out.append(row(f"zoom, all lanes, script CPU per frame p95, {what}", percentile(taken, 0.95), None, "ms", limit=8))
        out.append(row(f"select, {what}", median([viewer.took(SELECT) for _ in range(5)]), None, "ms", limit=select))
        if len(trace.events) <= LARGE:
            taken = [viewer.took(FILTER % word) - TYPING for word in WORDS]
            out.append(row(f"filter, {what}", median(taken), None, "ms", limit=100))
        out.append(row(f"memory of the page, {what}", viewer.memory_mb(), None, "MB", limit=memory))
        return out
    finally:
        viewer.close()


def main() -> None:
    """Run and print."""
    asked = arguments(__doc__)
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        print("viewer_frames: skipped, playwright is not installed (pip install '.[dev]')")
        return
    if not page_path().is_file() or shutil.which("chromium") is None:
        print("viewer_frames: skipped, needs chromium and the built page (make page)")
        return
    frames = 80 if asked.quick else 200
    with sync_playwright() as play:
        rows = rows_of(play, "1,000 agents", synthetic_trace(1000, 9050, "hierarchical", 0), (1000, 50, 150), frames)
        if not asked.quick:
            rows += rows_of(play, "22,550 agents", synthetic_trace(22550, 454000, "centralized", 0), (1500, 100, 400), frames)
    report("Viewer", rows, as_json=asked.json)


if __name__ == "__main__":
    main()
