"""The writing of rounds into the log of a batch: which events happen, and what each of them read.

Always true: an edge from a to b means that b read a, or that a made b; there is no other way for content to travel, so the
descendants of an event hold everything it can have changed. Decisions that were passed over are written too, as noops.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from counterpoint.lab.worlds.teamworld.action import DECISIONS, VERIFY, Action, Calls
from counterpoint.lab.worlds.teamworld.attacks import MARKS, Attacked
from counterpoint.lab.worlds.teamworld.config import DEFENCES, Config
from counterpoint.lab.worlds.teamworld.event_log import EVENT, EventLog
from counterpoint.lab.worlds.teamworld.state import BatchState
from counterpoint.trace.keyed import normal, purpose

_LATENCY = purpose("latency")
# Places inside a round, as shares of its length.
_DECIDE = {"stop": 0.0, "spawn": 0.01, "delegate": 0.02, "communicate": 0.03}
_BRIEF, _CALL, _LATEST, _BACK, _END = 0.04, 0.05, 0.9, 0.95, 1.0
# Agents that were never spawned, written as slots beyond all others.
CRITIC, HUMAN, PROPOSER, OPPONENT, JUDGE = 1_000_000, 1_000_001, 1_000_002, 1_000_003, 1_000_010
# Where each attack shows: the brief, the tool call, the tool result or the return.
_ON = {
    "AV1": "brief",
    "AV7": "brief",
    "AV5": "tool_call",
    "AV8": "tool_call",
    "AV2": "tool_result",
    "AV4": "tool_result",
    "benign_imperative": "tool_result",
    "AV3": "return",
    "AV6": "return",
}
_SHOWS = {place: np.array([_ON.get(name) == place for name in MARKS]) for place in _ON.values()}
"""By place and mark: whether it shows there."""
_BENIGN = MARKS.index("benign_imperative")
_TAINT = 1 + list(DEFENCES).index("taint")


class Writer:
    """Writes what an engine does into a log."""

    def __init__(self, config: Config, state: BatchState, log: EventLog) -> None:
        self.config, self.state, self.log = config, state, log
        self._read: list[tuple[np.ndarray, np.ndarray]] = []
        self._mark = MARKS.index(config.attack) if config.attack in MARKS else 0
        self._paid: list[tuple[np.ndarray, np.ndarray, int]] = []
        """Of this round: pay of decisions that is known at its end, the episodes, and its sign."""
        if config.acts != "report" and log.said is None:
            log.said = np.full((state.episodes, config.items, config.max_agents + 1), -1, np.int64)

    def _t(self, ep: np.ndarray, share: float) -> np.ndarray:
        return (self.state.clock[ep] + share) * self.config.round_s

    def _decide(self, ep: np.ndarray, decision: str, action: Action, share: float, **columns: object) -> np.ndarray:
        """One decision event per episode, which follows from the one before and the last draft."""
        log, place = self.log, DECISIONS.index(decision)
        logp = 0.0 if action.logp is None else action.logp[ep, place]
        rows = log.add(
            ep,
            type=EVENT["orchestrator_decision"],
            round=self.state.round[ep],
            decision=place,
            logp=logp,
            t=self._t(ep, share),
            tokens_out=self.config.decision_tokens,
            family=1,
            **columns,
        )
        log.link(log.decision[ep], rows, "causal")
        if decision == "stop":
            log.link(log.aggregate[ep], rows, "causal")
            log.aggregate[ep] = -1
            self._known(ep, rows)
        log.decision[ep] = rows
        return rows

    def _known(self, ep: np.ndarray, rows: np.ndarray) -> None:
        """The orchestrator knows who came, who went, and who was asked and has said nothing."""
        last = np.full(self.state.episodes, -1)
        last[ep] = rows
        for of, news in self.log.fresh:
            has_one = last[of] >= 0
            self.log.link(news[has_one], last[of][has_one], "causal")
        self.log.fresh = []

    def stop_decision(self, ep: np.ndarray, action: Action) -> None:
        """O5: stop, or a noop; `count` items are closed."""
        stop = np.asarray(action.stop)[ep]
        closed = -1 if action.close is None else (action.close & self.state.open)[ep].sum(axis=1)
        more: dict[str, Any] = {}
        if self.config.opponent_rounds:
            more["reward"] = self._later(ep, 1)
        self._decide(ep, "stop", action, _DECIDE["stop"], value=stop, noop=~stop, count=closed, **more)

    # -- those beside the team

    def _later(self, ep: np.ndarray, sign: int) -> np.ndarray:
        """Pay that `settled` writes at the end of the round."""
        pay = np.zeros(len(ep))
        self._paid.append((ep, pay, sign))
        return pay

    def settled(self, gain: np.ndarray) -> None:
        """What the round brought the team, (E,): its decision is paid that, and the second side's the opposite."""
        for ep, pay, sign in self._paid:
            pay[...] = sign * gain[ep]
        self._paid = []

    def opposed(self, ep: np.ndarray) -> None:
        """What the second side does this round; nobody in the team reads it."""
        log, s = self.log, self.state
        log.attack[ep] = log.add(
            ep,
            type=EVENT["message"],
            round=s.round[ep],
            agent=OPPONENT,
            to=0,
            value=s.attack[ep],
            t=self._t(ep, 0.0),
            family=1,
            reward=self._later(ep, -1),
        )

    def proposed(self, ep: np.ndarray, dials: np.ndarray | None, quality: np.ndarray) -> None:
        """What the proposer asks for, and the share of it that judges take for sound."""
        value = np.full(len(ep), -1) if dials is None else 3 * dials[ep, 0] + dials[ep, 1]
        rows = self.log.add(
            ep,
            type=EVENT["message"],
            round=self.state.round[ep],
            agent=PROPOSER,
            to=0,
            value=value,
            t=self._t(ep, 0.0),
            tokens_out=self.config.decision_tokens,
            family=1,
            reward=quality[ep],
        )
        self.log.fresh.append((ep, rows))

    def spawn_decision(self, ep: np.ndarray, action: Action) -> None:
        """O1: how many come; a noop when nobody comes or goes."""
        number = np.bincount(action.spawns.ep, action.spawns.number, self.state.episodes)[ep].astype(np.int64)
        gone = 0 if action.despawns is None else np.bincount(action.despawns[0], minlength=self.state.episodes)[ep]
        self._decide(ep, "spawn", action, _DECIDE["spawn"], value=number, noop=(number + gone) == 0)

    def spawned(self, ep: np.ndarray, slot: np.ndarray, marked: np.ndarray, because: np.ndarray | None) -> None:
        """New agents; those that a return asked for (`because`) are planted."""
        s, log, asked = self.state, self.log, because is not None
        parent = s.parent[ep, slot]
        rows = log.add(
            ep,
            type=EVENT["spawn"],
            round=s.round[ep],
            agent=parent,
            to=slot,
            t=self._t(ep, _BACK if asked else _DECIDE["spawn"]),
            family=s.family[ep, slot],
            value=s.type[ep, slot],
            mark=MARKS.index("AV6") if asked else self._mark * marked,
            corrupt=int(asked),
        )
        log.link(log.decision[ep], rows, "causal")
        if because is not None:
            log.link(because, rows, "safety_flow")
        log.link(np.where(parent > 0, log.last[ep, parent], -1), rows, "temporal")
        log.spawn[ep, slot] = rows
        log.fresh.append((ep, rows))

    def despawned(self, ep: np.ndarray, slot: np.ndarray) -> None:
        """Agents that go."""
        rows = self.log.add(ep, type=EVENT["despawn"], round=self.state.round[ep], to=slot, t=self._t(ep, _DECIDE["spawn"]))
        self.log.link(self.log.decision[ep], rows, "causal")
        self.log.fresh.append((ep, rows))

    def call_decisions(self, ep: np.ndarray, action: Action, calls: Calls) -> None:
        """O2 and O3: how many calls, with which brief."""
        e = self.state.episodes
        count = np.bincount(calls.ep, minlength=e)[ep]
        more: dict[str, Any] = {}
        if self.config.proposer:  # the judges' view of the plan: the share of calls that go to specialists
            s, e = self.state, self.state.episodes
            fits = (s.type[calls.ep, calls.agent] == s.item_type[calls.ep, calls.item]) | (calls.agent == 0)
            more["reward"] = np.where(count > 0, np.bincount(calls.ep, fits, e)[ep] / np.maximum(count, 1), np.nan)
        self._decide(ep, "delegate", action, _DECIDE["delegate"], value=count, noop=count == 0, **more)
        brief = np.full(e, -1)
        np.maximum.at(brief, calls.ep, calls.brief)
        heard = np.zeros(len(ep), np.bool_) if action.broadcast is None else np.asarray(action.broadcast, np.bool_)[ep]
        full = np.zeros(len(ep), np.bool_) if action.full_return is None else np.asarray(action.full_return, np.bool_)[ep]
        self._decide(
            ep,
            "communicate",
            action,
            _DECIDE["communicate"],
            brief=brief[ep],
            noop=(count == 0) & ~heard,
            value=heard.astype(np.int64) + 2 * full,
        )

    def called(self, name: str, c: Calls, table: dict[str, np.ndarray], attack: Attacked | None) -> None:
        """Briefs, tool calls and tool results of one kind's calls; `table["row"]` becomes the rows of the results."""
        s, log, k = self.state, self.log, self.config
        mark = table["mark"]
        common = {"round": s.round[c.ep], "item": c.item, "attempt": table["attempt"], "purpose": c.purpose}
        helpers = np.flatnonzero(c.agent != 0)
        some = {n: v[helpers] for n, v in common.items()}
        padding = 0 if attack is None else attack.padding[helpers]
        tokens = k.brief_tokens * (c.brief[helpers] + padding)
        brief = np.full(len(c), -1)
        brief[helpers] = log.add(
            c.ep[helpers],
            type=EVENT["message"],
            agent=0,
            to=c.agent[helpers],
            brief=c.brief[helpers],
            t=self._t(c.ep[helpers], _BRIEF),
            tokens_out=tokens,
            family=1,
            mark=mark[helpers] * _SHOWS["brief"][mark[helpers]],
            **some,
        )
        log.link(log.decision[c.ep[helpers]], brief[helpers], "causal")
        self._attacks(c.ep, mark, brief)
        self._tool(name, c, table, attack, brief, common)

    def _tool(
        self,
        name: str,
        c: Calls,
        table: dict[str, np.ndarray],
        attack: Attacked | None,
        brief: np.ndarray,
        common: dict[str, np.ndarray],
    ) -> None:
        """Tool calls and what they give."""
        log, k = self.log, self.config
        mark, start = table["mark"], self._t(c.ep, _CALL)
        dur = self._durations(name, c, table)
        call = log.add(
            c.ep,
            type=EVENT["tool_call"],
            agent=c.agent,
            brief=c.brief,
            t=start,
            dur=dur,
            tokens_in=k.brief_tokens * np.maximum(c.brief, 0),
            family=table["family"],
            mark=mark * _SHOWS["tool_call"][mark],
            **common,
        )
        self._reads(name, c, brief, call, table.pop("reads", None))
        self._attacks(c.ep, mark, np.where(brief < 0, call, -1))
        in_result = _SHOWS["tool_result"][mark]
        poisoned = in_result & (mark != _BENIGN)
        rows = log.add(
            c.ep,
            type=EVENT["tool_result"],
            agent=c.agent,
            t=start + dur,
            value=table["tool"],
            tokens_in=k.call_tokens,
            family=table["family"],
            mark=mark * in_result,
            corrupt=table["corrupt"] & (_SHOWS["brief"][mark] | in_result),
            reward=np.where(poisoned, -1.0, 1.0),
            **common,
        )
        log.link(call, rows, "tool_dependency")
        if attack is not None:
            self._alarms(c, attack, mark, call, common, table.get("gate"), (rows, start + dur))
        table["row"], table["asked"] = rows, call
        log.last[c.ep, c.agent] = rows

    def _attacks(self, ep: np.ndarray, mark: np.ndarray, rows: np.ndarray) -> None:
        """What the second side chose reaches the calls that it touches, where they begin."""
        if self.config.opponent_rounds:
            self.log.link(np.where((mark > 0) & (rows >= 0), self.log.attack[ep], -1), rows, "safety_flow")

    def _durations(self, name: str, c: Calls, table: dict[str, np.ndarray]) -> np.ndarray:
        """Seconds that each call takes, within its round."""
        k = self.config
        latency = k.latency_s * np.exp(k.latency_sigma * normal(table["word"], _LATENCY))
        if name == "vote":
            latency = latency * k.latency_hard ** self.state.kinds.vote.difficulty[c.ep, table["item"]]  # type: ignore[union-attr]
        return np.minimum(latency, (_LATEST - _CALL) * k.round_s)

    def _alarms(
        self, c: Calls, attack: Attacked, mark: np.ndarray, call: np.ndarray, common: dict[str, np.ndarray],
        gate: np.ndarray | None, result: tuple[np.ndarray, np.ndarray],
    ) -> None:  # fmt: skip
        """What was forbidden: done, or blocked."""
        log, start, source = self.log, self._t(c.ep, _CALL), call
        if gate is not None:  # a reader of results points at the result; whoever stops an act points at the call
            source, start = np.where(gate == _TAINT, result[0], call), np.where(gate == _TAINT, result[1], start)
        bad = np.flatnonzero(attack.violation | attack.blocked)
        safety = log.add(
            c.ep[bad],
            type=EVENT["safety_event"],
            agent=c.agent[bad],
            t=start[bad],
            mark=mark[bad],
            ok=attack.blocked[bad],
            **({"value": gate[bad]} if gate is not None else {}),
            **{n: v[bad] for n, v in common.items()},
        )
        log.link(source[bad], safety, "safety_flow")

    def _reads(self, name: str, c: Calls, brief: np.ndarray, call: np.ndarray, whom: np.ndarray | None) -> None:
        """What a worker reads: its brief, what it remembers, the work it builds on, shared notes, what was broadcast."""
        s, log = self.state, self.log
        last = log.last[c.ep, c.agent]
        log.link(brief, call, "message")
        log.link(np.where(brief < 0, log.decision[c.ep], -1), call, "causal")
        log.link(np.where(last < 0, log.spawn[c.ep, c.agent], -1), call, "spawn")
        log.link(np.where(c.agent > 0, last, -1), call, "temporal")
        if whom is not None and log.said is not None:
            row, slot = np.nonzero(whom)
            log.link(log.said[c.ep[row], c.item[row], slot], call[row], "message")
        if name in ("chain", "draft"):
            log.link(log.returned[c.ep, c.item], call, "causal")
        elif name == "node":
            node = s.kinds.node
            row, need = np.nonzero(node.needs[c.ep, c.item - node.first_item])  # type: ignore[union-attr]
            log.link(log.returned[c.ep[row], need + node.first_item], call[row], "causal")  # type: ignore[union-attr]
        elif self.config.topology in ("swarm", "debate"):
            log.link(log.returned[c.ep, c.item], call, "message")

    def returned(
        self, name: str, t: dict[str, np.ndarray], sent: np.ndarray, delivered: np.ndarray, rejected: np.ndarray,
        accepts: np.ndarray | None = None,
    ) -> None:  # fmt: skip
        """Returns that come back in this round; those lost on the way are written, and not read. `accepts`: (calls, judges)."""
        s, log, k = self.state, self.log, self.config
        first = getattr(s.kinds, name).first_item
        helpers = np.flatnonzero(sent & (t["agent"] != 0))
        ep, agent, item = t["ep"][helpers], t["agent"][helpers], t["item"][helpers] + first
        talk = {"act": t["act"][helpers]} if "act" in t else {}
        if accepts is not None:
            talk["score"] = t["confidence"][helpers]
        right = t["right"][helpers].astype(np.float64)
        rows = log.add(
            ep,
            type=EVENT["return"],
            round=s.round[ep],
            agent=agent,
            to=s.parent[ep, agent],
            item=item,
            attempt=t["attempt"][helpers],
            purpose=t["purpose"][helpers],
            value=t["claim"][helpers],
            t=self._t(ep, _BACK),
            tokens_out=k.call_tokens + (k.brief_tokens * t["messages"][helpers] if "messages" in t else 0),
            family=t["family"][helpers],
            mark=t["mark"][helpers] * _SHOWS["return"][t["mark"][helpers]],
            corrupt=t["corrupt"][helpers],
            ok=delivered[helpers],
            confidence=t["confidence"][helpers] if "confidence" in t else -1.0,
            reward=np.where(t["purpose"][helpers] == VERIFY, 2 * right - 1, right),
            **talk,
        )
        log.link(t["row"][helpers], rows, "causal")
        log.last[ep, agent], log.returned[ep, item] = rows, rows
        if log.said is not None:
            log.said[ep, item, agent] = rows
        t["back"] = np.full(len(t["ep"]), -1)
        t["back"][helpers] = rows
        own = np.flatnonzero(sent & (t["agent"] == 0))
        log.returned[t["ep"][own], t["item"][own] + first] = t["row"][own]
        every, rows = np.concatenate([helpers, own]), np.concatenate([rows, t["row"][own]])
        if k.topology == "planner_executor_critic" and name == "vote":
            rows = self._judged(t, every, rows, first, rejected)
        if accepts is not None:
            self._scored(t, every, rows, first, accepts, delivered)
        self._dropped(t, first)
        read, lost = delivered[every], np.flatnonzero(sent & ~delivered)
        log.fresh.append((t["ep"][lost], t["asked"][lost]))
        self._read.append((t["ep"][every][read], rows[read]))

    def _dropped(self, t: dict[str, np.ndarray], first: int) -> None:
        """What the gates after the work say of the returns that they keep back."""
        if not self.config.gates:
            return
        log, bad = self.log, np.flatnonzero(t["gate"] > 0)
        ep = t["ep"][bad]
        same = {n: t[n][bad] for n in ("agent", "attempt", "purpose", "mark")}
        now = {"round": self.state.round[ep], "t": self._t(ep, _BACK)}
        safety = log.add(
            ep, type=EVENT["safety_event"], item=t["item"][bad] + first, ok=True, value=t["gate"][bad], **same, **now
        )  # fmt: skip
        log.link(np.where(t["back"][bad] >= 0, t["back"][bad], t["row"][bad]), safety, "safety_flow")

    def _judged(
        self, t: dict[str, np.ndarray], which: np.ndarray, rows: np.ndarray, first: int, rejected: np.ndarray
    ) -> np.ndarray:
        """The critic's verdicts on votes; only these are read."""
        log, ep = self.log, t["ep"][which]
        verdict = log.add(
            ep,
            type=EVENT["message"],
            round=self.state.round[ep],
            agent=CRITIC,
            to=0,
            item=t["item"][which] + first,
            attempt=t["attempt"][which],
            brief=-1,
            count=t["agent"][which],
            value=np.where(rejected[which], 0, 1 + t["claim"][which]),  # a vote that is passed is passed on
            t=self._t(ep, _BACK),
            family=1,
            tokens_out=self.config.decision_tokens,
            reward=np.where(rejected[which] == ~t["right"][which], 1.0, -1.0),
        )
        log.link(rows, verdict, "message")
        return verdict

    def _scored(
        self,
        t: dict[str, np.ndarray],
        which: np.ndarray,
        rows: np.ndarray,
        first: int,
        accepts: np.ndarray,
        delivered: np.ndarray,
    ) -> None:
        """The judges' verdicts on answers, in public."""
        log, ep = self.log, t["ep"][which]
        for j in range(accepts.shape[1]):
            votes = accepts[which, j]
            verdict = log.add(
                ep,
                type=EVENT["message"],
                round=self.state.round[ep],
                agent=JUDGE + j,
                to=0,
                item=t["item"][which] + first,
                attempt=t["attempt"][which],
                count=t["agent"][which],
                value=votes.astype(np.int64),
                t=self._t(ep, _BACK),
                family=1,
                tokens_out=self.config.decision_tokens,
                reward=np.where(votes == t["right"][which], 1.0, -1.0),
            )
            log.link(rows, verdict, "message")
            read = delivered[which]
            self._read.append((ep[read], verdict[read]))

    def inserted(self, ep: int, item: int, value: int) -> None:
        """A vote that a person put in."""
        at = np.array([ep])
        rows = self.log.add(
            at,
            type=EVENT["human_intervention"],
            round=self.state.round[at],
            agent=HUMAN,
            to=0,
            item=item,
            value=value,
            t=self._t(at, _BACK),
        )
        self._read.append((at, rows))

    def aggregated(self, ep: np.ndarray, action: Action, rule: np.ndarray, value: np.ndarray, quality: np.ndarray) -> None:
        """O4: the decision, and the draft it makes of what was read; a noop when nothing came back."""
        log, s = self.log, self.state
        of, rows = (
            (np.concatenate(parts) for parts in zip(*self._read, strict=True)) if self._read else (np.zeros(0, np.int64),) * 2
        )
        self._read = []
        some = np.bincount(of, minlength=s.episodes) > 0
        self._decide(ep, "aggregate", action, _END, value=rule[ep], noop=~some[ep])
        # whether there is anything to aggregate is known from what came back
        first = np.full(s.episodes, -1)
        first[of[::-1]] = rows[::-1]  # the last assignment wins: the first row of each
        who = (first >= 0).nonzero()[0]
        log.link(first[who], log.decision[who], "causal")
        busy = ep[some[ep]]
        drafts = log.add(
            busy,
            type=EVENT["aggregate"],
            round=s.round[busy],
            t=self._t(busy, _END),
            count=np.bincount(of, minlength=s.episodes)[busy],
            value=rule[busy],
            reward=(quality - log.quality)[busy],
            score=value[busy],
            family=1,
        )
        last = np.full(s.episodes, -1)
        last[busy] = drafts
        log.link(rows, last[of], "return")
        log.link(log.decision[busy], drafts, "causal")
        log.aggregate[busy] = drafts
        log.quality = np.where(some, quality, log.quality)
