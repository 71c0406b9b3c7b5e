"""Claude Code's records, in parts."""
