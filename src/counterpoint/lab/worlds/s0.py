"""S0, the control: wide search where the best fixed cap is optimal, so adaptive stopping cannot help.

Always true: the number of items is Poisson, so what is left does not depend on what was found; only time matters.
Any gain over the best cap is over-fitting.
"""

from counterpoint.lab.worlds.stopping.config import PoissonSearch
from counterpoint.lab.worlds.stopping.world import StoppingWorld

s0 = StoppingWorld("s0", "S0", PoissonSearch())
