"""S1, wide search with a Gamma-Poisson number of items: many finds promise more.

Always true: what is left grows with what was found, so the optimal rule counts finds as well as rounds.
The optimum closes 45 % of the prophet gap.
"""

from counterpoint.lab.worlds.stopping.config import WideSearch
from counterpoint.lab.worlds.stopping.world import StoppingWorld

s1 = StoppingWorld("s1", "S1", WideSearch())
