"""What front ends and the process of the engine tell each other, as bytes through a socket.

Always true: what comes out is what went in, or an error; token ids are int32, log-probabilities float64.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import Any, Literal

import msgspec
from msgspec import Struct

from counterpoint.lab.lm.engine import Alternatives
from counterpoint.lab.lm.frames import frame
from counterpoint.lab.lm.model import Failure, ModelFailed
from counterpoint.lab.lm.serving.backend import SpokenAnswer
from counterpoint.lab.lm.serving.callers import Caller

# -- from a front end ---------------------------------------------------------------------------------------------------------


class Ready(Struct, frozen=True, tag=True, array_like=True):
    """It answers."""


class CallRequest(Struct, frozen=True, tag=True, array_like=True):
    """The engine is asked."""

    call: int
    prompt: bytes
    most: int
    temperature: float
    seed: int
    policy: str
    top_p: float
    alternatives: int
    starts: list[tuple[tuple[int, ...], int]]
    is_watched: bool


class CallDrop(Struct, frozen=True, tag=True, array_like=True):
    """Nobody waits for a call any more."""

    call: int


class Note(Struct, frozen=True, tag=True, array_like=True):
    """Something for the ledger; who passes it on need not read it."""

    number: int
    what: bytes
    """A `LedgerNote`."""


class AnswerNote(Struct, frozen=True, tag=True, array_like=True):
    """What was answered is to be recorded."""

    caller: Caller
    answers: list[SpokenAnswer]
    seconds: float


class TraceEnd(Struct, frozen=True, tag=True, array_like=True):
    """A trace is over."""

    trace: str
    rewards: dict[str, float] | None


class Leave(Struct, frozen=True, tag=True, array_like=True):
    """A connection has ended."""


# -- to a front end -----------------------------------------------------------------------------------------------------------


class Piece(Struct, frozen=True, tag=True, array_like=True):
    """What is new of an answer."""

    call: int
    token_ids: bytes
    logps: bytes
    alternatives: list[Alternatives]
    reused: int
    version: str


class LastPiece(Struct, frozen=True, tag=True, array_like=True):
    """An answer is whole: all of it that was not told before."""

    call: int
    token_ids: bytes
    logps: bytes
    alternatives: list[Alternatives]
    reused: int
    version: str
    finish: Literal["stop", "length"]


class CallFailure(Struct, frozen=True, tag=True, array_like=True):
    """There is no answer."""

    call: int
    kind: Failure
    what: str
    where: str | None
    why: str | None
    fix: str | None

    @classmethod
    def of(cls, call: int, error: ModelFailed) -> CallFailure:
        """As a message."""
        return cls(call, error.kind, error.what, error.where, error.why, error.fix)

    @property
    def error(self) -> ModelFailed:
        """As an error."""
        return ModelFailed(self.kind, self.what, where=self.where, why=self.why, fix=self.fix)


class Receipt(Struct, frozen=True, tag=True, array_like=True):
    """What was to be recorded is; of a trace that is over: its name and calls, or why there is none."""

    number: int
    trace: str | None = None
    calls: int = 0
    error: str | None = None


class Facts(Struct, frozen=True, tag=True, array_like=True):
    """What a front end has to know before it begins, as pickle has it: both processes are ours."""

    data: bytes


class Stop(Struct, frozen=True, tag=True, array_like=True):
    """Nobody new is let in; what has begun is answered."""


class Problems(Struct, frozen=True, tag=True, array_like=True):
    """All is sealed; what could not be recorded."""

    problems: list[str]


LedgerNote = AnswerNote | TraceEnd
Question = Ready | CallRequest | CallDrop | Note | Leave
"""What a front end says."""
Reply = Piece | LastPiece | CallFailure | Receipt | Facts | Stop
"""What it is told."""
decode_questions = msgspec.msgpack.Decoder(list[Question]).decode
decode_note = msgspec.msgpack.Decoder(LedgerNote).decode
decode_receipts = msgspec.msgpack.Decoder(list[Receipt | Problems]).decode
"""What the ledger's process says."""
decode_notes = msgspec.msgpack.Decoder(list[Note | Stop]).decode
"""What it is told."""
decode_replies = msgspec.msgpack.Decoder(list[Reply]).decode
_encode = msgspec.msgpack.Encoder().encode


def framed(messages: Sequence[Question] | Sequence[Reply] | Sequence[Receipt | Problems]) -> bytes:
    """Messages as they go through the socket."""
    return frame(_encode(messages))


def packed_note(number: int, note: LedgerNote) -> Note:
    """A note as it is passed on."""
    return Note(number, _encode(note))


def ints(values: Sequence[int]) -> bytes:
    """Token ids as bytes."""
    return array("i", values).tobytes()


def floats(values: Sequence[float]) -> bytes:
    """Numbers as bytes."""
    return array("d", values).tobytes()


def numbers(data: bytes, kind: Literal["i", "d"]) -> list[Any]:
    """The numbers of such bytes."""
    return array(kind, data).tolist()
