"""Presets that need acts, judges, a proposer or a second side: the number by which each is recognised, and a few updates."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest

from counterpoint import registry
from counterpoint.credits.mechanisms.qmix import td_errors
from counterpoint.errors import InputError, Refused
from counterpoint.lab.train.jobs import play, world_of
from counterpoint.lab.train.net_replay import NetReplay
from counterpoint.lab.train.policies.network import Network
from counterpoint.lab.train.preset import Preset, named_preset
from counterpoint.lab.train.recorded import rebuilt
from counterpoint.lab.train.rollouts import TracedRollout
from counterpoint.lab.train.settings import Settings
from counterpoint.lab.train.training import Training
from counterpoint.rewards.paying import Payment, pay
from counterpoint.trace import Event, Trace
from counterpoint.trace.rows import Credit
from lab.train.quick import TINY

SMALL = TINY | {"votes_per_agent": 3, "max_votes": 5}
near = lambda x: pytest.approx(x, abs=1e-5)  # noqa: E731


def trace(name: str, reward: float, *steps: dict[str, Any]) -> Trace:
    events = [Event(**{"id": f"e{i}", "t": i, "type": "message", "agent": "x", **step}) for i, step in enumerate(steps)]
    return Trace(trace_id=name, task_id="q", events=events, rewards={"team": reward})


def answer(agent: str, turn: int, score: float, claim: int = 1) -> list[dict[str, Any]]:
    """A worker's call and its scored answer to question 0."""
    who = {"agent": agent, "role": "worker", "turn": turn, "task": "vote 0"}
    return [{**who, "type": "tool_call", "tool": "look_up"}, {**who, "type": "return", "reward": {"score": score}, "extra": {"claim": claim}}]


def credited(preset: Preset, traces: list[Trace], **more: Any) -> tuple[Payment, Credit]:
    """What the preset's rewards pay, and the credit that its mechanism makes of it."""
    paid = pay(preset.reward, traces, tasks=np.zeros(len(traces)), reader=preset.credit_name)
    options = {**preset.credit[preset.credit_name], **more}
    if paid.signals is not None:
        options["signals"] = paid.signals
    return paid, registry.get("mechanism", preset.credit_name)(paid.traces, **options)


def turns(paid: Payment) -> dict[str, float]:
    assert paid.signals is not None
    return dict(zip(paid.signals.unit_ids, paid.signals.values.tolist(), strict=True))


def _maporl() -> None:
    scores = [[0.2, 0.8], [0.6, 0.8], [1.0, 0.9]]
    debate = trace("t", 0.0, {"agent": "orchestrator"}, *(step for t, row in enumerate(scores) for a, v in enumerate(row) for step in answer(f"a{a}", t, v)))
    bare, preset = named_preset("maporl").changed({"reward": {"maporl": {"alpha": None}}}), named_preset("maporl")
    assert [turns(credited(bare, [debate], value=lambda t: [0.0] * len(t.events))[0])[f"a0#{t}"] for t in range(3)] == near([0.356475, 0.680769, 1.0])
    paid, credit = credited(preset, [debate], value=lambda t: [0.5] * len(t.events), normalise="agent_turn", lam=0.0)
    assert turns(paid)["a0#1"] == near(0.680769 + 0.1)  # wrong to right, while the other was right
    assert {trace_row.unit_id for trace_row in credit.rows} == {e.id for e in debate.events if e.type == "tool_call"}  # the orchestrator has none
    late = trace("u", 0.0, *answer("a0", 0, 1.0), *answer("a1", 2, 0.0))
    assert turns(credited(bare, [late], value=lambda t: [0.0] * len(t.events))[0]) == near({"a0#0": (1 + 0.3 * 0.5) / 1.3, "a1#2": 0.0})


def _comas() -> None:
    for score, paid_for in ((1.0, (1.0, 0.0)), (0.5, (0.5, 0.5)), (0.0, (0.0, 1.0))):
        challenged = trace("t", 0.0, *answer("a0", 0, score), *answer("a1", 1, 0.5, claim=0))
        assert turns(credited(named_preset("comas"), [challenged, trace("u", 0.0)])[0]) == near({"a0#0": paid_for[0], "a1#1": paid_for[1]})
    agreed = [trace(f"t{i}", 0.0, *answer("a0", 0, 0.0), *answer("a1", 1, 0.0, claim=1 - i)) for i in (0, 1)]
    paid, credit = credited(named_preset("comas"), agreed)
    assert turns(paid) == near({"a0#0": 0.0, "a1#1": 1.0})  # of the last trace; in the first they agree, and the solution has it all
    assert [credit.of(i)["a0#0"] for i in (0, 1)] == near([2**-0.5, -(2**-0.5)])  # an agent against its own buffer


def _learning_to_deliberate() -> None:
    _, credit = credited(named_preset("learning_to_deliberate"), [trace(f"t{i}", r, {}) for i, r in enumerate([1.0, 0.2, 0.2, 0.0])])
    assert [credit.of(i)[""] for i in range(4)] == near([1.14948, -0.074558, -0.074558, -0.897925])


def _agent_qmix() -> None:
    preset = named_preset("agent_qmix")
    paid = pay(preset.reward, [trace("t", 2.0, {"tokens_out": 4000})], tasks=np.zeros(1), reader="qmix", best=2.0)
    assert paid.traces[0].rewards["team"] == near(1.46)
    assert preset.as_released == {"loss": {"each_step": True, "drop_last": True, "shaped": False}}
    assert td_errors(1.46, [0.8, 0.5], [0.7, 0.6], [0, 1])[0].tolist() == near([2.054])


def _mae() -> None:
    def made(i: int, q: float, solved: float, form: float = 1.0) -> Trace:
        proposal = {"agent": "proposer", "role": "proposer", "reward": {"quality": q, "format": form}}
        return trace(f"t{i}", 0.0, proposal, *answer("a0", 0, solved), {"agent": "judge0", "role": "judge"})

    paid, credit = credited(named_preset("mae"), [made(0, 0.8, 0.4), made(1, 0.6, 0.4, 0.0), made(2, 0.5, 0.9), made(3, 0.5, 0.9)])
    assert paid.signals is not None
    rewards = [float(v) for u, v in zip(paid.signals.unit_ids, paid.signals.values, strict=True) if u == "proposer"]
    assert rewards == near([0.8, 0.2, 0.5, 0.5])
    assert [credit.of(i)["proposer"] for i in range(4)] == near([1.224745, -1.224745, 0.0, 0.0])
    assert turns(credited(named_preset("mae"), [made(0, 0.6, 0.4), made(1, 0.6, 0.4)])[0])["proposer"] == near(0.533333)


def _sage() -> None:
    def made(i: int, q: float, plan: float) -> Trace:
        asked = {"agent": "proposer", "role": "proposer", "reward": {"quality": q}}
        planned = {"agent": "orchestrator", "role": "orchestrator", "reward": {"quality": plan}}
        return trace(f"t{i}", 0.0, asked, planned, *answer("a0", 0, 0.5), {"agent": "judge0", "role": "judge"})

    _, credit = credited(named_preset("sage"), [made(0, 0.8, 0.6), made(1, 0.4, 0.6), made(2, 0.8, 0.4), made(3, 0.9, 0.9)])
    learns = [set(credit.of(i)) & {"proposer", "orchestrator", "worker"} for i in range(4)]
    assert learns == [{"proposer", "orchestrator", "worker"}, set(), {"proposer"}, {"proposer", "orchestrator", "worker"}]


def _sides(i: int, outcome: float) -> Trace:
    return trace(f"t{i}", outcome, {"agent": "orchestrator", "role": "orchestrator"}, {"agent": "opponent", "role": "opponent"})


def _spiral() -> None:
    games = [_sides(i, r) for i, r in enumerate([1.0, -1.0, 1.0, 1.0])]
    _, credit = credited(named_preset("spiral"), games)
    assert [credit.of(i)["orchestrator"] for i in range(4)] == near([1.0, -1.05, 1.0025, 0.952375])
    assert [credit.of(i)["opponent"] for i in range(4)] == near([-1.0, 1.05, -1.0025, -0.952375])
    _, later = credited(named_preset("spiral"), [_sides(4, 0.0)], start=credit.notes["baselines"])
    assert later.of(0)["orchestrator"] == near(-0.09524375)  # it goes on from the baseline that was left


def _marshal() -> None:
    def game(i: int, pay_: list[float]) -> Trace:
        both = [{"agent": a, "turn": t, "reward": {"zero_sum": sign * r}} for t, r in enumerate(pay_) for a, sign in (("orchestrator", 1), ("opponent", -1))]
        return trace(f"t{i}", sum(pay_), *both)

    games = [game(0, [0, 0, 1]), game(1, [0, -1])]
    preset = named_preset("marshal")
    for form, numbers in (({}, [0.8, 0.8, 0.8, -1.2, -1.2]), (preset.as_released["credit"], [1, 1, 1, -1, -1])):
        _, credit = credited(preset, games, **form)
        for side, sign in (("orchestrator", 1), ("opponent", -1)):
            found = [v for i in (0, 1) for name, v in credit.of(i).items() if name.startswith(side)]
            assert found == near([sign * n for n in numbers])


def _magic() -> None:
    games = [_sides(i, r) for i, r in enumerate([3.0, 1.0, 2.0])]
    _, credit = credited(named_preset("magic"), games)
    plain = named_preset("magic").changed({"reward": {"zero_sum": {"against": "nobody"}}})
    assert [credit.of(i)["orchestrator"] for i in range(3)] == [credited(plain, games)[1].of(i)["orchestrator"] for i in range(3)] == near([1, -1, 0])
    assert [credit.of(i)["opponent"] for i in range(3)] == near([-1, 1, 0])


CASES: Mapping[str, Callable[[], None]] = {
    f.__name__[1:]: f for f in (_maporl, _comas, _learning_to_deliberate, _agent_qmix, _mae, _sage, _spiral, _marshal, _magic)
}
HEADS = {"mae": "proposal", "sage": "proposal"} | dict.fromkeys(("spiral", "marshal", "magic"), "attack")


def begun(name: str, change: dict[str, Any] | None = None, **changes: Any) -> Training:
    preset = named_preset(name)
    return Training(
        Settings(preset=name, world="wide_verify", set=SMALL | preset.world | changes, updates=4, episodes=max(8, preset.group), change=change or {})
    )


def played(run: Training, **payload: Any) -> TracedRollout:
    job = run.job(run.update, run.update, run.weights())
    return play(job.payload | payload, job.weights)


def moved(run: Training, updates: int = 2) -> set[str]:
    """The heads that an update changes."""
    before = run.weights()
    for _ in range(updates):
        row = run.learn([played(run)])
        assert np.isfinite(row["loss"])
    return {name.split(".")[1] if name.startswith("extra.") else name.split(".")[0] for name, w in run.weights().items() if not np.array_equal(w, before[name])}


@pytest.mark.parametrize("name", CASES)
def test_it_has_its_papers_number_and_runs(name: str) -> None:
    CASES[name]()
    assert {HEADS.get(name, "act"), "item_critic"} <= moved(begun(name))
    with pytest.raises(Refused, match=r"needs .*, which the world does not have.*--set"):
        Training(Settings(preset=name, world="wide_verify", set=TINY))


def test_one_side_can_be_frozen_or_they_take_turns() -> None:
    everybody = named_preset("magic").trains
    assert "attack" not in moved(begun("magic", {"trains": [t for t in everybody if t != "opponent"]}))
    assert {"purpose", "stop", "gate", "attack"} & moved(begun("magic", {"trains": ["opponent"]})) == {"attack"}
    run = begun("magic", {"alternate": 1})
    assert "attack" not in moved(run, 1)
    assert {"purpose", "stop", "attack"} & moved(run, 1) == {"attack"}


@pytest.mark.parametrize("name", ["maporl", "agent_qmix", "mae", "magic"])
def test_recorded_choices_are_read_back_and_forks_play_them_again(name: str) -> None:
    run = begun(name)
    told = played(run, decisions=True, log=True)
    again = rebuilt(told.traces, run.worlds[0], run.net).rollout
    for table in ("act", "attack", "proposal"):
        assert (table in told.rollout.tables) == (table in again.tables)
        if table in again.tables:
            for column in ("ep", "round", "choice", "logp"):
                assert np.array_equal(again.tables[table][column], told.rollout.tables[table][column])
    if "worker" not in told.rollout.tables:  # what old workers say of their own accord is in no fork
        replay = NetReplay(run.net, {t.trace_id: np.asarray(s) for t, s in zip(told.traces, told.rollout.salts, strict=True)})
        one = next(t for t in told.traces if len(t.events) > 12)
        said = [[(e.key, e.extra) for e in t.events if e.type == "return"] for t in (one, replay.fork(one, one.events[4].id))]
        assert said[0] == said[1]


def test_a_network_without_further_choices_is_what_it_was() -> None:
    plain = Network()
    assert not [name for name in plain.state_dict() if name.startswith("extra")]
    twin = Network(extra={"act": 6, "attack": 9}).twin()
    assert {name: len(head[-1].bias) for name, head in twin.extra.items()} == {"act": 6, "attack": 9}  # type: ignore[index,union-attr]


def test_variants_of_a_run_have_the_same_choices() -> None:
    with pytest.raises(InputError, match="other choices"):
        Training(Settings(preset="grpo", world="wide_verify", set=TINY, mix=({}, {"acts": "communicate"})))


def test_who_beside_the_team_is_not_trained_stays_as_it_was() -> None:
    """Any preset can play in such worlds; the team's credit is never an opponent's."""
    run = Training(Settings(preset="dr_mas", world="wide_verify", set=SMALL | {"opponent_rounds": 2, "attack_rate": 0.3}, updates=4, episodes=8))
    assert "attack" not in moved(run)
    assert world_of("wide_verify", SMALL | {"judges": 1}).config.judges == 1
