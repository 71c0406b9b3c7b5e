"""Teams that talk: generated conversations of experts who look numbers up, calculate and answer, with mistakes planted at will.

Always true: a conversation is a function of its seed and its mistake. Every draw is keyed by what it is for, so the run with a
mistake and the run without it are the same up to the mistake, and after it differ only by what follows from it. A number that is
said is the number that the speaker has at that point: a wrong one is carried on by everybody who uses it.

Real teams that fail err more than once, and the first mistake that cannot be made good decides. So `broken_chats` lets
everybody err at some rate and finds that mistake by playing the conversation again with the first n mistakes alone.

Two shapes: a `panel` of experts in one room with a terminal, and a team that is `led` by an orchestrator who asks others to look
things up. It is made for `audit.blame` to learn from: what a mistake looks like afterwards, when its place is known.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from counterpoint.lab.bench.expert_chat.led_team import LedTeam
from counterpoint.lab.bench.expert_chat.panel import Panel
from counterpoint.lab.bench.expert_chat.talk import Problem, Spot, Talk, make_problem
from counterpoint.trace import Edge, Event, Trace, content_ref
from counterpoint.trace.mistake import Mistake, with_mistake

SHAPES = ("panel", "led")
_MOST = 0.5
"""How likely a mistake is, at most, wherever one can be made."""
_READERS = frozenset({"WebSurfer", "FileSurfer"})
"""Their turns are what a page or a file says."""
_PLAYS: dict[str, type[Panel] | type[LedTeam]] = {"panel": Panel, "led": LedTeam}


def _played(talk: Talk, shape: str) -> tuple[Problem, float]:
    problem = make_problem(talk)
    answer = _PLAYS[shape](talk, problem).run()
    return problem, float(answer == problem.answer(problem.values))


def expert_chat(seed: int, shape: str = "panel", mistake: Spot | None = None, subtlety: float = 0.5) -> Trace:
    """One conversation; with a mistake, the truth about it is in `meta` and the run without it is the truth's other half."""
    talk = Talk(seed, mistake, subtlety)
    problem, reward = _played(talk, shape)
    trace = _trace(talk, problem, reward, f"chat-{shape}-{seed}" + (f"-{mistake.kind}-{mistake.where}" if mistake else ""))
    if not talk.made or talk.made[0][0] >= len(talk.turns):
        return trace
    without = _played(Talk(seed, None, subtlety), shape)[1]
    return with_mistake(trace, _told(talk, talk.made[0], reward, without, f"chat-{shape}-{seed}"))


def _told(talk: Talk, made: tuple[int, Spot], reward: float, without: float, parent: str) -> Mistake:
    step, spot = made
    return Mistake(
        kind=spot.kind, event=f"s{step}", step=step, agent=talk.turns[step].who, subtlety=talk.subtlety, reward=reward,
        reward_without=without, is_decisive=reward < 1 <= without, parent=parent,
    )  # fmt: skip


def spots(seed: int, shape: str = "panel") -> list[tuple[int, Spot]]:
    """Where mistakes could be made in the conversation of this seed, each with its turn."""
    talk = Talk(seed, None, 0.5)
    _played(talk, shape)
    return [(turn, spot) for turn, spot in talk.spots if turn < len(talk.turns)]


def broken_chats(seeds: Sequence[int], *, shapes: Sequence[str] = SHAPES) -> Iterator[Trace]:
    """Conversations of experts who err here and there, at most one per seed, with the mistake that decided each.

    How often they err is drawn for each conversation. The decisive mistake is the first one after which the run fails even if
    nobody errs again: with the mistakes before it alone the run succeeds. Seeds that succeed, or fail without any mistake,
    are left out.
    """
    for seed in seeds:
        draws = Talk(seed, None, 0.5)
        shape, subtlety, rate = draws.pick(shapes, "shape"), draws.draw("subtlety"), _MOST * draws.draw("rate")
        talk = Talk(seed, None, subtlety, rate)
        problem, reward = _played(talk, shape)
        if reward >= 1:
            continue
        without = 0.0
        for most in range(len(talk.made) + 1):
            less = Talk(seed, None, subtlety, rate, most)
            then = _played(less, shape)[1]
            if then < 1:
                break
            without = then
        if most == 0 or talk.made[most - 1][0] >= len(talk.turns):
            continue
        trace = _trace(talk, problem, reward, f"chat-{shape}-{seed}")
        yield with_mistake(trace, _told(talk, talk.made[most - 1], reward, without, f"chat-{shape}-{seed}-{most - 1}"))


def _trace(talk: Talk, problem: Problem, reward: float, name: str) -> Trace:
    """Everybody hears everything but thoughts: a turn reads all that was said since its speaker's last one."""
    contents = {content_ref(problem.question): problem.question}
    events = [
        Event(id="task", t=0, type="human_intervention", agent="user", role="user", content_ref=content_ref(problem.question))
    ]
    edges: list[Edge] = []
    heard: dict[str, int] = {}
    asides: set[str] = set()
    before = talk.turns[0].who
    for i, said in enumerate(talk.turns):
        who, ref = said.who, content_ref(said.text)
        contents[ref] = said.text
        if not who:
            events.append(Event(id=f"s{i}", t=i + 1, type="tool_result", agent=before, role=before, tool="terminal", ok=said.ok,
                                content_ref=ref, trusted=False, source="tool"))  # fmt: skip
            edges.append(Edge(events[-2].id, f"s{i}", "causal"))
            continue
        fields: dict[str, Any] = {"decision": said.decision} if said.decision else {}
        if who in _READERS:
            fields |= {"trusted": False, "source": "tool"}
        kind = "orchestrator_decision" if who == "Orchestrator" else "message"
        events.append(Event(id=f"s{i}", t=i + 1, type=kind, agent=who, role=who, from_=who, content_ref=ref, **fields))  # type: ignore[arg-type]
        since = events[heard.get(who, 0) : -1]
        edges += [Edge(e.id, f"s{i}", "message") for e in since if e.id not in asides or e.agent == who]
        if said.is_aside:
            asides.add(f"s{i}")
        heard[who], before = len(events) - 1, who
    return Trace(
        trace_id=name, task_id=f"expert_chat/{talk.seed}", system="expert_chat", events=events, edges=edges, contents=contents,
        rewards={"team": reward}, topology="centralized" if talk.turns[0].who == "Orchestrator" else None,
    )  # fmt: skip
