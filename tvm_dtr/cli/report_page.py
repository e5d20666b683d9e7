"""``tvm-dtr report``: one HTML page that shows where a traced step's memory and time went."""

from __future__ import annotations

import argparse
from typing import Any

from tvm_dtr.cli.files import check_outputs, replacing, write_rows
from tvm_dtr.cli.trace import add_step, open_trace


def add_command(commands: Any, everywhere: argparse.ArgumentParser) -> None:
    parser = commands.add_parser(
        "report",
        parents=[everywhere],
        help="an HTML page of an event trace",
        description="Write one self-contained HTML page that shows where memory and time went.",
    )
    parser.add_argument("trace", metavar="TRACE", help="a file of 'tvm-dtr run --trace' (.dtrace)")
    parser.add_argument("-o", "--output", required=True, metavar="FILE", help="the page (.html)")
    add_step(parser)
    parser.set_defaults(command=write_report)


def write_report(arguments: argparse.Namespace) -> int:
    from tvm_dtr.report.data import report_data
    from tvm_dtr.report.page import fill

    check_outputs([arguments.output, arguments.json], inputs=[arguments.trace])
    analysis, step = open_trace(arguments.trace, arguments.step)
    data = report_data(analysis, step)
    with replacing(arguments.output) as draft:
        draft.write_text(fill(data), encoding="utf-8")
    row = {"model": analysis.name, "step": step.number, **step.totals(), "advice": data["advice"]}
    write_rows(arguments.json, [row])
    print(f"wrote {arguments.output}: step {step.number} of {analysis.name}")
    for line in data["advice"]:
        print(line)
    return 0
