"""A trace of verifiers v1: messages as a graph of nodes, model calls beside it, sub-agents by semantic links.

A node that a model call produced is a step; what stands before it on its path and its agent has not met was heard. Whose step
it is: that of the agent it was called by (`subagent_call` makes a new one), of the node it goes on from (`continuation`,
`compaction`), or of the nearest step above it. A step without any of these, beside the first, is an agent whose spawn is
unknown.

Always true: a node is put down once; tokens stand on the call that states them.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from counterpoint.formats.draft import Draft
from counterpoint.formats.importing.chat import ChatMemory, Message, message_of, messages_of
from counterpoint.formats.importing.lane import Lane
from counterpoint.formats.importing.usage import Usage
from counterpoint.formats.importing.values import as_dict, as_list, count, number, seconds, string

# -- A rollout of verifiers as rows hold it: prompt and completion, or a trajectory with one entry per model call -----
# Where the row has its trajectory, each entry is a step with its own tokens, and entries of another trajectory (a sub-model
# that the agent's code called) are sub-agents. Else the completion's messages are the steps, and only the row knows the tokens.
#
# Always true: a prompt that the completion repeats is heard once; what the environment says after the first answer is a message
# from outside, not a human's; a tool's message that names no call answers the oldest one that is open.

MAIN = "main"
_STATED, _CONCLUDED = "extras.parent_turn", "its place among the agent's own steps"


def play_rollout(draft: Draft, row: dict[str, Any], model: str | None) -> None:
    """Put a row's conversation into a draft."""
    steps = [s for s in as_list(row.get("trajectory")) if isinstance(s, dict)]
    role = string(row.get("task")) if isinstance(row.get("task"), str) else None
    talk = _Talk(draft, draft.lane(MAIN, role=role, leads=True), model)
    if steps:
        _Steps(draft, talk, steps).play(string(row.get("trajectory_id")))
        return
    prompt, completion = messages_of(row.get("prompt")), row.get("completion")
    answered = [Message("assistant", text=completion)] if isinstance(completion, str) and completion else messages_of(completion)
    for k, message in enumerate(talk.heard.new(prompt)):
        talk.hear(message, f"prompt/{k}")
    opening = [(m.role, m.text) for m in prompt]
    if opening and [(m.role, m.text) for m in answered[: len(opening)]] == opening:
        answered = answered[len(opening) :]
    spoken = sum(m.role == "assistant" for m in answered)
    usage = Usage.openai(row.get("token_usage")) or Usage.openai(row.get("usage"))
    for k, message in enumerate(answered):
        if message.role == "assistant":
            talk.say(message, f"completion/{k}", usage=usage if spoken == 1 else None)
        else:
            talk.hear(message, f"completion/{k}")
    if usage is None or spoken > 1:
        draft.report.lacks["tokens per model call" + ("" if usage is None else ": the row has their sum")] += spoken
    if usage is not None and spoken != 1:
        draft.metrics |= {"tokens_in": usage.input, "tokens_out": usage.output}


class _Talk:
    """One agent's conversation."""

    def __init__(self, draft: Draft, lane: Lane, model: str | None, prefix: str = "") -> None:
        self.draft, self.lane, self.model, self.prefix = draft, lane, model, prefix
        self.heard = ChatMemory()
        self.returned: list[str] = []
        """What sub-agents gave back to the agent's code: part of the next thing it hears."""
        self._open: list[str] = []
        self._has_spoken = False

    def hear(self, message: Message, key: str, at: float | None = None) -> None:
        """A message that is not the agent's own."""
        key = f"{self.prefix}{key}"
        if message.role == "tool":
            event = self._answer(message, key, at)
        elif message.role == "user" and not self._has_spoken:
            event = self.lane.prompt(message.text, id=key, at=at)
        elif message.role == "user":
            event = self.lane.prompt(message.text, by="environment", source="tool", trusted=False, id=key, at=at)
        else:
            extra = {"prompted_role": message.role} if message.role != "system" else None
            event = self.lane.prompt(message.text, by="system", source="system", id=key, at=at, extra=extra)
        if message.role in ("tool", "user"):
            for back in self.returned:
                self.draft.edge(back, event, "return")
            self.returned = []

    def _answer(self, message: Message, key: str, at: float | None) -> str:
        call = message.call
        if call is None and self._open:
            call = self._open[0]
            self.draft.report.lacks["which call a tool's message answers: taken in order"] += 1
        if call in self._open:
            self._open.remove(call)
        ok = False if message.error else None
        return self.lane.result(call, message.text or message.error or "", id=key, at=at, tool=message.tool, ok=ok)

    def say(self, message: Message, key: str, *, usage: Usage | None, at: float | None = None, **fields: Any) -> str | None:
        """The agent's own answer; the event it is, or the first of its calls."""
        key = f"{self.prefix}{key}"
        for back in self.returned:
            self.lane.hears(back, "return")
        self.returned, self._has_spoken = [], True
        step = self.lane.step(
            id=key,
            at=at,
            text=message.text,
            thinking=message.thinking,
            usage=usage,
            model=self.model,
            only_calls=bool(message.calls),
            **fields,
        )
        self._open = []
        for k, call in enumerate(message.calls):
            name = call.id or f"{key}/call{k}"
            self._open.append(name)
            event = self.lane.call(call.tool, call.text, call=name, id=f"{self.prefix}{name}" if call.id else name, at=at)
            step = step or event
        return step


class _Steps:
    """The entries of a trajectory: the agent's own, and those of the sub-models between."""

    def __init__(self, draft: Draft, talk: _Talk, steps: list[dict[str, Any]]) -> None:
        self.draft, self.talk, self.steps = draft, talk, steps

    def play(self, main: str | None) -> None:
        """The agent's steps in order, each followed by the sub-agents of its turn."""
        own: list[dict[str, Any]] = []
        subs: dict[int, dict[str, list[dict[str, Any]]]] = defaultdict(dict)
        home: dict[str, int] = {}
        main = main or next((string(s.get("trajectory_id")) for s in self.steps if not _is_sub(s)), None)
        for step in self.steps:
            name = string(step.get("trajectory_id"))
            if not _is_sub(step) and (name is None or main is None or name == main):
                own.append(step)
                continue
            extras = as_dict(step.get("extras"))
            asked = [str(extras[k]) for k in ("batch_id", "request_id") if extras.get(k) is not None]
            agent = ":".join(asked) or name or "sub"
            stated = count(extras.get("parent_turn"))
            turn = home.setdefault(agent, stated if stated is not None else max(len(own) - 1, 0))
            subs[turn].setdefault(agent, []).append(step)
        for turn in sorted({*range(len(own)), *subs}):
            if turn < len(own):
                _entry(self.draft, self.talk, own[turn], f"step/{turn}")
            self._subs(subs.get(turn, {}))
        for back in self.talk.returned:
            self.talk.lane.hears(back, "return")

    def _subs(self, agents: dict[str, list[dict[str, Any]]]) -> None:
        parent, talks = self.talk.lane, {}
        for agent, steps in agents.items():
            prompt = messages_of(steps[0].get("prompt"))
            words = next((m.text for m in prompt if m.role == "user"), "")
            fields: dict[str, Any] = {"text": words, "to": agent, "role": "sub-model", "extra": {"by_code": True}}
            spawn = self.draft.event("spawn", parent.agent, id=f"{agent}/spawn", **fields)
            self.draft.edge(parent.last, spawn, "causal")
            lane = self.draft.lane(agent, role="sub-model")
            lane.hears(spawn, "spawn")
            talks[agent] = _Talk(self.draft, lane, string(as_dict(steps[0].get("extras")).get("sub_call_model")), f"{agent}/")
            is_stated = count(as_dict(steps[0].get("extras")).get("parent_turn")) is not None
            self.draft.report.linked(_STATED if is_stated else _CONCLUDED, exact=is_stated)
            # The words of the spawn are what it hears first: they are no message of their own.
            list(talks[agent].heard.new(m for m in prompt if m.role == "user" and m.text == words))
        for agent, steps in agents.items():
            for k, step in enumerate(steps):
                _entry(self.draft, talks[agent], step, f"step/{k}")
            self.talk.returned.append(talks[agent].lane.returns(parent.agent, id=f"{agent}/return", heard=False))


def _is_sub(step: dict[str, Any]) -> bool:
    return as_dict(step.get("extras")).get("is_sub_llm_call") is True


def _entry(draft: Draft, talk: _Talk, step: dict[str, Any], key: str) -> None:
    """One model call: what is new in its prompt, then its answer."""
    response, tokens = as_dict(step.get("response")), as_dict(step.get("tokens"))
    at = seconds(response.get("created"))
    prompt = messages_of(step.get("prompt"))
    for k, message in enumerate(talk.heard.new(prompt)):
        if message.role != "assistant" or not talk.lane.last:
            talk.hear(message, f"{key}/heard{k}", at)
    usage = Usage.openai(response.get("usage"))
    if usage is None and isinstance(tokens.get("completion_ids"), list):
        usage = Usage(len(as_list(tokens.get("prompt_ids"))), 0, 0, len(tokens["completion_ids"]))
    if usage is None:
        draft.report.lacks["tokens of some model calls"] += 1
    answers = step.get("completion")
    replies = [Message("assistant", text=answers)] if isinstance(answers, str) else messages_of(answers)
    own = next((m for m in replies if m.role == "assistant"), None)
    answer = own or message_of(response.get("message")) or Message("assistant")
    logprobs = [p for value in as_list(tokens.get("completion_logprobs")) if (p := number(value)) is not None]
    extra = {"advantage": number(step.get("advantage")), "is_truncated": step.get("is_truncated") or None}
    event = talk.say(
        answer,
        key,
        usage=usage,
        at=at,
        logp=sum(logprobs) if logprobs else None,
        extra={k: v for k, v in extra.items() if v is not None} or None,
    )
    if event is not None and (reward := number(step.get("reward"))) is not None:
        draft.set(event, reward={"step": reward})
    talk.heard.add_answer(prompt, answer)


_SAME = frozenset({"continuation", "compaction", "compaction_attempt"})
_KNOWN = _SAME | {"subagent_call", "subagent_return", "agent_message", "subagent_cancel"}


class GraphTalk:
    """The nodes of one trace on their way into a draft."""

    def __init__(self, draft: Draft, record: dict[str, Any], agent: str, prefix: str = "") -> None:
        self.draft, self.agent, self.prefix = draft, agent, prefix
        self.role = string(as_dict(record.get("agent")).get("name"))
        self.nodes = [as_dict(node) for node in as_list(record.get("nodes"))]
        self.calls: dict[int, dict[str, Any]] = {}
        for call in as_list(record.get("calls")):
            if isinstance(call, dict) and (node := count(call.get("node"))) is not None:
                self.calls[node] = call
            elif isinstance(call, dict) and call.get("error"):
                draft.meta["failed_model_calls"] = draft.meta.get("failed_model_calls", 0) + 1
        self.last: str | None = None
        """The trace's latest step."""
        self._owner: dict[int, str] = {}
        self._event: dict[int, str] = {}
        self._met: dict[str, set[int]] = {}
        self._spawn: dict[str, str] = {}

    def play(self) -> None:
        """Every step in the order in which it was committed."""
        for i, node in enumerate(self.nodes):
            if node.get("sampled") is True:
                self._step(i, node)

    def _links(self, node: dict[str, Any]) -> list[tuple[int, str]]:
        links = [
            (count(as_dict(x).get("node")), string(as_dict(x).get("type")) or "") for x in as_list(node.get("semantic_parents"))
        ]
        return [(source, kind) for source, kind in links if source is not None and source in self._event]

    def _parent(self, i: int) -> int | None:
        parent = count(self.nodes[i].get("parent"))
        return parent if parent is not None and parent < i else None  # a parent is older: no circle can be

    def _lane(self, agent: str) -> Lane:
        is_main = agent == self.agent
        return self.draft.lane(agent, role=self.role if is_main else "sub-agent", leads=is_main)

    # -- whose step ------------------------------------------------------------------------------------------------------

    def _who(self, i: int, links: list[tuple[int, str]]) -> str:
        for source, kind in links:
            if kind == "subagent_call":
                return self._spawned(i, source)
        for source, kind in links:
            if kind in _SAME:
                return self._owner[source]
        above = self._parent(i)
        while above is not None and above not in self._owner:
            above = self._parent(above)
        if above is not None:
            return self._owner[above]
        if not self._owner:
            return self.agent
        agent = f"{self.agent}/branch-{i}"
        self.draft.report.loose(f"the agent {agent}: nothing says who called it")
        self.draft.unspawned.add(agent)
        return agent

    def _spawned(self, i: int, source: int) -> str:
        agent, parent = f"{self.agent}/sub-{i}", self._owner[source]
        extra = {"by_code": True}  # what the model said is the call of a tool, an event of its own
        spawn = self.draft.event("spawn", parent, id=f"{self.prefix}n{i}/spawn", to=agent, role="sub-agent", extra=extra)
        at = self.draft.rows[self._event[source]]
        self.draft.set(spawn, at=None if at["at"] is None else at["at"] + (at.get("dur") or 0.0))
        self.draft.edge(self._event[source], spawn, "causal")
        self._lane(agent).hears(spawn, "spawn")
        self._spawn[agent] = spawn
        self.draft.report.linked("subagent_call")
        return agent

    # -- a step ----------------------------------------------------------------------------------------------------------

    def _step(self, i: int, node: dict[str, Any]) -> None:
        links = self._links(node)
        agent = self._who(i, links)
        lane, call = self._lane(agent), as_dict(self.calls.get(i))
        time = as_dict(call.get("time"))
        at, end = seconds(time.get("start")) or None, seconds(time.get("end")) or None
        for n in self._unmet(i, agent):
            self._hear(lane, n, at)
        for source, kind in links:
            self._follow(lane, source, kind, i)
        message = message_of(node.get("message")) or Message("assistant")
        usage = Usage.openai(call.get("usage"))
        if usage is None and isinstance(node.get("mask"), list) and node["mask"]:
            usage = Usage(output=sum(bool(m) for m in node["mask"]))
            self.draft.report.lacks["tokens read by some model calls"] += 1
        elif usage is None:
            self.draft.report.lacks["tokens of some model calls"] += 1
        event = self._say(lane, i, node, call, message, usage, at, end)
        self._owner[i], self._event[i], self.last = agent, event, event
        self._met.setdefault(agent, set()).add(i)

    def _say(
        self,
        lane: Lane,
        i: int,
        node: dict[str, Any],
        call: dict[str, Any],
        message: Message,
        usage: Usage | None,
        at: float | None,
        end: float | None,
    ) -> str:
        logprobs = [p for value in as_list(node.get("logprobs")) if (p := number(value)) is not None]
        error = string(as_dict(call.get("error")).get("message"))
        step = lane.step(
            id=f"{self.prefix}n{i}",
            at=at,
            end=end,
            text=message.text,
            thinking=message.thinking,
            usage=usage,
            model=string(call.get("model")),
            only_calls=bool(message.calls),
            logp=sum(logprobs) if logprobs else None,
            ok=False if error else None,
            error=error,
        )
        for k, request in enumerate(message.calls):
            name = request.id or f"call{k}"
            event = lane.call(request.tool, request.text, call=name, id=f"{self.prefix}n{i}/{name}", at=end or at)
            step = step or event
        return step or f"{self.prefix}n{i}"

    def _unmet(self, i: int, agent: str) -> list[int]:
        """The nodes before a step that its agent has not met, oldest first."""
        met = self._met.setdefault(agent, set())
        path: list[int] = []
        above = self._parent(i)
        while above is not None and above not in met:
            path.append(above)
            above = self._parent(above)
        met.update(path)
        return path[::-1]

    def _hear(self, lane: Lane, n: int, at: float | None) -> None:
        message = message_of(self.nodes[n].get("message"))
        if n in self._event:
            is_own_kind = message is not None and message.role in ("user", "system")
            lane.hears(self._event[n], "message" if is_own_kind else "causal")
            return
        if message is None:
            return
        key, spawn = f"{self.prefix}n{n}", self._spawn.get(lane.agent)
        if message.role == "tool":
            event = lane.result(message.call, message.text, id=key, at=at, tool=message.tool)
        elif message.role == "user" and spawn is not None and lane.last is None and "content_ref" not in self.draft.rows[spawn]:
            self.draft.set(spawn, text=message.text)
            event = spawn
        elif message.role == "user" and lane.agent == self.agent and lane.last is None:
            event = lane.prompt(message.text, id=key, at=at)
        elif message.role == "user":
            event = lane.prompt(message.text, by="environment", source="tool", trusted=False, id=key, at=at)
        else:
            extra = {"prompted_role": message.role} if message.role != "system" else None
            event = lane.prompt(message.text, by="system", source="system", id=key, at=at, extra=extra)
        self._event[n] = event

    def _follow(self, lane: Lane, source: int, kind: str, i: int) -> None:
        """What a semantic link brings to a step."""
        event, other = self._event[source], self._owner.get(source)
        if kind == "subagent_return" and other is not None and other != lane.agent:
            child = self._lane(other)
            if child.last == event:
                child.returns(lane.agent, id=f"{event}/return")
            else:
                lane.hears(event, "return")
        elif kind == "agent_message":
            lane.hears(event, "message")
        elif kind == "subagent_cancel" and other is not None:
            ended = self.draft.event(
                "despawn", other, id=f"{self.prefix}n{i}/cancel", at=self.draft.rows[event]["at"], to=lane.agent
            )
            self.draft.edge(event, ended, "causal")
        elif kind not in _KNOWN:
            self.draft.report.unknown[f"semantic link {kind}"] += 1
