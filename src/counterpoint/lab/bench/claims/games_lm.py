"""TextArena and reasoning-gym by a language model: eight of them are played, a game and questions are learned.

All eight are played by the model as it comes, by agents of one model in every seat. Then it learns one game, three in a row by
three players of whom two are the world's and play at random, after imitation of legal play; and one set of questions, sums of two
digits, from what the package's checker pays alone, as nobody else knows the answers. Runs differ in all that is drawn; held-out
episodes are drawn by the claim's seed, the same before and after, and differences are taken episode by episode.

Always true: scores are the packages' own. Both packages must be installed (`pip install '.[textarena,reasoning-gym]'`).

On a GPU that is lent for ten minutes at a time, the same command again and again, as for `dpbench-lm`:

    timeout 450 counterpoint reproduce games-lm --seed 90210 --seeds 3
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from counterpoint.errors import InputError
from counterpoint.lab.bench.claim import ClaimRow, at_least, reported
from counterpoint.lab.bench.claims._language import (
    AT_ONCE,
    another_model,
    folder_of,
    go_on,
    imitate_settings,
    last_eval,
    learn_settings,
    model,
    player,
    scaled,
    side_by_side,
    usual,
)
from counterpoint.lab.bench.claims._starts import first_held_out, of_rows
from counterpoint.lab.train.folder import RunFolder
from counterpoint.lab.worlds.packages import package_world

_EPISODES = 128


def _task(name: str, tokens: int) -> dict[str, Any]:
    return {"name": name, "topology": "turns", "limits": {"turns": 400, "steps": 60, "max_tokens": tokens, "context": 4096}}


GAMES = [_task(f"textarena:{name}", 24) for name in ("ThreePlayerTicTacToe-v0", "LiarsDice-v0-small@3", "Snake-v0@3")]
SETS = [
    _task(f"reasoning_gym:{name}", 48)
    for name in ("chain_sum", "spell_backward", "leg_counting", "number_sorting", "family_relationships")
]
LEARNED: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "game": (_task("textarena:ThreePlayerTicTacToe-v0@3~2", 8), {"demos": "fake:1", "options": {}, "teams": 512}),
    "questions": (_task("reasoning_gym:chain_sum?min_terms=2&max_terms=2&min_digits=1&max_digits=2", 16), {}),
}
"""What is learned, and what is imitated first."""


def games_lm(*, seed: int, seeds: int) -> Iterator[ClaimRow]:
    """A language model plays three games and five sets of other packages, and learns one of each; needs CUDA."""
    if seeds < 1:
        raise InputError(f"seeds is at least 1, not {seeds}")
    for task in (*GAMES, *SETS):
        package_world(task["name"])  # a package that is missing is named before anything begins
    yield from another_model()
    folder, first = folder_of("games-lm"), first_held_out(seed)
    runs = {name: [folder / f"{name}-{seed}-{k}" for k in range(seeds)] for name in LEARNED}
    given = [(run, _settings(name, seed + k, first)) for name, some in runs.items() for k, run in enumerate(some)]
    side_by_side(go_on, given)
    shown = {task["name"]: folder / f"shown-{seed}-{place}" for place, task in enumerate((*GAMES, *SETS))}
    side_by_side(_play, [(shown[task["name"]], task, first) for task in (*GAMES, *SETS)])
    for name, there in shown.items():
        yield from _as_it_comes(name, last_eval(there))
    for name, some in runs.items():
        yield from _learned(LEARNED[name][0]["name"], some)


def _settings(name: str, seed: int, first: int) -> dict[str, Any]:
    """Those of one run: an evaluation, perhaps imitation, reinforcement, an evaluation."""
    task, shown = LEARNED[name]
    imitate = imitate_settings(200, **{**shown, "teams": scaled(shown["teams"])}) if shown else {"steps": 0}
    told = {"task": [task], "imitate": imitate, "learn": learn_settings(24, groups=16, samples=12)}
    return usual(seed, AT_ONCE, eval_first=first, is_eval_first=True, **told)


def _play(folder: Path, task: dict[str, Any], first: int) -> None:
    """What the model does in one of them as it comes, written like an evaluation."""
    more = {"eval_first": first, "eval_episodes": scaled(_EPISODES)}
    with player(folder, Path(model()), [task], AT_ONCE, **more) as playing:
        playing.written.append_eval(playing.training.evaluate()[0])


def _as_it_comes(name: str, found: dict[str, Any]) -> Iterator[ClaimRow]:
    for what, key in (("reward", "values"), ("won or solved", "successes"), ("actions that are illegal", "illegal")):
        values = [found["measures"]["illegal"]] if key == "illegal" else [found[key]]
        yield reported(f"{name}, as it comes: {what}", of_rows(values, "model"))


def _learned(name: str, runs: list[Path]) -> Iterator[ClaimRow]:
    evals = [RunFolder.open(run).evals() for run in runs]
    before, after = (np.array([one[place]["values"] for one in evals], np.float64) for place in (0, -1))
    yield reported(f"{name}: reward before", of_rows(before, "run"))
    yield reported(f"{name}: reward after", of_rows(after, "run"))
    yield at_least(f"{name}: reward, after over before", of_rows(after - before, "run"), 0.0, by="low")
    for place, when in ((0, "before"), (-1, "after")):
        solved = np.array([one[place]["successes"] for one in evals], np.float64)
        yield reported(f"{name}: won or solved {when}", of_rows(solved, "run"))
