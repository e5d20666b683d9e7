"""Maximum, minimum, clipping and max pooling that let NaN through, in place of TOPI's.

ONNX (after NumPy) and PyTorch give NaN where an operand is NaN. TOPI's comparisons drop it in one
of two orders: a training run that has diverged would look sound.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from tvm import te, tir, topi
from tvm.relay.op import op as op_registry
from tvm.target import override_native_generic_func
from tvm.topi.utils import get_const_tuple

from .registration import is_nan

_ABOVE_DEFAULT = 11  # TVM registers its own at level 10

Combine = Callable[[Any, Any], Any]


def larger(a: Any, b: Any) -> Any:
    """The larger of two TIR values; NaN if one is."""
    return tir.Select(tir.any(a > b, is_nan(a)), a, b)


def smaller(a: Any, b: Any) -> Any:
    """The smaller of two TIR values; NaN if one is."""
    return tir.Select(tir.any(a < b, is_nan(a)), a, b)


def _elementwise(
    combine: Combine, attrs: Any, inputs: Sequence[te.Tensor], out_type: Any
) -> list[te.Tensor]:
    shape = get_const_tuple(out_type.shape)
    a, b = (topi.broadcast_to(x, shape) for x in inputs)
    tag = topi.tag.BROADCAST
    return [te.compute(shape, lambda *i: combine(a(*i), b(*i)), name="extremum", tag=tag)]


def _clip(attrs: Any, inputs: Sequence[te.Tensor], out_type: Any) -> list[te.Tensor]:
    (x,) = inputs
    low, high = float(attrs.a_min), float(attrs.a_max)

    def clipped(*i: Any) -> Any:
        y = x(*i)
        # A bound outside of the type's range, such as infinity for integers, is none.
        if low > tir.min_value(x.dtype).value:
            y = tir.Select(y < tir.const(low, x.dtype), tir.const(low, x.dtype), y)
        if high < tir.max_value(x.dtype).value:
            y = tir.Select(y > tir.const(high, x.dtype), tir.const(high, x.dtype), y)
        return y

    return [te.compute(x.shape, clipped, name="clip", tag=topi.tag.ELEMWISE)]


def _reduced(
    combine: Combine,
    start: Callable[[str], Any],
    attrs: Any,
    inputs: Sequence[te.Tensor],
    out_type: Any,
) -> list[te.Tensor]:
    (x,) = inputs
    rank = len(x.shape)
    named = range(rank) if attrs.axis is None else [int(a) % rank for a in attrs.axis]
    axes = [i for i in range(rank) if (i in named) != bool(attrs.exclude)]
    reducer = te.comm_reducer(combine, start, name="extremum")
    loops = {i: te.reduce_axis((0, x.shape[i]), f"k{i}") for i in axes}

    def element(*out: Any) -> Any:
        kept = iter(out)
        places = []
        for i in range(rank):
            if i in loops:
                places.append(loops[i].var)
                if attrs.keepdims:
                    next(kept)
            else:
                places.append(next(kept))
        return reducer(x(*places), axis=list(loops.values()))

    shape = get_const_tuple(out_type.shape)
    return [te.compute(shape, element, name="extremum", tag=topi.tag.COMM_REDUCE)]


def _max_pool2d(attrs: Any, inputs: Sequence[te.Tensor], out_type: Any) -> list[te.Tensor]:
    (x,) = inputs
    height, width = (int(n) for n in x.shape[2:])
    kernel, stride = get_const_tuple(attrs.pool_size), get_const_tuple(attrs.strides)
    dilation, padding = get_const_tuple(attrs.dilation), get_const_tuple(attrs.padding)
    ky, kx = (te.reduce_axis((0, n), name) for n, name in zip(kernel, ("ky", "kx"), strict=True))
    reducer = te.comm_reducer(larger, tir.min_value, name="max_nan")
    padded = any(padding) or bool(attrs.ceil_mode)

    def element(n: Any, c: Any, i: Any, j: Any) -> Any:
        row = i * stride[0] + ky.var * dilation[0] - padding[0]
        column = j * stride[1] + kx.var * dilation[1] - padding[1]
        value = x(n, c, row, column)
        if padded:
            inside = tir.all(row >= 0, row < height, column >= 0, column < width)
            value = tir.if_then_else(inside, value, tir.min_value(x.dtype))
        return reducer(value, axis=[ky, kx])

    shape = get_const_tuple(out_type.shape)
    return [te.compute(shape, element, name="max_pool", tag="pool_max")]


# (attrs, operands, result type) -> results
Compute = Callable[[Any, Sequence[te.Tensor], Any], list[te.Tensor]]
Schedule = Callable[[list[te.Tensor]], Any]


def _register(name: str, compute: Compute, tvms: Compute, schedule: Schedule) -> None:
    """Our own compute for fixed shapes (and planes in rows of columns), TVM's for others."""

    def chosen(attrs: Any, inputs: Any, out_type: Any) -> list[te.Tensor]:
        shapes = [out_type.shape, *(x.shape for x in inputs)]
        fixed = all(isinstance(n, tir.IntImm | int) for shape in shapes for n in shape)
        plain = getattr(attrs, "layout", "NCHW") == "NCHW"
        return (compute if fixed and plain else tvms)(attrs, inputs, out_type)

    def scheduled(attrs: Any, outs: Any, target: Any) -> Any:
        with target:
            return schedule(outs)

    @override_native_generic_func(f"tvm_dtr.{name}_strategy")
    def strategy(attrs: Any, inputs: Any, out_type: Any, target: Any) -> Any:
        choice = op_registry.OpStrategy()
        choice.add_implementation(chosen, scheduled, name=f"{name}.cpu")
        return choice

    op_registry.register_strategy(name, strategy, _ABOVE_DEFAULT)


def _tvms(name: str) -> Compute:
    """The compute that TVM registers for an op."""
    compute = op_registry.get(name).get_attr("FTVMCompute")
    return lambda attrs, inputs, out_type: list(compute(attrs, inputs, out_type))


def _register_all() -> None:
    injective, reduction = topi.x86.schedule_injective, topi.x86.schedule_reduce
    for name, combine in (("maximum", larger), ("minimum", smaller)):
        _register(name, partial(_elementwise, combine), _tvms(name), injective)
    _register("clip", _clip, _tvms("clip"), injective)
    for name, combine, start in (("max", larger, tir.min_value), ("min", smaller, tir.max_value)):
        _register(name, partial(_reduced, combine, start), _tvms(name), reduction)
    pool = "nn.max_pool2d"
    _register(pool, _max_pool2d, _tvms(pool), lambda outs: topi.x86.schedule_pool(outs, "NCHW"))


_register_all()
