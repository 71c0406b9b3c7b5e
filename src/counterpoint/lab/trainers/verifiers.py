"""verifiers and prime-rl: an Episode per run, a Trace per agent, a branch per call with its advantages.

Always true: numbers keep every digit, where verifiers' own JSON record rounds them to four decimals; every sampled token has an
advantage and a log-probability, since verifiers fills up with zeros.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np

from counterpoint.errors import InputError
from counterpoint.lab.trainers.row import TrainingRow, check_row, logps_of, version_number
from counterpoint.lab.trainers.trainer import Trainer

TESTED = ("0.4.0",)
_encode = msgspec.json.Encoder().encode


def episodes(rows: Sequence[TrainingRow]) -> list[dict[str, Any]]:
    """The rows as records that `verifiers.v1.WireEpisode.model_validate` takes."""
    by_trace: dict[str, list[tuple[int, TrainingRow]]] = {}
    for place, row in enumerate(rows):
        by_trace.setdefault(row.trace_id, []).append((place, row))
    return [_episode(trace_id, some) for trace_id, some in by_trace.items()]


def _episode(trace_id: str, some: Sequence[tuple[int, TrainingRow]]) -> dict[str, Any]:
    group = some[0][1].group
    if any(row.group != group for _, row in some):
        raise InputError("calls of one run in two groups", where=trace_id, fix="traces of one task each")
    agents: dict[tuple[str, str], list[tuple[int, TrainingRow]]] = {}
    for place, row in some:
        agents.setdefault((row.policy, row.agent), []).append((place, row))
    task = {"type": "Task", "data": {"idx": 0, "id": group}, "key": group}
    record: dict[str, Any] = {"id": trace_id, "task": task, "group": {"id": group}, "ok": True, "traces": []}
    for (policy, agent), calls in agents.items():
        nodes: list[dict[str, Any]] = []
        for _, row in calls:
            nodes += _nodes(row, len(nodes))
        info = {"policy": policy, "calls": [row.about() | {"place": place} for place, row in calls]}
        about = {"config": {"model": calls[0][1].model}, "name": agent, "trainable": True}
        record["traces"].append({"id": f"{trace_id} {agent}", "task": task, "agent": about, "nodes": nodes, "info": info,
                                 "is_completed": True, "ok": True})  # fmt: skip
    versions = [n for _, row in some if (n := version_number(row)) is not None]
    if len(versions) == len(some):
        policy_span = {"start": min(versions), "end": max(versions)}
        record["run"] = {
            "type": "train",
            "id": "counterpoint",
            "work": {"type": "train", "step": max(versions), "policy": policy_span},
        }
    return record


def _nodes(row: TrainingRow, first: int) -> list[dict[str, Any]]:
    """What was read and what was written: a branch of its own, as calls of a team need not begin with each other."""
    mask, prompt = row.mask == 1, row.prompt_ids.tolist()
    logps = logps_of(row, "verifiers")
    return [
        {"message": {"role": "user", "content": ""}, "token_ids": prompt, "mask": [False] * len(prompt)},
        {
            "parent": first,
            "message": {"role": "assistant", "content": ""},
            "sampled": True,
            "token_ids": row.completion_ids.tolist(),
            "mask": mask.tolist(),
            "logprobs": logps[mask].tolist(),
            "advantages": row.advantages[mask].tolist(),
        },
    ]


def rows_of(episodes: Sequence[dict[str, Any]]) -> list[TrainingRow]:
    """The rows in such records, in their own order."""
    placed: list[tuple[int, TrainingRow]] = []
    for trace in (t for episode in episodes for t in episode["traces"]):
        pairs = zip(trace["nodes"][::2], trace["nodes"][1::2], strict=True)
        for (read, answer), note in zip(pairs, trace["info"]["calls"], strict=True):
            about = dict(note)
            place, mask = about.pop("place"), np.asarray(answer["mask"], bool)
            if answer.get("advantages") is None or not len(answer["advantages"]) == len(answer["logprobs"]) == mask.sum():
                what = "a sampled token without an advantage or a log-probability"
                raise InputError(
                    what, where=f"{about['trace_id']} {about['event_id']}", why="verifiers would take 0", fix="export again"
                )
            columns = {name: np.zeros(len(mask)) for name in ("logprobs", "advantages")}
            for name, values in columns.items():
                values[mask] = answer[name]
            row = TrainingRow(
                prompt_ids=np.asarray(read["token_ids"], np.int64),
                completion_ids=np.asarray(answer["token_ids"], np.int64),
                mask=mask.astype(np.int64),
                logps=columns["logprobs"],
                advantages=columns["advantages"],
                **about,
            )
            check_row(row)
            placed.append((place, row))
    return [row for _, row in sorted(placed, key=lambda pair: pair[0])]


def _write(rows: Sequence[TrainingRow], suffix: str) -> bytes:
    return b"".join(_encode(episode) + b"\n" for episode in episodes(rows))


def _read(data: bytes, suffix: str) -> list[TrainingRow]:
    return rows_of([msgspec.json.decode(line) for line in data.splitlines()])


verifiers = Trainer(
    about="verifiers: an Episode per run with advantages on sampled tokens, as JSON lines",
    suffixes=(".jsonl",),
    columns=dict.fromkeys(("id", "task", "group", "run", "traces"), "json"),
    lost="versions that are no whole numbers stand in info only; rewards, texts, events and edges between agents",
    package="verifiers",
    tested=TESTED,
    write=_write,
    read=_read,
)
