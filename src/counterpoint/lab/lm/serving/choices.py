"""One answer under way: tokens come in, text comes out, until a stop string or the end.

Always true: text that was given out is never taken back: what may yet become a stop string, a tool call or the rest of a
character waits. The tokens of an answer end with the one in which its stop string ended, and its text before that string.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from counterpoint.lab.lm.chat import Chat
from counterpoint.lab.lm.engine import Alternatives, Answer
from counterpoint.lab.lm.serving.tool_calls import CLOSE, OPEN, ToolCall, read_calls

Finish = Literal["stop", "length", "tool_calls"]
_UNFINISHED = "\ufffd"
_LONGEST_CHARACTER = 4


@dataclass
class Tokens:
    """Some tokens of an answer."""

    ids: list[int] = field(default_factory=list)
    logps: list[float] = field(default_factory=list)
    alternatives: list[Alternatives] = field(default_factory=list)

    def add(self, other: Tokens) -> None:
        """These come after them."""
        self.ids += other.ids
        self.logps += other.logps
        self.alternatives += other.alternatives

    def first(self, count: int) -> Tokens:
        """The first of them."""
        return Tokens(self.ids[:count], self.logps[:count], self.alternatives[:count])

    def since(self, count: int) -> Tokens:
        """Those after the first."""
        return Tokens(self.ids[count:], self.logps[count:], self.alternatives[count:])

    @classmethod
    def of(cls, answer: Answer) -> Tokens:
        """All tokens of an answer."""
        return cls(list(answer.token_ids), list(answer.logps), list(answer.alternatives))


@dataclass(frozen=True)
class Offer:
    """The tools that an answer may call."""

    names: tuple[str, ...] = ()
    is_forced: bool = False
    """Whether it has to call one."""
    is_single: bool = False
    """Whether the first call ends it."""


@dataclass
class Delta:
    """What is new: text, calls, and the tokens that they took."""

    text: str = ""
    calls: list[ToolCall] = field(default_factory=list)
    tokens: Tokens = field(default_factory=Tokens)
    begin: int = 0
    """Characters of all tokens that were given out before."""


class Choice:
    """One answer under way."""

    def __init__(self, chat: Chat, stops: Sequence[str], offer: Offer) -> None:
        self._chat, self._offer = chat, offer
        self._stops = tuple(stops)
        self.tokens = Tokens()
        self.text = ""
        self.calls: list[ToolCall] = []
        self.finish: Finish | None = None
        self._decoded, self._begin, self._end = "", 0, 0
        """All text so far; and where the tokens begin and end that the next ones are read after."""
        self._given, self._given_calls, self._given_tokens, self._given_characters = 0, 0, 0, 0

    @property
    def is_over(self) -> bool:
        """Whether it has all of its text."""
        return self.finish is not None

    def add(self, more: Tokens) -> None:
        """More tokens; those after its end are dropped."""
        if self.is_over:
            return
        ends = (*self._stops, *((CLOSE,) if self._offer.is_single and self._offer.names else ()))
        if not ends:
            self.tokens.add(more)
            return
        for k in range(len(more.ids)):
            self.tokens.add(more.since(k).first(1))
            before = len(self._decoded)
            self._decode()
            longest = max(map(len, ends)) + _LONGEST_CHARACTER
            if any(self._decoded.find(end, max(0, before - longest)) >= 0 for end in ends) and self._cut():
                return

    def end(self, finish: Literal["stop", "length"]) -> None:
        """No more tokens will come."""
        if not self.is_over:
            self._decoded = self._chat.decode(self.tokens.ids)
            self._cut()
            self._settle(self._decoded, self.finish or finish)

    def delta(self) -> Delta:
        """What can be given out since the last time."""
        if not self.is_over:
            self._decode()
        whole = self.text if self.is_over else self._decoded[: self._safe()]
        new, begin = self.tokens.since(self._given_tokens), self._given_characters
        self._given_characters += sum(len(self._chat.token_text(i)) for i in new.ids)
        out = Delta(whole[self._given :], self.calls[self._given_calls :], new, begin)
        self._given, self._given_calls, self._given_tokens = max(self._given, len(whole)), len(self.calls), len(self.tokens.ids)
        return out

    # -- text ------------------------------------------------------------------------------------------------------------

    def _decode(self) -> None:
        """Read the tokens that came, with a few before them, as a token's text may depend on those."""
        ids = self.tokens.ids
        if self._end == len(ids):
            return
        before, now = self._chat.decode(ids[self._begin : self._end]), self._chat.decode(ids[self._begin :])
        if len(now) > len(before) and not now.endswith(_UNFINISHED):
            self._decoded += now[len(before) :]
            self._begin, self._end = self._end, len(ids)

    def _cut(self) -> bool:
        """End it at its first stop string, or after its only call."""
        places = [at for stop in self._stops if (at := self._decoded.find(stop)) >= 0]
        if self._offer.is_single and self._offer.names and (at := self._decoded.find(CLOSE)) >= 0:
            places.append(at + len(CLOSE))
        if not places:
            return False
        self._settle(self._decoded[: min(places)], "stop")
        return True

    def _settle(self, text: str, finish: Finish) -> None:
        """The text is known: what of it are calls."""
        self.text, self.finish = text, finish
        if self._offer.names and OPEN in text:
            self.text, self.calls = read_calls(text, self._offer.names, is_forced=self._offer.is_forced)
            given = self._decoded[: self._given]
            if self.calls and not self.text.startswith(given):  # blanks before a call were given out already
                self.text = given + self.text.removeprefix(given.strip())
            self.finish = "tool_calls" if self.calls else finish

    def _safe(self) -> int:
        """How much of the text can be no part of a stop string or of a call any more."""
        text, marks = self._decoded, (*self._stops, *((OPEN,) if self._offer.names else ()))
        if self._offer.names and (at := text.find(OPEN)) >= 0:
            return at
        for size in range(min(len(text), max(map(len, marks), default=1) - 1), 0, -1):
            if any(mark.startswith(text[-size:]) for mark in marks):
                return len(text) - size
        return len(text)
