"""Fills the page's template: style, script and figures are all inside of the one file."""

from __future__ import annotations

import html
import json
from importlib import resources
from typing import Any

from ..trace.analysis import Analysis
from ..trace.steps import Step
from .data import report_data


def report_page(analysis: Analysis, step: Step) -> str:
    """The HTML of a report on one step of a trace."""
    return fill(report_data(analysis, step))


def fill(data: dict[str, Any]) -> str:
    parts = {
        "STYLE": _read("page.css"),
        "SCRIPT": _read("page.js"),
        "TITLE": html.escape(f"{data['name']}, step {data['step']}"),
        # "</script>" in a node's name must not end the script.
        "DATA": json.dumps(data, separators=(",", ":")).replace("<", "\\u003c"),
    }
    page = _read("page.html")
    head, *rest = page.split("{{")
    for part in rest:
        name, _, text = part.partition("}}")
        head += parts[name] + text
    return head


def _read(name: str) -> str:
    return (resources.files(__package__) / name).read_text(encoding="utf-8")
