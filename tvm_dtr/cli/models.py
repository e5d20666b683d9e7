"""``tvm-dtr models``: the ONNX models that come with the package."""

from __future__ import annotations

import argparse
from typing import Any

from tvm_dtr.cli import arguments as args
from tvm_dtr.cli.files import check_outputs, replacing, write_rows
from tvm_dtr.cli.report import mebibytes, print_table


def add_command(commands: Any, everywhere: argparse.ArgumentParser) -> None:
    parser = commands.add_parser(
        "models",
        help="list or make the ONNX models that come with the package",
        description="List or make the ONNX models that come with the package.",
    )
    actions = parser.add_subparsers(metavar="ACTION", required=True)
    listing = actions.add_parser(
        "list", parents=[everywhere], help="list them", description="List the models."
    )
    listing.set_defaults(command=list_models)
    making = actions.add_parser(
        "make",
        parents=[everywhere],
        help="write one as an ONNX file",
        description="Write a model with fresh weights as an ONNX file.",
    )
    making.add_argument("model", metavar="MODEL", help="a name that 'models list' shows")
    making.add_argument(
        "--batch",
        type=_batch,
        default=64,
        metavar="N",
        help="rows of the input, or 'dynamic' to leave them open (default 64)",
    )
    making.add_argument(
        "--seed", type=args.seed, default=0, metavar="N", help="of the weights (default 0)"
    )
    making.add_argument("-o", "--output", required=True, metavar="FILE", help="the file to write")
    making.set_defaults(command=make_model)


def list_models(arguments: argparse.Namespace) -> int:
    from tvm_dtr.models import MODELS

    check_outputs([arguments.json])
    rows: list[dict[str, Any]] = [
        {
            "model": name,
            "description": info.description,
            "input_shape": list(info.input_shape),
            "parameters": info.parameters,
        }
        for name, info in MODELS.items()
    ]
    write_rows(arguments.json, rows)
    print_table(
        "Models",
        ["model", "description", "input of one example", "parameters"],
        [
            [
                row["model"],
                row["description"],
                " x ".join(map(str, row["input_shape"])),
                f"{row['parameters']:,}",
            ]
            for row in rows
        ],
    )
    return 0


def make_model(arguments: argparse.Namespace) -> int:
    from tvm_dtr.models import make

    check_outputs([arguments.output, arguments.json])
    data = make(arguments.model, batch=arguments.batch, seed=arguments.seed).SerializeToString()
    with replacing(arguments.output) as draft:
        draft.write_bytes(data)
    row = {
        "model": arguments.model,
        "batch": arguments.batch,
        "seed": arguments.seed,
        "file": arguments.output,
        "file_bytes": len(data),
    }
    write_rows(arguments.json, [row])
    print(f"wrote {arguments.output} ({mebibytes(len(data))} MiB)")
    return 0


def _batch(text: str) -> int | None:
    return None if text == "dynamic" else args.positive(text)
