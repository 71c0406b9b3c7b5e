"""Published mechanisms on traces: their own numbers come out at the right units, and what cannot be answered is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import counterpoint as cpt
from counterpoint import registry
from counterpoint.credits.mechanisms.agent_lightning import agent_lightning, token_divisors
from counterpoint.credits.mechanisms.agent_wise import agent_wise
from counterpoint.credits.mechanisms.coma import coma, counterfactual_advantages
from counterpoint.credits.mechanisms.critical_steps import critical_steps
from counterpoint.credits.mechanisms.difference import difference
from counterpoint.credits.mechanisms.fold_grpo import fold_advantages, fold_grpo
from counterpoint.credits.mechanisms.gae import gae
from counterpoint.credits.mechanisms.group_relative import group_relative
from counterpoint.credits.mechanisms.hierarchical import aligned, hierarchical
from counterpoint.credits.mechanisms.marft import marft
from counterpoint.credits.mechanisms.marshal import marshal, player_centred
from counterpoint.credits.mechanisms.matpo import matpo
from counterpoint.credits.mechanisms.peer_split import peer_split, split_rewards, split_weights
from counterpoint.credits.mechanisms.puppeteer import puppeteer
from counterpoint.credits.mechanisms.qmix import MixWeights, gradient, mix, qmix, td_errors
from counterpoint.credits.mechanisms.rema import rema
from counterpoint.credits.mechanisms.spiral import spiral
from counterpoint.credits.mechanisms.step_pairs import step_pairs
from counterpoint.credits.mechanisms.token_spread import token_spread
from counterpoint.credits.mechanisms.uniform import shares, uniform
from counterpoint.credits.mechanisms.vdn import vdn
from counterpoint.credits.mechanisms.vtrace import vtrace
from counterpoint.credits.mechanisms.wideseek import agent_token_weights, wideseek
from counterpoint.errors import InputError, NotIdentified
from counterpoint.trace import Trace
from counterpoint.trace.rows import Signal, Signals
from credits import vectors as v
from credits.published_made import said, team

close = lambda x: pytest.approx(x, abs=v.TOLERANCE)  # noqa: E731
RATED = [1.0, 0.0, 0.0, 1.0]


def duo(rewards: list[float], **fields: Any) -> list[Trace]:
    """A solver and a verifier, one turn each."""
    steps = [
        said("solver", "s", role="solver", turn=0, tokens_out=10),
        said("verifier", "v", role="verifier", turn=0, tokens_out=30),
    ]
    return [team(f"t{i}", r, steps, **fields) for i, r in enumerate(rewards)]


def amounts(credit: Any, unit_id: str) -> list[float]:
    return [row.value for row in credit.rows if row.unit_id == unit_id]


# -- uniform ------------------------------------------------------------------------------------------------------------


def test_uniform_splits_the_reward() -> None:
    (trace,) = duo([1.0])
    assert uniform(trace).of(0) == {"solver": 0.5, "verifier": 0.5}
    assert uniform(trace, by="tokens").of(0) == pytest.approx({"solver": 0.25, "verifier": 0.75})
    with pytest.raises(NotIdentified, match="tokens"):
        uniform(team("t", 1.0, [said("a")]), by="tokens")
    with pytest.raises(InputError, match="no reward"):
        uniform(team("t", None, [said("a")]))


@given(st.floats(-1e9, 1e9), st.lists(st.floats(0, 1e6), min_size=1, max_size=40).filter(any))
def test_shares_sum_to_the_amount(amount: float, weights: list[float]) -> None:
    assert sum(shares(amount, weights)) == pytest.approx(amount, rel=1e-12, abs=1e-12)


# -- group-relative -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [n for n in v.GROUPS if not n.startswith(("sharp", "collm"))])
def test_group_relative_has_the_published_numbers(name: str) -> None:
    rewards, convention, changes, expected = v.GROUPS[name]
    credit = group_relative(duo(list(map(float, rewards))), convention=convention, **changes)
    assert amounts(credit, "") == close(expected)


def test_the_notes_say_who_was_compared_with_whom() -> None:
    traces = [*duo([1.0, 0.0], task="a"), team("z", 5.0, [said("solver")], task="b")]
    credit = group_relative(traces, singleton="zero")
    assert credit.notes["groups"] == {"a": 2, "b": 1}
    assert credit.notes["compared"] == {"a": ["t0", "t1"], "b": ["z"]}
    assert (credit.notes["ddof"], credit.notes["eps"], credit.notes["singleton"]) == (1, 1e-6, "zero")
    assert credit.of(2) == {"": 0.0}


def test_a_group_of_one_is_refused_by_name_and_alone_it_is_an_error() -> None:
    traces = [*duo([1.0, 0.0], task="a"), team("z", 5.0, [said("solver")], task="b")]
    credit = group_relative(traces)
    assert "group of one" in credit.unidentified[2, ""]
    assert credit.of(2) == {}
    wide = group_relative(traces, unit="agent")
    assert (2, "solver") in wide.unidentified
    with pytest.raises(NotIdentified, match="several traces"):
        group_relative(traces[-1])
    assert group_relative(traces[-1], convention="verl").of(0)[""] == pytest.approx(5 / (1 + 1e-6))


def test_groups_of_the_wrong_size_are_found() -> None:
    with pytest.raises(InputError, match="'q' has 3"):
        group_relative(duo([1.0, 0.0, 0.0]), size=4)
    with pytest.raises(InputError, match="group key"):
        group_relative(duo([1.0, 0.0]), key="colour")
    with pytest.raises(InputError, match="did you mean 'rloo'"):
        group_relative(duo([1.0, 0.0]), convention="rlo")


def test_it_is_copied_to_every_unit() -> None:
    credit = group_relative(duo(RATED), unit="turn", convention="dr_grpo")
    assert credit.of(0) == pytest.approx({"solver#0": 0.5, "verifier#0": 0.5})
    assert amounts(credit, "solver#0") == pytest.approx([0.5, -0.5, -0.5, 0.5])


def test_soft_ranks_of_rewards() -> None:
    rewards, _, expected = v.SOFT_RANK
    assert amounts(group_relative(duo(rewards), convention="soft_rank"), "") == close(expected)


@given(st.lists(st.floats(-10, 10), min_size=2, max_size=8), st.randoms(use_true_random=False))
def test_the_order_of_traces_changes_nothing(rewards: list[float], random: Any) -> None:
    traces = duo(rewards)
    mixed = random.sample(traces, len(traces))
    for mechanism in (group_relative, agent_wise, matpo, wideseek, agent_lightning, rema, marshal, hierarchical):
        one, two = mechanism(traces), mechanism(mixed)
        left = {(one.trace_ids[r.trace], r.unit_id): r.value for r in one.rows}
        right = {(two.trace_ids[r.trace], r.unit_id): r.value for r in two.rows}
        assert left.keys() == right.keys()
        assert [right[k] for k in left] == pytest.approx(list(left.values()), abs=1e-6)


# -- agents, layers, roles ----------------------------------------------------------------------------------------------


def test_dr_mas_on_traces() -> None:
    # the verifier is called once, twice, once, never
    steps = [[said("solver", turn=0)] + [said("verifier", turn=k) for k in range(n)] for n in (1, 2, 1, 0)]
    traces = [team(f"t{i}", r, s) for i, (r, s) in enumerate(zip(RATED, steps, strict=True))]
    credit = agent_wise(traces)
    assert amounts(credit, "solver") == close(v.DR_MAS["advantages"][:4])
    assert amounts(credit, "verifier") == close([1.499997, -0.499999, -0.499999])
    assert credit.notes["groups"] == {"('q', 'solver')": 4, "('q', 'verifier')": 4}
    once = agent_wise(traces, count="episodes")
    assert amounts(once, "verifier") == close([1.154699, -0.577349, -0.577349])
    by_turn = agent_wise(traces, by="turn")
    assert by_turn.of(1) == close({"solver#0": -0.866024, "verifier#0": -0.499999, "verifier#1": -0.499999})


def test_dr_mas_of_the_peer_study() -> None:
    p = v.DR_MAS_PEER
    first = [said("S", turn=0), said("V", turn=0), said("S", turn=1)]
    traces = [team(f"t{i}", r, first if i == 0 else first[:2]) for i, r in enumerate(p["rewards"])]
    credit = agent_wise(traces, convention="dr_mas")
    assert amounts(credit, "S") == close(p["solver"])
    assert amounts(credit, "V") == close(p["verifier"])
    assert amounts(group_relative(traces), "") == close(p["team"])


def test_mae_whitens_a_role_over_the_batch() -> None:
    rewards, convention, _, expected = v.GROUPS["mae.role_batch_whiten"]
    traces = [team(f"t{i}", r, [said("p", role="proposer")], task=f"q{i}") for i, r in enumerate(rewards)]
    assert amounts(agent_wise(traces, by="role", key="batch", convention=convention), "proposer") == close(expected)
    with pytest.raises(NotIdentified, match="role"):
        agent_wise(team("t", 1.0, [said("a")]), by="role")


def test_what_signals_pay_counts_and_what_they_leave_out_has_no_row() -> None:
    traces = duo(RATED)
    paid = Signals.of({t.trace_id: [Signal("agent", "solver", "x", 2.0 * i)] for i, t in enumerate(traces)})
    credit = agent_wise(traces, signals=paid, convention="dr_grpo")
    assert amounts(credit, "solver") == pytest.approx([-3, -1, 1, 3])
    assert amounts(credit, "verifier") == []


def tree_team(name: str, main: float, subs: list[float]) -> Trace:
    spawns = [{"type": "spawn", "agent": "main", "to": f"s{k}"} for k in range(len(subs))]
    steps = [said("main", reward={"team": main}), *spawns, *(said(f"s{k}", reward={"team": r}) for k, r in enumerate(subs))]
    return team(name, main, steps)


def test_m_grpo_has_a_baseline_per_layer() -> None:
    traces = [tree_team("a", 1.0, [1.0, 0.5]), tree_team("b", 0.1, [0.1])]
    credit = hierarchical(traces, d=2)
    assert amounts(credit, "main") == close([1.0, -1.0])
    assert credit.of(0) == close({"main": 1.0, "s0": 1.554196, "s1": 0.202721})
    assert credit.of(1) == close({"main": -1.0, "s0": -0.878459})
    assert credit.notes["groups"] == {"('q', 0)": 2, "('q', 1)": 4}
    dropped = hierarchical([tree_team("a", 1.0, [1.0, 0.5, 0.2]), tree_team("b", 0.1, [0.1])], d=1)
    assert sum("dropped" in why for why in dropped.unidentified.values()) == 2


def test_prime_rl_compares_solvers_within_their_episode() -> None:
    traces = [tree_team("a", 1.0, [1.0, 0.0]), tree_team("b", 0.0, [1.0, 1.0])]
    credit = hierarchical(traces, convention="prime_rl", sub="rollout")
    assert amounts(credit, "main") == pytest.approx([0.5, -0.5])
    assert [credit.of(i)[s] for i in (0, 1) for s in ("s0", "s1")] == pytest.approx([0.5, -0.5, 0, 0])


@given(st.integers(1, 9), st.integers(1, 9), st.integers(0, 99))
def test_alignment_counts_d(n: int, d: int, seed: int) -> None:
    got = aligned(n, d, np.random.default_rng(seed))
    assert len(got) == d
    assert set(got) == set(range(n)) if n <= d else len(set(got)) == d
    assert got == aligned(n, d, np.random.default_rng(seed))


def test_matpo_copies_the_planners_advantage() -> None:
    rewards = [0.975, 0.1, 0.95, 0.0]
    traces = [
        team(f"t{i}", r, [said("main"), *(said(f"w{k}") for k in range(n))])
        for i, (r, n) in enumerate(zip(rewards, [2, 1, 0, 2], strict=True))
    ]
    credit = matpo(traces)
    expected = v.GROUPS["matpo.main"][3]
    for i, n in enumerate([2, 1, 0, 2]):
        assert credit.of(i) == close({"main": expected[i], **{f"w{k}": expected[i] for k in range(n)}})


def test_spiral_keeps_a_baseline_per_role() -> None:
    rewards, expected, after = v.SPIRAL
    traces = [
        team(f"t{i}", None, [said("p", role="x", reward={"team": r}), said("o", role="y", reward={"team": -r})])
        for i, r in enumerate(rewards)
    ]
    credit = spiral(traces)
    assert amounts(credit, "x") == close(expected)
    assert amounts(credit, "y") == close([-a for a in expected])
    assert credit.notes["baselines"]["('q', 'x')"] == close(after[-1])


def test_marshal_centres_returns_per_player() -> None:
    assert player_centred(v.MARSHAL["returns"], [0] * 5) == close(v.MARSHAL["plain"])
    assert player_centred(v.MARSHAL["returns"], [0] * 5, form="unique") == close(v.MARSHAL["unique"])

    def game(name: str, rewards: list[float]) -> Trace:
        return team(name, None, [said("0", turn=k, reward={"team": r}) for k, r in enumerate(rewards)])

    games = [game("g0", [0, 0, 1]), game("g1", [0, -1])]
    assert [r.value for r in marshal(games).rows] == close(v.MARSHAL["plain"])
    assert [r.value for r in marshal(games, form="unique").rows] == close(v.MARSHAL["unique"])
    with pytest.raises(NotIdentified, match="turn"):
        marshal(team("t", 1.0, [said("a")]))


# -- rollouts -----------------------------------------------------------------------------------------------------------


def test_agent_lightning_counts_a_rollout_once() -> None:
    assert token_divisors(*v.LIGHTNING[:2]) == close(v.LIGHTNING[2])
    a = team("a", 1.0, [said("m", turn=0, tokens_out=10), said("m", turn=1, tokens_out=30)])
    credit = agent_lightning([a, team("b", 0.0, [said("m", turn=0, tokens_out=20)])])
    assert [r.value for r in credit.rows] == close([0.707106, 0.707106, -0.707106])
    assert credit.notes["token_divisors"] == {"a m#0": 120, "a m#1": 120, "b m#0": 60}


def test_wideseek_weighs_agents_alike() -> None:
    assert agent_token_weights(v.WIDESEEK_TOKENS[0]) == close(v.WIDESEEK_TOKENS[1])
    rewards, _, _, expected = v.GROUPS["wideseek_r1.advantage"]
    steps = [said("lead", tokens_out=10), said("lead", tokens_out=20), said("sub", tokens_out=5), said("mute")]
    credit = wideseek([team(f"t{i}", r, steps) for i, r in enumerate(rewards)])
    assert amounts(credit, "sub") == close(expected)
    assert credit.notes["token_weights"]["t0"] == close({"lead": 0.016667, "sub": 0.1})


def test_rema_sums_the_turns() -> None:
    traces = [
        team(f"t{i}", None, [said("meta", turn=0, reward={"team": 0.5}), said("reason", turn=0, reward={"team": r - 0.5})])
        for i, r in enumerate(RATED)
    ]
    credit = rema(traces)
    assert amounts(credit, "meta#0") == close([0.866024, -0.866024, -0.866024, 0.866024])
    assert amounts(credit, "reason#0") == amounts(credit, "meta#0")


def test_fold_grpo() -> None:
    rows = [0, 0, 0, 1, 1, 2, 3]
    q = [term for own in v.FOLD["Q"] for term in own]
    assert fold_advantages(v.FOLD["R"], [0] * 4, rows, q) == close(v.FOLD["A"])
    traces = [team(f"t{i}", r, [said("m") for _ in own]) for i, (r, own) in enumerate(zip(v.FOLD["R"], v.FOLD["Q"], strict=True))]
    process = lambda t: {f"e{k}": q for k, q in enumerate(v.FOLD["Q"][int(t.trace_id[1])])}  # noqa: E731
    assert [r.value for r in fold_grpo(traces, process=process).rows] == close(v.FOLD["A"])
    cast = fold_grpo(traces, process=process, int8=True)  # -0.2 becomes 0, -1 stays
    assert [r.value for r in cast.rows] == close([1, -1, 1, -1, -1, 1, -1])


def test_fold_grpo_reads_failed_calls_and_scope() -> None:
    call = {"type": "tool_call", "agent": "m", "tool": "x", "ok": False, "turn": 1}
    traces = [team("a", 1.0, [said("m", turn=0), call, said("b", turn=0)]), team("b", 0.0, [said("m", turn=0)])]
    credit = fold_grpo(traces, out_of_scope=lambda t: {"b"})
    assert credit.of(0) == pytest.approx({"e0": 1.0, "e1": -1.0, "e2": 0.6})
    with pytest.raises(NotIdentified):
        fold_grpo(traces[:1])
    assert not any(r.value for r in fold_grpo([traces[0], traces[0]]).rows)  # all outcomes equal


def test_fold_grpo_counts_a_context_that_nobody_recorded() -> None:
    lead = {"agent": "m", "role": "orchestrator", "tokens_out": 10}
    steps = [decision(x, [x], decision=x) | lead for x in ("noop", "noop", "delegate", "noop")]
    steps.insert(1, said("b", to="m", tokens_out=30))  # a branch is folded away
    traces = [team("a", 1.0, [*steps, said("b", reward={"R2": 0.0})]), team("b", 0.0, steps)]
    credit = fold_grpo(traces, context_limit=30, scope=0.5)  # half of it is 15; the lead has written 0, 10, 20 and 30
    assert credit.of(0) == pytest.approx({"e0": 1.0, "e1": 0.6, "e2": 1.0, "e3": 1.0, "e4": -1.0, "e5": 0.6})
    assert fold_grpo(traces, context_limit=60).of(0)["e4"] == pytest.approx(1.0)


def test_peer_split() -> None:
    assert split_rewards(1.0, [0.7, 0.5, 0.3, 0.5]).tolist() == pytest.approx([1.04, 1.0, 0.96, 1.0])
    assert split_rewards(-1.0, [0.7, 0.5, 0.3, 0.5]).tolist() == pytest.approx([-1.04, -1.0, -0.96, -1.0])
    assert split_weights([[0.8, 0.2], [0.4, 0.6]]).tolist() == pytest.approx([0.3 * 0.8 + 0.7 * 0.4, 0.3 * 0.6 + 0.7 * 0.2])
    assert split_weights([[3.0] * 5] * 5).tolist() == pytest.approx([0.5] * 5)
    traces = [team(f"t{i}", r, [said("a", reward={"R2": x}), said("b", reward={"R2": y}), said("lead")]) for i, (r, x, y) in
              enumerate([(1.0, 1.0, 0.0), (0.0, 0.25, 0.75)])]  # fmt: skip
    paid = peer_split(traces, give="reward")
    assert paid.of(0) == pytest.approx({"a": 1.1, "b": 0.9, "lead": 1.0})
    assert paid.of(1) == pytest.approx({"a": -0.95, "b": -1.05, "lead": -1.0})
    assert peer_split(traces).of(0) == pytest.approx({"a": 1.025, "b": 0.975, "lead": 1.0})
    low = [team(f"t{i}", r, [said("a")]) for i, r in enumerate([0.1, 0.2])]
    assert peer_split(low, give="reward", threshold="mean").of(1) == {"a": 1.0}
    with pytest.raises(NotIdentified):
        peer_split(traces[:1])


def test_pairs_of_steps_at_one_place() -> None:
    def scored(name: str, *scores: float) -> Trace:
        return team(name, 0.0, [said("a", task="x", role="r", reward={"R4": s}) for s in scores])

    credit = step_pairs([scored("t", 1.0, 0.5), scored("u", 0.0, 0.5), scored("v", 0.5)])
    assert credit.notes["pairs"] == [("t e0", "u e0"), ("t e0", "v e0"), ("v e0", "u e0")]
    assert credit.of(0) == {"e0": 1.0, "e1": 0.5}
    assert not step_pairs([scored("t", 1.0), scored("u", 0.0)], critic=lambda t, e: 0.3).notes["pairs"]  # it says the same everywhere
    with pytest.raises(NotIdentified, match="no step has a score"):
        step_pairs([team("t", 0.0, [said("a")])])


# -- critics ------------------------------------------------------------------------------------------------------------


def chain(rewards: list[float], *, agents: str = "abc") -> Trace:
    return team("t", None, [said(a, reward={"team": r}) for a, r in zip(agents, rewards, strict=False)])


def test_gae_on_traces_skips_what_the_team_did_not_do() -> None:
    rewards, values, _, _, expected = v.GAE["ppo_gae"]
    result = {"type": "tool_result", "agent": "tool", "role": "tool"}
    steps = [said("a"), result, said("a"), result, said("a")]
    critic = {"e0": values[0], "e2": values[1], "e4": values[2]}
    credit = gae(team("t", 1.0, steps), value=lambda t: critic)
    assert credit.of(0) == close({"e0": expected[0], "e2": expected[1], "e4": expected[2]})
    whitened = gae(team("t", 1.0, steps), value=lambda t: critic, preset="ppo")
    assert list(whitened.of(0).values()) == close(v.PPO_WHITENED)
    by_event = gae(chain(rewards, agents="aaa"), value=lambda t: values)
    assert list(by_event.of(0).values()) == close(expected)


def test_gae_presets() -> None:
    rewards, values, *_, expected = v.GAE["collm_maac.td0_central_critic"]
    td0 = gae(chain(rewards, agents="aaa"), value=lambda t: values, lam=0.0)
    assert list(td0.of(0).values()) == close(expected)
    rewards, values, *_, expected = v.GAE["ippo.local_gae"]
    local = gae(
        team("t", None, [said("a", reward={"team": 0}), said("b", reward={"team": 3}), said("a", reward={"team": 1})]),
        value=lambda t: [0.3, 0.0, 0.6],
        preset="ippo",
    )
    assert [local.of(0)["e0"], local.of(0)["e2"]] == close(expected)
    assert local.of(0)["e1"] == pytest.approx(3.0)
    with pytest.raises(NotIdentified, match="critic"):
        gae(chain([1.0]))
    with pytest.raises(InputError, match="did you mean 'mappo'"):
        gae(chain([1.0]), value=lambda t: [0], preset="mapo")
    with pytest.raises(InputError, match="2 values for 1 events"):
        gae(chain([1.0]), value=lambda t: [0, 1])


def test_gae_of_what_signals_pay_events_turns_and_agents() -> None:
    trace = team("t", None, [said("a", turn=0), said("a", turn=0), said("a", turn=1), said("b", turn=1)])
    paid = Signals.of({"t": [Signal("turn", "a#0", "R2", 1.0), Signal("message", "e2", "R2", 2.0), Signal("agent", "b", "R2", 4.0)]})
    credit = gae([trace], value=lambda t: [0.0] * 4, signals=paid, chain="agent", lam=0.0)
    assert credit.of(0) == {"e0": 0.0, "e1": 1.0, "e2": 2.0, "e3": 4.0}  # a turn is paid at its last step


def test_an_agents_messages_are_compared_with_its_own() -> None:
    trace = team("t", None, [said("a"), said("a"), said("b"), said("b"), said("b")])
    paid = Signals.of({"t": [Signal("message", f"e{k}", "R6", float(x)) for k, x in enumerate([1, 0, 5, 5, 5])]})
    credit = agent_wise([trace], by="message", key="batch", convention="dr_grpo", signals=paid)
    assert credit.of(0) == {"e0": 0.5, "e1": -0.5, "e2": 0.0, "e3": 0.0, "e4": 0.0}


def test_marft_chains_the_agents() -> None:
    rewards, values, _, _, expected = v.GAE["marft.action_level_gae"]
    assert list(marft(chain(rewards), value=lambda t: values, normalise=False).of(0).values()) == close(expected)
    assert list(marft(chain(rewards), value=lambda t: values).of(0).values()) == close(v.MARFT_NORMALISED)
    with pytest.raises(NotIdentified, match="critic"):
        marft(chain(rewards))


def decision(chosen: str, options: list[str], **fields: Any) -> dict[str, Any]:
    return {"type": "orchestrator_decision", "agent": "o", "options": options, "extra": {"chosen": chosen}, **fields}


def test_coma() -> None:
    c = v.COMA
    assert counterfactual_advantages(c["q"], c["pi"])[0] == close(c["advantage"])
    trace = team("t", 1.0, [decision("x", ["x", "y", "z"]), said("a"), decision("w", ["x", "y"])])
    credit = coma(trace, q=lambda t: {"e0": c["q"]}, pi=lambda t: {"e0": c["pi"]})
    assert credit.of(0) == close({"e0": 0.42})
    assert "which option" in credit.unidentified[0, "e2"]
    with pytest.raises(NotIdentified, match="pi="):
        coma(trace, q=lambda t: {"e0": c["q"]})
    with pytest.raises(InputError, match="distribution"):
        counterfactual_advantages([1.0, 0.0], [0.9, 0.9])


@given(st.lists(st.tuples(st.floats(-9, 9), st.floats(0.01, 1)), min_size=1, max_size=6))
def test_coma_is_zero_on_average_under_the_policy(rows: list[tuple[float, float]]) -> None:
    q, raw = np.array(rows).T
    pi = raw / raw.sum()
    assert (pi * counterfactual_advantages(q, pi)).sum() == pytest.approx(0, abs=1e-9)


def test_vdn_adds_up() -> None:
    trace = team("t", 1.0, [said("a"), said("b"), said("c")])
    credit = vdn(trace, q=lambda t: {"a": 1.0, "b": 0.5, "c": -0.2})
    assert credit.declared == pytest.approx([1.3])
    assert credit.of(0) == {"a": 1.0, "b": 0.5, "c": -0.2}
    assert credit.notes["residual"] == pytest.approx([-0.3])
    with pytest.raises(InputError, match="'c'"):
        vdn(trace, q=lambda t: {"a": 1.0, "b": 0.5})
    with pytest.raises(NotIdentified, match="q="):
        vdn(trace)


def test_qmix() -> None:
    m = MixWeights(*(v.QMIX[k] for k in ("w1", "b1", "w2", "b2")))
    assert mix(v.QMIX["q"], m) == close(v.QMIX["q_tot"])
    trace = team("t", 1.0, [said("a"), said("b")])
    credit = qmix(trace, q=lambda t: {"a": 1.0, "b": -0.5}, mixer=lambda t: m)
    # by hand: without a: 1*elu(-.025) + 2*elu(-.25) + .3; without b: 1*.6 + 2*1 + .3
    lost = v.QMIX["q_tot"] - (np.expm1(-0.025) + 2 * np.expm1(-0.25) + 0.3)
    assert credit.of(0) == close({"a": lost, "b": 2.275 - 2.9})
    assert credit.notes["q_tot"] == close([2.275])
    targets, errors = td_errors(1.46, v.AGENT_QMIX["q_tot"], v.AGENT_QMIX["target"], v.AGENT_QMIX["done"])
    assert targets == close(v.AGENT_QMIX["targets"])
    assert errors == close(v.AGENT_QMIX["errors"])
    assert td_errors(1.46, [0.8, 0.5], [0.7, 0.6], [0, 1], drop_last=False)[0] == close([2.054, 1.46])
    with pytest.raises(InputError, match="2 agents"):
        mix([1.0, 2.0, 3.0], m)


@given(st.lists(st.floats(-3, 3), min_size=2, max_size=2), st.integers(0, 1), st.floats(0, 3))
def test_qmix_is_monotone(q: list[float], agent: int, more: float) -> None:
    m = MixWeights(*(v.QMIX[k] for k in ("w1", "b1", "w2", "b2")))
    up = list(q)
    up[agent] += more
    assert mix(up, m) >= mix(q, m) - 1e-12
    assert (gradient(q, m) >= 0).all()
    step = 1e-6
    numeric = [(mix([q[0] + step * (k == 0), q[1] + step * (k == 1)], m) - mix(q, m)) / step for k in (0, 1)]
    assert gradient(q, m) == pytest.approx(numeric, abs=1e-3)


# -- the orchestrator ---------------------------------------------------------------------------------------------------


def test_critical_steps() -> None:
    traces = [tree_team("a", 1.0, [1, 1]), tree_team("b", 0.0, [1]), tree_team("c", 0.0, [])]
    credit = critical_steps(traces)
    assert [r.unit for r in credit.rows] == ["orchestrator"] * 3
    assert amounts(credit, "main") == pytest.approx([2 / 3, -1 / 3, -1 / 3])
    assert credit.notes["critical"] == [2, 2, 1]
    assert credit.notes["total"] == [3, 2, 1]
    tight = critical_steps(traces, budget=1)
    assert tight.of(2) == {"main": 0.0}
    assert "budget" in tight.unidentified[0, "main"]
    with pytest.raises(NotIdentified, match="budget"):
        critical_steps(traces, budget=0)


def test_puppeteer() -> None:
    steps = [decision("x", ["x"]), said("a"), decision("x", ["x"]), decision("x", ["x"])]
    assert list(puppeteer(team("t", 1.0, steps)).of(0).values()) == close(v.PUPPETEER["returns"])
    free = puppeteer(team("t", 1.0, steps), lam=0.0)
    assert free.of(0) == pytest.approx({"e0": 0.99**2, "e2": 0.99, "e3": 1.0})


def test_puppeteer_as_released() -> None:
    steps = [decision(name, [name], decision=name, tokens_out=n) for name, n in (("agent", 20_000), ("web", 50_000), ("stop", 7))]
    credit = puppeteer(team("t", 1.0, steps), form="released", factors={"web": -1.5})
    assert list(credit.of(0).values()) == close([0.980352, 0.995569, 1.0424])
    lost = puppeteer(team("t", 0.0, steps[2:]), form="released")
    assert lost.of(0) == {"e0": close(-0.05 * np.log2(1.4))}


def test_vtrace_on_decisions() -> None:
    steps = [decision("x", ["x"], logp=-1.0), decision("x", ["x"], logp=-1.0)]
    target = {"e0": -1 + np.log(2), "e1": -1 + np.log(0.5)}
    credit = vtrace(team("t", 1.0, steps), target=lambda t: target, value=lambda t: v.VTRACE["v"], gamma=0.99)
    assert list(credit.of(0).values()) == close(v.VTRACE["pg"])
    on_policy = vtrace(team("t", 1.0, steps), target=lambda t: {"e0": -1.0, "e1": -1.0})
    assert on_policy.of(0) == pytest.approx({"e0": 1.0, "e1": 1.0}, abs=1e-9)
    with pytest.raises(NotIdentified, match="record logp"):
        vtrace(team("t", 1.0, [decision("x", ["x"])]), target=lambda t: {"e0": 0.0})
    with pytest.raises(NotIdentified, match="target="):
        vtrace(team("t", 1.0, steps))


# -- counterfactuals and tokens -----------------------------------------------------------------------------------------


def test_difference_rewards_by_a_function() -> None:
    real, without, expected = v.DIFFERENCE
    trace = team("t", real, [said("a"), said("b"), said("c")])
    credit = difference(trace, counterfactual=lambda t, name: without["abc".index(name)])
    assert list(credit.of(0).values()) == close(expected)
    with pytest.raises(NotIdentified, match="replay="):
        difference(trace)
    with pytest.raises(InputError, match="cannot replay"):
        difference(team("t", 1.0, [{"type": "spawn", "agent": "a", "to": "b"}, said("b")]), replay=object())


def test_difference_rewards_in_a_world_are_its_own_forks() -> None:
    world = cpt.world("W1", vote_items=6)
    trace = world.run("reference", [3], log=True).trace(0)
    credit = difference(trace, replay=world)
    assert credit.cost.forks == len(credit.rows) > 1
    assert (0, "orchestrator") in credit.unidentified
    spawn = next(e for e in trace.events if e.type == "spawn")
    other = world.fork(trace, spawn.id, cpt.Delete())
    assert credit.of(0)[spawn.to] == pytest.approx(trace.rewards["team"] - other.rewards["team"])


def test_tokens_share_their_events_credit() -> None:
    trace = team("t", 1.0, [said("a", tokens_out=3), said("b", tokens_out=1), said("c"), said("d", tokens_out=0)])
    events = uniform(trace, unit="message")
    credit = token_spread(trace, credit=events)
    assert credit.of(0) == pytest.approx({"e0#0": 0.25 / 3, "e0#1": 0.25 / 3, "e0#2": 0.25 / 3, "e1#0": 0.25})
    assert credit.unidentified == {(0, "e2"): "tokens_out is not recorded", (0, "e3"): "the event wrote no tokens"}
    assert credit.declared == pytest.approx([0.5])
    last = token_spread(trace, credit=events, weights="last")
    assert last.of(0)["e0#2"] == 0.25
    own = token_spread(trace, credit=events, weights=lambda e: [3.0, 1.0, 0.0] if e.id == "e0" else [1.0])
    assert own.of(0) == pytest.approx({"e0#0": 0.1875, "e0#1": 0.0625, "e0#2": 0.0, "e1#0": 0.25})
    for wrong in (lambda e: [1.0], lambda e: [-1.0, 1.0, 1.0], "odd"):
        with pytest.raises(InputError):
            token_spread(trace, credit=events, weights=wrong)
    with pytest.raises(NotIdentified, match="credit="):
        token_spread(trace)


# -- every mechanism of this file on a real trace -------------------------------------------------------------------------

WITHOUT_HELP = ["uniform", "group_relative", "agent_wise", "hierarchical", "magrpo", "spiral", "marshal", "fold_grpo", "matpo"]
WITHOUT_HELP += ["critical_steps", "rema", "agent_lightning", "wideseek", "c3", "malt", "puppeteer"]


@pytest.fixture(scope="module")
def rollouts() -> list[Trace]:
    runs = cpt.world("W1", vote_items=4).run("reference", [1, 2, 3], log=True)
    return [runs.trace(i) for i in range(3)]


@pytest.mark.parametrize("name", WITHOUT_HELP)
def test_it_runs_on_the_simulator_and_names_its_units(name: str, rollouts: list[Trace]) -> None:
    mechanism = registry.get("mechanism", name)
    options = {"key": "batch"} if "key" in mechanism.options else {}
    if name in ("hierarchical", "agent_wise"):
        options["singleton"] = "zero"
    if name == "fold_grpo":
        options["rescale"] = "group"
    credit = mechanism(rollouts, **options)
    assert credit.mechanism == name
    assert {r.trace for r in credit.rows} == {0, 1, 2}
    known = [
        {e.id for e in t.events} | set(t.agents) | {e.role for e in t.events} | {""} | {f"{e.agent}#{e.turn}" for e in t.events}
        for t in rollouts
    ]
    assert all(r.unit_id in known[r.trace] for r in credit.rows)
    again = mechanism(rollouts, **options)
    assert (again.rows, again.notes) == (credit.rows, credit.notes)


# -- what is missing has a defined answer -----------------------------------------------------------------------------------

FULL = {"role": "r", "turn": 0, "tokens_out": 2}
ODD = {
    "no events": [team("t", 1.0, []), team("u", 0.0, [])],
    "only a spawn": [team("t", 1.0, [{"type": "spawn", "agent": "a", "to": "b"}])],
    "one agent, nothing recorded": [team("t", 1.0, [said("a")]), team("u", 0.0, [said("a")])],
    "one agent": [team("t", 1.0, [said("a", "x", **FULL)]), team("u", 0.0, [said("a", "y", **FULL)])],
    "a group of one": [team("t", 1.0, [said("a", "x", **FULL)])],
    "no reward": [team("t", None, [said("a", "x", **FULL)])],
    "all equal": [team(n, 0.1, [said("a", "x", **FULL), said("b", n, **FULL)]) for n in "tuv"],
    "one without events": [team("t", 1.0, [said("a", "x", **FULL)]), team("u", 0.0, [])],
}
MINE = [*WITHOUT_HELP, "marsrl", "gae", "marft", "difference", "coma", "vdn", "qmix", "token_spread", "mars2", "vtrace"]
COMPARES = {"group_relative", "agent_wise", "hierarchical", "c3", "magrpo", "marsrl", "marshal", "fold_grpo", "critical_steps"}
COMPARES |= {"matpo", "rema", "agent_lightning", "wideseek"}


@pytest.mark.parametrize("case", ODD)
@pytest.mark.parametrize("name", MINE)
def test_every_answer_is_credit_or_one_clear_line(name: str, case: str) -> None:
    mechanism, options = registry.get("mechanism", name), {}  # type: Any, dict[str, Any]
    if "value" in mechanism.options:
        options["value"] = lambda t: [0.5] * len(t.events)
    if name == "vdn":
        options["q"] = lambda t: dict.fromkeys(t.agents, 1.0)
    if name == "difference":
        options["counterfactual"] = lambda t, unit_id: 0.5
    refused = None
    try:
        credit = mechanism(ODD[case], **options)
    except (InputError, NotIdentified) as error:
        refused = error
    if refused is not None:
        assert refused.fix
        assert "\n" not in str(refused)
        return
    assert credit.mechanism == name
    if case == "all equal" and name in COMPARES:
        assert credit.rows
        assert not any(r.value for r in credit.rows)


def test_more_presets_of_gae() -> None:
    trace = chain([0.5, -0.2, 0.1])
    mappo = gae(trace, value=lambda t: [0.0] * 3, preset="mappo", gamma=0.0)
    assert list(mappo.of(0).values()) == close(v.MAPPO_NORM[2][:3])
    traces = [team(f"t{i}", None, [said("a", turn=0, reward={"team": r})]) for i, r in enumerate([0.2, 0.3, -0.1])]
    maac = gae(traces, value=lambda t: [0.0], preset="maac")
    assert [r.value for r in maac.rows] == close(v.GROUPS["collm_maac.batch_normalisation"][3])
    maporl = gae(chain([1.0, 2.0, 4.0]), value=lambda t: [0.0] * 3, preset="maporl")  # three agents: three chains of one
    assert list(maporl.of(0).values()) == pytest.approx((np.array([1, 2, 4]) - 7 / 3) / np.std([1, 2, 4], ddof=1), abs=1e-6)


def test_marshal_as_released_is_its_five_steps_one_after_another() -> None:
    from counterpoint.credits.mechanisms.marshal import released

    rewards = [0.0, 0.1, 1.0, 0.0, -0.4, 0.0, 0.5]
    ends = [False, True, True, False, True, False, True]
    chains, players = [0, 0, 0, 1, 1, 2, 2], [0, 0, 0, 0, 0, 1, 1]
    x = np.array(rewards)
    for player in (0, 1):
        here = [i for i in range(7) if ends[i] and players[i] == player]
        x[here] -= np.mean([rewards[i] for i in here])
    x = (x - x.mean()) / np.sqrt(x.var(ddof=1) + 1e-8)
    back = [sum(x[j] for j in range(i, 7) if chains[j] == chains[i]) for i in range(7)]
    centred = [b - np.mean(sorted({back[j] for j in range(7) if players[j] == players[i]})) for i, b in enumerate(back)]
    expected = (centred - np.mean(centred)) / np.sqrt(np.var(centred, ddof=1) + 1e-8)
    np.testing.assert_allclose(released(rewards, ends, chains, players), expected, atol=1e-9)
    assert not np.allclose(released(rewards, ends, chains, players, padded=True), expected)
