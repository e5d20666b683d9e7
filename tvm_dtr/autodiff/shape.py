"""Gradients of ops that move data: reshape, transpose, concatenate, slice, pad, ..."""

from __future__ import annotations

from tvm import relay

from ..errors import ModelError
from ..relay_graph import Expr, calls_op, infer_local, shape_of, source_of
from .composite import composite
from .conv import input_gradient_of_channels
from .rules import Adjoint, gradient
from .scalars import sum_to_shape, zeros


@gradient("reshape", "squeeze", "expand_dims", "nn.batch_flatten")
def _reshape(adjoint: Adjoint) -> list[Expr | None]:
    return [relay.reshape(adjoint.output, shape_of(adjoint.call.args[0]))]


@gradient("transpose")
def _transpose(adjoint: Adjoint) -> list[Expr | None]:
    call = adjoint.call
    rank = len(shape_of(call))
    axes = call.attrs.axes
    order = [int(a) % rank for a in axes] if axes is not None else list(range(rank))[::-1]
    inverse = [order.index(i) for i in range(rank)]
    return [_turned_product(adjoint.output, inverse) or relay.transpose(adjoint.output, inverse)]


def _turned_product(dy: Expr, axes: list[int]) -> Expr | None:
    """The transpose of a product of matrices by exchanging its factors, so that the gradient of a
    weight which the model transposes is written once; None if ``dy`` is no product."""
    if not calls_op(dy, "nn.dense") or axes != [1, 0]:
        return None
    return relay.nn.dense(dy.args[1], dy.args[0])


@gradient("broadcast_to")
def _broadcast_to(adjoint: Adjoint) -> list[Expr | None]:
    call = adjoint.call
    return [sum_to_shape(adjoint.output, shape_of(call), shape_of(call.args[0]))]


@gradient("concatenate")
def _concatenate(adjoint: Adjoint) -> list[Expr | None]:
    call = adjoint.call
    fields = [tuple(int(d) for d in t.shape) for t in call.args[0].checked_type.fields]
    rank = len(fields[0])
    axis = int(call.attrs.axis) % rank
    parts, start = [], 0
    for field in fields:
        stop = start + field[axis]
        part = input_gradient_of_channels(adjoint.output, start, stop) if axis == 1 else None
        if part is None:
            begin, end = [0] * rank, list(shape_of(call))
            begin[axis], end[axis] = start, stop
            part = relay.strided_slice(adjoint.output, begin, end)
        parts.append(part)
        start = stop
    return [relay.Tuple(parts)]


def pieces(x: Expr, sizes: list[int], axis: int) -> list[relay.TupleGetItem]:
    """Typed ``x`` cut along ``axis`` into parts of these sizes.

    Each part is a slice that lives and dies alone, but the gradient is one concatenation rather
    than a sum of padded parts.
    """
    shape = shape_of(x)

    def body(x: Expr) -> Expr:
        fields, start = [], 0
        for size in sizes:
            begin, end = [0] * len(shape), list(shape)
            begin[axis], end[axis] = start, start + size
            fields.append(relay.strided_slice(x, begin, end))
            start += size
        return relay.Tuple(fields)

    call = infer_local(composite("pieces", [x], body, axis=axis))
    return [infer_local(relay.TupleGetItem(call, i)) for i in range(len(sizes))]


@gradient("pieces")
def _pieces(adjoint: Adjoint) -> list[Expr | None]:
    return _joined(adjoint, int(adjoint.call.op.attrs["axis"]))


@gradient("split")
def _split(adjoint: Adjoint) -> list[Expr | None]:
    call = adjoint.call
    return _joined(adjoint, int(call.attrs.axis) % len(shape_of(call.args[0])))


def _joined(adjoint: Adjoint, axis: int) -> list[Expr | None]:
    parts = []
    for dy, field in zip(adjoint.outputs, adjoint.call.checked_type.fields, strict=True):
        shape = tuple(int(d) for d in field.shape)
        parts.append(zeros(shape, field.dtype) if dy is None else dy)
    return [relay.concatenate(parts, axis=axis)]


def slice_bounds(call: relay.Call, shape: tuple[int, ...]) -> list[tuple[int, int, int]]:
    """Per axis (first index, last index taken, step) of a strided_slice with mode "end"."""
    rank = len(shape)
    begin = [int(b) for b in call.attrs.begin]
    strides = [int(s) for s in call.attrs.strides] if call.attrs.strides is not None else []
    axes = [int(a) for a in call.attrs.axes] if call.attrs.axes is not None else range(rank)
    bounds = [(0, n - 1, 1) for n in shape]
    counts = shape_of(call)
    for position, axis in enumerate(axes):
        if position >= len(begin):
            break
        n = shape[axis]
        step = 1
        if strides:
            step = strides[position] if len(strides) > 1 else strides[0]
        first = begin[position] + n if begin[position] < 0 else begin[position]
        first = min(max(first, 0), n - 1)
        bounds[axis] = (first, first + (counts[axis] - 1) * step, step)
    return bounds


@gradient("strided_slice")
def _strided_slice(adjoint: Adjoint) -> list[Expr | None]:
    call, dy = adjoint.call, adjoint.output
    shape = shape_of(call.args[0])
    if call.attrs.slice_mode != "end":
        where = source_of(call) or "strided_slice"
        raise ModelError(f"{where}: no gradient for slices given by sizes")
    spread, before_after = [], []
    for axis, (first, last, step) in enumerate(slice_bounds(call, shape)):
        if step < 0:
            dy = relay.reverse(dy, axis)
            first, last = last, first
        spread.append(abs(step))
        before_after.append((first, shape[axis] - 1 - last))
    if any(s > 1 for s in spread):
        dy = relay.nn.dilate(dy, spread)
    if any(b or a for b, a in before_after):
        dy = relay.nn.pad(dy, before_after)
    return [dy]


@gradient("reverse")
def _reverse(adjoint: Adjoint) -> list[Expr | None]:
    return [relay.reverse(adjoint.output, int(adjoint.call.attrs.axis))]


@gradient("nn.pad")
def _pad(adjoint: Adjoint) -> list[Expr | None]:
    call = adjoint.call
    if call.attrs.pad_mode != "constant":
        where = source_of(call) or "nn.pad"
        raise ModelError(f"{where}: no gradient for pad mode '{call.attrs.pad_mode}'")
    shape = shape_of(call.args[0])
    widths = [(int(a), int(b)) for a, b in call.attrs.pad_width]
    dy = adjoint.output
    # Negative widths crop in the forward op, so they pad here, and the other way round.
    grow = [(max(-a, 0), max(-b, 0)) for a, b in widths]
    if any(a or b for a, b in grow):
        dy = relay.nn.pad(dy, grow)
    begin = [max(a, 0) for a, _ in widths]
    dy = relay.strided_slice(dy, begin, [b + n for b, n in zip(begin, shape, strict=True)])
    return [dy, None]


@gradient("nn.dilate")
def _dilate(adjoint: Adjoint) -> list[Expr | None]:
    call = adjoint.call
    strides = [int(s) for s in call.attrs.strides]
    return [relay.strided_slice(adjoint.output, [0] * len(strides), list(shape_of(call)), strides)]


@gradient("stack")
def _stack(adjoint: Adjoint) -> list[Expr | None]:
    call = adjoint.call
    rank = len(shape_of(call))
    axis = int(call.attrs.axis) % rank
    parts = []
    for i, field in enumerate(call.args[0].checked_type.fields):
        begin, end = [0] * rank, list(shape_of(call))
        begin[axis], end[axis] = i, i + 1
        piece = relay.strided_slice(adjoint.output, begin, end)
        parts.append(relay.reshape(piece, tuple(int(d) for d in field.shape)))
    return [relay.Tuple(parts)]


@gradient("tile")
def _tile(adjoint: Adjoint) -> list[Expr | None]:
    call = adjoint.call
    shape = shape_of(call.args[0])
    out = shape_of(call)
    lead = (1,) * (len(out) - len(shape)) + shape
    split: list[int] = []
    for n, total in zip(lead, out, strict=True):
        split += [total // n, n]
    summed = relay.sum(relay.reshape(adjoint.output, split), axis=list(range(0, len(split), 2)))
    return [relay.reshape(summed, shape)]


@gradient("repeat")
def _repeat(adjoint: Adjoint) -> list[Expr | None]:
    call = adjoint.call
    shape = shape_of(call.args[0])
    axis = int(call.attrs.axis) % len(shape)
    split = [*shape[: axis + 1], int(call.attrs.repeats), *shape[axis + 1 :]]
    return [relay.sum(relay.reshape(adjoint.output, split), axis=[axis + 1])]


@gradient("nn.bias_add")
def _bias_add(adjoint: Adjoint) -> list[Expr | None]:
    call, dy = adjoint.call, adjoint.output
    rank = len(shape_of(call))
    axis = int(call.attrs.axis) % rank
    others = [i for i in range(rank) if i != axis]
    return [dy, relay.sum(dy, axis=others) if adjoint.needs[1] else None]
