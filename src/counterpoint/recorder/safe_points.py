"""Orders to a team of a person's own code: before each call of a model or a tool its agent gets what an operator sent.

Always true: an order reaches each agent that it concerns once, in the order of sending, and is recorded when it does; a fork of
a steered run gives its orders again at the same calls, where a pause takes no time. Nothing is looked for more often than ten
times a second; where nothing was ordered, nothing is done.

A message is added to what the agent's model is asked next; an agent that is stopped gives back an empty result, as its function
says by its annotation. Who acts in no agent's function ends with the recording.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from time import monotonic, sleep
from typing import Any

from counterpoint.errors import CounterpointError
from counterpoint.recorder.edits import empty_like
from counterpoint.recorder.lanes import Scope, current
from counterpoint.recorder.orders import Order, read
from counterpoint.recorder.values import parameters
from counterpoint.recorder.wrap import COROUTINE, PLAIN, shape_of

_LOOK_S = 0.1
_ASKED = ("messages", "input", "prompt")
Fn = Callable[..., Any]


class StoppedByOperator(BaseException):
    """An operator ended the agent that acts here; no `except Exception` keeps it alive."""

    def __init__(self, agent: str) -> None:
        super().__init__(f"{agent} was stopped by an operator")
        self.agent = agent


class SafePoints:
    """The orders to one recording."""

    def __init__(self, path: Path | None, began: float = 0.0, again: Mapping[tuple[str, str], list[Order]] | None = None) -> None:
        """`path` is where orders lie, if anybody sends one after `began`; `again` are those of a run that is replayed."""
        self._path, self._began, self._again = path, began, dict(again or {})
        self._orders: list[Order] = []
        self._ids: set[str] = set()
        self._at, self._look_at = 0, 0.0
        self._next: Counter[str] = Counter()
        self._passed: dict[str, int] = {}
        self._paused: set[str] = set()
        self.stopped: set[str] = set()
        self.said: dict[str, list[str]] = {}
        """Agent to messages that its model has not been told."""

    def begin(self, scope: Scope, tell: Tell | None, *, ends: bool = True) -> SafePoint | None:
        """An agent comes to a safe point; None where there is nothing to do there. `ends`: who was stopped goes no further."""
        agent = scope.lane.agent
        self._passed[agent] = self._passed.get(agent, 0) + 1
        if self._path is not None and monotonic() >= self._look_at:
            self._look()
        if not (self._orders or self._again or self.said):
            return None
        return SafePoint(self, scope, f"{agent}|{self._passed[agent]}", tell, ends=ends)

    def _look(self) -> None:
        """Read what was added to the file."""
        self._look_at = monotonic() + _LOOK_S
        assert self._path is not None
        try:
            if self._path.stat().st_size > self._at:
                orders, self._at = read(self._path, self._at)
                fresh = [o for o in orders if o.id and o.id not in self._ids and o.at >= self._began]
                self._ids |= {order.id for order in fresh}
                self._orders += fresh
        except (OSError, CounterpointError):  # nobody has sent one, or the next look finds it
            return

    def due(self, scope: Scope, key: str) -> list[Order]:
        """The next orders for an agent, up to a pause or a stop; for one that is paused nothing before something releases it."""
        agent = scope.lane.agent
        if self._path is None:
            return self._again.pop((agent, key), [])
        if agent in self._paused:
            self._look()
        first = self._next[agent]
        mine = [place for place, order in enumerate(self._orders[first:], first) if _concerns(order, scope)]
        if agent in self._paused and not any(self._orders[place].action in ("resume", "stop") for place in mine):
            return []
        due, upto = [], len(self._orders)
        for place in mine:
            due.append(self._orders[place])
            if self._orders[place].action in ("pause", "stop"):
                upto = place + 1
                break
        self._next[agent] = upto
        return due

    def take(self, scope: Scope, orders: list[Order], key: str, n: int) -> bool:
        """Record that orders have taken effect; whether the agent waits now."""
        agent, lanes = scope.lane.agent, scope.session.lanes
        for k, order in enumerate(orders):
            event = lanes.recorder.event(**order.event(agent, key, n + k))
            lanes.kinds[event] = ("message",)
            lanes.tell(agent, event, ("message",))
            if order.action == "message":
                self.said.setdefault(agent, []).append(order.text)
            elif order.action == "pause" and self._path is not None:
                self._paused.add(agent)
            elif order.action in ("resume", "stop"):
                self._paused.discard(agent)
            if order.action == "stop":
                self.stopped.add(agent)
        return agent in self._paused


def _concerns(order: Order, scope: Scope) -> bool:
    """Whether an agent is meant: by name, or as one below who is."""
    lanes, agent = scope.session.lanes.lanes, scope.lane.agent
    while order.agent not in ("", agent):
        boss = lanes[agent].boss if agent in lanes else None
        if boss is None or not order.is_for_tree:
            return False
        agent = boss
    return True


Tell = Callable[[tuple[Any, ...], dict[str, Any], list[str]], tuple[tuple[Any, ...], dict[str, Any]] | None]
"""How words of an operator come into the arguments of a call; None where it is not asked in words."""


class SafePoint:
    """One call that is about to be made."""

    def __init__(self, points: SafePoints, scope: Scope, key: str, tell: Tell | None, *, ends: bool) -> None:
        self._points, self._scope, self._key, self._tell, self._ends, self._n = points, scope, key, tell, ends, 0

    def _waits(self) -> bool:
        """Take what is due; whether the agent waits."""
        session, points = self._scope.session, self._points

        def take() -> bool:
            due = points.due(self._scope, self._key)
            waits = points.take(self._scope, due, self._key, self._n)
            self._n += len(due)
            return waits

        return bool(session.do(take)) and not session.is_over

    def passed(self, args: Any, kwargs: Any) -> tuple[Any, Any]:
        """Wait while the agent is paused; the call's arguments, with what its model is to be told."""
        while self._waits():
            sleep(_LOOK_S)
        return self._told(args, kwargs)

    async def passed_async(self, args: Any, kwargs: Any) -> tuple[Any, Any]:
        """The same, while others go on."""
        while self._waits():
            await asyncio.sleep(_LOOK_S)
        return self._told(args, kwargs)

    def _told(self, args: Any, kwargs: Any) -> tuple[Any, Any]:
        agent, points = self._scope.lane.agent, self._points
        if self._ends and agent in points.stopped:
            raise StoppedByOperator(agent)
        texts = points.said.get(agent, [])
        if self._tell is None or not texts or (told := self._tell(args, kwargs, texts)) is None:
            return args, kwargs
        del points.said[agent]
        return told


# -- around functions ----------------------------------------------------------------------------------------------------------


def safe_point(here: Callable[[], Scope | None], function: Fn | None = None) -> Callable[[], SafePoint | None]:
    """What a tool, or with its `function` a model, comes to before each call."""
    tell = None if function is None else functools.partial(told_arguments, function)

    def begin() -> SafePoint | None:
        scope = here()
        return None if scope is None or scope.session.points is None else scope.session.points.begin(scope, tell)

    return begin


def is_stopped(scope: Scope) -> bool:
    """Whether an operator stopped the agent that acts in a scope."""
    points = scope.session.points
    return points is not None and scope.lane.agent in points.stopped


def untold(points: SafePoints | None) -> str | None:
    """What is wrong at the end of a recording: a message that no model was told."""
    agents = [] if points is None else list(points.said)
    if not agents:
        return None
    return f"a message to {agents[0]} was told to no model: it calls none with @rec.model or of the Agents SDK after it"


def told_arguments(
    function: Fn, args: Any, kwargs: Mapping[str, Any], texts: list[str]
) -> tuple[tuple[Any, ...], dict[str, Any]] | None:
    """The arguments of a model's call with an operator's words at the end of what it is asked."""
    names = parameters(function)
    given = dict(zip(names, args, strict=False))
    known = {**given, **kwargs}
    named = [name for name in _ASKED if isinstance(known.get(name), (str, list))]
    alone = [name for name, value in known.items() if isinstance(value, (str, list)) and name not in ("self", "cls", "model")]
    name = next(iter([*named, *alone]), None)
    if name is None:
        return None
    value = with_texts(known[name], texts)
    if name in given:
        return tuple(value if names[i] == name else one for i, one in enumerate(args)), dict(kwargs)
    return tuple(args), {**kwargs, name: value}


def with_texts(asked: Any, texts: list[str]) -> Any:
    """What a model is asked, and an operator's words."""
    if isinstance(asked, str):
        return "\n\n".join([asked, *texts])
    return [*asked, *({"role": "user", "content": text} for text in texts)]


def stoppable(function: Fn) -> Fn:
    """An agent's function: stopped, it gives back an empty result."""
    shape = shape_of(function)

    def empty(stop: StoppedByOperator) -> Any:
        scope = current.get()
        if scope is None or scope.lane.agent != stop.agent:
            raise stop
        kind = inspect.signature(function).return_annotation
        return empty_like(str(getattr(kind, "__name__", kind)) if kind is not inspect.Signature.empty else "str")

    @functools.wraps(function)
    async def later(*args: Any, **kwargs: Any) -> Any:
        try:
            return await function(*args, **kwargs)
        except StoppedByOperator as stop:
            return empty(stop)

    @functools.wraps(function)
    def now(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except StoppedByOperator as stop:
            return empty(stop)

    if shape == COROUTINE:
        return later
    return now if shape == PLAIN else function
