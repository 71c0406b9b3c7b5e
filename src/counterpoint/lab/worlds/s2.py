"""S2, verification votes of unknown reliability: stop when the margin is worth no further vote.

Always true: the size of the margin and the round are all that matters.
The optimum closes 16 % of the prophet gap.
"""

from counterpoint.lab.worlds.stopping.config import Votes
from counterpoint.lab.worlds.stopping.world import StoppingWorld

s2 = StoppingWorld("s2", "S2", Votes())
