"""What AutoGen's `Console` prints: blocks under `---------- name ----------`, among whatever else a program prints.

Always true: block i is the event `b{i}`; there are no times. Where a member leads (Magentic-One's orchestrator), whoever
speaks after it is taken to have been asked by it, which is inferred, and answers it with a return.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from counterpoint.errors import InputError
from counterpoint.formats.autogen.group_chat import READERS, Room, is_leader
from counterpoint.formats.draft import Draft
from counterpoint.formats.importing.usage import Usage
from counterpoint.formats.importing.values import as_dict, decode, number, string

_HEAD = re.compile(
    r"-{10} (?:(?P<type>[A-Z]\w*(?:Message|Event)(?:\[\w+\])?) \((?P<of>[^()]+)\)|(?P<name>[^-\n][^\n]{0,80}?)) -{10}\s*"
)
_IN_HEAD = re.compile(rb"^-{10} (?:\w+ \()?(user|\w*Orchestrator\w*|\w*[Mm]anager\w*)\)? -{10}\s*$", re.M)
_ANY_HEAD = re.compile(rb"^-{10} [^\n-][^\n]{0,80}? -{10}\s*$", re.M)
_ANSI = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
_TOKENS = re.compile(r"\n?\[Prompt tokens: (\d+), Completion tokens: (\d+)\]\s*$")
_BENCH = re.compile(r"^(?:SCENARIO\.PY|RUN\.SH|TESTBED) .*!#!#$")
_CALL = re.compile(r"FunctionCall\(id='([^']*)', arguments='((?:[^'\\]|\\.)*)', name='([^']*)'\)")
_RESULT = re.compile(
    r"FunctionExecutionResult\(content=(?:'((?:[^'\\]|\\.)*)'|\"((?:[^\"\\]|\\.)*)\")"
    r"[^)]*?call_id='([^']*)'(?:, is_error=(True|False))?"
)
_ADDRESSED = re.compile(r"(?P<name>.+?) \((?:-> (?P<to>[^()]+)|(?P<note>[^()]+))\)")
_SUMMARY = "Summary"
_NEXT = "the member that speaks after the orchestrator was asked by it"


@dataclass(slots=True)
class Block:
    """What one member printed."""

    name: str
    text: str
    kind: str | None = None
    to: str | None = None
    is_aside: bool = False
    usage: Usage | None = None
    at: float | None = None


def is_console(head: bytes) -> bool:
    """Whether a file that begins so is a console log: two blocks, one of them of a user, a manager or an orchestrator."""
    return _IN_HEAD.search(head) is not None and len(_ANY_HEAD.findall(head)) >= 2


def blocks_of(lines: Iterable[str]) -> list[Block]:
    """The blocks; what comes before the first is noise, and a last one without words is still being printed."""
    parts: list[tuple[re.Match[str], list[str]]] = []
    is_over = False
    for raw in lines:
        line = _ANSI.sub("", raw).rstrip("\r\n")
        is_over = is_over or _BENCH.match(line) is not None
        if match := _HEAD.fullmatch(line):
            parts.append((match, []))
            is_over = False
        elif parts and not is_over:
            parts[-1][1].append(line)
    blocks = [_block(match, "\n".join(body).strip()) for match, body in parts]
    return blocks if not blocks or blocks[-1].text else blocks[:-1]


def _block(match: re.Match[str], text: str) -> Block:
    usage = None
    if tokens := _TOKENS.search(text):
        usage, text = Usage.whole(int(tokens[1]), int(tokens[2])), text[: tokens.start()].rstrip()
    block = speaker_block(match["of"] or match["name"], text)
    block.kind, block.usage = match["type"], usage
    return block


def speaker_block(name: str, text: str) -> Block:
    """A block whose speaker may carry a note: `Orchestrator (-> WebSurfer)`, `Orchestrator (thought)`."""
    noted = _ADDRESSED.fullmatch(name)
    if noted is None:
        return Block(name, text)
    return Block(noted["name"], text, to=noted["to"], is_aside=(noted["note"] or "") in ("thought", "updated plan"))


def put_blocks(draft: Draft, blocks: list[Block]) -> None:
    """Put a conversation down."""
    _Console(draft, blocks).put()


class _Console:
    def __init__(self, draft: Draft, blocks: list[Block]) -> None:
        self.draft, self.room, self.blocks = draft, Room(draft), blocks
        self._asked: dict[str, str] = {}
        """Member to the leader whose question it has not answered yet."""
        self._linked: set[str] = set()

    def put(self) -> None:
        for i, block in enumerate(self.blocks):
            id = f"b{i}"
            if block.name == _SUMMARY and block.kind is None:
                self._summary(block.text)
            elif block.name == "user":
                self.room.human("user", block.text, id=id, at=block.at)
            elif is_leader(block.name):
                self._leads(block, i, id)
            elif block.text.startswith("[FunctionCall("):
                self._calls(block, id)
            elif block.text.startswith("[FunctionExecutionResult("):
                self._results(block, id)
            else:
                self._speaks(block, id)

    def _leads(self, block: Block, i: int, id: str) -> None:
        to = block.to or _ledger(block.text)
        after = next((b for b in self.blocks[i + 1 :] if b.kind != "ThoughtEvent"), None)
        if to is None and not block.is_aside and after and after.name not in ("user", _SUMMARY) and not is_leader(after.name):
            to = after.name
            self.draft.report.inferred[_NEXT] += to not in self._linked
            self._linked.add(to)
        if to is not None:
            self._asked[to] = block.name
        decision = "delegate" if to else "stop" if after is not None and after.name == _SUMMARY else None
        fields: dict[str, Any] = {"to": to, "decision": decision, "extra": {"is_aside": True} if block.is_aside else None}
        event = self.room.lane(block.name).step(end=block.at, text=block.text, usage=block.usage, id=id, **fields)
        if not block.is_aside:
            self.room.aloud(event, block.name)

    def _speaks(self, block: Block, id: str) -> None:
        lead = self._asked.pop(block.name, None)
        if lead is None:
            self.room.turn(block.name, block.text, end=block.at, usage=block.usage, id=id)
            return
        lane = self.room.lane(block.name)
        event = lane.step(end=block.at, text=block.text, usage=block.usage, id=id)
        is_reader = block.name in READERS
        lane.returns(lead, source="tool" if is_reader else "peer", trusted=not is_reader)
        self.room.aloud(event, block.name)
        self.room.skip(lead)

    def _calls(self, block: Block, id: str) -> None:
        lane = self.room.lane(block.name)
        lane.step(end=block.at, usage=block.usage, id=id, only_calls=True)
        for call, args, name in _CALL.findall(block.text):
            lane.call(name, args, call=call, id=call, at=block.at)

    def _results(self, block: Block, id: str) -> None:
        lane = self.room.lane(block.name)
        results = _RESULT.findall(block.text)
        for single, double, call, failed in results:
            lane.result(call, single or double, id=f"{call}:result", at=block.at, ok=None if not failed else failed == "False")
        if not results:
            lane.result(None, block.text, id=id, at=block.at)

    def _summary(self, text: str) -> None:
        pairs = (line.split(":", 1) for line in text.splitlines() if ":" in line)
        summary = {name.strip(): value.strip() for name, value in pairs}
        self.draft.meta["summary"] = summary
        for name, value in summary.items():
            if (value_number := number(value.removesuffix(" seconds"))) is not None:
                self.draft.metrics[name.lower().replace(" ", "_")] = value_number


def _ledger(text: str) -> str | None:
    """The next speaker of a progress ledger, where the text is one."""
    if not text.lstrip().startswith("{"):
        return None
    try:
        return string(as_dict(as_dict(decode(text)).get("next_speaker")).get("answer"))
    except InputError:
        return None
