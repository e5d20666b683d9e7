"""Fused segments -> OpGraph: execution order, views, and where each tensor dies."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import tvm
from tvm import relay

from tvm_dtr.errors import ModelError
from tvm_dtr.relay_facts import arguments, called, children
from tvm_dtr.relay_graph import ExprMap

from .early_reductions import run_reductions_early
from .fuse import FusedStep, Segment
from .opgraph import Instruction, Kernel, OpGraph, OpInfo, TensorInfo, tensor_bytes
from .primitive import span_name
from .recompute import recompute_cheap, without_unused
from .relay_walk import post_order, tensor_types, types_of

# Calls that only change the shape of a dense tensor.
VIEW_CALLS = frozenset({"reshape", "expand_dims", "squeeze", "nn.batch_flatten"})


@dataclass
class LinearStep:
    """An OpGraph with unnamed kernels, the primitive function of each, and constant values."""

    graph: OpGraph
    primitives: list[relay.Function]
    constants: list[tvm.nd.NDArray]


def linearize(step: FusedStep, recompute: bool = True) -> LinearStep:
    """Order = depth-first post-order of the step's results, in their order.

    With ``recompute`` cheap values are computed again in the backward pass's kernels.
    """
    linearizer = _Linearizer()
    for parameter in step.parameters:
        linearizer.add_parameter(parameter)
    for segment in step.segments:
        linearizer.add_segment(segment)
    linearizer.set_results(step.results)
    if recompute:
        linearizer.recompute()
    linearizer.set_order()
    return LinearStep(linearizer.graph, linearizer.primitives, linearizer.constants)


class _Linearizer:
    def __init__(self) -> None:
        self.graph = OpGraph()
        self.primitives: list[relay.Function] = []
        self.constants: list[tvm.nd.NDArray] = []
        self.values: dict[Any, int] = {}  # value of the step -> tensor
        self.constant_ids: dict[relay.Constant, int] = {}
        self.kernel_ids: dict[int, list[int]] = {}  # structural hash -> kernels

    def add_parameter(self, parameter: relay.Var) -> None:
        types = types_of(parameter)
        if len(types) != 1:
            raise ModelError(f"the parameter '{parameter.name_hint}' is a tuple, expected a tensor")
        tensor = self._new_tensor(*types[0])
        self.graph.parameters.append(tensor)
        self.values[parameter, 0] = tensor

    def add_segment(self, segment: Segment) -> None:
        local = ExprMap()
        for variable, value in zip(segment.function.params, segment.inputs, strict=True):
            local[variable] = [self.values[value]]
        body = segment.function.body
        for expr in post_order(body):
            if expr not in local:
                local[expr] = self._visit(expr, local)
        for value, tensor in zip(segment.outputs, local[body], strict=True):
            self.values[value] = tensor

    def set_results(self, results: list[Any]) -> None:
        for value in results:
            expr = value[0]
            is_constant = isinstance(expr, relay.Constant)
            tensor = self._constant(expr) if is_constant else self.values[value]
            self.graph.results.append(tensor)
        self.graph.instructions = depth_first(self.graph)

    def recompute(self) -> None:
        recompute_cheap(self.graph, self.primitives, self._kernel)
        self.graph.instructions = depth_first(self.graph)
        self.primitives = without_unused(self.graph, self.primitives)

    def set_order(self) -> None:
        self.graph.instructions = run_reductions_early(self.graph)
        self.graph.instructions = with_kills(self.graph)

    def _visit(self, expr: Any, local: ExprMap) -> list[int]:
        if isinstance(expr, relay.Constant):
            return [self._constant(expr)]
        if isinstance(expr, relay.Tuple):
            return [tensor for f in children(expr) for tensor in local[f]]
        if isinstance(expr, relay.TupleGetItem):
            return [local[children(expr)[0]][expr.index]]
        if isinstance(expr, relay.Call) and isinstance(called(expr), relay.Function):
            return self._call(expr, [tensor for arg in arguments(expr) for tensor in local[arg]])
        raise ModelError(f"cannot compile {str(expr)[:80]}: expected a call of a fused function")

    def _constant(self, expr: relay.Constant) -> int:
        if expr not in self.constant_ids:
            tensor = self._new_tensor(*types_of(expr)[0])
            self.constant_ids[expr] = tensor
            self.graph.constants.append(tensor)
            self.constants.append(expr.data)
            self.graph.instructions.append(("const", tensor))
        return self.constant_ids[expr]

    def _new_tensor(self, shape: tuple[int, ...], dtype: str) -> int:
        self.graph.storages.append(tensor_bytes(shape, dtype))
        storage = len(self.graph.storages) - 1
        self.graph.tensors.append(TensorInfo(storage, shape, dtype, -1))
        return len(self.graph.tensors) - 1

    def _call(self, call: relay.Call, inputs: list[int]) -> list[int]:
        types, primitive = types_of(call), called(call)
        if is_view(primitive):
            return [self._view(inputs[0], types[0][0])]
        outputs = [self._new_tensor(shape, dtype) for shape, dtype in types]
        op = OpInfo(self._kernel(primitive), inputs, outputs, source_of(primitive))
        self.graph.ops.append(op)
        self.graph.instructions.append(("op", len(self.graph.ops) - 1))
        return outputs

    def _view(self, of: int, shape: tuple[int, ...]) -> int:
        info = self.graph.tensors[of]
        base = of if info.base < 0 else info.base
        self.graph.tensors.append(TensorInfo(info.storage, shape, info.dtype, base))
        tensor = len(self.graph.tensors) - 1
        self.graph.instructions.append(("view", tensor))
        return tensor

    def _kernel(self, primitive: relay.Function) -> int:
        same_hash = self.kernel_ids.setdefault(tvm.ir.structural_hash(primitive), [])
        for kernel in same_hash:
            if tvm.ir.structural_equal(self.primitives[kernel], primitive):
                return kernel
        self.primitives.append(primitive)
        self.graph.kernels.append(Kernel("", 0.0, 0))
        same_hash.append(len(self.primitives) - 1)
        return len(self.primitives) - 1


def is_view(primitive: relay.Function) -> bool:
    """Whether a fused function only reshapes its one parameter."""
    expr = primitive.body
    while isinstance(expr, relay.Call) and getattr(expr.op, "name", "") in VIEW_CALLS:
        expr = expr.args[0]
    is_parameter = len(primitive.params) == 1 and expr.same_as(primitive.params[0])
    return is_parameter and len(tensor_types(primitive.params[0].checked_type)) == 1


def source_of(primitive: relay.Function) -> str:
    """The name that the front end gave to the last op of a fused function, or ""."""
    names = (span_name(e) for e in reversed(post_order(primitive.body)))
    return next((name for name in names if name), "")


def depth_first(graph: OpGraph) -> list[Instruction]:
    """The instructions in depth-first post-order of the results, in the results' order.

    Segments come one after the other, so within one the backward pass would run to its end before
    the first weight gradient; the order of the results says when each update should run.
    """
    maker = {t: i for i in graph.instructions for t in graph.tensors_defined(i)}
    ordered: list[Instruction] = []
    done: set[Instruction] = set()
    for result in graph.results:
        pending = [(maker[result], False)] if result in maker else []
        while pending:
            instruction, operands_done = pending.pop()
            if instruction in done:
                continue
            if operands_done:
                done.add(instruction)
                ordered.append(instruction)
                continue
            pending.append((instruction, True))
            operands = [maker[t] for t in graph.tensors_read(instruction) if t in maker]
            pending += [(o, False) for o in reversed(operands) if o not in done]
    return ordered


def with_kills(graph: OpGraph) -> list[Instruction]:
    """The instructions with each tensor killed right after its last use; results stay alive.

    A parameter that nothing reads is killed first of all.
    """
    kept = set(graph.results)
    dead_after: list[list[int]] = []
    seen: set[int] = set()
    for instruction in reversed(graph.instructions):
        touched = graph.tensors_read(instruction) + graph.tensors_defined(instruction)
        last = [t for t in dict.fromkeys(touched) if t not in seen and t not in kept]
        seen.update(last)
        dead_after.append(last)
    unread = [t for t in graph.parameters if t not in seen and t not in kept]
    ordered: list[Instruction] = [("kill", tensor) for tensor in unread]
    for instruction, last in zip(graph.instructions, reversed(dead_after), strict=True):
        ordered.append(instruction)
        ordered += [("kill", tensor) for tensor in last]
    return ordered
