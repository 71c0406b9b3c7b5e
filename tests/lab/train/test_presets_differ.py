"""Every preset is a method of its own: on one recorded batch no two of them make the same update of the network."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Mapping
from functools import cache
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

pytest.importorskip("torch")

from counterpoint import registry
from counterpoint.lab.app.cli.train.presets import presets
from counterpoint.lab.train.jobs import play
from counterpoint.lab.train.preset import named_preset
from counterpoint.lab.train.presets.grpo import grpo
from counterpoint.lab.train.settings import settings_of
from counterpoint.lab.train.training import Training

SMALL: Mapping[str, Any] = {
    "vote_items": 4, "max_agents": 4, "max_rounds": 5, "judges": 2, "proposer": True, "opponent_rounds": 2, "attack_rate": 0.3,
}  # fmt: skip
"""Two tasks of eight episodes are played in it; judges, a proposer and a second side are there for who learns from them."""
SAME = 0.02
"""Of the length of an update: two that are no further apart count as equal. Rounding is far below it."""
RATES = {"policy": 3e-3, "spawn": 2e-2, "critic": 3e-3}
BOARD = "agent_qmix"
"""The one that needs a board to write on, where all others can play where agents deliberate."""

again = dataclasses.replace(grpo, departures="none: this is grpo under another name")
idle = dataclasses.replace(grpo, loss={"clip": {"clip": 0.2, "scale": False, "log_max": 9.0}}, unit="agent", trains=("w",))
"""grpo with what says something about a method and changes no update."""


def learners() -> list[str]:
    """The presets that learn networks."""
    return [name for name in registry.ids("preset") if "network" in named_preset(name).learns]


def begun(name: str, acts: str | None) -> Training:
    """All at one rate; those whose actors wait for a critic do not wait; the second of two updates is of the second half of a run."""
    options = named_preset(name).loss[named_preset(name).loss_name]
    change: dict[str, Any] = {"rates": RATES, **({"loss": {"warm": 0}} if "warm" in options else {})}
    world = {**SMALL, **({"acts": acts} if acts else {})}
    plan = {"preset": name, "world": "W1", "set": world, "updates": 2, "budget_calls": 0, "seed": 0, "episodes": 32}
    return Training(settings_of({**plan, "change": change}))


@cache
def batch(acts: str | None, *, workers: bool) -> Any:
    """The one batch: two tasks of eight teams. Where sub-agents are frozen the same teams play, and their choices are no rows."""
    training = begun("grpo" if workers else "counterpoint", acts)
    return play({
        "world": "W1", "set": training.settings.set, "seeds": np.repeat([1_000_000, 1_000_001], 8), "salts": np.arange(16) + 1,
        "apart": False, "log": True, "goes_on": False, "name": "batch", "workers": workers,
    }, training.weights())  # fmt: skip


@cache
def common(acts: str | None) -> list[str]:
    """The parts that every network has."""
    return sorted(k for k, _ in begun("counterpoint", acts).net.named_parameters())


@cache
def moved(name: str, acts: str | None = None) -> np.ndarray:
    """What two updates on the one batch do to what acts, in the parts that every network has."""
    training = begun(name, acts)
    acting = {id(p) for p in training.net.policy_parameters()}
    there = common(acts)
    parts = dict(training.net.named_parameters())
    mine = [parts[k] for k in there if id(parts[k]) in acting]
    now = lambda: np.concatenate([p.detach().numpy().ravel().astype(np.float64) for p in mine])  # noqa: E731
    before, played = now(), batch(acts, workers=training.preset.regime in "BC")
    for _ in range(2):
        training.learn([dataclasses.replace(played, rollout=copy.deepcopy(played.rollout))])
    return now() - before


def apart(one: np.ndarray, other: np.ndarray) -> float:
    """How far two updates are apart, as a share of the longer of the two."""
    longer = max(np.linalg.norm(one), np.linalg.norm(other))
    return float(np.linalg.norm(one - other) / longer) if longer else 0.0


@pytest.mark.parametrize("acts", ["deliberate", "communicate"])
def test_no_two_presets_make_the_same_update(acts: str) -> None:
    """On the board agent_qmix is compared with the other temporal differences: no preset beside those has their loss."""
    board = [BOARD, *(name for name in learners() if name != BOARD and named_preset(name).loss_name == "td")]
    names = board if acts == "communicate" else [name for name in learners() if name != BOARD]
    assert all(np.linalg.norm(moved(name, acts)) > 0 for name in names)
    same = {pair: far for pair in combinations(names, 2) if (far := apart(*(moved(name, acts) for name in pair))) < SAME}
    assert not same
    print(min((apart(moved(a, acts), moved(b, acts)), a, b) for a, b in combinations(names, 2)))  # pytest -rP shows it


def test_one_method_under_two_names_is_noticed() -> None:
    here = f"{__name__}:again", f"{__name__}:idle"
    assert [apart(moved("grpo", "deliberate"), moved(name, "deliberate")) < SAME for name in here] == [True, True]


def test_another_method_under_a_known_name_says_so_where_methods_are_listed() -> None:
    """Its agents are five decision heads, and it learns from the batch just played: in the listing and in `docs/lab/methods.md`."""
    renamed = {name for name in registry.ids("preset") if named_preset(name).renames}
    assert renamed == {"qmix", "vdn", "maddpg", "shapley_q"}
    page = (Path(__file__).parents[3] / "docs" / "lab" / "methods.md").read_text()
    listed = {line.split("|")[1]: line for line in page.partition("## What each method is")[2].splitlines() if line.startswith("|")}
    told = CliRunner().invoke(presets, []).output
    for name in learners():
        says = "another method under a known name" in listed.get(name, "")
        assert says == (name in renamed), name
    assert " ".join(told.split()).count("another method under a known name") == len(renamed)
