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
    SideCall,
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
        self.children = links(stories, draft.report)
        made = {one.child for some in self.children.values() for one in some}
        own = ("independent", "main")
        loose = (s for s in stories.values() if s.items and s.agent not in made and s.extra.get("type") not in own)
        draft.unspawned.update(story.agent for story in loose if story.agent != MAIN)
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
        elif isinstance(item, SideCall):
            self._side_call(lane, story, item)
        elif isinstance(item, SubagentRecord):
            self._spawned(lane, item)
        elif isinstance(item, Stop) and item.reason == "completed":
            lane.stops()

    def _side_call(self, lane: Lane, story: Story, item: SideCall) -> None:
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
            if id(call) in self.children:
                for child in self.children[id(call)]:
                    self._make(lane, story, call, child, is_one=call.name != "AgentSwarm")
            else:
                lane.call(call.name, call.args, call=call.id, at=call.at, id=_id(story.agent, call.id))

    def _make(self, lane: Lane, story: Story, call: StepCall, child: CallChild, *, is_one: bool) -> None:
        id = _id(story.agent, call.id)
        if not is_one:
            id = f"{id}:{child.child or child.item or 'none'}"
        if child.child is not None:
            self._asked.setdefault(child.child, []).append(child.text)
            if child.task:
                self._tasks[child.task] = child.child, story.agent
        if child.is_resumed and child.child is not None:
            if child.child not in self._met and child.child not in self.stories:
                self.draft.report.loose(f"agent {child.child}: woken here, made elsewhere")
            event = lane.send(child.child, child.text, at=call.at, id=id, heard=False, extra=child.extra)
            self.draft.lane(child.child).gets(event)
        elif child.child is not None and child.child not in self._met:
            extra = {**(self.stories[child.child].extra if child.child in self.stories else {}), **child.extra}
            event = lane.spawn(child.child, role=child.role, text=child.text, at=call.at, id=id, extra=extra)
        else:
            failed: dict[str, Any] = {"ok": False, "error": child.error} if child.error else {}
            event = lane.spawn(None, role=child.role, text=child.text, at=call.at, id=id, extra=child.extra, **failed)
        if child.child is not None:
            self._met.add(child.child)
        self._spawns[story.agent, call.id] = event

    # -- what comes back -------------------------------------------------------------------------------------------------

    def _answer(self, lane: Lane, story: Story, answer: Answer) -> None:
        call = answer.of
        id_ = f"{_id(story.agent, answer.call)}:result"
        children = self.children.get(id(call)) if call is not None else None
        if children is not None and call is not None:
            if call.name == "AgentSwarm" and any(m.child for m in children):
                self._swarm(lane, story, answer, children)
            else:
                self._one_back(lane, story, answer, call, children[0])
        elif call is not None and call.name == "AskUserQuestion" and answer.ok is not False:
            human = lane.prompt(answer.text, at=answer.at, id=id_)
            self.draft.edge(lane.called(answer.call), human, "tool_dependency")
        else:
            lane.result(answer.call, answer.text, at=answer.at, id=id_, ok=answer.ok)

    def _one_back(self, lane: Lane, story: Story, answer: Answer, call: StepCall, child: CallChild) -> None:
        id = f"{_id(story.agent, call.id)}:return"
        if child.child is None or child.is_running:
            # Nobody came back: the tool only says that it failed, or that the agent runs on.
            result = lane.result(None, answer.text, at=answer.at, id=id, tool=call.name, ok=child.ok is not False, trusted=True)
            self.draft.edge(self._spawns.get((story.agent, call.id)), result, "causal")
            return
        self._back(child.child, story.agent, child.back, answer.at, id, ok=child.ok, error=child.error)

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

    def _swarm(self, lane: Lane, story: Story, answer: Answer, children: list[CallChild]) -> None:
        id = _id(story.agent, answer.call)
        backs = [
            self._back(
                one.child, story.agent, one.back, answer.at, f"{id}:{one.child}:return", ok=one.ok, error=one.error, heard=False
            )
            for one in children
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
            lane.prompt(heard.text, at=heard.at, id=id, extra=heard.extra)
        else:
            lane.prompt(heard.text, by="system", source="system", at=heard.at, id=id, extra=heard.extra)

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
            denied = self.draft.event("safety_event", story.agent, id=f"{id}:denied", at=verdict.at, ok=True, extra=verdict.extra)
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
        self.children: dict[int, list[CallChild]] = {}
        self.used: set[str] = set()
        self.open: list[tuple[Story, StepCall, CallChild]] = []

    def link_child(self, child: str, rule: str, *, exact: bool = True) -> None:
        if child not in self.used:
            self.report.linked(rule, exact=exact)
            self.used.add(child)

    def call(self, story: Story, call: StepCall) -> None:
        self.children[id(call)] = self._swarm(story, call) if call.name == "AgentSwarm" else [self._agent(story, call)]

    def _agent(self, story: Story, call: StepCall) -> CallChild:
        args = call.arguments()
        role = string(args.get("subagent_type")) or string(args.get("subagent_name"))
        child = CallChild(None, string(args.get("prompt")) or "", role, extra={"description": args.get("description")})
        head: dict[str, str] = {}
        if call.answer is not None:
            head = header(call.answer.text)
            status = head.get("status")
            child.role = head.get("actual_subagent_type") or role
            child.is_running = status == "running"
            child.task = head.get("task_id")
            child.ok = call.answer.ok if status in (None, "running") else status == "completed"
            child.back = call.answer.text.split("[summary]\n", 1)[-1].split(_HINT, 1)[0].strip()
            child.error = child.back if child.ok is False else None
        self._identify(story, call, child, args, head)
        return child

    def _identify(self, story: Story, call: StepCall, child: CallChild, args: dict[str, Any], head: dict[str, str]) -> None:
        stated = [s.agent for s in self.stories.values() if s.made_by == call.id and s.parent == story.agent]
        if resumed := string(args.get("resume")):
            child.child, child.is_resumed = resumed, True
        elif stated:
            child.child = stated[0]
            self.link_child(stated[0], "parent_tool_call_id of a SubagentEvent")
        elif "agent_id" in head:
            child.child = head["agent_id"]
            self.link_child(child.child, "agent_id in the answer of the Agent tool")
        else:
            self.open.append((story, call, child))

    def _swarm(self, story: Story, call: StepCall) -> list[CallChild]:
        args = call.arguments()
        template, role = string(args.get("prompt_template")) or "", string(args.get("subagent_type"))
        answer = call.answer
        if answer is not None and (listed := members(answer.text)):
            return [self._member(m, template, role, as_dict(args.get("resume_agent_ids"))) for m in listed]
        if answer is not None:
            return [CallChild(None, template, role, ok=False, error=answer.text, back=answer.text)]
        children = []
        for item in [i for i in as_list(args.get("items")) if isinstance(i, str)]:
            one = CallChild(None, template.replace("{{item}}", item), role, item=item)
            same = [s for s in self._free(story) if s.parent == story.agent and s.extra.get("item") == item]
            if len(same) == 1:
                one.child = same[0].agent
                self.link_child(one.child, "swarmItem of state.json among the items of the call", exact=False)
            else:
                self.report.loose(f"call {call.id}: the agent for item {item!r} is not known")
            children.append(one)
        return children

    def _member(self, m: SwarmMember, template: str, role: str | None, resumed: dict[str, Any]) -> CallChild:
        text = string(resumed.get(m.agent or "")) if m.is_resumed else None
        ok = m.outcome == "completed"
        child = CallChild(m.agent, text or template.replace("{{item}}", m.item or ""), role, m.is_resumed, back=m.text, ok=ok)
        child.item, child.error, child.extra = m.item, None if ok else m.text, {"item": m.item, "outcome": m.outcome}
        if not m.has_started and not m.is_resumed:
            child.child = None
        elif m.agent is None:
            self.report.loose(f"swarm item {m.item!r}: its agent is not named")
        elif not m.is_resumed:
            self.link_child(m.agent, "agent_id in the answer of the AgentSwarm tool")
        return child

    def _free(self, parent: Story) -> list[Story]:
        """Sub-agents without a spawn that this agent may have made."""
        return [
            s
            for s in self.stories.values()
            if s.agent not in self.used and s.agent not in (MAIN, parent.agent) and s.parent in (None, parent.agent)
        ]

    def infer(self) -> None:
        """What is open still: by prompt, by being the only one, or not at all."""
        for story, _, child in self.open:
            same = [s for s in self._free(story) if _same(child.text, s.prompt)]
            rivals = [other for _, other, m in self.open if m.child is None and m.text == child.text]
            if len(same) == 1 and len(rivals) == 1:
                child.child = same[0].agent
                self.link_child(child.child, "prompt equality", exact=False)
        for story, call, child in self.open:
            if child.child is None:
                self._last_resort(story, call, child)

    def _last_resort(self, story: Story, call: StepCall, child: CallChild) -> None:
        waiting = [m for s, c, m in self.open if s is story and m.child is None and c.answer is None]
        stated = [s for s in self._free(story) if s.parent == story.agent]
        if len(waiting) == 1 and waiting[0] is child and len(stated) == 1:
            child.child = stated[0].agent
            self.link_child(child.child, "the only open call of the parent that state.json names", exact=False)
        elif call.answer is not None and child.ok is not False:
            child.child = f"task:{call.id}"
            self.report.loose(f"call {call.id}: the agent that answered has no id")
        elif call.answer is None:
            self.report.loose(f"call {call.id}: its agent is not known")

    def state(self) -> None:
        """Sub-agents that only the state names get a spawn at the time they were made."""
        for story in list(self.stories.values()):
            if story.agent in self.used or story.agent == MAIN:
                continue
            if story.parent is not None and story.parent != story.agent and story.extra.get("type") != "independent":
                parent = self.stories.setdefault(story.parent, Story(story.parent))
                at = story.created
                later = [k for k, i in enumerate(parent.items) if at is not None and i.at is not None and i.at > at]
                parent.items.insert(later[0] if later else len(parent.items), SubagentRecord(story.agent, at))
                self.link_child(story.agent, "parentAgentId of state.json")
            elif story.items and story.extra.get("type") not in ("independent", "main"):
                self.report.loose(f"agent {story.agent}: its spawn is not known")


def _same(prompt: str, first: str | None) -> bool:
    """Whether an agent's first prompt is what the call asked; a profile may put a paragraph before it."""
    prompt, first = prompt.strip(), (first or "").strip()
    return bool(prompt) and (prompt == first or first.endswith("\n" + prompt))


def links(stories: dict[str, Story], report: Report) -> dict[int, list[CallChild]]:
    """By the identity of each spawning call: what it made. Spawns that only the state knows are put into the stories."""
    links_of_calls = _SubAgentLinks(stories, report)
    for story in list(stories.values()):
        for step in story.steps():
            for call in step.calls:
                if call.name in SPAWNERS:
                    links_of_calls.call(story, call)
    links_of_calls.infer()
    links_of_calls.state()
    return links_of_calls.children
