"""Time and workspace of each kernel of a library, measured once and remembered."""

from __future__ import annotations

import hashlib
import json
from contextlib import suppress
from pathlib import Path

import tvm
from tvm.target import codegen

from tvm_dtr.plugin import load_plugin
from tvm_dtr.progress import Progress

from .cache import KernelCache
from .kernels import CompiledKernel
from .opgraph import Kernel
from .primitive import signature
from .work import flops

SAMPLES = 3  # the median of so many samples is the cost that one round finds
ROUNDS = 2  # over all kernels: what disturbs one round for a while disturbs the same kernel once
SAMPLE_SECONDS = 0.0004  # tiny kernels are repeated for so long in each sample


def measured_kernels(
    kernels: list[CompiledKernel],
    library_path: Path,
    library: tvm.runtime.Module,
    cache: KernelCache,
    progress: Progress | None = None,
) -> list[Kernel]:
    """The graph's kernels: cost in ns and workspace bound in bytes, in the same order.

    Each kernel runs alone on arrays of its shapes, so memory is bounded by the largest kernel.
    """
    load_plugin()
    known = {kernel.key: _remembered(cache.get(_cost_key(kernel))) for kernel in kernels}
    missing = [kernel for kernel in kernels if known[kernel.key] is None]
    old = len(kernels) - len(missing)
    for number in range(ROUNDS):
        for index, kernel in enumerate(missing, 1):
            measured = _measure(kernel, library_path, library)
            known[kernel.key] = _least(known[kernel.key], measured)
            if progress is not None:
                done = old + (number * len(missing) + index) // ROUNDS
                progress(done, len(kernels), f"timing {kernel.name}")
    for kernel in missing:
        cache.put(_cost_key(kernel), json.dumps(known[kernel.key]).encode())
    return [_described(kernel, known[kernel.key]) for kernel in kernels]


def _least(before: tuple[float, int] | None, measured: tuple[float, int]) -> tuple[float, int]:
    """Other programs only ever add to a kernel's time, so the least is nearest to it."""
    if before is None:
        return measured
    return min(before[0], measured[0]), max(before[1], measured[1])


def _described(kernel: CompiledKernel, measured: tuple[float, int] | None) -> Kernel:
    assert measured is not None
    cost_ns, peak_bytes = measured
    bound = kernel.workspace
    workspace = max(bound.total(), peak_bytes)
    return Kernel(kernel.name, cost_ns, workspace, bound.per_thread, flops(kernel.primitive))


def _measure(
    kernel: CompiledKernel, library_path: Path, library: tvm.runtime.Module
) -> tuple[float, int]:
    inputs, outputs = signature(kernel.primitive)
    arrays = [tvm.nd.empty(shape, dtype) for shape, dtype in inputs + outputs]
    measure = tvm.get_global_func("tvm_dtr.measure_kernel")
    function = library[kernel.name]
    picoseconds, peak = measure(str(library_path), function, arrays, SAMPLES, SAMPLE_SECONDS)
    return picoseconds / 1e3, peak


def _cost_key(kernel: CompiledKernel) -> str:
    machine = f"{codegen.llvm_get_system_cpu()}|{tvm.runtime.num_threads()}"
    return hashlib.sha256(f"cost|{kernel.key}|{machine}".encode()).hexdigest()


def _remembered(content: bytes | None) -> tuple[float, int] | None:
    if content is None:
        return None
    with suppress(ValueError, TypeError):
        cost_ns, peak_bytes = json.loads(content)
        return float(cost_ns), int(peak_bytes)
    return None
