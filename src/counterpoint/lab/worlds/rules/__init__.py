"""Worlds with rules of their own: what they ask is a decision with options as numbers, and that is all a network needs of them."""
