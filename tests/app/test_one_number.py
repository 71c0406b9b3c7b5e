"""One computation per quantity: `show`, `top`, `audit`, `ls`, SQL and the page's data give the same number for the same thing."""

from __future__ import annotations

import json
from math import isclose
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

import counterpoint
from audits.made import Story, fan_out
from counterpoint.app.cli import main
from counterpoint.app.viewer.collection import Collection, Listing
from counterpoint.app.viewer.overview import overview
from counterpoint.store import Store
from counterpoint.trace import Trace
from counterpoint.trace.critical_path import critical_path
from counterpoint.trace.synthetic import SHAPES, synthetic_trace
from counterpoint.trace.team import TraceTeam
from ends_help import Ends

EXAMPLES = Path(__file__).parents[2] / "examples" / "logs"
SHARED = Path(__file__).parents[3] / "shared" / "data" / "logs"
# Folders with foreign logs of every kind: with and without times, with nested spans, with and without costs.
FOREIGN = ("claude_code", "codex", "autogen", "otel", "openai_agents", "who_and_when", "agentdojo")
PLENTY = 2


def _nested() -> Trace:
    """A call that lasts as long as all that was done inside it, by the same agent and by one that it made."""
    story = Story()
    call = story.add("tool_call", "lead", t=0, dur=10, tool="delegate")
    spawn = story.add("spawn", "lead", t=0.5, to="w", dur=9, reads=call)
    first = story.add("tool_call", "w", t=1, dur=4, reads=spawn)
    inner = story.add("orchestrator_decision", "lead", t=2, dur=3, decision="communicate", reads=call)
    last = story.add("tool_call", "w", t=4, dur=5, reads=[first, inner])
    story.add("aggregate", "lead", t=10, dur=2, reads=[last, inner], tokens_in=1)
    return story.trace(trace_id="nested")


def _handmade() -> list[Trace]:
    team = fan_out(3).trace(costs={"tokens": 0, "wall_clock_s": 0})
    untimed = replace(team, events=[replace(e, dur=None) for e in team.events])
    odd = [replace(e, dur=-3 if i % 3 == 0 else None if i % 3 == 1 else e.dur) for i, e in enumerate(team.events)]
    chat = Story()
    hello = chat.add("message", "user", role="user", to="bot", text="hello")
    chat.add("message", "bot", to="user", reads=hello, tokens_in=3, tokens_out=4, cost_usd=0.1, dur=0.5)
    no_times = {"import": {"lacks": {"timestamps: t counts events": 1}}}
    return [
        _nested(),
        replace(team, trace_id="less-stated", costs={"tokens": 7, "wall_clock_s": 2, "cost_usd": 0.5}),
        replace(team, trace_id="more-stated", costs={"tokens": 10**7, "wall_clock_s": 1e5}),
        replace(untimed, trace_id="untimed"),
        replace(untimed, trace_id="steps", costs={"tokens": 9, "wall_clock_s": 3}),
        replace(team, trace_id="event-count", costs={"tokens": 9, "wall_clock_s": 24}, meta=no_times),
        replace(team, trace_id="unlinked", edges=[]),
        replace(team, trace_id="odd-durations", events=odd),
        chat.trace(trace_id="chat"),
        replace(team, trace_id="one", events=team.events[:1], edges=[]),
    ]


def _foreign(folder: Path, source: str) -> list[Trace]:
    read = list(counterpoint.read_logs(folder))
    return [replace(t, trace_id=f"{source}-{i}") for i, t in enumerate(read[:PLENTY])]


@pytest.fixture(scope="module")
def traces(tmp_path_factory: pytest.TempPathFactory) -> list[Trace]:
    from team_help import record

    folder = tmp_path_factory.mktemp("made")
    found = [synthetic_trace(5, 40, shape, seed=3, contents=True, trace_id=f"made-{shape}") for shape in SHAPES] + _handmade()
    for world in ("s1", "s2"):
        with pytest.raises(SystemExit):
            main(["play", "--world", world, "--episodes", "1", "--policy", "optimum", "--store", str(folder), "--json"])
    with Store(folder) as store:
        found += [store.get(name) for name in store.ids()]
    assert len({t.system for t in found}) > 1, "a world played"
    found.append(record(folder, trace_id="live", seed=2, topology="planner_executor_critic"))
    for source in FOREIGN:
        found += _foreign(EXAMPLES / source, source)
    return found


@pytest.fixture(scope="module")
def stored(traces: list[Trace], tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("store")
    with Store(path) as store:
        store.add_many([t for t in traces if t.trace_id != "odd-durations"])
    return path


def _listed(run: Ends, store: Path) -> dict[str, dict[str, dict[str, Any]]]:
    """What `ls` and SQL tell of every trace of a store."""
    rows = [json.loads(line) for line in run("ls", "--json", "--newest", 0, "--store", store)[1].splitlines()]
    ls = {
        r["id"]: {"agents": r["agents"], "events": r["events"], "tokens": r["tokens"], "cost": r["cost_usd"],
                  "duration": r["wall_clock_s"]}
        for r in rows
    }  # fmt: skip
    ask = "select trace_id, n_agents as agents, n_events as events, tokens, wall_clock_s as duration from traces"
    answer = json.loads(run("sql", ask, "--json", "--store", store)[1])
    sql = {row[0]: dict(zip(answer["columns"][1:], row[1:], strict=True)) for row in answer["rows"]}
    return {"ls": ls, "sql": sql}


def _told(run: Ends, trace: Trace, store: Path, listed: dict[str, dict[str, dict[str, Any]]]) -> dict[str, dict[str, Any]]:
    """Each quantity as each place tells it."""
    where = (trace.trace_id, "--store", store)
    told: dict[str, dict[str, Any]] = {}

    def say(place: str, **numbers: Any) -> None:
        for name, value in numbers.items():
            told.setdefault(name, {})[place] = value

    shown = json.loads(run("show", *where, "--json")[1])
    unit, length = shown["critical_path"]["unit"], shown["critical_path"]["length"]
    costs = shown["costs"]
    say("show", agents=shown["agents"], events=shown["events"], unit=unit, path=length, tokens=costs.get("tokens"),
        cost=costs.get("cost_usd"), duration=costs.get("wall_clock_s"),
        tokens_of={row["agent"]: row["tokens"] for row in shown["team"]})  # fmt: skip
    top = json.loads(run("top", *where, "--json")[1])
    path_ = top["critical_path"]
    say("top", tokens=top["coverage"]["total"] or costs.get("tokens"), unit=path_["unit"], path=path_["length"],
        tokens_of={row["name"]: row["tokens_own"] for row in top["rows"]},
        share={row["name"]: row["path"] or 0.0 for row in top["rows"] if row["events"]},
        busy={row["name"]: row["busy_s"] for row in top["rows"] if row["events"]})  # fmt: skip
    values = {m["name"]: m["value"] for m in json.loads(run("audit", *where, "--json")[1])["measures"]}
    audited = {"s": "critical_path_s", "tokens": "critical_path_tokens", "steps": "critical_path_steps", None: None}[unit]
    say("audit", events=values["events"], tokens=values["tokens"], cost=values["recorded_cost"], duration=values["wall_clock"],
        path=values[audited] if audited else None, parallelism=values["parallelism_efficiency"])  # fmt: skip
    taint = json.loads(run("audit", "--taint", *where, "--json")[1])
    say("audit --taint", agents=taint["may_taint"]["of_agents"], incidents=taint["counts"]["violation"])
    page = overview(trace)
    facts = {fact.kind: fact.text for fact in page.facts}
    acting = [a for a in page.agents if a.events]
    say("page", agents=sum(not a.is_outside for a in page.agents), events=page.events, tokens=page.costs.get("tokens"),
        cost=page.costs.get("cost_usd"), duration=page.costs.get("wall_clock_s"),
        incidents=int(facts["incident"].split()[0]) if "incident" in facts else 0,
        share={a.name: a.path_share for a in acting}, busy={a.name: a.busy_s for a in acting})  # fmt: skip
    if "parallelism_efficiency" in facts:
        assert f"{values['parallelism_efficiency']:.2g}× parallel" in facts["parallelism_efficiency"]
    (row,) = Listing(Collection(traces=[trace])).traces().rows
    say("page's list", agents=row.agents, events=row.events, tokens=row.tokens, cost=row.cost_usd, duration=row.seconds)
    for place, numbers in listed.items():
        say(place, **numbers[trace.trace_id])
    return told


def _is_same(a: Any, b: Any) -> bool:
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(_is_same(a[name], b[name]) for name in a)
    return a == b or (isinstance(a, (int, float)) and isinstance(b, (int, float)) and isclose(a, b, rel_tol=1e-9, abs_tol=1e-12))


def _agree(run: Ends, trace: Trace, store: Path, listed: dict[str, dict[str, dict[str, Any]]]) -> None:
    told = _told(run, trace, store, listed)
    for name, places in told.items():
        first = next(iter(places.values()))
        for place, value in places.items():
            assert _is_same(value, first), (trace.trace_id, name, place, places)
    unit, length, duration = (told[name]["show"] for name in ("unit", "path", "duration"))
    if unit == "s":
        assert length <= duration * (1 + 1e-9), trace.trace_id
    lacks = (trace.meta.get("import") or {}).get("lacks", {})
    if "timestamps: t counts events" in lacks:
        assert (duration, unit == "s") == (None, False), f"{trace.trace_id} has no times"


def test_every_place_tells_the_same(run: Ends, traces: list[Trace], stored: Path) -> None:
    assert len(traces) >= 20
    listed = _listed(run, stored)
    for trace in traces:
        if trace.trace_id != "odd-durations":  # what is refused by a store and a file is looked at in memory
            _agree(run, trace, stored, listed)


def test_durations_below_zero_count_as_none(traces: list[Trace]) -> None:
    odd = next(t for t in traces if t.trace_id == "odd-durations")
    (row,) = Listing(Collection(traces=[odd])).traces().rows
    assert row.seconds == overview(odd).costs["wall_clock_s"] == odd.duration_s
    assert all(agent.busy_s is None or agent.busy_s >= 0 for agent in overview(odd).agents)


def test_hand_computed(traces: list[Trace]) -> None:
    named = {t.trace_id: t for t in traces}
    nested = named["nested"]
    # 1 s of the call, 4 s and 5 s of the worker's; or all 10 s of the call; then 2 s.
    assert _path(nested) == ("s", 12.0)
    assert (nested.duration_s, len(nested.members)) == (12, 2)
    assert named["untimed"].duration_s is None
    assert named["steps"].duration_s == 3
    assert named["event-count"].duration_s is None
    assert named["less-stated"].duration_s == 11
    assert (named["less-stated"].tokens, named["more-stated"].tokens) == (491, 10**7)
    assert (named["less-stated"].cost_usd, named["chat"].cost_usd) == (0.5, 0.1)
    assert named["chat"].members == {"bot"}


def _path(trace: Trace) -> tuple[str, float] | None:
    found = critical_path(TraceTeam(trace))
    return None if found is None else (found.unit, found.length)


@pytest.mark.skipif(not SHARED.is_dir(), reason="the shared foreign logs are not here")
@pytest.mark.parametrize("source", ["claude_code", "codex", "who_and_when", "trail"])
def test_the_same_of_real_logs(run: Ends, tmp_path: Path, source: str) -> None:
    found = [t for t in _foreign(SHARED / source, source) if len(t.events) < 20_000]
    with Store(tmp_path / "store") as store:
        store.add_many(found)
    listed = _listed(run, tmp_path / "store")
    for trace in found:
        _agree(run, trace, tmp_path / "store", listed)
