"""What a preset holds, and each way in which it is refused before anything is played."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import counterpoint as cpt
from counterpoint import registry
from counterpoint.errors import CounterpointError, InputError, NotFound, Refused
from counterpoint.lab.app.cli.train.net import net
from counterpoint.lab.train.preset import CAPABILITIES, GRADES, LOSS_BRINGS, REGIMES, Preset, named_preset
from counterpoint.lab.train.run import train_run
from counterpoint.lab.train.settings import toml_text
from counterpoint.lab.train.surrogates import PARTS

LEAST: dict[str, Any] = {"source": "a test", "grade": "M", "departures": "none", "credit": {"task_returns": {}}, "loss": {"soft": {}}}


def test_every_default() -> None:
    found = Preset(**LEAST)
    assert (found.reward, found.group, found.episodes, found.widens, found.trial_every) == ({"team_outcome": {}}, 4, 24, (0, 0), 0)
    assert (found.regime, found.delegate, found.forks, found.keeps, found.goes_on) == ("A", "orchestrator", 0.0, 0.0, False)
    assert found.rates == {"policy": 3e-3, "spawn": 2e-2, "critic": 3e-3}
    assert (found.averaging, found.needs) == (0.9, ())
    assert (found.trains, found.unit, found.learns, found.alternate) == (("O1", "O2", "O3", "O4", "O5"), "team", ("network",), 0)
    assert (found.as_released, found.knob, found.guessed) == ({}, {}, ())
    assert (found.loss_name, found.credit_name, found.uses_traces) == ("soft", "task_returns", False)
    other = Preset(**LEAST | {"credit": {"group_relative": {"a": 1}}, "loss": {"clip": {"b": 2}}})
    assert (other.loss_name, other.credit_name, other.uses_traces) == ("clip", "group_relative", True)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"grade": "Q"}, "no grade 'Q'"),
        ({"regime": "D"}, "no regime 'D'"),
        ({"delegate": "agents"}, "no delegate 'agents'.*did you mean 'agent'"),
        ({"credit": {}}, "a preset has one credit mechanism, not 0"),
        ({"credit": {"task_returns": {}, "shapley": {}}}, "a preset has one credit mechanism, not 2"),
        ({"loss": {"clip": {}, "soft": {}}}, "a preset has one loss, not 2"),
        ({"loss": {"cilp": {}}}, "no loss 'cilp'.*did you mean 'clip'"),
        ({"group": 0}, "group is 0; group takes a whole number of 1 or more"),
        ({"group": -3}, "group is -3; group takes a whole number of 1 or more"),
        ({"group": "two"}, "group is 'two'; group takes a whole number"),
        ({"group": 4.0}, "group is 4.0"),
        ({"episodes": 0}, "episodes is 0; episodes takes a whole number of 1 or more"),
        ({"episodes": -32}, "episodes is -32"),
        ({"forks": 3}, "forks is 3; forks takes a number from 0 to 1"),
        ({"keeps": -0.1}, "keeps is -0.1"),
        ({"averaging": 1.0}, "averaging is 1.0; averaging takes a number from 0 to below 1"),
        ({"fixed_team": 1}, "fixed_team is 1; fixed_team takes true or false"),
        ({"regime": 3}, "regime is 3; regime takes a text"),
        ({"trains": "O5"}, "trains is 'O5'; trains takes a list"),
        ({"widens": (1,)}, "widens takes two numbers"),
        ({"tree": (2.0, 2)}, "tree takes a list, each a whole number of 0 or more"),
        ({"rates": {"policy": "abc"}}, "rates.policy is 'abc'; rates.policy takes a number of 0 or more"),
        ({"rates": {"policy": float("nan")}}, "rates.policy is nan"),
        ({"rates": {"policy": float("inf")}}, "rates.policy is inf"),
        ({"rates": {"policy": -1}}, "rates.policy is -1"),
        ({"group": 5}, "24 episodes do not make groups of 5"),
        ({"needs": ("vote",)}, "no need named 'vote'.*did you mean 'votes'"),
        ({"trains": ("O6",)}, "no thing to train named 'O6'"),
        ({"trains": ()}, "trains nothing"),
        ({"unit": "agents"}, "no unit named 'agents'.*did you mean 'agent'"),
        ({"learns": ("llm",)}, "no learner named 'llm'.*did you mean 'lm'"),
        ({"alternate": -1}, "alternate is -1"),
        ({"knob": {"grup": 2}}, "a preset has no 'grup'"),
        ({"as_released": {"group": 5}}, "24 episodes do not make groups of 5"),
    ],
)
def test_what_does_not_fit_is_named(changes: dict[str, Any], says: str) -> None:
    with pytest.raises(InputError, match=says):
        Preset(**LEAST | changes)


def test_all_that_may_be_named_is_taken() -> None:
    for grade in GRADES:
        Preset(**LEAST | {"grade": grade})
    for regime in REGIMES:
        Preset(**LEAST | {"regime": regime})
    for loss in registry.ids("loss"):
        assert Preset(**LEAST | {"loss": {loss: {}}}).loss_name == loss
    Preset(**LEAST | {"group": 1, "episodes": 1, "needs": tuple(CAPABILITIES), "delegate": "agent"})
    assert set(REGIMES) == {"A", "B", "C"}
    assert set(GRADES) == {"P", "R", "S", "T", "M"}


@pytest.mark.parametrize(
    ("need", "has", "lacks"),
    [
        ("votes", {"vote_items": 1}, {"vote_items": 0, "chain_items": 1}),
        ("workers", {"max_agents": 1}, {"max_agents": 0}),
        ("spawn", {"max_agents": 2}, {"max_agents": 1}),
    ],
)
def test_a_world_without_what_is_needed_is_refused(need: str, has: dict[str, int], lacks: dict[str, int]) -> None:
    preset = Preset(**LEAST | {"needs": (need,)})
    base = cpt.world("W1").config

    def changed(values: dict[str, int]) -> Any:
        return type("Config", (), {**{k: getattr(base, k) for k in ("max_agents", "vote_items")}, **values})()

    preset.refuse(changed(has), "mine")
    with pytest.raises(Refused, match=f"preset mine needs {need}, which the world does not have"):
        preset.refuse(changed(lacks), "mine")


def test_presets_by_name() -> None:
    assert named_preset("grpo").credit_name == "group_relative"
    with pytest.raises(NotFound, match=r"no preset named 'grpoo'.*did you mean 'grpo'"):
        named_preset("grpoo")
    with pytest.raises(InputError, match=r"counterpoint\.lab\.train\.preset:GRADES is a dict, not a Preset"):
        named_preset("counterpoint.lab.train.preset:GRADES")


def test_a_run_may_change_a_preset_and_nothing_that_is_not_there() -> None:
    found = Preset(**LEAST | {"loss": {"soft": {"lam": 0.9}}})
    other = found.changed({"group": 2, "loss": {"steps": 3}, "reward": {"team_outcome": {"weight": 0.5}}, "rates": {"spawn": 1e-3}})
    assert (other.group, other.loss, other.reward) == (2, {"soft": {"lam": 0.9, "steps": 3}}, {"team_outcome": {"weight": 0.5}})
    assert other.rates == {"policy": 3e-3, "spawn": 1e-3, "critic": 3e-3}
    assert found.changed({}) is found
    for change, says in (
        ({"grup": 2}, "a preset has no 'grup'.*did you mean 'group'"),
        ({"loss": 3}, "loss is 3.*a table of options"),
        ({"group": {}}, "group is {}.*not a table"),
        ({"rates": {"polcy": 1.0}}, "no learning rate for 'polcy'.*did you mean 'policy'"),
    ):
        with pytest.raises(InputError, match=says):
            found.changed(change)


def test_what_a_loss_brings_is_among_the_departures() -> None:
    for name, brings in LOSS_BRINGS.items():
        usual = registry.get("loss", name).resolved({})
        assert f"an entropy bonus of {usual.entropy:g}" in brings
        assert name != "clip" or f"{usual.epochs} epochs in {PARTS} parts" in brings
    for name in ("grpo", "dr_mas", "matpo", "wideseek_r1", "kimi_parl"):
        assert named_preset(name).all_departures.endswith(LOSS_BRINGS["clip"])
    assert named_preset("counterpoint").all_departures == named_preset("counterpoint").departures


def test_m_grpo_as_released_is_not_aligned() -> None:
    assert named_preset("m_grpo").credit["hierarchical"]["d"] == 8
    assert named_preset("m_grpo").changed({"as_released": True}).credit["hierarchical"]["d"] is None


def test_the_released_form_and_the_knob_are_changes_by_name() -> None:
    own = {"as_released": {"group": 2, "loss": {"lam": 0.5}}, "knob": {"loss": {"steps": 3}}}
    found = Preset(**LEAST | own)
    both = found.changed({"as_released": True, "knob": True, "group": 6})
    assert (both.group, both.loss) == (6, {"soft": {"lam": 0.5, "steps": 3}})
    assert found.changed({"as_released": False}) is found
    with pytest.raises(InputError, match="this preset has no knob"):
        Preset(**LEAST).changed({"knob": True})


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"loss": {"tau_form": 1}}, "loss soft has no option 'tau_form'.*did you mean 'tau_from'"),
        ({"loss": {"tau_from": "hot"}}, "tau_from is 'hot'"),
        ({"loss": {"tau_from": -0.5}}, "loss: tau_from is -0.5; tau_from takes a number above 0"),
        ({"loss": {"steps": 0}}, "loss: steps is 0; steps takes a whole number of 1 or more"),
        ({"reward": {"team_outcom": {}}}, "no reward named 'team_outcom'.*did you mean 'team_outcome'"),
        ({"reward": {"team_outcome": {"wieght": 2}}}, "reward team_outcome has no option 'wieght'.*did you mean 'weight'"),
    ],
)
def test_options_are_checked_wherever_they_come_from(change: dict[str, Any], says: str, tmp_path: Path) -> None:
    """As an argument, from run.toml, and from --set."""
    with pytest.raises(CounterpointError, match=says):
        train_run(tmp_path / "run", {"preset": "counterpoint", "world": "W1", "updates": 1, "change": change})
    file = tmp_path / "run.toml"
    file.write_text(toml_text({"preset": "counterpoint", "world": "W1", "change": change}))
    pairs = [f"change.{a}.{b}={json.dumps(v)}" for a, inner in change.items() for b, v in inner.items() if not isinstance(v, dict)]
    pairs += [f"change.{a}.{b}.{c}={v}" for a, inner in change.items() for b, v in inner.items() if isinstance(v, dict) for c, v in v.items()]
    for given in ([str(file)], ["--world", "W1", *(x for pair in pairs for x in ("--set", pair))] if pairs else []):
        if given:
            out = CliRunner().invoke(net, [*given, "--dry-run"])
            assert re.search(says, str(out.exception)), out.output
    assert not (tmp_path / "run").exists()
