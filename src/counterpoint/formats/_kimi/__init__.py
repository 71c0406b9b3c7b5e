"""Kimi's records, in parts."""
