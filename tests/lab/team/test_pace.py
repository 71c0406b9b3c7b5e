"""A fake at the pace of a real model: the same answers, in stated time."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from click.testing import CliRunner

from counterpoint.app.cli import cli
from counterpoint.errors import InputError
from counterpoint.lab.team import pace
from counterpoint.lab.team.pace import Paced, speed_of
from counterpoint.lab.team.session import Spec, make_model, record_team
from counterpoint.store import Store
from counterpoint.trace import Trace


def recorded(folder: Path, name: str, speed: float | None) -> Trace:
    spec = Spec(task="pointer_chase", model="fake:0.9", seed=3)
    model = make_model("fake:0.9", spec.make_task())
    with Store(folder) as store:
        paced = None if speed is None else Paced(model, speed)
        return asyncio.run(record_team(spec, store, trace_id=name, model=paced))


def test_the_team_says_the_same_and_takes_the_stated_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    real = asyncio.sleep

    async def sleep(seconds: float, result: object = None) -> None:
        slept.append(seconds)
        await real(0)

    at_once = recorded(tmp_path, "at-once", None)
    monkeypatch.setattr(pace.asyncio, "sleep", sleep)
    paced = recorded(tmp_path, "paced", 2.0)
    assert paced.rewards == at_once.rewards
    said = [sorted((e.agent, e.type, e.content_ref) for e in trace.events if e.content_ref) for trace in (paced, at_once)]
    assert said[0] == said[1]  # the order is that of time, which is another one
    assert (paced.meta["pace"], paced.meta["model"]) == (2.0, at_once.meta["model"])
    calls = [e for e in paced.events if e.model is not None]
    due = sorted((0.6 + (e.tokens_in or 0) / 2_500 + (e.tokens_out or 0) / 30) / 2 for e in calls)
    assert sorted(s for s in slept if s > 0.25) == pytest.approx(due)


def test_a_pace_is_for_fakes_and_a_number() -> None:
    assert [speed_of(text) for text in ("real", "4x", "0.5x")] == [1.0, 4.0, 0.5]
    for bad in ("fast", "x", "-1x", "0x", "1e9x", ""):
        with pytest.raises(InputError, match="is not a pace"):
            speed_of(bad)
    for args in (["--model", "openai:x", "--base-url", "http://127.0.0.1:9"], ["--model", "local:none"]):
        with pytest.raises(InputError, match="pace of its own"):
            CliRunner().invoke(cli, ["play", "--task", "T5", "--model-set", "pace=real", *args], catch_exceptions=False)
