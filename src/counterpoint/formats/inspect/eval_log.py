"""An Inspect log as its header and its samples, however it was written: `.eval`, chunked `.eval`, or one JSON document.

A sample's `attachment://` references are resolved through `Sample.text`, its `input_refs` through `Sample.prompt`. Tokens,
scores and prompts are read at the end: a score that is no number is None and stays in `meta`.

Always true: samples come one at a time; an entry that cannot be read is counted and the others go on; a later entry of the
same name replaces an earlier one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from counterpoint.errors import InputError
from counterpoint.formats.importer import Session
from counterpoint.formats.importing.chat import Message, arguments_text, message_of
from counterpoint.formats.importing.files import File
from counterpoint.formats.importing.usage import Usage
from counterpoint.formats.importing.values import as_dict, as_list, count, decode, number, text_of
from counterpoint.formats.inspect.archive import MAGIC, Archive

_SAMPLE = re.compile(
    r"samples/(?P<id>.+)_epoch_(?P<epoch>\d+)(?:\.json|/(?P<part>sample|metadata)\.json|/(?P<kind>\w+)/(?P<start>\d+)\.json)"
)
_SEQUENCES = ("messages", "events", "attachments")
_REFERENCE = "attachment://"


@dataclass
class EvalLog:
    """What a log says about all of its samples."""

    eval: dict[str, Any]
    status: str
    """`success`, `error`, `cancelled`, `started`; `running` where the header has not been written yet."""
    has_samples: bool = True


@dataclass
class Sample:
    """One sample of one epoch."""

    data: dict[str, Any]
    attachments: dict[str, Any]
    """By hash, or by number where the sample is chunked."""
    pool: list[Any] = field(default_factory=list)
    """Messages that `input_refs` point into."""
    missing: int = 0
    """References to attachments that are not there."""

    @classmethod
    def of(cls, data: dict[str, Any]) -> Sample:
        """A sample that was written as one object."""
        pool = as_list(data.get("message_pool")) or as_list(as_dict(data.get("events_data")).get("messages"))
        return cls(data, as_dict(data.get("attachments")), pool)

    def text(self, content: Any) -> str:
        """The text of a content, with references to attachments resolved."""
        if isinstance(content, str):
            if not content.startswith(_REFERENCE):
                return content
            found = self.attachments.get(content[len(_REFERENCE) :])
            self.missing += not isinstance(found, str)
            return found if isinstance(found, str) else content
        if isinstance(content, list):
            return "\n".join(t for t in map(self.text, content) if t)
        if isinstance(content, dict) and (content.get("type") == "text" or "text" in content):
            return self.text(content.get("text") or "")
        return text_of(content)

    def prompt(self, event: dict[str, Any], known: list[Any]) -> Iterator[Message]:
        """The messages that a model event was given. Those of the pool that the agent's `known` references cover are left out;
        `known` then holds the event's own."""
        refs = [r for r in as_list(event.get("input_refs")) if isinstance(r, list) and len(r) == 2]
        raw = as_list(event.get("input"))
        if refs and not raw:
            ranges = [(count(a) or 0, count(b) or 0) for a, b in refs]
            raw = [self.pool[i] for a, b in _beyond(known, ranges) for i in range(a, min(b, len(self.pool)))]
            known[:] = ranges
        for item in raw:
            if (found := message_of(item, self.text)) is not None:
                yield found


def _beyond(known: list[Any], ranges: list[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """What ranges hold beyond those before: a prompt grows at its end, and only that is looked at."""
    for k, (start, end) in enumerate(ranges):
        if k < len(known) and known[:k] == ranges[:k] and known[k][0] == start:
            yield max(start, min(known[k][1], end)), end
        else:
            yield start, end


def read_log(session: Session, file: File) -> tuple[EvalLog, Iterator[Sample]] | None:
    """The log in a file, or None when it is none."""
    with file.open() as stream:
        is_zip = stream.read(4) == MAGIC
    if is_zip:
        try:
            archive = Archive(file)
        except InputError as error:
            session.report.broke(file.name, None, error.one_line())
            return None
        return _of_archive(session, file, archive)
    document = session.document(file)
    if not isinstance(document, dict) or not isinstance(document.get("eval"), dict):
        return None
    samples = [Sample.of(s) for s in as_list(document.get("samples")) if isinstance(s, dict)]
    return EvalLog(document["eval"], str(document.get("status") or "unknown"), bool(samples)), iter(samples)


def _of_archive(session: Session, file: File, archive: Archive) -> tuple[EvalLog, Iterator[Sample]]:
    header = _entry(session, file, archive, "header.json") if "header.json" in archive.entries else None
    start = {} if header else as_dict(_entry(session, file, archive, "_journal/start.json"))
    if archive.is_cut:
        session.report.broke(file.name, None, "the archive has no directory: it is cut off, or still being written")
    names: dict[tuple[str, str], dict[str, str]] = {}
    for name in archive.entries:
        if found := _SAMPLE.fullmatch(name):
            part = found["part"] or (f"{found['kind']}/{found['start']}" if found["kind"] else "whole")
            names.setdefault((found["id"], found["epoch"]), {})[part] = name
    header = as_dict(header)
    status = str(header.get("status") or "unknown") if header else "running"
    log = EvalLog(as_dict(header.get("eval")) or as_dict(start.get("eval")), status, bool(names))
    return log, _samples(session, file, archive, list(names.values()))


def _samples(session: Session, file: File, archive: Archive, names: list[dict[str, str]]) -> Iterator[Sample]:
    try:
        for parts in names:
            if "whole" in parts:
                data = _entry(session, file, archive, parts["whole"])
                if isinstance(data, dict):
                    yield Sample.of(data)
            elif "sample" in parts:
                data = _entry(session, file, archive, parts["sample"])
                if isinstance(data, dict):
                    yield _chunked(session, file, archive, parts, data)
    finally:
        archive.close()


def _chunked(session: Session, file: File, archive: Archive, parts: dict[str, str], shell: dict[str, Any]) -> Sample:
    found: dict[str, list[Any]] = {kind: [] for kind in _SEQUENCES}
    for kind in _SEQUENCES:
        starts = sorted(int(p.split("/")[1]) for p in parts if p.startswith(f"{kind}/"))
        for start in starts:
            # A chunk that is lost leaves its numbers empty, so that references to later ones stay right.
            found[kind] += [None] * (start - len(found[kind]) if start - len(found[kind]) < 1_000_000 else 0)
            found[kind] += as_list(_entry(session, file, archive, parts[f"{kind}/{start}"]))
    data = {**shell, "events": found["events"]}
    if "metadata" in parts:
        data["metadata"] = _entry(session, file, archive, parts["metadata"])
    attachments = {str(i): text for i, text in enumerate(found["attachments"])}
    sample = Sample(data, attachments, found["messages"])
    refs = [r for r in as_list(shell.get("message_refs")) if isinstance(r, list) and len(r) == 2]
    data["messages"] = [m for a, b in refs for m in sample.pool[count(a) or 0 : count(b) or 0]]
    return sample


def _entry(session: Session, file: File, archive: Archive, name: str) -> Any:
    try:
        found = decode(archive.read(name))
    except KeyError:
        return None
    except InputError as error:
        session.report.broke(f"{file.name}/{name}", None, error.one_line())
        return None
    session.report.records += 1
    return found


# -- numbers and words ---------------------------------------------------------------------------------------------------------


_GRADES = {"C": 1.0, "I": 0.0, "P": 0.5, "N": 0.0, "yes": 1.0, "true": 1.0, "no": 0.0, "false": 0.0}


def usage_of(usage: Any) -> tuple[Usage | None, float | None]:
    """Tokens and cost of one call. Whether `input_tokens` holds the cached ones differs by provider; `total_tokens` tells."""
    got = as_dict(usage)
    given, out = count(got.get("input_tokens")), count(got.get("output_tokens"))
    if given is None and out is None:
        return None, None
    read, wrote = count(got.get("input_tokens_cache_read")) or 0, count(got.get("input_tokens_cache_write")) or 0
    reasoning, total = count(got.get("reasoning_tokens")) or 0, count(got.get("total_tokens"))
    cost = number(got.get("total_cost"))
    if (read or wrote) and total == (given or 0) + (out or 0):
        return Usage.whole(given, out, cached=read, written=wrote, reasoning=reasoning), cost
    return Usage(given or 0, read, wrote, out or 0, reasoning), cost


def score_number(value: Any) -> float | None:
    """A score's value as a number: Inspect's own grades, numbers, truth values."""
    if isinstance(value, bool):
        return float(value)
    if isinstance(value, str) and value in _GRADES:
        return _GRADES[value]
    if isinstance(value, str) and value.lower() in _GRADES:
        return _GRADES[value.lower()]
    return number(value)


def scores_of(scores: Any) -> dict[str, float]:
    """Every number among a sample's scores: `scorer`, or `scorer/key` where its value has parts."""
    out: dict[str, float] = {}
    for name, score in as_dict(scores).items():
        value = score.get("value") if isinstance(score, dict) else score
        parts = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else None
        named = {name: value} if parts is None else {f"{name}/{key}": part for key, part in parts}
        out.update({key: found for key, part in named.items() if (found := score_number(part)) is not None})
    return out


def prompt_of(arguments: Any) -> str:
    """What an agent is asked by a call: its one text argument, else all of them."""
    texts = [value for value in as_dict(arguments).values() if isinstance(value, str)]
    return texts[0] if len(texts) == 1 and len(as_dict(arguments)) == 1 else arguments_text(arguments)
