"""The HTML report of an event trace: one page, without a network."""

from __future__ import annotations

from .page import report_page

__all__ = ["report_page"]
