"""The learning loop of `lm-decide`: teams, calls and new tokens a second, an update's parts, and when the GPU is busy.

Always true: every case learns from one start (some steps of imitation) with the claim's own settings, for as many updates, in
processes of its own; what is counted begins when the last run has made its first update, in which kernels are compiled, and ends
with the first run's last one. `ahead` plays the next update's teams while this one is learned; its peer waits. Needs a GPU with
CUDA; a trial elsewhere takes a tiny model: $COUNTERPOINT_LM and $COUNTERPOINT_LM_SCALE=0.01.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from _timing import report, row

from counterpoint.lab.bench.claims._language import device, has_gpu, imitate_settings, scale, usual
from counterpoint.lab.bench.claims._language import learn_settings as learned
from counterpoint.lab.bench.claims.lm_decide import COIN, PRICES, sized_tasks

_BASE = {"task": sized_tasks(), "prices": PRICES, "eval_episodes": 2, "is_greedy_too": False, "keep_traces": 0}


def begin(folder: Path, steps: int) -> Path:
    """A start: the model after some steps of imitation; what a step took is printed."""
    from counterpoint.lab.train.lm.run import train_language

    shown = imitate_settings(1000, demos="fake:0.8", options=COIN) | {"steps": steps, "teams": 400 if scale() == 1 else 12}
    rows: list[tuple[float, int]] = []

    def tell(kind: str, said: Mapping[str, Any]) -> None:
        if kind == "update":
            rows.append((time.monotonic(), said["steps"]))

    train_language(folder, usual(1, 1, **_BASE, imitate=shown, slots=256), progress=tell)
    if len(rows) > 2:
        (first, some), (last, more) = rows[1], rows[-1]
        tell_row(case="imitation", seconds_a_step=(last - first) / (more - some))
    return folder / "model"


def tell_row(**about: Any) -> None:
    """One line of JSON, as soon as it is known."""
    print(json.dumps(about), flush=True)


def loop(folder: Path, start: str, seed: int, at_once: int, learn: Mapping[str, Any]) -> None:
    """One run; its rows with the time they came at go to `folder.jsonl`."""
    from counterpoint.lab.train.lm.run import train_language

    with folder.with_suffix(".jsonl").open("w") as out:

        def tell(kind: str, said: Mapping[str, Any]) -> None:
            if kind == "update":
                plain = {k: v for k, v in said.items() if not isinstance(v, list)}
                out.write(json.dumps({"at": time.time(), **plain}) + "\n")
                out.flush()

        told = usual(seed, at_once, **_BASE, slots=128 if has_gpu() else 32) | {"model": start, "learn": dict(learn)}
        train_language(folder, told, progress=tell)


@contextmanager
def utilisation(out: list[tuple[float, float]]) -> Iterator[None]:
    """What `nvidia-smi` says, ten times a second: the share of the last while in which a kernel ran."""
    command = ["nvidia-smi", "--query-gpu=utilization.gpu", "--format=csv,noheader,nounits", "-lms", "100"]
    try:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    except OSError:
        yield
        return

    def hear() -> None:
        assert process.stdout is not None
        for line in process.stdout:
            if line.strip().isdigit():
                out.append((time.time(), float(line)))

    thread = threading.Thread(target=hear, daemon=True)
    thread.start()
    try:
        yield
    finally:
        process.kill()
        process.wait()
        thread.join()


def measured(folder: Path, start: Path, at_once: int, learn: Mapping[str, Any]) -> dict[str, Any]:
    """Runs side by side: what they did a second, all together, and what an update of one took."""
    context, busy = multiprocessing.get_context("spawn"), list[tuple[float, float]]()
    folder.mkdir(parents=True)
    places = [folder / f"run{k}" for k in range(at_once)]
    with utilisation(busy):
        told = [(place, str(start), 10 + k, at_once, dict(learn)) for k, place in enumerate(places)]
        runs = [context.Process(target=loop, args=one) for one in told]
        for run in runs:
            run.start()
        for run in runs:
            run.join()
    if any(run.exitcode for run in runs):
        raise SystemExit(f"a run of {folder.name} failed")
    rows = [[json.loads(line) for line in place.with_suffix(".jsonl").read_text().splitlines()] for place in places]
    begin, end = max(some[0]["at"] for some in rows), min(some[-1]["at"] for some in rows)
    if begin >= end:
        raise SystemExit(f"the runs of {folder.name} were not learning at one time: more --updates")
    # of an update that is partly inside, that part counts: those that are inside whole are the short ones
    counted = [
        (max(0.0, min(end, now["at"]) - max(begin, before["at"])) / (now["at"] - before["at"]), before, now)
        for some in rows
        for before, now in pairwise(some)
    ]
    updates = sum(share for share, _, _ in counted)
    rate = {
        name: sum(share * (now[key] - before[key]) for share, before, now in counted) / (end - begin)
        for name, key in (("teams", "episodes"), ("calls", "calls"), ("tokens", "tokens"))
    }
    parts = {
        part: sum(share * now["profile"].get(part, 0.0) for share, _, now in counted) / updates for part in rows[0][-1]["profile"]
    }
    shares = [share for at, share in busy if begin <= at <= end]
    return {
        "update_s": at_once * (end - begin) / updates, "first_update_s": rows[0][0]["play_s"] + rows[0][0]["learn_s"],
        "updates": updates, "a_second": rate, "parts": parts, "busy": statistics.mean(shares) / 100 if shares else None,
        "reward": [some[-1]["reward"] for some in rows],
    }  # fmt: skip


def _rows(found: Mapping[tuple[int, bool], Mapping[str, Any]]) -> list[dict[str, Any]]:
    out = []
    for (count, is_ahead), ours in found.items():
        peer = found.get((count, False)) if is_ahead else None
        name = f"{count} at once, {'playing ahead' if is_ahead else 'waiting'}"
        for what in ("teams", "calls", "tokens"):
            their = None if peer is None else peer["a_second"][what]
            out.append(row(f"{name}: {what}", ours["a_second"][what], their, "a second", is_rate=True))
        out.append(row(f"{name}: an update", ours["update_s"], None if peer is None else peer["update_s"], "s"))
        if ours["busy"] is not None:
            out.append(row(f"{name}: GPU busy", 100 * ours["busy"], None, "% of the time"))
    return out


def main(given: Sequence[str] | None = None) -> None:
    """Start, then every case."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="alone only, and fewer updates")
    parser.add_argument("--json", action="store_true", help="print the rows as JSON")
    parser.add_argument("--updates", type=int, default=6, help="of each run, the first of which is not counted")
    parser.add_argument("--steps", type=int, default=80, help="of imitation")
    parser.add_argument("--start", type=Path, help="a model's folder to learn from, instead of imitating")
    parser.add_argument("--at-once", type=int, nargs="+", default=[1, 3], help="runs that share the GPU")
    told = parser.parse_args(given)
    if not has_gpu() and scale() == 1:
        print("skipped: a loop of a language model needs a GPU with CUDA; see the top of this file for a trial without one")
        return
    device()
    updates, counts = (3, [1]) if told.quick else (told.updates, told.at_once)
    found: dict[tuple[int, bool], dict[str, Any]] = {}
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        start = told.start or begin(folder / "start", told.steps if scale() == 1 else 3)
        for count in counts:
            for is_ahead in (False, True):
                learn = learned(20, groups=15) | {"updates": updates, "ahead": is_ahead}
                found[count, is_ahead] = one = measured(folder / f"{count}-{is_ahead}", start, count, learn)
                tell_row(case=f"{count} at once", ahead=is_ahead, **one)
    report("the loop", _rows(found), as_json=told.json)


if __name__ == "__main__":
    main()
