"""Certified optima of TeamWorld: what the best policy can expect, from the rules alone.

Always true: nothing here imports the simulator; `docs/teamworld-rules.md` and the config are all that both sides share, so that
an agreement of the two is evidence. One file per kind of item (`vote`, `pool`, `draft`, `chain`, `node`) on the terms of an
`offer`; `bound` puts them together.
"""
