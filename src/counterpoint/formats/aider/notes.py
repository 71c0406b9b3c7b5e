"""What Aider notes beside a conversation: its model, tokens and costs, edits, commits, commands, errors.

Always true: a note belongs to the last step since a person spoke; one that no rule knows is counted.
"""

from __future__ import annotations

import re
from typing import Any

from counterpoint.formats.importing.chat import Call
from counterpoint.formats.importing.dialogue import Answer, Entry
from counterpoint.formats.importing.usage import Usage
from counterpoint.formats.importing.values import number

_N = r"([\d.,]+[kM]?)"
_TOKENS = re.compile(rf"Tokens: {_N} sent(?:, {_N} cache write)?(?:, {_N} cache hit)?, {_N} received")
_COST = re.compile(r"Cost: \$([\d.,]+) (?:message|request|send)")
_MODEL = re.compile(r"(?:Main model|Models?): (\S+?),? (?:with (\S+) edit format|using|\()")
_EDITOR = re.compile(r"Editor model: (\S+) with")
_VERSION = re.compile(r"Aider v(\S+)$")
_APPLIED = re.compile(r"(?:Applied edit to|Creating empty file) (.+)$")
_SKIPPED = re.compile(r"(?:Did not apply edit to|Skipping edits to) (.+?)(?: \(--dry-run\)| that matches .*)?$")
_COMMIT = re.compile(r"Commit ([0-9a-f]{7,40}) (.*)$")
_RUNNING = re.compile(r"Running (.+)$")
_DECLINED = re.compile(r"Run shell commands?\? .*\]: (?:n|no|s|d)$", re.I)
_FAILED = re.compile(
    r"The LLM did not conform to the edit format|Exception while updating files|# \d+ SEARCH/REPLACE blocks? failed"
    r"|Malformed response|Unable to create .*, skipping edits"
)
_ERROR = re.compile(
    r"(?:litellm|openai)\.[\w.]*(?:Error|Exception|Timeout)\b|Model .* has hit a token limit|The chat session is larger than"
)
_EMPTY = re.compile(r"Empty response received from LLM")
_SCALE = {"k": 1e3, "M": 1e6}


def _count(text: str | None) -> int:
    """A number of tokens as Aider writes it: 587, 1,234, 2.4k, 12k."""
    if not text:
        return 0
    scale = _SCALE.get(text[-1], 1.0)
    return round((number(text.rstrip("kM").replace(",", "")) or 0.0) * scale)


class Notes:
    """The notes of one chat, as they go by; what they say goes to the entries of the chat."""

    def __init__(self, entries: list[Entry]) -> None:
        self.entries = entries
        self.step: Entry | None = None
        """The last step since a person spoke."""
        self.version: str | None = None
        self.others = self.rounded = 0
        self._model: str | None = None
        self._editor: str | None = None
        self._is_architect = False
        self._waiting: list[str] = []

    def answered(self, text: str, thinking: str) -> None:
        """An answer; behind an architect's, in one turn, the editor's."""
        is_editor = self._is_architect and self.step is not None and bool(self.step.text) and self._editor is not None
        self._begin(self._editor if is_editor else self._model)
        assert self.step is not None
        self.step.text, self.step.thinking = text, thinking

    def _begin(self, model: str | None) -> Entry:
        self.step = Entry("assistant", id=f"m{len(self.entries)}", model=model)
        self.entries.append(self.step)
        return self.step

    def read(self, lines: list[str]) -> None:
        """The notes of a block, of which a long one goes over several lines."""
        failed: Answer | None = None
        for k, line in enumerate(lines):
            if self._is_known(lines, k, line):
                failed = None
            elif _FAILED.match(line):
                if failed is None and self.step is not None:
                    failed = self._done("edit", None, Answer("", ok=False, error=line))
                elif failed is not None:
                    failed.error = line if line.startswith("#") else failed.error
            elif failed is None:
                self.others += 1
            if failed is not None:
                failed.text = f"{failed.text}\n{line}".strip()

    def _is_known(self, lines: list[str], k: int, line: str) -> bool:
        if self._of_model(line) or self._of_tokens(line):
            return True
        if "KeyboardInterrupt" in line and line.startswith("^C"):
            if self.step is not None or (self.entries and self.entries[-1].role == "user"):
                self.entries.append(Entry("user", "^C", f"m{len(self.entries)}", extra={"interrupted": True}))
                self.step = None
            return True
        if _ERROR.match(line) or _EMPTY.match(line):
            has_asked = bool(self.entries)
            step = self.step
            if step is None or step.text or step.error:
                step = self._begin(self._model) if has_asked else None
            if step is not None:
                step.error = line[:500]
            return has_asked
        return self.step is not None and self._of_action(lines, k, line)

    def _of_model(self, line: str) -> bool:
        if match := _MODEL.match(line):
            self._model, self._is_architect = match[1], match[2] == "architect"
        elif match := _EDITOR.match(line):
            self._editor = match[1]
        elif match := _VERSION.match(line):
            self.version = match[1]
        return match is not None

    def _of_tokens(self, line: str) -> bool:
        tokens, cost = _TOKENS.match(line), _COST.search(line)
        if tokens:
            sent, written, hit, out = map(_count, tokens.groups())
            self.rounded += any(text and text[-1] in _SCALE for text in tokens.groups())
            step = self.step if self.step is not None and self.step.usage is None else self._begin(self._model)
            total = sent if hit + written <= sent else sent + hit
            step.usage = Usage.whole(total, out, cached=hit, written=written)
        if cost and self.step is not None and (tokens or line.startswith("Cost:")):
            self.step.cost = number(cost[1].replace(",", ""))
        return tokens is not None or line.startswith("Cost: $")

    def _of_action(self, lines: list[str], k: int, line: str) -> bool:
        if match := _APPLIED.match(line):
            self._done("edit", {"path": match[1]}, Answer(line, ok=True))
        elif match := _SKIPPED.match(line):
            self._done("edit", {"path": match[1]}, Answer(line, ok=False, error=line, extra={"is_rejected": True}))
        elif match := _COMMIT.match(line):
            self._done("commit", {"commit": match[1], "message": match[2]}, Answer(line, ok=True))
        elif match := _RUNNING.match(line):
            self._done("shell", {"command": match[1]}, None)
        elif match := _DECLINED.match(line):
            command = lines[k - 1] if k else ""
            answer = Answer("", ok=False, error="declined", extra={"is_rejected": True})
            self._done("shell", {"command": command}, answer)
        return match is not None

    def _done(self, tool: str, arguments: dict[str, Any] | None, answer: Answer | None) -> Answer | None:
        """Put down what was done for the last step."""
        assert self.step is not None
        call = Call(f"{self.step.id}.{len(self.step.calls)}", tool, arguments)
        self.step.calls.append(call)
        if answer is not None:
            answer.call, answer.tool = call.id, tool
            self.step.answers.append(answer)
        return answer
