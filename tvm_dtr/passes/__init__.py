"""Static planners: a graph and a budget in, a schedule out.

``plan(graph, budget, method)`` runs one; ``PLANNERS`` has them by name, all with the interface
``plan(graph, budget, *, time_limit, seed, progress) -> Schedule``.
"""

from __future__ import annotations

from .graph import NotPlannableError, PlanGraph, graph_of_program
from .planners import DEFAULT_METHODS, PLANNERS, plan, plan_rows
from .schedule import InfeasibleError, Schedule
from .source import load_graph

__all__ = [
    "DEFAULT_METHODS",
    "PLANNERS",
    "InfeasibleError",
    "NotPlannableError",
    "PlanGraph",
    "Schedule",
    "graph_of_program",
    "load_graph",
    "plan",
    "plan_rows",
]
