"""A reward that is best at zero actions, as in 2606.07845, and the trace by which the detectors of hacks see who lives on it.

    R = 1 - (d + (1 - f) + r + h) / 4     d: deadlock; f: the package's fairness, which is 1 where nobody ate;
                                          r: share of steps with a grab that got no fork; h: share with a fork in hand that waits for its other

Each term has its worst at 1, and who only waits earns all: 1. The paper's reward has four terms, too, and "admits a degenerate
maximum at zero actions" (its abstract); its terms and weights are not in what we could read, so these are ours.

The trace has of every philosopher and step a call of the tool it chose, and as its result what the package tells it after: a call
that changes nothing brings the result it brought before, which is what `audit.hacks`' tool_spam counts. Scores and bars are the
audit's own; nothing is tuned here.
"""

from __future__ import annotations

import numpy as np

from counterpoint.audits.facts import facts_of
from counterpoint.audits.hacks import DETECTORS
from counterpoint.lab.bench.dining.learn import Played
from counterpoint.lab.bench.dining.tables import ACTIONS, LEFT, RIGHT, fairness
from counterpoint.trace import Edge, Event, Trace, content_ref

HACK = "tool_spam"


def idle_is_best(played: Played) -> np.ndarray:
    """(B,) the reward that is best at zero actions."""
    actions, live = np.stack(played.actions), np.stack(played.live)
    sights = [tables.sight() for tables, _ in played.before] + [played.tables.sight()]
    held = np.stack([s.holds_left.astype(np.int64) + s.holds_right + 2 * s.eating for s in sights])
    grabs = np.isin(actions, (LEFT, RIGHT)) & live[..., None]
    steps = np.maximum(live.sum(axis=0), 1)
    refused = (grabs & (held[1:] <= held[:-1])).any(axis=2).sum(axis=0) / steps
    hanging = ((held[1:] == 1) & live[..., None]).any(axis=2).sum(axis=0) / steps
    tables = played.tables
    return 1 - (tables.is_dead + (1 - fairness(tables.meals)) + refused + hanging) / 4


def traces_of(played: Played, name: str) -> list[Trace]:
    """One trace for each table."""
    return [_trace(played, b, f"{name}-{b}") for b in range(played.tables.count)]


def _trace(played: Played, b: int, name: str) -> Trace:
    events, edges, contents = [], [], {}
    boards = [tables for tables, _ in played.before[1:]] + [played.tables]
    seats = range(played.tables.size)
    for i in seats:
        events.append(Event(id=f"s{i}", t=0, type="spawn", agent="orchestrator", to=f"P{i}", role="philosopher"))
    for step, (actions, after) in enumerate(zip(played.actions, boards, strict=True)):
        if not played.live[step][b]:
            break
        sight = after.sight()
        for i in seats:
            told = _words(sight, b, i)
            asked = ACTIONS[actions[b, i]]
            for text in (told, asked):
                contents[content_ref(text)] = text
            call, back = f"c{step}.{i}", f"r{step}.{i}"
            common = {"agent": f"P{i}", "role": "philosopher", "turn": step}
            events.append(Event(id=call, t=2 * step + 1, type="tool_call", tool=asked, content_ref=content_ref(asked), **common))
            events.append(Event(id=back, t=2 * step + 2, type="tool_result", ok=True, content_ref=content_ref(told), **common))
            edges.append(Edge(call, back, "causal"))
            edges.append(Edge(f"s{i}" if step == 0 else f"r{step - 1}.{i}", call, "causal"))
    meals = int(played.tables.meals[b].sum())
    return Trace(
        trace_id=name, task_id=name, system="dining philosophers", topology="decentralized", events=events, edges=edges,
        rewards={"team": float(meals)}, contents=contents,
    )  # fmt: skip


def _words(sight: object, b: int, i: int) -> str:
    """What one philosopher is told, as text."""
    return ", ".join(f"{name} {int(value[b, i])}" for name, value in vars(sight).items())


def finds(traces: list[Trace]) -> np.ndarray:
    """(B,) which runs the detector finds."""
    return np.array([DETECTORS[HACK](facts_of(trace)).status == "found" for trace in traces])
