"""`Summary`: one line about one trace, for lists.

Always true: it costs no look into the lake; what is not known is None.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from typing import Any, ClassVar

from msgspec import Struct
from msgspec.structs import replace

from counterpoint.display import compact, duration, local_day, local_moment, money
from counterpoint.store.annotations import NAME, AnnotationState
from counterpoint.store.log import Row, State
from counterpoint.trace import Trace
from counterpoint.trace.activity import QUARTER_S, Quarter, Waiting, quarters_of, waiting_of
from counterpoint.trace.line_records import OPEN_EVENTS, UNFINISHED
from counterpoint.trace.lines import LineReader
from counterpoint.trace.naming import further_of, models_of, parent_session, project_of, started, title_of
from counterpoint.trace.quantities import money_total, uncounted
from counterpoint.trace.sides import NO_SIDES, Side, Sides, sides_of
from counterpoint.trace.steering import is_steered, order_of
from counterpoint.trace.tabular import Tabular


def day_of(at: float) -> str:
    """The day of a moment in this machine's time zone, looked up once for each quarter of an hour."""
    return _day(int(at // QUARTER_S), (time.timezone, time.altzone, *time.tzname))


@lru_cache(maxsize=1 << 17)
def _day(quarter: int, zone: tuple[int | str, ...]) -> str:
    """`zone` only keeps the days of another one apart."""
    return local_day(quarter * QUARTER_S)


class Summary(Struct, frozen=True, kw_only=True, gc=False):
    """What `counterpoint ls` shows of a trace."""

    id: str
    task_id: str
    system: str | None
    topology: str | None
    events: int
    edges: int
    agents: int
    tokens: int | float | None
    wall_clock_s: int | float | None
    team_reward: int | float | None
    problems: int
    """How many errors `check` finds in it."""
    source: str | None
    added: float
    """When it was first added, seconds since the epoch; of an open one, when it was last written."""
    is_open: bool = False
    """Whether it is still in the journal: running, or cut off."""
    cost_usd: int | float | None = None
    is_steered: bool = False
    """Whether an operator intervened while it was made."""
    title: str | None = None
    """What was asked, in one line."""
    project: str | None = None
    models: tuple[str, ...] = ()
    """Those with the most tokens first."""
    started: float | None = None
    """When the run began, seconds since the epoch; None where its source has no clock's time."""
    errors: int = 0
    """Events that went wrong; a call and its result are one."""
    unpriced: dict[str, int] = {}
    """Tokens that no cost covers, by model ("" where none is named)."""
    uncounted: int = 0
    """Agents and model calls whose tokens are not, or not truly, known: tokens and cost are then at least what is said."""
    annotations: int = 0
    """Notes, labels and scores that people or models put on it."""
    labels: tuple[str, ...] = ()
    """The labels among them: `wrong`, or `verdict=wrong` where they have a name; a model's with `by NAME, a model`."""
    remarks: tuple[str, ...] = ()
    """The texts among them."""
    scores: tuple[tuple[str, float], ...] = ()
    """The scores among them, each with its name."""

    quarters: tuple[Quarter, ...] | None = None
    """When it was at work, and what it spent then; none without a clock's time, None where the store did not keep it yet."""
    waiting: tuple[Waiting, ...] = ()
    """Calls without an answer where its record ends, the longest first: it is at work, stuck, or was cut off."""
    parent: str | None = None
    """The session that this run belongs to, where it is a trace of its own."""
    sides: Sides | None = None
    """What its main transcript and its sub-agents spent; None where the store did not keep it yet."""
    further: str | None = None
    """The words of what was asked that stand behind the title."""

    @property
    def active(self) -> float:
        """When it was last at work; where that is not known, when it was added."""
        if self.is_open or self.started is None:
            return self.added
        return self.quarters[-1].last if self.quarters else self.started + float(self.wall_clock_s or 0.0)

    @property
    def pieces(self) -> tuple[Quarter, ...]:
        """When it was at work, for those who ask of a date; where only its start is known, in one piece."""
        if self.quarters:
            return self.quarters
        end = self.active if self.started is not None else self.date
        return (Quarter(self.date, max(end, self.date), self.events),)

    def within(self, begin: float, end: float) -> Summary | None:
        """What it did from `begin` to before `end`, to the quarter of an hour; None for nothing, itself where that is all."""
        quarters = tuple(q for q in self.pieces if q.first < end and q.last >= begin)
        if not quarters or len(quarters) == len(self.pieces):
            return self if quarters else None
        return self.of_quarters(quarters)

    def of_quarters(self, quarters: tuple[Quarter, ...]) -> Summary:
        """The part of it that lies in some of its quarters; the time is from the first to the last event of them."""
        tokens = [q.tokens for q in quarters if q.tokens is not None]
        paid = [q.cost_usd for q in quarters if q.cost_usd is not None]
        unpriced: dict[str, int] = {}
        for q in quarters:
            for model, count in q.unpriced.items():
                unpriced[model] = unpriced.get(model, 0) + count
        return replace(
            self, events=sum(q.events for q in quarters), errors=sum(q.errors for q in quarters), unpriced=unpriced,
            quarters=quarters, sides=_sides_within(self.sides, quarters),
            tokens=sum(tokens) if tokens else None, cost_usd=money_total(paid) if paid else None, started=quarters[0].first,
            wall_clock_s=None if self.wall_clock_s is None else round(quarters[-1].last - quarters[0].first, 3),
        )  # fmt: skip

    def by_day(self) -> dict[str | None, Summary]:
        """What it did on each day of this machine's time zone; under None what has no day.

        That is a trace without a date, and, of one that was at work on several days, what it states beyond its events.
        """
        days: dict[str, list[Quarter]] = {}
        for q in self.quarters or ():
            days.setdefault(day_of(q.first), []).append(q)
        if len(days) < 2:
            is_dated = self.started is not None or self.is_open  # when it was added is not its day
            return {next(iter(days), day_of(self.date)) if is_dated else None: self}
        out: dict[str | None, Summary] = {day: self.of_quarters(tuple(quarters)) for day, quarters in days.items()}
        events, errors = self.events - sum(d.events for d in out.values()), self.errors - sum(d.errors for d in out.values())
        tokens = (self.tokens or 0) - sum(d.tokens or 0 for d in out.values())
        cost = float(self.cost_usd or 0.0) - money_total(d.cost_usd or 0.0 for d in out.values())
        has_cost = cost > 1e-9 * float(self.cost_usd or 0.0)
        if events or errors or tokens > 0 or has_cost:
            out[None] = replace(
                self, events=events, errors=errors, tokens=tokens if tokens > 0 else None, cost_usd=cost if has_cost else None,
                unpriced={}, uncounted=0, wall_clock_s=None, started=None, quarters=(), sides=NO_SIDES,
            )  # fmt: skip
        return out

    @property
    def note(self) -> str | None:
        """The texts, as one."""
        return "\n".join(self.remarks) or None

    @property
    def label(self) -> str | None:
        """The labels, as one text."""
        return ", ".join(self.labels) or None

    @property
    def model(self) -> str | None:
        """The models, as one text."""
        return ", ".join(self.models) or None

    @property
    def unpriced_tokens(self) -> int:
        """Tokens that no cost covers."""
        return sum(self.unpriced.values())

    @property
    def date(self) -> float:
        """When it began; where that is not known, when it was added."""
        return self.added if self.started is None else self.started

    @classmethod
    def of_row(cls, row: Row) -> Summary:
        """Of a finished trace."""
        return cls(
            id=row.id,
            task_id=row.task,
            system=row.system,
            topology=row.topology,
            events=row.events.rows,
            edges=row.edges.rows,
            agents=row.agents,
            tokens=row.tokens,
            wall_clock_s=row.wall_clock_s,
            team_reward=row.rewards.get("team"),
            problems=row.problems,
            source=row.source,
            added=row.added,
            cost_usd=row.costs.get("cost_usd") if row.cost_usd is None else row.cost_usd,
            is_steered=row.is_steered,
            title=row.title,
            project=row.project,
            models=row.models,
            started=row.started,
            errors=row.failures,
            unpriced=row.unpriced,
            uncounted=row.uncounted,
            quarters=row.quarters,
            waiting=row.waiting,
            parent=row.parent,
            sides=row.sides,
            further=row.further,
        )

    @classmethod
    def of_lines(cls, lines: LineReader, at: float) -> Summary:
        """Of an open one, from its journal."""
        assert lines.header is not None
        head = lines.header
        trace = Trace(
            trace_id=head.trace_id, task_id=head.task_id, system=head.system, topology=head.topology, events=lines.events,
            edges=lines.edges, contents=lines.contents, meta=head.meta | {UNFINISHED: True, OPEN_EVENTS: list(lines.open)},
        )  # fmt: skip
        steered = any(order_of(e) is not None for e in lines.events)
        return replace(cls.of_trace(trace), team_reward=None, added=at, is_open=True, is_steered=steered)

    @classmethod
    def of_trace(cls, trace: Trace) -> Summary:
        """Of a trace that is in no store."""
        return cls(
            id=trace.trace_id,
            task_id=trace.task_id,
            system=trace.system,
            topology=trace.topology,
            events=len(trace.events),
            edges=len(trace.edges),
            agents=len(trace.members),
            tokens=trace.tokens,
            wall_clock_s=trace.duration_s,
            team_reward=trace.rewards.get("team"),
            problems=0,
            source=None,
            added=0.0,
            cost_usd=trace.cost_usd,
            is_steered=is_steered(trace),
            title=title_of(trace),
            project=project_of(trace.meta),
            models=tuple(models_of(trace.events, trace.meta)),
            started=started(trace.events, trace.meta),
            errors=len(trace.failures),
            unpriced=trace.unpriced,
            uncounted=uncounted(trace.meta),
            quarters=quarters_of(trace),
            waiting=waiting_of(trace),
            parent=parent_session(trace.meta),
            sides=sides_of(trace),
            further=further_of(trace),
        )


def _sides_within(whole: Sides | None, quarters: Sequence[Quarter]) -> Sides | None:
    """The two sides in some quarters of an hour; the sub-agents are those of the whole."""
    if whole is None:
        return None
    subs = Side()
    for q in quarters:
        subs = subs.plus(q.subs) if q.subs is not None else subs
    tokens = [q.tokens for q in quarters if q.tokens is not None]
    paid = [q.cost_usd for q in quarters if q.cost_usd is not None]
    main = Side(
        sum(tokens) - (subs.tokens or 0) if tokens else None,
        money_total(paid) - (subs.cost_usd or 0.0) if paid else None,
        sum(sum(q.unpriced.values()) for q in quarters) - subs.unpriced,
    )
    return Sides(whole.sub_agents, main, subs)


class StoreTable(Tabular):
    """The list of a store as a table, what was last at work first."""

    TABLE: ClassVar = {
        "id": "string", "date": "double", "title": "string", "project": "string", "models": "list:string", "task_id": "string",
        "agents": "int64", "events": "int64", "tokens": "double", "cost_usd": "double", "wall_clock_s": "double",
        "team_reward": "double", "errors": "int64", "problems": "int64", "labels": "list:string", "annotations": "int64",
        "is_open": "bool", "is_steered": "bool",
    }  # fmt: skip

    def __init__(self, path: str, rows: tuple[Summary, ...]) -> None:
        self.path, self.rows = path, rows

    def table_rows(self) -> Iterator[Sequence[Any]]:
        """A row per trace."""
        for row in self._newest_first():
            yield tuple(_plain(getattr(row, name)) for name in self.TABLE)

    def sample(self) -> tuple[list[str], Iterator[Sequence[Any]]]:
        """As `counterpoint ls` writes it."""
        names = ["id", "active ↓", "title", "model", "agents", "events", "tokens", "cost", "time", "reward", "errors"]
        names += ["labels", ""]
        rows = (
            (row.id, local_moment(row.active), row.title or row.task_id, row.model, row.agents, row.events, compact(row.tokens),
             money(row.cost_usd), duration(row.wall_clock_s), row.team_reward, row.errors or None, row.label,
             "open" if row.is_open else "steered" if row.is_steered else None)
            for row in self._newest_first()
        )  # fmt: skip
        return names, rows

    def _newest_first(self) -> list[Summary]:
        return sorted(self.rows, key=lambda row: row.active, reverse=True)

    def caption(self) -> str:
        """Which store, and how many traces."""
        n_open = sum(row.is_open for row in self.rows)
        return f"{self.path}: {len(self.rows):,} traces" + (f", {n_open:,} open" if n_open else "")


def _plain(value: Any) -> Any:
    """Integers that no 64-bit column holds become floats, as the table has them."""
    return float(value) if isinstance(value, int) and not isinstance(value, bool) and abs(value) >= 1 << 62 else value


# -- `info`: how large a store is, what it holds, and how it grew -----------------------------------------------------
# Always true: nothing is written; sizes are of files, days are of UTC, and a day on which nothing was added is not listed.

_PLACES = ("lake", "log", "journal", "hot", "control", "set-aside")


class Day(Struct, kw_only=True):
    """What one day added that is still there."""

    day: str
    traces: int = 0
    events: int = 0


class Info(Struct, kw_only=True):
    """A store in numbers."""

    path: str
    form: int
    """Of the folder: 2 has sums for every file of the log."""
    commit: int
    """The number of the newest commit."""
    traces: int
    open: int
    events: int
    parts: int
    dead_traces: int
    """Removed or replaced, and still in the lake's files until they are compacted."""
    bytes: dict[str, int]
    """By folder; those that are empty are left out."""
    days: list[Day]
    annotations: int = 0
    datasets: int = 0


def info(path: Path, form: int, state: State, n_open: int, annotated: AnnotationState) -> Info:
    """The numbers of a store in this state."""
    days: dict[str, Day] = {}
    for row in state.rows.values():
        name = datetime.fromtimestamp(row.added, UTC).strftime("%Y-%m-%d")
        day = days.setdefault(name, Day(day=name))
        day.traces += 1
        day.events += row.events.rows
    sizes: dict[str, int] = defaultdict(int)
    for place in _PLACES:
        for file in (path / place).rglob("*"):
            if file.is_file():
                sizes[place] += file.stat().st_size
    if (path / NAME).is_file():
        sizes["annotations"] = (path / NAME).stat().st_size
    return Info(
        path=str(path),
        form=form,
        commit=state.number,
        traces=len(state.rows),
        open=n_open,
        events=sum(day.events for day in days.values()),
        parts=len(state.parts),
        dead_traces=sum(part.traces - state.live[name] for name, part in state.parts.items()),
        bytes=dict(sizes),
        days=[days[name] for name in sorted(days)],
        annotations=len(annotated.annotations),
        datasets=len(annotated.datasets),
    )
