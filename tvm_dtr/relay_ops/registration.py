"""Relay ops of our own, with hand-written CPU kernels.

An op is registered once per process, on import; a process that reads a Relay function from a file
must import this package first.
"""

from __future__ import annotations

import functools
import hashlib
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import tvm
from tvm import relay, te, tir
from tvm.ir import TensorType, Type
from tvm.relay.op import op as op_registry
from tvm.target import override_native_generic_func

from ..relay_graph import Expr
from .cpu import VectorUnit, vector_unit

# (attrs, operands' tensor types) -> the result's type
TypeOf = Callable[[Any, Sequence[TensorType]], Type]
# (attrs, operands, result type, vector unit) -> the results
Compute = Callable[[Any, Sequence[te.Tensor], Any, VectorUnit], list[te.Tensor]]


def register_op(name: str, operands: Sequence[str], type_of: TypeOf, compute: Compute) -> None:
    """Add op ``name`` to Relay's registry. It is never fused with others."""
    op_registry.register(name, f"{name} of tvm-dtr")
    op = op_registry.get(name)
    op.set_num_inputs(len(operands))
    for operand in operands:
        op.add_argument(operand, "Tensor", operand)
    op.set_support_level(10)
    op.set_attrs_type_key("DictAttrs")

    def relation(args: Sequence[Any], attrs: Any) -> Type | None:
        known = all(isinstance(arg, TensorType) for arg in args)
        return type_of(attrs, args) if known else None

    op.add_type_rel(name, relation)
    op_registry.register_pattern(name, op_registry.OpPattern.OPAQUE)
    op_registry.register_strategy(name, _strategy(name, compute))


def _strategy(name: str, compute: Compute) -> Any:
    @override_native_generic_func(f"{name}_strategy")
    def strategy(attrs: Any, inputs: Any, out_type: Any, target: Any) -> Any:
        choice = op_registry.OpStrategy()
        choice.add_implementation(
            lambda attrs, inputs, out_type: compute(attrs, inputs, out_type, vector_unit(target)),
            lambda attrs, outs, target: te.create_schedule([out.op for out in outs]),
            name=f"{name}.cpu",
        )
        return choice

    return strategy


def call_op(name: str, operands: Sequence[Expr], **attributes: Any) -> relay.Call:
    """A call of a registered op; attributes are ints, floats, strings or lists of ints."""
    attrs = tvm.ir.make_node("DictAttrs", **attributes, revision=_revision())
    return relay.Call(op_registry.get(name), list(operands), attrs)


@functools.cache
def _revision() -> str:
    """Identifies the code of the kernels: part of every call, so that a kernel that was compiled
    and cached by an older version is never taken for this one's."""
    digest = hashlib.sha256()
    for path in sorted(Path(__file__).parent.glob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def flat(ib: Any, buffer: Any) -> Any:
    """Access to a compact buffer by one index. (An IR builder's own pointers divide such an index
    into one per axis, which simplification does not always undo.)"""
    size = math.prod(ints(buffer.shape))
    return ib.buffer_ptr(tir.decl_buffer((size,), buffer.dtype, buffer.name, data=buffer.data))


def ints(values: Sequence[Any]) -> tuple[int, ...]:
    """TVM integers (of shapes and attributes) as Python's."""
    return tuple(int(v) for v in values)


def is_nan(value: Any) -> Any:
    """Whether a TIR value is NaN. (TVM simplifies ``value != value`` to false.)"""
    if value.dtype.startswith(("float", "bfloat")):
        return tir.isnan(value)
    return tir.const(False, "bool")
