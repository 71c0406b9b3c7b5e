"""The example that a mechanism ships, which `counterpoint.testing.check_mechanism` runs on: its numbers, worked out by hand.

The first rollout: all three workers are right on item 1, w1 and w2 on item 2; the team is paid 1.
"""

from __future__ import annotations

import math

import pytest

from counterpoint import registry
from counterpoint.trace.rows import Credit


def shown(name: str) -> Credit:
    mechanism = registry.get("mechanism", name)
    given = mechanism.example()
    return mechanism(given.traces, **given.options)


@pytest.mark.parametrize("name", registry.ids("mechanism"))
def test_every_mechanism_answers_its_own_example(name: str) -> None:
    found = shown(name)
    assert found.mechanism == name
    assert found.rows
    assert all(math.isfinite(r.value) for r in found.rows)


FELL = math.exp(-0.5)  # elu(0.5 * 1 - 1) + 1, q being 0.4 + 3 * 0.2
BY_HAND = {
    # a critic to whom the first of n options is worth 1, chosen or not, against 1/n
    "coma": {"e0": 1 - 1 / 2, "e10": 0 - 1 / 2, "e15": 1 - 1},
    # without w1 or w2 item 2 is a tie, which is not right; without w3 nothing changes
    "difference": {"w1": 0.5, "w2": 0.5, "w3": 0.0},
    "message_delete": {"e6": 0.5, "e7": 0.5, "e8": 0.0, "e11": 0.0, "e12": 0.0, "e13": 0.0},
    # 2 of 17 words are the lead's own, and the three returns have as many words each
    "provenance": {"lead": 0.0, **dict.fromkeys(("w1", "w2", "w3", "e11", "e12", "e13"), 5 / 17)},
    # without the lead the hidden units fall to 0.6 and elu(-0.7), without a worker to 0.8 and elu(-0.6)
    "qmix": {
        "lead": 0.4 + 2 * (FELL - math.exp(-0.7)),
        **dict.fromkeys(("w1", "w2", "w3"), 0.2 + 2 * (FELL - math.exp(-0.6))),
    },
    # item 1 is shared by three who found it, item 2 by two
    "remerge": {"w1": 0.5 / 3 + 0.5 / 2, "w2": 0.5 / 3 + 0.5 / 2, "w3": 0.5 / 3},
    # nobody is left without the spawn, which had a chance of 0.8
    "spawn": {"e0": (1 - 0.8) * (1.0 - 0.0)},
    # w1 claims nothing once its tool does not answer
    "tool_call": {"e4": 0.5},
    "vdn": {"lead": 0.4, "w1": 0.2, "w2": 0.2, "w3": 0.2},
    # half the logged chance at each of three decisions, and 1 is paid at the end
    "vtrace": {"e0": 0.5**3, "e10": 0.5**2, "e15": 0.5},
}


@pytest.mark.parametrize("name", BY_HAND)
def test_the_first_rollout_by_hand(name: str) -> None:
    assert shown(name).of(0) == pytest.approx(BY_HAND[name], abs=1e-12)


def test_who_comes_first_is_worth_twice_as_much_to_the_example_of_shapley_q() -> None:
    """Each order has one first: the agents' worths, by the letters of their names, sum to 1 + (n - 1) / 2 in every trace."""
    found = shown("shapley_q")
    for k in range(len(found.trace_ids)):
        by_letter = {who: phi / len(who) for who, phi in found.of(k).items()}
        assert sum(by_letter.values()) == pytest.approx(1 + 3 / 2)
        assert all(0.5 <= worth <= 1 for worth in by_letter.values())


def test_a_message_has_four_tokens_and_its_credit_is_theirs() -> None:
    spread, whole = shown("token_spread"), registry.get("mechanism", "message_masked")
    given = whole.example()
    expected = whole(given.traces)
    for k in range(len(spread.trace_ids)):
        for message, worth in expected.of(k).items():
            mine = [v for token, v in spread.of(k).items() if token.rsplit("#", 1)[0] == message]
            assert mine == pytest.approx([worth / 4] * 4)


def test_learned_weights_tell_the_messages_that_mattered() -> None:
    learned, deleted = shown("message_amortised").of(0), BY_HAND["message_delete"]
    assert learned == pytest.approx(deleted, abs=0.05)


def test_the_logged_runs_of_the_example_are_three_of_one_task_many_times_over() -> None:
    """w2 said 1 on item 2 in runs that got 1 and 0.5, and 0 in one that got 0; w1's word made no difference; w3 never said 1."""
    mechanism = registry.get("mechanism", "message_logged")
    given = mechanism.example()
    assert len(given.traces) == len({t.trace_id for t in given.traces}) == 72
    is_silent = [not any(e.agent == "w3" and e.type == "return" for e in t.events) for t in given.traces]
    assert is_silent == [n % 2 == 1 for n in range(24) for _ in range(3)]
    assert all(
        ("w3" in {e.agent for e in t.events}) and len(t.edges) == 15 - 2 * q for t, q in zip(given.traces, is_silent, strict=True)
    )
    assert [t.rewards["team"] for t in given.traces[:6]] == [1.0, 0.5, 0.0, 0.75, 0.25, -0.25]
    found = mechanism(given.traces, **given.options)
    assert found.of(0)["e7"] == pytest.approx(0.75, abs=0.01)
    assert found.of(0)["e6"] == pytest.approx(0.0, abs=0.01)
    assert "72 runs said so and 0 did not" in found.unidentified[0, "e8"]
