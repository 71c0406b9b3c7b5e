"""Chains, critics, off-policy weights and even shares: small cases by hand, ends of ranges, and the words for what is wrong."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from counterpoint.credits.advantages import chain_ends, gae, reward_to_go, scan, td_lambda, td_targets
from counterpoint.credits.doubly_robust import ridge
from counterpoint.credits.mechanisms.coma import coma, counterfactual_advantages
from counterpoint.credits.mechanisms.cone import cone
from counterpoint.credits.mechanisms.difference import difference
from counterpoint.credits.mechanisms.gae import gae as gae_of
from counterpoint.credits.mechanisms.ledger import ledger
from counterpoint.credits.mechanisms.marft import marft, non_zero_normalised
from counterpoint.credits.mechanisms.puppeteer import puppeteer, step_costs
from counterpoint.credits.mechanisms.qmix import MixWeights, gradient, mix, qmix, td_errors
from counterpoint.credits.mechanisms.token_spread import token_spread
from counterpoint.credits.mechanisms.uniform import shares, uniform
from counterpoint.credits.mechanisms.vdn import agent_values, vdn
from counterpoint.credits.mechanisms.vtrace import vtrace as vtrace_of
from counterpoint.credits.off_policy import (
    decoupled_weights,
    effective_size,
    evaluate,
    importance_weights,
    inclusion_effect,
    inclusion_weights,
    step_scale,
    vtrace,
)
from counterpoint.errors import InputError, NotIdentified
from counterpoint.trace import Trace
from counterpoint.trace.replay import Delete, Do, Fork
from counterpoint.trace.rows import Cost
from credits.published_made import said, team


def rows(credit: Any) -> dict[tuple[int, str], float]:
    return {(r.trace, r.unit_id): r.value for r in credit.rows}


def decides(*options: str, **fields: Any) -> dict[str, Any]:
    return {"type": "orchestrator_decision", "agent": "o", "options": list(options) or None, **fields}


# -- chains as arrays ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [0, 1, 2, 31, 32, 33, 63, 64, 65, 96, 1023, 1024, 1025, 1057])
def test_a_scan_of_ones_counts_what_is_left(n: int) -> None:
    assert scan(np.ones(n), np.ones(n)).tolist() == list(range(n, 0, -1))
    half = scan(np.ones(n), np.full(n, 0.5))
    assert half == pytest.approx([2 - 0.5 ** (n - 1 - t) for t in range(n)])


def test_scans_leave_their_inputs_alone() -> None:
    for n in (3, 40):
        d, k = np.ones(n), np.full(n, 0.5)
        scan(d, k)
        assert d.tolist() == [1.0] * n
        assert k.tolist() == [0.5] * n


def test_where_chains_end() -> None:
    assert chain_ends(None, 3).tolist() == [False, False, True]
    assert chain_ends([4, 4, 2], 3).tolist() == [False, True, True]
    assert chain_ends(None, 0).tolist() == []
    assert chain_ends([], 0).tolist() == []
    with pytest.raises(InputError, match="3 rows need 3 segment numbers"):
        chain_ends([1, 2], 3)
    with pytest.raises(InputError, match="do not stand together"):
        chain_ends([1, 2, 2, 1], 4)


def test_columns_of_a_wrong_shape() -> None:
    for wrong in ([1.0], [1.0, np.nan], [[1.0, 2.0]]):
        with pytest.raises(InputError, match="of one dimension and of one length"):
            gae([0.0, 1.0], wrong)
    with pytest.raises(InputError, match="one dimension"):
        gae([[0.0]], [[1.0]])


def test_gae_by_hand() -> None:
    # V 1, 2; r 1, 4; gamma 1/2: deltas 1 + 1 - 1 and 4 - 2; with lambda 1/2: 1 + 2 / 4
    a, returns = gae([1.0, 4.0], [1.0, 2.0], gamma=0.5, lam=0.5)
    assert (a.tolist(), returns.tolist()) == ([1.5, 2.0], [2.5, 4.0])
    default, _ = gae([0.0, 1.0], [0.0, 0.0])
    assert default == pytest.approx([0.95, 1.0])  # gamma 1, lambda 0.95
    assert [len(x) for x in gae([], [])] == [0, 0]


def test_gae_skips_what_the_policy_did_not_do_in_every_chain() -> None:
    own = [True, False, True, True, False]
    a, returns = gae(
        [0.0, 0.0, 1.0, 2.0, 0.0], [0.5, 9.0, 0.25, 0.0, 9.0], segments=[0, 0, 0, 1, 1], gamma=1.0, lam=1.0, is_policy=own
    )
    assert a[own] == pytest.approx([0.5, 0.75, 2.0])
    assert returns[own] == pytest.approx([1.0, 1.0, 2.0])
    assert np.isnan(a[[1, 4]]).all()
    both, _ = gae([0.0] * 4, [0.0] * 4, segments=[0, 0, 1, 1], gamma=1.0, is_policy=[1, 0, 1, 0], bootstrap=[1.0, 3.0])
    assert both[[0, 2]] == pytest.approx([1.0, 3.0])
    with pytest.raises(NotIdentified, match="a chain without any step of the policy"):
        gae([0.0] * 4, [0.0] * 4, segments=[0, 0, 1, 1], is_policy=[0, 0, 1, 0], bootstrap=[1.0, 3.0])
    with pytest.raises(InputError, match="is_policy has one entry per step"):
        gae([0.0], [0.0], is_policy=[True, False])


def test_rewards_to_go_of_chains() -> None:
    assert reward_to_go([1.0, 2.0, 4.0], segments=[0, 0, 1], gamma=0.5).tolist() == [2.0, 2.0, 4.0]
    assert reward_to_go([1.0, 2.0]).tolist() == [3.0, 2.0]
    assert td_targets([1.0, 2.0], [4.0, 8.0], gamma=0.5, done=[0.0, 1.0]).tolist() == [3.0, 2.0]


def test_td_lambda_by_hand() -> None:
    # last: 1 + 0.5 * 8 = 5; before it: 2 + 0.5 * (0.75 * 4 + 0.25 * 5); the other chain is done
    y = td_lambda([2.0, 1.0, 3.0], [4.0, 8.0, 9.0], gamma=0.5, lam=0.25, done=[0, 0, 1], segments=[0, 0, 1])
    assert y.tolist() == [2 + 0.5 * (3 + 1.25), 5.0, 3.0]
    cut = td_lambda([2.0, 1.0], [4.0, 8.0], gamma=0.5, lam=0.25, done=[1, 0])
    assert cut.tolist() == [2.0, 5.0]


# -- off-policy ---------------------------------------------------------------------------------------------------------


def test_vtrace_by_hand() -> None:
    # rho 3, 0.5; r 1, 2; V 1, 2; gamma 1/2, bootstrap 4
    targets, pg = vtrace([3.0, 0.5], [1.0, 2.0], [1.0, 2.0], gamma=0.5, bootstrap=4.0, rho_bar=2.0, c_bar=1.5, pg_rho_bar=2.5)
    last = 2 + 0.5 * (2 + 0.5 * 4 - 2)
    first = 1 + 2 * (1 + 0.5 * 2 - 1) + 0.5 * 1.5 * (last - 2)
    assert targets == pytest.approx([first, last])
    assert pg == pytest.approx([2.5 * (1 + 0.5 * last - 1), 0.5 * (2 + 0.5 * 4 - 2)])
    lam, _ = vtrace([1.0, 1.0], [0.0, 2.0], [0.0, 0.0], gamma=0.5, lam=0.5)
    assert lam == pytest.approx([0.5 * 0.5 * 2.0, 2.0])
    capped, pg = vtrace([4.0, 4.0], [1.0, 1.0], [0.0, 0.0])  # caps of 1 and gamma 0.99 by default
    assert capped == pytest.approx([1.99, 1.0])
    assert pg == pytest.approx([1.99, 1.0])
    two, _ = vtrace([1.0, 1.0], [0.0, 0.0], [0.0, 0.0], segments=[0, 1], gamma=0.5, bootstrap=[2.0, 6.0])
    assert two == pytest.approx([1.0, 3.0])
    assert vtrace([0.0], [1.0], [0.5])[0].tolist() == [0.5]  # a ratio of 0 is one


@pytest.mark.parametrize(
    ("rho", "r", "v", "text"),
    [
        ([1.0, 1.0], [1.0], [1.0], "one entry per step"),
        ([1.0], [1.0], [1.0, 2.0], "one entry per step"),
        ([[1.0]], [[1.0]], [[1.0]], "one entry per step"),
        ([np.inf], [1.0], [1.0], "finite and at least 0"),
        ([-1e-9], [1.0], [1.0], "finite and at least 0"),
    ],
)
def test_vtrace_of_a_wrong_shape(rho: Any, r: Any, v: Any, text: str) -> None:
    with pytest.raises(InputError, match=text):
        vtrace(rho, r, v)


def test_weights_at_their_caps() -> None:
    two, half = np.log(2.0), np.log(0.5)
    assert importance_weights([two], [0.0], mode="mask") == pytest.approx([2.0])  # the cap itself is inside
    masked = importance_weights([np.log(1.9), half + 1e-9, np.log(0.49)], np.zeros(3), mode="mask")
    assert masked == pytest.approx([1.9, 0.5, 0.0])
    assert importance_weights([half, half], [0.0, 0.0], mode="mask", low=0.6).tolist() == [0.0, 0.0]
    assert importance_weights([np.log(3.0)], [0.0], mode="mask", cap=4.0) == pytest.approx([3.0])
    assert importance_weights([np.log(3.0)], [0.0], cap=2.5) == pytest.approx([2.5])
    assert importance_weights([-50.0, 50.0], [0.0, 0.0], mode="none") == pytest.approx([np.exp(-20.0), np.exp(20.0)])
    one = importance_weights(np.log([1.0, 3.0]), [0.0, 0.0], mode="none", mean_one=True)
    assert one == pytest.approx([0.5, 1.5])
    assert importance_weights([9.0], [0.0], mode="mask", mean_one=True).tolist() == [0.0]  # no weight left: no mean
    whole = importance_weights([0.1, 0.3], [0.0, 0.0], level="sequence", mode="none")
    assert whole == pytest.approx(np.exp([0.4, 0.4]))
    mean = importance_weights([0.1, 0.3, 1.0], np.zeros(3), level="geometric", sequences=["b", "b", "a"], mode="none")
    assert mean == pytest.approx(np.exp([0.2, 0.2, 1.0]))
    with pytest.raises(InputError, match="no mode 'odd'"):
        importance_weights([0.0], [0.0], mode="odd")  # type: ignore[arg-type]
    with pytest.raises(NotIdentified, match="missing or infinite"):
        importance_weights([-np.inf], [0.0])
    weight, ratio = decoupled_weights([0.0], [np.log(2.0)], [0.0], cap=2.0 + 1e-12)
    assert (weight.tolist(), ratio.tolist()) == (pytest.approx([2.0]), pytest.approx([0.5]))


def test_evaluation_by_hand() -> None:
    found = evaluate([2.0, 1.0], [1.0, 4.0], q_hat=[0.5, 3.0], v_hat=[1.0, 2.0])
    # is (2 + 4)/2; wis 6/3; dm 1.5; dr mean(1 + 2 * 0.5, 2 + 1 * 1); ess 9/5
    assert found == pytest.approx((3.0, 2.0, 1.5, 2.5, 1.8))
    assert evaluate([1.0], [2.0], v_hat=[3.0])[2:4] == (3.0, None)
    assert evaluate([1.0], [2.0], q_hat=[3.0])[2:4] == (None, None)
    for wrong in (([1.0], [1.0, 2.0]), ([], []), ([-1.0], [1.0]), ([np.nan], [1.0])):
        with pytest.raises(InputError, match="one entry per rollout"):
            evaluate(*wrong)
    # V = 1 + 2 (3 + V' / 2 - 4), V' = 5 + 3 (2 - 1)


def test_effective_size_by_hand() -> None:
    assert effective_size([3.0, 1.0]) == pytest.approx(1.6)
    assert effective_size([]) == 0.0
    assert step_scale([1.0] + [0.0] * 9) == pytest.approx(0.1**0.5)  # at the least, it is taken
    assert step_scale([1.0] + [0.0] * 10) == 0.0
    assert step_scale([1.0, 0.0], least=0.6) == 0.0
    assert step_scale([]) == 0.0


def test_inclusion_by_hand() -> None:
    # arm 0: cell 0 kept 1 of 2, cell 1 kept 1 of 4; weights 2 and 4, clipped at 3
    cells, arms, kept = [0, 0, 1, 1, 1, 1], [0] * 6, [1, 0, 1, 0, 0, 0]
    assert inclusion_weights(cells, arms, kept) == pytest.approx([1 / 3, 0, 2 / 3, 0, 0, 0])
    assert inclusion_weights(cells, arms, kept, clip=3.0) == pytest.approx([0.4, 0, 0.6, 0, 0, 0])
    assert inclusion_effect([1.0, 9.0, 4.0, 9.0, 9.0, 9.0], cells, arms, kept, clip=3.0) == pytest.approx({0: 2.8})
    assert inclusion_effect([1.0, 9.0, 4.0, 9.0, 9.0, 9.0], cells, arms, kept) == pytest.approx({0: 3.0})
    by_ten = inclusion_weights([0] * 12 + [1], [0] * 13, [1] + [0] * 11 + [1])  # 12 is clipped to 10 by default
    assert by_ten[[0, 12]] == pytest.approx([10 / 11, 1 / 11])
    effect = inclusion_effect([1.0] + [0.0] * 12, [0] * 12 + [1], [0] * 13, [1] + [0] * 11 + [1])
    assert effect == pytest.approx({0: 10 / 11})
    # the same cell in two arms is two kinds of launch
    assert inclusion_weights([0, 0, 0, 0], [0, 0, 1, 1], [1, 0, 1, 1]) == pytest.approx([1, 0, 0.5, 0.5])
    with pytest.raises(NotIdentified, match=r"P.kept. is 0 for 2 kinds of launch of arm 2, 7"):
        inclusion_weights([0, 1, 0, 1, 0], [2, 2, 7, 7, 5], [1, 0, 0, 1, 1])
    for wrong in (([0], [0, 1], [1]), ([0], [0], [1, 0]), ([], [], []), ([[0]], [[0]], [[1]])):
        with pytest.raises(InputError, match="one entry per launch"):
            inclusion_weights(*wrong)


def test_ridge_by_hand() -> None:
    # x = -1, 1 (sd 1), y = 0, 4: beta = 4 / (2 + penalty)
    x, y = np.array([[-1.0], [1.0]]), np.array([0.0, 4.0])
    model = ridge(x, y)
    assert (model.intercept, model.beta_D.tolist()) == (2.0, [pytest.approx(4 / 3)])
    assert model([[3.0]]) == pytest.approx([2 + 4.0])
    assert ridge(2 * x + 5, y)([[11.0]]) == pytest.approx([2 + 4.0])  # whatever the units
    assert ridge(x, y, 2.0).beta_D == pytest.approx([1.0])
    assert ridge(x, y, 0.0)([[1.0]]) == pytest.approx([4.0])
    assert ridge(x / 4, y)([[0.75]]) == pytest.approx([2 + 4.0])
    assert ridge([[-1], [1]], [0, 4])([[3]]) == pytest.approx([6.0])
    flat = ridge(np.column_stack([x, np.full(2, 7.0)]), y, 2.0)
    assert flat.beta_D.tolist() == [pytest.approx(1.0), 0.0]
    assert flat.scale_D.tolist() == [1.0, 1.0]
    assert flat([[1.0, 99.0]]) == pytest.approx([3.0])
    twice = ridge(np.column_stack([x, x]), y, 0.0)  # two equal columns and no penalty still have an answer
    assert twice([[1.0, 1.0]]) == pytest.approx([4.0], abs=1e-6)
    for wrong in ((x, y[:1]), (x[:0], y[:0]), (x[:, 0], y)):
        with pytest.raises(InputError, match="one row per outcome"):
            ridge(*wrong)
    with pytest.raises(InputError, match="penalty is -1"):
        ridge(x, y, -1.0)
    for asked in ([1.0], [[1.0, 2.0]]):
        with pytest.raises(InputError, match="one row per case, 1 columns"):
            model(asked)


# -- mechanisms with a critic -------------------------------------------------------------------------------------------


def test_coma_names_what_is_not_known() -> None:
    steps = [said("a"), decides("x", "y", decision="noop", extra={"chosen": "y"}), decides("spawn", "noop", decision="noop")]
    steps += [
        decides("x", "y", extra={"chosen": "x"}),
        decides("x", "y", extra={"chosen": "x"}),
        decides("x", "y", extra={"chosen": "z"}),
    ]
    q = {"e1": [1.0, 3.0], "e2": [0.0, 4.0], "e4": [0.0, 1.0], "e5": [0.0, 0.0]}
    pi = {"e1": [0.5, 0.5], "e2": [0.25, 0.75], "e3": [0.5, 0.5], "e5": [1.0, 0.0]}
    credit = coma([team("t", 1.0, []), team("u", 1.0, steps)], q=lambda t: q, pi=lambda t: pi)
    assert rows(credit) == {(1, "e1"): 1.0, (1, "e2"): 1.0}
    assert credit.unidentified == {
        (1, "e3"): "not known: Q",
        (1, "e4"): "not known: pi",
        (1, "e5"): "not known: which option was taken",
    }
    assert [r.unit for r in credit.rows] == ["orchestrator", "orchestrator"]
    with pytest.raises(InputError, match="3 values for 2 options") as error:
        coma(team("t", 1.0, steps), q=lambda t: {"e1": [1.0, 2.0, 3.0]}, pi=lambda t: {"e1": [0.5, 0.25, 0.25]})
    assert error.value.where == "t e1"
    own = coma(team("t", 1.0, steps[:2]), q=lambda t: q, pi=lambda t: pi, chosen=lambda e: 0)
    assert rows(own) == {(0, "e1"): -1.0}
    for wrong in (([1.0], [0.5, 0.5]), ([1.0, 1.0], [1.5, -0.5]), ([1.0, 1.0], [0.5, 0.4])):
        with pytest.raises(InputError, match="distribution"):
            counterfactual_advantages(*wrong)
    assert counterfactual_advantages([[1.0, 3.0], [0.0, 4.0]], [[0.5, 0.5], [0.25, 0.75]]).tolist() == [[-1, 1], [-3, 1]]


def test_gae_chains_presets_and_what_is_missing() -> None:
    steps = [said("a", turn=0), said("b", turn=0), said("a", turn=1)]
    two = [team("t", 1.0, steps), team("u", 2.0, steps[:1])]
    zero = {"value": lambda t: [0.0] * len(t.events)}
    assert rows(gae_of(two, lam=0.5, **zero)) == {(0, "e0"): 0.25, (0, "e1"): 0.5, (0, "e2"): 1.0, (1, "e0"): 2.0}
    # per agent: each chain ends on the team's reward
    own = gae_of(two, lam=0.5, chain="agent", **zero)
    assert rows(own) == {(0, "e0"): 0.5, (0, "e2"): 1.0, (0, "e1"): 1.0, (1, "e0"): 2.0}
    assert own.notes == {"preset": "plain", "gamma": 1.0, "lam": 0.5, "chain": "agent", "normalise": None}
    presets = {
        "plain": (1.0, 0.95, "team", None),
        "ppo": (1.0, 0.95, "team", "whiten"),
        "mappo": (0.99, 0.95, "team", "mappo"),
        "ippo": (0.99, 0.95, "agent", None),
        "maac": (1.0, 0.0, "team", "agent_turn"),
        "maporl": (1.0, 0.95, "agent", "whiten"),
    }
    for preset, use in presets.items():
        notes = gae_of(two, preset=preset, **zero).notes
        assert (notes["preset"], *(notes[k] for k in ("gamma", "lam", "chain", "normalise"))) == (preset, *use)
    assert gae_of(two, preset="mappo", gamma=0.5, normalise="whiten", **zero).notes["gamma"] == 0.5
    with pytest.raises(InputError, match="no chain 'role'"):
        gae_of(two, chain="role", **zero)
    with pytest.raises(InputError, match="no normalisation 'odd'"):
        gae_of(two, normalise="odd", **zero)
    with pytest.raises(InputError, match="no value for event 'e1'") as error:
        gae_of(two, value=lambda t: {"e0": 0.0})
    assert error.value.where == "t"
    assert gae_of(team("t", 1.0, []), value=lambda t: [], preset="ppo").rows == ()
    # small spreads show eps: mappo adds 1e-5 to a std of 1e-5
    near = [team(f"t{i}", r, steps[:1]) for i, r in enumerate([0.0, 2e-5])]
    assert rows(gae_of(near, preset="mappo", **zero))[1, "e0"] == pytest.approx(0.5)
    turns = gae_of(
        [team("t", None, [said("a", turn=k, reward={"team": r}) for k, r in ((0, 1.0), (0, 3.0), (1, 9.0))])],
        preset="maac",
        gamma=0.0,
        **zero,
    )
    assert rows(turns) == pytest.approx({(0, "e0"): -1, (0, "e1"): 1, (0, "e2"): 0})


def test_marft_normalises_what_is_not_zero() -> None:
    assert non_zero_normalised([0.0, 1.0, 3.0]) == pytest.approx([-2, -1, 1])
    assert non_zero_normalised([-1.0, -3.0, 0.0]) == pytest.approx([1, -1, 2])
    assert non_zero_normalised([2.0]).tolist() == [2.0]
    steps = [said("a", reward={"team": 1.0}), said("b", reward={"team": 3.0})]
    traces = [team("t", None, steps), team("u", None, steps[:1])]
    plain = marft(traces, value=lambda t: [0.5] * len(t.events), gamma=0.5, lam=0.5, normalise=False)
    assert rows(plain) == {(0, "e0"): 1 + 0.25 - 0.5 + 0.25 * 2.5, (0, "e1"): 2.5, (1, "e0"): 0.5}
    assert plain.notes == {"gamma": 0.5, "lam": 0.5, "normalise": False}


def test_puppeteer_costs() -> None:
    assert step_costs([2.0, 3.0], phi=1.0) == pytest.approx([2 * np.log(2), 3 * np.log(3)])
    with pytest.raises(InputError, match="phi is above 0, not 0"):
        step_costs([1.0], phi=0.0)
    with pytest.raises(InputError, match="no cost by 'money'"):
        puppeteer(team("t", 1.0, []), by="money")
    steps = [decides("x", tokens_out=2), said("a", tokens_out=99), decides("x")]
    credit = puppeteer([team("n", 1.0, [said("a")]), team("t", 1.0, steps)], by="tokens", lam=0.5, gamma=0.5, phi=1.0)
    assert rows(credit) == pytest.approx({(1, "e0"): 0.5 - 0.5 * 2 * np.log(2), (1, "e2"): 1.0})
    assert credit.notes == {"lam": 0.5, "gamma": 0.5, "phi": 1.0, "by": "tokens", "form": "paper"}


def test_vdn_and_qmix() -> None:
    two = [team("t", 1.0, [said("a"), said("b"), said("a")]), team("u", None, [said("a")])]
    credit = vdn(two, q=lambda t: {"a": 0.25, "b": 0.5, "z": 9.0})
    assert rows(credit) == {(0, "a"): 0.25, (0, "b"): 0.5, (1, "a"): 0.25}
    assert credit.notes == {"residual": [0.25, None]}
    assert credit.declared is not None
    assert credit.declared.tolist() == [0.75, 0.25]
    with pytest.raises(InputError, match="no value for agent 'b'") as error:
        agent_values(two[0], lambda t: {"a": 1.0})
    assert error.value.where == "t"
    m = MixWeights([[1.0], [-2.0]], [0.5], [-3.0], 0.25)
    # h = 1 - 2 + 0.5 < 0; |w2| = 3
    assert mix([1.0, -1.0], m) == pytest.approx(3 * np.expm1(-0.5) + 0.25)
    assert gradient([1.0, -1.0], m) == pytest.approx([3 * np.exp(-0.5), 6 * np.exp(-0.5)])
    assert gradient([1.0, 1.0], m).tolist() == [3.0, 6.0]
    mixed = qmix(two[0], q=lambda t: {"a": 1.0, "b": 1.0}, mixer=lambda t: m)
    # h = 3.5 -> 10.75; a at 0: h = 2.5; b at 0: h = 1.5
    assert rows(mixed) == pytest.approx({(0, "a"): 10.75 - 7.75, (0, "b"): 10.75 - 4.75})
    assert mixed.notes["q_tot"] == [10.75]
    assert mixed.notes["gradient"] == [{"a": 3.0, "b": 6.0}]
    with pytest.raises(NotIdentified, match="mixer=") as refused:
        qmix(two[0], q=lambda t: {"a": 1.0, "b": 1.0})
    assert refused.value.where == "t"
    for wrong in (m._replace(w1=[[1.0]]), m._replace(w1=[1.0, 2.0])):
        with pytest.raises(InputError, match="agents, not 2"):
            mix([1.0, 1.0], wrong)
    targets, errors = td_errors(1.0, [2.0, 3.0, 4.0], [9.0, 5.0, 6.0], [0, 0, 1], gamma=0.5)
    assert (targets.tolist(), errors.tolist()) == ([3.5, 4.0], [1.5, 1.0])
    assert td_errors(1.0, [2.0], [9.0], [0], drop_last=False)[0].tolist() == [1.0]
    assert td_errors(1.0, [0.0, 0.0], [0.0, 1.0], [0, 0])[0] == pytest.approx([1.99])


def test_vtrace_of_traces_by_hand() -> None:
    log = np.log
    steps = [decides("x", logp=log(0.5)), said("a"), decides("x", logp=log(0.25))]
    two = [team("t", 1.0, steps), team("u", 4.0, steps[:1])]
    new = {"e0": log(0.25), "e2": log(0.5)}  # ratios 1/2 and 2
    credit = vtrace_of(two, target=lambda t: new, gamma=0.5, rho_bar=1.5, c_bar=1.25, lam=0.5)
    last = 1.5 * 1.0
    assert rows(credit) == pytest.approx({(0, "e0"): 0.5 * (0.5 * last), (0, "e2"): last, (1, "e0"): 0.5 * 4.0})
    assert credit.notes["decisions"] == 3
    assert credit.notes["effective size"] == pytest.approx(9 / 4.5)  # 1/2, 2, 1/2
    assert credit.notes["step scale"] == pytest.approx((2 / 3) ** 0.5)
    assert (credit.notes["gamma"], credit.notes["rho_bar"], credit.notes["c_bar"], credit.notes["lam"]) == (0.5, 1.5, 1.25, 0.5)
    critic = vtrace_of(two, target=lambda t: new, value=lambda t: dict.fromkeys(("e0", "e2"), 1.0))
    # V 1: the last step pays exactly what was expected, so the first is worth 1/2 (0 + 1 - 1)
    assert rows(critic) == pytest.approx({(0, "e0"): 0.0, (0, "e2"): 0.0, (1, "e0"): 1.5})
    near = vtrace_of(team("t", 1.0, steps[:1]), target=lambda t: {"e0": -100.0})
    assert rows(near)[0, "e0"] == pytest.approx(np.exp(-20.0), rel=1e-9)
    far = vtrace_of(team("t", 1.0, steps[:1]), target=lambda t: {"e0": 100.0}, rho_bar=1e12)
    assert rows(far)[0, "e0"] == pytest.approx(np.exp(20.0))
    for wrong in ({"e0": 0.0}, {}):
        with pytest.raises(NotIdentified, match="has no log-probability under both policies") as error:
            vtrace_of(two, target=lambda t, w=wrong: w)
        assert error.value.where == "t"


def test_cone_notes() -> None:
    trace = team("t", 1.0, [said("a"), said("b")])
    credit = cone([team("s", 1.0, [said("a")]), trace], value=lambda t: [0.25] * (len(t.events) + 1), discount=0.5)
    assert credit.notes == {
        "over": "cone",
        "discount": 0.5,
        "critic": "given",
        "traces": [{"by_q": 0, "prior": 0.25}, {"by_q": 0, "prior": 0.25}],
    }
    assert rows(credit) == {(0, "e0"): 0.75, (1, "e0"): 0.0, (1, "e1"): 0.75}
    assert "its cone" in credit.estimand
    assert "all later events" in cone(trace, value=[0.0] * 3, over="all").estimand
    scored = team("d", 1.0, [{"type": "aggregate", "agent": "a", "reward": {"draft": 0.5}}, said("a")])
    assert cone(scored).notes["critic"] == "drafts"
    with pytest.raises(InputError, match=r"between 0 and 1, not -0\.1"):
        cone(trace, value=[0.0] * 3, discount=-0.1)


# -- absence ------------------------------------------------------------------------------------------------------------


class Deletes:
    """A team's reward is the number of its events; a deleted one is gone."""

    def fork(self, trace: Trace, at: str, do: Do | None = None, seed: int | None = None) -> Trace:
        assert isinstance(do, Delete)
        left = [e for e in trace.events if e.id != at]
        gone = {e.to for e in trace.events if e.id == at}
        kept = [e for e in left if e.agent not in gone]
        return Trace(trace_id="f", task_id="q", events=kept, rewards={"team": float(len(kept)), "half": len(kept) / 2})


class Many(Deletes):
    """The same, many at once."""

    def returns(self, trace: Trace, forks: list[Fork]) -> np.ndarray:
        return np.array([self.fork(trace, f.at, f.do).rewards["team"] for f in forks])


class Counts(Many):
    """Only many at once."""

    def fork(self, trace: Trace, at: str, do: Do | None = None, seed: int | None = None) -> Trace:
        raise AssertionError("one by one")

    def returns(self, trace: Trace, forks: list[Fork]) -> np.ndarray:
        return np.array([Deletes().fork(trace, f.at, f.do).rewards["team"] for f in forks])


def absent() -> Trace:
    steps = [
        decides("x"),
        {"type": "spawn", "agent": "o", "to": "w"},
        said("w"),
        {"type": "tool_call", "agent": "w", "tool": "s"},
        {"type": "spawn", "agent": "o", "to": "w"},
        said("o"),
    ]
    trace = team("t", 6.0, steps)
    trace.rewards["half"] = 3.0
    return trace


@pytest.mark.parametrize("replay", [Deletes(), Many()])
def test_difference_rewards_of_every_unit(replay: Any) -> None:
    trace = absent()
    agents = difference([trace, trace], replay=replay)
    assert rows(agents) == {(0, "w"): 3.0, (1, "w"): 3.0}  # the first spawn, and all that w did
    assert agents.unidentified == {(i, "o"): "nobody spawned it: its absence has no event" for i in (0, 1)}
    assert agents.cost == Cost(forks=2)
    assert rows(difference(trace, replay=replay, unit="message")) == {(0, "e2"): 1.0, (0, "e5"): 1.0}
    assert rows(difference(trace, replay=replay, unit="tool")) == {(0, "e3"): 1.0}
    assert rows(difference(trace, replay=replay, unit="orchestrator")) == {(0, "e0"): 1.0}
    assert {r.unit for r in difference(trace, replay=replay, unit="tool").rows} == {"tool"}
    assert rows(difference(trace, replay=replay, channel="half")) == {(0, "w"): 1.5}
    with pytest.raises(InputError, match="no difference rewards for unit 'turn'"):
        difference(trace, replay=replay, unit="turn")
    assert rows(difference(trace, replay=Counts())) == {(0, "w"): 3.0}
    told = difference([trace, trace], counterfactual=lambda t, name: 4.0)
    assert rows(told) == {(i, n): 2.0 for i in (0, 1) for n in ("o", "w")}
    assert told.cost == Cost()
    with pytest.raises(NotIdentified, match=r"nobody spawned it.*ask for spawned agents"):
        difference(team("t", 1.0, [said("a")]), replay=replay)


# -- shares -------------------------------------------------------------------------------------------------------------


def test_shares_and_tokens() -> None:
    assert shares(6.0, [1.0, 2.0, 0.0]) == [2.0, 4.0, 0.0]
    for wrong in ([], [0.0], [-1.0, 2.0], [np.inf], [np.nan]):
        with pytest.raises(InputError, match="weights are finite, at least 0 and not all 0"):
            shares(1.0, wrong)
    traces = [team("n", 1.0, []), team("t", 3.0, [said("a", tokens_out=1), said("b", tokens_out=1), said("a", tokens_out=1)])]
    credit = uniform(traces, by="tokens")
    assert rows(credit) == {(1, "a"): 2.0, (1, "b"): 1.0}
    assert credit.notes == {"unit": "agent", "by": "tokens"}
    assert credit.declared is not None
    assert credit.declared.tolist() == [1.0, 3.0]
    assert rows(uniform(traces, unit="message")) == {(1, "e0"): 1.0, (1, "e1"): 1.0, (1, "e2"): 1.0}
    with pytest.raises(InputError, match="no weight 'time'"):
        uniform(traces, by="time")
    with pytest.raises(NotIdentified, match="no event says how many tokens") as error:
        uniform(team("m", 1.0, [said("a")]), by="tokens")
    assert error.value.where == "m"


def test_spread_over_tokens_of_several_traces() -> None:
    traces = [
        team("t", 1.0, [decides("x", tokens_out=2)]),
        team("u", 3.0, [said("a", tokens_out=1), {"type": "tool_call", "agent": "a", "tool": "s", "tokens_out": 2}]),
    ]
    of = uniform(traces, unit="message")
    credit = token_spread(traces, credit=of, weights="last")
    assert rows(credit) == {(1, "e0#0"): 3.0}
    assert credit.declared is not None
    assert credit.declared.tolist() == [0.0, 3.0]
    assert credit.notes == {"of": "uniform", "weights": "last", "lost": 0}
    tools = token_spread(traces, credit=uniform(traces, unit="tool"))
    assert rows(tools) == {(1, "e1#0"): 1.5, (1, "e1#1"): 1.5}
    lead = vtrace_of(traces[:1] and [team("t", 1.0, [decides("x", tokens_out=2, logp=0.0)])], target=lambda t: {"e0": 0.0})
    spread = token_spread(team("t", 1.0, [decides("x", tokens_out=2)]), credit=lead, weights=lambda e: [3.0, 1.0])
    assert rows(spread) == {(0, "e0#0"): 0.75, (0, "e0#1"): 0.25}
    assert spread.notes["weights"] == "given"
    mixed = team("m", 1.0, [said("a"), said("b", tokens_out=0), said("c", tokens_out=2)])
    every = ledger(mixed, value=[0.0, 0.25, 0.25, 0.5], unit="all")  # rows of roles, agents and turns come first
    found = token_spread(mixed, credit=every)
    assert rows(found) == {(0, "e2#0"): 0.375, (0, "e2#1"): 0.375}
    assert (set(found.unidentified), found.notes["lost"]) == ({(0, "e0"), (0, "e1")}, 2)
    assert found.notes["lost_credit"] == sum(r.value for r in every.rows if r.unit_id in ("e0", "e1"))
    with pytest.raises(NotIdentified, match="rows per agent, none per event"):
        token_spread(traces, credit=uniform(traces))
    with pytest.raises(InputError, match="of other traces"):
        token_spread(traces[::-1], credit=of)
    for wrong in (lambda e: [0.0], lambda e: [np.inf], lambda e: [1.0, 1.0]):
        with pytest.raises(InputError, match="weights for 1 tokens of event 'e0'"):
            token_spread(traces, credit=of, weights=wrong)
    with pytest.raises(InputError, match="no weights 'odd'"):
        token_spread(traces, credit=of, weights="odd")
    with pytest.raises(NotIdentified, match="record tokens_out"):
        token_spread(team("m", 1.0, [said("a")]), credit=uniform(team("m", 1.0, [said("a")]), unit="message"))
