"""OpGraph -> Executable of the Relay VM, written by the plugin."""

from __future__ import annotations

import numpy as np
import tvm
from tvm.runtime.vm import Executable

from tvm_dtr.plugin import load_plugin

from .opgraph import OpGraph

_CODES = {"op": 0, "view": 1, "const": 2, "kill": 3}


def emit_executable(
    graph: OpGraph,
    parameter_names: list[str],
    constants: list[tvm.nd.NDArray],
    library: tvm.runtime.Module | None,
) -> Executable:
    """An executable that the stock VM runs; "main" returns the tuple of results. Without kernels it
    needs no library."""
    load_plugin()
    emit = tvm.get_global_func("tvm_dtr.emit_executable")
    names = [kernel.name for kernel in graph.kernels]
    module = emit(tvm.nd.array(_encoded(graph)), names, parameter_names, constants)
    if library is not None:
        tvm.get_global_func("tvm_dtr.set_library")(module, library)
    return Executable(module)


def _encoded(graph: OpGraph) -> np.ndarray:
    """The flat form that src/relay_vm/emitter.cc reads; each list is its length, then items."""
    codes: list[int] = []

    def put(items: list[int] | tuple[int, ...]) -> None:
        codes.append(len(items))
        codes.extend(items)

    put(graph.storages)
    codes.append(len(graph.tensors))
    for tensor in graph.tensors:
        dtype = tvm.DataType(tensor.dtype)
        codes.extend((tensor.storage, tensor.base, dtype.type_code, dtype.bits))
        put(tensor.shape)
    codes.append(len(graph.ops))
    for op in graph.ops:
        codes.append(op.kernel)
        put(op.inputs)
        put(op.outputs)
    put(graph.parameters)
    put(graph.constants)
    put(graph.results)
    put([code for kind, index in graph.instructions for code in (_CODES[kind], index)])
    return np.array(codes, dtype="int64")
