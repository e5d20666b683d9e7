"""Arguments that several subcommands share, and their meaning."""

from __future__ import annotations

import argparse
import re
from collections.abc import Container
from pathlib import Path
from typing import Any

from tvm_dtr.cli.optimizer_options import (
    add_optimizer_options,
    add_precision_options,
    make_optimizer,
)
from tvm_dtr.errors import UsageError

LOSSES = ("cross_entropy", "mse", "output")
DTYPES = ("float16", "float32", "float64")
DEFAULT_LOSS = "cross_entropy"
SUFFIX = ".tdtr"
BUILD_OPTIONS = (
    "loss",
    "optimizer",
    "lr",
    "optimizer_option",
    "freeze",
    "clip_norm",
    "clip_value",
    "accumulate",
    "mixed_precision",
    "loss_scale",
    "shape",
    "dtype",
    "jobs",
)


def shape(text: str) -> tuple[str, tuple[int | str, ...]]:
    """``x=64,3,32,32`` as ("x", (64, 3, 32, 32)); a name is a size that changes: ``x=time,8``."""
    match = re.fullmatch(r"([^=]+)=(\w+(?:,\w+)*)", text, re.ASCII)
    if not match:
        raise argparse.ArgumentTypeError(f"'{text}' is not NAME=DIM,DIM,... (x=64,3,32,32)")
    dims = tuple(int(dim) if dim.isdigit() else dim for dim in match[2].split(","))
    if 0 in dims:
        raise argparse.ArgumentTypeError(f"'{text}' has a dimension of 0")
    return match[1], dims


def length(text: str) -> tuple[str, tuple[int, int]]:
    """``NAME=FIRST..LAST`` or ``NAME=VALUE``."""
    match = re.fullmatch(r"([^=]+)=(\d{1,9})(?:\.\.(\d{1,9}))?", text, re.ASCII)
    if match is None or int(match[3] or match[2]) < int(match[2]):
        raise argparse.ArgumentTypeError(f"'{text}' is not NAME=FIRST..LAST, such as time=1..100")
    return match[1], (int(match[2]), int(match[3] or match[2]))


def positive(text: str) -> int:
    if not text.isascii() or not text.isdigit() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"'{text}' is not a positive whole number")
    return int(text)


def whole(text: str) -> int:
    if not text.isascii() or not text.isdigit():
        raise argparse.ArgumentTypeError(f"'{text}' is not a whole number of 0 or more")
    return int(text)


seed = whole


def add_build_options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("building")
    group.add_argument(
        "--loss",
        choices=LOSSES,
        help=f"cross_entropy (integer input 'labels'), mse (input 'target') or output: "
        f"the model's first output is the loss (default {DEFAULT_LOSS})",
    )
    add_optimizer_options(group)
    add_precision_options(group)
    group.add_argument(
        "--shape",
        type=shape,
        action="append",
        metavar="NAME=DIMS",
        help="shape of an input whose dimensions the model leaves open: x=64,3,32,32; a name is "
        "a size that changes from step to step: x=N,3,32,32",
    )
    group.add_argument(
        "--dtype",
        choices=DTYPES,
        help="cast the model's floating-point tensors (default: they keep their types)",
    )
    group.add_argument(
        "--jobs", type=positive, metavar="N", help="compiler processes (default: one per core)"
    )


def add_require_sha256(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--require-sha256",
        metavar="HEX",
        help="refuse the program file, whose native code would run here, unless this is its "
        "SHA-256 (as sha256sum prints it)",
    )


def load_program(arguments: argparse.Namespace) -> Any:
    """The program of ``arguments.program``, if it is the one that ``--require-sha256`` names."""
    from tvm_dtr.program import load

    return load(arguments.program, require_sha256=arguments.require_sha256)


def refuse_sha256(arguments: argparse.Namespace) -> None:
    """Raises UsageError where an ONNX file is given: it holds no code, and is built here."""
    if arguments.require_sha256 is not None:
        raise UsageError(
            f"--require-sha256 is for program files: '{arguments.program}' is to be built first"
        )


def add_arena(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--arena",
        metavar="NAME",
        help="where memory comes from: paged (free memory is never too scattered to use) or "
        "best-fit (one range of addresses; default where the policy is window)",
    )


def refuse_build_options(arguments: argparse.Namespace, but: Container[str] = ()) -> None:
    """Raises UsageError for choices of building, other than ``but``, where what is given is built
    already."""
    given = [option for option in build_options_given(arguments) if option not in but]
    if given and is_program(arguments.program):
        raise UsageError(
            f"{given[0]} is a choice of building: '{arguments.program}' is a program already"
        )


def build_options_given(arguments: argparse.Namespace) -> list[str]:
    given = [name for name in BUILD_OPTIONS if getattr(arguments, name) is not None]
    return [f"--{name.replace('_', '-')}" for name in given]


def build_keywords(arguments: argparse.Namespace) -> dict[str, Any]:
    """The keywords of make_training_step that the options stand for."""
    return {
        "loss": arguments.loss or DEFAULT_LOSS,
        "optimizer": make_optimizer(arguments),
        "shapes": dict(arguments.shape) if arguments.shape else None,
        "freeze": arguments.freeze or (),
        "clip_norm": arguments.clip_norm,
        "clip_value": arguments.clip_value,
        "accumulate": arguments.accumulate or 1,
        "mixed_precision": arguments.mixed_precision,
        "loss_scale": arguments.loss_scale,
        "dtype": arguments.dtype,
    }


def is_program(name: str) -> bool:
    """By content; a file with the suffix of programs is taken for one, if a damaged one."""
    from tvm_dtr.program import is_program_file

    return is_program_file(name) or Path(name).suffix == SUFFIX


def check_input(name: str) -> None:
    """Raises UsageError, with a hint where a model's name was given for its file."""
    path = Path(name)
    if path.is_file():
        return
    if path.is_dir():
        raise UsageError(f"'{name}' is a directory: name an ONNX file or a {SUFFIX} program")
    from tvm_dtr.models import MODELS

    hint = ""
    if name in MODELS:
        hint = f"; make it with: tvm-dtr models make {name} -o {name}.onnx"
    raise UsageError(f"there is no file '{name}'{hint}")
