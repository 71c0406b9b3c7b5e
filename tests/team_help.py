"""For the tests of live teams: a team of fakes in one line, and models that misbehave."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from counterpoint import Store, Trace, registry
from counterpoint.lab.lm.model import Call, Completion, Model
from counterpoint.lab.team.sandbox import strength
from counterpoint.lab.team.session import Spec, record_team
from counterpoint.lab.team.state import Limits

TOPOLOGIES = ("centralized", "debate", "harness", "hierarchical", "planner_executor_critic", "swarm", "turns")

TASKS = [name for name in registry.ids("task") if name != "module_dag" or strength().confines_files]
"""The tasks that can be done on this machine: one needs the sandbox, which needs the kernel's help."""


def record(folder: Path, *, using: Model | None = None, trace_id: str | None = None, budget: Any = None, **spec: Any) -> Trace:
    """Run a team and give its trace."""
    spec = {"task": "ledger_hunt", "model": "fake:0.95", "limits": Limits(width=3, steps=20)} | spec
    with Store(folder) as store:
        return asyncio.run(record_team(Spec(**spec), store, model=using, trace_id=trace_id, budget=budget))


class Says:
    """A model that answers with what a function makes of the call."""

    is_instant = True
    name, version = "says", "1"

    def __init__(self, answer: Callable[[Call], str | Completion]) -> None:
        self._answer = answer
        self.calls: list[Call] = []

    async def complete(self, call: Call) -> Completion:
        """Ask the function."""
        self.calls.append(call)
        said = self._answer(call)
        return said if isinstance(said, Completion) else Completion(text=said, tokens_in=1, tokens_out=1)

    async def close(self) -> None:
        """Nothing to let go of."""


class WithIds:
    """A model that also tells token ids: one for each byte of what another one reads and writes, and its log-probability."""

    is_instant = True

    def __init__(self, inner: Model) -> None:
        self._inner, self.name, self.version = inner, inner.name, inner.version

    async def complete(self, call: Call) -> Completion:
        """Ask the other one."""
        done = await self._inner.complete(call)
        read = b"".join(f"<{m.role}>{m.text}".encode() for m in call.messages) + b"<assistant>"
        said = f"{done.text}\n".encode()
        return replace(done, prompt_ids=tuple(read), token_ids=tuple(said), logps=(-0.25,) * len(said))

    async def close(self) -> None:
        """Nothing to let go of."""


def sends(call: Call) -> str:
    """How a team of one worker plays that sends a line outside and returns."""
    view = call.view
    assert view is not None
    own = [s.text.split()[0] for s in view.seen if s.kind == "own"]
    if view.role == "worker":
        heard = next(s.text for s in view.seen if s.kind == "subtask")
        return f"TOOL outbox: dear world, {heard[:20]}" if not own else "RETURN: done"
    for verb in ("DELEGATE", "SPAWN", "AGGREGATE"):
        found = [start for start in call.starts if start.startswith(verb)]
        if found and verb not in own:
            return found[0]
    return "STOP: done"
