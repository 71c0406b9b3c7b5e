"""The word that a first suspect gets: by how often first suspects were right on labelled runs of the same kind.

Always true: the word follows from a measured frequency alone, never from the ranker's own share. `likely`: at least half of them
were right. `a guess`: fewer were, but more than the best fixed rule gets. `no step stands out`: no more than that, or a kind of
run that nobody has labelled; no step of it is named.

The kinds are those of Who&When: a *panel* whose members just speak (its generated runs), and a team that somebody *leads* (its
hand-crafted runs). Frequencies of the shipped ranker: on 84 panels that neither it nor its authors had seen 40 right; on all 58
led teams, of which the ranker saw none, 6. The best fixed rule is right in 13 of the 42 panels at hand and in 9 of the 58 led
teams. Panels whose first share is below `BAR`: nested folds over the 42, ten splits (seeds 0-4 and 100-104), 7 of 39 rankings.

No bar makes `likely` true today: fitted on half of the 42 panels and tried on the other half, the bar from which half of the
first suspects should be right has 46 % (`counterpoint reproduce blame-who-when` has the rows).
"""

from __future__ import annotations

from msgspec import Struct

from counterpoint.audits.blame.ranker import shape_of
from counterpoint.audits.blame.steps import Steps

LIKELY, GUESS, NOBODY = "likely", "a guess", "no step stands out"
HALF = 0.5
"""The frequency from which a first suspect is likely."""
BAR = 0.25
"""The ranker's share below which the first suspect of a panel is not named."""


class Rate(Struct, frozen=True, kw_only=True):
    """How often first suspects were right on labelled runs of a kind."""

    right: int
    count: int
    of: str
    """What was counted, all of Who&When."""
    rule: float
    """The frequency of the best fixed rule on such runs."""

    @property
    def share(self) -> float:
        """The frequency."""
        return self.right / self.count

    @property
    def word(self) -> str:
        """What may be said of a first suspect of such a run."""
        if self.share >= HALF:
            return LIKELY
        return GUESS if self.share > self.rule else NOBODY

    @property
    def words(self) -> str:
        """The frequency as a clause."""
        return f"first suspects were right in {self.share:.0%} of {self.count} {self.of}"


PANELS = Rate(right=40, count=84, of="unseen panels", rule=13 / 42)
WEAK_PANELS = Rate(right=7, count=39, of=f"panels with a first share below {BAR:.0%}", rule=13 / 42)
LED_TEAMS = Rate(right=6, count=58, of="led teams", rule=9 / 58)


def kind_of(steps: Steps) -> str:
    """`led`, `panel`, or `alone` where one agent does everything."""
    return "alone" if len(set(steps.agents)) < 2 else shape_of(steps)


def rate_of(kind: str, top: float) -> Rate | None:
    """The frequency that a first suspect with this share of the ranking rests on; None of a kind that nobody has labelled."""
    if kind == "panel":
        return PANELS if top >= BAR else WEAK_PANELS
    return LED_TEAMS if kind == "led" else None
