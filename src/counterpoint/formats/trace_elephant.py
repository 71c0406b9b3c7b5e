"""TraceElephant: failed runs of three teams as the calls of their models, labelled with who and when.

The teams are Captain-Agent, Magentic-One and SWE-Agent. A run is a folder: `trace_metadata.json` has the labels, and
`step_records.json` an entry for each call of a model.

| record | becomes |
|---|---|
| step record i | event `s{i}`: `message`, or `orchestrator_decision` of the Orchestrator, with model and tokens |
| `tool_logs` of a record | `tool_call` and `tool_result`, events `s{i}:tool{k}` |
| first system message of an agent's prompts | a `message` of `system` |
| `task_instruction` | `human_intervention` |
| `mistake_agent`, `mistake_step`, `mistake_reason` | `extra` of the event of that `step_id`, `metrics`, `meta["labels"]` |

The records of Magentic-One often name the speaker before on a ledger: what names a next speaker and an instruction is put down as
said by the Orchestrator, and counted so.

What is lost: the prompts, but for each agent's first system message; they repeat what was said before.

Always true: a run without labels is read; labels without their run are counted.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from counterpoint.errors import InputError
from counterpoint.formats.draft import Draft
from counterpoint.formats.importer import Importer, Session
from counterpoint.formats.importing.chat import Message, message_of
from counterpoint.formats.importing.files import File, first_keys
from counterpoint.formats.importing.lane import Lane
from counterpoint.formats.importing.usage import Usage
from counterpoint.formats.importing.values import as_dict, as_list, compact, count, decode, string, text_of
from counterpoint.trace import Trace

_LEADER = "Orchestrator"
_LEDGER_KEYS = {"next_speaker", "instruction_or_question"}
_NOWHERE = "a labelled step that is in the run"
_ALONE = "labels without their run"
_RENAMED = "a ledger is the Orchestrator's, whatever agent its record names"


def _sniff(head: bytes) -> bool:
    keys = first_keys(head).keys()
    if keys >= {"step_id", "agent_name", "input"}:
        return True
    return keys >= {"run_id", "system_name"} and bool(keys & {"mistake_step", "mistake_agent", "task_instruction"})


def _group(files: Sequence[File]) -> Iterable[Session]:
    folders: dict[str, list[File]] = {}
    for file in files:
        folders.setdefault(file.name.rpartition("/")[0] or ".", []).append(file)
    return [Session(name, some) for name, some in folders.items()]


def _read(session: Session) -> Iterator[Trace]:
    about: dict[str, Any] = {}
    records: list[dict[str, Any]] | None = None
    for file in session.files:
        document = session.document(file)
        if isinstance(document, list):
            records = (records or []) + [as_dict(record) for record in document]
        elif isinstance(document, dict):
            about = document
        else:
            session.report.broke(file.name, None, "neither records nor labels")
    if records is None:
        session.report.lacks[_ALONE] += 1
        return
    yield from _run(session, about, records)


def _run(session: Session, about: dict[str, Any], records: Sequence[dict[str, Any]]) -> Iterator[Trace]:
    name = string(about.get("run_id")) or session.key.rpartition("/")[2]
    draft = session.draft(f"trace_elephant/{name}", string(about.get("task_id")) or name, system="trace_elephant")
    said = [_answer(record) for record in records]
    ledgers = [_ledger(answer.text) for answer in said]
    speakers = [
        _LEADER if led else string(record.get("agent_name")) or "agent" for led, record in zip(ledgers, records, strict=True)
    ]
    is_led = any(ledgers)
    draft.topology = "centralized" if is_led else None
    lanes = {who: draft.lane(who, role=who, leads=is_led and who == _LEADER) for who in dict.fromkeys(speakers)}
    _open(draft, lanes, text_of(about.get("task_instruction")), speakers, records)
    for i, (record, answer) in enumerate(zip(records, said, strict=True)):
        if ledgers[i] and record.get("agent_name") != _LEADER:
            draft.report.linked(_RENAMED, exact=False)
        _step(draft, lanes, speakers[i], record, answer, ledgers[i], i)
    _label(draft, about, records)
    yield from draft.traces()


def _open(draft: Draft, lanes: dict[str, Lane], task: str, speakers: Sequence[str], records: Sequence[dict[str, Any]]) -> None:
    """What every agent knows at first: the task, and its own instructions."""
    if task:
        fields: dict[str, Any] = {"role": "user", "from_": "user", "source": "user", "trusted": True}
        asked = draft.event("human_intervention", "user", id="task", text=task, **fields)
        for lane in lanes.values():
            lane.hears(asked, "message")
    for who, record in zip(speakers, records, strict=True):
        for raw in as_list(as_dict(record.get("input")).get("messages"))[:1] if who in lanes else []:
            message = message_of(raw)
            if message is not None and message.role == "system" and f"system:{who}" not in draft.rows:
                lanes[who].prompt(message.text, by="system", source="system", id=f"system:{who}")
    draft.report.lacks["prompts"] += 1


def _answer(record: dict[str, Any]) -> Message:
    """What the model answered."""
    choice = as_dict(next(iter(as_list(as_dict(record.get("output")).get("choices"))), None))
    raw = as_dict(choice.get("message"))
    return message_of({"role": "assistant", **raw}) or Message("assistant", text=text_of(raw.get("content")))


def _ledger(text: str) -> dict[str, Any]:
    """The ledger that an answer is, or an empty one."""
    begin, end = text.find("{"), text.rfind("}")
    if not 0 <= begin < end or "next_speaker" not in text:
        return {}
    try:
        found = as_dict(decode(text[begin : end + 1]))
    except InputError:
        return {}
    return found if found.keys() >= _LEDGER_KEYS else {}


def _step(
    draft: Draft, lanes: dict[str, Lane], who: str, record: dict[str, Any], answer: Message, ledger: dict[str, Any], i: int
) -> None:
    output = as_dict(record.get("output"))
    used = as_dict(output.get("usage"))
    given, made = count(used.get("prompt_tokens")), count(used.get("completion_tokens"))
    usage = Usage(fresh=given or 0, output=made or 0) if given is not None or made is not None else None
    words = [answer.text, *(f"{call.tool}({call.text})" for call in answer.calls)]
    to = string(as_dict(ledger.get("next_speaker")).get("answer")) or string(ledger.get("next_speaker"))
    event = lanes[who].step(
        id=f"s{i}", text="\n".join(filter(None, words)), usage=usage, model=string(output.get("model")), from_=who, to=to,
        decision="delegate" if to else None, source="peer", trusted=True,
    )  # fmt: skip
    for k, log in enumerate(map(as_dict, as_list(record.get("tool_logs")))):
        called = as_dict(log.get("function"))
        tool = string(called.get("name")) or string(log.get("name")) or "tool"
        asked = "" if answer.calls else compact(called.get("arguments") or "")
        told = text_of(log.get("result", log.get("output")) or "")
        lanes[who].call(tool, id=f"s{i}:tool{k}:call", call=f"s{i}:tool{k}", text=asked)
        lanes[who].result(f"s{i}:tool{k}", told, id=f"s{i}:tool{k}")
    for lane in lanes.values():
        if event is not None and lane is not lanes[who]:
            lane.hears(event, "message")


def _label(draft: Draft, about: dict[str, Any], records: Sequence[dict[str, Any]]) -> None:
    agent, step = string(about.get("mistake_agent")), count(about.get("mistake_step"))
    known = ("run_id", "task_id", "task_instruction")
    draft.meta["labels"] = {key: value for key, value in about.items() if key not in known and value is not None}
    if step is None:
        return
    numbers = [count(record.get("step_id")) for record in records]
    if step not in numbers:
        draft.report.lacks[_NOWHERE] += 1
        return
    place = numbers.index(step)
    draft.set(
        f"s{place}", extra={"is_mistake": True, "mistake_agent": agent, "mistake_reason": string(about.get("mistake_reason"))}
    )
    draft.metrics["mistake_step"] = float(place)


trace_elephant = Importer(
    suffixes=(".trace_elephant.json",),
    sniff=_sniff,
    signs=("run_id", "system_name", "task_instruction", "step_id", "agent_name", "tool_logs"),
    system="trace_elephant",
    group=_group,
    read_session=_read,
    rank=1,
    becomes={
        "step records": ("message", "orchestrator_decision", "tool_call", "tool_result"),
        "task_instruction": ("human_intervention",),
        "mistake_agent, mistake_step, mistake_reason": ("extra", "metrics", "meta"),
    },
    versions="the set of April 2026, by a public reader of it; no file of it was at hand",
    exact="speakers, models, tokens, mistakes",
    lost="prompts that repeat what was said; times",
)
"""Runs of TraceElephant."""
