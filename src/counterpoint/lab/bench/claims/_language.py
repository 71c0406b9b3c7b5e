"""What the claims about language models share: runs in folders that are gone on with, several of them at once on one GPU.

Always true: a run that is finished is read and not made again; one that was cut off goes on. So a claim can be made in parts: the
same command again goes on where the last one ended, and finished runs are read without a GPU. Delete the folder
(`$COUNTERPOINT_RUNS`, else ./runs, then claims/NAME, and the model's name where it is another) to begin anew.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from multiprocessing.connection import wait
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from counterpoint.display import working
from counterpoint.errors import CounterpointError, InputError, Refused
from counterpoint.lab.bench.claim import ClaimRow, reported
from counterpoint.lab.train.folder import RunFolder

if TYPE_CHECKING:
    from counterpoint.lab.train.lm.training import LanguageTraining

_USUAL = "smollm2-135m"
HELD_OUT = 512
AT_ONCE = 5
"""Runs that share one GPU."""
_FEW_ROWS = {"firms": 6, "alias_rate": 0.0, "contradictions": 0.0}
_TURNS = {"turns": 16, "steps": 14, "max_tokens": 96, "context": 4096}
WEAK = {"demos": "fake:0.7", "options": {"explore": 0.0}, "keep": "all", "lr": 3e-4}
"""A demonstrator that errs in three steps of ten, good teams and bad ones alike."""


def ledger_hunt(documents: int, parts: int, *, width: int, topology: str = "centralized") -> dict[str, Any]:
    """The ledger hunt with as many rows to find as it has parts, without aliases and rumours."""
    more = {"turns": 40, "steps": 40} if topology == "harness" or width > 4 else {}
    dials = {"documents": documents, "rows": parts, "parts": parts, **_FEW_ROWS}
    return {"name": "T1", "topology": topology, "set": dials, "limits": {**_TURNS, **more, "width": width}}


T1 = ledger_hunt(8, 2, width=2)
"""The ledger hunt at its easiest."""


def model() -> str:
    """The model that learns; another one by $COUNTERPOINT_LM: a name that `counterpoint models` lists, or a path."""
    return os.environ.get("COUNTERPOINT_LM", _USUAL)


def another_model() -> Iterator[ClaimRow]:
    """A row that names the model, where it is not the usual one: what the claim says holds for that one."""
    if model() == _USUAL:
        return
    from counterpoint.lab.lm.weights import described, find

    source = find(model())
    yield reported(f"parameters of {source.name}, which learns here", [described(source).parameters or 0])


def scale() -> float:
    """How much of the usual size is made: 1, or less by $COUNTERPOINT_LM_SCALE for a trial, whose numbers mean nothing."""
    said = os.environ.get("COUNTERPOINT_LM_SCALE", "1")
    try:
        return float(said)
    except ValueError:
        raise InputError(f"{said!r} is not a number", where="COUNTERPOINT_LM_SCALE", fix="1, or less for a trial: 0.01") from None


def scaled(count: int, least: int = 2) -> int:
    """A count at the present scale."""
    return max(least, round(count * scale()))


def has_gpu() -> bool:
    """Whether there is a GPU with CUDA here."""
    from counterpoint.lab.train.lm.policies import check_device

    try:
        check_device("cuda")
    except Refused:
        return False
    return True


def device() -> str:
    """The GPU; without one the claim is refused, but for a trial."""
    if has_gpu():
        return "cuda"
    if scale() < 1:
        return "cpu"
    raise Refused("this claim trains a language model and needs a GPU with CUDA", fix="run it on a machine with one")


def folder_of(claim: str) -> Path:
    """Where a claim's runs are; those of another model than the usual one are apart."""
    own = claim if model() == _USUAL else f"{claim}-{Path(model()).name}"
    return Path(os.environ.get("COUNTERPOINT_RUNS", "runs")) / "claims" / own


class Player(NamedTuple):
    """A model that plays, and the folder of what it did."""

    training: LanguageTraining
    written: RunFolder


def usual(seed: int, at_once: int, **more: Any) -> dict[str, Any]:
    """Settings that all runs of the claims share, with `at_once` of them on one GPU; refused only when a run begins."""
    cores, is_gpu = os.cpu_count() or 2, has_gpu() or scale() == 1
    return {
        "model": model(), "device": "cuda" if is_gpu else "cpu", "seed": seed, "eval_every": 10_000, "checkpoint_every": 10_000,
        "eval_episodes": scaled(HELD_OUT), "is_greedy_too": True, "is_eval_first": False, "keep_traces": 2,
        "workers": max(1, (cores - at_once) // at_once), "slots": max(128, 768 // at_once) if is_gpu else 32,
        "tokens": (49_152 if at_once == 1 else 16_384) if is_gpu else 4096, "context": 4096, **more,
    }  # fmt: skip


def imitate_settings(steps: int, **more: Any) -> dict[str, Any]:
    """How long the weak demonstrator is imitated."""
    return {**WEAK, "teams": scaled(2500), "steps": scaled(steps), "batch": scaled(192), **more}


def learn_settings(updates: int, *, groups: int = 16, samples: int = 12, **more: Any) -> dict[str, Any]:
    """How reinforcement is made: clipped policy gradient, four steps an update, the rate falling to a tenth."""
    told = {"updates": scaled(updates), "groups": scaled(groups), "samples": scaled(samples)}
    return {**told, "lr": 1e-4, "last_rate": 0.1, "steps": 4, "cap": 0.0, **more}


def finished_run(folder: Path, config: Mapping[str, Any]) -> RunFolder:
    """A finished run: made now, gone on with, or there already."""
    from counterpoint.lab.train.lm.run import train_language
    from counterpoint.lab.train.lm.settings import named_in

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
            return train_language(folder, {}, resume=True, progress=tell, allow=named_in(config))
        return train_language(folder, config, progress=tell)


def is_made(folder: Path) -> bool:
    """Whether a run is there and finished."""
    return (folder / "about.json").is_file() and RunFolder.open(folder).about["status"] == "finished"


def side_by_side(part: Callable[..., Any], given: Sequence[tuple[Any, ...]], *, at_once: int = AT_ONCE) -> None:
    """A part for each of some arguments (the first is the folder of the run that it makes), each in a process of its own.

    Those whose run is finished are left out; one that fails is named when all have ended. An interruption (Ctrl-C, SIGTERM) is
    passed on, and waited for: each run ends what must stay whole (an evaluation, at the most), and keeps a checkpoint.
    """
    waiting = [args for args in given if not is_made(args[0])]
    if not waiting:
        return
    device()  # what is refused is refused before anything begins
    context = multiprocessing.get_context("spawn")
    running: dict[Any, tuple[Any, tuple[Any, ...]]] = {}
    failed: list[tuple[Any, ...]] = []
    with working("training runs", len(waiting)) as work, _all_end(running):
        while waiting or running:
            while waiting and len(running) < at_once:
                args = waiting.pop(0)
                process = context.Process(target=part, args=args)
                process.start()
                running[process.sentinel] = process, args
            for ended in wait(list(running)):
                process, args = running.pop(ended)
                process.join()
                work.step(about=args[0].name)
                if process.exitcode:
                    failed.append(args)
    if failed:
        what = f"{len(failed)} of {len(given)} parts failed, the first with {failed[0]}"
        raise CounterpointError(what, fix="see what it printed, and its .log file")


@contextmanager
def _all_end(running: Mapping[Any, tuple[Any, tuple[Any, ...]]]) -> Iterator[None]:
    """Where this is interrupted, the processes that are running are told so and waited for."""
    from counterpoint.lab.train.session import Interrupts

    with Interrupts():
        try:
            yield
        except KeyboardInterrupt:
            for process, _ in running.values():
                process.terminate()
            for process, _ in running.values():
                process.join()
            raise


def go_on(folder: Path, config: dict[str, Any]) -> None:
    """A run of a claim, for `side_by_side`."""
    with suppress(KeyboardInterrupt):
        finished_run(folder, config)
        return
    raise SystemExit(130)


def last_eval(folder: Path) -> dict[str, Any]:
    """The final evaluation."""
    return RunFolder.open(folder).evals()[-1]


def seconds_per_step(folder: Path) -> float:
    """How long a step of imitation took, by the median row of a run; the first row, which compiles, is left out."""
    rows = [r for r in RunFolder.open(folder).metrics() if r.get("phase") == "imitate"]
    steps = np.diff([0, *(r["steps"] for r in rows)])
    each = [r["seconds"] / max(1, n) for r, n in zip(rows, steps, strict=True)]
    return float(np.median(each[1:] or each))


def by_hand(
    tasks: Sequence[Mapping[str, Any]], who: str, options: Mapping[str, Any], prices: Mapping[str, float], *, first: int
) -> np.ndarray:
    """What a fake earns on each of the held-out tasks from `first` on, with prices taken off; and whether it solved them:
    [2, tasks]."""
    from counterpoint.lab.train.lm.advantages import less_prices
    from counterpoint.lab.train.lm.driver import Driver, Rollout
    from counterpoint.lab.train.lm.policies import check_device, read_model
    from counterpoint.lab.train.lm.settings import Prices, TaskMix

    count, folder = scaled(HELD_OUT), read_model(model(), check_device("cpu")).folder
    mixes = [TaskMix(**task) for task in tasks]
    rollouts = [
        Rollout(spec=mixes[seed % len(mixes)].spec(seed, who, options), trace_id=f"by-hand-{seed}")
        for seed in range(first, first + count)
    ]
    with Driver(folder, workers=max(1, (os.cpu_count() or 2) - 1)) as driver:
        traces = [less_prices(t, Prices(**prices)) for t in driver.play(rollouts, None)]
    return np.array([[t.rewards["team"] for t in traces], [(t.metrics or {})["task_success"] for t in traces]])


@contextmanager
def player(folder: Path, run: Path, tasks: Sequence[Mapping[str, Any]], at_once: int, **more: Any) -> Iterator[Player]:
    """A trained model that plays as it is, and the folder that keeps what came out; one that was cut off begins anew."""
    from counterpoint.lab.train.lm.driver import Driver
    from counterpoint.lab.train.lm.policies import Policies, check_device, read_model
    from counterpoint.lab.train.lm.run import about_of
    from counterpoint.lab.train.lm.settings import language_settings
    from counterpoint.lab.train.lm.training import LanguageTraining

    settings = language_settings(usual(0, at_once, task=list(tasks), model=str(run), learn={"updates": 1}, **more))
    files = read_model(settings.model, check_device(settings.device))
    shutil.rmtree(folder, ignore_errors=True)
    with (
        RunFolder.create(folder, settings.as_dict(), about_of(settings, files)) as written,
        Driver(files.folder, workers=settings.workers) as driver,
    ):
        yield Player(LanguageTraining(settings, Policies(settings, files, ()), driver), written)
        written.set_status("finished")


def held_out(folder: Path, run: Path, task: Mapping[str, Any], first: int, at_once: int) -> None:
    """What a trained model does on other tasks: written into `folder` like the last evaluation of a run."""
    with player(folder, run, [task], at_once, eval_first=first) as playing:
        playing.written.append_eval(playing.training.evaluate()[0])
