"""A person's own team, run again over its recording: exact without an edit, and with one only what follows from it is new."""

from __future__ import annotations

import asyncio
import json
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import counterpoint as cpt
from counterpoint.audits.diff import fingerprint
from counterpoint.errors import InputError, NotFound, NotIdentified, Refused
from counterpoint.recorder.team_replay import TeamReplay
from counterpoint.trace import Event, Trace

Made = tuple[Trace, Callable[[], Any], list[Any]]


def _same(a: Trace, b: Trace) -> None:
    """Every event and edge is as it was, but for badges."""
    assert [e.id for e in b.events] == [e.id for e in a.events]
    for one, two in zip(a.events, b.events, strict=True):
        assert fingerprint(one) == fingerprint(two)
        for field in one.__struct_fields__:
            if field != "extra":
                assert getattr(one, field) == getattr(two, field), (field, one, two)
        assert {k: v for k, v in (two.extra or {}).items() if k != "badge"} == (one.extra or {})
    assert {(e.src, e.dst, e.type) for e in a.edges} == {(e.src, e.dst, e.type) for e in b.edges}
    assert a.rewards == b.rewards
    assert {k: a.contents[k] for k in a.contents} == b.contents


def _calls(trace: Trace) -> dict[str, int]:
    return dict(trace.meta["fork"]["calls"])


def _of(trace: Trace, type: str, agent: str | None = None, n: int = 0) -> Event:
    return [e for e in trace.events if e.type == type and agent in (None, e.agent)][n]


def _texts(trace: Trace) -> list[str | None]:
    return [trace.text(e) for e in trace.events]


@pytest.fixture
def bridge(tmp_path: Path) -> Made:
    """Two readers at once, a lead that puts together what they say; what is really called is listed."""
    rec, real = cpt.record(tmp_path, task="bridge", agent="lead"), []
    pages = {"s1": "opened in 1932", "s2": "503 m long"}

    @rec.tool
    async def read(page: str) -> str:
        real.append(("read", page))
        await asyncio.sleep(0.001)
        return pages.get(page, "nothing")

    @rec.model(name="m")
    async def ask(prompt: str) -> dict[str, Any]:
        real.append(("ask", prompt))
        await asyncio.sleep(0.001)
        return {"text": prompt.upper(), "usage": {"prompt_tokens": 7, "completion_tokens": 2}}

    @rec.agent
    async def reader(page: str) -> str:
        return str((await ask(await read(page)))["text"])

    @rec.agent
    async def lead(question: str) -> str:
        rec.decision("spawn", options=["spawn", "noop"])
        said = await asyncio.gather(reader("s1"), reader("s2"))
        return str((await ask(" and ".join(said)))["text"])

    def team() -> None:
        with rec:
            answer = asyncio.run(lead("?"))
            rec.reward(team=0.5 * ("1932" in answer) + 0.5 * ("503" in answer))

    team()
    assert rec.trace is not None
    assert rec.problems == []
    trace = rec.trace
    real.clear()
    return trace, team, real


# -- the same again --------------------------------------------------------------------------------------------------------


def test_a_run_without_an_edit_is_the_same_and_calls_nothing(bridge: Made) -> None:
    trace, team, real = bridge
    again = TeamReplay(team).fork(trace, "e3")
    _same(trace, again)
    assert real == []
    assert _calls(again) == {"recorded": 5, "re-run": 0, "tools": 0}
    assert {e.extra["badge"] for e in again.events if e.extra} == {"reused"}
    assert (again.meta["parent"], again.meta["edits"]) == (trace.trace_id, [])


def test_two_hundred_requests_fifty_at_once_are_exact(tmp_path: Path) -> None:
    rec, real = cpt.record(tmp_path, task="many", agent="lead"), []

    @rec.model(name="m")
    async def ask(prompt: str) -> str:
        real.append(prompt)
        await asyncio.sleep(rec.random().random() / 100)
        return f"{prompt} {len(real)}"

    @rec.agent
    async def worker(i: int, gate: asyncio.Semaphore) -> str:
        async with gate:
            return await ask(f"part {i}")

    @rec.agent
    async def lead() -> str:
        gate, came = asyncio.Semaphore(50), []
        tasks = [asyncio.create_task(worker(i, gate)) for i in range(199)]
        for one in asyncio.as_completed(tasks):  # in the order in which they come
            came.append(await one)
        return await ask(" ".join(came))

    def team() -> None:
        with rec:
            asyncio.run(lead())
            rec.reward(team=1)

    team()
    assert rec.trace is not None
    assert len(real) == 200
    trace, again = rec.trace, TeamReplay(team).fork(rec.trace, "e1")
    _same(trace, again)
    assert len(real) == 200
    assert _calls(again)["recorded"] == 200


def test_equal_calls_get_the_recorded_answers_in_their_order_and_errors_are_raised_again(tmp_path: Path) -> None:
    rec, real = cpt.record(tmp_path, task="retry"), []

    class Busy(Exception):
        def __init__(self, after: float) -> None:
            super().__init__(f"busy for {after}")
            self.after = after

    globals()["Busy"] = Busy
    Busy.__qualname__ = "Busy"

    @rec.tool
    def fetch(page: str) -> str:
        real.append(page)
        if len(real) < 3:
            raise Busy(0.25 * len(real))
        return f"{page} at last"

    def team() -> list[Any]:
        told: list[Any] = []
        with rec:
            while not told or isinstance(told[-1], float):
                try:
                    told.append(fetch("p"))
                except Busy as busy:
                    told.append(busy.after)
                    rec.event("safety_event", f"{busy} {busy.after} {busy.args}")
            rec.reward(team=1)
        return told

    assert team() == [0.25, 0.5, "p at last"]
    trace = rec.trace
    assert trace is not None
    _same(trace, TeamReplay(team).fork(trace, "e1"))
    assert real == ["p", "p", "p"]
    second = _of(trace, "tool_result", n=1)
    healed = TeamReplay(team).fork(trace, second.id, cpt.Substitute("here"))
    assert [healed.text(e) for e in healed.events if e.type == "tool_result"] == [None, "here"]
    assert real == ["p", "p", "p"]


def test_streams_give_the_same_parts_and_end_where_their_reader_ended(tmp_path: Path) -> None:
    rec, real = cpt.record(tmp_path, task="stream"), []

    @rec.model(name="m")
    async def write(prompt: str) -> AsyncIterator[str]:
        for word in (real.append(prompt), prompt, "then", "end")[1:]:
            await asyncio.sleep(0)
            yield f"{word} "

    @rec.tool
    def lines(name: str) -> Iterator[dict[str, int]]:
        real.append(name)
        yield {"line": 1}
        yield {"line": 2}

    async def main() -> None:
        parts = [part async for part in write("so")]
        rec.message(None, None, parts)
        for line in lines("f"):
            rec.message(None, None, line)
            break

    def team() -> None:
        with rec:
            asyncio.run(main())
            rec.reward(team=1)

    team()
    trace = rec.trace
    assert trace is not None
    _same(trace, TeamReplay(team).fork(trace, "e1"))
    assert real == ["so", "f"]
    step = next(e for e in trace.events if e.model)
    other = TeamReplay(team).fork(trace, step.id, cpt.Substitute("short"))
    assert '["short"]' in _texts(other)


def test_threads_in_any_order_are_answered_by_what_they_ask(tmp_path: Path) -> None:
    rec, real, turn = cpt.record(tmp_path, task="threads", agent="lead"), [], [0]

    @rec.tool
    def look(name: str) -> str:
        real.append(name)
        time.sleep(0.002)
        return f"page {name}"

    @rec.agent
    def worker(name: str) -> str:
        return look(name) + look("same")

    @rec.agent
    def lead() -> list[str]:
        turn[0] += 1
        names = [f"n{i}" for i in range(8)]
        with ThreadPoolExecutor(4) as pool:  # the second time they are started in another order
            began = {n: pool.submit(copy_context().run, worker, n) for n in (names if turn[0] == 1 else names[::-1])}
            return [began[n].result() for n in names]

    def team() -> None:
        with rec:
            lead()
            rec.reward(team=1)

    team()
    trace, before = rec.trace, len(real)
    assert trace is not None
    again = TeamReplay(team).fork(trace, "e1")
    assert {(e.id, fingerprint(e)) for e in again.events} == {(e.id, fingerprint(e)) for e in trace.events}
    assert (before, len(real)) == (16, 16)


def test_what_was_cancelled_is_cancelled_again(tmp_path: Path) -> None:
    rec, real = cpt.record(tmp_path, task="late", agent="lead"), []

    @rec.tool
    async def slow(name: str) -> str:
        real.append(name)
        await asyncio.sleep(30)
        return "never"

    @rec.tool
    async def quick(name: str) -> str:
        real.append(name)
        await asyncio.sleep(0.001)
        return "soon"

    async def main() -> None:
        try:
            await asyncio.wait_for(slow("w"), 0.05)
        except TimeoutError:
            rec.message(None, None, "too late")
        a, b = asyncio.create_task(slow("a")), asyncio.create_task(quick("b"))
        done, late = await asyncio.wait({a, b}, return_when=asyncio.FIRST_COMPLETED)
        for task in late:
            task.cancel()
        await asyncio.gather(*late, return_exceptions=True)
        rec.message(None, None, [task.result() for task in done])

    def team() -> None:
        with rec:
            asyncio.run(main())
            rec.reward(team=1)

    team()
    trace = rec.trace
    assert trace is not None
    _same(trace, TeamReplay(team).fork(trace, "e1"))
    assert real == ["w", "a", "b"]


def test_what_the_code_draws_and_reads_from_the_clock_is_the_same_again(tmp_path: Path) -> None:
    rec = cpt.record(tmp_path, task="drawn", agent="lead")

    @rec.tool
    def look(n: float) -> float:
        return n

    @rec.agent
    def lead() -> None:
        for _ in range(3):
            look(rec.random().random())
            look(rec.now())

    def team() -> None:
        with rec:
            lead()
            rec.reward(team=1)

    team()
    trace = rec.trace
    assert trace is not None
    _same(trace, TeamReplay(team).fork(trace, "e1"))
    assert len({trace.text(e) for e in trace.events if e.type == "tool_call"}) == 6
    outside = rec.random()
    assert outside.random() != rec.random().random()
    assert abs(rec.now() - time.time()) < 60


@dataclass
class Page:
    """What a tool gives that is no text."""

    title: str
    lines: tuple[int, ...]


def test_objects_are_given_again_as_what_they_were(tmp_path: Path) -> None:
    pydantic = pytest.importorskip("pydantic")
    rec, real = cpt.record(tmp_path, task="objects"), []

    class Answer(pydantic.BaseModel):
        content: str
        score: float | None = None

    globals()["Answer"] = Answer
    Answer.__qualname__ = "Answer"
    lock = threading.Lock()

    @rec.tool
    def get(n: int) -> Any:
        real.append(n)
        return [Page("a", (1, 2)), {"k": {1, 2}, "$": b"x"}, {3: float("inf")}, "é\r\n", "e\u0301", None, lock][n]

    @rec.model(name="m")
    def ask(messages: list[Any]) -> Any:
        real.append(messages)
        return Answer(content=messages[-1].content + "!", score=0.5)

    given: list[list[Any]] = []

    def team() -> None:
        with rec:
            given.append([get(n) for n in range(7)])
            given[-1].append(ask([Answer(content="one"), Answer(content="two")]))
            rec.reward(team=1)

    team()
    trace = rec.trace
    assert trace is not None
    TeamReplay(team).fork(trace, "e1")
    assert given[0][:6] == given[1][:6]
    assert given[0][7] == given[1][7]
    assert [type(one) for one in given[0]] == [type(one) for one in given[1]]
    assert len(real) == 8 + 1  # a lock cannot be kept: its tool is called again
    step = next(e for e in trace.events if e.model)
    other = TeamReplay(team).fork(trace, step.id, cpt.Substitute("three"))
    assert given[-1][7] == Answer(content="three", score=0.5)
    assert "three" in _texts(other)


# -- with an edit ----------------------------------------------------------------------------------------------------------


def test_another_tool_result_changes_only_what_follows_from_it(bridge: Made) -> None:
    trace, team, real = bridge
    result = next(e for e in trace.events if trace.text(e) == "opened in 1932")
    forked = TeamReplay(team).fork(trace, result.id, cpt.Substitute("opened in 1999"))
    assert real == [("ask", "opened in 1999"), ("ask", "OPENED IN 1999 and 503 M LONG")]
    assert forked.rewards == {"team": 0.5}
    assert _calls(forked) == {"recorded": 2, "re-run": 2, "tools": 0}
    again = {e.agent for e in forked.events if e.extra and e.extra["badge"] == "re-run"}
    assert again == {"reader", "lead"}
    assert cpt.problems(forked) == []
    before = trace.events[: trace.index[result.id]]
    assert [(e.id, e.t, fingerprint(e)) for e in before] == [(e.id, e.t, fingerprint(e)) for e in forked.events[: len(before)]]
    _same_but_meta = TeamReplay(team).fork(forked, "e1")  # a fork is a recording, too
    assert _texts(_same_but_meta) == _texts(forked)
    assert len(real) == 2


def test_a_model_answer_an_argument_a_brief_and_a_return_can_be_others(bridge: Made) -> None:
    trace, team, real = bridge
    step = next(e for e in trace.events if e.model and e.agent == "reader")
    assert "in 2000 and 503 M LONG" in real_prompts(TeamReplay(team).fork(trace, step.id, cpt.Substitute("in 2000")), real)
    call = next(e for e in trace.events if e.type == "tool_call" and trace.text(e) == "s1")
    TeamReplay(team).fork(trace, call.id, cpt.Substitute("s9"))
    assert real.pop(0) == ("read", "s9")
    assert real[0] == ("ask", "nothing")
    spawn = next(e for e in trace.events if e.type == "spawn" and trace.text(e) == "s1")
    real.clear()
    forked = TeamReplay(team).fork(trace, spawn.id, cpt.Substitute("s2"))
    assert [forked.text(e) for e in forked.events if e.type == "spawn"] == ["s2", "s2"]
    assert forked.agents == trace.agents
    back = next(e for e in trace.events if e.type == "return" and e.agent == "reader-2")
    real.clear()
    forked = TeamReplay(team).fork(trace, back.id, cpt.Substitute("99 m"))
    assert real == [("ask", "OPENED IN 1932 and 99 m")]
    assert forked.text(forked.events[forked.index[back.id]]) == "99 m"
    real.clear()
    assert _texts(TeamReplay(team).fork(forked, "e1")) == _texts(forked)  # the edit is made again in a fork of the fork
    assert real == []


def real_prompts(forked: Trace, real: list[Any]) -> list[str]:
    """What models were really asked, emptied."""
    said = [text for kind, text in real if kind == "ask"]
    real.clear()
    return said


def test_what_is_deleted_is_empty_and_nobody_is_spawned(bridge: Made) -> None:
    trace, team, real = bridge
    replay = TeamReplay(team)
    result = next(e for e in trace.events if trace.text(e) == "503 m long")
    assert replay.fork(trace, result.id, cpt.Delete()).rewards == {"team": 0.5}
    real.clear()
    spawn = next(e for e in trace.events if e.type == "spawn" and e.to == "reader")
    without = replay.fork(trace, spawn.id, cpt.Delete())
    assert real == [("ask", " and 503 M LONG")]
    assert "reader" not in without.agents
    assert "reader-2" in without.agents
    nobody = replay.fork(without, next(e.id for e in without.events if e.type == "spawn"), cpt.Delete())
    assert nobody.agents == ["lead"]
    assert nobody.rewards == {"team": 0.0}
    decided = next(e for e in trace.events if e.decision == "spawn")
    assert replay.fork(trace, decided.id, cpt.Delete()).agents == ["lead"]


def test_credit_by_forks_says_who_caused_what(bridge: Made) -> None:
    trace, team, _ = bridge
    replay = TeamReplay(team)
    difference = cpt.credit(trace, "difference", replay=replay)
    assert {row.unit_id: row.value for row in difference.rows} == {"reader": 0.5, "reader-2": 0.5}
    shapley = cpt.credit(trace, "shapley", replay=replay)
    assert {row.unit_id: row.value for row in shapley.rows} == {"reader": 0.5, "reader-2": 0.5}
    messages = cpt.credit(trace, "message_delete", team=team)
    assert [row.value for row in messages.rows] == [0.5] * len(messages.rows)
    assert len(messages.rows) >= 2


def test_another_model_answers_what_is_new(bridge: Made) -> None:
    trace, team, real = bridge
    result = next(e for e in trace.events if trace.text(e) == "opened in 1932")
    forked = TeamReplay(team, model=lambda prompt: {"text": "other"}).fork(trace, result.id, cpt.Substitute("x"))
    assert real == []
    assert forked.rewards == {"team": 0.0}
    step = next(e for e in trace.events if e.model and e.agent == "reader")
    forked = TeamReplay(team, model=lambda prompt: {"text": f"<{prompt}>"}).fork(trace, step.id, cpt.Substitute())
    assert "<<opened in 1932> and 503 M LONG>" in _texts(forked)


def test_with_a_seed_models_are_asked_again_from_the_event_on(bridge: Made) -> None:
    trace, team, real = bridge
    step = next(e for e in trace.events if e.model and e.agent == "reader-2")
    forked = TeamReplay(team).fork(trace, step.id, seed=3)
    assert [kind for kind, _ in real] == ["ask", "ask"]
    assert forked.rewards == trace.rewards


def test_a_tool_with_effects_is_called_only_with_consent(tmp_path: Path) -> None:
    rec, real = cpt.record(tmp_path, task="mail", agent="lead"), []

    @rec.tool
    def draft(name: str) -> str:
        return f"dear {name}"

    @rec.tool(effects=True)
    def send(text: str) -> str:
        real.append(text)
        return "sent"

    @rec.tool(effects=True)
    def outbox() -> str:
        real.append("outbox")
        return f"{len(real)} letters"

    def team() -> None:
        with rec:
            try:
                sent = send(draft("ann")) + outbox()
            except PermissionError as error:
                sent = str(error)
            rec.reward(team=float("sent" in sent))

    team()
    trace = rec.trace
    assert trace is not None
    real.clear()
    first = _of(trace, "tool_result")
    held = TeamReplay(team).fork(trace, first.id, cpt.Substitute("dear bob"))
    assert real == []
    assert held.meta["fork"]["held"] == ["send"]
    assert held.rewards == {"team": 0.0}
    assert [e.extra["badge"] for e in held.events if e.type == "tool_call" and e.extra][-1] == "simulated"
    sent = TeamReplay(team, allow=["send"]).fork(trace, first.id, cpt.Substitute("dear bob"))
    assert real == ["dear bob"]
    assert sent.meta["fork"]["held"] == ["outbox"]
    TeamReplay(team, allow=["send", "outbox"]).fork(trace, first.id, cpt.Substitute("dear bob"))
    assert real == ["dear bob", "dear bob", "outbox"]
    assert TeamReplay(team).fork(trace, "e1").rewards == trace.rewards
    assert len(real) == 3


# -- what cannot be done -----------------------------------------------------------------------------------------------------


def test_code_that_draws_for_itself_is_refused_with_the_first_difference(tmp_path: Path) -> None:
    rec, turns = cpt.record(tmp_path, task="odd", agent="lead"), []

    @rec.tool
    def look(n: int) -> int:
        return n

    def team() -> None:
        with rec:
            look(1)
            turns.append(1)
            try:
                look(len(turns))
            except Exception:
                look(0)  # a team that carries on does not hide it
            rec.reward(team=1)

    team()
    assert rec.trace is not None
    with pytest.raises(NotIdentified, match=r"lead calls look with something else.*rec\.random"):
        TeamReplay(team).fork(rec.trace, "e1")


def test_events_that_no_code_waits_for_cannot_be_edited(bridge: Made) -> None:
    trace, team, _ = bridge
    with pytest.raises(NotIdentified, match="nothing in your code asks"):
        TeamReplay(team).fork(trace, "e2", cpt.Force({"spawn": 1}))
    with pytest.raises(NotFound, match="no event 'e99'"):
        TeamReplay(team).fork(trace, "e99", cpt.Delete())
    stop = trace.events[-1]
    with pytest.raises(NotIdentified, match="that your code told"):
        TeamReplay(team).fork(trace, stop.id, cpt.Delete())
    with pytest.raises(NotIdentified, match="keeps no answers"):
        TeamReplay(team).fork(cpt.Trace(trace_id="t", task_id="t", events=trace.events), "e1")
    with pytest.raises(NotIdentified, match="recorded nothing"):
        TeamReplay(lambda: None).fork(trace, "e1")

    def blocks() -> None:
        with cpt.record(task="x") as rec, rec.model_call("m"):
            pass

    with pytest.raises(NotIdentified, match="is code that would really run"):
        TeamReplay(blocks).fork(trace, "e1")


@pytest.mark.parametrize(
    ("name", "error", "says"),
    [
        ("nowhere.py:team", NotFound, "no file"),
        ("my.py", InputError, "names no function"),
        ("my.py:absent", NotFound, "has no 'absent'"),
        ("my.py:number", InputError, "is a int, not a function"),
        ("broken.py:team", InputError, "fails when it is loaded: ZeroDivisionError"),
        ("my.py:other", InputError, "does not say what it was given"),
        ("my.py:twice", InputError, "begins two recordings"),
        ("my.py:silent", NotIdentified, "recorded nothing"),
        ("my.py:fails", NotIdentified, "ValueError: on purpose"),
    ],
)
def test_a_team_that_cannot_be_run_is_one_clear_error(
    bridge: Made, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, error: type[Exception], says: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "broken.py").write_text("1 / 0\n")
    (tmp_path / "my.py").write_text(
        "import counterpoint\nnumber = 1\ndef other(a, b): pass\ndef silent(): pass\n"
        "def fails(): raise ValueError('on purpose')\n"
        "def twice():\n    for _ in range(2):\n        with counterpoint.record(task='x'): pass\n"
    )
    with pytest.raises(error, match=says):
        TeamReplay(name).fork(bridge[0], "e1")


def test_the_root_agent_itself_can_be_the_team(tmp_path: Path) -> None:
    rec = cpt.record(tmp_path, task="root", agent="lead")

    @rec.tool
    def look(name: str) -> str:
        return f"page {name}"

    @rec.agent
    def lead(name: str, n: int = 1) -> str:
        return look(name * n)

    with rec:
        lead("a", n=2)
    assert rec.trace is not None
    again = TeamReplay(lead).fork(rec.trace, "e1")
    assert [fingerprint(e) for e in again.events] == [fingerprint(e) for e in rec.trace.events]


def test_a_replay_inside_a_running_loop(bridge: Made) -> None:
    trace, team, _ = bridge

    async def main() -> Trace:
        return TeamReplay(team).fork(trace, "e1")

    assert _texts(asyncio.run(main())) == _texts(trace)


# -- on the command line -----------------------------------------------------------------------------------------------------

PROGRAM = """
import asyncio, sys
import counterpoint

rec = counterpoint.record(task="bridge", agent="lead", trace_id="b1")

@rec.tool
async def read(page):
    open("calls.txt", "a").write(page + "\\n")
    return {"s1": "It opened in 1932."}[page]

@rec.agent
async def lead(question):
    return await read("s1")

def team():
    with rec:
        rec.reward(team="1932" in asyncio.run(lead("When?")))
    print("printed by the team")

if __name__ == "__main__":
    rec.keep_in(sys.argv[1])
    team()
"""


def test_fork_command(run: Callable[..., tuple[int, str, str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my.py").write_text(PROGRAM)
    import subprocess

    subprocess.run([sys.executable, "my.py", "store"], check=True, capture_output=True)
    code, out, err = run("fork", "b1", "--team", "my.py:team", "--at", "e2", "--substitute", "In 1999.", "--store", "store", "--json")
    assert code == 0, err
    told = json.loads(out)
    assert told["team"] == {"before": 1, "after": 0}
    assert told["live"]["calls"] == {"recorded": 0, "re-run": 0, "tools": 0}
    assert (tmp_path / "calls.txt").read_text() == "s1\n"
    code, out, err = run("fork", told["fork"], "--team", "my.py:team", "--at", "e2", "--do", "delete", "--store", "store")
    assert code == 0
    assert "calls  from recording 0 · re-run 0 model calls, 0 tool calls · held 0" in out
    code, _, err = run("fork", "b1", "--at", "e2", "--do", "delete", "--store", "store")
    assert code == 5
    assert "--team my.py:team" in err
    code, _, err = run("fork", "b1", "--team", "none.py:team", "--at", "e2", "--do", "delete", "--store", "store")
    assert code == 3
    assert "no file none.py" in err




def test_blame_and_advise_run_the_team_again(bridge: Made) -> None:
    trace, team, real = bridge
    result = next(e for e in trace.events if trace.text(e) == "opened in 1932")
    failed = TeamReplay(team).fork(trace, result.id, cpt.Substitute("opened in 1999"))
    with pytest.raises(Refused, match=r"your team's models for up to \d+ tokens; --cap tokens="):
        cpt.blame(failed, replay=True, team=team)
    real.clear()
    found = cpt.blame(failed, replay=True, team=team, budget_tokens=10_000)
    assert found.decisive is not None
    assert found.decisive.forks > 0
    assert real != []
    advice = cpt.advise(trace, team=team, budget_tokens=100_000)
    gains = {row.change.says: row.gain for row in advice.rows}
    assert gains["do not spawn reader (e2)"] == -0.5
    assert max(gains.values()) == 0.0
    with pytest.raises(Refused, match="--cap tokens="):
        cpt.advise(trace, team=team)


def test_shapley_values_are_forked_where_the_team_is_named_and_their_price_names_calls(bridge: Made) -> None:
    from counterpoint.app.api.credit import fork_price, with_team

    trace, team, real = bridge
    found = cpt.credit(trace, "shapley", team=team)
    assert {row.unit_id: row.value for row in found.rows} == {"reader": 0.5, "reader-2": 0.5}
    assert found.notes["traces"][0]["worth"] == "forks"
    assert real
    options = with_team("shapley", {}, [trace], team)
    price = fork_price("shapley", [trace], options)
    assert price is not None
    tokens, calls = (sum(c) for c in zip(*((e.tokens_in + e.tokens_out, 1) for e in trace.events if e.model), strict=True))
    assert (price.forks, price.usd) == (4, 0.0)
    assert price.tokens == 9 * price.calls <= 4 * tokens
    assert price.calls <= 4 * calls
    words = f"4 forks, which may ask a model for up to {price.tokens} tokens in {price.calls} calls"
    assert (price.words, price._replace(usd=0.25).words) == (words, f"{words}, $0.25 at what they cost when recorded")
    assert with_team("shapley", {"replay": False}, [trace], team) == {"replay": False}
    assert with_team("shapley", {}, [trace], None) == {} == with_team("uniform", {}, [trace], team)


def test_a_deleted_answer_keeps_its_shape(bridge: Made) -> None:
    trace, team, real = bridge
    step = next(e for e in trace.events if trace.text(e) == "OPENED IN 1932")
    gone = TeamReplay(team).fork(trace, step.id, cpt.Delete())
    assert "failed" not in gone.meta
    assert gone.rewards == {"team": 0.5}
    assert real == [("ask", " and 503 M LONG")]


def test_who_asks_comes_before_whom_his_asking_frees() -> None:
    from counterpoint.recorder.turns import Turns

    turns, order = Turns({"a": 1.0, "b": 2.0, "c": 3.0}, lambda: 60.0), []

    def ask(mark: str) -> None:
        turns.turn(mark, lambda turn: turn.add_done_callback(lambda _: order.append(mark)))

    for mark in ("c", "b", "a"):
        ask(mark)
    turns.close()
    assert order == ["a", "b", "c"]
