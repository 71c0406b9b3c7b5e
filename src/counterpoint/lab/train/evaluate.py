"""Held-out episodes: how the learned team does on seeds that it never trains on, beside hand-made ones and the optimum.

Always true: every run of a world is held to the same seeds, 0, 1, ..., each played greedily; where a run mixes variants, seed
i is of variant i modulo their number, so tasks pair across runs. Nothing here changes the network or spends its budget.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np
import torch

import counterpoint.registry as registry
from counterpoint.display import tracked, working
from counterpoint.errors import InputError, NotFound
from counterpoint.lab.train.folder import RunFolder
from counterpoint.lab.train.options import OptionPolicy, has_own_rules, held_out_episodes, net_sizes
from counterpoint.lab.train.policies.acting import TeamPolicy
from counterpoint.lab.train.policies.features import OPEN_ITEMS, context, role_rows
from counterpoint.lab.train.policies.network import Network
from counterpoint.lab.train.settings import settings_of
from counterpoint.lab.train.training import Training
from counterpoint.lab.worlds.teamworld.action import Action
from counterpoint.lab.worlds.teamworld.config import KINDS, Config
from counterpoint.lab.worlds.teamworld.engine import Batch
from counterpoint.lab.worlds.teamworld.observation import Observation
from counterpoint.lab.worlds.teamworld.policies import named, play
from counterpoint.lab.worlds.teamworld.setting import columns
from counterpoint.lab.worlds.teamworld.world import TeamWorld
from counterpoint.trace import Trace

HAND_MADE = ("reference", "majority", "first_answer", "serial", "spawn_all", "random")
"""Those that need no search of their own."""
_COUNTS = ("vote_items", "pool_items", "draft_items", "chain_items", "node_modules")
_FACTORS = (0.25, 0.5, 1.0, 2.0, 4.0)
_LARGEST = 2048


@dataclass
class HeldOut:
    """One evaluation: lists with one number per held-out seed, and the traces that were kept."""

    values: np.ndarray
    columns: dict[str, np.ndarray]
    traces: list[Trace] = field(default_factory=list)

    @property
    def mean(self) -> float:
        """The mean return."""
        return float(self.values.mean())

    @property
    def se(self) -> float:
        """Its standard error over tasks."""
        return float(self.values.std(ddof=1) / np.sqrt(len(self.values))) if len(self.values) > 1 else 0.0

    def row(self) -> dict[str, Any]:
        """What `RunFolder.append_eval` is given."""
        lists = {"values": self.values, "agents": self.columns["agents"], "rounds": self.columns["rounds"]}
        lists |= {"calls_made": self.columns["calls"], "quality": self.columns["quality"]}
        plain = {name: list_.tolist() for name, list_ in lists.items()}
        return {"first_seed": 0, "mean": self.mean, "se": self.se, **plain, "traces": [t.trace_id for t in self.traces]}


def _shares(variants: int, episodes: int) -> list[np.ndarray]:
    """The held-out seeds of each variant."""
    seeds = np.arange(episodes)
    return [seeds[seeds % variants == v] for v in range(variants)]


class _Watched(TeamPolicy):
    """A learned policy that says, round by round, how many episodes of an evaluation have ended."""

    def __init__(self, net: Network, name: str, work: Any) -> None:
        super().__init__(net, name=name)
        self._work, self.before = work, 0

    def act(self, obs: Observation) -> Action:
        """This round's action."""
        self._work.at(self.before + int((~obs.running).sum()), about=f"round {obs.round:,}")
        return super().act(obs)


def held_out(net: Network, worlds: Sequence[TeamWorld], episodes: int, *, name: str = "learned", keep: int = 0) -> HeldOut:
    """Play the held-out seeds greedily; the first `keep` of them are logged."""
    parts: list[tuple[np.ndarray, np.ndarray, dict[str, np.ndarray]]] = []
    traces: list[tuple[int, Trace]] = []
    with working("evaluating on held-out episodes", episodes) as work:
        policy = _Watched(net, name, work)
        for world, seeds in zip(worlds, _shares(len(worlds), episodes), strict=True):
            if len(seeds) and has_own_rules(world):
                values, own, make = held_out_episodes(net, world, seeds, name=name)
                parts.append((seeds, values, own))
                traces += [(int(seed), make(i)) for i, seed in enumerate(seeds) if seed < keep]
            elif len(seeds):  # one batch, logged or not: a round costs much the same whether it has 4 episodes or 40
                runs = world.run(policy, seeds, log=bool(seeds[0] < keep))
                parts.append((seeds, runs.values, dict(runs.columns)))
                traces += [(int(seed), runs.trace(i)) for i, seed in enumerate(seeds) if seed < keep]
            policy.before += len(seeds)
            work.at(policy.before)
    order = np.argsort(np.concatenate([seeds for seeds, _, _ in parts]))
    joined = {k: np.concatenate([c[k] for _, _, c in parts])[order] for k in parts[0][2]}
    values = np.concatenate([v for _, v, _ in parts])[order]
    return HeldOut(values, joined, [t for _, t in sorted(traces, key=lambda pair: pair[0])])


def plain_name(text: str) -> str:
    """A name that can be part of a trace id and of a folder's name."""
    return re.sub(r"[^\w.-]+", "-", text)


# -- what to hold it against


@lru_cache(maxsize=64)
def _rule_scores(config: Config, policy: str, episodes: int, first: int, step: int) -> tuple[tuple[Any, ...], ...]:
    """Values, rounds and agents of a hand-made policy on the seeds first, first + step, ...; several runs ask the same."""
    batch = play(config, named(policy, config), np.arange(first, episodes, step))
    found = columns(batch)
    return tuple(batch.value().tolist()), tuple(found["rounds"].tolist()), tuple(found["agents"].tolist())


def hand_made_returns(worlds: Sequence[TeamWorld], episodes: int) -> dict[str, float]:
    """Mean returns of the hand-made policies on the held-out seeds."""
    n = len(worlds)
    if has_own_rules(worlds[0]):
        shares = _shares(n, episodes)
        runs = {p: [w.run(p, some).values for w, some in zip(worlds, shares, strict=True)] for p in worlds[0].policies()}
        return {p: float(np.concatenate(values).mean()) for p, values in runs.items()}
    return {
        p: float(np.mean([x for v, w in enumerate(worlds) for x in _rule_scores(w.config, p, episodes, v, n)[0]]))
        for p in HAND_MADE
    }


def reference_rounds(worlds: Sequence[TeamWorld], episodes: int, policy: str = "reference") -> list[int]:
    """In which round a hand-made policy stops each held-out task."""
    out, n = np.zeros(episodes, np.int64), len(worlds)
    for v, world in enumerate(worlds):
        out[v::n] = _rule_scores(world.config, policy, episodes, v, n)[1]
    return out.tolist()


def optimum(worlds: Sequence[TeamWorld], episodes: int) -> dict[str, Any]:
    """The optimum of the held-out tasks: the mean over the variants, as often as each is played."""
    found = [world.optimum() for world in tracked(worlds, "computing the optimum")]
    counts = [len(seeds) for seeds in _shares(len(worlds), episodes)]
    value = sum(o.value * c for o, c in zip(found, counts, strict=True)) / sum(counts)
    kind = "exact" if all(o.kind == "exact" for o in found) else "upper bound"
    return {"value": value, "kind": kind, "over": found[0].over, "how": found[0].how}


def scaled(world: TeamWorld, factor: float) -> TeamWorld:
    """The world with so many times the items of each kind, and room for as many more agents."""
    config = world.config
    changes: dict[str, Any] = {n: max(1, round(getattr(config, n) * factor)) for n in _COUNTS if getattr(config, n)}
    return world.replace(**changes, max_agents=max(config.max_agents, round(config.max_agents * factor)))


def task_labels(worlds: Sequence[TeamWorld]) -> list[str]:
    """What the tasks of each variant are: how many items of each kind, and whether time costs anything; each name once."""
    plain = [_label(world.config) for world in worlds]
    return [f"{name} ({place + 1})" if plain.count(name) > 1 else name for place, name in enumerate(plain)]


def _label(config: Config) -> str:
    items = ", ".join(f"{n} {kind}{'s' * (n > 1)}" for kind, n in zip(KINDS, config.counts, strict=True) if n)
    return f"{items}, {'urgent' if config.round_price else 'no hurry'}"


def team_sizes(net: Network, worlds: Sequence[TeamWorld], held: HeldOut) -> list[dict[str, Any]]:
    """Team sizes by task: of a mix, those of each sort of held-out task; of one sort, those of smaller and larger ones."""
    if len(worlds) == 1:
        return widths(net, worlds[0])
    agents, rows = held.columns["agents"], []
    episodes, n = len(agents), len(worlds)
    for place, (task, world) in enumerate(zip(task_labels(worlds), worlds, strict=True)):
        by_hand = _rule_scores(world.config, "reference", episodes, place, n)[2]
        mean = float(np.mean(by_hand)) if by_hand else None
        rows.append({"task": task, "size": world.config.items, "agents": agents[place::n].tolist(), "reference": mean})
    return rows


def widths(net: Network, world: TeamWorld, *, episodes: int = 6) -> list[dict[str, Any]]:
    """Team sizes by task size: every count of items times 1/4, 1/2, 1, 2, 4, as far as that is a task of another size."""
    rows: dict[int, dict[str, Any]] = {}
    for factor in tracked(_FACTORS, "evaluating team sizes by task size"):
        try:
            other = scaled(world, factor)
        except InputError:
            continue  # some count has a limit of its own
        size = other.config.items
        if size in rows or size > max(_LARGEST, world.config.items):
            continue
        learned = _team_sizes(net, other.config, episodes)
        by_hand = columns(play(other.config, named("reference", other.config), np.arange(episodes)))["agents"]
        rows[size] = {"size": size, "agents": learned.tolist(), "reference": float(by_hand.mean())}
    return [rows[size] for size in sorted(rows)]


def _team_sizes(net: Network, config: Config, episodes: int) -> np.ndarray:
    """(E,) how many agents the greedy policy spawns on the first held-out seeds: played for as long as it may spawn any more."""
    batch, policy = Batch(config, np.arange(episodes)), TeamPolicy(net)
    while not batch.state.done.all():
        obs = batch.observe()
        if obs.round and config.attack == "none" and not _may_spawn(net, obs):
            break
        batch.step(policy.act(obs))
    return batch.state.spawned.copy()


def _may_spawn(net: Network, obs: Observation) -> bool:
    """Whether the greedy policy could spawn in any later round, whatever comes until then: its gate is linear in the numbers of
    open items, which are at most all of them and at least none, and everything else that it reads stays as it is."""
    x = role_rows(obs, context(obs))
    every = role_rows(dataclasses.replace(obs, ready=np.ones_like(obs.ready), running=np.ones_like(obs.running)), context(obs))
    for column in OPEN_ITEMS:
        x[:, :, column] = every[:, :, column] if net.gate.weight[0, column] > 0 else 0.0
    with torch.no_grad():
        gate = net.roles(torch.from_numpy(x))[0].numpy()
    return bool((gate[obs.running] > -1e-3).any())  # a margin for what rounding may change


def policy_of(run: RunFolder, which: str = "last", *, allow: Collection[str] = ()) -> TeamPolicy | OptionPolicy:
    """The policy of a run's last or best checkpoint, greedy; `TeamReplay(world, policy)` forks its traces with it.

    Code from outside that the run's settings name is run where `allow` names it too.
    """
    path = run.best_checkpoint() if which == "best" else run.latest_checkpoint()
    if path is None:
        raise NotFound("has no checkpoint yet", where=str(run.path), fix=f"counterpoint train resume {run.path}")
    settings = settings_of(run.config(), where=str(run.path / "run.toml"))
    registry.check_consent(settings.names(), allow, where=str(run.path / "run.toml"))
    training = Training(settings)
    training.restore(run.read_checkpoint(path), str(path))
    s = training.settings
    net, name = training.player(), f"{plain_name(s.preset)}-s{s.seed}-u{training.update}"
    return OptionPolicy(net, net_sizes(net), name=name) if training.own_rules else TeamPolicy(net, name=name)
