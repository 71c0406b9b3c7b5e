"""Judging: claims that can be run again, and what they are held to."""
