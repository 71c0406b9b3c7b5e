"""tau-bench and tau2-bench: one agent that serves a simulated user with tools, and the reward of each run.

A file is a list of runs, one run, or one per line (`task_id`, `reward`, `info`, `traj`, `trial`), as its runner writes them and
as AgentRx publishes those that failed.

| record | becomes |
|---|---|
| system message | `message` of `system` |
| user message | `human_intervention`: the user is simulated, and nothing tells them apart |
| user message `API output: ...`, of an agent that writes its calls as text | `tool_result` |
| assistant message | `orchestrator_decision`, with a `tool_call` for each call, or for `Action: {...}` in it |
| tool message | `tool_result`, untrusted |
| `reward` | `rewards["team"]` |

tau2-bench keeps its runs under `simulations`, with times, tokens and errors of tools on the messages.

What is lost: tokens, times and the model, where they are not in the source; the state of the shop; what the simulated user
spent and called (counted).

Always true: a run whose messages are of unknown roles for more than half of them is refused.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

from counterpoint.errors import InputError
from counterpoint.formats.importer import Importer, Session, run_of
from counterpoint.formats.importing.chat import Call, message_of
from counterpoint.formats.importing.dialogue import MAIN, Answer, Dialogue, Entry, play, require_half
from counterpoint.formats.importing.files import File, first_keys
from counterpoint.formats.importing.usage import Usage
from counterpoint.formats.importing.values import as_dict, as_list, decode, number, seconds, string
from counterpoint.trace import Trace

_KEYS = {"task_id", "reward", "traj"}
_OBSERVED = "API output: "
_ACTION = re.compile(r"Action:\s*(\{.*\})\s*$", re.S)
_FAILED = re.compile(r"Error\b[: ]")


def _sniff(head: bytes) -> bool:
    keys = first_keys(head).keys()
    if b'"simulations"' in head and keys >= {"info", "tasks", "simulations"}:
        return True
    return b'"traj"' in head and keys >= _KEYS


def _read(session: Session) -> Iterator[Trace]:
    for file in session.files:
        unknown: Counter[str] = Counter()
        runs = []
        messages = 0
        for line, run in _runs(session, file):
            if not isinstance(run.get("traj"), list):
                session.report.broke(file.name, line, "a run without messages (traj)")
                continue
            runs.append((run, [entry for k, raw in enumerate(run["traj"]) for entry in _entries(f"m{k}", raw, unknown)]))
            messages += len(run["traj"])
        require_half(file.name, messages, unknown)
        session.report.unknown.update(unknown)
        for run, entries in runs:
            yield from _run(session, run, entries)


def _runs(session: Session, file: File) -> Iterator[tuple[int, dict[str, Any]]]:
    """The runs in a file, those of tau2-bench under the names of the first."""
    for line, value in session.entries(file):
        if "simulations" not in value:
            yield line, value
            continue
        about = {k: v for k, v in as_dict(value.get("info")).items() if k in ("agent_info", "user_info")}
        for number_, run in enumerate(map(as_dict, as_list(value["simulations"])), 1):
            rest = {k: v for k, v in run.items() if k not in ("messages", "reward_info", "ticks")}
            reward = as_dict(run.get("reward_info")).get("reward")
            yield number_, {**rest, "traj": run.get("messages"), "reward": reward, "info": about}


def _run(session: Session, run: dict[str, Any], entries: list[Entry]) -> Iterator[Trace]:
    task, trial = run.get("task_id"), run.get("trial")
    name = f"tau-bench/{task}" + (f"/{trial}" if trial is not None else "")
    draft = session.draft(name, f"tau-bench/{task}", system="tau-bench", run=run_of(run))
    _settle_actions(entries)
    model = string(as_dict(as_dict(run.get("info")).get("agent_info")).get("llm"))
    for entry in entries:
        entry.model = model if entry.role == "assistant" else None
    play(draft, [Dialogue(role="assistant", entries=entries)])
    draft.lane(MAIN).stops()
    if (reward := number(run.get("reward"))) is not None:
        draft.rewards["team"] = reward
    info = as_dict(run.get("info"))
    if error := string(info.get("error")):
        draft.meta["error"] = error
    draft.meta["tau_bench"] = {k: v for k, v in {**run, **info}.items() if k not in ("traj", "info", "records") and v is not None}
    if model is None:
        draft.report.lacks["the model"] += 1
    if more := sum(1 for raw in run["traj"] if _is_users_own(as_dict(raw))):
        draft.report.lacks["the tokens and calls of the simulated user"] += more
    yield from draft.traces()


def _entries(name: str, raw: Any, unknown: Counter[str]) -> Iterator[Entry]:
    message = message_of(raw)
    if message is None or message.role not in ("system", "user", "assistant", "tool", "function"):
        unknown[f"message of role {message.role}" if message else "a message without a role"] += 1
        return
    if message.role == "tool" and raw.get("requestor") == "user":
        return  # the simulated user called it
    at, calls = seconds(raw.get("timestamp")), message.calls if message.role == "assistant" else []
    entry = Entry(message.role, message.text, name, at, message.thinking, calls)
    if message.role == "assistant":
        entry.usage, entry.cost = Usage.openai(raw.get("usage")), number(raw.get("cost")) or None
    if message.role in ("tool", "function"):
        tool = string(raw.get("name"))
        failed = raw["error"] if isinstance(raw.get("error"), bool) else _FAILED.match(message.text) is not None
        error = (message.text[:500] or "error") if failed else None
        call = message.call or string(raw.get("id"))
        entry = Entry("tool", id=name, at=at, answers=[Answer(message.text, call, tool, ok=not failed, error=error, at=at)])
    elif (called := as_dict(raw.get("function_call"))) and (tool := string(called.get("name"))):
        entry.calls.append(Call(None, tool, called.get("arguments")))
    yield entry


def _is_users_own(raw: dict[str, Any]) -> bool:
    """Whether a message says what the simulated user spent or called."""
    return raw.get("role") == "user" and bool(raw.get("usage") or raw.get("tool_calls"))


def _settle_actions(entries: list[Entry]) -> None:
    """Calls that an agent wrote as text, and what the harness answered in the user's name."""
    for before, entry in pairwise(entries):
        if before.role != "assistant" or before.calls or not (entry.role == "user" and entry.text.startswith(_OBSERVED)):
            continue
        call = _action(before.text)
        if call is None:
            continue
        before.calls.append(call)
        text = entry.text.removeprefix(_OBSERVED)
        failed = _FAILED.match(text) is not None
        entry.role, entry.text = "tool", ""
        entry.answers.append(Answer(text, None, call.tool, ok=not failed, error=text[:500] if failed else None))


def _action(text: str) -> Call | None:
    found = _ACTION.search(text)
    try:
        action = as_dict(decode(found[1])) if found else {}
    except InputError:
        return None
    tool = string(action.get("name"))
    return Call(None, tool, action.get("arguments")) if tool else None


tau_bench = Importer(
    suffixes=(".tau.json",),
    sniff=_sniff,
    signs=("task_id", "reward", "info", "traj", "trial"),
    system="tau-bench",
    read_session=_read,
    becomes={
        "system message": ("message",),
        "user message": ("human_intervention", "tool_result"),
        "assistant message": ("orchestrator_decision", "tool_call"),
        "tool message": ("tool_result",),
        "reward": ("rewards",),
        "info": ("meta",),
    },
    versions="tau-bench of 2024, tau2-bench of 2025",
    exact="calls, reward",
    lost="the shop's state, what the simulated user spent; tau-bench: tokens, times, the model",
)
"""Runs of tau-bench."""
