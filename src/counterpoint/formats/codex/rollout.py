"""One Codex thread's records as steps of an agent: items put together to answers of the model, copies left out.

A model call is a run of items (reasoning, words, calls) up to the `token_count` that pays for it: one step, then its calls,
then what came in. Tokens are differences of `total_token_usage`: an exact repeat adds nothing, and after a fall the totals
count from zero again. A `Step` is `(time, rank, name, at, values)` for the method of `ThreadTeam` of that name; the rank puts
causes before effects of the same moment.

Always true: a forked thread begins after the history it copied, in events and in tokens; a message that is written twice, as
`event_msg` and as `response_item`, is one event; steps come in the order of the file.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator
from typing import Any

from counterpoint.errors import InputError
from counterpoint.formats.codex.thread_head import KNOWN_DONE, KNOWN_EVENTS, KNOWN_ITEMS, ThreadHead
from counterpoint.formats.importing.report import Report
from counterpoint.formats.importing.usage import Usage, odd_counts
from counterpoint.formats.importing.values import as_dict, as_list, compact, count, decode, seconds, string, text_of

_COPY_S = 5.0
"""A copied history is written at once: later lines are the thread's own even where no turn begins."""
_UUID7 = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}")
_NOTICE = re.compile(r"<subagent_notification>\s*(\{.*\})\s*</subagent_notification>", re.DOTALL)
_MEMORY = ("# AGENTS.md instructions", "<user_instructions>", "<skill>")
_MAIL = re.compile(r"Message Type: (\w+)\n(?:.*?\n)?Payload:\n?", re.DOTALL)


Step = tuple[float, int, str, float | None, tuple[Any, ...]]

_CAUSES = frozenset({"call", "spawned", "complete"})
_TAGGED = re.compile(r"\s*<([A-Za-z_][\w-]*)[ >]")
# How Codex says that it did not make a call: plain words, and no field.
_FAILED = ("aborted by user", "apply_patch verification failed", "failed to parse function arguments", "unsupported call")
_EXIT = re.compile(r"(?:Process exited with code|[Ee]xit code:?) (-?\d+)")
_RETURNED = ('{"chunk_id":', '[{"chunk_id":')


class _OpenAnswer:
    """The answer that is being put together, and the steps that are ready."""

    def __init__(self, head: ThreadHead, report: Report) -> None:
        self.head, self.report = head, report
        self.ready: list[Step] = []
        self._rest: list[Step] | None = None
        """What came after the first item of the open answer; None when no answer is open."""
        self._is_answered = self._is_compaction = False
        self._words: list[str] = []
        self._thoughts: list[str] = []
        self._called = False
        self._first: tuple[float | None, str] = (None, "")
        self._end: float | None = None
        self.model: str | None = None
        self._prompts: list[tuple[float | None, str, str]] = []
        """Words in the user's name of which it is not yet known whether a human said them."""
        self._says_who = False
        self.at: float | None = None
        self.clock = float("-inf")

    def _step(self, name: str, *values: Any, at: float | None = None) -> Step:
        return (self.clock, 0 if name in _CAUSES else 1, name, at if at is not None else self.at, values)

    def do(self, name: str, *values: Any) -> None:
        """Something that says more about what was done."""
        (self.ready if self._rest is None else self._rest).append(self._step(name, *values))

    def hear(self, name: str, *values: Any, at: float | None = None) -> None:
        """Something that the model reads in its next answer."""
        if self._rest is not None:
            self._is_answered = True
        (self.ready if self._rest is None else self._rest).append(self._step(name, *values, at=at))

    def _add(self, name: str, *values: Any) -> None:
        assert self._rest is not None
        self._rest.append(self._step(name, *values))

    def _answer(self, number: int, item: dict[str, Any]) -> None:
        """An item that the model wrote: of the open answer, or of a new one when this one has been answered."""
        self.settle_prompts()
        if self._rest is not None and self._is_answered:
            self.close(None)
        self.open(string(item.get("id")) or f"{self.head.id}:{number}")
        self._end = self.at

    def open(self, name: str) -> None:
        if self._rest is None:
            self._rest, self._first, self._end = [], (self.at, name), self.at

    def close(self, usage: Usage | None) -> None:
        rest, self._rest = self._rest, None
        if rest is None:
            return
        at, name = self._first
        if self._words or self._thoughts or self._called or usage:
            text, thinking = "\n\n".join(self._words), "\n\n".join(self._thoughts)
            values = (name, self._end, text, thinking, usage, self.model, self._called, self._is_compaction)
            time = rest[0][0] if rest else self.clock
            self.ready.append((min(time, at if at is not None else time), 0, "step", at, values))
        self.ready += rest
        self._words, self._thoughts, self._called = [], [], False
        self._is_answered = self._is_compaction = False

    def settle_prompts(self) -> None:
        """Words in the user's name that no event claims: a human's where the log has no such events, else the harness's."""
        prompts, self._prompts = self._prompts, []
        for at, text, name in prompts:
            if not _TAGGED.match(text):
                self.hear("injected" if self._says_who else "user_message", text, name, at=at)


def _total(stated: Any, before: int) -> int:
    total = count(stated)
    return total if total is not None else before if stated is not None else 0


def usage_of(usage: Any) -> Usage | None:
    """The tokens of one call, as Codex names them."""
    got = as_dict(usage)
    return Usage.whole(
        got.get("input_tokens"),
        got.get("output_tokens"),
        cached=got.get("cached_input_tokens"),
        written=got.get("cache_write_input_tokens"),
        reasoning=got.get("reasoning_output_tokens"),
    )


def result_of(output: Any) -> tuple[str, bool | None]:
    """A tool's words, and whether it worked where they say so."""
    if isinstance(output, str) and output.startswith('{"output":'):
        with contextlib.suppress(InputError):
            output = decode(output)
    if isinstance(output, dict):
        code = as_dict(output.get("metadata")).get("exit_code")
        ok = output.get("success")
        return text_of(output), code == 0 if isinstance(code, int) else ok if isinstance(ok, bool) else None
    text = text_of(output)
    if text.startswith("Script "):  # a cell: what follows its first line is what the script chose to show
        ended = {"completed": True, "failed": False}.get(text[7:20].split()[0] if text[7:20].split() else "")
        return text, ended and not any(_exit_codes(output))
    if match := _EXIT.search(text, 0, 300):
        return text, int(match[1]) == 0
    return text, False if text.startswith(_FAILED) else None


def _exit_codes(output: Any) -> Iterator[int]:
    """How the commands of a cell ended that it shows as the tool returned them: each alone in a part, or a list of them.

    What a command prints stands inside `output` of such a record, or in a part as plain text, and says nothing here.
    """
    for part in as_list(output):
        shown = string(as_dict(part).get("text")) or ""
        if not shown.startswith(_RETURNED):
            continue
        with contextlib.suppress(InputError):
            value = decode(shown)
            for one in map(as_dict, value if isinstance(value, list) else [value]):
                code = one.get("exit_code")
                if type(code) is int and isinstance(one.get("chunk_id"), str) and "wall_time_seconds" in one:
                    yield code


class Thread(_OpenAnswer):
    """A thread and the steps in its records."""

    def __init__(self, head: ThreadHead, records: Iterator[tuple[int, dict[str, Any]]], report: Report) -> None:
        super().__init__(head, report)
        self._records = records
        self._total: tuple[int, ...] = (0, 0, 0, 0, 0)
        self._last_prompt: str | None = None
        self._is_copy = bool(head.forked_from) or head.start_ordinal is not None
        self._begun: float | None = None

    def steps(self) -> Iterator[Step]:
        """The steps, in order."""
        for number, record in self._records:
            self._record(number, record)
            if self.ready:
                yield from self.ready
                self.ready.clear()
        self.settle_prompts()
        self.close(None)
        yield from self.ready

    # -- lines -----------------------------------------------------------------------------------------------------------

    def _record(self, number: int, record: dict[str, Any]) -> None:
        kind, payload = record.get("type"), record.get("payload")
        stamp = record.get("timestamp")
        self.at = at = seconds(stamp) if stamp is not None else None
        if at is not None and at > self.clock:
            self.clock = at
        if self._begun is None:
            self._begun = at
        if not isinstance(payload, dict):
            self._plain(number, record)
        elif self._is_copy and self._is_copied(kind, payload, record):
            if payload.get("type") == "token_count":
                self._baseline(payload)
        elif kind == "response_item":
            self.item(number, payload)
        elif kind == "event_msg":
            self._event(number, payload)
        elif kind == "turn_context":
            self.model = string(payload.get("model")) or self.model
        elif kind == "compacted":
            self.close(None)
            self.open(f"{self.head.id}:{number}")
            self._words.append(text_of(payload.get("message")))
            self._is_compaction = self._is_answered = True
            self._end = None  # when it began is not said
        elif kind == "session_meta":
            if string(payload.get("id")) not in (None, self.head.id):
                self._is_copy = True
        elif kind not in ("world_state", "inter_agent_communication_metadata", "inter_agent_communication"):
            self._other(str(kind), payload)

    def _other(self, kind: str, payload: dict[str, Any]) -> None:
        if kind == "security_risk_score":
            self.do("risk", {k: v for k, v in payload.items() if k != "type"})
        else:
            self.report.unknown[kind] += 1

    def _plain(self, number: int, record: dict[str, Any]) -> None:
        """A line from before there was an envelope: the item itself."""
        if string(record.get("type")):
            self.item(number, record)
        elif "record_type" not in record and "instructions" not in record:
            self.report.unknown["a line without a type"] += 1

    def _is_copied(self, kind: Any, payload: dict[str, Any], record: dict[str, Any]) -> bool:
        """Whether a line still belongs to the history that a fork begins with."""
        ordinal = record.get("ordinal")
        if self.head.start_ordinal is not None and isinstance(ordinal, int):
            self._is_copy = ordinal < self.head.start_ordinal
        elif kind == "event_msg" and payload.get("type") in ("task_started", "turn_started"):
            self._is_copy = not self._is_own_turn(payload)
        elif self.at is not None and self._begun is not None and self.at > self._begun + _COPY_S:
            self._is_copy = False
            self.report.lacks["where a copied history ends: taken from the time of its lines"] += 1
        return self._is_copy

    def _is_own_turn(self, payload: dict[str, Any]) -> bool:
        """A thread's own turns began after it was made: their ids sort behind its own, as both begin with the time."""
        turn = string(payload.get("turn_id")) or ""
        if _UUID7.fullmatch(turn) and _UUID7.fullmatch(self.head.id):
            return turn > self.head.id
        began = seconds(payload.get("started_at"))
        return began is not None and self.head.created is not None and began >= int(self.head.created)

    # -- items of the conversation ---------------------------------------------------------------------------------------

    def item(self, number: int, item: dict[str, Any]) -> None:
        kind = string(item.get("type")) or ""
        if kind == "message":
            self._message(number, item)
        elif kind == "reasoning":
            self._answer(number, item)
            if thought := text_of(item.get("summary") or item.get("content") or ""):
                self._thoughts.append(thought)
        elif kind == "agent_message":
            self._mail(number, item)
        elif kind.endswith("_output"):
            call = string(item.get("call_id"))
            text, ok = result_of(item.get("output", item.get("tools")))
            self.hear("result", call, text, ok)
        elif kind.endswith("_call"):
            self._call(number, item, kind)
        elif kind not in KNOWN_ITEMS:
            self.report.unknown[f"response_item/{kind}"] += 1

    def _message(self, number: int, item: dict[str, Any]) -> None:
        role, text = item.get("role"), text_of(item.get("content"))
        if role == "assistant":
            self._answer(number, item)
            if text:
                self._words.append(text)
        elif role == "user" and text:
            if notice := _NOTICE.match(text):
                self._notice(notice[1])
            elif text.startswith(_MEMORY):
                self.hear("remembers", text, f"{self.head.id}:{number}")
            elif text.startswith("<user_shell_command>"):
                self.hear("user_message", text, f"{self.head.id}:{number}")
            elif text != self._last_prompt:
                self._prompts.append((self.at, text, f"{self.head.id}:{number}"))

    def _notice(self, body: str) -> None:
        try:
            notice = as_dict(decode(body))
        except InputError:
            self.report.unknown["a notice of a sub-agent that is not JSON"] += 1
            return
        self.hear("status", string(notice.get("agent_path")) or string(notice.get("agent_id")), notice.get("status"))

    def _mail(self, number: int, item: dict[str, Any]) -> None:
        parts = [p for p in as_list(item.get("content")) if as_dict(p).get("type") != "encrypted_content"]
        text = text_of(parts)
        match = _MAIL.match(text)
        kind, body = (match[1], text[match.end() :]) if match else ("MESSAGE", text)
        is_hidden = len(parts) < len(as_list(item.get("content")))
        who = string(item.get("author")), string(item.get("recipient"))
        self.hear("mail", *who, kind, body, is_hidden, f"{self.head.id}:{number}")

    def _call(self, number: int, item: dict[str, Any], kind: str) -> None:
        name = string(item.get("name")) or kind.removesuffix("_call")
        args = next((item[k] for k in ("arguments", "input", "action", "query") if item.get(k) is not None), "")
        call = string(item.get("call_id"))
        self._answer(number, item)
        self._called = True
        is_hosted = call is None and kind not in ("function_call", "custom_tool_call", "local_shell_call")
        call = call or string(item.get("id")) or f"{self.head.id}:{number}:call"
        self._add("call", call, name, string(item.get("namespace")), compact(args))
        if is_hosted:
            self._add("hosted", call, item.get("status"))
            self._is_answered = True  # the provider ran it: what the model writes next, it wrote with the answer

    # -- events ----------------------------------------------------------------------------------------------------------

    def _event(self, number: int, event: dict[str, Any]) -> None:
        kind = string(event.get("type")) or ""
        handler = _EVENTS.get(kind)
        if handler is not None:
            handler(self, number, event)
        elif kind not in KNOWN_EVENTS and not kind.endswith(("_begin", "_delta")):
            self.report.unknown[f"event_msg/{kind}"] += 1

    def _on_tokens(self, number: int, event: dict[str, Any]) -> None:
        total = self._baseline(event)
        if total is None:
            return
        before, now = total
        if min(a - b for a, b in zip(now[:3], before[:3], strict=True)) < 0:
            before = (0, 0, 0, 0, 0)
            self.report.mended["token totals that restart"] += 1
        used = [max(a - b, 0) for a, b in zip(now, before, strict=True)]
        usage = Usage.whole(used[0], used[2], cached=used[1], reasoning=used[3], written=used[4])
        if self._rest is not None:
            self.close(usage)
        elif usage:
            self.do("pay", usage, self.model, f"{self.head.id}:{number}")

    def _baseline(self, event: dict[str, Any]) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
        """The totals before and now, where they changed."""
        total = as_dict(as_dict(event.get("info")).get("total_token_usage"))
        if not total:
            return None
        self.report.note_odd_counts(odd_counts(total, COUNTS))
        before = self._total  # a total that cannot be read is taken not to have changed: the next one tells what was added
        now = tuple(_total(total.get(name), was) for name, was in zip(COUNTS, before, strict=True))
        self._total = now
        return (before, now) if now != before else None

    def _on_user(self, number: int, event: dict[str, Any]) -> None:
        self._says_who = True
        item = as_dict(event.get("item"))
        text = text_of(event.get("message") if not item else item.get("content", item.get("text"))) or "(not text)"
        same = next((k for k, prompt in enumerate(self._prompts) if prompt[1] == text), len(self._prompts) - 1)
        at, _, name = self._prompts.pop(same) if self._prompts else (self.at, "", f"{self.head.id}:{number}")
        self.settle_prompts()
        self._last_prompt = text
        if not text.startswith(_MEMORY):
            self.hear("user_message", text, name, at=at)

    def _on_end(self, number: int, event: dict[str, Any]) -> None:
        """A tool ran: whether it worked, or that a code cell called it."""
        call = string(event.get("call_id"))
        kind = event["type"]
        code = event.get("exit_code")
        ok = code == 0 if isinstance(code, int) else event.get("success")
        result = event.get("result")
        if kind == "mcp_tool_call_end" and isinstance(result, dict):
            ok = "Err" not in result and not as_dict(result.get("Ok")).get("is_error")
        if call and call.startswith("exec-"):
            about = event.get("query") or event.get("command") or sorted(as_dict(event.get("changes"))) or event.get("invocation")
            self.do("nested", call, kind.removesuffix("_end"), compact(about or ""), ok if isinstance(ok, bool) else None)
        elif call and isinstance(ok, bool):
            self.do("worked", call, ok)

    def on_spawned(self, number: int, event: dict[str, Any]) -> None:
        names = ("new_thread_id", "new_agent_role", "new_agent_nickname", "agent_path", "prompt")
        status = event.get("status")
        error = status if isinstance(status, str) else as_dict(status).get("errored")
        self.do("spawned", string(event.get("call_id")), *(string(event.get(n)) for n in names), string(error))

    def on_activity(self, number: int, event: dict[str, Any]) -> None:
        event = as_dict(event.get("item")) or event
        call, thread = string(event.get("event_id")) or string(event.get("id")), string(event.get("agent_thread_id"))
        if event.get("kind") == "started":
            self.do("spawned", call, thread, None, None, string(event.get("agent_path")), None, None)
        elif call and thread:
            self.do("reached", call, thread)

    def on_reached(self, number: int, event: dict[str, Any]) -> None:
        self.do("reached", string(event.get("call_id")), string(event.get("receiver_thread_id")))

    def _on_waited(self, number: int, event: dict[str, Any]) -> None:
        statuses = [(string(s.get("thread_id")), s.get("status")) for s in map(as_dict, as_list(event.get("agent_statuses")))]
        for child, status in statuses or as_dict(event.get("statuses")).items():
            self.hear("status", child, status)

    def _on_item(self, number: int, event: dict[str, Any]) -> None:
        item = as_dict(event.get("item"))
        kind = string(item.get("type")) or ""
        if kind == "UserMessage":
            self._on_user(number, event)
        elif kind == "SubAgentActivity":
            self.on_activity(number, event)
        elif kind == "CollabAgentToolCall":
            to = string(next(iter(as_list(item.get("receiver_thread_ids"))), None))
            if to and "spawn" in str(item.get("tool")):
                self.do("spawned", string(item.get("id")), to, None, None, None, string(item.get("prompt")), None)
            elif to:
                self.do("reached", string(item.get("id")), to)
        elif kind not in KNOWN_DONE:
            self.report.unknown[f"item_completed/{kind}"] += 1

    def _on_started(self, number: int, event: dict[str, Any]) -> None:
        self.settle_prompts()
        self.close(None)
        self._last_prompt = None

    def _on_complete(self, number: int, event: dict[str, Any]) -> None:
        self._on_started(number, event)
        self.do("complete", string(event.get("last_agent_message")), f"{event.get('turn_id') or self.head.id}:return")

    def _on_aborted(self, number: int, event: dict[str, Any]) -> None:
        self._on_started(number, event)
        self.do("aborted", string(event.get("reason")) or "unknown", f"{self.head.id}:{number}")

    def _on_rolled_back(self, number: int, event: dict[str, Any]) -> None:
        self._on_started(number, event)
        self.do("rolled_back", count(event.get("num_turns")), f"{self.head.id}:{number}")

    def _on_reviewed(self, number: int, event: dict[str, Any]) -> None:
        self.hear("reviewed")

    def _on_named(self, number: int, event: dict[str, Any]) -> None:
        self.do("titled", string(event.get("thread_name")) or string(event.get("name")))

    def _on_error(self, number: int, event: dict[str, Any]) -> None:
        self.do("failed", string(event.get("message")) or "error")


COUNTS = (
    "input_tokens",
    "cached_input_tokens",
    "output_tokens",
    "reasoning_output_tokens",
    "cache_write_input_tokens",
)
_EVENTS: dict[str, Callable[[Thread, int, dict[str, Any]], None]] = {
    "token_count": Thread._on_tokens,
    "user_message": Thread._on_user,
    "exec_command_end": Thread._on_end,
    "patch_apply_end": Thread._on_end,
    "mcp_tool_call_end": Thread._on_end,
    "web_search_end": Thread._on_end,
    "collab_agent_spawn_end": Thread.on_spawned,
    "sub_agent_activity": Thread.on_activity,
    "collab_agent_interaction_end": Thread.on_reached,
    "collab_close_end": Thread.on_reached,
    "collab_resume_end": Thread.on_reached,
    "collab_waiting_end": Thread._on_waited,
    "item_completed": Thread._on_item,
    "task_started": Thread._on_started,
    "turn_started": Thread._on_started,
    "task_complete": Thread._on_complete,
    "turn_complete": Thread._on_complete,
    "turn_aborted": Thread._on_aborted,
    "thread_rolled_back": Thread._on_rolled_back,
    "exited_review_mode": Thread._on_reviewed,
    "thread_name_updated": Thread._on_named,
    "error": Thread._on_error,
}
