"""S1b, wide search with a stronger dispersion of the number of items.

Always true: as S1, with Gamma(0.6, 0.04) in place of Gamma(2, 0.1).
The optimum closes 68 % of the prophet gap.
"""

from counterpoint.lab.worlds.stopping.config import WideSearch
from counterpoint.lab.worlds.stopping.world import StoppingWorld

s1b = StoppingWorld("s1b", "S1b", WideSearch(shape=0.6, rate=0.04))
