"""Work that nothing came of: after the last word, results never read, sub-agents whose return was not used, repeated reads.

Always true: an event is in at most one kind of waste, the first that fits in the order of `KINDS`; a kind that the records do not
allow to judge is missing and says why. Amounts are what the events carry: tokens that a useless result adds to later prompts are
not counted, so waste is at least this much.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from msgspec import Struct

from counterpoint.audits.facts import Facts, Mask
from counterpoint.audits.records import EVENT_LIMIT

KINDS: dict[str, str] = {
    "unused_agents": "sub-agents whose return nobody used",
    "after_goal": "work after the goal was met: after the orchestrator's last word",
    "repeated_reads": "calls that repeat an earlier one and bring the same",
    "unread_results": "results that nobody read",
}


class Waste(Struct, frozen=True, kw_only=True):
    """One kind of waste in one trace."""

    kind: str
    what: str
    count: int | None
    """Agents, or calls; None where it cannot be judged."""
    why: str = ""
    """Why it cannot be judged."""
    tokens: int = 0
    cost_usd: float = 0.0
    busy_s: float = 0.0
    agents: list[str] = []
    """The agents behind it, as people call them."""
    tools: list[str] = []
    events: list[str] = []
    """The first of its events."""


class _Finding(NamedTuple):
    how_many: int
    events_E: Mask


def waste(facts: Facts) -> list[Waste]:
    """Every kind of waste, in the order of `KINDS`."""
    counted_E = np.zeros(facts.n, np.bool_)
    finders: dict[str, Callable[[Facts], _Finding | str]] = {
        "unused_agents": _unused_agents, "after_goal": _after_goal, "repeated_reads": _repeated_reads,
        "unread_results": _unread_results,
    }  # fmt: skip
    out = []
    for kind, what in KINDS.items():
        category = finders[kind](facts)
        if isinstance(category, str):
            out.append(Waste(kind=kind, what=what, count=None, why=category))
            continue
        mine = category.events_E & ~counted_E
        counted_E |= mine
        out.append(_waste(facts, kind, what, category.how_many if mine.any() else 0, mine))
    return out


def _waste(facts: Facts, kind: str, what: str, count: int, mine: Mask) -> Waste:
    team, events = facts.team, facts.in_story(mine)
    names = list(dict.fromkeys(team.label_A[int(team.agent_E[i])] for i in events))
    tools = list(dict.fromkeys(tool for i in events if (tool := facts.events[i].tool)))
    return Waste(
        kind=kind, what=what, count=count, tokens=int(facts.tokens_E[mine].sum()), cost_usd=float(facts.cost_E[mine].sum()),
        busy_s=float(facts.pieces.length_E[mine].sum()), agents=names[:EVENT_LIMIT], tools=tools[:EVENT_LIMIT],
        events=[facts.events[i].id for i in events[:EVENT_LIMIT]],
    )  # fmt: skip


def _unused_agents(facts: Facts) -> _Finding | str:
    """Spawned agents that acted and of whom no other agent read anything; those still at work at the end are let pass."""
    team = facts.team
    spawned = np.flatnonzero((team.parent_A >= 0) & team.is_member_A)
    if not len(spawned):
        return _Finding(0, np.zeros(facts.n, np.bool_))
    if not bool(facts.read_E.any()):
        return "nothing says what agents read of each other"
    acts_A = team.per_agent(np.ones(facts.n, np.int64))
    heard_A = team.with_children(team.per_agent(facts.read_E.astype(np.int64)))
    silent = [a for a in spawned.tolist() if acts_A[a] and not heard_A[a]]
    unused = [a for a in silent if a in facts.returned or facts.spans[1][a] < facts.result_t]
    is_unused = np.zeros(len(team), np.bool_)
    is_unused[unused] = True
    return _Finding(len(unused), is_unused[team.agent_E])


def _after_goal(facts: Facts) -> _Finding | str:
    """Work that began after the orchestrator's last word (its last decision, aggregate or message), does not follow from it, and
    follows no new words of a person: nobody was left to make anything of it."""
    team = facts.team
    words = [i for i in team.events_of(("orchestrator_decision", "aggregate", "message")) if team.agent_E[i] == team.main]
    if not words:
        return "the orchestrator says nothing"
    if len(team.roots) > 1:
        return "nobody leads: no one's word is the last"
    end = int(team.place_E[words[-1]])
    later = (team.place_E > end) & (facts.t_E > facts.t_E[words[-1]]) & facts.work_E
    later &= ~facts.info.reach([words[-1]])  # what it set off itself may only have been cut off
    asked = [int(team.place_E[i]) for i in team.events_of(("human_intervention",)) if team.place_E[i] > end]
    if asked:
        later &= team.place_E < min(asked)
    return _Finding(int((later & team.of_types(("tool_call", "orchestrator_decision", "message"))).sum()), later)


def _repeated_reads(facts: Facts) -> _Finding | str:
    """Calls with the tool and the words of the same agent's call before that brought the very same result and did not fail."""
    events, trace = facts.events, facts.trace
    calls = [i for i in facts.team.events_of(("tool_call",)) if events[i].content_ref is not None]
    if not calls and bool(facts.team.of_types(("tool_call",)).any()):
        return "the words of the calls are not recorded"
    answer: dict[int, int] = {}
    for s, d in zip(facts.graph.src.tolist(), facts.graph.dst.tolist(), strict=True):
        if events[s].type == "tool_call" and events[d].type == "tool_result":
            answer.setdefault(s, d)
    results: dict[tuple[int, str | None, str | None], str | None] = {}
    again = np.zeros(facts.n, np.bool_)
    count = 0
    for i in calls:
        key = (int(facts.team.agent_E[i]), events[i].tool, events[i].content_ref)
        result = events[answer[i]].content_ref if i in answer else None
        if i in answer and facts.failed_E[answer[i]]:
            continue
        if result is not None and results.get(key) == result and trace.contents.get(result, "x"):
            again[[i, answer[i]]] = True
            count += 1
        results[key] = result
    return _Finding(count, again)


def _unread_results(facts: Facts) -> _Finding | str:
    """Results that no later event read, of agents that went on; the last result of an agent that was cut off is let pass."""
    results = facts.team.of_types(("tool_result",))
    if not bool((results & facts.used_E).any()):
        return "nothing says which results were read" if results.any() else _Finding(0, results)
    last_A = np.full(len(facts.team), -1, np.int64)
    np.maximum.at(last_A, facts.team.agent_E, facts.team.place_E)
    went_on = facts.team.place_E < last_A[facts.team.agent_E]
    unread = results & ~facts.used_E & went_on & ~facts.failed_E
    return _Finding(int(unread.sum()), unread)
