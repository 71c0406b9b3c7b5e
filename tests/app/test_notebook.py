"""A trace in a notebook: the card is static, small and escaped; the frame is a sandbox; elsewhere a server answers."""

from __future__ import annotations

import re
import sys
import types
import urllib.request
from html import unescape
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from counterpoint.app.viewer import notebook, one_file
from counterpoint.app.viewer.notebook import LIMIT
from counterpoint.app.viewer.notebook import picture as card
from counterpoint.testing import synthetic_trace
from counterpoint.trace import Edge, Event, Trace
from counterpoint.trace.rows import Shares

EVIL = "</text></svg><script>alert(1)</script><img src=x onerror=alert(1)>\"' onload=alert(1) \u202e\x1b[2J"


def html_of(trace: Trace) -> str:
    return trace._repr_html_()


def tags(html: str) -> list[tuple[str, dict[str, str | None]]]:
    found: list[tuple[str, dict[str, str | None]]] = []

    class Reader(HTMLParser):
        def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
            found.append((tag, dict(attrs)))

    Reader().feed(html)
    return found


def test_the_card_says_who_what_and_how_much() -> None:
    trace = synthetic_trace(6, 80, seed=1)
    html = html_of(trace)
    assert trace.trace_id in html
    assert f"R {trace.rewards['team']:.4g}" in html
    assert f"{len(trace.events):,} events" in html
    assert html.count("<svg") == 1  # the lanes; without texts, votes or drafts there is no credit to draw


def test_without_a_reward_there_is_no_credit_bar() -> None:
    trace = Trace(trace_id="t", task_id="q", events=[Event(id="a", t=0, dur=1, type="message", agent="x")])
    assert html_of(trace).count("<svg") == 1
    assert "Credit" not in html_of(trace)


def test_every_picture_is_well_formed() -> None:
    for svg in re.findall(r"<svg.*?</svg>", html_of(synthetic_trace(9, 90, seed=2)), re.DOTALL):
        ElementTree.fromstring(svg)


@pytest.mark.parametrize(("agents", "steps"), [(1, 1), (14, 240), (300, 4000)])
def test_it_is_small_whatever_the_size(agents: int, steps: int) -> None:
    assert len(html_of(synthetic_trace(agents, steps, contents=True)).encode()) < LIMIT


def test_it_is_small_when_nothing_folds_and_everything_is_hostile() -> None:
    names = [f"{EVIL}{chr(97 + k % 26)}{chr(97 + k // 26)}" for k in range(400)]
    events = [
        Event(id=f"e{k}", t=float(k // 2), dur=0.4, type=("tool_call", "message", "return", "aggregate")[k % 4], agent=names[k % 400])
        for k in range(20_000)
    ]  # fmt: skip
    html = html_of(Trace(trace_id=EVIL * 1000, task_id=EVIL * 1000, events=events, rewards={"team": 1.0}))
    assert len(html.encode()) < LIMIT
    assert "more agents in" in html


def test_what_a_trace_says_is_text() -> None:
    events = [
        Event(id="a", t=0, dur=1, type="message", agent=EVIL, role=EVIL),
        Event(id="b", t=1, dur=1, type="spawn", agent=EVIL, to=EVIL + "2", role=EVIL),
        Event(id="c", t=2, dur=1, type="return", agent=EVIL + "2"),
    ]
    trace = Trace(trace_id=EVIL, task_id=EVIL, events=events, edges=[Edge("a", "b", "causal")], rewards={"team": 0.5})
    html = html_of(trace)
    allowed = {"div", "style", "b", "span", "br", "svg", "text", "path", "rect"}
    assert {tag for tag, _ in tags(html)} <= allowed
    assert not any(name.startswith("on") or name in ("href", "src") for _, attributes in tags(html) for name in attributes)
    assert "\u202e" not in html
    assert "\x1b" not in html
    assert "url(" not in html


def test_it_can_be_read_on_light_and_on_dark() -> None:
    html = html_of(synthetic_trace(4, 40))
    assert "prefers-color-scheme:dark" in html
    assert '[data-jp-theme-light="false"] .cpt-card' in html
    for ink, ground in (("#1B1B1B", "#FFFFFF"), ("#595959", "#FFFFFF"), ("#F2F2F2", "#16181C"), ("#B5B5B5", "#16181C")):
        assert ink in html
        assert _contrast(ink, ground) >= 4.5
    for colour in ("#0B5FA5", "#D55E00", "#AA3377", "#2E8B57", "#3D3D3D"):
        assert _contrast(colour, "#FFFFFF") >= 3
    for colour in ("#88CCEE", "#E69F00", "#CC79A7", "#2FB67C", "#D9D9D9"):
        assert _contrast(colour, "#16181C") >= 3


def _contrast(a: str, b: str) -> float:
    def light(colour: str) -> float:
        parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
        linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    high, low = sorted((light(a), light(b)), reverse=True)
    return (high + 0.05) / (low + 0.05)


def test_a_trace_that_is_no_graph_still_has_a_card() -> None:
    events = [Event(id=n, t=0, type="message", agent="x") for n in "ab"]
    trace = Trace(trace_id="t", task_id="q", events=events, edges=[Edge("a", "b", "causal"), Edge("b", "a", "causal")])
    assert "cycle" in card(trace)
    assert "cycle" in html_of(trace)


def test_losses_go_to_the_left_of_the_line() -> None:
    trace = synthetic_trace(3, 30)
    names = list(trace.agents)
    html = card(trace, Shares("ledger", 0.5, {names[0]: 0.6, names[1]: -0.2}, 0.1))
    assert re.search(r'class="dn"[^>]* x="2.0"', html)
    assert "<b>-0.2</b>" in html
    assert "unassigned <b>+0.1</b>" in html


@pytest.fixture
def page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "viewer.html"
    path.write_text("<!doctype html><html><head><title>C</title></head><body><!--counterpoint-data--><script>1</script></body></html>")
    monkeypatch.setattr(one_file, "PAGE", path)
    return path


def test_save_html_writes_the_one_file_page(tmp_path: Path, page: Path) -> None:
    trace = synthetic_trace(3, 20, contents=True)
    path = trace.save_html(tmp_path / "t.html")
    _, content = one_file.reopened(path.read_bytes())
    assert list(content["traces"]) == [trace.trace_id]
    assert content["masked"] == {}
    assert one_file.reopened(trace.save_html(tmp_path / "u.html", masked=False).read_bytes())[1]["masked"] is None


def in_notebook(monkeypatch: pytest.MonkeyPatch) -> None:
    shell = types.SimpleNamespace(kernel=object())
    monkeypatch.setitem(sys.modules, "IPython", types.SimpleNamespace(get_ipython=lambda: shell))


def test_in_a_notebook_it_is_a_sandboxed_frame(page: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    in_notebook(monkeypatch)
    trace = synthetic_trace(3, 20)
    frame: Any = trace.view(height=300)
    (tag, attributes), *rest = tags(frame._repr_html_())
    assert (tag, rest) == ("iframe", [])
    assert "allow-same-origin" not in (attributes["sandbox"] or "")
    assert "height:300px" in (attributes["style"] or "")
    inside = unescape(attributes["srcdoc"] or "")
    assert trace.trace_id in one_file.reopened(inside.encode())[1]["traces"]


def test_a_frame_that_is_too_large_goes_without_texts(page: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    in_notebook(monkeypatch)
    trace = synthetic_trace(6, 200, contents=True)
    whole: Any = trace.view()
    monkeypatch.setattr(notebook, "_FRAMED", len(whole._page) - 1)
    less: Any = trace.view()
    assert one_file.reopened(less._page.encode())[1]["traces"][trace.trace_id]["texts"] == {}


def test_elsewhere_a_server_answers_until_closed(page: Path) -> None:
    pytest.importorskip("uvicorn")
    trace = synthetic_trace(3, 20, trace_id="a/b c")
    viewing = notebook.view(trace, is_opened=False)
    assert isinstance(viewing, notebook.Viewing)
    try:
        assert viewing.url.endswith("/t/a%2Fb%20c")
        base = viewing.url.rpartition("/t/")[0]
        with urllib.request.urlopen(f"{base}/api/t/a%2Fb%20c", timeout=300) as answer:
            assert b'"a/b c"' in answer.read()
    finally:
        viewing.close()


def test_nothing_is_loaded_before_somebody_looks() -> None:
    import subprocess

    code = "import counterpoint.trace, sys; print([m for m in sys.modules if m.startswith('counterpoint.app')])"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"
