"""Which mechanism is chosen when nobody names one, what it costs to fork, and how two mechanisms compare."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

import counterpoint.registry as registry
from counterpoint.credits import choice
from counterpoint.credits.choice import NoMechanism, agent_shares, choose
from counterpoint.credits.example import Recount
from counterpoint.credits.fork_price import BudgetedReplay, CountingReplay, price_of
from counterpoint.credits.mechanisms.message_delete import message_delete
from counterpoint.credits.row_places import RowPlaces, rank_correlation
from counterpoint.errors import NotIdentified, Refused
from counterpoint.trace import Edge, Event, Trace
from counterpoint.trace.example import rollouts
from counterpoint.trace.replay import Delete, Fork


def without(trace: Trace, *channels: str) -> Trace:
    """The trace without some rewards of events."""
    kept = [
        replace(e, reward={k: v for k, v in e.reward.items() if k not in channels} or None) if e.reward else e for e in trace.events
    ]
    return replace(trace, events=kept)


def by_two(trace: Trace) -> Trace:
    """The trace whose last draft is a worker's."""
    last = max(i for i, e in enumerate(trace.events) if e.type == "aggregate")
    return replace(trace, events=[replace(e, agent="w1", role="worker") if i == last else e for i, e in enumerate(trace.events)])


def test_the_best_that_is_identified_is_chosen_and_the_rest_is_said() -> None:
    trace = rollouts()[0]
    assert choose([trace], replay=Recount()).credit.mechanism == "difference"
    votes = choose([trace])
    assert votes.credit.mechanism == "shapley"
    assert "cannot be replayed" in votes.passed["difference"]
    assert votes.credit.notes["chosen"] == votes.why
    drafts = by_two(without(trace, "R2"))
    assert choose([drafts]).credit.mechanism == "ledger"
    bare = [without(t, "R2", "draft") for t in rollouts()[:3]]
    assert choose(bare).credit.mechanism == "agent_wise"
    with pytest.raises(NoMechanism, match="without an agent") as log:  # where words stood first is no credit
        choose(bare[:1])
    assert choose([trace], replay=Recount(), unit="message").credit.mechanism == "message_delete"
    assert choose([trace], unit="message").credit.mechanism == "ledger"
    assert "none of a message" in choose([trace], unit="message").passed["shapley"]
    assert set(log.value.passed) == {"difference", "shapley", "remerge", "ledger", "agent_wise"}
    with pytest.raises(NotIdentified, match="no mechanism can say who earned it: no outcome is recorded") as unscored:
        choose([replace(bare[0], rewards={})])
    assert "counterpoint notes score" in unscored.value.passed["shapley"]  # type: ignore[attr-defined]


def test_even_shares_are_never_chosen_and_a_picture_adds_up() -> None:
    trace = rollouts()[0]
    for one in (trace, by_two(without(trace, "R2"))):
        shares = agent_shares(one)
        assert shares is not None
        assert shares.method != "uniform"
        assert sum(shares.agents.values()) + shares.unassigned == pytest.approx(shares.reward)
    log = without(trace, "R2", "draft")
    assert agent_shares(log) is None
    assert agent_shares(replace(log, rewards={"team": 0.0})) is None  # a run scored 0 has nothing to share out
    drafts = [
        Event(id="e0", t=0, type="orchestrator_decision", agent="lead", role="orchestrator", turn=0),
        Event(id="e1", t=1, type="message", agent="w", role="worker", turn=0),
        Event(id="e2", t=2, type="aggregate", agent="lead", role="orchestrator", turn=1, reward={"draft": 0.75}),
        Event(id="e3", t=3, type="aggregate", agent="w", role="worker", turn=1, reward={"draft": 0.5}),
    ]
    told = agent_shares(Trace(trace_id="d", task_id="q", events=drafts, rewards={"team": 0.5}))
    assert told is not None
    assert (told.method, told.reward, told.unassigned) == ("ledger", 0.5, 0.0)
    assert told.agents == pytest.approx({"lead": 0.75, "w": -0.25})


def test_one_draft_or_one_author_of_drafts_is_no_answer_while_there_is_a_better_one() -> None:
    one = Trace(
        trace_id="d",
        task_id="q",
        events=[
            Event(id="e1", t=1, type="return", agent="w", role="worker", turn=0, content_ref="text:it was the harbour master"),
            Event(id="e2", t=2, type="aggregate", agent="lead", role="orchestrator", turn=1, reward={"draft": 1.0},
                  content_ref="text:it was the harbour master"),
        ],
        edges=[Edge("e1", "e2", "aggregate")],
        contents={"text:it was the harbour master": "it was the harbour master"},
        rewards={"team": 1.0},
    )  # fmt: skip
    with pytest.raises(NoMechanism) as found:
        choose([one])
    assert "one draft was scored" in found.value.passed["ledger"]
    more = replace(one, events=[*one.events, replace(one.events[1], id="e3", t=3)], edges=[*one.edges, Edge("e1", "e3", "aggregate")])
    kept = choose([more])  # nothing better answers
    assert kept.passed["ledger"] == "it gives everything to lead, and the others nothing"
    assert kept.credit.mechanism == "ledger"
    assert "everything to lead" in kept.why


def test_rows_are_summed_at_one_unit() -> None:
    trace = by_two(without(rollouts()[0], "R2"))
    found = choose([trace]).credit  # the ledger has rows of agents, turns and messages, each of which sum to the whole
    assert sum(RowPlaces(trace).by_agent(found).values()) == pytest.approx(float(found.declared[0]))  # type: ignore[index]


def test_rank_correlation_by_hand() -> None:
    assert rank_correlation({"a": 1, "b": 2, "c": 3}, {"a": 10, "b": 30, "c": 20, "d": 0}) == (pytest.approx(0.5), 3)
    # ranks 1.5 1.5 3 and 1 2 3: cov 1.5, sizes 1.5 and 2
    rho, _ = rank_correlation({"a": 0, "b": 0, "c": 5}, {"a": 1, "b": 2, "c": 3})
    assert rho == pytest.approx(1.5 / 3**0.5)
    assert rank_correlation({"a": 1, "b": 1}, {"a": 1, "b": 2}) == (None, 2)


def test_forks_are_priced_without_making_any() -> None:
    trace = rollouts()[0]
    told = price_of(message_delete, [trace], {}, asks_model=True)
    messages = [e.id for e in trace.events if e.type in ("message", "return")]
    after = CountingReplay(asks_model=True)
    for at in messages:
        after.fork(trace, at)
    assert (told.forks, told.tokens) == (len(messages), after.tokens)
    # the last claim is read by the draft and the stop: 5 in and 4 out, 5 and 6, 5 and 2
    alone = CountingReplay(asks_model=True)
    alone.fork(trace, messages[-1])
    assert alone.tokens == 27
    assert price_of(message_delete, [trace], {}, asks_model=False).tokens == 0


def test_a_budget_stops_forks() -> None:
    trace = rollouts()[0]

    class Asking(Recount):
        def fork(self, trace: Trace, at: str, do: object = None, seed: int | None = None) -> Trace:
            fork = super().fork(trace, at, do, seed)  # type: ignore[arg-type]
            return replace(fork, events=[replace(e, extra={**(e.extra or {}), "badge": "re-run"}) for e in fork.events])

    replay = BudgetedReplay(Asking(), 1)
    forks = [Fork(e.id, Delete()) for e in trace.events if e.type == "return"]
    assert len(replay.returns(trace, forks)) == len(forks)
    assert replay.spent > 1
    with pytest.raises(Refused, match="of a budget of 1"):
        replay.fork(trace, forks[0].at, Delete())


def test_the_order_of_preference_is_of_all_that_can_be_chosen() -> None:
    assert set(choice._ORDER) == {name for name in registry.ids("mechanism") if registry.get("mechanism", name).default is not None}
