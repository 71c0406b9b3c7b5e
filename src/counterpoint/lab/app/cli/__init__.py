"""The laboratory's commands, one file each."""
