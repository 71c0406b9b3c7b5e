"""How a worker for fake models plans a timetable, and how a critic names what is broken or could be better.

Always true: it acts on its view alone; a tie to a talk of another day is kept as far as it has seen that talk or its place. A
slip (chance 1 - skill) puts one talk elsewhere. Odd or edited problems end after a bounded search.
"""

from __future__ import annotations

from functools import lru_cache

from counterpoint.envs.task import Act, Draw, Seen, View
from counterpoint.envs.text._acting import answer, judged, subtask
from counterpoint.envs.text._timetable import Place, Problem, best, better, joined, placements, read, written

_TRIES = 20_000
_MOST_TALKS = 64
_SAID = ("return", "message", "note")


@lru_cache(maxsize=1024)
def _best(text: str, fixed: tuple[tuple[str, str], ...]) -> tuple[tuple[str, Place], ...]:
    """The best timetable of a text's problem; without what was fixed where that leaves none."""
    problem = read(text)
    if len(problem.talks) > _MOST_TALKS:
        return ()
    found = best(problem, dict(fixed), tries=_TRIES) or best(problem, tries=_TRIES) or {}
    return tuple(found.items())


class _Scheduler:
    """One view, sorted."""

    def __init__(self, view: View, draw: Draw, skill: float) -> None:
        self.view, self.draw, self.skill = view, draw, skill
        self.whole = "\n".join(seen.text for seen in view.seen if seen.kind in ("question", "brief", "operator"))
        part = subtask(view)
        self.text = part if read(part).talks else self.whole
        self.problem: Problem = read(self.text)

    def known(self) -> dict[str, str]:
        """Rooms for talks that are tied to talks of others: as those were said to be placed, or else as the best whole has it."""
        ids = {talk.id for talk in self.problem.talks}
        said = {
            talk: place
            for seen in self.view.seen
            if seen.kind in (*_SAID, "own")
            for talk, place in placements(seen.text).items()
        }
        fixed = {}
        for rule in self.problem.rules:
            for mine, other in ((rule.a, rule.b), (rule.b, rule.a)):
                if rule.kind == "tie" and mine in ids and other not in ids:
                    fixed[mine] = (said.get(other) or dict(_best(self.whole, ())).get(other) or ("", ""))[1]
        return {talk: room for talk, room in fixed.items() if room}

    def others(self) -> list[dict[str, Place]]:
        """Timetables that others proposed."""
        return [found for seen in self.view.seen if seen.kind in _SAID and (found := placements(seen.text))]

    def plan(self) -> Act:
        """Say the best timetable that is known."""
        found = dict(_best(self.text, tuple(sorted(self.known().items()))))
        if self.draw("slip") >= self.skill and found:
            found = self.slipped(found)
        if self.view.purpose in ("resolve", "turn"):
            found = better(self.problem, [found, joined(self.others()), *self.others()])
        elif self.view.purpose == "debate":
            found = self.heeded(found)
        return answer(self.view, written(found) or "there are no talks")

    def slipped(self, found: dict[str, Place]) -> dict[str, Place]:
        """The timetable with one talk elsewhere."""
        talk = list(found)[int(self.draw("slip: talk") * len(found))]
        places = [(slot, room) for slot in self.problem.slots for room in self.problem.rooms if (slot, room) != found[talk]]
        return found | {talk: places[int(self.draw("slip: place") * len(places))]} if places else found

    def heeded(self, found: dict[str, Place]) -> dict[str, Place]:
        """Its own timetable, one that it sees to be better, or now and then what two others agree on."""
        others = self.others()
        agreed = next((one for one in others if others.count(one) >= 2), None)
        if agreed is not None and self.draw("conform") < (1 - self.skill) * others.count(agreed) / len(others):
            return agreed
        return better(self.problem, [found, *others])

    def judge(self) -> Act:
        """ACCEPT, or REJECT with what is broken or could be had."""
        given: list[Seen] = [seen for seen in self.view.seen if seen.kind in (*_SAID, "brief") and placements(seen.text)]
        placed = placements(given[-1].text) if given else {}
        problems = self.problem.violations(placed)
        if not problems and self.problem.talks:
            tied = {talk for rule in self.problem.rules if rule.kind == "tie" for talk in (rule.a, rule.b)}
            ids = {talk.id for talk in self.problem.talks}
            alone = {r.a if r.a in ids else r.b for r in self.problem.rules if r.kind == "tie" and not {r.a, r.b} <= ids}
            fixed = {talk: placed[talk][1] for talk in tied & alone & set(placed)}
            most = self.problem.points(dict(_best(self.text, tuple(sorted(fixed.items())))))
            have = self.problem.points(placed)
            problems = [f"it is worth {have} points, and {most} can be had"] if most > have else []
        return judged(self.view, problems if given else ["no place is in it"], self.draw("judge") >= self.skill)


def scheduled(view: View, draw: Draw, skill: float) -> Act:
    """What a planner or a critic of timetables does next."""
    scheduler = _Scheduler(view, draw, skill)
    return scheduler.judge() if view.purpose == "judge" else scheduler.plan()
