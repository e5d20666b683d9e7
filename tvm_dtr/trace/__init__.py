"""Event traces: what a run did with its memory and its time, for pictures and reports."""

from __future__ import annotations

from .format import Events, Kind, is_event_trace, read_events

__all__ = ["Events", "Kind", "is_event_trace", "read_events"]
