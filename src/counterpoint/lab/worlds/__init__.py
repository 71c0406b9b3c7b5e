"""The worlds by name, one file each; how they work is in `teamworld/` and `stopping/`."""
