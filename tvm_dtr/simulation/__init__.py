"""What DTR does under a budget, without running a kernel: traces, policies, tables, plots."""

from __future__ import annotations

from .simulator import simulate
from .trace import Trace, load_trace

__all__ = ["Trace", "load_trace", "simulate"]
