"""Tables and progress on the terminal."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from rich import box
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from tvm_dtr.budget import format_bytes
from tvm_dtr.errors import BudgetError, ThrashError
from tvm_dtr.explain import by_role

HOLDERS_SHOWN = 12
PIPED_WIDTH = 240  # columns where the output is no terminal: never cut a figure short


def console(stream: Any = None) -> Console:
    stream = stream or sys.stdout
    width = None if stream.isatty() else PIPED_WIDTH
    return Console(file=stream, width=width, highlight=False, markup=False, emoji=False)


def print_table(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Prints to standard output; cells that look like numbers are set to the right."""
    _print(console(), title, columns, rows)


def _print(target: Console, title: str, columns: Sequence[str], rows: Any) -> None:
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, title_style="bold")
    for index, column in enumerate(columns):
        numbers = all(row[index][:1].isdigit() or row[index] in ("", "-") for row in rows)
        table.add_column(column, justify="right" if numbers else "left", overflow="fold")
    for row in rows:
        table.add_row(*row)
    target.print(table)


def mebibytes(count: float | None) -> str:
    return "-" if count is None else f"{count / 2**20:.1f}"


def print_holders(error: BudgetError | ThrashError) -> None:
    """What held memory when it ran out, largest first, to standard error."""
    shown, rest = error.holders[:HOLDERS_SHOWN], error.holders[HOLDERS_SHOWN:]
    if not shown:
        return
    rows = [[h["name"], h.get("role", ""), _held(h), format_bytes(h["bytes"])] for h in shown]
    if rest:
        rows.append([f"{len(rest)} more", "", "", format_bytes(sum(h["bytes"] for h in rest))])
    _print(console(sys.stderr), "Held at this point", ["tensor", "role", "why", "size"], rows)

    sums = [f"{role} {format_bytes(size)}" for role, size in by_role(error.holders).items()]
    print("in all:", ", ".join(sums), file=sys.stderr)


def print_remedies(error: BudgetError | ThrashError) -> None:
    """What helps, to standard error."""
    for number, line in enumerate(error.remedies(), 1):
        print(f"remedy {number}: {line}", file=sys.stderr)


def _held(holder: dict[str, Any]) -> str:
    reasons = {"pinned": holder.get("pinned"), "in use by the op": holder.get("locks")}
    return ", ".join(reason for reason, true in reasons.items() if true)


@contextlib.contextmanager
def progress(label: str, total: int | None = None) -> Iterator[Callable[..., None]]:
    """A bar on standard error while the block runs.

    Gives ``report(done, total=None, label=None)``, to call as work is done. Without a total the
    bar only shows that work goes on. Nothing is shown off a terminal.
    """
    target = console(sys.stderr)
    bar = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=target,
        transient=True,
        disable=not target.is_terminal,
    )
    with bar:
        task = bar.add_task(label, total=total)

        def report(done: int, total: int | None = None, label: str | None = None) -> None:
            bar.update(task, completed=done, total=total, description=label)

        yield report
