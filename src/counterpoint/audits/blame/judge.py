"""Blame: the steps of a failed run, ranked by what may have decided it, with agent and reasons; and what recurs over many runs.

Always true: shares are over the candidates of the run and sum to 1, given that one of its own steps decided it; the word beside
them comes from how often first suspects were right on labelled runs (`certainty`). What is not known (an outcome, a text) is said
in `notes` and never guessed. A run that succeeded, or that nothing says failed, is refused. Where no step stands out, what failed
is told instead.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

import numpy as np
from msgspec import Struct

from counterpoint.audits.blame.certainty import NOBODY, Rate, coverage_of, kind_of, rate_of
from counterpoint.audits.blame.ranker import AGENTS, agent_shares, shape_of, shipped, table
from counterpoint.audits.blame.reasons import FAMILIES, Reason, reasons
from counterpoint.audits.blame.sentence import Why, why
from counterpoint.audits.blame.signals import ROLES, Surprise, surprising, unlike_others
from counterpoint.audits.blame.steps import Steps
from counterpoint.audits.failures import Failure, failures
from counterpoint.errors import NotIdentified, Refused
from counterpoint.trace import Trace
from counterpoint.trace.naming import first_line
from counterpoint.trace.outcome import by_hand

_UNMEASURED = "no labelled run of this kind says how often a first suspect is right"
_EXPLAINED = 10
_LISTED = 12
CIRCUMSTANCES = frozenset({"place", "who", "reach", "manner", "words"})
"""Families that say where, who and how, and not what went wrong."""
TILT = 0.5
"""What a unit of what other runs or a local model say adds to the log of the odds."""
_OFTEN = 3
"""A role that is suspected in fewer runs is told by what it does."""
_DOES = {
    "is_checker": "those who check",
    "is_lead": "those who lead",
    "is_coder": "those who write code or work on data",
    "is_reader": "those who read pages or files",
}


class Suspect(Struct, frozen=True, kw_only=True):
    """One step."""

    event: str
    step: int
    """The entry of the source's conversation, where it is one; else the place among the trace's events, from 0."""
    agent: str
    name: str
    """What people call the agent."""
    type: str
    score: float
    """The ranker's share of this step; how often first suspects were right is the run's `rate`."""
    text: str | None
    reasons: list[Reason]
    """Of the first suspects only."""


class Blame(Struct, frozen=True, kw_only=True):
    """One run, judged."""

    trace_id: str
    outcome: float | None
    suspects: list[Suspect]
    """The largest share first."""
    agents: dict[str, float]
    """Each agent's steps together; in a team with a ledger by a ranker of agents."""
    sure: str
    """`likely`, `a guess` or `no step stands out`, by `rate`."""
    rate: Rate | None
    """How often first suspects were right on labelled runs of this kind; None where nobody has labelled any."""
    steps: int
    """Candidates."""
    step_set: list[int] | None
    """Steps, best first, of which one decided nine in ten labelled runs of this kind; None where only the whole run would do."""
    coverage: Rate | None
    """How often such sets held the labelled step."""
    why: Why
    """One sentence for the first suspect, with the two events that show it."""
    notes: list[str]
    """What it would take to know more."""
    failed: list[Failure] = []
    """Where no step stands out, what went wrong in the run: those that no later call mended first."""

    @property
    def stands_out(self) -> bool:
        """Whether a step is named: first suspects of such runs were right more often than the best fixed rule."""
        return self.sure != NOBODY

    @property
    def verdict(self) -> str:
        """The word, whom it is said of, and the frequency that it rests on."""
        first = self.suspects[0]
        who = f": {first.name} at step {first.step} ({first.score:.0%})" if self.stands_out else ""
        return f"{self.sure}{who}; {_UNMEASURED if self.rate is None else self.rate.words}"

    @property
    def set_words(self) -> str:
        """The set of steps as a clause."""
        if self.coverage is None:
            return "cannot say: no labelled run of this kind"
        if self.step_set is None:
            return "cannot say: only the whole run would hold it in nine of ten"
        count = len(self.step_set)
        which = ", ".join(map(str, sorted(self.step_set)[:_LISTED])) + (", …" if count > _LISTED else "")
        of = f"{self.coverage.share:.0%} of {self.coverage.count} {self.coverage.of}"
        return f"{count} of {self.steps} steps ({which}); such sets held it in {of}"

    @property
    def cause(self) -> str:
        """The family of the strongest reason that says more than where and who."""
        first = self.suspects[0].reasons if self.suspects else []
        causes = [r for r in first if r.family not in CIRCUMSTANCES and r.is_cause] or first
        return causes[0].family if causes else "place"


def succeeded(trace: Trace, bar: float = 1.0) -> bool | None:
    """Whether a run succeeded: as a person scored it, else by its verdict, else by its team reward against the bar, else by its
    source's labels; None where nothing says so."""
    success = (trace.metrics or {}).get("task_success")
    if success is not None and by_hand(trace, "team") is None:
        return float(success) >= 1.0
    reward = trace.rewards.get("team")
    return _labelled(trace) if reward is None else float(reward) >= bar


def _labelled(trace: Trace) -> bool | None:
    """What a source's own labels say: right or wrong, or that somebody's mistake decided the failure."""
    labels = trace.meta.get("labels")
    if not isinstance(labels, dict):
        return None
    label = next(
        (labels[name] for name in ("is_correct", "correct", "resolved", "success") if isinstance(labels.get(name), bool)), None
    )
    return False if label is None and "mistake_agent" in labels else label


def blame(
    trace: Trace,
    *,
    others: Sequence[Trace] = (),
    surprise: Surprise | None = None,
    bar: float = 1.0,
    anyway: bool = False,
    most: int | None = None,
) -> Blame:
    """Rank the steps of one run; `others` are other runs of its task, `surprise` a local model.

    A run whose team reward is at least `bar`, or that nothing says failed, is refused unless `anyway`.
    """
    steps = Steps(trace)
    notes = _notes(trace, steps, bar, anyway)
    ranker = shipped(shape_of(steps))
    known = [_all_claims(other) for other in others if other.trace_id != trace.trace_id and other.task_id == trace.task_id]
    more = {"unlike_others": unlike_others(steps, known), "surprise": surprising(steps, surprise)}
    x = table(steps, ranker.names, more)
    p = _adjusted(ranker.probabilities(x), more)
    order = np.argsort(-p, kind="stable")
    shown = order[:most].tolist() if most is not None else order.tolist()
    parts = ranker.parts(x)
    told = {k: reasons(steps, k, parts, x, ranker.names) for k in shown[:_EXPLAINED]}
    kind, first = kind_of(steps), int(order[0])
    size = ranker.set_size(len(steps)) if kind != "alone" else None
    rate = rate_of(kind, float(p[first]))
    word = NOBODY if rate is None else rate.word
    failed = [] if word != NOBODY else sorted(failures(trace), key=lambda f: f.is_mended)
    return Blame(
        trace_id=trace.trace_id, outcome=_number(trace.rewards.get("team")), steps=len(steps), notes=notes,
        suspects=[_suspect(steps, k, float(p[k]), told.get(k, [])) for k in shown],
        agents={a: round(share, 6) for a, share in _agents(steps, p).most_common()},
        sure=word, rate=rate, failed=failed, coverage=coverage_of(kind),
        step_set=None if size is None else [steps.numbers[k] for k in order[:size].tolist()],
        why=why(steps, first, _name(steps, first), told.get(first) or reasons(steps, first, parts, x, ranker.names)),
    )  # fmt: skip


def _agents(steps: Steps, p: np.ndarray) -> Counter[str]:
    """Each agent's share: of its steps together, or of the ranker of agents."""
    if shape_of(steps) == "ledger":
        return Counter(agent_shares(steps, shipped(AGENTS)))
    agents: Counter[str] = Counter()
    for k, share in enumerate(p.tolist()):
        agents[steps.trace.events[steps.places[k]].agent] += share
    return agents


def _name(steps: Steps, k: int) -> str:
    return steps.facts.team.label_A[steps.agents[k]]


def _adjusted(p: np.ndarray, more: dict[str, np.ndarray]) -> np.ndarray:
    """Other runs and a local model move the odds a little: a unit of either counts e to the half."""
    tilt = np.exp(TILT * sum(more.values(), start=np.zeros(len(p))))
    return np.asarray(p * tilt / float((p * tilt).sum()))


def _number(value: float | int | None) -> float | None:
    return None if value is None else float(value)


def _notes(trace: Trace, steps: Steps, bar: float, anyway: bool) -> list[str]:
    """What is missing; raises where there is nothing to rank."""
    won = succeeded(trace, bar)
    if won and not anyway:
        reward = trace.rewards.get("team")
        suffix = "" if reward is None else f" (team reward {reward:g})"
        fix = "--success X says what counts as a success, --all ranks its steps as if it had failed"
        raise Refused(f"the run succeeded{suffix}: nobody is to blame", where=trace.trace_id, fix=fix)
    if not len(steps):
        raise NotIdentified(
            "no member of the team says or decides anything in this trace",
            "a log with the team's own steps",
            where=trace.trace_id,
        )
    out = []
    if won is None and not anyway:
        fix = "`counterpoint notes score TRACE down` marks it; `counterpoint audit --failures` lists errors; --all ranks steps"
        raise NotIdentified("nothing says that this run failed, so nobody is to blame", fix, where=trace.trace_id)
    if won is None:
        out.append("the log states no outcome; ranked as if the run had failed")
    if len(steps) == 1:
        out.append("there is one step, so it is the only suspect; this says nothing about whether it was wrong")
    silent = sum(not steps.texts[i].strip() for i in steps.places)
    if silent == len(steps):
        out.append(
            "no step has a text (masked or not recorded): ranked by who, when and which tools failed; texts would say much more"
        )
    elif silent > len(steps) // 2:
        out.append(f"{silent} of {len(steps)} steps have no text (masked or not recorded)")
    if not any(r >= 0 for r in steps.results):
        out.append("no tool results: claims can be compared only with what others said")
    return out


def _suspect(steps: Steps, k: int, score: float, why: list[Reason]) -> Suspect:
    i = steps.places[k]
    event = steps.trace.events[i]
    return Suspect(
        event=event.id, step=steps.numbers[k], agent=event.agent, name=_name(steps, k), type=event.type,
        score=round(score, 6), text=first_line(steps.texts[i], 120) if steps.texts[i].strip() else event.decision, reasons=why,
    )  # fmt: skip


def _all_claims(trace: Trace) -> frozenset[str]:
    steps = Steps(trace)
    return frozenset().union(*(steps.claims[i] for i in steps.places)) if len(steps) else frozenset()


# -- many runs -------------------------------------------------------------------------------------------------------------


class Cause(Struct, frozen=True, kw_only=True):
    """What recurs over many runs."""

    family: str
    words: str
    who: str
    """The role that it happens to; roles that are rare among the runs are told by what they do."""
    runs: int
    expected: float
    """Runs weighted by the ranker's share of their first suspect."""
    trace_id: str
    event: str
    """An example: the one with the largest share."""
    reason: str


def causes(judged: Iterable[tuple[Trace, Blame]]) -> list[Cause]:
    """Runs in which a step stands out, grouped by the family of its strongest reason and by its role; the most first."""
    groups: dict[tuple[str, str], list[tuple[float, Trace, Blame]]] = {}
    every = [(trace, blame) for trace, blame in judged if blame.suspects and blame.stands_out]
    roles = [_role(trace, blame) for trace, blame in every]
    often = Counter(roles)
    for role, (trace, blame) in zip(roles, every, strict=True):
        who = role if often[role] >= min(_OFTEN, len(every)) else _does(role)
        groups.setdefault((blame.cause, who), []).append((blame.suspects[0].score, trace, blame))
    out = []
    for (family, who), rows in groups.items():
        _, trace, blame = max(rows, key=lambda row: (row[0], row[1].trace_id))
        first, expected = blame.suspects[0], round(sum(r[0] for r in rows), 4)
        why = next((r.words for r in first.reasons if r.family == family), FAMILIES[family])
        out.append(Cause(family=family, words=FAMILIES[family], who=who, runs=len(rows), expected=expected,
                   trace_id=trace.trace_id, event=first.event, reason=why))  # fmt: skip
    return sorted(out, key=lambda c: (-c.runs, -c.expected, c.family, c.who))


def _role(trace: Trace, blame: Blame) -> str:
    event = trace.events[trace.index[blame.suspects[0].event]]
    return event.role or event.agent


def _does(role: str) -> str:
    return next((_DOES[name] for name, pattern in ROLES.items() if pattern.search(role.lower())), "others")
