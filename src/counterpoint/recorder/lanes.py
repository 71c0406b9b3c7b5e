"""Who does what in a team that is not ours, and what each event read: scopes, lanes, the events they leave, and their session.

Always true: no call into a session raises, and what goes wrong is kept in `problems`; nothing that a scope learned is left out of
what its next event reads; what came from outside the team is read with a `safety_flow` edge as well.

A scope keeps in `knows` the latest events that together hold all that was learned in it, and in `heard` what came in since its
agent last put things together. Acts (calls, spawns, messages) read what is known; steps, decisions and returns read what was
heard, too. When an event has ended, it takes the place of what it read, so edges are few. Where two branches of one agent run at
once, each may have read what the other learned before.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable, Iterable, Mapping
from contextvars import ContextVar
from random import Random
from typing import Any

from counterpoint.errors import CounterpointError
from counterpoint.recorder.call_notes import CallNote, LastCall
from counterpoint.recorder.conversation import Answer, Question
from counterpoint.recorder.live_guard import LiveGuard
from counterpoint.recorder.live_spans import LiveSpans, recorder_of
from counterpoint.recorder.problems import one_line, say, say_once
from counterpoint.recorder.recorder import Recorder
from counterpoint.store import Run
from counterpoint.trace.vocabulary import EDGE_TYPES

Reads = Iterable[str | tuple[str, str]]
"""Events that were read, by id; as a pair with the type of the edge where the usual one is not meant."""
Kinds = tuple[str, ...]
_CAUSAL: Kinds = ("causal",)
_FLOW: Kinds = ("causal", "safety_flow")
_RETURN: Kinds = ("return",)
_MESSAGE: Kinds = ("message",)
_SPAWN: Kinds = ("spawn",)
_MANY = 16
_USUAL = {"return": _RETURN, "message": _MESSAGE, "human_intervention": _MESSAGE, "spawn": _SPAWN}


class AgentLane:
    """One agent."""

    __slots__ = ("agent", "at_work", "boss", "has_begun", "has_stopped", "last_call", "latest", "leads", "role", "scopes", "turn",
                 "waiting")  # fmt: skip

    def __init__(self, agent: str, role: str | None) -> None:
        self.agent, self.role = agent, role
        self.boss: str | None = None
        """Who spawned it."""
        self.waiting: dict[str, Kinds] = {}
        """What it was told before it began."""
        self.scopes: dict[Scope, None] = {}
        """Those that are open, outermost first."""
        self.leads = self.has_begun = self.has_stopped = False
        self.latest: str | None = None
        self.last_call: LastCall | None = None
        self.at_work = self.turn = 0
        """Calls of it that are under way, and steps that it took."""


class Scope:
    """A stretch of one agent's work: its whole life, one tool call, one model call."""

    __slots__ = ("call", "event", "hands_on", "has_inner", "heard", "is_absent", "is_awaited", "is_cut", "knows", "lane",
                 "outcome", "outer", "parts", "reads", "session", "stands_in", "tool")  # fmt: skip

    def __init__(self, session: RecordingSession, lane: AgentLane, outer: Scope | None, event: str | None = None) -> None:
        self.session, self.lane, self.outer, self.event = session, lane, outer, event
        """`event` is what the scope began with: a spawn, a call, a step."""
        self.knows: dict[str, Kinds] = {}
        self.heard: dict[str, Kinds] = {}
        self.reads: list[str] = []
        """What `event` read."""
        self.outcome: dict[str, Any] = {}
        """Fields that were told while it was open."""
        self.tool: str | None = None
        self.call: CallNote | None = None
        """What is kept of the model call that it is."""
        self.hands_on = False
        """Whether the agent passed its work on to another, who will return in its place."""
        self.stands_in: Callable[..., Any] | None = None  # what a replay calls instead of the function
        self.parts: list[Any] | None = None  # what a generator gave
        self.has_inner = self.is_absent = self.is_awaited = self.is_cut = False
        if outer is not None:
            outer.has_inner = True

    def hears(self, event: str, kinds: Kinds, instead_of: Iterable[str] = ()) -> None:
        """Something came in, and is known from now on in the place of what it rests on."""
        for old in instead_of:
            self.knows.pop(old, None)
        self.knows[event] = self.heard[event] = kinds

    def puts(self, event: str, instead_of: Iterable[str]) -> None:
        """The agent has put together what it read: this event is known in its place."""
        for old in instead_of:
            self.knows.pop(old, None)
            self.heard.pop(old, None)
        self.knows[event] = _CAUSAL


class Lanes:
    """The agents of one recording. Methods are called one at a time, under `lock`."""

    def __init__(self, session: RecordingSession, recorder: Recorder, root: str) -> None:
        self.session, self.recorder = session, recorder
        self.lock = threading.RLock()
        self.lanes: dict[str, AgentLane] = {}
        self.kinds: dict[str, Kinds] = {}
        """Event to how it is read."""
        self.cost_usd: float | None = None
        self._numbers: dict[str, int] = {}
        lane = self.lane(root, root)
        lane.leads = True
        self.root = Scope(session, lane, None)
        lane.scopes[self.root] = None

    def lane(self, agent: str, role: str | None = None) -> AgentLane:
        """The lane of an agent, made on first use."""
        lane = self.lanes.get(agent)
        if lane is None:
            lane = self.lanes[agent] = AgentLane(agent, role)
        lane.role = lane.role or role
        return lane

    def _fresh(self, name: str, boss: str, text: str | None) -> str:
        """The name, or with a number where an agent has it; in a replay the recorded agent's."""
        if (player := self.session.player) is not None and (again := player.agent(boss, name, text)) not in (None, *self.lanes):
            return str(again)
        unique, taken = name, () if player is None else player.names
        while unique in self.lanes or unique in taken:
            self._numbers[name] = number = self._numbers.get(name, 1) + 1
            unique = f"{name}-{number}"
        return unique

    # -- reading ---------------------------------------------------------------------------------------------------------

    def reads(self, scope: Scope, exactly: Reads | None, *, is_act: bool = False) -> list[tuple[str, str]]:
        """Pairs of event and edge: what was said to be read, else what the scope knows, else the agent's memory.

        An act reads no more than it needs to; if that is much, an aggregate is put before it: a thousand spawns after a thousand
        returns would be a million edges.
        """
        if exactly is not None:
            return self._named(exactly)
        if is_act and len(scope.knows) > _MANY:
            self.event(scope, "aggregate", extra={"is_implicit": True})
        known = scope.knows if is_act or not scope.heard else {**scope.heard, **scope.knows}
        pairs = [(event, kind) for event, kinds in known.items() for kind in kinds]
        if not pairs and scope.lane.latest is not None:
            return [(scope.lane.latest, "temporal")]
        return pairs

    def _named(self, reads: Reads) -> list[tuple[str, str]]:
        pairs: list[tuple[str, str]] = []
        for one in (reads,) if isinstance(reads, str) else reads:
            event, kind = (one, None) if isinstance(one, str) else one
            if event not in self.kinds or (kind is not None and kind not in EDGE_TYPES):
                what = f"event {event!r} to read" if event not in self.kinds else f"edge of type {kind!r}"
                self.session.note(f"no {what}: its edge was left out")
            else:
                pairs += [(event, k) for k in self.kinds[event]] if kind is None else [(event, kind)]
        return pairs

    def _keep(self, scope: Scope, event: str, pairs: list[tuple[str, str]], type: str, trusted: bool | None = None) -> None:
        """Remember an event that was written; what a spawn told its agent is afterwards only a cause."""
        self.kinds[event] = _FLOW if trusted is False else _USUAL.get(type, _CAUSAL)
        for src, kind in pairs:
            if kind == "spawn":
                for known in (scope.knows, scope.heard):
                    if src in known:
                        known[src] = _CAUSAL
        scope.lane.latest = event

    # -- events that take no time ----------------------------------------------------------------------------------------

    def event(
        self, scope: Scope, type: str, *, reads: Reads | None = None, enters: bool = True, text: str | None = None, **fields: Any
    ) -> str:
        """An event of the scope's agent. With `enters`, later events read it instead of what it read."""
        scope.has_inner = True
        pairs = self.reads(scope, reads, is_act=not enters and type != "orchestrator_decision")
        if type == "aggregate":
            pairs = [(src, "aggregate" if kind == "return" else kind) for src, kind in pairs]
        lane = scope.lane
        self._pay(fields)
        fields.setdefault("role", lane.role)
        event = self.recorder.event(lane.agent, type, reads=pairs, text=text, **fields)
        self._keep(scope, event, pairs, type, fields.get("trusted"))
        if enters:
            scope.puts(event, [src for src, _ in pairs])
        if fields.get("decision") == "stop":
            lane.has_stopped = True
        return event

    def message(self, scope: Scope, to: str | None, text: str | None, *, reads: Reads | None = None, **fields: Any) -> str:
        """One agent speaks to another, who knows it from now on."""
        event = self._send(scope, to, text, reads, **fields)
        if to is not None:
            self.tell(to, event, _MESSAGE)
        return event

    def _send(self, scope: Scope, to: str | None, text: str | None, reads: Reads | None, **fields: Any) -> str:
        fields = {"from_": scope.lane.agent, "to": to, "source": "peer", "trusted": True, **fields}
        return self.event(scope, "message", reads=reads, enters=False, text=text, **fields)

    def tell(self, agent: str, event: str, kinds: Kinds) -> None:
        """Something comes to an agent: it is known in all that it is doing, or as soon as it begins."""
        lane = self.lane(agent)
        for scope in lane.scopes:
            scope.hears(event, kinds)
        if not lane.scopes:
            lane.waiting[event] = kinds

    def human(self, scope: Scope, text: str, *, by: str = "user", **fields: Any) -> str:
        """A human speaks to the agent."""
        fields = {"role": by, "from_": by, "to": scope.lane.agent, "source": "user", "trusted": True, **fields}
        event = self.recorder.event(by, "human_intervention", text=text, **fields)
        self.kinds[event] = _MESSAGE
        self.tell(scope.lane.agent, event, _MESSAGE)
        return event

    # -- agents ----------------------------------------------------------------------------------------------------------

    def spawn(
        self, scope: Scope, name: str, role: str | None, text: str | None, reads: Reads | None = None, **fields: Any
    ) -> tuple[str, AgentLane]:
        """Make an agent; it has not begun."""
        lane = self.lane(self._fresh(name, scope.lane.agent, text), role)
        lane.boss = scope.lane.agent
        scope.lane.leads = True
        event = self.event(scope, "spawn", reads=reads, enters=False, text=text, to=lane.agent, **{**fields, "role": lane.role})
        lane.waiting[event] = _SPAWN
        return event, lane

    def enter(
        self, scope: Scope, name: str, role: str | None, text: str | None, reads: Reads | None = None, *, is_new: bool = False,
        **fields: Any,
    ) -> Scope:  # fmt: skip
        """An agent begins: it is spawned, or set to work again, or was told to by a spawn or a message before.

        The root's own name, called where no other agent acts, is the root itself. With `is_new` it is none that began before.
        """
        if self.is_root(scope, name):
            root = self.root
            root.lane.at_work, root.lane.role, root.hands_on = 1, role or root.lane.role, False
            return root
        event: str | None = None
        pairs = self.reads(scope, reads, is_act=True)
        if self.is_spawned(scope, name, is_new=is_new):
            event, lane = self.spawn(scope, name, role, text, pairs, **fields)
        else:
            lane = self.lane(name, role)
            if not lane.waiting:
                event = self._send(scope, name, text, pairs, **fields)
                lane.waiting[event] = _MESSAGE
            else:  # it was told to begin, and is now given what its caller knows besides
                lane.waiting.update({src: self.kinds[src] for src, _ in pairs if src not in lane.waiting})
        inner = Scope(scope.session, lane, scope, event)
        inner.knows, inner.heard, lane.waiting = lane.waiting, {**lane.waiting}, {}
        lane.has_begun, lane.at_work = True, lane.at_work + 1
        inner.reads = [src for src, _ in pairs]
        lane.scopes[inner] = None
        return inner

    def is_root(self, scope: Scope, name: str) -> bool:
        """Whether an agent of this name, called here, is the root itself."""
        lane = self.root.lane
        return scope is self.root and name == lane.agent and not lane.at_work

    def is_spawned(self, scope: Scope, name: str, *, is_new: bool) -> bool:
        """Whether a call makes an agent: with `is_new` unless one waits that has not begun; else where the name is new, or the
        named agent waits for this very call: nobody sets himself to work."""
        known, at = self.lanes.get(name), scope
        if known is None or known is self.root.lane:
            return True
        if is_new:
            return known.has_begun
        while at.lane is not known and at.outer is not None:
            at = at.outer
        return at.lane is known

    def leave(
        self, scope: Scope, text: str | None, *, ok: bool | None = None, error: str | None = None, **fields: Any
    ) -> str | None:
        """An agent ends: its result goes back to the agent that set it to work."""
        lane, outer = scope.lane, scope.outer
        lane.at_work = max(0, lane.at_work - 1)
        fields = {**fields, **scope.outcome, "ok": ok, "error": error}
        scope.outcome = {}
        if outer is None:
            if lane.has_stopped or scope.hands_on:
                return None
            fields["extra"] = {**(fields.get("extra") or {}), "is_implicit": True}
            return self.event(scope, "orchestrator_decision", text=text, decision="stop", **fields)
        del lane.scopes[scope]
        if scope.hands_on:
            return None
        to = outer.lane.agent
        fields |= {"from_": lane.agent, "to": to, "source": "peer", "trusted": True}
        # A return goes to the spawner; what somebody else asked for is answered by a message.
        kind = "return" if lane.boss in (None, to) else "message"
        event = self.event(scope, kind, text=text, **fields)
        outer.hears(event, self.kinds[event], [*scope.reads, *([scope.event] if scope.event else [])])
        return event

    # -- calls and steps -------------------------------------------------------------------------------------------------

    def begin(self, scope: Scope, type: str, *, reads: Reads | None = None, text: str | None = None, **fields: Any) -> Scope:
        """An event that takes time begins: a tool call, a step of the model, a guardrail."""
        pairs, lane = self.reads(scope, reads, is_act=type == "tool_call"), scope.lane
        if type == "aggregate":
            pairs = [(src, "aggregate" if kind == "return" else kind) for src, kind in pairs]
        event = self.recorder.open(lane.agent, type, reads=pairs, text=text, role=lane.role, **fields)
        self._keep(scope, event, pairs, type)
        inner = Scope(scope.session, lane, scope, event)
        inner.knows[event], inner.tool = _CAUSAL, fields.get("tool")
        inner.reads = [src for src, _ in pairs]
        lane.scopes[inner] = None
        return inner

    def begin_step(self, scope: Scope, question: Question | None = None, *, reads: Reads | None = None, **fields: Any) -> Scope:
        """A model is called: an agent with sub-agents decides, another thinks aloud, one with two returns to read merges them."""
        lane = scope.lane
        turn, lane.turn = lane.turn, lane.turn + 1
        if len(scope.heard) >= 2 and reads is None and sum(kinds is _RETURN for kinds in scope.heard.values()) >= 2:
            kind = "aggregate"
        else:
            kind = "orchestrator_decision" if lane.leads else "message"
        if kind == "message":  # said to nobody: no message of the team's
            fields["extra"] = {**(fields.get("extra") or {}), "aloud": True}
        inner = self.begin(scope, kind, reads=reads, turn=turn, **fields)
        if inner.event is not None:
            self.kinds[inner.event] = _CAUSAL
        inner.call = CallNote()
        self.tell_call(inner, question, None)
        return inner

    def tell_call(self, scope: Scope, question: Question | None, answer: Answer | None) -> None:
        """More about the model call that a scope is."""
        if scope.call is not None:
            if question is not None:
                scope.call.ask(question, scope.lane.last_call, self.recorder.keep)
            scope.call.learn(answer)

    def end(self, scope: Scope, text: str | None = None, **fields: Any) -> None:
        """An event that takes time ends, and is known from now on, with what was learned in it."""
        outer, event = scope.outer, scope.event
        if scope not in scope.lane.scopes or outer is None or event is None:
            return
        del scope.lane.scopes[scope]
        if scope.outcome:
            fields |= scope.outcome
        if scope.call is not None:
            failure = str(fields.get("error") or "failed").partition(":")[0] if fields.get("ok") is False else None
            note = scope.call.note(text, failure, scope.lane.last_call, self.recorder.keep)
            extra = fields.get("extra") or {}
            fields["extra"] = {**extra, "call": {**note, **extra.get("call", {})}}  # what the endpoint itself said comes first
            scope.lane.last_call = scope.call.last(event) if failure is None else scope.lane.last_call
        self._pay(fields)
        self._close(event, text, fields)
        outer.puts(event, scope.reads)
        scope.knows.pop(event, None)
        outer.knows.update(scope.knows)
        outer.heard.update(scope.heard)

    def end_call(
        self, scope: Scope, text: str | None, *, tool: str, ok: bool = True, error: str | None = None, trusted: bool = False,
        source: str = "tool", asked: str | None = None, result: Mapping[str, Any] | None = None, **fields: Any,
    ) -> str | None:  # fmt: skip
        """A tool answers. `asked` is the text of the call where it was not known before; `result` is the answer's `extra`."""
        outer, call = scope.outer, scope.event
        if scope not in scope.lane.scopes or outer is None or call is None:
            return None
        del scope.lane.scopes[scope]
        fields |= {"ok": ok, "error": error, **scope.outcome}
        self._pay(fields)
        self._close(call, asked, fields)
        pairs = [(call, "tool_dependency")]
        pairs += [(src, k) for src, kinds in {**scope.heard, **scope.knows}.items() for k in kinds if src != call]
        lane = scope.lane
        event = self.recorder.event(
            lane.agent, "tool_result", reads=pairs, text=text, role=lane.role, tool=tool, ok=ok, error=error,
            trusted=trusted, source=source, extra=dict(result) if result else None,
        )  # fmt: skip
        self._keep(scope, event, pairs, "tool_result", trusted)
        outer.hears(event, self.kinds[event], scope.reads)
        return event

    def _close(self, event: str, text: str | None, fields: dict[str, Any]) -> None:
        try:
            self.recorder.close(event, text=text, **fields)
        except CounterpointError as error:
            self.session.note(str(error))
            self.recorder.close(event)

    def _pay(self, fields: Mapping[str, Any]) -> None:
        if fields.get("cost_usd") is not None:
            self.cost_usd = (self.cost_usd or 0.0) + fields["cost_usd"]
        if self.session.guard is not None:
            self.session.guard.on_usage(fields)


current: ContextVar[Scope | None] = ContextVar("counterpoint_scope", default=None)
"""The scope that acts here: tasks and copied contexts inherit it."""
_MOST = 100
MOST_HELD = 128 << 20
"""Bytes of records, about, that may wait in memory for the disk, of all recordings of this process."""
_LOOK = 64
"""Every how many acts a recording looks at that."""


class RecordingSession:
    """A trace that is being recorded; one that is over, or belongs to the process this one was forked from, does nothing."""

    def __init__(
        self, run: Run, root: str, guard: LiveGuard | None = None, where: str = "", player: Any = None, points: Any = None,
        tracer: Any = None,
    ) -> None:  # fmt: skip
        """`where`: its store; a `player` stands in for the outside; at `points` agents get orders; a `tracer` makes spans."""
        self.run, self.guard, self.where, self.player, self.points = run, guard, where, player, points
        self.is_over = self.is_cut = self.is_kept = False
        """`is_cut`: memory was full, and nothing is recorded since; `is_kept`: somebody asked for it, whatever the sample."""
        self._acts = 0
        self.problems: list[str] = []
        self.rewards: dict[str, int | float] = {}
        self.metrics: dict[str, int | float] = {}
        self.locators: list[Callable[[], Scope | None]] = []
        """How adapters find the scope that acts here, if a framework knows it."""
        self.draws, self.kept = dict[str, Random](), dict[str, Any]()  # what a replay needs besides the calls
        self.is_bare = guard is None and player is None  # nobody has to know of each call
        self.spans = None if tracer is None else LiveSpans(tracer, run.trace_id, root, self.note)
        self.recorder = recorder_of(run, self.spans)
        self.lanes = Lanes(self, self.recorder, root)
        self._is_late = False
        _sessions.add(self)

    @property
    def root(self) -> Scope:
        """The scope of the agent that acts where no other does."""
        return self.lanes.root

    def do(self, method: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Record something; None if that cannot be done."""
        if self.is_over or self.is_cut:
            if not self.is_cut:
                self._late()
            return None
        self._acts += 1
        if self._acts % _LOOK == 0 and self.run.is_crowded(MOST_HELD):
            self.is_cut = True
            what = f"more than {MOST_HELD >> 20} MiB of records wait for the disk: nothing more of this trace is recorded"
            self.note(what, kind="memory")
            return None
        try:
            with self.lanes.lock:
                if (trouble := self.run.trouble) is not None:
                    self.note(str(trouble), is_new=False, kind=trouble.what)
                return method(*args, **kwargs)
        except Exception as error:
            self.note(one_line(error))
            return None

    def note(self, what: str, *, is_new: bool = True, kind: str | None = None) -> None:
        """Keep a problem, and print the first one; one of a kind that other recordings here have too is printed once for all."""
        if not is_new and what in self.problems:
            return
        if not self.problems:
            line = f"counterpoint: recording {self.run.trace_id!r}: {what}; the program continues"
            say(line) if kind is None else say_once(line, f"{self.where}: {kind}")
        if len(self.problems) < _MOST:
            self.problems.append(what)
        elif len(self.problems) == _MOST:
            self.problems.append("and more")

    def _late(self) -> None:
        if not self._is_late:
            self._is_late = True
            self.note("something happened after the end of the recording, and is not in it")


_sessions: weakref.WeakSet[RecordingSession] = weakref.WeakSet()


def running(trace_id: str) -> RecordingSession | None:
    """The recording of this process that has this id and is not over."""
    return next((session for session in list(_sessions) if session.run.trace_id == trace_id and not session.is_over), None)


def _after_fork() -> None:
    """A forked child records nothing: the journal is its parent's, and a lock may be held for ever."""
    for session in list(_sessions):
        session.is_over = True
        session._is_late = True


os.register_at_fork(after_in_child=_after_fork)
