"""``tvm-dtr build``: an ONNX model becomes a program that trains it."""

from __future__ import annotations

import argparse
import os
import time
from pathlib import Path
from typing import Any

from tvm_dtr.cli import arguments as args
from tvm_dtr.cli.files import check_outputs, replacing, write_rows
from tvm_dtr.cli.report import mebibytes, progress
from tvm_dtr.errors import UsageError

LABEL_WIDTH = 40  # characters of a kernel's name beside the bar


def add_command(commands: Any, everywhere: argparse.ArgumentParser) -> None:
    parser = commands.add_parser(
        "build",
        parents=[everywhere],
        help="compile an ONNX model into a training program",
        description="Compile an ONNX model, its gradients and its update rule into a program.",
    )
    parser.add_argument("model", metavar="MODEL", help="an ONNX file")
    parser.add_argument(
        "-o", "--output", metavar="FILE", help=f"the program (default: MODEL's name, {args.SUFFIX})"
    )
    args.add_build_options(parser)
    parser.set_defaults(command=build_program)


def open_program(arguments: argparse.Namespace) -> Any:
    """The program that a command is to work on: a program file, or an ONNX file that is built."""
    if args.is_program(arguments.program):
        return args.load_program(arguments)
    args.refuse_sha256(arguments)
    arguments.model = arguments.program
    return compile_model(arguments)


def build_program(arguments: argparse.Namespace) -> int:
    args.check_input(arguments.model)
    if args.is_program(arguments.model):
        raise UsageError(f"'{arguments.model}' is a program already: name an ONNX file")
    output = arguments.output or str(Path(arguments.model).with_suffix(args.SUFFIX))
    check_outputs([output, arguments.json], inputs=[arguments.model])
    start = time.perf_counter()
    program = compile_model(arguments)
    seconds = time.perf_counter() - start
    with replacing(output) as draft:
        program.save(str(draft))
    size = os.path.getsize(output)
    row = {
        "model": Path(arguments.model).stem,
        "file": output,
        "file_bytes": size,
        "build_seconds": seconds,
        "ops": len(program.graph.ops),
        "kernels": len(program.graph.kernels),
    }
    write_rows(arguments.json, [row])
    print(
        f"wrote {output} ({mebibytes(size)} MiB): {row['ops']} ops, "
        f"{row['kernels']} distinct kernels, {seconds:.1f} s"
    )
    return 0


def compile_model(arguments: argparse.Namespace) -> Any:
    """The Program for the ONNX file ``arguments.model``, built with a progress bar."""
    name = Path(arguments.model).name
    with progress(f"reading {name}") as report:
        from tvm_dtr.builder import build

        return build(
            arguments.model,
            **args.build_keywords(arguments),
            progress=lambda done, total, what: report(done, total or None, _short(what)),
            jobs=arguments.jobs,
        )


def _short(kernel: str) -> str:
    return kernel if len(kernel) <= LABEL_WIDTH else kernel[: LABEL_WIDTH - 3] + "..."
