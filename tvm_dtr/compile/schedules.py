"""Convolutions for training on a CPU that hold little workspace.

TVM's own NCHW convolutions copy the whole input two or three times (dilate, pad, pack by blocks of
channels) before they start. What a kernel holds counts against the memory budget, and for the
batches of training these copies are as large as the tensors that the budget is for. Here one copy
does all three, and each thread makes it for one image at a time: it stays in cache too. The terms
of each sum are added in the order of TVM's schedule, so results are bitwise the same.

The strategies are registered for the target key "tvm_dtr", which only our targets carry: other
users of TVM in the process keep TVM's schedules.
"""

from __future__ import annotations

from typing import Any

import tvm
from tvm import te, tir
from tvm.relay.op import OpStrategy
from tvm.relay.op.strategy import generic
from tvm.target.x86 import get_simd_32bit_lanes
from tvm.topi.nn.utils import get_pad_tuple
from tvm.topi.utils import get_const_int, get_const_tuple, traverse_inline

TARGET_KEY = "tvm_dtr"
_MIN_IMAGES = 8  # with fewer images there is too little to share out among threads
_UNPACKED = "tvm_dtr_unpacked"


def with_key(target: tvm.target.Target) -> tvm.target.Target:
    """The target under which compilation finds the schedules of this module."""
    return _with_keys(target, [TARGET_KEY, *_other_keys(target)])


def _other_keys(target: tvm.target.Target) -> list[str]:
    return [str(key) for key in target.keys if key != TARGET_KEY]


def _with_keys(target: tvm.target.Target, keys: list[str]) -> tvm.target.Target:
    return tvm.target.Target({**dict(target.export()), "keys": keys})


def _conv2d_strategy(attrs: Any, inputs: Any, out_type: Any, target: tvm.target.Target) -> Any:
    if attrs.groups != 1 or attrs.data_layout != "NCHW" or not _fits(inputs[0], attrs):
        return _tvm_strategy(generic.conv2d_strategy, attrs, inputs, out_type, target)

    def compute(attrs: Any, inputs: Any, out_type: Any) -> list[te.Tensor]:
        data, kernel = inputs
        dilation, strides = get_const_tuple(attrs.dilation), get_const_tuple(attrs.strides)
        kernel_h, kernel_w = get_const_tuple(kernel.shape)[2:]
        reach = ((kernel_h - 1) * dilation[0] + 1, (kernel_w - 1) * dilation[1] + 1)
        pads = get_pad_tuple(get_const_tuple(attrs.padding), reach)
        return [_convolution(data, kernel, (1, 1), pads, strides, dilation, flipped=False)]

    return _strategy(compute, "conv2d")


def _conv2d_transpose_strategy(
    attrs: Any, inputs: Any, out_type: Any, target: tvm.target.Target
) -> Any:
    if attrs.groups != 1 or attrs.data_layout != "NCHW" or not _fits(inputs[0], attrs):
        return _tvm_strategy(generic.conv2d_transpose_strategy, attrs, inputs, out_type, target)

    def compute(attrs: Any, inputs: Any, out_type: Any) -> list[te.Tensor]:
        data, kernel = inputs
        extents = get_const_tuple(kernel.shape)[2:]
        top, left, bottom, right = get_pad_tuple(get_const_tuple(attrs.padding), extents)
        more_h, more_w = get_const_tuple(attrs.output_padding)
        last_h, last_w = extents[0] - 1, extents[1] - 1
        pads = (last_h - top, last_w - left, last_h - bottom + more_h, last_w - right + more_w)
        spread = get_const_tuple(attrs.strides)
        return [_convolution(data, kernel, spread, pads, (1, 1), (1, 1), flipped=True)]

    return _strategy(compute, "conv2d_transpose")


def _fits(data: te.Tensor, attrs: Any) -> bool:
    """Whether the schedule here gains anything: floating point, many images."""
    is_float = str(data.dtype).startswith("float") and attrs.out_dtype in ("", "same", data.dtype)
    return is_float and get_const_int(data.shape[0]) >= _MIN_IMAGES


def _tvm_strategy(
    strategy: Any, attrs: Any, inputs: Any, out_type: Any, target: tvm.target.Target
) -> Any:
    plain = _with_keys(target, _other_keys(target))
    with plain:
        return strategy(attrs, inputs, out_type, plain)


def _strategy(compute: Any, name: str) -> OpStrategy:
    def schedule(attrs: Any, outs: Any, target: tvm.target.Target) -> te.Schedule:
        with target:
            return _schedule(outs)

    strategy = OpStrategy()
    strategy.add_implementation(compute, schedule, f"{name}.{TARGET_KEY}")
    return strategy


def _largest_divisor(number: int, limit: int) -> int:
    return max(d for d in range(1, min(number, limit) + 1) if number % d == 0)


def _lanes(dtype: str) -> int:
    return get_simd_32bit_lanes() * 32 // tvm.DataType(dtype).bits


def _convolution(
    data: te.Tensor,
    kernel: te.Tensor,
    spread: tuple[int, int],
    pads: tuple[int, int, int, int],
    strides: tuple[int, int],
    dilation: tuple[int, int],
    flipped: bool,
) -> te.Tensor:
    """(n, oc, oh, ow) = the convolution of data (n, ic, h, w), with spread - 1 zeros between its
    elements and pads (top, left, bottom, right) around them, and kernel: (oc, ic, kh, kw), or
    (ic, oc, kh, kw) turned by 180 degrees if `flipped`.
    """
    channels_in = get_const_int(data.shape[1])
    channels_out = get_const_int(kernel.shape[1 if flipped else 0])
    out_block = _largest_divisor(channels_out, _lanes(data.dtype))
    in_block = _largest_divisor(channels_in, out_block)
    packed = _pack_data(data, spread, pads, in_block)
    weights = _pack_kernel(kernel, in_block, out_block, flipped)
    blocked = _blocked(packed, weights, channels_in, strides, dilation)
    images, _, height, width, _ = get_const_tuple(blocked.shape)
    return te.compute(
        (images, channels_out, height, width),
        lambda n, c, h, w: blocked[n, c // out_block, h, w, c % out_block],
        name=_UNPACKED,
        tag="injective",
    )


def _pack_data(
    data: te.Tensor, spread: tuple[int, int], pads: tuple[int, int, int, int], block: int
) -> te.Tensor:
    """(n, ic / block, h, w, block), zeros included."""
    images, channels, height, width = get_const_tuple(data.shape)
    top, left, bottom, right = pads
    spread_h, spread_w = spread
    inner_h, inner_w = (height - 1) * spread_h + 1, (width - 1) * spread_w + 1
    padded_h, padded_w = inner_h + top + bottom, inner_w + left + right

    def element(n: Any, chunk: Any, h: Any, w: Any, c: Any) -> Any:
        y, x = h - top, w - left
        inside = [y >= 0] * (top > 0) + [y < inner_h] * (bottom > 0)
        inside += [x >= 0] * (left > 0) + [x < inner_w] * (right > 0)
        inside += [y % spread_h == 0] * (spread_h > 1) + [x % spread_w == 0] * (spread_w > 1)
        value = data[n, chunk * block + c, y // spread_h, x // spread_w]
        zero = tir.const(0, data.dtype)
        return tir.if_then_else(tir.all(*inside), value, zero) if inside else value

    shape = (images, channels // block, padded_h, padded_w, block)
    return te.compute(shape, element, name="packed_data")


def _pack_kernel(kernel: te.Tensor, in_block: int, out_block: int, flipped: bool) -> te.Tensor:
    """(oc / out_block, ic / in_block, kh, kw, in_block, out_block)."""
    first, second, height, width = get_const_tuple(kernel.shape)
    channels_in, channels_out = (first, second) if flipped else (second, first)

    def element(oc: Any, ic: Any, h: Any, w: Any, i: Any, o: Any) -> Any:
        to, of = oc * out_block + o, ic * in_block + i
        return kernel[of, to, height - 1 - h, width - 1 - w] if flipped else kernel[to, of, h, w]

    chunks = (channels_out // out_block, channels_in // in_block)
    return te.compute((*chunks, height, width, in_block, out_block), element, name="packed_kernel")


def _blocked(
    data: te.Tensor,
    kernel: te.Tensor,
    channels_in: int,
    strides: tuple[int, int],
    dilation: tuple[int, int],
) -> te.Tensor:
    images, _, height, width, in_block = get_const_tuple(data.shape)
    out_chunks, _, kernel_h, kernel_w, _, out_block = get_const_tuple(kernel.shape)
    out_h = (height - (kernel_h - 1) * dilation[0] - 1) // strides[0] + 1
    out_w = (width - (kernel_w - 1) * dilation[1] - 1) // strides[1] + 1
    ic = te.reduce_axis((0, channels_in), "ic")
    kh, kw = te.reduce_axis((0, kernel_h), "kh"), te.reduce_axis((0, kernel_w), "kw")

    def element(n: Any, oc: Any, h: Any, w: Any, o: Any) -> Any:
        y, x = h * strides[0] + kh * dilation[0], w * strides[1] + kw * dilation[1]
        pixel = data[n, ic // in_block, y, x, ic % in_block]
        weight = kernel[oc, ic // in_block, kh, kw, ic % in_block, o]
        return te.sum(pixel * weight, axis=[ic, kh, kw])

    shape = (images, out_chunks, out_h, out_w, out_block)
    return te.compute(shape, element, name="convolution")


def _schedule(outs: Any) -> te.Schedule:
    outs = [outs] if isinstance(outs, te.Tensor) else list(outs)
    schedule = te.create_schedule([out.op for out in outs])
    unpacked: list[te.Tensor] = []

    def find(op: te.Operation) -> None:
        if op.name == _UNPACKED:
            unpacked.append(op.output(0))

    traverse_inline(schedule, outs[0].op, find)
    result, out = unpacked[0], outs[0]
    if get_const_tuple(out.shape) != get_const_tuple(result.shape):
        # What follows reads elements of the convolution in another order, or more than once.
        schedule[result].compute_root()
        schedule[out].parallel(schedule[out].op.axis[0])
        out = result
    _schedule_convolution(schedule, result.op.input_tensors[0], out)
    return schedule


def _schedule_convolution(schedule: te.Schedule, conv: te.Tensor, out: te.Tensor) -> None:
    """Per image: pack it, then per block of output channels, rows and columns sum in registers."""
    data, kernel = conv.op.input_tensors
    _, _, height, width, out_block = get_const_tuple(conv.shape)
    # As many sums at a time as hide the latency of an addition and leave registers for operands,
    # and so few that their tile is on the stack: the inner loops ask for no workspace.
    sums = 15 if out_block * tvm.DataType(conv.dtype).bits == 512 else 12
    columns = _largest_divisor(width, sums)
    rows = _largest_divisor(height, max(1, sums // columns))
    tile = schedule.cache_write(conv, "global")
    schedule[conv].compute_inline()
    image, block = _schedule_output(schedule, out, out_block, rows, columns)
    schedule[tile].compute_at(schedule[out], block)
    _schedule_tile(schedule, tile, get_const_int(data.shape[4]))
    schedule[data].compute_at(schedule[out], image)
    oc, ic, kh, kw, ic_inner, lane = schedule[kernel].op.axis
    schedule[kernel].reorder(oc, kh, ic, kw, ic_inner, lane)
    schedule[kernel].vectorize(lane)
    schedule[kernel].parallel(schedule[kernel].fuse(oc, kh))


def _schedule_output(
    schedule: te.Schedule, out: te.Tensor, block: int, rows: int, columns: int
) -> tuple[Any, Any]:
    """Returns the axes over images and over tiles."""
    image, channel, row, column = schedule[out].op.axis
    channel_outer, channel_inner = schedule[out].split(channel, block)
    row_outer, row_inner = schedule[out].split(row, rows)
    column_outer, column_inner = schedule[out].split(column, columns)
    inner = (row_inner, column_inner, channel_inner)
    schedule[out].reorder(image, channel_outer, row_outer, column_outer, *inner)
    schedule[out].vectorize(channel_inner)
    schedule[out].parallel(image)
    return image, column_outer


def _schedule_tile(schedule: te.Schedule, tile: te.Tensor, in_block: int) -> None:
    image, channel, row, column, lane = schedule[tile].op.axis
    ic, kh, kw = schedule[tile].op.reduce_axis
    ic_outer, ic_inner = schedule[tile].split(ic, in_block)
    schedule[tile].reorder(image, channel, ic_outer, kh, kw, ic_inner, row, column, lane)
    schedule[tile].vectorize(lane)
    schedule[tile].unroll(row)
    schedule[tile].unroll(column)


generic.conv2d_strategy.register(TARGET_KEY)(_conv2d_strategy)
generic.conv2d_transpose_strategy.register(TARGET_KEY)(_conv2d_transpose_strategy)
