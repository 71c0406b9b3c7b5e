"""Two runs of one task, with token ids and log-probabilities, in the store `learn`: something to export rows of.

A fake plays, whose tokens are bytes. With a model of your own: counterpoint play --task T1 --model local:NAME --store learn

Run it: python examples/trainers/record_runs.py
"""

from __future__ import annotations

import asyncio
from dataclasses import replace

from counterpoint import Store
from counterpoint.lab.team.session import Spec, make_model, record_team


class Spelled:
    """A fake whose tokens are bytes, each of them with a chance of 1/e."""

    is_instant = True
    name, version = "spelled", "1"

    def __init__(self, inner):
        self.inner = inner

    async def complete(self, call):
        done = await self.inner.complete(call)
        read, said = "\n".join(m.text for m in call.messages).encode(), f"{done.text}\n".encode()
        return replace(done, prompt_ids=tuple(read), token_ids=tuple(said), logps=(-1.0,) * len(said))

    async def close(self):
        await self.inner.close()


def main() -> None:
    """Record a weak team and a strong one, once."""
    with Store("learn") as store:
        for name, skill in (("weak", "fake:0.5"), ("strong", "fake:1")):
            if name in store:
                continue
            spec = Spec(task="T1", config={"documents": 8, "rows": 2, "parts": 2}, model=skill)
            asyncio.run(record_team(spec, store, model=Spelled(make_model(skill, spec.make_task())), trace_id=name))
        print(len(store), "runs in learn")


if __name__ == "__main__":
    main()
