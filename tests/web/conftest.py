"""A browser, a server over a store of very different traces, and the page as a user opens it.

Journeys need Chromium. Where it is not there they are skipped, with the reason; nothing is downloaded.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from counterpoint import Store, Trace, read_logs
from counterpoint.testing import synthetic_trace
from warm_help import programs
from web_help import ARGUMENTS, AXE, CHROMIUM, CPT, PAGE, ROOT, TOUR_SEEN, Viewer, hostile_trace


@pytest.fixture(scope="session")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Traces of every kind: samples with rewards, simulated (can be forked), imported with an injection, large, hostile."""
    home = tmp_path_factory.mktemp("viewer")
    subprocess.run([f"{programs()}/counterpoint", "demo", "--quick"], cwd=home, check=True, capture_output=True, timeout=600)
    folder = home / "counterpoint_demo"
    run = ["play", "--world", "W1", "--policy", "reference", "--episodes", "1", "--set", "vote_items=6", "--seed", "1", "--store", str(folder)]
    subprocess.run([f"{programs()}/counterpoint", *run], cwd=home, check=True, capture_output=True, timeout=600)
    with Store(folder) as opened:
        opened.add_many(read_logs(ROOT / "examples" / "logs" / "claude_code"))
        opened.add(hostile_trace())
        for name, agents, steps in (("team-300", 300, 3000), ("events-20k", 1000, 10_000)):
            made = synthetic_trace(agents, steps, contents=agents < 500)
            opened.add(Trace(**{f: getattr(made, f) for f in made.__struct_fields__ if f != "trace_id"}, trace_id=name))
    return folder


@pytest.fixture(scope="session")
def viewer(store: Path) -> Iterator[Viewer]:
    """`counterpoint view` over that store."""
    if not PAGE.exists():
        pytest.skip("the page is not built: run `make page`")
    command = [*CPT, "view", str(store), "--no-open", "--json", "--port", "0"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONUNBUFFERED": "1"})
    assert process.stdout is not None
    told: dict[str, Any] = json.loads(process.stdout.readline())
    try:
        yield Viewer(told["url"].split("#")[0].rstrip("/"), told.get("token", ""), store)
    finally:
        process.terminate()
        process.wait(20)


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """Debian's Chromium, for one file: while it is open, this process has a running event loop, which other files cannot have."""
    if CHROMIUM is None:
        pytest.skip("there is no Chromium on this machine")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=CHROMIUM, headless=True, args=ARGUMENTS)
        yield opened
        opened.close()


@pytest.fixture
def page(browser: Any) -> Iterator[Any]:
    """A page on which no error goes unseen, and which reaches nothing but this machine."""
    context = browser.new_context(viewport={"width": 1440, "height": 900})
    context.add_init_script(TOUR_SEEN)
    opened = context.new_page()
    opened.set_default_timeout(120_000)
    wrong: list[str] = []
    opened.on("pageerror", lambda error: wrong.append(str(error)))
    opened.on("console", lambda message: wrong.append(message.text) if message.type == "error" else None)
    opened.on("request", lambda request: wrong.append(request.url) if not request.url.startswith(("http://127.0.0.1", "file:", "data:", "blob:")) else None)
    opened.wrong = wrong
    yield opened
    context.close()
    assert wrong == []


@pytest.fixture(scope="module")
def watched(browser: Any) -> Iterator[Any]:
    """A page with axe in it, whatever it opens."""
    if not AXE.exists():
        pytest.skip("axe-core is not installed: run `make test` where npm is")
    context = browser.new_context(viewport={"width": 1440, "height": 900})
    context.add_init_script(AXE.read_text())
    context.add_init_script(TOUR_SEEN)
    opened = context.new_page()
    opened.set_default_timeout(120_000)
    yield opened
    context.close()
