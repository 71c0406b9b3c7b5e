"""The word that a first suspect gets: by how often first suspects were right on labelled runs of the same kind.

Always true: the word follows from a measured frequency alone, never from the ranker's own share. `likely`: at least half of them
were right, on runs that nobody here had seen. `a guess`: more were than the best fixed rule gets, by the lower end of Wilson's
interval. `no step stands out`: not clearly more, or a kind of run that nobody has labelled; no step of it is named.

The kinds are those of Who&When: a *panel* whose members just speak (its generated runs), and a team whose lead keeps a *ledger*
(its hand-crafted runs). The shipped ranker was right in 40 of 84 panels that neither it nor its authors had seen. All other
frequencies are of rankings held out, on the 42 and 29 runs at hand, five folds each (ledgers and sets: seeds 700-704; panels
below the bar: 0-4 and 100-104); the signals of a ledger were chosen with those 29 labels in view. The best fixed rule is right in
13 of the 42 panels and in 9 of all 58 public runs with a ledger. Rankings of one run by several seeds are no independent ones.

No kind is `likely` today: fitted on half of the runs and tried on the other half, the bar from which half of the first suspects
should be right has 45 % of panels, and 60 % of teams with a ledger, of which nobody has seen new ones judged yet
(`counterpoint reproduce blame-who-when`).
"""

from __future__ import annotations

from msgspec import Struct

from counterpoint.audits.blame.ranker import shape_of
from counterpoint.audits.blame.steps import Steps
from counterpoint.trace.statistics import wilson_ends

LIKELY, GUESS, NOBODY = "likely", "a guess", "no step stands out"
HALF = 0.5
"""The frequency from which a first suspect is likely."""
BAR = 0.25
"""The ranker's share from which a first suspect is counted apart."""


class Rate(Struct, frozen=True, kw_only=True):
    """How often an answer was right on labelled runs of a kind."""

    right: int
    count: int
    of: str
    """What was counted, all of Who&When."""
    rule: float
    """The frequency of the best fixed rule on such runs."""
    is_unseen: bool = False
    """Whether nobody who made the ranker had seen these runs."""

    @property
    def share(self) -> float:
        """The frequency."""
        return self.right / self.count

    @property
    def word(self) -> str:
        """What may be said of a first suspect of such a run."""
        if self.share >= HALF and self.is_unseen:
            return LIKELY
        return GUESS if wilson_ends(self.right, self.count)[0] > self.rule else NOBODY

    @property
    def words(self) -> str:
        """The frequency as a clause."""
        return f"first suspects were right in {self.share:.0%} of {self.count} {self.of}"


_PANEL_RULE, _LEDGER_RULE = 13 / 42, 9 / 58
PANELS = Rate(right=40, count=84, of="unseen panels", rule=_PANEL_RULE, is_unseen=True)
WEAK_PANELS = Rate(right=7, count=39, of=f"panels with a first share below {BAR:.0%}", rule=_PANEL_RULE)
LEDGERS = Rate(right=42, count=61, of="rankings held out (15 led runs)", rule=_LEDGER_RULE)
WEAK_LEDGERS = Rate(right=16, count=84, of=f"rankings held out (led runs) with a first share below {BAR:.0%}", rule=_LEDGER_RULE)
PANEL_SETS = Rate(right=191, count=210, of="rankings of panels held out", rule=0.9)
LEDGER_SETS = Rate(right=132, count=145, of="rankings of led runs held out", rule=0.9)
"""How often the sets of nine in ten held the labelled step."""


def kind_of(steps: Steps) -> str:
    """`led`, `ledger`, `panel`, or `alone` where one agent does everything."""
    return "alone" if len(set(steps.agents)) < 2 else shape_of(steps)


def rate_of(kind: str, top: float) -> Rate | None:
    """The frequency that a first suspect with this share of the ranking rests on; None of a kind that nobody has labelled."""
    if kind == "panel":
        return PANELS if top >= BAR else WEAK_PANELS
    if kind == "ledger":
        return LEDGERS if top >= BAR else WEAK_LEDGERS
    return None


def coverage_of(kind: str) -> Rate | None:
    """How often the sets of steps of such runs held the labelled one; None of a kind that nobody has labelled."""
    return {"panel": PANEL_SETS, "ledger": LEDGER_SETS}.get(kind)
