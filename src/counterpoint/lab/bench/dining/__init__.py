"""Dining philosophers for the claim `dpbench`: many tables at once, rules by hand, the optimum, learners, a reward to hack.

Always true: importing this package imports nothing else.
"""
