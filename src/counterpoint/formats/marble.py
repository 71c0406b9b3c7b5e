"""MARBLE (MultiAgentBench) results: iterations of a team under a planner, with milestones and scores.

One line of JSON is one run. Agents are fixed before the run; nobody spawns.

| record | becomes |
|---|---|
| `task` | `human_intervention` of `user`, event `task` |
| entry n of `iterations` | `orchestrator_decision` of `planner`, event `i{n}`, decision `delegate`; with its scores as `reward` |
| `task_assignments` | a `message` of the planner to each agent |
| `communications` | a `message` for each "From A to B:" in a session; one of `team` where no speaker is named |
| `task_results`, or `result` of `current_agent` or `root_agent` | a `return` of each agent to the planner |
| `summary` | `aggregate` of the planner |
| `continue_simulation: false` | `orchestrator_decision` `stop` |
| `token_usage` | `costs["tokens"]`, and `metrics`: a total, of which no event has a part |
| `agent_kpis`, `total_milestones` | `metrics` |
| `task_evaluation`, `code_quality` | `metrics`, one for each rating, and `rewards["team"]`: their mean, of five |

MARBLE rates on a scale of five whatever the task is: research ideas and code by several ratings, bargaining by those of the
buyer and of the seller, a building in Minecraft by five times the share of blocks that are right. A score of -1 means that
nothing was scored, and is absent. What a database task was to find stands beside what was found (`root_cause`, `predicted`);
nobody scored it.

What is lost: nothing of the records; times, tokens per call and tool calls are not in the source (results quote their output).

Always true: ids are made of the entry's place and the agent, so a run that is written again keeps them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from counterpoint.formats.draft import Draft
from counterpoint.formats.importer import Importer, Session, run_of
from counterpoint.formats.importing.files import first_keys
from counterpoint.formats.importing.lane import Lane
from counterpoint.formats.importing.values import as_dict, as_list, count, number, string, text_of
from counterpoint.trace import Trace, content_ref

_PLANNER = "planner"
_TOPOLOGIES = {"star": "centralized", "tree": "hierarchical"}
_SPOKEN = re.compile(r"^From ([^\s:]+) to ([^\s:]+): ", re.M)
_SESSION = re.compile(r"\s*In Session \S+\s*")
_BEST = 5
_MODEL_AND_TOOL = "tool calls: results quote what tools returned"


def _sniff(head: bytes) -> bool:
    return b'"coordination_mode"' in head and first_keys(head).keys() >= {"task", "coordination_mode"}


def _read(session: Session) -> Iterator[Trace]:
    for file in session.files:
        for line, run in session.entries(file):
            if isinstance(run.get("iterations"), list) and "task" in run:
                yield from _run(session, run)
            else:
                session.report.broke(file.name, line, "a run without iterations")


def _run(session: Session, run: dict[str, Any]) -> Iterator[Trace]:
    task, own = text_of(run["task"]), run_of(run)
    draft = session.draft(f"marble-{own}", content_ref(task)[7:23], system="marble", run=own)
    draft.topology = _TOPOLOGIES.get(str(run.get("coordination_mode")))
    planner = draft.lane(_PLANNER, role=_PLANNER, leads=True)
    planner.prompt(task, id="task")
    scores = {name: as_list(run.get(f"{name}_scores")) for name in ("planning", "communication")}
    for n, entry in enumerate(as_list(run["iterations"])):
        by_kind = {kind: _score(values, n) for kind, values in scores.items()}
        _iteration(draft, planner, f"i{n}", as_dict(entry), {kind: score for kind, score in by_kind.items() if score is not None})
    _outcome(draft, run)
    draft.report.lacks.update({"tokens per call: only a total": 1, _MODEL_AND_TOOL: 1})
    yield from draft.traces()


def _score(values: list[Any], n: int) -> float | None:
    score = number(values[n]) if n < len(values) else None
    return score if score is not None and score >= 0 else None


def _iteration(draft: Draft, planner: Lane, name: str, entry: dict[str, Any], scores: dict[str, float]) -> None:
    marks = {"iteration": entry.get("iteration", entry.get("chain_length")), "milestones": entry.get("total_milestones")}
    planner.step(
        id=name,
        kind="orchestrator_decision",
        decision="delegate",
        reward=scores or None,
        extra={**marks, "agent_kpis": entry.get("agent_kpis") or None},
    )
    for agent, task in as_dict(entry.get("task_assignments")).items():
        planner.send(agent, text_of(task), id=f"{name}:task:{agent}")
    results = list(_results(entry))
    known = {_PLANNER, *as_dict(entry.get("task_assignments")), *(agent for agent, _ in results)}
    for k, spoken in enumerate(_communications(entry.get("communications"))):
        _spoken(draft, f"{name}:talk{k}", spoken, known)
    for agent, text in results:
        _say(draft, "return", agent, _PLANNER, text, id=f"{name}:result:{agent}")
    if summary := text_of(entry.get("summary")):
        planner.step(id=f"{name}:summary", kind="aggregate", text=summary)
    if entry.get("continue_simulation") is False:
        planner.step(id=f"{name}:stop", kind="orchestrator_decision", decision="stop")


def _results(entry: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Agent and result: as {"agent_id", "result"}, as {agent: result}, or as the one result of a chain or tree."""
    results = entry.get("task_results")
    for row in [results] if isinstance(results, dict) else map(as_dict, as_list(results)):
        if agent := string(row.get("agent_id")):
            yield agent, text_of(row.get("result"))
        else:
            yield from ((agent, text_of(result)) for agent, result in row.items() if agent)
    if not results and "result" in entry:
        one = string(entry.get("current_agent")) or string(entry.get("root_agent"))
        yield one or "team", text_of(entry["result"])


def _communications(value: Any) -> Iterator[str]:
    if isinstance(value, list):
        for part in value:
            yield from _communications(part)
    elif text := text_of(value).strip():
        yield text


def _spoken(draft: Draft, name: str, text: str, known: set[str]) -> None:
    """The messages of one session; text before the first speaker is the session's heading."""
    marks = [m for m in _SPOKEN.finditer(text) if m[1] in known or m[2] in known]
    if not marks:
        draft.report.lacks["who said some of what was communicated"] += 1
        _say(draft, "message", "team", None, text, id=name)
        return
    heading = text[: marks[0].start()]
    for k, mark in enumerate(marks):
        end = marks[k + 1].start() if k + 1 < len(marks) else len(text)
        extra = {"heading": heading.strip()} if k == 0 and not _SESSION.fullmatch(heading) and heading.strip() else None
        _say(draft, "message", mark[1], mark[2], text[mark.end() : end].rstrip("\n"), id=f"{name}.{k}", extra=extra)


def _say(draft: Draft, kind: str, agent: str, to: str | None, text: str, *, id: str, extra: dict[str, Any] | None = None) -> None:
    """An agent speaks after all it has heard, and whom it speaks to hears it."""
    fields: dict[str, Any] = {"from_": agent, "to": to, "source": "peer", "trusted": True, "extra": extra}
    event = draft.lane(agent, role=agent).step(id=id, kind=kind, text=text, **fields)
    if to is not None and event is not None:
        draft.lane(to).hears(event, kind)


def _outcome(draft: Draft, run: dict[str, Any]) -> None:
    for key in ("token_usage", "total_milestones"):
        if (value := number(run.get(key))) is not None:
            draft.metrics[key] = value
    for agent, value in as_dict(run.get("agent_kpis")).items():
        if (kpi := number(value)) is not None:
            draft.metrics[f"kpi: {agent}"] = kpi
    if tokens := count(run.get("token_usage")):
        draft.costs["tokens"] = tokens
    rated = [ratings for key in ("task_evaluation", "code_quality") if (ratings := dict(_ratings(key, run.get(key))))]
    for ratings in rated:
        draft.metrics.update(ratings)
    of_five = [ratings for ratings in rated if max(ratings.values()) <= _BEST]
    if of_five:
        draft.rewards["team"] = sum(of_five[0].values()) / len(of_five[0]) / _BEST
    else:
        draft.report.lacks["an outcome: a rating is not of five" if rated else "an outcome: nothing was rated"] += 1
    known = {"task", "iterations"}
    draft.meta["marble"] = {key: value for key, value in run.items() if key not in known and value is not None}


def _ratings(name: str, value: Any) -> Iterator[tuple[str, float]]:
    """Each rating under its name: a number, or those in a record, which may stand in records of their own."""
    if isinstance(value, dict):
        for part, inner in value.items():
            yield from _ratings(f"{name}: {part}", inner)
    elif (score := number(value)) is not None and score >= 0:
        yield name, score


marble = Importer(
    suffixes=(".marble.jsonl",),
    sniff=_sniff,
    signs=("task", "coordination_mode", "iterations", "task_assignments", "task_results"),
    system="marble",
    read_session=_read,
    becomes={
        "task": ("human_intervention",),
        "iterations": ("orchestrator_decision",),
        "task_assignments, communications": ("message",),
        "task_results": ("return",),
        "summary": ("aggregate",),
        "scores, kpis, token_usage, task_evaluation": ("reward", "rewards", "metrics"),
    },
    versions="published runs",
    exact="assignments, scores, total tokens",
    lost="times, tokens per call, tool calls, database outcomes",
)
"""Results of MARBLE."""
