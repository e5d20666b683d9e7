"""Random programs on TVM's own VM: our compiler's and TVM's, bit by bit.

The programs are those of tests/python/test_compile_program.py, one for each seed. Writes JSON and a
line of text:

  python benchmarks/random_programs.py -o benchmarks/results/random_programs
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from budgets import machine

from tvm_dtr.cli.files import replacing, write_rows
from tvm_dtr.compile import compile_step

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "python"))

from random_steps import random_step, run_stock, same_bits
from test_compile_program import stock_executable


def main() -> None:
    arguments = _arguments()
    rows = []
    for seed in range(arguments.programs):
        rows.append(compare(seed))
        write_rows(arguments.output + ".json", rows)
    with replacing(arguments.output + ".md") as draft:
        draft.write_text(as_markdown(rows), encoding="utf-8")
    differ = [row["seed"] for row in rows if not row["same_bits"]]
    print(f"{len(rows)} programs, other bits for seeds {differ}")


def compare(seed: int) -> dict[str, Any]:
    """The row of one program."""
    step = random_step(seed)
    program = compile_step(step, jobs=1)
    stock = stock_executable(step, program.target)
    ours, theirs = run_stock(program.executable, step), run_stock(stock, step)
    ops, kernels = len(program.graph.ops), len(program.graph.kernels)
    return {"seed": seed, "ops": ops, "kernels": kernels, "same_bits": same_bits(ours, theirs)}


def as_markdown(rows: list[dict[str, Any]]) -> str:
    same = sum(row["same_bits"] for row in rows)
    ops = sum(row["ops"] for row in rows)
    differ = [str(row["seed"]) for row in rows if not row["same_bits"]]
    return (
        "# Random programs, our compiler and TVM's\n\n"
        f"{machine()}. {same} of {len(rows)} programs ({ops} ops) give bitwise the same results\n"
        f"on TVM's own VM; seeds of the others: {', '.join(differ) or 'none'}. Made by\n"
        f"`python benchmarks/random_programs.py --programs {len(rows)}`.\n"
    )


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--programs", type=int, default=200)
    parser.add_argument("-o", "--output", default="benchmarks/results/random_programs")
    return parser.parse_args()


if __name__ == "__main__":
    main()
