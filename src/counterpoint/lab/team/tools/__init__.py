"""Tools that agents can use, one file each."""
