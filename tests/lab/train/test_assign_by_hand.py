"""Where credit lands: a trace of six events and every place an amount may stand in; what is paid, to whom, and refused."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from counterpoint.credits.mechanism import Mechanism
from counterpoint.errors import CounterpointError, InputError, NotIdentified
from counterpoint.lab.train.policies.features import TEAM
from counterpoint.lab.train.policies.network import Network
from counterpoint.lab.train.preset import Preset
from counterpoint.lab.train.rollouts import Rollout
from counterpoint.lab.train.row_credit import _Book, assigned, check, needs_critic, prefix_values
from counterpoint.rewards.balance import variation_weights
from counterpoint.rewards.paying import balanced
from counterpoint.rewards.reward import Reward
from counterpoint.rewards.schedules import weight_at
from counterpoint.trace import Event, Trace
from counterpoint.trace.rows import Credit, CreditRow, Signal, Signals
from lab.train.nets import known_net

PLAIN: dict[str, Any] = {"source": "a test", "grade": "M", "departures": "none", "loss": {"clip": {}}}


def trace(name: str = "t0") -> Trace:
    """The orchestrator spawns Ada (slot 1) and Bob (slot 2), stops in round 1; Ada is called with item 4 in round 1."""

    def event(id: str, kind: str, agent: str, **more: Any) -> Event:
        return Event(id=id, t=0.0, type=kind, agent=agent, **more)  # type: ignore[arg-type]

    return Trace(
        trace_id=name, task_id="task", rewards={"team": 5.0, "other": 1.0},
        events=[
            event("e0", "spawn", "orchestrator", to="ada", role="worker", extra={"slot": 1}),
            event("e1", "spawn", "orchestrator", to="bob", role="thinker", extra={"slot": 2}),
            event("e2", "orchestrator_decision", "orchestrator", key="orchestrator|stop|1", turn=1),
            event("e3", "message", "orchestrator", key="ada|brief|4|2", turn=1),
            event("e4", "tool_call", "ada", key="ada|tool|4|2", turn=1, role="worker"),
            event("e5", "return", "ada", key="ada|return|4|2", turn=1, role="worker"),
            event("e6", "tool_call", "orchestrator", key="orchestrator|tool|9|1", turn=1),
            event("e7", "aggregate", "orchestrator", key="orchestrator|draft|1", turn=1),
        ],
    )  # fmt: skip


def book(*amounts: tuple[str, str, float]) -> _Book:
    made = _Book(trace())
    for unit, name, value in amounts:
        made.put(unit, name, value)
    return made


def test_a_decision_takes_the_first_of_its_places() -> None:
    places = [
        ("orchestrator", "e2", 1.0), ("turn", "orchestrator#1", 2.0), ("agent", "orchestrator", 3.0), ("role", "orchestrator", 4.0),
        ("orchestrator", "orchestrator", 5.0), ("team", "", 6.0),
    ]  # fmt: skip
    for k, (_, _, value) in enumerate(places):
        assert book(*places[k:]).decision("stop", 1) == value
    assert np.isnan(book().decision("stop", 1))
    assert book(*places).decision("stop", 2) == 3.0  # another round
    assert book(*places).decision("spawn", 1) == 2.0  # another decision of that round
    assert book(("orchestrator", "e7", 8.0), ("team", "", 6.0)).decision("aggregate", 1) == 8.0
    assert book(("orchestrator", "e7", 8.0), ("team", "", 6.0)).decision("stop", 1) == 6.0


def test_a_call_takes_its_briefs_or_its_workers() -> None:
    work = [("return", "e5", 1.0), ("tool", "e4", 2.0), ("turn", "ada#1", 3.0), ("agent", "ada", 4.0), ("role", "worker", 5.0)]
    brief = ("message", "e3", 6.0)
    for k, (_, _, value) in enumerate(work):
        full = book(*work[k:], brief, ("team", "", 7.0))
        assert full.call(1, 4, 1, to_agent=True) == value
        assert full.call(1, 4, 1, to_agent=False) == 6.0
        assert full.worker(1, 4, 1) == value
    assert book(brief, ("team", "", 7.0)).call(1, 4, 1, to_agent=True) == 6.0
    assert book(brief, ("team", "", 7.0)).worker(1, 4, 1) == 7.0
    assert book(("team", "", 7.0)).call(1, 4, 1, to_agent=True) is None
    assert np.isnan(book().worker(1, 4, 1))
    assert book(brief).call(2, 4, 1, to_agent=False) is None  # another worker, round, item
    assert book(brief).call(1, 4, 2, to_agent=False) is None
    assert book(brief).call(1, 5, 1, to_agent=False) is None
    assert book(("agent", "bob", 8.0)).worker(2, 4, 1) == 8.0
    assert book(("role", "thinker", 8.0)).worker(2, 4, 1) == 8.0
    own = ("tool", "e6", 9.0)
    assert book(own).call(0, 9, 1, to_agent=False) == 9.0  # the orchestrator's own call has no brief
    assert book(("tool", "e4", 9.0)).call(1, 4, 1, to_agent=False) is None


def test_what_is_refused_gets_nothing_from_coarser_units() -> None:
    made = book(("team", "", 7.0))
    made.refuse("ada")
    assert np.isnan(made.worker(1, 4, 1))
    assert made.decision("stop", 1) == 7.0
    made.refuse("e2")
    fresh = book(("team", "", 7.0))
    fresh.refuse("e2")
    assert np.isnan(fresh.decision("stop", 1))
    paid = book(("agent", "ada", 1.0))
    paid.refuse("ada")
    assert paid.worker(1, 4, 1) == 1.0


# -- a batch of two


def rollout() -> Rollout:
    tables = {
        "stop": {"ep": np.array([0, 1]), "round": np.array([1, 1]), "x": np.zeros((2, TEAM), np.float32), "open": np.array([1, 3])},
        "item": {"ep": np.array([0, 0, 1]), "round": np.array([1, 1, 1]), "agent": np.array([1, -1, 1]), "item": np.array([4, 5, 4])},
        "worker": {"ep": np.array([0, 1]), "round": np.array([1, 1]), "agent": np.array([1, 2]), "item": np.array([4, 4])},
    }
    value_TE = np.array([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
    return Rollout(None, np.arange(2), np.arange(2), tables, value_TE, np.array([5.0, 9.0]), {})  # type: ignore[arg-type]


class Lab:
    """Mechanisms and rewards from outside the package, and what they were given."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.module, self.given = ModuleType("my_lab"), []
        monkeypatch.setitem(sys.modules, "my_lab", self.module)

    def mechanism(self, rows: Any, *, signals: bool = False, needs: tuple[str, ...] = (), **more: Any) -> dict[str, Any]:
        def run(traces: Sequence[Trace], **options: Any) -> Credit:
            self.given.append((list(traces), options))
            return Credit("mine", "e", False, tuple(t.trace_id for t in traces), tuple(rows(traces)), **more)

        if signals:

            def with_signals(traces: Sequence[Trace], *, signals: Any = None) -> Credit:
                return run(traces, signals=signals)

            made: Any = with_signals
        elif needs:

            def with_value(traces: Sequence[Trace], *, value: Any = None) -> Credit:
                return run(traces, value=value)

            made = with_value
        else:
            made = lambda traces: run(traces)  # noqa: E731
        self.module.mine = Mechanism(  # type: ignore[attr-defined]
            unit="agent", estimand="e", assumptions="a", cost="none", additive=False, source="a test", run=made, needs=needs
        )
        return {"my_lab:mine": {}}


@pytest.fixture
def lab(monkeypatch: pytest.MonkeyPatch) -> Lab:
    return Lab(monkeypatch)


def test_items_fall_back_to_the_decision_and_what_is_uncovered_is_counted(lab: Lab) -> None:
    rows = lambda traces: [CreditRow(0, "message", "e3", 6.0), CreditRow(0, "agent", "orchestrator", 3.0)]  # noqa: E731
    preset = Preset(credit=lab.mechanism(rows), **PLAIN)
    found = assigned(preset, rollout(), [trace("t0"), trace("t1")], Network(), progress=0.0)
    assert {k: v.tolist() for k, v in found.advantages.items()} == {
        "stop": [3, 0], "worker": [0, 0], "item": [6, 3, 0], "brief": [6, 0, 0], "point": [6, 0, 0],
    }  # fmt: skip
    assert found.uncovered == {"stop": 1, "worker": 2, "item": 1, "brief": 1, "point": 1}
    assert found.credit.mechanism == "mine"


def test_a_refused_call_stays_without(lab: Lab) -> None:
    rows = lambda traces: [CreditRow(i, "agent", "orchestrator", 3.0) for i in range(2)]  # noqa: E731
    preset = Preset(credit=lab.mechanism(rows, unidentified={(1, "ada"): "why"}), delegate="agent", **PLAIN)
    found = assigned(preset, rollout(), [trace("t0"), trace("t1")], Network(), progress=0.0)
    assert found.advantages["point"].tolist() == [3, 0, 0]
    assert found.uncovered == {"item": 1, "brief": 1, "point": 1, "worker": 2}


def test_a_refused_trace_is_left_out_and_the_others_keep_their_places(lab: Lab) -> None:
    def rows(traces: Sequence[Trace]) -> list[CreditRow]:
        if traces[0].trace_id == "t0":
            raise NotIdentified("no", "more", where="t0")
        return [CreditRow(0, "team", "", 4.0)]

    found = assigned(Preset(credit=lab.mechanism(rows), **PLAIN), rollout(), [trace("t0"), trace("t1")], Network(), progress=0.0)
    assert found.advantages["stop"].tolist() == [0, 4]

    def never(traces: Sequence[Trace]) -> list[CreditRow]:
        raise NotIdentified("no", "more", where=traces[0].trace_id)

    with pytest.raises(NotIdentified):
        assigned(Preset(credit=lab.mechanism(never), **PLAIN), rollout(), [trace("t0"), trace("t1")], Network(), progress=0.0)

    def unnamed(traces: Sequence[Trace]) -> list[CreditRow]:
        raise NotIdentified("no", "more", where="somewhere")

    with pytest.raises(NotIdentified):
        assigned(Preset(credit=lab.mechanism(unnamed), **PLAIN), rollout(), [trace("t0"), trace("t1")], Network(), progress=0.0)


def test_the_team_reward_is_what_the_preset_pays(lab: Lab) -> None:
    preset = Preset(
        credit=lab.mechanism(lambda traces: []), reward={"team_outcome": {"weight": {"from": 4.0, "to": 2.0}, "gain": True}}, **PLAIN
    )
    given = [trace("t0"), trace("t1")]
    assigned(preset, rollout(), given, Network(), progress=0.5)
    paid = lab.given[0][0]
    assert [t.rewards for t in paid] == [{"team": 3 * (5.0 - 1.0), "other": 1.0}, {"team": 3 * (5.0 - 2.0), "other": 1.0}]
    assert [t.rewards["team"] for t in given] == [5.0, 5.0]
    assert lab.given[0][1] == {}


def test_a_critic_is_the_networks_value_of_the_prefix(lab: Lab) -> None:
    net = known_net(going=2.0)
    net.team_scale.fill_(0.5)
    out = rollout()
    # before the first round the mean of the batch, 7; then the draft's value; at stop rows 2 * 0.5 per open item and one more
    assert prefix_values(net, out).tolist() == [[7, 7], [3 + 1 * 2, 4 + 1 * 4], [5, 6]]
    preset = Preset(credit=lab.mechanism(lambda traces: [], needs=("critic",)), **PLAIN)
    assert needs_critic(preset)
    given = [trace("t0"), trace("t1")]
    assigned(preset, out, given, net, progress=0.0)
    value = lab.given[0][1]["value"]
    assert value(given[1]) == [7, 7, 8, 8, 8, 8, 8, 8]
    assert needs_critic(Preset(credit={"task_returns": {}}, **PLAIN))
    assert not needs_critic(Preset(credit=lab.mechanism(lambda traces: []), **PLAIN))


def test_weights_at_the_ends_of_a_run() -> None:
    line = {"from": 1.0, "to": 3.0}
    assert [weight_at(line, p) for p in (-1.0, 0.0, 0.25, 1.0, 2.0)] == [1, 1, 1.5, 3, 3]
    assert weight_at(2, 0.9) == 2.0
    with pytest.raises(InputError, match="the weight of r is 'x'"):
        weight_at("x", 0.0, "r")
    with pytest.raises(InputError, match="the weight of reward is"):
        weight_at({"from": 1, "to": 2, "by": 3}, 0.0)


def test_names_and_options_are_checked(lab: Lab) -> None:
    check(Preset(credit={"task_returns": {}}, **PLAIN))
    with pytest.raises(InputError, match=r"loss soft has no option 'tau_form'.*did you mean 'tau_from'"):
        check(Preset(credit={"task_returns": {}}, **PLAIN | {"loss": {"soft": {"tau_form": 1}}}))
    lab.module.mine = 7  # type: ignore[attr-defined]
    with pytest.raises(InputError, match="my_lab:mine is a int, not a Mechanism"):
        check(Preset(credit={"my_lab:mine": {}}, **PLAIN))
    with pytest.raises(InputError, match="my_lab:mine is a int, not a Reward"):
        check(Preset(credit={"task_returns": {}}, reward={"my_lab:mine": {}}, **PLAIN))
    for loss, option, credit in (("clip", "epochs", "task_returns"), ("reinforce", "entropy", "task_returns"), ("td", "gamma", "qmix")):
        check(Preset(credit={credit: {}}, **PLAIN | {"loss": {loss: {option: 1}}}))
        with pytest.raises(InputError, match=f"loss {loss} has no option 'odd'"):
            check(Preset(credit={credit: {}}, **PLAIN | {"loss": {loss: {"odd": 1}}}))
    for wrong, says in (
        ({"credit": {"task_returns": {"lam": 0.5}}}, "takes no options"),
        ({"credit": {"task_returns": {}}, "reward": {"team_outcome": {"weight": 2}}}, "knows the reward team_outcome alone"),
        ({"credit": {"qmix": {}}}, "credit qmix and loss clip do not go together"),
        ({"credit": {"task_return": {}}}, "no mechanism named 'task_return'.*did you mean 'task_returns'"),
    ):
        with pytest.raises(CounterpointError, match=says):
            check(Preset(**PLAIN | wrong))


def _of(signals: Signals, name: str) -> list[tuple[str, str, str, float]]:
    at = np.flatnonzero(signals.trace == signals.trace_ids.index(name))
    return sorted((signals.units[i], signals.unit_ids[i], signals.channels[i], float(signals.values[i])) for i in at)


def test_what_agents_and_roles_are_paid_stands_on_top_of_the_teams(lab: Lab) -> None:
    def pays(trace: Trace, *, part: str = "agent") -> list[Signal]:
        return [Signal(part, name, "R2", 1.0) for name in ("ada", "ada", "worker")] + [Signal("orchestrator", "orchestrator", "R5", 0.5)]

    lab.module.extra = Reward(family="R2", unit="agent", source="a test", score=pays)  # type: ignore[attr-defined]
    credit = lab.mechanism(lambda traces: [], signals=True)
    reward: dict[str, Any] = {"team_outcome": {}, "my_lab:extra": {"weight": 2.0, "part": "agent"}}
    check(Preset(credit=credit, reward=reward, **PLAIN))
    given = [trace("t0"), trace("t1")]
    assigned(Preset(credit=credit, reward=reward, **PLAIN), rollout(), given, Network(), progress=0.0)
    paid, options = lab.given[-1]
    assert [t.rewards["team"] for t in paid] == [6.0, 6.0]  # 5, and twice the orchestrator's half
    assert _of(options["signals"], "t1") == [("agent", "ada", "team", 6.0 + 4.0), ("agent", "orchestrator", "team", 6.0)]
    assigned(
        Preset(credit=credit, reward=reward | {"my_lab:extra": {"part": "role"}}, **PLAIN), rollout(), given, Network(), progress=0.0
    )
    assert _of(lab.given[-1][1]["signals"], "t0") == [("role", "thinker", "team", 5.5), ("role", "worker", "team", 5.5 + 1.0)]
    plain = lab.mechanism(lambda traces: [])
    with pytest.raises(InputError, match="reward my_lab:extra pays a agent, which mechanism my_lab:mine does not read"):
        assigned(Preset(credit=plain, reward=reward, **PLAIN), rollout(), given, Network(), progress=0.0)


def test_several_rewards_become_one_by_the_presets_balance() -> None:
    parts, weights, task = np.array([[1.0, 3.0, 2.0, 2.0], [10.0, 10.0, 0.0, 40.0]]), np.array([1.0, 0.5]), np.array([0, 0, 1, 1])
    assert balanced("sum", parts, weights, task).tolist() == [6, 8, 2, 22]
    # within tasks: the first varies in the first one only, the second in the second one only; then (-2, 2, -1, 1) c over the batch
    spread = (10 / 3) ** 0.5
    assert balanced("gdpo", parts, weights, task).tolist() == pytest.approx([-2 / spread, 2 / spread, -1 / spread, 1 / spread])
    both = np.array([[1.0, 0, 0, 1], [1, 1, 0, 0]])  # GDPO's own: each is +-0.866 in its group, their sum 1.732, 0, -1.732, 0
    assert balanced("gdpo", both, np.ones(2), np.zeros(4)).tolist() == pytest.approx([1.5**0.5, 0, -(1.5**0.5), 0])
    still = np.array([[1.0, 0, 0, 1], [2, 2, 2, 2]])  # what does not vary within tasks has no weight, and a scale of 10 none either
    assert balanced("variance", still, np.ones(2), np.zeros(4)).tolist() == [2, 0, 0, 2]
    scaled = np.array([[1.0, 0, 0, 1], [1, 3, 1, 3]])
    ours, other = (balanced("variation", x, np.ones(2), np.zeros(4)) for x in (scaled, scaled * [[10], [1]]))
    assert other.tolist() == pytest.approx((ours + 9 * variation_weights(scaled)[0] * scaled[0]).tolist())
    # variances within tasks: mean of (1, 1, 0, 0) and of (0, 0, 400, 400)
    shares = 2 * np.array([0.5, 200.0]) / 200.5
    assert balanced("variance", parts, weights, task).tolist() == pytest.approx((weights * shares @ parts).tolist())
    variation = np.array([parts[0].std() / 2, parts[1].std() / 15])
    assert balanced("variation", parts, weights, task).tolist() == pytest.approx((weights * variation * 2 / variation.sum() @ parts).tolist())
    with pytest.raises(InputError, match=r"no balance 'gpdo'.*did you mean 'gdpo'"):
        Preset(credit={"group_relative": {}}, balance="gpdo", **PLAIN)
