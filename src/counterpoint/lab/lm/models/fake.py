"""A test double of a model: deterministic, no weights; plays every role of every task from its prompt alone.

Always true: a completion is a function of the prompt, the options and the call's seed; nothing else is read, no clock, no file.

It goes wrong with chance 1 - skill at each step of a task (`TextTask.work`), follows planted instructions with chance `gullible`,
chooses another legal action with chance `explore` (and reports the log-probability of every choice), and writes nonsense with
chance `babble`. As an orchestrator it spawns a worker per part, gives out the parts, waits, merges by the task's first rule, and
stops. Where it could work alone as well, it does, or hires workers with chance `hires`; each worker after the first with chance
`crew`.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from functools import lru_cache
from itertools import pairwise
from operator import attrgetter
from typing import Any

from counterpoint.errors import InputError, did_you_mean
from counterpoint.lab.lm.model import Call, Completion, ModelFailed
from counterpoint.lab.tasks import grammar
from counterpoint.lab.tasks.attacks import obey
from counterpoint.lab.tasks.task import Act, Choice, TextTask, View

_PART = re.compile(r"^(\S+): ", re.M)
_TURNS = ("turn",)
_WORDS = attrgetter("words")
_SECONDS_PER_CALL, _SECONDS_PER_TOKEN = 0.2, 0.01
_NONSENSE = ("Sure! Let me think about that.", "DELEGATE nobody: nothing", "", "{'action': 'spawn'", "STOP STOP STOP")


class _Draws:
    """Keyed numbers of one call."""

    def __init__(self, seed: int) -> None:
        self._seed = seed

    def __call__(self, name: str) -> float:
        word = hashlib.blake2b(f"{self._seed}|{name}".encode(), digest_size=8).digest()
        return (int.from_bytes(word, "big") >> 11) * 2.0**-53


@dataclass(frozen=True, kw_only=True)
class Fake:
    """A test double: a model without weights."""

    task: TextTask
    skill: float = 0.9
    explore: float = 0.05
    gullible: float = 0.5
    babble: float = 0.0
    hires: float = 0.0
    crew: float = 1.0

    @property
    def name(self) -> str:
        """`fake:` with its skill."""
        return f"fake:{self.skill:g}"

    @property
    def version(self) -> str:
        """Its other dials, and how it plays."""
        hiring = "" if (self.hires, self.crew) == (0.0, 1.0) else f"{self.hires:g}/{self.crew:g}/"
        return f"1/{self.explore:g}/{self.gullible:g}/{self.babble:g}/{hiring}{self.task.name}-{self.task.version}"

    is_instant = True
    """Its seconds are invented, so a team of it is recorded in logical time: the same bytes each time."""

    async def complete(self, call: Call) -> Completion:
        """Play the view of the call."""
        if call.view is None:
            raise ModelFailed("refused", "a fake model needs the view of a call", fix="call it through a team")
        draw, view = _Draws(call.seed), call.view
        if draw("babble") < self.babble:
            return _completion(call, _NONSENSE[int(draw("nonsense") * len(_NONSENSE))], None)
        preferred = obey(view, draw, self.gullible) or self._prefers(view, draw)
        act, logps = self._noisy(preferred, view.choices, draw)
        return _completion(call, grammar.line_of(act, view.choices, call.starts), logps)

    async def close(self) -> None:
        """Nothing to let go of."""

    def _prefers(self, view: View, draw: _Draws) -> Act:
        if view.purpose in _TURNS and (view.role != "agent" or self._leads(view, draw)):
            own = {s.text for s in view.seen if s.kind == "own"}
            return orchestrate(view, is_enough=self.crew < 1 and bool(own) and ("NOOP" in own or draw("crew") >= self.crew))
        if view.purpose in _TURNS:  # alone with tools: what a worker would return is its answer
            tools = tuple(c for c in view.choices if c.verb == "tool")
            back = Choice("return", "", None)
            act = self.task.work(replace(view, purpose="work", choices=(*tools, back)), draw, self.skill)
            return Act("stop", "", act.text) if act.verb == "return" else act
        return self.task.work(view, draw, self.skill)

    def _leads(self, view: View, draw: _Draws) -> bool:
        """Whether who could work alone hires others: decided at the first turn, and kept."""
        own = [s.text for s in view.seen if s.kind == "own"]
        return any(line.startswith("SPAWN") for line in own) if own else draw("hires") < self.hires

    def _noisy(self, act: Act, choices: Sequence[Choice], draw: _Draws) -> tuple[Act, tuple[float, ...] | None]:
        """The act, or with chance `explore` another one; with the log-probability of each start."""
        every = grammar.starts(choices)
        at = grammar.matching(act, choices)
        if at is None:
            return act, None  # an act outside the grammar's choices, such as a forbidden tool: no start has its probability
        mine = every.index(grammar.starts([choices[at]])[0])
        n = len(every)
        chance = [self.explore / n + (1 - self.explore if i == mine else 0.0) for i in range(n)]
        logps = tuple(math.log(p) if p > 0 else -math.inf for p in chance)
        if draw("explore") >= self.explore:
            return act, logps if self.explore else None
        other = every[int(draw("which") * n)]
        choice = next(c for c in choices if grammar.starts([c])[0] == other)
        text = act.text if choice.text is None and choice.verb == act.verb else choice.text or ""
        return Act(choice.verb, choice.target, text), logps


@lru_cache(maxsize=1024)
def _parts_in(text: str) -> int:
    """How many parts a question lists."""
    return len(_PART.findall(text.partition("parts:\n")[2]))


def orchestrate(view: View, *, is_enough: bool = False) -> Act:
    """What a competent orchestrator does: a worker per part, every part given out, merged by the first rule, then stop.

    `is_enough`: nobody more is spawned.
    """
    offered: dict[str, list[Choice]] = {}
    for choice in view.choices:
        offered.setdefault(choice.verb, []).append(choice)
    own = [s.text for s in view.seen if s.kind == "own"]
    parts = max((_parts_in(s.text) for s in view.seen if s.kind in ("question", "subtask")), default=0)
    spawned = sum(line.startswith("SPAWN") for line in own)
    sent = sum(line.startswith("DELEGATE") for line in own)

    def first(verb: str) -> Act:
        choice = offered[verb][0]
        return Act(choice.verb, choice.target, choice.text or "")

    sizes = [c for c in offered.get("spawn", ()) if c.text]
    if sizes:  # how many at once: the least that is enough for all parts, else as many as there may be
        enough = [c for c in sizes if int(c.text or 0) >= parts]
        best = enough[0] if enough else sizes[-1]
        return Act("spawn", best.target, best.text or "")
    if "delegate" in offered:
        return first("delegate")
    # A worker that was spawned and could not be given anything: there is nothing left to give.
    is_all_sent = sent >= parts or any(
        line.startswith("SPAWN") and not later.startswith("DELEGATE") for line, later in pairwise([*own, ""])
    )
    if "spawn" in offered and not is_all_sent and spawned < parts and not is_enough:
        return first("spawn")
    if not is_all_sent and sent and own[-1] != "NOOP":
        return Act("noop")  # everybody works, and there is more to give
    if "aggregate" in offered:
        return first("aggregate")
    last = "stop" if "stop" in offered else "return"
    fixed = [c for c in offered.get(last, ()) if c.text is not None]
    return Act(last, "", fixed[0].text or "") if fixed else Act(last, "", "unknown")  # type: ignore[arg-type]


def _completion(call: Call, text: str, logps: tuple[float, ...] | None) -> Completion:
    words, asked = len(text.split()), sum(map(_WORDS, call.messages))
    return Completion(text=text, tokens_in=asked, tokens_out=words, start_logps=logps, extra={"seconds": invented_seconds(words)})


def invented_seconds(tokens: int) -> float:
    """How long an answer of so many tokens takes in logical time."""
    return _SECONDS_PER_CALL + _SECONDS_PER_TOKEN * tokens


def fake(spec: str = "", *, task: TextTask, **options: Any) -> Fake:
    """A fake model: `fake`, or `fake:0.8` for a skill of 0.8."""
    try:
        skill = float(spec) if spec else 0.9
    except ValueError:
        raise InputError(
            f"{spec!r} is not a skill", where="--model fake:SKILL", fix="a number from 0 to 1, as in fake:0.8"
        ) from None
    known = {field.name for field in fields(Fake)} - {"task", "skill"}
    for option in options:
        if option not in known:
            raise InputError(f"fake has no option {option!r}", fix=did_you_mean(option, known))
    if not 0 <= skill <= 1 or any(not 0 <= float(value) <= 1 for value in options.values()):
        raise InputError("a chance is from 0 to 1", where="--model fake", fix="as in fake:0.8")
    return Fake(task=task, skill=skill, **options)
