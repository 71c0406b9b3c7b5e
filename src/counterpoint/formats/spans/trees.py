"""Traces of spans: an agent inside another is its sub-agent, whichever tracer wrote it down.

What becomes what: an agent span whose nearest agent above is another -> spawn at its start and return at its end (a tool span
around it is that spawn, not a tool call); agent spans one after the other under one workflow, and handoff spans -> message; a
model call -> step with its tokens; tool and retriever -> tool_call and tool_result; guardrail -> safety_event; human ->
human_intervention; scores -> reward; links -> causal edges; a tool or sub-agent that began after another had ended -> temporal
edge (`waits.py`). Spans without an agent above them are the main agent's. A caller reads what the agents inside it return: where
no model call of its own does, the end of its span does, as a step or, of several returns, an aggregate.

Always true: tokens stand once, on the innermost model call (a wrapper's sum counts only where nothing inside it has any);
event ids are span ids, so a trace that grows keeps them; a link between agents is exact where nesting or a handoff span
states it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from counterpoint.formats.draft import Draft
from counterpoint.formats.importer import Session
from counterpoint.formats.importing.lane import Lane
from counterpoint.formats.importing.usage import Usage
from counterpoint.formats.spans.nests import MAIN, Entries, Nest
from counterpoint.formats.spans.span import Span
from counterpoint.formats.spans.waits import Waits
from counterpoint.trace import Trace
from counterpoint.trace.keys import ROOT_SPAN

_PASSED = frozenset({"allow", "allowed", "pass", "passed", "ok", "accept", "accepted", "approve", "approved", "safe", "none"})
_STOPPED = frozenset({"deny", "denied", "block", "blocked", "reject", "rejected", "refused", "triggered", "escalate"})


def traces_of(spans: Iterable[Span], session: Session, *, system: str) -> Iterator[Trace]:
    """One trace per `Span.trace`, in the order in which they first appear; of the system whose dialect all of its spans speak
    where they say so, else of `system`.

    What dialects should know: of a model call, `input` is best the latest message only; a tool that is meant to start an
    agent names its type in `to`; `extra["response_id"]` tells two records of one model call apart from two calls.
    """
    groups: dict[str, list[Span]] = {}
    for span in spans:
        groups.setdefault(span.trace, []).append(span)
    for name, group in groups.items():
        spoken = {span.dialect for span in group if span.dialect is not None}
        draft = session.draft(name, name, system=spoken.pop() if len(spoken) == 1 else system)
        draft.has_one_clock = len({span.host for span in group if span.host is not None}) == 1
        _Tree(draft, group).put()
        yield from draft.traces()


class _Tree:
    """Puts the spans of one trace down, moment by moment."""

    def __init__(self, draft: Draft, spans: Iterable[Span]) -> None:
        self.draft = draft
        self.nest = Nest(spans, draft.report)
        self.spans = self.nest.spans
        self.calls, wrappers = self.nest.leaves()
        self._lend(wrappers)
        self.entries = Entries(self.nest, self.calls)
        self.events: dict[str, tuple[str, str]] = {}
        """Span to its first and its last event."""
        self.silent = {*wrappers, *self._repeated_tools()}
        self.running: dict[str, int] = {}
        self.finished: dict[str, str] = {}
        self.entered: dict[str, str] = {}
        """Agent to the event that set it to work, while that has no text."""
        self.met: set[str] = set()
        self.responses: set[str] = set()
        self.waits = Waits()
        self.worked: set[str] = set()
        """Agent spans inside which something happened."""

    def put(self) -> None:
        roots = self.nest.children[None]
        if roots and (name := self.spans[roots[0]].name):
            self.draft.meta[ROOT_SPAN] = name
        for name, is_start in self.nest.moments():
            span = self.spans[name]
            method = getattr(self, f"_{span.kind}_{'starts' if is_start else 'ends'}", None)
            if method is not None and name not in self.silent:
                method(span)
            self._wait(span, is_start=is_start)
        self._link()
        self._score()
        self._state_errors()
        still = sum(s.end is None for s in self.spans.values())
        self.draft.report.lacks.update({"the end of some spans: still running, or lost": still} if still else {})

    def _wait(self, span: Span, *, is_start: bool) -> None:
        """Draw what a call or a sub-agent waited for; a model call has its edges from what it read."""
        is_sub = span.kind == "agent" and span.id not in self.entries.inner and self.entries.boss_of(span.id) is not None
        is_call = span.kind in ("tool", "retriever", "llm") and span.id not in self.silent
        parent, event = self.nest.parent[span.id], self.events.get(span.id)
        if is_start:
            is_wrapper = not is_sub and (span.kind != "agent" or span.id in self.entries.inner)
            for before in self.waits.begins(span.id, parent, is_wrapper=is_wrapper):
                if event is not None and (is_sub or span.kind in ("tool", "retriever")):
                    self.draft.waits(before, event[0])
        elif span.end is not None:
            # Of a call its own event, which lasts until the answer is there: waiting for an answer is not reading it.
            own = None if event is None else event[1] if is_sub else event[0] if is_call else None
            self.waits.ends(span.id, parent, own)

    # -- who -------------------------------------------------------------------------------------------------------------

    def _lane(self, span: Span) -> Lane:
        """The lane of the agent that a span is the work of."""
        at = boss = self.nest.boss[span.id]
        is_named = span.agent is not None or span.agent_id is not None or span.definition is not None
        while at is not None and is_named:
            if _is_of(span, self.spans[at]):
                return self.draft.lane(self.nest.agents[at])
            at = self.nest.boss[at]
        if span.agent_id is not None:
            return self._own(span.agent_id, span.agent)
        if span.definition is not None and (span.agent is not None or boss is None):
            return self._own(span.definition, span.agent)
        if span.agent is not None:
            return self._own(span.agent, span.agent)
        if boss is None:
            return self._main(self.nest.root[span.id])
        return self.draft.lane(self.nest.agents[boss])

    def _main(self, name: str) -> Lane:
        """The lane of what no agent span is around: the main agent's, or of the only agent there is."""
        if (sole := self.entries.alone.get(name)) is not None:
            return self.draft.lane(sole)
        root = self.spans[name]
        return self.draft.lane(MAIN, role=root.name if root.kind == "chain" else None, leads=True)

    def _own(self, agent: str, role: str | None) -> Lane:
        """The lane of an agent that a span names, by id or by name, beside the nesting."""
        if agent not in self.entries.instances:
            known = self.entries.defined.get(agent) or self.entries.named.get(role or agent)
            agent = known or agent
        if not self.draft.has_lane(agent) and agent not in self.entries.instances and self.draft.rows:
            self.draft.report.loose(f"agent {role or agent}: named by its spans, its spawn is in none")
        return self.draft.lane(agent, role=role)

    def _mark(self, span: Span, event: str) -> None:
        first, _ = self.events.get(span.id, (event, event))
        self.events[span.id] = first, event
        above = self.nest.boss[span.id]
        while above in self.entries.inner:
            above = self.nest.boss[above]
        if above is not None:
            self.worked.add(above)

    # -- agents ----------------------------------------------------------------------------------------------------------

    def _agent_starts(self, span: Span) -> None:
        agent, boss = self.nest.agents[span.id], self.entries.boss_of(span.id)
        role = span.agent or span.name or None
        if span.id in self.entries.inner:
            return
        if span.id in self.entries.handed:  # a handoff span has told it already
            self.draft.lane(agent, role=role)
        elif boss is None:
            self._top_starts(span, agent, role)
        else:
            self._sub_starts(span, agent, boss, role)
        self.met.add(agent)

    def _sub_starts(self, span: Span, agent: str, boss: str, role: str | None) -> None:
        tool = self.spans.get(self.nest.via[span.id] or "")
        lane = self.draft.lane(boss, leads=boss == MAIN)
        text = span.input or (tool.input if tool else "")
        # By the caller's clock: what is inside it did not begin before it.
        at = self.nest.starts[span.id] if span.start is not None else tool.start if tool else None
        extra = _extra(span, tool_call=tool.call if tool else None, tool=(tool.tool or tool.name) if tool else None)
        if agent in self.met:  # set to work again
            event = lane.send(agent, text, at=at, id=span.id, extra=extra)
        else:
            event = lane.spawn(agent, role=role, text=text, at=at, id=span.id, extra=extra)
        rule = "an agent span within the time of a tool call" if span.id in self.nest.adopted else self.entries.led.get(span.id)
        self.draft.report.linked(rule or "an agent span inside its caller's", exact=rule is None)
        self._entered(agent, event, text)
        self._mark(span, event)

    def _top_starts(self, span: Span, agent: str, role: str | None) -> None:
        is_first = not self.draft.rows
        before = self.entries.before.get(span.id)
        # Of agents that follow one another under a workflow, none leads the others.
        lane = self.draft.lane(agent, role=role, leads=is_first and agent not in self.entries.before.values())
        if before is not None:
            text = span.input
            event = self.draft.lane(before).send(agent, text, at=span.start, id=span.id)
            self.draft.report.linked("agent spans one after the other under one workflow", exact=False)
            self._entered(agent, event, text)
            self._mark(span, event)
            return
        if span.input and (is_first or agent in self.met or len(self.met) < 2):
            self._mark(span, lane.prompt(span.input, at=span.start, id=f"{span.id}:input"))
        elif span.input:  # one more agent in the middle of a run: who asked it is not said
            by = {"by": "unknown", "source": "peer"}
            self._mark(span, lane.prompt(span.input, at=span.start, id=f"{span.id}:input", **by))
        is_known = is_first or lane.heard or lane.last or agent in self.met
        if span.id in self.nest.orphans or not is_known:
            self.draft.report.loose(f"agent {role or agent}: no span says who set it to work")

    def _entered(self, agent: str, event: str, text: str) -> None:
        if text:
            self.entered.pop(agent, None)
        else:
            self.entered[agent] = event

    def _agent_ends(self, span: Span) -> None:
        if span.id in self.entries.inner or not (span.end is not None or span.output or span.error):
            return
        agent, boss = self.nest.agents[span.id], self.entries.boss_of(span.id)
        lane = self.draft.lane(agent)
        usage = span.usage if span.id in self.entries.payers else None
        tool = self.spans.get(self.nest.via[span.id] or "")
        ok = span.ok if span.ok is not None or tool is None else tool.ok
        error = span.error or (tool.error if tool else None)
        if boss is not None:
            text = span.output or (tool.output if tool else "")
            if self._is_bare(span, lane):
                lane.step(at=span.start, end=span.end, text=text, usage=usage, model=span.model, id=f"{span.id}:return")
                usage = None
            event = lane.returns(boss, text, at=span.end, id=f"{span.id}:return", ok=ok, error=error, usage=usage)
        elif usage is not None or _has_returns(lane) or (span.output and lane.last is None):
            event = self._step(lane, span, f"{span.id}:output", usage)
            if self.entries.last[agent] == span.id:
                lane.stops()
        else:
            if self.entries.last[agent] == span.id:
                lane.stops()
            return
        self._mark(span, event)

    def _is_bare(self, span: Span, lane: Lane) -> bool:
        """Whether nothing says what an agent did in its span: then it worked from its beginning to its end."""
        if span.id in self.worked or span.start is None or span.end is None:
            return False
        latest = self.draft.rows[lane.last]["at"] if lane.last is not None else None
        return latest is None or latest < span.start

    def _chain_ends(self, span: Span) -> None:
        """A workflow that is over has read what the agents that it led returned."""
        if self.nest.parent[span.id] is None and span.end is not None and self.draft.has_lane(MAIN):
            lane = self.draft.lane(MAIN)
            if _has_returns(lane):
                self._mark(span, self._step(lane, span, f"{span.id}:output", None))
                lane.stops()

    # -- model calls -----------------------------------------------------------------------------------------------------

    def _llm_starts(self, span: Span) -> None:
        lane = self._lane(span)
        if span.input and (entry := self.entered.pop(lane.agent, None)):
            self.draft.set(entry, text=span.input)
        elif span.input and lane.last is None and not lane.heard:
            lane.prompt(span.input, at=span.start, id=f"{span.id}:input")
        if self.running.get(lane.agent):
            lane.last = self.finished.get(lane.agent)
        usage, response = span.usage, span.extra.get("response_id")
        if usage is not None and isinstance(response, str) and response:
            if response in self.responses:
                usage = None
                self.draft.report.mended["model calls that two spans tell: tokens counted once"] += 1
            self.responses.add(response)
        elif usage is None:
            self.draft.report.lacks["the tokens of some model calls"] += 1
        self._mark(span, self._step(lane, span, span.id, usage))
        self.running[lane.agent] = self.running.get(lane.agent, 0) + 1

    def _step(self, lane: Lane, span: Span, name: str, usage: Usage | None) -> str:
        fields: dict[str, Any] = {"ok": span.ok, "error": span.error, "cost_usd": span.cost_usd if usage is not None else None}
        thinking = span.extra.get("thinking")
        event = lane.step(
            at=None if span.kind != "llm" and _has_returns(lane) else span.start,  # what reads returns began when they were there
            end=span.end,
            text=span.output,
            thinking=thinking if isinstance(thinking, str) else "",
            usage=usage,
            model=span.model,
            id=name,
            extra=_extra(span),
            **fields,
        )
        assert event is not None
        return event

    def _llm_ends(self, span: Span) -> None:
        agent = self._lane(span).agent
        self.running[agent] -= 1
        self.finished[agent] = self.events[span.id][0]

    def _lend(self, wrappers: dict[str, str]) -> None:
        """What only the wrapper of one or more model calls says goes to the last of them."""
        paid = {w for w in wrappers if self.spans[w].usage is not None}
        for name in self.calls:
            up = self.nest.outer[name] if self.spans[name].usage is not None else None
            while up is not None:
                paid.discard(up)
                up = self.nest.outer[up]
        lent: set[str] = set()
        for wrapper, last in reversed(wrappers.items()):
            outer, inner = self.spans[wrapper], self.spans[last]
            inner.output, inner.model = inner.output or outer.output, inner.model or outer.model
            inner.input = inner.input or outer.input
            if wrapper in paid and last not in lent:
                lent.add(last)
                inner.usage, inner.cost_usd = outer.usage, inner.cost_usd or outer.cost_usd

    # -- tools -----------------------------------------------------------------------------------------------------------

    def _repeated_tools(self) -> set[str]:
        """Tool spans inside one of the same call, and tool spans that are an agent's spawn."""
        inside = {name for name in self.nest.order if self._repeats(name)}
        spawning: set[str] = set()
        for agent in self.nest.agents:
            tool = self.nest.via[agent]
            while tool is not None:
                spawning.add(tool)
                tool = self.nest.via[tool] if tool in inside else None
        return inside | spawning

    def _repeats(self, name: str) -> bool:
        span, outer = self.spans[name], self.spans.get(self.nest.via[name] or "")
        if span.kind != "tool" or outer is None:
            return False
        same_name = (span.tool or span.name) == (outer.tool or outer.name)
        return span.call == outer.call if span.call and outer.call else same_name

    def _tool_starts(self, span: Span) -> None:
        lane, tool = self._lane(span), span.tool or span.name or span.kind
        if span.to is not None:
            event = lane.spawn(
                None, role=span.to, text=span.input, at=span.start, id=span.id, ok=span.ok, error=span.error, tool=tool
            )
            if span.ok is not False:
                self.draft.report.loose(f"{tool} was to start {span.to}: no span of that agent")
        else:
            fields: dict[str, Any] = {"ok": span.ok, "error": span.error, "cost_usd": span.cost_usd}
            event = lane.call(tool, span.input, call=span.id, at=span.start, id=span.id, extra=_extra(span), **fields)
        self._mark(span, event)

    def _tool_ends(self, span: Span) -> None:
        if span.end is None and not span.output and not span.error:
            return
        lane, at = self._lane(span), span.end if span.end is not None else span.start
        tool = span.tool or span.name or span.kind
        text = span.output or span.error or ""
        self._mark(span, lane.result(span.id, text, at=at, id=f"{span.id}:result", tool=tool, ok=span.ok, error=span.error))

    _retriever_starts, _retriever_ends = _tool_starts, _tool_ends

    # -- the rest --------------------------------------------------------------------------------------------------------

    def _handoff_starts(self, span: Span) -> None:
        lane, target = self._lane(span), self.entries.targets.get(span.id)
        text = span.input or span.output
        fields: dict[str, Any] = {"ok": span.ok, "error": span.error, "extra": _extra(span)}
        if target is not None:
            self.draft.lane(target, role=span.to if span.to != target else None)
            event = lane.send(target, text, at=span.start, id=span.id, **fields)
            self.draft.report.linked("a handoff span")
            self._entered(target, event, text)
        else:
            event = lane.send(span.to, text, at=span.start, id=span.id, heard=False, **fields)
            self.draft.report.loose(f"handoff to {span.to or 'nobody'}: no agent span follows it")
        self._mark(span, event)

    def _guardrail_starts(self, span: Span) -> None:
        lane = self._lane(span)
        text = span.output or span.input or span.error or ""
        extra = _extra(span, verdict=span.verdict, guardrail=span.name or None)
        verdict = (span.verdict or "").lower()
        if verdict in _PASSED or (not verdict and span.ok is True):  # a guard that lets something pass is no incident
            by: dict[str, Any] = {"role": "system", "from_": "guardrail", "to": lane.agent, "source": "system", "trusted": True}
            event = self.draft.event(
                "message", "guardrail", id=span.id, at=span.start, end=span.end, text=text, extra=extra, ok=True, **by
            )
        else:
            ok = True if verdict in _STOPPED else span.ok  # of an event of safety: what it reports was stopped
            fields: dict[str, Any] = {"ok": ok, "error": span.error, "role": lane.role, "tool": span.tool}
            event = self.draft.event(
                "safety_event", lane.agent, id=span.id, at=span.start, end=span.end, text=text, extra=extra, **fields
            )
        self.draft.edge(lane.last, event, "causal")
        lane.hears(event)
        self._mark(span, event)

    def _human_starts(self, span: Span) -> None:
        lane = self._lane(span)
        before = lane.last
        text = span.output or span.input
        extra = _extra(span, verdict=span.verdict)
        event = lane.prompt(text, at=span.start, id=span.id, ok=span.ok, error=span.error, extra=extra)
        self.draft.set(event, end=span.end)
        self.draft.edge(before, event, "causal")
        self._mark(span, event)

    def _link(self) -> None:
        for span in self.spans.values():
            mine = self._event(span.id, 0) if span.links else None
            for other in span.links:
                if mine is None and span.kind == "evaluator":
                    continue  # a score stands on the event of what was scored: the link has done its work there
                if mine is None or other not in self.spans:
                    self.draft.report.lacks["spans that a link names"] += 1
                    continue
                is_over = self.nest.spans[other].end is not None and not self.nest.overlap(other, span.id)
                self.draft.edge(self._event(other, 1 if is_over else 0), mine, "causal")

    def _event(self, name: str, which: int) -> str | None:
        """The first (0) or last (1) event of a span, or of what is inside it where it has none of its own."""
        stack = [name]
        while stack:
            at = stack.pop()
            if at in self.events:
                return self.events[at][which]
            inside = self.nest.children.get(at, [])
            stack.extend(inside if which else reversed(inside))
        return None

    def _state_errors(self) -> None:
        """An error of what is no event of its own (a turn, a node of a workflow, a top agent) stands on the last event inside
        it, once: errors are passed up, and the innermost has told them."""
        errors: dict[str, set[str]] = {}
        for name in reversed(self.nest.order):
            span, above = self.spans[name], self.nest.parent[name]
            mine = errors.pop(name, set())
            error = (span.error or "").strip()
            is_top = span.kind == "agent" and self.entries.boss_of(name) is None and name not in self.entries.inner
            if (span.kind == "chain" or is_top) and error and not any(_same_error(error, other) for other in mine):
                self._state(name, span, error)
            elif is_top and span.ok is False and not mine and (last := self._event(name, 1)) is not None:
                self.draft.set(last, ok=False)
            if above is not None:
                errors.setdefault(above, set()).update(mine | ({error} if error else set()))

    def _state(self, name: str, span: Span, error: str) -> None:
        event = self._event(name, 1)
        if event is None or "error" in self.draft.rows[event]:
            lane = self._lane(span)
            at = span.end if span.end is not None else span.start
            extra = _extra(span, step=span.name or None)
            fields: dict[str, Any] = {"ok": False, "error": error[:500], "extra": extra}
            event = lane.prompt(error, by="system", source="system", at=at, id=f"{span.id}:error", **fields)
            self._mark(span, event)
        else:
            self.draft.set(event, ok=False, error=error[:500], extra={"failed_step": span.name or None})

    def _score(self) -> None:
        """Scores stand on the event of what was scored; those of the whole run are the trace's rewards."""
        for name in self.nest.order:
            span = self.spans[name]
            if not span.reward:
                continue
            scored = next((n for n in span.links if n in self.spans), None) if span.kind == "evaluator" else name
            at = scored or self.nest.parent[name]
            while at is not None and at not in self.events:
                at = self.nest.parent[at]
            event = None if at is None else self.events[at][1]
            if event is None or at is None or self.nest.parent[at] is None:
                for key, value in span.reward.items():
                    self.draft.rewards[_fresh(key, self.draft.rewards)] = value
            if event is not None:
                self.draft.set(event, reward={**self.draft.rows[event].get("reward", {}), **span.reward})


def _has_returns(lane: Lane) -> bool:
    """Whether something was returned to an agent that no step of it has read; one that waits for a person has read nothing."""
    if not lane.heard or lane.draft.rows[lane.heard[-1][0]]["type"] == "human_intervention":
        return False
    return any(edge == "return" for _, edge in lane.heard)


def _same_error(a: str, b: str) -> bool:
    """Whether two errors are one that was passed up, perhaps with words around it."""
    return a[:200] in b or b[:200] in a


def _is_of(span: Span, above: Span) -> bool:
    """Whether a span is the work of the agent whose span is above it: by the most exact name that both have."""
    if span.agent_id and above.agent_id:
        return span.agent_id == above.agent_id
    if span.definition and above.definition:
        return span.definition == above.definition
    return above.agent == span.agent


def _extra(span: Span, **more: Any) -> dict[str, Any]:
    extra = {k: v for k, v in span.extra.items() if k != "thinking"}
    return {**extra, **{k: v for k, v in more.items() if v is not None}}


def _fresh(name: str, used: Mapping[str, Any]) -> str:
    k, unique = 2, name
    while unique in used:
        unique, k = f"{name}~{k}", k + 1
    return unique
