"""Presets whose reward is their own: the number by which each is recognised, through its real reward and mechanism; a few updates."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

from counterpoint import registry
from counterpoint.lab.train.jobs import play
from counterpoint.lab.train.preset import named_preset
from counterpoint.lab.train.settings import Settings
from counterpoint.lab.train.training import Training
from counterpoint.rewards.paying import Payment, pay
from counterpoint.trace import Event, Trace
from counterpoint.trace.rows import Credit
from lab.train.quick import TINY

LEAD = {"agent": "lead", "role": "orchestrator"}
near = lambda x: pytest.approx(x, abs=1e-5)  # noqa: E731


def trace(name: str, reward: float, *steps: dict[str, Any]) -> Trace:
    events = [Event(**{"id": f"e{i}", "t": i, "type": "message", **step}) for i, step in enumerate(steps)]
    return Trace(trace_id=name, task_id="q", events=events, rewards={"team": reward})


def call(ok: bool, **who: Any) -> dict[str, Any]:
    return {"type": "tool_call", "tool": "search", "ok": ok, **who}


def credited(name: str, traces: list[Trace], **more: Any) -> tuple[Payment, Credit]:
    """What the preset's rewards pay, and the credit that its mechanism makes of it."""
    preset = named_preset(name)
    leads = {t.trace_id: "lead" for t in traces}
    paid = pay(preset.reward, traces, tasks=np.zeros(len(traces)), reader=preset.credit_name, balance=preset.balance, leads=leads)
    options = {**preset.credit[preset.credit_name], **more}
    if paid.signals is not None:
        options["signals"] = paid.signals
    return paid, registry.get("mechanism", preset.credit_name)(paid.traces, **options)


def _matpo() -> None:
    workers = [[True, False], [True], [], [False, False]]
    rows = zip([1.0, 0.0, 1.0, 0.0], [True, True, True, False], workers, strict=True)
    traces = [trace(f"t{i}", r, call(f, **LEAD), *(call(ok, agent=f"w{k}") for k, ok in enumerate(own))) for i, (r, f, own) in enumerate(rows)]
    paid, credit = credited("matpo", traces)
    assert [t.rewards["team"] for t in paid.traces] == near([0.975, 0.1, 0.95, 0.0])
    assert [credit.of(i)["lead"] for i in range(4)] == near([0.886926, -0.768669, 0.839623, -0.95788])
    assert credit.of(0)["w1"] == credit.of(0)["lead"]


def _paramanager() -> None:
    asked = [{**LEAD, "to": w, "tokens_out": 10_000} for w in ("a", "b")]
    same = trace("t", 1.0, *asked, {"type": "return", "agent": "a", "ok": True})
    paid, _ = credited("paramanager", [same, replace(same, trace_id="u", rewards={"team": 0.0})])
    assert [t.rewards["team"] for t in paid.traces] == near([1.33, 0.33])


def _marsrl() -> None:
    traces = [trace(f"t{i}", 0.0, LEAD, {"type": "return", "agent": "v", "role": "verifier", "reward": {"R6": r}}) for i, r in enumerate([1, -1, 1, 1])]
    _, credit = credited("marsrl", traces)
    assert [credit.of(i)["e1"] for i in range(4)] == near([0.5, -1.5, 0.5, 0.5])


def _foldgrpo() -> None:
    out = {"agent": "b", "reward": {"R2": 0.0}}
    rows = [[LEAD, call(False, **LEAD), out], [LEAD, out], [LEAD], [LEAD]]
    _, credit = credited("foldgrpo", [trace(f"t{i}", float(r), *own) for i, (r, own) in enumerate(zip([1, 0, 1, 0], rows, strict=True))])
    assert [list(credit.of(i).values()) for i in range(4)] == [near([1, -1, 0.6]), near([-1, -1]), near([1]), near([-1])]
    _, released = credited("foldgrpo", [trace("t", 1.0, LEAD, out), trace("u", 0.0, LEAD)], **named_preset("foldgrpo").as_released["credit"])
    assert released.of(0)["e1"] == near(1.0)  # the cast to int8 drops -0.2
    _, shifted = credited("foldgrpo", [trace(f"t{i}", r, LEAD) for i, r in enumerate([-0.1, -0.7])])
    assert [shifted.of(i)["e0"] for i in range(2)] == near([1, -1])  # the better one is the one that is paid


def _debate_as_reward() -> None:
    both = zip([1.0, 1.0, 0.0, 1.0], [True, False, True, True], strict=True)
    _, credit = credited("debate_as_reward", [trace(f"t{i}", r, call(ok, **LEAD)) for i, (r, ok) in enumerate(both)])
    assert [credit.of(i)[""] for i in range(4)] == near([0.5, -0.5, -0.5, 0.5])


def _wideseek_r1() -> None:
    opened = trace("t", 0.5, call(True, **LEAD, turn=0), {**LEAD, "turn": 0, "tokens_out": 4000}, {"agent": "w", "turn": 0, "tokens_out": 5})
    short = trace("u", 0.0, {**LEAD, "turn": 0, "tokens_out": 10}, {**LEAD, "turn": 1, "tokens_out": 20}, {"agent": "w", "tokens_out": 5})
    paid, credit = credited("wideseek_r1", [opened, short])
    assert [t.rewards["team"] for t in paid.traces] == near([0.6, 0.1])
    assert credit.notes["token_weights"]["u"] == near({"lead": 1 / 60, "w": 0.1})


def _two_channels(outcome: list[float], finished: list[int]) -> list[Trace]:
    spawn = {"type": "spawn", **LEAD, "to": "w"}
    back = {"type": "return", "agent": "w", "role": "worker"}
    return [trace(f"t{i}", r, LEAD, spawn, *[back] * f) for i, (r, f) in enumerate(zip(outcome, finished, strict=True))]


def _gdpo() -> None:
    _, credit = credited("gdpo", _two_channels([1, 0, 0, 1], [1, 1, 0, 0]))
    assert [credit.of(i)[""] for i in range(4)] == near([1.224745, 0, -1.224745, 0])


def _dvao() -> None:
    paid, _ = credited("dvao", _two_channels([1, 0, 0, 1], [1, 1, 1, 1]))
    assert [t.rewards["team"] for t in paid.traces] == near([2, 0, 0, 2])  # a channel that is the same everywhere has weight 0


def _saw() -> None:
    weights = []
    for scale in (1.0, 10.0):
        paid, _ = credited("saw", _two_channels([scale * r for r in (1, 2, 3, 1)], [1, 1, 0, 0]))
        weights.append(paid.traces[2].rewards["team"] / (3 * scale))  # nobody finished there: all of it is the outcome's
    assert weights[0] == near(weights[1])
    assert 0 < weights[0] < 2


def _sepo() -> None:
    rated = [{"agent": f"w{i}", "reward": {"R2": q}} for i, q in enumerate([0.7, 0.5, 0.3, 0.5])]
    _, credit = credited("sepo", [trace("t", 1.0, *rated), trace("u", 0.0, *rated)], give="reward")
    assert list(credit.of(0).values()) == near([1.04, 1.0, 0.96, 1.0])
    assert list(credit.of(1).values()) == near([-1.04, -1.0, -0.96, -1.0])


def _collabuiagents() -> None:
    def scored(*amounts: float) -> list[Trace]:
        back = {"type": "return", "agent": "w", "role": "worker", "task": "vote 0"}
        return [trace(f"t{i}", 0.0, LEAD, {**back, "reward": {"R2": x}}) for i, x in enumerate(amounts)]

    assert credited("collabuiagents", scored(0.5, 0.5, 0.5))[1].notes["pairs"] == []  # a critic that says the same everywhere
    assert credited("collabuiagents", scored(0.0, 1.0, 0.0))[1].notes["pairs"] == [("t1 e1", "t0 e1"), ("t1 e1", "t2 e1")]


CASES: Mapping[str, Callable[[], None]] = {
    f.__name__[1:]: f
    for f in (_matpo, _paramanager, _marsrl, _foldgrpo, _debate_as_reward, _wideseek_r1, _gdpo, _dvao, _saw, _sepo, _collabuiagents)
}


@pytest.mark.parametrize("name", CASES)
def test_it_has_its_papers_number_and_runs(name: str) -> None:
    CASES[name]()
    run = Training(Settings(preset=name, world="wide_verify", set=TINY, updates=2, episodes=named_preset(name).group))
    before = run.weights()
    for _ in range(2):
        job = run.job(run.update, run.update, run.weights())
        row = run.learn([play(job.payload, job.weights)])
    assert np.isfinite(row["loss"])
    assert any((w != before[k]).any() for k, w in run.weights().items())
