"""Credit for spawning and stopping: which events are decisions, their chances, and every refusal, counted by hand."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

from counterpoint.credits import doubly_robust as dr
from counterpoint.credits.logged_effects import prefix_features
from counterpoint.credits.mechanisms.spawn import spawn, spawn_points
from counterpoint.credits.mechanisms.stop import all_stops, checkpoints, stop
from counterpoint.errors import InputError, NotIdentified
from counterpoint.trace import Edge, Event, Trace
from counterpoint.trace.replay import Delete, Do, Force
from counterpoint.trace.rows import Cost, CreditRow

HALF = math.log(0.5)


def decided(name: str, decision: str = "noop", **fields: Any) -> Event:
    return Event(id=name, t=0.0, type="orchestrator_decision", agent="lead", decision=decision, **fields)


def rows(credit: Any) -> dict[tuple[int, str], float]:
    return {(r.trace, r.unit_id): r.value for r in credit.rows}


# -- the doubly robust parts --------------------------------------------------------------------------------------------


def test_scores_where_an_arm_cannot_occur() -> None:
    one = np.ones(1)
    assert np.isnan(dr.psi(np.array([True]), np.array([0.0]), one, one, one))[0]
    assert np.isnan(dr.psi(np.array([False]), np.array([1.0]), one, one, one))[0]
    assert dr.psi(np.array([1, 0]), np.array([1.0, 0.0]), np.array([3.0, 3.0]), np.ones(2), np.zeros(2)).tolist() == [3.0, -2.0]
    assert dr.psi([1, 0], [0.5, 0.5], np.array([3.0, 3.0]), np.ones(2), np.zeros(2)).tolist() == [5.0, -5.0]  # type: ignore[arg-type]
    for wrong in (-0.1, 1.1):
        with pytest.raises(InputError, match="outside 0 to 1"):
            dr.psi(np.array([True]), np.array([wrong]), one, one, one)


def test_outcome_models_of_the_other_folds() -> None:
    # no features: each model is the mean of the arm in the other folds
    x = np.zeros((6, 1))
    a, r = np.array([1, 0, 1, 0, 1, 0]), np.array([1.0, 2.0, 3.0, 4.0, 5.0, 9.0])
    m1, m0 = dr.outcome_models(x, a, r, np.array([0, 0, 1, 1, 2, 2]))
    assert m1.tolist() == [4.0, 4.0, 3.0, 3.0, 2.0, 2.0]
    assert m0.tolist() == [6.5, 6.5, 5.5, 5.5, 3.0, 3.0]
    # an arm that the others lack: their mean outcome; no others at all: everybody's
    m1, m0 = dr.outcome_models(x[:3], np.array([1, 0, 0]), np.array([1.0, 3.0, 5.0]), np.array([0, 1, 1]))
    assert (m1.tolist(), m0.tolist()) == ([4.0, 1.0, 1.0], [4.0, 1.0, 1.0])
    alone = dr.outcome_models(x[:2], np.array([1, 0]), np.array([1.0, 5.0]), np.array([0, 0]))
    assert [m.tolist() for m in alone] == [[3.0, 3.0], [3.0, 3.0]]
    # the penalty: x -1 and 1 in the other fold, y 0 and 4: slope 4 / 3 at 1
    line = dr.outcome_models(np.array([[-1.0], [1.0], [3.0]]), np.ones(3), np.array([0.0, 4.0, 0.0]), np.array([0, 0, 1]))
    assert line[0][2] == pytest.approx(6.0)
    held = dr.outcome_models(np.array([[-1.0], [1.0], [3.0]]), np.ones(3), np.array([0.0, 4.0, 0.0]), np.array([0, 0, 1]), 2.0)
    assert held[0][2] == pytest.approx(5.0)


def test_weights_by_leaf_and_by_distance() -> None:
    assert dr.same_leaf(np.array([1, 2]), np.array([1, 1, 2])).tolist() == [[1, 1, 0], [0, 0, 1]]
    x = np.array([[0.0, 5.0], [2.0, 5.0]])  # sd 1 in the first column, none in the second
    near = dr.kernel(np.array([[1.0, 5.0], [0.0, 7.0]]), x, 1.0)
    assert near == pytest.approx(np.array([[math.exp(-0.5), math.exp(-0.5)], [math.exp(-2), math.exp(-4)]]))
    assert dr.kernel(np.array([[3.0, 5.0]]), x, 1.0)[0] == pytest.approx([math.exp(-4.5), math.exp(-0.5)])  # 3 bandwidths: inside
    assert dr.kernel(np.array([[3.01, 5.0]]), x, 1.0)[0, 0] == 0.0
    assert dr.kernel(np.array([[2.0, 5.0]]), x, 2.0)[0, 0] == pytest.approx(math.exp(-0.5))
    for wrong in (0.0, -1.0, math.nan):
        with pytest.raises(InputError, match="bandwidth is"):
            dr.kernel(x, x, wrong)


def test_local_averages_by_hand() -> None:
    psi, a = np.array([1.0, 5.0, np.nan, 3.0]), np.array([1, 0, 1, 1])
    weights = np.array([[2.0, 1.0, 9.0, 1.0], [0.0, 0.0, 9.0, 0.0]])
    found = dr.local(psi, a, np.array([7, 8, 8, 9]), 2, lambda q: weights[q])
    assert found.tau_Q[0] == pytest.approx(2.5)  # (2 + 5 + 3) / 4: a case without a score has no weight
    assert np.isnan(found.tau_Q[1])
    # shares 1/2, 1/4, 1/4: n = 1 / (6/16); gaps -0.75, 0.625, 0.125
    n = 16 / 6
    assert found.se_Q[0] == pytest.approx(math.sqrt(n / (n - 1) * (0.75**2 + 0.625**2 + 0.125**2)))
    assert np.isnan(found.se_Q[1])
    assert found.ess_taken_Q.tolist() == [pytest.approx(9 / 5), 0.0]
    assert found.ess_passed_Q.tolist() == [1.0, 0.0]
    one = dr.local(psi[:2], a[:2], np.array([3, 3]), 1, lambda q: np.ones((1, 2)))
    assert (one.tau_Q.tolist(), np.isnan(one.se_Q).tolist()) == ([3.0], [True])  # one trace has no error
    none = dr.local(psi, a, np.arange(4), 0, lambda q: weights[q])
    assert [len(column) for column in none] == [0, 0, 0, 0]


def test_blocks_of_places_are_put_together_in_order() -> None:
    n = 600  # more than one block
    psi = np.arange(n, dtype=float)
    found = dr.local(psi, np.ones(n), np.arange(n), n, lambda q: np.eye(n)[q])
    assert found.tau_Q.tolist() == psi.tolist()


def test_the_gate_at_its_bounds() -> None:
    found = dr.Local(np.zeros(6), np.ones(6), np.array([20.0, 20, 20, 9, 20, 20]), np.array([20.0, 20, 19.99, 20, 20, 20]))
    why = dr.gate(np.array([0.02, 0.98, 0.5, 0.5, 0.019, 0.981]), found, np.zeros(6, bool))
    assert [w is None for w in why] == [True, True, False, False, False, False]
    assert why[2] == "effective sample sizes are 20.0 and 20.0; both arms need 20"
    assert why[3] == "effective sample sizes are 9.0 and 20.0; both arms need 20"
    assert why[4] == "the logged propensity is 0.019; both arms need 0.02"
    easy = dr.gate(
        np.array([0.5, 0.1]), dr.Local(*(np.full(2, 5.0) for _ in range(4))), np.zeros(2, bool), least_propensity=0.2, least_ess=5
    )
    assert easy[0] is None
    assert easy[1] == "the logged propensity is 0.1; both arms need 0.2"
    assert dr.gate(np.array([np.nan]), dr.Local(*(np.full(1, 50.0) for _ in range(4))), np.zeros(1, bool))[0] is not None


# -- spawning -----------------------------------------------------------------------------------------------------------


def test_which_decisions_could_spawn() -> None:
    events = [
        decided("a", "spawn", logp=math.log(0.25)),
        decided("b", "noop", options=["noop", "spawn"], logp=math.log(0.25)),
        decided("c", "noop", options=["noop", "stop"]),
        decided("d", "stop", options=["stop", "spawn"]),
        decided("e", "noop", extra={"sub_decision": "spawn"}),
        decided("f", "spawn", extra={"sub_decision": "stop"}),
        decided("g", "spawn", extra={"chosen": "noop"}, logp=HALF),
        decided("h", "spawn", extra={"chosen": "spawn"}, logp=0.5),
        Event(id="i", t=0.0, type="message", agent="lead", extra={"sub_decision": "spawn"}),
        decided("j", "noop"),
    ]
    points = spawn_points([Trace(trace_id="x", task_id="q", events=[]), Trace(trace_id="t", task_id="q", events=events)])
    assert [(p.trace, p.event.id, p.is_spawn, p.propensity) for p in points] == [
        (1, "a", True, pytest.approx(0.25)),
        (1, "b", False, pytest.approx(0.75)),
        (1, "e", False, None),
        (1, "g", False, pytest.approx(0.5)),
        (1, "h", True, 1.0),
    ]


def test_what_had_happened_before_a_decision() -> None:
    events = [
        Event(id="m", t=0, type="message", agent="u", tokens_in=3, tokens_out=4),
        Event(id="s", t=1, type="spawn", agent="lead", to="w"),
        Event(id="r", t=2, type="return", agent="w", tokens_out=5),
        Event(id="s2", t=3, type="spawn", agent="lead", to="v"),
        replace(decided("d", "spawn"), t=4.0, turn=6),
        Event(id="late", t=5, type="return", agent="w", tokens_out=500),
    ]
    trace = Trace(trace_id="t", task_id="q", events=events)
    assert prefix_features(trace, events[4]) == pytest.approx([6.0, 2.0, 1.0, math.log(5), math.log(13)])
    assert prefix_features(trace, events[0]) == [0.0] * 5


def one(name: str, *, is_spawn: bool = True, logp: float | None = HALF, reward: float = 0.0, **fields: Any) -> Trace:
    event = decided("d", "spawn" if is_spawn else "noop", options=["spawn", "noop"], logp=logp, **fields)
    return Trace(trace_id=name, task_id="q", events=[event], rewards={"team": reward, "other": 2 * reward})


class Pays:
    """Spawning n pays n; going without pays 0; noise is the seed's last digit."""

    def __init__(self) -> None:
        self.forced: list[Any] = []

    def fork(self, trace: Trace, at: str, do: Do | None = None, seed: int | None = None) -> Trace:
        event = trace.events[trace.index[at]]
        if event.extra and event.extra.get("stuck"):
            raise NotIdentified("stuck", "no way")
        n = float(event.decision == "spawn")
        if isinstance(do, Delete):
            n = 0.0
        if isinstance(do, Force):
            self.forced.append(do.action)
            n = float(do.action["spawn"])
        paid = n + (0 if seed is None else seed % 10)
        return replace(trace, rewards={"team": paid, "other": 2 * paid})


def test_spawn_by_forks_of_several_traces() -> None:
    pays = Pays()
    traces = [one("a", reward=1.0), one("b", is_spawn=False, logp=math.log(0.75)), one("c", reward=1.0, extra={"stuck": True})]
    credit = spawn(traces, replay=pays)
    assert rows(credit) == pytest.approx({(0, "d"): 0.5, (1, "d"): -0.25})
    assert [r.se for r in credit.rows] == [0.0, 0.0]
    assert {r.unit for r in credit.rows} == {"orchestrator"}
    assert (credit.mechanism, credit.trace_ids, credit.estimand) == ("spawn", ("a", "b", "c"), spawn.estimand)
    assert credit.unidentified == {(2, "d"): "not identified: stuck; no way"}
    assert credit.cost == Cost(6, 0)  # k is 2: three forks for each that could be asked
    assert credit.notes == {
        "estimator": "forks",
        "value": "advantage",
        "tau": {(0, "d"): 1.0, (1, "d"): 1.0},
        "points": 3,
        "answered": 2,
    }
    assert pays.forced == [{"spawn": 1}] * 2
    more = spawn(traces[1], replay=pays, action={"spawn": 3}, value="effect", k=1)
    assert more.rows == (CreditRow(0, "orchestrator", "d", 3.0, None),)
    assert rows(spawn(traces[0], replay=pays, channel="other", value="effect")) == {(0, "d"): 2.0}
    fresh = [spawn(traces[0], replay=pays, coupled=False, seed=s, value="effect", k=5).rows[0] for s in (0, 1)]
    assert fresh[0].value != fresh[1].value
    assert fresh[0].se
    with pytest.raises(NotIdentified, match="stuck; no way"):
        spawn(traces[2], replay=pays)
    unlogged = spawn([traces[0], one("u", logp=None, reward=1.0)], replay=pays)
    assert "no propensity was logged" in unlogged.unidentified[1, "d"]
    assert unlogged.notes["tau"][1, "d"] == 1.0


def test_a_fork_that_pays_no_number_is_no_answer() -> None:
    class Odd(Pays):
        def fork(self, trace: Trace, at: str, do: Do | None = None, seed: int | None = None) -> Trace:
            paid = math.nan if trace.trace_id == "odd" else 0.0
            return replace(trace, rewards={"team": paid})

    credit = spawn([one("odd", reward=1.0), one("even", reward=1.0)], replay=Odd(), k=1, value="effect")
    assert rows(credit) == {(1, "d"): 1.0}
    assert credit.unidentified == {(0, "d"): "not identified: no comparable case"}
    assert set(credit.notes["tau"]) == {(1, "d")}


def log_of(n: int = 120, kinds: int = 1) -> list[Trace]:
    """Spawns pay 1 more in kind 0 and 2 less in kind 1; the coin is fair, and what else moves the reward is a clean line."""
    out = []
    for k in range(n):
        kind, load, is_spawn = k % kinds, (k // kinds) % 5, (k // kinds) % 2 == 0
        trace = one(f"t{k}", is_spawn=is_spawn, reward=load + is_spawn * (1.0, -2.0)[kind], turn=load)
        out.append(replace(trace, meta={"kind": kind}))
    return out


def test_effects_from_a_log_without_noise() -> None:
    traces = log_of(160, 2)
    options: dict[str, Any] = {"estimator": "doubly_robust", "leaf": lambda t, e: t.meta["kind"], "value": "effect"}
    credit = spawn(traces, penalty=1e-6, **options)
    found = rows(credit)
    assert found[0, "d"] == pytest.approx(1.0, abs=0.3)
    assert found[1, "d"] == pytest.approx(-2.0, abs=0.3)
    told = spawn(traces, penalty=1e-6, features=lambda t, e: [float(e.turn or 0)], **options)
    assert rows(told)[1, "d"] == pytest.approx(-2.0, abs=0.3)
    assert told.rows != credit.rows
    doubled = spawn(traces, penalty=1e-6, channel="other", **options)
    assert rows(doubled)[0, "d"] == pytest.approx(2 * found[0, "d"])
    assert spawn(traces, penalty=1e-6, folds=2, **options).rows != credit.rows
    assert spawn(traces, penalty=50.0, **options).rows != credit.rows
    default = spawn(traces, **options)
    assert default.rows == spawn(traces, penalty=1.0, folds=5, **options).rows
    assert default.cost == Cost()
    # a bandwidth of a thousand sds weighs all alike: one effect everywhere, the mean of both kinds
    flat = spawn(traces, estimator="doubly_robust", bandwidth=1e3, value="effect", penalty=1e-6)
    assert {round(r.value, 3) for r in flat.rows} == {round(flat.rows[0].value, 3)}
    assert flat.rows[0].value == pytest.approx(-0.5, abs=0.2)


def test_the_bandwidth_shrinks_with_the_cases() -> None:
    # spawning pays as much as the turn's number
    traces = [one(f"t{k}", is_spawn=k % 2 == 0, reward=(k % 2 == 0) * float(k % 5), turn=k % 5) for k in range(150)]
    options: dict[str, Any] = {"estimator": "doubly_robust", "value": "effect"}
    credit = spawn(traces, **options)
    assert credit.rows == spawn(traces, bandwidth=150 ** (-1 / 9), **options).rows  # five features
    assert rows(credit)[0, "d"] < 0.6 < 3.4 < rows(credit)[4, "d"]
    flat = spawn(traces, bandwidth=1e3, **options)
    assert rows(flat)[0, "d"] == pytest.approx(2.0, abs=0.1)
    two = spawn(traces, features=lambda t, e: [float(e.turn or 0), 0.0], **options)
    assert two.rows == spawn(traces, features=lambda t, e: [float(e.turn or 0), 0.0], bandwidth=150 ** (-1 / 6), **options).rows


def test_who_is_left_out_of_a_log_and_why() -> None:
    traces = log_of(120)
    forced = [replace(t, events=[replace(t.events[0], policy="forced")]) for t in traces[:3]]
    sure = one("sure", logp=math.log(0.99), reward=50.0)
    mute = one("mute", logp=None)
    options: dict[str, Any] = {"estimator": "doubly_robust", "leaf": lambda t, e: 0, "value": "effect", "penalty": 1e-6}
    credit = spawn([*traces[3:], *forced, sure, mute], **options)
    why = credit.unidentified
    assert set(why) == {(k, "d") for k in range(117, 122)}
    assert why[117, "d"].startswith("not identified: a deterministic rule decided here")
    assert "the logged propensity is 0.99" in why[120, "d"]
    assert why[121, "d"] == "no propensity was logged; log logp with every decision"
    assert len({round(r.value, 9) for r in credit.rows}) == 1
    assert credit.rows[0].value == pytest.approx(1.0, abs=0.2)  # 50 has no weight in it
    assert credit.notes["answered"] == 117
    filled = spawn([*traces[3:], *forced, sure, mute], **{**options, "estimator": "both"}, replay=Pays(), k=3)
    assert filled.unidentified == {}
    assert filled.cost.forks == 5 * 5
    assert rows(filled)[121, "d"] == pytest.approx(2 / 3)  # recorded: 0 against 0; then twice 1 against 0 on shared noise
    assert [r.value for r in filled.rows[:117]] == [r.value for r in credit.rows]
    with pytest.raises(
        NotIdentified, match="a deterministic rule decided here, so the other arm never occurs; more traces with logp"
    ):
        spawn(forced, **options)


# -- stopping -----------------------------------------------------------------------------------------------------------


def drafted(*spec: tuple[float | None, Event], reward: float = 0.0, **fields: Any) -> Trace:
    events, t = [], 0.0
    for k, (draft, event) in enumerate(spec):
        if draft is not None:
            events.append(Event(id=f"a{k}", t=t, type="aggregate", agent="lead", reward={"draft": draft}))
        events.append(replace(event, t=t + 0.5))
        t += 1.0
    return Trace(trace_id="t", task_id="q", events=events, rewards={"team": reward, "other": 10 * reward}, **fields)


BOTH = ["stop", "continue"]


def test_which_decisions_could_stop() -> None:
    trace = drafted(
        (None, decided("a", "noop", options=BOTH, logp=math.log(0.75))),
        (1.0, decided("b", "stop", logp=math.log(0.25), extra={"executed": "continue"})),
        (None, decided("c", "noop", options=["spawn"])),
        (None, decided("d", "noop", extra={"sub_decision": "stop"})),
        (2.0, decided("e", "spawn", extra={"sub_decision": "spawn"})),
        (None, decided("f", "stop", extra={"sub_decision": "spawn"})),
        (None, Event(id="g", t=0.0, type="message", agent="lead", extra={"sub_decision": "stop"})),
        (None, decided("h", "stop", options=["stop"])),
        (None, decided("i", "stop", options=["stop"], logp=0.5)),
        (None, decided("j", "noop")),
    )
    found = [(p.event.id, p.is_stop, p.is_executed, p.chance, p.payoff) for p in checkpoints(trace)]
    assert found == [
        ("a", False, True, pytest.approx(0.25), None),
        ("b", True, False, pytest.approx(0.25), 1.0),
        ("d", False, True, None, 1.0),
        ("h", True, True, 1.0, 2.0),
        ("i", True, True, 1.0, 2.0),
    ]


def test_the_story_says_which_draft_was_at_hand() -> None:
    decision = replace(decided("d", "stop", options=BOTH), t=2.0)
    late = Event(id="late", t=3.0, type="aggregate", agent="lead", reward={"draft": 9.0})
    early = Event(id="early", t=1.0, type="aggregate", agent="lead", reward={"draft": 4.0})
    other = Event(id="other", t=1.5, type="aggregate", agent="lead", reward={"R1": 7.0})
    note = Event(id="note", t=1.6, type="message", agent="lead", reward={"draft": 8.0})
    trace = Trace(trace_id="t", task_id="q", events=[late, decision, early, other, note], edges=[Edge("early", "d", "causal")])
    assert [p.payoff for p in checkpoints(trace)] == [4.0]


def test_stops_by_drafts() -> None:
    assert all_stops(np.array([1.0, 3.0, 2.0, 8.0]), np.array([0.5, 0.25, 0.0, 0.3])).tolist() == [
        0.5 + 0.5 * 6.75,
        0.75 + 0.75 * 8.0,
        8.0,
        8.0,
    ]
    assert all_stops([1, 3], [0.5, 0.5]).tolist() == [2.0, 3.0]  # type: ignore[arg-type]
    with pytest.raises(InputError, match="2 payoffs and 3 chances"):
        all_stops(np.ones(2), np.ones(3))
    on = decided("d0", "noop", options=BOTH, logp=math.log(0.75))
    end = decided("d1", "stop", options=BOTH, logp=math.log(0.5))
    before = decided("z", "noop", options=BOTH, logp=HALF)
    credit = stop([drafted((1.0, on), (3.0, end), reward=3.0), drafted((None, before), (1.0, on), (4.0, end), reward=5.0)])
    # the team stopped: going on at d0 brought what it got, 3 and 5
    assert rows(credit) == pytest.approx({(0, "d0"): -0.25 * (1 - 3), (1, "d0"): -0.25 * (1 - 5)})
    assert credit.unidentified[1, "z"] == "not identified: no draft was scored before it"
    assert credit.unidentified[0, "d1"].startswith("not identified: the team stopped here")
    assert {r.unit for r in credit.rows} == {"orchestrator"}
    assert (credit.notes, credit.cost) == ({"estimator": "drafts"}, Cost())
    other = stop(drafted((1.0, on), (3.0, end), reward=3.0), channel="other")
    assert rows(other) == pytest.approx({(0, "d0"): -0.25 * (1 - 30)})
    assert (credit.mechanism, credit.trace_ids, credit.estimand) == ("stop", ("t", "t"), stop.estimand)
    nothing = stop(drafted((0.0, on), (0.0, end), reward=4.0))  # a draft may be worth 0
    assert rows(nothing) == pytest.approx({(0, "d0"): 1.0})
    # nobody stopped: what came in the end is what going on brought, for the last one too
    never = stop(drafted((1.0, on), (2.0, replace(on, id="d1")), reward=3.0))
    assert rows(never) == pytest.approx({(0, "d0"): 0.5, (0, "d1"): 0.25})


def test_forced_continuation_is_told_or_seen() -> None:
    on = decided("d0", "noop", options=BOTH, logp=math.log(0.75))
    intends = decided("d0", "stop", options=BOTH, logp=HALF, extra={"executed": "continue"})
    last = decided("d1", "stop", options=["stop"])
    free = decided("d1", "stop", options=BOTH, logp=HALF)
    seen = stop(drafted((1.0, on), (3.0, last), reward=9.0))
    assert rows(seen) == pytest.approx({(0, "d0"): 0.5})  # against U = 3, not the reward
    assert seen.unidentified == {}  # one option is no decision
    logged = stop(drafted((1.0, intends), (3.0, free), reward=9.0))
    assert rows(logged) == pytest.approx({(0, "d0"): 0.5 * (1 - 3)})
    assert set(logged.unidentified) == {(0, "d1")}
    denied = stop(drafted((1.0, on), (3.0, last), reward=9.0, meta={"forced": False}))
    assert rows(denied) == pytest.approx({(0, "d0"): 2.0})
    told = stop(drafted((1.0, on), (3.0, free), reward=9.0, meta={"forced": True}))
    assert rows(told) == pytest.approx({(0, "d0"): 0.5})
    with pytest.raises(NotIdentified, match="a team continues after it stopped") as error:
        stop(drafted((1.0, replace(free, id="d0")), (3.0, free), reward=1.0))
    assert error.value.where == "t"
    with pytest.raises(NotIdentified, match="a stop decision has no propensity") as error:
        stop(drafted((1.0, replace(on, logp=None)), (3.0, last)))
    assert error.value.where == "t"
    unlogged = stop([drafted((1.0, replace(on, logp=None)), (2.0, replace(on, id="d1")), reward=1.0)])
    assert "no propensity was logged" in unlogged.unidentified[0, "d0"]
    with pytest.raises(NotIdentified, match="no propensity was logged; log logp with every decision, or give value=; forced"):
        stop(drafted((1.0, replace(on, logp=None)), reward=1.0))


def test_a_critic_in_place_of_chances() -> None:
    on = decided("d0", "noop", options=BOTH)
    end = decided("d1", "stop", options=BOTH)
    worth = lambda t, e: {"d0": 0.5, "d1": 0.75}[e.id]  # noqa: E731
    free = stop(drafted((1.0, on), (3.0, end), reward=2.0), value=worth)
    assert rows(free) == {(0, "d0"): 2.0 - 0.5, (0, "d1"): 3.0 - 0.75}
    forced = stop(drafted((1.0, on), (3.0, replace(end, options=["stop"])), reward=2.0), value=worth)
    assert rows(forced) == {(0, "d0"): 0.75 - 0.5, (0, "d1"): 3.0 - 0.75}
    chances = stop(drafted((1.0, replace(on, logp=HALF)), (3.0, replace(end, options=["stop"])), reward=2.0), value=worth)
    assert rows(chances)[0, "d0"] == 3.0 - 0.5  # with chances, going on is worth all stop times
    open_end = drafted((1.0, on), (3.0, replace(on, id="d1")), reward=2.0, meta={"forced": True})
    held = stop(open_end, value=worth)
    assert held.unidentified == {(0, "d1"): "not identified: what going on brings is not known"}


class Ends:
    """Stopping pays 1, going on 4; noise is the seed's last digit."""

    def fork(self, trace: Trace, at: str, do: Do | None = None, seed: int | None = None) -> Trace:
        event = trace.events[trace.index[at]]
        if event.extra and event.extra.get("stuck"):
            raise NotIdentified("stuck", "no way")
        is_stop = event.decision == "stop" if do is None else bool(do.action["stop"])  # type: ignore[union-attr]
        paid = (1.0 if is_stop else 4.0) + (0 if seed is None else seed % 10)
        return replace(trace, rewards={"team": paid, "other": 2 * paid})


def test_stops_by_forks() -> None:
    on = decided("d0", "noop", options=BOTH, logp=math.log(0.75))
    stuck = decided("d1", "noop", options=BOTH, logp=HALF, extra={"stuck": True})
    only = decided("d2", "noop", options=["continue"], extra={"sub_decision": "stop"})
    mute = decided("d3", "noop", options=BOTH)
    end = decided("d4", "stop", logp=HALF)
    after = decided("d5", "stop", options=BOTH, logp=HALF)
    trace = drafted((None, on), (None, stuck), (None, only), (None, mute), (None, end), (None, after), reward=4.0)
    credit = stop(trace, estimator="forks", replay=Ends())
    # d0: -1/4 (1 - 4); at the stop the recorded 4 stands for its first replicate: (4 - 4 + 1 - 4) / 2
    assert rows(credit) == pytest.approx({(0, "d0"): 0.75, (0, "d4"): 0.5 * -1.5})
    assert credit.rows[0].se == 0.0
    assert credit.rows[1].se == pytest.approx(0.5 * np.std([0.0, -3.0], ddof=1) / 2**0.5)
    assert credit.unidentified == {
        (0, "d1"): "not identified: stuck; no way",
        (0, "d3"): "not identified: no propensity was logged; log logp with every decision",
        (0, "d5"): "not identified: the policy had stopped before it",
    }
    assert credit.cost.forks == 9
    assert credit.notes == {"estimator": "forks"}
    once = stop([trace, trace], estimator="forks", replay=Ends(), k=1)
    assert [r.se for r in once.rows] == [None] * 4
    assert [r.trace for r in once.rows] == [0, 0, 1, 1]
    assert once.cost.forks == 2 * 3
    assert rows(stop(trace, estimator="forks", replay=Ends(), k=1, channel="other"))[0, "d0"] == pytest.approx(
        -0.25 * (2.0 - 40.0)
    )
    fresh = [stop(trace, estimator="forks", replay=Ends(), coupled=False, seed=s, k=4).rows[0].value for s in (0, 1)]
    assert fresh[0] != fresh[1]
    with pytest.raises(NotIdentified, match="stuck; no way; forced continuation, or forks"):
        stop(drafted((None, stuck)), estimator="forks", replay=Ends())
    assert stop(drafted((None, only)), estimator="forks", replay=Ends()).rows == ()
