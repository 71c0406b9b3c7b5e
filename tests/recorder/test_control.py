"""Orders to a running team: each reaches whom it concerns once, in order, across processes, crashes and torn lines."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import steer_help
from counterpoint.errors import InputError, NotFound, Refused
from counterpoint.recorder.control import Control, FileControl, NoControl, RecordedControl
from counterpoint.recorder.orders import Order, control_path, effects, line_of, read, recorded, send, wait
from counterpoint.store import Store
from counterpoint.store.run import Run
from counterpoint.trace import Event, Trace
from counterpoint.trace.steering import is_steered

AGENTS = ["lead", "lead.1", "lead.1.1", "lead.2", "lead.10"]
POLL = 0.005


def recording(store: Store, trace_id: str = "t", agents: list[str] = AGENTS) -> Run:
    """A running trace in which these agents have acted."""
    run = store.record(trace_id, task_id="task")
    for k, agent in enumerate(agents):
        run.event(Event(id=f"a{k}", t=float(k), type="message", agent=agent, key=f"{agent}|0"))
    run.sync()
    return run


def steering(path: Path, play: Callable[[FileControl, Callable[..., Order]], Awaitable[Any]], **options: Any) -> Any:
    """Play with the control of a running trace."""

    async def go() -> Any:
        control = FileControl(path, "t", poll_s=POLL, **options)
        try:
            return await play(control, lambda action, agent="", **more: send(path, "t", Order(action=action, agent=agent, **more)))
        finally:
            await control.close()

    with Store(path) as store, recording(store):
        return asyncio.run(asyncio.wait_for(go(), 300))


async def told(control: Control, agent: str, key: str = "k") -> list[Order]:
    """All that an agent is told at one safe point, as the runtime asks; it must not be paused."""
    out: list[Order] = []
    while orders := await control.safe_point(agent, key):
        out += orders
    return out


async def heard(control: FileControl, order: Order) -> None:
    """Wait until the control has seen an order."""
    while order.id not in control._ids:
        await asyncio.sleep(POLL)


# -- delivering ------------------------------------------------------------------------------------------------------------


def test_a_message_reaches_its_agent_once_and_nobody_else(tmp_path: Path) -> None:
    async def play(control: FileControl, say: Callable[..., Order]) -> None:
        assert await told(control, "lead.1") == []
        sent = say("message", "lead.1", text="the second ledger")
        await heard(control, sent)
        assert await told(control, "lead.2") == []
        assert await told(control, "lead.1.1") == []
        assert await told(control, "lead.1") == [sent]
        assert await told(control, "lead.1") == []
        assert (sent.text, len(sent.id), bool(sent.by), sent.at > 0) == ("the second ledger", 16, True, True)

    steering(tmp_path / "s", play)


def test_messages_keep_their_order_and_the_team_includes_who_comes_later(tmp_path: Path) -> None:
    async def play(control: FileControl, say: Callable[..., Order]) -> None:
        sent = [say("message", text=f"n{k}") if k % 2 else say("message", "lead", text=f"n{k}") for k in range(7)]
        await told(control, "lead.2")
        await heard(control, sent[-1])
        assert [order.text for order in await told(control, "lead")] == [f"n{k}" for k in range(7)]
        assert [order.text for order in await told(control, "lead.99")] == ["n1", "n3", "n5"]

    steering(tmp_path / "s", play)


def test_a_stop_reaches_all_below_unless_it_says_otherwise_and_a_pause_only_when_it_does(tmp_path: Path) -> None:
    async def play(control: FileControl, say: Callable[..., Order]) -> dict[str, list[str]]:
        say("stop", "lead.1", text="with tree")
        say("stop", "lead.2", tree=False, text="alone")
        last = say("message", "lead.1", tree=True, text="below")
        await told(control, "lead")
        await heard(control, last)
        return {agent: [order.text for order in await told(control, agent)] for agent in [*AGENTS, "lead.2.1"]}

    found = steering(tmp_path / "s", play)
    assert found == {
        "lead": [], "lead.1": ["with tree", "below"], "lead.1.1": ["with tree", "below"], "lead.2": ["alone"], "lead.10": [], "lead.2.1": [],
    }  # fmt: skip


def test_a_paused_agent_is_told_at_once_and_then_waits_while_others_go_on(tmp_path: Path) -> None:
    async def play(control: FileControl, say: Callable[..., Order]) -> None:
        await told(control, "lead")
        pause = say("pause", "lead.1")
        await heard(control, pause)
        assert await control.safe_point("lead.1", "k") == [pause]
        waiting = asyncio.create_task(control.safe_point("lead.1", "k"))
        message = say("message", "lead.1", text="while it waits")
        await heard(control, message)
        await asyncio.sleep(5 * POLL)
        assert not waiting.done()
        assert await told(control, "lead.1.1") == []
        resume = say("resume", "lead.1")
        assert await waiting == [message, resume]
        assert await told(control, "lead.1") == []

    steering(tmp_path / "s", play)


@pytest.mark.parametrize(("whom", "word"), [("", "resume"), ("lead.2", "resume"), ("lead.2", "stop"), ("", "stop")])
def test_what_ends_a_pause_of_the_team(tmp_path: Path, whom: str, word: str) -> None:
    async def play(control: FileControl, say: Callable[..., Order]) -> None:
        await told(control, "lead")
        await heard(control, say("pause"))
        waiting = {}
        for agent in AGENTS:
            assert [order.action for order in await control.safe_point(agent, "k")] == ["pause"]
            waiting[agent] = asyncio.create_task(control.safe_point(agent, "k"))
        release = say(word, whom)
        assert await waiting["lead.2"] == [release]
        await asyncio.sleep(5 * POLL)
        others = [agent for agent in AGENTS if agent != "lead.2"]
        assert all(waiting[agent].done() == (not whom) for agent in others)

    steering(tmp_path / "s", play)


def test_the_end_of_the_run_ends_every_wait(tmp_path: Path) -> None:
    over: list[bool] = []

    async def play(control: FileControl, say: Callable[..., Order]) -> None:
        await told(control, "lead")
        await heard(control, say("pause"))
        await control.safe_point("lead", "k")
        await control.safe_point("lead.1", "k")
        waiting = asyncio.gather(control.safe_point("lead", "k"), control.safe_point("lead.1", "k"))
        await asyncio.sleep(3 * POLL)
        assert not waiting.done()
        over.append(True)
        assert await waiting == [[], []]
        over.clear()
        again = asyncio.create_task(control.safe_point("lead", "k"))
        await asyncio.sleep(0)
        await control.close()
        assert await again == []

    steering(tmp_path / "s", play, is_over=lambda: bool(over))


def test_who_was_stopped_does_not_wait(tmp_path: Path) -> None:
    async def play(control: FileControl, say: Callable[..., Order]) -> list[str]:
        await told(control, "lead")
        say("stop", "lead")
        await heard(control, say("pause"))
        return [order.action for order in await told(control, "lead")]

    assert steering(tmp_path / "s", play) == ["stop", "pause"]


orders = st.lists(
    st.builds(
        Order,
        action=st.sampled_from(["pause", "resume", "message", "stop"]),
        agent=st.sampled_from(["", *AGENTS]),
        text=st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=8).map(lambda s: s + "x"),
        tree=st.sampled_from([None, True, False]),
    ),
    max_size=8,
)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(batches=st.lists(orders, min_size=1, max_size=4), steps=st.lists(st.sampled_from(AGENTS), max_size=20))
def test_every_order_reaches_each_agent_that_it_concerns_exactly_once(
    tmp_path_factory: pytest.TempPathFactory, batches: list[list[Order]], steps: list[str]
) -> None:
    """Whatever is sent, in whatever batches, while agents pass safe points in whatever order."""
    path = tmp_path_factory.mktemp("law") / "s"

    async def play(control: FileControl, say: Callable[..., Order]) -> None:
        sent: list[Order] = []
        got: dict[str, list[Order]] = {agent: [] for agent in AGENTS}

        async def asks(agent: str) -> None:
            # A paused agent would wait: a short wait that ends with nothing is what its runtime sees of it.
            while True:
                task = asyncio.create_task(control.safe_point(agent, "k"))
                await asyncio.sleep(0)
                if not task.done():
                    assert agent in control._paused
                    task.cancel()
                    return
                if not task.result():
                    return
                got[agent] += task.result()

        for batch in batches:
            sent += [say(order.action, order.agent, text=order.text, tree=order.tree) for order in batch]
            control._look()
            for agent in steps:
                await asks(agent)
        sent.append(say("resume"))
        control._look()
        for agent in AGENTS:
            await asks(agent)
            assert got[agent] == [order for order in sent if order.concerns(agent)]

    steering(path, play)


# -- the file ---------------------------------------------------------------------------------------------------------------


def test_a_torn_line_is_no_order_and_spoils_no_other(tmp_path: Path) -> None:
    async def play(control: FileControl, say: Callable[..., Order]) -> None:
        first = say("message", "lead", text="one")
        with open(control._path, "ab") as file:
            file.write(b'{"action":"stop","id":"torn')
        await told(control, "lead.2")
        await heard(control, first)
        assert [order.text for order in await told(control, "lead")] == ["one"]
        last = say("message", "lead", text="two")
        await heard(control, last)
        assert [order.text for order in await told(control, "lead")] == ["two"]
        assert [order.text for order in read(control._path)[0]] == ["one", "two"]
        with open(control._path, "ab") as file:
            file.write(b"[1]\nnull\n\n{}\n" + control._path.read_bytes())
        await asyncio.sleep(5 * POLL)
        assert await told(control, "lead") == []

    steering(tmp_path / "s", play)


SENDER = """
import sys
from counterpoint.recorder.orders import Order, send
print("here", flush=True)
for k in range(int(sys.argv[3])):
    sent = send(sys.argv[1], "t", Order(action="message", agent="lead", text=f"{sys.argv[2]}-{k}"))
    print(sent.id, flush=True)
"""


def test_senders_in_other_processes_lose_nothing_and_one_that_is_killed_only_what_it_did_not_send(tmp_path: Path) -> None:
    path = tmp_path / "s"

    async def play(control: FileControl, say: Callable[..., Order]) -> None:
        await told(control, "lead.2")
        command = [sys.executable, "-c", SENDER, str(path)]
        whole = [subprocess.Popen([*command, name, "15"], stdout=subprocess.PIPE, text=True) for name in "ab"]
        doomed = subprocess.Popen([*command, "c", "100000"], stdout=subprocess.PIPE, text=True)
        assert doomed.stdout is not None
        for _ in range(5):
            await asyncio.to_thread(doomed.stdout.readline)
        os.kill(doomed.pid, signal.SIGKILL)
        acknowledged = {"a": 15, "b": 15, "c": 4 + len(doomed.stdout.read().splitlines())}
        doomed.wait()
        for process in whole:
            assert await asyncio.to_thread(process.wait, 300) == 0
            assert process.stdout is not None
            process.stdout.close()
        last = say("message", "lead", text="z-0")
        await heard(control, last)
        texts = [order.text for order in await told(control, "lead")]
        for name, count in acknowledged.items():
            own = [text for text in texts if text.startswith(name)]
            assert own == [f"{name}-{k}" for k in range(len(own))]
            assert count <= len(own) <= count + (name == "c")
        assert texts[-1] == "z-0"

    steering(path, play)


def test_an_empty_control_file_is_taken_away_and_an_old_one_does_not_steer_a_new_trace(tmp_path: Path) -> None:
    path = tmp_path / "s"

    async def quiet(control: FileControl, say: Callable[..., Order]) -> None:
        assert await told(control, "lead") == []

    async def stopped(control: FileControl, say: Callable[..., Order]) -> None:
        say("stop")

    steering(path, quiet)
    assert not control_path(path, "t").exists()
    Store(path).remove("t")
    steering(path, stopped)
    assert control_path(path, "t").exists()
    Store(path).remove("t")
    steering(path, quiet)


# -- refusing -----------------------------------------------------------------------------------------------------------------


def test_only_a_running_trace_that_takes_orders_is_steered(tmp_path: Path) -> None:
    path = tmp_path / "s"
    pause = Order(action="pause")
    with pytest.raises(NotFound):
        send(path, "t", pause)
    with Store(path) as store:
        with pytest.raises(NotFound, match="no trace 't' is running"):
            send(path, "t", pause)
        run = recording(store)
        with pytest.raises(Refused, match="takes no orders"):
            send(path, "t", pause)
        control = FileControl(path, "t")
        assert send(path, "t", pause).id
        with pytest.raises(NotFound, match="did you mean 't'"):
            send(path, "tt", pause)
        run.release()
        with pytest.raises(Refused, match="the process that recorded it has ended"):
            send(path, "t", pause)
        store.resume("t").finish()
        with pytest.raises(Refused, match="is over"):
            send(path, "t", pause)
        asyncio.run(control.close())


def test_an_agent_must_be_there(tmp_path: Path) -> None:
    path = tmp_path / "s"
    with Store(path) as store, recording(store) as run:
        control = FileControl(path, "t")
        with pytest.raises(NotFound, match="did you mean 'lead"):
            send(path, "t", Order(action="pause", agent="lead.12"))
        run.event(Event(id="s", t=9.0, type="spawn", agent="lead", to="lead.12"))
        run.sync()
        assert send(path, "t", Order(action="pause", agent="lead.12")).agent == "lead.12"
        run.event(Event(id="d", t=10.0, type="despawn", agent="lead", to="lead.12"))
        run.event(Event(id="h", t=10.0, type="human_intervention", agent="operator", role="human"))
        run.sync()
        with pytest.raises(Refused, match="has left"):
            send(path, "t", Order(action="pause", agent="lead.12"))
        with pytest.raises(NotFound):
            send(path, "t", Order(action="pause", agent="operator"))
        asyncio.run(control.close())


@pytest.mark.parametrize(
    "order",
    [
        Order(action="message"),
        Order(action="message", text=" \n"),
        Order(action="message", text="\ud800"),
        Order(action="message", text="x" * 70_000),
        Order(action="dance"),  # type: ignore[arg-type]
    ],
    ids=["empty", "blank", "not Unicode", "long", "unknown"],
)
def test_an_order_that_is_none_is_refused(tmp_path: Path, order: Order) -> None:
    with pytest.raises(InputError):
        send(tmp_path, "t", order)


# -- recorded -------------------------------------------------------------------------------------------------------------------


def steered(path: Path) -> Trace:
    """A recorded run in which one agent was told something, paused, resumed, and the team was stopped."""
    with steer_help.running(path) as process:
        send(path, "running", Order(action="message", agent="lead.1", text="the second ledger"))
        pause = send(path, "running", Order(action="pause", agent="lead.1"))
        assert wait(path, "running", pause, 10)
        resume = send(path, "running", Order(action="resume", agent="lead.1"))
        assert [event.to for event in wait(path, "running", resume, 10)] == ["lead.1"]
        stop = send(path, "running", Order(action="stop", by="somebody", text="enough"))
        assert wait(path, "running", stop, 10)
        process.wait(20)
        assert {event.to for event in effects(path, "running", stop.id)} == set(steer_help.AGENTS)
    with Store(path, read_only=True) as store:
        return store.get("running")


@pytest.fixture(scope="module")
def steered_trace(tmp_path_factory: pytest.TempPathFactory) -> Trace:
    return steered(tmp_path_factory.mktemp("steered") / "s")


def test_a_steered_run_holds_its_orders_and_they_are_given_again_at_the_same_keys(steered_trace: Trace) -> None:
    trace = steered_trace
    assert is_steered(trace)
    found = list(recorded(trace))
    assert [order.action for event, order in found if event.to == "lead.1"] == ["message", "pause", "resume", "stop"]
    assert {order.text for _, order in found} == {"the second ledger", "", "enough"}
    assert {order.by for _, order in found if order.action == "stop"} == {"somebody"}
    for event, _ in found:
        after = [trace.events[trace.index[edge.dst]] for edge in trace.edges if edge.src == event.id]
        assert [one.agent for one in after] == [event.to]

    async def play() -> dict[str, list[str]]:
        control = RecordedControl(trace)
        keys = [(e.agent, e.key) for e in trace.events if e.type in ("tool_call", "return")]
        stops = {e.to: (e.key or "").split("|operator|")[0] for e, order in found if order.action == "stop"}
        got: dict[str, list[str]] = {}
        for agent, key in [*keys, *stops.items()]:
            assert key is not None
            again = await told(control, str(agent), key)
            got.setdefault(str(agent), []).extend(f"{key}|operator|{n} {order.id}" for n, order in enumerate(again))
        return got

    again = asyncio.run(play())
    assert {agent: rows for agent, rows in again.items() if rows} == {
        agent: [f"{event.key} {order.id}" for event, order in found if event.to == agent] for agent in steer_help.AGENTS
    }


def test_a_run_that_goes_on_gets_old_orders_where_it_had_them_and_new_ones_after_its_recording(tmp_path: Path) -> None:
    path = tmp_path / "s"
    with Store(path) as store, recording(store) as run:
        control = FileControl(path, "t")
        old, pause, new = (send(path, "t", Order(action=action, agent="lead", text=action)) for action in ("message", "pause", "message"))
        for k, order in enumerate((old, pause)):
            fields = order.event("lead", "lead|1" if k == 0 else "lead|2", 0)
            run.event(Event(id=f"o{k}", t=9.0, content_ref=run.content(fields.pop("text")), **fields))
            if k == 0:
                run.event(Event(id="x1", t=9.5, type="message", agent="lead", key="lead|1"))
        run.sync()
        so_far = store.get("t")

        async def play() -> None:
            control = FileControl(path, "t", so_far=so_far, poll_s=POLL)
            assert await told(control, "lead", "lead|0") == []
            assert [o.id for o in await told(control, "lead", "lead|1")] == [old.id]
            assert [o.id for o in await control.safe_point("lead", "lead|2")] == [pause.id]
            waiting = asyncio.create_task(control.safe_point("lead", "lead|2"))
            await asyncio.sleep(5 * POLL)
            assert not waiting.done()
            resume = send(path, "t", Order(action="resume"))
            assert [o.id for o in await waiting] == [new.id, resume.id]
            assert [o.id for o in await told(control, "lead.1", "lead.1|0")] == []
            assert [o.id for o in await told(control, "lead.1", "lead.1|1")] == [resume.id]
            await control.close()

        asyncio.run(asyncio.wait_for(play(), 300))
        asyncio.run(control.close())


def test_nobody_steers() -> None:
    assert asyncio.run(told(NoControl(), "lead")) == []
    assert all(isinstance(one, Control) for one in (NoControl(), RecordedControl(Trace(trace_id="t", task_id="t", events=[]))))


def test_an_order_that_the_team_did_not_live_to_see_says_so(tmp_path: Path) -> None:
    path = tmp_path / "s"
    with Store(path) as store:
        run = recording(store)
        control = FileControl(path, "t")
        order = send(path, "t", Order(action="pause"))
        assert wait(path, "t", order, 0.1) == []
        run.finish()
        with pytest.raises(Refused, match="ended, and the order with it"):
            wait(path, "t", order, 5)
        asyncio.run(control.close())


def test_an_order_of_which_a_bit_has_changed_is_no_order(tmp_path: Path) -> None:
    """Nobody acts on it, and nobody stumbles over it."""
    line = line_of(Order(action="message", text="use the second ledger only", id="o1", by="me", at=1.0))
    path = tmp_path / "orders"
    path.write_bytes(line)
    (whole,), end = read(path)
    assert (whole.text, end) == ("use the second ledger only", len(line))
    for place in range(len(line) - 1):
        path.write_bytes(line[:place] + bytes([line[place] ^ 1 << place % 8]) + line[place + 1 :])
        assert read(path)[0] == [], place
