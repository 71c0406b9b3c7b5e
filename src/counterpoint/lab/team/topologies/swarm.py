"""Swarm: many near-equal workers at once with a shared board; a quorum of answers is merged.

Always true: in a round every worker does one part at the same time as all others, and sees the notes of earlier rounds only; each
part is done by up to two workers, so that a vote can be taken; the orchestrator decides how many there are, and when to stop.
"""

from __future__ import annotations

from counterpoint.lab.tasks.task import Choice, Subtask
from counterpoint.lab.team.agent import Agent, Team
from counterpoint.lab.team.orchestration import Orchestration, end
from counterpoint.lab.team.topology import Topology
from counterpoint.lab.team.turn import TurnResult

_SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
_QUORUM = 2


async def _run(team: Team) -> str:
    lead = team.root("orchestrator")
    work = Orchestration(lead, team.instance.subtasks)
    async with work:
        chosen = await lead.choose("turn", _sizes(team), key="lead|turn|0")
        if chosen.act is not None and chosen.act.verb == "spawn":
            spawned = [lead.spawn("worker", n, chosen.event) for n in range(1, int(chosen.act.text) + 1)]
            work.idle = [a for a in spawned if a is not None]
        return await _rounds(team, work, chosen.event)


async def _rounds(team: Team, work: Orchestration, because: str | None) -> str:
    parts = list(team.instance.subtasks)
    limit = -(-_QUORUM * len(parts) // max(1, len(work.idle)))
    for round_ in range(1, limit + 1 if work.idle else 1):
        team.round = round_
        _send(work, parts, round_, because)
        await work.gather()
        if round_ < limit:
            chosen = await work.lead.choose("turn", _after_round(work), key=f"lead|turn|{round_}")
            if await _carry_out(work, chosen, round_):
                return work.answer
            because = chosen.event
    return await _finish(work, limit + 1)


def _sizes(team: Team) -> list[Choice]:
    sizes = [n for n in _SIZES if n < team.limits.width] + [team.limits.width]
    return [*(Choice("spawn", "worker", str(n), "how many at once") for n in sizes), Choice("noop", "", "", "nobody")]


def _send(work: Orchestration, parts: list[Subtask], round_: int, because: str | None) -> None:
    """Give every worker its part of this round; the second time a part comes up it goes to another worker."""
    for place, agent in enumerate(list(work.idle)):
        turn = (round_ - 1) * len(work.idle) + place
        if turn >= _QUORUM * len(parts):
            break
        part = parts[(turn + turn // len(parts)) % len(parts)]
        _start(work, agent, part, round_, because)
    busy = {agent.name for agent, _ in work.busy}
    work.idle = [a for a in work.idle if a.name not in busy]


def _start(work: Orchestration, agent: Agent, part: Subtask, round_: int, because: str | None) -> None:
    key = f"lead|delegate|{agent.name}|{part.id}|{round_}"
    event = work.lead.tell(agent, part.text, key=key, kind="subtask", because=because, task=part.id)
    if event is None:
        return
    work.lead.unread.append((event, "causal"))  # who is idle decides who gets what in the next round

    work.send(agent, Subtask(f"{part.id}@{round_}", part.text))


def _after_round(work: Orchestration) -> list[Choice]:
    """Between rounds the orchestrator may merge, go on, or stop."""
    return [c for c in work.choices() if c.verb not in ("spawn", "delegate")]


async def _carry_out(work: Orchestration, chosen: TurnResult, turn: int) -> bool:
    return chosen.act is not None and await work.perform(chosen.act, chosen.event, turn)


async def _finish(work: Orchestration, turn: int) -> str:
    """Nothing is left to do: merge and stop."""
    for more in range(turn, turn + 3):
        chosen = await work.lead.choose("turn", _after_round(work), key=f"lead|turn|{more}")
        if await _carry_out(work, chosen, more):
            return work.answer
    return await end(work, "no turns left")


swarm = Topology(run=_run, more={"worker": ("note", "notes")})
