"""`export --html`: one file that opens from disk, holds what the server would say, and says what it does not hold."""

from __future__ import annotations

import base64
import gzip
import html
import json
import re
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner

import counterpoint
from app.viewer.test_dense import rows
from counterpoint.app.cli import cli
from counterpoint.app.viewer import one_file as module
from counterpoint.app.viewer.credit_tab import credit, methods
from counterpoint.app.viewer.events import event
from counterpoint.app.viewer.excerpt import part
from counterpoint.app.viewer.one_file import _longest, block, one_file, page_around, reopened
from counterpoint.app.viewer.overview import overview
from counterpoint.app.viewer.panels.advise import advise
from counterpoint.app.viewer.panels.blame import blame
from counterpoint.app.viewer.panels.safety import safety
from counterpoint.app.viewer.panels.story import story
from counterpoint.errors import InputError, NotFound, Refused
from counterpoint.formats.masking import masked
from counterpoint.testing import synthetic_trace
from counterpoint.trace import Event, Trace, content_ref

# A page that does what the real one does first: unpack the block, and show what is in it.
STAND_IN = """<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Counterpoint</title></head>
<body><div id="app"></div><!--counterpoint-data--><script type="module">
const text = document.getElementById("counterpoint-data").textContent;
const bytes = Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
const told = await new Response(stream).json();
document.getElementById("app").textContent = Object.values(told.traces).map((t) => t.about.events + " events").join();
</script></body></html>"""
SECRET = "sk-ant-api03-" + "Zx9" * 20


@pytest.fixture(autouse=True)
def page(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path_factory.mktemp("page") / "viewer.html"
    path.write_text(STAND_IN)
    monkeypatch.setattr(module, "PAGE", path)
    return path


def small() -> Trace:
    return synthetic_trace(6, 60, contents=True, seed=3)


def run(*arguments: str) -> Any:
    result = CliRunner().invoke(cli, ["export", *arguments, "--json"], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def content(path: Path) -> dict[str, Any]:
    return reopened(path.read_bytes())[1]


def plain(value: Any) -> Any:
    return msgspec.json.decode(msgspec.json.encode(value))


def test_the_block_holds_what_the_server_would_say(tmp_path: Path) -> None:
    source = counterpoint.save(small(), tmp_path / "t.jsonl")
    told = run(str(source), "--to", "html", "-o", str(tmp_path / "t.html"))
    trace = counterpoint.load(source)
    trace, found = masked(trace)
    whole = content(tmp_path / "t.html")
    assert whole["version"] == 2
    assert whole["made_by"] == f"counterpoint {counterpoint.__version__}"
    assert whole["masked"] == dict(found) == told["masked"]
    one = whole["traces"][trace.trace_id]
    assert one["about"] == plain(overview(trace)) | {"can_fork": False, "fork_refusal": "This page is a file: open the trace with counterpoint view to fork it."}
    panels = {"advise": advise.offline(trace)} | {panel.name.lower(): panel.answer(trace) for panel in (blame, safety, story)}  # type: ignore[misc]
    assert one["panels"] == {name: plain(answer) for name, answer in panels.items()}
    assert [m["id"] for m in one["methods"]] == [m.id for m in methods(trace)]
    answering = {m["id"] for m in one["methods"] if m["refusal"] is None}
    assert answering == {name.split("/")[0] for name in one["credit"]}
    fields = rows(one)
    for n in range(0, len(trace.events), 7):
        detail = event(trace, n, whole=True)
        assert fields[n] == {name: value for name, value in plain(detail.fields).items() if name != "content_ref"}
        assert one["texts"].get(str(n)) == detail.text
    assert one["credit"]
    for name, found_credit in one["credit"].items():
        method, unit = name.split("/")
        assert found_credit == plain(credit(trace, method, unit))
    assert told["files"][0]["rows"] == len(trace.events)
    assert told["left_out"] == {"texts_cut": 0, "texts": 0}


def test_the_same_trace_makes_the_same_bytes(tmp_path: Path) -> None:
    source = counterpoint.save(small(), tmp_path / "t.jsonl")
    run(str(source), "--to", "html", "-o", str(tmp_path / "a.html"))
    run(str(source), "--to", "html", "-o", str(tmp_path / "b.html"))
    assert (tmp_path / "a.html").read_bytes() == (tmp_path / "b.html").read_bytes()


def with_secret() -> Trace:
    text = f"the key is {SECRET} and mail a.person@corp.example.org"
    events = [Event(id="a", t=0, type="message", agent="x", content_ref=content_ref(text), extra={"note": SECRET})]
    return Trace(trace_id="s", task_id="q", events=events, contents={content_ref(text): text})


def test_secrets_are_masked_and_counted(tmp_path: Path) -> None:
    source = counterpoint.save(with_secret(), tmp_path / "s.jsonl")
    runner = CliRunner()
    text = runner.invoke(cli, ["export", str(source), "--to", "html", "-o", str(tmp_path / "s.html")], catch_exceptions=False).stdout
    assert re.search(r"masked +3 secrets \(2 keys, 1 e-mail\)", text)
    said = json.dumps(content(tmp_path / "s.html"))
    assert SECRET not in said
    assert "[masked:key:0001]" in said
    bare = run(str(source), "--to", "html", "-o", str(tmp_path / "bare.html"), "--mask", "off")
    assert bare["masked"] is None
    assert content(tmp_path / "bare.html")["masked"] is None
    assert SECRET in json.dumps(content(tmp_path / "bare.html"))


def test_the_report_of_a_page_and_its_title_hold_no_secret(tmp_path: Path) -> None:
    trace = msgspec.structs.replace(with_secret(), trace_id=SECRET)
    source = counterpoint.save(trace, tmp_path / "s.jsonl")
    told = run(str(source), "--to", "html", "-o", str(tmp_path / "s.html"), "--full")
    assert {row["place"] for row in told["report"]} == {"trace_id", "contents", "event.extra.note"}
    assert told["traces"] == ["[masked:key:0001]"]
    assert SECRET not in (tmp_path / "s.html").read_text() + json.dumps(content(tmp_path / "s.html")) + json.dumps(told)


def test_nothing_a_trace_says_is_markup(tmp_path: Path) -> None:
    evil = "</script><script>alert(1)</script><img src=x onerror=alert(1)><!--"
    events = [Event(id=evil, t=0, type="message", agent=evil, content_ref="r")]
    trace = Trace(trace_id=evil, task_id=evil, events=events, contents={"r": evil}, rewards={"team": 1})
    data = one_file([trace], masked=None).data.decode()
    assert data.count("<script") == STAND_IN.count("<script") + 1
    assert "<img" not in data
    title = re.search(r"<title>(.*?)</title>", data)
    assert title is not None
    assert html.unescape(title[1]).startswith("</script><script>alert(1)")
    assert reopened(data.encode())[1]["traces"][evil]["texts"]["0"] == evil


def test_the_policy_lets_only_the_page_s_script_run() -> None:
    data = one_file([small()], masked=Counter()).data.decode()
    policy = re.search(r'<head><meta http-equiv="Content-Security-Policy" content="([^"]*)">', data)
    assert policy is not None
    assert "default-src 'none'" in policy[1]
    assert "connect-src 'none'" in policy[1]
    assert "unsafe-eval" not in policy[1]
    assert len(re.findall("'sha256-[^']+'", policy[1])) == 1


def test_strange_strings_and_numbers_survive() -> None:
    events = [Event(id="a", t=0, type="message", agent="x", content_ref="r", extra={"big": 2**80, "half": "\ud800"})]
    trace = Trace(trace_id="t", task_id="q", events=events, contents={"r": "half \ud800"})
    one = reopened(one_file([trace], masked=None).data)[1]["traces"]["t"]
    assert rows(one)[0]["big"] == str(2**80)
    assert one["texts"]["0"].startswith("half ")


def test_a_large_trace_carries_credit_by_agent_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_FINE", 10)
    one = next(iter(reopened(one_file([small()], masked=None).data)[1]["traces"].values()))
    assert {name.split("/")[1] for name in one["credit"]} <= {"team", "orchestrator", "role", "agent"}
    turns = next(m for m in one["methods"] if m["unit"] == "turn")
    assert "--mechanism" in turns["refusal"]


def test_texts_are_cut_to_fit_the_budget(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert _longest([5, 10, 100], 1000) == 100
    assert _longest([5, 10, 100], 45) == 30
    assert _longest([100, 100], 100) == 50
    assert _longest([], 10) == 0
    monkeypatch.setattr(module, "TEXTS", 3000)
    texts = {f"r{k}": str(k) * size for k, size in enumerate((100, 9000, 50_000))}
    events = [Event(id=ref, t=k, type="message", agent="x", content_ref=ref) for k, ref in enumerate(texts)]
    made = one_file([Trace(trace_id="t", task_id="q", events=events, contents=texts)], masked=None)
    assert (made.texts_cut, made.longest) == (2, 1450)
    kept = reopened(made.data)[1]["traces"]["t"]["texts"]
    assert kept["0"] == "0" * 100
    assert kept["1"] == "1" * 1450 + "\n[cut: 1 kB of 9 kB]"


def test_too_large_is_refused_and_there_are_ways_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = counterpoint.save(small(), tmp_path / "t.jsonl")
    size = run(str(source), "--to", "html", "-o", str(tmp_path / "whole.html"))["files"][0]["bytes"]
    monkeypatch.setattr(module, "LIMIT", size - 1)
    with pytest.raises(Refused, match=r"--agent NAME .* --window FROM-TO .* --summary"):
        run(str(source), "--to", "html", "-o", str(tmp_path / "t.html"))
    assert not (tmp_path / "t.html").exists()
    summary = run(str(source), "--to", "html", "-o", str(tmp_path / "sum.html"), "--summary")
    one = next(iter(content(tmp_path / "sum.html")["traces"].values()))
    assert one["texts"] == one["events"] == {}
    assert summary["left_out"]["texts"] > 0
    assert any("a summary" in note for note in one["about"]["notes"])
    windowed = run(str(source), "--to", "html", "-o", str(tmp_path / "win.html"), "--window", "0-5")
    assert 0 < windowed["files"][0]["rows"] < len(small().events)


def test_a_part_is_whole_in_itself_and_says_that_it_is_one() -> None:
    trace = small()
    child = next(e.to for e in trace.events if e.type == "spawn")
    assert child is not None
    found, said = part(trace, agents=[child])
    assert {e.agent for e in found.events if e.type != "spawn"} == {child}
    names = {e.id for e in found.events}
    assert all(e.src in names and e.dst in names for e in found.edges)
    assert f"{len(found.events):,} of {len(trace.events):,} events" in said
    assert found.costs["tokens"] == sum((e.tokens_in or 0) + (e.tokens_out or 0) for e in found.events)
    lead = next(e.agent for e in trace.events if e.type == "spawn")
    assert len(part(trace, agents=[lead])[0].events) == len(trace.events)
    end = max(e.t for e in trace.events)
    assert len(part(trace, window=(0, end))[0].events) == len(trace.events)
    with pytest.raises(NotFound, match="no agent named 'nobody'"):
        part(trace, agents=["nobody"])
    with pytest.raises(NotFound, match="nothing is left"):
        part(trace, window=(end + 1e6, end + 2e6))


@pytest.mark.parametrize(
    ("more", "says"),
    [
        (["--window", "x"], "not a window of time"),
        (["--window", "9-3"], "ends before it begins"),
    ],
)
def test_wrong_words_are_explained(more: list[str], says: str, tmp_path: Path) -> None:
    source = counterpoint.save(small(), tmp_path / "t.jsonl")
    with pytest.raises(InputError, match=says):
        run(str(source), "--to", "html", "-o", str(tmp_path / "t.html"), *more)


def test_ways_out_are_for_the_file_only(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="add --to html"):
        run("t", "--summary", "-o", "x")


def test_an_existing_file_stays_without_force_and_dry_run_writes_nothing(tmp_path: Path) -> None:
    source = counterpoint.save(small(), tmp_path / "t.jsonl")
    target = tmp_path / "t.html"
    run(str(source), "--to", "html", "-o", str(target), "--dry-run")
    assert not target.exists()
    target.write_text("mine")
    with pytest.raises(InputError, match="exists already"):
        run(str(source), "--to", "html", "-o", str(target))
    run(str(source), "--to", "html", "-o", str(target), "--overwrite")
    assert target.read_text() != "mine"


def test_an_old_file_moves_into_a_newer_page(tmp_path: Path, page: Path) -> None:
    source = counterpoint.save(small(), tmp_path / "t.jsonl")
    run(str(source), "--to", "html", "-o", str(tmp_path / "old.html"))
    page.write_text(STAND_IN.replace('id="app"', 'id="app" class="newer"'))
    told = run(str(tmp_path / "old.html"), "--to", "html", "-o", str(tmp_path / "new.html"))
    assert 'class="newer"' in (tmp_path / "new.html").read_text()
    assert content(tmp_path / "new.html") == content(tmp_path / "old.html")
    assert told["notes"] == [f"the data that counterpoint {counterpoint.__version__} wrote, in the present page"]


def test_what_is_no_file_of_ours_is_said(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no data block"):
        reopened(b"<html></html>")
    for inside in (b"not base64 gzip", base64.b64encode(b"no gzip"), base64.b64encode(gzip.compress(b"no json"))):
        with pytest.raises(InputError):
            reopened(b'<script id="counterpoint-data">' + inside + b"</script>")
    newer = page_around(block({"traces": {}}), "t").decode()
    old = base64.b64encode(gzip.compress(b'{"version": 99, "traces": {}}')).decode()
    with pytest.raises(InputError, match="newer kind"):
        reopened(re.sub(r'(id="counterpoint-data"[^>]*>)[^<]*', lambda found: found[1] + old, newer).encode())


def test_without_the_page_it_says_how_to_get_one(page: Path) -> None:
    page.unlink()
    with pytest.raises(NotFound, match="make page"):
        one_file([small()], masked=None)
    page.write_text("<html></html>")
    with pytest.raises(InputError, match="no place for the data"):
        one_file([small()], masked=None)


def test_it_opens_from_disk_in_a_browser_without_network(tmp_path: Path) -> None:
    sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    browser_path = shutil.which("chromium")
    if browser_path is None:
        pytest.skip("there is no chromium here")
    file = tmp_path / "t.html"
    file.write_bytes(one_file([small()], masked=None).data)
    asked: list[str] = []
    problems: list[str] = []
    with sync_api.sync_playwright() as player:
        browser = player.chromium.launch(executable_path=browser_path, headless=True, args=["--no-sandbox", "--disable-gpu"])
        tab = browser.new_page()
        tab.on("request", lambda request: asked.append(request.url))
        tab.on("console", lambda message: problems.append(message.text))
        tab.goto(file.as_uri())
        tab.wait_for_function("document.getElementById('app').textContent.includes('events')")
        assert tab.inner_text("#app") == f"{len(small().events)} events"
        tab.evaluate("fetch('http://127.0.0.1:1/').catch(() => 0)")
        browser.close()
    assert [url for url in asked if not url.startswith(("file:", "blob:"))] == []
    assert any("Content Security Policy" in text for text in problems)
