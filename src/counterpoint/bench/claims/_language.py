"""What the claims about language models share: runs in folders that are gone on with, seeds side by side on one GPU.

Always true: a run that is finished is read and not made again; one that was cut off goes on. So a claim can be made in parts: the
same command again goes on where the last one ended. Delete the folder (`$COUNTERPOINT_RUNS`, else ./runs, then claims/NAME) to
begin anew.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from counterpoint.errors import CounterpointError, Refused
from counterpoint.train.folder import RunFolder

T1 = {
    "name": "T1",
    "set": {"documents": 8, "rows": 2, "parts": 2, "firms": 6, "alias_rate": 0.0, "contradictions": 0.0},
    "limits": {"width": 2, "turns": 12, "steps": 14, "max_tokens": 96, "context": 5000},
}
"""The ledger hunt at its easiest."""
HELD_OUT = 512


def model() -> str:
    """The model that learns; another one by $COUNTERPOINT_LM, for a trial on a small machine."""
    return os.environ.get("COUNTERPOINT_LM", "smollm2-135m")


def scale() -> float:
    """How much of the usual size is made: 1, or less by $COUNTERPOINT_LM_SCALE for a trial, whose numbers mean nothing."""
    return float(os.environ.get("COUNTERPOINT_LM_SCALE", "1"))


def scaled(count: int, least: int = 2) -> int:
    """A count at the present scale."""
    return max(least, round(count * scale()))


def device() -> str:
    """The GPU; without one the claim is refused, but for a trial."""
    from counterpoint.train.lm.policies import check_device

    try:
        check_device("cuda")
    except Refused:
        if scale() < 1:
            return "cpu"
        fix = "run it on a machine with one"
        raise Refused("this claim trains a language model and needs a GPU with CUDA", fix=fix) from None
    return "cuda"


def folder_of(claim: str) -> Path:
    """Where a claim's runs are."""
    return Path(os.environ.get("COUNTERPOINT_RUNS", "runs")) / "claims" / claim


def usual(seed: int, at_once: int, **more: Any) -> dict[str, Any]:
    """Settings that all runs of the claims share, with `at_once` of them on one GPU."""
    cores, is_gpu = os.cpu_count() or 2, device() == "cuda"
    return {
        "model": model(), "device": device(), "seed": seed, "eval_every": 10_000, "checkpoint_every": 8,
        "eval_episodes": scaled(HELD_OUT), "is_greedy_too": True, "is_eval_first": False, "keep_traces": 2,
        "workers": max(1, (cores - at_once) // at_once), "slots": max(64, 1024 // at_once) if is_gpu else 32,
        "tokens": 32_768 if is_gpu else 4096, **more,
    }  # fmt: skip


def made(folder: Path, config: Mapping[str, Any]) -> RunFolder:
    """A finished run: made now, gone on with, or there already."""
    from counterpoint.train.lm.run import train_language

    lines = folder.with_name(folder.name + ".log")
    lines.parent.mkdir(parents=True, exist_ok=True)
    begin = time.time()
    with lines.open("a") as out:

        def tell(kind: str, row: Mapping[str, Any]) -> None:
            if kind in ("update", "eval", "alert", "end", "note"):
                plain = {k: v for k, v in row.items() if not isinstance(v, list)}
                out.write(json.dumps({"kind": kind, "t": round(time.time() - begin, 1), **plain}, default=str) + "\n")
                out.flush()

        if (folder / "about.json").is_file():
            return train_language(folder, {}, resume=True, progress=tell)
        return train_language(folder, config, progress=tell)


def side_by_side(part: Callable[..., Any], given: Sequence[tuple[Any, ...]]) -> None:
    """A part for each of some arguments, each in a process of its own; one that fails is named when all have ended."""
    device()  # what is refused is refused before anything begins
    context = multiprocessing.get_context("spawn")
    processes = [context.Process(target=part, args=args) for args in given]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    failed = [args for args, process in zip(given, processes, strict=True) if process.exitcode]
    if failed:
        what = f"{len(failed)} of {len(given)} parts failed, the first with {failed[0]}"
        raise CounterpointError(what, fix="what it printed, and its .log, tell more")


def last_eval(run: RunFolder) -> dict[str, Any]:
    """The final evaluation."""
    return run.evals()[-1]


def demonstrator(task: Mapping[str, Any], who: str, options: Mapping[str, Any], count: int) -> float:
    """The share of the held-out tasks that a fake solves."""
    from counterpoint.train.lm.settings import TaskMix

    traces = _played(TaskMix(**task), who, options, count)
    return float(np.mean([(t.metrics or {})["task_success"] for t in traces]))


def _played(mix: Any, who: str, options: Mapping[str, Any], count: int) -> list[Any]:
    from counterpoint.train.lm.driver import Driver, Rollout
    from counterpoint.train.lm.policies import check_device, read_model

    folder = read_model(model(), check_device("cpu")).folder
    with Driver(folder, workers=max(1, (os.cpu_count() or 2) - 1)) as driver:
        return driver.play(
            [Rollout(spec=mix.spec(seed, who, options), trace_id=f"by-hand-{seed}") for seed in range(count)], None
        )
