"""A traced run of a small network for the tests of traces, reports and advice."""

import functools
import json
from pathlib import Path

from tvm_dtr.cli import main


@functools.lru_cache(maxsize=1)
def traced_run(folder: Path):
    """(event trace, JSON rows of the run) of ResNet-8 at 70 % of its peak, made once."""
    model, program = folder / "r8.onnx", folder / "r8.tdtr"
    trace, rows = folder / "run.dtrace", folder / "run.json"
    make = ["models", "make", "resnet8", "--batch", "4", "-o", str(model)]
    build = ["build", str(model), "-o", str(program)]
    run = ["run", str(program), "--memory-budget", "75%", "--steps", "3"]
    outputs = ["--trace", str(trace), "--json", str(rows)]
    for command in (make, build, [*run, *outputs]):
        assert main(command) == 0
    return trace, json.loads(rows.read_text())["rows"]
