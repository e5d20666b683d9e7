"""Where a step's time goes: one row for each kernel, measured while the VM runs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .compile.opgraph import OpGraph
    from .vm import VirtualMachine

Row = dict[str, Any]


@contextmanager
def profiled(vm: VirtualMachine, graph: OpGraph) -> Iterator[list[Row]]:
    """Counts what ``vm`` runs inside the block; the list has its rows once the block is left.

    A row has ``kernel``; ``calls`` and ``seconds`` of the model's own work;
    ``rematerializations`` and ``remat_seconds``; ``share`` of all time; ``gflops`` (1e9
    operations a second) and ``gbytes`` (1e9 bytes of operands and results a second), over all
    runs; and ``sources``, the nodes that its ops come from. Rows are sorted by time, the dearest
    first. The memory trace of the VM stops meanwhile.
    """
    from .vm_sizes import refuse_sizes  # needs TVM, which --help does not

    refuse_sizes(vm._program, "a profile")
    rows: list[Row] = []
    vm.module["profile_kernels"](True)
    try:
        yield rows
    finally:
        measured = vm.module["profile_kernels"](False).numpy()
        names = vm.module["kernel_names"]().split()
        rows += _rows(dict(zip(names, measured, strict=True)), graph)


def _rows(measured: dict[str, Any], graph: OpGraph) -> list[Row]:
    total = sum(float(counts[1] + counts[3]) for counts in measured.values())
    sources, sizes = _sources(graph), kernel_bytes(graph)
    rows = []
    for index, kernel in enumerate(graph.kernels):
        calls, seconds, again, again_seconds = map(float, measured[kernel.name])
        if calls + again == 0:
            continue
        spent = max(seconds + again_seconds, 1e-12)
        rows.append(
            {
                "kernel": kernel.name,
                "calls": int(calls),
                "seconds": seconds,
                "rematerializations": int(again),
                "remat_seconds": again_seconds,
                "share": spent / max(total, 1e-12),
                "gflops": kernel.flops * (calls + again) / spent / 1e9,
                "gbytes": sizes[index] * (calls + again) / spent / 1e9,
                "sources": sources[index],
            }
        )
    return sorted(rows, key=lambda row: -row["share"])


def _sources(graph: OpGraph) -> list[list[str]]:
    """The nodes of each kernel's ops, in execution order, each once."""
    found: list[dict[str, None]] = [dict.fromkeys(kernel.sources) for kernel in graph.kernels]
    for op in graph.ops:
        if op.source:
            found[op.kernel][op.source] = None
    return [list(names) for names in found]


def kernel_bytes(graph: OpGraph) -> list[int]:
    """Bytes of the operands and results of one call of each kernel."""
    sizes = [0] * len(graph.kernels)
    for op in graph.ops:
        if not sizes[op.kernel]:
            tensors = dict.fromkeys([*op.inputs, *op.outputs])
            sizes[op.kernel] = sum(graph.storages[graph.tensors[t].storage] for t in tensors)
    return sizes
