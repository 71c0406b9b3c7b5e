"""Adapters for trainers: rows a second through each, the comparison that follows every write included, and bytes a row.

The rows are calls of teams of fakes on T1, credited by `group_relative`; a tokenizer reads and writes for them
(`COUNTERPOINT_TOKENIZER` names the folder of a model; without it, tokens are bytes). Adapters whose package is not installed are
left out, and that is said.
"""

from __future__ import annotations

import asyncio
import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from _timing import arguments, interleaved, report, row

import counterpoint as cpt
from counterpoint import Trace, registry
from counterpoint.errors import Refused
from counterpoint.lab.lm.chat import Chat
from counterpoint.lab.lm.model import Call, Completion, Model
from counterpoint.lab.team.session import Spec, assemble, make_model, play_to_trace
from counterpoint.lab.team.state import Limits
from counterpoint.lab.trainers.row import training_rows
from counterpoint.lab.trainers.tables import to_table
from counterpoint.lab.trainers.text_call import text_calls
from counterpoint.recorder.recorder import LogicalClock, MemorySink, Recorder


class _Tokenised:
    """A fake whose answers come with token ids and log-probabilities."""

    is_instant = True
    name, version = "m", "3"

    def __init__(self, inner: Model, chat: Chat) -> None:
        self._inner, self._chat = inner, chat

    async def complete(self, call: Call) -> Completion:
        done = await self._inner.complete(call)
        prompt, said = self._chat.prompt(call.messages), self._chat.answer(done.text)
        logps = tuple(-1 / (3 + i) for i, _ in enumerate(said))
        return replace(done, prompt_ids=tuple(prompt), token_ids=tuple(said), logps=logps, start_logps=None)

    async def close(self) -> None:
        await self._inner.close()


def _played(teams: int, chat: Chat) -> list[Trace]:
    """Each task twice, by a weak fake and a strong one."""
    out = []
    for number in range(teams):
        dials = {"documents": 8, "rows": 2, "parts": 2, "firms": 6}
        spec = Spec(task="ledger_hunt", config=dials, seed=number // 2, limits=Limits(width=2))
        task, sink = spec.make_task(), MemorySink()
        model = _Tokenised(make_model("fake:0.6" if number % 2 else "fake:1", task), chat)
        team = assemble(spec, task, task.instance(spec.seed), model, Recorder(sink, LogicalClock()))
        out.append(asyncio.run(play_to_trace(team, spec, sink, trace_id=f"t{number}")))
    return out


def main() -> None:
    """Write, read back and compare with each adapter, taking turns."""
    options = arguments(__doc__)
    folder = os.environ.get("COUNTERPOINT_TOKENIZER")
    traces = _played(8 if options.quick else 60, Chat.read(folder) if folder else Chat.bytes())
    found = cpt.rows(traces)
    rows, calls = training_rows(found).rows, text_calls(traces, found).calls
    work: dict[str, Any] = {}
    for name in registry.ids("trainer"):
        trainer = registry.get("trainer", name)
        if trainer.write is None:
            work[name] = lambda trainer=trainer: to_table(trainer.write_texts(calls), trainer.columns, ".parquet")
        else:
            work[name] = lambda trainer=trainer: trainer.to_bytes(rows, trainer.suffixes[0])
    sizes: dict[str, int] = {}
    for name in list(work):
        try:
            sizes[name] = len(work[name]())
        except Refused as error:
            print(f"left out  {name}: {error}", file=sys.stderr)
            del work[name]
    taken = interleaved(work, 1 if options.quick else 5, "cpu")
    read = sum(len(r.prompt_ids) for r in rows) / len(rows)
    table = []
    for name, seconds in taken.items():
        what = "calls in texts" if registry.get("trainer", name).write is None else "written, read back, compared"
        table.append(row(f"{name}: {what}", len(rows) / seconds, None, "rows/s", is_rate=True))
        table.append(row(f"{name}: bytes", sizes[name] / len(rows), None, "B/row"))
    report(f"adapters for trainers, {len(rows):,} calls with prompts of {read:.0f} tokens", table, as_json=options.json)


if __name__ == "__main__":
    main()
