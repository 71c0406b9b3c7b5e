"""plugin_name: a desk of cases: the lead calls somebody or nobody, and who is called may check.

Always true: every draw is a hash of (seed, key), so that an episode is a function of (world, policy, seed); a decision gives its
options as numbers, equally many in all, so that `counterpoint train net` learns here. The optimum is exact: cases are apart.
"""

from __future__ import annotations

from dataclasses import dataclass

from counterpoint.errors import InputError
from counterpoint.lab.worlds.rules.decision import Decision
from counterpoint.lab.worlds.rules.world import RulesWorld
from counterpoint.lab.worlds.world import Optimum, parameter
from counterpoint.trace.keyed import purpose, uniform

WHOM, AFTER = ("nobody", "quick", "careful"), ("hand in", "check")
DIFFICULTY, WORTH = (0.0, 0.5, 1.0), (0.25, 1.0, 3.0)
"""What cases may be; all pairs are equally likely."""


@dataclass(frozen=True)
class Config:
    """The numbers of the desk."""

    cases: int = parameter(4, "cases", "Cases of an episode.")
    slip: tuple[float, ...] = parameter((0.9, 0.1), "1", "How likely a case of difficulty 1 goes wrong: quick, careful.")
    price: tuple[float, ...] = parameter((0.05, 0.9), "points", "Of a call: quick, careful.")
    check_price: float = parameter(0.25, "points", "Of a check, which finds half of what went wrong.")
    harm: float = parameter(2.0, "points", "Lost where a wrong answer is handed in.")

    def __post_init__(self) -> None:
        if not isinstance(self.cases, int) or isinstance(self.cases, bool) or self.cases < 1:
            raise InputError(f"cases cannot be {self.cases!r}", fix="a whole number from 1 on")


class Day:
    """One episode: the rules. `decision` says what is due, `act` carries out an option of it and says what that pays."""

    def __init__(self, config: Config, seed: int) -> None:
        self.config, self.seed, self.case = config, seed, 0
        self.called = 0
        """Who works on the case: 0 is nobody yet."""

    def _draw(self, what: str) -> float:
        return float(uniform(self.seed, purpose(what), self.case))

    def decision(self) -> Decision | None:
        """Whom to call is the lead's decision, and whether to check is the called one's."""
        if self.case == self.config.cases:
            return None
        difficulty, worth = DIFFICULTY[int(3 * self._draw("difficulty"))], WORTH[int(3 * self._draw("worth"))]
        state = (difficulty, worth, float(self.called == 1), float(self.called == 2))
        if not self.called:
            return Decision(kind="delegate", state=state, options=((1, 0, 0, 0), (0, 1, 0, 0), (0, 0, 1, 0)), names=WHOM)
        who = WHOM[self.called]
        return Decision(kind="aggregate", state=state, options=((0, 0, 0, 0), (0, 0, 0, 1)), names=AFTER, agent=who)

    def act(self, option: int) -> float:
        """Points that this pays at once."""
        if not self.called:
            self.called = option
            self.case += option == 0
            return -self.config.price[option - 1] if option else 0.0
        difficulty, worth = DIFFICULTY[int(3 * self._draw("difficulty"))], WORTH[int(3 * self._draw("worth"))]
        wrong = wrong_chance(self.config, difficulty, self.called, is_checked=option == 1)
        paid = -self.config.harm if self._draw("slip") < wrong else worth
        self.case, self.called = self.case + 1, 0
        return paid - option * self.config.check_price


def wrong_chance(config: Config, difficulty: float, who: int, *, is_checked: bool) -> float:
    """How likely what is handed in is wrong."""
    return config.slip[who - 1] * difficulty * (0.5 if is_checked else 1.0)


def best(config: Config) -> Optimum:
    """Every case on its own: the best of nobody, each worker, and each worker with a check."""

    def expected(difficulty: float, worth: float, who: int, is_checked: bool) -> float:
        wrong = wrong_chance(config, difficulty, who, is_checked=is_checked)
        return (1 - wrong) * worth - wrong * config.harm - config.price[who - 1] - is_checked * config.check_price

    ways = [(who, is_checked) for who in (1, 2) for is_checked in (False, True)]
    cases = [max(0.0, *(expected(d, w, *way) for way in ways)) for d in DIFFICULTY for w in WORTH]
    how = "the mean over all cases of the best expected pay of a case"
    return Optimum(value=config.cases * sum(cases) / len(cases), kind="exact", over="every policy", how=how)


def quick(decision: Decision) -> int:
    """Always the quick one, and never a check."""
    return WHOM.index("quick") if decision.kind == "delegate" else AFTER.index("hand in")


plugin_name = RulesWorld(
    name="plugin_name",
    config=Config(),
    begin=Day,
    best=best,
    rules={"quick": quick},
    silent={
        "spawn": "Both workers are always there.",
        "communicate": "A case is told in full, at no price.",
        "stop": "An episode ends with its last case.",
    },
)

# -- test_plugin_name.py -----------------------------------------------------------------------------------------------
"""plugin_name keeps the contract of a world, its optimum is what was computed by hand, and a network learns in it."""

from pathlib import Path

import numpy as np
import pytest

# from here import Day, plugin_name
from counterpoint.lab.testing import check_world


def test_it_keeps_the_contract() -> None:
    check_world(plugin_name)


def test_an_optimum_by_hand() -> None:
    # nobody slips, so the quick one does every case unchecked: 12 cases of a mean worth of 4.25 / 3, less 0.05 each
    assert plugin_name.replace(cases=12, slip=(0.0, 0.0)).optimum().value == pytest.approx(16.4)


def test_a_network_learns_here(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    import counterpoint as cpt

    settings = {"updates": 30, "eval_every": 30, "eval_episodes": 200}
    run = cpt.train(f"{Day.__module__}:plugin_name", preset="grpo", out=tmp_path / "run", **settings).run
    first, last = (np.array(row["values"]) for row in (run.evals()[0], run.evals()[-1]))
    gain = last - first  # on the same held-out seeds
    half = 1.96 * gain.std(ddof=1) / len(gain) ** 0.5
    assert gain.mean() - half > 0.5, f"it gained {gain.mean():.2f} ± {half:.2f} points per episode"
    assert last.mean() > plugin_name.run("quick", range(200)).values.mean()
