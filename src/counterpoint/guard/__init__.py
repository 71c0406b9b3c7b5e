"""`counterpoint guard`: reads a running session as it grows, and refuses what would go past the limits people set."""
