"""OpenAI Codex: rollouts, one trace per tree of threads, trace bundles, and `codex exec --json` streams.

This module puts the files of one tree together, by `parent_thread_id`, `forked_from_id` and `session_id`. Logs are read in
`rollout.py` (a thread's rollout), `bundle.py` (a rollout-trace bundle) and here (an exec stream); `thread_head.py` reads how a
log begins. All of them tell a `ThreadTeam` what happened: `thread_team.py` puts a thread's own events down, and
`threads.py` what joins threads (spawns, messages, returns).

A thread is an agent; its type, or the name of its task, is the role. An answer of the model is an `orchestrator_decision` (of
a thread that leads) or a `message`; `spawn_agent` is a `spawn`; `send_input`, `send_message` and `followup_task` are
messages; `close_agent` is a `despawn`; the end of a sub-agent's turn is its `return`; every other call is a `tool_call` with
its `tool_result`. Words of humans, interruptions and rollbacks are `human_intervention`; verdicts of the guardian and refused
calls are `safety_event`.

What is lost: developer instructions, the state of the world, settings, plans and deltas; reasoning that is encrypted.

Always true: a tree gives one trace, also where the logs of several threads were put into one file; a thread whose parent is
not among the files is a trace of its own, and reported as unlinked; history that a fork copied is in the trace of the thread
that made it, once; tokens are the differences of a thread's totals.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from heapq import merge
from typing import Any

from counterpoint.errors import InputError
from counterpoint.formats.codex.bundle import IS_PAYLOAD, folder_of, is_about_bundle, read_bundle
from counterpoint.formats.codex.rollout import COUNTS, Thread, usage_of
from counterpoint.formats.codex.thread_head import OLD_DOCUMENT, ThreadHead, head_of, peek, threads_in
from counterpoint.formats.codex.thread_team import ThreadTeam
from counterpoint.formats.codex.threads import Member
from counterpoint.formats.importer import Importer, Session
from counterpoint.formats.importing.files import File
from counterpoint.formats.importing.report import Report
from counterpoint.formats.importing.usage import Usage, odd_counts
from counterpoint.formats.importing.values import as_dict, as_list, compact, decode, string, text_of
from counterpoint.trace import Trace
from counterpoint.trace.keys import PARENT, PROJECT

# -- `codex exec --json`: what a run prints, as a team of the thread that ran and the agents it called ----------------
# Always true: an item counts once, when it is completed (or when the stream ends before that); the stream has no times, and its
# tokens are totals of a turn, which stand on the turn's last answer.

_TURN_TOTALS = "tokens per model call: a turn's sum stands on its last answer"
_TOOLS = {"command_execution": "exec_command", "file_change": "apply_patch", "web_search": "web_search"}
_QUIET = frozenset({"todo_list", "plan"})


def read_stream(session: Session, file: File) -> Iterator[Trace]:
    """The trace of one stream."""
    records = session.records(file)
    thread = next((string(r.get("thread_id")) for _, r in records if r.get("type") == "thread.started"), None)
    if thread is None:
        return
    draft = session.draft(thread, thread, system="codex")
    stream = _Stream(ThreadTeam(draft, [ThreadHead(thread, "exec", path="/root", role="root")]), thread)
    for _, record in records:
        stream.record(record)
    stream.finish()
    yield from draft.traces()


class _Stream:
    def __init__(self, team: ThreadTeam, thread: str) -> None:
        self.team, self.thread = team, thread
        self.member: Member = team.members[thread]
        self._open: dict[str, dict[str, Any]] = {}
        self._total = Usage()

    def record(self, record: dict[str, Any]) -> None:
        kind = string(record.get("type")) or ""
        item = as_dict(record.get("item"))
        self.team.report.note_odd_counts(odd_counts(as_dict(record.get("usage")), COUNTS))
        if kind in ("item.started", "item.updated"):
            self._open[str(item.get("id"))] = item
        elif kind == "item.completed":
            self._open.pop(str(item.get("id")), None)
            self._item(item)
        elif kind == "turn.completed":
            self._pay(usage_of(record.get("usage")))
            self.member.is_stopped = True
        elif kind in ("turn.failed", "error"):
            error = as_dict(record.get("error")) or record
            self.team.failed(self.member, None, string(error.get("message")) or "error")
        elif kind not in ("turn.started", "thread.started", "item.plan.delta", "request_user_input"):
            self.team.report.unknown[kind or "a line without a type"] += 1

    def finish(self) -> None:
        for item in self._open.values():
            self._item(item)
        self.team.finish()

    def _pay(self, total: Usage | None) -> None:
        """Codex gives the thread's totals so far: a turn's tokens are what was added."""
        if total is None:
            return
        self.team.report.lacks[_TURN_TOTALS] += 1
        added = Usage(*(now - before for now, before in zip(total, self._total, strict=True)))
        self._total, used = total, (added if min(added) >= 0 else total)
        if used:
            self.team.pay(self.member, None, used, None, f"{self.thread}:tokens")

    def _item(self, item: dict[str, Any]) -> None:
        kind = string(item.get("type")) or string(item.get("item_type")) or ""
        name = f"{self.thread}:{item.get('id')}"
        if kind in ("agent_message", "assistant_message", "reasoning"):
            text = text_of(item.get("text"))
            words, thoughts = ("", text) if kind == "reasoning" else (text, "")
            self.team.step(self.member, None, name, None, words, thoughts, None, None, False)
        elif kind == "collab_tool_call":
            self._team_call(item, name)
        elif kind in _TOOLS or kind == "mcp_tool_call":
            self._tool(item, kind, name)
        elif kind == "error":
            self.team.failed(self.member, None, string(item.get("message")) or "error")
        elif kind not in _QUIET:
            self.team.report.unknown[f"item/{kind}"] += 1

    def _tool(self, item: dict[str, Any], kind: str, name: str) -> None:
        args = next((item[k] for k in ("command", "arguments", "changes", "query") if item.get(k) is not None), "")
        tool = _TOOLS.get(kind) or f"{item.get('server')}.{item.get('tool')}"
        self.team.call(self.member, None, name, tool, None, compact(args))
        status = item.get("status")
        if status == "in_progress":
            return
        ok = {"completed": True, "failed": False, "declined": False}.get(str(status))
        output = item.get("aggregated_output") or as_dict(item.get("result")).get("content") or item.get("error") or ""
        if kind == "web_search":
            self.team.hosted(self.member, None, name, status or "completed")
        else:
            self.team.result(self.member, None, name, text_of(output), ok)
        if status == "declined":
            self.team.refused(self.member, None, name, "declined", "user")

    def _team_call(self, item: dict[str, Any], name: str) -> None:
        tool, to = string(item.get("tool")) or "", [t for t in as_list(item.get("receiver_thread_ids")) if string(t)]
        args = {"message": item.get("prompt") or "", "target": to[0] if to else None}
        states = as_dict(item.get("agents_states"))
        self.team.call(self.member, None, name, "wait_agent" if tool == "wait" else tool, None, compact(args))
        if tool == "spawn_agent":
            error = None if to else "no agent was made"
            self.team.spawned(self.member, None, name, args["target"], None, None, None, None, error)
        elif tool == "send_input":
            self.team.reached(self.member, None, name, args["target"])
        for child, state in states.items():
            state_fields = as_dict(state)
            if state_fields.get("status") in ("completed", "errored"):
                self.team.status(self.member, None, child, {state_fields["status"]: state_fields.get("message")})
        if tool not in ("spawn_agent", "send_input", "close_agent"):
            self.team.result(self.member, None, name, compact({"timed_out": not states}), item.get("status") == "completed")


_SYSTEM = "codex"
_BEGINS_LONG = re.compile(rb'^\s*\{(?=.{0,400}"type"\s*:\s*"session_meta").{0,400}"payload"\s*:\s*\{', re.DOTALL)
_LINES_SNIFFED = 20


def _sniff(head: bytes) -> bool:
    if OLD_DOCUMENT.match(head) or _BEGINS_LONG.match(head) or is_about_bundle(head):
        return True
    for line in head.split(b"\n")[:_LINES_SNIFFED]:
        try:
            record = decode(line)
        except InputError:
            continue
        if isinstance(record, dict) and head_of(record) is not None:
            return True
    return False


def _sidecar(name: str) -> bool:
    return IS_PAYLOAD.search(name) is not None


def _group(files: Sequence[File]) -> Iterable[Session]:
    heads: list[tuple[File, ThreadHead]] = []
    bundles: dict[str, list[File]] = {}
    mixed: set[str] = set()
    for whole in files:
        parts = _threads(whole)
        if len(parts) > 1 and any(len(_lines(part)) == 1 for part in parts):
            mixed.add(whole.name)
        for file in parts:
            is_payload = _sidecar(file.name)
            head = None if is_payload else peek(file)
            if is_payload or head is None or head.shape == "bundle":
                bundles.setdefault(folder_of(file.name), []).append(file)
            else:
                heads.append((file, head if head.id else ThreadHead(file.name, head.shape)))
    known = {head.id: head for _, head in heads}
    trees: dict[str, list[File]] = {}
    for file, head in heads:
        trees.setdefault(_root(head, known), []).append(file)
    for root, files_here in trees.items():
        session = Session(root, files_here)
        for name in sorted(mixed & {file.name for file in files_here}):
            session.report.broke(name, None, _MIXED)
        yield session
    yield from (Session(f"{folder}/", files_here) for folder, files_here in bundles.items())


_MIXED = "a thread of nothing but its head beside others: if their lines are mixed, import the files one by one"


def _threads(file: File) -> list[File]:
    """A log, or the threads that somebody put into one file."""
    head = None if _sidecar(file.name) else peek(file)
    return [file] if head is None or head.shape in ("bundle", "document") else threads_in(file)


def _root(head: ThreadHead, known: dict[str, ThreadHead]) -> str:
    """The topmost thread among the files that this one hangs on."""
    met = {head.id}
    while (above := _above(head, known)) is not None and above.id not in met:
        met.add(above.id)
        head = above
    return head.id


def _above(head: ThreadHead, known: dict[str, ThreadHead]) -> ThreadHead | None:
    names = (head.parent, head.forked_from, head.session)
    return next((known[name] for name in names if name in known and name != head.id), None)


def _read(session: Session) -> Iterator[Trace]:
    if any(is_about_bundle(f.head(4096)) or _sidecar(f.name) for f in session.files):
        yield from read_bundle(session)
        return
    threads: dict[str, Thread] = {}
    streams: list[File] = []
    report = Report()
    for file in _newest(session.files, report):
        if (head := peek(file)) is not None and head.shape == "exec":
            streams.append(file)
            continue
        thread = _thread(session, file, report)
        if thread is None:
            continue
        if thread.head.shape == "exec":
            streams.append(file)
        elif thread.head.shape == "bundle":
            yield from read_bundle(session)
            return
        else:
            threads[thread.head.id] = thread
    if threads:
        yield from _tree(session, list(threads.values()), report)
    else:
        yield from (trace for file in streams for trace in read_stream(session, file))


def _newest(files: Sequence[File], report: Report) -> Iterator[File]:
    """Of several files of one thread (a snapshot, its packed form, what was reverted) the one with the most lines."""
    by_thread: dict[str, list[File]] = {}
    for file in files:
        head = peek(file) if len(files) > 1 else None
        by_thread.setdefault(f"{head.shape}:{head.id}" if head and head.id else file.name, []).append(file)
    for same in by_thread.values():
        yield same[0] if len(same) == 1 else _longest(same, report)


def _longest(files: list[File], report: Report) -> File:
    by_length = sorted(((_lines(file), file) for file in files), key=lambda row: (len(row[0]), row[1].name))
    most, best = by_length.pop()
    for lines, _ in by_length:
        begins = lines[:-1] == most[: max(len(lines) - 1, 0)]
        what = "older copies of a thread" if begins else "other versions of a thread, which went another way"
        report.mended[f"{what}: left out"] += 1
    return best


def _lines(file: File) -> list[int]:
    try:
        return [hash(line) for _, line in file.lines()]
    except InputError:
        return []


def _thread(session: Session, file: File, report: Report) -> Thread | None:
    """A thread with its records yet to be read; None when the file is none."""
    if OLD_DOCUMENT.match(file.head(4096)):
        return _document(session, file, report)
    records = session.records(file)
    for number, record in records:
        head = head_of(record)
        if head is None:
            session.report.broke(file.name, number, "a record that no Codex log begins with")
            continue
        head.id = head.id or file.stem or session.key or "unnamed"
        return Thread(head, _chained(number, record, records), report)
    return None


def _chained(number: int, first: dict, records: Iterator[tuple[int, dict]]) -> Iterator[tuple[int, dict]]:
    yield number, first
    yield from records


def _document(session: Session, file: File, report: Report) -> Thread | None:
    """The oldest logs: one document with all items."""
    thread = as_dict(session.document(file))
    head = peek(file)
    items = [(k, item) for k, item in enumerate(as_list(thread.get("items")), 1) if isinstance(item, dict)]
    return Thread(head, iter(items), report) if head is not None else None


def _tree(session: Session, threads: list[Thread], report: Report) -> Iterator[Trace]:
    heads = {thread.head.id: thread.head for thread in threads}
    root = heads[_root(threads[0].head, heads)]
    draft = session.draft(root.id, root.id, system=_SYSTEM)
    draft.meta.update({"codex": root.about} if root.about else {})
    draft.meta.update({PROJECT: root.project} if root.project else {})
    if root.kind not in ("root", "fork") and (parent := root.session or root.parent) not in (None, root.id):
        draft.meta[PARENT] = parent  # a guardian's or reviewer's thread, and the session it was made for is not in these files
    draft.report = report
    team = ThreadTeam(draft, [root, *(head for head in heads.values() if head is not root)])
    apply, members = team.apply, team.members
    if len(threads) == 1:
        for _, _, name, at, values in threads[0].steps():
            apply(members[root.id], name, at, values)
    else:
        depths = {name: _depth(head, heads) for name, head in heads.items()}
        for _, _, _, _, _, thread, (_, _, name, at, values) in merge(*(_keyed(t, depths, k) for k, t in enumerate(threads))):
            apply(members[thread], name, at, values)
    team.finish()
    yield from draft.traces()


def _keyed(thread: Thread, depths: dict[str, int], place: int) -> Iterator[tuple]:
    """Steps with what to sort them by: of one moment, causes first, then who is deeper in the tree."""
    name, depth = thread.head.id, -depths[thread.head.id]
    for k, step in enumerate(thread.steps()):
        yield step[0], step[1], depth, place, k, name, step


def _depth(head: ThreadHead, heads: dict[str, ThreadHead]) -> int:
    met = {head.id}
    while (above := _above(head, heads)) is not None and above.id not in met:
        met.add(above.id)
        head = above
    return len(met)


codex = Importer(
    system=_SYSTEM,
    suffixes=(".jsonl", ".jsonl.zst", ".json"),
    sniff=_sniff,
    signs=("timestamp", "type", "payload", "session_meta", "response_item"),
    sidecar=_sidecar,
    group=_group,
    read_session=_read,
    becomes={
        "response_item": ("orchestrator_decision", "message", "aggregate", "tool_call", "tool_result", "spawn", "despawn"),
        "event_msg": ("human_intervention", "return", "safety_event", "spawn"),
        "compacted": ("orchestrator_decision", "message"),
        "security_risk_score": ("safety_event",),
        "a guardian's answer": ("safety_event",),
        "exec stream": ("orchestrator_decision", "message", "tool_call", "tool_result", "spawn", "return", "despawn"),
        "rollout-trace bundle": ("orchestrator_decision", "message", "tool_call", "tool_result", "spawn", "return", "despawn"),
    },
    versions="0.79 to 0.144; older shapes",
    exact="tokens, threads, calls",
    lost="when a call began, approvals, encrypted text, old times, instructions, world state, settings, plans",
)
