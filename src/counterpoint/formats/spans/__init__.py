"""Spans of any tracer as traces."""
