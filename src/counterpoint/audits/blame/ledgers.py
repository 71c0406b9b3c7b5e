"""What goes wrong in a team whose orchestrator keeps a ledger (Magentic-One, Fourney et al., arXiv 2411.04468).

Such an orchestrator writes down facts and a plan, sends a member an instruction, and after every answer asks itself: is the
request satisfied, are we in a loop, is there progress, who is next. Where it stalls, it makes a new plan. The signals are few,
because labelled runs are few, and each has a reason:

| signal | why it may decide |
|---|---|
| `is_answer`, `first_answer` | what comes from outside goes wrong first; the first search is seldom it |
| `late_round` | later rounds follow from what went wrong before: answers so far / 20 |
| `taken_as_done` | the next instruction asks for something else: 1 - Jaccard of their words; a half where there is none |
| `noticed_next` | the ledger after it is the first to see a loop or no progress |
| `cut_off_here` | the run ends with this answer, after few: exp(-(answers / 6)^2) |
| `lone_help` | a member who reads nothing says or computes it: 1 / sqrt(steps of such members) |
| `help_at_last` | the same, right before the request is called satisfied |
| `first_replan` | gives up the plan, and what was found, for another |
| `accepted_answer`, `accepting_lead` | the run was called satisfied: nobody but the orchestrator could have refused its result |
| `accepted_early` | the ledger that calls it satisfied, after few answers: exp(-(answers / 6)^2) |

Always true: a run without a ledger has none of them; they are read from texts, speakers and order alone.
"""

from __future__ import annotations

import math
import re
from bisect import bisect_left, bisect_right
from typing import NamedTuple

import numpy as np

from counterpoint.audits.blame.steps import Floats, Steps

LEDGER_SIGNALS = (
    "is_answer", "first_answer", "late_round", "taken_as_done", "noticed_next", "cut_off_here", "lone_help", "help_at_last",
    "first_replan", "accepted_answer", "accepting_lead", "accepted_early",
)  # fmt: skip
"""The signals of a step, in the order of the columns."""
AGENT_SIGNALS = ("agent_reads", "agent_helps", "agent_leads", "agent_leads_accepted", "agent_helps_at_last")
"""The signals of an agent: its share of the answers, what it does, and whether the run was called satisfied."""
_KEY = re.compile(
    r'"(is_request_satisfied|is_in_loop|is_progress_being_made)"\s*:\s*\{.*?"answer"\s*:\s*"?(true|false)', re.S | re.I
)
_REPLAN = re.compile(r"\s*stalled\b", re.I)
_READS = re.compile(r"surf|web|search|brows|file|retriev|research")
_WORD = re.compile(r"[a-z0-9][a-z0-9'&.-]+")
_COMMON = frozenset(
    (
        "please", "the", "a", "an", "and", "or", "of", "to", "in", "for", "on", "at", "by", "with", "from", "that", "this", "is",
        "are", "was", "be", "as", "it", "its", "any", "if", "into", "their", "them", "which", "who", "what", "when",
    )
)  # fmt: skip
"""Words that say nothing of a task."""
NO_NEXT_TASK = 0.5
"""`taken_as_done` where no instruction follows."""
_FEW, _LONG, _BRIEF = 6, 20, 60
"""Answers that are few; rounds after which all are late; characters below which a lead only announces."""


def ledger_of(text: str) -> tuple[tuple[str, bool], ...]:
    """What a ledger answers to its questions; empty where the text is no ledger."""
    return tuple((key.lower(), answer.lower() == "true") for key, answer in _KEY.findall(text)) if "is_in_loop" in text else ()


def has_ledger(steps: Steps) -> bool:
    """Whether an orchestrator keeps a ledger in this run."""
    return any(ledger_of(steps.texts[i]) for i in steps.places)


class Rounds(NamedTuple):
    """A run as its orchestrator sees it; steps by their number among the candidates."""

    answers: list[int]
    """Steps of members that read pages or files."""
    helps: list[int]
    """Steps of other members that do not lead."""
    tasks: list[int]
    """Instructions."""
    ledgers: dict[int, dict[str, bool]]
    replan: int
    """The first new plan, or -1."""
    accepts: int
    """The ledger that first calls the request satisfied, or -1."""
    doubts: int
    """The ledger that first sees a loop or no progress, or -1."""

    @property
    def members(self) -> list[int]:
        """Steps of all who do not lead."""
        return sorted(self.answers + self.helps)

    def last_before(self, some: list[int], k: int) -> int:
        """The last of some steps, in their order, before step k, or -1."""
        return some[place - 1] if (place := bisect_left(some, k)) else -1

    def first_after(self, some: list[int], k: int) -> int:
        """The first of some steps, in their order, after step k, or -1."""
        return some[place] if (place := bisect_right(some, k)) < len(some) else -1


def rounds_of(steps: Steps) -> Rounds:
    """The instructions, answers, ledgers and turns of a run."""
    n, texts = len(steps), [steps.texts[i] for i in steps.places]
    ledgers = {k: dict(found) for k in range(n) if (found := ledger_of(texts[k]))}
    leads = {steps.agents[k] for k in ledgers}
    members = [k for k in range(n) if steps.agents[k] not in leads]
    reads = {k for k in members if _READS.search(steps.role(k))}
    doubts = (k for k, led in ledgers.items() if led.get("is_in_loop") or led.get("is_progress_being_made") is False)
    return Rounds(
        answers=sorted(reads), helps=[k for k in members if k not in reads],
        tasks=[k for k in range(n) if steps.trace.events[steps.places[k]].decision == "delegate"], ledgers=ledgers,
        replan=next((k for k in range(n) if steps.agents[k] in leads and _REPLAN.match(texts[k])), -1),
        accepts=next((k for k, led in ledgers.items() if led.get("is_request_satisfied")), -1), doubts=next(doubts, -1),
    )  # fmt: skip


def ledger_signals(steps: Steps) -> dict[str, Floats]:
    """The signals of every step by name, one number per candidate."""
    n, run = len(steps), rounds_of(steps)
    out = {name: np.zeros(n) for name in LEDGER_SIGNALS}
    if not run.ledgers:
        return out
    members, texts = set(run.members), [steps.texts[i] for i in steps.places]
    done = np.cumsum([k in members for k in range(n)])
    out["late_round"] = np.minimum(done / _LONG, 1.0)
    out["is_answer"][run.answers] = 1.0
    out["first_answer"][run.answers[:1]] = 1.0
    out["lone_help"][run.helps] = 1 / math.sqrt(max(len(run.helps), 1))
    for k in run.answers:
        out["taken_as_done"][k] = _taken(steps, run, k)
    if run.doubts >= 0 and (before := run.last_before(run.members, run.doubts)) >= 0:
        out["noticed_next"][before] = 1.0
    if run.answers[-1:] == [n - 1]:
        out["cut_off_here"][n - 1] = _few(len(run.answers))
    if run.replan >= 0:
        out["first_replan"][run.replan] = 1.0
    if run.accepts >= 0:
        out["accepted_answer"][run.answers] = 1.0
        out["accepting_lead"] = np.array([float(k not in members and done[k] > 0 and len(texts[k]) >= _BRIEF) for k in range(n)])
        out["accepted_early"][run.accepts] = _few(sum(k < run.accepts for k in run.answers))
        if (last := run.last_before(run.members, run.accepts)) in run.helps:
            out["help_at_last"][last] = 1.0
    return out


def _few(answers: int) -> float:
    return math.exp(-((answers / _FEW) ** 2))


def _taken(steps: Steps, run: Rounds, k: int) -> float:
    """How unlike the instruction before an answer the next one is; a half where there is none after it."""
    before, after = run.last_before(run.tasks, k), run.first_after(run.tasks, k)
    if before < 0:
        return 0.0
    if after < 0:
        return NO_NEXT_TASK
    a, b = (_words(steps.texts[steps.places[j]]) for j in (before, after))
    return 1 - len(a & b) / max(len(a | b), 1)


def _words(text: str) -> frozenset[str]:
    return frozenset(_WORD.findall(text.lower())) - _COMMON


def agent_table(steps: Steps) -> tuple[list[str], Floats]:
    """The agents of a run, and the signals of each as a row."""
    run = rounds_of(steps)
    agents = list(dict.fromkeys(steps.trace.events[i].agent for i in steps.places))
    own = {a: {k for k, i in enumerate(steps.places) if steps.trace.events[i].agent == a} for a in agents}
    last = run.last_before(run.members, run.accepts) if run.accepts >= 0 else -1
    rows = []
    for agent in agents:
        mine = own[agent]
        reads, helps = len(mine & set(run.answers)), bool(mine & set(run.helps))
        leads = not reads and not helps
        rows.append([reads / max(len(run.answers), 1), helps, leads, leads and run.accepts >= 0, helps and last in mine])
    return agents, np.array(rows, np.float64).reshape(len(agents), len(AGENT_SIGNALS))
