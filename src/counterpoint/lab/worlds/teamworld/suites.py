"""Suites of worlds that tell methods apart: the right decision depends on the task, so no fixed rule is good everywhere.

Always true: a suite world is a released TeamWorld with other parameters (`set`) and sorts of tasks (`mix`), played in turn: seed
i is a task of sort i modulo their number, in training and in every evaluation. What choosing by the task is worth is proved by
`counterpoint reproduce suite-screening`: at least 10 % of the bound between the best fixed rule and play that is known.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

import counterpoint.registry as registry
from counterpoint.errors import NotFound, did_you_mean
from counterpoint.lab.worlds.teamworld.action import Action
from counterpoint.lab.worlds.teamworld.config import RULES, Config
from counterpoint.lab.worlds.teamworld.observation import Observation
from counterpoint.lab.worlds.teamworld.policies import play
from counterpoint.lab.worlds.teamworld.policies.composed import ComposedPolicy, Parts
from counterpoint.lab.worlds.teamworld.world import TeamWorld

DECISIONS = ("spawn", "delegate", "communicate", "aggregate", "stop")
_FIRST_TASK = 1_000_000
_BEST = Parts(play="optimal")


class _Nobody:
    """Ends before anybody is called: what doing nothing is worth."""

    name = "nobody"

    def act(self, obs: Observation) -> Action:
        """Stop."""
        return Action(stop=np.ones(obs.episodes, np.bool_))


@dataclass(frozen=True)
class SuiteWorld:
    """One world of a suite: tasks of one kind each, and the best play that is known of them."""

    name: str
    about: str
    """What its tasks are, and why no fixed rule does."""
    decisions: tuple[str, ...]
    """The sub-decisions that are worth 10 % of the bound here."""
    world: str
    """The released world that it is made from."""
    set: Mapping[str, Any]
    """Parameters of all tasks."""
    mix: tuple[Mapping[str, Any], ...]
    """Further parameters of each task, as in the settings of a training run."""
    known: tuple[Parts, ...]
    """The best hand-made play that is known, task by task; it knows the world's prices and skills."""

    def __hash__(self) -> int:
        return hash(self.name)

    @property
    def decision(self) -> str:
        """The sub-decisions that it is about, in words."""
        return ", ".join(self.decisions)

    @cached_property
    def worlds(self) -> tuple[TeamWorld, ...]:
        """Each task as a world of its own."""
        world: TeamWorld = registry.get("world", self.world)
        return tuple(world.replace(**{**self.set, **task}) for task in self.mix)

    @property
    def configs(self) -> list[Config]:
        """The parameters of each task."""
        return [world.config for world in self.worlds]

    @cached_property
    def bound(self) -> float:
        """The mean over the tasks of the optimum, or of a certified upper bound."""
        return float(np.mean([world.optimum().value for world in self.worlds]))

    @cached_property
    def rules(self) -> dict[str, float]:
        """What hand-made play gets on 16 tasks of each sort: the known play, nobody, one worker, and as many as may be."""
        seeds = _FIRST_TASK * len(self.mix) + np.arange(16 * len(self.mix))
        mine = [seeds[seeds % len(self.mix) == i] for i in range(len(self.mix))]
        idle = [play(config, _Nobody(), some).value().mean() for config, some in zip(self.configs, mine, strict=True)]
        out = {"known": float(self.values(self.known, seeds).mean()), "nobody": float(np.mean(idle))}
        for name in ("serial", "spawn_all"):
            parts = [world.run(name, some).values.mean() for world, some in zip(self.worlds, mine, strict=True)]
            out[name] = float(np.mean(parts))
        return out

    def settings(self) -> dict[str, Any]:
        """What a training run's settings say of the world."""
        return {"world": self.world, "set": dict(self.set), "mix": [dict(task) for task in self.mix]}

    def values(self, parts: Sequence[Parts], seeds: Sequence[int] | np.ndarray) -> np.ndarray:
        """Returns of hand-made play, given for each task, on these seeds."""
        numbers = np.asarray(seeds, np.int64)
        out = np.zeros(len(numbers))
        for place, (config, part) in enumerate(zip(self.configs, parts, strict=True)):
            mine = numbers % len(self.mix) == place
            if mine.any():
                out[mine] = play(config, ComposedPolicy(config, part, "rule"), numbers[mine]).value()
        return out


# -- Fixed rules: the same decision whatever the task is and whatever came back ----------------------------------------

Rule = tuple[str, tuple[Mapping[str, Any], ...]]
"""A name, and for each task what it changes of the known play: the same for all tasks, but for tables by the size of the task."""

_CAPS = (1, 2, 3, 4, 5, 6, 8, 10, 12, 16, 20, 28, 40)
_ROUNDS = (2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192)
_PER_ITEM = (0.0625, 0.125, 0.25, 0.5, 1.0, 2.0)
_NO_CAP = 1_000_000


def _same(name: str, tasks: int, **changes: Any) -> Rule:
    return name, (changes,) * tasks


def fixed_rules(world: SuiteWorld, decision: str) -> list[Rule]:
    """The family of fixed rules for one sub-decision; the others stay as the known play has them."""
    n, configs = len(world.mix), world.configs
    if decision == "spawn":
        most = max(c.max_agents for c in configs)
        rules = [_same(f"spawn {k}", n, spawn=str(k)) for k in range(most + 1)]
        return rules + [_same(f"spawn {share:g} per item", n, spawn=f"{share:g}/item") for share in _PER_ITEM]
    if decision == "delegate":
        ways = ["blind", "cheap", "dear"]
        ways += ["by_type", "by_family"] if any(c.types > 1 for c in configs) else []
        ways += ["others"] if any(c.orchestrator_works for c in configs) else []
        return [_same(way, n, delegate=way) for way in ways]
    if decision == "communicate":
        pairs = [(b, aloud) for b in range(4) for aloud in (False, True)]
        return [_same(f"brief {b}{', broadcast' * aloud}", n, brief=b, broadcast=aloud) for b, aloud in pairs]
    if decision == "aggregate":
        return [_same(rule, n, aggregate=rule) for rule in RULES]
    if decision == "stop":
        rules = [_same(f"{cap} calls an item", n, cap=cap, rounds=0) for cap in _CAPS]
        return rules + [_same(f"{r} rounds", n, cap=_NO_CAP, rounds=r) for r in _ROUNDS]
    raise NotFound(f"no sub-decision {decision!r}", fix=did_you_mean(decision, DECISIONS))


def _by_size(world: SuiteWorld, rules: Sequence[Rule], means: np.ndarray) -> Rule:
    """The best table from the number of items to the number of agents: of each size, the best of "spawn k" on `means`."""
    sizes = np.array([c.items for c in world.configs])
    counts = [i for i, (name, _) in enumerate(rules) if "item" not in name]
    best = {int(size): max(counts, key=lambda i: means[i, sizes == size].mean()) for size in sizes}
    sentence = ", ".join(f"{rules[i][1][0]['spawn']} for {size}" for size, i in sorted(best.items()))
    return f"by items: {sentence}", tuple(rules[best[int(size)]][1][0] for size in sizes)


@dataclass(frozen=True)
class Screened:
    """A sub-decision of a suite world: the known play and the best fixed rule on the same tasks."""

    decision: str
    rule: str
    """The best fixed rule."""
    fixed: np.ndarray
    """Its return on every seed."""
    known: np.ndarray
    """That of the known play."""


_FINALISTS = 2


def screen(world: SuiteWorld, decision: str, seeds: np.ndarray, rehearsal: np.ndarray, known: np.ndarray) -> Screened:
    """The best fixed rule on `seeds`: of the whole family, those that do best in the `rehearsal` play all seeds, and the best of
    them there counts, which favours the fixed rule. `known`: what the known play got on the seeds."""
    tasks = rehearsal % len(world.mix)
    rules, means = fixed_rules(world, decision), []
    for rule in rules:
        got = world.values(_parts(world, rule), rehearsal)
        means.append([got[tasks == t].mean() for t in range(len(world.mix))])
    table = np.array(means)
    last = [rules[i] for i in np.argsort(-table.mean(axis=1), kind="stable")[:_FINALISTS]]
    if decision == "spawn":
        last.append(_by_size(world, rules, table))
    got_all = [world.values(_parts(world, rule), seeds) for rule in last]
    best = int(np.argmax([got.mean() for got in got_all]))
    return Screened(decision, last[best][0], got_all[best], known)


def _parts(world: SuiteWorld, rule: Rule) -> list[Parts]:
    return [replace(known, **changes) for known, changes in zip(world.known, rule[1], strict=True)]


# -- The worlds --------------------------------------------------------------------------------------------------------

_LONG = {"types": 1, "max_rounds": 400, "context_capacity": 4000}
_JOBS = {"node_module_size": 1, "node_cross_edges": 0}
_OLD = {"pool_mean": 2.5, "pool_shape": 1.0, "pool_slots": 16, "pool_calls": 10, "pool_weight": 0.7, "pool_find": (0.2, 0.45)}
_POOLS = {"pool_mean": 12.0, "pool_shape": 2.0, "pool_slots": 48, "pool_calls": 40}
_ALL_B = {"skill_a": (0.95,) * 3, "skill_b": (0.95,) * 3, "misconception_a": (0.75,) * 3, "misconception_b": (0.75,) * 3}
_TRICKS = _ALL_B | {"right_if_misled": 0.05, "max_votes": 6, "round_price": 0.0, "spawn_price": 0.3, "price": (0.02, 0.02)}
_CRITIC = {"topology": "planner_executor_critic", "critic_false_accept": 0.05, "critic_false_reject": 0.1, "critic_price": 0.005}

WIDTH = SuiteWorld(
    "width",
    "24 jobs or 3, urgent and independent, or 24 archives that can wait and that the orchestrator can search itself",
    ("spawn",),
    "project_graph",
    {**_LONG, **_JOBS, **_OLD, "max_agents": 32, "price": (0.05, 0.1), "spawn_price": 1.0, "round_price": 5.4},
    (
        {"node_modules": 24, "node_weight": 2.8},
        {"node_modules": 3, "node_weight": 11.0},
        {"node_modules": 0, "pool_items": 24, "orchestrator_works": True, "round_price": 0.0},
    ),
    (replace(_BEST, spawn="12"), replace(_BEST, spawn="3"), replace(_BEST, spawn="0", brief=2)),
)

CREW = SuiteWorld(
    "crew",
    "pools that family A searches well, chains that family B answers well, each of one of two types of work",
    ("delegate",),
    "wide_discover",
    {
        **_LONG, **_POOLS, "types": 2, "mismatch": 0.3, "max_agents": 16, "price": (0.1, 0.1), "spawn_price": 0.3,
        "round_price": 0.05, "pool_find": (0.12, 0.04), "hop_right": (0.5, 0.95), "chain_hops": 3, "chain_weight": 8.0,
    },
    ({"pool_items": 4, "chain_items": 6},),
    (replace(_BEST, spawn="9"),),
)  # fmt: skip

BRIEFING = SuiteWorld(
    "briefing",
    "words are dear: a search does nearly as well without them, a chain of four hops fails without them",
    ("communicate",),
    "wide_discover",
    {
        **_LONG, **_POOLS, "max_agents": 12, "brief_price": 0.25, "price": (0.1, 0.1), "spawn_price": 0.5, "round_price": 0.0,
        "pool_mean": 16.0, "pool_slots": 64, "pool_find": (0.1, 0.1), "chain_hops": 4, "chain_weight": 14.0, "check_price": 0.3,
    },
    ({"pool_items": 4}, {"pool_items": 0, "chain_items": 6}),
    (_BEST, _BEST),
)  # fmt: skip

_FEW_FINDS = {"pool_mean": 4.0, "pool_shape": 2.0, "pool_slots": 16, "pool_calls": 6, "pool_find": (0.3, 0.3), "pool_items": 2}

CRITIC = SuiteWorld(
    "critic",
    "questions of which three in four mislead everybody (behind a critic the votes that pass are right, without one not), "
    "and two small pools that pay whoever asks",
    ("aggregate",),
    "wide_verify",
    {**_LONG, **_TRICKS, **_FEW_FINDS, "max_agents": 6, "vote_weight": 2.0, "max_votes": 4},
    ({"vote_items": 6, **_CRITIC}, {"vote_items": 8}),
    (replace(_BEST, aggregate="majority"), _BEST),
)

PATIENCE = SuiteWorld(
    "patience",
    "pools of which most are poor and few are rich, or drafts that improve and then rot unseen",
    ("stop",),
    "anytime_draft",
    {
        **_LONG, "max_agents": 12, "price": (0.06, 0.12), "spawn_price": 0.5, "round_price": 0.0, "pool_mean": 12.0,
        "pool_shape": 0.3, "pool_slots": 96, "pool_calls": 40, "draft_gain": (0.3, 0.6),
    },
    ({"draft_items": 0, "pool_items": 8, "price": (0.2, 0.4)}, {"draft_items": 8}),
    (_BEST, _BEST),
)  # fmt: skip

CAMPAIGN = SuiteWorld(
    "campaign",
    "ten items each time: urgent jobs for family A; patient pools for A and drafts for B, of two types; trick questions with a "
    "critic, and without, beside pools",
    ("delegate", "communicate", "aggregate", "stop"),
    "mixture",
    {
        **_LONG, **_JOBS, **_TRICKS, "drift": (0.0, 0.0), "max_agents": 16, "vote_items": 0, "pool_items": 0, "draft_items": 0,
        "chain_items": 0, "node_modules": 0, "price": (0.05, 0.1), "spawn_price": 1.2, "brief_price": 0.25,
        "brief_factor": (0.3, 0.6, 1.0, 0.9), "node_right": (0.95, 0.5), "pool_find": (0.3, 0.06), "pool_mean": 7.5,
        "pool_shape": 0.5, "pool_slots": 32, "pool_calls": 12, "draft_gain": (0.1, 0.6), "draft_calls": 10, "max_votes": 5,
    },
    (
        {"node_modules": 10, "node_weight": 6.5, "round_price": 2.8},
        {"pool_items": 7, "draft_items": 3, "types": 2, "pool_weight": 1.45, "draft_weight": 4.0, "mismatch": 0.2},
        {"vote_items": 7, "pool_items": 3, "vote_weight": 7.0, "pool_weight": 1.1, **_CRITIC},
        {"vote_items": 7, "pool_items": 3, "vote_weight": 10.0, "pool_weight": 0.8},
    ),
    (
        replace(_BEST, spawn="5"), replace(_BEST, spawn="7"), replace(_BEST, spawn="1", aggregate="majority"),
        replace(_BEST, spawn="1"),
    ),
)  # fmt: skip

ERRANDS = SuiteWorld(
    "errands",
    "24 jobs or 3, urgent and independent, or 24 short chains that can wait and that the orchestrator can do itself",
    ("spawn",),
    "project_graph",
    {
        **_LONG, **_JOBS, "max_agents": 32, "price": (0.05, 0.1), "spawn_price": 1.0, "round_price": 6.0, "chain_hops": 2,
        "chain_weight": 1.5,
    },
    (
        {"node_modules": 24, "node_weight": 2.9},
        {"node_modules": 3, "node_weight": 12.0},
        {"node_modules": 0, "chain_items": 24, "orchestrator_works": True, "round_price": 0.0},
    ),
    (_BEST, _BEST, _BEST),
)  # fmt: skip

FAMILIES = replace(
    CREW, name="families", about="as crew, with one type of work: only the family matters", set={**CREW.set, "types": 1},
    known=(_BEST,),
)  # fmt: skip
TERSE = replace(
    BRIEFING, name="terse", about="as briefing: a short brief tells more, and words cost less",
    set={**BRIEFING.set, "brief_price": 0.15, "brief_factor": (0.7, 0.8, 1.0, 1.0), "chain_weight": 12.0},
)  # fmt: skip
LAX_CRITIC = replace(
    CRITIC, name="lax_critic", about="as critic, with a critic that passes one wrong vote in eight",
    mix=({"vote_items": 6, **_CRITIC, "critic_false_accept": 0.125}, {"vote_items": 8}),
)  # fmt: skip
DRAFTS = replace(
    PATIENCE, name="drafts", about="drafts alone, and dearer calls",
    mix=({"draft_items": 8, "price": (0.1, 0.2)},), known=(_BEST,),
)  # fmt: skip
POOLS = replace(
    PATIENCE, name="pools", about="pools alone, and cheaper calls",
    mix=({"draft_items": 0, "pool_items": 8, "price": (0.15, 0.3)},), known=(_BEST,),
)  # fmt: skip

_CORE = (WIDTH, CREW, BRIEFING, CRITIC, PATIENCE, CAMPAIGN)
SUITES: dict[str, tuple[SuiteWorld, ...]] = {
    "core": _CORE,
    "full": (*_CORE, ERRANDS, FAMILIES, TERSE, LAX_CRITIC, DRAFTS, POOLS),
}
"""Suites by name: `core` for hours, `full` for days, of all methods. Worlds that nobody chose: `random_worlds`."""


def suite_worlds() -> dict[str, SuiteWorld]:
    """Every world of the suites by its name."""
    return {world.name: world for worlds in SUITES.values() for world in worlds}
