"""Every row of the card, counted again from raw events by hand: plain loops over JSON lines, nothing of the audit or the card."""

from __future__ import annotations

import json
import math
import re
import statistics
from functools import cache
from typing import Any

import numpy as np
import pytest

from counterpoint.lab.bench.scorecard.card import MEASURES, card_from, value_of
from counterpoint.lab.bench.scorecard.cells import suite
from counterpoint.lab.bench.scorecard.contestants import Attempt, Caps, contestant
from counterpoint.lab.bench.scorecard.playing import measured
from counterpoint.lab.bench.scorecard.rows import BenchRow
from counterpoint.trace.lines import encode_lines

CELLS = {c.id: c for c in suite("short")}
ACTS = ("orchestrator_decision", "message", "tool_call", "aggregate", "return")
RUNS = [
    ("W1-10", 0),
    ("W1-10", 1),
    ("W1-100", 0),
    ("W1-100", 1),
    ("T1-10", 0),
    ("T4-100", 1),
    ("T5-10", 1),
    ("T1-100", 2),
    ("W1-100-AV2", 3),
]
T975 = {1: 12.7062, 2: 4.3027, 3: 3.1824, 4: 2.7764, 5: 2.5706, 6: 2.4469}  # a printed table of Student's t


@cache
def run(cell: str, seed: int) -> tuple[BenchRow, list[dict[str, Any]]]:
    """A row, and the lines of its trace as plain data."""
    of = "policy:reference" if cell.startswith("W") else "topology:centralized"
    attempt: Attempt = contestant(of, model=None if cell.startswith("W") else "fake:0.8").play(CELLS[cell], seed, Caps())
    assert attempt.trace is not None
    return measured(CELLS[cell], seed, attempt, 0.0), [json.loads(x) for x in encode_lines(attempt.trace).splitlines()]


class Raw:
    """Events and edges, and the questions that one asks with a pencil."""

    def __init__(self, lines: list[dict[str, Any]]) -> None:
        self.end = next(x["finish"] for x in lines if "finish" in x)
        self.events = [x["event"] for x in lines if "event" in x]
        self.edges = [x["edge"] for x in lines if "edge" in x]
        self.texts = {x["content"]: x["text"] for x in lines if "content" in x}
        self.by_id = {e["id"]: e for e in self.events}
        outside = {"user", "environment", "tool"}
        self.members = {e["agent"] for e in self.events if e["agent"] not in outside and e.get("role") not in outside}
        self.read = [
            (self.by_id[e["src"]], self.by_id[e["dst"]]) for e in self.edges
            if e["type"] != "temporal" or self.by_id[e["src"]]["agent"] == self.by_id[e["dst"]]["agent"]
        ]  # fmt: skip

    def messages(self) -> list[dict[str, Any]]:
        """Messages between members, in the order of time."""
        out = []
        for e in self.events:
            to, by = e.get("to"), e.get("from") or e["agent"]
            if e["type"] == "message" and by in self.members and not (to is None and e.get("aloud")):
                out += [e] if to is None or (to in self.members and to != by) else []
        return out

    def reached(self, start: set[str], *, is_back: bool) -> set[str]:
        """All that can be come to along what was read, one step at a time."""
        found = set(start)
        while True:
            more = {(a if is_back else b)["id"] for a, b in self.read if (b if is_back else a)["id"] in found} - found
            if not more:
                return found
            found |= more


def tokens(event: dict[str, Any]) -> int:
    return (event.get("tokens_in") or 0) + (event.get("tokens_out") or 0)


def words(text: str) -> set[tuple[str, ...]]:
    found = re.findall(r"\w+", text.lower())
    return {tuple(found[i : i + 3]) for i in range(max(1, len(found) - 2))}


def redundancy(raw: Raw) -> float | None:
    said, seen, again = raw.messages(), list[Any](), 0
    for e in said:
        mine = words(raw.texts[e["content_ref"]]) if e.get("content_ref") in raw.texts else e.get("content_ref")
        alike = [
            x == mine if isinstance(mine, str | None) or isinstance(x, str | None) else len(x & mine) / len(x | mine) >= 0.8
            for x in seen
        ]
        again, seen = again + any(alike), [*seen, mine]
    return again / len(said) if said else None


def serial(raw: Raw) -> float:
    """Sum over agents of the time in which at least one of its events runs."""
    total = 0.0
    for who in raw.members:
        spans = sorted(
            (e["t"], e["t"] + (e.get("dur") or 0)) for e in raw.events if e["agent"] == who and e["type"] != "human_intervention"
        )
        at = -math.inf
        for low, high in spans:
            total += max(0.0, high - max(low, at))
            at = max(at, high)
    return total


def useful(raw: Raw) -> float | None:
    root = next(e["agent"] for e in raw.events if e["agent"] in raw.members)
    stops = [e["id"] for e in raw.events if e["agent"] == root and e.get("decision") == "stop"][-1:]
    end = {e["id"] for e in raw.events if e["agent"] == root and e["type"] == "aggregate"} | set(stops)
    needed = raw.reached(end, is_back=True)
    acts = [e for e in raw.events if e["agent"] in raw.members - {root} and e["type"] in ACTS]
    return sum(e["id"] in needed for e in acts) / len(acts) if acts else None


def protocol(raw: Raw) -> float:
    """Tokens for others: all of a spawn, aggregate or message; what calls and returns write; of a decision what follows for others."""
    if len(raw.members) < 2:
        return 0.0
    between, spent = {e["id"] for e in raw.messages()}, 0
    for e in raw.events:
        if e["type"] in ("spawn", "despawn", "aggregate") or e["id"] in between:
            spent += tokens(e)
        elif e["type"] in ("tool_call", "return"):
            spent += e.get("tokens_out") or 0
        elif e["type"] == "orchestrator_decision":
            mine = [raw.by_id[x["dst"]] for x in raw.edges if x["src"] == e["id"] and raw.by_id[x["dst"]]["agent"] == e["agent"]]
            acts = [x for x in mine if x["type"] in ("spawn", "despawn", "message", "tool_call", "return")]
            for_others = [x for x in acts if x["type"] in ("spawn", "despawn", "return") or x["id"] in between]
            share = len(for_others) / len(acts) if acts else float(e.get("decision") is not None)
            spent += int(np.rint(tokens(e) * share))
    return spent / sum(map(tokens, raw.events))


def amplification(raw: Raw) -> float | None:
    marks = {e["id"]: e for e in raw.events}
    planted = {i for i, x in marks.items() if x.get("planted")}
    corrupt = planted | {i for i, x in marks.items() if x.get("corrupt") is True}
    if not corrupt:
        return None
    below = raw.reached({b["id"] for a, b in raw.read if a["id"] in corrupt}, is_back=False)
    first = planted | (corrupt - below)
    is_followed = any("corrupt" in x for i, x in marks.items() if i not in planted)
    return len((corrupt if is_followed else below) - first) / len(first)


@pytest.mark.parametrize(("cell", "seed"), RUNS)
def test_a_row_from_raw_events(cell: str, seed: int) -> None:
    row, lines = run(cell, seed)
    raw = Raw(lines)
    said, best = raw.messages(), CELLS[cell].optimum().value
    span = max(e["t"] + (e.get("dur") or 0) for e in raw.events) - min(e["t"] for e in raw.events)
    readers = {(a["id"], b["agent"]) for a, b in raw.read if a["agent"] != b["agent"]}
    costs = [e["cost_usd"] for e in raw.events if e.get("cost_usd") is not None]
    earned = raw.end["rewards"]["team"]
    by_hand = {
        "share": earned / best,
        "success": min(1.0, max(0.0, earned / best)) if cell.startswith("W") else raw.end["metrics"]["task_success"],
        "parallelism_efficiency": serial(raw) / span,
        "useful_agent_utilisation": useful(raw),
        "message_redundancy": redundancy(raw),
        "messages_read": sum(any(a == e["id"] for a, _ in readers) for e in said) / len(said) if said else None,
        "protocol_overhead": protocol(raw),
        "error_amplification": amplification(raw),
        "tokens": sum(map(tokens, raw.events)),
        "recorded_cost": sum(costs) if costs else None,
        "wall_clock": span,
        "sub_agents": len({e["to"] for e in raw.events if e["type"] == "spawn"}),
        "events": len(raw.events),
    }
    assert by_hand.keys() == MEASURES.keys()
    for name, value in by_hand.items():
        told = value_of(row, name)
        assert (told is None) == (value is None), name
        assert value is None or told == pytest.approx(value, abs=1e-9), name


def test_a_card_from_raw_numbers() -> None:
    """Means, intervals, slopes and regret of a card, with a table of Student's t and numpy's least squares."""
    rows = [run(*one)[0] for one in RUNS if one[0].startswith("W1-1") and "AV" not in one[0]]
    card = card_from({"team": "x", "suite": "short"}, rows, CELLS)
    for name in MEASURES:
        for band in (10, 100):
            values = [v for r in rows if r.cell == f"W1-{band}" and (v := value_of(r, name)) is not None]
            found = card.bands[band][name]
            assert found.runs == len(values)
            if len(values) < 2:
                assert found.low is None
                continue
            half = T975[len(values) - 1] * statistics.stdev(values) / math.sqrt(len(values))
            assert found.mean == pytest.approx(statistics.fmean(values))
            assert found.high - found.low == pytest.approx(2 * half, rel=1e-4, abs=1e-12)
        pairs = [(math.log10(r.measures["events"] or 1), v) for r in rows if (v := value_of(r, name)) is not None]
        if name == "events" or len(pairs) < 3:
            continue
        x, y = np.array(pairs).T
        design = np.stack([x, np.ones_like(x)], 1)
        (b, a), *_ = np.linalg.lstsq(design, y, rcond=None)
        error = math.sqrt(((y - a - b * x) ** 2).sum() / (len(x) - 2) * np.linalg.inv(design.T @ design)[0, 0])
        assert card.slopes[name].mean == pytest.approx(b, abs=1e-6)
        assert card.slopes[name].high - b == pytest.approx(T975[len(x) - 2] * error, rel=1e-3, abs=1e-6)
    for r in rows:  # what is missing to the optimum, in points
        assert (1 - r.share) * CELLS[r.cell].optimum().value == pytest.approx(CELLS[r.cell].optimum().value - r.value)
