"""Extra compute that planners find on the graphs of the scheduling literature and on large ones.

python benchmarks/planners.py GRAPHS_FOLDER -o benchmarks/results/planners.json
"""

from __future__ import annotations

import argparse
from pathlib import Path

from synthetic_graphs import random_layered, training_step

from tvm_dtr.cli.files import write_rows
from tvm_dtr.passes import load_graph, plan_rows
from tvm_dtr.passes.node_link import graph_of_node_link

# graph, budget, percent of extra compute that exact solvers found in the fixed order
PUBLISHED = (
    ("vgg16", "90%", 1.97),
    ("unet", "80%", 1.98),
    ("unet", "50%", 6.97),
    ("mobilenet", "80%", 0.37),
    ("mobilenet", "50%", 1.64),
    ("random_layered_100", "80%", 2.30),
)
LARGE = ((training_step(5000), "50%", 6.0), (random_layered(1000), "80%", 3.0))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", nargs="?", help="of the published graphs; none: large ones only")
    parser.add_argument("--methods", default="anneal,checkmate,intervals")
    parser.add_argument("--time-limit", type=float, default=20.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("-o", "--output")
    arguments = parser.parse_args()
    rows = []
    for name, budget, percent in PUBLISHED if arguments.folder else ():
        graph = load_graph(Path(arguments.folder) / f"{name}.json")
        rows += run(graph, arguments.methods.split(","), budget, percent, arguments)
    for data, budget, percent in LARGE:
        graph = graph_of_node_link(data, data["graph"]["name"])
        rows += run(graph, ["anneal"], budget, percent, arguments)
    write_rows(arguments.output, rows)


def run(graph, methods, budget, percent, arguments):  # type: ignore[no-untyped-def]
    rows = plan_rows(graph, methods, [budget], time_limit=arguments.time_limit, seed=arguments.seed)
    for row in rows:
        extra = "-" if row["slowdown"] is None else f"{100 * (row['slowdown'] - 1):.3f} %"
        row["known_extra_percent"] = percent
        print(graph.name, budget, row["method"], row["result"], extra, f"(known {percent} %)",
              f"{row['planning_seconds']:.1f} s", flush=True)  # fmt: skip
    return rows


if __name__ == "__main__":
    main()
