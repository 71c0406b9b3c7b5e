"""Codex's session as it is written: one rollout file per thread, the root's and those of the agents that it spawned.

Always true: tokens are the differences of a thread's running totals, without those of a history that it was forked with; a file
that is read again from its beginning adds nothing until it is longer than it was.
"""

from __future__ import annotations

import os

from counterpoint.guard.limits import MARK
from counterpoint.guard.quick_json import loads
from counterpoint.guard.reader import SessionReader, call_key, prompt_sum, seconds

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from typing import Any

_TOTALS = ("input_tokens", "cached_input_tokens", "output_tokens", "cache_write_input_tokens")
_SHELLS = ("Bash", "exec_command", "shell", "shell_command", "local_shell", "unified_exec")
_COPY_S = 5.0
_COPIES = 200
_EXITS = ("Process exited with code ", "Exit code: ", "exit code: ", "Exit code ", "exit code ")


class CodexReader(SessionReader):
    """Takes the new records of a Codex session into a state."""

    spawns = ("spawn_agent", "collaboration.spawn_agent", "collaborationspawn_agent", "Agent")

    def root(self, transcript: str) -> str:
        """The root's file, also where the hook runs in a sub-agent and names the sub-agent's."""
        known = self.state.notes.get("root")
        if isinstance(known, str) and os.path.exists(known):
            return known
        path, head = transcript, _head(transcript)
        for _ in range(16):
            parent = _parent(head)
            file = _find(os.path.dirname(path), parent) if parent else None
            if file is None:
                break
            path, head = file, _head(file)
        self.state.notes["root"] = path
        return path

    def files_of(self, transcript: str) -> Iterator[tuple[str, str]]:
        """The root's rollout, then those of the threads that records name as its own, and of those that name it as their parent
        (Codex makes some itself, to judge a call); and theirs."""
        root = self.root(transcript)
        if not os.path.exists(root):
            return
        yield root, "main"
        done = {str(self._thread("main")["id"])}
        folders = dict.fromkeys([os.path.dirname(root), os.path.dirname(transcript)])
        heads = self._heads(folders, root)
        while True:
            named = [agent for agent in self.tally.agents if not agent.startswith("call:")]
            waiting = [a for a in [*named, *(thread for thread, parent, _ in heads if parent in done)] if a not in done]
            if not waiting:
                return
            for agent in dict.fromkeys(waiting):
                done.add(agent)
                path = next((path for thread, _, path in heads if thread == agent), None) or self._file(agent, folders)
                if path is not None:
                    yield path, agent

    def _heads(self, folders: Iterable[str], root: str) -> list[tuple[str, str | None, str]]:
        """Thread, parent and path of the rollouts in these folders that were begun after the root's; each is looked at once."""
        known: dict[str, list[Any]] = self.state.notes.setdefault("heads", {})
        first = os.path.basename(root)[-41:-6]
        for folder in folders:
            names = [name for name in os.listdir(folder or ".") if name.endswith(".jsonl")]
            for name in names:
                path = os.path.join(folder, name)
                is_later = name[-41:-6] > first if name.startswith("rollout-") else len(names) < _COPIES
                if path not in known and path != root and is_later and (head := _head(path)):
                    known[path] = [head.get("id"), _parent(head)]
        return [(thread, parent, path) for path, (thread, parent) in known.items() if isinstance(thread, str)]

    def _file(self, agent: str, folders: Iterable[str]) -> str | None:
        """The rollout of a thread that began on another day than the root."""
        places = self.state.notes.setdefault("places", {})
        if agent not in places:
            file = next((f for f in (_find(folder, agent) for folder in folders) if f is not None), None)
            if file is None:
                return None
            places[agent] = file
        return str(places[agent])

    def key(self, tool: str, args: Any) -> str:
        """A command is the same whether the hook or the rollout tells it."""
        if isinstance(args, dict):
            args = next((args[name] for name in ("command", "cmd") if name in args), args)
        args = " ".join(map(str, args)) if isinstance(args, list) else args
        return call_key("Bash" if tool in _SHELLS else tool.rpartition(".")[2], args)

    def _thread(self, agent: str) -> dict[str, Any]:
        threads: dict[str, dict[str, Any]] = self.state.notes.setdefault("threads", {})
        if agent not in threads:
            threads[agent] = {"id": "", "model": "?", "total": [0] * len(_TOTALS), "copy": False, "again": False}
            threads[agent] |= {"begun": None, "created": None, "start": None}
        return threads[agent]

    # -- records ---------------------------------------------------------------------------------------------------------

    def calls_of(self, record: dict[str, Any]) -> list[tuple[str, str, Any]]:
        """The tool call in a record: id, tool and input."""
        item = record.get("payload")
        if record.get("type") != "response_item" or not isinstance(item, dict) or not str(item.get("type")).endswith("_call"):
            return []
        return [(str(item.get("call_id")), *_call(item))]

    def take(self, record: dict[str, Any], agent: str) -> None:
        """Count one record of a thread."""
        kind, payload, at = record.get("type"), record.get("payload"), seconds(record.get("timestamp"))
        if not isinstance(payload, dict):
            return
        thread = self._thread(agent)
        thread["begun"] = at if thread["begun"] is None else thread["begun"]
        if kind == "session_meta":
            self._begins(thread, payload, agent)
            return
        if thread["copy"] and self._is_copied(thread, record, payload, at):
            if payload.get("type") == "token_count":
                thread["total"] = _total(payload) or thread["total"]
            return
        if kind == "turn_context" and isinstance(payload.get("model"), str):
            thread["model"] = payload["model"]
        elif kind == "response_item":
            self._item(payload, agent, at)
        elif kind == "event_msg":
            self._event(thread, payload, agent, at)
        if agent == "main":
            self.tally.on_activity(at)

    def _begins(self, thread: dict[str, Any], meta: dict[str, Any], agent: str) -> None:
        name = meta.get("id")
        if thread["id"] and name == thread["id"]:
            thread["again"] = True  # written anew: what was counted stays, and is not counted twice
        elif thread["id"]:
            thread["copy"] = True
        else:
            thread["id"], thread["created"] = name, seconds(meta.get("timestamp"))
            thread["start"] = meta.get("subagent_history_start_ordinal")
            thread["copy"] = bool(meta.get("forked_from_id")) or thread["start"] is not None
            spawn = _spawn_of(meta)
            if agent != "main" and isinstance(spawn.get("depth"), int):
                self.tally.on_agent(agent, spawn["depth"], thread["created"])

    def _is_copied(self, thread: dict[str, Any], record: dict[str, Any], payload: dict[str, Any], at: float | None) -> bool:
        """Whether a line still belongs to the history that a fork begins with."""
        ordinal = record.get("ordinal")
        if thread["start"] is not None and isinstance(ordinal, int):
            thread["copy"] = ordinal < thread["start"]
        elif payload.get("type") in ("task_started", "turn_started"):
            turn, began = payload.get("turn_id"), seconds(payload.get("started_at"))
            if isinstance(turn, str) and turn[14:15] == "7" == thread["id"][14:15]:
                thread["copy"] = turn <= thread["id"]  # both begin with the time at which they were made
            else:
                thread["copy"] = began is None or thread["created"] is None or began < int(thread["created"])
        elif at is not None and thread["begun"] is not None and at > thread["begun"] + _COPY_S:
            thread["copy"] = False
        return bool(thread["copy"])

    def _item(self, item: dict[str, Any], agent: str, at: float | None) -> None:
        kind, call = str(item.get("type")), item.get("call_id")
        if kind.endswith("_call"):
            tool, args = _call(item)
            name = call if isinstance(call, str) else str(item.get("id"))
            if not self.state.is_new("c", name):
                return
            self.tally.on_call(at)
            if isinstance(call, str):
                self.state.waits(call, [self.key(tool, args), agent])
                if self.is_spawn(tool) and call not in self.state.spawns:
                    message = args.get("message") if isinstance(args, dict) else None
                    self.state.spawns[call] = [agent, None, prompt_sum(message), False]
        elif kind.endswith("_output") and isinstance(call, str):
            pending = self.state.pending.pop(call, None)
            text, ok = _result(item.get("output"))
            if call in self.state.spawns:
                self._spawned(call, text, at)
            elif pending is not None and ok is not None and MARK not in text[:400]:
                self.tally.on_result(pending[1], pending[0], ok, at)

    def _spawned(self, call: str, text: str, at: float | None) -> None:
        try:
            result = loads(text)
        except ValueError:
            result = None
        spawn = self.state.spawns[call]
        agent = result.get("agent_id") if isinstance(result, dict) else None
        if isinstance(agent, str):
            self.link(call, agent, at)
        elif isinstance(result, dict) and "task_name" in result:
            self.start(call, spawn, at)
        elif spawn[1] is None and spawn[3]:
            spawn[3] = False
            self.tally.agents.pop(f"call:{call}", None)

    def _event(self, thread: dict[str, Any], event: dict[str, Any], agent: str, at: float | None) -> None:
        kind = event.get("type")
        item = event.get("item")
        item = item if isinstance(item, dict) else {}
        if kind == "token_count":
            self._tokens(thread, event, at)
        elif agent == "main" and (kind == "user_message" or (kind == "item_completed" and item.get("type") == "UserMessage")):
            self.tally.on_prompt(at)
        elif kind == "patch_apply_end" and event.get("success") is True:
            self.tally.on_gain(at)
        elif kind == "collab_agent_spawn_end":
            if isinstance(event.get("new_thread_id"), str):
                self.link(event.get("call_id"), event["new_thread_id"], at)
        elif kind == "sub_agent_activity" or item.get("type") == "SubAgentActivity":
            record = item or event
            if record.get("kind") == "started" and isinstance(record.get("agent_thread_id"), str):
                self.link(record.get("event_id") or record.get("id"), record["agent_thread_id"], at)

    def _tokens(self, thread: dict[str, Any], event: dict[str, Any], at: float | None) -> None:
        now, before = _total(event), thread["total"]
        if now is None or now == before:
            return
        if min(a - b for a, b in zip(now[:3], before[:3], strict=True)) < 0:
            if thread["again"]:
                return
            before = [0] * len(_TOTALS)
        thread["again"], thread["total"] = False, now
        used = [max(a - b, 0) for a, b in zip(now, before, strict=True)]
        read = min(used[1], used[0])
        wrote = min(used[3], used[0] - read)
        self.tally.on_usage(thread["model"], [used[0] - read - wrote, read, wrote, 0, used[2]], at)


def _call(item: dict[str, Any]) -> tuple[str, Any]:
    name = str(item.get("name") or str(item.get("type")).removesuffix("_call"))
    args = next((item[k] for k in ("arguments", "input", "action", "query") if item.get(k) is not None), "")
    if isinstance(args, str) and args.startswith("{"):
        return name, _read_json(args)
    return name, args


def _read_json(text: str) -> Any:
    try:
        return loads(text)
    except ValueError:
        return text


def _total(event: dict[str, Any]) -> list[int] | None:
    info = event.get("info")
    total = info.get("total_token_usage") if isinstance(info, dict) else None
    if not isinstance(total, dict):
        return None
    counts = [total.get(name) for name in _TOTALS]
    return [n if isinstance(n, int) and not isinstance(n, bool) and n > 0 else 0 for n in counts]


def _result(output: Any) -> tuple[str, bool | None]:
    """A tool's words, and whether it worked where they say so."""
    if isinstance(output, str) and output.startswith('{"output":'):
        output = _read_json(output)
    if isinstance(output, dict):
        about = output.get("metadata")
        code, ok = about.get("exit_code") if isinstance(about, dict) else None, output.get("success")
        text = output.get("output", output.get("content"))
        return str(text), code == 0 if isinstance(code, int) else ok if isinstance(ok, bool) else None
    if isinstance(output, list):
        output = "\n".join(str(part.get("text", "")) for part in output if isinstance(part, dict))
    text = str(output)
    for mark in _EXITS:
        code = text[:300].partition(mark)[2].split(maxsplit=1)
        if code and code[0].lstrip("-").isdigit():
            return text, int(code[0]) == 0
    return text, {"Script completed": True, "Script failed": False}.get(" ".join(text[:40].split()[:2]))


# -- files of threads --------------------------------------------------------------------------------------------------------


def _head(path: str) -> dict[str, Any]:
    """The session_meta that a rollout begins with."""
    try:
        with open(path, "rb") as file:
            record = loads(file.readline())
    except (OSError, ValueError):
        return {}
    payload = record.get("payload") if isinstance(record, dict) and record.get("type") == "session_meta" else None
    return payload if isinstance(payload, dict) else {}


def _spawn_of(meta: dict[str, Any]) -> dict[str, Any]:
    source = meta.get("source")
    subagent = source.get("subagent") if isinstance(source, dict) else None
    spawn = subagent.get("thread_spawn") if isinstance(subagent, dict) else None
    return spawn if isinstance(spawn, dict) else {}


def _parent(meta: dict[str, Any]) -> str | None:
    parent = meta.get("parent_thread_id") or _spawn_of(meta).get("parent_thread_id")
    return parent if isinstance(parent, str) else None


def _find(folder: str, thread: str) -> str | None:
    """The rollout of a thread: in this folder, or in that of the day on which the thread was made."""
    for place in (folder, *_days(folder, thread)):
        try:
            names = sorted(os.listdir(place or "."))
        except OSError:
            continue
        for name in names:
            if name.endswith(f"{thread}.jsonl"):
                return os.path.join(place, name)
        for name in names:  # copies that were given other names
            is_copy = name.endswith(".jsonl") and not name.startswith("rollout-") and len(names) < _COPIES
            if is_copy and _head(os.path.join(place, name)).get("id") == thread:
                return os.path.join(place, name)
    return None


def _days(folder: str, thread: str) -> list[str]:
    """Below sessions/YEAR/MONTH/DAY, the folders around the day that a thread's id begins with."""
    parts = folder.split(os.sep)
    if [len(part) for part in parts[-3:]] != [4, 2, 2] or not all(part.isdigit() for part in parts[-3:]):
        return []
    try:
        second = int(thread.replace("-", "")[:12], 16) // 1000
    except ValueError:
        return []
    import time

    days = [time.strftime("%Y/%m/%d", time.gmtime(second + shift * 86400)).split("/") for shift in (0, -1, 1)]
    return [os.sep.join([*parts[:-3], *day]) for day in days]
