"""Figures as tables: plain text for a terminal, HTML for a notebook."""

from __future__ import annotations

import html
from typing import Any

from .budget import format_bytes


class Figures(dict[str, Any]):
    """A dict of result fields that a notebook shows as a table."""

    def _repr_html_(self) -> str:
        rows = "".join(
            f"<tr><th style='text-align:left'>{html.escape(name)}</th>"
            f"<td style='text-align:right'>{html.escape(shown(name, value))}</td></tr>"
            for name, value in self.items()
        )
        return f"<table>{rows}</table>"


def shown(name: str, value: Any) -> str:
    """A figure with its unit, which its name ends in."""
    if value is None:
        return "none"
    if name.endswith("_bytes") and isinstance(value, int):
        return f"{format_bytes(value)} ({value:,} bytes)"
    if name.endswith("_seconds"):
        return f"{value * 1e3:.3f} ms"
    return str(value)
