"""The real runtime under orders: agents pause, hear and stop at safe points; the trace is marked, can be forked, and can go on."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from counterpoint.lab.lm.model import Call, Completion
from counterpoint.lab.team.live_replay import LiveReplay
from counterpoint.lab.team.session import Spec, make_model, record_team, resume_team
from counterpoint.recorder.orders import Order, control_path, effects, send
from counterpoint.store import Store
from counterpoint.trace import Trace
from counterpoint.trace.steering import is_steered, order_of

SPEC = Spec(task="ledger_hunt", topology="swarm", model="fake:0.9", seed=3)


class Slow:
    """The fake model with a pause before each answer, so that there is time to steer."""

    def __init__(self, seconds: float = 0.08) -> None:
        self._model, self._seconds = make_model(SPEC.model, SPEC.make_task()), seconds
        self.name, self.version = self._model.name, self._model.version

    async def complete(self, call: Call) -> Completion:
        await asyncio.sleep(self._seconds)
        return await self._model.complete(call)

    async def close(self) -> None:
        await self._model.close()


class Operator:
    """Sends orders to the trace `t` and waits for what they do, beside the team in one loop."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def so_far(self) -> Trace:
        with Store(self.path, read_only=True) as store:
            return store.get("t")

    def count(self, agent: str) -> int:
        return sum(event.agent == agent for event in self.so_far().events)

    async def begun(self) -> None:
        """Wait until the first two workers have acted."""
        await self.until(lambda: control_path(self.path, "t").exists())
        await self.until(lambda: self.count("lead.1") > 2 and self.count("lead.2"))

    async def until(self, is_it: Callable[[], Any]) -> None:
        async with asyncio.timeout(300):
            while not is_it():
                await asyncio.sleep(0.02)

    async def order(self, action: str, agent: str = "", text: str = "") -> Order:
        """Send it, and wait until it has taken effect."""
        sent = await asyncio.to_thread(send, self.path, "t", Order(action=action, agent=agent, text=text))  # type: ignore[arg-type]
        await self.until(lambda: effects(self.path, "t", sent.id))
        return sent


def steered(path: Path, steer: Callable[[Operator], Any], run: Callable[[Store], Any]) -> Trace:
    async def both() -> Trace:
        with Store(path, flush_ms=5) as store:
            team = asyncio.create_task(run(store))
            await steer(Operator(path))
            trace: Trace = await asyncio.wait_for(team, 300)
            return trace

    return asyncio.run(both())


def recorded(store: Store) -> Any:
    return record_team(SPEC, store, trace_id="t", model=Slow())


def actions(trace: Trace, agent: str) -> list[str]:
    return [told["action"] for e in trace.events if e.to == agent and (told := order_of(e))]


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Trace:
    """A run in which one worker was paused and resumed and the lead was told something; it went to its own end."""

    async def steer(operator: Operator) -> None:
        await operator.begun()
        await operator.order("pause", "lead.1")
        before = operator.count("lead.1")
        await operator.order("message", "lead.2", "look at the second ledger")
        await asyncio.sleep(0.15)
        assert operator.count("lead.1") == before
        assert actions(operator.so_far(), "lead.2") == ["message"]
        await operator.order("resume", "lead.1")

    return steered(tmp_path_factory.mktemp("told") / "s", steer, recorded)


def test_a_worker_waits_while_it_is_paused_and_the_run_is_marked(told: Trace) -> None:
    assert told.meta["steered"] is True
    assert is_steered(told)
    assert actions(told, "lead.1") == ["pause", "resume"]
    assert actions(told, "lead") == []
    assert told.meta["ended"] == "stopped"
    told.graph.levels()  # a graph it is


def test_what_the_operator_said_is_read_by_the_agents_next_event(told: Trace) -> None:
    (event,) = (e for e in told.events if e.to == "lead.2" and order_of(e))
    assert told.text(event) == "look at the second ledger"
    assert (event.agent, event.role, "|operator|" in (event.key or "")) == ("operator", "human", True)
    readers = [told.events[told.index[edge.dst]] for edge in told.edges if edge.src == event.id and edge.type == "message"]
    assert readers[0].agent == "lead.2"


def test_a_fork_of_a_steered_run_gets_its_orders_again(told: Trace) -> None:
    last = next(e for e in reversed(told.events) if e.agent == "lead")
    again = LiveReplay(is_full=True).fork(told, last.id)
    assert [(e.key, told.text(e)) for e in told.events if order_of(e)] == [(e.key, again.text(e)) for e in again.events if order_of(e)]
    assert again.rewards == told.rewards
    assert is_steered(again)


def test_a_team_that_is_stopped_ends_with_what_it_has(tmp_path: Path) -> None:
    async def steer(operator: Operator) -> None:
        await operator.begun()
        await operator.order("stop", "lead.1", "enough of this one")
        await operator.order("stop", "", "enough")

    trace = steered(tmp_path / "s", steer, recorded)
    assert (trace.meta["ended"], trace.meta["steered"]) == ("steered", True)
    assert actions(trace, "lead.1")[0] == "stop"
    assert "stop" in actions(trace, "lead")


CHILD = """
import asyncio, sys
sys.path.insert(0, sys.argv[2])
from counterpoint.store import Store
from test_steered_team import recorded
with Store(sys.argv[1], flush_ms=5) as store:
    asyncio.run(recorded(store))
"""


def test_a_run_that_was_killed_while_paused_goes_on_when_it_is_resumed_and_released(tmp_path: Path) -> None:
    path = tmp_path / "s"
    process = subprocess.Popen([sys.executable, "-c", CHILD, str(path), str(Path(__file__).parent)])

    async def first(operator: Operator) -> int:
        await operator.begun()
        await operator.order("message", "lead.1", "the second ledger")
        await operator.order("pause", "lead.1")
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        return operator.count("lead.1")

    try:
        before = asyncio.run(first(Operator(path)))
    finally:
        process.kill()

    async def steer(operator: Operator) -> None:
        await asyncio.sleep(0.3)
        assert operator.count("lead.1") == before, "it is still paused"
        await operator.order("resume", "lead.1")

    trace = steered(path, steer, lambda store: resume_team("t", store, model=Slow()))
    assert actions(trace, "lead.1") == ["message", "pause", "resume"]
    assert trace.meta["steered"] is True
    assert trace.meta["ended"] == "stopped"
