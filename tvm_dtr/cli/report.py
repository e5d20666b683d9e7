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

from tvm_dtr.errors import BudgetError

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


def print_holders(error: BudgetError) -> None:
    """What held memory when it ran out, largest first, to standard error."""
    if not error.holders:
        return
    columns = list(dict.fromkeys(key for holder in error.holders for key in holder))
    rows = [[_cell(key, holder.get(key, "")) for key in columns] for holder in error.holders]
    titles = [_holder_title(key) for key in columns]
    _print(console(sys.stderr), "What holds memory at this point", titles, rows)


def _holder_title(key: str) -> str:
    return "MiB" if key == "bytes" else key


def _cell(key: str, value: Any) -> str:
    return f"{value / 2**20:.3f}" if key == "bytes" else str(value)


@contextlib.contextmanager
def progress(label: str, total: int | None = None) -> Iterator[Callable[[], None]]:
    """A bar on standard error while the block runs; call the value once a unit is done.

    Without a total it only shows that work goes on. Nothing is shown off a terminal.
    """
    target = console(sys.stderr)
    bar = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        *([] if total is None else [MofNCompleteColumn()]),
        TimeElapsedColumn(),
        console=target,
        transient=True,
        disable=not target.is_terminal,
    )
    with bar:
        task = bar.add_task(label, total=total)
        yield lambda: bar.advance(task)
