"""Inspect's logs, in parts."""
