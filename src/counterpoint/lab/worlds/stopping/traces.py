"""An episode as an orchestration trace: one worker, a round at a time, a scored draft and a stop decision at every checkpoint.

Always true: events are in order of time, one after the other; ids are stable under edits (`c3 r3 m3 a3 d3` are call, result,
message, aggregate and decision of round 3), and so are keys; texts and costs are functions of what was read. `reward["draft"]`
of an aggregate is what stopping there pays, Y_t. Nothing in the trace was computed with hindsight.

In forced-continuation mode a decision to stop is logged as taken, with `executed: continue`, and the rounds go on to the horizon.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from counterpoint.errors import InputError, NotIdentified
from counterpoint.lab.worlds.stopping.config import Config, Saturation, Votes
from counterpoint.lab.worlds.stopping.policies import BY_HAND
from counterpoint.lab.worlds.stopping.sample import Paths, Segments, increments, paths_of
from counterpoint.trace import Edge, Event, Trace, content_ref, summed_costs
from counterpoint.trace.keyed import child_seed, purpose, uniform
from counterpoint.trace.replay import Delete, Do, Force, Insert, Substitute
from counterpoint.trace.vocabulary import EdgeType, EventType

_REDRAW = purpose("stopping redraw")
_KINDS = "scrmade"  # the order of events within a round: spawn, call, result, message, aggregate, decision, end
_WHAT = "a message (m1, m2, ...), a tool result (r1, ...) or a decision (d0, d1, ...)"

Edit = Mapping[str, Any]


def edit_of(config: Config, at: str, do: Do | None, seed: int | None) -> dict[str, Any]:
    """One fork as plain data, after checking that this world can answer it.

    | at | what can be done |
    |---|---|
    | d3, a decision | `Force({"stop": ...})`; `Delete` (it goes on); `Substitute(draw=n)` (its coin is tossed again) |
    | r3, a tool result | `Substitute(value)`; `Substitute(draw=n)` (the worker's round is drawn anew, hidden part and all) |
    | m3, a message | `Delete`, `Substitute(value)`, `Insert(value)`: what is not delivered is in no draft and no feature |
    | any event | nothing, and a seed: draws after it are fresh; what was fixed at the start (items, reliability) stays |
    """
    kind, number, _ = _parts(at)
    base = {"at": at, "do": None} if seed is None else {"at": at, "do": None, "seed": seed}
    match do, kind:
        case None, _:
            return base
        case Force(action), "d":
            if set(action) != {"stop"} or not isinstance(action["stop"], bool | np.bool_):
                raise InputError(f"no action {dict(action)!r}", where=at, fix='{"stop": True} or {"stop": False}')
            return base | {"do": "force", "stop": _may(config, number, bool(action["stop"]))}
        case Delete(), "d":
            return base | {"do": "force", "stop": _may(config, number, False)}
        case Delete(), "m":
            return base | {"do": "delete"}
        case Substitute(None, draw), "r" | "d":
            if draw < 1:
                raise InputError(f"no draw {draw}", where=at, fix="fresh draws are counted from 1")
            return base | {"do": "redraw", "draw": draw}
        case Substitute(None), "m":
            raise NotIdentified("a report only repeats its tool result", f"redraw the result r{number}", where=at)
        case (Substitute(value), "m" | "r") | (Insert(value), "m"):
            if not isinstance(value, int | np.integer) or isinstance(value, bool) or not config.accepts(int(value)):
                raise InputError(f"no round brings {value!r}", where=at, fix="what one round could bring, as a whole number")
            return base | {"do": "insert" if isinstance(do, Insert) else "substitute", "value": int(value)}
    raise NotIdentified(f"{type(do).__name__} means nothing at {at}", f"fork at {_WHAT}", where=at)


def _may(config: Config, t: int, stop: bool) -> bool:
    if t == config.horizon and not stop:
        raise InputError("the horizon ends the episode: it cannot continue", fix="replace(horizon=...) makes a longer world")
    return stop


def _parts(at: str) -> tuple[str, int, int]:
    """Kind, round and place of an event id such as m3 or m3.1 (an inserted message)."""
    number, _, place = at[1:].partition(".")
    return at[0], int(number), int(place or 0)


class StoppingScript:
    """One episode with everything that was done to it: which noise each round and decision uses, and what was delivered.

    Edits are plain data and are applied in order, so (world, policy, seed, edits) gives the whole episode, and a fork is one more
    edit. An edit at an event touches nothing that comes before it.
    """

    def __init__(self, config: Config, seed: int, edits: list[Edit]) -> None:
        self.config, self.seed = config, seed
        self.round_seeds = np.full(config.horizon + 1, seed, np.int64)
        """The seed that round r draws with, at place r; place 0 holds what was fixed at the start."""
        self.coin_seeds = np.full(config.horizon + 1, seed, np.int64)
        """The seed of the coin of decision t."""
        self.forced: dict[int, bool] = {}
        self._results: dict[int, int] = {}
        self._messages: dict[int, dict[int, int | None]] = {}
        for edit in edits:
            self._apply(edit)
        results = increments(config, self._segments())[0].tolist()
        self.results: list[int] = [self._results.get(r + 1, brought) for r, brought in enumerate(results)]
        """What each round brought the worker."""
        self.messages: list[dict[int, int]] = [self._delivered(r + 1, brought) for r, brought in enumerate(self.results)]
        """What was reported after each round, by place: 0 is the worker's own report, others were inserted."""

    def paths(self) -> Paths:
        """Payoffs and features of what was delivered."""
        steps = np.array([[sum(m.values()) for m in self.messages]], np.int64)
        return paths_of(self.config, np.array([self.seed]), steps)

    def _delivered(self, number: int, brought: int) -> dict[int, int]:
        changed: dict[int, int | None] = {0: brought, **self._messages.get(number, {})}
        return {place: value for place, value in changed.items() if value is not None}

    def _segments(self) -> Segments:
        """Runs of rounds with one seed."""
        out = [(0, self.round_seeds[:1])]
        for r in range(1, len(self.round_seeds)):
            if self.round_seeds[r] != out[-1][1][0]:
                out.append((r - 1, self.round_seeds[r : r + 1]))
        return out

    def _apply(self, edit: Edit) -> None:
        kind, number, place = _parts(edit["at"])
        messages = self._messages.setdefault(number, {})
        match edit["do"], kind:
            case "force", _:
                self.forced[number] = edit["stop"]
            case "delete", _:
                messages[place] = None
            case "insert", _:
                messages[max([0, *messages]) + 1] = edit["value"]
            case "substitute", "m":
                messages[place] = edit["value"]
            case "substitute", _:
                self._results[number] = edit["value"]
            case "redraw", "r":
                self.round_seeds[number] = child_seed(int(self.round_seeds[number]), _REDRAW, number, edit["draw"])
            case "redraw", _:
                self.coin_seeds[number] = child_seed(int(self.coin_seeds[number]), _REDRAW, number, edit["draw"])
        if "seed" in edit:
            is_drawn = _KINDS.index(kind) >= _KINDS.index("r")  # has this round's draw been made by then?
            self.round_seeds[number + is_drawn if number else 1 :] = edit["seed"]
            self.coin_seeds[number + (kind in "de") :] = edit["seed"]


LEAD = "orchestrator"
# Micro-dollars per token, read and written: invented, and whole so that costs add up exactly.
_READ_PRICE, _WRITE_PRICE = 1, 4
_THINK_MS, _CALL_MS, _TOOL_MS, _TOOL_SPREAD_MS = 150, 40, 300, 1200
_TOOL_TIME, _TRUTH = purpose("stopping tool time"), purpose("stopping truth")


@dataclass(frozen=True, kw_only=True)
class Episode:
    """All that a trace of one episode says."""

    script: StoppingScript
    paths: Paths
    """Of this one episode."""
    chance: np.ndarray
    """(H+1,) the policy's chance of stopping at each checkpoint."""
    stop: np.ndarray
    """(H+1,) whether it meant to stop there."""
    policy: str
    is_forced: bool
    """Whether it continued to the horizon all the same."""
    open_at: int | None = None
    """The checkpoint where an unfinished episode stands now."""
    trace_id: str
    task_id: str
    system: str
    meta: dict[str, Any]


def worker_of(config: Config) -> tuple[str, str]:
    """The name (and role) of the worker, and its tool."""
    match config:
        case Votes():
            return "voter", "judge"
        case Saturation():
            return "reviser", "revise"
        case _:
            return "searcher", "search"


def write(episode: Episode) -> Trace:
    """The trace of an episode."""
    return _Writer(episode).trace()


@dataclass
class _Writer:
    """Events one after the other; the clock is whole milliseconds until it is written."""

    episode: Episode
    events: list[Event] = field(default_factory=list)
    edges: list[Edge] = field(default_factory=list)
    contents: dict[str, str] = field(default_factory=dict)
    words: dict[str, int] = field(default_factory=dict)
    """How long the text of each event is, in words, which are the tokens here."""
    now_ms: int = 0
    micro_usd: int = 0

    def trace(self) -> Trace:
        episode, horizon = self.episode, self.episode.script.config.horizon
        stopped = int(np.argmax(episode.stop))
        if episode.open_at is not None:
            last = stopped = episode.open_at
        else:
            last = horizon if episode.is_forced else stopped
        self._begin()
        for t in range(1, last + 1):
            self._round(t)
        if episode.open_at is None:
            self._decide(last, is_last=True)
            self._end(last)
        return Trace(
            trace_id=episode.trace_id,
            task_id=episode.task_id,
            system=episode.system,
            topology="centralized",
            events=self.events,
            edges=self.edges,
            rewards={"team": float(episode.paths.payoffs[0, stopped])},
            costs=dict(summed_costs(self.events, self.now_ms / 1000)) | {"cost_usd": self.micro_usd / 1e6},
            meta=episode.meta,
            contents=self.contents,
        )

    # -- the story -------------------------------------------------------------------------------------------------------

    def _begin(self) -> None:
        worker, tool = worker_of(self.episode.script.config)
        self._add(
            "s0",
            "spawn",
            LEAD,
            _THINK_MS,
            f"Use {tool} once a round and report.",
            role=worker,
            to=worker,
            key=f"{LEAD}/spawn:{worker}",
        )
        self._draft(0, [])

    def _round(self, t: int) -> None:
        script = self.episode.script
        worker, tool = worker_of(script.config)
        self._decide(t - 1)
        reads: list[tuple[str, EdgeType]] = [(f"d{t - 1}", "causal")]
        reads.append((f"r{t - 1}", "causal") if t > 1 else ("s0", "spawn"))
        key = f"{LEAD}/{worker}/round:{t}"
        self._add(f"c{t}", "tool_call", worker, _CALL_MS, f"{tool} round {t}", reads, tool=tool, turn=t, key=f"{key}/{tool}")
        spread = int(_TOOL_SPREAD_MS * float(uniform(int(script.round_seeds[t]), _TOOL_TIME, t)))
        result = self._says(script.results[t - 1])
        from_call: list[tuple[str, EdgeType]] = [(f"c{t}", "tool_dependency")]
        self._add(
            f"r{t}", "tool_result", worker, _TOOL_MS + spread, result, from_call, tool=tool, turn=t, ok=True, key=f"{key}/result"
        )
        names = []
        for place, value in script.messages[t - 1].items():
            name = f"m{t}.{place}" if place else f"m{t}"
            source: list[tuple[str, EdgeType]] = [] if place else [(f"r{t}", "causal")]
            text, to = f"Round {t}: {self._says(value)}", {"from_": worker, "to": LEAD}
            self._add(name, "message", worker, _CALL_MS, text, source, turn=t, key=f"{key}/report:{place}", **to)
            names.append(name)
        self._draft(t, names)

    def _draft(self, t: int, names: list[str]) -> None:
        reads: list[tuple[str, EdgeType]] = [(name, "aggregate") for name in names]
        reads.append((f"a{t - 1}", "causal") if t else ("s0", "temporal"))
        text, reward = self._answer(t), {"draft": float(self.episode.paths.payoffs[0, t])}
        self._add(f"a{t}", "aggregate", LEAD, _THINK_MS, text, reads, turn=t, reward=reward, key=f"{LEAD}/round:{t}/draft")

    def _decide(self, t: int, *, is_last: bool = False) -> None:
        episode, horizon = self.episode, self.episode.script.config.horizon
        stop, chance = bool(episode.stop[t]), float(episode.chance[t])
        fields: dict[str, Any] = {"turn": t, "key": f"{LEAD}/round:{t}/stop", "policy": episode.policy}
        fields |= {"decision": "stop" if stop else "noop", "options": ["stop", "continue"] if t < horizon else ["stop"]}
        if t in episode.script.forced:
            fields["policy"] = "forced"
        elif not episode.policy.startswith(BY_HAND):  # somebody's hand has no known chances
            fields["logp"] = math.log(chance if stop else 1 - chance)
        if stop and not is_last:
            fields["extra"] = {"executed": "continue"}
        text = f"After round {t}: {'stop' if stop else 'continue'}"
        self._add(f"d{t}", "orchestrator_decision", LEAD, _THINK_MS, text, [(f"a{t}", "causal")], **fields)

    def _end(self, last: int) -> None:
        worker, _ = worker_of(self.episode.script.config)
        reads: list[tuple[str, EdgeType]] = [(f"d{last}", "causal")]
        to = {"from_": worker, "to": LEAD}
        self._add(f"e{last}", "return", worker, _CALL_MS, f"{last} rounds done", reads, key=f"{LEAD}/{worker}/return", **to)
        reads = [(f"e{last}", "return")]
        self._add(f"e{last}.1", "despawn", LEAD, 0, self._answer(last), reads, to=worker, key=f"{LEAD}/despawn:{worker}")

    # -- words -----------------------------------------------------------------------------------------------------------

    def _choice(self, is_right: bool) -> str:
        """What a voter says: which of two answers is the true one is a coin of the episode."""
        truth = bool(uniform(self.episode.script.seed, _TRUTH) < 0.5)
        return "yes" if is_right == truth else "no"

    def _says(self, increment: int) -> str:
        match self.episode.script.config:
            case Votes():
                return f"vote {self._choice(increment > 0)}"
            case Saturation():
                return f"level {increment:+d}"
            case _:
                return f"{increment} new items"

    def _answer(self, t: int) -> str:
        evidence = int(self.episode.paths.features[0, t, 1])
        match self.episode.script.config:
            case Votes():
                total = sum(v for by_place in self.episode.script.messages[:t] for v in by_place.values())
                return f"answer {self._choice(total > 0)}, ahead by {evidence}" if total else "no majority"
            case Saturation():
                return f"draft at level {evidence}"
            case _:
                return f"{evidence} items"

    def _add(
        self,
        id_: str,
        kind: EventType,
        agent: str,
        dur_ms: int,
        text: str,
        reads: list[tuple[str, EdgeType]] | None = None,
        **fields: Any,
    ) -> None:
        """One more event; a model reads what its edges lead from and writes its text, a tool costs time only."""
        ref = content_ref(text)
        self.contents[ref] = text
        self.words[id_] = len(text.split())
        for src, edge in reads or []:
            self.edges.append(Edge(src, id_, edge))
        if kind not in ("tool_result", "despawn"):
            read, written = sum(self.words[src] for src, _ in reads or []), self.words[id_]
            micro = read * _READ_PRICE + written * _WRITE_PRICE
            self.micro_usd += micro
            fields |= {"tokens_in": read, "tokens_out": written, "cost_usd": micro / 1e6, "model": "simulated"}
        role = fields.pop("role", agent)
        self.events.append(
            Event(id=id_, t=self.now_ms / 1000, type=kind, agent=agent, role=role, content_ref=ref, dur=dur_ms / 1000, **fields)
        )
        self.now_ms += dur_ms
