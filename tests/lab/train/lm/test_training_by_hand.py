"""A language model's training by hand: how far it is, which tasks it plays, what it says of them, at which rate it imitates."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

pytest.importorskip("torch")

from counterpoint.errors import InputError
from counterpoint.lab.lm.engine import Stats
from counterpoint.lab.train.learner import NotFinite
from counterpoint.lab.train.lm.learner import CallTokens, Options
from counterpoint.lab.train.lm.objective import Objective
from counterpoint.lab.train.lm.settings import language_settings
from counterpoint.lab.train.lm.stopwatch import Stopwatch
from counterpoint.lab.train.lm.team_batch import TeamBatch, decisions
from counterpoint.lab.train.lm.training import LanguageTraining, first_task
from counterpoint.trace import Event, Trace


class Worth:
    """A driver whose teams are worth what a test says of (task, sample)."""

    def __init__(self, *worths: float, events: Sequence[Event] = ()) -> None:
        self.worths, self.rollouts, self.events = worths or (0.0,), list[Any](), list(events)

    def play(self, rollouts: Sequence[Any], engines: Any) -> list[Trace]:
        first = len(self.rollouts)
        self.rollouts += rollouts
        return [
            Trace(trace_id=r.trace_id, task_id=f"t{r.spec.seed}", events=self.events, metrics={"task_success": 1.0},
                  rewards={"team": self.worths[(first + i) % len(self.worths)]})
            for i, r in enumerate(rollouts)
        ]  # fmt: skip


class Still:
    """Policies that say nothing of themselves; what was asked of them is written down."""

    def __init__(self, **learners: Any) -> None:
        self.context, self.names, self.learners, self.said = 100, ("shared",), learners, list[str]()
        self.engines = SimpleNamespace(stats=Stats())

    def speaks_for(self) -> dict[str, str]:
        return {}

    def refresh(self) -> None:
        self.said.append("refresh")

    @contextmanager
    def averaged(self) -> Iterator[None]:
        self.said.append("mean")
        yield
        self.said.append("newest")


def training(driver: Any = None, policies: Any = None, **told: Any) -> LanguageTraining:
    given = {"model": "x", "task": [{"name": "T1"}], "learn": {"updates": 4}, **told}
    return LanguageTraining(language_settings(given), cast("Any", policies or Still()), cast("Any", driver))


def at(t: LanguageTraining, *, steps: int = 0, learned: int = 0, imitate_s: float = 0.0, learn_s: float = 0.0) -> tuple[bool, bool, float]:
    t.steps, t.learned, t.seconds = steps, learned, {"imitate": imitate_s, "learn": learn_s}
    return t.is_imitating, t.is_done, t.progress


def test_imitation_and_reinforcement_are_half_of_the_way_each() -> None:
    both = training(imitate={"steps": 10}, learn={"updates": 4})
    assert at(both) == (True, False, 0.0)
    assert at(both, steps=5) == (True, False, 0.25)
    assert at(both, steps=9) == (True, False, 0.45)
    assert at(both, steps=10) == (False, False, 0.5)
    assert at(both, steps=10, learned=3) == (False, False, 0.875)
    assert at(both, steps=10, learned=4) == (False, True, 1.0)


def test_where_there_is_one_of_them_it_is_the_whole_way() -> None:
    shown = training(imitate={"steps": 10}, learn={"updates": 0})
    assert at(shown, steps=4) == (True, False, 0.4)
    assert at(shown, steps=10) == (False, True, 1.0)
    earned = training(learn={"updates": 4})
    assert at(earned, learned=1) == (False, False, 0.25)
    assert at(earned, learned=4) == (False, True, 1.0)


def test_of_two_limits_the_one_that_is_nearer_counts() -> None:
    shown = training(imitate={"steps": 10, "seconds": 100.0}, learn={"updates": 0})
    assert at(shown, steps=5, imitate_s=80.0) == (True, False, 0.8)
    assert at(shown, steps=9, imitate_s=80.0) == (True, False, 0.9)
    assert at(shown, steps=5, imitate_s=100.0) == (False, True, 1.0)
    assert at(shown, steps=10, imitate_s=1.0) == (False, True, 1.0)
    earned = training(learn={"updates": 4, "seconds": 100.0})
    assert at(earned, learned=1, learn_s=50.0) == (False, False, 0.5)
    assert at(earned, learned=3, learn_s=50.0) == (False, False, 0.75)
    assert at(earned, learned=1, learn_s=150.0) == (False, True, 1.0)
    timed = training(imitate={"seconds": 10.0}, learn={"seconds": 40.0})
    assert at(timed, imitate_s=5.0) == (True, False, 0.25)
    assert at(timed, imitate_s=12.0, learn_s=20.0) == (False, False, 0.75)
    assert at(timed, imitate_s=12.0, learn_s=40.0) == (False, True, 1.0)


def test_runs_of_other_seeds_begin_ten_thousand_tasks_apart() -> None:
    assert [first_task(seed, is_shown=False) for seed in (0, 1, 99, 100, 101)] == [1_000_000, 1_010_000, 1_990_000, 3_000_000, 3_010_000]
    assert [first_task(seed, is_shown=True) for seed in (0, 3, 100)] == [2_000_000, 2_030_000, 4_000_000]


def test_tasks_are_played_by_their_shares() -> None:
    t = training(task=[{"name": "T1", "share": 2}, {"name": "T2"}])
    assert [t.mix_of(seed).name for seed in range(6)] == ["T1", "T1", "T2"] * 2


def test_noise_is_of_the_seed_the_update_and_the_purpose() -> None:
    t = training(seed=5)
    drawn = [t.rng(1).random(), t.rng(2).random(), t.rng(1).random()]
    assert drawn[0] == drawn[2] == np.random.default_rng((5, 0, 1)).random()
    t.update = 1
    assert len({*drawn, t.rng(1).random(), training(seed=6).rng(1).random()}) == 4


def call(k: int, role: str = "worker", tokens: int | None = 0, kind: str = "message", ok: bool | None = None, **note: Any) -> Event:
    return Event(id=f"c{k}", t=k, type=cast("Any", kind), agent="a", role=role, tokens_out=tokens, ok=ok, extra={"call": note})


TWO = [
    Trace(trace_id="a", task_id="q", rewards={"team": 1.0}, metrics={"task_success": 1.0, "task_score": 0.5}, meta={"ended": "stopped"}, events=[
        call(0, "orchestrator", 10, "orchestrator_decision", logps=[-1.0, -2.0]), call(1, "worker", 20, ok=False, logps=[-3.0]),
        call(2, "worker", 99, "tool_result", logps=[-50.0]), call(3, "worker", None, failed="too long"),
        Event(id="s", t=4, type="spawn", agent="lead", to="w1"), Event(id="s2", t=5, type="spawn", agent="lead", to="w1"),
        Event(id="n", t=6, type="aggregate", agent="lead", role="orchestrator", extra={"call": "no note"}),
    ]),
    Trace(trace_id="b", task_id="q", rewards={"team": 3.0}, events=[
        call(0, "orchestrator", 30, "message"), Event(id="d", t=1, type="orchestrator_decision", agent="lead"),
        Event(id="u", t=2, type="message", agent="user", role="user"), Event(id="tc", t=3, type="tool_call", agent="w"),
    ]),
]  # fmt: skip


def test_what_is_said_of_teams_by_hand() -> None:
    """Four calls: the results of tools are none, and what has no note is none either."""
    assert TeamBatch(TWO).row() == {
        "reward": 2.0, "reward_se": pytest.approx(1.0), "solved": 0.5, "score": 0.25, "agents": 0.5, "rounds": 1.0,
        "calls_per_episode": 2.0, "tokens_per_call": (10 + 20 + 0 + 30) / 4, "malformed": 0.25, "too_long": 0.25, "entropy": 2.0,
        "roles": {"orchestrator": 2, "worker": 2},
    }  # fmt: skip
    alone = TeamBatch([Trace(trace_id="c", task_id="q", events=[], rewards={"team": 3.0})]).row()
    assert (alone["reward"], alone["reward_se"], alone["tokens_per_call"], alone["malformed"]) == (3.0, 0.0, 0.0, 0.0)
    assert (alone["entropy"], alone["roles"]) == (None, {})


def test_how_teams_decide_by_hand() -> None:
    assert decisions(TWO) == {
        "spawned": 1.0, "delegated": 0.5, "told": 1.0, "merged": 0.5, "stopped_after": 0.5, "tool_calls": 0.5, "stopped_itself": 0.5,
    }  # fmt: skip
    assert set(decisions([]).values()) == {0.0}


def test_held_out_tasks_begin_at_the_first_seed() -> None:
    driver, policies = Worth(1.0, 3.0, 5.0, 9.0, 7.0), Still()
    t = training(driver, policies, eval_episodes=2, is_greedy_too=True, seed=1)
    t.update, t.totals = 6, {"episodes": 8}
    row, played = t.evaluate()
    assert [(r.spec.seed, r.trace_id, r.temperature, r.version) for r in driver.rollouts] == [
        (0, "held-u6-0-0", 1.0, "update 6"), (1, "held-u6-1-0", 1.0, "update 6"),
        (0, "greedy-u6-0-0", 0.0, "update 6"), (1, "greedy-u6-1-0", 0.0, "update 6"),
    ]  # fmt: skip
    assert (row["update"], row["episodes"], row["first_seed"], row["values"], row["mean"]) == (6, 8, 0, [1.0, 3.0], 2.0)
    assert (row["greedy"], row["greedy_mean"], row["greedy_solved"], row["successes"]) == ([5.0, 9.0], 7.0, 1.0, [1.0, 1.0])
    assert played.values.tolist() == [1.0, 3.0]
    assert policies.said == ["mean", "refresh", "newest"]  # the engine takes the mean's weights
    plain = training(Worth(1.0), eval_episodes=1).evaluate()[0]
    assert "greedy" not in plain


def test_samples_differ_by_their_seed_and_tasks_that_are_shown_have_no_version() -> None:
    driver = Worth(1.0)
    t = training(driver, seed=4, imitate={"steps": 1, "options": {"explore": 0.5}})
    t.play([7, 8], samples=2, temperature=0.5, name="u0")
    assert [(r.spec.seed, r.trace_id, r.version) for r in driver.rollouts] == [
        (7, "u0-7-0", "update 0"), (7, "u0-7-1", "update 0"), (8, "u0-8-0", "update 0"), (8, "u0-8-1", "update 0")
    ]  # fmt: skip
    assert len({r.seed for r in driver.rollouts}) == 4
    assert {str(r.spec.options) for r in driver.rollouts} == {"{}"}
    t.play([7], temperature=1.0, name="shown", model="fake:1")
    assert (driver.rollouts[-1].version, driver.rollouts[-1].spec.options) == ("", {"explore": 0.5})


def test_words_whose_chance_is_no_number_end_the_run() -> None:
    wrong = Worth(1.0, events=[call(0, logps=[-1.0, float("nan")])])
    with pytest.raises(NotFinite, match="NaN or infinite"):
        training(wrong).play([1], temperature=1.0, name="u0")
    training(wrong).play([1], temperature=1.0, name="u0", model="fake:1")  # a demonstrator's numbers are not learned from


def test_groups_without_spread_are_replaced_by_fresh_tasks() -> None:
    """Of three groups of two the first and third are flat; of the two in their place the second; then it is enough."""
    driver = Worth(1, 1, 0, 1, 2, 2, 0, 1, 5, 5, events=[call(0, tokens=3)])
    t = training(driver, learn={"updates": 4, "groups": 3, "samples": 2, "resample": 1}, seed=1)
    found = t._groups(2, 0.0)
    first = 1_010_000 + 2 * 2 * 3
    assert [r.spec.seed for r in driver.rollouts[::2]] == [first, first + 1, first + 2, first + 3, first + 4]
    assert len(found.batch.traces) == 10
    assert [x.task_id for x in found.kept] == [f"t{first + 1}"] * 2 + [f"t{first + 3}"] * 2
    assert found.flat == 3 / 5
    whole = Worth(0, 1)
    t = training(whole, learn={"updates": 4, "groups": 2, "samples": 2, "resample": 3})
    assert t._groups(0, 0.0).flat == 0.0
    assert len(whole.rollouts) == 4  # nothing was missing


class Rated:
    """A learner that writes down at which rate it imitates what."""

    def __init__(self) -> None:
        self.rates, self.shown, self.rate, self.watch = list[float](), list[list[str]](), 0.0, Stopwatch()

    def set_rate(self, rate: float) -> None:
        self.rate = rate

    def imitate(self, mine: Sequence[CallTokens]) -> dict[str, float]:
        self.rates.append(self.rate)
        self.watch.add("forward", 0.25)
        self.shown.append([s.name for s in mine])
        return {"loss": float(len(self.rates)), "gradient": 2.0 * len(self.rates), "micro_batch": 100.0 - len(self.rates)}


def said(name: str) -> CallTokens:
    return CallTokens(name, np.arange(3), np.arange(2))


def test_the_rate_of_imitation_rises_over_the_warmup_and_falls_to_a_twentieth() -> None:
    learner = Rated()
    t = training(policies=Still(shared=learner), imitate={"steps": 40, "lr": 0.5, "warmup": 4, "batch": 2})
    t.shown = [("shared", [said("a1"), said("a2")]), ("shared", [said("b1")]), ("shared", [said("c1")])]
    assert t.imitate() == {"phase": "imitate", "loss": 1.5, "gradient": 3.0, "micro_batch": 98.0, "steps": 2, "profile": {"forward": 0.5}}
    assert (t.update, t.steps, t.is_imitating) == (1, 2, True)  # twenty rows of metrics at least
    while t.is_imitating:
        t.imitate()
    rise = [min(1.0, (k + 1) / 4) for k in range(40)]
    assert learner.rates == pytest.approx([0.5 * rise[k] * max(0.05, 1 - k / 40) for k in range(40)])
    assert learner.rates[-1] == pytest.approx(0.5 * 0.05)  # a twentieth, though a fortieth of the way is left
    assert (t.update, t.steps) == (20, 40)
    # agents are drawn until their calls fill a batch of two, and all calls of an agent come together
    assert {len(names) for names in learner.shown} <= {2, 3}
    assert all(("a1" in names) == ("a2" in names) for names in learner.shown)
    assert {name for names in learner.shown for name in names} == {"a1", "a2", "b1", "c1"}


def test_each_policy_imitates_its_own() -> None:
    lead, worker = Rated(), Rated()
    t = training(policies=Still(lead=lead, worker=worker), imitate={"steps": 3, "batch": 9})
    t.shown = [("lead", [said("l")]), ("worker", [said("w")])]
    assert [t.imitate()["loss"] for _ in range(3)] == [1.0, 2.0, 3.0]
    assert (lead.shown, worker.shown) == ([["l"]] * 3, [["w"]] * 3)


class Improving:
    """A learner that writes down what it improves on, and how."""

    def __init__(self) -> None:
        self.options, self.told, self.objective, self.lr = Options(), list[CallTokens](), Objective(), 0.0

    def set_rate(self, lr: float) -> None:
        self.lr = lr

    def logps(self, sequences: Sequence[CallTokens], weights: Any = None) -> list[np.ndarray]:
        return [np.full(len(s.said), -1.0 if weights is None else -3.0) for s in sequences]

    def improve(self, sequences: Sequence[CallTokens], objective: Objective, reference: Any = None) -> dict[str, float]:
        self.told, self.objective = list(sequences), objective
        return {}

    def imitate_some(self, sequences: Sequence[CallTokens]) -> dict[str, float]:
        return {}


def test_the_policy_that_learns_is_the_model_at_the_temperature_of_play() -> None:
    for loss, heat in (("clip", 1.7), ("sft", 1.0)):
        learner = Improving()
        t = training(policies=Still(shared=learner), learn={"updates": 4, "temperature": 1.7, "cap": 0.0, "loss": loss})
        t._improve("shared", [replace(said("a"), advantages=np.ones(2), sampler=np.zeros(2))])
        assert learner.options.temperature == heat


def test_a_kl_in_the_reward_is_off_the_advantages_and_not_in_the_loss() -> None:
    learner = Improving()
    paid = {"updates": 4, "beta": 0.25, "kl": "k1"}
    t = training(policies=Still(shared=learner), learn=paid)
    t.reference = {"shared": {}}
    t._improve("shared", [replace(said("a"), advantages=np.ones(2), sampler=np.zeros(2))])
    assert learner.told[0].advantages == pytest.approx([1 - 0.25 * 4, 1 - 0.25 * 2])  # -1 against the reference's -3
    assert learner.objective.beta == 0


def test_where_nobody_solved_the_task_nothing_is_imitated() -> None:
    t = training(imitate={"steps": 1, "keep": "solved"})
    with pytest.raises(InputError, match="no demonstration solved its task"):
        t.show([Trace(trace_id="a", task_id="q", events=[], metrics={"task_success": 0.0})])
