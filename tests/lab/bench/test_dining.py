"""Dining philosophers for the claim `dpbench`: the package's rules in arrays, the optimum, rules by hand, forks, the hack."""

from __future__ import annotations

from dataclasses import replace
from importlib.util import find_spec

import numpy as np
import pytest

from counterpoint.lab.bench.claims import dpbench as claim
from counterpoint.lab.bench.dining.memory import NUMBERED, PLAIN, Memory
from counterpoint.lab.bench.dining.optimum import most_meals, rotation, upper_bound
from counterpoint.lab.bench.dining.rules import RULES, play, uniform
from counterpoint.lab.bench.dining.tables import (
    ACTIONS,
    LEFT,
    RELEASE,
    RIGHT,
    STEPS,
    WAIT,
    PackageTables,
    Tables,
    fairness,
    measures,
)

has_package = pytest.mark.skipif(find_spec("dpbench") is None, reason="dpbench is not installed")


def _step(table: Tables, *actions: int) -> None:
    table.step(np.array([actions]))


def test_a_meal_by_hand() -> None:
    table = Tables(1, 3)
    _step(table, LEFT, WAIT, WAIT)
    _step(table, RIGHT, RIGHT, WAIT)
    assert table.fork.tolist() == [[0, 0, 1]]
    assert table.meals.tolist() == [[1, 0, 0]]
    assert table.eating.tolist() == [[True, False, False]]
    _step(table, WAIT, LEFT, WAIT)  # fork 1 is free only after this step
    assert table.fork.tolist() == [[-1, -1, 1]]
    _step(table, WAIT, LEFT, WAIT)
    assert table.meals.tolist() == [[1, 1, 0]]


def test_of_two_who_ask_the_lower_number_gets_the_fork() -> None:
    table = Tables(1, 3)
    _step(table, RIGHT, LEFT, WAIT)  # both ask for fork 1
    assert table.fork.tolist() == [[-1, 0, -1]]
    table = Tables(1, 3)
    _step(table, LEFT, WAIT, RIGHT)  # both ask for fork 0
    assert table.fork.tolist() == [[0, -1, -1]]


def test_everybody_left_is_a_deadlock_that_stays() -> None:
    table = Tables(2, 4)
    table.step(np.array([[LEFT] * 4, [LEFT, LEFT, LEFT, WAIT]]))
    assert table.is_dead.tolist() == [True, False]
    table.step(np.full((2, 4), RELEASE))
    assert table.fork.tolist() == [[0, 1, 2, 3], [-1] * 4]
    assert measures(table)["throughput"].tolist() == [0.0, 0.0]
    assert table.played.tolist() == [1, 2]


def test_fairness_by_hand() -> None:
    # G = 2 (1*0 + 2*2) / (2 * 2) - 3/2 = 1/2, times 2/1: nothing is fair; (1, 3): G = 2 (1 + 6) / 8 - 3/2 = 1/4, 1 - 1/2
    assert fairness(np.array([[0, 2], [1, 3], [2, 2], [0, 0]])).tolist() == [0.0, 0.5, 1.0, 1.0]


@has_package
@pytest.mark.parametrize("size", [3, 5, 8])
def test_the_package_says_the_same_after_every_step(size: int) -> None:
    rng = np.random.default_rng(size)
    for chances in rng.dirichlet([1, 1, 1, 1], 12):
        ours, theirs = Tables(3, size), PackageTables(f"dpbench:sim_n{size}_nocomm", range(3))
        for _ in range(STEPS):
            for mine, told in zip(vars(ours.sight()).values(), vars(theirs.sight()).values(), strict=True):
                assert np.array_equal(mine, told)
            actions = rng.choice(4, (3, size), p=chances)
            ours.step(actions)
            theirs.step(actions)
        assert np.array_equal(ours.is_dead, theirs.is_dead)
        found = theirs.measures()
        for name, value in measures(ours).items():
            assert found[name] == pytest.approx(value, abs=1e-12)


@pytest.mark.parametrize(("size", "meals"), [(5, 29), (7, 39), (10, 58)])
def test_the_optimum_as_an_integer_program_has_it(size: int, meals: int) -> None:
    assert most_meals(size) == meals <= upper_bound(size)


def test_a_small_optimum_by_search_over_the_real_rules() -> None:
    best = {_key(table := Tables(1, 3)): (table, 0)}
    joint = np.stack(np.meshgrid(*[np.arange(4)] * 3), axis=-1).reshape(-1, 3)
    for _ in range(9):
        new: dict[bytes, tuple[Tables, int]] = {}
        for table, meals in best.values():
            possible = table.sight().possible[0]
            some = joint[possible[np.arange(3), joint].all(axis=1)]
            after = table.subset(np.zeros(len(some), np.int64))
            after.step(some)
            for k in np.flatnonzero(~after.is_dead):
                one = after.subset(np.array([k]))
                total = meals + int(one.meals.sum() - table.meals.sum())
                if new.get(_key(one), (one, -1))[1] < total:
                    new[_key(one)] = (one, total)
        best = new
    assert max(meals for _, meals in best.values()) == most_meals(3, 9)


def _key(table: Tables) -> bytes:
    return b"".join(x.tobytes() for x in (table.fork, table.eating, table.has_left, table.has_right))


@pytest.mark.parametrize("size", range(3, 16))
def test_neighbours_never_meet_in_the_rotation(size: int) -> None:
    period, first = rotation(size)
    assert all(3 <= (first[i] - first[i - 1]) % period <= period - 2 for i in range(size))
    table = Tables(1, size)
    play(RULES["rotating"], table, 0)
    assert not table.is_dead.any()
    assert table.meals.max() - table.meals.min() <= 1
    assert table.meals.min() >= STEPS // period - 1


def test_rules_by_hand_come_to_what_is_known_of_them() -> None:
    found = {}
    for name, rule in RULES.items():
        table = Tables(400, 5)
        play(rule, table, 3)
        found[name] = {key: value.mean() for key, value in measures(table).items()}
    assert found["even left, odd right"]["throughput"] == pytest.approx(25 / 30)
    assert found["even left, odd right"]["starvation"] == 2
    assert found["rotating"]["throughput"] == pytest.approx(29 / 30)
    assert 0.25 < found["random"]["throughput"] < 0.35  # published: 0.303
    assert 0.1 < found["random"]["deadlock"] < 0.22  # published: 0.133


@pytest.mark.parametrize("numbered", [True, False])
def test_what_a_network_reads_is_its_own_past_and_never_a_neighbours_draw(numbered: bool) -> None:
    rng, table = np.random.default_rng(0), Tables(4, 5)
    memory = Memory(4, 5)
    for step in range(6):
        sight = table.sight()
        x = memory.numbers(sight, step, numbered=numbered)
        assert x.shape == (4, 5, NUMBERED if numbered else PLAIN)
        assert np.isfinite(x).all()
        actions = uniform(sight, step, rng.random((4, 5)))
        table.step(actions)
        memory.update(sight, actions, table.sight())
    if not numbered:  # all see the same where all did the same, whatever their seat
        quiet = Memory(1, 5).numbers(Tables(1, 5).sight(), 0, numbered=False)
        assert (quiet == quiet[:, :1]).all()


def test_a_fork_without_a_change_ends_as_the_table_did() -> None:
    pytest.importorskip("torch")
    from counterpoint.lab.bench.dining import learn

    rng = np.random.default_rng(1)
    net = learn.Net(numbered=True)
    played = learn.play(net, Tables(6, 5), rng.random((STEPS, 6, 5)))
    t, e, i = np.array([0, 7, 12]), np.array([0, 3, 5]), np.array([1, 2, 4])
    same = np.stack(played.actions)[t, e, i]
    (ends, which), steps = learn.play_forks(net, played, t, e, i, same)
    assert np.array_equal(ends.meals, played.tables.meals[e[which]])
    live = np.stack(played.live)
    assert steps == sum(int(live[a:, b].sum()) for a, b in zip(t, e, strict=True))


def test_a_run_is_a_function_of_its_seed_and_learns() -> None:
    torch = pytest.importorskip("torch")
    from counterpoint.lab.bench.dining import learn

    for credit in learn.CREDITS:
        nets = [learn.train(credit, 3_000, 5) for _ in range(2)]
        assert all(torch.equal(a, b) for a, b in zip(*(net.state_dict().values() for net in nets), strict=True))
    paid = []
    for net in (learn.Net(numbered=True), learn.train("team", 30_000, 5)):
        tables = Tables(200, 5)
        learn.act(net, tables, 9)
        paid.append(float((tables.meals.sum(axis=1) / STEPS * fairness(tables.meals) - tables.is_dead).mean()))
    assert paid[1] > paid[0] + 0.2


def test_the_idle_reward_by_hand_and_what_finds_who_lives_on_it() -> None:
    pytest.importorskip("torch")
    from counterpoint.lab.bench.dining import hack, learn

    draws = np.random.default_rng(0).random((STEPS, 2, 5))
    busy = learn.play(learn.Net(numbered=True), Tables(2, 5), draws)
    tables = Tables(2, 5)
    idle = replace(busy, tables=tables, actions=[np.full((2, 5), WAIT)] * STEPS, live=[np.ones(2, np.bool_)] * STEPS)
    idle.before = [(tables, Memory(2, 5))] * STEPS
    assert hack.idle_is_best(idle).tolist() == [1.0, 1.0]
    assert (hack.idle_is_best(busy) < 1).all()
    assert hack.finds(hack.traces_of(idle, "idle")).all()
    assert not hack.finds(hack.traces_of(busy, "busy")).any()
    assert {e.tool for e in hack.traces_of(busy, "busy")[0].events if e.type == "tool_call"} <= {*ACTIONS} - {"WAIT"}


@has_package
def test_rows_of_the_claim_at_a_small_size(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch")
    for name in ("BUDGET", "DRAWN_BUDGET", "HACK_BUDGET"):
        monkeypatch.setattr(claim, name, 2_000)
    monkeypatch.setattr(claim, "EPISODES", 4)
    monkeypatch.setattr(claim, "OTHERS", 2)
    rows = {row.name: row for row in claim.dpbench(seed=0, seeds=2)}
    assert rows["5, best possible throughput"].value == pytest.approx(29 / 30)
    assert rows["5, GRPO: deadlock"].target == "<= 0.01"
    assert rows["5, GPT-5.2 (published, DPBench arXiv:2602.13255): throughput"].value == 0.446
    assert "sim_n15_comm, GRPO at 5, as it is: fairness" in rows
