"""Credit by forks, votes and decisions on toys whose every number can be counted."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

from counterpoint.credits.forks import (
    Contrast,
    added,
    effects,
    fork_credit,
    fork_seeds,
    needed,
    pair_interaction,
    paired,
    two_arms,
)
from counterpoint.credits.masked_replay import Vote, gains, majority, masked, smoothed, votes_of, worth_of
from counterpoint.credits.mechanisms.message_amortised import NAMES, Weights, blended, features, fit, message_amortised
from counterpoint.credits.mechanisms.message_delete import message_delete
from counterpoint.credits.mechanisms.message_masked import message_masked
from counterpoint.credits.mechanisms.message_substitute import message_substitute
from counterpoint.credits.mechanisms.tool_call import outcome_gap, results_of, tool_call
from counterpoint.errors import InputError, NotFound, NotIdentified
from counterpoint.trace import Edge, Event, Trace
from counterpoint.trace.replay import Delete, Do, Fork, Substitute
from counterpoint.trace.rows import Cost, Credit, CreditRow


def rows(credit: Any) -> dict[tuple[int, str], float]:
    return {(r.trace, r.unit_id): r.value for r in credit.rows}


class Toy:
    """Pays 10 for each message that is there; a redraw pays its number; noise is the seed's last digit, once per fork."""

    def __init__(self) -> None:
        self.asked: list[Fork] = []

    def trace(self, name: str = "toy", words: Sequence[str] = "abc", reward: float | None = None) -> Trace:
        events = [
            Event(
                id=f"e{n}",
                t=float(n),
                type="return" if word == "r" else "message",
                agent="w",
                key=f"w|{word}",
                tokens_in=1,
                tokens_out=2,
            )
            for n, word in enumerate(words)
        ]
        paid = 10.0 * len(events) if reward is None else reward
        return Trace(trace_id=name, task_id="q", events=events, rewards={"team": paid, "half": paid / 2})

    def fork(self, trace: Trace, at: str, do: Do | None = None, seed: int | None = None) -> Trace:
        self.asked.append(Fork(at, do, seed))
        event = trace.events[trace.index[at]]
        if event.key == "w|x" and do is not None:
            raise NotIdentified("x cannot be changed", "leave it")
        left = [e for e in trace.events if not (isinstance(do, Delete) and e.id == at)]
        paid = 10.0 * len(left) + (do.draw if isinstance(do, Substitute) else 0) + (0 if seed is None else seed % 10)
        return replace(trace, events=left, rewards={"team": paid, "half": paid / 2})


# -- arms ---------------------------------------------------------------------------------------------------------------


def test_arms_and_their_noise() -> None:
    toy = Toy()
    trace = toy.trace()
    noise = [s % 10 for s in fork_seeds(4, trace, 6)]
    deleted = effects(toy, trace, [Contrast("e1", None, Delete())], k=3, seed=4)
    assert deleted.effect_U.tolist() == [10.0]  # coupled: the noise cancels
    # both arms of replicate 0 keep the recorded noise; the kept arm is the recorded trace and costs nothing
    seeds = fork_seeds(4, trace, 6)
    assert toy.asked == [
        Fork("e1", None, seeds[1]),
        Fork("e1", None, seeds[2]),
        Fork("e1", Delete(), None),
        Fork("e1", Delete(), seeds[1]),
        Fork("e1", Delete(), seeds[2]),
    ]
    assert deleted.cost == Cost(5, 5 * 6)
    toy.asked.clear()
    fresh = effects(toy, trace, [Contrast("e1", None, Delete())], k=3, seed=4, coupled=False)
    assert [f.seed for f in toy.asked] == [seeds[1], seeds[2], *seeds[3:]]
    kept, gone = [30, 30 + noise[1], 30 + noise[2]], [20 + n for n in noise[3:]]
    apart = np.array(kept) - np.array(gone)
    assert fresh.effect_U == pytest.approx([apart.mean()])
    assert fresh.se_U == pytest.approx([apart.std(ddof=1) / 3**0.5])
    once = effects(toy, trace, [Contrast("e0", None, Delete()), Contrast("e2", Delete(), None)])  # k is 1, coupled
    assert once.effect_U.tolist() == [10.0, -10.0]
    assert np.isnan(once.se_U).all()
    assert once.cost == Cost(2, 9 + 3)
    assert effects(toy, trace, [Contrast("e0", None, Delete())], channel="half").effect_U.tolist() == [5.0]


def test_each_replicate_of_a_redraw_is_another_draw() -> None:
    toy = Toy()
    found = effects(toy, toy.trace(), [Contrast("e0", None, Substitute())], k=3)
    assert [f.do for f in toy.asked if f.do is not None] == [Substitute(draw=1), Substitute(draw=2), Substitute(draw=3)]
    assert found.effect_U == pytest.approx([-2.0])  # 1, 2 and 3 more
    assert found.se_U == pytest.approx([1 / 3**0.5])
    toy.asked.clear()
    effects(toy, toy.trace(), [Contrast("e0", None, Substitute("word"))], k=2)
    assert [f.do for f in toy.asked if f.do is not None] == [Substitute("word")] * 2


def test_what_is_asked_wrongly() -> None:
    toy = Toy()
    with pytest.raises(InputError, match="k is 0"):
        effects(toy, toy.trace(), [], k=0)
    with pytest.raises(InputError, match="no reward 'odd'") as error:
        effects(toy, toy.trace(), [], channel="odd")
    assert error.value.where == "toy"
    nothing = effects(toy, toy.trace(), [])
    assert (len(nothing.effect_U), len(nothing.se_U), nothing.refused, nothing.cost) == (0, 0, {}, Cost())
    with pytest.raises(NotIdentified, match="credit of x asks what else would have happened"):
        needed(None, "credit of x")
    with pytest.raises(InputError, match="int is not a replay"):
        needed(3, "x")  # type: ignore[arg-type]
    assert needed(toy, "x") is toy
    assert added([Cost(1, 2), Cost(3, 4)]) == Cost(4, 6)
    assert added([]) == Cost(0, 0)
    assert two_arms(4.0, 0.25, is_taken=True) == 3.0
    assert two_arms(4.0, 0.25, is_taken=False) == -1.0
    mean, se = paired(np.array([[1.0, 3.0], [5.0, 5.0]]), np.zeros((2, 2)))
    assert (mean.tolist(), se.tolist()) == ([2.0, 5.0], [pytest.approx(1.0), 0.0])


def test_a_fork_without_the_channel_names_itself() -> None:
    class Mute(Toy):
        def fork(self, trace: Trace, at: str, do: Do | None = None, seed: int | None = None) -> Trace:
            return replace(trace, trace_id="mute", rewards={})

    credit = effects(Mute(), Toy().trace(), [Contrast("e0", None, Delete())])
    assert "mute: a fork has no reward 'team'" in credit.refused[0]


def test_many_at_once_only_for_the_team() -> None:
    class Many(Toy):
        def returns(self, trace: Trace, forks: Sequence[Fork]) -> np.ndarray:
            return np.full(len(forks), 7.0)

    found = effects(Many(), Toy().trace(), [Contrast("e0", None, Delete())])
    assert found.effect_U.tolist() == [23.0]
    half = effects(Many(), Toy().trace(), [Contrast("e0", None, Delete())], channel="half")
    assert half.effect_U.tolist() == [5.0]


def test_rows_refusals_and_cost_of_credit_by_forks() -> None:
    toy = Toy()
    traces = [toy.trace("one", "axb"), toy.trace("two", "c")]
    credit = message_delete(traces, replay=toy, k=2)
    assert credit.rows == tuple(CreditRow(i, "message", e, 10.0, 0.0) for i, e in ((0, "e0"), (0, "e2"), (1, "e0")))
    assert credit.unidentified == {(0, "e1"): "not identified: x cannot be changed; leave it"}
    assert credit.cost == Cost(9, 3 * 9 + 3 * 3 + 3 * 3)  # what was refused is not counted
    assert credit.notes == {"k": 2, "noise": "coupled", "tokens": "of the recorded suffix, once per fork"}
    assert (credit.trace_ids, credit.additive) == (("one", "two"), False)
    assert message_delete(traces, replay=toy, coupled=False).notes["noise"] == "fresh"
    assert [r.se for r in message_delete(traces, replay=toy).rows] == [None] * 3
    with pytest.raises(NotIdentified, match="not identified: x cannot be changed; leave it; fork at events") as error:
        message_delete(traces[0], replay=toy, ids=["e1"])
    assert str(error.value).count("not identified") == 1
    assert rows(message_delete(traces, replay=toy, channel="half")) == {(0, "e0"): 5.0, (0, "e2"): 5.0, (1, "e0"): 5.0}
    with pytest.raises(NotFound, match="no event 'e9'"):
        message_delete(traces, replay=toy, ids=["e9"])
    seeded = [message_delete(traces, replay=toy, k=4, seed=s, coupled=False).rows for s in (0, 1)]
    assert seeded[0] != seeded[1]
    named = fork_credit(
        "x",
        "words",
        "tool",
        traces[1:],
        toy,
        lambda t: {"u": Contrast("e0", None, Delete())},
        k=1,
        seed=0,
        coupled=True,
        channel="team",
    )
    assert (named.mechanism, named.estimand, named.rows) == ("x", "words", (CreditRow(0, "tool", "u", 10.0, None),))


def test_the_reason_that_most_have_is_the_reason() -> None:
    class Picky(Toy):
        def fork(self, trace: Trace, at: str, do: Do | None = None, seed: int | None = None) -> Trace:
            raise InputError("alone" if at == "e0" else "common")

    with pytest.raises(NotIdentified, match="common; fork at events that this replay can change"):
        message_delete(Toy().trace(), replay=Picky())


def test_substitution_asks_about_returns_unless_told() -> None:
    toy = Toy()
    trace = toy.trace(words="arb")
    assert rows(message_substitute(trace, replay=toy)) == {(0, "e1"): -1.0}
    assert rows(message_substitute(trace, replay=toy, types=["message"], ids=["e2"])) == {(0, "e2"): -1.0}
    assert rows(message_delete(trace, replay=toy, types=["return"])) == {(0, "e1"): 10.0}
    assert message_substitute(trace, replay=toy, k=3).cost.forks == 5
    assert rows(message_substitute(trace, replay=toy, channel="half")) == {(0, "e1"): -0.5}
    for mechanism in (message_delete, message_substitute):
        credit = mechanism(trace, replay=toy, k=2, coupled=False)
        assert (credit.mechanism, credit.notes["k"], credit.notes["noise"]) == (
            mechanism.run.__module__.rsplit(".", 1)[1],
            2,
            "fresh",
        )
        with pytest.raises(NotFound):
            mechanism(trace, replay=toy, ids=["e7"])


class Both:
    """Pays 1 where a and b are there, and 1/2 for c; messages keep their key and get new ids."""

    def trace(self, gone: tuple[str, ...] = (), noise: float = 0.0, swapped: bool = False) -> Trace:
        here = [m for m in ("bac" if swapped else "abc") if m not in gone]
        events = [
            Event(id=f"{'f' * len(gone)}e{n}", t=float(n), type="message", agent="w", key=f"w|{m}", tokens_out=4)
            for n, m in enumerate(here)
        ]
        paid = float({"a", "b"} <= set(here)) + 0.5 * ("c" in here) + noise
        return Trace(trace_id="t", task_id="q", events=events, rewards={"team": paid}, meta={"gone": list(gone)})

    def fork(self, trace: Trace, at: str, do: Do | None = None, seed: int | None = None) -> Trace:
        event = trace.events[trace.index[at]]
        gone = (*trace.meta["gone"], *([str(event.key)[2:]] if isinstance(do, Delete) else []))
        return self.trace(gone, 0.0 if seed is None else (seed % 8) * (2 + len(gone)))


def test_pairs_by_hand() -> None:
    toy = Both()
    trace = toy.trace()
    pair = pair_interaction(toy, trace, "e1", "e0")
    assert pair == (1.0, 1.0, 1.0, -1.0, None, Cost(5, 12 * 5))
    mixed = pair_interaction(toy, trace, "e2", "e0")
    assert (mixed.a, mixed.b, mixed.both, mixed.interaction) == (0.5, 1.0, 1.5, 0.0)
    many = pair_interaction(toy, trace, "e0", "e2", k=3, seed=5)
    noise = np.array([0, *(s % 8 for s in fork_seeds(5, trace, 2))], float)
    r00, r01, r10, r11 = 1.5 + 2 * noise, 1.0 + 3 * noise, 0.5 + 3 * noise, 0.0 + 4 * noise
    # the recorded noise is replicate 0 in every arm
    assert many.a == pytest.approx((r00 - r10).mean())
    assert many.b == pytest.approx((r00 - r01).mean())
    assert many.both == pytest.approx((r00 - r11).mean())
    d = r10 + r01 - r11 - r00
    assert many.interaction == pytest.approx(d.mean())
    assert many.se == pytest.approx(d.std(ddof=1) / 3**0.5)
    assert many.cost == Cost(13, 12 * 13)
    with pytest.raises(NotIdentified, match="a pair's interaction"):
        pair_interaction(None, trace, "e0", "e1")
    with pytest.raises(NotFound, match="no event 'e7'") as error:
        pair_interaction(toy, trace, "e0", "e7")
    assert error.value.where == "t"
    with pytest.raises(InputError, match="'e1' is named twice"):
        pair_interaction(toy, trace, "e1", "e1")


def test_a_pair_whose_first_message_prevents_the_second() -> None:
    class Chain(Both):
        def fork(self, trace: Trace, at: str, do: Do | None = None, seed: int | None = None) -> Trace:
            if isinstance(do, Delete) and trace.events[trace.index[at]].key == "w|a":
                return self.trace(("a", "b"), 0.0)
            return super().fork(trace, at, do, seed)

    pair = pair_interaction(Chain(), Both().trace(), "e0", "e1")
    assert (pair.a, pair.b, pair.both, pair.interaction) == (1.0, 1.0, 1.0, -1.0)
    assert pair.cost == Cost(3, 12 * 3)


def test_without_keys_the_later_message_is_found_by_its_id() -> None:
    class Bare(Both):
        def trace(self, gone: tuple[str, ...] = (), noise: float = 0.0, swapped: bool = False) -> Trace:
            made = super().trace(gone, noise)
            kept = [replace(e, id=str(e.key)[2:], key=None) for e in made.events]
            return replace(made, events=kept)

        def fork(self, trace: Trace, at: str, do: Do | None = None, seed: int | None = None) -> Trace:
            return self.trace((*trace.meta["gone"], *([at] if isinstance(do, Delete) else [])))

    pair = pair_interaction(Bare(), Bare().trace(), "a", "c")
    assert (pair.a, pair.b, pair.both, pair.cost.forks) == (1.0, 0.5, 1.5, 5)


# -- votes --------------------------------------------------------------------------------------------------------------


def voted() -> Trace:
    claim = lambda c, **more: {"extra": {"claim": c, **more}}  # noqa: E731
    events = [
        Event(id="b", t=0, type="message", agent="lead", to="w0"),
        Event(id="v0", t=1, type="return", agent="w0", task="q1", turn=1, reward={"R2": 1.0}, **claim(1)),
        Event(id="v1", t=2, type="return", agent="w1", task="q1", turn=2, reward={"R2": 0.0}, **claim(0)),
        Event(id="v2", t=3, type="message", agent="w2", from_="w0", task="q1", turn=3, reward={"R2": 1.0}, **claim(1)),
        Event(id="v3", t=4, type="return", agent="w3", task="q1", turn=4, reward={"R2": 0.0}, **claim(0, lost=True)),
        Event(id="v4", t=5, type="return", agent="w4", task="q1", turn=5, ok=False, reward={"R2": 0.0}, **claim(0)),
        Event(id="v5", t=6, type="return", agent="w1", task="q2", reward={"other": 1.0}, **claim("x")),
        Event(id="no", t=7, type="message", agent="c", role="critic", content_ref="sha256:no"),
        Event(id="yes", t=8, type="message", agent="c", role="critic", content_ref="sha256:yes"),
        Event(id="v6", t=9, type="tool_call", agent="w1", tool="s", task="q1", **claim(0)),
        Event(id="v7", t=10, type="return", agent="w1", task="q1", extra={"other": 1}),
        Event(id="v8", t=11, type="return", agent="w1", **claim(1)),
    ]
    contents = {"sha256:no": "this I reject", "sha256:yes": "rejected? no: fine"}
    edges = [Edge("v1", "no", "message"), Edge("v0", "yes", "message")]
    return Trace(trace_id="votes", task_id="q", events=events, edges=edges, rewards={"team": 1.0}, contents=contents)


def test_votes_as_the_aggregator_read_them() -> None:
    votes = votes_of(voted())
    assert [(v.id, v.task, v.turn, v.claim, v.worth, v.is_read) for v in votes] == [
        ("v0", "q1", 1, 1, 1.0, True),
        ("v1", "q1", 2, 0, 0.0, False),  # a critic rejected it
        ("v2", "q1", 3, 1, 1.0, True),
        ("v3", "q1", 4, 0, 0.0, False),  # lost
        ("v4", "q1", 5, 0, 0.0, False),  # not ok
        ("v5", "q2", 0, "x", None, True),
    ]
    assert [v.worth for v in votes_of(voted(), "other")] == [None] * 5 + [1.0]


def test_the_majority_after_each_turn() -> None:
    assert majority([1, 1, 0], [1, 2, 2]) == 1
    assert majority([0, 1, 1], [1, 2, 2]) == 1
    assert majority([0, 1], [1, 1], start=5) == 5  # a tie in the first turn
    assert majority([0, 1, 2, 2], [1, 2, 3, 4], start=5) == 2
    assert majority([0, 0, 1, 1], [1, 1, 2, 2]) == 0
    assert majority(["b"], [3]) == "b"


def test_what_recorded_scores_say_about_an_answer() -> None:
    votes = [Vote("a", "q", 0, 1, 0.75, True), Vote("b", "q", 0, "x", 0.5, True), Vote("c", "p", 0, 0, 0.25, True)]
    assert worth_of(votes, "q", 1) == 0.75
    assert worth_of(votes, "q", None) == 0.0
    assert worth_of(votes, "q", 7) == 0.0  # claims are no yes or no
    assert worth_of(votes, "p", 1) == 0.75  # what is left of 1
    assert worth_of(votes, "p", 1, start=2) == 0.0
    assert worth_of(votes, "p", 1, start=0) == 0.75
    assert worth_of([Vote("a", "q", 0, 0, 0.75, True), Vote("b", "q", 0, 1, None, True)], "q", 1) == 0.25
    assert worth_of(votes, "z", 1) is None
    assert worth_of([votes[0]._replace(worth=None)], "q", 1) is None


def test_masked_credit_of_traces() -> None:
    trace = voted()
    credit = message_masked([trace, trace])
    # v0 and v2 agree: without either the other still answers; what was never read is worth nothing
    assert {e: a for (i, e), a in rows(credit).items() if i == 1} == {"v0": 0.0, "v1": 0.0, "v2": 0.0, "v3": 0.0, "v4": 0.0}
    assert set(credit.unidentified) == {(i, e) for i in (0, 1) for e in ("b", "v5", "no", "yes", "v7", "v8")}
    assert "no answer to 'q2' was scored" in credit.unidentified[0, "v5"]
    assert "carries no claim" in credit.unidentified[0, "b"]
    assert (credit.notes, credit.mechanism) == ({}, "message_masked")
    told = message_masked(trace, verify=lambda task, answer: {"q1": 0.25, "q2": 3.0}[task] if answer is not None else 1.0)
    assert rows(told)[0, "v5"] == 3.0 - 1.0
    last = message_masked(trace, rule=lambda claims: len(claims), verify=lambda task, answer: float(answer or 0), start=0)
    assert rows(last)[0, "v0"] == 1.0  # two claims, then one
    assert rows(last)[0, "v5"] == 1.0  # one, then the start
    assert rows(message_masked(trace, types=["message"], start=0)) == {(0, "v2"): 0.0}
    assert rows(message_masked(trace, ids=["v0"])) == {(0, "v0"): 0.0}
    with pytest.raises(NotFound):
        message_masked(trace, ids=["zz"])
    with pytest.raises(InputError, match="no aggregator 'median'"):
        message_masked(trace, rule="median")
    with pytest.raises(NotIdentified, match="no message carries a scored claim"):
        message_masked(trace, ids=["b"])


def test_masked_votes_by_task() -> None:
    votes = [Vote("a", "q", 1, 1, 1.0, True), Vote("b", "p", 1, 1, 1.0, True), Vote("c", "q", 2, 0, 0.0, True)]
    values, reasons = masked(votes, start=0)
    assert (values, reasons) == ({"a": 1.0, "c": 0.0, "b": 1.0}, {})
    asked: list[tuple[str, Any]] = []

    def verify(task: str, answer: Any) -> float:
        asked.append((task, answer))
        return float(answer == 1)

    masked(votes, start=0, verify=verify)
    assert sorted(map(str, asked)) == sorted(map(str, [("q", 1), ("q", 0), ("p", 1), ("p", 0)]))  # each answer once
    assert smoothed(np.zeros(0, int), np.zeros(0)).tolist() == []
    s = lambda x: 1 / (1 + math.exp(-x))  # noqa: E731
    task, v = np.array([1, 0, 1, 1]), np.array([2.0, 0.5, -1.0, 0.5])
    assert smoothed(task, v) == pytest.approx([s(1.5) - s(-0.5), s(0.5) - 0.5, s(1.5) - s(2.5), s(1.5) - s(1.0)])
    assert gains(task, v) == pytest.approx([s(2) - 0.5, s(0.5) - 0.5, s(1) - s(2), s(1.5) - s(1)])


def test_features_by_hand() -> None:
    table = features([voted()])
    got = {at: dict(zip(NAMES, row, strict=True)) for at, row in zip(table.ids, table.x_MD.tolist(), strict=True)}
    assert list(got) == ["b", "v0", "v1", "v2", "v3", "v4", "v5", "no", "yes", "v7", "v8"]
    assert table.trace_M.tolist() == [0] * 11
    mean = 2 / 5
    zero = dict.fromkeys(NAMES, 0.0)
    assert got["b"] == zero | {"reliability": mean}
    assert got["v7"] == zero | {"reliability": mean, "is_return": 1.0}
    s = lambda x: 1 / (1 + math.exp(-x))  # noqa: E731
    assert got["v0"] == pytest.approx(
        {
            "masked": 0.0,
            "smoothed": s(2) - s(1),
            "gain": s(1) - 0.5,
            "own": 1.0,
            "outcome": 1.0,
            "own_outcome": 1.0,
            "redundancy": 1 / 4,
            "reliability": (1 + 2 * mean) / 3,  # w0 sent v2 as well
            "place": 0.0,
            "is_return": 1.0,
            "is_vote": 1.0,
            "is_read": 1.0,
            "is_known": 1.0,
        }
    )
    assert got["v1"] == pytest.approx(
        zero
        | {
            "outcome": 1.0,
            "redundancy": 2 / 4,
            "reliability": mean,
            "place": 1 / 5,
            "is_return": 1.0,
            "is_vote": 1.0,
            "is_known": 1.0,
        }
    )
    assert got["v2"]["is_return"] == 0.0
    assert (got["v2"]["gain"], got["v2"]["place"]) == (pytest.approx(s(2) - s(1)), 2 / 5)
    assert got["v5"] == pytest.approx(
        zero | {"reliability": (0 + 2 * mean) / 3, "is_return": 1.0, "is_vote": 1.0, "is_read": 1.0}
    )
    bare = replace(voted(), trace_id="bare", events=[replace(e, reward=None) for e in voted().events])
    assert set(features([bare]).x_MD[:, NAMES.index("reliability")]) == {0.5}
    both = features([bare, voted()])
    assert both.trace_M.tolist() == [0] * 11 + [1] * 11
    assert both.x_MD[0, NAMES.index("reliability")] == mean  # the batch's mean
    assert features([bare], types=["message"]).ids == ("b", "v2", "no", "yes")
    assert features([voted()], scores="other").x_MD[6, NAMES.index("own")] == 1.0
    told = features([bare], verify=lambda task, answer: float(answer == 1), start=0)
    assert told.x_MD[1, NAMES.index("masked")] == 0.0
    assert set(told.x_MD[:, NAMES.index("is_known")]) == {0.0}  # the answers were judged, the votes were not
    alone = features([bare], verify=lambda task, answer: float(answer is not None), rule=lambda claims: claims[-1])
    assert alone.x_MD[6, NAMES.index("masked")] == 1.0
    wrong = replace(voted(), events=[replace(e, reward={"R2": 0.0}) if e.id == "v2" else e for e in voted().events])
    even = features([wrong])
    assert even.x_MD[1, NAMES.index("outcome")] == 0.0  # one right, one wrong
    assert even.x_MD[1, NAMES.index("is_known")] == 1.0


# -- hindsight ----------------------------------------------------------------------------------------------------------


def many_votes(n: int) -> Trace:
    rng = np.random.default_rng(1)
    events = [
        Event(
            id=f"v{k}",
            t=float(k),
            type="return" if k % 3 else "message",
            agent=f"w{k % 5}",
            task=f"q{k % 7}",
            turn=k,
            reward={"R2": float(rng.integers(0, 2))},
            extra={"claim": int(rng.integers(0, 3))},
        )
        for k in range(n)
    ]
    return Trace(trace_id="many", task_id="q", events=events, rewards={"team": 1.0})


def test_fit_counts_what_it_learnt_from_and_how_far_it_was_off() -> None:
    trace = many_votes(2 * len(NAMES) + 4)
    x = features([trace]).x_MD
    y = np.arange(len(x)) / 10.0
    told = [CreditRow(0, "message", f"v{k}", v, 0.1) for k, v in enumerate(y)]
    other = [CreditRow(0, "agent", f"v{k}", 99.0) for k in range(3)]
    weights = fit([trace], Credit("d", "e", False, ("many",), (*told, *other)))
    from counterpoint.credits.doubly_robust import ridge

    rest = ((y - ridge(x, y, 3.0)(x)) ** 2).sum() / (len(y) - len(NAMES) - 1)
    assert weights.messages == len(y)
    assert weights.residual_sd == pytest.approx(math.sqrt(max(rest - 0.01, 0.05 * rest)))
    assert weights.model(x) == pytest.approx(ridge(x, y, 3.0)(x))
    sure = fit([trace], Credit("d", "e", False, ("many",), tuple(r._replace(se=None) for r in told)))
    assert sure.residual_sd == pytest.approx(math.sqrt(rest))
    noisy = fit([trace], Credit("d", "e", False, ("many",), tuple(r._replace(se=50.0) for r in told)), penalty=1.0)
    own = ((y - ridge(x, y, 1.0)(x)) ** 2).sum() / (len(y) - len(NAMES) - 1)
    assert noisy.residual_sd == pytest.approx(math.sqrt(0.05 * own))
    least = 2 * len(NAMES)
    assert fit([trace], Credit("d", "e", False, ("many",), tuple(told[:least]))).messages == least
    with pytest.raises(NotIdentified, match=f"{least - 1} messages with fork credit for {len(NAMES)} features"):
        fit([trace], Credit("d", "e", False, ("many",), tuple(told[: least - 1])))
    with pytest.raises(InputError, match="the credit is of other traces"):
        fit([replace(trace, trace_id="x")], Credit("d", "e", False, ("many",), tuple(told)))
    returns = fit([trace], Credit("d", "e", False, ("many",), tuple(told)), types=["return", "message"])
    assert returns.messages == len(y)


def test_blends_pool_the_variance_with_weight_four() -> None:
    # k 3: pooled variance (2 * var + 4 * mean) / 6, var 1 and 4, mean 2.5
    value, se = blended(np.zeros(3), 2.0, np.array([6.0, 6.0, np.nan]), np.array([1.0, 2.0, np.nan]), 3)
    var = np.array([(2 * 1 + 10) / 6, (2 * 4 + 10) / 6])
    share = 4 / (4 + var)
    assert value == pytest.approx([*(6 * share), 0.0])
    assert se == pytest.approx([*np.sqrt(share * var), 2.0])
    none, se = blended(np.array([1.0]), 0.5, np.array([np.nan]), np.array([np.nan]), 2)
    assert (none.tolist(), se.tolist()) == ([1.0], [0.5])


class Constant:
    """Weights whose model says the same of everything."""

    def __call__(self, x: np.ndarray) -> np.ndarray:
        return np.full(len(x), 4.0)


def test_amortised_rows_and_blends() -> None:
    toy = Toy()
    weights = Weights(Constant(), 2.0, 50)  # type: ignore[arg-type]
    traces = [toy.trace("one", "ar"), toy.trace("two", "x")]
    plain = message_amortised(traces, weights=weights)
    assert plain.rows == tuple(CreditRow(i, "message", e, 4.0, 2.0) for i, e in ((0, "e0"), (0, "e1"), (1, "e0")))
    assert plain.notes == {"k": 0, "learned from": 50, "residual_sd": 2.0}
    assert plain.cost == Cost()
    assert rows(message_amortised(traces, weights=weights, types=["return"])) == {(0, "e1"): 4.0}
    blend = message_amortised(traces, weights=weights, replay=toy, k=2)
    assert rows(blend) == {(0, "e0"): 10.0, (0, "e1"): 10.0, (1, "e0"): 4.0}  # sure forks win; x cannot be forked
    assert [r.se for r in blend.rows] == [0.0, 0.0, 2.0]
    assert blend.cost == Cost(6, 3 * 6 + 3 * 3)
    assert rows(message_amortised(traces, weights=weights, replay=toy, k=2, channel="half"))[0, "e0"] == 5.0
    assert blend.trace_ids == ("one", "two")
    with pytest.raises(NotIdentified, match="a blend with forks asks"):
        message_amortised(traces, weights=weights, k=2)
    for k in (1, -1):
        with pytest.raises(InputError, match=f"k is {k}"):
            message_amortised(traces, weights=weights, k=k, replay=toy)
    seen: list[int | None] = []

    class Listens(Toy):
        def fork(self, trace: Trace, at: str, do: Do | None = None, seed: int | None = None) -> Trace:
            seen.append(seed)
            return super().fork(trace, at, do, seed)

    message_amortised(traces[:1], weights=weights, replay=Listens(), k=2, seed=9)
    assert set(seen) == {None, fork_seeds(9, traces[0], 2)[1]}


# -- tools --------------------------------------------------------------------------------------------------------------


def called(*spec: tuple[str, str, str, Any], edges: Sequence[Edge] = (), reward: float = 1.0, name: str = "t") -> Trace:
    """(id, agent, tool, ok): ids that begin with c are calls."""
    events = [
        Event(id=i, t=float(n), type="tool_call" if i[0] == "c" else "tool_result", agent=agent, tool=tool, ok=ok)
        for n, (i, agent, tool, ok) in enumerate(spec)
    ]
    return Trace(trace_id=name, task_id="q", events=events, edges=list(edges), rewards={"team": reward})


def test_which_result_belongs_to_which_call() -> None:
    ids = lambda t: {c: r and r.id for c, r in results_of(t).items()}  # noqa: E731
    crossed = called(("c0", "a", "s", None), ("c1", "b", "s", None), ("r0", "b", "s", None), ("r1", "a", "s", None))
    assert ids(crossed) == {"c0": "r1", "c1": "r0"}  # the caller's own
    tools = called(("c0", "a", "s", None), ("c1", "a", "t", None), ("r0", "a", "t", None), ("r1", "a", "s", None))
    assert ids(tools) == {"c0": "r1", "c1": "r0"}  # of that tool
    before = called(("r0", "a", "s", None), ("c0", "a", "s", None))
    assert ids(before) == {"c0": None}
    two = [Edge("c0", "r1", "tool_dependency"), Edge("c0", "r0", "tool_dependency"), Edge("c0", "c1", "causal")]
    assert ids(replace(crossed, edges=two)) == {"c0": "r1", "c1": "r0"}  # the first edge counts
    taken = called(
        ("c0", "a", "s", None), ("c1", "a", "s", None), ("r0", "a", "s", None), edges=[Edge("c1", "r0", "tool_dependency")]
    )
    assert ids(taken) == {"c0": None, "c1": "r0"}


def test_outcomes_cluster_by_trace_and_stay_with_their_tool() -> None:
    group, kind = np.array([0, 0, 0, 1]), np.array([1, 1, 0, 1])
    gap, se = outcome_gap(group, kind, np.array([4.0, 2.0, 0.0, 9.0]), np.array([5, 5, 7, 7]))
    assert gap == pytest.approx([1.0, 1.0, -2.0, 0.0])
    # class 1: influence (1, -1)/2 - (2, 0, -2)/3; by trace: -2/3 and 2/3
    assert se[:2] == pytest.approx([math.sqrt(2) * 2 / 3] * 2)
    assert se[2:] == pytest.approx([math.sqrt((2 / 3) ** 2 * 2), 0.0])


def test_outcome_credit_needs_five_traces_on_either_side() -> None:
    one = lambda n, ok: called(("c0", "a", "s", None), ("r0", "a", "s", ok), reward=float(ok), name=f"t{n}")  # noqa: E731
    traces = [one(n, n < 5) for n in range(10)]
    credit = tool_call(traces, estimator="outcome")
    assert rows(credit) == pytest.approx({(n, "c0"): 0.5 if n < 5 else -0.5 for n in range(10)})
    assert {r.unit for r in credit.rows} == {"tool"}
    assert all(r.se == pytest.approx(math.sqrt(10 * 0.05**2)) for r in credit.rows)
    with pytest.raises(NotIdentified, match="4 traces have this outcome and 5 the other; each needs 5"):
        tool_call(traces[1:], estimator="outcome")
    # an error is a failure; a call's own word counts where the result has none; the result's goes first
    fail = called(("c0", "a", "s", None), name="e")
    fail.events[0] = replace(fail.events[0], error="timeout")
    own = called(("c0", "a", "s", False), ("r0", "a", "s", None), name="o")
    first = called(("c0", "a", "s", True), ("r0", "a", "s", False), name="f", reward=0.0)
    silent = called(("c0", "a", "s", None), ("r0", "a", "s", None), name="n")
    more = tool_call([*traces, fail, own, first, silent], estimator="outcome")
    assert [rows(more)[k, "c0"] for k in (10, 11, 12)] == [pytest.approx(2 / 8 - 7 / 13)] * 3
    assert more.unidentified == {(13, "c0"): "not identified: whether the call succeeded was not recorded"}
    other = called(("c9", "a", "else", True), name="z")
    assert "each needs 5" in tool_call([*traces, other], estimator="outcome").unidentified[10, "c9"]
    picked = tool_call([*traces, other], estimator="outcome", ids=["c9", "c0"])
    assert len(picked.rows) == 10
    assert tool_call([*traces, other], estimator="outcome", ids=["c0"]).unidentified == {}
    with pytest.raises(NotFound):
        tool_call(traces, estimator="outcome", ids=["zz"])


class Tools:
    """Pays the number of events; a redraw pays 3 more."""

    def fork(self, trace: Trace, at: str, do: Do | None = None, seed: int | None = None) -> Trace:
        gone = isinstance(do, Delete)
        paid = len(trace.events) - gone * (1 if at[0] == "r" else 2) + 3 * isinstance(do, Substitute) + (seed or 0) % 4
        return replace(trace, rewards={"team": float(paid), "x": 0.0})


def test_tool_calls_by_forks() -> None:
    trace = called(("c0", "a", "s", None), ("r0", "a", "s", None), ("c1", "a", "s", None), reward=3.0)
    trace.rewards["x"] = 7.0
    assert rows(tool_call(trace, replay=Tools())) == {(0, "c0"): 1.0, (0, "c1"): 2.0}  # the result; the call where none came
    assert rows(tool_call(trace, replay=Tools(), estimator="substitute")) == {(0, "c0"): -3.0, (0, "c1"): -3.0}
    assert rows(tool_call(trace, replay=Tools(), ids=["c1"])) == {(0, "c1"): 2.0}
    assert rows(tool_call(trace, replay=Tools(), channel="x")) == {(0, "c0"): 7.0, (0, "c1"): 7.0}
    more = tool_call(trace, replay=Tools(), k=3)
    assert (more.cost.forks, more.notes["k"], more.mechanism) == (10, 3, "tool_call")
    assert [r.se for r in more.rows] == [0.0, 0.0]
    fresh = tool_call(trace, replay=Tools(), k=3, coupled=False, seed=3)
    assert fresh.notes["noise"] == "fresh"
    assert fresh.rows != tool_call(trace, replay=Tools(), k=3, coupled=False, seed=4).rows
    assert {r.unit for r in fresh.rows} == {"tool"}
