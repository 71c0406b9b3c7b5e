"""The state of a language model that learns, and one update of it: steps of imitation, or play, credit and a policy gradient.

Always true: an update is a function of (settings, state): tasks, samples and batches are keyed by the seed and the update's
number, so a run that resumes gives the same numbers as one that never stopped. Held-out tasks have seeds below 1,000,000 (from
`eval_first` on), those that are learned on begin there, those that are shown at 2,000,000, and 10,000 further for each
seed of a run; from seed 100 on at 3,000,000 and 4,000,000, and so on: no two seeds share a task.
"""

from __future__ import annotations

import io
import time
from collections.abc import Collection, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch

from counterpoint.credits.call_rows import CallRows, call_rows
from counterpoint.errors import InputError
from counterpoint.lab.team.edits import keyed_seed
from counterpoint.lab.train.folder import FORMAT, check_format
from counterpoint.lab.train.learner import NotFinite
from counterpoint.lab.train.lm.advantages import advantages, flat_groups, less_prices
from counterpoint.lab.train.lm.demonstrations import retokenised
from counterpoint.lab.train.lm.driver import Driver, DriverStats, Rollout
from counterpoint.lab.train.lm.learner import CallTokens, less_kl, sequences_of, with_old
from counterpoint.lab.train.lm.own_driver import OwnDriver
from counterpoint.lab.train.lm.own_rollout import OwnRollout
from counterpoint.lab.train.lm.own_tasks import OwnTasks
from counterpoint.lab.train.lm.pairs import pairs_of
from counterpoint.lab.train.lm.play_ahead import PlayAhead, PlayedGroups
from counterpoint.lab.train.lm.policies import Policies
from counterpoint.lab.train.lm.settings import HELD_OUT_END, LanguageSettings, TaskMix, is_fake
from counterpoint.lab.train.lm.stopwatch import Stopwatch
from counterpoint.lab.train.lm.team_batch import TeamBatch, calls_of, decisions
from counterpoint.lab.train.lm.token_weights import CallPlace, token_weights
from counterpoint.lab.train.lm.tree import branches
from counterpoint.trace import Trace
from counterpoint.trace.rows import Credit

_LEARN, _SHOW = HELD_OUT_END, 2 * HELD_OUT_END
_APART = 10_000
_MOST_STEPS = 20
"""Imitation steps that make one row of metrics, and the fewest rows of an imitation that is so long."""
DPO_BETA = 0.1
"""Of preferences, where `learn.beta` says nothing."""
_LAST_RATE = 0.05
"""What is left of the imitation rate at its end."""


def first_task(seed: int, *, is_shown: bool) -> int:
    """The first task that a run of this seed learns on, or is shown: runs of other seeds begin ten thousand tasks apart."""
    return (_SHOW if is_shown else _LEARN) + seed % 100 * _APART + seed // 100 * _SHOW


class LanguageTraining:
    """Policies, what was shown to them, and how far they are."""

    def __init__(
        self, settings: LanguageSettings, policies: Policies, driver: Driver | OwnDriver, own: OwnTasks | None = None
    ) -> None:
        """`own`: the tasks of a team of a person's own, which `driver` then runs."""
        self.settings, self.policies, self.driver, self.own = settings, policies, driver, own
        self.update = 0
        self.steps = 0
        """Imitation steps made."""
        self.learned = 0
        """Updates of reinforcement made."""
        self.seconds = {"imitate": 0.0, "learn": 0.0}
        self.totals = {"episodes": 0, "forks": 0, "calls": 0, "decisions": 0, "tokens": 0}
        self.shown: list[tuple[str, list[CallTokens]]] = []
        """Demonstrations: the calls of one agent, with the policy that learns them."""
        self.demonstrators: dict[str, Any] = {}
        """How those who showed did themselves."""
        self.reference: dict[str, dict[str, torch.Tensor]] | None = None
        self._by_seed = [mix for mix in settings.task for _ in range(mix.share)]
        self._ahead = PlayAhead(is_gpu=settings.device != "cpu")
        self._spoken = "update 0"
        """Which weights the engine speaks with."""

    def close(self) -> None:
        """Play nothing any more."""
        self._ahead.close()

    # -- how far

    @property
    def is_imitating(self) -> bool:
        """Whether imitation is not over yet."""
        i = self.settings.imitate
        if not i.steps and not i.seconds:
            return False
        return not (i.steps and self.steps >= i.steps) and not (i.seconds and self.seconds["imitate"] >= i.seconds)

    @property
    def is_done(self) -> bool:
        """Nothing is left to spend."""
        learn = self.settings.learn
        if self.is_imitating:
            return False
        if not learn.updates and not learn.seconds:
            return True
        is_late = learn.seconds and self.seconds["learn"] >= learn.seconds
        return bool((learn.updates and self.learned >= learn.updates) or is_late)

    @property
    def progress(self) -> float:
        """0 at the start, 1 at the end; imitation and reinforcement weigh the same where there are both."""
        i, learn, parts = self.settings.imitate, self.settings.learn, []
        if i.steps or i.seconds:
            by = [self.steps / i.steps if i.steps else 0.0, self.seconds["imitate"] / i.seconds if i.seconds else 0.0]
            parts.append(max(by) if self.is_imitating else 1.0)
        if learn.updates or learn.seconds:
            by = [self.learned / learn.updates if learn.updates else 0.0]
            by.append(self.seconds["learn"] / learn.seconds if learn.seconds else 0.0)
            parts.append(min(1.0, max(by)))
        return min(1.0, sum(parts) / len(parts)) if parts else 1.0

    def rate(self) -> float:
        """The rate of the next update of reinforcement."""
        learn = self.settings.learn
        by_updates = self.learned / max(1, learn.updates - 1) if learn.updates else 0.0
        by_seconds = self.seconds["learn"] / learn.seconds if learn.seconds else 0.0
        return learn.lr * (1 - (1 - learn.last_rate) * min(1.0, max(by_updates, by_seconds)))

    def rng(self, purpose: int) -> np.random.Generator:
        """Noise of the update that is being made, for one purpose."""
        return np.random.default_rng((self.settings.seed, self.update, purpose))

    # -- playing

    def mix_of(self, seed: int) -> TaskMix:
        """The kind of task that a seed is of."""
        return self._by_seed[seed % len(self._by_seed)]

    def play(
        self, seeds: Sequence[int], *, samples: int = 1, temperature: float | None, name: str, model: str = "engine"
    ) -> TeamBatch:
        """Teams on the tasks of these seeds, each `samples` times; a team of a person's own may be left its own temperature."""
        rollouts = [self._rollout(seed, k, temperature, name, model) for seed in seeds for k in range(samples)]
        return TeamBatch(self._traces(rollouts, model))

    def play_tree(self, seeds: Sequence[int], tree: Sequence[int], *, temperature: float, name: str) -> TeamBatch:
        """Teams on the tasks of these seeds, whose samples are a tree (`branches`)."""
        width = int(np.prod(tree[1:]))
        leaves = [self._rollout(seed, k * width, temperature, name, "engine") for seed in seeds for k in range(tree[0])]
        traces = self._traces(leaves, "engine")
        for fan in tree[1:]:
            width //= fan
            forks = [branches(rollout, trace, fan, width) for rollout, trace in zip(leaves, traces, strict=True)]
            found = iter(self._traces([fork for own in forks for fork in own], "engine"))
            traces = [each for trace, own in zip(traces, forks, strict=True) for each in (trace, *(next(found) for _ in own))]
            leaves = [each for rollout, own in zip(leaves, forks, strict=True) for each in (rollout, *own)]
        return TeamBatch(traces)

    def _rollout(self, seed: int, k: int, temperature: float | None, name: str, model: str) -> Any:
        """The team of one sample of a task."""
        s, draws = self.settings, keyed_seed(self.settings.seed, f"{name} {seed} {k}")
        if self.own is not None:
            case, is_held_out = self.own.case(seed), seed < HELD_OUT_END
            return OwnRollout(case, self.own.lines[case], draws, temperature, f"{name}-{seed}-{k}", self._spoken, is_held_out)
        assert temperature is not None
        return Rollout(
            spec=self.mix_of(seed).spec(seed, model, s.imitate.options if is_fake(model) else {}),
            seed=draws, temperature=temperature, trace_id=f"{name}-{seed}-{k}",
            policies=self.policies.speaks_for(), version="" if model != "engine" else self._spoken,
        )  # fmt: skip

    def _traces(self, rollouts: Sequence[Any], model: str) -> list[Trace]:
        """What they play, with prices taken off."""
        traces = self.driver.play(rollouts, self.policies.engines if model == "engine" else None)
        for trace in traces if model == "engine" else ():
            if not all(np.isfinite(call["note"].get("logps") or ()).all() for call in calls_of(trace)):
                what = "the model's log-probability is NaN or infinite"
                raise NotFinite(what, where=trace.trace_id, fix="other weights, or a lower learning rate")
        return [less_prices(t, self.settings.prices) for t in traces]

    def show(self, traces: Sequence[Trace]) -> tuple[int, int]:
        """What is to be imitated; gives how many calls had no token ids and were tokenised again, and how many are left out."""
        wanted = [t for t in traces if self.settings.imitate.keep == "all" or (t.metrics or {}).get("task_success")]
        if not wanted:
            raise InputError(
                "no demonstration solved its task", where="imitate.keep", fix='keep = "all", or better demonstrators'
            )
        rows = call_rows(wanted, Credit("shown", "", False, tuple(t.trace_id for t in wanted), ()))
        found: dict[tuple[int, str], tuple[str, list[CallTokens]]] = {}
        retold = left_out = 0
        for i, row in enumerate(rows.rows):
            prompt, said = rows.prompt_ids(i), row.token_ids
            if prompt is None or said is None:
                again = retokenised(wanted[row.trace], row.event, self.policies.files.chat)
                if again is None:
                    left_out += 1
                    continue
                retold += 1
                prompt, said = (np.asarray(ids, np.int64) for ids in again)
            if len(prompt) + len(said) > self.policies.context:
                left_out += 1
                continue
            name = f"{rows.trace_ids[row.trace]} {row.event}"
            thread = found.setdefault((row.trace, row.agent), (self.policies.policy_of(row.role), []))
            thread[1].append(CallTokens(name, prompt.astype(np.int32), said.astype(np.int32)))
        self.shown = list(found.values())
        if not self.shown:
            what = f"no call that was shown can be learned: no prompt, or longer than {self.policies.context:,} tokens"
            raise InputError(what, where="imitate.demos", fix="traces of `counterpoint play`, or a longer context")
        return retold, left_out

    # -- one update

    def imitate(self) -> dict[str, Any]:
        """Some steps towards what was shown; the row of metrics."""
        i, begin = self.settings.imitate, time.perf_counter()
        losses: list[float] = []
        norms: list[float] = []
        micro: list[float] = []
        most = min(_MOST_STEPS, max(1, i.steps // _MOST_STEPS)) if i.steps else _MOST_STEPS
        while self.is_imitating and len(losses) < most:
            rng = np.random.default_rng((self.settings.seed, self.steps, 7))
            chosen = self._some_shown(rng)
            share = self.steps / i.steps if i.steps else self.seconds["imitate"] / i.seconds
            rate = i.lr * min(1.0, (self.steps + 1) / max(1, i.warmup)) * max(_LAST_RATE, 1 - share)
            for name, learner in self.policies.learners.items():
                mine = [said for k in chosen if self.shown[k][0] == name for said in self.shown[k][1]]
                if mine:
                    learner.set_rate(rate)
                    told = learner.imitate(mine)
                    losses.append(told["loss"])
                    norms.append(told["gradient"])
                    micro.append(told["micro_batch"])
            self.steps += 1
            if i.seconds:
                self.seconds["imitate"] += time.perf_counter() - begin
                begin = time.perf_counter()
        if not i.seconds:
            self.seconds["imitate"] += time.perf_counter() - begin
        self.update += 1
        means = {"loss": float(np.mean(losses)), "gradient": float(np.mean(norms)), "micro_batch": min(micro)}
        return {"phase": "imitate", **means, "steps": self.steps, "profile": self._parts_of_learning()}

    def _parts_of_learning(self) -> dict[str, float]:
        """Seconds of the learners' parts since they were last asked."""
        watch = Stopwatch()
        for learner in self.policies.learners.values():
            for part, seconds in learner.watch.take().items():
                watch.add(part, seconds)
        return watch.take()

    def _some_shown(self, rng: np.random.Generator) -> list[int]:
        """Agents drawn at random, until their calls fill a batch."""
        out: list[int] = []
        count = 0
        for k in rng.permutation(len(self.shown)).tolist():
            out.append(k)
            count += len(self.shown[k][1])
            if count >= self.settings.imitate.batch:
                break
        return out

    def learn(self) -> tuple[dict[str, Any], TeamBatch]:
        """Play, credit, and a few steps; the row of metrics, and what was played."""
        learn, begin, watch = self.settings.learn, time.perf_counter(), Stopwatch()
        if (learn.beta or learn.loss == "dpo") and self.reference is None:
            self.reference = self.policies.snapshot()
        played = self._played(watch)
        self._spent(played.batch.traces)
        rolled = time.perf_counter()
        with watch.part("credit"):
            rows = advantages(played.kept, learn, progress=self.progress) if played.kept else None
            taught = self._sequences_of_policies(rows, [t.task_id or t.trace_id for t in played.kept])
        told: dict[str, float] = {}
        for name, mine in taught.items():
            report = self._improve(name, mine)
            is_one = len(self.policies.names) == 1
            told |= report if is_one else {f"{name}.{k}": v for k, v in report.items()}
            told |= {} if is_one else {k: max(told.get(k, -np.inf), v) for k, v in report.items()}
        for learner in self.policies.learners.values():
            if learn.average:
                learner.average(learn.average)
        self.seconds["learn"] += time.perf_counter() - begin
        self.update += 1
        self.learned += 1
        row = {
            "phase": "learn",
            **played.batch.row(),
            **told,
            "kl": told.get("kl_old"),
            "flat_groups": played.flat,
            "sequences": sum(map(len, taught.values())),
            "reused": played.reused,
            "profile": played.seconds | watch.take() | self._parts_of_learning(),
        }
        row |= {"lost": played.lost} if played.lost else {}
        if rows is not None:
            row["unplaced"] = float(sum(abs(u.value) for u in rows.placement.unplaced))
        return row | {"play_s": rolled - begin, "learn_s": time.perf_counter() - rolled}, played.batch

    def _played(self, watch: Stopwatch) -> PlayedGroups:
        """What this update learns from: played now, or while the last one was learned; then the next one is played."""
        learn, played = self.settings.learn, self._ahead.take()
        with watch.part("weights"):
            self._refresh()
        if not learn.ahead:
            return self._groups(self.update, self.progress)
        if played is None:
            self._ahead.begin(partial(self._groups, self.update, self.progress))
            for learner in self.policies.learners.values():
                learner.warm()
            played = self._ahead.take()
            assert played is not None
        if not learn.updates or self.learned + 1 < learn.updates:
            self._ahead.begin(partial(self._groups, self.update + 1, self.progress))
        return played

    def _sequences_of_policies(self, rows: CallRows | None, tasks: Sequence[str]) -> dict[str, list[CallTokens]]:
        """What each policy learns from, in the order of this update; `tasks`: of each trace."""
        if rows is None:
            return {}
        row_of = {f"{rows.trace_ids[r.trace]} {r.event}": r for r in rows.rows}
        spoken: dict[str, dict[str, list[CallTokens]]] = {}
        learners = self._learners(rows)
        for said in sequences_of(rows):
            row = row_of[said.name]
            if learners is not None and row.role not in learners:
                continue
            spoken.setdefault(self.policies.policy_of(row.role), {}).setdefault(tasks[row.trace], []).append(said)
        out = {}
        for name in self.policies.names:
            mine = list(spoken.get(name, {}).values())  # the teams of a task stay together: what they share is read once
            out[name] = [said for k in self.rng(3).permutation(len(mine)) for said in mine[k]]
        if (weigh := self.settings.learn.weigh) != "token":
            for name, some in out.items():
                places = [CallPlace((row := row_of[s.name]).trace, row.agent, len(s.said)) for s in some]
                weights = token_weights(weigh, places)
                out[name] = [replace(s, weight=w) for s, w in zip(some, weights, strict=True)]
        return {name: some for name, some in out.items() if some}

    def _learners(self, rows: CallRows) -> Collection[str] | None:
        """The roles whose calls teach in this update; None: all of them."""
        learn = self.settings.learn
        there = list(dict.fromkeys(r.role for r in rows.rows if r.role is not None))
        if learn.roles and there and not set(there) & set(learn.roles):
            fix = f"learn.roles of this team: {', '.join(sorted(there))}"
            raise InputError(f"no agent of this team is {' or '.join(learn.roles)}, so nothing is learned", fix=fix)
        if not learn.alternate:
            return learn.roles or None
        turns = sorted(learn.roles or there, key=lambda role: (role != "orchestrator", role))
        return turns[self.learned // learn.alternate % len(turns) :][:1]

    def _improve(self, name: str, mine: list[CallTokens]) -> dict[str, float]:
        learn, learner = self.settings.learn, self.policies.learners[name]
        learner.set_rate(self.rate())
        heat = learn.temperature if learn.loss == "clip" else 1.0  # imitation and preferences are of the model as it is
        learner.options = replace(learner.options, steps=learn.steps, kl_limit=learn.kl_limit, temperature=heat)
        if learn.loss == "sft":
            return learner.imitate_some([s for s in mine if s.advantages is not None and s.advantages.mean() > 0])
        if learn.loss == "dpo":
            assert self.reference is not None
            return learner.prefer(pairs_of(mine), self.reference[name], learn.beta or DPO_BETA)
        told = with_old(learner, mine) if learn.cap else mine
        reference = None if self.reference is None else self.reference[name]
        if learn.beta and learn.kl == "k1" and reference is not None:
            told = less_kl(told, learner.logps(told, reference), learn.beta)
        return learner.improve(told, learn.objective(), reference)

    def _groups(self, update: int, progress: float) -> PlayedGroups:
        """The groups of an update, with fresh ones in the place of those without spread."""
        learn, everything, kept = self.settings.learn, list[Trace](), list[Trace]()
        flat, made, missing = 0, 0, learn.groups
        begin, stats, before = time.perf_counter(), self.policies.engines.stats, self._driven()
        for turn in range(learn.resample + 1):
            first = first_task(self.settings.seed, is_shown=False) + (update * (learn.resample + 1) + turn) * learn.groups
            seeds = range(first, first + missing)
            name, heat = f"u{update}", learn.temperature
            traces = (
                self.play_tree(seeds, learn.tree, temperature=heat, name=name).traces
                if learn.tree
                else self.play(seeds, samples=learn.samples, temperature=heat, name=name).traces
            )
            equal = flat_groups(traces, learn, progress=progress)
            everything += traces
            kept += [t for t in traces if (t.task_id or t.trace_id) not in equal]
            flat, made = flat + len(equal), made + missing
            missing = len(equal)
            if not missing:
                break
        now = self.policies.engines.stats
        reused = (now.reused - stats.reused) / max(1, now.reused - stats.reused + now.read - stats.read)
        seconds = {name: after - before[name] for name, after in self._driven().items()}
        seconds["play"] = time.perf_counter() - begin
        return PlayedGroups(TeamBatch(everything), kept, flat / made, reused, seconds, self._lost())

    def _driven(self) -> dict[str, float]:
        """Seconds in which the engine computed, and in which it waited for teams, so far."""
        stats = getattr(self.driver, "stats", None)
        return {"engine": stats.engine_s, "wait": stats.worker_s} if isinstance(stats, DriverStats) else {}

    def _spent(self, traces: Sequence[Trace]) -> None:
        calls = [c for t in traces for c in calls_of(t)]
        self.totals["episodes"] += len(traces)
        self.totals["calls"] += len(calls)
        self.totals["decisions"] += len(calls)
        self.totals["tokens"] += sum(c["tokens"] for c in calls)

    def evaluate(self) -> tuple[dict[str, Any], TeamBatch]:
        """The held-out tasks, sampled and perhaps greedily, by the mean weights where they are kept: the row, what was played."""
        s = self.settings
        self._ahead.settle()
        with self.policies.averaged():
            self._refresh()
        episodes = s.eval_episodes if self.own is None else min(s.eval_episodes, len(self.own.held_out))
        seeds = range(s.eval_first, s.eval_first + episodes)
        played = self.play(seeds, temperature=1.0 if self.own is None else None, name=f"held-u{self.update}")
        values, told = played.values, played.row()
        row: dict[str, Any] = {
            "update": self.update, **self.totals, "first_seed": s.eval_first, "mean": told["reward"],
            "se": told["reward_se"], "values": values.tolist(),
            "solved": told["solved"], "score": told["score"], "malformed": told["malformed"],
            "successes": played.column("task_success").tolist(), "measures": played.measures(),
            "agents": [len({e.to for e in t.events if e.type == "spawn"}) for t in played.traces],
            "rounds": [sum(c["role"] == "orchestrator" for c in calls_of(t)) for t in played.traces],
            "calls_made": [len(list(calls_of(t))) for t in played.traces], "decisions_made": decisions(played.traces),
            "seconds": dict(self.seconds),
        }  # fmt: skip
        if s.is_greedy_too:
            greedy = self.play(seeds, temperature=0.0, name=f"greedy-u{self.update}")
            row |= {"greedy": greedy.values.tolist(), "greedy_mean": float(greedy.values.mean())}
            row["greedy_successes"] = greedy.column("task_success").tolist()
            row["greedy_solved"] = float(np.mean(row["greedy_successes"]))
        lost = self._lost()
        return row | ({"lost": lost} if lost else {}), played

    def _lost(self) -> dict[str, Any]:
        """Rollouts of a person's own team that were lost since this was last asked."""
        return dict(self.driver.losses()) if isinstance(self.driver, OwnDriver) else {}

    def _refresh(self) -> None:
        """The engine speaks with the newest weights, or their mean, from now on."""
        self.policies.refresh()
        self._spoken = f"update {self.update}"

    # -- checkpoints

    def check_weights(self) -> None:
        """Raise `NotFinite` where weights are no numbers any more, and cannot be kept."""
        for name, learner in self.policies.learners.items():
            if not learner.is_finite():
                raise NotFinite("the weights are NaN or infinite", where=f"policy {name}", fix="a lower learning rate")

    def state(self) -> bytes:
        """All of it."""
        kept = {
            "format": FORMAT, "update": self.update, "steps": self.steps, "learned": self.learned, "seconds": self.seconds,
            "totals": self.totals, "learners": {name: x.state() for name, x in self.policies.learners.items()},
            "reference": self.reference, "ahead": None if (ahead := self._ahead.settle()) is None else ahead.packed(),
        }  # fmt: skip
        out = io.BytesIO()
        torch.save(kept, out)
        return out.getvalue()

    def restore(self, data: bytes, where: str) -> None:
        """Go on from a checkpoint."""
        kept = torch.load(io.BytesIO(data), map_location="cpu", weights_only=True)
        check_format(kept.get("format"), where)
        for name, learner in self.policies.learners.items():
            learner.restore(kept["learners"][name])
        self.update, self.steps, self.learned = kept["update"], kept["steps"], kept["learned"]
        self.seconds, self.totals = kept["seconds"], kept["totals"]
        device = self.policies.device
        if kept["reference"] is not None:
            if any(kept["reference"].values()) == self.policies.is_sharded:  # in shards it is in the learners' own state
                fix = "resume it on one card" if self.policies.is_sharded else "resume it by torchrun, with 2 processes or more"
                raise InputError("the reference of this run was kept by another kind of learner", where=where, fix=fix)
            self.reference = {p: {n: w.to(device) for n, w in ws.items()} for p, ws in kept["reference"].items()}
        if kept.get("ahead") is not None:
            self._ahead.put(PlayedGroups.unpacked(kept["ahead"]))
