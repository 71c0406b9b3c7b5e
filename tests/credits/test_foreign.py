"""Credit from a mechanism that is not shipped: malformed, it is refused by the plug-in's own name."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import counterpoint as cpt
from counterpoint.credits.mechanism import Mechanism
from counterpoint.errors import InputError, NotIdentified
from counterpoint.trace.example import rollouts
from counterpoint.trace.rows import Credit, CreditRow


def gives(*rows: CreditRow, **more: Any) -> Callable[..., Credit]:
    return lambda traces: Credit("mine", "x", "declared" in more, tuple(t.trace_id for t in traces), rows, **more)


def raises(error: Exception) -> Callable[..., Credit]:
    def run(traces: Any) -> Credit:
        raise error

    return run


def asked(monkeypatch: pytest.MonkeyPatch, run: Callable[..., Any]) -> Credit:
    module = ModuleType("my_lab_credit")
    said = dict.fromkeys(("estimand", "assumptions", "cost", "source"), "x")
    module.mine = Mechanism(unit="agent", additive=False, run=run, **said)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "my_lab_credit", module)
    return cpt.credit(rollouts()[:1], "my_lab_credit:mine")


ROW = CreditRow(0, "agent", "w1", 1.0)


@pytest.mark.parametrize(
    ("run", "what"),
    [
        (gives(ROW, ROW._replace(trace=99)), "it credits trace 99 of 1"),
        (gives(ROW._replace(trace=-1)), "it credits trace -1 of 1"),
        (gives(ROW._replace(unit_id="nobody")), "it credits agent 'nobody', and easy-0 has none"),
        (gives(ROW, ROW), "it credits agent 'w1' of easy-0 twice"),
        (gives(ROW, declared=np.array([2.0])), "the agent rows miss their sum by 1"),
        (gives(ROW, unidentified={(5, "w2"): "why"}), "it refuses a unit of trace 5"),
        (lambda traces: None, "it gives a NoneType, not a Credit"),
        (lambda traces: Credit("mine", "x", False, ("other",), ()), "names other traces"),
        (raises(ZeroDivisionError("by zero")), "the mechanism failed: ZeroDivisionError: by zero"),
    ],
)
def test_what_is_wrong_is_the_plug_ins(monkeypatch: pytest.MonkeyPatch, run: Callable[..., Any], what: str) -> None:
    with pytest.raises(InputError) as error:
        asked(monkeypatch, run)
    assert what in error.value.what
    assert error.value.where == "my_lab_credit:mine"
    assert "bug in Counterpoint" not in str(error.value)


def test_what_is_right_is_taken_and_refusals_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = (ROW, CreditRow(0, "turn", "w1#1", 1.0), CreditRow(0, "team", "", 2.0))
    assert asked(monkeypatch, gives(*rows)).rows == rows
    with pytest.raises(NotIdentified, match="not here"):
        asked(monkeypatch, raises(NotIdentified("not here", "go there")))
