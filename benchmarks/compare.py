"""DTR against static planners: measured slowdown and peak of training steps under budgets.

For each model, all methods of one budget run a step in turn, round after round; step times are
medians over the rounds but the first. Writes JSON and a Markdown table with the geometric means of
DTR's and of the policy plan's slowdown over that of the best planner:

  python benchmarks/compare.py --models resnet32,mobilenet -o benchmarks/results/compare

Rows of other models that are there already stay.
"""

from __future__ import annotations

import argparse
import gc
import json
import math
from pathlib import Path
from typing import Any

from budgets import machine

import tvm_dtr
from tvm_dtr import models
from tvm_dtr.cli.files import replacing, write_rows
from tvm_dtr.comparison import ONLINE, PLAN
from tvm_dtr.comparison_report import comparison_figure, markdown
from tvm_dtr.plot import save_figure

MODELS = "resnet32,resnet50,mobilenet,vgg16,unet,densenet121,gpt"
CHEN = ("chen-sqrt", "chen-greedy")


def main() -> None:
    arguments = _arguments()
    names = arguments.models.split(",")
    rows = rows_of_others(arguments, names)
    for name in names:
        print(f"{name}:", flush=True)
        program = tvm_dtr.build(
            models.make(name, batch=arguments.batch),
            loss=arguments.loss,
            optimizer=tvm_dtr.SGD(0.01),
        )
        mine = tvm_dtr.compare(
            program,
            name=name,
            budgets=arguments.budgets.split(","),
            methods=arguments.methods.split(",") if arguments.methods else None,
            rounds=arguments.rounds,
            time_limit=arguments.time_limit,
        )
        for row in mine:
            print(" ", row["method"], row["budget_fraction"], row["result"], row["slowdown"])
        rows += mine
        write(arguments, rows, name, mine)
        gc.collect()


def rows_of_others(arguments: argparse.Namespace, names: list[str]) -> list[dict[str, Any]]:
    there = Path(arguments.output + ".json")
    rows = json.loads(there.read_text())["rows"] if there.exists() else []
    return [row for row in rows if row["trace"] not in names]


def write(
    arguments: argparse.Namespace, rows: list[dict[str, Any]], name: str, mine: list[Any]
) -> None:
    write_rows(arguments.output + ".json", rows)
    text = f"{markdown(rows)}\n{summary(rows)}\n\n{machine()}; batch {arguments.batch}.\n"
    with replacing(arguments.output + ".md") as draft:
        draft.write_text(text, encoding="utf-8")
    with replacing(f"{arguments.output}-{name}.png") as draft:
        save_figure(comparison_figure(mine), draft)


def summary(rows: list[dict[str, Any]]) -> str:
    """Geometric means over the cases where both work, and where Chen works and DTR does not."""
    lines = ["## In sum", ""]
    for method in (ONLINE, PLAN):
        for figure, kind in (("slowdown", "measured"), ("predicted_slowdown", "predicted")):
            ratios = list(_ratios(rows, method, figure).values())
            if ratios:
                mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
                lines.append(
                    f"- {method} over the best planner, {kind}, geometric mean of {len(ratios)} "
                    f"cases: {mean:.3f} (worst {max(ratios):.3f})"
                )
    failing = [
        f"{row['trace']} at {row['budget_fraction']:.4g}"
        for row in rows
        if row["method"] == ONLINE and row["result"] != "ok" and _chen_works(rows, row)
    ]
    lines.append(f"- Chen works and DTR does not: {', '.join(failing) or 'nowhere'}")
    return "\n".join(lines)


def _ratios(rows: list[dict[str, Any]], method: str, figure: str) -> dict[Any, float]:
    ratios = {}
    for row in rows:
        if row["method"] != method or row["result"] != "ok":
            continue
        others = [r[figure] for r in _same_case(rows, row) if r["method"] not in (ONLINE, PLAN)]
        if others:
            ratios[row["trace"], row["budget_bytes"]] = row[figure] / min(others)
    return ratios


def _same_case(rows: list[dict[str, Any]], row: dict[str, Any]) -> list[dict[str, Any]]:
    key = ("trace", "budget_bytes")
    return [r for r in rows if all(r[k] == row[k] for k in key) and r["result"] == "ok"]


def _chen_works(rows: list[dict[str, Any]], row: dict[str, Any]) -> bool:
    return any(r["method"] in CHEN for r in _same_case(rows, row))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", default=MODELS, help=f"(default {MODELS})")
    parser.add_argument("--budgets", default="90%,70%,50%,40%,30%")
    parser.add_argument("--methods", help="(default: all without a solver)")
    parser.add_argument("--loss", default="cross_entropy")
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--time-limit", type=float, default=5.0)
    default = str(Path(__file__).with_name("results") / "compare")
    parser.add_argument("-o", "--output", default=default)
    return parser.parse_args()


if __name__ == "__main__":
    main()
