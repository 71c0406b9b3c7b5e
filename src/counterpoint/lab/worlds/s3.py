"""S3, revisions that improve a draft until a hidden moment and spoil it from then on.

Always true: the rounds since the last gain and the round are all that matters; after a loss nothing can be gained.
The optimum closes 59 % of the prophet gap.
"""

from counterpoint.lab.worlds.stopping.config import Saturation
from counterpoint.lab.worlds.stopping.world import StoppingWorld

s3 = StoppingWorld("s3", "S3", Saturation())
