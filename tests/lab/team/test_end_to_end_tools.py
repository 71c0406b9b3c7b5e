"""A team whose programs misbehave: each gets a result that says why, the others go on, and nobody reads another's files."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from counterpoint import problems
from counterpoint.lab.tasks.task import task
from counterpoint.lab.team.sandbox import strength
from counterpoint.lab.team.state import Limits
from team_help import record

SCRIPT = """[lead]
SPAWN worker
SPAWN worker
DELEGATE lead.1: {first}
DELEGATE lead.2: {second}
AGGREGATE {rule}
STOP
[lead.1]
TOOL python: import time; time.sleep(1000)
TOOL python: while True: print('x' * 1000)
TOOL python: import os; [os.fork() for _ in range(1000)]
TOOL python: open({outside!r}, 'w').write('hello')
TOOL python: import socket; socket.create_connection(('127.0.0.1', {port}))
TOOL python: open('mine.txt', 'w').write('the word is heron'); print(open('mine.txt').read())
RETURN: done
[lead.2]
TOOL python: import os; print(sorted(p for d, _, f in os.walk('..') for p in f))
TOOL python: import os; print([open(os.path.join(d, p)).read() for d, _, f in os.walk('/tmp') for p in f if p == 'mine.txt'])
TOOL sql: select 1
TOOL python: print(6 * 7)
RETURN: done
"""

pytestmark = pytest.mark.skipif(not strength().confines_files, reason="the sandbox needs the kernel's help")


@pytest.fixture
def listening() -> Iterator[socket.socket]:
    """Somebody who would notice if a program called."""
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        server.settimeout(0)
        yield server


def test_a_team_goes_on_whatever_its_programs_do(tmp_path: Path, listening: socket.socket) -> None:
    found = task("T3")
    parts = [s.id for s in found.instance(0).subtasks]
    outside, script = tmp_path / "outside.txt", tmp_path / "acts.txt"
    port = listening.getsockname()[1]
    script.write_text(SCRIPT.format(first=parts[0], second=parts[1], rule=found.rules[0], outside=str(outside), port=port))
    limits = Limits(width=2)
    trace = record(
        tmp_path / "s", task="module_dag", model=f"scripted:{script}", limits=limits, tools={"python": {"wall_s": 1.5}}
    )
    assert trace.meta["ended"] == "stopped"
    assert [str(p) for p in problems(trace) if p.severity == "error"] == []
    results = {who: [e for e in trace.events if e.type == "tool_result" and e.agent == who] for who in ("lead.1", "lead.2")}
    first, second = ([(e.ok, e.error) for e in rows] for rows in results.values())
    denied = (False, "denied")
    assert first == [(False, "timeout"), (False, "output limit"), denied, denied, denied, (True, None)]
    assert second == [denied, denied, (True, None)]
    said = [str(trace.text(e)) for e in results["lead.1"]]
    for text, why in zip(
        said, ("ran longer than 1.5 s", "printed more than", "process", "outside.txt", "network", "heron"), strict=True
    ):
        assert why in text, "the agent is told why"
    assert len(said[1]) < 10_000
    assert not outside.exists()
    with pytest.raises(BlockingIOError):
        listening.accept()
    assert "heron" not in "".join(str(trace.text(e)) for e in trace.events if e.agent == "lead.2"), (
        "agents cannot read each other's files"
    )
    refused = [e for e in trace.events if e.ok is False and e.agent == "lead.2" and e.type == "message"]
    assert [e.error for e in refused] == ["malformed: 'sql' is no target of TOOL now"]
