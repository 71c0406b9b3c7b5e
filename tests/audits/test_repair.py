"""Repair: arms at equal calls, counted by hand with a replay that is a table; and on a live team of fakes with a planted mistake."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from counterpoint.audits.blame.injecting import inject
from counterpoint.audits.blame.judge import blame
from counterpoint.audits.blame.repair import advice_of, repair_arms
from counterpoint.audits.blame.search import until
from counterpoint.errors import CounterpointError, NotIdentified, Refused
from counterpoint.lab.bench.blame_cases import team_run
from counterpoint.lab.team.live_replay import LiveReplay
from counterpoint.lab.team.session import Spec
from counterpoint.lab.team.state import Limits
from counterpoint.lab.worlds.world import world
from counterpoint.trace import Event, Trace, content_ref
from counterpoint.trace.mistake import mistake_of
from counterpoint.trace.replay import Do, Fork


def ten_steps(*, keys: bool = True) -> Trace:
    """A failed run of two agents that say one thing each in turn; e0 is the question."""
    texts = ["what is it", *(f"claim {i}" for i in range(1, 11))]
    events = [
        Event(id=f"e{i}", t=float(i), type="message", agent="user" if not i else f"a{i % 2}", key=f"k{i}" if keys else None,
              content_ref=content_ref(text)) for i, text in enumerate(texts)
    ]  # fmt: skip
    contents = {content_ref(text): text for text in texts}
    return Trace(trace_id="ten", task_id="t", events=events, edges=[], rewards={"team": 0.0}, meta={"team": {}}, contents=contents)


class Table:
    """A team that does again what is left of ten steps, a call each, and succeeds from `until` or before; notes what was asked."""

    def __init__(self, last_good: int, *, extra: int = 0) -> None:
        self.last_good, self.extra, self.asked = last_good, extra, list[tuple[str, int | None]]()

    def fork(self, trace: Trace, at: str, do: Do | None = None, seed: int | None = None) -> Trace:
        self.asked.append((at, seed))
        i = int(at[1:])
        calls = 10 - max(i, 1) + 1 + self.extra * (i > 0)
        meta = {**trace.meta, "fork": {"calls": {"re-run": calls, "recorded": i}}}
        return replace(trace, rewards={"team": float(i <= self.last_good)}, meta=meta)

    def forks(self, trace: Trace, forks: list[Fork]) -> list[Trace]:
        return [self.fork(trace, *fork) for fork in forks]


def test_no_arm_has_more_calls_than_the_retry() -> None:
    replay = Table(7)
    made = repair_arms(ten_steps(), replay, ["e7", "e2"], "look", samples=2)
    assert (made.budget, made.unit) == (20, "calls")  # the retry plays ten steps twice
    assert [arm.name for arm in made.arms] == ["named step", "random step", "last step", "retry"]
    named, last, retry = made.arm("named step"), made.arm("last step"), made.arm("retry")
    assert (len(named.tries), named.calls, named.successes, named.cut) == (5, 20, 5, 0)  # four calls each
    assert (len(last.tries), last.calls, last.successes) == (12, 12, 0)  # a call each, and no more than twelve tries
    assert (len(retry.tries), retry.calls, retry.successes) == (2, 20, 2)
    assert all(arm.calls + arm.cut <= 20 for arm in made.arms)
    assert "mended from: named step" in made.words
    assert "20 calls of 2 plain retries, and at most 12 tries" in made.words
    assert named.ends == pytest.approx((0.5655, 1.0), abs=1e-4)  # Wilson: 5 / (5 + 1.96 ** 2)


def test_a_try_that_ends_past_the_budget_does_not_count() -> None:
    made = repair_arms(ten_steps(), Table(7, extra=2), ["e7"], "look", samples=1)
    named = made.arm("named step")  # six calls each of ten: the second try would end at twelve
    assert (len(named.tries), named.calls, named.cut) == (1, 6, 4)


def test_the_first_suspect_that_can_be_done_again_is_the_named_step() -> None:
    replay = Table(3)
    made = repair_arms(ten_steps(), replay, ["gone", "e0", "e4"], "look", samples=1)
    assert {one.event for one in made.arm("named step").tries} == {"e4"}
    assert {one.event for one in made.arm("last step").tries} == {"e10"}
    assert {one.event for one in made.arm("retry").tries} == {"e0"}
    assert len({one.event for one in made.arm("random step").tries}) <= 1, "one step for all tries, as in the other arms"
    with pytest.raises(NotIdentified, match="no suspected step"):
        repair_arms(ten_steps(keys=False), replay, ["e4"], "look", samples=1)


def test_the_nth_try_of_every_arm_has_the_same_noise_and_a_seed_draws_all_anew() -> None:
    one, same, other = Table(7), Table(7), Table(7)
    first = repair_arms(ten_steps(), one, ["e7"], "look", samples=1)
    assert repair_arms(ten_steps(), same, ["e7"], "look", samples=1) == first
    assert one.asked == same.asked
    repair_arms(ten_steps(), other, ["e7"], "look", samples=1, seed=1)
    assert {seed for _, seed in one.asked}.isdisjoint({seed for _, seed in other.asked})
    noise = {at: [seed for where, seed in one.asked if where == at] for at in ("e7", "e10", "e0")}
    assert noise["e7"][0] == noise["e10"][0] == noise["e0"][0]
    assert len(set(noise["e10"])) == len(noise["e10"])


def test_an_arm_can_end_at_its_first_success_and_more_arms_can_be_asked_for() -> None:
    made = repair_arms(ten_steps(), Table(7), ["e9"], "look", samples=1, is_first_enough=True, also={"two": (["e9", "e7"], False)})
    assert [(one.event, one.calls, one.is_success) for one in made.arm("two").tries] == [("e9", 2, False), ("e7", 4, True)]
    assert not made.arm("named step").is_mended
    assert len(made.arm("named step").tries) == 5


def test_a_run_that_cannot_be_done_again_is_said_and_a_budget_ends_it() -> None:
    class Broken(Table):
        error: CounterpointError = CounterpointError("its tool is gone", fix="bring it back")

        def fork(self, trace: Trace, at: str, do: Do | None = None, seed: int | None = None) -> Trace:
            raise self.error

    with pytest.raises(NotIdentified, match="cannot be done again from e0: its tool is gone") as error:
        repair_arms(ten_steps(), Broken(7), ["e7"], "look")
    assert error.value.fix == "bring it back"
    broken = Broken(7)
    broken.error = Refused("spent")
    with pytest.raises(Refused, match="spent"):
        repair_arms(ten_steps(), broken, ["e7"], "look")


# -- a live team -----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def broken() -> Trace:
    """A team of fakes of full skill with one wrong fact: it fails by that alone."""
    dials: dict[str, Any] = {"config": {"documents": 20, "rows": 3, "parts": 2}, "options": {"explore": 0.0}}
    spec = Spec(task="ledger_hunt", seed=5, topology="centralized", model="fake:1", limits=Limits(width=2), **dials)
    return next(iter(inject(team_run(spec), LiveReplay(), kinds=["wrong_fact"], seed=1)))


def test_a_fork_at_or_before_the_mistake_mends_and_one_after_it_does_not(broken: Trace) -> None:
    mistake = mistake_of(broken)
    assert mistake is not None
    replay, found = LiveReplay(), blame(broken)
    made = repair_arms(broken, replay, [mistake.event], advice_of(found), teller=replay.message_before, samples=1)
    named, last, retry = made.arm("named step"), made.arm("last step"), made.arm("retry")
    assert named.successes == len(named.tries) > 1
    assert all(one.is_told for one in named.tries)
    assert (last.successes, retry.successes) == (0, 1)
    where = broken.index[mistake.event]
    assert all(one.is_success == (broken.index[one.event] <= where) for one in made.arm("random step").tries)
    assert retry.calls == sum(e.model is not None for e in broken.events)  # each answer of a model is one event
    assert not any(one.is_told for one in retry.tries)


def test_the_agent_hears_the_advice_just_before_its_step_and_nothing_else_changes(broken: Trace) -> None:
    mistake = mistake_of(broken)
    assert mistake is not None
    at = broken.index[mistake.event]
    told = LiveReplay().message_before(until(broken, at), mistake.event, "count again")
    assert told is not None
    forked = LiveReplay().fork(told, mistake.event, None, 3)
    heard = [e for e in forked.events if forked.text(e) == "count again"]
    assert [(e.to, e.agent) for e in heard] == [(mistake.agent, "operator")]
    assert [e.key for e in forked.events[:at]] == [e.key for e in broken.events[:at]]
    step = next(e for e in forked.events if e.key == broken.events[at].key)
    assert heard[0].id in {edge.src for edge in forked.edges if edge.dst == step.id}
    assert forked.rewards["team"] == 1.0
    assert LiveReplay().message_before(broken, broken.events[0].id, "too early") is None


def test_the_advice_quotes_nothing_that_was_said_in_the_run(broken: Trace) -> None:
    found = blame(broken)
    advice = advice_of(found)
    said = {word for e in broken.events for word in (broken.text(e) or "").split() if any(c.isdigit() for c in word)}
    assert said
    assert not [word for word in said if word in advice]
    assert found.suspects[0].agent not in advice


def test_a_simulated_team_is_repaired_without_words_and_counts_events() -> None:
    found = world("W2")
    runs = found.run("reference", [3], log=True)
    trace = next(iter(inject(runs.trace(0), found, seed=1, tries=30)))
    mistake = mistake_of(trace)
    assert mistake is not None
    made = repair_arms(trace, found, [mistake.event], "look", bar=mistake.reward_without, samples=1)
    assert made.unit == "events"
    assert not any(one.is_told for arm in made.arms for one in arm.tries)
    assert all(arm.calls <= made.budget for arm in made.arms)
    assert made.arm("retry").tries
