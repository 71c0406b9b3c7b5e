"""Random worlds: a function of their seed, kept by what hand-made play gets and by nothing that learns."""

from __future__ import annotations

from typing import Any

import pytest

from counterpoint.errors import NotFound
from counterpoint.lab.bench.race.plan import planned_race
from counterpoint.lab.worlds.teamworld import random_worlds as module
from counterpoint.lab.worlds.teamworld.suites import SUITES


class Known:
    """A world by its bound and what rules get."""

    def __init__(self, bound: float, known: float, *fixed: float) -> None:
        self.bound, self.rules = bound, {"known": known, **{f"rule{i}": x for i, x in enumerate(fixed)}}


def test_a_world_is_a_function_of_its_seed_and_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_tells_apart", lambda world: True)
    first, again, other = (module.random_worlds.__wrapped__(seed, 3) for seed in (7, 7, 8))
    assert [(w.name, w.set, w.mix) for w in first] == [(w.name, w.set, w.mix) for w in again]
    assert [w.name for w in first] == ["random1", "random2", "random3"]
    assert all(a.set != b.set for a, b in zip(first, other, strict=True))
    for world in first:
        assert 1 <= len(world.mix) <= 3
        assert all(3 <= count <= 12 for sort in world.mix for count in sort.values() if count)
        assert world.configs  # the dials are those of a world


@pytest.mark.parametrize(
    ("world", "is_kept"),
    [
        (Known(10, 6, 0, 4), True), (Known(10, 4.9, 0), False), (Known(10, 10.5, 0), False), (Known(10, 8, 6.5), False),
        (Known(10, 8, 6.4), True), (Known(-1, 6, 0), False), (Known(float("inf"), 6, 0), False),
    ],
)  # fmt: skip
def test_a_draw_is_kept_where_hand_made_play_leaves_room(world: Any, is_kept: bool) -> None:
    assert module._tells_apart(world) is is_kept


def test_a_suite_by_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    assert module.worlds_of_suite("core") == SUITES["core"]
    assert module.worlds_of_suite("random") == module.worlds_of_suite("random:x") == module.worlds_of_suite("cor") == ()
    monkeypatch.setattr(module, "random_worlds", lambda seed: (seed,))
    assert module.worlds_of_suite("random:12") == (12,)
    with pytest.raises(NotFound, match="random:SEED"):
        planned_race(suite="rndom:3")
