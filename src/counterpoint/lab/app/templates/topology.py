"""plugin_name: one worker does everything, and the root passes on what it said.

Always true: the worker hears nobody but the root; a root that stops at once answers itself.
"""

from __future__ import annotations

from counterpoint.lab.tasks.task import Choice, Subtask
from counterpoint.lab.team.agent import Team
from counterpoint.lab.team.topology import Topology


async def _run(team: Team) -> str:
    root = team.root("orchestrator")
    asked = [Choice("spawn", "worker", ""), Choice("stop", "", None)]
    chosen = await root.choose("turn", asked, key="lead|turn|1")
    if chosen.act is None or chosen.act.verb == "stop":
        return chosen.act.text if chosen.act else ""
    worker = root.spawn("worker", 1, chosen.event)
    if worker is None:  # a limit or an edit says no
        return ""
    back = await worker.work(Subtask("all", team.instance.question))
    root.hear_return(back)
    return back.text


plugin_name = Topology(run=_run)


# -- test_plugin_name.py -----------------------------------------------------------------------------------------------
"""plugin_name keeps the contract of a topology, and a team of fakes does in it what was counted by hand."""

# from here import plugin_name
from counterpoint.lab.team.session import play_in_memory
from counterpoint.lab.testing import check_topology


def test_it_keeps_the_contract() -> None:
    check_topology(plugin_name)


def test_one_worker_by_hand() -> None:
    events = play_in_memory(plugin_name, seed=0).events
    assert [(e.agent, e.to) for e in events if e.type == "spawn"] == [("lead", "lead.1")]
    assert sum(e.type == "return" for e in events) == 1
