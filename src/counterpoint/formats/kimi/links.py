"""Which call of which agent made which sub-agent, in Kimi's sessions.

Always true: what the source states is exact; equal prompts, the items of a swarm and the only call left open are inferred, each
under its name; a call or an agent that is left over is reported, never guessed at.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from counterpoint.formats.importing.report import Report
from counterpoint.formats.importing.values import as_dict, as_list, string
from counterpoint.formats.kimi.story import MAIN, Call, Member, Spawned, Story, header, members

SPAWNERS = frozenset({"Agent", "Task", "AgentSwarm"})
_HINT = "\nresume_hint: "


@dataclass(slots=True)
class Made:
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


class _Links:
    def __init__(self, stories: dict[str, Story], report: Report) -> None:
        self.stories, self.report = stories, report
        self.made: dict[int, list[Made]] = {}
        self.taken: set[str] = set()
        self.open: list[tuple[Story, Call, Made]] = []

    def found(self, child: str, rule: str, *, exact: bool = True) -> None:
        if child not in self.taken:
            self.report.linked(rule, exact=exact)
            self.taken.add(child)

    def call(self, story: Story, call: Call) -> None:
        self.made[id(call)] = self._swarm(story, call) if call.name == "AgentSwarm" else [self._agent(story, call)]

    def _agent(self, story: Story, call: Call) -> Made:
        args = call.arguments()
        role = string(args.get("subagent_type")) or string(args.get("subagent_name"))
        made = Made(None, string(args.get("prompt")) or "", role, extra={"description": args.get("description")})
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

    def _identify(self, story: Story, call: Call, made: Made, args: dict[str, Any], head: dict[str, str]) -> None:
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

    def _swarm(self, story: Story, call: Call) -> list[Made]:
        args = call.arguments()
        template, role = string(args.get("prompt_template")) or "", string(args.get("subagent_type"))
        answer = call.answer
        if answer is not None and (found := members(answer.text)):
            return [self._member(m, template, role, as_dict(args.get("resume_agent_ids"))) for m in found]
        if answer is not None:
            return [Made(None, template, role, ok=False, error=answer.text, back=answer.text)]
        made = []
        for item in [i for i in as_list(args.get("items")) if isinstance(i, str)]:
            one = Made(None, template.replace("{{item}}", item), role, item=item)
            same = [s for s in self._free(story) if s.parent == story.agent and s.extra.get("item") == item]
            if len(same) == 1:
                one.child = same[0].agent
                self.found(one.child, "swarmItem of state.json among the items of the call", exact=False)
            else:
                self.report.loose(f"call {call.id}: the agent for item {item!r} is not known")
            made.append(one)
        return made

    def _member(self, m: Member, template: str, role: str | None, resumed: dict[str, Any]) -> Made:
        text = string(resumed.get(m.agent or "")) if m.is_resumed else None
        ok = m.outcome == "completed"
        made = Made(m.agent, text or template.replace("{{item}}", m.item or ""), role, m.is_resumed, back=m.text, ok=ok)
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

    def _last_resort(self, story: Story, call: Call, made: Made) -> None:
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
                parent.items.insert(later[0] if later else len(parent.items), Spawned(story.agent, at))
                self.found(story.agent, "parentAgentId of state.json")
            elif story.items and story.extra.get("type") not in ("independent", "main"):
                self.report.loose(f"agent {story.agent}: its spawn is not known")


def _same(prompt: str, first: str | None) -> bool:
    """Whether an agent's first prompt is what the call asked; a profile may put a paragraph before it."""
    prompt, first = prompt.strip(), (first or "").strip()
    return bool(prompt) and (prompt == first or first.endswith("\n" + prompt))


def links(stories: dict[str, Story], report: Report) -> dict[int, list[Made]]:
    """By the identity of each spawning call: what it made. Spawns that only the state knows are put into the stories."""
    found = _Links(stories, report)
    for story in list(stories.values()):
        for step in story.steps():
            for call in step.calls:
                if call.name in SPAWNERS:
                    found.call(story, call)
    found.infer()
    found.state()
    return found.made
