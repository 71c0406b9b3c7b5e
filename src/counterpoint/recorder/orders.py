"""Orders to a running team: what they are, how they are sent, and how it is known that they took effect.

Always true: an order is one line of an append-only file beside the journal, written at once and synced before `send` returns, so
that sender and team may be different processes; a line that a killed sender left half is not an order. An order is sent only to a
trace that somebody is recording with a control, and to an agent that its journal knows. It has taken effect when its
`human_intervention` event is in the journal.
"""

from __future__ import annotations

import fcntl
import getpass
import os
import time
import uuid
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Literal, get_args

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from counterpoint.errors import InputError, NotFound, Refused, did_you_mean
from counterpoint.store import disk
from counterpoint.store.journal import is_held, journals, path_of, peek
from counterpoint.trace import Event, Trace
from counterpoint.trace.keys import REPLAY
from counterpoint.trace.lines import LineReader
from counterpoint.trace.steering import order_of
from counterpoint.trace.vocabulary import OUTSIDE_ROLES

Action = Literal["pause", "resume", "message", "stop"]
ACTIONS: tuple[str, ...] = get_args(Action)
OPERATOR = "operator"
"""Whose events they are."""
ORDERS = "orders"
"""The name in a recording's note for its replay: it takes orders."""
_LONGEST = 64 * 1024
_LOOK_S = 0.05


class Order(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One order of an operator."""

    action: Action
    agent: str = ""
    """Its spawn path, such as `lead.1`; empty for the whole team, also those who join it later."""
    text: str = ""
    """What a message says; the reason of another order."""
    tree: bool | None = None
    """Whether it holds for all that the agent spawned, too; None: for a stop it does, for others it does not."""
    id: str = ""
    by: str = ""
    at: float = 0.0
    """When it was sent, seconds since the epoch."""

    def concerns(self, agent: str) -> bool:
        """Whether this agent is meant."""
        if not self.agent or self.agent == agent:
            return True
        return self.is_for_tree and agent.startswith(self.agent + ".")

    @property
    def is_for_tree(self) -> bool:
        """Whether those below the agent are meant too."""
        return self.action == "stop" if self.tree is None else self.tree

    @property
    def whom(self) -> str:
        """In words."""
        if not self.agent:
            return "the team"
        return f"{self.agent} and all below" if self.is_for_tree else self.agent

    def event(self, agent: str, key: str, n: int) -> dict[str, Any]:
        """The fields of the event that records it: it took effect on `agent`, as the n-th order before `key`.

        For `Recorder.event(**order.event(...))`, with an edge of type `message` to the agent's next event.
        """
        order = {"id": self.id, "action": self.action, "agent": self.agent, "by": self.by}
        if self.tree is not None:
            order["tree"] = self.tree  # type: ignore[assignment]
        return {
            "agent": OPERATOR,
            "type": "human_intervention",
            "role": "human",
            "to": agent,
            "key": f"{key}|{OPERATOR}|{n}",
            "text": self.text or None,
            "source": "user",
            "trusted": True,
            "extra": {"order": order},
        }


_decode = msgspec.json.Decoder(Order).decode


def line_of(order: Order) -> bytes:
    """An order as a line of the file: its JSON and the CRC-32 of it."""
    record = msgspec.json.encode(order)
    return record + b" %010d\n" % zlib.crc32(record)


def control_path(store: str | os.PathLike[str], trace_id: str) -> Path:
    """Where the orders to a trace lie."""
    return path_of(Path(store) / "control", trace_id)


def read(path: Path, start: int = 0) -> tuple[list[Order], int]:
    """The orders from a place in the file on, and where its last whole line ends. What is no order is passed over."""
    with open(path, "rb") as file:
        file.seek(start)
        data = file.read()
    end = data.rfind(b"\n") + 1
    orders = []
    for line in data[:end].split(b"\n"):
        record, _, crc = line.rpartition(b" ")
        if crc == b"%010d" % zlib.crc32(record):  # else half a line of a sender that was killed, or one that has changed since
            orders.append(_decode(record))
    return orders, start + end


# -- sending -------------------------------------------------------------------------------------------------------------


def send(store: str | os.PathLike[str], trace_id: str, order: Order) -> Order:
    """Send an order to a running team; gives it back with its id, sender and time. It acts at the next safe point."""
    order = _whole(order)
    so_far = _running(Path(store), trace_id)
    _check_agent(order, so_far, trace_id)
    path = control_path(store, trace_id)
    line = line_of(order)
    with disk.translate_errors(path):
        if _takes_orders(so_far):  # by a file that is made with the first one
            disk.make_folder(path.parent)
            os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o644))
        try:
            fd = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CLOEXEC)
        except FileNotFoundError:
            raise _deaf(trace_id) from None
        try:
            fcntl.flock(fd, fcntl.LOCK_EX)
            size = os.fstat(fd).st_size
            if size and os.pread(fd, 1, size - 1) != b"\n":  # a killed sender's half line: it ends here
                line = b"\n" + line
            disk.write_all(fd, line)
            disk.sync_file(fd)
        finally:
            os.close(fd)
    return order


def _whole(order: Order) -> Order:
    if order.action not in ACTIONS:
        raise InputError(f"no order named {order.action!r}", where="action", fix=did_you_mean(str(order.action), ACTIONS))
    if order.action == "message" and not order.text.strip():
        raise InputError("a message needs a text", where="text", fix="as in --message 'use the second ledger only'")
    try:
        size = len(order.text.encode())
    except UnicodeEncodeError:
        raise InputError("the text is not Unicode", where="text", fix="write valid Unicode, no half surrogate pairs") from None
    if size > _LONGEST:
        raise InputError(f"the text has {size:,} bytes, more than {_LONGEST:,}", where="text", fix="shorten it")
    return replace(order, id=order.id or uuid.uuid4().hex[:16], by=order.by or _who(), at=order.at or time.time())


def _who() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError):  # a number without a name, as in a container
        return OPERATOR


def _running(store: Path, trace_id: str) -> LineReader:
    """What the journal of a running trace says so far; an error with what would work when it is not running."""
    path = path_of(store / "journal", trace_id)
    so_far = peek(path)
    if so_far is None or so_far.header is None:
        from counterpoint.store import Store  # the lake is loaded by who needs it: a rollout of a team does not

        with Store(store, create=False, read_only=True) as opened:
            is_stored = trace_id in opened
        if is_stored:
            raise _over(trace_id)
        running = [r.header.trace_id for p in journals(store / "journal") if is_held(p) and (r := peek(p)) and r.header]
        raise NotFound(f"no trace {trace_id!r} is running", where=os.fspath(store), fix=did_you_mean(trace_id, running))
    if so_far.finished is not None:
        raise _over(trace_id)
    if not is_held(path):
        why = "the process that recorded it has ended"
        raise Refused(f"trace {trace_id!r} is not running", why=why, fix=f"counterpoint play --resume {trace_id}")
    if not _takes_orders(so_far) and not control_path(store, trace_id).exists():
        raise _deaf(trace_id)
    return so_far


def _takes_orders(so_far: LineReader) -> bool:
    """Whether it is the recording of a person's own team, which looks for orders at each call."""
    kept = so_far.header.meta.get(REPLAY) if so_far.header is not None else None
    return isinstance(kept, dict) and kept.get(ORDERS) is True


def _over(trace_id: str) -> Refused:
    fix = f"counterpoint fork {trace_id} --at EVENT shows what another message would have changed"
    return Refused(f"trace {trace_id!r} is over", why="only a running team can be steered", fix=fix)


def _deaf(trace_id: str) -> Refused:
    fix = "teams of `counterpoint play` take orders; for your own, see docs/steer.md"
    return Refused(f"the process that records trace {trace_id!r} takes no orders", fix=fix)


def agents_of(events: Iterable[Event], known: dict[str, bool] | None = None) -> dict[str, bool]:
    """The agents that a recording knows so far, each with whether it is still in the team, in order of appearance.

    `known` is what earlier events told, and is added to.
    """
    out: dict[str, bool] = {} if known is None else known
    for event in events:
        if event.type != "human_intervention" and event.agent not in out and not _is_outside(event):
            out[event.agent] = True
        if event.type in ("spawn", "despawn") and event.to is not None:
            out[event.to] = event.type == "spawn"
    return out


def _is_outside(event: Event) -> bool:
    return event.agent in OUTSIDE_ROLES or (event.type != "spawn" and event.role in OUTSIDE_ROLES)


def _check_agent(order: Order, so_far: LineReader, trace_id: str) -> None:
    if not order.agent:
        return
    known = agents_of(so_far.events)
    if order.agent not in known:
        here = [name for name, is_here in known.items() if is_here]
        fix = did_you_mean(order.agent, here) if here else "no agent has acted yet: try again, or order the whole team"
        raise NotFound(f"no agent {order.agent!r} so far", where=trace_id, fix=fix)
    if not known[order.agent]:
        raise Refused(f"agent {order.agent!r} has left the team", where=trace_id, fix="its return is in the trace already")


# -- taking effect -------------------------------------------------------------------------------------------------------


def recorded(trace: Trace) -> Iterator[tuple[Event, Order]]:
    """The orders that a trace holds, each with its event."""
    for event in trace.events:
        order = order_of(event)
        if order is not None and order.get("action") in ACTIONS:
            tree = order.get("tree")
            yield (
                event,
                Order(
                    action=order["action"],
                    agent=str(order.get("agent") or ""),
                    text=trace.text(event) or "",
                    tree=tree if isinstance(tree, bool) else None,
                    id=order["id"],
                    by=str(order.get("by") or ""),
                ),
            )


def effects(store: str | os.PathLike[str], trace_id: str, order_id: str) -> list[Event]:
    """The events in which an order took effect, one for each agent that it has reached so far."""
    so_far = peek(path_of(Path(store) / "journal", trace_id))
    if so_far is not None and so_far.header is not None:
        events = so_far.events
    else:
        from counterpoint.store import Store

        with Store(store, create=False, read_only=True) as opened:
            events = opened.get(trace_id).events
    return [event for event in events if (order := order_of(event)) is not None and order["id"] == order_id]


def wait(store: str | os.PathLike[str], trace_id: str, order: Order, timeout_s: float) -> list[Event]:
    """The events in which an order took effect; empty when there is none before the time is over.

    `Refused` when the team ended before it reached a safe point. A look costs what the journal has grown since the last.
    """
    journal, sign, at, end = path_of(Path(store) / "journal", trace_id), order.id.encode(), 0, time.monotonic() + timeout_s
    while True:
        try:
            with open(journal, "rb") as file:
                file.seek(max(0, at - len(sign)))
                data = file.read()
                at = file.tell()
        except FileNotFoundError:
            data = sign  # it is over: what it was is in the store
        if sign in data and (events := effects(store, trace_id, order.id)):
            return events
        if not is_held(journal) and not effects(store, trace_id, order.id):
            why = "no agent reached a safe point before that"
            raise Refused(f"trace {trace_id!r} ended, and the order with it", why=why, fix="counterpoint show says how it ended")
        if time.monotonic() >= end:
            return []
        time.sleep(_LOOK_S)
