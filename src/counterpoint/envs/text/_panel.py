"""How a member of a panel speaks, for fake models: share facts, hear others, say what follows from them.

Always true: it acts on its view alone. What facts decide is said as they decide it; where they leave a claim open, what
others agree on is taken over with a chance that grows with their agreement. A slip (chance 1 - skill) forgets a fact, turns a
verdict round, or gives in to a majority against the facts.
"""

from __future__ import annotations

import re
from collections import Counter

from counterpoint.envs.task import Act, Draw, View
from counterpoint.envs.text._acting import answer, is_final, judged, subtask, use
from counterpoint.envs.text._evidence import UNKNOWN, Fact, claims, facts, follows, statement, verdicts

_SAID = ("return", "message", "note")
_TURNED = {"true": "false", "false": "true", UNKNOWN: "true"}
_NOTED = re.compile(r"^TOOL note\b", re.M)
_READ = re.compile(r"^TOOL notes\b", re.M)


class _Speaker:
    """One view, sorted."""

    def __init__(self, view: View, draw: Draw, skill: float) -> None:
        self.view, self.draw, self.skill = view, draw, skill
        asked = [seen.text for seen in view.seen if seen.kind in ("question", "subtask")]
        self.asked = claims(subtask(view)) or claims("\n".join(asked))
        self.mine = self._facts(("brief", "operator"))
        self.heard = self._facts((*_SAID, "result"))
        self.own = "\n".join(seen.text for seen in view.seen if seen.kind == "own")

    def _facts(self, kinds: tuple[str, ...]) -> list[Fact]:
        return [fact for seen in self.view.seen if seen.kind in kinds for fact in facts(seen.text)]

    def board(self) -> Act | None:
        """Write the own facts on the shared notes once, and read those of others once."""
        if self.mine and not _NOTED.search(self.own) and (act := use(self.view, "note", " ".join(map(str, self.mine)))):
            return act
        return None if _READ.search(self.own) else use(self.view, "notes", "")

    def opinions(self) -> list[dict[str, str]]:
        """The last verdicts of each other agent."""
        said = {seen.by: found for seen in self.view.seen if seen.kind in _SAID and (found := verdicts(seen.text))}
        return list(said.values())

    def speak(self) -> Act:
        """State verdicts and facts."""
        if act := self.board():
            return act
        mine, known = list(dict.fromkeys(self.mine)), list(dict.fromkeys([*self.mine, *self.heard]))
        is_slip, how = self.draw("slip") >= self.skill, self.draw("slip: how")
        if is_slip and how < 0.5 and known:
            lost = known[int(2 * how * len(known))]
            mine, known = [f for f in mine if f != lost], [f for f in known if f != lost]
        given = {id_: self.settled(id_, word) for id_, word in follows(self.asked, known).items()}
        if is_slip and how >= 0.5 and given:
            turned = list(given)[int((2 * how - 1) * len(given))]
            given[turned] = _TURNED[given[turned]]
        listed = mine if mine and self.view.purpose in ("work", "debate") else known
        return answer(self.view, statement(given, listed) or "there are no claims")

    def settled(self, id_: str, word: str) -> str:
        """What it says of a claim, given what follows and what others say."""
        said = Counter(one[id_] for one in self.opinions() if one.get(id_, UNKNOWN) != UNKNOWN)
        top, times = said.most_common(1)[0] if said else (UNKNOWN, 0)
        agreement = times / said.total() if said else 0.0
        is_answer = is_final(self.view) or self.view.role == "agent"
        is_last_word = is_answer or self.view.purpose in ("resolve", "turn")
        if (word == UNKNOWN and said and (is_last_word or self.draw(f"conform {id_}") < agreement)) or (
            word not in (UNKNOWN, top) and times >= 2 and self.draw(f"conform {id_}") < (1 - self.skill) * agreement
        ):
            word = top
        if word == UNKNOWN and is_answer:
            word = "true" if self.draw(f"guess {id_}") < 0.5 else "false"
        return word

    def judge(self) -> Act:
        """ACCEPT, or REJECT with the verdicts that facts speak against."""
        given = [seen.text for seen in self.view.seen if seen.kind in (*_SAID, "brief") and verdicts(seen.text)]
        found = verdicts(given[-1]) if given else {}
        shown = follows(self.asked, [*self.mine, *self.heard])
        problems = [f"{claim.id} has no verdict" for claim in self.asked if claim.id not in found]
        problems += [
            f"{id_} is {word} by the facts" for id_, word in shown.items() if word != UNKNOWN and found.get(id_, word) != word
        ]
        return judged(self.view, problems if given else ["no verdict is in it"], self.draw("judge") >= self.skill)


def spoken(view: View, draw: Draw, skill: float) -> Act:
    """What a member of a panel does next."""
    speaker = _Speaker(view, draw, skill)
    return speaker.judge() if view.purpose == "judge" else speaker.speak()
