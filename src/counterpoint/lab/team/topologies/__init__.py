"""Ways for a team to work together, one small program each."""
