"""plugin_name keeps the contract of a preset: it names what there is, and learns on a small world."""

from counterpoint.app.templates.preset import plugin_name
from counterpoint.testing import check_preset


def test_it_keeps_the_contract() -> None:
    check_preset(plugin_name)


def test_an_update_by_hand() -> None:
    assert plugin_name.episodes / plugin_name.group == 4  # tasks per update, each played four times
