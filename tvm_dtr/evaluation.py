"""Evaluation: the model as it infers, on the parameters of a machine that trains it."""

from __future__ import annotations

import gc
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from .data import open_data
from .data.batches import fed
from .metrics import FINISH, Metric, find_metrics
from .program import Program
from .vm import VirtualMachine


class Evaluator:
    """Figures of a program's model on data, in evaluation mode.

    Batch normalization takes the running statistics and dropout does nothing, as in the model that
    ``Program.to_onnx`` gives. ``evaluator(vm)`` evaluates the parameters of a VirtualMachine of
    the program, without copying them, and returns the mean of each metric over all samples; a
    Trainer takes it as ``evaluate``. Under a budget the two together stay within it.

    Args:
        program: the training program. data: as of a Trainer, in its own order, to the last sample.
        metrics: ``"loss"``, ``"accuracy"``, ``"perplexity"`` or functions, see tvm_dtr.metrics.

    Raises:
        UsageError, InputError: as a Trainer does. ModelError: the program does not hold its model.
    """

    def __init__(
        self,
        program: Program,
        data: Any,
        metrics: Sequence[str | Metric] = ("loss",),
    ) -> None:
        self.program = program.evaluation
        specs = [s for s in program.inputs if s.default is None]
        self.data = open_data(data, specs, shuffle=False, drop_last=False)
        assert program.source is not None
        self.metrics = find_metrics(metrics, program.source.loss)
        self._names = {spec.name for spec in fed(self.program.inputs)}

    def __call__(self, vm: VirtualMachine) -> dict[str, float]:
        old, ours = self._shared_budget(vm)
        machine = None
        try:
            machine = VirtualMachine(self.program, memory_budget=ours)
            machine.share_state(vm)
            return self._means(machine)
        finally:
            del machine
            gc.collect()  # its memory goes before the training machine has the budget back
            if old is not None:
                vm.set_budget(old)

    def _shared_budget(self, vm: VirtualMachine) -> tuple[int | None, int | None]:
        """Leaves the training machine what it holds, and gives the rest of its budget.

        The parameters count for both and are there once.
        """
        counters = vm.counters()
        budget, held = counters["budget_bytes"], counters["active_bytes"]
        if budget >= 2**64 - 1:
            return None, None
        shared = sum(s.nbytes for s in map(vm.parameters.__getitem__, self._shared_names(vm)))
        return vm.set_budget(held), budget - held + shared

    def _shared_names(self, vm: VirtualMachine) -> list[str]:
        return [spec.name for spec in self.program.state]

    def _means(self, machine: VirtualMachine) -> dict[str, float]:
        sums = dict.fromkeys(self.metrics, 0.0)
        samples = 0
        for batch, count in self._batches():
            given = {name: batch[name] for name in self._names}
            outputs = machine.step(**given)
            for name, metric in self.metrics.items():
                sums[name] += _mean(metric(outputs, batch), count, self.data.batch_size) * count
            samples += count
        means = {name: total / max(samples, 1) for name, total in sums.items()}
        return {name: FINISH.get(name, float)(mean) for name, mean in means.items()}

    def _batches(self) -> Iterator[tuple[Mapping[str, Any], int]]:
        """Batches, and how many samples of each count: the last one may be filled up."""
        left = getattr(self.data, "samples", None)
        for batch in self.data.epoch(0):
            count = self.data.batch_size if left is None else min(left, self.data.batch_size)
            yield batch, count
            left = None if left is None else left - count


def _mean(value: Any, count: int, batch_size: int) -> float:
    """Over the first ``count`` samples, where there is a value per row."""
    array = np.asarray(value, "float64")
    if array.ndim == 0 or array.size % batch_size:
        return float(array.mean())
    return float(array.reshape(batch_size, -1)[:count].mean())
