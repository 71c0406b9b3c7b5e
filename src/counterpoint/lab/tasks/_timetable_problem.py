"""Timetables in text: talks, rooms, slots and rules; what a timetable breaks, what it is worth, the best one.

Always true: what `TimetableProblem.text` writes, `read` reads back, for one day as for all. The best timetable is found by trying
every place for every talk, passing over only what cannot beat the best so far; days meet only in rules that tie talks of two
days to one room, and all rooms for those are tried. Without a bound on the number of tries the result is exact.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

Place = tuple[str, str]  # slot, room
_Key = tuple[str, tuple[tuple[str, str], ...]]  # day, rooms that are given on it
_FIXED = (
    ("k1", "two talks are never in the same room in the same slot"),
    ("k2", "nobody gives two talks in the same slot"),
    ("k3", "a room holds all the people of its talk"),
    ("k4", "a talk is on its day"),
)
_MOST_LINKS = 4  # rooms are tried for this many ties; generated problems have no more
_ROOM = re.compile(r"\b(room\d{1,2}) holds (\d{1,4})\b")
_DAY = re.compile(r"\b(day\d{1,4}) has ((?:slot\d{1,5}(?:, )?){1,20})")
_TALK = re.compile(
    r"\b(talk\d{1,5}): (day\d{1,4}), speaker ([A-Z]\w{0,20}), (\d{1,4}) people, points ((?:slot\d{1,5} \d{1,3}(?:, )?){1,20})"
)
_RULES = {
    "before": re.compile(r"\b(k\d{1,5}): (talk\d{1,5}) is in an earlier slot than (talk\d{1,5})\."),
    "not": re.compile(r"\b(k\d{1,5}): (talk\d{1,5}) is not in (slot\d{1,5})\."),
    "tie": re.compile(r"\b(k\d{1,5}): (talk\d{1,5}) and (talk\d{1,5}) are in the same room\."),
}
_SAYS = {"before": "{} is in an earlier slot than {}", "not": "{} is not in {}", "tie": "{} and {} are in the same room"}
_PLACED = re.compile(r"\b(talk\d{1,5})\s{0,3}=\s{0,3}(slot\d{1,5})\s{0,3},\s{0,3}(room\d{1,2})\b", re.I)


@dataclass(frozen=True)
class Talk:
    """One talk, its day, and what each slot is worth."""

    id: str
    day: str
    speaker: str
    people: int
    points: Mapping[str, int]

    def text(self) -> str:
        """Its line."""
        worth = ", ".join(f"{slot} {n}" for slot, n in self.points.items())
        return f"{self.id}: {self.day}, speaker {self.speaker}, {self.people} people, points {worth}."


@dataclass(frozen=True)
class TimetableRule:
    """One rule beyond those that always hold."""

    id: str
    kind: str
    a: str
    b: str

    def text(self) -> str:
        """Its line."""
        return f"{self.id}: {_SAYS[self.kind].format(self.a, self.b)}."


@dataclass(frozen=True)
class TimetableProblem:
    """Talks to place; `talks` may be those of one day."""

    rooms: Mapping[str, int]
    days: Mapping[str, tuple[str, ...]]
    talks: tuple[Talk, ...]
    rules: tuple[TimetableRule, ...] = ()
    slots: tuple[str, ...] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "slots", tuple(slot for some in self.days.values() for slot in some))

    def part(self, day: str) -> TimetableProblem:
        """The talks of one day, with every rule that names one of them."""
        return self.of_days([day])

    def of_days(self, some: Iterable[str]) -> TimetableProblem:
        """The talks of some days, with every rule that names one of them."""
        days = {day: self.days[day] for day in some if day in self.days}
        mine = tuple(talk for day in days for talk in self._by_day.get(day, ()))
        ids = {talk.id for talk in mine}
        named = {rule.id: rule for id_ in ids for rule in self._by_talk.get(id_, ())}
        rules = sorted(named.values(), key=lambda rule: self._place[rule.id])
        return TimetableProblem(self.rooms, days, mine, tuple(rules))

    def tied(self, day: str) -> TimetableProblem:
        """A day with all that ties lead to from it: what its rooms can depend on."""
        connected, new = {day: None}, [day]
        of = {talk.id: talk.day for talk in self.talks}
        while new:
            part = self.part(new.pop())
            near = [of[x] for rule in part.rules if rule.kind == "tie" for x in (rule.a, rule.b) if x in of]
            new += [one for one in dict.fromkeys(near) if one not in connected]
            connected |= dict.fromkeys(near)
        return self.of_days(one for one in self.days if one in connected)

    @cached_property
    def _by_day(self) -> dict[str, list[Talk]]:
        out: dict[str, list[Talk]] = {}
        for talk in self.talks:
            out.setdefault(talk.day, []).append(talk)
        return out

    @cached_property
    def _by_talk(self) -> dict[str, list[TimetableRule]]:
        out: dict[str, list[TimetableRule]] = {}
        for rule in self.rules:
            for id_ in dict.fromkeys((rule.a, rule.b)):
                out.setdefault(id_, []).append(rule)
        return out

    @cached_property
    def _place(self) -> dict[str, int]:
        return {rule.id: i for i, rule in enumerate(self.rules)}

    @cached_property
    def _order(self) -> dict[str, int]:
        return {slot: i for i, slot in enumerate(self.slots)}

    def text(self) -> str:
        """All of it in lines."""
        rooms = "; ".join(f"{room} holds {n}" for room, n in self.rooms.items())
        days = "; ".join(f"{day} has {', '.join(slots)}" for day, slots in self.days.items())
        lines = [f"Rooms: {rooms}.", f"Slots, in order: {days}.", *(talk.text() for talk in self.talks), "Rules:"]
        return "\n".join([*lines, *(f"{id_}: {says}." for id_, says in _FIXED), *(rule.text() for rule in self.rules)])

    def points(self, placed: Mapping[str, Place]) -> int:
        """What a timetable is worth."""
        return sum(talk.points.get(placed[talk.id][0], 0) for talk in self.talks if talk.id in placed)

    def violations(self, placed: Mapping[str, Place]) -> list[str]:
        """What a timetable breaks, each with its rule; talks that are not placed come first."""
        out = [f"{talk.id} is not placed" for talk in self.talks if talk.id not in placed]
        mine = [talk for talk in self.talks if talk.id in placed]
        at: dict[str, list[Talk]] = {}
        for talk in mine:  # only talks of one slot can clash
            at.setdefault(placed[talk.id][0], []).append(talk)
        order = {talk.id: i for i, talk in enumerate(mine)}
        clashes = [pair for some in at.values() for pair in itertools.combinations(some, 2)]
        for one, two in sorted(clashes, key=lambda pair: (order[pair[0].id], order[pair[1].id])):
            if placed[one.id] == placed[two.id]:
                out.append(f"k1: {one.id} and {two.id} are both in {','.join(placed[one.id])}")
            elif placed[one.id][0] == placed[two.id][0] and one.speaker == two.speaker:
                out.append(f"k2: {one.speaker} has {one.id} and {two.id} in {placed[one.id][0]}")
        for talk in mine:
            slot, room = placed[talk.id]
            if talk.people > self.rooms.get(room, 0):
                out.append(f"k3: {room} does not hold the {talk.people} people of {talk.id}")
            if slot not in self.days.get(talk.day, ()):
                out.append(f"k4: {slot} is not on {talk.day} of {talk.id}")
        return out + [rule.text().rstrip(".") for rule in self.rules if self._broken(rule, placed)]

    def _broken(self, rule: TimetableRule, placed: Mapping[str, Place]) -> bool:
        a, b = placed.get(rule.a), placed.get(rule.b)
        if rule.kind == "not":
            return a is not None and a[0] == rule.b
        if a is None or b is None:
            return False  # a talk that is missing, or not of this part, is no breach of this rule
        if rule.kind == "tie":
            return a[1] != b[1]
        return self._order.get(a[0], -1) >= self._order.get(b[0], -1)


# -- text ----------------------------------------------------------------------------------------------------------------


def read(text: str) -> TimetableProblem:
    """The problem that a text states; one without talks where it states none."""
    talks = {}
    for id_, day, speaker, people, points in _TALK.findall(text):
        worth = {slot: int(n) for slot, n in re.findall(r"(slot\d+) (\d+)", points)}
        talks[id_] = Talk(id_, day, speaker, int(people), worth)
    days = {day: tuple(re.findall(r"slot\d+", slots)) for day, slots in _DAY.findall(text)}
    rules = {id_: TimetableRule(id_, kind, a, b) for kind, pattern in _RULES.items() for id_, a, b in pattern.findall(text)}
    ordered = sorted(rules.values(), key=lambda rule: int(rule.id[1:]))
    return TimetableProblem({room: int(n) for room, n in _ROOM.findall(text)}, days, tuple(talks.values()), tuple(ordered))


def placements(text: str) -> dict[str, Place]:
    """The places in a text; of two for one talk the last."""
    return {talk.lower(): (slot.lower(), room.lower()) for talk, slot, room in _PLACED.findall(text)}


def timetable_text(placed: Mapping[str, Place]) -> str:
    """A timetable in one line, by number of talk."""
    ordered = sorted(placed.items(), key=lambda item: (len(item[0]), item[0]))
    return "; ".join(f"{talk}={slot},{room}" for talk, (slot, room) in ordered)


# -- the best timetable --------------------------------------------------------------------------------------------------


class _Search:
    """Depth first over the talks of one day, most points first, with rooms of some talks fixed."""

    def __init__(self, problem: TimetableProblem, fixed: Mapping[str, str], tries: int | None) -> None:
        self.problem, self.budget = problem, tries
        self.talks = sorted(problem.talks, key=lambda talk: -max(talk.points.values(), default=0))
        self.options = [self._options(talk, fixed.get(talk.id)) for talk in self.talks]
        tops = [
            max((talk.points.get(slot, 0) for slot, _ in some), default=0)
            for talk, some in zip(self.talks, self.options, strict=True)
        ]
        self.bound = [sum(tops[i:]) for i in range(len(tops) + 1)]
        self.best: dict[str, Place] | None = None
        self.value = -1
        self._try(0, {}, 0)

    def _options(self, talk: Talk, room: str | None) -> list[Place]:
        barred = {rule.b for rule in self.problem.rules if rule.kind == "not" and rule.a == talk.id}
        rooms = [name for name, holds in self.problem.rooms.items() if holds >= talk.people and room in (None, name)]
        slots = [slot for slot in self.problem.days.get(talk.day, ()) if slot not in barred]
        return sorted(((s, r) for s in slots for r in rooms), key=lambda place: -talk.points.get(place[0], 0))

    def _try(self, i: int, placed: dict[str, Place], value: int) -> None:
        if self.budget is not None:
            self.budget -= 1
            if self.budget < 0:
                return
        if value + self.bound[i] <= self.value:
            return
        if i == len(self.talks):
            self.best, self.value = dict(placed), value
            return
        talk = self.talks[i]
        for place in self.options[i]:
            if self._fits(talk, place, placed):
                placed[talk.id] = place
                self._try(i + 1, placed, value + talk.points.get(place[0], 0))
                del placed[talk.id]

    def _fits(self, talk: Talk, place: Place, placed: dict[str, Place]) -> bool:
        for other in self.talks:
            at = placed.get(other.id, ("", ""))
            if at == place or (at[0] == place[0] and other.speaker == talk.speaker):
                return False
        placed[talk.id] = place
        is_broken = any(self.problem._broken(rule, placed) for rule in self.problem.rules if talk.id in (rule.a, rule.b))
        del placed[talk.id]
        return not is_broken


def best(
    problem: TimetableProblem, fixed: Mapping[str, str] | None = None, *, tries: int | None = None
) -> dict[str, Place] | None:
    """The timetable with the most points, rooms of some talks given; None where there is none. `tries` bounds each search."""
    fixed = dict(fixed or {})
    ids = {talk.id for talk in problem.talks}
    across = [r for r in problem.rules if r.kind == "tie" and {r.a, r.b} <= ids and not {r.a, r.b} <= set(fixed)][:_MOST_LINKS]
    days = list(dict.fromkeys(talk.day for talk in problem.talks))
    known: dict[_Key, _Search] = {}
    top: tuple[int, dict[str, Place]] | None = None
    for rooms in itertools.product(problem.rooms, repeat=len(across)):
        fixed_rooms = {talk: room for rule, room in zip(across, rooms, strict=True) for talk in (rule.a, rule.b)} | fixed
        parts = [_solved(problem, day, fixed_rooms, known, tries) for day in days]
        value = sum(one.value for one in parts)
        if all(one.best is not None for one in parts) and (top is None or value > top[0]):
            top = (value, {talk: place for one in parts for talk, place in (one.best or {}).items()})
    return None if top is None else top[1]


def _solved(
    problem: TimetableProblem, day: str, fixed_rooms: Mapping[str, str], known: dict[_Key, _Search], tries: int | None
) -> _Search:
    part = problem.part(day)
    mine = {talk.id: fixed_rooms[talk.id] for talk in part.talks if talk.id in fixed_rooms}
    key = (day, tuple(sorted(mine.items())))
    if key not in known:
        known[key] = _Search(part, mine, tries)
    return known[key]


def joined(texts: Iterable[Mapping[str, Place]]) -> dict[str, Place]:
    """All places; of two for one talk the first."""
    out: dict[str, Place] = {}
    for placed in texts:
        out = {**placed, **out}
    return out


def better(problem: TimetableProblem, some: Sequence[Mapping[str, Place]]) -> dict[str, Place]:
    """Of some timetables the one that breaks least, and of those the one worth most; of equals the first."""
    if not some:
        return {}
    worst_last = sorted(some, key=lambda placed: (len(problem.violations(placed)), -problem.points(placed)))
    return dict(worst_last[0])
