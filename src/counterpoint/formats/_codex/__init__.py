"""Codex's records, in parts."""
