"""Options of the wrong kind are one clear error that names the option and what it takes."""

from __future__ import annotations

import inspect
import typing
from typing import Any, Literal

import pytest

import counterpoint.registry as registry
from counterpoint.credits.mechanism import Mechanism
from counterpoint.errors import InputError
from counterpoint.options import PositiveInt, Share, check_options
from counterpoint.trace.example import rollouts

WRONG = [
    ("puppeteer", "gamma", float("nan"), "gamma takes a number from 0 to 1"),
    ("puppeteer", "gamma", "nan", "gamma takes a number from 0 to 1"),
    ("puppeteer", "lam", "abc", "lam takes a number"),
    ("shapley", "orders", 2.5, "orders takes a whole number or null"),
    ("shapley", "orders", "many", "orders takes a whole number or null"),
    ("shapley", "tie", float("nan"), "tie takes a number from 0 to 1"),
    ("shapley", "tie", 7, "tie takes a number from 0 to 1"),
    ("shapley", "seed", -1, "seed takes a whole number of 0 or more"),
    ("sharp", "lambda_s", "abc", "lambda_s takes a number"),
    ("message_delete", "k", 2.5, "k takes a whole number"),
    ("message_delete", "coupled", 1, "coupled takes true or false"),
    ("spiral", "decay", "fast", "decay takes a number from 0 to 1"),
    ("hierarchical", "d", "x", "d takes a whole number or null"),
    ("critical_steps", "budget", "few", "budget takes a whole number of 0 or more or null"),
    ("malt", "threshold", "half", None),
    ("cone", "discount", "big", "discount takes a number"),
    ("ledger", "unit", 3, "unit takes a text"),
    ("group_relative", "eps", "tiny", "eps takes a number or null"),
    ("group_relative", "key", 3, "key takes a text or a function"),
    ("fold_grpo", "process", "x", "process takes a function or null"),
]


@pytest.mark.parametrize(("name", "option", "value", "fix"), WRONG)
def test_a_wrong_option_is_named(name: str, option: str, value: Any, fix: str | None) -> None:
    with pytest.raises(InputError) as error:
        registry.get("mechanism", name)(rollouts(), **{option: value})
    assert option in error.value.what
    assert fix is None or error.value.fix == fix


@pytest.mark.parametrize("name", registry.ids("mechanism"))
def test_every_shipped_mechanism_says_what_its_options_are(name: str) -> None:
    mechanism: Mechanism = registry.get("mechanism", name)
    told = typing.get_type_hints(mechanism.run, include_extras=True)
    assert set(mechanism.options) <= set(told)
    defaults = {n: p.default for n, p in inspect.signature(mechanism.run).parameters.items() if p.default is not p.empty}
    check_options(mechanism.run, defaults)  # what is the default is taken


def _run(traces: Any, *, how: Literal["a", "b"] = "a", n: PositiveInt = 1, share: Share | None = None, odd: int | list[int] = 1) -> None: ...


def test_what_a_plug_in_says() -> None:
    check_options(_run, {"how": "b", "n": 1, "share": 0, "odd": [1]})
    for wrong, fix in (
        ({"how": "c"}, "how takes one of a, b"),
        ({"n": 0}, "n takes a whole number of 1 or more"),
        ({"n": True}, "n takes a whole number of 1 or more"),
        ({"share": 1.5}, "share takes a number from 0 to 1 or null"),
        ({"odd": "x"}, "odd takes a whole number or a list"),
    ):
        with pytest.raises(InputError, match=" is ") as error:
            check_options(_run, wrong)
        assert error.value.fix == fix
    check_options(lambda traces, k=1: None, {"k": "anything"})  # nothing is said, nothing is checked
