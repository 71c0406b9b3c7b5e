"""Planting mistakes in a run that can be forked: one event is done wrongly, everybody reacts, and the truth is kept.

Always true: a planted mistake is one fork of the run given, so the run without it is that run; same run, seed and dials, same
mistake. The run given is not changed. Kinds that a run offers no place for are passed over.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from counterpoint.audits.blame.steps import Steps
from counterpoint.display import counted, working
from counterpoint.errors import CounterpointError, InputError, NotIdentified, did_you_mean
from counterpoint.trace import Event, Trace
from counterpoint.trace.mistake import MISTAKES, Mistake, MistakeKind, with_mistake
from counterpoint.trace.replay import Delete, Do, Force, Replay, Substitute

_NUMBER = re.compile(r"\d+")
_NAME = re.compile(r"\b[A-Z][a-z]{3,}\b")
_SIDES = {"true": "false", "false": "true", "ACCEPT": "REJECT", "REJECT": "ACCEPT"}
_SENTENCE = re.compile(r"(?<=[.;!?\n])\s+")
_VOTE = re.compile(r"\b[01]\Z")


class Place(NamedTuple):
    """Where a mistake can be made, and how."""

    at: str
    """The event to edit."""
    do: Do
    was: str | None
    became: str | None
    blamed: str | None = None
    """The event in which the mistake is made, where it is not the edited one."""


Draw = np.random.Generator


def inject(
    trace: Trace,
    replay: Replay,
    *,
    kinds: Sequence[str] = MISTAKES,
    count: int = 1,
    seed: int = 0,
    subtlety: float = 0.5,
    bar: float | None = None,
    is_decisive: bool = True,
    tries: int = 12,
) -> Iterator[Trace]:
    """Runs with one mistake each, at most `count`; with `is_decisive` only those that fail where the run given succeeded.

    A run succeeds whose team reward is at least `bar` (without one: at least what the run given got).
    """
    _check(trace, kinds, subtlety)
    rng = np.random.default_rng([seed, 17])
    good = float(trace.rewards["team"])
    bar = good if bar is None else bar
    steps, done = Steps(trace), set()
    n_made = 0
    with working("mistakes", count) as work:
        for tried in range(count * tries):
            work.at(n_made, about=f"{counted(tried, 'try', 'tries')} of at most {count * tries:,}")
            if n_made >= count:
                return
            kind = kinds[int(rng.integers(len(kinds)))]
            places = _PLACES[kind](trace, steps, rng, subtlety)
            if not places:
                continue
            place = places[int(rng.integers(len(places)))]
            if (key := (place.at, repr(place.do))) in done:
                continue
            done.add(key)
            try:
                forked = replay.fork(trace, place.at, place.do)
            except CounterpointError:
                continue  # the event cannot take this edit
            decides = float(forked.rewards["team"]) < bar - 1e-9 <= good
            injected = _marked(trace, forked, kind, place, subtlety, decides)
            if injected is not None and (decides or not is_decisive):
                n_made += 1
                yield injected


def _check(trace: Trace, kinds: Sequence[str], subtlety: float) -> None:
    for kind in kinds:
        if kind not in MISTAKES:
            raise InputError(f"no mistake named {kind!r}", fix=did_you_mean(kind, MISTAKES))
    if not 0 <= subtlety <= 1:
        raise InputError(f"subtlety is {subtlety:g}", fix="from 0, easily seen, to 1, hardly seen")
    if "team" not in trace.rewards:
        raise NotIdentified("the run has no outcome, so the cost of a mistake is unknown", "score it first", where=trace.trace_id)


def _marked(trace: Trace, forked: Trace, kind: str, place: Place, subtlety: float, decides: bool) -> Trace | None:
    """The fork with the truth; None where the event of the mistake is no step that could be blamed."""
    steps = Steps(forked)
    keys = {e.key: i for i, e in enumerate(forked.events)}
    edited = trace.events[trace.index[place.blamed or place.at]]
    i = keys.get(edited.key)
    if i is None or i not in steps.at:  # a message that never came: the sender's last step before it
        earlier = [e.key for e in trace.events[: trace.index[edited.id]] if e.agent == edited.agent]
        i = next((j for key in reversed(earlier) if (j := keys.get(key)) in steps.at), None)
    if i is None:
        return None
    event = forked.events[i]
    kind_: MistakeKind = kind  # type: ignore[assignment]
    mistake = Mistake(
        kind=kind_, event=event.id, step=steps.numbers[steps.at[i]], agent=event.agent, subtlety=subtlety, was=_short(place.was),
        became=_short(place.became), reward=float(forked.rewards["team"]), reward_without=float(trace.rewards["team"]),
        is_decisive=decides, parent=trace.trace_id,
    )  # fmt: skip
    return with_mistake(forked, mistake)


def _short(text: str | None) -> str | None:
    return None if text is None else text[:300]


# -- where each kind can be made -------------------------------------------------------------------------------------------


def _events(trace: Trace, *types: str) -> list[Event]:
    return [e for e in trace.events if e.type in types and e.key is not None]


def _is_simulated(trace: Trace) -> bool:
    """Whether a simulated world made it, whose messages are votes and not texts."""
    return "team" not in trace.meta


def altered(text: str, rng: Draw, subtlety: float, others: Sequence[str] = ()) -> str | None:
    """The text with one number, side or name changed, as little as the subtlety says; None where it states none."""
    spots = list(_NUMBER.finditer(text))
    spots += list(re.finditer("|".join(_SIDES), text)) + [m for m in _NAME.finditer(text) if others]
    if not spots:
        return None
    many = 1 if subtlety >= 0.5 else max(1, round(len(spots) * (0.5 - subtlety)))
    for m in sorted(rng.choice(np.array(spots, object), min(many, len(spots)), replace=False), key=lambda m: -int(m.start())):
        text = text[: m.start()] + _other(m[0], rng, subtlety, others) + text[m.end() :]
    return text


def _other(word: str, rng: Draw, subtlety: float, others: Sequence[str]) -> str:
    if word in _SIDES:
        return _SIDES[word]
    if not word.isdigit():
        rest = [o for o in others if o != word]
        return rest[int(rng.integers(len(rest)))] if rest else word
    if subtlety >= 0.5:  # one digit is off
        at = int(rng.integers(len(word))) if len(word) > 1 else 0
        digit = (int(word[at]) + int(rng.integers(1, 9))) % 10
        return word[:at] + str(digit if at or len(word) == 1 else max(digit, 1)) + word[at + 1 :]
    return str(int(rng.integers(10 ** max(len(word) - 1, 0), 10 ** len(word))))


def _wrong_fact(trace: Trace, steps: Steps, rng: Draw, subtlety: float) -> list[Place]:
    out = []
    for event in _events(trace, "return", "message"):
        text = trace.text(event)
        if not text or event.agent == "user":
            continue
        if _is_simulated(trace):
            out += _flipped(event, text, event.id) if event.type == "return" else []
            continue
        names = sorted(set(_NAME.findall(text)))
        lie = altered(text, rng, subtlety, names)
        if lie is not None and lie != text and event.type == "return":
            out.append(Place(event.id, Substitute(lie), text, lie))
    return out


def _flipped(event: Event, text: str, blamed: str) -> list[Place]:
    vote = _VOTE.search(text)
    if vote is None:
        return []
    other = 1 - int(vote[0])
    return [Place(event.id, Substitute(other), text, text[: vote.start()] + str(other), blamed)]


def _misread_result(trace: Trace, steps: Steps, rng: Draw, subtlety: float) -> list[Place]:
    """What an agent hands over differs from the tool result that it rests on: another number of the same result."""
    out, last = [], {}
    for event in trace.events:
        text = trace.text(event) or ""
        if event.type == "tool_result":
            last[event.agent] = text
        elif event.type == "return" and event.key is not None and event.agent in last:
            if _is_simulated(trace):
                out += _flipped(event, text, event.id)
                continue
            shared = [n for n in dict.fromkeys(_NUMBER.findall(text)) if n in last[event.agent]]
            others = [n for n in dict.fromkeys(_NUMBER.findall(last[event.agent])) if n not in shared] or shared
            if shared and len(others) > 1:
                mine = shared[int(rng.integers(len(shared)))]
                near = sorted((o for o in others if o != mine), key=lambda o: (abs(len(o) - len(mine)), o))
                pick = near[int(rng.integers(max(1, round(len(near) * (1 - subtlety)))))]
                lie = re.sub(rf"\b{mine}\b", pick, text, count=1)
                if lie != text:
                    out.append(Place(event.id, Substitute(lie), text, lie))
    return out


def _wrong_argument(trace: Trace, steps: Steps, rng: Draw, subtlety: float) -> list[Place]:
    out = []
    for event in _events(trace, "tool_call"):
        text = trace.text(event) or ""
        if _is_simulated(trace):  # the call asks about something else: what comes back is another answer
            result = next(
                (e for e in trace.events[trace.index[event.id] + 1 :] if e.type == "tool_result" and e.agent == event.agent), None
            )
            if result is not None:
                out += _flipped(result, trace.text(result) or "", event.id)
            continue
        wrong = altered(text, rng, subtlety)
        if wrong is None and text:
            words = text.split()
            wrong = " ".join(words[: max(1, len(words) // 2)]) if len(words) > 1 else None
        if wrong is not None and wrong != text:
            out.append(Place(event.id, Substitute(wrong), text, wrong))
    return out


def _dropped_message(trace: Trace, steps: Steps, rng: Draw, subtlety: float) -> list[Place]:
    kinds = ("return",) if subtlety >= 0.5 else ("return", "message")
    return [Place(e.id, Delete(), trace.text(e), None) for e in _events(trace, *kinds) if e.agent != "user"]


def _lost_constraint(trace: Trace, steps: Steps, rng: Draw, subtlety: float) -> list[Place]:
    """Whoever gives out work leaves a sentence of it out."""
    out = []
    for event in _events(trace, "message"):
        text = trace.text(event) or ""
        if event.agent == "user" or event.to is None:
            continue
        if _is_simulated(trace):
            out.append(Place(event.id, Substitute(0), text, "(nothing but the question)"))
            continue
        parts = _SENTENCE.split(text)
        if len(parts) > 1:
            away = int(rng.integers(1, len(parts)))
            last = away + 1 if subtlety >= 0.5 else len(parts)
            shortened = " ".join(parts[:away] + parts[last:])
            out.append(Place(event.id, Substitute(shortened), text, shortened))
    return out


def _wrong_delegation(trace: Trace, steps: Steps, rng: Draw, subtlety: float) -> list[Place]:
    out = []
    for event in (e for e in trace.events if e.decision == "delegate" and e.key is not None):
        if _is_simulated(trace):
            out.append(Place(event.id, Force({"calls": []}), trace.text(event), "nobody is given anything"))
            continue
        now = trace.text(event) or ""
        others = [o for o in event.options or () if o.startswith("DELEGATE") and o != now]
        if others:
            act = others[int(rng.integers(len(others)))]
            out.append(Place(event.id, Force({"act": act}), now, act))
    return out


def _bad_plan(trace: Trace, steps: Steps, rng: Draw, subtlety: float) -> list[Place]:
    """Another number of workers, another rule to merge by, or nothing where something was due."""
    out = []
    for event in (e for e in trace.events if e.decision in ("spawn", "aggregate") and e.type == "orchestrator_decision"):
        now = trace.text(event) or ""
        if _is_simulated(trace):
            do = Force({"spawn": int(rng.integers(0, 3))}) if event.decision == "spawn" else Force({"rule": "first"})
            out.append(Place(event.id, do, now, str(dict(do.action))))
            continue
        verbs = (str(event.decision).upper(),) if subtlety >= 0.5 else ("SPAWN", "AGGREGATE", "NOOP")
        others = [o for o in event.options or () if o.startswith(verbs) and o != now]
        if others:
            act = others[int(rng.integers(len(others)))]
            out.append(Place(event.id, Force({"act": act}), now, act))
    return out


def _early_stop(trace: Trace, steps: Steps, rng: Draw, subtlety: float) -> list[Place]:
    able = [
        e for i, e in enumerate(trace.events)
        if e.type == "orchestrator_decision" and e.decision not in ("stop", None) and (i in steps.at or _is_simulated(trace))
        and any(o.lower().startswith("stop") for o in e.options or ())
    ]  # fmt: skip
    late = able[len(able) // 2 :] if subtlety >= 0.5 else able
    return [Place(e.id, Force({"stop": True}), trace.text(e), "stop") for e in late]


def _late_stop(trace: Trace, steps: Steps, rng: Draw, subtlety: float) -> list[Place]:
    stops = [e for e in trace.events if e.decision == "stop"]
    do = Force({"stop": False}) if _is_simulated(trace) else Delete()
    return [Place(e.id, do, trace.text(e), "goes on") for e in stops[-2:]]


_PLACES: dict[str, Callable[[Trace, Steps, Draw, float], list[Place]]] = {
    "wrong_fact": _wrong_fact,
    "dropped_message": _dropped_message,
    "wrong_argument": _wrong_argument,
    "bad_plan": _bad_plan,
    "early_stop": _early_stop,
    "late_stop": _late_stop,
    "lost_constraint": _lost_constraint,
    "misread_result": _misread_result,
    "wrong_delegation": _wrong_delegation,
}
