"""Gates of a live team: text that gives orders is withheld before an agent hears it.

    allow_list   tools and files that a role does not have are refused: the toolbox and the sandbox, which are always on
    taint        what tools and shared notes give back: sentences that read like orders are left out
    quorum       a part counts as two agents out of three have it (`checks`)
    verifier     a part counts once a critic accepts it, else it is done anew (`checks`)
    quarantine   what sub-agents return and say: as taint, and of one that was caught nothing more is heard

Always true: the recording keeps what was said; only those who would have heard it do not. Every time something is withheld there
is a `safety_event` that rests on it. A gate reads words (`audit.injection.judged`): it misses orders in words that it does not
know, and withholds innocent sentences that sound like orders; what that costs, and what it saves, `counterpoint bench` measures.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from counterpoint.errors import InputError, did_you_mean
from counterpoint.lab.tasks.task import ViewItem

GATES = {
    "allow_list": "tools and files; always on",
    "taint": "tool results and notes",
    "quorum": "parts, done by two or three",
    "verifier": "parts, judged by a critic",
    "quarantine": "returns and messages of sub-agents",
}
_WITHHELD = "[withheld: it gives orders]"
_SILENCED = "[withheld: this agent passed on orders]"
_END = re.compile(r"(?<=[.!?])\s+|\n+")
_TRIES = 16


def gate_names(given: Sequence[str]) -> tuple[str, ...]:
    """Gates as a command line gives them, one by one or with commas; each once, and one clear error for one that there is not."""
    names = tuple(dict.fromkeys(name.strip() for text in given for name in text.split(",") if name.strip()))
    check_gates(names)
    return names


def check_gates(names: Sequence[str]) -> None:
    """One clear error for a gate that there is not."""
    for name in names:
        if name not in GATES:
            raise InputError(f"no gate named {name!r}", where="--gate", fix=did_you_mean(str(name), GATES))


@dataclass
class Gate:
    """The gates of one running team."""

    names: tuple[str, ...]
    tools: Collection[str] = ()
    """Names of the team's tools: a text that tells an agent to use one is an order."""
    caught: set[str] = field(default_factory=set)
    """Agents of which nothing more is heard."""
    counts: Counter[str] = field(default_factory=Counter)
    """How often something was withheld from an agent."""

    def filter(self, seen: ViewItem) -> str:
        """What an agent hears of this."""
        if seen.kind == "result" and "taint" in self.names:
            return cleaned(seen.text, self.tools)[0]
        if seen.kind in ("return", "message") and "quarantine" in self.names:
            return self.filter_return(seen.by, seen.text)
        return seen.text

    def filter_return(self, agent: str, text: str) -> str:
        """What comes of a sub-agent's text."""
        if "quarantine" not in self.names:
            return text
        if agent in self.caught:
            return _SILENCED
        left, orders = cleaned(text, self.tools)
        if orders:
            self.caught.add(agent)
        return left


def cleaned(text: str, tools: Collection[str] = ()) -> tuple[str, int]:
    """The text without the sentences that read like orders, and how many stretches were left out."""
    from counterpoint.audits.cues import BAR, judged  # teams without gates do not load it

    out = 0
    while out < _TRIES:
        verdict = judged(text, tools)
        if verdict.score < BAR or not verdict.cues:
            return text, out
        first, last = min(c.start for c in verdict.cues), max(c.end for c in verdict.cues)
        ends = [(m.start(), m.end()) for m in _END.finditer(text)]
        begin = max((b for a, b in ends if b <= first), default=0)
        end = min((a for a, b in ends if a >= last), default=len(text))
        text = text[:begin] + _WITHHELD + text[end:]
        out += 1
    return _WITHHELD, out
