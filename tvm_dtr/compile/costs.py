"""Time and workspace of each kernel of a library, measured once and remembered."""

from __future__ import annotations

import hashlib
import json
from contextlib import suppress
from pathlib import Path

import tvm
from tvm.target import codegen

from tvm_dtr.plugin import load_plugin

from .cache import KernelCache
from .kernels import CompiledKernel, Progress
from .opgraph import Kernel
from .primitive import signature

SAMPLES = 3  # the median of so many samples is the cost
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
    result = []
    for done, kernel in enumerate(kernels, 1):
        key = _cost_key(kernel)
        measured = _remembered(cache.get(key))
        if measured is None:
            measured = _measure(kernel, library_path, library)
            cache.put(key, json.dumps(measured).encode())
            if progress is not None:
                progress(done, len(kernels), f"timing {kernel.name}")
        cost_ns, peak_bytes = measured
        bound = kernel.workspace
        workspace = max(bound.total(), peak_bytes)
        result.append(Kernel(kernel.name, cost_ns, workspace, bound.per_thread))
    return result


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
