"""What a team can say about itself: decorators for its agents, tools and models, and explicit acts.

Always true: the running task or thread says which agent acts (a context variable); every method here does nothing where nothing
is recorded, and gives the id of its event, or an empty text, so that `reads=[...]` may name it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from random import Random
from typing import Any
from urllib.parse import quote

from counterpoint.recorder.conversation import answer_of, question_of
from counterpoint.recorder.counted_calls import agent_depth, count_answer, count_call
from counterpoint.recorder.keep import (
    agent_stand_in,
    answer_note,
    asked_text,
    ended,
    is_all_told,
    keep_arguments,
    keep_kind,
    keep_step,
    model_stand_in,
    random_of,
    refuse_block,
    said_text,
    stand_in,
    told_time,
)
from counterpoint.recorder.lanes import Reads, RecordingSession, Scope, current
from counterpoint.recorder.live_guard import LimitReached
from counterpoint.recorder.problems import error_text
from counterpoint.recorder.safe_points import safe_point, stoppable
from counterpoint.recorder.values import (
    clean,
    is_source,
    listed,
    name_or_none,
    number,
    origin_of,
    parameters,
    short,
    text_of,
    usage_fields,
    usage_of,
    word,
)
from counterpoint.recorder.wrap import wrap_call
from counterpoint.trace.vocabulary import EVENT_TYPES

Fn = Callable[..., Any]
Text = Callable[[Any], str | None]
Name = str | Callable[..., str]


class Doing:
    """Something that is under way: `result` says what came of it, `tell` what else is known."""

    def __init__(self, acts: Acts, scope: Scope | None) -> None:
        self._acts, self.scope = acts, scope
        self.text: str | None = None
        self.event: str = (scope.event or "") if scope is not None else ""
        """The id of the event that it began with."""

    def result(self, value: Any, **fields: Any) -> None:
        """What came of it, as a text, a value or a provider's response; fields such as `ok=False` or `tokens_out=12`."""
        self.text = text_of(value)
        if self.scope is not None and self.scope.call is not None and (answer := answer_of(value)) is not None:
            self.text = answer.text
            self._acts._tell(self.scope, {**usage_of(value), "response": value})
        self.tell(**fields)

    def tell(self, **fields: Any) -> None:
        """More about its event: `tokens_in`, `tokens_out`, `cost_usd`, `logp`, `ok`...; names that no event has go to `extra`."""
        if self.scope is not None:
            self._acts._tell(self.scope, fields)


class Acts:
    """The part of a recording that the recorded team calls."""

    def __init__(self) -> None:
        self.session: RecordingSession | None = None

    def here(self) -> Scope | None:
        """The scope of the agent that acts here: of this recording or, if it is not running, of the one around it."""
        at, own = current.get(), self.session
        if at is not None and (own is None or at.session is own):
            if at.session.is_over and own is None:
                return None
        elif own is not None:
            at = own.root
        else:
            return None
        for locate in at.session.locators:
            scope = locate()
            if scope is not None and scope.session is at.session and _is_within(scope, at):
                return scope
        return at

    def _do(self, method: str, *args: Any, **kwargs: Any) -> Any:
        """Record an act of the agent that acts here."""
        scope = self.here()
        if scope is None:
            return ""
        return scope.session.do(getattr(scope.session.lanes, method), scope, *args, **kwargs) or ""

    def _tell(self, scope: Scope, fields: dict[str, Any]) -> None:
        if scope.call is not None:
            session, before = scope.session, scope.lane.last_call
            taken = session.do(scope.call.take, fields, before, session.recorder.keep)
            if taken is not None:
                fields = {**usage_of(taken[0].get("response")), **taken[1]}
        known = clean(fields, scope.session.note)
        extra = {**(scope.outcome.get("extra") or {}), **known.pop("extra", {})}
        scope.outcome.update(known)
        if extra:
            scope.outcome["extra"] = extra

    def tell(self, **fields: Any) -> None:
        """More about what is under way here, from inside a decorated tool, model or agent: `rec.tell(tokens_out=12)`."""
        scope = self.here()
        if scope is not None:
            self._tell(scope, fields)

    def headers(self) -> dict[str, str]:
        """Headers by which `counterpoint models serve` knows whose call it answers: `extra_headers=rec.headers()`."""
        scope = self.here()
        if scope is None:
            return {}
        named = {"trace": scope.session.run.trace_id, "agent": scope.lane.agent, "role": scope.lane.role, "event": scope.event}
        return {f"x-counterpoint-{name}": quote(value) for name, value in named.items() if value}

    def _permit(self, scope: Scope, tool: str, args: str | None, *, is_spawn: bool = False) -> None:
        """Raise where a limit refuses this: the trace has it as a safety event, and the caller gets the words for its agent."""
        guard = scope.session.guard
        if guard is None or scope.session.is_over:
            return
        lanes = scope.session.lanes
        agent = "main" if scope.lane is lanes.root.lane else scope.lane.agent
        try:
            guard.permit(agent, tool, args, is_spawn=is_spawn, depth=agent_depth(scope))
        except LimitReached as refused:
            scope.session.do(lanes.event, scope, "safety_event", text=refused.what, ok=False, error="limit", tool=tool)
            raise

    def _enter(
        self, scope: Scope, name: str, role: str | None, text: str | None, reads: Reads | None = None, *, is_new: bool = False
    ) -> Scope | None:
        """An agent begins, if it may; one that this makes is counted."""
        lanes = scope.session.lanes
        is_made = not lanes.is_root(scope, name) and lanes.is_spawned(scope, name, is_new=is_new)
        if is_made:
            self._permit(scope, name, text, is_spawn=True)
        entered: Scope | None = scope.session.do(lanes.enter, scope, name, role, text, reads, is_new=is_new)
        if is_made and entered is not None and scope.session.guard is not None:
            scope.session.guard.on_agent(entered.lane.agent, agent_depth(entered))
        return entered

    # -- decorators ------------------------------------------------------------------------------------------------------

    def agent(self, function: Fn | None = None, /, *, name: Name | None = None, role: str | None = None) -> Any:
        """Around a function that is an agent. Called inside another agent it is spawned by it, and returns to it.

        Every call is an agent of its own, named after the function and numbered from the second on. `name` (a text, or a function
        of the same arguments) says who it is instead: calls of one name are one agent.
        """

        def decorate(function: Fn) -> Fn:
            own, names = word(getattr(function, "__name__", None), "agent"), parameters(function)
            function = stoppable(function)

            def begin(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Scope | None:
                scope = self.here()
                if scope is None:
                    return None
                called = scope.session.do(lambda: name_or_none(name(*args, **kwargs) if callable(name) else name))
                text = asked_text(scope.session, names, args, kwargs)
                scope.session.do(keep_arguments, scope, called or own, args, kwargs)
                stands_in, text, is_absent = agent_stand_in(function, scope, called or own, args, kwargs, text, is_new=not called)
                inner: Scope | None = Scope(scope.session, scope.lane, None)
                if not is_absent:
                    inner = self._enter(scope, called or own, name_or_none(role) or own, text, is_new=not called)
                if inner is not None:
                    inner.stands_in, inner.is_absent = stands_in, is_absent
                return inner

            return wrap_call(function, begin, _leave)

        return decorate if function is None else decorate(function)

    def tool(
        self,
        function: Fn | None = None,
        /,
        *,
        name: str | None = None,
        trusted: bool = False,
        source: str = "tool",
        text: Text | None = None,
        effects: bool = False,
    ) -> Any:
        """Around a function that is a tool. Its result comes from outside the team, unless you say that it can be trusted.

        `text` makes the text of a result where its own, or its JSON, is not it. With `effects` (it changes something outside, or
        what it gives depends on what was changed) a replay never calls it without consent.
        """

        def decorate(function: Fn) -> Fn:
            tool, names = word(name or getattr(function, "__name__", None), "tool"), parameters(function)
            origin = {"trusted": trusted, "source": source} if isinstance(trusted, bool) and is_source(source) else None

            def begin(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Scope | None:
                scope = self.here()
                if scope is None:
                    return None
                session, text = scope.session, asked_text(scope.session, names, args, kwargs)
                self._permit(scope, tool, text)
                begun: Scope | None = session.do(session.lanes.begin, scope, "tool_call", tool=tool, text=text)
                if session.is_bare:
                    return begun
                return stand_in(function, count_call(begun, tool, text), tool, text, effects=effects)

            def end(scope: Scope, value: Any, error: BaseException | None) -> None:
                session = scope.session
                about = origin or origin_of(trusted, source, session.note)
                answer, kept = said_text(session, text, value), None
                if not is_all_told(scope, value, error, answer):
                    kept = session.do(answer_note, scope, value, error, answer)
                why = None if error is None else error_text(error)
                session.do(session.lanes.end_call, scope, answer, tool=tool, ok=error is None, error=why, result=kept, **about)
                if not session.is_bare:
                    ended(scope)
                    count_answer(scope, error is None)

            return wrap_call(function, begin, end, safe_point(self.here))

        return decorate if function is None else decorate(function)

    def model(
        self,
        function: Fn | None = None,
        /,
        *,
        name: str | None = None,
        usage: Callable[[Any], dict[str, Any]] | None = None,
        text: Text | None = None,
    ) -> Any:
        """Around a function that calls a model: one step of the agent that calls it.

        Tokens and money come from what it gives back (`usage`, `usage_metadata`, or fields of these names), from `usage` (a
        function of that), or from `rec.tell(...)` inside. `text` makes the text of an answer. Kept for training are what it was
        asked (`messages`, `tools` and sampling parameters among the arguments) and what the response states of its tokens; where
        the function is asked or gives something else, `rec.tell(messages=..., response=...)` inside says it.
        """

        def decorate(function: Fn) -> Fn:
            model, names = word(name or getattr(function, "__name__", None), "model"), parameters(function)

            def begin(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Scope | None:
                scope = self.here()
                if scope is None:
                    return None
                self._permit(scope, model, None)
                asked = question_of(names, args, kwargs)
                session = scope.session
                begun: Scope | None = session.do(session.lanes.begin_step, scope, asked, model=model)
                return model_stand_in(function, begun, model, asked_text(session, names, args, kwargs))

            def end(scope: Scope, value: Any, error: BaseException | None) -> None:
                session, stated = scope.session, answer_of(value)
                if stated is not None and scope.call is not None:
                    scope.call.learn(stated)
                shown = value if stated is None or stated.text is None or text is not None else stated.text
                answer = said_text(session, text, shown)
                fields: dict[str, Any] = {}
                if error is None and not (usage is None and type(value) is str):
                    fields = session.do(usage_fields, usage, value, session.note) or {}
                if not is_all_told(scope, value, error, answer):
                    session.do(keep_step, scope, value, error, answer)
                why = None if error is None else error_text(error)
                session.do(session.lanes.end, scope, answer, **{**fields, "ok": error is None, "error": why})
                if not session.is_bare:
                    ended(scope)

            return wrap_call(function, begin, end, safe_point(self.here, function))

        return decorate if function is None else decorate(function)

    # -- contexts --------------------------------------------------------------------------------------------------------

    @contextmanager
    def acting(
        self, name: str, *, role: str | None = None, text: str | None = None, reads: Reads | None = None
    ) -> Iterator[Doing]:
        """An agent at work that is not one function: `with rec.acting("ada", role="worker") as ada: ... ada.result("42")`."""
        scope = self.here()
        inner = None if scope is None else self._enter(scope, word(name, "agent"), name_or_none(role), text_of(text), reads)
        yield from self._during(inner, lambda doing, error: _leave(inner, doing.text, error))  # type: ignore[arg-type]

    @contextmanager
    def tool_call(
        self,
        tool: str,
        arguments: Any = None,
        *,
        trusted: bool = False,
        source: str = "tool",
        reads: Reads | None = None,
        **fields: Any,
    ) -> Iterator[Doing]:
        """A tool at work: `with rec.tool_call("search", "words") as call: call.result(search("words"))`."""
        scope = self.here()
        inner: Scope | None = None
        tool = word(tool, "tool")
        if scope is not None:
            more = clean(fields, scope.session.note)
            text = text_of(arguments)
            refuse_block(scope, "tool", tool)
            self._permit(scope, tool, text)
            inner = scope.session.do(scope.session.lanes.begin, scope, "tool_call", tool=tool, text=text, reads=reads, **more)
            count_call(inner, tool, text)

        def end(doing: Doing, error: BaseException | None) -> None:
            assert inner is not None
            ok, why = inner.outcome.pop("ok", True), inner.outcome.pop("error", None)
            if error is not None:  # whatever was told before
                ok, why = False, error_text(error)
            result = {"tool": tool, "ok": ok, "error": why, **origin_of(trusted, source, inner.session.note)}
            inner.session.do(lambda: inner.session.lanes.end_call(inner, doing.text, **result))
            count_answer(inner, ok)

        yield from self._during(inner, end)

    @contextmanager
    def model_call(self, model: str, *, reads: Reads | None = None, **fields: Any) -> Iterator[Doing]:
        """A model at work: `with rec.model_call("gpt-x") as step: step.result(text, tokens_in=90, tokens_out=12)`."""
        scope = self.here()
        inner: Scope | None = None
        model = word(model, "model")
        if scope is not None:
            asked = question_of((), (), {name: fields.pop(name) for name in ("messages", "tools") if name in fields})
            more = clean(fields, scope.session.note)
            refuse_block(scope, "model", model)
            self._permit(scope, model, None)
            inner = scope.session.do(scope.session.lanes.begin_step, scope, asked, reads=reads, model=model, **more)

        def end(doing: Doing, error: BaseException | None) -> None:
            assert inner is not None
            inner.outcome.setdefault("ok", error is None)
            if error is not None:
                inner.outcome |= {"ok": False, "error": error_text(error)}
            inner.session.do(inner.session.lanes.end, inner, doing.text)

        yield from self._during(inner, end)

    def _during(self, scope: Scope | None, end: Callable[[Doing, BaseException | None], None]) -> Iterator[Doing]:
        doing = Doing(self, scope)
        if scope is None:
            yield doing
            return
        token = current.set(scope)
        try:
            yield doing
        except BaseException as error:
            end(doing, error)
            raise
        else:
            end(doing, None)
        finally:
            current.reset(token)

    # -- acts ------------------------------------------------------------------------------------------------------------

    def random(self) -> Random:
        """The random numbers of the agent that acts here: a replay draws the same."""
        scope = self.here()
        return Random() if scope is None else random_of(scope)

    def now(self) -> float:
        """The time, in seconds since the epoch: a replay of the agent that acts here is told the same."""
        scope = self.here()
        return time.time() if scope is None else told_time(scope)

    def event(self, type: str, text: Any = None, *, reads: Reads | None = None, **fields: Any) -> str:
        """An event of any type."""
        scope = self.here()
        if scope is None:
            return ""
        if type not in EVENT_TYPES:
            scope.session.note(f"no event is of type {short(type)}: left out")
            return ""
        enters = fields.get("decision") != "noop"  # what was not done has nothing to tell
        known = clean(fields, scope.session.note)
        return str(self._do("event", type, reads=reads, enters=enters, text=text_of(text), **known))

    def decision(
        self, decision: str, text: Any = None, *, options: Sequence[str] | None = None, logp: float | None = None,
        reads: Reads | None = None, **fields: Any,
    ) -> str:  # fmt: skip
        """A decision of the orchestrator: spawn, delegate, communicate, aggregate, stop or noop, with what it chose among."""
        fields |= {"decision": decision, "options": listed(options), "logp": logp}
        return self.event("orchestrator_decision", text, reads=reads, **fields)

    def noop(self, text: Any = None, *, options: Sequence[str] | None = None, logp: float | None = None, **fields: Any) -> str:
        """A decision point that was passed over: not to spawn, not to speak, not to stop."""
        return self.decision("noop", text, options=options, logp=logp, **fields)

    def stop(self, text: Any = None, *, options: Sequence[str] | None = None, logp: float | None = None, **fields: Any) -> str:
        """The team stops, with this answer."""
        return self.decision("stop", text, options=options, logp=logp, **fields)

    def aggregate(self, text: Any = None, *, reads: Reads | None = None, **fields: Any) -> str:
        """What came back is put together."""
        return self.event("aggregate", text, reads=reads, **fields)

    def spawn(self, name: str, *, role: str | None = None, text: Any = None, reads: Reads | None = None, **fields: Any) -> str:
        """An agent is made before it begins; a decorated function of that name, or `rec.acting(name)`, is its work."""
        scope = self.here()
        if scope is None:
            return ""
        name = word(name, "agent")
        self._permit(scope, name, text_of(text), is_spawn=True)
        spawned = self._do("spawn", name, name_or_none(role), text_of(text), reads, **clean(fields, scope.session.note))
        if spawned and scope.session.guard is not None:
            scope.session.guard.on_agent(spawned[1].agent, agent_depth(scope) + 1)
        return spawned[0] if spawned else ""

    def message(self, from_: str | None, to: str | None, text: Any, *, reads: Reads | None = None, **fields: Any) -> str:
        """One agent speaks to another (None: to everybody), who has read it from then on; `from_` is the agent that acts here."""
        scope = self.here()
        if scope is None:
            return ""
        session = scope.session

        def send() -> str:
            at = scope
            if from_ is not None and from_ != scope.lane.agent:
                lane = session.lanes.lane(word(from_, "agent"))
                at = next(reversed(lane.scopes), None) or Scope(session, lane, None)
            return session.lanes.message(at, name_or_none(to), text_of(text), reads=reads, **clean(fields, session.note))

        return session.do(send) or ""

    def human(self, text: Any, *, by: str = "user", **fields: Any) -> str:
        """A human speaks to the agent that acts here."""
        scope = self.here()
        if scope is None:
            return ""
        return str(self._do("human", text_of(text) or "", by=word(by, "user"), **clean(fields, scope.session.note)))

    def keep(self) -> None:
        """Keep this trace, whatever `sample` says of it."""
        scope = self.here()
        if scope is not None:
            scope.session.is_kept = True

    def reward(self, **channels: float) -> None:
        """What the team earned, by channel: `rec.reward(team=1.0)`; True is 1. Said again, the later counts."""
        self._numbers("rewards", channels)

    def metric(self, **values: float) -> None:
        """What a benchmark measured."""
        self._numbers("metrics", values)

    def _numbers(self, kind: str, values: dict[str, float]) -> None:
        scope = self.here()
        for name, value in values.items() if scope is not None else ():
            assert scope is not None
            counted = number(value)
            if counted is not None:
                getattr(scope.session, kind)[word(name, "-")] = counted
            else:
                scope.session.note(f"{name}={short(value)} is not a finite number: dropped")


def _leave(scope: Scope, value: Any, error: BaseException | None) -> None:
    session = scope.session
    if scope.is_absent:
        return
    session.do(keep_kind, scope, value)
    if error is None:
        scope.outcome.setdefault("ok", True)
        ends = scope.outcome
        session.do(lambda: session.lanes.leave(scope, text_of(value), ok=ends.get("ok"), error=ends.get("error")))
    else:
        session.do(lambda: session.lanes.leave(scope, text_of(value), ok=False, error=error_text(error)))


def _is_within(inner: Scope, outer: Scope) -> bool:
    at: Scope | None = inner
    while at is not None and at is not outer:
        at = at.outer
    return at is outer
