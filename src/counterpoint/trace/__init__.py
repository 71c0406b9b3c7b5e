"""The trace: records, graph and checks. Pure: no files, no clock, no network."""

from counterpoint.trace.check import findings, problems
from counterpoint.trace.graph import Graph
from counterpoint.trace.problem import Findings, Problem
from counterpoint.trace.records import Edge, Event
from counterpoint.trace.trace import Trace, content_ref, summed_costs
from counterpoint.trace.wire import decode, encode

__all__ = [
    "Edge",
    "Event",
    "Findings",
    "Graph",
    "Problem",
    "Trace",
    "content_ref",
    "decode",
    "encode",
    "findings",
    "problems",
    "summed_costs",
]
