"""Worlds with rules of their own: they ask decisions with options as numbers, and that is all a network needs of them."""
