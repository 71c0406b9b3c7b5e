"""Gates over what sub-agents bring back: a verifier who looks at it, a quorum of others who do the same part.

    verifier   a critic with the worker's tools judges the part and the return; what it rejects is done anew, by somebody fresh
    quorum     a second agent does the part; where the two differ a third does, and what two agree on is what came back; where no
               two agree, what the task's first rule makes of all three

Always true: the recording keeps what everybody said; only what the lead hears differs. Every rejection and every disagreement is
a `safety_event` that names its gate and rests on the return. Whoever cannot be spawned is not asked. Leads of groups, debates
and agents that work alone return no parts and are not checked.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace

from counterpoint.lab.tasks.task import Subtask, ViewItem
from counterpoint.lab.team.agent import Agent, Returned

Executor = Callable[[Agent, Subtask], Awaitable[Returned]]
CHECKS = ("verifier", "quorum")


async def checked(lead: Agent, doing: Executor, agent: Agent, subtask: Subtask) -> Returned:
    """A part, done and checked as the team's gates say."""
    back, gate = await doing(agent, subtask), lead.team.gate
    if gate is None or agent.role == "lead":
        return back
    if "verifier" in gate.names and back.ok and back.event is not None:
        back = await _verified(lead, doing, agent, subtask, back)
    if "quorum" in gate.names and back.ok and back.event is not None:
        back = await _agreed(lead, doing, agent, subtask, back)
    return back


async def judged(critic: Agent, subtask: Subtask, back: Returned, again: int) -> tuple[str | None, str | None]:
    """What the critic objects to, None when it accepts, and the event that says so. Each case is judged by itself."""
    judge = Agent(critic.team, critic.name, critic.role, critic.parent)
    judge.number, judge.seen, judge.unread = critic.number, list(critic.seen), list(critic.unread)
    judge.turn = critic.turn  # turns are counted over all cases
    judge.hear(ViewItem("subtask", back.agent, subtask.text, subtask.id), back.event, "message")
    judge.hear(ViewItem("return", back.agent, back.text, subtask.id), back.event, "return")
    verdict = await judge.work(Subtask(f"{subtask.id}?{back.agent}?{again}", subtask.text), purpose="judge")
    critic.turn = judge.turn
    said = verdict.text.strip()
    if not verdict.ok or not said or said.upper().startswith("ACCEPT"):
        return None, verdict.event
    return said.removeprefix("REJECT").lstrip(": ") or "rejected", verdict.event


async def _verified(lead: Agent, doing: Executor, agent: Agent, subtask: Subtask, back: Returned) -> Returned:
    critic = lead.spawn("critic", f"{_last(agent)}v-{subtask.id}", back.event)
    if critic is None:
        return back
    objection, verdict = await judged(critic, subtask, back, 0)
    by = (verdict,) if verdict else ()
    if objection is None:
        return replace(back, by=(*back.by, *by))
    _flag(lead, "verifier", f"{critic.name}|gate", [back.event, verdict], f"rejected: {objection}")
    fresh = await _once_more(lead, doing, agent, subtask, "r", back.event)
    return replace(back, by=(*back.by, *by)) if fresh is None else replace(fresh, by=(*fresh.by, *by))


async def _agreed(lead: Agent, doing: Executor, agent: Agent, subtask: Subtask, back: Returned) -> Returned:
    found = [back]
    for name in ("q2", "q3"):
        other = await _once_more(lead, doing, agent, subtask, name, back.event)
        if other is not None and other.ok and other.event is not None:
            found.append(other)
        pair = _pair(lead, found)
        if pair is not None:
            by = tuple(r.event for r in found if r.event is not None and r is not pair)
            return replace(pair, by=(*pair.by, *by))
        if len(found) > 1:
            key = f"{lead.name}|gate|{_last(agent)}|{subtask.id}|{name}"
            _flag(lead, "quorum", key, [r.event for r in found], "no two agree")
    by = tuple(r.event for r in found[1:] if r.event is not None)
    if not by:
        return back
    task = lead.team.task
    return replace(back, text=task.merge(lead.team.instance, task.rules[0], [r.text for r in found]), by=(*back.by, *by))


def _pair(lead: Agent, found: list[Returned]) -> Returned | None:
    """The first of two returns that say the same, as the task reads them."""
    task, instance = lead.team.task, lead.team.instance
    said = [" ".join((task.merge(instance, task.rules[0], [r.text]) or r.text).split()) for r in found]
    return next((r for i, r in enumerate(found) if said[i] in said[i + 1 :]), None)


async def _once_more(
    lead: Agent, doing: Executor, agent: Agent, subtask: Subtask, name: str, because: str | None
) -> Returned | None:
    """The same part, done by somebody who has heard nothing of it."""
    fresh = lead.spawn(agent.role, f"{_last(agent)}{name}-{subtask.id}", because)
    if fresh is None:
        return None
    key = f"{lead.name}|delegate|{fresh.name}|{subtask.id}"
    if lead.tell(fresh, subtask.text, key=key, kind="subtask", because=because, task=subtask.id) is None:
        return None
    return await doing(fresh, subtask)


def _flag(lead: Agent, gate: str, key: str, rests_on: list[str | None], text: str) -> None:
    reads = [(event, "safety_flow") for event in rests_on if event is not None]
    lead.team.emit(lead, "safety_event", key=key, reads=reads, ok=False, error="rejected", text=text[:400], extra={"gate": gate})


def _last(agent: Agent) -> str:
    return agent.name.rpartition(".")[2]
