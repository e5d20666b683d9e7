"""What training shows while it runs: a bar on a terminal, a line per epoch elsewhere."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator, Mapping
from typing import Any

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from tvm_dtr.cli.report import console, mebibytes
from tvm_dtr.trainer import Callback


class _Shown(Callback):
    def __init__(self, bar: Progress) -> None:
        self.bar = bar
        self.task = bar.add_task("", total=None, figures="")

    def on_start(self, trainer: Any) -> None:
        step = trainer.position.step
        if step:
            self.bar.console.print(f"resumed after step {step}")
        self.bar.update(self.task, completed=step, total=trainer.total_steps)

    def on_step(self, trainer: Any, record: dict[str, Any], outputs: Mapping[str, Any]) -> None:
        figures = (
            f"loss {record['loss']:.4f}  {record['samples_per_second']:.0f} samples/s  "
            f"{mebibytes(record['peak_bytes'])} MiB  slowdown {record['slowdown']:.2f}"
        )
        label = f"epoch {record['epoch']}"
        self.bar.update(self.task, completed=record["step"], description=label, figures=figures)

    def on_epoch(self, trainer: Any, record: dict[str, Any]) -> None:
        extra = {k: v for k, v in record.items() if k not in ("event", "step", "epoch", "loss")}
        shown = "".join(f", {name} {value:.4f}" for name, value in extra.items())
        self.bar.console.print(
            f"epoch {record['epoch']}, step {record['step']}: mean loss {record['loss']:.4f}{shown}"
        )


@contextlib.contextmanager
def shown_progress(trainer: Any) -> Iterator[Callback]:
    """A callback that shows the trainer's progress on standard error while the block runs."""
    target = console(sys.stderr)
    bar = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[figures]}"),
        TimeRemainingColumn(),
        console=target,
        transient=True,
        disable=not target.is_terminal,
    )
    with bar:
        yield _Shown(bar)
