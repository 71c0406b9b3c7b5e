"""A LangGraph team as a person would write it, its cases and its scorer: what the claim `own-team` trains.

Always true: importing this package imports nothing else.
"""
