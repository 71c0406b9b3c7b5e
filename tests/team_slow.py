"""A team of fakes that takes its time, as a process of its own: `python team_slow.py STORE ID SECONDS [TOPOLOGY]`."""

from __future__ import annotations

import asyncio
import sys

from counterpoint import Store
from counterpoint.lab.lm.model import Call, Completion
from counterpoint.lab.lm.models.fake import Fake
from counterpoint.lab.team.session import Spec, record_team
from counterpoint.lab.team.state import Limits


class Slow(Fake):
    """A fake that sleeps before it answers; the same answers, the same name."""

    async def complete(self, call: Call) -> Completion:
        """Answer after a while."""
        await asyncio.sleep(SECONDS)
        return await super().complete(call)


STORE, ID, SECONDS = sys.argv[1], sys.argv[2], float(sys.argv[3])
TOPOLOGY = sys.argv[4] if len(sys.argv) > 4 else "centralized"

if __name__ == "__main__":
    spec = Spec(task="ledger_hunt", model="fake:0.95", limits=Limits(width=3, steps=20), seed=6, topology=TOPOLOGY)
    with Store(STORE) as store:
        asyncio.run(record_team(spec, store, trace_id=ID, model=Slow(task=spec.make_task(), skill=0.95)))
