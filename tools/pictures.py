"""Make the pictures of the README and the documentation: the demo in a headless browser. `make pictures`.

Always true: what is shown is what `counterpoint demo --quick` writes, opened by `counterpoint view`; nothing is drawn by hand,
and nothing but this machine is asked. It needs Chromium and the extra `dev`.
"""

from __future__ import annotations

import io
import json
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

IMAGES = Path(__file__).parents[1] / "docs" / "images"
COMMAND = (sys.executable, "-m", "counterpoint")
# name, address, what must be there first, theme
PICTURES = (
    ("trace-light", "/t/research-team", "section.time canvas", "light"),
    ("trace-dark", "/t/research-team", "section.time canvas", "dark"),
    ("traces-light", "/", "a[href='/t/research-team']", "light"),
    ("safety-light", "/t/mailroom?v=safety", "role=region[name='Safety']", "light"),
    ("credit-light", "/t/research-team?v=credit", "section.work li >> nth=0", "light"),
    ("text-light", "/t/mailroom?v=text", "role=region[name='Text']", "light"),
)
SIZE = {"width": 1280, "height": 720}
COLOURS = 200


def small(png: bytes) -> bytes:
    """The same picture with few colours: a page of text and lines loses nothing that can be seen."""
    from PIL import Image

    picture = Image.open(io.BytesIO(png)).convert("RGB").quantize(COLOURS, Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE)
    out = io.BytesIO()
    picture.save(out, "PNG", optimize=True)
    return out.getvalue()


def take(url: str, chromium: str) -> None:
    """Open every address and write its picture."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, headless=True, args=["--no-sandbox", "--disable-gpu"])
        for name, address, sign, theme in PICTURES:
            page = browser.new_context(viewport=SIZE, color_scheme=theme).new_page()
            page.goto(url + address)
            page.locator(sign).first.wait_for()
            page.keyboard.press("Escape")  # the tour of a first visit
            page.wait_for_load_state("networkidle")
            page.wait_for_timeout(800)  # transitions; a picture, not a test
            data = small(page.screenshot())
            (IMAGES / f"{name}.png").write_bytes(data)
            print(f"docs/images/{name}.png  {len(data):,} bytes")
        browser.close()


def main() -> int:
    """Write the demo, serve it, take the pictures."""
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if chromium is None:
        print("error: there is no Chromium on this machine, so no pictures can be made", file=sys.stderr)
        return 1
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([*COMMAND, "demo", "--quick"], cwd=folder, check=True, capture_output=True)
        view = [*COMMAND, "view", "counterpoint_demo", "--no-open", "--json"]
        with subprocess.Popen(view, cwd=folder, stdout=subprocess.PIPE, text=True) as viewer:
            assert viewer.stdout is not None
            told: dict[str, Any] = json.loads(viewer.stdout.readline())
            try:
                take(told["url"].split("#")[0].rstrip("/"), chromium)
            finally:
                viewer.send_signal(signal.SIGINT)
    return 0


if __name__ == "__main__":
    sys.exit(main())
