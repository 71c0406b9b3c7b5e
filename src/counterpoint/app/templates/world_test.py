"""plugin_name keeps the contract of a world, and its optimum is what was computed by hand."""

from counterpoint.app.templates.world import plugin_name
from counterpoint.testing import check_env


def test_it_keeps_the_contract() -> None:
    check_env(plugin_name)


def test_an_optimum_by_hand() -> None:
    # two flips of a fair coin: after a head, a point is as good as half of two; so the value is a half of one
    assert plugin_name.replace(heads=0.5, horizon=2).optimum().value == 0.5
