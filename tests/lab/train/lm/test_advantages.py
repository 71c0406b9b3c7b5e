"""Rewards less prices, what a merge loses without an agent, and amounts against those of a task's other samples, by hand."""

from __future__ import annotations

import msgspec
import pytest

pytest.importorskip("torch")

from counterpoint import registry
from counterpoint.lab.team.session import play_in_memory
from counterpoint.lab.train.lm.advantages import (
    advantages,
    flat_groups,
    less_prices,
    merged_value,
    merged_worth,
    normalise,
    price_of,
    without_returns,
)
from counterpoint.lab.train.lm.alerts import language_alerts
from counterpoint.lab.train.lm.settings import Learn, Prices
from counterpoint.trace import Trace
from counterpoint.trace.rows import CreditRow


@pytest.fixture(scope="module")
def trace() -> Trace:
    return play_in_memory(registry.get("topology", "centralized"), seed=4)


def samples(trace: Trace, *rewards: float) -> list[Trace]:
    return [msgspec.structs.replace(trace, trace_id=f"s{i}", rewards={"team": r}) for i, r in enumerate(rewards)]


def test_prices_are_taken_off_the_reward(trace: Trace) -> None:
    spawned = sum(e.type == "spawn" for e in trace.events)
    calls = sum("call" in (e.extra or {}) and e.type != "tool_result" for e in trace.events)
    assert price_of(trace, Prices(agent=0.5)) == pytest.approx(0.5 * spawned)
    assert price_of(trace, Prices(call=0.1)) == pytest.approx(0.1 * calls)
    assert price_of(trace, Prices(token=0.01)) == pytest.approx(0.01 * sum(e.tokens_out or 0 for e in trace.events))
    assert price_of(trace, Prices(second=1.0)) > 0
    got = less_prices(trace, Prices(agent=0.5))
    assert got.rewards["team"] == pytest.approx(trace.rewards["team"] - 0.5 * spawned)
    assert (got.metrics or {})["task_score"] == trace.rewards["team"]


def test_a_merge_without_an_agent_is_made_again(trace: Trace) -> None:
    returns = [e for e in trace.events if e.type == "return"]
    agents = {e.agent for e in returns}
    everybody = merged_worth(trace, frozenset(agents))
    assert everybody == trace.rewards["team"]  # the lead says what was merged
    for agent in agents:
        alone = merged_worth(trace, frozenset(agents - {agent}))
        assert without_returns(trace, agent) == pytest.approx(trace.rewards["team"] - (everybody - alone))
    assert without_returns(trace, "lead") == trace.rewards["team"]
    values = merged_value(trace)
    assert len(values) == len(trace.events) + 1
    assert values[0] == 0.0
    assert values[-1] == everybody
    changes = {trace.events[i].type for i in range(len(trace.events)) if values[i] != values[i + 1]}
    assert changes <= {"return"}


def test_amounts_against_the_other_samples_by_hand(trace: Trace) -> None:
    traces = samples(trace, 0.0, 1.0, 0.5)
    rows = [CreditRow(i, "agent", "lead.1", x) for i, x in enumerate((1.0, 3.0, 5.0))]
    rows.append(CreditRow(0, "agent", "lead.9", 7.0))  # nobody else has one
    group = normalise(rows, traces, "group")
    spread = (8 / 3) ** 0.5 + 0.05
    assert [r.value for r in group] == pytest.approx([-2 / spread, 0.0, 2 / spread, 0.0])
    assert [r.value for r in normalise(rows, traces, "leave_one_out")] == pytest.approx([-3.0, 0.0, 3.0, 0.0])
    assert normalise(rows, traces, "none") == rows
    equal = [CreditRow(i, "team", "", 2.0) for i in range(3)]
    assert [r.value for r in normalise(equal, traces, "group")] == [0.0, 0.0, 0.0]


def test_left_out_is_the_whole_sample_and_not_one_event_of_it(trace: Trace) -> None:
    traces = samples(trace, 0.0, 1.0)
    mine = [event.id for event in trace.events if event.agent == "lead"][:2]
    rows = [CreditRow(0, "action", mine[0], 1.0), CreditRow(0, "action", mine[1], 5.0), CreditRow(1, "action", mine[0], 2.0)]
    assert [r.value for r in normalise(rows, traces, "leave_one_out")] == pytest.approx([1 - 2, 5 - 2, 2 - (1 + 5) / 2])


def test_the_most_specific_mechanism_wins_and_the_lead_keeps_the_teams(trace: Trace) -> None:
    rows = advantages(samples(trace, 0.0, 1.0), Learn(credit=("group_relative", "difference")))
    levels = {row.agent: row.level for row in rows.rows}
    assert levels.pop("lead") == "team"
    assert set(levels.values()) == {"agent"}
    only = advantages(samples(trace, 0.0, 1.0), Learn(credit=("group_relative",)))
    assert {row.level for row in only.rows} == {"team"}
    for name in ("ledger", "shapley"):
        assert any(row.level == "agent" for row in advantages(samples(trace, 0.0, 1.0), Learn(credit=(name,))).rows)


def test_groups_without_spread_are_found(trace: Trace) -> None:
    assert flat_groups(samples(trace, 0.5, 0.5), Learn()) == {trace.task_id}
    assert flat_groups(samples(trace, 0.5, 0.6), Learn()) == set()


def test_a_group_whose_teams_are_level_teaches_where_its_agents_are_not(trace: Trace) -> None:
    one, other = samples(trace, 0.5, 0.5)
    returns = [i for i, e in enumerate(trace.events) if e.type == "return"]
    first, second = next((i, j) for i in returns for j in returns if trace.events[i].content_ref != trace.events[j].content_ref)
    events = list(trace.events)
    events[first] = msgspec.structs.replace(events[first], content_ref=trace.events[second].content_ref)
    events[second] = msgspec.structs.replace(events[second], content_ref=trace.events[first].content_ref)
    other = msgspec.structs.replace(other, events=events)
    shares = [without_returns(t, t.events[first].agent) for t in (one, other)]
    assert shares[0] != shares[1]  # two workers returned each other's part
    assert flat_groups([one, other], Learn()) == {trace.task_id}
    assert flat_groups([one, other], Learn(credit=("group_relative", "difference"))) == set()
    assert flat_groups(samples(trace, 0.5, 0.5), Learn(credit=("group_relative", "difference"))) == {trace.task_id}


def test_a_group_is_flat_by_what_the_run_pays_and_not_by_the_score(trace: Trace) -> None:
    short, long = samples(trace, 0.5, 0.5)  # the same score, and other costs
    events = [msgspec.structs.replace(e, tokens_out=9 * e.tokens_out if e.tokens_out else e.tokens_out) for e in long.events]
    long = msgspec.structs.replace(long, events=events)
    cheap = Learn(reward={"paramanager": {}})
    assert flat_groups([short, long], Learn()) == {trace.task_id}
    assert flat_groups([short, long], cheap) == set()
    assert flat_groups(samples(trace, 0.5, 0.5), cheap) == {trace.task_id}


def test_alerts_say_what_goes_wrong_once() -> None:
    good = {"phase": "learn", "entropy": 1.0, "tokens_per_call": 10.0, "malformed": 0.0, "mismatch": 0.001, "kl": 0.01,
            "roles": {"lead": 5, "worker": 5}, "flat_groups": 0.0}  # fmt: skip
    metrics = [{**good, "update": i} for i in range(10)]
    assert language_alerts(metrics, []) == []
    assert language_alerts([{"phase": "imitate", "update": 0}], []) == []
    wrong = {
        "entropy": 0.001,
        "tokens_per_call": 30.0,
        "malformed": 0.2,
        "too_long": 0.2,
        "mismatch": 0.2,
        "kl": 0.5,
        "roles": {"lead": 5},
        "flat_groups": 0.9,
    }
    codes = ("entropy_collapse", "length_drift", "malformed", "too_long", "mismatch", "kl_jump", "silent_role", "zero_variance")
    for (name, value), code in zip(wrong.items(), codes, strict=True):
        bad = [*metrics, *({**good, name: value, "update": 10 + i} for i in range(5))]
        found = [a.code for a in language_alerts(bad, [])]
        assert code in found or name == "roles", (code, found)
        if name == "roles":
            assert "silent_role" in [a.code for a in language_alerts(bad[:-4], [])]
        assert code not in [a.code for a in language_alerts(bad, [{"code": code, "update": 5}])]
