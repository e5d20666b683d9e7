"""``tvm-dtr export``: the ONNX model of a program with the weights of a checkpoint."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import Any

from tvm_dtr.cli import arguments as args
from tvm_dtr.cli.files import check_outputs, replacing, write_rows
from tvm_dtr.cli.report import mebibytes
from tvm_dtr.errors import UsageError


def add_command(commands: Any, everywhere: argparse.ArgumentParser) -> None:
    parser = commands.add_parser(
        "export",
        parents=[everywhere],
        help="write the trained model as ONNX",
        description="Write the ONNX model that a program was built from, with trained weights and "
        "running statistics, for inference.",
    )
    parser.add_argument("program", metavar="PROGRAM", help="the program that was trained")
    parser.add_argument(
        "--checkpoint", required=True, metavar="FILE", help="a checkpoint, or a folder of them"
    )
    parser.add_argument("-o", "--output", required=True, metavar="FILE", help="the file to write")
    args.add_require_sha256(parser)
    parser.set_defaults(command=export_model)


def export_model(arguments: argparse.Namespace) -> int:
    args.check_input(arguments.program)
    if not args.is_program(arguments.program):
        raise UsageError(
            f"'{arguments.program}' is no program: name the one that was trained (tvm-dtr build)"
        )
    inputs = [arguments.program, arguments.checkpoint]
    check_outputs([arguments.output, arguments.json], inputs=inputs)
    import onnx

    from tvm_dtr.checkpoint import CheckpointFolder, check_program, read_checkpoint

    program = args.load_program(arguments)
    path = Path(arguments.checkpoint)
    if path.is_dir():
        newest = CheckpointFolder(path).newest(program)
        if newest is None:
            raise UsageError(f"the folder '{path}' holds no checkpoint")
        path, checkpoint = newest
    else:
        checkpoint = read_checkpoint(path)
        check_program(path, checkpoint, program)
    model = program.to_onnx(checkpoint.state)
    with replacing(arguments.output) as draft:
        onnx.save_model(model, str(draft))
        onnx.checker.check_model(str(draft))
    size = os.path.getsize(arguments.output)
    row = {
        "file": arguments.output,
        "file_bytes": size,
        "checkpoint": str(path),
        "step": checkpoint.position.step,
    }
    write_rows(arguments.json, [row])
    print(
        f"wrote {arguments.output} ({mebibytes(size)} MiB): the weights of {path}, "
        f"after step {checkpoint.position.step}"
    )
    return 0
