"""Stopping worlds: a team works in rounds, and all that matters is when it stops; each is solved exactly.

Always true: every world here has an exact optimum, an exact best cap and an exact prophet, computed without its sampler.
`config` declares the worlds, `sample` plays them, `optimum` solves them, `world` is the plug-in; `guard.stop_paths.payoffs` reads
any forced-continuation trace back into Y_0..Y_H.

```python
from counterpoint.guard.stop_paths import payoffs
from counterpoint.lab.worlds.s1 import s1

s1.solution().ceiling                   # 0.45: no rule can close more of the gap to hindsight
s1.run("optimum", range(1000)).values   # 6.9 points on average
payoffs(s1.trace(seed=7))               # what stopping at each checkpoint would have paid
```
"""
