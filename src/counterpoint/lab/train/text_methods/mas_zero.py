"""MAS-Zero: a model designs a team for a task, criticises what it did, designs anew, and at the end chooses among the answers.

    design -> play -> critique -> design ...  `iterations` times;  then one call says which answer is taken

Always true: a design that cannot be read is the default team; without critique the design is asked for again; where no choice
can be read the last answer is taken. The checker's score is logged and never shown to the model: it judges itself.

MAS-Zero arXiv 2505.14996 (abstract: inference only, self-critique). Departures: a design is a topology and a width; there the
model writes the program of the team.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import counterpoint.registry as registry
from counterpoint.lab.team.session import Spec
from counterpoint.lab.train.text_method import (
    Asker,
    Teams,
    TextLog,
    TextSettings,
    json_in,
    prompts_of,
    reviewer_of,
    row_of,
    score_of,
    trace_lines,
)
from counterpoint.trace import Trace

_DESIGN = 'You design teams of agents. Answer with one JSON object: {"topology": NAME, "width": NUMBER of workers, 1 to 8}.'
_CRITIQUE = "You read what a team did. Was every part of the task done, could each be done, and what should change?"
_CHOOSE = "You read several answers to one task. Answer with the number of the one that is right."
_TOKENS = 600


def design_of(reply: str | None, topologies: Sequence[str], default: tuple[str, int]) -> tuple[str, int]:
    """(topology, width) of a reply; what cannot be read is the default's."""
    found = json_in(reply) or {}
    name, width = found.get("topology"), found.get("width")
    is_width = isinstance(width, int) and not isinstance(width, bool) and 1 <= width <= 8
    return str(name) if name in topologies else default[0], int(width) if is_width else default[1]  # type: ignore[arg-type]


def choice_of(reply: str | None, answers: int) -> int:
    """Which answer a reply means, counted from 0; the last one where none can be read."""
    found = re.search(r"\d+", reply or "")
    number = int(found[0]) if found else answers
    return number - 1 if 1 <= number <= answers else answers - 1


async def _solve(settings: TextSettings, teams: Teams, asker: Asker, seed: int) -> tuple[list[Trace], int]:
    """The attempts at one task, and which one the model takes."""
    topologies = [t for t in registry.ids("topology") if t != "harness"]
    default, critique, attempts = (settings.topology, settings.width), "", []  # type: tuple[str, int], str, list[Trace]
    spec: Spec = settings.spec(seed)
    question = spec.make_task().instance(seed).question
    for _ in range(settings.iterations):
        ask = f"Choose a team for this task. Topologies: {', '.join(topologies)}.\nTask:\n{question}\n{critique}"
        name, width = design_of(await asker.ask(_DESIGN, ask, most=100), topologies, default)
        attempts.append(await teams.play(settings.spec(seed, topology=name, width=width), prompts_of()))
        said = await asker.ask(_CRITIQUE, trace_lines(attempts[-1], tokens=_TOKENS), most=200)
        critique = f"What was wrong the last time:\n{said}" if said else ""
    listed = "\n".join(f"{k}. {_answer(t)}" for k, t in enumerate(attempts, start=1))
    taken = choice_of(await asker.ask(_CHOOSE, f"Task:\n{question}\nWhich answer?\n{listed}", most=10), len(attempts))
    return attempts, taken


def _answer(trace: Trace) -> str:
    """What the team's last words were, cut."""
    said = [trace.text(e) or "" for e in trace.events if e.agent == "lead"]
    return " ".join(said[-1].split())[:400] if said else ""


async def run(settings: TextSettings) -> TextLog:
    """Every task of the batch, each with its own designs."""
    teams, asker, log = Teams(settings), Asker(reviewer_of(settings), settings.seed), TextLog(prompts=prompts_of())
    try:
        for k in range(settings.batch):
            attempts, taken = await _solve(settings, teams, asker, settings.seed + k)
            scores = [score_of(t) for t in attempts]
            log.rows.append(row_of(k, [scores[taken]], asker, teams, attempts=scores, taken=taken))
    finally:
        await teams.close()
        await asker.model.close()
    return log
