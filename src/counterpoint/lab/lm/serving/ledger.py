"""Whose calls were answered: each as an event of its agent, in the trace that its caller named.

Always true: a caller is named by headers, or by the conversation: what begins with a conversation that was answered before goes
on with its agent, and what begins with other words of the system is another role. A call of a recording of this process becomes
part of that recording's own event. Nothing is made up: no spawn and no message that nobody saw; an edge says that a prompt holds
what another call had answered, word for word.
"""

from __future__ import annotations

import hashlib
import json
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from counterpoint.errors import CounterpointError, InputError, TryAgain
from counterpoint.lab.lm.serving.backend import SpokenAnswer
from counterpoint.lab.lm.serving.callers import Caller
from counterpoint.recorder.lanes import Lanes, RecordingSession, running
from counterpoint.recorder.memory_run import MemoryRun
from counterpoint.recorder.recorder import Recorder
from counterpoint.store import Run, Store
from counterpoint.trace import Trace
from counterpoint.trace.keys import BEGAN, TITLE
from counterpoint.trace.model_calls import PromptIds

_SHORTEST_QUOTE = 12
"""Characters of an answer whose return in a prompt is no accident."""
_MANY = 200
_MOST_KNOWN = 2000
"""Answers and conversations of a trace that are remembered: a caller may never say that a trace is over."""


class _CallClock:
    """Times that are set for each call."""

    at = 0.0

    def start(self, agent: str, reads: object) -> float:
        """When the call came."""
        return self.at

    def end(self, event: str, agent: str, t: float, dur: float | None) -> float:
        """What it took."""
        return dur or 0.0

    def restore(self, event: str, agent: str, t: float, dur: float) -> None:
        """Nothing is resumed."""


@dataclass
class _Page:
    """One trace that is being written."""

    run: Run | MemoryRun
    clock: _CallClock
    recorder: Recorder
    began: float
    latest: float
    prompts: PromptIds = field(default_factory=PromptIds)
    talks: dict[str, tuple[str, str]] = field(default_factory=dict)
    """Each conversation that was answered, by its digest: agent and role."""
    roles: dict[str, str] = field(default_factory=dict)
    """The words of the system to the role."""
    role_of: dict[str, str] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)
    last: dict[str, str] = field(default_factory=dict)
    """Agent to its last event."""
    answers: dict[str, str] = field(default_factory=dict)
    """What was answered, to the latest event that said it."""


class Ledger:
    """Writes answered calls into a store, or into traces in memory; any thread may."""

    def __init__(
        self, store: Store | None, *, task: str = "served", idle_s: float = 300.0, clock: Callable[[], float] = time.time
    ) -> None:
        """A trace to which nothing comes for `idle_s` seconds is sealed."""
        self._store, self._task, self._idle_s, self._clock = store, task, idle_s, clock
        self._lock = threading.Lock()
        self._pages: dict[str, _Page] = {}
        self._unnamed: str | None = None
        self.problems: list[str] = []

    def add(self, caller: Caller, spoken: SpokenAnswer, seconds: float) -> None:
        """A call was answered, after so many seconds."""
        try:
            with self._lock:
                session = None if caller.trace is None else running(caller.trace)
                if session is not None:
                    self._into(session, caller, spoken)
                else:
                    self._write(self._page(caller.trace), caller, spoken, seconds)
        except (CounterpointError, OSError) as error:
            self.problems.append(str(error))

    def finish(
        self, trace_id: str, rewards: Mapping[str, float] | None = None, meta: Mapping[str, Any] | None = None
    ) -> Trace | None:
        """End a trace with what its team earned; None where nothing was said in it."""
        with self._lock:
            page = self._pages.pop(trace_id, None)
            if self._unnamed == trace_id:
                self._unnamed = None
            return None if page is None else page.run.finish(dict(rewards or {}), None, None, dict(meta or {}))

    def sweep(self) -> list[str]:
        """Seal the traces to which nothing has come for long; gives their ids."""
        latest = self._clock() - self._idle_s
        with self._lock:
            over = [name for name, page in self._pages.items() if page.latest < latest]
        for name in over:
            self.finish(name)
        return over

    def close(self) -> None:
        """Seal all traces."""
        for name in list(self._pages):
            self.finish(name)

    # -- one trace -------------------------------------------------------------------------------------------------------

    def _page(self, trace_id: str | None) -> _Page:
        name = trace_id or self._unnamed
        if name is None:
            name = self._unnamed = f"{self._task}-{time.strftime('%Y%m%d-%H%M%S', time.gmtime(self._clock()))}"
        if name not in self._pages:
            now, meta = self._clock(), {TITLE: self._task, BEGAN: round(self._clock(), 3)}
            run, clock = self._run(name, meta), _CallClock()
            self._pages[name] = _Page(run, clock, Recorder(run, clock), now, now)
        return self._pages[name]

    def _run(self, name: str, meta: dict[str, Any]) -> Any:
        if self._store is None:
            return MemoryRun(name, self._task)
        try:
            return self._store.record(name, task_id=self._task, meta=meta)
        except (InputError, TryAgain):  # it is recorded by its own process: ours stands beside it
            return self._store.record(f"{name}-calls-{int(meta[BEGAN])}", task_id=self._task, meta=meta)

    def _write(self, page: _Page, caller: Caller, spoken: SpokenAnswer, seconds: float) -> None:
        agent, role = self._speaker(page, caller, spoken)
        page.latest = self._clock()
        page.clock.at = round(max(0.0, page.latest - page.began - seconds), 6)
        before = page.last.get(agent)
        read = {event: "causal" for event in _quoted(spoken.messages, page.answers) if event != before}
        reads = [*([(before, "temporal")] if before else []), *read.items()]
        note = self._note(page, agent, spoken)
        is_leading = role == "orchestrator"
        extra = {"call": note} | ({} if is_leading else {"aloud": True})
        text = answer_text(spoken)
        event = page.recorder.event(
            agent, "orchestrator_decision" if is_leading else "message", reads=reads, text=text, dur=round(seconds, 6), role=role,
            model=spoken.model, tokens_in=spoken.tokens_in, tokens_out=spoken.tokens_out, extra=extra,
        )  # fmt: skip
        if spoken.prompt_ids is not None:
            page.prompts.add(agent, event, note["prompt_ids"], spoken.prompt_ids, spoken.token_ids)
        page.last[agent] = event
        if len(spoken.text.strip()) >= _SHORTEST_QUOTE:
            page.answers[spoken.text.strip()] = event
        _forget_oldest(page.answers)
        _forget_oldest(page.talks)

    def _speaker(self, page: _Page, caller: Caller, spoken: SpokenAnswer) -> tuple[str, str]:
        """The agent and its role: as named, or by the conversation."""
        rows = [_row(message) for message in spoken.messages]
        known = None
        for k in range(len(rows), 0, -1):
            if rows[k - 1][0] == "assistant" and (known := page.talks.get(_digest(rows[:k]))):
                break
        role = caller.role or page.role_of.get(caller.agent or "") or (known[1] if known else None)
        if role is None:
            words = rows[0][1] if rows[0][0] == "system" else ""
            role = caller.agent or page.roles.setdefault(words, f"role-{len(page.roles) + 1}")
        agent = caller.agent or (known[0] if known else None)
        if agent is None:
            page.counts[role] = count = page.counts.get(role, 0) + 1
            agent = f"{role}.{count}"
        page.role_of[agent] = role
        answer = _row({"role": "assistant", "content": spoken.text, "tool_calls": spoken.calls})
        page.talks[_digest([*rows, answer])] = agent, role
        return agent, role

    def _note(self, page: _Page, agent: str, spoken: SpokenAnswer) -> dict[str, Any]:
        """The call as an event keeps it."""
        note = call_facts(spoken)
        note |= {"prompt": {"more": [page.run.content(_row(message)[1]) for message in spoken.messages]}}
        note |= {"completion": page.run.content(spoken.text)}
        if spoken.prompt_ids is not None:
            note["prompt_ids"] = page.prompts.note(agent, spoken.prompt_ids)
        return note

    def _into(self, session: RecordingSession, caller: Caller, spoken: SpokenAnswer) -> None:
        """Part of a recording of this process: the model call that is open there gets what is known of it."""
        note = call_facts(spoken) | ({} if spoken.prompt_ids is None else {"prompt_ids": list(spoken.prompt_ids)})
        session.do(_note_call, session.lanes, caller, spoken, note)


def _note_call(lanes: Lanes, caller: Caller, spoken: SpokenAnswer, note: Mapping[str, Any]) -> None:
    """A call in a recording: of the model's step that is open there, or a step of its own."""
    scopes = [scope for lane in lanes.lanes.values() for scope in lane.scopes if caller.agent in (None, lane.agent)]
    named = [scope for scope in scopes if scope.event == caller.event] if caller.event is not None else []
    scope = (named or scopes or [lanes.root])[-1]
    if scope.outer is not None and scope.outer.lane is scope.lane and scope.tool is None:
        scope.outcome["extra"] = {**(scope.outcome.get("extra") or {}), "call": dict(note)}
        return
    step = lanes.begin_step(scope, model=spoken.model)
    extra = {"call": dict(note)}
    lanes.end(step, answer_text(spoken), tokens_in=spoken.tokens_in, tokens_out=spoken.tokens_out, extra=extra)


def call_facts(spoken: SpokenAnswer) -> dict[str, Any]:
    """What is known of an answer, but for its prompt."""
    facts: dict[str, Any] = {"response": spoken.id, "version": spoken.version or None, "temperature": spoken.temperature}
    facts |= {"token_ids": _list(spoken.token_ids), "logps": _list(spoken.logps)}
    return {name: value for name, value in facts.items() if value is not None}


def _forget_oldest(memory: dict[str, Any]) -> None:
    while len(memory) > _MOST_KNOWN:
        del memory[next(iter(memory))]


def _list(values: Sequence[Any] | None) -> list[Any] | None:
    return None if values is None else list(values)


def answer_text(spoken: SpokenAnswer) -> str:
    """The text of an answer, with its calls."""
    calls = [f"{call.name}({call.arguments})" for call in spoken.calls]
    return "\n".join([*([spoken.text] if spoken.text or not calls else []), *calls])


def _row(message: Mapping[str, Any]) -> tuple[str, str]:
    """A message as role and text; tool calls are part of the text."""
    text = str(message.get("content") or "").strip()
    calls = [_call_text(call) for call in message.get("tool_calls") or ()]
    return str(message["role"]), "\n".join([*([text] if text else []), *calls])


def _call_text(call: Any) -> str:
    """A call with arguments in one way of writing them."""
    name, given = (call["function"]["name"], call["function"]["arguments"]) if isinstance(call, Mapping) else call
    if isinstance(given, str):
        try:
            given = json.loads(given)
        except ValueError:
            return f"{name} {given}"
    return f"{name} {json.dumps(given, sort_keys=True)}"


def _digest(rows: Sequence[tuple[str, str]]) -> str:
    return hashlib.blake2b(json.dumps(rows).encode(), digest_size=16).hexdigest()


def _quoted(messages: Sequence[Mapping[str, Any]], answers: Mapping[str, str]) -> list[str]:
    """The events whose answers these messages hold, word for word."""
    texts, some = [str(message.get("content") or "") for message in messages], list(answers)
    if len(some) > _MANY:  # then it is quicker to know first which of them begin anywhere in a text
        size = _SHORTEST_QUOTE
        begins = {text[at : at + size] for text in texts for at in range(len(text) - size + 1)}
        some = [answer for answer in some if answer[:size] in begins]
    return [answers[answer] for answer in some if any(answer in text for text in texts)]
