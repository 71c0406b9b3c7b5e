"""What the page is told, shape by shape: the contract between Python and the page.

Always true: the page's TypeScript types (`web/src/shapes.gen.ts`) are made from these by `typescript.py`, and a test compares
them; times are seconds since the trace began; an event is named by its number `n`, its place in the trace in order of time;
an agent by its number in `About.agents`. -1 is nobody or nothing. Absent numbers are null, never 0.
"""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from counterpoint.trace.vocabulary import EVENT_TYPES

VERSION = 2
"""Raised when a shape changes its meaning. A one-file page carries it beside its data."""

COLUMNS: dict[str, str] = {
    "t": "float64",
    "dur": "float32",
    "agent": "uint32",
    "type": "uint8",
    "flags": "uint16",
    "tokens": "uint32",
    "cost": "float32",
    "tool": "uint16",
    "turn": "int32",
    "src": "uint32",
    "dst": "uint32",
    "edge": "uint8",
}
"""The arrays that travel as bytes: one value per event, in order of time; `src`, `dst`, `edge` one per edge. `tool` is a number
in `About.tools` plus one, 0 for none; `dur` is NaN where it is not known."""

FLAGS: dict[str, int] = {
    "untrusted": 1,
    "tainted": 2,
    "failed": 4,
    "on_path": 8,
    "open": 16,
    "text": 32,
    "human": 64,
    "safety": 128,
    "unlinked": 256,
}
"""Bits of the column `flags`. `tainted`: content from outside may have reached it; `on_path`: on the critical path."""

TYPES = (*EVENT_TYPES, "thinking")
"""The types that the page knows: the survey's, and messages that a model said to nobody, which are thinking."""

FAMILIES: dict[str, list[str]] = {
    "think": ["orchestrator_decision", "thinking"],
    "act": ["tool_call", "tool_result"],
    "coordinate": ["spawn", "message", "human_intervention"],
    "merge": ["return", "aggregate"],
    "stop": ["despawn", "safety_event"],
}
"""The five colours, and the event types each one holds. A family's number is its place here; 5 is a type that is in none."""


class TraceRow(Struct, frozen=True, kw_only=True):
    """A trace in a list."""

    id: str
    title: str | None
    project: str | None
    models: list[str]
    date: float
    """When it began, seconds since the epoch; where that is not known, when it was added; 0 for neither."""
    active: float
    """When it was last at work, likewise."""
    task_id: str
    system: str | None
    topology: str | None
    agents: int | None
    events: int | None
    tokens: float | None
    cost_usd: float | None
    seconds: float | None
    reward: float | None
    errors: int
    """Events that went wrong; a call and its result are one."""
    problems: int
    """What `counterpoint store check` finds in the records."""
    unpriced: int
    """Tokens that no cost covers."""
    is_open: bool
    is_steered: bool = False
    """Whether an operator intervened while it was made."""
    waits: str = ""
    """The call without an answer that its record ends in: it is at work, stuck, or was cut off; "" for none."""
    since: float | None = None
    """When that call began, seconds since the epoch."""
    parent: str | None = None
    """The session that this run was made for, where it is a trace of its own."""
    lanes: list[float] = []
    """A tiny picture: share of busy agents in each of 24 slices of time; empty where it would cost too much."""


class AlertCount(Struct, frozen=True, kw_only=True):
    """How many alerts a trace has, for its line in the list."""

    count: int
    severity: str
    """Of the most severe; "" for none."""
    text: str
    """What the most severe says."""


class Traces(Struct, frozen=True, kw_only=True):
    """The list, and where it came from."""

    store: str
    rows: list[TraceRow]
    """Those found, or the newest of them."""
    found: int
    """How many match the query."""
    total: int
    """How many there are, whatever the query."""
    facets: dict[str, dict[str, int]]
    """Field to value to count: project, model, day, system, topology."""
    zone: str
    """The time zone of the days."""
    remarks: list[str]
    """How the query was read, where that may surprise."""
    version: str


class Agent(Struct, frozen=True, kw_only=True):
    """An agent of a trace."""

    name: str
    """Its id in the trace."""
    label: str
    """What people call it: a nickname, the description of its task, its role; its id where nothing else is known."""
    role: str | None
    parent: int
    depth: int
    spawn: int
    """The event that made it."""
    events: int
    tokens_own: float
    tokens_total: float
    cost_own: float | None
    cost_total: float | None
    busy_s: float | None
    start: float
    end: float
    path_share: float
    """Share of the critical path's time that is this agent's."""
    is_outside: bool
    """A user, a tool, the system: it takes part, and is not of the team."""


class Fact(Struct, frozen=True, kw_only=True):
    """A computed fact for the answer strip; leads to an event or an agent."""

    kind: str
    text: str
    event: int = -1
    agent: int = -1


class Alert(Struct, frozen=True, kw_only=True):
    """Something to look at: an incident, a reward hack, a failure, an unlinked child."""

    kind: str
    severity: str
    text: str
    events: list[int]


class About(Struct, frozen=True, kw_only=True):
    """Everything about a trace but its events."""

    version: int
    id: str
    title: str | None
    project: str | None
    started: float | None
    """When it began, seconds since the epoch."""
    task_id: str
    system: str | None
    topology: str | None
    rewards: dict[str, float]
    costs: dict[str, float]
    metrics: dict[str, float]
    unpriced: dict[str, int]
    """Tokens that no cost covers, by model ("" where none is named)."""
    errors: int
    """Events that went wrong; a call and its result are one."""
    events: int
    edges: int
    start: float
    end: float
    agents: list[Agent]
    tools: list[str]
    models: list[str]
    types: list[str]
    edge_types: list[str]
    facts: list[Fact]
    alerts: list[Alert]
    notes: list[str]
    """What the reader should know: mended on import, masked, ignored fields, open events."""
    can_fork: bool
    fork_refusal: str | None
    """Why it cannot be forked; None where it can be."""
    has_reward: bool
    has_logp: bool
    is_masked: bool
    is_large: bool
    """More events than travel whole: the page asks for bins and windows."""
    parent: str | None
    """The trace this one was forked from."""
    is_steered: bool = False
    """Whether an operator intervened while it was made."""
    is_partial: bool = False
    """A first look at a large trace: the page shows it, and asks for the whole."""


class ColumnHead(Struct, frozen=True, kw_only=True):
    """One array in the bytes."""

    name: str
    dtype: str
    offset: int
    length: int


class ColumnsHead(Struct, frozen=True, kw_only=True):
    """How the bytes of `columns` begin: 4 bytes length of this JSON (little-endian), the JSON, padding to 8, then the arrays.

    `ids` are event ids, newline-separated, in a window of a large trace with `first` the number of each event in `numbers`.
    """

    events: int
    edges: int
    columns: list[ColumnHead]
    ids: list[str]
    numbers: list[int] = []


class BinsLevel(Struct, frozen=True, kw_only=True):
    """One level of bins: `lanes` rows of `bins` cells, two bytes each (family of most time, density 0-255), at `offset`."""

    bins: int
    offset: int


class BinsHead(Struct, frozen=True, kw_only=True):
    """How the bytes of `bins` begin, as with columns. A lane is a group of agents (a role at a depth), or one agent."""

    lanes: list[str]
    members: list[list[int]]
    start: float
    end: float
    levels: list[BinsLevel]


class Neighbour(Struct, frozen=True, kw_only=True):
    """An event beside another: what caused it, what it led to."""

    n: int
    id: str
    type: str
    agent: int
    edge: str


class EventDetail(Struct, frozen=True, kw_only=True):
    """One event, whole."""

    n: int
    id: str
    fields: dict[str, Any]
    """Every field it has, under the survey's names, `extra` spread out."""
    text: str | None
    text_size: int
    is_cut: bool
    causes: list[Neighbour]
    effects: list[Neighbour]
    badge: str | None
    """In a fork: reused, recorded, re-run or simulated."""


class TalkRow(Struct, frozen=True, kw_only=True):
    """One event as a line of a transcript."""

    n: int
    t: float
    type: str
    agent: int
    to: int
    tool: str | None
    text: str
    text_size: int
    is_cut: bool
    trusted: bool | None
    ok: bool | None
    tokens: float | None
    depth: int


class Talk(Struct, frozen=True, kw_only=True):
    """A window of a transcript: of one agent, a subtree or all."""

    total: int
    first: int
    rows: list[TalkRow]


class MethodInfo(Struct, frozen=True, kw_only=True):
    """A credit method that this trace can answer, or why not."""

    id: str
    about: str
    unit: str
    is_additive: bool
    refusal: str | None
    why: str | None
    """Why this method is the one that is shown where nobody chose another; None for all others."""


class WorkRow(Struct, frozen=True, kw_only=True):
    """What one agent cost and what became of its work."""

    agent: int
    name: str
    spent: str
    became: str
    lines: float
    """Lines of its that are there at the end, of the most that any agent has; 0 where that is not known."""


class Work(Struct, frozen=True, kw_only=True):
    """What each agent cost and what became of its work, as `counterpoint credit` shows it."""

    rows: list[WorkRow]
    headline: str
    notes: list[str]
    why_no_credit: str | None
    """Why nobody can say who earned the outcome; None where a method can."""


class CreditRow(Struct, frozen=True, kw_only=True):
    """Credit of one thing."""

    label: str
    event: int
    agent: int
    value: float
    low: float | None
    high: float | None
    excerpt: str
    """What was said there: the words that the result has from it, or the beginning of the text."""


class Credit(Struct, frozen=True, kw_only=True):
    """What a method says about a trace at a unit. `refusal` says why it says nothing."""

    method: str
    unit: str
    units: list[str]
    rows: list[CreditRow]
    by_agent: dict[str, float]
    total: float | None
    """What the rows add up to."""
    target: float | None
    """What they should add up to, for an additive method: the team reward, or 1 where shares of the result are given."""
    whole: str
    """What the target is: `R`, or `result`."""
    notes: list[str]
    """What to know beside the numbers: the parts that nobody gets, and who is not in the result."""
    unassigned: float | None
    is_additive: bool
    closes: bool | None
    refusal: str | None
    fix: str | None


class OutcomeInfo(Struct, frozen=True, kw_only=True):
    """How a run came out, as somebody said."""

    channel: str
    value: float
    by: str
    at: float
    why: str


class ProposalInfo(Struct, frozen=True, kw_only=True):
    """An outcome that the log suggests; it counts only once somebody accepts it."""

    channel: str
    value: float
    kind: str
    says: str
    event: int


class Outcomes(Struct, frozen=True, kw_only=True):
    """What was said about how a run came out, and what its log suggests."""

    given: list[OutcomeInfo]
    proposed: list[ProposalInfo]


# -- What the page is told about several traces: two side by side, runs, comparisons, and what is running -------------
# The same contract as `shapes.py`.


class DiffRow(Struct, frozen=True, kw_only=True):
    """Two events side by side. `what`: same, edited, changed, only-a, only-b."""

    what: str
    a: int
    b: int
    type: str
    agent: str
    before: str
    after: str


class Diff(Struct, frozen=True, kw_only=True):
    """Two traces, aligned."""

    a: str
    b: str
    rows: list[DiffRow]
    same: int
    different: int
    first: int
    """Row of the first difference."""
    sums: dict[str, list[float | None]]
    """tokens, seconds, cost_usd, reward: of a and of b."""
    agents: dict[str, list[float]]
    """Agent to tokens in a and b, where they differ."""
    steered: list[str] = []
    """Those of the two that were steered by hand."""


class LiveOrder(Struct, frozen=True, kw_only=True):
    """An order that has taken effect on an agent, and the event that says so."""

    id: str
    action: str
    agent: str
    event: str


class LiveTrace(Struct, frozen=True, kw_only=True):
    """A trace that is running, or whose record ends in a call without an answer."""

    id: str
    title: str | None
    task_id: str
    agents: int
    events: int
    last_t: float
    silent_s: float
    open: list[dict[str, Any]]
    """Events that have begun and not ended: id, agent, its name, what it does, tool, since when."""
    is_steerable: bool = False
    """Whether its team takes orders."""
    names: list[str] = []
    """Of a team that takes orders: the agents that are in it, as many as the page shows."""
    paused: list[str] = []
    stopped: list[str] = []
    orders: list[LiveOrder] = []
    """The last orders that took effect."""


class OrderReceipt(Struct, frozen=True, kw_only=True):
    """An order that was sent: it acts at the next safe point."""

    id: str
    action: str
    agent: str
    tree: bool
    by: str


class LiveBatch(Struct, frozen=True, kw_only=True):
    """One message of the stream."""

    seq: int
    at: float
    traces: list[LiveTrace]
    events: dict[str, list[dict[str, Any]]]
    """Trace to its new or changed events."""
