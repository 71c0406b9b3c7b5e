"""A language model that learned on small teams is used on larger tasks and in wider teams, as it is.

The models of `lm-learn` (two workers, eight papers) play the ledger hunt with more papers, more rows to find and more workers.
Nothing is trained. What imitation alone had made of the model stands beside each.
"""

from __future__ import annotations

from collections.abc import Iterator

from counterpoint.bench.claim import ClaimRow, reported
from counterpoint.bench.claims._language import AT_ONCE, by_hand, folder_of, held_out, last_eval, ledger_hunt, side_by_side
from counterpoint.bench.claims.lm_learn import learned

_LARGER = {
    "12 papers, 2 workers": ledger_hunt(12, 2, width=2),
    "16 papers, 4 workers": ledger_hunt(16, 4, width=4),
    "32 papers, 8 workers": ledger_hunt(32, 8, width=8),
}


def lm_transfer(*, seed: int, seeds: int) -> Iterator[ClaimRow]:
    """What was learned on eight papers and two workers, used on up to 32 papers and eight workers; needs CUDA."""
    start, runs = learned(folder_of("lm-learn"), seed, seeds)
    folder = folder_of("lm-transfer")
    for i, (name, task) in enumerate(_LARGER.items()):
        mine = [folder / f"size{i}-{run.name}" for run in (start, *runs)]
        given = [(to, run, task, AT_ONCE) for to, run in zip(mine, (start, *runs), strict=True)]
        side_by_side(held_out, given)
        rewards, solved = by_hand([task], "fake:0.7", {"explore": 0.0}, {})
        yield reported(f"{name}: demonstrator fake:0.7, solved", [solved.mean()])
        yield reported(f"{name}: demonstrator fake:0.7, score", [rewards.mean()])
        for key in ("solved", "greedy_solved", "score"):
            yield reported(f"{name}: imitation, {key}", [last_eval(mine[0])[key]])
            yield reported(f"{name}: reinforcement, {key}", [last_eval(to)[key] for to in mine[1:]])
