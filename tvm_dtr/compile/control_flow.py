"""Programs with control flow: the stock VM compiler, and kernels in a shared library."""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import tvm
from tvm import relay
from tvm.runtime.vm import Executable

from tvm_dtr.errors import ModelError, ProgramError
from tvm_dtr.program import Program, private_folder
from tvm_dtr.relay_graph import TypeInferenceError, infer_module
from tvm_dtr.training import TrainingStep

from .codegen import CONFIG, quiet, reason_of
from .opgraph import Kernel, OpGraph
from .schedules import with_key

OPT_LEVEL = 3
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
    context = tvm.transform.PassContext(opt_level=OPT_LEVEL, config=CONFIG, disabled_pass=DISABLED)
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
    return Program(
        executable=executable,
        graph=OpGraph(kernels=[Kernel(name, -1.0, -1) for name in names]),
        inputs=list(step.inputs),
        state=list(step.state),
        results=list(step.results),
        initial_state=dict(step.initial_state),
        parameter_names=list(step.parameter_names),
        target=str(target),
        library_path=str(library_path),
        control_flow=True,
    )


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
