"""A guard for teams that run in this process: recorded ones (`counterpoint.record(limits=...)`) and our own (`record_team`).

Always true: what is refused raises before it begins, and is told in words for the agent; counting is safe between threads;
without limits nothing here is called.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Mapping
from typing import Any

from counterpoint.errors import InputError, Refused
from counterpoint.guard.limits import GuardCall, GuardLimits, Tally, limits_file, limits_of, refusal
from counterpoint.recorder.control import Control
from counterpoint.recorder.orders import Order


class LimitReached(Refused):
    """A spawn or a call that a limit refuses; `what` is written for the agent, `limit` names it."""

    def __init__(self, limit: str, what: str) -> None:
        super().__init__(what)
        self.limit = limit


def given_limits(limits: GuardLimits | Mapping[str, Any] | str | os.PathLike[str] | None) -> GuardLimits | None:
    """Limits as people give them: a limits file, a table like one, or limits."""
    if limits is None or isinstance(limits, GuardLimits):
        return limits
    if isinstance(limits, (str, os.PathLike)):
        return limits_of(limits_file(os.fspath(limits)), os.fspath(limits))
    if not isinstance(limits, Mapping):
        raise InputError(f"limits={limits!r}", fix='a limits file, or a table: {"session": {"agents": 20}}')
    return limits_of(limits)


class LiveGuard:
    """Counts one running team, and refuses what goes past its limits."""

    def __init__(self, limits: GuardLimits) -> None:
        self.limits = limits
        self.tally = Tally()
        self.tally.on_prompt(time.time())
        self._lock = threading.Lock()
        self._calls: dict[str, str] = {}

    def refusal(
        self, agent: str, tool: str, args: str | None, *, is_spawn: bool = False, depth: int = 0
    ) -> tuple[str, str] | None:
        """The limit that refuses this, and the words for the agent."""
        call = GuardCall(agent, tool, f"{tool}:{args}", is_spawn=is_spawn, depth=depth)
        with self._lock:
            return refusal(self.limits, self.tally, call, time.time())

    def permit(self, agent: str, tool: str, args: str | None, *, is_spawn: bool = False, depth: int = 0) -> None:
        """Raise `LimitReached` where this may not be; a call that may is counted."""
        why = self.refusal(agent, tool, args, is_spawn=is_spawn, depth=depth)
        if why is not None:
            raise LimitReached(*why)
        if not is_spawn:
            with self._lock:
                self.tally.on_call(time.time())

    def on_agent(self, agent: str, depth: int) -> None:
        """An agent was made."""
        with self._lock:
            self.tally.on_agent(agent, depth, time.time())

    def on_usage(self, fields: Mapping[str, Any]) -> None:
        """A step took these tokens and dollars."""
        read, wrote, usd = (fields.get(name) for name in ("tokens_in", "tokens_out", "cost_usd"))
        if read is not None or wrote is not None or usd is not None:
            with self._lock:
                self.tally.on_usage("", [read or 0, 0, 0, 0, wrote or 0], time.time(), usd)

    def on_call(self, event: str, tool: str, args: str | None) -> None:
        """A tool was called, in this event."""
        with self._lock:
            self._calls[event] = f"{tool}:{args}"

    def on_result(self, agent: str, event: str, ok: bool) -> None:
        """The tool that was called in this event came back."""
        with self._lock:
            self.tally.on_result(agent, self._calls.pop(event, "?"), ok)

    def watch(self, what: str, agent: Any, fields: Mapping[str, Any]) -> None:
        """What happens in a team of our own, as `Team.watch` is told it."""
        if what == "spawn" and fields.get("to"):
            self.on_agent(str(fields["to"]), agent.depth + 1)
        elif what == "acts":
            self.on_usage(fields)
            if fields["act"].verb == "tool":
                self.on_call(agent.name, fields["act"].target, fields["act"].text)
                with self._lock:
                    self.tally.on_call(time.time())
        elif what == "tool_result":
            self.on_result(_role(agent.name), agent.name, bool(fields["ok"]))


def _role(agent: str) -> str:
    """The root is who answers to people; agents of our own are named by their spawn path."""
    return agent if "." in agent else "main"


class GuardedControl:
    """A team's control with a guard behind it: an agent past a limit is told so; if it goes on all the same, it is stopped."""

    def __init__(self, inner: Control, guard: LiveGuard) -> None:
        self._inner, self._guard = inner, guard
        self._warned_at: dict[str, str] = {}

    async def safe_point(self, agent: str, key: str) -> list[Order]:
        """The operator's orders, then the guard's."""
        orders = await self._inner.safe_point(agent, key)
        if orders or self._warned_at.get(agent) == key:
            return orders
        why = self._guard.refusal(_role(agent), "", None)
        if why is None:
            return []
        is_first = agent not in self._warned_at
        self._warned_at[agent] = key
        name = f"guard-{agent}-{'told' if is_first else 'stopped'}"
        return [Order(action="message" if is_first else "stop", agent=agent, text=why[1], id=name, by="guard", tree=False)]

    async def close(self) -> None:
        """Take no more orders."""
        await self._inner.close()
