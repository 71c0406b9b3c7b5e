"""Mechanisms that compare rollouts, agents, layers and siblings: small cases by hand, and the words for what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from counterpoint.credits.mechanisms.agent_lightning import agent_lightning, token_divisors
from counterpoint.credits.mechanisms.agent_wise import agent_wise, inflation
from counterpoint.credits.mechanisms.c3 import c3, sibling_advantages
from counterpoint.credits.mechanisms.critical_steps import critical_steps
from counterpoint.credits.mechanisms.fold_grpo import fold_advantages, fold_grpo, rescaled
from counterpoint.credits.mechanisms.group_relative import group_relative
from counterpoint.credits.mechanisms.hierarchical import aligned, hierarchical
from counterpoint.credits.mechanisms.magrpo import magrpo, tree_returns
from counterpoint.credits.mechanisms.malt import malt
from counterpoint.credits.mechanisms.mars2 import mars2, shaped_rewards
from counterpoint.credits.mechanisms.marshal import marshal, player_centred, released
from counterpoint.credits.mechanisms.marsrl import marsrl
from counterpoint.credits.mechanisms.matpo import matpo
from counterpoint.credits.mechanisms.rema import rema
from counterpoint.credits.mechanisms.spiral import spiral
from counterpoint.credits.mechanisms.wideseek import agent_token_weights, wideseek
from counterpoint.errors import InputError, NotIdentified
from counterpoint.trace import Trace
from counterpoint.trace.rows import Signal, Signals
from credits.published_made import said, team

ROOT = 2**0.5


def rows(credit: Any) -> dict[tuple[int, str], float]:
    return {(r.trace, r.unit_id): r.value for r in credit.rows}


# -- rollouts -----------------------------------------------------------------------------------------------------------


def test_group_relative_notes_and_options() -> None:
    traces = [team(f"t{i}", r, [said("a"), said("b")]) for i, r in enumerate([0.0, 2e-6])]
    assert rows(group_relative(traces))[1, ""] == pytest.approx(1 / (ROOT + 1))
    assert rows(group_relative(traces, eps=0.0, ddof=0))[1, ""] == pytest.approx(1.0)
    assert rows(group_relative(traces, size=2, unit="agent"))[1, "b"] == pytest.approx(1 / (ROOT + 1))
    assert [r.unit for r in group_relative(traces, unit="agent").rows] == ["agent"] * 4
    assert group_relative(traces, convention="rloo").notes["convention"] == "rloo"
    from counterpoint.credits.groups import Convention

    assert group_relative(traces, convention=Convention()).notes["convention"] == "custom"
    soft = group_relative([team(f"t{i}", r, []) for i, r in enumerate([0.0, 0.2, 7.0])], convention="soft_rank", tau=0.2)
    assert soft.notes["convention"] == "soft_rank"
    assert (soft.notes["tau"], soft.notes["groups"], soft.notes["compared"]) == (0.2, {"q": 3}, {"q": ["t0", "t1", "t2"]})
    # sigmoid(1) = 0.7310586: the middle one has (0.7310586 + 0.5 + 0) / 3
    from statistics import NormalDist

    assert rows(soft)[1, ""] == pytest.approx(NormalDist().inv_cdf((0.7310585786 + 0.5) / 3))
    assert (soft.mechanism, soft.estimand) == ("group_relative", group_relative.estimand)
    lone = group_relative(team("t", 4.0, []), convention="soft_rank")
    assert rows(lone) == {(0, ""): 0.0}  # the median of itself


def test_agent_lightning_by_any_unit_and_with_tokens_missing() -> None:
    assert token_divisors(["b", "a", "b"], [1, 2, 3]).tolist() == [12, 6, 12]
    one = team("a", 1.0, [said("m", turn=0, tokens_out=10), said("m", turn=0, tokens_out=2), said("n", turn=0, tokens_out=1)])
    two = team("b", 0.0, [said("m", turn=0)])
    credit = agent_lightning([one, two], unit="agent")
    assert rows(credit) == pytest.approx({(0, "m"): 1 / ROOT, (0, "n"): 1 / ROOT, (1, "m"): -1 / ROOT}, abs=1e-5)
    assert credit.notes["token_divisors"] == {"a m": 39.0, "a n": 39.0}  # 13 tokens, 3 rows; b's are not recorded
    assert credit.notes["groups"] == {"q": 2}
    assert (credit.mechanism, {r.unit for r in credit.rows}) == ("agent_lightning", {"agent"})
    some = agent_lightning(team("c", 1.0, [said("m", turn=0, tokens_out=5), said("m", turn=0)]))  # one of two is recorded
    assert some.notes["token_divisors"] == {"c m#0": 5.0}
    assert agent_lightning(team("d", 1.0, [said("m", turn=0, tokens_out=1)])).notes["token_divisors"] == {"d m#0": 1.0}
    empty = agent_lightning([team("a", 1.0, []), team("b", 0.0, [])])
    assert (empty.rows, empty.notes["token_divisors"]) == ((), {})


def test_wideseek_and_matpo_and_rema_say_their_names() -> None:
    traces = [team(f"t{i}", r, [said("lead", turn=0, tokens_out=4), said("w", turn=0)]) for i, r in enumerate([1.0, 0.0])]
    for mechanism, unit in ((wideseek, "agent"), (matpo, "agent"), (rema, "turn")):
        credit = mechanism(traces)
        assert credit.mechanism == mechanism.run.__module__.rsplit(".", 1)[1]
        assert {r.unit for r in credit.rows} == {unit}
        assert credit.notes["groups"] == {"q": 2}
    assert wideseek(traces).notes["token_weights"] == {"t0": {"lead": 0.25}, "t1": {"lead": 0.25}}
    assert agent_token_weights([0, 4, 1]) == [0.0, 1 / 8, 1 / 2]
    part = wideseek(team("p", 1.0, [said("a", tokens_out=2), said("a"), said("b", tokens_out=1)]))
    assert part.notes["token_weights"] == {"p": {"a": 0.25, "b": 0.5}}
    assert agent_token_weights([]) == []
    # ReMA: the reward of a rollout is the sum of its turns', or the team's once
    two = [team(f"t{i}", r, [said("a", turn=0), said("b", turn=0), said("a", turn=1)]) for i, r in enumerate([1.0, 0.0])]
    assert rows(rema(two, convention="dr_grpo"))[0, "a#1"] == 0.5


# -- agents -------------------------------------------------------------------------------------------------------------


def test_inflation_of_each_agent() -> None:
    # means 1 and 7, stds 1 and 3; of all four: mean 4, variance 14
    assert inflation([0, 2, 4, 10], ["a", "a", "b", "b"]) == pytest.approx({"a": 10 / 14, "b": 18 / 14})
    assert inflation([1.0, 1.0], ["a", "b"]) == {}


def test_an_invocation_is_a_turn_or_an_action_without_one() -> None:
    busy = team("t0", 1.0, [said("a", turn=0), said("a", turn=0), said("a"), said("a"), said("b", turn=0)])
    calm = team("t1", 0.0, [said("a", turn=0), said("b", turn=0)])
    credit = agent_wise([busy, calm], convention="dr_grpo")
    assert credit.notes["groups"] == {"('q', 'a')": 4, "('q', 'b')": 2}  # turn 0, two without a turn, and the other rollout's
    assert rows(credit) == pytest.approx({(0, "a"): 0.25, (0, "b"): 0.5, (1, "a"): -0.75, (1, "b"): -0.5})
    assert credit.notes["compared"]["('q', 'a')"] == ["t0 a", "t0 a", "t0 a", "t1 a"]
    by_turn = agent_wise([calm, team("t2", 1.0, [said("a", turn=0), said("a", turn=1)])], by="turn", convention="dr_grpo")
    assert by_turn.notes["groups"] == {"('q', 'a')": 3, "('q', 'b')": 1}
    assert rows(by_turn) == pytest.approx({(0, "a#0"): -2 / 3, (0, "b#0"): 0.0, (1, "a#0"): 1 / 3, (1, "a#1"): 1 / 3})
    assert set(by_turn.notes["inflation"]) == {"a", "b"}
    with pytest.raises(InputError, match="nothing to compare by 'team'"):
        agent_wise([calm], by="team")
    nobody = agent_wise([team("t", 1.0, [])])
    assert (nobody.rows, nobody.notes) == ((), {"groups": {}})


def test_agent_wise_changes_the_convention_as_told() -> None:
    traces = [team(f"t{i}", r, [said("a", turn=0)]) for i, r in enumerate([0.0, 2.0])]
    assert rows(agent_wise(traces, eps=1.0))[1, "a"] == pytest.approx(1 / (ROOT + 1))
    assert rows(agent_wise(traces, eps=1.0, ddof=0))[1, "a"] == pytest.approx(0.5)
    some = Signals.of({"t0": [Signal("agent", "z", "x", 1.0)], "t1": [Signal("agent", "a", "x", 1.0)]})
    two = [team(f"t{i}", r, [said("z", turn=0), said("a", turn=0)]) for i, r in enumerate([0.0, 2.0])]
    assert rows(agent_wise(two, signals=some, singleton="zero")) == {(0, "z"): 0.0, (1, "a"): 0.0}


def test_spiral_goes_on_from_where_it_was() -> None:
    games = [team(f"t{i}", None, [said("p", role="x", reward={"team": r})]) for i, r in enumerate([4.0, 8.0])]
    credit = spiral(games, decay=0.5, start=2.0)
    assert rows(credit) == {(0, "x"): 2.0, (1, "x"): 5.0}  # 2, then 3
    assert credit.notes == {"decay": 0.5, "baselines": {"('q', 'x')": 5.5}}
    by_agent = spiral(games, by="agent", decay=0.5)
    assert [(r.unit, r.unit_id) for r in by_agent.rows] == [("agent", "p")] * 2
    some = Signals.of({"t1": [Signal("role", "x", "c", 3.0)]})
    assert rows(spiral(games, signals=some)) == {(1, "x"): 3.0}


def test_marshal_discounts_and_knows_its_players() -> None:
    game = team("g", None, [said("0", turn=0), said("1", turn=0, reward={"team": 1.0}), said("0", turn=1, reward={"team": 4.0})])
    credit = marshal(game, gamma=0.5)
    # player 0: returns 2 and 4, mean 3; player 1: 1 alone
    assert rows(credit) == {(0, "0#0"): -1.0, (0, "0#1"): 1.0, (0, "1#0"): 0.0}
    assert credit.notes == {"form": "plain", "gamma": 0.5, "groups": {"('q', '0')": 2, "('q', '1')": 1}}
    assert player_centred([1.0, 1.0, 4.0, 1.0], [0, 0, 0, 1], form="unique").tolist() == [-1.5, -1.5, 1.5, 0.0]
    with pytest.raises(InputError, match="no form 'odd'"):
        player_centred([1.0], [0], form="odd")
    assert marshal([team("t", 1.0, [])]).rows == ()


def test_marshal_as_released_with_padding_counts_a_zero_for_every_player() -> None:
    rewards, ends, chains, players = [0.0, 1.0, 0.5, 0.25], [False, True, True, True], [0, 0, 1, 2], [0, 0, 0, 1]
    x = np.array([0.0, 1.0 - 0.75, 0.5 - 0.75, 0.25 - 0.25])
    x = (x - x.mean()) / np.sqrt(x.var(ddof=1) + 1e-8)
    back = np.array([x[0] + x[1], x[1], x[2], x[3]])
    own = [np.mean(sorted({back[0], back[1], back[2], 0.0})), np.mean(sorted({back[3], 0.0}))]
    centred = back - np.array([own[0], own[0], own[0], own[1]])
    want = (centred - centred.mean()) / np.sqrt(centred.var(ddof=1) + 1e-8)
    assert released(rewards, ends, chains, players, padded=True) == pytest.approx(want, abs=1e-9)
    plain = released([0.0, 1.0, 0.5], [False] * 3, [0, 0, 0], [0, 0, 0])  # no end: nothing is centred first
    y = np.array([0.0, 1.0, 0.5]) - 0.5
    back = np.cumsum((y / np.sqrt(0.25 + 1e-8))[::-1])[::-1]
    assert plain == pytest.approx((back - back.mean()) / np.sqrt(back.var(ddof=1) + 1e-8), abs=1e-6)


# -- layers -------------------------------------------------------------------------------------------------------------


def deep(name: str, main: float, subs: list[float], below: float | None = None) -> Trace:
    spawns = [{"type": "spawn", "agent": "main", "to": f"s{k}"} for k in range(len(subs))]
    steps = [said("main", reward={"team": main}), *spawns, *(said(f"s{k}", reward={"team": r}) for k, r in enumerate(subs))]
    if below is not None:
        steps += [{"type": "spawn", "agent": "s0", "to": "d"}, said("d", reward={"team": below})]
    return team(name, main, steps)


def test_layers_are_as_deep_as_the_tree() -> None:
    traces = [deep("a", 1.0, [2.0, 4.0], 10.0), deep("b", 0.0, [0.0], 20.0)]
    credit = hierarchical(traces, convention="dr_grpo")
    assert credit.notes["groups"] == {"('q', 0)": 2, "('q', 1)": 3, "('q', 2)": 2}
    assert rows(credit) == pytest.approx(
        {(0, "main"): 0.5, (0, "s0"): 0, (0, "s1"): 2, (0, "d"): -5, (1, "main"): -0.5, (1, "s0"): -2, (1, "d"): 5}
    )
    assert (credit.notes["d"], credit.notes["sub"]) == (None, "task")
    inside = hierarchical(traces, convention="dr_grpo", sub="rollout")
    assert rows(inside) == pytest.approx(
        {(0, "main"): 0.5, (0, "s0"): -1, (0, "s1"): 1, (0, "d"): 0, (1, "main"): -0.5, (1, "s0"): 0, (1, "d"): 0}
    )
    assert inside.notes["groups"]["('q', 1, 'a')"] == 2
    with pytest.raises(InputError, match="no group of sub-agents 'all'"):
        hierarchical(traces, sub="all")
    with pytest.raises(InputError, match="d is at least 1, not 0"):
        hierarchical(traces, d=0)
    some = Signals.of({"a": [Signal("agent", "s0", "x", 1.0), Signal("agent", "s1", "x", 3.0)]})
    assert rows(hierarchical(traces, convention="dr_grpo", signals=some)) == {(0, "s0"): -1.0, (0, "s1"): 1.0}


def test_alignment_keeps_all_or_drops_by_lot() -> None:
    assert aligned(0, 3, np.random.default_rng(0)) == []
    assert aligned(3, 3, np.random.default_rng(0)) == [0, 1, 2]
    assert aligned(1, 4, np.random.default_rng(0)) == [0, 0, 0, 0]
    drawn = {tuple(aligned(4, 2, np.random.default_rng(s))) for s in range(60)}
    assert drawn == {(i, j) for i in range(4) for j in range(i + 1, 4)}  # in order, each pair occurs
    filled = {tuple(aligned(2, 3, np.random.default_rng(s))) for s in range(20)}
    assert filled == {(0, 1, 0), (0, 1, 1)}
    traces = [deep(n, r, [1.0, 2.0, 3.0, 4.0]) for n, r in (("a", 1.0), ("b", 0.0))]
    kept = [frozenset(hierarchical(traces, d=2, seed=s).of(0)) for s in range(12)]
    assert len(set(kept)) > 1
    assert kept == [frozenset(hierarchical(traces, d=2, seed=s).of(0)) for s in range(12)]
    one = hierarchical(traces, d=2)
    assert all(len(one.of(i)) == 3 for i in (0, 1))
    assert set(one.unidentified.values()) == {"dropped: more than d = 2 sub-calls"}
    assert one.notes["groups"]["('q', 1)"] == 4
    assert any(set(one.of(0)) != set(hierarchical(traces, d=2, seed=s).of(1)) for s in range(12))  # each rollout has its own lot


# -- the orchestrator's steps -------------------------------------------------------------------------------------------


def test_a_budget_of_critical_steps_counts_to_the_last_one() -> None:
    traces = [deep("a", 1.0, [1.0, 1.0]), deep("b", 0.0, [1.0]), deep("c", 0.25, [])]
    at = critical_steps(traces, budget=2)
    assert {i for i, _ in rows(at)} == {0, 1, 2}
    assert (at.notes["budget"], at.notes["critical"], at.notes["total"]) == (2, [2, 2, 1], [3, 2, 1])
    below = critical_steps([*traces, deep("d", 0.75, [])], budget=1)
    assert rows(below) == pytest.approx({(2, "main"): -0.25, (3, "main"): 0.25})
    assert below.unidentified == {(i, "main"): "over the budget of 1 critical steps" for i in (0, 1)}
    assert below.notes["groups"] == {"q": 2}
    with pytest.raises(NotIdentified, match="no trace is within 0 critical steps; a larger budget"):
        critical_steps(traces, budget=0)


# -- folding ------------------------------------------------------------------------------------------------------------


def test_folding_by_hand() -> None:
    # outcomes 1 and 0: mean 1/2, std 1/2 (ddof 0); a group of one and an even group beside them
    a = fold_advantages([1.0, 0.0, 0.5, 0.25, 0.25], [0, 0, 1, 2, 2], [0, 0, 1, 2, 3, 4], [0.0, -0.25, 0.5, 0.0, 0.0, -1.0])
    assert a[:3] == pytest.approx([1.0, 0.5, 0.0])
    assert np.isnan(a[3])
    assert a[4:].tolist() == [0.0, 0.0]
    assert fold_advantages([1.0, 0.0], [0, 0], [0], [0.0], ddof=1) == pytest.approx([0.5 / 0.5**0.5])
    assert fold_advantages([1.0, 0.0], [0, 0], [0, 1], [1.0, -1.0]) == pytest.approx([1.0, -1.0])  # clipped to 0 and 1


def test_folding_refuses_outcomes_beyond_its_clip_and_can_rescale_them() -> None:
    with pytest.raises(InputError, match="an outcome is 5, and the clip") as error:
        fold_advantages([5.0, 4.0], [0, 0], [0, 1], [0.0, 0.0])
    assert "rescale=group" in str(error.value.fix)
    paid = [-0.1, -0.7, -0.05, 0.0, -0.62, 0.0, -0.83, -0.3]
    traces = [team(f"t{i}", r, [said("m")]) for i, r in enumerate(paid)]
    with pytest.raises(InputError, match=r"an outcome is -0\.1,"):
        fold_grpo(traces)
    told = [r.value for r in fold_grpo(traces, rescale="group").rows]
    assert told == pytest.approx([(r + 0.325) / np.std(paid) for r in paid])  # with Q = 0, as if nothing were clipped
    four = [team(f"t{i}", r, [said("m"), said("m")]) for i, r in enumerate([5.0, 4.0, 2.0, 3.0])]
    # 1, 2/3, 0, 1/3: mean 1/2, std sqrt(5)/6; the second action of each has Q = -1 and is clipped to 0
    credit = fold_grpo(four, rescale="group", process=lambda t: {"e1": -1.0})
    std = 5**0.5 / 6
    assert [credit.of(i)["e0"] for i in range(4)] == pytest.approx([x / std for x in (1 / 2, 1 / 6, -1 / 2, -1 / 6)])
    assert [credit.of(i)["e1"] for i in range(4)] == pytest.approx([-0.5 / std] * 4)
    assert credit.notes["rescale"] == "group"
    assert rescaled([5.0, 4.0, 2.0, 2.0], [0, 0, 1, 1], "group").tolist() == [1.0, 0.0, 0.0, 0.0]
    assert rescaled([-1.0, 1.0, 0.0], [0, 0, 0], [-1, 1]).tolist() == [0.0, 1.0, 0.5]
    with pytest.raises(InputError, match="an outcome is 5, outside of the bounds 2 and 3"):
        fold_grpo(four, rescale=[2, 3])
    for wrong in ("batch", [1], [1, 1]):
        with pytest.raises(InputError, match="rescale is"):
            rescaled([0.0], [0], wrong)


def folded(**options: Any) -> dict[str, float]:
    """The process term of each action of a long rollout, read off from advantages against a twin that failed."""
    steps: list[dict[str, Any]] = [
        {"type": "orchestrator_decision", "agent": "main", "decision": "spawn", "turn": 0, "tokens_in": 60},
        {"type": "spawn", "agent": "main", "to": "sub"},
        {"type": "tool_call", "agent": "sub", "tool": "x", "turn": 0, "tokens_in": 90},
        {"type": "tool_result", "agent": "sub", "tool": "x", "turn": 0, "ok": False},
        said("sub", turn=1, tokens_in=90),
        said("main", turn=1, tokens_in=50),
        said("main", turn=2, tokens_in=51),
        said("main", ok=False),
        said("main", ok=True),
    ]
    good = team("t0", 1.0, steps)
    credit = fold_grpo([good, team("t1", 0.0, steps[:1])], **options)
    return {e: round((a + 1) / 2 - 1, 9) for (i, e), a in rows(credit).items() if i == 0}


def test_process_terms_of_a_rollout() -> None:
    bare = {"e0": 0, "e2": -1, "e4": 0, "e5": 0, "e6": 0, "e7": -1, "e8": 0}
    assert folded() == bare
    assert folded(context_limit=100) == bare | {"e6": -1}  # the main agent above half of it, where it does not spawn
    assert folded(context_limit=98) == bare | {"e5": -1, "e6": -1}
    assert folded(out_of_scope=lambda t: ["sub"]) == bare | {"e4": -0.2}
    assert folded(out_of_scope=lambda t: ["sub"], int8=True) == bare
    assert folded(process=lambda t: {"e4": -0.5}) == dict.fromkeys(bare, 0) | {"e4": -0.5}


def test_folding_says_what_it_compared() -> None:
    traces = [team("a", 1.0, [said("m")]), team("b", 0.0, [said("m")]), team("c", 0.5, [said("m")], task="p")]
    credit = fold_grpo(traces, ddof=1, int8=True)
    assert credit.notes == {"ddof": 1, "int8": True, "groups": {"q": 2, "p": 1}}
    assert credit.unidentified == {(2, "e0"): "a group of one: nobody to compare with"}
    assert rows(credit)[0, "e0"] == pytest.approx(0.5 / 0.5**0.5)
    with pytest.raises(NotIdentified, match="several traces per task"):
        fold_grpo(traces[2:])
    told = fold_grpo([team("a", 0.5, [said("m"), said("m")]), team("b", 0.0, [said("m")])], process=lambda t: {"e1": 0.25})
    assert rows(told) == {(0, "e0"): 1.0, (0, "e1"): 2.0, (1, "e0"): -1.0}  # mean and std 1/4; what is not named adds nothing


# -- siblings -----------------------------------------------------------------------------------------------------------


def test_sibling_advantages_by_hand() -> None:
    r, g, q = [1.0, 0.0, 4.0, 7.0], [0, 0, 0, 1], [0.5, 0.25, 0.0, 1.0]
    some = np.s_[:3]
    assert sibling_advantages(r, g)[some] == pytest.approx([-1, -2.5, 3.5])
    assert np.isnan(sibling_advantages(r, g)[3])
    half = sibling_advantages(r, g, q=q, alpha=0.25, mode="value_assisted")[some]
    assert half == pytest.approx([1 - (0.75 * 2 + 0.25 * 0.125), 0 - (0.75 * 2.5 + 0.25 * 0.25), 4 - (0.75 * 0.5 + 0.25 * 0.375)])
    assert sibling_advantages(r, g, q=q, mode="value_assisted")[some] == pytest.approx([-1, -2.5, 3.5])  # alpha 0
    assert sibling_advantages(r, g, q=q, mode="value_only")[some] == pytest.approx([0.375, 0.0, -0.375])
    assert sibling_advantages(r, g, q=q, mode="value_only", baseline="mean")[some] == pytest.approx([0.25, 0.0, -0.25])
    assert sibling_advantages(r, g, q=q, baseline="mean")[some] == pytest.approx([-2 / 3, -5 / 3, 7 / 3])
    scaled = sibling_advantages([0.0, 2e-4], [0, 0], normalise=True)  # -2e-4 and 2e-4: variance 4e-8, eps 1e-8 inside
    assert scaled == pytest.approx([-2 / 5**0.5, 2 / 5**0.5])
    alone = sibling_advantages([1.0, 3.0, 9.0], [1, 1, 0], normalise=True)
    assert np.isnan(alone[2])
    assert alone[:2] == pytest.approx([-1, 1], abs=1e-6)
    with pytest.raises(InputError, match="value_only needs q"):
        sibling_advantages(r, g, mode="value_only")
    with pytest.raises(InputError, match="no mode 'odd'"):
        sibling_advantages(r, g, mode="odd")
    with pytest.raises(InputError, match="no baseline 'median'"):
        sibling_advantages(r, g, baseline="median")


def test_c3_siblings_have_one_prefix_and_one_agent() -> None:
    spoken = [("x", 1.0), ("y", 0.0), ("z", 4.0)]
    traces = [team(f"t{i}", r, [said("a", text), said("b", f"b{i}")]) for i, (text, r) in enumerate(spoken)]
    other = team("t3", 9.0, [said("b", "x"), said("a", "late")])  # another agent opens
    credit = c3([*traces, other])
    assert rows(credit) == pytest.approx(
        {(0, "e0"): -1, (1, "e0"): -2.5, (2, "e0"): 3.5, (3, "e0"): 0} | {(i, "e1"): 0 for i in range(4)}
    )
    assert credit.notes == {"sibling sets": 1, "largest": 3, "mode": "reward_only", "singleton": "zero"}
    refused = c3([*traces, other], singleton="refuse")
    assert set(refused.unidentified) == {(3, "e0"), *((i, "e1") for i in range(4))}
    merged = c3([*traces, other], replay=False)
    assert rows(merged)[0, "e1"] == pytest.approx(1 - 2)  # the three b's at one place, whatever stood before
    assert rows(merged)[3, "e1"] == 0.0
    by_task = c3([*traces[:2], team("t4", 5.0, [said("a", "x")], task="p")], replay=False)
    assert rows(by_task)[2, "e0"] == 0.0
    with pytest.raises(InputError, match="no rule 'keep' for a message without siblings"):
        c3(traces, singleton="keep")
    assert c3([team("t", 1.0, [])]).notes["largest"] == 0


def test_c3_asks_the_critic_about_each_sibling_once() -> None:
    traces = [
        team(f"t{i}", r, [said("a", t), said("b", f"b{i}")]) for i, (t, r) in enumerate([("x", 1.0), ("x", 0.0), ("y", 0.0)])
    ]
    critic = lambda t: {"e0": {"t0": 0.75, "t1": 99.0, "t2": 0.25}[t.trace_id], "e1": 0.0}  # noqa: E731
    credit = c3(traces, mode="value_only", q=critic)
    assert [rows(credit)[i, "e0"] for i in range(3)] == pytest.approx([0.5, 0.5, -0.5])  # the first trace speaks for x
    assert credit.notes["mode"] == "value_only"


def test_magrpo_aligned_refuses_who_is_alone_and_cross_copies_the_refusal() -> None:
    traces = [team("t0", 1.0, [said("a", "x"), said("b", "y")]), team("t1", 0.0, [said("a", "x")])]
    one = magrpo(traces, singleton="refuse")
    assert rows(one) == {(0, "a"): 0.5, (1, "a"): -0.5}
    assert set(one.unidentified) == {(0, "b")}
    assert one.notes["mode"] == "aligned"
    # in cross, a's completion is one and the same: a group of one, in both rollouts
    both = [team("t0", 1.0, [said("a", "x"), said("b", "y")]), team("t1", 0.0, [said("a", "x"), said("b", "z")])]
    cross = magrpo(both, mode="cross", singleton="refuse")
    assert rows(cross) == {(0, "b"): 0.5, (1, "b"): -0.5}
    assert set(cross.unidentified) == {(0, "a"), (1, "a")}
    assert cross.notes["mode"] == "cross"
    raw = magrpo(
        [team("t0", 1.0, [said("a", "x")]), team("t1", 4.0, [said("a", "x")]), team("t2", 2.0, [said("a", "y")])],
        mode="cross",
        convention="reinforce",
    )
    assert rows(raw) == {(0, "a"): 5.0, (1, "a"): 5.0, (2, "a"): 2.0}  # the sums themselves
    with pytest.raises(NotIdentified, match="completions cannot be told apart") as error:
        magrpo([both[0], team("mute", 1.0, [said("a", "x"), said("b")])], mode="cross")
    assert error.value.where == "mute"


def test_magrpo_tree_nodes_are_transcripts() -> None:
    # two rollouts share their first turn, a third has another; the last turns are samples of their own
    def path(name: str, reward: float, first: str, last: str) -> Trace:
        return team(name, reward, [said("a", first, turn=0), said("b", "same", turn=0), said("a", last, turn=1)])

    traces = [path("t0", 1.0, "x", "p"), path("t1", 0.0, "x", "p"), path("t2", 0.5, "y", "p")]
    credit = magrpo(traces, mode="tree", gamma=0.5)
    # x returns 0.5 * mean(1, 0) = 0.25, y 0.25: equal; below x: 1 and 0 against 0.5; below y one alone
    assert rows(credit) == pytest.approx(
        {
            (0, "a#0"): 0,
            (0, "b#0"): 0,
            (0, "a#1"): 0.5,
            (1, "a#0"): 0,
            (1, "b#0"): 0,
            (1, "a#1"): -0.5,
            (2, "a#0"): 0,
            (2, "b#0"): 0,
            (2, "a#1"): 0,
        }
    )
    assert (credit.notes["mode"], credit.notes["gamma"]) == ("tree", 0.5)
    assert sorted(credit.notes["groups"].values()) == [1, 2, 2]
    refused = magrpo(traces, mode="tree", singleton="refuse")
    assert set(refused.unidentified) == {(2, "a#1")}
    # who speaks first within a turn makes no other transcript
    swapped = team("t1", 0.0, [said("b", "same", turn=0), said("a", "x", turn=0), said("a", "p", turn=1)])
    assert rows(magrpo([traces[0], swapped, traces[2]], mode="tree", gamma=0.5)) == pytest.approx(rows(credit))
    with pytest.raises(InputError, match="node 1 stands before its parent 1"):
        tree_returns([1.0, 1.0], [-1, 1])
    assert tree_returns([1.0, 0.0, 2.0, 4.0], [-1, 0, 1, 1]) == pytest.approx([1 + 0.81 * 3, 0.9 * 3, 2, 4])


def test_marsrl_pays_a_stage_by_its_role() -> None:
    traces = [
        team("t0", 0.0, [said("s", "sol", role="solver"), said("v", "v0", role="verifier")]),
        team("t1", 0.0, [said("s", "sol", role="solver"), said("v", "v1", role="verifier")]),
        team("t2", 0.0, [said("s", "other", role="solver"), said("v", "v2", role="verifier")]),
    ]
    paid = Signals.of(
        {
            f"t{i}": [Signal("role", "verifier", "x", r), Signal("role", "solver", "x", s)]
            for i, (r, s) in enumerate([(1.0, 3.0), (0.0, 5.0), (9.0, 1.0)])
        }
    )
    credit = marsrl(traces, signals=paid, convention="dr_grpo", singleton="refuse")
    # one solution counts once, with the first rollout's pay: 3 against 1; both rollouts that hold it get its credit
    assert rows(credit) == {(0, "e0"): 1.0, (0, "e1"): 0.5, (1, "e0"): 1.0, (1, "e1"): -0.5, (2, "e0"): -1.0}
    assert credit.unidentified == {(2, "e1"): "nobody else read the same input"}
    assert sorted(credit.notes["groups"].values()) == [1, 2, 2]


def test_mars2_shapes_and_scores_nodes() -> None:
    # by hand: gain 1, mix 1/4; node 2's siblings: 3; roots are each other's siblings
    assert shaped_rewards([1.0, 3.0, 2.0, 4.0], [-1, -1, 0, 0], gain=1.0, mix=0.25) == pytest.approx(
        [1 + (1 - 3), 3 + (3 - 1), 2 + (2 - (0.25 * -1 + 0.75 * 4)), 4 + (4 - (0.25 * -1 + 0.75 * 2))]
    )
    assert shaped_rewards([2.0, 5.0], [-1, 0]).tolist() == [2.0, 5.0 + 0.5 * 3.0]  # no siblings: itself, or the parent alone
    with pytest.raises(InputError, match="node 1 stands before its parent 1"):
        shaped_rewards([1.0, 1.0], [-1, 1])
    first = [said("x", "n0", reward={"team": 1.0}), said("y", "mute"), said("x", "n1", reward={"team": 3.0})]
    second = [said("x", "n0", reward={"team": 1.0}), said("y", "mute"), said("x", "n2", reward={"team": 8.0})]
    credit = mars2([team("a", None, first), team("b", None, second)], convention="dr_grpo")
    assert rows(credit) == {(0, "e0"): -3.0, (0, "e2"): -1.0, (1, "e0"): -3.0, (1, "e2"): 4.0}
    assert credit.notes["groups"] == {"q": 3}
    assert credit.notes["shaped"] is False
    # a node whose parent was not scored has no parent: n1 and n2 and n0 stand beside each other, and 0 stays with its parent
    shaped = mars2([team("a", None, first), team("b", None, second)], convention="reinforce", shape=True, gain=1.0)
    assert rows(shaped) == {(0, "e0"): 2 - 5.5, (0, "e2"): 6 - 4.5, (1, "e0"): 2 - 5.5, (1, "e2"): 16 - 2.0}
    assert shaped.notes["shaped"] is True
    mixed = [team("a", None, [said("x", "r", reward={"team": 2.0}), said("x", "c", reward={"team": 6.0})])]
    assert rows(mars2(mixed, convention="reinforce", shape=True, gain=0.25, mix=0.5))[0, "e1"] == pytest.approx(6 + 0.25 * 4)
    with pytest.raises(NotIdentified, match="no event carries a reward 'x'"):
        mars2(mixed, channel="x")


def test_malt_labels_above_the_threshold_and_pairs_within_parent_and_agent() -> None:
    traces = [
        team("t0", 1.0, [said("g", "x"), said("v", "p")]),
        team("t1", 0.0, [said("g", "x"), said("v", "q")]),
        team("t2", 0.0, [said("g", "y"), said("v", "p")]),
        team("t3", 0.0, [said("h", "x"), said("v", "p")]),
    ]
    credit = malt(traces)
    assert rows(credit)[0, "e0"] == 0.5
    assert credit.notes["threshold"] == 0.5
    assert credit.notes["right"]["t0 e1"] is True
    assert credit.notes["right"]["t1 e0"] is False
    assert credit.notes["pairs"] == [("t0 e1", "t1 e1")]
    low = malt(traces, threshold=0.25)
    assert low.notes["pairs"] == [("t0 e0", "t2 e0"), ("t0 e1", "t1 e1")]  # not h's: another agent
