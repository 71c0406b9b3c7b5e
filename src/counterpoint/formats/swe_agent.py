"""SWE-agent and mini-swe-agent: trajectories (`.traj`, `.traj.json`), and histories alone.

| record | becomes |
|---|---|
| system message | `message` of `system` |
| first message of the user | `human_intervention` |
| a step of `trajectory`, an assistant message | one `orchestrator_decision`; `tool_call` for its action |
| its observation, the message after it | `tool_result`; it failed where its `returncode` is not 0 |
| other messages of the user, demonstrations | `message` of the harness |

An action without a tool call is a command: SWE-agent's own are tools by name, others are `bash`. Where there is a `trajectory`,
its steps count, as histories leave out what was asked again.

Tokens: those of each answer (mini-swe-agent); SWE-agent states them for the run (`model_stats`), and they stand on its last step.

What is lost: times (SWE-agent), the state of the environment, the configuration.

Always true: a step is put down once, in the order of the file.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from typing import Any

from counterpoint.formats.importer import Importer, Session, run_of
from counterpoint.formats.importing.chat import Call, message_of
from counterpoint.formats.importing.dialogue import MAIN, Answer, Dialogue, Entry, play, require_half
from counterpoint.formats.importing.files import first_keys
from counterpoint.formats.importing.usage import Usage
from counterpoint.formats.importing.values import as_dict, as_list, count, number, seconds, string, text_of
from counterpoint.trace import Trace

_OWN = frozenset(
    {"open", "create", "edit", "submit", "goto", "scroll_up", "scroll_down", "search_dir", "search_file", "find_file"}
)
_FENCED = re.compile(r"```(?:mswea_bash_command|bash)\s*\n(.*?)\n```", re.DOTALL)
_CODE = re.compile(r"<returncode>(-?\d+)</returncode>")
_MINI = (b"mswea_bash_command", b"COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT", b"MINI_SWE_AGENT_FINAL_OUTPUT")
_ROLES = frozenset({"system", "user", "assistant", "tool", "exit"})
_AGENT = re.compile(rb'"message_type"\s*:\s*"(?:system_prompt|observation|action|demonstration|thought)"')
_TOLD = "stated for the run: on its last step"


def _sniff(head: bytes) -> bool:
    keys = first_keys(head)
    if {"role", "content"} <= keys.keys():
        begins = head.lstrip(b"\xef\xbb\xbf \t\r\n")
        is_mini = begins[:1] == b"[" and any(sign in head for sign in _MINI)
        return is_mini or ("agent" in keys and "message_type" in keys and _AGENT.search(head) is not None)
    if keys.get("trajectory_format", b"").strip().startswith(b'"mini-swe-agent') or b'"mini_version"' in head:
        return "messages" in keys or "info" in keys
    if keys.keys() == {"info", "messages"} and b'"model_stats"' in head and b'"exit_status"' in head:
        return b"```bash" in head or any(sign in head for sign in _MINI)
    if "messages" in keys and keys.keys() <= {"messages", "info", "trajectory_format", "instance_id"}:
        return any(sign in head for sign in _MINI)
    has_steps = b'"observation"' in head and b'"action"' in head and b'"thought"' in head
    if "trajectory" in keys and has_steps:
        return keys.keys() <= {"environment", "trajectory", "history", "info", "replay_config"} or b'"state"' in head
    return list(keys) == ["history"] and b'"agent"' in head and b'"role"' in head


def _read(session: Session) -> Iterator[Trace]:
    for file in session.files:
        values = list(session.documents(file))
        if values and all("role" in as_dict(value) for value in values):
            values = [values]  # a message on each line
        for value in values:
            run = value if isinstance(value, dict) else {"messages": value}
            yield from _Run(session, file.name, run).traces()


class _Run:
    """One run on its way to a trace."""

    def __init__(self, session: Session, file: str, run: dict[str, Any]) -> None:
        self.info, self.run, self.unknown = as_dict(run.get("info")), run, Counter[str]()
        self.is_mini = "messages" in run and not any("message_type" in as_dict(m) for m in as_list(run["messages"]))
        own = run_of(run)
        name = string(run.get("instance_id")) or string(self.info.get("instance_id")) or f"run-{own}"
        self.draft = session.draft(name, name, system="mini-swe-agent" if self.is_mini else "swe-agent", run=own)
        config = as_dict(as_dict(self.info.get("config")).get("model"))
        self.model = string(config.get("model_name"))
        self.entries: list[Entry] = []
        messages = [as_dict(m) for m in as_list(run.get("history")) or as_list(run.get("messages"))]
        steps = [as_dict(step) for step in as_list(run.get("trajectory"))]
        self._messages(messages, steps)
        self._steps(messages, steps)
        require_half(file, len(messages), self.unknown)
        session.report.unknown.update(self.unknown)

    def _messages(self, messages: list[dict[str, Any]], steps: list[dict[str, Any]]) -> None:
        was_asked = False
        for k, raw in enumerate(messages):
            message, extra = message_of(raw), as_dict(raw.get("extra"))
            if message is None or message.role not in _ROLES:
                self.unknown[f"message of role {raw.get('role')}"] += 1
                continue
            entry = Entry(message.role, message.text, f"m{k}", seconds(extra.get("timestamp")), message.thinking)
            if raw.get("is_demo") is True or raw.get("message_type") == "demonstration":
                entry.role, entry.by, entry.extra = "user", "demonstration", {"is_demonstration": True}
            elif message.role == "assistant":
                if steps:
                    return  # from here on the steps say more
                self._answered(entry, raw, message.calls)
            elif message.role in ("tool", "user", "exit") and self._observed(entry, raw):
                continue
            elif message.role != "system":
                entry.role, entry.by = "user", "harness" if was_asked or message.role == "exit" else None
                was_asked = True
            self.entries.append(entry)

    def _answered(self, entry: Entry, raw: dict[str, Any], calls: list[Call]) -> None:
        extra = as_dict(raw.get("extra"))
        response = as_dict(extra.get("response"))
        entry.usage, entry.cost = Usage.openai(response.get("usage")), number(extra.get("cost")) or None
        entry.model = string(response.get("model")) or self.model
        action = string(raw.get("action"))
        actions = [a for item in as_list(extra.get("actions")) if (a := string(as_dict(item).get("command")))]
        commands = [action] if action else actions or (_FENCED.findall(entry.text) if self.is_mini else [])
        entry.calls = calls or [_command(c, f"{entry.id}.{k}") for k, c in enumerate(commands)]
        if not calls and not action and not actions and len(commands) != 1:
            entry.calls = []  # the harness carries one command out, and asks again where there are more

    def _observed(self, entry: Entry, raw: dict[str, Any]) -> bool:
        """Put a message down as what the calls before it gave back; False where none waits for one."""
        step = next((e for e in reversed(self.entries) if e.role == "assistant"), None)
        open_calls = [c for c in step.calls if c.id not in {a.call for a in step.answers}] if step else []
        names = [n for n in (string(raw.get("tool_call_id")), *map(string, as_list(raw.get("tool_call_ids")))) if n]
        if step is None or (not open_calls and not names):
            return False
        code = count(as_dict(raw.get("extra")).get("returncode"))
        match = _CODE.match(entry.text)
        ok = code == 0 if code is not None else int(match[1]) == 0 if match else None
        call = names[0] if names else open_calls[0].id
        step.answers.append(Answer(entry.text, call, None, ok, entry.text[:500] if ok is False else None, entry.at))
        return True

    def _steps(self, messages: list[dict[str, Any]], steps: list[dict[str, Any]]) -> None:
        """Each step with the tool call that the history has for its action."""
        waiting = [m for m in messages if m.get("role") == "assistant" and not m.get("is_demo")]
        for k, step in enumerate(steps):
            action = string(step.get("action"))
            match = next((i for i, m in enumerate(waiting) if m.get("action") == action), None)
            message = message_of(waiting[match]) if match is not None else None
            waiting = waiting[match + 1 :] if match is not None else waiting
            thought, response = text_of(step.get("thought")), text_of(step.get("response"))
            entry = Entry("assistant", thought.strip() or response, f"s{k}", model=self.model)
            entry.calls = message.calls if message is not None and message.calls else []
            if action and action.strip() and not entry.calls:
                entry.calls = [_command(action, f"s{k}.0")]
            observation = step.get("observation")
            if observation is not None and entry.calls:
                extra = {"seconds": number(step.get("execution_time"))}
                entry.answers = [Answer(text_of(observation), entry.calls[0].id, extra=extra)]
            elif observation:
                self.entries += [entry, Entry("user", text_of(observation), by="harness")]
                continue
            self.entries.append(entry)

    def traces(self) -> Iterator[Trace]:
        stats = as_dict(self.info.get("model_stats"))
        last = next((e for e in reversed(self.entries) if e.role == "assistant"), None)
        usage = Usage.whole(stats.get("tokens_sent"), stats.get("tokens_received"))
        if last is not None and usage and not any(e.usage for e in self.entries):
            last.usage, last.cost = usage, number(stats.get("instance_cost")) or None
            last.extra = {**last.extra, "tokens_of": "the run"}
            self.draft.report.lacks[f"tokens of each call: {_TOLD}"] += 1
        if cost := number(stats.get("instance_cost")):
            self.draft.costs["cost_usd"] = cost
        play(self.draft, [Dialogue(entries=self.entries)])
        status, submission = string(self.info.get("exit_status")), string(self.info.get("submission"))
        if status:
            self.draft.meta["exit_status"] = status
        if submission:
            self.draft.meta["submission"] = self.draft.text(submission)
        self.draft.lane(MAIN).stops()
        yield from self.draft.traces()


def _command(text: str, name: str) -> Call:
    """A command as a call: of SWE-agent's own by its name, else of the shell."""
    words = text.split(None, 1)
    return Call(name, words[0] if words and words[0] in _OWN else "bash", text)


swe_agent = Importer(
    suffixes=(".traj", ".traj.json"),
    sniff=_sniff,
    signs=("trajectory", "history", "info", "model_stats", "exit_status", "observation", "thought"),
    system="swe-agent",
    read_session=_read,
    rank=1,
    becomes={
        "system message": ("message",),
        "user message": ("human_intervention", "message", "tool_result"),
        "assistant message, step": ("orchestrator_decision", "tool_call", "tool_result"),
        "info": ("meta", "tokens_in", "tokens_out", "cost_usd"),
    },
    versions="mini 2.1; else unstated",
    exact="calls, the run's tokens and cost",
    lost="times and tokens per call (SWE-agent), the environment, the configuration",
)
"""Trajectories of SWE-agent and mini-swe-agent."""
