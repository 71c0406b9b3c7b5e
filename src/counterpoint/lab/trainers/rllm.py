"""rLLM: an Episode per run, a Trajectory per agent, a Step per call with an advantage per token.

For `rllm.algorithm.use_precomputed_advantage: true`.

Always true: an advantage has the length of its answer, since rLLM takes zeros where it has not, with a warning alone; ids have
no colon in their task, since rLLM groups by what stands before the first; a Trajectory's name is its policy.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from urllib.parse import quote

import msgspec
import numpy as np

from counterpoint.errors import InputError
from counterpoint.lab.trainers.row import TrainingRow, check_row, logps_of, version_number
from counterpoint.lab.trainers.trainer import Trainer

_encode = msgspec.json.Encoder().encode


def episodes(rows: Sequence[TrainingRow]) -> list[dict[str, Any]]:
    """The rows as Episodes, in the fields of `rllm.types`: `Episode(**record)` takes them."""
    by_trace: dict[str, list[tuple[int, TrainingRow]]] = {}
    for place, row in enumerate(rows):
        by_trace.setdefault(row.trace_id, []).append((place, row))
    run_of: dict[str, int] = {}
    out = []
    for trace_id, some in by_trace.items():
        group = some[0][1].group
        if any(row.group != group for _, row in some):
            raise InputError("calls of one run in two groups", where=trace_id, fix="traces of one task each")
        number = run_of.get(group, 0)
        run_of[group] = number + 1
        agents: dict[tuple[str, str], list[tuple[int, TrainingRow]]] = {}
        for place, row in some:
            agents.setdefault((row.policy, row.agent), []).append((place, row))
        trajectories = [
            {"uid": f"{trace_id} {agent}", "name": policy, "steps": [_step(place, row) for place, row in calls]}
            for (policy, agent), calls in agents.items()
        ]
        about = {"trace_id": trace_id, "group": group}
        out.append({"id": f"{quote(group, safe='')}:{number}", "trajectories": trajectories, "metadata": about})
    return out


def _step(place: int, row: TrainingRow) -> dict[str, Any]:
    return {
        "id": row.name,
        "prompt_ids": row.prompt_ids.tolist(),
        "response_ids": row.completion_ids.tolist(),
        "logprobs": logps_of(row, "rLLM").tolist(),
        "advantage": np.where(row.mask == 1, row.advantages, 0.0).tolist(),
        "weight_version": version_number(row),
        "metadata": row.about() | {"place": place, "mask": row.mask.tolist()},
    }


def rows_of(episodes: Sequence[dict[str, Any]]) -> list[TrainingRow]:
    """The rows in such Episodes, in their own order."""
    placed: list[tuple[int, TrainingRow]] = []
    for episode in episodes:
        for step in (s for t in episode["trajectories"] for s in t["steps"]):
            about = dict(step["metadata"])
            place, mask = about.pop("place"), np.asarray(about.pop("mask"), np.int64)
            if not isinstance(step["advantage"], list) or len(step["advantage"]) != len(step["response_ids"]):
                what = "an advantage that is not one number for each token of the answer"
                raise InputError(
                    what, where=step["id"], why="rLLM would take zeros", fix="a file of `counterpoint export --to rllm`"
                )
            row = TrainingRow(
                prompt_ids=np.asarray(step["prompt_ids"], np.int64),
                completion_ids=np.asarray(step["response_ids"], np.int64),
                mask=mask,
                logps=np.asarray(step["logprobs"], np.float64),
                advantages=np.asarray(step["advantage"], np.float64),
                **about,
            )
            check_row(row)
            placed.append((place, row))
    return [row for _, row in sorted(placed, key=lambda pair: pair[0])]


def _write(rows: Sequence[TrainingRow], suffix: str) -> bytes:
    return b"".join(_encode(episode) + b"\n" for episode in episodes(rows))


def _read(data: bytes, suffix: str) -> list[TrainingRow]:
    return rows_of([msgspec.json.decode(line) for line in data.splitlines()])


rllm = Trainer(
    about="rLLM: an Episode per run with precomputed advantages, as JSON lines",
    suffixes=(".jsonl",),
    columns=dict.fromkeys(("id", "trajectories", "metadata"), "json"),
    lost="versions that are no whole numbers stand in metadata only; rewards, texts, events and edges",
    tested=(),
    write=_write,
    read=_read,
)
