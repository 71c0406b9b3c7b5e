"""`remerge` in numbers by hand: Shapley values of recorded merges, what they sum to, and who has no row."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import pytest

from counterpoint.credits.mechanisms.remerge import MOST_EXACT, remerge
from counterpoint.errors import NotIdentified
from counterpoint.trace.example import rollouts

# what the answer scores with these workers, and with nobody: never 0, so that a sum is no difference
WORTH = {(): 0.25, ("w1",): 0.5, ("w2",): 0.75, ("w1", "w2"): 1.0}


class _Two:
    workers = ["w1", "w2"]

    def __init__(self, trace: object) -> None:
        self.trace = trace

    def score(self, absent: Collection[str]) -> float:
        return WORTH[tuple(w for w in self.workers if w not in absent)]


def test_two_workers_by_hand() -> None:
    """phi_1 = ((0.5 - 0.25) + (1 - 0.75)) / 2, phi_2 = ((0.75 - 0.25) + (1 - 0.5)) / 2, and the sum is v(all) - v(nobody)."""
    traces = rollouts()[:2]
    found = remerge(traces, merged=_Two)
    for k in range(2):
        assert found.of(k) == pytest.approx({"w1": 0.25, "w2": 0.5})
    assert found.declared is not None
    assert found.declared.tolist() == pytest.approx([0.75, 0.75])
    told = [(one["v_all"], one["v_nobody"]) for one in found.notes["traces"]]
    assert told == [(1.0, 0.25), (1.0, 0.25)]
    assert [(r.trace, r.unit, r.se) for r in found.rows] == [(k, "agent", None) for k in (0, 0, 1, 1)]
    others = {name for k, name in found.unidentified if k == 0}
    assert others == traces[0].members - {"w1", "w2"}


@pytest.mark.parametrize("count", [MOST_EXACT, MOST_EXACT + 1])
def test_up_to_eight_workers_it_is_exact_and_beyond_sums_all_the_same(count: int) -> None:
    """v(S) = |S|^2 + 3: by symmetry each gets n, whatever is drawn where it is exact."""
    names = [f"v{n}" for n in range(count)]

    class Many(_Two):
        workers = names

        def score(self, absent: Collection[str]) -> float:
            return float(count - len([*absent])) ** 2 + 3.0

    found = remerge(rollouts()[:1], merged=Many, orders=4, seed=1)
    assert sum(r.value for r in found.rows) == pytest.approx(count**2)
    assert found.declared is not None
    assert found.declared.tolist() == pytest.approx([count**2])
    if count == MOST_EXACT:
        assert [r.value for r in found.rows] == pytest.approx([count] * count)
        assert all(r.se is None for r in found.rows)
        return
    other = remerge(rollouts()[:1], merged=Many, orders=4, seed=2)
    assert [r.value for r in other.rows] == pytest.approx([r.value for r in found.rows])  # antithetic pairs of a square: exact again
    assert found.notes["traces"][0]["orders"] == 4


@pytest.mark.parametrize("merged", [None, lambda trace: None])
def test_a_team_whose_merges_nobody_can_make_again_is_refused(merged: Any) -> None:
    with pytest.raises(NotIdentified, match=r"nothing here can make this team's merges again"):
        remerge(rollouts()[:1], merged=merged)
