"""``tvm-dtr trace``: converts and draws what ``run --trace FILE.dtrace`` recorded."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from tvm_dtr.cli import arguments as args
from tvm_dtr.cli.files import check_outputs, replacing, write_rows
from tvm_dtr.errors import UsageError
from tvm_dtr.plot import picture_format, save_figure

PICTURES = ("memory", "lives")


def add_command(commands: Any, everywhere: argparse.ArgumentParser) -> None:
    parser = commands.add_parser(
        "trace",
        help="convert or draw an event trace",
        description="Convert or draw an event trace that 'tvm-dtr run --trace' recorded.",
    )
    actions = parser.add_subparsers(metavar="ACTION", required=True)
    convert = actions.add_parser(
        "convert",
        parents=[everywhere],
        help="to Chrome's trace format",
        description="Write a trace as JSON for chrome://tracing or ui.perfetto.dev.",
    )
    _add_trace(convert)
    convert.add_argument("-o", "--output", required=True, metavar="FILE", help="the JSON file")
    convert.set_defaults(command=convert_trace)
    plot = actions.add_parser(
        "plot",
        parents=[everywhere],
        help="draw a step",
        description="Draw memory by role over a step, or when each storage was in memory.",
    )
    _add_trace(plot)
    plot.add_argument(
        "-o",
        "--output",
        required=True,
        action="append",
        metavar="FILE",
        help="the picture (.png or .svg; repeatable)",
    )
    plot.add_argument(
        "--picture",
        choices=PICTURES,
        default=PICTURES[0],
        help="memory by role (default), or the lives of the largest storages",
    )
    add_step(plot)
    plot.set_defaults(command=plot_trace)


def _add_trace(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("trace", metavar="TRACE", help="a file of 'tvm-dtr run --trace' (.dtrace)")


def add_step(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--step", type=args.seed, metavar="N", help="the step, from 0 (default: the last whole one)"
    )


def open_trace(name: str, number: int | None) -> tuple[Any, Any]:
    """The analysis of a trace and one of its steps. Raises UsageError."""
    from tvm_dtr.trace import read_events
    from tvm_dtr.trace.analysis import Analysis

    events = read_events(name)
    if events.damage is not None:
        print(
            f"tvm-dtr: warning: trace '{name}' is {events.damage}; the {len(events)} records "
            "before it are used",
            file=sys.stderr,
        )
    analysis = Analysis(events)
    if not analysis.steps:
        raise UsageError(f"trace '{name}' has no step: it ended before the first one began")
    try:
        return analysis, analysis.step(number)
    except KeyError as error:
        raise UsageError(f"'{name}': {error.args[0]}") from None


def convert_trace(arguments: argparse.Namespace) -> int:
    from tvm_dtr.trace.chrome import chrome_events

    check_outputs([arguments.output, arguments.json], inputs=[arguments.trace])
    analysis, _ = open_trace(arguments.trace, None)
    data = chrome_events(analysis)
    with replacing(arguments.output) as draft:
        draft.write_text(json.dumps(data, separators=(",", ":")) + "\n", encoding="utf-8")
    count = len(data["traceEvents"])
    write_rows(arguments.json, [{"file": arguments.output, "events": count}])
    print(f"wrote {arguments.output}: {count} events of {len(analysis.steps)} steps")
    return 0


def plot_trace(arguments: argparse.Namespace) -> int:
    from tvm_dtr.trace.pictures import lives_figure, memory_figure

    check_outputs([*arguments.output, arguments.json], inputs=[arguments.trace])
    for name in arguments.output:
        try:
            picture_format(name)
        except ValueError as error:
            raise UsageError(str(error)) from None
    analysis, step = open_trace(arguments.trace, arguments.step)
    draw = memory_figure if arguments.picture == "memory" else lives_figure
    figure = draw(analysis, step)
    for name in arguments.output:
        with replacing(name) as draft:
            save_figure(figure, draft)
    row = {"model": analysis.name, "step": step.number, **step.totals()}
    write_rows(arguments.json, [row])
    print(f"wrote {', '.join(map(str, map(Path, arguments.output)))}: step {step.number}")
    return 0
