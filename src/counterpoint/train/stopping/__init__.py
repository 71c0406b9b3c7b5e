"""Stop trainers: learn when to stop from traces that were made to go on, and bracket the best that any rule could do.

Always true: a trainer is `train(paths, seed) -> Rule`; the same paths and seed give the same rule, byte by byte; a rule sees
what was known at a checkpoint and nothing later. `stacked` is the default; `sampled_gradient` and `hindsight` are baselines.

```python
import counterpoint as cpt
from counterpoint.train.stopping import stacked

s1 = cpt.world("S1")
rule = stacked(s1.paths(range(1600)), seed=0)
s1.run(rule.policy(), range(2000, 3000)).values.mean()
```
"""

from collections.abc import Mapping

from counterpoint.train.stopping.certificate import Bracket, bracket
from counterpoint.train.stopping.choice import Choice, Trainer, choose, stacked
from counterpoint.train.stopping.gradient import all_stops, sampled_gradient
from counterpoint.train.stopping.paths import HasPaths, StopPaths, from_traces
from counterpoint.train.stopping.rule import Rule, load_rule
from counterpoint.train.stopping.simple import best_cap, hindsight, threshold
from counterpoint.train.stopping.values import longstaff_schwartz, pooled

__all__ = [
    "TRAINERS",
    "Bracket",
    "Choice",
    "HasPaths",
    "Rule",
    "StopPaths",
    "Trainer",
    "all_stops",
    "best_cap",
    "bracket",
    "choose",
    "from_traces",
    "hindsight",
    "load_rule",
    "longstaff_schwartz",
    "pooled",
    "sampled_gradient",
    "stacked",
    "threshold",
]

TRAINERS: Mapping[str, Trainer] = {
    "stacked": stacked,
    "longstaff_schwartz": longstaff_schwartz,
    "pooled": pooled,
    "all_stops": all_stops,
    "threshold": threshold,
    "best_cap": best_cap,
    "sampled_gradient": sampled_gradient,
    "hindsight": hindsight,
}
"""Every trainer by name."""
