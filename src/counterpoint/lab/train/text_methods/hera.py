"""HERA: several teams try a task, the better ones are told from the worse in words, and a library keeps what helped.

    rank by score, then by fewer tokens;      utility = successes / uses of an insight

Always true: only a group with a success and a failure makes an insight, by one call; a group in which all fail changes the
teams that are tried next: the worst is given another shape (MUTATE). The library ADDs what nothing resembles, MERGEs what
complements, PRUNEs what contradicts and failed more often, and KEEPs the rest.

HERA arXiv 2604.00901, from a third-party reproduction (four teams per task). Departures: a team is one of the topologies and a
width; words that resemble share half of their longer ones; prompts of blamed agents are not varied.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import NamedTuple

import numpy as np

import counterpoint.registry as registry
from counterpoint.lab.train.text_method import (
    Asker,
    Teams,
    TextLog,
    TextSettings,
    prompts_of,
    reviewer_of,
    row_of,
    score_of,
    tokens_of,
    trace_lines,
)

GROUP = 4
SOLVED = 0.5
_INSIGHT = "You compare a team that did well with one that did badly on the same task. Say in one sentence why."
_TOKENS = 500


class Tried(NamedTuple):
    """One team's attempt."""

    id: str
    score: float
    tokens: int


def hera_rank(tried: Sequence[Tried]) -> list[Tried]:
    """The best first: by score, and of equal ones the cheaper."""
    return sorted(tried, key=lambda t: (-t.score, t.tokens))


def is_mixed(tried: Sequence[Tried], *, solved: float = SOLVED) -> bool:
    """Whether there is something to tell apart: a success and a failure."""
    return any(t.score > solved for t in tried) and not all(t.score > solved for t in tried)


@dataclass
class Insight:
    """An entry of the library."""

    profile: str
    """What kind of task it is about."""
    text: str
    uses: int = 0
    successes: int = 0

    @property
    def utility(self) -> float:
        """Successes / uses; 1 for one that was never used."""
        return self.successes / self.uses if self.uses else 1.0

    def used(self, is_success: bool) -> None:
        """Take one use in."""
        self.uses, self.successes = self.uses + 1, self.successes + is_success


def _words(text: str) -> set[str]:
    return {w for w in re.findall(r"[a-z]+", text.lower()) if len(w) > 3}


def put_in(library: list[Insight], profile: str, text: str) -> str:
    """Put an insight into the library; says what was done: ADD, MERGE, PRUNE or KEEP."""
    own = _words(text)
    for old in [i for i in library if i.profile == profile]:
        shared = len(own & _words(old.text)) / max(1, min(len(own), len(_words(old.text))))
        if own <= _words(old.text):
            return "KEEP"
        if shared >= 0.5:
            if bool(re.search(r"\b(not|never|avoid)\b", text)) != bool(re.search(r"\b(not|never|avoid)\b", old.text)):
                if old.utility >= SOLVED:
                    return "KEEP"
                library.remove(old)
                library.append(Insight(profile, text))
                return "PRUNE"
            old.text = f"{old.text} {text}"
            return "MERGE"
    library.append(Insight(profile, text))
    return "ADD"


def draw_tips(topologies: Sequence[str], width: int, rng: np.random.Generator) -> list[tuple[str, int]]:
    """The group's teams: topologies and widths, without repetition as long as there are others."""
    every = [(name, w) for name in topologies for w in dict.fromkeys((1, width))]
    return [every[i] for i in rng.permutation(len(every))[:GROUP]]


def mutated(team: tuple[str, int], topologies: Sequence[str], rng: np.random.Generator) -> tuple[str, int]:
    """Another shape for a team that failed: one agent more, or another topology."""
    name, width = team
    if rng.random() < 0.5:
        return name, width + 1
    return str(rng.choice([t for t in topologies if t != name])), width


async def run(settings: TextSettings) -> TextLog:
    """Groups of teams on one task after the other, and what they taught."""
    teams, asker, rng = Teams(settings), Asker(reviewer_of(settings), settings.seed), np.random.default_rng(settings.seed)
    log, topologies = TextLog(prompts=prompts_of()), [t for t in registry.ids("topology") if t != "harness"]
    library: list[Insight] = []
    next_group = draw_tips(topologies, settings.width, rng)
    try:
        for iteration in range(settings.iterations * settings.batch):
            known = [i for i in library if i.profile == settings.task]
            told_so = {**log.prompts}
            if known:
                advice = " ".join(i.text for i in sorted(known, key=lambda i: -i.utility)[:3])
                told_so = {role: f"{text} {advice}" if role == "orchestrator" else text for role, text in told_so.items()}
            traces = []
            for name, width in next_group:
                traces.append(await teams.play(settings.spec(settings.seed + iteration, topology=name, width=width), told_so))
            tried = [Tried(str(k), score_of(t), tokens_of(t)) for k, t in enumerate(traces)]
            ranked, note = hera_rank(tried), "none"
            for insight in known:
                insight.used(ranked[0].score > SOLVED)
            if is_mixed(tried):
                best, worst = (trace_lines(traces[int(t.id)], tokens=_TOKENS) for t in (ranked[0], ranked[-1]))
                said = await asker.ask(_INSIGHT, f"Did well:\n{best}\n\nDid badly:\n{worst}", most=_TOKENS)
                note = "none" if said is None else put_in(library, settings.task, said)
            worst_place = int(ranked[-1].id)
            if all(t.score <= SOLVED for t in tried):
                next_group = [mutated(team, topologies, rng) if k == worst_place else team for k, team in enumerate(next_group)]
                note = "MUTATE"
            else:
                next_group = draw_tips(topologies, settings.width, rng)
            log.rows.append(row_of(iteration, [t.score for t in tried], asker, teams, best=ranked[0].score, library=note))
        log.library = [{**asdict(i), "utility": i.utility} for i in library]
    finally:
        await teams.close()
        await asker.model.close()
    return log
