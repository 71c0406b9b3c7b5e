"""One run of a team's own code over its recording: what was asked before is answered as before, and one thing is different.

Always true: a call that is equal to a recorded one (same agent, function and arguments) gets the recorded answer, equal calls in
the order in which they were made, until the edit makes a call that is not recorded; that one is really made. Before the edit
nothing may differ: the first call that does is `NotIdentified`. A tool with effects is really called only with consent, and is
answered by the recording only where nothing that it may depend on has changed.
"""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections import Counter
from collections.abc import AsyncIterator, Callable, Collection, Hashable, Iterator
from itertools import pairwise, takewhile
from typing import Any

from counterpoint.errors import CounterpointError, NotIdentified, Refused
from counterpoint.recorder.answers import Answer, Find, Unpackable
from counterpoint.recorder.edits import arguments_of, changed_answer, empty_like
from counterpoint.recorder.recorded_calls import RecordedCall, RecordedCalls, event_name, is_ours, replay_note
from counterpoint.recorder.turns import Turn, Turns
from counterpoint.recorder.values import text_of
from counterpoint.recorder.wrap import ASYNC_GENERATOR, COROUTINE, GENERATOR, shape_of
from counterpoint.trace import Event, Trace
from counterpoint.trace.keys import REPLAY
from counterpoint.trace.replay import Delete, Do, Fork, Substitute

FIX = "record it again with this code; what it draws or reads from a clock, ask of rec.random() and rec.now()"
Change = Callable[[Answer, Do, str | None, Find], Answer]
_SOON, _LATE = 0.05, 3.0
"""Seconds of silence after which a recorded answer is no longer waited for: after the edit, and before it."""
_FROM_ELSEWHERE = frozenset(
    {"id", "t", "dur", "type", "agent", "role", "from_", "to", "tool", "content_ref", "turn", "key", "at", "extra"}
)


class Player:
    """What stands in for the outside while a team's code runs again."""

    def __init__(self, trace: Trace, fork: Fork, *, find: Find, allow: Collection[str] = (), model: Any = None) -> None:
        """`find` gives classes by name, `allow` names tools with effects that may run, `model` answers changed model calls."""
        self.trace, self._fork, self.find, self._allow, self.model = trace, fork, find, frozenset(allow), model
        self.place = trace.index[fork.at]
        event = trace.events[self.place]
        told = [note for edit in trace.meta.get("edits") or [] for note in edit.get("notes", ())]
        self._again = {(note["what"], note["to"], int(note["time"])): note for note in told}
        self.calls = RecordedCalls(trace, [note for note in told if note["what"] == "spawn" and note["is_absent"]])
        self.names = self.calls.names
        self.finders: list[Callable[..., Any]] = []
        """How adapters find the recorded call that a framework makes."""
        self._undo: list[Callable[[], None]] = []
        self._swapped: set[str] = set()
        self.notes: list[dict[str, Any]] = []
        """Edits of agents, which a later fork has to make again."""
        self.counts: Counter[str] = Counter()
        self.claimed: dict[str, Event] = {}
        """Events of this run to those that they repeat."""
        self.badges: dict[str, str] = {}
        self.held: list[str] = []
        self.changed: set[str] = set()
        """Events that may have come out differently because of the edit."""
        self.failure: CounterpointError | None = None
        self.edited: frozenset[str] = frozenset()
        """Recorded events of the call that is edited."""
        self.edited_briefs: dict[tuple[str, str], str] = {}
        self.dirty: set[str] = set()
        """Agents all of whose further events may come out differently."""
        self.is_applied = fork.do is None
        self.has_changed = False
        self.session: Any = None
        """The recording that the team's code has begun."""
        self._returns: Counter[str] = Counter()
        self._at = set() if fork.do is None else places_of(trace, event)
        self._lock = threading.RLock()
        self._now = {agent: list(times) for agent, times in (trace.meta[REPLAY].get("now") or {}).items()}
        self._set_turns()

    def _set_turns(self) -> None:
        """When everything was recorded: what an answer waits for."""
        times: dict[Hashable, float] = {("begins", c.event.id): float(c.event.t) for c in self.calls.every}
        times |= {("ends", c.event.id): c.end for c in self.calls.every}
        seen: Counter[Any] = Counter()
        self._moments: dict[tuple[Any, int], str] = {}
        self._seen: Counter[Any] = Counter()
        calls = {c.event.id for c in self.calls.every}
        for one in self.trace.events:  # what is no call, and no answer: it is waited for, and never held back
            if one.id not in calls and one.type != "tool_result" and not is_ours(one):
                name = event_name(one)
                self._moments[name, seen[name]] = one.id
                seen[name] += 1
                times["happens", one.id] = float(one.t)
        late = sorted(times.values())
        self._patience = _LATE + 2 * max((b - a for a, b in pairwise(late)), default=0.0)
        self.turns = Turns(times, lambda: _SOON if self.has_changed or self.turns.is_late else self._patience)

    # -- frameworks ------------------------------------------------------------------------------------------------------

    def patch(self, owner: Any, name: str, make: Callable[[Callable[..., Any]], Callable[..., Any]]) -> None:
        """Until the replay ends, a method of a framework's class is another; where the class has none of its own, nothing is."""
        if (real := vars(owner).get(name)) is not None:
            setattr(owner, name, make(real))
            self._undo.append(lambda: setattr(owner, name, real))

    def close(self) -> None:
        """The run has ended: nothing is waited for, and frameworks are as they were."""
        self.turns.close()
        while self._undo:
            self._undo.pop()()

    # -- randomness and time ---------------------------------------------------------------------------------------------

    def seed(self) -> str:
        """Of what is drawn from here on: the recorded seed, or after the fork its own."""
        drawn = str(self.trace.meta[REPLAY].get("seed"))
        return drawn if self._fork.seed is None or not self.has_changed else f"{drawn}|{self._fork.seed}"

    def now(self, agent: str) -> float | None:
        """The recorded time that an agent is told next; None where it asks more often."""
        times = self._now.get(agent)
        return times.pop(0) if times else None

    # -- calls -----------------------------------------------------------------------------------------------------------

    def stand_in(
        self, function: Callable[..., Any], scope: Any, name: str, asked: str, *, is_model: bool, effects: bool = False,
        swaps: bool = False, change: Change = changed_answer,
    ) -> Callable[..., Any] | None:  # fmt: skip
        """What is called instead of a tool's or model's function; None for itself. With `swaps` the function itself asks the
        model that was named; `change` makes an edit of what it gave."""
        with self._lock:
            if swaps:
                self._swapped.add(scope.event)
            if self.failure is not None:
                return _giver(function, Answer(error=self.failure))
            call = self.calls.claim(scope.lane.agent, "" if is_model else name, asked)
            if call is None:
                if not self.has_changed:
                    return _giver(function, Answer(error=self._differs(scope, name)))
                return self._anew(function, scope, name, is_model=is_model, effects=effects)
            self.claimed[scope.event] = call.event
            self.turns.done(("begins", call.event.id))
            is_after = scope.lane.agent in self.dirty or any(src in self.changed for src in scope.reads)
            if self._fork.at in call.ids and self._fork.do is not None:
                return self._edited(function, scope, name, call, change, is_model=is_model, effects=effects)
            is_fresh = is_model and self._fork.seed is not None and call.place >= self.place
            if is_fresh or (effects and is_after):
                return self._anew(function, scope, name, is_model=is_model, effects=effects)
            if call.runs:
                note = self._again.get(("answer", call.event.id, 0))
                return None if note is None else self._with_answer(function, scope, _noted(note), change)
            return self._recorded(function, scope, name, call, is_model=is_model, effects=effects)

    def _recorded(
        self, function: Callable[..., Any], scope: Any, name: str, call: RecordedCall, *, is_model: bool, effects: bool
    ) -> Callable[..., Any]:
        try:
            answer = call.answer(self.trace, self.find)
        except Unpackable:
            self.counts["not kept"] += 1
            return self._anew(function, scope, name, is_model=is_model, effects=effects)
        self.counts["recorded"] += 1
        self.badges[scope.event] = "recorded"
        self._tell(scope, call.event, is_whole=True)
        if isinstance(answer.error, asyncio.CancelledError):
            return self._cancelled(function, scope, name, is_model=is_model, effects=effects)
        return _giver(function, answer, lambda begins: self.turns.turn(("ends", call.event.id), begins))

    def _edited(
        self, function: Callable[..., Any], scope: Any, name: str, call: RecordedCall, change: Change, *, is_model: bool,
        effects: bool,
    ) -> Callable[..., Any]:  # fmt: skip
        do = self._fork.do
        assert do is not None
        is_asked_anew = isinstance(do, Substitute) and do.value is None
        if call.runs and self._fork.at != call.event.id and not is_asked_anew:
            note = {"what": "answer", "to": call.event.id, "time": 0, "value": getattr(do, "value", None)}
            self.notes.append(note | {"is_absent": isinstance(do, Delete)})
            return self._with_answer(function, scope, do, change, call)
        self._applied(scope, call)
        if is_asked_anew:
            return self._anew(function, scope, name, is_model=is_model, effects=effects)
        if isinstance(do, Substitute) and self._fork.at == call.event.id and not is_model:
            real, value = self._anew(function, scope, name, is_model=False, effects=effects), do.value

            def other(*args: Any, **kwargs: Any) -> Any:
                changed, named = arguments_of(function, args, kwargs, value)
                return real(*changed, **named)

            return other
        self.badges[scope.event] = "re-run"
        self._tell(scope, call.event, is_whole=False)
        try:
            kept = call.answer(self.trace, self.find)
        except Unpackable:
            kept = Answer("")
        try:
            return _giver(function, change(kept, do, self.trace.text(call.result or call.event), self.find))
        except CounterpointError as error:
            self.failure = error
            return _giver(function, Answer(error=error))

    def _applied(self, scope: Any, call: RecordedCall) -> None:
        self.is_applied = self.has_changed = True
        self.edited = call.ids
        self.changed.add(scope.event)

    def _with_answer(
        self, function: Callable[..., Any], scope: Any, do: Do, change: Change, call: RecordedCall | None = None
    ) -> Callable[..., Any]:
        """A call in which others were made, such as an agent that is a tool: it runs as it did, and gives something else. `call`
        is what this fork edits; else an earlier one did."""

        def other(value: Any) -> Any:
            if call is not None:
                self._applied(scope, call)
            try:
                return change(Answer(value), do, text_of(value), self.find).value
            except CounterpointError as error:
                self.failure = error
                raise

        async def later(*args: Any, **kwargs: Any) -> Any:
            return other(await function(*args, **kwargs))

        def now(*args: Any, **kwargs: Any) -> Any:
            return other(function(*args, **kwargs))

        return later if shape_of(function) == COROUTINE else now

    def _anew(self, function: Callable[..., Any], scope: Any, name: str, *, is_model: bool, effects: bool) -> Callable[..., Any]:
        """The real thing, where that may be asked."""
        if self._fork.seed is not None:
            self.has_changed = True
        self.changed.add(scope.event)
        if effects and name not in self._allow:
            self.held.append(scope.event)
            self.badges[scope.event] = "simulated"
            what = f"{name} was not called: it has effects, and this call is not recorded"
            return _giver(function, Answer(error=Refused(what, fix=f"--allow {name} lets it run")))
        self.badges[scope.event] = "re-run"
        self.counts["model calls" if is_model else "tool calls"] += 1
        is_other = is_model and callable(self.model) and scope.event not in self._swapped
        return _shaped(self.model, function) if is_other and self.model is not None else function

    def _cancelled(
        self, function: Callable[..., Any], scope: Any, name: str, *, is_model: bool, effects: bool
    ) -> Callable[..., Any]:
        """A call that was cancelled waits until it is again; where nobody does that after a change, it is made."""

        async def wait(*args: Any, **kwargs: Any) -> Any:
            await asyncio.sleep(self._patience if not self.has_changed else 20 * _SOON)
            with self._lock:
                if not self.has_changed:
                    raise self._differs(scope, name)
                self.counts["recorded"] -= 1
                made = self._anew(function, scope, name, is_model=is_model, effects=effects)
            return await made(*args, **kwargs)

        if shape_of(function) == COROUTINE:
            return wait
        return _giver(function, Answer(error=asyncio.CancelledError()))

    def _tell(self, scope: Any, event: Event, *, is_whole: bool) -> None:
        """Tokens and the like, as they were told while the function ran."""
        for field in event.__struct_fields__:
            one = getattr(event, field)
            if one is not None and field not in _FROM_ELSEWHERE and (is_whole or field not in ("ok", "error")):
                scope.outcome[field] = one
        extra = {k: v for k, v in (event.extra or {}).items() if k not in (REPLAY, "aloud", "badge", "call")}
        if extra:
            scope.outcome["extra"] = {**extra, **(scope.outcome.get("extra") or {})}

    def _differs(self, scope: Any, name: str) -> CounterpointError:
        """The first call that is not as it was, before anything was changed."""
        what = f"{scope.lane.agent} calls {name} with something else than it did when it was recorded"
        self.failure = NotIdentified(what, FIX, where=self.trace.trace_id)
        return self.failure

    def ended(self, event: str) -> None:
        """A call has given its answer."""
        call = self.claimed.get(event)
        if call is not None:
            self.turns.done(("ends", call.id))

    def tool_ends(self, scope: Any, name: str, asked: str) -> dict[str, Any] | None:
        """How a framework's tool ended when it was recorded, where its answer is the recorded one; a call that the framework did
        not let happen is found now."""
        with self._lock:
            is_new = scope.event not in self.claimed and self.badges.get(scope.event) is None
            if is_new and (call := self.calls.claim(scope.lane.agent, name, asked)) is not None:
                self.claimed[scope.event] = call.event
                self.turns.done(("begins", call.event.id))
            call = self.calls.of(self.claimed.get(scope.event))
            if call is None or call.result is None or self.badges.get(scope.event) != "recorded":
                return None
            return {"ok": call.result.ok, "error": call.result.error}

    def begins(self, event: Event) -> None:
        """An event of this run has begun."""
        if event.agent in self.dirty:
            self.changed.add(event.id)

    def happens(self, event: Event) -> None:
        """Something that is no call was recorded."""
        if is_ours(event):
            return
        name = event_name(event)
        with self._lock:
            moment = self._moments.get((name, self._seen[name]))
            self._seen[name] += 1
        if moment is not None:
            self.turns.done(("happens", moment))

    def read(self, src: str, dst: str) -> None:
        """What reads something changed may come out differently, too."""
        if src in self.changed:
            self.changed.add(dst)

    # -- agents ----------------------------------------------------------------------------------------------------------

    def agent(self, boss: str, name: str, brief: str | None) -> str | None:
        """The recorded agent that begins here."""
        with self._lock:
            if (other := self.edited_briefs.pop((boss, name), None)) is not None:  # it has another brief than it had
                self.calls.forget(boss, other)
                return other
            return self.calls.agent(boss, name, brief, claims=True)

    def agent_edit(self, scope: Any, name: str, brief: str | None) -> tuple[Do | None, str]:
        """What is done to an agent that would be spawned here now, if anything, and what it was called."""
        boss = scope.lane.agent
        with self._lock:
            found = self.calls.agent(boss, name, brief, claims=False)
            if found is None:
                return None, name
            do = self._do("spawn", found, 0)
            if isinstance(do, Delete):
                self.calls.agent(boss, name, brief, claims=True)
                self.dirty.add(boss)
            elif do is not None:
                self.edited_briefs[boss, name] = found
                self.dirty.add(found)
            return do, found

    def returned(self, agent: str, value: Any) -> Any:
        """What an agent's function gives back."""
        with self._lock:
            time, self._returns[agent] = self._returns[agent], self._returns[agent] + 1
            do = self._do("return", agent, time)
            if do is None:
                return value
            self.dirty.add(agent)
            try:
                return changed_answer(Answer(value), do, text_of(value), self.find).value
            except CounterpointError as error:
                self.failure = error
                raise

    def absent(self, function: Callable[..., Any], name: str) -> Callable[..., Any]:
        """What is called instead of an agent that is not spawned: it gives what an empty result of its kind is."""
        back = next((e for e in self.trace.events if e.type == "return" and e.agent == name), None)
        kind = "str" if back is None or back.content_ref is not None else "NoneType"
        return _giver(function, Answer(empty_like(str(replay_note(back).get("gives", kind)) if back is not None else kind)))

    def _do(self, what: str, to: str, time: int) -> Do | None:
        """The edit of this agent: one that an earlier fork made, or this one's, which is noted for later forks."""
        note = self._again.get((what, to, time))
        if note is not None:
            return _noted(note)
        do = self._fork.do
        if do is None or (what, to, time) not in self._at:
            return None
        if not isinstance(do, Delete) and getattr(do, "value", None) is None:
            self.failure = NotIdentified(f"your code does not say how {to} could do this otherwise", "--substitute VALUE")
            raise self.failure
        self.is_applied = self.has_changed = True
        born = next((e for e in self.trace.events if what == "spawn" and e.type == "spawn" and e.to == to), None)
        note = {"what": what, "to": to, "time": time, "is_absent": isinstance(do, Delete), "value": getattr(do, "value", None)}
        if born is not None:
            spawns = (e for e in self.trace.events if e.type == "spawn")
            like = [e.to for e in spawns if (e.agent, e.content_ref) == (born.agent, born.content_ref)]
            note |= {"agent": born.agent, "brief": born.content_ref or "", "n": like.index(to)}
        self.notes.append(note)
        return do


def _noted(note: dict[str, Any]) -> Do:
    """What an earlier fork did."""
    return Delete() if note["is_absent"] else Substitute(note["value"])


def places_of(trace: Trace, event: Event) -> set[tuple[str, str, int]]:
    """An agent's spawn or return, as the run will come by it; of a decision to spawn the spawns that followed. None of a call."""
    if event.type == "spawn":
        return {("spawn", str(event.to), 0)}
    if event.type == "return":
        back = [e.id for e in trace.events if e.type == "return" and e.agent == event.agent]
        return {("return", event.agent, back.index(event.id))}
    if event.decision != "spawn":
        return set()
    later = [e for e in trace.events[trace.index[event.id] + 1 :] if e.agent == event.agent]
    until = takewhile(lambda e: e.type not in ("orchestrator_decision", "aggregate"), later)
    return {("spawn", str(e.to), 0) for e in until if e.type == "spawn"}


def is_call(trace: Trace, event: Event) -> bool:
    """Whether an event is a call that a function made, or its answer."""
    return event.type in ("tool_call", "tool_result") or "asked" in replay_note(event)


# -- what is called instead ----------------------------------------------------------------------------------------------


def _giver(
    function: Callable[..., Any], answer: Answer, turn: Callable[[Callable[[Turn], Any] | None], Turn] | None = None
) -> Callable[..., Any]:
    """A function of the same shape that gives the answer, when its turn has come."""
    shape = shape_of(function)

    def ended() -> Any:
        if answer.is_cut:
            raise NotIdentified("a stream is read further than when it was recorded", FIX)
        if answer.error is not None:
            raise answer.error
        return answer.value

    async def later(*args: Any, **kwargs: Any) -> Any:
        await asyncio.sleep(0)
        if turn is not None:
            waiting: list[asyncio.Future[None]] = []
            turn(lambda one: waiting.append(asyncio.wrap_future(one)))
            await waiting[0]
        return ended()

    async def each_later(*args: Any, **kwargs: Any) -> AsyncIterator[Any]:
        for part in answer.parts or ():
            await asyncio.sleep(0)
            yield part
        ended()

    def each(*args: Any, **kwargs: Any) -> Iterator[Any]:
        yield from answer.parts or ()
        return ended()

    def now(*args: Any, **kwargs: Any) -> Any:
        if turn is not None and not in_loop():  # who blocks a loop was alone when it was recorded, too
            turn(None).result()
        return ended()

    if shape == ASYNC_GENERATOR:
        return each_later
    if shape == GENERATOR:
        return each
    return later if shape == COROUTINE or answer.is_awaited else now


def _shaped(model: Callable[..., Any], function: Callable[..., Any]) -> Callable[..., Any]:
    """Another model in the place of a function: what the function's caller awaits can be awaited."""
    if shape_of(function) != COROUTINE:
        return model

    async def ask(*args: Any, **kwargs: Any) -> Any:
        value = model(*args, **kwargs)
        return await value if inspect.isawaitable(value) else value

    return ask


def in_loop() -> bool:
    """Whether a loop runs in this thread."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
