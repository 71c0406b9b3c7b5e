"""Days: what was spent on them is what was recorded on them, and a trace is found by any time at which it was at work."""

from __future__ import annotations

import json
import random
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
from msgspec.structs import replace

import counterpoint.store.writing as writing
from counterpoint.app.api.report import report
from counterpoint.app.discover import read_logs
from counterpoint.app.search import matcher, period_of, remarks
from counterpoint.errors import InputError
from counterpoint.store import Store
from counterpoint.store.summary import Summary
from counterpoint.trace import Event, Trace
from counterpoint.trace.activity import quarters_of, sliced
from ends_help import Ends
from logs import REAL

FIRST = 1_793_500_000.0
"""Within 2026-11-01; an hour and a half after a midnight of UTC."""


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.MonkeyPatch]:
    """Set TZ, and have the machine's zone back at the end."""
    yield monkeypatch
    monkeypatch.undo()
    time.tzset()


def made(name: str, rng: random.Random, begin: float) -> Trace:
    """A session with pauses of up to two days between bursts of work; some events end after midnight, some fail."""
    events: list[Event] = []
    at = begin
    for k in range(rng.randint(5, 60)):
        at += rng.choice([5.0, 60.0, 600.0, 3_000.0, rng.uniform(0, 2 * 86_400)])
        kind = rng.choice(["tool_call", "tool_result", "orchestrator_decision", "message"])
        is_step = kind in ("orchestrator_decision", "message")
        events.append(
            Event(
                id=f"e{k}", t=at - begin, at=at if k % 3 else None, type=kind, agent="main", tool=None if is_step else "Bash",  # type: ignore[arg-type]
                dur=rng.uniform(0, 4_000) if is_step else None, ok=False if kind == "tool_result" and rng.random() < 0.3 else None,
                tokens_in=rng.randint(0, 9_000) if is_step else None, tokens_out=rng.randint(0, 500) if is_step else None,
                cost_usd=rng.random() if is_step and rng.random() < 0.8 else None, model="m" if is_step else None,
            )
        )  # fmt: skip
    events[0] = replace(events[0], at=begin + events[0].t)
    return Trace(trace_id=name, task_id=name, events=events, meta={"began": begin + events[0].t})


def month(count: int = 40) -> list[Trace]:
    rng = random.Random(40)
    return [made(f"s{k}", rng, FIRST + rng.uniform(0, 30 * 86_400)) for k in range(count)]


def plain_count(traces: Iterable[Trace], zone: ZoneInfo) -> dict[str, Counter[str]]:
    """What was recorded on each day: a call when it was made, everything else when it was complete."""
    days: dict[str, Counter[str]] = defaultdict(Counter)
    for trace in traces:
        first = trace.events[0].t if "began" in trace.meta else 0.0
        failed = set(trace.failures)
        met = set()
        for i, e in enumerate(trace.events):
            at = e.at if e.at is not None else trace.meta["began"] + e.t - first
            at += 0 if e.type in ("tool_call", "spawn") else e.dur or 0
            day = datetime.fromtimestamp(at, zone).strftime("%Y-%m-%d")
            sums = days[day]
            sums["events"] += 1
            sums["calls"] += e.type == "tool_call"
            sums["errors"] += i in failed
            sums["tokens"] += (e.tokens_in or 0) + (e.tokens_out or 0)
            sums["micro"] += round(1e6 * (e.cost_usd or 0))
            met.add(day)
        for day in met:
            days[day]["traces"] += 1
    return days


def of_top(told: str) -> dict[str, Counter[str]]:
    rows = json.loads(told)["rows"]
    names = ("events", "calls", "errors", "tokens", "traces")
    return {r["name"]: Counter({n: r[n] or 0 for n in names} | {"micro": round(1e6 * (r["cost_usd"] or 0))}) for r in rows}


def alike(ours: dict[str, Counter[str]], plain: dict[str, Counter[str]]) -> None:
    assert sorted(ours) == sorted(plain)
    for day, sums in plain.items():
        assert {k: v for k, v in ours[day].items() if k != "micro"} == {n: sums[n] for n in ours[day] if n != "micro"}, day
        assert ours[day]["micro"] == pytest.approx(sums["micro"], abs=2 + sums["events"])


@pytest.mark.parametrize("name", ["UTC", "America/Los_Angeles", "Asia/Kathmandu"])
def test_a_month_of_sessions_is_the_plain_count_of_its_events(name: str, tmp_path: Path, run: Ends, clock: pytest.MonkeyPatch) -> None:
    clock.setenv("TZ", name)
    time.tzset()
    traces = month()
    with Store(tmp_path / "s") as store:
        store.add_many(traces)
    plain = plain_count(traces, ZoneInfo(name))
    assert sum(sums["traces"] for sums in plain.values()) > 2 * len(traces), "they last for days"
    code, out, _ = run("top", "--group", "day", "--json", "--store", tmp_path / "s")
    assert code == 0
    alike(of_top(out), plain)
    assert json.loads(out)["total"]["tokens"] == sum(t.tokens or 0 for t in traces)
    assert json.loads(out)["total"]["traces"] == len(traces)
    days = report(traces).days
    assert {s.name: s.tokens or 0 for s in days} == {day: sums["tokens"] for day, sums in plain.items()}
    text = run("top", "--group", "day", "--store", tmp_path / "s")[1]
    assert ("UTC" in text) if name == "UTC" else ("UTC-08:00" in text or "UTC-07:00" in text or "UTC+05:45" in text)


def test_a_store_without_the_days_of_its_traces_says_the_same(tmp_path: Path, run: Ends, monkeypatch: pytest.MonkeyPatch) -> None:
    traces = month(12)
    with Store(tmp_path / "new") as store:
        store.add_many(traces)
    monkeypatch.setattr(writing, "quarters_of", lambda trace: None)  # as rows were written before
    with Store(tmp_path / "old") as store:
        store.add_many(traces)
        assert all(row.quarters is None for row in store.rows())
    monkeypatch.undo()
    for query in ([], ["since:2026-11-09", "until:2026-11-20"]):
        told = [run("top", *query, "--group", "day", "--json", "--store", tmp_path / name)[1] for name in ("old", "new")]
        assert of_top(told[0]) == of_top(told[1])
    found = matcher("since:2026-11-20")
    with Store(tmp_path / "old", read_only=True) as old, Store(tmp_path / "new", read_only=True) as new:
        assert {row.id for row in new.rows() if found(row)} <= {row.id for row in old.rows() if found(row)}


@pytest.mark.skipif(not REAL.is_dir(), reason="the developers' logs are not here")
def test_real_logs_by_day_are_the_plain_count_of_their_events(tmp_path: Path, run: Ends, clock: pytest.MonkeyPatch) -> None:
    clock.setenv("TZ", "UTC")
    time.tzset()
    traces = {t.trace_id: t for name in ("claude_code", "codex") for t in read_logs(REAL / name)}
    with Store(tmp_path / "s") as store:
        store.add_many(traces.values())
    alike(of_top(run("top", "--group", "day", "--json", "--store", tmp_path / "s")[1]), plain_count(traces.values(), ZoneInfo("UTC")))


FIELDS = ("input_tokens", "output_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")


def counted_raw(lines: Iterable[str]) -> Counter[str]:
    """Tokens by UTC day, read without an importer: of each message the largest count of each field, on the day of its last record,
    also where an agent's messages stand inside its lead's records."""
    met: dict[str, tuple[str, Counter[str]]] = {}

    def walk(value: object, day: str) -> None:
        if isinstance(value, list):
            for inner in value:
                walk(inner, day)
        if not isinstance(value, dict):
            return
        usage = value.get("usage")
        if isinstance(usage, dict) and value.get("role") == "assistant" and value.get("model") != "<synthetic>":
            sums = met.get(value["id"], ("", Counter[str]()))[1] | Counter({field: usage.get(field) or 0 for field in FIELDS})
            met[value["id"]] = (day, sums)
        for inner in value.values():
            walk(inner, day)

    for line in lines:
        record = json.loads(line)
        walk(record, str(record.get("timestamp"))[:10])
    days: Counter[str] = Counter()
    for day, sums in met.values():
        days[day] += sums.total()
    return days


@pytest.mark.skipif(not REAL.is_dir(), reason="the developers' logs are not here")
def test_real_sessions_by_day_are_the_plain_count_of_their_raw_records() -> None:
    files = [p for name in ("entireio_cli", "oh-my-posh") for p in sorted((REAL / "claude_code" / name).glob("*.jsonl"))]
    assert files
    for path in files:
        (trace,) = read_logs(path)
        ours: Counter[str] = Counter()
        stated: Counter[str] = Counter()  # what a lead's record says of an agent whose own records are not there
        for quarter in quarters_of(trace):
            ours[f"{datetime.fromtimestamp(quarter.first, UTC):%Y-%m-%d}"] += quarter.tokens or 0
        for e in trace.events:
            if e.type == "return" and e.at is not None:
                stated[f"{datetime.fromtimestamp(e.at + (e.dur or 0), UTC):%Y-%m-%d}"] += (e.tokens_in or 0) + (e.tokens_out or 0)
        assert +ours == counted_raw(path.read_text().splitlines()) + stated, path.name


def days_of(*days: str, name: str = "t", tokens: int = 100) -> Trace:
    """A trace that is at work at noon of some days, UTC."""
    at = [datetime.fromisoformat(f"{day}T12:00+00:00").timestamp() for day in days]
    events = [
        Event(id=f"e{k}", t=x - at[0], at=x, type="message", agent="a", tokens_out=tokens, cost_usd=1.0, model="m")
        for k, x in enumerate(at)
    ]
    return Trace(trace_id=name, task_id=name, events=events, meta={"project": "shop"})


@pytest.mark.parametrize(
    ("query", "is_found"),
    [
        ("since:2026-11-05", True), ("until:2026-11-01", True), ("date>2026-11-05", True), ("date:2026-11-05", False),
        ("date:2026-11-09", True), ("day=2026-11-01", True), ("date!=2026-11-09", False), ("date!=2026-11-05", True),
        ("since:2026-11-02 until:2026-11-08", False), ("since:2026-11-02 until:2026-11-09", True), ("since:2026-11-10", False),
        ("until:2026-10-31", False), ("since:2026-11-09T12:30", False), ("since:2026-11-09T11:59", True), ("date:2026-11", True),
        ("since:2026-11-09T13:30+02:00", True), ('until:"2026-11-01 11:00"', False), ("active>2026-11-08", True), ("active<2026-11-08", False),
    ],
)  # fmt: skip
def test_a_trace_is_found_by_any_time_at_which_it_was_at_work(query: str, is_found: bool, clock: pytest.MonkeyPatch) -> None:
    clock.setenv("TZ", "UTC")
    time.tzset()
    assert matcher(query)(Summary.of_trace(days_of("2026-11-01", "2026-11-09"))) is is_found


def test_spans_back_from_now() -> None:
    today = datetime.now(UTC)
    begun, worked = (today - timedelta(days=n) for n in (20, 1))
    line = Summary.of_trace(days_of(begun.strftime("%Y-%m-%d"), worked.strftime("%Y-%m-%d")))
    for query in ("since:14d", "last:14d", "date>14d", "until:14d", "last:2w", "since:14d until:12h"):
        assert matcher(query)(line), query
    assert not matcher("last:1h")(line)
    assert not matcher("since:18d until:4d")(line)
    for wrong in ("since:soon", "since>7d", "last:2026-11-01", "until!=7d x", "since:2026-11-31", "since:2026-11-01T25:00"):
        with pytest.raises(InputError):
            matcher(wrong)(line)


def test_what_a_span_after_a_sign_was_taken_for_is_said(tmp_path: Path, run: Ends) -> None:
    assert "since:7d says the same" in remarks("project:shop date>7d")[0]
    assert "until:7d says the same" in remarks("date<7d")[0]
    assert remarks("since:7d until:1d date>2026-11-01 last:7d") == []
    with Store(tmp_path / "s") as store:
        store.add(days_of(datetime.now().strftime("%Y-%m-%d")))
    for command in (["ls"], ["top"], ["report"], ["compare", "traces", "finished"]):
        assert "date>300d was taken for: at work since" in run(*command, "date>300d", "--store", tmp_path / "s")[2]


def test_only_what_was_done_in_the_time_asked_for_is_summed(tmp_path: Path, run: Ends, clock: pytest.MonkeyPatch) -> None:
    clock.setenv("TZ", "UTC")
    time.tzset()
    with Store(tmp_path / "s") as store:
        store.add_many([days_of("2026-11-01", "2026-11-02", "2026-11-09", name="long"), days_of("2026-11-09", name="short", tokens=7)])
    for group in ("project", "day", "model", "trace"):
        told = json.loads(run("top", "since:2026-11-02", "until:2026-11-08", "--group", group, "--json", "--store", tmp_path / "s")[1])
        assert (told["total"]["traces"], told["total"]["tokens"], told["total"]["cost_usd"]) == (1, 100, 1.0), group
    with Store(tmp_path / "s", read_only=True) as store:
        told_of = report("since:2026-11-02", store=store)
    assert (told_of.total.tokens, told_of.total.traces) == (207, 2)
    assert (told_of.outside.traces, told_of.outside.tokens) == (1, 100)
    assert [(s.name, s.tokens) for s in told_of.models] == [("m", 207)]
    assert [s.name for s in told_of.days] == ["2026-11-02", "2026-11-09"]


def test_what_a_trace_states_beyond_its_events_has_no_day_where_it_worked_on_several() -> None:
    several = replace(days_of("2026-11-01", "2026-11-09"), costs={"tokens": 1_000, "cost_usd": 5.0})
    rest = Summary.of_trace(several).by_day()[None]
    assert (rest.tokens, rest.cost_usd, rest.events, rest.uncounted) == (800, 3.0, 0, 0)
    one = replace(days_of("2026-11-01"), costs={"tokens": 1_000})
    assert [(day, part.tokens) for day, part in Summary.of_trace(one).by_day().items()] == [("2026-11-01", 1_000)]
    assert list(Summary.of_trace(Trace(trace_id="u", task_id="u", events=[Event(id="e", t=0, type="message", agent="a")])).by_day()) == [None]


def test_failures_are_counted_on_the_day_they_happened(tmp_path: Path, run: Ends, clock: pytest.MonkeyPatch) -> None:
    clock.setenv("TZ", "UTC")
    time.tzset()
    whole = days_of("2026-11-01", "2026-11-09")
    with Store(tmp_path / "s") as store:
        store.add(replace(whole, events=[whole.events[0], replace(whole.events[1], type="tool_result", tool="Bash", ok=False)]))
    for command in (["audit", "--failures", "--group", "day"], ["audit", "--group", "day"]):
        rows = json.loads(run(*command, "--json", "--store", tmp_path / "s", "finished")[1])["rows"]
        assert {row["name"]: row.get("failures", row.get("errors")) for row in rows if row.get("failures", row.get("errors"))} == {"2026-11-09": 1}
    assert "0 failures" in run("audit", "--failures", "until:2026-11-08", "--store", tmp_path / "s")[1]


def test_a_period_is_whole_quarters_of_an_hour(clock: pytest.MonkeyPatch) -> None:
    clock.setenv("TZ", "UTC")
    time.tzset()
    assert period_of("project:shop") is None
    span = period_of("since:2026-11-01T10:07 until:2026-11-01T10:20")
    assert span is not None
    assert [x % 900 for x in span] == [0, 0]
    assert span[1] - span[0] == 1_800
    trace = days_of("2026-11-01", "2026-11-09")
    assert [e.id for e in sliced(trace, trace.events[1].at or 0, 1e11).events] == ["e1"]
