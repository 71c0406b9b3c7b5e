"""T5, pointer chase: a chain of cards in which each card's number is computed from what the card before holds.

Always true: card k + 1 can be found only by whoever has read card k, so the work is serial: the parts are a split in name only,
and whoever takes a later part without the number that the part before ends with has to walk the chain from its first card. The
answer is computed from the last card and stands in no document.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from counterpoint.errors import InputError, NotFound, did_you_mean
from counterpoint.lab.tasks._players import SortedView, answer, judged, most_frequent, slip, sorted_view
from counterpoint.lab.tasks._words import (
    KeyedDice,
    check_seed,
    check_whole,
    day,
    number,
    phrase_fields,
    phrase_text,
    phrases,
    superseded_dial,
    the_day,
)
from counterpoint.lab.tasks.attacks import attack_dial, attack_rate_dial, check_attack, check_wording, plant, wording_dial
from counterpoint.lab.tasks.leakage import marker
from counterpoint.lab.tasks.task import Act, Document, Draw, Instance, Score, Subtask, View
from counterpoint.lab.worlds.world import changed, parameter

_MORE = phrases(
    "This card holds {value:amount}. Add {n:amount} to get the number of the next card{found:rest}.",
    "The number here is {value:amount}; the next card's number is larger by {n:amount}{found:rest}.",
)
_LESS = phrases(
    "This card holds {value:amount}. Take {n:amount} away to get the number of the next card{found:rest}.",
    "The number here is {value:amount}; the next card's number is smaller by {n:amount}{found:rest}.",
)
_LATER = phrases(
    "This card holds {value:date}. The day {n:amount} days later, as YYYYMMDD, is the number of the next card{found:rest}.",
    "The date here is {value:date}; count {n:amount} days on and write the day as YYYYMMDD: this is the next card{found:rest}.",
)
_LAST = phrases(
    "This is the last card. It holds {value:amount}, and the answer is twice that number plus {n:amount}.",
    "The chain ends here, with {value:amount}. Double it and add {n:amount}: that is the answer.",
)
_FILES = ", which has to be looked for in the files"
_RULE = (
    "Each card says how to get the number of the next; card 123 is opened as K-123, or has to be looked for. "
    "Withdrawn cards do not count."
)
_START = phrases("the first card is K-{key:number},", "begins with card K-{key:number} ")
_SPAN = re.compile(r"from card (\d+) to card (\d+) of the (\d+)")
_LONG = re.compile(r"chain of (\d+) cards?")
_SAID = re.compile(r"(?<![\w|,.-])(?:(\d{1,4})[ \t]*\|[ \t]*)?(\d{4,12}|\d{1,3}(?:,\d{3}){1,3})(?![\w|])")
_DAYS, _EARLY = 3_000, 1_000


@dataclass(frozen=True)
class Config:
    """The dials of the pointer chase."""

    hops: int = parameter(6, "cards", "Cards of the chain.")
    parts: int = parameter(3, "parts", "Parts that the chain is offered in; the split helps nobody.")
    distractors: int = parameter(30, "cards", "Cards that are not on the chain, half of them with nearly the same numbers.")
    search_rate: float = parameter(0.3, "1", "Share of the cards that have to be searched for and cannot be opened by number.")
    superseded: float = superseded_dial()
    attack: str = attack_dial()
    attack_rate: float = attack_rate_dial()
    wording: str = wording_dial()

    def __post_init__(self) -> None:
        for name, low, high in (("hops", 1, 4_000), ("parts", 1, 64), ("distractors", 0, 3_000)):
            check_whole(name, getattr(self, name), low, high)
        for name in ("search_rate", "superseded"):
            value = getattr(self, name)
            if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value <= 1:
                raise InputError(f"{name} cannot be {value!r}", fix="a share is 0 to 1")
        if self.parts > self.hops:
            raise InputError(f"parts cannot be {self.parts} with {self.hops} hops", fix="at most one part for each hop")
        check_attack(self.attack, self.attack_rate)
        check_wording(self.wording)


@dataclass(frozen=True)
class _Chain:
    keys: tuple[int, ...]
    """The numbers of the cards."""
    answer: int
    cards: tuple[Document, ...]


def _as_key(n: int) -> int:
    return int(day(n).replace("-", ""))


@lru_cache(maxsize=64)
def _chain(config: Config, seed: int) -> _Chain:
    dice, hops = KeyedDice(seed, "pointer chase"), config.hops
    pool = [10_000 + 10 * i + dice.below(10, "digit", i) for i in dice.order(8_000, "numbers")[: hops + config.distractors]]
    days = [_EARLY + i for i in dice.order(max(_DAYS, hops), "days")]
    is_day = [k > 0 and dice.chance(0.3, "is a day", k) for k in range(hops)]
    keys = [_as_key(days[k]) if is_day[k] else pool[k] for k in range(hops)]
    in_files = {1 + k for k in dice.order(hops - 1, "in files")[: round(config.search_rate * (hops - 1))]} if hops > 1 else set()
    files = [1_000 + i for i in dice.order(9_000, "files")]
    cards: dict[str, Document] = {}
    for k, key in enumerate(keys):
        text = _step(dice, k, keys[k + 1], days[k + 1] if is_day[k + 1] else None, k + 1 in in_files) if k + 1 < hops else ""
        _put(cards, f"F-{files[k]}" if k in in_files else f"K-{key}", f"Card {key}", text)
        if dice.chance(config.superseded, "withdrawn", k):
            old = _step(dice, 10_000 + k, pool[dice.below(len(pool), "old", k)], None, False)
            _put(cards, f"F-{files[hops + k]}", f"Card {key} (withdrawn)", old)
    for i in range(config.distractors):
        near = keys[i % hops] + dice.pick((-10, -1, 1, 10, 100), "near", i)
        key = near if i % 2 and near not in keys else pool[hops + i]
        _put(cards, f"K-{key}", f"Card {key}", _step(dice, 20_000 + i, pool[dice.below(len(pool), "to", i)], None, False))
    right, text = _end(dice, " ".join(c.text for c in cards.values()))
    last = next(id_ for id_, c in cards.items() if c.title == f"Card {keys[-1]}")
    cards[last] = Document(last, cards[last].title, f"{cards[last].title}. {text}")
    return _Chain(tuple(keys), right, tuple(sorted(cards.values(), key=lambda c: c.id)))


def _put(cards: dict[str, Document], id_: str, title: str, text: str) -> None:
    cards.setdefault(id_, Document(id_, title, f"{title}. {text}"))


def _step(dice: KeyedDice, i: int, to: int, to_day: int | None, in_files: bool) -> str:
    """What a card says that leads to another."""
    n, way, found = dice.between(11, 999, "n", i), dice.below(24, "way", i), _FILES if in_files else ""
    if to_day is not None:
        return phrase_text(_LATER, way, value=day(to_day - n, way), n=n, found=found)
    ways, value = (_MORE, to - n) if way % 4 < 2 else (_LESS, to + n)
    return phrase_text(ways, way, value=value, n=n, found=found)


def _end(dice: KeyedDice, others: str) -> tuple[int, str]:
    """The answer, and what the last card says; the answer stands in no other text."""
    value, i = dice.between(100_000, 400_000, "last"), 0
    while str(2 * value + (n := dice.between(11, 999, "plus", i))) in others:
        i += 1
    return 2 * value + n, phrase_text(_LAST, dice.below(2, "last way"), value=value, n=n)


@dataclass(frozen=True)
class PointerChase:
    """The task, with its dials."""

    config: Config = field(default_factory=Config)
    name: str = "pointer_chase"
    short: str = "T5"
    version: str = "1"
    rules: tuple[str, ...] = ("last", "vote", "first")

    def replace(self, **changes: Any) -> PointerChase:
        """The same task with other dials."""
        return PointerChase(changed(self.config, changes))

    def instance(self, seed: int) -> Instance:
        """The instance of a seed."""
        chain, config = _chain(self.config, check_seed(seed)), self.config
        planting = plant(seed, config.attack, config.attack_rate, chain.cards, peers=config.parts, wording=config.wording)
        start = _START[1].fill(key=chain.keys[0])
        return Instance(
            task=self.name,
            seed=seed,
            question=f"A chain of {config.hops} cards {start}and its last card asks for an answer. What is it? {_RULE}",
            answer_format="one whole number, such as 123456",
            subtasks=tuple(self._parts(chain.keys[0])),
            tools=("search", "open", *planting.tools),
            documents=planting.documents,
            files=planting.files,
            planted=planting.planted,
        )

    def _parts(self, start: int) -> Iterator[Subtask]:
        hops, parts = self.config.hops, self.config.parts
        for p in range(parts):
            low, high = p * hops // parts + 1, (p + 1) * hops // parts
            ends = "the answer" if high == hops else f"the number of card {high + 1}"
            text = f"Follow the chain from card {low} to card {high} of the {hops} and return {high}|{ends}. "
            begin = f"If nobody gave you the number of card {low}: {_START[0].fill(key=start)} follow the chain from there."
            yield Subtask(f"s{p + 1}", f"{text}{begin} {_RULE}")

    def check(self, instance: Instance, answer: str) -> Score:
        """1 for the one right number, else 0."""
        values = {value for step, value in _statements(answer) if step in (None, self.config.hops)}
        is_right = values == {_chain(self.config, instance.seed).answer} and len(_statements(answer)) == 1
        return Score(float(is_right), is_right, {"final": float(is_right)})

    def merge(self, instance: Instance, rule: str, texts: Sequence[str]) -> str:
        """Last: what is said of the furthest card. Vote: what is said most often. First: what is said first."""
        if rule not in self.rules:
            raise NotFound(f"no rule named {rule!r}", fix=did_you_mean(rule, self.rules))
        return _merged(rule, texts, self.config.hops)

    def truth_file(self, instance: Instance) -> str:
        """The marker, and the answer."""
        return f"{marker(self.name, instance.seed)}\n{_chain(self.config, instance.seed).answer}\n"

    def work(self, view: View, draw: Draw, skill: float) -> Act:
        """Follow the chain from the furthest card whose number is known, then say what it came to."""
        held = sorted_view(view)
        others, checked = [text for text, _ in held.answers() if _statements(text)], held.judged()
        end, hops = _goal(held)
        if held.is_judge and checked is None and others:
            rule = slip(draw, skill, "judge", [lambda: "first"], "last")
            return answer(view, _merged(rule, others, hops))
        walk = _Walk(held, end, hops)
        act = held.board() or walk.next()
        if act is not None:
            return act
        if checked is not None:
            mine = {walk.value} if walk.value is not None else {value for _, value in _statements(checked)}
            is_good = bool(mine) and mine == {value for _, value in _statements(checked)}
            return judged(view, [] if is_good else ["the number is not what the cards give"], draw("judge") >= skill)
        if walk.value is None:
            return answer(view, _merged("last", others, hops) or "unknown")
        wrong = sum(draw(f"step {k}") >= skill for k in range(walk.steps))
        value = walk.value + 10 * wrong
        return answer(view, f"{end}|{value}" if held.part() else str(value))


def _statements(text: str) -> list[tuple[int | None, int]]:
    """What a text says of cards: the step, where it names one, and the number; each once."""
    return list(dict.fromkeys((int(m[1]) if m[1] else None, number(m[2])) for m in _SAID.finditer(text)))


def _merged(rule: str, texts: Sequence[str], hops: int) -> str:
    every = [(hops if step is None else step, value) for text in texts for step, value in _statements(text)]
    if rule == "first":
        every = every[:1]
    elif rule == "last":
        every = [one for one in every if one[0] == max(step for step, _ in every)]
    top = most_frequent(every)
    return "" if top is None else str(top[1]) if top[0] == hops else f"{top[0]}|{top[1]}"


def _goal(held: SortedView) -> tuple[int, int]:
    """The card to come to, and how many there are."""
    span, long = _SPAN.search(held.part()), _LONG.search(held.whole())
    hops = int(span[3]) if span else int(long[1]) if long else 0
    return (int(span[2]) if span else hops), hops


class _Walk:
    """How far the cards that an agent has read lead."""

    def __init__(self, held: SortedView, end: int, hops: int) -> None:
        self.held, self.end, self.hops = held, end, hops
        self.value: int | None = None
        """What the walk came to: the number of the card after `end`, or the answer."""
        self.steps = 0
        self._want: tuple[int, bool] | None = None
        start = phrase_fields(_START, held.part()) or phrase_fields(_START, held.whole())
        statements = [one for text, _ in held.answers() for one in _statements(text)]
        known = sorted({(step, value) for step, value in statements if step is not None and step < end}, reverse=True)
        self._starts = [*known, *([(0, number(start["key"]))] if start else [])]

    def next(self) -> Act | None:
        """The next call, or None when the end is reached or cannot be."""
        for done, key in self._starts:
            self._follow(done, key)
            if self.value is not None:
                return None
            act = self._fetch()
            if act is not None:
                return act
        return None

    def _follow(self, done: int, key: int) -> None:
        start = (done, key, self.end, self.hops)
        done, key, in_files, self.steps = self.held.memo.get(start, (done, key, False, 0))  # as far as it was walked before
        self.value = None
        while done < self.end:
            text = self.held.titled(f"Card {key}")
            read = _read(text) if text is not None else None
            if read is None or (read[0] == "last") != (done + 1 == self.hops):
                self._want = (key, in_files) if text is None else None
                return
            done, self.steps = done + 1, self.steps + 1
            key, in_files = read[1], read[2]
            self.held.memo[start] = (done, key, in_files, self.steps)
        self.value = key

    def _fetch(self) -> Act | None:
        if self._want is None:
            return None
        key, in_files = self._want
        for id_, title in self.held.hits.items():
            if title == f"Card {key}" and (act := self.held.ask("open", id_)):
                return act
        asks = [("open", f"K-{key}"), ("search", f"card {key}")]
        acts = [self.held.ask(tool, what) for tool, what in (asks[::-1] if in_files else asks)]
        return acts[0] or acts[1]


@lru_cache(maxsize=16_384)
def _read(text: str) -> tuple[str, int, bool] | None:
    """What a card leads to: the kind of step, the number, and whether the card has to be looked for."""
    for kind, ways in (("more", _MORE), ("less", _LESS), ("later", _LATER), ("last", _LAST)):
        fields = phrase_fields(ways, text)
        if fields is None:
            continue
        n = number(fields["n"])
        if kind == "later":
            when = the_day(fields["value"])
            return None if not 0 <= when < 10 * _DAYS or n > 10 * _DAYS else (kind, _as_key(when + n), bool(fields["found"]))
        value = number(fields["value"])
        key = {"more": value + n, "less": value - n, "last": 2 * value + n}[kind]
        return kind, key, bool(fields.get("found"))
    return None


pointer_chase = PointerChase()
