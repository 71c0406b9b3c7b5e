"""HALO's numbers, AgentSpawn's trigger, LangMARL's split: the worked examples."""

from __future__ import annotations

import math

import pytest

from counterpoint.errors import InputError
from counterpoint.train.search import halo_backprop, halo_ucb, spawn_trigger


def test_halo() -> None:
    assert halo_ucb(0.6, 2, 5, as_released=True) == pytest.approx(1.555886, abs=1e-6)
    assert halo_ucb(0.6, 2, 5) == pytest.approx(1.855886, abs=1e-6)  # a mean is not divided again
    assert halo_ucb(0.0, 0, 5) == math.inf
    assert halo_backprop(0.6, 2, [0.5, 0.3], success=True) == (pytest.approx(0.66), 3)
    assert halo_backprop(0.6, 2, [], success=False) == (pytest.approx(0.5), 3)


def test_agent_spawn() -> None:
    assert spawn_trigger([0.9, 0.4, 0.7], [0.5, 0.25, 0.25], threshold=0.6, depth=2) == (pytest.approx(0.725), True)
    assert spawn_trigger([0.9, 0.4, 0.7], [0.5, 0.25, 0.25], threshold=0.6, depth=3)[1] is False
    assert spawn_trigger([0.1], [1.0], threshold=0.6, depth=0)[1] is False
    with pytest.raises(InputError, match="2 metrics and 1 weights"):
        spawn_trigger([1.0, 1.0], [1.0], threshold=0.5, depth=0)
