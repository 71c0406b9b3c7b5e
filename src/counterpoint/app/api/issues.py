"""`cpt.issues`: what recurs over a store: each cause once, with how often, since when, what it cost, and what people decided.

Always true: an issue's id and name are made of what is alike in all its runs, so that a new run neither renames nor splits one
(`audits.symptoms`); what somebody decided is in the store, under the issue's id, with the sums and the lock of all that people
say there. A resolved issue that happens again after it was resolved, by the run's own clock, is a regression. What runs showed is
remembered beside them, by their digests: the memory is a copy that can be deleted.
"""

from __future__ import annotations

import math
import statistics
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import msgspec
from msgspec import Struct
from msgspec.structs import replace

import counterpoint.store.disk as disk
from counterpoint.app.human_scores import author
from counterpoint.app.load_save import store_path
from counterpoint.app.search import matcher
from counterpoint.audits.symptoms import KINDS, VERSION, Symptom, symptom_key, symptoms
from counterpoint.display import counted, local_day, money
from counterpoint.errors import CounterpointError, InputError, NotFound, did_you_mean
from counterpoint.store import Store
from counterpoint.store.annotations import AnnotationFile, Change, IssueMark
from counterpoint.store.disk import SumError
from counterpoint.store.summary import Summary
from counterpoint.trace import Trace
from counterpoint.trace.tabular import Tabular

if TYPE_CHECKING:
    from counterpoint.app.api.inputs import StorePlace

STATES = ("open", "resolved", "ignored")
"""What people decide; `regressed` follows from it."""
_MEMORY = "issues.cache"
_EXAMPLES, _WEEKS, _WEEK_S = 3, 8, 7 * 86400.0
_DEAREST = "dearest"
"""Of what is remembered of a run: no symptom, but where a cost jump is shown."""
_EARLIER, _FEWEST = 30, 5
"""Earlier runs of a project that a run's cost is held against: at most, and at least."""
_TIMES, _ALWAYS, _DEVIATIONS = 3.0, 30.0, 3.0
"""A cost jump: so many times the median at least, and always from so many on; between them by deviations of the logarithms."""


class Example(Struct, frozen=True):
    """One run with the issue."""

    trace_id: str
    title: str | None
    event: str | None
    words: str


class IssueRun(Struct, frozen=True, kw_only=True):
    """One run with an issue, and where in it."""

    trace_id: str
    title: str | None
    project: str | None
    at: float
    """When it was last seen there; where the run has no clock's time, when it was added."""
    is_dated: bool
    count: int
    open: int
    """How often, and how many of these nothing mended later in the run."""
    events: tuple[str, ...]
    """The first of them."""
    words: str


class Issue(Struct, kw_only=True):
    """What recurs."""

    id: str
    kind: str
    name: str
    state: str
    """`open`, `regressed`, `resolved` or `ignored`."""
    runs: int
    count: int
    open: int
    """How many of them nothing mended later in the run."""
    first: float | None
    last: float | None
    """When it was first and last seen, seconds since the epoch; where no run says, None and when the last was added."""
    tokens: int
    cost_usd: float | None
    """Of the model calls that led to it: at least this much."""
    projects: dict[str, int]
    """Runs by project, the most first; "" where a run names none."""
    examples: list[Example]
    """Of the newest runs."""
    trend: list[int]
    """Runs in each of the last eight weeks of the board, the oldest first."""
    decided: IssueMark | None = None
    """What somebody decided last."""

    @property
    def is_rare(self) -> bool:
        """Whether it happened in one run alone, twice at most, and nobody decided anything; what is grave never is."""
        is_grave = self.open > 0 and self.kind in ("injection", "runaway", "cost_jump")
        return self.runs < 2 and self.open < 3 and self.decided is None and not is_grave


@dataclass(frozen=True)
class Board(Tabular):
    """The issues of a store, those that need somebody first."""

    TABLE: ClassVar = {
        "id": "string", "kind": "string", "name": "string", "state": "string", "runs": "int64", "count": "int64", "open": "int64",
        "first": "double", "last": "double", "tokens": "int64", "cost_usd": "double", "projects": "list:string",
        "traces": "list:string",
    }  # fmt: skip

    issues: tuple[Issue, ...] = field(repr=False)
    runs: int
    """Runs that were looked at."""
    unread: tuple[str, ...] = ()
    """Runs that could not be read, with the reason."""

    def __iter__(self) -> Iterator[Issue]:
        return iter(self.issues)

    def __len__(self) -> int:
        return len(self.issues)

    def one(self, name: str) -> Issue:
        """The issue with this id, or the unique beginning of one."""
        found = [one for one in self.issues if name and one.id.startswith(name)]
        if len(found) > 1:
            raise InputError(f"{len(found)} issues have ids that begin with {name!r}", fix="give more of the id")
        if not found:
            raise NotFound(f"no issue {name!r}", fix="counterpoint issues --full lists all")
        return found[0]

    def as_dicts(self) -> Iterator[dict[str, Any]]:
        """What `counterpoint issues --json` prints, a line each."""
        for one in self.issues:
            yield msgspec.to_builtins(one)

    def table_rows(self) -> Iterator[Sequence[Any]]:
        """A row per issue."""
        for i in self.issues:
            yield (i.id, i.kind, i.name, i.state, i.runs, i.count, i.open, i.first, i.last, i.tokens, i.cost_usd,
                   [*i.projects], [e.trace_id for e in i.examples])  # fmt: skip

    def caption(self) -> str:
        """How many, in how many runs."""
        open_ = sum(one.state in ("open", "regressed") for one in self.issues)
        return f"{counted(len(self.issues), 'issue')}, {open_:,} of them open, in {counted(self.runs, 'run')}"


Track = Callable[[Sequence[Summary]], Iterable[Summary]]
"""Goes through runs, and may show how far it is."""


Shown = dict[str, tuple[str, list[Symptom]]]
"""Each run with its digest and what it showed."""


def issues(
    query: str = "", *, store: StorePlace = None, remember: bool = True, known: Shown | None = None, track: Track = iter
) -> Board:
    """The board of a store, or of those of its runs that match a query of `counterpoint ls`.

    With `remember`, what the runs showed is kept beside them, so that the next board reads only those that are new; `known` keeps
    it for a caller who writes nothing.
    """
    if isinstance(store, Store):
        return _board(store, query, remember, known, track)
    path = store_path(store)
    if not path.exists():
        raise NotFound("there are no traces yet", where=str(path), fix="counterpoint import brings sessions in")
    with Store(path, create=False, read_only=True) as opened:
        return _board(opened, query, remember, known, track)


def issue_runs(key: str, query: str = "", *, store: StorePlace = None) -> list[IssueRun]:
    """The runs with an issue, by its whole id, the newest first."""
    if not isinstance(store, Store):
        with Store(store_path(store), create=False, read_only=True) as opened:
            return issue_runs(key, query, store=opened)
    found = _look(store, query, True, None, iter).found.get(key, [])
    runs = [
        IssueRun(trace_id=row.id, title=row.title, project=row.project, at=row.active if s.last is None else s.last,
                 is_dated=s.last is not None or row.started is not None, count=s.count, open=s.open, events=s.events,
                 words=s.words)
        for row, s in found
    ]  # fmt: skip
    return sorted(runs, key=lambda run: (-run.at, run.trace_id))


def decide(key: str, state: str, *, note: str | None = None, by: str | None = None, store: StorePlace = None) -> IssueMark:
    """Keep what somebody decides about an issue, by its whole id: `open`, `resolved` or `ignored`."""
    if state not in STATES:
        raise InputError(f"an issue cannot be {state!r}", fix=did_you_mean(state, STATES))
    path = store.path if isinstance(store, Store) else store_path(store)
    if not path.exists():
        raise NotFound("there is no store", where=str(path), fix="counterpoint import brings sessions in")
    mark = IssueMark(key=key, state=state, by=by or author(), at=time.time(), note=note or None)
    AnnotationFile(path).append(lambda _: [Change(issue=mark)])
    return mark


class _Look(NamedTuple):
    """What the runs of a store show."""

    found: dict[str, list[tuple[Summary, Symptom]]]
    """By the issue's key."""
    runs: int
    unread: tuple[str, ...]
    newest: float
    """When any run was last at work."""


def _board(store: Store, query: str, remember: bool, known: Shown | None, track: Track) -> Board:
    look = _look(store, query, remember, known, track)
    marks = AnnotationFile(store.path).refresh().issues
    board = [_issue(of, marks.get(key), look.newest) for key, of in look.found.items()]
    return Board(tuple(sorted(board, key=_place)), look.runs, look.unread)


def _look(store: Store, query: str, remember: bool, known: Shown | None, track: Track) -> _Look:
    matches = matcher(query, store.datasets())
    every = store.rows()
    rows = [row for row in every if matches(row)]
    if query and not rows:
        raise NotFound(f"no run matches {query!r}", where=str(store.path), fix="counterpoint ls shows what there is")
    memory = _Memory(store, known)
    unread: list[str] = []
    found: dict[str, list[tuple[Summary, Symptom]]] = {}
    dearest: dict[str, tuple[str, ...]] = {}
    for row in track(rows):
        try:
            shown = memory.of(row.id)
        except (CounterpointError, OSError) as error:
            unread.append(f"{row.id}: {error.one_line() if isinstance(error, CounterpointError) else error}")
            continue
        for symptom in shown:
            if symptom.kind == _DEAREST:
                dearest[row.id] = symptom.events
            else:
                found.setdefault(symptom.key, []).append((row, symptom))
    wanted = {row.id for row in rows}
    for row, symptom in _cost_jumps(every):
        if row.id in wanted:
            found.setdefault(symptom.key, []).append((row, replace(symptom, events=dearest.get(row.id, ()))))
    if remember:
        memory.save({row.id for row in every})
    return _Look(found, len(rows) - len(unread), tuple(unread), max((row.active for row in every), default=0.0))


def _place(issue: Issue) -> tuple[Any, ...]:
    """Regressions first, then what is open; the most runs in which nothing mended it, then the gravest kind."""
    states = ("regressed", "open", "ignored", "resolved")
    return (states.index(issue.state), -min(issue.open, 3 * issue.runs), [*KINDS].index(issue.kind), -issue.runs, issue.id)


def _issue(of: list[tuple[Summary, Symptom]], mark: IssueMark | None, newest: float) -> Issue:
    first = of[0][1]
    begins = [begin for row, s in of if (begin := s.first if s.first is not None else row.started) is not None]
    lasts = [s.last if s.last is not None else row.active for row, s in of]
    newest_first = sorted(zip(lasts, of, strict=True), key=lambda one: (-one[0], one[1][0].id))
    costs = [s.cost_usd for _, s in of if s.cost_usd is not None]
    trend = [0] * _WEEKS
    for last in lasts:
        if 0 <= (weeks := int((newest - last) // _WEEK_S)) < _WEEKS:
            trend[_WEEKS - 1 - weeks] += 1
    state = "open" if mark is None else mark.state
    if mark is not None and mark.state == "resolved" and max(lasts) > mark.at:
        state = "regressed"
    return Issue(
        id=first.key, kind=first.kind, name=first.name, state=state, runs=len({row.id for row, _ in of}),
        count=sum(s.count for _, s in of), open=sum(s.open for _, s in of), first=min(begins, default=None), last=max(lasts),
        tokens=sum(s.tokens for _, s in of), cost_usd=math.fsum(costs) if costs else None,
        projects=dict(Counter(row.project or "" for row, _ in of).most_common()),
        examples=[
            Example(row.id, row.title, s.events[0] if s.events else None, s.words) for _, (row, s) in newest_first[:_EXAMPLES]
        ],
        trend=trend, decided=mark,
    )  # fmt: skip


# -- runs that cost far more -------------------------------------------------------------------------------------------


def _cost_jumps(every: Iterable[Summary]) -> Iterator[tuple[Summary, Symptom]]:
    """Runs whose cost is far above that of the runs of their project before them; a project needs five of them first."""
    before: dict[str, list[float]] = {}
    dated = [row for row in every if row.started is not None and row.cost_usd is not None and row.project and not row.is_open]
    for row in sorted(dated, key=lambda row: (row.started or 0.0, row.id)):
        project, cost = row.project or "", float(row.cost_usd or 0.0)
        if cost <= 0:  # free runs say nothing of what others cost
            continue
        costs = before.setdefault(project, [])
        earlier = costs[-_EARLIER:]
        costs.append(cost)
        if len(earlier) < _FEWEST:
            continue
        if cost > _usual_most(earlier):
            middle = statistics.median(earlier)
            words = f"{money(cost)}; the {len(earlier)} runs before it had a median of {money(middle)}"
            name = f"{project}: a run that costs far more than those before it"
            key = symptom_key("cost_jump", project)
            yield row, Symptom("cost_jump", key, name, 1, 1, (), row.started, row.active, int(row.tokens or 0), cost, words)


def _dearest(trace: Trace) -> Iterator[Symptom]:
    """The step that cost the most, by which a run that costs far more is shown."""
    costs = [(float(event.cost_usd), event.id) for event in trace.events if event.cost_usd]
    if costs:
        yield Symptom(_DEAREST, "", "", 1, 0, (max(costs, key=lambda one: one[0])[1],), None, None)


def _usual_most(costs: Sequence[float]) -> float:
    """The most that a run costs of which nobody is told: the median of the logarithms, and three deviations above it (1.4826
    times the median distance from it, which for a normal draw is its standard deviation), but 3 to 30 times the median."""
    logs = [math.log(cost) for cost in costs]
    middle = statistics.median(logs)
    spread = 1.4826 * statistics.median(abs(one - middle) for one in logs)
    return math.exp(middle + min(max(math.log(_TIMES), _DEVIATIONS * spread), math.log(_ALWAYS)))


# -- what runs showed --------------------------------------------------------------------------------------------------


class _Kept(Struct, array_like=True):
    """The file: the version of the detectors, and each run's digest with its symptoms."""

    version: int
    runs: Shown


class _Memory:
    """What the finished runs of a store showed, by their digests; runs that are open are looked at each time."""

    def __init__(self, store: Store, known: Shown | None = None) -> None:
        self._store, self._path = store, Path(store.path) / _MEMORY
        self._digests = {summary.id: digest for digest, summary in store.latest(len(store))}
        self._runs: Shown = {} if known is None else known
        self._is_new = False
        with suppress(OSError, SumError, msgspec.MsgspecError):
            kept = msgspec.msgpack.decode(disk.without_sum(self._path.read_bytes(), _MEMORY), type=_Kept)
            if kept.version == VERSION:
                self._runs |= kept.runs

    def of(self, name: str) -> list[Symptom]:
        """What a run showed."""
        digest = self._digests.get(name)
        if digest is not None and (known := self._runs.get(name)) is not None and known[0] == digest:
            return known[1]
        trace = self._store.get(name)
        shown = [*symptoms(trace), *_dearest(trace)]
        if digest is not None:
            self._runs[name] = (digest, shown)
            self._is_new = True
        return shown

    def save(self, names: set[str]) -> None:
        """Keep it for the next board, where the store can be written."""
        if self._is_new:
            kept = _Kept(VERSION, {name: value for name, value in self._runs.items() if name in names})
            with suppress(OSError, CounterpointError):
                disk.replace_file(self._path, disk.with_sum(msgspec.msgpack.encode(kept), _MEMORY))


def look_ahead(store: Store, known: Shown, names: Iterable[str], is_over: Callable[[], bool]) -> None:
    """Look at runs before a board asks for them, at half of a core at most; `known` keeps what they show. `is_over` is asked
    before each, and may wait."""
    memory = _Memory(store, known)
    for name in names:
        if is_over():
            return
        begin = time.monotonic()
        with suppress(CounterpointError, OSError):  # the board says why it cannot be read
            memory.of(name)
        time.sleep(time.monotonic() - begin)


def since_words(issue: Issue) -> str:
    """When it was seen, in words."""
    if issue.last is None:
        return "-"
    if issue.first is None:
        return f"added {local_day(issue.last)}"
    first, last = local_day(issue.first), local_day(issue.last)
    return first if first == last else f"{first} to {last}"
