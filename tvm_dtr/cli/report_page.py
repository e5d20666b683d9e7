"""``tvm-dtr report``: one HTML page that shows where a traced step's memory and time went."""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tvm_dtr.cli.files import check_outputs, replacing, write_rows
from tvm_dtr.cli.trace import add_step, open_trace
from tvm_dtr.plot import save_figure

PAGE = "report.html"
PICTURES = ("memory.png", "memory.svg", "lives.png", "lives.svg")


def add_command(commands: Any, everywhere: argparse.ArgumentParser) -> None:
    parser = commands.add_parser(
        "report",
        parents=[everywhere],
        help="an HTML page of an event trace",
        description="Write one self-contained HTML page that shows where memory and time went.",
    )
    parser.add_argument("trace", metavar="TRACE", help="a file of 'tvm-dtr run --trace' (.dtrace)")
    parser.add_argument("-o", "--output", required=True, metavar="FILE", help="the page (.html)")
    parser.add_argument(
        "--plots",
        metavar="DIR",
        help=f"also draw the step: {', '.join(PICTURES)} in DIR",
    )
    add_step(parser)
    parser.set_defaults(command=write_report)


def write_report(arguments: argparse.Namespace) -> int:
    pictures = paths_in(arguments.plots, PICTURES)
    outputs = [arguments.output, *map(str, pictures)]
    check_outputs([*outputs, arguments.json], inputs=[arguments.trace])
    analysis, step = open_trace(arguments.trace, arguments.step)
    data = write_page(analysis, step, arguments.output)
    draw(analysis, step, pictures)
    row = {
        "model": analysis.name,
        "step": step.number,
        **step.totals(),
        "roles_at_peak": step.roles_at_peak,
        "overwrites": step.overwrites,
        "advice": data["advice"],
    }
    write_rows(arguments.json, [row])
    print(f"wrote {', '.join(outputs)}: step {step.number} of {analysis.name}")
    for line in data["advice"]:
        print(line)
    return 0


def paths_in(folder: str | None, names: Iterable[str]) -> list[Path]:
    """Where files go in a folder, which is made; nowhere without one. Raises UsageError."""
    if folder is None:
        return []
    from tvm_dtr.errors import UsageError

    try:
        Path(folder).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"folder '{folder}' cannot be made: {error.strerror}") from error
    return [Path(folder) / name for name in names]


def write_page(analysis: Any, step: Any, path: str) -> dict[str, Any]:
    """Writes the page; returns what it shows."""
    from tvm_dtr.report.data import report_data
    from tvm_dtr.report.page import fill

    data = report_data(analysis, step)
    with replacing(path) as draft:
        draft.write_text(fill(data), encoding="utf-8")
    return data


def draw(analysis: Any, step: Any, pictures: Iterable[Path]) -> None:
    """Draws each picture whose file is called as PICTURES has it."""
    from tvm_dtr.trace.pictures import lives_figure, memory_figure

    kinds = {"memory": memory_figure, "lives": lives_figure}
    figures: dict[str, Any] = {}
    for path in pictures:
        figure = figures.get(path.stem) or kinds[path.stem](analysis, step)
        figures[path.stem] = figure
        with replacing(str(path)) as draft:
            save_figure(figure, draft)
