"""The records of a trace: `Event` and `Edge`, frozen and dumb.

Always true: a field that is absent in the file is `None` here and is not written; JSON null is never absent, so a file's
null stays in `extra`. Everything a file says about an event is in exactly one place: a declared field when it has that
field's type, otherwise `extra`, and comes back out under the name it came in with.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from msgspec import Meta, Struct

from counterpoint.trace.vocabulary import Decision, EdgeType, EventType, Source

Number = int | float
Name = Annotated[str, Meta(min_length=1)]
# A union of two constrained types, so that big integers stay integers and floats stay floats.
NonNegative = Annotated[int, Meta(ge=0)] | Annotated[float, Meta(ge=0)]

if TYPE_CHECKING:
    _Str = str | None
    _Bool = bool | None
    _Num = int | float | None
    _Count = int | None
    _Amount = int | float | None
    _Strs = list[str] | None
    _Rewards = dict[str, Number] | None
    _Decision = Decision | None
    _Source = Source | None
    ExtraFields = dict[str, Any] | None
else:
    # For the decoder these are the bare types: absent becomes the default None, while a JSON null is a type error and
    # sends the file down the path that keeps it. A type checker sees what a caller sees: a value or None.
    _Str, _Bool, _Num = str, bool, Number
    _Count, _Amount = Annotated[int, Meta(ge=0)], NonNegative
    _Strs, _Rewards = list[str], dict[str, Number]
    _Decision, _Source = Decision, Source

    class ExtraFields:
        """What no decoder accepts: `extra` is never a key of its own in a file."""


class Event(Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True, gc=False):
    """One vertex of the trace: the survey's ten fields, then ours, all optional."""

    id: Name
    """Unique in the trace."""
    t: NonNegative
    """Seconds (or steps) since the trace began, when the event started."""
    type: EventType
    """What kind of event it is."""
    agent: Name
    """The agent instance that did it."""
    role: _Str = None
    """The role it did it in; on a spawn, the role of the agent that is created."""
    from_: _Str = msgspec.field(name="from", default=None)
    """Who a message or return comes from."""
    to: _Str = None
    """Who it goes to; on a spawn or despawn, the agent created or ended."""
    tool: _Str = None
    """The tool called or answering."""
    content_ref: _Str = None
    """Pointer to the content: a key of the trace's `contents`, or a foreign hash."""
    trusted: _Bool = None
    """False when the content came from outside the team's own control."""

    dur: _Amount = None
    """Seconds it took."""
    tokens_in: _Count = None
    """Tokens read."""
    tokens_out: _Count = None
    """Tokens written."""
    cost_usd: _Amount = None
    """Money spent, US dollars."""
    model: _Str = None
    """The model that produced it."""
    turn: _Count = None
    """The agent's turn number."""
    task: _Str = None
    """The sub-task it belongs to."""
    decision: _Decision = None
    """On an orchestrator_decision: which of O1-O5, or noop for a decision point passed over."""
    options: _Strs = None
    """The actions that were offered."""
    logp: _Num = None
    """Log-probability of the chosen action under the behaviour policy."""
    policy: _Str = None
    """Version of the policy that chose."""
    key: _Str = None
    """Stable key: spawn path, purpose, item, attempt. Nothing that an intervention would change."""
    ok: _Bool = None
    """Whether it succeeded."""
    error: _Str = None
    """What went wrong."""
    source: _Source = None
    """Where untrusted content came from."""
    reward: _Rewards = None
    """Reward channels paid on this event."""
    at: _Num = None
    """Absolute time, seconds since the epoch, UTC."""
    extra: ExtraFields = None
    """Every other field of the event, kept as it was."""


class Edge(Struct, frozen=True, forbid_unknown_fields=True, gc=False):
    """A dependency between two events: `dst` depends on, or read, `src`."""

    src: Name
    dst: Name
    type: EdgeType


def wire_name(field: str) -> str:
    """The JSON name of an Event field: Python reserves `from`, the survey does not."""
    return "from" if field == "from_" else field


FIELDS: tuple[str, ...] = tuple(f for f in Event.__struct_fields__ if f != "extra")
"""Every declared event field in order, `extra` apart."""
PLAIN = frozenset(FIELDS) - {"id", "t", "type", "agent", "from_"}
"""Fields whose JSON name is their own and that an event may lack."""
BARE = {"id": "-", "t": 0, "type": "message", "agent": "-"}
"""The least that is an event: with other fields beside it, it shows whether they are of their types."""
AMOUNTS = ("dur", "tokens_in", "tokens_out", "cost_usd", "turn")
"""Fields that are never negative in a valid trace."""
SURVEY_FIELDS = FIELDS[:10]
OUR_FIELDS = FIELDS[10:]
