"""Watching agents at work: which logs grow, what is wrong in them by rules, and who is told of it."""
