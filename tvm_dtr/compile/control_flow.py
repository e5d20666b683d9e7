"""Programs with control flow: the stock VM compiler, and kernels in a shared library."""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import tvm
from tvm import relay
from tvm.runtime.vm import Executable

from tvm_dtr.errors import ModelError, ProgramError
from tvm_dtr.plugin import load_plugin
from tvm_dtr.program import Program, private_folder
from tvm_dtr.relay_graph import TypeInferenceError, infer_module
from tvm_dtr.training import TrainingStep

from .codegen import CONFIG, quiet, reason_of
from .costs import ROUNDS, SAMPLE_SECONDS, SAMPLES
from .kernel_sources import KernelSources
from .opgraph import Kernel, OpGraph
from .schedules import with_key
from .workspace import Workspace, workspace_of

OPT_LEVEL = 3
LAST_PHASE = 3  # of tvm.lower
# Folding would store tensors of zeros and ones that kernels make; the rest copies or packs weights
# once in each iteration.
DISABLED = [
    "FoldConstant",
    "AlterOpLayout",
    "CombineParallelConv2D",
    "CombineParallelDense",
    "CombineParallelBatchMatmul",
]


def compile_control_flow(step: TrainingStep, target: tvm.target.Target) -> Program:
    """Compile a step with control flow; time depends on the length of its code, not of its runs.

    Raises ModelError for what Relay cannot type, ProgramError for what does not compile.
    """
    try:
        module = infer_module(step.module)
    except TypeInferenceError as error:
        raise ModelError(f"the model's control flow does not fit together: {error}") from error
    target = with_key(target)
    lowered: dict[str, Lowered] = {}
    config = {**CONFIG, "tir.add_lower_pass": [(LAST_PHASE, _recording(lowered))]}
    sources = KernelSources(module)
    context = tvm.transform.PassContext(
        opt_level=OPT_LEVEL, config=config, disabled_pass=DISABLED, instruments=[sources]
    )
    library_path = Path(private_folder()) / "kernels.so"
    try:
        with quiet(), silenced(), context:
            compiled = relay.vm.compile(module, target)
        code, library = compiled.save()
        library.export_library(str(library_path))
    except Exception as error:
        raise ProgramError(
            f"the model's control flow does not compile ({reason_of(error)})"
        ) from error
    library = tvm.runtime.load_module(str(library_path))
    executable = Executable.load_exec(code, library)
    names = [str(name) for name in executable.primitive_ops]
    kernels = _measured(names, lowered, library, str(library_path))
    kernels = [replace(kernel, sources=sources.of(kernel.name)) for kernel in kernels]
    return Program(
        executable=executable,
        graph=OpGraph(kernels=kernels),
        inputs=list(step.inputs),
        state=list(step.state),
        results=list(step.results),
        initial_state=dict(step.initial_state),
        parameter_names=list(step.parameter_names),
        target=str(target),
        library_path=str(library_path),
        control_flow=True,
        source=step.source,
        accumulate=step.accumulate,
    )


class Lowered(NamedTuple):
    """What is known of a kernel of fixed shapes: bound of its workspace, operands and results."""

    workspace: Workspace
    tensors: list[tuple[tuple[int, ...], str]]


def _recording(lowered: dict[str, Lowered]) -> Any:
    """A pass that notes each kernel of fixed shapes; about the others the VM learns."""

    @tvm.tir.transform.prim_func_pass(opt_level=0)
    def record(function: Any, module: Any, context: Any) -> Any:
        buffers = [function.buffer_map[param] for param in function.params]
        with contextlib.suppress(TypeError):  # a size is no number
            tensors = [(tuple(int(n) for n in b.shape), b.dtype) for b in buffers]
            name = str(function.attrs["global_symbol"])
            lowered[name] = Lowered(workspace_of(function), tensors)
        return function

    return record


def _measured(
    names: list[str], lowered: dict[str, Lowered], library: tvm.runtime.Module, path: str
) -> list[Kernel]:
    """The kernels with their costs; -1 where the VM will learn cost and workspace as they run."""
    load_plugin()
    measure = tvm.get_global_func("tvm_dtr.measure_kernel")
    kernels = {name: Kernel(name, -1.0, -1) for name in names}
    for _ in range(ROUNDS):
        for name in kernels.keys() & lowered.keys():
            bound, tensors = lowered[name]
            # Zeros: an index that lies anywhere would make a kernel write anywhere.
            arrays = [tvm.nd.array(np.zeros(shape, dtype)) for shape, dtype in tensors]
            picoseconds, peak = measure(path, library[name], arrays, SAMPLES, SAMPLE_SECONDS)
            cost, before = picoseconds / 1e3, kernels[name].cost_ns
            cost = cost if before < 0 else min(cost, before)
            workspace = max(bound.total(), peak)
            kernels[name] = Kernel(name, cost, workspace, bound.per_thread)
    return list(kernels.values())


@contextlib.contextmanager
def silenced() -> Iterator[None]:
    """Keeps what TVM's C++ writes to standard error off the terminal; an error shows anyway."""
    sys.stderr.flush()
    saved = os.dup(2)
    with tempfile.TemporaryFile() as sink:
        os.dup2(sink.fileno(), 2)
        try:
            yield
        finally:
            os.dup2(saved, 2)
            os.close(saved)
