"""Two worlds of particles for the claim `particles`: many at once in arrays, and a network that learns in them.

Always true: importing this package imports nothing else.
"""
