"""`cpt.judge`: verdicts by a model, kept as annotations with their provenance, and held against what people said.

Always true: a verdict is on disk as soon as it is given, so that the same call goes on after an interruption; the same question
is asked a model once. A model that costs something is asked only within `budget_tokens`, after an estimate. What people said is
never shown to the judge.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

from counterpoint.app.api.annotate import chosen_names, opened
from counterpoint.audits.agreement import Agreement, of_labels, of_scores
from counterpoint.display import counted
from counterpoint.errors import InputError, Refused
from counterpoint.formats.masking import masked
from counterpoint.guard.prices import price_of
from counterpoint.lab.app.api.rubric import Rubric, call_for, read_rubric, things
from counterpoint.lab.lm.budget import tokens_of
from counterpoint.lab.lm.model import Call, Completion, Model, ModelFailed
from counterpoint.store import Store
from counterpoint.trace.annotation import Annotation, annotation
from counterpoint.trace.tabular import Bar, Tabular

if TYPE_CHECKING:
    from counterpoint.app.api.inputs import Source, StorePlace

_FREE = ("fake", "scripted", "local")
_AT_ONCE = 8
_FAILED_AT_FIRST = 3
"""So many failures before the first verdict end it."""


@dataclass(frozen=True)
class Question:
    """One thing to be judged."""

    trace_id: str
    event: str | None
    call: Call
    key: str
    """The content address of the question at this model: who was asked it once is not asked again."""

    @property
    def tokens(self) -> int:
        """The most that it may take."""
        return tokens_of(self.call)


@dataclass(frozen=True)
class Plan:
    """What is to be asked, what is known already, and what it may cost."""

    rubric: Rubric
    model: Model
    questions: tuple[Question, ...]
    """Those that are left."""
    known: int
    """Questions that were answered before."""
    is_free: bool

    @property
    def tokens(self) -> int:
        """The most that the questions may take together."""
        return sum(q.tokens for q in self.questions)

    def dollars(self, price: Sequence[float] | None = None) -> float | None:
        """The most that they may cost, by `price` per million tokens in and out, or by the package's table; None: not known."""
        found = price or price_of(self.model.name.partition(":")[2])
        if found is None:
            return None
        out = sum(q.call.max_tokens for q in self.questions)
        return ((self.tokens - out) * found[0] + out * found[1]) / 1e6


@dataclass(frozen=True)
class Judged(Tabular):
    """What the judge said, and how far it is to be believed."""

    TABLE: ClassVar = {
        "trace_id": "string", "event": "string", "name": "string", "label": "string", "score": "double", "text": "string",
        "by": "string", "id": "string",
    }  # fmt: skip

    rubric: Rubric
    model: str
    rows: tuple[Annotation, ...]
    """Every verdict of this judge and rubric on what was asked for, the new ones and those from before."""
    asked: int = 0
    """How many were asked now."""
    tokens: int = 0
    """What that took."""
    most_tokens: int = 0
    """The most that all questions without an answer before could take."""
    left: int = 0
    """Questions that the budget did not reach, or that the judge did not answer."""
    unread: int = 0
    """Answers without a verdict; nothing is kept of them."""
    failures: Mapping[str, int] = field(default_factory=dict)
    agreement: Agreement | None = None
    """With people's labels or scores of the rubric's name; None where nobody judged the same things."""
    people: Agreement | None = None
    """Of people with each other, where two or more judged the same things: what one may hope for."""

    def picture(self) -> list[Bar]:
        """How well it agrees with people."""
        return [(f.name, f.value, f.low, f.high) for f in (self.agreement.figures if self.agreement else ())]

    def caption(self) -> str:
        """Who judged what, and the first figure of agreement."""
        told = [f"{f.name} {f.value:.2f}" for f in self.agreement.figures if f.value is not None] if self.agreement else []
        return f"{self.rubric.name} by {self.model}" + (f"; with people: {', '.join(told[:2])}" if told else "")


def judge(
    traces: Source,
    *,
    model: str | Model,
    rubric: str | os.PathLike[str] | Rubric,
    budget_tokens: int | None = None,
    store: StorePlace = None,
    **options: Any,
) -> Judged:
    """Let a model judge stored traces by a rubric, keep its verdicts, and say how well it agrees with people.

    `traces` is a query, ids or a collection (`in:NAME`); `rubric` a file (see docs/notes.md). `model` is `local:NAME`, or
    `openai:NAME` with `base_url` and `key_env`, which needs `budget_tokens`; `fake:SKILL` is a test double.

    >>> import counterpoint as cpt
    >>> from pathlib import Path
    >>> from counterpoint.testing import synthetic_trace
    >>> with cpt.Store("traces") as store:
    ...     _ = store.add(synthetic_trace(3, 9))
    >>> _ = cpt.annotate("finished", label={"verdict": "right"}, by="ann")
    >>> _ = Path("verdict.toml").write_text('text = "Is the answer right?"\\nlabels = ["right", "wrong"]\\nname = "verdict"')
    >>> [row.label for row in cpt.judge("finished", model="fake:1", rubric="verdict.toml").rows]
    ['right']
    """
    found = rubric if isinstance(rubric, Rubric) else read_rubric(rubric)
    how = {name: options.pop(name) for name in ("context", "seed", "at_once") if name in options}
    with opened(store, writes=True) as place:
        made = model if isinstance(model, Model) else judge_model(model, found, place, **options)
        plan = plan_of(place, traces, found, made, **{k: v for k, v in how.items() if k != "at_once"})
        check_budget(plan, budget_tokens)
        return asyncio.run(run(place, plan, traces, budget_tokens=budget_tokens, at_once=how.get("at_once", _AT_ONCE)))


def judge_model(name: str, rubric: Rubric, place: Store, **options: Any) -> Model:
    """The judge by what the command line calls it."""
    kind, _, rest = name.partition(":")
    if kind == "fake":
        return FakeJudge(rubric, place.annotations(), _skill(rest))
    from counterpoint.lab.team.session import make_model

    given = {key: value for key, value in options.items() if value is not None}
    return make_model(name, None, **given)  # type: ignore[arg-type]  # only a fake player needs a task


def plan_of(place: Store, traces: Any, rubric: Rubric, model: Model, *, context: int = 4_000, seed: int = 0) -> Plan:
    """The questions, and which of them were answered before."""
    known = {a.basis.get("call") for a in place.annotations() if a.is_model}
    left, answered = [], 0
    for name in chosen_names(place, traces):
        trace = masked(place.get(name))[0]  # an endpoint is shown no secret
        for event in things(rubric, trace):
            call = call_for(rubric, trace, event, context=context, seed=seed)
            key = call.key(model.name, model.version)
            if isinstance(model, FakeJudge):
                model.places[call.messages[-1].ref] = name, None if event is None else event.id
            if key in known:
                answered += 1
            else:
                left.append(Question(name, None if event is None else event.id, call, key))
    is_free = model.name.partition(":")[0] in _FREE
    return Plan(rubric, model, tuple(left), answered, is_free)


def check_budget(plan: Plan, budget_tokens: int | None) -> None:
    """Raise where a model that costs something would be asked without a budget."""
    if plan.questions and not plan.is_free and budget_tokens is None:
        what = f"{plan.model.name} would be asked {counted(len(plan.questions), 'question')}, for up to {plan.tokens:,} tokens"
        raise Refused(what, fix=f"--cap tokens={plan.tokens} allows that much; with a smaller number it stops earlier")


# -- asking --------------------------------------------------------------------------------------------------------------


async def run(
    place: Store,
    plan: Plan,
    traces: Any,
    *,
    budget_tokens: int | None = None,
    at_once: int = _AT_ONCE,
    tell: Callable[[int], None] = lambda done: None,
) -> Judged:
    """Ask what is left, within the budget, some at a time; each verdict is stored as it comes."""
    asking = _Asking(place, plan, budget_tokens, tell)
    waiting = iter(plan.questions)

    async def work() -> None:
        for question in waiting:
            if not await asking.one(question):
                return

    try:
        async with asyncio.TaskGroup() as group:
            for _ in range(min(at_once, len(plan.questions))):
                group.create_task(work())
    except* ModelFailed as failed:
        raise _first(failed) from None
    finally:
        await plan.model.close()
    names = frozenset(chosen_names(place, traces))
    left = len(plan.questions) - asking.kept
    return judged(place, plan.rubric, plan.model, names, asked=asking.asked, tokens=asking.spent, most_tokens=plan.tokens,
                  left=left, unread=asking.unread, failures=dict(asking.failures))  # fmt: skip


def _first(group: BaseExceptionGroup[Any]) -> BaseException:
    inner: BaseException = group.exceptions[0]
    return _first(inner) if isinstance(inner, BaseExceptionGroup) else inner


class _Asking:
    """Questions under way."""

    def __init__(self, place: Store, plan: Plan, budget: int | None, tell: Callable[[int], None]) -> None:
        self._place, self._plan, self._budget, self._tell = place, plan, budget, tell
        self.asked = self.kept = self.unread = self.spent = self._reserved = 0
        self.failures: Counter[str] = Counter()

    async def one(self, question: Question) -> bool:
        """Ask one and keep the verdict; False where the budget does not reach."""
        if self._budget is not None and self.spent + self._reserved + question.tokens > self._budget:
            return False
        self._reserved += question.tokens
        self.asked += 1
        try:
            answer = await self._plan.model.complete(question.call)
            self.spent += _tokens(answer, question)
        except ModelFailed as failed:
            self.failures[failed.kind] += 1
            if not self.kept and self.failures.total() >= _FAILED_AT_FIRST:
                raise
            return True
        finally:
            self._reserved -= question.tokens
        verdict = self._plan.rubric.read(answer.text)
        if verdict is None:
            self.unread += 1
        else:
            self._place.annotate([self._annotation(question, answer, *verdict)], is_known=True)
            self.kept += 1
        self._tell(self.asked)
        return True

    def _annotation(self, question: Question, answer: Completion, verdict: str, why: str) -> Annotation:
        plan = self._plan
        basis = {
            "rubric": plan.rubric.hash,
            "call": question.key,
            "prompt": question.call.messages[-1].ref,
            "version": plan.model.version,
            "seed": question.call.seed,
            "tokens": _tokens(answer, question),
        }
        value: dict[str, Any] = {"label": verdict} if plan.rubric.scale is None else {"score": int(verdict)}
        return annotation(question.trace_id, event=question.event, name=plan.rubric.name, text=why, by=plan.model.name,
                          at=time.time(), is_model=True, basis=basis, **value)  # fmt: skip


def _tokens(answer: Completion, question: Question) -> int:
    """What a call took; what the model does not say is counted as the most that it may have taken."""
    if answer.tokens_in is None or answer.tokens_out is None:
        return question.tokens
    return answer.tokens_in + answer.tokens_out


# -- agreement -----------------------------------------------------------------------------------------------------------


def judged(place: Store, rubric: Rubric, model: Model, names: frozenset[str], **told: Any) -> Judged:
    """The verdicts of a judge that there are, and how they agree with people's."""
    own: dict[tuple[str, str | None], Annotation] = {}
    by_person: dict[str, dict[tuple[str, str | None], Any]] = {}
    for one in place.annotations():
        if one.trace_id not in names or one.name != rubric.name:
            continue
        place_of, value = (one.trace_id, one.event), one.label if rubric.scale is None else one.score
        if one.is_model and one.by == model.name and one.basis.get("rubric") == rubric.hash:
            own[place_of] = one
        elif not one.is_model and value is not None:
            by_person.setdefault(one.by, {})[place_of] = value
    verdicts = {at: one.label if rubric.scale is None else one.score for at, one in own.items()}
    people = {at: _joined([said[at] for said in by_person.values() if at in said], rubric) for at in verdicts}
    pairs = [(verdicts[at], value) for at, value in people.items() if value is not None]
    return Judged(rubric, model.name, tuple(own.values()), agreement=_agreement(pairs, rubric),
                  people=_agreement(_people_pairs(by_person), rubric), **told)  # fmt: skip


def _joined(values: list[Any], rubric: Rubric) -> Any:
    """What people say together: the label of most of them, or the mean score; None where they are split, or nobody says any."""
    if not values:
        return None
    if rubric.scale is not None:
        return sum(values) / len(values)
    (first, count), *others = Counter(values).most_common(2)
    return None if others and others[0][1] == count else first


def _people_pairs(by_person: Mapping[str, Mapping[Any, Any]]) -> list[tuple[Any, Any]]:
    """Every thing that two people judged, once for each pair of them."""
    who = sorted(by_person)
    twos = [(by_person[a], by_person[b]) for i, a in enumerate(who) for b in who[i + 1 :]]
    return [(first[at], second[at]) for first, second in twos for at in first if at in second]


def _agreement(pairs: list[tuple[Any, Any]], rubric: Rubric) -> Agreement | None:
    if not pairs:
        return None
    first, second = zip(*pairs, strict=True)
    return of_labels(first, second) if rubric.scale is None else of_scores(first, second)


# -- a test double ----------------------------------------------------------------------------------------------------------


class FakeJudge:
    """A test double of a judge, no model: says what people said with chance `skill`, and else a verdict drawn at random."""

    def __init__(self, rubric: Rubric, known: Sequence[Annotation], skill: float) -> None:
        self.rubric, self.skill = rubric, skill
        self.name, self.version = f"fake:{skill:g}", "judge-1"
        people = [a for a in known if not a.is_model and a.name == rubric.name]
        self._said = {(a.trace_id, a.event): a.label if rubric.scale is None else a.score for a in people}
        self.places: dict[str, tuple[str, str | None]] = {}
        """What each prompt is about: the one thing that a fake cannot read in it."""

    async def complete(self, call: Call) -> Completion:
        """A verdict, by the call's text and seed."""
        ref, verdicts = call.messages[-1].ref, self.rubric.verdicts
        said = self._said.get(self.places.get(ref, ("", None)))
        verdict = verdicts[int(_drawn(f"{call.seed}|{ref}|which") * len(verdicts))]
        if said is not None and _drawn(f"{call.seed}|{ref}|skill") < self.skill:
            verdict = str(said) if self.rubric.scale is None else str(round(float(said)))
        asked = sum(m.words for m in call.messages)
        return Completion(text=f"{verdict}: drawn by a test double", tokens_in=asked, tokens_out=5)

    async def close(self) -> None:
        """Nothing to let go of."""


def _drawn(text: str) -> float:
    """A number from 0 to 1 that the text decides."""
    word = hashlib.blake2b(text.encode(), digest_size=8).digest()
    return (int.from_bytes(word, "big") >> 11) * 2.0**-53


def _skill(text: str) -> float:
    try:
        skill = float(text or 0.8)
    except ValueError:
        skill = -1.0
    if not 0 <= skill <= 1:
        raise InputError(f"{text!r} is not a skill", where="--model fake:SKILL", fix="a number from 0 to 1, as in fake:0.8")
    return skill
