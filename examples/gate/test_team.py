"""Tests of the team. `pytest` runs them as they are; `pytest --counterpoint` keeps each run and holds it to the limits."""

from __future__ import annotations

import pytest
from team import lead

ANSWERS = {"bridge": "1932", "tower": "1710", "river": "2850", "island": "364", "mountain": "1786", "lake": "254"}


@pytest.mark.counterpoint(max_cost=0.01, max_failures=0, min_score=1.0)
@pytest.mark.parametrize("page", ANSWERS)
def test_the_number_is_found(page, counterpoint_recording):
    answer = lead(page)
    counterpoint_recording.reward(team=answer == ANSWERS[page])
    assert answer == ANSWERS[page]
