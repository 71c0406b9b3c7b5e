"""The learner's whole state, and one update of it: what a run repeats until its budget is spent.

Always true: an update is a function of (settings, state, what was played); the state goes into a checkpoint whole, so a run
that resumes gives the same numbers as one that never stopped. Budgets count every worker call, those of forks included.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

from counterpoint.errors import InputError
from counterpoint.train import assign, checkpoint, mixing, soft
from counterpoint.train.folder import FORMAT, check_format
from counterpoint.train.jobs import WORK, Played, one_core, world_of
from counterpoint.train.learner import Options, log_probs, update
from counterpoint.train.policies import workers
from counterpoint.train.policies.network import Network
from counterpoint.train.preset import Preset, named_preset
from counterpoint.train.returns import lesson, measure, row_advantages
from counterpoint.train.rollouts import Rollout, merged
from counterpoint.train.runner import Job
from counterpoint.train.settings import Settings
from counterpoint.train.spawn_gradient import SpawnGradient
from counterpoint.train.staleness import correct
from counterpoint.train.trials import Trials

_KEPT = (
    *("x", "choice", "calls_to_go", "brief", "agent", "worth", "agent_x", "pair_x"),
    *("mask", "ep", "round", "item", "reward", "chain", "order"),
)
_SOFT = {
    "tau_from": 0.3,
    "tau_to": 0.03,
    "keep": 192,
    "lam": 0.9,
    "steps": 48,
    "entropy": 0.005,
    "spread_from": 0.6,
    "spread_to": 0.15,
}


class Training:
    """A network, its optimizers, and what was spent."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.preset: Preset = named_preset(settings.preset)
        assign.check(self.preset)
        self.worlds = [world_of(settings.world, v) for v in settings.variants()]
        for world in self.worlds:
            self.preset.refuse(world.config, settings.preset)
        settings.check_device()
        one_core()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(settings.seed)
            self.net = Network(apart=self.preset.regime == "C")
            self.mixer = mixing.Mixer() if self.preset.loss_name == "td" else None
        spawn = [self.net.gate.weight, self.net.gate.bias, self.net.size.weight, self.net.size.bias, self.net.log_scale]
        own: set[int] = {id(p) for p in spawn}
        rest: list[torch.nn.Parameter] = [p for p in self.net.policy_parameters() if id(p) not in own]
        rest += list(self.mixer.parameters()) if self.mixer is not None else []
        groups: list[dict[str, Any]] = [{"params": rest}, {"params": spawn}]
        self.policy = torch.optim.Adam(groups, fused=True)
        self.critic = torch.optim.Adam(self.net.critic_parameters(), fused=True)
        self.mean = {k: v.clone() for k, v in self.net.state_dict().items()}
        """A running mean of the weights: what plays when it counts."""
        self.spawning, self.trials = SpawnGradient(), Trials()
        self.update = 0
        self.totals = {"episodes": 0, "forks": 0, "calls": 0, "decisions": 0}
        self.recent: list[Rollout] = []
        self.past: dict[int, dict[str, np.ndarray]] = {}
        """Weights of the last versions, which jobs that are under way may need again after a resume."""

    # -- how far

    @property
    def progress(self) -> float:
        """0 at the start, 1 when the budget or the updates are used up."""
        s = self.settings
        by_calls = self.totals["calls"] / s.budget_calls if s.budget_calls else 0.0
        by_updates = self.update / s.updates if s.updates else 0.0
        return min(1.0, max(by_calls, by_updates))

    @property
    def is_done(self) -> bool:
        """Nothing is left to spend."""
        return self.progress >= 1.0

    def rng(self, purpose: int, update: int | None = None) -> np.random.Generator:
        """Randomness of an update; it has no state."""
        return np.random.default_rng([self.settings.seed, self.update if update is None else update, purpose])

    # -- playing

    def weights(self) -> dict[str, np.ndarray]:
        """The network as arrays."""
        return {k: v.numpy().copy() for k, v in self.net.state_dict().items()}

    def episodes(self, update: int = 0) -> int:
        """Of an update: a run's own number, or the preset's, which may widen."""
        n = self.settings.episodes or self.preset.episodes
        if n % self.preset.group:
            raise InputError(f"{n} episodes do not make groups of {self.preset.group}", fix=f"a multiple of {self.preset.group}")
        first, times = self.preset.widens
        return n * times if times and not self.settings.episodes and update >= first else n

    def jobs_per_update(self) -> int:
        """Jobs into which an update's episodes are cut; groups stay whole."""
        parts = self.settings.workers if self.settings.runner == "processes" else 1
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
            "log": p.uses_traces,
            "goes_on": p.goes_on,
            "name": f"{self.settings.preset}-{update}",
            "workers": p.regime in "BC",
        }
        mine = slice(int(groups[0]) * group, int(groups[0]) * group + len(seeds))
        payload |= {name: whole[mine] for name, whole in self._forced(update).items()}
        return Job(work=WORK, payload=payload, version=version, weights=weights)

    def _forced(self, update: int) -> dict[str, np.ndarray]:
        """What is done in an update's episodes whatever the policy wants: spawn arms, and items that are not left."""
        p, n, config = self.preset, self.episodes(update), self.worlds[update % len(self.worlds)].config
        out: dict[str, np.ndarray] = {}
        if p.keeps:
            out["keeps"] = self.rng(2000, update).random((n, config.items)) < p.keeps / (1 + update / 20)
        if p.forks:
            rng, roles = self.rng(1000, update), 2 * config.types
            out["gate"] = np.full((n, roles), -1)
            forced = np.flatnonzero(rng.random(n) < p.forks)
            out["gate"][forced, rng.integers(0, roles, len(forced))] = rng.integers(0, 2, len(forced))
        return out

    # -- learning

    def learn(self, played: Sequence[Played], *, stale: int = 0) -> dict[str, Any]:
        """One update from what was played; the row of metrics."""
        out = merged([p.rollout for p in played])
        traces = [t for p in played for t in p.traces]
        self._rates()
        stats: dict[str, Any] = {"ess": 1.0}
        step = self._gate(out, stats) if stale else 1.0
        if step > 0 and "item" in out.tables and "stop" in out.tables:
            for group in (*self.policy.param_groups, *self.critic.param_groups):
                group["lr"] *= step
            stats |= getattr(self, f"_{self.preset.loss_name}")(out, traces)
        forced = out.tables.get("spawn", {}).get("forced", np.zeros(0, np.bool_))
        forks = len(np.unique(out.tables["spawn"]["ep"][forced])) if forced.any() else 0
        self._average()
        self.update += 1
        self._spend({"episodes": len(out.values), "forks": forks, "calls": out.calls, "decisions": out.decisions})
        every = self.preset.trial_every
        if every and self.update >= 4 * every and (self.is_done or (self.progress >= 0.5 and self.update % every == 0)):
            self._spend(self.trials.hold(self._of(self.mean), self.worlds, self.settings.seed, self.update))
        return self._row(out, stats)

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
        net = Network(apart=self.preset.regime == "C")
        net.load_state_dict(weights)
        return net

    def _gate(self, out: Rollout, stats: dict[str, Any]) -> float:
        """What is left of the step for rollouts of older weights (ESS gate)."""
        with torch.no_grad():
            now = log_probs(self.net, out.tables)[0]
        judged = [n for n in ("item", "stop", "rule", "spawn", "worker") if n in now]
        pairs = [(now[n].numpy().reshape(-1), out.tables[n]["logp"].reshape(-1)) for n in judged]
        new, old = (np.concatenate(c) for c in zip(*pairs, strict=True))
        found = correct(new, old, old)
        stats["ess"] = found.ess_share
        return found.step

    def _clip(self, out: Rollout, traces: list[Any]) -> dict[str, float]:
        """Clipped steps on advantages of the preset's credit mechanism."""
        given = dict(next(iter(self.preset.loss.values())))
        bonus = given.pop("entropy", Options.entropy) * (1 - self.progress)
        stats = self._critics(out) if assign.needs_critic(self.preset) else self._critics(out, keep=1, steps=4)
        if self.preset.uses_traces:
            advantages = assign.advantages(self.preset, out, traces, self.net, progress=self.progress)
        else:
            taught = lesson(self.net, out)
            advantages = {} if taught is None else row_advantages(self.net, out, taught)
        stats |= self._workers(out, advantages)
        stats |= update(
            self.net, self.policy, out.tables, advantages, len(out.values), Options(entropy=bonus, **given), self.rng(1)
        )
        return stats

    def _reinforce(self, out: Rollout, traces: list[Any]) -> dict[str, float]:
        """One plain policy-gradient step: the first step of the clipped loss, at which every ratio is 1."""
        given = dict(next(iter(self.preset.loss.values())))
        bonus = given.pop("entropy", Options.entropy) * (1 - self.progress)
        stats = self._critics(out) if assign.needs_critic(self.preset) else self._critics(out, keep=1, steps=4)
        advantages = assign.advantages(self.preset, out, traces, self.net, progress=self.progress)
        stats |= self._workers(out, advantages)
        options = Options(entropy=bonus, **{"epochs": 1, "parts": 1, **given})
        return stats | update(self.net, self.policy, out.tables, advantages, len(out.values), options, self.rng(1))

    def _workers(self, out: Rollout, advantages: dict[str, np.ndarray]) -> dict[str, float]:
        """Advantages of the sub-agents where they learn: what their calls got (B), their own R2 (C); given ones are kept."""
        if "worker" not in out.tables or not advantages or "worker" in advantages:
            return {}
        if self.preset.regime == "B" and self.preset.uses_traces:  # the mechanism has its own baselines
            advantages["worker"] = workers.worker_advantages(out, left=advantages["point"])
            return {}
        left = advantages["point"] if self.preset.regime == "B" else None
        advantages["worker"], stats = workers.taught(self.net, self.critic, out, self.rng(5), left=left)
        return stats

    def _critics(self, out: Rollout, *, keep: int = 96, lam: float = 0.95, steps: int = 16) -> dict[str, float]:
        """Fit the critics on the last rollouts, as many as have `keep` episodes in all and at least the newest."""
        measure(self.net, out)
        self.recent.append(_trimmed(out))
        while len(self.recent) > 1 and sum(len(r.values) for r in self.recent) > keep:
            self.recent.pop(0)
        lessons = [x for x in (lesson(self.net, r, lam=lam) for r in self.recent) if x is not None]
        return soft.fit(self.net, self.critic, lessons, self.rng(0), steps=steps * (2 if self.update < 6 else 1))

    def _soft(self, out: Rollout, traces: list[Any]) -> dict[str, float]:
        """Ours: critics of every alternative, all alternatives of purposes and stops at once, clipped steps for the rest."""
        o = {**_SOFT, **next(iter(self.preset.loss.values()))}
        tau = o["tau_from"] * (o["tau_to"] / o["tau_from"]) ** self.progress
        steps = int(o["steps"])
        stats = self._critics(out, keep=int(o["keep"]), lam=o["lam"], steps=steps)
        taught = lesson(self.net, out, lam=o["lam"])
        if taught is None:
            return stats
        stats |= soft.improve(self.net, self.policy, out.tables, self.rng(2), tau=tau, steps=steps // 2)
        advantages = row_advantages(self.net, out, taught)
        stats |= self._workers(out, advantages)
        bonus = 1 - self.progress
        if "spawn" in out.tables:
            self.spawning.add(self.net, out.tables["spawn"], advantages["spawn"])
            self.spawning.step(self.net, out.tables["spawn"], out.config.max_agents, left=max(0.25, 1 - self.progress))
            with torch.no_grad():
                self.net.log_scale.fill_(float(np.log(o["spread_from"] * (o["spread_to"] / o["spread_from"]) ** self.progress)))
            gate = self.net.roles(torch.from_numpy(out.tables["spawn"]["x"]))[0].detach()
            stats["entropy_spawn"] = float((torch.nn.functional.softplus(gate) - gate * torch.sigmoid(gate)).mean())
        rest = {k: v for k, v in out.tables.items() if k not in ("stop", "spawn")}
        stats |= update(
            self.net,
            self.policy,
            rest,
            advantages,
            len(out.values),
            Options(entropy=o["entropy"] * bonus),
            self.rng(4),
            skip={"item"},
        )
        return stats | {"tau": tau}

    def _td(self, out: Rollout, traces: list[Any]) -> dict[str, float]:
        """Temporal differences of a monotone mix."""
        stats = self._critics(out, steps=8)
        assert self.mixer is not None  # the td loss has one
        return stats | mixing.learn(
            self.net, self.mixer, self.policy, out, next(iter(self.preset.loss.values())), progress=self.progress, rng=self.rng(1)
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
        }

    # -- rest

    def state(self) -> bytes:
        """The whole state, for a checkpoint."""
        return checkpoint.dump({
            "format": FORMAT,
            "settings": self.settings.as_dict(),
            "update": self.update,
            "totals": self.totals,
            "net": self.net.state_dict(),
            "mixer": None if self.mixer is None else self.mixer.state_dict(),
            "mean": self.mean,
            "policy": self.policy.state_dict(),
            "critic": self.critic.state_dict(),
            "recent": self.recent,
            "past": self.past,
            "spawning": self.spawning.state(),
            "trials": self.trials.state(),
        })  # fmt: skip

    def restore(self, data: bytes, where: str) -> None:
        """Go on from a checkpoint."""
        held = checkpoint.load(data, where)
        check_format(held.get("format"), where)
        mine = self.settings.as_dict()
        differ = [k for k in ("preset", "world", "set", "mix", "seed") if held["settings"].get(k) != mine[k]]
        if differ:
            said = f"the checkpoint is of other settings: {', '.join(differ)}"
            raise InputError(said, where=where, fix="resume with the run's own run.toml")
        self.net.load_state_dict(held["net"])
        if self.mixer is not None:
            self.mixer.load_state_dict(held["mixer"])
        self.mean = held["mean"]
        self.policy.load_state_dict(held["policy"])
        self.critic.load_state_dict(held["critic"])
        self.spawning.restore(held["spawning"])
        self.trials.restore(held["trials"])
        self.update, self.totals, self.recent, self.past = held["update"], held["totals"], held["recent"], held["past"]


def _trimmed(out: Rollout) -> Rollout:
    """A rollout with what the critics read."""
    tables = {n: t for n, t in out.tables.items() if n in ("stop", "rule", "spawn")}
    tables["item"] = {k: out.tables["item"][k] for k in _KEPT}
    return Rollout(out.config, out.seeds, out.salts, tables, out.value_TE, out.values, {}, extra=out.extra)
