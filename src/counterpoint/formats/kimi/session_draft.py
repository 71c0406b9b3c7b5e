"""The stories of a Kimi session as one draft: who made whom, what went down and what came back.

Which call made which sub-agent is said by the source (exact), or inferred from equal prompts, the items of a swarm, or
because only one call is left open. A call or an agent that is left over is reported, never guessed at.

Always true: a sub-agent's records up to its answer are told before the answer; an AgentSwarm is one spawn and one return for
each sub-agent that began, and one aggregate.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from counterpoint.formats.draft import Draft
from counterpoint.formats.importing.lane import Lane
from counterpoint.formats.importing.report import Report
from counterpoint.formats.importing.values import as_dict, as_list, string
from counterpoint.formats.kimi.story import (
    MAIN,
    Answer,
    Incoming,
    Item,
    ModelStep,
    Spent,
    StepCall,
    Stop,
    Story,
    SubagentRecord,
    SwarmMember,
    Verdict,
    header,
    members,
)


def tell(draft: Draft, stories: dict[str, Story]) -> None:
    """Put every story down."""
    _Telling(draft, stories).tell()


class _Telling:
    def __init__(self, draft: Draft, stories: dict[str, Story]) -> None:
        self.draft, self.stories = draft, stories
        self.made = links(stories, draft.report)
        self._place: dict[str, int] = {}
        self._active: set[str] = set()
        self._asked: dict[str, list[str]] = {}
        """Agent to the prompts it was given by its team: its own record of them is no news."""
        self._tasks: dict[str, tuple[str, str]] = {}
        self._spawns: dict[tuple[str, str], str] = {}
        self._met: set[str] = set()

    def tell(self) -> None:
        if MAIN in self.stories:
            self._go(self.stories[MAIN])
        for agent in sorted(self.stories):
            self._go(self.stories[agent])

    def _lane(self, story: Story) -> Lane:
        return self.draft.lane(story.agent, role=story.role, leads=story.agent == MAIN)

    def _go(self, story: Story, until: float | None = None) -> None:
        """Tell a story on, to its end or to a moment."""
        if story.agent in self._active:
            return
        self._active.add(story.agent)
        lane = self._lane(story)
        while (k := self._place.get(story.agent, 0)) < len(story.items):
            item = story.items[k]
            if until is not None and item.at is not None and item.at > until:
                break
            self._place[story.agent] = k + 1
            self._item(lane, story, item)
        self._active.discard(story.agent)

    def _item(self, lane: Lane, story: Story, item: Item) -> None:
        if isinstance(item, ModelStep):
            self._step(lane, story, item)
        elif isinstance(item, Answer):
            self._answer(lane, story, item)
        elif isinstance(item, Incoming):
            self._heard(lane, story, item)
        elif isinstance(item, Verdict):
            self._verdict(lane, story, item)
        elif isinstance(item, Spent):
            self._spent(lane, story, item)
        elif isinstance(item, SubagentRecord):
            self._spawned(lane, item)
        elif isinstance(item, Stop) and item.reason == "completed":
            lane.stops()

    def _spent(self, lane: Lane, story: Story, item: Spent) -> None:
        fields: dict[str, Any] = {"role": story.role, "model": item.model, "extra": {"usage_scope": item.scope}}
        id = _id(story.agent, item.id)
        event = self.draft.event("message", story.agent, id=id, at=item.at, usage=item.usage, **fields)
        self.draft.edge(lane.last, event, "temporal")

    def _spawned(self, lane: Lane, item: SubagentRecord) -> None:
        child = self.stories[item.child]
        text, id = child.prompt or "", f"spawn:{item.child}"
        lane.spawn(item.child, role=child.role, text=text, at=item.at, id=id, extra=child.extra)
        self._met.add(item.child)
        self._asked.setdefault(item.child, []).append(text)

    # -- steps and calls -------------------------------------------------------------------------------------------------

    def _step(self, lane: Lane, story: Story, step: ModelStep) -> None:
        if not (step.text or step.thinking or step.calls or step.usage):
            return
        ids = step.extra.get("message_ids", [])
        extra = {**step.extra, "message_ids": ids if any(ids) else None}
        lane.step(
            at=step.at,
            end=step.end,
            text=step.text,
            thinking=step.thinking,
            usage=step.usage,
            model=step.model,
            id=_id(story.agent, step.id),
            only_calls=bool(step.calls) and not step.text and not step.thinking,
            extra=extra,
        )
        if step.usage is None:
            self.draft.report.lacks["the tokens of a step"] += 1
        if step.model is None:
            self.draft.report.lacks["the model of a step"] += 1
        for call in step.calls:
            if id(call) in self.made:
                for made in self.made[id(call)]:
                    self._make(lane, story, call, made, is_one=call.name != "AgentSwarm")
            else:
                lane.call(call.name, call.args, call=call.id, at=call.at, id=_id(story.agent, call.id))

    def _make(self, lane: Lane, story: Story, call: StepCall, made: CallChild, *, is_one: bool) -> None:
        id = _id(story.agent, call.id)
        if not is_one:
            id = f"{id}:{made.child or made.item or 'none'}"
        if made.child is not None:
            self._asked.setdefault(made.child, []).append(made.text)
            if made.task:
                self._tasks[made.task] = made.child, story.agent
        if made.is_resumed and made.child is not None:
            if made.child not in self._met and made.child not in self.stories:
                self.draft.report.loose(f"agent {made.child}: woken here, made elsewhere")
            event = lane.send(made.child, made.text, at=call.at, id=id, heard=False, extra=made.extra)
            self.draft.lane(made.child).gets(event)
        elif made.child is not None and made.child not in self._met:
            extra = {**(self.stories[made.child].extra if made.child in self.stories else {}), **made.extra}
            event = lane.spawn(made.child, role=made.role, text=made.text, at=call.at, id=id, extra=extra)
        else:
            failed: dict[str, Any] = {"ok": False, "error": made.error} if made.error else {}
            event = lane.spawn(None, role=made.role, text=made.text, at=call.at, id=id, extra=made.extra, **failed)
        if made.child is not None:
            self._met.add(made.child)
        self._spawns[story.agent, call.id] = event

    # -- what comes back -------------------------------------------------------------------------------------------------

    def _answer(self, lane: Lane, story: Story, answer: Answer) -> None:
        call = answer.of
        id_ = f"{_id(story.agent, answer.call)}:result"
        made = self.made.get(id(call)) if call is not None else None
        if made is not None and call is not None:
            if call.name == "AgentSwarm" and any(m.child for m in made):
                self._swarm(lane, story, answer, made)
            else:
                self._one_back(lane, story, answer, call, made[0])
        elif call is not None and call.name == "AskUserQuestion" and answer.ok is not False:
            human = lane.told(answer.text, at=answer.at, id=id_)
            self.draft.edge(lane.called(answer.call), human, "tool_dependency")
        else:
            lane.result(answer.call, answer.text, at=answer.at, id=id_, ok=answer.ok)

    def _one_back(self, lane: Lane, story: Story, answer: Answer, call: StepCall, made: CallChild) -> None:
        id = f"{_id(story.agent, call.id)}:return"
        if made.child is None or made.is_running:
            # Nobody came back: the tool only says that it failed, or that the agent runs on.
            said = lane.result(None, answer.text, at=answer.at, id=id, tool=call.name, ok=made.ok is not False, trusted=True)
            self.draft.edge(self._spawns.get((story.agent, call.id)), said, "causal")
            return
        self._back(made.child, story.agent, made.back, answer.at, id, ok=made.ok, error=made.error)

    def _back(
        self,
        child: str,
        to: str,
        text: str | None,
        at: float | None,
        id: str,
        *,
        ok: bool | None,
        error: str | None,
        heard: bool = True,
    ) -> str:
        if child in self.stories:
            self._go(self.stories[child], at)
        return self.draft.lane(child).returns(to, text, at=at, id=id, ok=ok, error=error, heard=heard)

    def _swarm(self, lane: Lane, story: Story, answer: Answer, made: list[CallChild]) -> None:
        id = _id(story.agent, answer.call)
        backs = [
            self._back(
                one.child, story.agent, one.back, answer.at, f"{id}:{one.child}:return", ok=one.ok, error=one.error, heard=False
            )
            for one in made
            if one.child is not None
        ]
        merged = self.draft.event("aggregate", story.agent, id=f"{id}:aggregate", at=answer.at, text=answer.text, role=story.role)
        for back in backs:
            self.draft.edge(back, merged, "aggregate")
        lane.hears(merged)

    def _heard(self, lane: Lane, story: Story, heard: Incoming) -> None:
        asked = self._asked.get(story.agent, [])
        if heard.text in asked:
            asked.remove(heard.text)
            return
        id = _id(story.agent, heard.id)
        if story.agent != MAIN and asked and heard.text.endswith("\n" + asked[0]):
            asked.pop(0)
        elif heard.task in self._tasks and self._tasks[heard.task][1] == story.agent:
            ok = None if heard.status is None else heard.status == "completed"
            child = self._tasks[heard.task][0]
            self._back(child, story.agent, heard.text, heard.at, id, ok=ok, error=heard.text if ok is False else None)
        elif heard.by == "task":
            lane.result(None, heard.text, at=heard.at, id=id, tool="background_task", extra={**heard.extra, "task": heard.task})
        elif heard.by == "user" and story.agent == MAIN:
            lane.told(heard.text, at=heard.at, id=id, extra=heard.extra)
        else:
            lane.told(heard.text, by="system", source="system", at=heard.at, id=id, extra=heard.extra)

    def _verdict(self, lane: Lane, story: Story, verdict: Verdict) -> None:
        is_human = verdict.by == "user"
        called = None
        if verdict.call is not None:
            called = lane.called(verdict.call) or self._spawns.get((story.agent, verdict.call))
        fields: dict[str, Any] = {
            "source": "user" if is_human else "system",
            "trusted": True,
            "to": story.agent,
            "from_": verdict.by,
        }
        id = _id(story.agent, verdict.id)
        kind = "human_intervention" if is_human else "message" if verdict.ok else "safety_event"  # an approval is no incident
        event = self.draft.event(
            kind,
            verdict.by,
            id=id,
            at=verdict.at,
            text=verdict.text,
            role=verdict.by,
            ok=verdict.ok if is_human else True,  # let through, or stopped: either way the hook did its work
            extra=verdict.extra,
            **fields,
        )
        self.draft.edge(called, event, "causal")
        if is_human and not verdict.ok:
            denied = self.draft.event(
                "safety_event", story.agent, id=f"{id}:denied", at=verdict.at, ok=True, extra=verdict.extra
            )
            self.draft.edge(event, denied, "causal")
            event = denied
        lane.hears(event, "message" if event == id else "causal")


def _id(agent: str, id: str) -> str:
    """Ids of calls and turns are an agent's own; the main agent's are used as they are."""
    return id if agent == MAIN else f"{agent}:{id}"


# -- which call made which sub-agent -------------------------------------------------------------------------------------------


SPAWNERS = frozenset({"Agent", "Task", "AgentSwarm"})
_HINT = "\nresume_hint: "


@dataclass(slots=True)
class CallChild:
    """One agent that a call made, woke again, or failed to make."""

    child: str | None
    text: str
    """What it was asked."""
    role: str | None = None
    is_resumed: bool = False
    is_running: bool = False
    """The call was answered at once and the agent runs on in the background."""
    task: str | None = None
    back: str | None = None
    """What it returned."""
    ok: bool | None = None
    error: str | None = None
    item: str | None = None
    extra: dict[str, Any] = field(default_factory=dict)


class _SubAgentLinks:
    def __init__(self, stories: dict[str, Story], report: Report) -> None:
        self.stories, self.report = stories, report
        self.made: dict[int, list[CallChild]] = {}
        self.taken: set[str] = set()
        self.open: list[tuple[Story, StepCall, CallChild]] = []

    def found(self, child: str, rule: str, *, exact: bool = True) -> None:
        if child not in self.taken:
            self.report.linked(rule, exact=exact)
            self.taken.add(child)

    def call(self, story: Story, call: StepCall) -> None:
        self.made[id(call)] = self._swarm(story, call) if call.name == "AgentSwarm" else [self._agent(story, call)]

    def _agent(self, story: Story, call: StepCall) -> CallChild:
        args = call.arguments()
        role = string(args.get("subagent_type")) or string(args.get("subagent_name"))
        made = CallChild(None, string(args.get("prompt")) or "", role, extra={"description": args.get("description")})
        head: dict[str, str] = {}
        if call.answer is not None:
            head = header(call.answer.text)
            status = head.get("status")
            made.role = head.get("actual_subagent_type") or role
            made.is_running = status == "running"
            made.task = head.get("task_id")
            made.ok = call.answer.ok if status in (None, "running") else status == "completed"
            made.back = call.answer.text.split("[summary]\n", 1)[-1].split(_HINT, 1)[0].strip()
            made.error = made.back if made.ok is False else None
        self._identify(story, call, made, args, head)
        return made

    def _identify(self, story: Story, call: StepCall, made: CallChild, args: dict[str, Any], head: dict[str, str]) -> None:
        told = [s.agent for s in self.stories.values() if s.made_by == call.id and s.parent == story.agent]
        if resumed := string(args.get("resume")):
            made.child, made.is_resumed = resumed, True
        elif told:
            made.child = told[0]
            self.found(told[0], "parent_tool_call_id of a SubagentEvent")
        elif "agent_id" in head:
            made.child = head["agent_id"]
            self.found(made.child, "agent_id in the answer of the Agent tool")
        else:
            self.open.append((story, call, made))

    def _swarm(self, story: Story, call: StepCall) -> list[CallChild]:
        args = call.arguments()
        template, role = string(args.get("prompt_template")) or "", string(args.get("subagent_type"))
        answer = call.answer
        if answer is not None and (found := members(answer.text)):
            return [self._member(m, template, role, as_dict(args.get("resume_agent_ids"))) for m in found]
        if answer is not None:
            return [CallChild(None, template, role, ok=False, error=answer.text, back=answer.text)]
        made = []
        for item in [i for i in as_list(args.get("items")) if isinstance(i, str)]:
            one = CallChild(None, template.replace("{{item}}", item), role, item=item)
            same = [s for s in self._free(story) if s.parent == story.agent and s.extra.get("item") == item]
            if len(same) == 1:
                one.child = same[0].agent
                self.found(one.child, "swarmItem of state.json among the items of the call", exact=False)
            else:
                self.report.loose(f"call {call.id}: the agent for item {item!r} is not known")
            made.append(one)
        return made

    def _member(self, m: SwarmMember, template: str, role: str | None, resumed: dict[str, Any]) -> CallChild:
        text = string(resumed.get(m.agent or "")) if m.is_resumed else None
        ok = m.outcome == "completed"
        made = CallChild(m.agent, text or template.replace("{{item}}", m.item or ""), role, m.is_resumed, back=m.text, ok=ok)
        made.item, made.error, made.extra = m.item, None if ok else m.text, {"item": m.item, "outcome": m.outcome}
        if not m.has_started and not m.is_resumed:
            made.child = None
        elif m.agent is None:
            self.report.loose(f"swarm item {m.item!r}: its agent is not named")
        elif not m.is_resumed:
            self.found(m.agent, "agent_id in the answer of the AgentSwarm tool")
        return made

    def _free(self, parent: Story) -> list[Story]:
        """Sub-agents without a spawn that this agent may have made."""
        return [
            s
            for s in self.stories.values()
            if s.agent not in self.taken and s.agent not in (MAIN, parent.agent) and s.parent in (None, parent.agent)
        ]

    def infer(self) -> None:
        """What is open still: by prompt, by being the only one, or not at all."""
        for story, _, made in self.open:
            same = [s for s in self._free(story) if _same(made.text, s.prompt)]
            rivals = [other for _, other, m in self.open if m.child is None and m.text == made.text]
            if len(same) == 1 and len(rivals) == 1:
                made.child = same[0].agent
                self.found(made.child, "prompt equality", exact=False)
        for story, call, made in self.open:
            if made.child is None:
                self._last_resort(story, call, made)

    def _last_resort(self, story: Story, call: StepCall, made: CallChild) -> None:
        waiting = [m for s, c, m in self.open if s is story and m.child is None and c.answer is None]
        stated = [s for s in self._free(story) if s.parent == story.agent]
        if len(waiting) == 1 and waiting[0] is made and len(stated) == 1:
            made.child = stated[0].agent
            self.found(made.child, "the only open call of the parent that state.json names", exact=False)
        elif call.answer is not None and made.ok is not False:
            made.child = f"task:{call.id}"
            self.report.loose(f"call {call.id}: the agent that answered has no id")
        elif call.answer is None:
            self.report.loose(f"call {call.id}: its agent is not known")

    def state(self) -> None:
        """Sub-agents that only the state names get a spawn at the time they were made."""
        for story in list(self.stories.values()):
            if story.agent in self.taken or story.agent == MAIN:
                continue
            if story.parent is not None and story.parent != story.agent and story.extra.get("type") != "independent":
                parent = self.stories.setdefault(story.parent, Story(story.parent))
                at = story.created
                later = [k for k, i in enumerate(parent.items) if at is not None and i.at is not None and i.at > at]
                parent.items.insert(later[0] if later else len(parent.items), SubagentRecord(story.agent, at))
                self.found(story.agent, "parentAgentId of state.json")
            elif story.items and story.extra.get("type") not in ("independent", "main"):
                self.report.loose(f"agent {story.agent}: its spawn is not known")


def _same(prompt: str, first: str | None) -> bool:
    """Whether an agent's first prompt is what the call asked; a profile may put a paragraph before it."""
    prompt, first = prompt.strip(), (first or "").strip()
    return bool(prompt) and (prompt == first or first.endswith("\n" + prompt))


def links(stories: dict[str, Story], report: Report) -> dict[int, list[CallChild]]:
    """By the identity of each spawning call: what it made. Spawns that only the state knows are put into the stories."""
    found = _SubAgentLinks(stories, report)
    for story in list(stories.values()):
        for step in story.steps():
            for call in step.calls:
                if call.name in SPAWNERS:
                    found.call(story, call)
    found.infer()
    found.state()
    return found.made
