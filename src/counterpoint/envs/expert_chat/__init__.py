"""Teams that talk: generated conversations of experts who look numbers up, calculate and answer, with mistakes planted at will.

Always true: a conversation is a function of its seed and its mistake. Every draw is keyed by what it is for, so the run with a
mistake and the run without it are the same up to the mistake, and after it differ only by what follows from it. A number that is
said is the number that the speaker has at that point: a wrong one is carried on by everybody who uses it.

Two shapes: a `panel` of experts in one room with a terminal, and a team that is `led` by an orchestrator who asks others to look
things up. It is made for `audit.blame` to learn from: what a mistake looks like afterwards, when its place is known.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from counterpoint.envs.expert_chat.led import Led
from counterpoint.envs.expert_chat.panel import Panel
from counterpoint.envs.expert_chat.talk import Problem, Spot, Talk, make_problem
from counterpoint.trace import Edge, Event, Trace, content_ref
from counterpoint.trace.mistake import Mistake, mistake_of, with_mistake

SHAPES = ("panel", "led")
_PLAYS: dict[str, type[Panel] | type[Led]] = {"panel": Panel, "led": Led}


def _played(seed: int, shape: str, mistake: Spot | None, subtlety: float) -> tuple[Talk, Problem, float]:
    talk = Talk(seed, mistake, subtlety)
    problem = make_problem(talk)
    answer = _PLAYS[shape](talk, problem).run()
    return talk, problem, float(answer == problem.answer(problem.values))


def expert_chat(seed: int, shape: str = "panel", mistake: Spot | None = None, subtlety: float = 0.5) -> Trace:
    """One conversation; with a mistake, the truth about it is in `meta` and the run without it is the truth's other half."""
    talk, problem, reward = _played(seed, shape, mistake, subtlety)
    trace = _trace(talk, problem, reward, f"chat-{shape}-{seed}" + (f"-{mistake.kind}-{mistake.where}" if mistake else ""))
    if mistake is None or talk.step is None:
        return trace
    without = _played(seed, shape, None, subtlety)[2]
    is_decisive = reward < 1 <= without
    told = Mistake(
        kind=mistake.kind, event=f"s{talk.step}", step=talk.step, agent=talk.turns[talk.step][0], subtlety=subtlety,
        reward=reward, reward_without=without, is_decisive=is_decisive, parent=f"chat-{shape}-{seed}",
    )  # fmt: skip
    return with_mistake(trace, told)


def spots(seed: int, shape: str = "panel") -> list[tuple[int, Spot]]:
    """Where mistakes could be made in the conversation of this seed, each with its turn."""
    return _played(seed, shape, None, 0.5)[0].spots


def broken_chats(seeds: Sequence[int], *, shapes: Sequence[str] = SHAPES) -> Iterator[Trace]:
    """One conversation per seed that fails by its mistake and would have succeeded without it; seeds without one are left out.

    Every turn in which a mistake can be made is as likely as any other, then every kind that it can be.
    """
    for seed in seeds:
        talk = Talk(seed, None, 0.5)
        shape, subtlety = talk.pick(shapes, "shape"), talk.draw("subtlety")
        able = spots(seed, shape)
        turns = sorted({turn for turn, _ in able})
        turn = turns[int(talk.draw("turn") * len(turns))]
        here = [spot for t, spot in able if t == turn]
        trace = expert_chat(seed, shape, here[int(talk.draw("spot") * len(here))], subtlety)
        found = mistake_of(trace)
        if found is not None and found.is_decisive:
            yield trace


def _trace(talk: Talk, problem: Problem, reward: float, name: str) -> Trace:
    """Everybody hears everything: a turn reads all that was said since its speaker's last one."""
    contents = {content_ref(problem.question): problem.question}
    events = [
        Event(id="task", t=0, type="human_intervention", agent="user", role="user", content_ref=content_ref(problem.question))
    ]
    edges: list[Edge] = []
    heard: dict[str, int] = {}
    before = talk.turns[0][0]
    for i, (who, text, ok) in enumerate(talk.turns):
        contents[content_ref(text)] = text
        if not who:
            events.append(Event(id=f"s{i}", t=i + 1, type="tool_result", agent=before, role=before, tool="terminal", ok=ok,
                                content_ref=content_ref(text), trusted=False, source="tool"))  # fmt: skip
            edges.append(Edge(events[-2].id, f"s{i}", "causal"))
            continue
        kind = "orchestrator_decision" if who == "Orchestrator" else "message"
        events.append(Event(id=f"s{i}", t=i + 1, type=kind, agent=who, role=who, from_=who, content_ref=content_ref(text)))  # type: ignore[arg-type]
        edges += [Edge(e.id, f"s{i}", "message") for e in events[heard.get(who, 0) : -1]]
        heard[who], before = len(events) - 1, who
    return Trace(
        trace_id=name, task_id=f"expert_chat/{talk.seed}", system="expert_chat", events=events, edges=edges, contents=contents,
        rewards={"team": reward}, topology="centralized" if talk.turns[0][0] == "Orchestrator" else None,
    )  # fmt: skip
