"""What a conversation is made of: a question with its numbers, keyed draws, turns, and the mistake that is made in one of them.

Always true: a draw depends on the seed and on what it is for, and on nothing else.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import NamedTuple

from counterpoint.trace.mistake import MistakeKind

SYLLABLES = ("ka", "lo", "mir", "ten", "vas", "dor", "bel", "sun", "har", "ny", "quo", "ril", "os", "tam", "ve")
TOPICS = (
    ("Geography", "population of {0}", "according to the 2020 census"),
    ("Literature", "number of chapters of '{0}'", "in the first edition"),
    ("Transit", "number of stations of the {0} line", "not counting the two terminals"),
    ("Music", "number of albums by {0}", "released before 1999"),
    ("Chemistry", "boiling point of {0} in kelvin", "at normal pressure"),
    ("Sports", "points scored by {0}", "in the regular season"),
    ("Finance", "revenue of {0} in thousands", "without discontinued business"),
    ("Biology", "number of sightings of {0}", "reported between 2000 and 2020"),
    ("History", "year in which {0} was founded", "by the local archive"),
)
OPS = {"sum": "the sum of", "difference": "the difference between", "product": "the product of", "larger": "the larger of"}
GUESSING = (
    "Let's assume that",
    "I recall that",
    "From general knowledge,",
    "As a placeholder,",
    "It is commonly known that",
    "Probably,",
)
STATING = (
    "According to the records,",
    "The data shows that",
    "I have looked this up:",
    "The source states that",
    "It is known that",
)
ERRORS = (
    "ModuleNotFoundError: No module named 'pandas'", "KeyError: 'value'", "NameError: name 'table' is not defined",
    "FileNotFoundError: [Errno 2] No such file or directory: 'data.csv'", "SyntaxError: invalid syntax",
    "HTTPError: 403 Forbidden",
)  # fmt: skip


class Spot(NamedTuple):
    """Where a mistake of a kind can be made."""

    kind: MistakeKind
    where: str


class Turn(NamedTuple):
    """One turn."""

    who: str
    """Empty where a tool answers whoever spoke before."""
    text: str
    ok: bool | None = None
    """Of a result: whether it worked."""
    to: str | None = None
    """Whom an orchestrator gives work to."""
    is_aside: bool = False
    """A thought, heard by nobody else."""
    decision: str | None = None


class Cut(Exception):
    """The turns are used up."""


@dataclass
class Talk:
    """What has been said, and the draws."""

    seed: int
    mistake: Spot | None
    """The one mistake that is made; None leaves it to `rate`."""
    subtlety: float
    rate: float = 0.0
    """How likely a mistake is wherever one can be made."""
    most: int | None = None
    """The first so many are made, and no other."""
    limit: int = 1000
    """Turns after which the conversation is cut."""
    turns: list[Turn] = field(default_factory=list)
    spots: list[tuple[int, Spot]] = field(default_factory=list)
    """Where mistakes could be made, each with its turn."""
    made: list[tuple[int, Spot]] = field(default_factory=list)
    """The mistakes that were made, each with its turn."""

    def draw(self, what: str) -> float:
        word = blake2b(f"{self.seed}|{what}".encode(), digest_size=8).digest()
        return (int.from_bytes(word, "big") >> 11) * 2.0**-53

    def chance(self, p: float, what: str) -> bool:
        return self.draw(what) < p

    def pick(self, options: Sequence[str], what: str) -> str:
        return options[int(self.draw(what) * len(options))]

    def errs(self, kind: MistakeKind, where: str, often: float = 1.0) -> bool:
        """Whether a mistake is made here, in the next turn; `often` says how usual this one is beside others."""
        spot = Spot(kind, where)
        self.spots.append((len(self.turns), spot))
        if self.mistake is not None:
            is_made = self.mistake == spot
        else:
            is_made = self.chance(self.rate * often, f"errs {kind} {where}") and (self.most is None or len(self.made) < self.most)
        if is_made:
            self.made.append((len(self.turns), spot))
        return is_made

    def say(self, who: str, text: str, *, to: str | None = None, is_aside: bool = False, decision: str | None = None) -> None:
        self._put(Turn(who, text, None, to, is_aside, decision or ("delegate" if to else None)))

    def result(self, text: str, ok: bool) -> None:
        self._put(Turn("", text, ok))

    def _put(self, said: Turn) -> None:
        if len(self.turns) >= self.limit:
            raise Cut
        self.turns.append(said)

    def crash(self, what: str) -> None:
        error = self.pick(ERRORS, what)
        self.result(f"exitcode: 1 (execution failed)\nCode output: Traceback (most recent call last):\n{error}", False)


@dataclass(frozen=True)
class Problem:
    """A question: quantities to look up, and what to do with them."""

    topic: str
    what: tuple[str, ...]
    others: tuple[str, ...]
    """What each could be confused with."""
    values: tuple[int, ...]
    near: tuple[int, ...]
    """What one gets without the constraint."""
    far: tuple[int, ...]
    """What one gets for the other thing."""
    constraint: str
    op: str

    @property
    def question(self) -> str:
        named = " and the ".join(self.what)
        return f"What is {OPS[self.op]} the {named}, {self.constraint}? Give one number."

    def answer(self, values: Sequence[int]) -> int:
        a = list(values) or [0]
        if self.op == "sum":
            return sum(a)
        if self.op == "product":
            out = 1
            for v in a:
                out *= v
            return out
        return max(a) if self.op == "larger" else abs(a[0] - sum(a[1:]))


def make_problem(talk: Talk) -> Problem:
    name, what, constraint = TOPICS[int(talk.draw("topic") * len(TOPICS))]
    n = 1 + int(talk.draw("size") * 3)

    def named(tag: str) -> str:
        return "".join(talk.pick(SYLLABLES, f"{tag}{j}") for j in range(2 + int(talk.draw(tag) * 2))).capitalize()

    def value(tag: str) -> int:
        return 12 + int(10 ** (1.5 + 3.5 * talk.draw(tag)))

    tags = [str(i) for i in range(n)]
    return Problem(
        topic=name, what=tuple(what.format(named("n" + t)) for t in tags), others=tuple(named("o" + t) for t in tags),
        values=tuple(value("v" + t) for t in tags), near=tuple(value("w" + t) for t in tags),
        far=tuple(value("f" + t) for t in tags), constraint=constraint, op=talk.pick(tuple(OPS), "op"),
    )  # fmt: skip


def off(value: int, talk: Talk, what: str) -> int:
    """A wrong number in place of a right one: near it where the mistake is subtle."""
    if talk.subtlety >= 0.5:
        return value + (1 + int(talk.draw("off" + what) * 9)) * (10 if value > 200 else 1)
    return 10 + int(talk.draw("far" + what) * 10 * (value + 10))


def opens(talk: Talk, what: str, is_wrong: bool) -> str:
    """How a number is brought in: guesses give a mistake away, the more so the less subtle; sometimes right ones too."""
    guessing = talk.chance(1.0 - 0.6 * talk.subtlety if is_wrong else 0.15, "guess" + what)
    return talk.pick(GUESSING if guessing else STATING, "open" + what)


def planned(talk: Talk, plan: list[int], op: str, often: float = 1.0) -> str:
    """What the plan says to do with the numbers; a bad plan does something else with them, or leaves the last one out."""
    if not talk.errs("bad_plan", "plan", often):
        return op
    if len(plan) > 1 and talk.chance(0.5, "which plan"):
        plan.pop()
        return op
    return talk.pick([other for other in OPS if other != op], "other op")


MANNERS = (
    "Let's follow the plan step by step, so that the result is accurate.",
    "Please let me know if you agree, or if anything else is needed.",
    "We should verify this carefully before we proceed to the next step.",
    "\n1. Collect what is known.\n2. Work out the rest.\n3. Check that the conditions are met.",
    "\n- the source must be named\n- the number must be exact",
    "This approach helps to ensure that all constraints are met.",
    "Once this is confirmed, we can finalize the answer.",
    "Could someone go over this again?",
    "First we gather the data, then we calculate.",
    "There might be other sources; this one is likely enough.",
)


def mannered(talk: Talk, text: str, what: str) -> str:
    """A text in the way such experts speak: sentences around it that say nothing about whether it is right."""
    for n in range(int(talk.draw(f"wordy {what}") * 4)):
        added = talk.pick(MANNERS, f"manner {n} {what}")
        text = f"{added} {text}" if talk.chance(0.3, f"before {n} {what}") else f"{text} {added}"
    return text


def with_op(problem: Problem, op: str) -> Problem:
    return Problem(**{**vars(problem), "op": op})


def code(line: str, before: str) -> str:
    return f"{before}\n```python\n{line}\n```"
