"""Reductions over a batch per channel: what batch normalization needs in both directions.

TVM's reduction kernels add one element after the other. These keep several vectors of partial
sums, and compute together what reads the same data. Channels run in parallel and each is summed
in a fixed order, so the result does not depend on the number of threads.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tvm import relay, te, tir
from tvm.ir import TensorType, TupleType

from ..relay_graph import Expr
from .cpu import VectorUnit
from .registration import call_op, flat, ints, register_op

STATISTICS = "dtr.batch_statistics"
GRADIENT_SUMS = "dtr.batch_norm_gradient_sums"
UNROLL = 4  # vectors in flight, to cover the latency of additions


def batch_statistics(x: Expr) -> relay.Call:
    """Mean and biased variance per channel of ``x``, (N, C, ...): a tuple of two (C,)."""
    return call_op(STATISTICS, [x])


def batch_norm_gradient_sums(dy: Expr, x: Expr, mean: Expr) -> relay.Call:
    """Per channel, the sums of dy and of dy * (x - mean): a tuple of two (C,)."""
    return call_op(GRADIENT_SUMS, [dy, x, mean])


@dataclass(frozen=True)
class _Layout:
    batch: int
    channels: int
    area: int
    dtype: str
    lanes: int


def _layout(x: te.Tensor, unit: VectorUnit) -> _Layout:
    batch, channels, *rest = ints(x.shape)
    return _Layout(batch, channels, math.prod(rest), x.dtype, unit.lanes)


# Flat index of an element -> the terms to be summed.
Terms = Callable[[Any], tuple[Any, ...]]


def _channel_sums(ib: Any, p: _Layout, channel: Any, terms: Terms, count: int) -> list[Any]:
    """Emit the sums of ``count`` terms over one channel; returns one-element buffers."""
    acc = [
        [ib.allocate(p.dtype, p.lanes, "acc", scope="global") for _ in range(UNROLL)]
        for _ in range(count)
    ]
    for registers in acc:
        for register in registers:
            with ib.for_range(0, p.lanes, "lane", kind="vectorize") as lane:
                register[lane] = tir.const(0, p.dtype)

    def vector(start: Any, u: int, lanes: int) -> None:
        kind = "vectorize" if lanes > 1 else "serial"
        for number in range(count):
            with ib.for_range(0, lanes, "lane", kind=kind) as lane:
                acc[number][u][lane] += terms(start + lane)[number]

    wide = UNROLL * p.lanes
    with ib.for_range(0, p.batch, "n") as n:
        plane = ib.let("plane", (n * p.channels + channel) * p.area)
        with ib.for_range(0, p.area // wide, "v") as v:
            start = ib.let("start", plane + v * wide)
            for u in range(UNROLL):
                vector(start + u * p.lanes, u, p.lanes)
        done = p.area // wide * wide
        for u in range(-(-(p.area - done) // p.lanes)):
            first = done + u * p.lanes
            vector(plane + first, u, min(p.lanes, p.area - first))
    return [_total(ib, p, registers) for registers in acc]


def _total(ib: Any, p: _Layout, registers: list[Any]) -> Any:
    total = ib.allocate(p.dtype, 1, "total", scope="global")
    total[0] = tir.const(0, p.dtype)
    for register in registers:
        with ib.for_range(0, p.lanes, "lane") as lane:
            total[0] += register[lane]
    return total


def _extern(inputs: Sequence[te.Tensor], p: _Layout, channel_body: Any) -> list[te.Tensor]:
    """Two (C,) results, written by ``channel_body(ib, channel, inputs, outputs)``."""

    def body(ins: Any, outs: Any) -> Any:
        ib = tir.ir_builder.create()
        sources, results = [flat(ib, b) for b in ins], [flat(ib, b) for b in outs]
        with ib.for_range(0, p.channels, "channel", kind="parallel") as channel:
            channel_body(ib, channel, sources, results)
        return ib.get()

    shapes = [(p.channels,), (p.channels,)]
    return te.extern(shapes, list(inputs), body, name="channel_sums", dtype=[p.dtype, p.dtype])


def _statistics(
    attrs: Any, inputs: Sequence[te.Tensor], out_type: TupleType, unit: VectorUnit
) -> list[te.Tensor]:
    p = _layout(inputs[0], unit)
    share = tir.const(1 / (p.batch * p.area), p.dtype)

    def channel_body(ib: Any, channel: Any, sources: Any, results: Any) -> None:
        (x,), (mean, variance) = sources, results
        (total,) = _channel_sums(ib, p, channel, lambda i: (x[i],), 1)
        center = ib.allocate(p.dtype, 1, "center", scope="global")
        center[0] = total[0] * share
        mean[channel] = center[0]

        def squares(i: Any) -> tuple[Any]:
            off = x[i] - center[0]
            return (off * off,)

        # Around the mean in a second pass: sum(x^2) - n mean^2 would cancel.
        (total,) = _channel_sums(ib, p, channel, squares, 1)
        variance[channel] = total[0] * share

    return _extern(inputs, p, channel_body)


def _gradient_sums(
    attrs: Any, inputs: Sequence[te.Tensor], out_type: TupleType, unit: VectorUnit
) -> list[te.Tensor]:
    p = _layout(inputs[0], unit)

    def channel_body(ib: Any, channel: Any, sources: Any, results: Any) -> None:
        dy, x, mean = sources
        center = ib.allocate(p.dtype, 1, "center", scope="global")
        center[0] = mean[channel]
        totals = _channel_sums(ib, p, channel, lambda i: (dy[i], dy[i] * (x[i] - center[0])), 2)
        for result, total in zip(results, totals, strict=True):
            result[channel] = total[0]

    return _extern(inputs, p, channel_body)


def _two_channels(attrs: Any, types: Sequence[TensorType]) -> TupleType:
    channel = TensorType([types[0].shape[1]], types[0].dtype)
    return TupleType([channel, channel])


register_op(STATISTICS, ["x"], _two_channels, _statistics)
register_op(GRADIENT_SUMS, ["dy", "x", "mean"], _two_channels, _gradient_sums)
