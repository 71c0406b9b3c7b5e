"""An Inspect sample played into a draft: each model event is a step of its agent, and what its input holds was heard.

Always true: an agent hears a message once, however many prompts repeat it; tokens stand on the model event that states them,
and nowhere for an answer from the cache; a tool's answer is put down when its agent goes on, so that what happened inside the
tool comes before it.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import Any

from counterpoint.formats.draft import Draft
from counterpoint.formats.importing.chat import Call, ChatMemory, Message, message_of
from counterpoint.formats.importing.lane import Lane
from counterpoint.formats.importing.values import as_dict, as_list, number, seconds, string
from counterpoint.formats.inspect.agents import MAIN, SampleAgent, SampleSpans, ToolLinks, flat
from counterpoint.formats.inspect.eval_log import Sample, prompt_of, score_number, usage_of

_KNOWN = frozenset(
    (
        "span_begin", "span_end", "step", "sample_init", "state", "store", "sandbox", "info", "logger", "score", "score_edit",
        "subtask", "sample_limit", "error", "compaction", "branch", "checkpoint", "anchor", "review",
    )
)  # fmt: skip
"""Kinds that are no act of an agent; scores, errors and limits are read from the sample itself."""


class SamplePlay:
    """One sample on its way into a draft."""

    def __init__(self, draft: Draft, sample: Sample) -> None:
        self.draft, self.sample = draft, sample
        self.events = flat(sample.data.get("events"))
        self.spans = SampleSpans(self.events)
        self.links = ToolLinks(self.events, self.spans)
        self.asked = _dataset_words(sample)
        self._heard: dict[str, ChatMemory] = defaultdict(ChatMemory)
        self._refs: dict[str, list[Any]] = defaultdict(list)
        self._known: dict[str, str] = {}  # message id to the event that it is
        self._results: dict[str, str] = {}  # call id to the event of its answer, whoever called
        self._open: dict[str, list[dict[str, Any]]] = defaultdict(list)
        self._answers: Counter[tuple[str, str]] = Counter()
        self._spawned: dict[str, str] = {}
        self._briefed_spawns: set[str] = set()  # spawns whose words the agent has been seen to read
        self._parents = {a.parent for a in self.spans.agents.values() if a.parent}

    def run(self) -> None:
        """Play everything."""
        for index, event in enumerate(self.events):
            kind = str(event.get("event"))
            play = getattr(self, f"_play_{kind}", None)
            if play is not None:
                play(event, index)
            if play is None and kind not in _KNOWN:
                self.draft.report.unknown[kind] += 1
        for agent in reversed(self.spans.agents):
            self._flush(agent)

    def lane(self, agent: str) -> Lane:
        """The lane of an agent of the sample."""
        known = self.spans.agents[agent]
        leads = known.kind == "main" or (known.kind == "agent" and known.parent == MAIN) or agent in self._parents
        return self.draft.lane(agent, role=known.role, leads=leads)

    # -- agents ----------------------------------------------------------------------------------------------------------

    def _play_span_begin(self, event: dict[str, Any], index: int) -> None:
        agent = self.spans.agents.get(string(event.get("id")) or "")
        if agent is None or agent.kind == "judge" or agent.id in self._spawned:
            return
        parent = self.lane(agent.parent or MAIN)
        tool = self.links.tool_of.get(agent.id)
        call = parent.called(str(tool.get("id"))) if tool else None
        # No answer of the model asked for it: the scaffold runs it, or the code of a tool.
        fields: dict[str, Any] = {"at": agent.begun, "to": agent.id, "role": agent.role, "extra": {"by_code": True}}
        spawn = self.draft.event("spawn", parent.agent, id=f"{agent.id}/spawn", **fields)
        for cause in [call or parent.last] if call or parent.last else [e for e, _ in parent.heard]:
            self.draft.edge(cause, spawn, "causal")
        self.lane(agent.id).hears(spawn, "spawn")
        self._spawned[agent.id] = spawn
        self.draft.report.linked("the span it lies in")

    def _play_span_end(self, event: dict[str, Any], index: int) -> None:
        agent = self.spans.agents.get(string(event.get("id")) or "")
        if agent is None or agent.kind != "agent" or agent.id in self.links.tool_of:
            return
        self._flush(agent.id)
        self.lane(agent.id).returns(agent.parent, at=seconds(event.get("timestamp")), id=f"{agent.id}/return")

    def _spawn(self, lane: Lane, agent: SampleAgent, call: Call, at: float | None) -> str:
        """A call of the model that made an agent."""
        fields = {"role": agent.role, "text": prompt_of(call.arguments), "at": at, "id": call.id}
        event = lane.spawn(agent.id, **fields, extra={"tool_name": call.tool})  # type: ignore[arg-type]
        self._spawned[agent.id] = event
        self.draft.report.linked(self.links.rule[agent.id], exact=self.links.is_stated(agent))
        return event

    # -- models ----------------------------------------------------------------------------------------------------------

    def _play_model(self, event: dict[str, Any], index: int) -> None:
        name = self.spans.owner(string(event.get("span_id")))
        lane = self.lane(name)
        self._flush(name)
        at, end = seconds(event.get("timestamp")), seconds(event.get("completed"))
        prompt = list(self.sample.prompt(event, self._refs[name]))
        for message in self._heard[name].new(prompt):
            self._hear(lane, message, at)
        output = as_dict(event.get("output"))
        choice = as_dict(next(iter(as_list(output.get("choices"))), None))
        answer = message_of(choice.get("message"), self.sample.text) or Message("assistant")
        self._heard[name].add_answer(prompt, answer)
        step = self._step(lane, event, answer, string(choice.get("stop_reason")), f"model-{index}", at, end)
        calls = [self._call(lane, call, end or at) for call in answer.calls]
        if answer.id and (step or calls):
            self._known[answer.id] = step or calls[0]

    def _step(
        self, lane: Lane, event: dict[str, Any], answer: Message, stop: str | None, id: str, at: float | None, end: float | None
    ) -> str | None:
        output, error = (
            as_dict(event.get("output")),
            string(event.get("error")) or string(as_dict(event.get("output")).get("error")),
        )
        is_cached = event.get("cache") == "read"
        usage, cost = usage_of(output.get("usage"))
        if end is None and at is not None and (took := number(output.get("time"))) is not None:
            end = at + took
        extra: dict[str, Any] = {
            "model_role": event.get("role"),
            "retries": event.get("retries"),
            "pending": event.get("pending"),
        }
        if stop not in (None, "unknown"):
            extra["stop_reason"] = stop
        if is_cached:
            extra["cache"] = "read"
        elif usage is None:
            self.draft.report.lacks["tokens of some model calls"] += 1
        step = lane.step(
            id=string(event.get("uuid")) or id,
            at=at,
            end=end,
            text=answer.text,
            thinking=answer.thinking,
            model=string(event.get("model")) or string(output.get("model")),
            usage=None if is_cached else usage,
            cost_usd=None if is_cached else cost,
            only_calls=bool(answer.calls),
            ok=False if error else None,
            error=self.sample.text(error) if error else None,
            extra={k: v for k, v in extra.items() if v is not None} or None,
        )
        if stop == "content_filter":
            fields: dict[str, Any] = {"at": end or at, "role": lane.role, "ok": True, "extra": {"stop_reason": stop}}
            refusal = self.draft.event("safety_event", lane.agent, id=f"{string(event.get('uuid')) or id}/filter", **fields)
            self.draft.edge(step or lane.last, refusal, "causal")
        return step

    def _call(self, lane: Lane, call: Call, at: float | None) -> str:
        tool = self.links.take(call.id, call.tool)
        agent = self.links.agent_of(tool)
        if agent is not None and agent.kind == "agent" and agent.id not in self._spawned:
            return self._spawn(lane, agent, call, at)
        if tool is not None and string(tool.get("agent")) and agent is None:
            error = string(as_dict(tool.get("error")).get("message"))
            if not error:
                self.draft.report.loose(f"the handoff {call.id} to {tool['agent']}: its agent's span is not in the log")
            text = prompt_of(call.arguments)
            return lane.spawn(None, role=tool["agent"], text=text, at=at, id=call.id, ok=False if error else None, error=error)
        return lane.call(call.tool, call.text, call=call.id, at=at, id=call.id)

    # -- what an agent hears ---------------------------------------------------------------------------------------------

    def _hear(self, lane: Lane, message: Message, at: float | None) -> None:
        known = self._known.get(message.id or "")
        if message.role == "tool" and self._answers[lane.agent, message.call or ""] > 0:
            self._answers[lane.agent, message.call or ""] -= 1  # its tool event has put it down
            return
        if known is not None:
            if known not in [event for event, _ in lane.heard]:
                lane.hears(known, "causal" if message.role in ("assistant", "tool") else "message")
            return
        if message.role == "tool":
            self._hear_tool(lane, message, at)
            return
        agent = self.spans.agents[lane.agent]
        spawn = self._spawned.get(lane.agent)
        if message.role == "user" and message.text not in self.asked and agent.kind in ("agent", "helper") and spawn is not None:
            self._hear_parent(lane, agent, spawn, message, at)
            return
        if message.role == "user" and (message.source in ("input", "operator") or message.text in self.asked):
            event = lane.prompt(message.text, at=at, id=message.id)
        else:
            extra = {"prompted_role": message.role} if message.role not in ("system", "user") else None
            event = lane.prompt(message.text, by="system", source="system", at=at, id=message.id, extra=extra)
        if message.id:
            self._known[message.id] = event

    def _hear_parent(self, lane: Lane, agent: SampleAgent, spawn: str, message: Message, at: float | None) -> None:
        """Words to a sub-agent that do not come from outside: those of its spawn, or of the scaffold around it."""
        row = self.draft.rows[spawn]
        is_first = lane.last is None and spawn not in self._briefed_spawns
        if is_first and ("content_ref" not in row or self.draft.contents[row["content_ref"]] == message.text):
            self.draft.set(spawn, text=message.text)
            self._briefed_spawns.add(spawn)
            event = spawn
        elif is_first and agent.parent is not None:
            event = lane.prompt(message.text, by=agent.parent, source="peer", at=at, id=message.id)
            self.draft.edge(spawn, event, "causal")
        else:
            event = lane.prompt(message.text, by="system", source="system", at=at, id=message.id)
        if message.id:
            self._known[message.id] = event

    def _hear_tool(self, lane: Lane, message: Message, at: float | None) -> None:
        call = message.call or ""
        if lane.called(call) is None and call in self._results:
            lane.hears(self._results[call])
            return
        ok = False if message.error else None
        event = lane.result(call, message.text or message.error or "", at=at, id=message.id, tool=message.tool, ok=ok)
        self._results[call] = event

    # -- tools -----------------------------------------------------------------------------------------------------------

    def _play_tool(self, event: dict[str, Any], index: int) -> None:
        name, call = self.links.caller(event), str(event.get("id"))
        lane = self.lane(name)
        agent = self.links.agent_of(event)
        is_spawn = bool(string(event.get("agent"))) or (agent is not None and agent.kind == "agent")
        if not is_spawn and lane.called(call) is None:
            tool = string(event.get("function")) or "tool"
            parsed = Call(call, tool, event.get("arguments"))
            lane.call(tool, parsed.text, call=call, at=seconds(event.get("timestamp")), id=call)
        self._open[name].append(event)

    def _flush(self, name: str) -> None:
        """Put down what the agent's tools have answered."""
        waiting = self._open.pop(name, [])
        for event in sorted(waiting, key=lambda e: seconds(e.get("completed")) or 0.0):
            self._answer(name, event)

    def _answer(self, name: str, event: dict[str, Any]) -> None:
        agent, lane = self.links.agent_of(event), self.lane(name)
        error, at = as_dict(event.get("error")), seconds(event.get("completed"))
        text = self.sample.text(event.get("result")) or self.sample.text(string(error.get("message")) or "")
        is_done = at is not None or bool(text) or (event.get("completed") is None and not event.get("pending"))
        call, message = str(event.get("id")), string(event.get("message_id"))
        if agent is not None:
            self._flush(agent.id)
        if not is_done:
            self.draft.report.lacks["answers of tools that were still running"] += 1
            return
        self._answers[name, call] += 1
        id = string(event.get("uuid")) or f"{call}/result"
        if agent is not None and agent.kind == "agent":
            done = self.lane(agent.id).returns(name, text, at=at, id=id, error=string(error.get("message")))
        elif string(event.get("agent")):
            return  # a handoff that made no agent has no agent to answer
        else:
            ok = not (error or event.get("failed"))
            extra = {"error_type": string(error.get("type")), "truncated": event.get("truncated")}
            done = lane.result(call, text, at=at, id=id, ok=ok, error=string(error.get("message")), extra=extra)
            self._results[call] = done
            if agent is not None:
                back = self.lane(agent.id).returns(name, at=at, id=f"{id}/return", heard=False)
                self.draft.edge(back, done, "return")
        if message:
            self._known.setdefault(message, done)

    # -- people and guards -----------------------------------------------------------------------------------------------

    def _play_approval(self, event: dict[str, Any], index: int) -> None:
        lane = self.lane(self.spans.owner(string(event.get("span_id"))))
        call, decision = string(as_dict(event.get("call")).get("id")) or "", string(event.get("decision")) or ""
        approver = string(event.get("approver")) or "approver"
        called = lane.called(call) or (call if call in self.draft.rows else None)  # a spawn has the call's id
        is_human = approver == "human"
        if decision not in ("reject", "terminate", "modify") and not (is_human and decision == "approve"):
            return
        kind = "human_intervention" if is_human and decision in ("approve", "modify") else "safety_event"
        done = self.draft.event(
            kind,
            "user" if is_human else f"approver:{approver}",
            id=string(event.get("uuid")) or f"approval-{index}",
            at=seconds(event.get("timestamp")),
            text=self.sample.text(event.get("explanation") or ""),
            role="user" if is_human else "approver",
            to=lane.agent,
            tool=string(as_dict(event.get("call")).get("function")),
            source="user" if is_human else "system",
            trusted=True,
            ok=True,  # it was let through, or it was stopped: either way the guard did its work
            extra={"approval": decision, "approver": approver, "stage": event.get("stage")},
        )
        self.draft.edge(called, done, "causal")
        lane.hears(done, "message")

    def _play_input(self, event: dict[str, Any], index: int) -> None:
        lane = self.lane(self.spans.owner(string(event.get("span_id"))))
        text = self.sample.text(event.get("input") or "")
        lane.prompt(text, at=seconds(event.get("timestamp")), id=string(event.get("uuid")) or f"input-{index}")

    def _play_interrupt(self, event: dict[str, Any], index: int) -> None:
        lane = self.lane(self.spans.owner(string(event.get("span_id"))))
        source = string(event.get("source"))
        extra = {"interrupt": source, "interrupted": event.get("interrupted")}
        if source == "user_cancel":
            lane.prompt("", at=seconds(event.get("timestamp")), id=string(event.get("uuid")) or f"interrupt-{index}", extra=extra)
        else:
            self.draft.meta["interrupted_by"] = source

    def _play_score(self, event: dict[str, Any], index: int) -> None:
        """An intermediate score is paid where the agent stands; final ones are the sample's own."""
        lane = self.lane(self.spans.owner(string(event.get("span_id"))))
        value = score_number(as_dict(event.get("score")).get("value"))
        if event.get("intermediate") is True and value is not None and lane.last is not None:
            name = string(event.get("scorer")) or "intermediate"
            self.draft.set(lane.last, reward={**self.draft.rows[lane.last].get("reward", {}), name: value})


def _dataset_words(sample: Sample) -> frozenset[str]:
    """What the dataset asks: the only words of a user that are not the scaffold's."""
    words = sample.data.get("input")
    if isinstance(words, str):
        return frozenset({sample.text(words)})
    messages = [m for item in as_list(words) if (m := message_of(item, sample.text)) is not None]
    return frozenset(m.text for m in messages if m.role == "user")
