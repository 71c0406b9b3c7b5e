"""The learner's whole state, and one update of it: what a run repeats until its budget is spent.

Always true: an update is a function of (settings, state, what was played); the state goes into a checkpoint whole, so a run
that resumes gives the same numbers as one that never stopped. Budgets are charged for every worker call and every round, those
of forks and trials included, and at least 1 per episode: every run spends its budget.
"""

from __future__ import annotations

import inspect
import io
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy._core import multiarray

import counterpoint.registry as registry
from counterpoint.errors import InputError
from counterpoint.lab.train import options
from counterpoint.lab.train import row_credit as assign
from counterpoint.lab.train.critics import fit, teach_workers, worker_advantages
from counterpoint.lab.train.folder import FORMAT, charged, check_format
from counterpoint.lab.train.jobs import WORK, one_core, world_of
from counterpoint.lab.train.learner import EXTRA, Balancer, log_probs
from counterpoint.lab.train.loss import Loss
from counterpoint.lab.train.policies.choices import heads_of
from counterpoint.lab.train.policies.network import Network
from counterpoint.lab.train.preset import Preset, named_preset
from counterpoint.lab.train.returns import lesson, measure, row_advantages
from counterpoint.lab.train.rollouts import Rollout, TracedRollout, branch_salts, merge_rollouts
from counterpoint.lab.train.runner import Job
from counterpoint.lab.train.settings import Settings
from counterpoint.lab.train.spawn_critic import SpawnCritic
from counterpoint.lab.train.spawn_head import SpawnGradient
from counterpoint.lab.train.staleness import correct
from counterpoint.lab.train.trials import Room, Trials, room_of, try_teams
from counterpoint.lab.worlds.teamworld.config import Config
from counterpoint.trace import Trace
from counterpoint.trace.rows import Credit

_KEPT = (
    *("x", "choice", "calls_to_go", "brief", "agent", "worth", "agent_x", "pair_x"),
    *("mask", "ep", "round", "item", "reward", "time", "chain", "order"),
)
_KEPT_CALLS = 12
"""Calls for which an item that may not be left is held; with more, idle calls drown what is learned."""


class Adam(torch.optim.Adam):
    """Torch's own Adam without the wrappers that load torch's compiler: two seconds at the start of every process."""

    step = torch.no_grad()(inspect.unwrap(torch.optim.Adam.step))
    add_param_group = inspect.unwrap(torch.optim.Optimizer.add_param_group)
    zero_grad = inspect.unwrap(torch.optim.Optimizer.zero_grad)
    state_dict = inspect.unwrap(torch.optim.Optimizer.state_dict)
    load_state_dict = inspect.unwrap(torch.optim.Optimizer.load_state_dict)


class Training:
    """A network, its optimizers, and what was spent."""

    def __init__(self, settings: Settings, *, loss: Loss | None = None) -> None:
        """`loss`: learn by this one, and not by the one that the preset names."""
        self.settings = settings
        self.preset: Preset = named_preset(settings.preset).changed(settings.change)
        assign.check(self.preset)
        self.loss: Loss = registry.get("loss", self.preset.loss_name) if loss is None else loss
        self.loss_options = self.loss.resolved(self.preset.loss[self.preset.loss_name] if loss is None else {})
        self._clone: Loss = registry.get("loss", "clone")
        self.worlds = [world_of(settings.world, v) for v in settings.variants()]
        for world in self.worlds:
            if options.has_own_rules(world):
                options.refuse_preset(self.preset, settings.preset, world)
            else:
                self.preset.refuse(world.config, settings.preset)
        self.own_rules = options.has_own_rules(self.worlds[0])
        """Whether the world asks decisions, and is no TeamWorld."""
        settings.check_device()
        one_core()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(settings.seed)
            heads = [self._heads(world) for world in self.worlds]
            if any(h != heads[0] for h in heads):
                raise InputError("the variants of the run have other choices", fix="the same acts, opponent and proposer in all")
            # a fixed team's gates are open at the start of an episode and closed later
            gate = 3.0 if self.preset.fixed_team else 0.0
            self.net = Network(apart=self.preset.regime == "C", gate=gate, extra=heads[0])
            self.module: torch.nn.Module | None = None if self.loss.module is None else self.loss.module()
        spawn = [self.net.gate.weight, self.net.gate.bias, self.net.size.weight, self.net.size.bias, self.net.log_scale]
        own: set[int] = {id(p) for p in spawn}
        rest: list[torch.nn.Parameter] = [p for p in self.net.policy_parameters() if id(p) not in own]
        rest += list(self.module.parameters()) if self.module is not None else []
        groups: list[dict[str, Any]] = [{"params": rest}, {"params": spawn}]
        self.policy: torch.optim.Optimizer = Adam(groups, fused=True)
        self.critic: torch.optim.Optimizer = Adam(self.net.critic_parameters(), fused=True)
        self.mean = {k: v.clone() for k, v in self.net.state_dict().items()}
        """A running mean of the weights: what plays when it counts."""
        self.credit: Credit | None = None
        """What the advantages of the last update rest on, where it was judged on traces."""
        self.spawning, self.teams = SpawnGradient(), SpawnCritic()
        self.trials, self._balancer = Trials(), Balancer()
        roles = 1 if self.own_rules else max(2 * world.config.types for world in self.worlds)
        self.scaffolds = assign.Scaffolds(self.preset, roles)
        self.baselines: dict[str, float] = {}
        """Running means that a credit mechanism goes on from, by group."""
        self.update = 0
        self.totals = {"episodes": 0, "forks": 0, "calls": 0, "decisions": 0, "charged": 0}
        self.recent: list[Rollout] = []
        self.past: dict[int, dict[str, np.ndarray]] = {}
        """Weights of the last versions, which jobs that are under way may need again after a resume."""

    def _heads(self, world: Any) -> dict[str, int]:
        """What the network has beside TeamWorld's heads."""
        if self.own_rules:
            return options.heads(options.sizes_of(world))
        return heads_of(world.config, workers=self.preset.regime in "BC")

    # -- how far

    @property
    def progress(self) -> float:
        """0 at the start, 1 when the budget or the updates are used up."""
        s = self.settings
        if self.trials.is_over:
            return 1.0
        by_budget = self.totals["charged"] / s.budget_calls if s.budget_calls else 0.0
        by_updates = self.update / s.updates if s.updates else 0.0
        return min(1.0, max(by_budget, by_updates))

    @property
    def is_done(self) -> bool:
        """Nothing is left to spend."""
        return self.progress >= 1.0

    @property
    def is_sized(self) -> bool:
        """Whether the sizes of teams are set by trials from now on."""
        return bool(self.trials.seen)

    def rng(self, purpose: int, update: int | None = None) -> np.random.Generator:
        """Randomness of an update; it has no state."""
        return np.random.default_rng([self.settings.seed, self.update if update is None else update, purpose])

    # -- playing

    def weights(self) -> dict[str, np.ndarray]:
        """The network as arrays."""
        return {k: v.numpy().copy() for k, v in self.net.state_dict().items()}

    def episodes(self, update: int = 0) -> int:
        """Of an update: a run's own number, or the preset's, which may widen."""
        n = self.preset.episodes_of(self.settings.episodes)
        first, times = self.preset.widens
        return n * times if times and not self.settings.episodes and update >= first else n

    def jobs_per_update(self) -> int:
        """Jobs into which an update's episodes are cut; groups stay whole."""
        parts = 1 if self.settings.runner == "here" else self.settings.workers
        return max(1, min(parts, self.episodes() // self.preset.group))

    def job(self, number: int, version: int, weights: dict[str, np.ndarray]) -> Job:
        """The job of a launch number; seeds of training are never those of evaluation."""
        parts = self.jobs_per_update()
        update, part = divmod(number, parts)
        p, group = self.preset, self.preset.group
        variants = self.settings.variants()
        changes = variants[update % len(variants)]
        groups = np.array_split(np.arange(self.episodes(update) // group), parts)[part]
        start = 1_000_000 + (self.settings.seed % 100_000) * 10_000_000 + update * 1_000
        seeds = np.repeat(start + groups, group)
        salts = np.arange(len(seeds)) + 1 + int(groups[0]) * group
        payload: dict[str, Any] = {
            "world": self.settings.world,
            "set": changes,
            "seeds": seeds,
            "salts": salts,
            "apart": p.regime == "C",
            "log": p.logs,
            "goes_on": p.goes_on,
            "name": f"{self.settings.preset}-{update}",
            "workers": p.regime in "BC",
        }
        mine = slice(int(groups[0]) * group, int(groups[0]) * group + len(seeds))
        payload |= {name: whole[mine] for name, whole in self._forced(update).items()}
        if p.tree:
            payload["salts_ET"] = branch_salts(salts, p.tree, self.rng(3000, update), len(seeds) // group, int(groups[0]))
        return Job(work=WORK, payload=payload, version=version, weights=weights)

    def _forced(self, update: int) -> dict[str, np.ndarray]:
        """What is done in an update's episodes whatever the policy wants: spawn arms, items that are not left or are tried."""
        p, n, config = self.preset, self.episodes(update), self.worlds[update % len(self.worlds)].config
        out: dict[str, np.ndarray] = {}
        fading = 1 / (1 + update / 20)
        if p.keeps:
            is_kept = self.rng(2000, update).random((n, config.items)) < p.keeps * fading
            out["keeps"] = np.where(is_kept, _KEPT_CALLS, 0)
        roles = 0 if self.own_rules else 2 * config.types
        if p.forks or p.tries:
            out["gate"] = np.full((n, roles), -1)
        if p.forks:
            rng = self.rng(1000, update)
            forced = np.flatnonzero(rng.random(n) < p.forks)
            out["gate"][forced, rng.integers(0, roles, len(forced))] = rng.integers(0, 2, len(forced))
        if p.tries:  # all episodes of a task alike, so that their teams are compared under one rule
            rng, share = self.rng(4000, update), p.tries * fading
            out["tries"] = np.repeat(rng.random(n // p.group) < share, p.group)
            sized = np.flatnonzero(out["tries"] & (rng.random(n) < 0.5))  # in half of them a team of whatever size is tried, too
            out["sizes"], role = np.full((n, roles), np.nan), rng.integers(0, roles, len(sized))
            out["gate"][sized, role] = 1
            out["sizes"][sized, role] = np.log(config.max_agents) * rng.random(len(sized))
        return out

    # -- learning

    @property
    def is_cloning(self) -> bool:
        """Whether the next update makes recorded decisions likely, whatever they were worth."""
        return self.loss is self._clone or (bool(self.settings.store) and self.update < self.settings.clone)

    def learn(self, played: Sequence[TracedRollout], *, stale: int = 0, recorded: bool = False) -> dict[str, Any]:
        """One update from what was played, or was `recorded` by whatever policy; the row of metrics."""
        out = merge_rollouts([p.rollout for p in played])
        traces = [t for p in played for t in p.traces]
        self._rates()
        stats: dict[str, Any] = {"ess": 1.0}
        step = self._gate(out, stats) if (stale or recorded) and not self.is_cloning else 1.0
        if step > 0 and (self.own_rules or ("item" in out.tables and "stop" in out.tables)):
            for group in (*self.policy.param_groups, *self.critic.param_groups):
                group["lr"] *= step
            if self.is_cloning:
                stats |= self._clone.learn(self, self._clone.resolved(self._clone_options()), out, traces)
            else:
                stats |= self.loss.learn(self, self.loss_options, out, traces)
        forced = out.tables.get("spawn", {}).get("forced", np.zeros(0, np.bool_))
        forks = len(np.unique(out.tables["spawn"]["ep"][forced])) if forced.any() else 0
        self._average()
        self.update += 1
        paid = {} if recorded else {"calls": out.calls, "charged": out.charged}  # else somebody has paid for them before
        self._spend({"episodes": len(out.values), "forks": forks, "decisions": out.decisions, **paid})
        if not recorded:
            self._try()
        return self._row(out, stats)

    def _try(self) -> None:
        """Now and then in the second half of a run, and at its end, trials within what is left of the budget."""
        every, trials, budget = self.preset.trial_every, self.trials, self.settings.budget_calls
        if not every or self.update < every:
            return
        room = room_of(budget, self.totals, trials.tasks)
        is_last = self.is_done or bool(budget and self.totals["charged"] + room.expected >= budget)
        is_due = self.update >= 4 * every and self.progress >= 0.5 and self.update % every == 0
        if is_last or is_due:
            trials.tasks = room.tasks
            self._spend(self._try_teams(room))
            self._spend(trials.hold(self._of(self.mean), self.worlds, self.settings.seed, self.update))
            trials.is_over = is_last

    def _try_teams(self, room: Room) -> dict[str, int]:
        """Teams of the mean network, and of the newest one with it, by trials; what that spent."""
        net = self._of(self.mean)
        before = {name: value.clone() for name, value in net.state_dict().items() if name.startswith(("gate.", "size.", "stop."))}
        dearest = max((_dearest(out) for out in self.recent), default=0.0)
        spent = try_teams(
            net, self.worlds, self.settings.seed, self.progress, tasks=room.tasks, most=room.most, dearest=dearest
        )  # fmt: skip
        with torch.no_grad():
            now, newest = net.state_dict(), self.net.state_dict()
            for name, old in before.items():
                self.mean[name] += now[name] - old
                newest[name] += now[name] - old
        return spent

    def _clone_options(self) -> Mapping[str, Any]:
        return self.preset.loss.get("clone", {})

    def _spend(self, added: Mapping[str, int]) -> None:
        self.totals = {k: v + added.get(k, 0) for k, v in self.totals.items()}

    def _rates(self) -> None:
        left = max(0.1, 1 - self.progress)
        self.policy.param_groups[0]["lr"] = self.preset.rates["policy"] * left
        self.policy.param_groups[1]["lr"] = self.preset.rates["spawn"] * left
        self.critic.param_groups[0]["lr"] = self.preset.rates["critic"] * max(0.2, left)

    def _average(self) -> None:
        share = max(1 / (self.update + 1), 1 - self.preset.averaging)
        for name, value in self.net.state_dict().items():
            self.mean[name] += share * (value - self.mean[name])

    def player(self) -> Network:
        """The network that evaluations and users play with: the mean of the last ones; when all is spent, the best tried."""
        return self._of(self.trials.best if self.is_done and self.trials.best is not None else self.mean)

    def _of(self, weights: Mapping[str, torch.Tensor]) -> Network:
        return Network.of(weights, apart=self.preset.regime == "C")

    def _gate(self, out: Rollout, stats: dict[str, Any]) -> float:
        """What is left of the step for rollouts of older weights (ESS gate)."""
        with torch.no_grad():
            now = log_probs(self.net, out.tables)[0]
        judged = [n for n in ("item", "stop", "rule", "spawn", "worker", *EXTRA) if n in now]
        pairs = [(now[n].numpy().reshape(-1), out.tables[n]["logp"].reshape(-1)) for n in judged]
        new, old = (np.concatenate(c) for c in zip(*pairs, strict=True))
        found = correct(new, old, old)
        stats["ess"] = found.ess_share
        return found.step

    def advantages(self, out: Rollout, traces: Sequence[Trace]) -> tuple[dict[str, np.ndarray], dict[str, float]]:
        """Advantages of the preset's credit by decision type; critics are fitted first, hardly where it does not rest on them."""
        stats = self.fit_critics(out) if assign.needs_critic(self.preset) else self.fit_critics(out, keep=1, steps=4)
        if self.preset.uses_traces:
            weights = self.scaffolds.weights()
            told = assign.assigned(
                self.preset, out, traces, self.net, progress=self.progress, weights=weights, baselines=self.baselines
            )
            self.credit, lacks = told.credit, told.uncovered
            # what no credit covers at all does not learn: an entropy bonus alone would make it random
            found = {name: a for name, a in told.advantages.items() if len(a) > lacks.get(name, 0)}
            self.baselines = told.credit.notes.get("baselines", self.baselines)
            self._spend(told.spent)
            self.scaffolds.update(out, told.primary)
        else:
            rows = lesson(self.net, out)
            found = {} if rows is None else row_advantages(self.net, out, rows)
            if found and "act" in out.tables:
                found["act"] = found["point"][out.tables["act"]["row"]]
        stats |= self.teach_workers(out, found)
        learning = self.preset.learning(self.update)
        return {name: a for name, a in found.items() if self.own_rules or name in learning}, stats

    def outcomes(self, out: Rollout, traces: Sequence[Trace]) -> np.ndarray:
        """(E,) what the preset's rewards pay the team for each episode."""
        return assign.outcomes(self.preset, out, traces, progress=self.progress)

    def balancer(self, out: Rollout, traces: Sequence[Trace]) -> Balancer | None:
        """With balance "gradient": what follows each reward's own gradient; else None."""
        if self.preset.balance != "gradient":
            return None
        self._balancer.advantages = assign.by_reward(self.preset, out, traces, self.net, progress=self.progress)
        return self._balancer

    def teach_workers(self, out: Rollout, advantages: dict[str, np.ndarray]) -> dict[str, float]:
        """Advantages of the sub-agents where they learn: what their calls got (B), their own R2 (C); given ones are kept."""
        if "worker" not in out.tables or "point" not in advantages or "worker" in advantages:
            return {}
        if self.preset.regime == "B" and self.preset.uses_traces:  # the mechanism has its own baselines
            advantages["worker"] = worker_advantages(out, left=advantages["point"])
            return {}
        left = advantages["point"] if self.preset.regime == "B" else None
        advantages["worker"], stats = teach_workers(self.net, self.critic, out, self.rng(5), left=left)
        return stats

    def fit_critics(self, out: Rollout, *, keep: int = 96, lam: float = 0.95, steps: int = 16) -> dict[str, float]:
        """Fit the critics on the last rollouts, as many as have `keep` episodes in all and at least one of every sort of task:
        critics that see one sort only forget the others, and then leave all their items."""
        if self.own_rules:
            return options.fit_values(self.net, self.critic, out, self.rng(0), steps=2 * steps)
        measure(self.net, out)
        self.recent.append(_trim(out))
        while len(self.recent) > len(self.worlds) and sum(len(r.values) for r in self.recent) > keep:
            self.recent.pop(0)
        lessons = [x for x in (lesson(self.net, r, lam=lam) for r in self.recent) if x is not None]
        return fit(
            self.net, self.critic, lessons, self.rng(0), steps=steps * (2 if self.update < 6 else 1), sees=self.preset.sees
        )

    def _row(self, out: Rollout, stats: dict[str, Any]) -> dict[str, Any]:
        """One row of metrics."""
        entropy = {k[8:]: v for k, v in stats.items() if k.startswith("entropy_")}
        kl = [v for k, v in stats.items() if k.startswith("kl_")]
        critics = {k[7:]: v for k, v in stats.items() if k.startswith("critic_")}
        named = {
            "agents": "agents",
            "rounds": "rounds",
            "calls_per_episode": "calls",
            "R1": "quality",
            "messages": "cost_messages",
        }
        mean = {k: float(out.columns[c].mean()) for k, c in named.items()}
        spread = float(out.values.std(ddof=1) / np.sqrt(len(out.values))) if len(out.values) > 1 else 0.0
        return {
            "update": self.update,
            **self.totals,
            "reward": float(out.values.mean()),
            "reward_se": spread,
            **mean,
            "kl": float(np.mean(kl)) if kl else 0.0,
            "entropy": entropy,
            "critics": critics,
            "ess": stats["ess"],
            "loss": stats.get("loss", 0.0),
            "lr": self.policy.param_groups[0]["lr"],
            "tau": stats.get("tau"),
            **({"weights": weights} if (weights := self._weights()) else {}),
        }

    def _weights(self) -> dict[str, float]:
        """Weights of rewards that are not a function of time alone: set by an indicator, or by gradients in the last step."""
        return self.scaffolds.weights() | dict(zip(self.preset.reward, self._balancer.weights, strict=False))

    # -- rest

    def state(self) -> bytes:
        """The whole state, for a checkpoint."""
        return checkpoint_bytes({
            "format": FORMAT,
            "settings": self.settings.as_dict(),
            "update": self.update,
            "totals": self.totals,
            "net": self.net.state_dict(),
            "mixer": None if self.module is None else self.module.state_dict(),
            "mean": self.mean,
            "policy": self.policy.state_dict(),
            "critic": self.critic.state_dict(),
            "recent": self.recent,
            "past": self.past,
            "spawning": self.spawning.state(),
            "teams": self.teams.state(),
            "trials": self.trials.state(),
            "scaffolds": self.scaffolds.state(),
            "balancer": self._balancer.state(),
            "baselines": self.baselines,
        })  # fmt: skip

    def restore(self, data: bytes, where: str) -> None:
        """Go on from a checkpoint."""
        held = read_checkpoint(data, where)
        check_format(held.get("format"), where)
        mine = self.settings.as_dict()
        then = {"change": {}, **held["settings"]}  # runs of older versions change nothing
        differ = [k for k in ("preset", "world", "change", "set", "mix", "seed") if then.get(k) != mine[k]]
        if differ:
            said = f"the checkpoint was written with other settings: {', '.join(differ)}"
            raise InputError(said, where=where, fix="resume with the run's own run.toml")
        self.net.load_state_dict(held["net"])
        if self.module is not None and held["mixer"] is not None:  # None: begun by a version whose loss had nothing to keep
            self.module.load_state_dict(held["mixer"])
        self.mean = held["mean"]
        self.policy.load_state_dict(held["policy"])
        self.critic.load_state_dict(held["critic"])
        self.spawning.restore(held["spawning"])
        self.teams.restore(held.get("teams", {}))
        self.trials.restore(held["trials"])
        self.scaffolds.restore(held.get("scaffolds", {}))  # older versions had neither
        self._balancer.restore(held.get("balancer", {}))
        self.baselines = dict(held.get("baselines", {}))
        self.totals = {**held["totals"], "charged": charged(held["totals"])}
        self.update, self.recent, self.past = held["update"], held["recent"], held["past"]


def _dearest(out: Rollout) -> float:
    """The most that an episode of a rollout was charged, about."""
    t = out.tables["item"]
    return float(np.bincount(t["ep"][t["agent"] >= 0], minlength=1).max() + len(out.value_TE))


def _trim(out: Rollout) -> Rollout:
    """A rollout with what the critics read."""
    tables = {n: t for n, t in out.tables.items() if n in ("stop", "rule", "spawn")}
    tables["item"] = {k: out.tables["item"][k] for k in _KEPT}
    return Rollout(out.config, out.seeds, out.salts, tables, out.value_TE, out.values, {}, extra=out.extra)


_TYPES = {type(np.dtype(t)) for t in ("f4", "f8", "i1", "i2", "i4", "i8", "u1", "u8", "?")}
_SAFE: list[Any] = [Rollout, Config, np.ndarray, np.dtype, multiarray._reconstruct, multiarray.scalar, *_TYPES]


def checkpoint_bytes(held: Mapping[str, Any]) -> bytes:
    """The bytes of a checkpoint."""
    into = io.BytesIO()
    torch.save(dict(held), into)
    return into.getvalue()


def read_checkpoint(data: bytes, where: str) -> dict[str, Any]:
    """What `checkpoint_bytes` was given, read without running anything that stands in it.

    Only tensors, numbers, texts, arrays and the two records in `_SAFE` come out of a file; a pickle that asks for anything else
    is refused before it is carried out, so that the run folder of a stranger can be looked at.
    """
    try:
        with torch.serialization.safe_globals(_SAFE):
            held: dict[str, Any] = torch.load(io.BytesIO(data), weights_only=True)
    except Exception as error:
        why = str(error).splitlines()[0][:200]
        raise InputError("not a checkpoint, or a broken one", where=where, why=why, fix="an older one of the run") from error
    return held
