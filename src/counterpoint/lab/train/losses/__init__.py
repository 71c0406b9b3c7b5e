"""Losses, one file each: `NAME = Loss(...)` with its options; the file's name is the loss's."""
