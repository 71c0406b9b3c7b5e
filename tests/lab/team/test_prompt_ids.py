"""Token ids of prompts in live teams: kept once, and whole again in rows, forks, resumed runs and files."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from counterpoint import Delete, Store, Substitute, Trace
from counterpoint.app.load_save import load, save
from counterpoint.formats.masking import masked
from counterpoint.lab.tasks.task import task
from counterpoint.lab.team.live_replay import LiveReplay
from counterpoint.lab.team.memory import Memory
from counterpoint.lab.team.session import make_model, resume_team
from counterpoint.trace import Event, content_ref, problems
from counterpoint.trace.lines import decode_lines
from counterpoint.trace.model_calls import model_call, prompt_ids_of, prompt_of
from team_help import WithIds, record

DIALS = {"documents": 8, "rows": 2, "parts": 2, "firms": 6}


def _model() -> WithIds:
    return WithIds(make_model("fake:0.9", task("ledger_hunt").replace(**DIALS)))


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Trace]:
    folder = tmp_path_factory.mktemp("live")
    return folder, record(folder, using=_model(), config=DIALS, model="fake:0.9", trace_id="hunt")


def _check(trace: Trace) -> None:
    """Every prompt is what its texts say, token by token."""
    found = prompt_ids_of(trace)
    calls = [e for e in trace.events if model_call(e) is not None]
    assert calls
    for event in calls:
        texts = bytes(found[event.id].tolist())
        assert all(part.encode() in texts for part in prompt_of(trace, event)), event
        assert texts.endswith(b"<assistant>")
    assert not [p for p in problems(trace) if p.severity == "error"]


def _ids(event: Event) -> list[Any]:
    return list((event.extra or {})["call"]["prompt_ids"])


def test_prompts_are_written_by_what_is_new_in_them(recorded: tuple[Path, Trace]) -> None:
    trace = recorded[1]
    _check(trace)
    written = sum(isinstance(part, int) for e in trace.events if model_call(e) for part in _ids(e))
    assert written * 3 < sum(len(ids) for ids in prompt_ids_of(trace).values())


def test_stored_saved_and_read_again_they_are_the_same(recorded: tuple[Path, Trace], tmp_path: Path) -> None:
    folder, trace = recorded
    save(trace, tmp_path / "hunt.jsonl")
    with Store(folder) as store:
        stored = store.get("hunt")
    for other in (load(tmp_path / "hunt.jsonl"), stored):
        assert {k: v.tolist() for k, v in prompt_ids_of(other).items()} == {k: v.tolist() for k, v in prompt_ids_of(trace).items()}


@pytest.mark.parametrize(("pick", "do"), [("tool_call", Delete()), ("return", Substitute("none")), ("message", Delete())])
def test_a_fork_keeps_what_was_recorded_and_names_its_own_events(recorded: tuple[Path, Trace], pick: str, do: Any) -> None:
    trace = recorded[1]
    at = [e for e in trace.events if e.type == pick and e.agent != "user"][1].id
    fork = LiveReplay(model=_model()).fork(trace, at, do)
    _check(fork)
    again = LiveReplay(model=_model(), is_full=True).fork(trace, trace.events[-1].id)
    assert [_ids(e) for e in again.events if model_call(e)] == [_ids(e) for e in trace.events if model_call(e)]


def _older(trace: Trace) -> Trace:
    """The trace as it was recorded before prompts were shared: whole ids, messages as texts, effects without a turn."""
    whole, contents = prompt_ids_of(trace), dict(trace.contents)

    def ref(kept: Any) -> str:
        if isinstance(kept, str):
            return kept
        text = f"{kept[0]}\n{contents[kept[1]]}"
        contents[content_ref(text)] = text
        return content_ref(text)

    def changed(event: Event) -> Event:
        note = model_call(event)
        if note is None:
            return replace(event, turn=None if event.type in ("message", "spawn", "aggregate") else event.turn)
        prompt = {**note["prompt"], "more": [ref(kept) for kept in note["prompt"]["more"]]}
        call = {**note, "prompt": prompt, "prompt_ids": whole[event.id].tolist()}
        return replace(event, extra={**(event.extra or {}), "call": call})

    events = [changed(event) for event in trace.events]
    return replace(trace, events=events, contents=contents)


def test_older_recordings_are_read_and_forked_as_before(recorded: tuple[Path, Trace]) -> None:
    trace = recorded[1]
    older = _older(trace)
    assert len(older.contents) > len(trace.contents)
    for event in trace.events:
        assert prompt_of(older, older.events[older.index[event.id]]) == prompt_of(trace, event)
    assert {k: v.tolist() for k, v in prompt_ids_of(older).items()} == {k: v.tolist() for k, v in prompt_ids_of(trace).items()}
    at = [e for e in older.events if e.type == "tool_call"][1].id
    forks = [LiveReplay(model=_model()).fork(one, at, Delete()) for one in (older, trace)]
    _check(forks[0])
    assert [(e.key, e.content_ref) for e in forks[0].events] == [(e.key, e.content_ref) for e in forks[1].events]


def test_a_recording_answers_with_whole_prompts(recorded: tuple[Path, Trace]) -> None:
    trace = recorded[1]
    memory, whole = Memory.of(trace), prompt_ids_of(trace)
    for event in trace.events:
        if (note := model_call(event)) is not None:
            recalled = memory.find(note["address"])
            assert recalled is not None
            assert recalled.answer.prompt_ids == tuple(whole[event.id].tolist())  # type: ignore[union-attr]


def test_what_leaves_without_its_secrets_leaves_without_the_ids_that_say_them(recorded: tuple[Path, Trace]) -> None:
    trace = recorded[1]
    secret = "sk-proj-" + "a1B2c3D4e5F6g7H8" * 2
    told = [e for e in trace.events if e.type == "tool_result"][1]
    texts = {told.content_ref: f"the key is {secret}"}
    known = replace(trace, contents=trace.contents | texts)
    found = masked(known)[0]
    readers = {e.id for e in known.events if any(secret in text for text in prompt_of(known, e))}
    assert readers
    assert readers < {e.id for e in known.events if model_call(e)}
    whole, left = prompt_ids_of(trace), prompt_ids_of(found)
    assert left.keys() == whole.keys() - readers
    assert all(ids.tolist() == whole[name].tolist() for name, ids in left.items())
    assert all(("token_ids" in (model_call(e) or {})) == (e.id in left) for e in found.events if model_call(e))


class _Ends(Exception):
    """As if the process had been killed."""


class _Breaks(WithIds):
    """A model whose process ends at its n-th call."""

    def __init__(self, inner: Any, n: int) -> None:
        super().__init__(inner)
        self.left = n

    async def complete(self, call: Any) -> Any:
        self.left -= 1
        if self.left < 0:
            raise _Ends
        return await super().complete(call)


def test_what_a_killed_recorder_left_is_whole_and_goes_on_by_reference(recorded: tuple[Path, Trace], tmp_path: Path) -> None:
    with pytest.raises(_Ends):
        record(tmp_path, using=_Breaks(_model()._inner, 9), config=DIALS, model="fake:0.9", trace_id="hunt")
    journal = next((tmp_path / "journal").glob("*.jsonl"))
    _check_part(decode_lines(journal.read_bytes()))
    with Store(tmp_path) as store:
        done = asyncio.run(resume_team("hunt", store, model=_model()))
    _check(done)
    assert {e.key: e.content_ref for e in done.events} == {e.key: e.content_ref for e in recorded[1].events}


def _check_part(trace: Trace) -> None:
    ended = [e for e in trace.events if model_call(e) is not None]
    assert len(ended) == 9
    assert set(prompt_ids_of(trace)) == {e.id for e in ended}
