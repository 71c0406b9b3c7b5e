"""T6, small timetables: feasible instances whose best timetable is known by trying all of them.

Always true: a timetable exists that keeps every rule (the instance was drawn around one); one that breaks a rule or leaves a
talk out scores 0, every other its points over the most that can be had, as a fraction. Days can be planned apart, but for
rules that tie talks of two days to one room; a critic can name what is broken.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Any

from counterpoint.errors import InputError, NotFound, did_you_mean
from counterpoint.lab.tasks._players import answer, judged, subtask
from counterpoint.lab.tasks._timetable_problem import (
    Place,
    Talk,
    TimetableProblem,
    TimetableRule,
    best,
    better,
    joined,
    placements,
    read,
    timetable_text,
)
from counterpoint.lab.tasks._words import KeyedDice
from counterpoint.lab.tasks.leakage import marker
from counterpoint.lab.tasks.task import Act, Draw, Instance, Score, Subtask, View, ViewItem
from counterpoint.lab.worlds.world import changed, parameter

_SPEAKERS = (
    "Ada",
    "Ben",
    "Cora",
    "Dov",
    "Edda",
    "Finn",
    "Gita",
    "Hugo",
    "Ines",
    "Jonas",
    "Kira",
    "Lars",
    "Mina",
    "Nils",
    "Olga",
    "Pavel",
)
_FEW_DAYS = 60
_RANGES = {
    "days": (1, 2_400),
    "talks": (1, 6),
    "slots": (1, 5),
    "rooms": (1, 3),
    "speakers": (2, 16),
    "rules": (0, 6),
    "ties": (0, 3),
}


@dataclass(frozen=True)
class Config:
    """The dials."""

    days: int = parameter(2, "days", "Days, each a part of its own.")
    talks: int = parameter(4, "talks", "Talks on each day.")
    slots: int = parameter(3, "slots", "Slots on each day.")
    rooms: int = parameter(2, "rooms", "Rooms, each larger than the one before.")
    speakers: int = parameter(5, "people", "Speakers; fewer of them clash more often.")
    rules: int = parameter(2, "rules", "Rules on each day: a talk before another, or not in a slot.")
    ties: int = parameter(
        1, "rules", "Rules that tie a talk of one day to the room of a talk of another; fewer where no pair fits."
    )

    def __post_init__(self) -> None:
        for name, (low, high) in _RANGES.items():
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
                raise InputError(f"{name} cannot be {value!r}", fix=f"a whole number, {low} to {high}")
        if self.talks > self.slots * self.rooms:
            raise InputError(f"{self.talks} talks do not fit into {self.slots} slots of {self.rooms} rooms", fix="fewer talks")
        if self.speakers < self.rooms:
            raise InputError(f"{self.speakers} speakers cannot fill {self.rooms} rooms at once", fix="as many speakers as rooms")


@lru_cache(maxsize=256)
def _problem(seed: int, config: Config) -> TimetableProblem:
    """Talks and rules that a drawn timetable keeps."""
    dice = KeyedDice(seed, "timetables")
    rooms = {f"room{r + 1}": 30 * (r + 1) + dice.between(0, 9, "room", r) for r in range(config.rooms)}
    days = {f"day{d + 1}": tuple(f"slot{d * config.slots + s + 1}" for s in range(config.slots)) for d in range(config.days)}
    placed: dict[str, Place] = {}
    talks: list[Talk] = []
    for d, (day, slots) in enumerate(days.items()):
        places = [(slot, room) for slot in slots for room in rooms]
        busy: dict[str, set[str]] = {}
        for t, at in enumerate(dice.order(len(places), f"places {day}")[: config.talks]):
            slot, room = places[at]
            i = d * config.talks + t
            start = dice.below(config.speakers, "speaker", i)
            free = [_SPEAKERS[(start + k) % config.speakers] for k in range(config.speakers)]
            speaker = next(name for name in free if name not in busy.get(slot, set()))
            busy.setdefault(slot, set()).add(speaker)
            points = {s: dice.between(1, 9, f"points {i}", p) for p, s in enumerate(slots)}
            talks.append(Talk(f"talk{i + 1}", day, speaker, dice.between(8, rooms[room], "people", i), points))
            placed[talks[-1].id] = (slot, room)
    draft = TimetableProblem(rooms, days, tuple(talks))
    return TimetableProblem(rooms, days, tuple(talks), _rules(dice, config, draft, placed))


def _rules(dice: KeyedDice, config: Config, draft: TimetableProblem, placed: dict[str, Place]) -> tuple[TimetableRule, ...]:
    rules: list[tuple[str, str, str]] = []
    order = {slot: i for i, slot in enumerate(draft.slots)}
    for day, slots in draft.days.items():
        ids = [talk.id for talk in draft.part(day).talks]
        pairs = [("before", a, b) for a in ids for b in ids if order[placed[a][0]] < order[placed[b][0]]]
        barred = [("not", a, slot) for a in ids for slot in slots if placed[a][0] != slot]
        for i in range(config.rules):
            some = pairs if dice.chance(0.5, f"kind {day}", i) else barred
            if some:
                rules.append(dice.pick(some, f"rule {day}", i))
    tied: set[str] = set()
    for a, b in _pairs(dice, config, draft, placed):
        if len(tied) < 2 * config.ties and not {a.id, b.id} & tied:
            tied |= {a.id, b.id}
            rules.append(("tie", a.id, b.id))
    return tuple(TimetableRule(f"k{i + 5}", *rule) for i, rule in enumerate(dict.fromkeys(rules)))


def _pairs(dice: KeyedDice, config: Config, draft: TimetableProblem, placed: dict[str, Place]) -> Iterator[tuple[Talk, Talk]]:
    """Pairs of talks of two days in one room, in a drawn order; of many talks not all pairs are looked at."""
    if config.days <= _FEW_DAYS:
        pairs = [(a, b) for a in draft.talks for b in draft.talks if a.day < b.day and placed[a.id][1] == placed[b.id][1]]
        yield from (pairs[at] for at in dice.order(len(pairs), "ties"))
        return
    for k in range(100 * config.ties):
        a, b = (draft.talks[dice.below(len(draft.talks), f"tie {end}", k)] for end in ("a", "b"))
        if a.day != b.day and placed[a.id][1] == placed[b.id][1]:
            yield a, b


@lru_cache(maxsize=256)
def _optimum(seed: int, config: Config) -> str:
    places = best(_problem(seed, config))
    assert places is not None  # the instance was drawn around one
    return timetable_text(places)


@dataclass(frozen=True)
class Timetables:
    """The task over its dials."""

    config: Config = Config()
    name: str = "timetables"
    short: str = "T6"
    version: str = "1"
    rules: tuple[str, ...] = ("join", "best")
    """Join: all places, the first for each talk. Best: of each text alone and all joined, what breaks least and is worth most."""

    def replace(self, **changes: Any) -> Timetables:
        """The same task with other dials."""
        return Timetables(changed(self.config, changes))

    def instance(self, seed: int) -> Instance:
        """The talks and rules, and a part for each day."""
        problem = _problem(seed, self.config)
        worth = "A timetable is worth the points of the slots of its talks, summed; the more the better."
        every = "Every talk gets a slot and a room."
        return Instance(
            task=self.name,
            seed=seed,
            question=f"Make the best timetable. {every} {worth}\n{problem.text()}",
            answer_format="talkN=slotN,roomN for every talk, separated by ; in one line",
            subtasks=tuple(
                Subtask(
                    f"s{i + 1}",
                    f"Place the talks of {day}, and return talkN=slotN,roomN for each. {worth}\n{problem.part(day).text()}",
                )
                for i, day in enumerate(problem.days)
            ),
            tools=("python",),
        )

    def check(self, instance: Instance, answer: str) -> Score:
        """Points over the most that can be had; 0 where a rule is broken or a talk is not placed."""
        problem = _problem(instance.seed, self.config)
        known = {one.id for one in problem.talks}
        placed = {talk: place for talk, place in placements(answer).items() if talk in known}
        broken = problem.violations(placed)
        share = Fraction(problem.points(placed), problem.points(placements(_optimum(instance.seed, self.config))))
        parts = {"placed": len(placed) / len(problem.talks), "feasible": float(not broken), "points": float(share)}
        return Score(float(share) if not broken else 0.0, not broken and share == 1, parts)

    def merge(self, instance: Instance, rule: str, texts: Sequence[str]) -> str:
        """The places of all texts as one timetable."""
        if rule not in self.rules:
            raise NotFound(f"no rule named {rule!r}", fix=did_you_mean(rule, self.rules))
        some = [places for text in texts if (places := placements(text))]
        if rule == "join":
            return timetable_text(joined(some))
        return timetable_text(better(read(instance.question), [joined(some), joined(some[::-1]), *some]))

    def work(self, view: View, draw: Draw, skill: float) -> Act:
        """Find the best timetable for the part or the whole; as a critic name what is broken."""
        return scheduled(view, draw, skill)

    def truth_file(self, instance: Instance) -> str:
        """The best timetable."""
        return f"{marker(self.name, instance.seed)}\n{_optimum(instance.seed, self.config)}\n"


timetables = Timetables()


_TRIES = 20_000
_MOST_TALKS = 64
_SAID = ("return", "message", "note")


@lru_cache(maxsize=1024)
def _best(text: str, fixed: tuple[tuple[str, str], ...]) -> tuple[tuple[str, Place], ...]:
    """The best timetable of a text's problem; without what was fixed where that leaves none."""
    problem = read(text)
    if len(problem.talks) > _MOST_TALKS:
        return ()
    places = best(problem, dict(fixed), tries=_TRIES) or best(problem, tries=_TRIES) or {}
    return tuple(places.items())


class _Scheduler:
    """How a worker for fake models plans a timetable, and how a critic names what is broken or could be better.

    It acts on its view alone; a tie to a talk of another day is kept as far as it has seen that talk or its place. A slip (chance
    1 - skill) puts one talk elsewhere. Odd or edited problems end after a bounded search.
    """

    def __init__(self, view: View, draw: Draw, skill: float) -> None:
        self.view, self.draw, self.skill = view, draw, skill
        self.whole = "\n".join(item.text for item in view.seen if item.kind in ("question", "brief", "operator"))
        part = subtask(view)
        self.text = part if read(part).talks else self.whole
        self.problem: TimetableProblem = read(self.text)

    def known_rooms(self) -> dict[str, str]:
        """Rooms for talks that are tied to talks of others: as those were said to be placed, or else as the best whole has it."""
        ids = {talk.id for talk in self.problem.talks}
        ties = [rule for rule in self.problem.rules if rule.kind == "tie" and not {rule.a, rule.b} <= ids]
        texts = (item.text for item in self.view.seen if item.kind in (*_SAID, "own")) if ties else ()
        placed = {talk: place for text in texts for talk, place in placements(text).items()}
        fixed = {}
        for rule in ties:
            for mine, other in ((rule.a, rule.b), (rule.b, rule.a)):
                if mine in ids and other not in ids:
                    fixed[mine] = (placed.get(other) or self.planned(other) or ("", ""))[1]
        return {talk: room for talk, room in fixed.items() if room}

    def planned(self, talk: str) -> Place | None:
        """Where a talk of others is in the best timetable; of many talks in that of the days that ties lead to."""
        whole = read(self.whole)
        if len(whole.talks) <= _MOST_TALKS:
            return dict(_best(self.whole, ())).get(talk)
        day = next((one.day for one in whole.talks if one.id == talk), "")
        return dict(_best(whole.tied(day).text(), ())).get(talk)

    def others(self) -> list[dict[str, Place]]:
        """Timetables that others proposed."""
        return [places for item in self.view.seen if item.kind in _SAID and (places := placements(item.text))]

    def plan(self) -> Act:
        """Say the best timetable that is known."""
        places = dict(_best(self.text, tuple(sorted(self.known_rooms().items()))))
        if self.draw("slip") >= self.skill and places:
            places = self.slipped(places)
        if self.view.purpose in ("resolve", "turn"):
            places = better(self.problem, [places, joined(self.others()), *self.others()])
        elif self.view.purpose == "debate":
            places = self.heeded(places)
        return answer(self.view, timetable_text(places) or "there are no talks")

    def slipped(self, plan: dict[str, Place]) -> dict[str, Place]:
        """The timetable with one talk elsewhere."""
        talk = list(plan)[int(self.draw("slip: talk") * len(plan))]
        places = [(slot, room) for slot in self.problem.slots for room in self.problem.rooms if (slot, room) != plan[talk]]
        return plan | {talk: places[int(self.draw("slip: place") * len(places))]} if places else plan

    def heeded(self, plan: dict[str, Place]) -> dict[str, Place]:
        """Its own timetable, one that it sees to be better, or now and then what two others agree on."""
        others = self.others()
        agreed = next((one for one in others if others.count(one) >= 2), None)
        if agreed is not None and self.draw("conform") < (1 - self.skill) * others.count(agreed) / len(others):
            return agreed
        return better(self.problem, [plan, *others])

    def judge(self) -> Act:
        """ACCEPT, or REJECT with what is broken or could be had."""
        items: list[ViewItem] = [item for item in self.view.seen if item.kind in (*_SAID, "brief") and placements(item.text)]
        placed = placements(items[-1].text) if items else {}
        problems = self.problem.violations(placed)
        if not problems and self.problem.talks:
            tied = {talk for rule in self.problem.rules if rule.kind == "tie" for talk in (rule.a, rule.b)}
            ids = {talk.id for talk in self.problem.talks}
            alone = {r.a if r.a in ids else r.b for r in self.problem.rules if r.kind == "tie" and not {r.a, r.b} <= ids}
            fixed = {talk: placed[talk][1] for talk in tied & alone & set(placed)}
            most = self.problem.points(dict(_best(self.text, tuple(sorted(fixed.items())))))
            have = self.problem.points(placed)
            problems = [f"it is worth {have} points, and {most} can be had"] if most > have else []
        return judged(self.view, problems if items else ["no place is in it"], self.draw("judge") >= self.skill)


def scheduled(view: View, draw: Draw, skill: float) -> Act:
    """What a planner or a critic of timetables does next."""
    scheduler = _Scheduler(view, draw, skill)
    return scheduler.judge() if view.purpose == "judge" else scheduler.plan()
