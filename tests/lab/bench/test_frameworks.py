"""Teams of LangGraph and of the OpenAI Agents SDK on the bench: the examples, with an endpoint that has no weights."""

from __future__ import annotations

import importlib.util
import threading
from collections.abc import Iterator
from http.server import ThreadingHTTPServer
from pathlib import Path

import pytest

from counterpoint import problems
from counterpoint.errors import InputError, NotFound
from counterpoint.lab.bench.scorecard.cells import suite
from counterpoint.lab.bench.scorecard.contestants import Caps, contestant
from counterpoint.lab.bench.scorecard.playing import measured

BENCH = Path(__file__).parents[3] / "examples" / "bench"
CELLS = {c.id: c for c in suite("short")}
NEEDS = {"langgraph_team": ("langgraph", "openai"), "openai_agents_team": ("agents", "openai")}


@pytest.fixture
def endpoint(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The example's endpoint, in a thread, where the environment says."""
    spec = importlib.util.spec_from_file_location("bench_endpoint", BENCH / "endpoint.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    server = ThreadingHTTPServer(("127.0.0.1", 0), module._Handler)
    serving = threading.Thread(target=server.serve_forever, daemon=True)
    serving.start()
    monkeypatch.setenv("OPENAI_BASE_URL", f"http://127.0.0.1:{server.server_address[1]}/v1")
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    monkeypatch.setenv("OPENAI_MODEL", "stand-in")
    yield
    server.shutdown()
    serving.join()
    server.server_close()


@pytest.mark.parametrize("name", NEEDS)
def test_a_framework_plays_and_is_recorded_once(name: str, endpoint: None) -> None:
    for package in NEEDS[name]:
        if importlib.util.find_spec(package) is None:
            pytest.skip(f"{package} is not installed")
    cell = CELLS["T1-100"]
    attempt = contestant(f"{BENCH / name}.py:team").play(cell, 0, Caps())
    row, trace = measured(cell, 0, attempt, 0.0), attempt.trace
    assert (row.status, row.why, row.share) == ("played", "", 1.0)
    assert trace is not None
    assert problems(trace) == []
    asked = [e.agent for e in trace.events if e.type == "tool_call" and e.tool in ("search", "open")]
    assert len(asked) == row.tool_calls  # recorded by the adapter, and not by the bench once more
    assert set(asked) == {"reader", "reader-2", "reader-3", "reader-4"}
    assert row.measures["tokens"] == sum((e.tokens_in or 0) + (e.tokens_out or 0) for e in trace.events) > 0
    assert "__start__" not in trace.agents


def test_a_file_is_a_team_and_says_what_it_lacks(tmp_path: Path) -> None:
    (tmp_path / "beside.py").write_text("WORD = 'all of it'\n")
    file = tmp_path / "mine.py"
    file.write_text("import beside\ndef team(job):\n    return f'{beside.WORD}: {len(job.briefs)}'\n")
    row = measured(CELLS["T4-100"], 0, contestant(f"{file}:team").play(CELLS["T4-100"], 0, Caps()), 0.0)
    assert (row.status, row.share) == ("played", 0.0)
    for name, error in ((f"{tmp_path}/nowhere.py:team", NotFound), (f"{file}:taem", InputError)):
        with pytest.raises(error):
            contestant(name)
    file.write_text("import not_installed_here\n")
    with pytest.raises(NotFound, match="not_installed_here"):
        contestant(f"{file}:team")
