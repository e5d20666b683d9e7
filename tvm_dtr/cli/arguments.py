"""Arguments that several subcommands share, and their meaning."""

from __future__ import annotations

import argparse
import re
from pathlib import Path
from typing import Any

from tvm_dtr.errors import UsageError

LOSSES = ("cross_entropy", "mse", "output")
DTYPES = ("float16", "float32", "float64")
OPTIMIZERS = ("sgd", "none")
DEFAULT_LOSS, DEFAULT_OPTIMIZER, DEFAULT_LR = "cross_entropy", "sgd", 0.01
SUFFIX = ".tdtr"
LARGEST_FLOAT32 = 3.4028234663852886e38


def shape(text: str) -> tuple[str, tuple[int, ...]]:
    """``x=64,3,32,32`` as ("x", (64, 3, 32, 32))."""
    match = re.fullmatch(r"([^=]+)=(\d+(?:,\d+)*)", text, re.ASCII)
    if not match:
        raise argparse.ArgumentTypeError(f"'{text}' is not NAME=DIM,DIM,... (x=64,3,32,32)")
    dims = tuple(int(dim) for dim in match[2].split(","))
    if 0 in dims:
        raise argparse.ArgumentTypeError(f"'{text}' has a dimension of 0")
    return match[1], dims


def positive(text: str) -> int:
    if not text.isascii() or not text.isdigit() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"'{text}' is not a positive whole number")
    return int(text)


def seed(text: str) -> int:
    if not text.isascii() or not text.isdigit():
        raise argparse.ArgumentTypeError(f"'{text}' is not a whole number of 0 or more")
    return int(text)


def rate(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 < value <= LARGEST_FLOAT32:
        raise argparse.ArgumentTypeError(f"'{text}' is not a positive number of float32")
    return value


def add_build_options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("building")
    group.add_argument(
        "--loss",
        choices=LOSSES,
        help=f"cross_entropy (integer input 'labels'), mse (input 'target') or output: "
        f"the model's first output is the loss (default {DEFAULT_LOSS})",
    )
    group.add_argument(
        "--optimizer",
        choices=OPTIMIZERS,
        help=f"update rule; none returns the gradients (default {DEFAULT_OPTIMIZER})",
    )
    group.add_argument(
        "--lr", type=rate, metavar="RATE", help=f"learning rate (default {DEFAULT_LR})"
    )
    group.add_argument(
        "--shape",
        type=shape,
        action="append",
        metavar="NAME=DIMS",
        help="shape of an input whose dimensions the model leaves open: x=64,3,32,32",
    )
    group.add_argument(
        "--dtype",
        choices=DTYPES,
        help="cast the model's floating-point tensors (default: they keep their types)",
    )
    group.add_argument(
        "--jobs", type=positive, metavar="N", help="compiler processes (default: one per core)"
    )


def build_options_given(arguments: argparse.Namespace) -> list[str]:
    names = ("loss", "optimizer", "lr", "shape", "dtype", "jobs")
    return [f"--{name}" for name in names if getattr(arguments, name) is not None]


def build_keywords(arguments: argparse.Namespace) -> dict[str, Any]:
    """The keywords of make_training_step that the options stand for."""
    from tvm_dtr.optim import SGD  # imports TVM

    optimizer = arguments.optimizer or DEFAULT_OPTIMIZER
    if optimizer == "none" and arguments.lr is not None:
        raise UsageError("--lr needs an optimizer: leave out --lr or --optimizer none")
    return {
        "loss": arguments.loss or DEFAULT_LOSS,
        "optimizer": None if optimizer == "none" else SGD(arguments.lr or DEFAULT_LR),
        "shapes": dict(arguments.shape) if arguments.shape else None,
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
