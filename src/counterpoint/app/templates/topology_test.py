"""plugin_name keeps the contract of a topology, and a team of fakes does in it what was counted by hand."""

from counterpoint.app.templates.topology import plugin_name
from counterpoint.team.session import play_in_memory
from counterpoint.testing import check_topology


def test_it_keeps_the_contract() -> None:
    check_topology(plugin_name)


def test_one_worker_by_hand() -> None:
    events = play_in_memory(plugin_name, seed=0).events
    assert [(e.agent, e.to) for e in events if e.type == "spawn"] == [("lead", "lead.1")]
    assert sum(e.type == "return" for e in events) == 1
