"""Mechanisms that compare what was said after the same words: C3, MAGRPO, MarsRL, MARS2, MALT."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

from counterpoint.credits.mechanisms.c3 import c3, sibling_advantages
from counterpoint.credits.mechanisms.magrpo import magrpo, tree_returns
from counterpoint.credits.mechanisms.malt import malt
from counterpoint.credits.mechanisms.mars2 import mars2, shaped_rewards
from counterpoint.credits.mechanisms.marsrl import marsrl
from counterpoint.errors import InputError, NotIdentified
from counterpoint.trace import Trace
from counterpoint.trace.rows import Signal, Signals
from credits import vectors as v
from credits.published_made import said, team

close = lambda x: pytest.approx(x, abs=v.TOLERANCE)  # noqa: E731


def pipelines(rewards: list[list[float]]) -> list[Trace]:
    """Reasoner i, actor ij: a fan-out of len(rewards) x len(rewards[0])."""
    return [
        team(f"{i}{j}", float(r), [said("reasoner", f"r{i}"), said("actor", f"a{i}{j}")])
        for i, own in enumerate(rewards)
        for j, r in enumerate(own)
    ]


def test_c3_compares_siblings_of_one_prefix() -> None:
    credit = c3(pipelines(v.C3_ACTOR))
    assert [credit.of(4 * i)["e0"] for i in (0, 1)] == close(v.C3_REASONER_ADV)
    assert [credit.of(k)["e1"] for k in range(8)] == close(np.ravel(v.C3_ACTOR_ADV))
    normalised = c3(pipelines(v.C3_ACTOR), normalise=True)
    assert [normalised.of(k)["e1"] for k in range(8)] == close(np.ravel(v.C3_NORMALISED))
    assert credit.notes["sibling sets"] == 3


def test_c3_with_a_critic() -> None:
    r, q, expected = v.C3_ASSISTED
    assert sibling_advantages(r, [0] * 3, q=q, alpha=1.0, mode="value_assisted") == close(expected)
    traces = [team(f"t{i}", x, [said("a", f"a{i}")]) for i, x in enumerate(r)]
    critic = lambda t: [q[int(t.trace_id[1])]]  # noqa: E731
    assert [row.value for row in c3(traces, mode="value_assisted", q=critic).rows] == close(expected)
    # alpha 0 is the plain form; value_only looks at Q alone
    assert [row.value for row in c3(traces, mode="value_assisted", q=critic, alpha=0.0).rows] == close([0.5, -1, 0.5])
    assert [row.value for row in c3(traces, mode="value_only", q=critic).rows] == close([0.15, -0.3, 0.15])
    with pytest.raises(NotIdentified, match="q="):
        c3(traces, mode="value_assisted")


def test_c3_ablations_and_messages_without_siblings() -> None:
    merged = c3(pipelines(v.C3_ACTOR), replay=False)
    assert merged.of(0)["e1"] == close(1 - 3 / 7)  # against all seven other actors
    mean = c3(pipelines(v.C3_ACTOR), baseline="mean")
    assert mean.of(0)["e1"] == close(0.25)
    lonely = pipelines([[1.0]])
    assert c3(lonely).of(0) == {"e0": 0.0, "e1": 0.0}
    with pytest.raises(NotIdentified, match="no sibling"):
        c3(lonely, singleton="refuse")
    with pytest.raises(NotIdentified, match="no content"):
        c3(team("t", 1.0, [said("a")]))
    assert c3([team("t", 1.0, [said("a")]), team("u", 0.0, [said("a")])], sample=lambda e: e.agent).of(0) == {"e0": 1.0}


def test_equal_last_words_are_two_samples() -> None:
    traces = [team(f"t{i}", r, [said("a", "same")]) for i, r in enumerate([1.0, 0.0, 0.0])]
    assert [row.value for row in c3(traces).rows] == close([1.0, -0.5, -0.5])


def test_magrpo_aligned() -> None:
    rewards, _, _, code = v.GROUPS["magrpo.aligned_code"]
    traces = [team(f"t{i}", r, [said("a", f"a{i}"), said("b", f"b{i}")]) for i, r in enumerate(rewards)]
    credit = magrpo(traces)
    assert [credit.of(i)["a"] for i in range(4)] == close(code)
    assert [credit.of(i)["b"] for i in range(4)] == close(code)
    paper = magrpo(traces, convention="m_grpo")
    assert [paper.of(i)["a"] for i in range(4)] == close(v.GROUPS["magrpo.aligned_paper"][3])
    with pytest.raises(InputError, match="aligned"):
        magrpo(traces, mode="crossed")


def test_magrpo_cross_sums_over_joint_actions() -> None:
    returns, _, advantages = v.MAGRPO_CROSS
    traces = [team(f"{i}{j}", returns[i][j], [said("a", f"a{i}"), said("b", f"b{j}")]) for i in (0, 1) for j in (0, 1)]
    credit = magrpo(traces, mode="cross")
    assert [credit.of(2 * i)["a"] for i in (0, 1)] == close(advantages[0])
    assert [credit.of(j)["b"] for j in (0, 1)] == close(advantages[1])
    assert credit.of(2)["b"] == credit.of(0)["b"]  # the same completion, the same credit
    assert credit.notes["groups"] == {"('q', 'a')": 2, "('q', 'b')": 2}


def test_magrpo_tree() -> None:
    rewards, parents, returns, advantages = v.MAGRPO_TREE
    assert tree_returns(rewards, parents, gamma=0.9)[:2] == close(returns)
    first, second = rewards[:2], [rewards[2:4], rewards[4:]]
    traces = [
        team(
            f"{i}{j}",
            None,
            [
                said("a", f"a{i}", turn=0, reward={"team": first[i]}),
                said("b", f"b{i}", turn=0),
                said("a", f"a{i}{j}", turn=1, reward={"team": second[i][j]}),
            ],
        )
        for i in (0, 1)
        for j in (0, 1)
    ]
    credit = magrpo(traces, mode="tree", gamma=0.9)
    assert [credit.of(2 * i)["a#0"] for i in (0, 1)] == close(advantages)
    assert credit.of(0)["b#0"] == credit.of(0)["a#0"]
    assert [credit.of(k)["a#1"] for k in range(4)] == close([0.5, -0.5, -0.1, 0.1])
    with pytest.raises(InputError, match="before its parent"):
        tree_returns([1, 1], [1, -1])


def test_marsrl_compares_verifiers_of_one_solution() -> None:
    rewards, _, _, expected = v.GROUPS["marsrl.grouped_advantage"]
    traces = [team(f"t{i}", 0.0, [said("s", "solution", role="solver"), said("v", f"v{i}", role="verifier")]) for i in range(4)]
    paid = Signals.of({t.trace_id: [Signal("role", "verifier", "x", float(r))] for t, r in zip(traces, rewards, strict=True)})
    credit = marsrl(traces, signals=paid)
    assert [credit.of(i)["e1"] for i in range(4)] == close(expected)
    assert "e0" not in credit.of(0)  # the solver was not paid
    other = team("z", 0.0, [said("s", "another", role="solver"), said("v", "v9", role="verifier")])
    paid = Signals.of(
        {
            **{t.trace_id: [Signal("role", "verifier", "x", float(r))] for t, r in zip(traces, rewards, strict=True)},
            "z": [Signal("role", "verifier", "x", 1.0)],
        }
    )
    alone = marsrl([*traces, other], signals=paid)
    assert "same input" in alone.unidentified[4, "e1"]


def test_marsrl_without_a_stage_to_compare_with_has_the_team_left() -> None:
    traces = [team(f"t{i}", float(i), [said("v", f"v{i}", role=f"verifier {i}")]) for i in range(2)]
    paid = Signals.of({t.trace_id: [Signal("role", f"verifier {i}", "x", 1.0)] for i, t in enumerate(traces)})
    with pytest.raises(NotIdentified):
        marsrl(traces, signals=paid)
    credit = marsrl(traces, signals=paid, others="team")
    assert [(r.unit, round(r.value, 3)) for r in credit.rows] == [("team", -0.707), ("team", 0.707)]


def test_marsrl_pays_single_events_and_keeps_answers_from_verdicts() -> None:
    steps = [said("s", "solution", role="w", task="chain 0"), said("v", "verdict", role="w", task="chain 0")]
    traces = [team(f"t{i}", 0.0, [{**step, "content_ref": f"{step['content_ref']}{i}"} for step in steps]) for i in range(4)]
    own = zip([1, 0, 1, 1], [0, 0, 1, 1], strict=True)
    paid = {f"t{i}": [Signal("message", "e0", "R3_answer", a), Signal("message", "e1", "R3_verdict", b)] for i, (a, b) in enumerate(own)}
    credit = marsrl(traces, signals=Signals.of(paid), inputs="any")  # nobody read the same input: every text is another
    assert [credit.of(i)["e0"] for i in range(4)] == pytest.approx([0.5, -1.5, 0.5, 0.5], abs=1e-5)
    assert [credit.of(i)["e1"] for i in range(4)] == pytest.approx([-0.75**0.5, -0.75**0.5, 0.75**0.5, 0.75**0.5], abs=1e-5)
    with pytest.raises(NotIdentified):
        marsrl(traces, signals=Signals.of({n: rows[1:] for n, rows in paid.items()}))
    paid_team = [replace(t, rewards={"team": float(i < 2)}) for i, t in enumerate(traces)]
    both = marsrl(paid_team, signals=Signals.of(paid), inputs="any", others="team")
    assert [both.of(i)[""] for i in range(4)] == pytest.approx([0.75**0.5, 0.75**0.5, -(0.75**0.5), -(0.75**0.5)], abs=1e-5)
    assert both.of(1)["e0"] == credit.of(1)["e0"]
    with pytest.raises(InputError, match="no inputs 'all'"):
        marsrl(traces, inputs="all")


def test_mars2_over_the_whole_tree() -> None:
    rewards, parents, shaped = v.MARS2_SHAPED
    assert shaped_rewards(rewards, parents) == close(shaped)

    def path(name: str, *nodes: int) -> Trace:
        steps: list[dict[str, Any]] = [said("x", f"n{n}", reward={"team": rewards[n]}) for n in nodes]
        return team(name, None, steps)

    traces = [path("a", 0, 2), path("b", 0, 3), path("c", 1, 4)]
    credit = mars2(traces)
    expected = v.GROUPS["marti_mars2.tree_wide"][3]
    got = [credit.of(0)["e0"], credit.of(2)["e0"], credit.of(0)["e1"], credit.of(1)["e1"], credit.of(2)["e1"]]
    assert got == close(expected)
    with_shape = mars2(traces, shape=True)
    want = (np.array(shaped) - np.mean(shaped)) / np.std(shaped, ddof=1)
    assert [with_shape.of(0)["e0"], with_shape.of(2)["e1"]] == close([want[0], want[4]])
    with pytest.raises(NotIdentified, match="carries a reward"):
        mars2(team("t", 1.0, [said("a", "x")]))


def test_malt_values_and_pairs() -> None:
    traces = [
        team(f"{g}{k}{r}", float(v.MALT_LEAVES[g][k][r]), [said("g", f"g{g}"), said("v", f"v{g}{k}"), said("r", f"r{g}{k}{r}")])
        for g, k, r in np.ndindex(2, 2, 2)
    ]
    credit = malt(traces)
    assert [credit.of(4 * g)["e0"] for g in (0, 1)] == v.MALT["generator"]
    assert credit.of(2)["e1"] == 1.0
    assert credit.notes["right"]["000 e1"] is False  # a half is wrong
    assert ("000 e0", "100 e0") in credit.notes["pairs"]
    assert len(credit.notes["pairs"]) == 4
