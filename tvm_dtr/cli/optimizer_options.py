"""The options that choose an update rule, and the optimizer they stand for."""

from __future__ import annotations

import argparse
import dataclasses
from typing import Any

from tvm_dtr.errors import UsageError

OPTIMIZERS = ("sgd", "adam", "adamw", "adagrad", "rmsprop", "lion", "none")
DEFAULT_OPTIMIZER, DEFAULT_SGD_RATE = "sgd", 0.01
LARGEST_FLOAT32 = 3.4028234663852886e38


def rate(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 < value <= LARGEST_FLOAT32:
        raise argparse.ArgumentTypeError(f"'{text}' is not a positive number of float32")
    return value


def setting(text: str) -> tuple[str, Any]:
    """``betas=0.9,0.95`` as ("betas", (0.9, 0.95)); yes and no stand for truth values."""
    name, _, given = text.partition("=")
    words = {"yes": True, "true": True, "no": False, "false": False}
    try:
        values = [words[w] if w in words else float(w) for w in given.lower().split(",")]
    except ValueError:
        values = []
    if not name or not values:
        raise argparse.ArgumentTypeError(f"'{text}' is not NAME=VALUE (betas=0.9,0.95)")
    return name, values[0] if len(values) == 1 else tuple(values)


def add_optimizer_options(group: Any) -> None:
    group.add_argument(
        "--optimizer",
        choices=OPTIMIZERS,
        help=f"update rule, by PyTorch's definition; none returns the gradients "
        f"(default {DEFAULT_OPTIMIZER})",
    )
    group.add_argument(
        "--lr",
        type=rate,
        metavar="RATE",
        help=f"learning rate (default: {DEFAULT_SGD_RATE} for sgd, PyTorch's for others)",
    )
    group.add_argument(
        "--optimizer-option",
        type=setting,
        action="append",
        metavar="NAME=VALUE",
        help="another setting of the update rule, by PyTorch's name: weight_decay=0.1, "
        "betas=0.9,0.95, momentum=0.9, nesterov=yes (may be given several times)",
    )
    group.add_argument(
        "--freeze",
        action="append",
        metavar="PATTERN",
        help="do not train the parameters whose names match, such as 'stem.*'; nothing is "
        "computed for their gradients (may be given several times)",
    )
    group.add_argument(
        "--clip-norm",
        type=rate,
        metavar="NORM",
        help="scale gradients down where the norm of all together is more",
    )
    group.add_argument(
        "--clip-value", type=rate, metavar="VALUE", help="the most an element of a gradient may be"
    )


def whole(text: str) -> int:
    if not text.isascii() or not text.isdigit() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"'{text}' is not a positive whole number")
    return int(text)


def loss_scale(text: str) -> float | str:
    return text if text == "dynamic" else rate(text)


def add_precision_options(group: Any) -> None:
    group.add_argument(
        "--accumulate",
        type=whole,
        metavar="N",
        help="update every N batches, by the mean of their gradients (default 1)",
    )
    group.add_argument(
        "--mixed-precision",
        choices=("float16", "bfloat16"),
        help="operands and results of matrix products and convolutions in this type; weights, "
        "sums and the rest stay float32",
    )
    group.add_argument(
        "--loss-scale",
        type=loss_scale,
        metavar="X",
        help="multiply the loss by X in the backward pass, or dynamic: halve it (and leave the "
        "update out) where a gradient is not finite (default: dynamic for float16, else none)",
    )


def make_optimizer(arguments: argparse.Namespace) -> Any:
    """The optimizer of the options, None for ``none``. Raises UsageError for unknown settings."""
    from tvm_dtr import optim  # imports TVM

    name = arguments.optimizer or DEFAULT_OPTIMIZER
    settings = dict(arguments.optimizer_option or [])
    if name == "none":
        if arguments.lr is not None or settings:
            option = "--lr" if arguments.lr is not None else "--optimizer-option"
            raise UsageError(f"{option} needs an optimizer: leave it or --optimizer none out")
        return None
    kind = optim.OPTIMIZERS[name]
    known = [field.name for field in dataclasses.fields(kind) if field.name != "lr"]
    for given in settings:
        if given not in known:
            raise UsageError(f"{name} has no option '{given}'; it has {', '.join(known)}")
    if arguments.lr is not None:
        settings["lr"] = arguments.lr
    elif name == "sgd":
        settings["lr"] = DEFAULT_SGD_RATE
    return kind(**settings)
