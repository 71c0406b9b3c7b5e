"""Forks of logged sessions: a model answers anew from one turn on, with what the log says it had been told.

As long as the answers are those of the log (the same words, the same calls with equal arguments) the session goes on as it was,
people's words included, and its events are taken over. The first answer that differs ends that; from there on the model is asked
until it calls nothing. A call is then answered from the recording where an equal call (the same tool, equal arguments) was
answered there and nothing else can have changed what it saw: the calls since the fork point that may change something are, in
their order, those that the recording had made before it (`RecordedAnswers`). What is left is answered as `tools` says.

Always true: an event before the fork point is as it was recorded, the edited one apart; whoever answered a call in place of the
recording stands in its result's `extra.answered_by`, and a model's guess is not trusted. No more calls are made and no more
tokens are spent than the plan says. The recorded trace is not changed.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from msgspec.structs import replace

from counterpoint.errors import InputError, NotIdentified, Refused
from counterpoint.lab.lm.budget import Budget, Meter, Metered, prompt_tokens_of
from counterpoint.lab.lm.model import Call, Completion, Message, Model, ModelFailed
from counterpoint.lab.team.log_tools import LogTools, RecordedAnswers, ToolAnswer
from counterpoint.trace import Edge, Event, Trace, summed_costs
from counterpoint.trace.conversation import Conversation, Reply, call_id, is_compaction
from counterpoint.trace.keys import TITLE
from counterpoint.trace.line_records import OPEN_EVENTS
from counterpoint.trace.naming import title_of
from counterpoint.trace.replay import Do
from counterpoint.trace.tool_signatures import tools_of
from counterpoint.trace.trace import content_ref
from counterpoint.trace.turn_edits import Start, start_of

FREE = ("fake", "scripted", "local")
CAPS: Mapping[str, type] = {"calls": int, "tokens": int, "usd": float, "seconds": float}
_CALLS = 20
_ANSWER = 4096
"""Tokens of one answer."""
_SHOWN = 24
_TOO_LONG = "a model with a longer context, or an event before which less was said"


@dataclass(frozen=True)
class LogPlan:
    """What a fork may take at the most."""

    model: str
    calls: int
    tokens: int
    usd: float | None
    """None where no price is known."""
    is_free: bool
    prompt: int
    """Tokens of the first prompt, estimated."""


def call_of(messages: list[dict[str, Any]], tools: list[dict[str, Any]], seed: int = 0) -> Call:
    """Messages as OpenAI's protocol has them, as a model is asked."""
    told = tuple(Message(m["role"], m["content"], tuple(m.get("tool_calls", ())), m.get("tool_call_id")) for m in messages)
    return Call(messages=told, tools=tuple(tools), max_tokens=_ANSWER, stop=(), seed=seed)


class LogReplay:
    """Forks of logs by a model that is named."""

    def __init__(
        self, model: Model, *, tools: str = "stop", caps: Mapping[str, Any] | None = None, allow: Collection[str] = ()
    ) -> None:
        """`tools`: who answers what the recording cannot: `stop`, `model`, or a tool of ours, such as `python`."""
        if model.name.partition(":")[0] == "local":
            fix = "counterpoint models serve NAME, then --model openai:NAME --base-url http://127.0.0.1:8000/v1"
            raise InputError("a local model speaks with tools through its endpoint", where="--model", fix=fix)
        self._model, self._tools, self._caps, self._allow = model, tools, dict(caps or {}), tuple(allow)
        for name, value in self._caps.items():
            if name not in CAPS or isinstance(value, bool) or not isinstance(value, (int, float)) or value < 0:
                raise InputError(f"{name} = {value!r} is no limit", where="cap", fix=f"numbers of {', '.join(CAPS)}")

    def plan(self, trace: Trace, at: str, do: Do | None = None) -> LogPlan:
        """What a fork may take: the first prompt, and one answer longer with each call."""
        start = start_of(trace, at, do)
        call = call_of(start.conversation.prompt(start.turn), tools_of(start.conversation)[0])
        prompt, calls = prompt_tokens_of(call), int(self._caps.get("calls", _CALLS))
        most = calls * (prompt + _ANSWER) + _ANSWER * calls * max(calls - 1, 0) // 2
        tokens = min(most, int(self._caps.get("tokens", most)))
        price = getattr(self._model, "price", None)
        usd = None if price is None else (max(tokens - calls * _ANSWER, 0) * price.input + calls * _ANSWER * price.output) / 1e6
        is_free = self._model.name.partition(":")[0] in FREE
        return LogPlan(self._model.name, calls, tokens, usd, is_free, prompt)

    def fork(self, trace: Trace, at: str, do: Do | None = None, seed: int | None = None) -> Trace:
        """The session as it goes on from the turn at event `at`."""
        start, plan = start_of(trace, at, do), self.plan(trace, at, do)
        if plan.calls < 1:
            raise InputError("no call is allowed", where="cap", fix="as in --cap calls=5")
        budget = Budget(tokens=plan.tokens, usd=self._caps.get("usd"), seconds=self._caps.get("seconds"))
        model = Metered(self._model, Meter(budget))
        run = _Run(trace, start, at, model, plan.calls, self._tools, self._allow, seed or 0)
        return _alone(run)

    def forks(self, trace: Trace, forks: Any) -> Any:
        """No effect is estimated: nobody scored the session, and its tools cannot be run again."""
        raise NotIdentified("the effect of a change on a log has no score", "fork without --samples", where=trace.trace_id)

    returns = forks


@dataclass
class _Rows:
    """Events that come after the fork point, in their order."""

    events: list[Event] = field(default_factory=list)
    edges: list[Edge] = field(default_factory=list)
    contents: dict[str, str] = field(default_factory=dict)
    t: float = 0.0

    def add(self, event: Event, text: str = "", *, badge: str, seconds: float = 0.0) -> Event:
        fields: dict[str, Any] = {"t": self.t, "at": None, "extra": {**(event.extra or {}), "badge": badge}}
        if text:
            ref = content_ref(text)
            self.contents[ref] = text
            fields["content_ref"] = ref
        made = replace(event, **fields)
        self.events.append(made)
        self.t = round(self.t + seconds, 6)
        return made

    def link(self, src: str | None, dst: str, kind: Any) -> None:
        edge = Edge(src, dst, kind) if src is not None else None
        if edge is not None and edge not in self.edges:
            self.edges.append(edge)


class _Run:
    """One fork under way."""

    def __init__(
        self, original: Trace, start: Start, at: str, model: Metered, calls: int, tools: str, allow: tuple[str, ...], seed: int
    ) -> None:
        self.original, self.start, self.at, self.model, self.left, self.seed = original, start, at, model, calls, seed
        self.conversation: Conversation = start.conversation
        self.functions, self.notes = tools_of(self.conversation)
        self.tools = LogTools(tools, model, self.functions, allow)
        self.rows = _Rows()
        self.asked, self.recorded, self.answered = 0, 0, 0
        self.repeats: dict[str, Event] = {}
        """Calls that read again what the recording had read, with its answer."""
        self.held: list[str] = []
        self.seconds = 0.0
        self.ended = ""
        self.failed: str | None = None

    async def play(self) -> Trace:
        """From the fork point to the end."""
        try:
            place = await self._as_recorded()
            if place is not None:
                await self._anew(*place)
        finally:
            await self.tools.close()
            await self.model.close()
        return self._whole(None if place is None else self.conversation.turns[place[0]].place)

    async def _ask(self, messages: list[dict[str, Any]]) -> tuple[Reply, Completion] | None:
        """The model's answer; None where it may not be asked again, or gave none."""
        if self.left < 1:
            self.ended = "the calls that were allowed are made"
            return None
        self.left -= 1
        begun = time.monotonic()
        try:
            answer = await self.model.complete(call_of(messages, self.functions, self.seed + self.asked))
        except ModelFailed as failed:
            if self.asked == 0:
                raise _plain(failed, self.at) from failed
            self.ended = self.failed = failed.one_line()
            return None
        self.asked += 1
        self.seconds = round(time.monotonic() - begun, 3)
        return Reply(answer.text, tuple((str(c["name"]), str(c["arguments"])) for c in answer.tool_calls)), answer

    async def _as_recorded(self) -> tuple[int, Reply, Completion | None] | None:
        """Go along with the log while the answers are its own; the first turn that is not, and its answer."""
        forced, turns = self.start.forced, self.conversation.turns
        for i in range(self.start.turn, len(turns)):
            said, is_first = self.conversation.reply(i), i == self.start.turn
            if not is_first and (is_compaction(turns[i]) or not (said.text or said.calls)):
                continue
            if is_first and is_compaction(turns[i]):
                what = "the client asked for a summary there, in words that the log does not have"
                raise InputError(what, where=self.at, fix="fork at an event before or after the compaction")
            if is_first and forced is not None:
                found: tuple[Reply, Completion | None] | None = (forced, None)
            else:
                found = await self._ask(self.conversation.prompt(i))
            if found is None:
                return (i, Reply(""), None)
            if found[0].key != said.key:
                return (i, *found)
            self.recorded += found[1] is not None
        self.ended = "as recorded, to the end"
        return None

    async def _anew(self, turn: int, said: Reply, answer: Completion | None) -> None:
        """Go on by ourselves from a turn that is not the log's."""
        turns = self.conversation.turns
        kept = self.conversation.order[: turns[turn].place]
        self.rows.t = max((float(e.t) for e in kept), default=0.0)
        if not (said.text or said.calls):
            return
        messages = self.conversation.prompt(turn)
        answers = RecordedAnswers(self.conversation, self.start.turn, turn)
        reads = [e.id for e in self.conversation.heard[turn]]
        last = next((e.id for e in reversed(kept) if e.agent == self.conversation.agent), None)
        while True:
            results = await self._turn(messages, said, answer, answers, reads or ([last] if last else []))
            if results is None:
                return
            reads = results
            found = await self._ask(messages)
            if found is None:
                return
            said, answer = found

    async def _turn(
        self, messages: list[dict[str, Any]], said: Reply, answer: Completion | None, answers: RecordedAnswers, reads: list[str]
    ) -> list[str] | None:
        """Put an answer down, and answer its calls; None at the end."""
        step = self._step(said, answer, reads)
        if not said.calls:
            messages.append({"role": "assistant", "content": said.text})
            is_cut = answer is not None and answer.finish == "length"
            self.ended = f"the answer was cut after {_ANSWER:,} tokens" if is_cut else "the agent called nothing more"
            return None
        called = [self._call(step, tool, arguments, answers) for tool, arguments in said.calls]
        told = [{"id": call_id(e), "type": "function", "function": {"name": tool, "arguments": arguments}}
                for e, (tool, arguments) in zip(called, said.calls, strict=True)]  # fmt: skip
        messages.append({"role": "assistant", "content": said.text, "tool_calls": told})
        results = []
        for event, (tool, arguments) in zip(called, said.calls, strict=True):
            result = await self._result(event, tool, arguments, answers)
            if result is None:
                self.held.append(tool)
                self.ended = f"nobody answers {tool}: {self.tools.why(tool)}"
                continue
            results.append(result[0])
            messages.append({"role": "tool", "tool_call_id": call_id(event), "content": result[1]})
        return None if self.held else results

    def _step(self, said: Reply, answer: Completion | None, reads: list[str]) -> Event:
        agent, is_model = self.conversation.agent, answer is not None
        seconds = self.seconds if is_model else 0.0
        sources = [self._event(src) for src in reads]
        kind = self._kind(said, sources)
        last = self.conversation.turns[-1].step
        to = last.to if kind == "return" and last is not None else None
        extra: dict[str, Any] = {"aloud": True} if kind == "message" else {}
        extra |= {} if is_model else {"edited": True}
        step = Event(
            id=self._fresh("step"), t=0, type=kind, agent=agent, turn=self.start.turn + self.asked, to=to,
            role=self._role(), model=self.model.name.partition(":")[2] or self.model.name if is_model else None,
            tokens_in=answer.tokens_in if answer else None, tokens_out=answer.tokens_out if answer else None,
            cost_usd=answer.cost_usd if answer else None, dur=seconds if is_model else None, extra=extra,
        )  # fmt: skip
        made = self.rows.add(step, said.text, badge="re-run", seconds=seconds)
        for read in sources:
            is_return = read.type == "return" and read.agent != agent
            back = "aggregate" if kind == "aggregate" else "return"
            self.rows.link(read.id, made.id, "causal" if read.agent == agent else back if is_return else "message")
            if read.trusted is False:
                self.rows.link(read.id, made.id, "safety_flow")
        return made

    def _kind(self, said: Reply, sources: list[Event]) -> Any:
        """What an importer would call such a step."""
        if sum(e.type == "return" and e.agent != self.conversation.agent for e in sources) >= 2:
            return "aggregate"
        last = self.conversation.turns[-1].step
        if not said.calls and last is not None and last.type == "return":
            return "return"
        return "orchestrator_decision" if self._leads() else "message"

    def _call(self, step: Event, tool: str, arguments: str, answers: RecordedAnswers) -> Event:
        """The event of a call: the recorded one where it is answered by the recording."""
        recorded = answers.take(tool, arguments)
        if recorded is not None:
            made = self.rows.add(recorded, badge="recorded")
        else:
            event = Event(id=self._fresh("call"), t=0, type="tool_call", agent=step.agent, tool=tool, role=step.role)
            made = self.rows.add(event, arguments if arguments != "{}" else "", badge="re-run")
            if (result := answers.again(tool, arguments)) is not None:
                self.repeats[made.id] = result
        self.rows.link(step.id, made.id, "causal")
        return made

    async def _result(self, call: Event, tool: str, arguments: str, answers: RecordedAnswers) -> tuple[str, str] | None:
        """The event and the text that answer a call; None where nobody answers it."""
        if answers.has(call.id):
            for event in answers.between(call.id):
                self.rows.add(event, badge="recorded")
            result = answers.result(call.id)
            made = self.rows.add(result, badge="recorded")
            self.rows.link(call.id, made.id, "tool_dependency" if result.type == "tool_result" else "causal")
            self.answered += 1
            return made.id, self.original.text(result) or self.conversation.trace.text(result) or ""
        found = self._repeated(call) or await self.tools.answer(call, tool, arguments, answers.examples(tool))
        if found is None:
            return None
        event = Event(
            id=f"{call.id}:result", t=0, type="tool_result", agent=call.agent, tool=tool, role=call.role, ok=found.ok,
            error=found.error, source="tool", trusted=False, extra={"answered_by": found.by},
        )  # fmt: skip
        made = self.rows.add(event, found.text, badge="simulated" if found.is_guess else "re-run")
        self.rows.link(call.id, made.id, "tool_dependency")
        return made.id, found.text

    def _repeated(self, call: Event) -> ToolAnswer | None:
        """What an equal read of the recording was answered in the same state."""
        result = self.repeats.get(call.id)
        if result is None:
            return None
        self.answered += 1
        text = self.original.text(result) or self.conversation.trace.text(result) or ""
        return ToolAnswer(text, "the recording, of an equal read", result.ok, result.error)

    # -- the whole -------------------------------------------------------------------------------------------------------

    def _event(self, name: str) -> Event:
        place = self.conversation.place.get(name)
        return self.conversation.order[place] if place is not None else next(e for e in self.rows.events if e.id == name)

    def _fresh(self, kind: str) -> str:
        names = self.conversation.place
        k = len(self.rows.events) + 1
        while f"fork_{kind}{k}" in names:
            k += 1000
        return f"fork_{kind}{k}"

    def _leads(self) -> bool:
        agent = self.conversation.agent
        own = [t.step.type for t in self.conversation.turns if t.step is not None]
        return "orchestrator_decision" in own or "aggregate" in own or (not own and agent == "main")

    def _role(self) -> str | None:
        return next((e.role for t in self.conversation.turns for e in t.events if e.type != "spawn" and e.role), None)

    def _whole(self, parted: int | None) -> Trace:
        """The fork: what was kept, then what came anew."""
        source, order = self.start.trace, self.conversation.order
        first = self.conversation.turns[self.start.turn].place
        kept = order if parted is None else order[:parted]
        edited = {e.id for e in kept if (e.extra or {}).get("edited") and self._is_new(e)}
        badges = {e.id: "re-run" if e.id in edited else "reused" if k < first else "recorded" for k, e in enumerate(kept)}
        events = [replace(e, extra={**(e.extra or {}), "badge": badges[e.id]}) for e in kept] + self.rows.events
        here = {e.id for e in events}
        edges = [e for e in source.edges if e.src in here and e.dst in here and not self._is_replaced(e)] + self.rows.edges
        once = {(e.src, e.dst, e.type): e for e in edges}
        root = source.meta.get("root", source.trace_id.split("~")[0])
        return replace(
            source, trace_id=f"{root}~{self._tag()}", events=events, edges=list(once.values()),
            contents={**source.contents, **self.rows.contents}, rewards={}, metrics=None,
            costs=dict(summed_costs(events)), meta=self._meta(source, len(order) - len(kept)),
        )  # fmt: skip

    def _is_new(self, event: Event) -> bool:
        place = self.original.index.get(event.id)
        return place is None or self.original.events[place].content_ref != event.content_ref

    def _is_replaced(self, edge: Edge) -> bool:
        """An edge of the recording into a call that another step makes in the fork."""
        anew = {e.id for e in self.rows.events}
        return edge.dst in anew and edge.type != "tool_dependency" and edge.src not in anew

    def _meta(self, source: Trace, gone: int) -> dict[str, Any]:
        calls = {"recorded": self.recorded, "re-run": self.asked - self.recorded, "tools": self.tools.count}
        about: dict[str, Any] = {
            "of": "log", "at": self.at, "model": self.model.name, "tools": self.tools.who, "calls": calls,
            "answers": {"recording": self.answered, **self.tools.counts}, "held": self.held, "ended": self.ended,
            "dropped": gone, "notes": [*self.conversation.notes(self.start.turn), *self.notes],
        }  # fmt: skip
        spent = self.model.meter.spending
        about |= {"spent": {"tokens": spent.tokens, "usd": spent.usd, "calls": spent.calls}}
        same = {k: v for k, v in source.meta.items() if k not in ("fork", "parent", "failed", "outcomes", "ended")}
        title = title_of(self.original)
        same |= {TITLE: f"fork at {self.at[:_SHOWN]}: {title}"} if title else {}
        same |= {OPEN_EVENTS: []}  # it is over, also where nobody answered a call
        failed = {"failed": self.failed} if self.failed else {}
        forked = {"parent": self.original.trace_id, "forked_from": self.original.trace_id}
        return same | forked | {"fork": about} | failed

    def _tag(self) -> str:
        what = f"{self.at}|{self.model.name}|{self.start.forced}|{self.seed}|{self.tools.who}|"
        what += "|".join(f"{e.id}{e.content_ref}" for e in self.start.trace.events if (e.extra or {}).get("edited"))
        return content_ref(what).removeprefix("sha256:")[:8]


def _plain(failed: ModelFailed, at: str) -> Exception:
    """The first call's failure: what the endpoint said, and what would work."""
    if failed.kind == "too long":
        return NotIdentified(f"the conversation before {at} is longer than the model's context", _TOO_LONG, where=failed.where)
    if failed.kind == "budget":
        return Refused(failed.what, where=at, fix=failed.fix)
    return failed


def _alone(run: _Run) -> Trace:
    """Run it to its end, also where a loop runs already, as in a notebook."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(run.play())
    out: list[Trace | BaseException] = []

    def work() -> None:
        try:
            out.append(asyncio.run(run.play()))
        except BaseException as error:
            out.append(error)

    thread = threading.Thread(target=work, name="counterpoint-fork")
    thread.start()
    thread.join()
    if isinstance(out[0], BaseException):
        raise out[0]
    return out[0]
