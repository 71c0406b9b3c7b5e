"""Recordings of the desk whose model is a set of rules: what a small model imitates before it is paid.

Always true: the graph is the one that is trained; the folder is whole or not there.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any


def record_desk(whole: Path, seed: int, count: int) -> None:
    """Record so many mails, drawn by the seed, in a new store."""
    from langchain_core.language_models import BaseChatModel
    from langchain_core.messages import AIMessage
    from langchain_core.outputs import ChatGeneration, ChatResult

    import counterpoint
    from counterpoint.lab.bench.own_team.desk import graph, score
    from counterpoint.lab.bench.own_team.mails import Rules, mails
    from counterpoint.recorder.adapters.langgraph import handler
    from counterpoint.store import Store

    class Scripted(BaseChatModel):
        rules: Any

        @property
        def _llm_type(self) -> str:
            return "rules"

        def _generate(self, messages: Any, stop: Any = None, run_manager: Any = None, **options: Any) -> ChatResult:
            return ChatResult(generations=[ChatGeneration(message=AIMessage(self.rules.answer(messages)))])

    folder = whole.with_name(f".{whole.name}")
    shutil.rmtree(folder, ignore_errors=True)
    with Store(folder) as store:
        for k, case in enumerate(mails(seed, count)):
            rec = counterpoint.record(store, task=f"shown-{k}", trace_id=f"shown-{k}")
            with rec:
                made = graph(Scripted(rules=Rules(case, seed * 10_000 + k)))
                asked = {"mail": case["question"], "line": "", "answer": ""}
                answer = made.invoke(asked, {"callbacks": [handler(rec)]})["answer"]
                worth = score(answer, case)
                rec.reward(team=worth)
                rec.metric(task_success=float(worth == 1.0), task_score=worth)
            _ = rec.trace
    folder.replace(whole)
