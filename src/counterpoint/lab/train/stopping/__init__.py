"""Stop trainers: learn when to stop from traces that were made to go on, and bracket the best that any rule could do.

Always true: a trainer is `train(paths, seed) -> Rule`; the same paths and seed give the same rule, byte by byte; a rule sees
what was known at a checkpoint and nothing later. `stacked` is the default; `sampled_gradient` and `hindsight` are baselines.

```python
import counterpoint as cpt
from counterpoint.lab.train.stopping.choice import stacked

s1 = cpt.world("S1")
rule = stacked(s1.paths(range(1600)), seed=0)
s1.run(rule.policy(), range(2000, 3000)).values.mean()
```
"""
