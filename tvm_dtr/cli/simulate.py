"""``tvm-dtr simulate``: what policies do under budgets, without running a kernel."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from tvm_dtr.cli import arguments as args
from tvm_dtr.cli.files import check_outputs, replacing, write_rows
from tvm_dtr.cli.report import print_table, progress
from tvm_dtr.errors import UsageError

PICTURES = ("slowdown.png", "slowdown.svg")


def names(text: str) -> list[str]:
    """``a,b`` as ["a", "b"]."""
    items = [item.strip() for item in text.split(",")]
    if not all(items):
        raise argparse.ArgumentTypeError(f"'{text}' is not a list a,b,c")
    return items


def limit(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < float("inf"):
        raise argparse.ArgumentTypeError(f"'{text}' is not a number of 0 or more")
    return value


def add_command(commands: Any, everywhere: argparse.ArgumentParser) -> None:
    parser = commands.add_parser(
        "simulate",
        parents=[everywhere],
        help="predict slowdowns of policies under budgets, from a trace",
        description="Replay traces under policies and budgets and print the slowdowns.",
    )
    parser.add_argument(
        "traces",
        nargs="*",
        metavar="TRACE",
        help="a DTR log (.log, .log.gz), a program (.tdtr) or an OpGraph (.json)",
    )
    parser.add_argument(
        "--workload",
        action="append",
        default=[],
        metavar="NAME:OPS",
        help="a made-up step of so many ops: chain, resnet, transformer, recurrence, tree, "
        "dag:OPS:SEED or adversary:OPS:PATHS:POLICY (may be given several times)",
    )
    parser.add_argument(
        "--policies",
        type=names,
        metavar="A,B",
        help="auto, dtr-eq, dtr, dtr-up, dtr-local, lru, size, msps, e-star, random, window "
        "(default: all but auto, e-star, random and window)",
    )
    parser.add_argument(
        "--budgets",
        type=names,
        metavar="A,B",
        help="90%%,50%% (of the peak without a budget) or 512MiB (default: 90%% to 10%%)",
    )
    parser.add_argument("--out", metavar="DIR", help="write tables and the plot to DIR")
    _add_how(parser)
    args.add_require_sha256(parser)
    parser.set_defaults(command=run_simulation)


def _add_how(parser: argparse.ArgumentParser) -> None:
    args.add_arena(parser)
    parser.add_argument(
        "--search",
        default="heap",
        metavar="NAME",
        help="heap (default), scan (both exact) or sqrt (the best of a random sample)",
    )
    parser.add_argument(
        "--dealloc",
        default="eager",
        metavar="NAME",
        help="what losing its last reference does to a storage: eager (default: evicted), banish "
        "(freed for good once nothing evicted depends on it) or ignore",
    )
    parser.add_argument(
        "--seed", type=args.seed, default=0, metavar="N", help="of what draws (default 0)"
    )
    parser.add_argument(
        "--thrash-limit",
        type=limit,
        metavar="X",
        help="stop when recomputation exceeds X times the step's own work, 0: never (default: 1 "
        "for DTR logs, 10 for programs)",
    )
    parser.add_argument(
        "--jobs", type=args.positive, metavar="N", help="threads (default: one per core)"
    )


def run_simulation(arguments: argparse.Namespace) -> int:
    from tvm_dtr.simulation import load_trace, simulate
    from tvm_dtr.simulation.simulator import DEFAULT_BUDGETS, DEFAULT_POLICIES
    from tvm_dtr.simulation.workloads import make_workload

    if not arguments.traces and not arguments.workload:
        raise UsageError("name a TRACE or a --workload to simulate")
    check_outputs([arguments.json])
    folder = output_folder(arguments.out)
    traces = []
    for path in arguments.traces:
        with progress(f"reading {Path(path).name}"):
            traces.append(load_trace(path, arguments.require_sha256))
    for workload in arguments.workload:
        with progress(f"making {workload}"):
            traces.append(make_workload(workload))
    _refuse_equal_names([trace.name for trace in traces])
    with progress("simulating") as report:
        rows = simulate(
            traces,
            policies=arguments.policies or DEFAULT_POLICIES,
            budgets=arguments.budgets or DEFAULT_BUDGETS,
            search=arguments.search,
            dealloc=arguments.dealloc,
            arena=arguments.arena,
            seed=arguments.seed,
            thrash_limit=arguments.thrash_limit,
            jobs=arguments.jobs,
            progress=report,
        )
    write_rows(arguments.json, rows)
    if folder is not None:
        _write_folder(folder, rows, traces)
    _print(rows)
    return 0


def output_folder(name: str | None) -> Path | None:
    """Made before the work, so that what it gives can be written."""
    if name is None:
        return None
    folder = Path(name)
    if folder.exists() and not folder.is_dir():
        raise UsageError(f"output folder '{name}' is a file")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"output folder '{name}': {error.strerror}") from None
    check_outputs([str(folder / "table.json")])
    return folder


def _refuse_equal_names(found: list[str]) -> None:
    for name in found:
        if found.count(name) > 1:
            raise UsageError(f"two traces are called '{name}': rename a file")


def _write_folder(folder: Path, rows: list[dict[str, Any]], traces: list[Any]) -> None:
    from tvm_dtr.plot import save_figure
    from tvm_dtr.simulation.plot import slowdown_figure
    from tvm_dtr.simulation.tables import comma_separated, markdown

    for name, text in (("table.md", markdown(rows)), ("table.csv", comma_separated(rows))):
        with replacing(str(folder / name)) as draft:
            draft.write_text(text, encoding="utf-8")
    write_rows(str(folder / "table.json"), rows)
    figure = slowdown_figure(rows, traces)
    for name in PICTURES:
        with replacing(str(folder / name)) as draft:
            save_figure(figure, draft)


def _print(rows: list[dict[str, Any]]) -> None:
    from tvm_dtr.simulation.tables import by_trace, pivot

    for trace, group in by_trace(rows).items():
        print_table(f"{trace}: slowdown by budget, a share of the peak", *pivot(group))
