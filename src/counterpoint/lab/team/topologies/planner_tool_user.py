"""Planner and tool user: one plans, the other acts with tools and reports, until the planner stops.

Always true: there are two, from the start to the end; the planner has no tools and the tool user (in the role of an executor)
hears nobody else. Before it stops the planner has said at least one plan; `limits.turns` plans and stops are all there are, and
at the last of them it can only stop. What the tool user returned last is the draft that a stop without words answers with.

As AT-GRPO's planning teams (arXiv 2510.11062: a tool user and an executor in turns until solved, four turns at most); there the
tool user speaks first.
"""

from __future__ import annotations

from counterpoint.lab.tasks.task import Choice, Subtask, ViewItem
from counterpoint.lab.team.agent import Agent, Team
from counterpoint.lab.team.topology import Topology

_FAILURES = 3


async def _run(team: Team) -> str:
    planner = team.root("planner")
    user = planner.spawn("executor", 1, None)
    failures, most = 0, team.limits.turns
    for turn in range(1, most + 1):
        choices = _choices(team, user, is_first=turn == 1, is_last=turn == most)
        chosen = await planner.choose("work", choices, key=f"{planner.name}|turn|{turn}")
        if chosen.act is None:
            failures += 1
            if failures == _FAILURES:
                return _forced(planner, "no legal action, three times")
        elif chosen.act.verb == "stop":
            return chosen.act.text or team.draft
        elif user is not None and chosen.event is not None:
            failures = 0
            await _turn(planner, user, Subtask(f"t{turn}", chosen.act.text), chosen.event)
    return _forced(planner, "no turns left")


def _choices(team: Team, user: Agent | None, *, is_first: bool, is_last: bool) -> list[Choice]:
    """A plan, and after the first one a stop: with the draft, or with an answer of its own."""
    plan = [] if user is None or is_last else [Choice("message", user.name, None, "what to do, in words")]
    if is_first and plan:
        return plan
    draft = [Choice("stop", "", "", "answer with what came back last")] if team.draft else []
    return [*plan, *draft, Choice("stop", "", None, team.instance.answer_format)]


async def _turn(planner: Agent, user: Agent, plan: Subtask, event: str) -> None:
    """One plan, done and reported."""
    user.hear(ViewItem("subtask", planner.name, plan.text, plan.id), event, "message")
    back = await user.work(plan)
    planner.hear_return(back)
    if back.ok and back.event is not None:
        planner.team.draft = back.text


def _forced(planner: Agent, why: str) -> str:
    """Stop because the planner may not go on."""
    team = planner.team
    team.emit(
        planner, "orchestrator_decision", key=f"{planner.name}|end", reads=planner.take_unread(), decision="stop",
        policy="forced", role=planner.role, text=team.draft, error=why,
    )  # fmt: skip
    return team.draft


planner_tool_user = Topology(run=_run, root="planner", workers=("executor",), is_fixed=True)
