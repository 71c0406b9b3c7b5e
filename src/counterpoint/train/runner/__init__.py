"""Where rollouts run, and in which order they are learnt from.

Always true: whoever has `submit`, `collect` and `close` is a runner (`protocol`); `Here` runs a job in this process,
`Processes` in processes of this machine. `Ordered` and `Deadline` sit between a runner and a training loop and decide what is
consumed.
"""

from __future__ import annotations

from counterpoint.train.runner.consume import Deadline, Ordered, Taken
from counterpoint.train.runner.here import Here
from counterpoint.train.runner.processes import Processes
from counterpoint.train.runner.protocol import Done, Job, Runner

__all__ = ["Deadline", "Done", "Here", "Job", "Ordered", "Processes", "Runner", "Taken"]
