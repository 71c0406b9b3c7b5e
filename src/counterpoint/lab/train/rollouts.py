"""Rollouts: episodes played by a learned policy, every decision a row, every point of reward where it was earned.

Always true: for every episode the rewards of its item rows and its rounds add up to its return (`Rollout.gap` says how far off
they are). A row's own reward is what its call changed in its item's draft, less the price of the call, its brief and its share
of the round's time; what no call brought about (spawns, rounds without calls, broadcasts, harm) is the team's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from counterpoint.credits.advantages import reward_to_go
from counterpoint.lab.train.policies.acting import Followed, Forced, TeamPolicy
from counterpoint.lab.train.policies.choices import item_row
from counterpoint.lab.train.policies.network import Network
from counterpoint.lab.train.policies.record import Record
from counterpoint.lab.train.policies.workers import Workers, settle_workers
from counterpoint.lab.worlds.teamworld.action import Action
from counterpoint.lab.worlds.teamworld.acts import call_prices
from counterpoint.lab.worlds.teamworld.config import KINDS, Config
from counterpoint.lab.worlds.teamworld.engine import Batch
from counterpoint.lab.worlds.teamworld.observation import Observation
from counterpoint.lab.worlds.teamworld.setting import columns
from counterpoint.lab.worlds.teamworld.tables import tables_of
from counterpoint.trace import Trace

Table = dict[str, np.ndarray]
_VERIFY = 2


@dataclass
class Rollout:
    """Finished episodes. Axes: E episodes, T rounds."""

    config: Any
    """Of a TeamWorld its `Config`; None of a world with rules of its own (`options.py`)."""
    seeds: np.ndarray
    salts: np.ndarray
    tables: dict[str, Table]
    """The policy's record; item rows carry `reward`, `time` (the price of their share of the clock, which is in it), `chain`
    (which item of which episode), `order` (row numbers, chain by chain) and `calls_to_go` too."""
    value_TE: np.ndarray
    """The return if the team had stopped before round t."""
    values: np.ndarray
    """(E,) the return."""
    columns: dict[str, np.ndarray]
    batch: Batch | None = None
    """The finished batch, where it was logged."""
    extra: dict[str, np.ndarray] = field(default_factory=dict)

    @property
    def decisions(self) -> int:
        """How many decisions were made: each stop, role, item, brief and pointer, talk and rule is one, and a worker's choice."""
        t = self.tables
        named = ("stop", "spawn", "item", "talk", "rule", "worker", "act", "attack", "proposal", "option")
        rows = {name: len(t[name]["ep"]) if name in t else 0 for name in named}
        called = int((t["item"]["agent"] >= 0).sum()) if "item" in t else 0
        return sum(rows.values()) + 2 * called

    @property
    def calls(self) -> int:
        """Worker calls made; of rollouts that begin alike (`branch_salts`), their common calls once."""
        return int((self.columns["calls"] - self.extra.get("shared_calls", 0)).sum())

    @property
    def charged(self) -> int:
        """What these episodes take from a budget: each its worker calls and its rounds, and at least 1; what rollouts that begin
        alike have in common is charged once."""
        shared = self.extra.get("shared_calls", 0) + self.extra.get("shared_rounds", 0)
        return int(np.maximum(self.columns["calls"] + self.columns["rounds"] - shared, 1).sum())

    def to_go(self, table: str) -> np.ndarray:
        """The team's return from each row of a table on."""
        t = self.tables[table]
        return self.values[t["ep"]] - self.value_TE[t["round"], t["ep"]]

    def gap(self) -> float:
        """The largest difference between an episode's return and the sum of what its rows and rounds got."""
        item = self.tables.get("item")
        got = np.zeros(len(self.values)) if item is None else np.bincount(item["ep"], item["reward"], len(self.values))
        return float(np.abs(got + self.extra["team"] + self.value_TE[0] - self.values).max(initial=0.0))


@dataclass
class TracedRollout:
    """Episodes and their traces, in the same order; no traces where none were asked for."""

    rollout: Rollout
    traces: list[Trace] = field(default_factory=list)


def play_out(
    config: Config, net: Network, seeds: np.ndarray, salts: np.ndarray, *, log: bool = False, force: Forced | None = None,
    greedy: bool = False, goes_on: bool = False, name: str = "learned", workers: bool = False,
    follow: Callable[[Observation], Followed] | None = None, said: Mapping[tuple[int, int, int, int], bool] | None = None,
    salts_ET: np.ndarray | None = None,
) -> Rollout:  # fmt: skip
    """Play one episode per seed, each with noise of its own salt; with `workers` the sub-agents are played by the network too.

    `salts_ET` gives the salts of the first T rounds one by one (`branch_salts`), the last of them from there on.

    With `follow` (and `said`, of the workers) nothing is drawn: recorded decisions are made again.
    """
    record, noise = Record(), np.asarray(salts if salts_ET is None else salts_ET.T, np.int64)
    listens = workers and config.acts == "report"  # workers with acts have that choice instead
    policy = TeamPolicy(
        net, name=name, greedy=greedy, salt=noise, record=record, force=force, goes_on=goes_on,
        follow=follow,
    )  # fmt: skip
    team = Workers(net, greedy=greedy, salt=noise, record=record, follow=said) if listens else None
    batch = Batch(config, np.asarray(seeds), log=log)
    value, worth = batch.values()
    values, worths, clocks, prices = [value], [worth], [batch.state.clock.copy()], []
    while not batch.state.done.all():
        obs = batch.observe()
        made, action = policy.decide(obs)
        prices.append(_prices(config, batch, made))
        batch.step(action, None if team is None else team.answers(batch, obs), trusted=follow is None)
        value, worth = batch.values()
        values.append(value)
        worths.append(worth)
        clocks.append(batch.state.clock.copy())
    tables = record.joined()
    out = Rollout(config, np.asarray(seeds), np.asarray(salts), tables, np.array(values), batch.value(), columns(batch))
    if "item" in tables:
        _settle(out, worths, clocks, prices)
    if "worker" in tables and batch.state.kinds.vote is not None:
        settle_workers(tables, batch.state.kinds.vote.truth, batch.state.kinds.vote.first_item)
    if "act" in tables:
        tables["act"]["row"] = item_row(tables["act"], tables["item"])
    item = tables.get("item")
    got = np.zeros(len(out.values)) if item is None else np.bincount(item["ep"], item["reward"], len(out.values))
    out.extra["team"] = out.values - out.value_TE[0] - got
    if salts_ET is not None:
        out.extra |= _shared(out, salts_ET)
    out.batch = batch if log else None
    return out


def _shared(out: Rollout, salts_ET: np.ndarray) -> dict[str, np.ndarray]:
    """(E,) calls and rounds that an earlier rollout of the same task has made already, before the two part."""
    episodes, rounds = salts_ET.shape
    is_again = np.zeros((episodes, rounds), np.bool_)
    for now in range(rounds):
        begun = np.concatenate([out.seeds[:, None], salts_ET[:, : now + 1]], axis=1)
        _, first, code = np.unique(begun, axis=0, return_index=True, return_inverse=True)
        is_again[:, now] = first[code.reshape(-1)] != np.arange(episodes)
    shared = {"shared_calls": np.zeros(episodes), "shared_rounds": np.zeros(episodes)}
    shared["shared_rounds"] += (is_again & (np.arange(rounds) < out.columns["rounds"][:, None])).sum(axis=1)
    if "item" in out.tables:
        t = out.tables["item"]
        early = np.flatnonzero((t["agent"] >= 0) & (t["round"] < rounds))
        again = early[is_again[t["ep"][early], t["round"][early]]]
        shared["shared_calls"] += np.bincount(t["ep"][again], minlength=episodes)
    return shared


def branch_salts(salts: np.ndarray, tree: Sequence[int], rng: np.random.Generator, groups: int, first: int = 0) -> np.ndarray:
    """(E, T) salts by round that make the rollouts of every task a tree: branches have one salt until they part.

    The first branches part at once, the next ones 1 to 4 rounds after the ones before, drawn for each task (`first`: how many
    tasks of the update stand before these).
    """
    size = int(np.prod(tree))
    parts = np.cumsum(rng.integers(1, 5, size=(first + groups, len(tree) - 1)), axis=1)[first:]
    out = np.repeat(salts[:, None], (int(parts.max()) if parts.size else 0) + 1, axis=1)
    for g in range(groups):
        rows, width, begin = np.arange(size), size, 0
        for level, fan in enumerate(tree):
            width //= fan
            end = int(parts[g, level]) if level < len(tree) - 1 else out.shape[1]
            out[g * size : (g + 1) * size, begin:end] = salts[g * size + rows // width * width, None]
            begin = end
    return out


def merge_rollouts(parts: Sequence[Rollout]) -> Rollout:
    """Rollouts of one configuration as one: episodes are renumbered, shorter ones end earlier."""
    if len(parts) == 1:
        return parts[0]
    rounds = max(len(p.value_TE) for p in parts)
    first = np.cumsum([0, *(len(p.values) for p in parts)])
    tables: dict[str, list[Table]] = {}
    items = chains = 0
    for p, offset in zip(parts, first, strict=False):
        for name, t in p.tables.items():
            moved = {**t, "ep": t["ep"] + offset}
            if name == "item":
                moved |= {"order": t["order"] + items, "chain": t["chain"] + chains}
            if name in ("candidate", "worker", "act"):
                moved["row"] = t["row"] + items
            tables.setdefault(name, []).append(moved)
        if "item" in p.tables:
            items, chains = items + len(p.tables["item"]["ep"]), chains + int(p.tables["item"]["chain"].max(initial=-1)) + 1
    if "option" in tables:
        tables["option"] = _same_width(tables["option"])
    padded = [np.concatenate([p.value_TE, np.repeat(p.value_TE[-1:], rounds - len(p.value_TE), axis=0)]) for p in parts]
    return Rollout(
        parts[0].config,
        np.concatenate([p.seeds for p in parts]),
        np.concatenate([p.salts for p in parts]),
        {name: {k: np.concatenate([t[k] for t in ts]) for k in ts[0]} for name, ts in tables.items()},
        np.concatenate(padded, axis=1),
        np.concatenate([p.values for p in parts]),
        {k: np.concatenate([p.columns[k] for p in parts]) for k in parts[0].columns},
        extra={k: np.concatenate([p.extra[k] for p in parts]) for k in parts[0].extra},
    )


def _same_width(parts: Sequence[Table]) -> list[Table]:
    """Rows of decisions with options, all padded to the most options of any."""
    width = max(part["mask"].shape[1] for part in parts)

    def padded(a: np.ndarray) -> np.ndarray:
        return np.pad(a, [(0, 0), (0, width - a.shape[1])] + [(0, 0)] * (a.ndim - 2))

    return [{**part, "x": padded(part["x"]), "mask": padded(part["mask"])} for part in parts]


def _prices(config: Config, batch: Batch, action: Action) -> np.ndarray:
    """What each call of the action costs apart from time, in the action's order."""
    c = action.calls
    if not len(c):
        return np.zeros(0)
    own = c.agent == 0
    price = call_prices(config, c, tables_of(config).price[batch.state.family[c.ep, c.agent]])
    if config.chain_items:
        kind = tables_of(config).kind[c.item]
        price = np.where((c.purpose == _VERIFY - 1) & (kind == KINDS.index("chain")), config.check_price, price)
    price = price + config.brief_price * np.where(own, 0, c.brief)
    return price + config.gateway_price if config.topology == "harness" else price


def _settle(out: Rollout, worths: list[np.ndarray], clocks: list[np.ndarray], prices: list[np.ndarray]) -> None:
    """Write what every item row earned, and which row of its item comes next."""
    t, config = out.tables["item"], out.config
    called = t["agent"] >= 0
    reward = np.zeros(len(called))
    reward[called] = -np.concatenate(prices)
    episodes = len(out.values)
    beat = t["round"] * episodes + t["ep"]
    share = np.bincount(beat[called], minlength=len(clocks) * episodes)
    passed = np.diff(np.array(clocks), axis=0).reshape(-1)
    time = np.zeros(len(called))
    time[called] = config.round_price * passed[beat[called]] / share[beat[called]]
    reward -= time
    _credit_changes(t, called, reward, worths)
    order = np.lexsort((t["copy"], t["round"], t["item"], t["ep"]))
    begins = np.ones(len(order), np.bool_)
    begins[1:] = np.diff(t["ep"][order] * config.items + t["item"][order]) != 0
    chain = np.empty(len(order), np.int64)
    chain[order] = np.cumsum(begins) - 1
    t["reward"], t["time"], t["chain"], t["order"] = reward, time, chain, order
    t["calls_to_go"] = along(t, called.astype(np.float64))
    t["worth"] = np.array(worths)[t["round"], t["ep"], t["item"]].astype(np.float32)


def along(t: Table, x: np.ndarray) -> np.ndarray:
    """Sums of x from each item row to the end of its item's chain."""
    order = t["order"]
    out = np.empty(len(order))
    out[order] = reward_to_go(x[order], segments=t["chain"][order])
    return out


def _credit_changes(t: Table, called: np.ndarray, reward: np.ndarray, worths: list[np.ndarray]) -> None:
    """What changed in an item's worth goes to the rows of its last round with a call, in equal parts."""
    rows, n, rounds = np.flatnonzero(called), worths[0].shape[1], len(worths)
    place = (t["ep"][rows] * n + t["item"][rows]) * rounds + t["round"][rows]
    keys, group, count = np.unique(place, return_inverse=True, return_counts=True)
    gain = np.zeros(len(keys))
    for now in range(rounds - 1):
        change = worths[now + 1] - worths[now]
        ep, item = np.nonzero(change)
        at = np.searchsorted(keys, (ep * n + item) * rounds + now, side="right") - 1
        mine = (at >= 0) & (keys[np.maximum(at, 0)] // rounds == ep * n + item) if len(keys) else np.zeros(len(ep), np.bool_)
        np.add.at(gain, at[mine], change[ep, item][mine])
    reward[rows] += gain[group] / count[group]
