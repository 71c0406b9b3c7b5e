"""Traces as paths: the same numbers as the world's own, nothing from the future, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest

from counterpoint import registry
from counterpoint.errors import InputError, Refused
from counterpoint.guard.stop_paths import FEATURES, draft_numbers, from_traces


@pytest.mark.parametrize("name", ["s0", "s1", "s2", "s3"])
def test_traces_give_the_paths_of_their_world(name: str) -> None:
    world = registry.get("world", name).replace(horizon=9)
    found, own = from_traces(world.trace(seed) for seed in range(8)), world.paths(range(8))
    assert found.payoffs == pytest.approx(own.payoffs)
    assert (found.features == own.features).all()
    assert found.names == FEATURES
    assert found.about["world"] == name
    assert found.about["config"]["horizon"] == 9


def test_evidence_is_what_the_draft_says() -> None:
    trace = registry.get("world", "s1").replace(horizon=4).trace(3)
    assert (draft_numbers(trace) == registry.get("world", "s1").replace(horizon=4).paths([3]).features[0, :, 1]).all()


def test_what_cannot_be_learned_from_is_refused() -> None:
    s1 = registry.get("world", "s1").replace(horizon=5)
    with pytest.raises(InputError, match="no traces"):
        from_traces([])
    with pytest.raises(Refused, match="later payoffs are not known"):
        from_traces([s1.trace(0, "cap:2", forced=False)])
    with pytest.raises(InputError, match="5 to 6 checkpoints"):
        from_traces([s1.trace(0), s1.replace(horizon=4).trace(0)])
    with pytest.raises(Refused, match="different worlds, versions or policies"):
        from_traces([s1.trace(0), s1.trace(1, "never")])
    with pytest.raises(InputError, match="of evidence for 6"):
        from_traces([s1.trace(0)], evidence=lambda trace: np.zeros(2))
