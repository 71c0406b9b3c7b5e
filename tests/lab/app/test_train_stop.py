"""`counterpoint train stop`: a rule is learned, told and written; what makes no sense there is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

import counterpoint as cpt
from counterpoint.errors import CounterpointError
from counterpoint.guard.stop_rule import load_rule
from counterpoint.lab.app.cli.train.stop import stop
from counterpoint.lab.train.stopping.values import longstaff_schwartz
from counterpoint.store import Store

ASK = ["--world", "S3", "--preset", "longstaff-schwartz", "--set", "horizon=8", "--set", "eval_episodes=200", "--json"]


def test_a_rule_is_learned_from_fresh_seeds_and_from_a_store(tmp_path: Path) -> None:
    world = cpt.world("S3", horizon=8)
    out = CliRunner().invoke(stop, [*ASK, "--set", "traces=60", "-o", str(tmp_path / "a.npz")], catch_exceptions=False)
    told = json.loads(out.output)
    rule = longstaff_schwartz(world.paths(range(1_000_000, 1_000_060)), 0)
    assert (told["traces"], told["held_out"], told["optimum"]) == (60, 200, world.solution().value)
    assert told["mean"] == pytest.approx(world.run(rule.policy(), range(200)).values.mean())
    assert load_rule(tmp_path / "a.npz").as_bytes() == rule.as_bytes()
    with Store(tmp_path / "log", create=True) as store:
        store.add_many([world.trace(seed) for seed in range(500, 560)])
    again = ["--store", str(tmp_path / "log"), "-o", str(tmp_path / "b.npz")]
    assert json.loads(CliRunner().invoke(stop, [*ASK, *again], catch_exceptions=False).output)["traces"] == 60
    own = ["--store", str(tmp_path / "log"), "--preset", "longstaff-schwartz", "--set", "eval_episodes=200", "--json"]
    CliRunner().invoke(stop, [*own, "-o", str(tmp_path / "c.npz")], catch_exceptions=False)
    assert (tmp_path / "c.npz").read_bytes() == (tmp_path / "b.npz").read_bytes(), "the world is that of the traces"


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        (["--preset", "staked"], "did you mean 'stacked'"),
        (["--set", "traces=none"], "traces is 'none'"),
        (["--set", "horizn=3"], "did you mean 'horizon'"),
    ],
)
def test_what_makes_no_sense_for_a_rule_is_refused(wrong: list[str], says: str, tmp_path: Path) -> None:
    found = CliRunner().invoke(stop, ["--world", "S3", "-o", str(tmp_path / "rule.npz"), *wrong]).exception
    assert isinstance(found, CounterpointError)
    assert says in str(found)
    assert not any(tmp_path.iterdir())
