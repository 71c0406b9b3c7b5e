"""Models that agents can think with, one file each."""
