"""The steps of a run that can be blamed: what members of the team said or decided, with their texts and neighbours.

Always true: nothing is read that only a label, a marker or an experiment could have put there: no `meta`, no `extra`, no key, no
policy, no log-probability, no reward of an event. A run and the same run with all of these removed give the same steps.
"""

from __future__ import annotations

import re
from collections import Counter
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from counterpoint.audits.facts import ACTIONS, facts_of
from counterpoint.trace import Trace
from counterpoint.trace.vocabulary import OUTSIDE_ROLES

Mask = NDArray[np.bool_]
Floats = NDArray[np.float64]

_ENTRY = re.compile(r"s(\d+)")
_HEAD, _TAIL = 6000, 2000
_BRIEFLY = 600
"""What is longer than this many characters may speak of failures without being one."""
_WORD = re.compile(r"[a-z][a-z'_]{2,}|\d[\d.,:/-]*\d|\d")
# Numbers of two digits and more (one digit alone counts lists and steps), and names: a capital that begins no sentence.
_CLAIM = re.compile(r"\d[\d.,:/-]*\d|(?<=[a-z,(] )['\"]?[A-Z][\w-]{2,}")
# What a result says when nothing came of a call.
_EMPTY = re.compile(
    r"\s*(?:there is no code\b|no (?:results?|output|matches|such|notes|rows)\b|nothing\b|none\b|\[\]|\(?empty\)?"
    r"|(?:exitcode|exit code):? ?0[^\n]*\n\s*(?:code )?output:?\s*(?:\[\]|\{\}|none|null|nan|''|\"\")?\s*\Z)",
    re.IGNORECASE,
)
_FAILED = re.compile(
    r"exitcode: [1-9]|traceback \(most recent|\b\w+(?:error|exception): |\berror:|\bfailed\b|\bnot found\b|\btimed? ?out\b"
    r"|\bunable to\b|\b40[0-9]\b|\b50[0-9] ",
    re.IGNORECASE,
)

_MISSING = re.compile(
    r"\[errno|\bno (?:such|match|data|info)|\b(?:does|did|could|was|is) ?n[o']t\b|\bnone\b|\bempty\b", re.IGNORECASE
)
# What is set off as a result: in bold, in quotes, in a box, or a number after a verb.
_STATED = re.compile(
    r"(?:\*\*|\\boxed\{|[\"“])([^*\"“”`{}\n]{1,60})(?:\*\*|\}|[\"”])"
    r"|(?:\bis|\bare|\bas|=|:|\bof|\bto be|\bresult|\banswer)\s+\$?\\?\(?(-?\d[\d.,/]*)"
)
_BLOCK = re.compile(r"```.*?(?:```|\Z)", re.S)
_PUNCTUATION = re.compile(r"[^\w./-]+")


def plain_words(text: str) -> str:
    """A text in small letters, its words one space apart and spaces around it, numbers without commas."""
    words = (word.strip(".-/") for word in _PUNCTUATION.sub(" ", text.replace(",", "").lower()).split())
    return f" {' '.join(word for word in words if word)} "


def _claims(text: str) -> frozenset[str]:
    return frozenset(t.strip(".,:/-'\"").replace(",", "") for t in _CLAIM.findall(text)) if text else frozenset()


class Steps:
    """The candidates of one trace in the story's order, and what stands around them."""

    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        self.facts = facts_of(trace)
        team, events = self.facts.team, trace.events
        is_act_E = team.of_types(ACTIONS) & team.is_member_A[team.agent_E]
        order = team.order_E.tolist()
        self.order: list[int] = order
        """All events in the story's order."""
        self.places: list[int] = [i for i in order if is_act_E[i] and self._is_said(i)]
        """The candidates, as places in `trace.events`."""
        self.at: dict[int, int] = {i: k for k, i in enumerate(self.places)}
        numbers = [_ENTRY.fullmatch(events[i].id) for i in self.places]
        is_log = bool(numbers) and all(numbers)
        self.numbers: list[int] = [
            int(n[1]) if is_log and n is not None else i for n, i in zip(numbers, self.places, strict=True)
        ]
        """What the source counts them by: the entry of a conversation, else the place among the trace's events."""
        self._is_log = is_log

    def __len__(self) -> int:
        return len(self.places)

    def _is_said(self, i: int) -> bool:
        """Whether the event says or decides something: no decision that was passed over, no call that an importer inferred."""
        event = self.trace.events[i]
        if event.type == "orchestrator_decision" and event.decision == "noop":
            return bool(self.trace.text(event))
        return event.type != "tool_call" or not event.id.endswith(":call") or bool(self.trace.text(event))

    def number(self, i: int) -> int:
        """What the source counts any event by."""
        entry = _ENTRY.fullmatch(self.trace.events[i].id) if self._is_log else None
        return i if entry is None else int(entry[1])

    # -- texts ---------------------------------------------------------------------------------------------------------

    @cached_property
    def texts(self) -> list[str]:
        """What every event says, by its place; the middle of what is very long is left out."""
        out = []
        for event in self.trace.events:
            text = self.trace.text(event) or ""
            if len(text) > _HEAD + _TAIL:
                text = text[:_HEAD] + "\n" + text[-_TAIL:]
            out.append(text)
        return out

    @cached_property
    def words(self) -> list[Counter[str]]:
        """Words of every event, by its place."""
        return [Counter(_WORD.findall(text.lower())) if text else Counter() for text in self.texts]

    @cached_property
    def claims(self) -> list[frozenset[str]]:
        """Numbers and names that an event states, by its place: what can be right or wrong."""
        return [_claims(text) for text in self.texts]

    @cached_property
    def question(self) -> Counter[str]:
        """The words of what was asked: what came from outside before the team first acted."""
        first = self.facts.team.place_E[self.places[0]] if self.places else 0
        out: Counter[str] = Counter()
        for i in self.order[:first]:
            event = self.trace.events[i]
            if event.type == "human_intervention" or (event.role or event.agent) in ("user", "human"):
                out |= self.words[i]
        return out

    @cached_property
    def ending(self) -> list[int]:
        """The candidates that state the result: the last two that say more than that the work is over."""
        speaking = [k for k, i in enumerate(self.places) if len(self.words[i]) >= 3 or self.claims[i]]
        return speaking[-2:]

    @cached_property
    def answer(self) -> frozenset[str]:
        """What the run gives as its result: what its last steps set off and say twice, without the words of the question."""
        speaking = [i for i in self.places if len(self.words[i]) >= 3][-3:]
        statements = [self._stated(i) for i in speaking]
        if not statements:
            return frozenset()
        first = int(self.facts.team.place_E[self.places[0]])
        asked = " ".join(plain_words(self.texts[i]) for i in self.order[:first])
        twice = {word for n, words in enumerate(statements) for word in words if any(word in w for w in statements[:n])}
        return frozenset(word for word in twice or statements[-1] if f" {word} " not in asked)

    def _stated(self, i: int) -> set[str]:
        """What an event sets off: in bold, in quotes, boxed, or a number after `is`, `=` and the like."""
        text = _BLOCK.sub(" ", self.texts[i])
        return {plain_words(a or b).strip() for a, b in _STATED.findall(text)} - {""}

    def states(self, i: int) -> bool:
        """Whether an event says the result of the run; a number of one digit counts only where it is set off."""
        long = [word for word in self.answer if len(word) > 1]
        spaced = plain_words(_BLOCK.sub(" ", self.texts[i])) if long else ""
        if any(f" {word} " in spaced for word in long):
            return True
        return len(long) < len(self.answer) and bool(self.answer & self._stated(i))

    # -- neighbours ----------------------------------------------------------------------------------------------------

    @cached_property
    def results(self) -> list[int]:
        """For each candidate the place of the tool result that answers it before the next candidate, or -1."""
        out = [-1] * len(self)
        last: dict[int, int] = {}
        for i in self.order:
            agent = int(self.facts.team.agent_E[i])
            if i in self.at:
                last[agent] = self.at[i]
            elif self.trace.events[i].type == "tool_result" and agent in last and out[last[agent]] < 0:
                out[last[agent]] = i
        return out

    @cached_property
    def last_results(self) -> list[int]:
        """For each candidate the place of the last tool result before it, or -1."""
        out, last = [], -1
        for i in self.order:
            if i in self.at:
                out.append(last)
            elif self.trace.events[i].type == "tool_result":
                last = i
        return out

    def failed(self, i: int) -> bool:
        """Whether a result says that something went wrong, by its mark or, where it has none, by its words."""
        event = self.trace.events[i]
        if event.ok is not None or event.error is not None:
            return event.ok is False or event.error is not None
        return bool(_FAILED.search(self.texts[i][:2000]))

    def empty(self, i: int) -> bool:
        """Whether a result says nothing."""
        return not self.texts[i].strip() or bool(_EMPTY.match(self.texts[i]))

    def says_it_failed(self, i: int) -> bool:
        """Whether a short result is marked as a success and reads like a failure: `Population data not found`."""
        text = self.texts[i]
        return not self.failed(i) and len(text) < _BRIEFLY and bool(_FAILED.search(text) or _MISSING.search(text))

    @cached_property
    def agents(self) -> list[int]:
        """The agent of each candidate, by its number in the team."""
        return [int(self.facts.team.agent_E[i]) for i in self.places]

    def role(self, k: int) -> str:
        """Role and name of a candidate's agent, in small letters."""
        event = self.trace.events[self.places[k]]
        return f"{event.role or ''} {event.agent}".lower()

    @property
    def outside(self) -> list[int]:
        """Events of those who are heard and are not in the team, by their place."""
        return [i for i in self.order if (self.trace.events[i].role or self.trace.events[i].agent) in OUTSIDE_ROLES]
