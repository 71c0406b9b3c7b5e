"""How often `blame` is right on labelled runs: the numbers of `counterpoint bench blame`, for each source of the labels.

A label is what a reader put on an event: `is_mistake` (Who&When, AgentRx's root cause), with the agent that it names, or TRAIL's
`trail_errors`, any of which counts as right. Labels of a whole run (MAST's modes) name no step; such runs are counted apart.

Always true: a ranking sees no label (`steps`); a run whose label is on no step that can be blamed is a miss in all but the agent.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from msgspec import Struct

from counterpoint.audits.blame.judge import blame
from counterpoint.audits.blame.steps import Steps
from counterpoint.trace import Trace
from counterpoint.trace.statistics import wilson_ends

_THREE = 3
MEASURES = ("first", "in three", "within one", "agent")


class Labels(NamedTuple):
    """What is known of a run."""

    steps: frozenset[int]
    """The labelled steps, as candidates by place."""
    agents: frozenset[str]


class Hits(Struct, frozen=True, kw_only=True):
    """One run, judged."""

    trace_id: str
    source: str
    hits: dict[str, bool | None]
    """By measure; None where the label names no agent."""
    chance: float
    """How often a step at random is right."""
    opening: bool
    """Whether the first step is."""


class Score(Struct, frozen=True, kw_only=True):
    """How often one measure is right over the runs of a source."""

    source: str
    measure: str
    runs: int
    share: float
    low: float | None
    """The lower end of Wilson's 95 % interval; None for a chance."""
    high: float | None


def labels_of(trace: Trace, steps: Steps) -> Labels | None:
    """The labels of a run; None where none names a step or an agent."""
    places, agents = set(), set()
    is_labelled = False
    for i, event in enumerate(trace.events):
        extra = event.extra or {}
        if not extra.get("is_mistake") and not extra.get("trail_errors"):
            continue
        is_labelled = True
        if i in steps.at:
            places.add(steps.at[i])
        agents.add(str(extra.get("mistake_agent") or event.agent))
    said = trace.meta.get("labels")
    if isinstance(said, dict) and isinstance(said.get("mistake_agent"), str):
        agents, is_labelled = {said["mistake_agent"]}, True
    return Labels(frozenset(places), frozenset(agents)) if is_labelled else None


def run_hits(trace: Trace) -> Hits | None:
    """Whether the ranking of a run is right; None where it has no label, or nobody in it could be blamed."""
    steps = Steps(trace)
    known = labels_of(trace, steps)
    if known is None or not len(steps):
        return None
    found = blame(trace, anyway=True)
    order = [steps.at[trace.index[s.event]] for s in found.suspects]
    numbers = [steps.numbers[k] for k in known.steps]
    first = max(found.agents, key=lambda agent: found.agents[agent], default="")
    hits: dict[str, bool | None] = {
        "first": order[0] in known.steps,
        "in three": bool(known.steps & set(order[:_THREE])),
        "within one": any(abs(steps.numbers[order[0]] - number) <= 1 for number in numbers),
        "agent": first in known.agents if known.agents else None,
    }
    chance = len(known.steps) / len(steps)
    return Hits(trace_id=trace.trace_id, source=_source(trace), hits=hits, chance=chance, opening=0 in known.steps)


def _source(trace: Trace) -> str:
    """Where the run is from; teams with a lead apart, whose runs are ranked by other signals."""
    source = trace.system or "others"
    return f"{source}, led" if trace.topology == "centralized" else source


def scores(found: Iterable[Hits]) -> list[Score]:
    """The measures of each source, with a step at random and the first step beside them."""
    by_source: dict[str, list[Hits]] = {}
    for one in found:
        by_source.setdefault(one.source, []).append(one)
    out = []
    for source, some in sorted(by_source.items()):
        for measure in MEASURES:
            out += _share(source, measure, [hit for one in some if (hit := one.hits[measure]) is not None])
        out += _share(source, "always the first step", [one.opening for one in some])
        chance = sum(one.chance for one in some) / len(some)
        out.append(Score(source=source, measure="a step at random", runs=len(some), share=chance, low=None, high=None))
    return out


def _share(source: str, measure: str, hits: list[bool]) -> list[Score]:
    if not hits:
        return []
    low, high = wilson_ends(sum(hits), len(hits))
    return [Score(source=source, measure=measure, runs=len(hits), share=sum(hits) / len(hits), low=low, high=high)]
