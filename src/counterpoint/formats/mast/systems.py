"""The logs of MAST's systems, which are plain text, as turns of named speakers.

ChatDev, MetaGPT (its communication log, and what its logger prints), AppWorld, OpenManus, HyperAgent and AG2; what Magentic-One
prints is AutoGen's console, and read there. The system is known by its content.

Always true: a turn is what one speaker said at once, however many lines it has; what only the program says about itself (HTTP
requests, banners, steps counted) is left out and counted; a time is one that stands in the log.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator
from typing import NamedTuple

from counterpoint.formats.importing.chat import Turn
from counterpoint.formats.importing.usage import Usage
from counterpoint.formats.importing.values import seconds

SYSTEM = "system"
"""The speaker of what a system's own program tells its agents."""


class SystemLog(NamedTuple):
    """What a log tells."""

    system: str
    task: str
    turns: list[Turn]
    left_out: Counter[str]


_HYPER = re.compile(r"\s*(HyperAgent_\S+) - [A-Z]+ - ")
_HYPER_SAYS = re.compile(r"([A-Z][\w -]{0,60}?)(?:'s Response|\s*->\s*([A-Z][\w -]{0,60}?)): ?")
_CHATDEV = re.compile(r"^\[(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d) [A-Z]+\] ", re.M)
_CHATDEV_SAYS = re.compile(r"([A-Z][\w ]{0,60}?): \*\*([\w ]+?)<->([\w ]+?) on ?: ?(\w+)(?:, turn (\d+))?\*\*\s*")
_CHATDEV_TASK = re.compile(r"\*\*task_prompt\*\*\s*[:|]\s*(.+?)\s*(?:\||\n\n|\n\*\*|\Z)", re.S)
_CALL_USAGE = re.compile(r"prompt_tokens: (\d+),?\s+completion_tokens: (\d+)")
_COMMUNICATION = "MetaGPT Agent Communication Log"
_BLOCK = re.compile(r"^-{20,}\s*$", re.M)
_SENT = re.compile(r"\[([^\]\n]+)\]\s*FROM: *(\S+) *TO: *(.*)\n(?:ACTION: *(.*)\n)?(?:CONTENT:\s*\n)?")
_NEW = re.compile(r"\[([^\]\n]+)\]\s*NEW MESSAGES:\s*\n+([\w() .-]+):\s*\n?")
_LOGURU = re.compile(r"^(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?:\.\d+)?)\s*\|\s*\w+\s*\|\s*([\w.]+):(\w+):\d+ - ", re.M)
_ROLE = re.compile(r"(\w+)\((\w[\w ]*)\): ?")
_THOUGHT = re.compile(r"\W*(\w+)'s thoughts: ?")
_DONE = re.compile(r"\W*Tool '([^']+)' completed its mission! Result: ?")
_MANUS_USAGE = re.compile(r"Token usage: Input=(\d+)(?:, Completion=(\d+))?")
_MANUS_STREAMED = re.compile(r"Estimated completion tokens for streaming response: (\d+)")
_STARTS = re.compile(r"\W*(?:Activating tool: '|Tools being prepared: |Tool arguments: )")
_APPWORLD = re.compile(
    r"^[ \t]*(?:(Response from|Message to) (.+?)(?: Agent)?|(Reply from) (.+?) Agent to (.+?)(?: Agent)?"
    r"|(Code Execution Output)|(Entering|Exiting) .+? message loop)[ \t]*:?[ \t]*$",
    re.M,
)
_APPWORLD_TASK = re.compile(r"^\*{5,}.*?Task.*?\*{5,}\s*\n", re.M)
_AG2 = re.compile(r"^[ \t-]*content:[ \t]*(.*?)\n[ \t]*role:[ \t]*(\S+)[ \t]*\n[ \t]*name:[ \t]*([^\n]+)", re.M | re.S)


def system_of(text: str) -> str | None:
    """Which system's log a text begins like."""
    return next((name for name, (is_it, _) in _SYSTEMS.items() if is_it(text)), None)


_PREAMBLE = 40
_SECTION = re.compile(r"\s*(?:#{1,6} |(?:[A-Z]{2}-)?\d+(?:\.\d+)+[.:)]? +[A-Z])|.{200,}\.\s*$")


def is_log(text: str) -> bool:
    """Whether a text is the log of a system from its beginning on, and not a document that quotes one: before its first heading
    stand a few lines of the program at most, and no titles of sections or paragraphs."""
    heading = _HEADINGS.get(system_of(text) or "")
    first = heading.search(text) if heading is not None else None
    if first is None:
        return False
    before = [line for line in text[: first.start()].splitlines() if line.strip()]
    return len(before) <= _PREAMBLE and not any(map(_SECTION.match, before))


def read_system(text: str) -> SystemLog | None:
    """The turns of a log; None where it is of no system that is known here."""
    name = system_of(text)
    if name is None:
        return None
    left_out: Counter[str] = Counter()
    task, turns = _SYSTEMS[name][1](text, left_out)
    return SystemLog(name, task, turns, left_out) if turns else None


def _parts(pattern: re.Pattern[str], text: str) -> Iterator[tuple[re.Match[str], str]]:
    """Each heading that a pattern finds, with what stands below it up to the next."""
    matches = list(pattern.finditer(text))
    for at, match in enumerate(matches):
        end = matches[at + 1].start() if at + 1 < len(matches) else len(text)
        yield match, text[match.end() : end].strip()


class _Paid:
    """The tokens of model calls that the program tells on lines of their own: each stands on the turn that the call made."""

    def __init__(self, turns: list[Turn]) -> None:
        self._turns, self._open = turns, None  # type: list[Turn], Usage | None

    def add(self, usage: Usage | None) -> None:
        """A call whose turn is told next."""
        if usage is not None:
            self._open = usage if self._open is None else self._open.plus(usage)

    def take(self) -> Usage | None:
        """What the turn that is told now cost."""
        usage, self._open = self._open, None
        return usage

    def settle(self) -> list[Turn]:
        """The turns; what was paid after the last words, or was told after them, stands on the last of an agent."""
        last = next((k for k in reversed(range(len(self._turns))) if self._turns[k].tool is None), None)
        if last is not None and (usage := self.take()) is not None:
            before = self._turns[last].usage
            self._turns[last] = self._turns[last]._replace(usage=usage if before is None else before.plus(usage))
        return self._turns


# -- HyperAgent ------------------------------------------------------------------------------------------------------------


def _hyperagent(text: str, left_out: Counter[str]) -> tuple[str, list[Turn]]:
    turns: list[Turn] = []
    for _, body in _parts(re.compile(_HYPER.pattern, re.M), text):
        match = _HYPER_SAYS.match(body)
        if match is None:
            left_out["line of the program"] += 1
        else:
            turns.append(Turn(match[1], body[match.end() :].strip(), to=match[2]))
    return "", turns


# -- ChatDev ---------------------------------------------------------------------------------------------------------------


def _day_first(stamp: str) -> float | None:
    """ChatDev writes the day before the month."""
    year, day, rest = stamp[:4], stamp[5:7], stamp[8:]
    return seconds(f"{year}-{rest[:2]}-{day}T{rest[3:]}") if int(rest[:2]) <= 12 else seconds(stamp.replace(" ", "T"))


def _chatdev(text: str, left_out: Counter[str]) -> tuple[str, list[Turn]]:
    turns: list[Turn] = []
    paid = _Paid(turns)
    asked = _CHATDEV_TASK.search(text)
    for head, body in _parts(_CHATDEV, text):
        match = _CHATDEV_SAYS.match(body)
        if tokens := None if match else _CALL_USAGE.search(body):
            paid.add(Usage.whole(int(tokens[1]), int(tokens[2])))
        elif match is None:
            left_out["line of the program"] += 1
        else:
            to = match[3] if match[2] == match[1] else match[2]
            turns.append(Turn(match[1], body[match.end() :].strip(), to=to, at=_day_first(head[1]), usage=paid.take()))
    return asked[1] if asked else "", paid.settle()


# -- MetaGPT ---------------------------------------------------------------------------------------------------------------


def _communication(text: str, left_out: Counter[str]) -> tuple[str, list[Turn]]:
    turns: list[Turn] = []
    for block in _BLOCK.split(text):
        sent, new = _SENT.search(block), _NEW.search(block)
        if sent is not None:
            speaker = "human" if sent[2].lower() == "human" else sent[2]
            to = None if "<all>" in sent[3] else sent[3].strip("{}' ") or None
            turns.append(Turn(speaker, block[sent.end() :].strip(), to=to, at=seconds(sent[1])))
        elif new is not None:
            turns.append(Turn(new[2].strip(), block[new.end() :].strip(), at=seconds(new[1])))
        elif block.strip():
            left_out["part without a speaker"] += 1
    return "", turns


def _metagpt(text: str, left_out: Counter[str]) -> tuple[str, list[Turn]]:
    turns: list[Turn] = []
    paid = _Paid(turns)
    for head, body in _parts(_LOGURU, text):
        match = _ROLE.match(body)
        if match is None and (tokens := _CALL_USAGE.search(body)):
            paid.add(Usage.whole(int(tokens[1]), int(tokens[2])))
            paid.settle()  # a role says what it is to do, and then its model is called
        elif match is None:
            left_out[f"line of {head[2].partition('.')[0]}"] += 1
        else:
            turns.append(Turn(match[2], body[match.end() :].strip(), at=seconds(head[1].replace(" ", "T")), usage=paid.take()))
    return "", turns


# -- OpenManus -------------------------------------------------------------------------------------------------------------


def _openmanus(text: str, left_out: Counter[str]) -> tuple[str, list[Turn]]:
    turns: list[Turn] = []
    paid = _Paid(turns)
    for head, body in _parts(_LOGURU, text):
        at = seconds(head[1].replace(" ", "T"))
        if match := _THOUGHT.match(body):
            turns.append(Turn(match[1], body[match.end() :].strip(), at=at, usage=paid.take()))
        elif tokens := _MANUS_USAGE.match(body):
            paid.add(Usage.whole(int(tokens[1]), int(tokens[2] or 0)))
        elif streamed := _MANUS_STREAMED.match(body):
            paid.add(Usage(output=int(streamed[1])))
        elif done := _DONE.match(body):
            turns.append(Turn(done[1], body[done.end() :].strip(), at=at, tool=done[1]))
        else:
            left_out["start of a tool" if _STARTS.match(body) else "line of the program"] += 1
    return "", paid.settle()


# -- AppWorld --------------------------------------------------------------------------------------------------------------


def _appworld(text: str, left_out: Counter[str]) -> tuple[str, list[Turn]]:
    turns: list[Turn] = []
    head, first = _APPWORLD_TASK.search(text), _APPWORLD.search(text)
    task = text[head.end() : first.start()].strip() if head and first and head.end() <= first.start() else ""
    lead = "Supervisor"
    for match, body in _parts(_APPWORLD, text):
        if match[1] == "Response from":
            turns.append(Turn(match[2], body))
        elif match[3]:
            turns.append(Turn(match[4], body, to=match[5]))
        elif match[6]:
            turns.append(Turn("code", body, tool="code"))
        elif match[1] == "Message to" and match[2] != lead:
            turns.append(Turn(lead, body, to=match[2]))
        elif match[1] == "Message to" and not any(body in turn.text or turn.text in body for turn in turns[-2:]):
            turns.append(Turn(SYSTEM, body, to=match[2]))
        else:
            left_out["words that were told before"] += 1
    return task, turns


# -- AG2 -------------------------------------------------------------------------------------------------------------------


def _ag2(text: str, left_out: Counter[str]) -> tuple[str, list[Turn]]:
    """The outline in which the large set of labelled runs writes a list of messages."""
    return "", [Turn(match[3].strip(), match[1].strip()) for match in _AG2.finditer(text)]


_HEADINGS = {
    "hyperagent": re.compile(_HYPER.pattern, re.M),
    "metagpt": re.compile(f"{_COMMUNICATION}|{_SENT.pattern}"),
    "chatdev": _CHATDEV,
    "openmanus": _LOGURU,
    "metagpt logger": _LOGURU,
    "appworld": re.compile(f"{_APPWORLD_TASK.pattern}|{_APPWORLD.pattern}", re.M),
}
"""How the parts of a log that is a file of its own begin."""
_Reader = Callable[[str, Counter[str]], tuple[str, list[Turn]]]
_SYSTEMS: dict[str, tuple[Callable[[str], bool], _Reader]] = {
    "hyperagent": (lambda text: re.search(_HYPER.pattern, text[:20_000], re.M) is not None, _hyperagent),
    "metagpt": (lambda text: _COMMUNICATION in text[:2000] or _SENT.match(text.lstrip()) is not None, _communication),
    "chatdev": (lambda text: _CHATDEV.search(text[:5000]) is not None and "<->" in text, _chatdev),
    "openmanus": (lambda text: _LOGURU.search(text) is not None and "app.agent." in text, _openmanus),
    "metagpt logger": (lambda text: _LOGURU.search(text) is not None and "metagpt." in text, _metagpt),
    "appworld": (lambda text: len(_APPWORLD.findall(text)) >= 2 and "Response from " in text, _appworld),
    "ag2": (lambda text: _AG2.search(text) is not None, _ag2),
}
