"""Traces at rest: journal (append, crash-safe) and lake (columnar, queryable), in one folder."""

from counterpoint.store.hot import DecisionRef, Hot
from counterpoint.store.query import Result
from counterpoint.store.run import Run
from counterpoint.store.store import Store
from counterpoint.store.summary import Summary

__all__ = ["DecisionRef", "Hot", "Result", "Run", "Store", "Summary"]
