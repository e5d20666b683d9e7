"""The whole compile path of a straight-line training step."""

from __future__ import annotations

from pathlib import Path

import tvm

from tvm_dtr.program import Program, private_folder
from tvm_dtr.progress import Progress
from tvm_dtr.relay_facts import remembering
from tvm_dtr.training import TrainingStep

from .cache import KernelCache, cache_folder
from .control_flow import compile_control_flow
from .costs import measured_kernels
from .emit import emit_executable
from .fuse import fuse
from .kernels import compile_kernels, link_library
from .linearize import linearize
from .opgraph import OpGraph
from .overwrites import mark_overwrites
from .target import resolve_target


def compile_step(
    step: TrainingStep,
    target: str = "llvm",
    progress: Progress | None = None,
    jobs: int | None = None,
    recompute: bool = True,
) -> Program:
    """Compile a step for a CPU; time is linear in the number of ops.

    progress: called with (done, total, what) as ops are fused, kernels compiled and timed.
    jobs: most compiler processes at a time, by default one per CPU.
    recompute: whether kernels of the backward pass compute cheap values again; without it results
    are bitwise those of TVM's own compiler.
    Raises UsageError (target, no C++ compiler), ModelError (not straight-line, no fixed shapes)
    and ProgramError (a kernel does not compile).
    """
    resolved = resolve_target(target)
    if step.module is not None:
        return compile_control_flow(step, resolved)
    with remembering():
        linear = linearize(fuse(step.function, progress=progress), recompute)
        mark_overwrites(linear, _next_state(step, linear.graph))
    cache = KernelCache(cache_folder())
    folder = private_folder()
    compiled = compile_kernels(linear.primitives, resolved, folder, cache, jobs, progress)
    library_path = Path(folder) / "kernels.so"
    link_library(compiled, library_path)
    for kernel in compiled:
        kernel.object_path.unlink()
    library = tvm.runtime.load_module(str(library_path))
    graph = linear.graph
    graph.kernels = measured_kernels(compiled, library_path, library, cache, progress)
    cache.trim()
    names = [spec.name for spec in [*step.inputs, *step.state]]
    return Program(
        executable=emit_executable(graph, names, linear.constants, library),
        graph=graph,
        inputs=list(step.inputs),
        state=list(step.state),
        results=list(step.results),
        initial_state=dict(step.initial_state),
        parameter_names=list(step.parameter_names),
        source=step.source,
        accumulate=step.accumulate,
        target=str(resolved),
        library_path=str(library_path),
    )


def _next_state(step: TrainingStep, graph: OpGraph) -> list[tuple[int, int]]:
    """(result, parameter) tensors of each state: the new value and the old one."""
    names = [spec.name for spec in [*step.inputs, *step.state]]
    places = dict(zip(names, graph.parameters, strict=True))
    pairs = zip(step.results, graph.results, strict=True)
    return [(tensor, places[result.name]) for result, tensor in pairs if result.kind == "state"]
