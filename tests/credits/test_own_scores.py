"""A person's score is never subtracted from a score of the run itself: forks and drafts stand beside the run's own."""

from __future__ import annotations

import numpy as np
import pytest
from msgspec.structs import replace

import counterpoint as cpt
from counterpoint.credits.choice import agent_shares
from counterpoint.credits.example import Recount
from counterpoint.credits.forks import pair_interaction
from counterpoint.credits.mechanism import Mechanism
from counterpoint.credits.mechanisms.difference import difference
from counterpoint.credits.mechanisms.ledger import ledger
from counterpoint.credits.mechanisms.message_delete import message_delete
from counterpoint.credits.mechanisms.shapley import shapley
from counterpoint.credits.mechanisms.sharp import sharp
from counterpoint.credits.mechanisms.spawn import spawn
from counterpoint.credits.mechanisms.stop import stop
from counterpoint.credits.mechanisms.tool_call import tool_call
from counterpoint.credits.mechanisms.winter import winter
from counterpoint.errors import NotIdentified
from counterpoint.trace import Event, Trace
from counterpoint.trace.example import rollouts
from counterpoint.trace.outcome import Outcome, as_recorded, by_hand, with_outcomes
from counterpoint.trace.replay import Delete, Do


def scored(trace: Trace, value: float = 7.0, channel: str = "team") -> Trace:
    return with_outcomes(trace, [Outcome(channel=channel, value=value, by="ann", at=1.0)])


class PerEvent:
    """Pays 10 for every event that is left, and `other` nothing at all."""

    def fork(self, trace: Trace, at: str, do: Do | None = None, seed: int | None = None) -> Trace:
        left = [e for e in trace.events if not (isinstance(do, Delete) and e.id == at)]
        return replace(trace, events=left, rewards={"team": 10.0 * len(left)})


def three_messages(**rewards: float) -> Trace:
    events = [Event(id=f"e{n}", t=float(n), type="message", agent="w", key=f"k{n}") for n in range(3)]
    return Trace(trace_id="t", task_id="q", events=events, rewards=rewards)


def test_a_trace_as_recorded_has_what_its_source_stated() -> None:
    trace = three_messages(team=30.0, half=15.0)
    said = scored(scored(trace), 1.0, "mood")
    assert said.rewards == {"team": 7.0, "half": 15.0, "mood": 1.0}
    assert as_recorded(said) == trace
    assert (by_hand(said, "team"), by_hand(said, "half"), by_hand(trace, "team")) == ("team 7 by ann", None, None)


@pytest.mark.parametrize("mechanism", [difference, message_delete, tool_call, spawn, shapley, winter])
def test_a_score_by_hand_does_not_move_what_forks_say(mechanism: Mechanism) -> None:
    traces = rollouts()
    plain = mechanism(traces, replay=Recount())
    told = mechanism([scored(t) for t in traces], replay=Recount())
    assert told.rows == plain.rows
    assert told.notes["by_hand_not_used"] == {t.trace_id: "team 7 by ann" for t in traces}
    assert "by_hand_not_used" not in plain.notes


def test_stops_by_forks_marginals_and_pairs_too() -> None:
    trace = rollouts()[1]
    for mechanism, options in ((stop, {"estimator": "forks"}), (sharp, {"give": "marginal"})):
        assert mechanism(scored(trace), replay=Recount(), **options).rows == mechanism(trace, replay=Recount(), **options).rows
    assert pair_interaction(Recount(), scored(trace), "e6", "e7") == pair_interaction(Recount(), trace, "e6", "e7")


def test_what_only_a_person_scored_is_asked_of_the_replay() -> None:
    said = scored(three_messages(), 1.0)
    found = message_delete(said, replay=PerEvent())  # 30 for all, 20 without one
    assert [r.value for r in found.rows] == [10.0, 10.0, 10.0]
    assert [r.value for r in difference(said, replay=PerEvent(), unit="message").rows] == [10.0, 10.0, 10.0]


@pytest.mark.parametrize("mechanism", [difference, message_delete])
def test_a_channel_that_no_fork_has_is_refused(mechanism: Mechanism) -> None:
    said = scored(three_messages(team=30.0), 1.0, "mood")
    options = {"unit": "message"} if mechanism is difference else {}
    with pytest.raises(NotIdentified, match=r"'mood' was scored by hand \(mood 1 by ann\)") as error:
        mechanism(said, replay=PerEvent(), channel="mood", **options)
    assert "makes no forks" in str(error.value.fix)


def test_drafts_stand_beside_the_runs_own_reward() -> None:
    trace = rollouts()[0]
    assert ledger(scored(trace)).rows == ledger(trace).rows
    assert ledger(scored(trace)).declared == pytest.approx([1.0])
    assert stop(scored(trace)).rows == stop(trace).rows
    nobody = replace(trace, rewards={})
    with pytest.raises(NotIdentified, match="scored by hand"):
        ledger(scored(nobody))
    critic = np.zeros(len(trace.events) + 1)
    assert sum(r.value for r in ledger(scored(nobody), value=critic).rows) == pytest.approx(7.0)  # a critic of the person's score


def test_a_counterfactual_by_function_stands_beside_the_reward() -> None:
    found = difference(scored(rollouts()[0]), counterfactual=lambda trace, name: 5.0)
    assert {r.value for r in found.rows} == {2.0}


def test_shares_and_forks_of_a_scored_run() -> None:
    world = cpt.world("W1", vote_items=4)
    trace = world.run("reference", [1], log=True).trace(0)
    said = scored(trace, 1.0)
    assert agent_shares(said, replay=world) == agent_shares(trace, replay=world)
    at = next(e.id for e in trace.events if e.type == "orchestrator_decision" and e.decision == "noop")
    forked = cpt.fork(said, at)
    assert forked.original.rewards["team"] == forked.trace.rewards["team"] == trace.rewards["team"]
    assert "outcomes" not in forked.trace.meta
