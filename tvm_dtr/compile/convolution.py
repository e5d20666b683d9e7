"""Convolutions for training on a CPU that hold little workspace.

TVM's own NCHW convolutions copy the whole input two or three times (dilate, pad, pack by blocks of
channels) before they start. What a kernel holds counts against the memory budget, and for the
batches of training these copies are as large as the tensors that the budget is for. Here one copy
does all three, and each thread makes it for one image at a time: it stays in cache too. The terms
of each sum are added in the order of TVM's schedule, so results are bitwise the same.

Axes: n image, c channel, h row, w column; a block of channels is the innermost axis of what is
packed, and is what one vector instruction computes.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import tvm
from tvm import te, tir
from tvm.target.x86 import get_simd_32bit_lanes
from tvm.topi.utils import get_const_int, get_const_tuple, traverse_inline

_MIN_IMAGES = 8  # with fewer images there is too little to share out among threads
_UNPACKED = "tvm_dtr_unpacked"


class Geometry(NamedTuple):
    """How a kernel moves over its input.

    The input has spread - 1 zeros between its elements and pads (top, left, bottom, right) around
    them. The kernel is (oc, ic / groups, kh, kw), or (ic, oc / groups, kh, kw) turned by 180
    degrees if `flipped`.
    """

    groups: int
    spread: tuple[int, int]
    pads: tuple[int, int, int, int]
    strides: tuple[int, int]
    dilation: tuple[int, int]
    flipped: bool


def is_supported(data: te.Tensor, geometry: Geometry) -> bool:
    """Whether the schedule here applies and gains anything: floats, no groups, many images."""
    images = get_const_int(data.shape[0])
    return str(data.dtype).startswith("float") and geometry.groups == 1 and images >= _MIN_IMAGES


def _largest_divisor(number: int, limit: int) -> int:
    return max(d for d in range(1, min(number, limit) + 1) if number % d == 0)


def _lanes(dtype: str) -> int:
    return get_simd_32bit_lanes() * 32 // tvm.DataType(dtype).bits


def convolution(data: te.Tensor, kernel: te.Tensor, geometry: Geometry) -> te.Tensor:
    """(n, oc, oh, ow) of data (n, ic, h, w)."""
    blocked = _blocked(data, kernel, geometry)
    images, chunks, height, width, block = get_const_tuple(blocked.shape)
    return te.compute(
        (images, chunks * block, height, width),
        lambda n, c, h, w: blocked[n, c // block, h, w, c % block],
        name=_UNPACKED,
        tag="injective",
    )


def _blocked(data: te.Tensor, kernel: te.Tensor, geometry: Geometry) -> te.Tensor:
    """(n, oc / block, oh, ow, block)"""
    channels_in = get_const_int(data.shape[1])
    channels_out = get_const_int(kernel.shape[1 if geometry.flipped else 0])
    block = _largest_divisor(channels_out, _lanes(data.dtype))
    in_block = _largest_divisor(channels_in, block)
    packed = _pack_data(data, geometry, in_block)
    weights = _pack_kernel(kernel, in_block, block, geometry.flipped)
    kernel_h, kernel_w = get_const_tuple(kernel.shape)[2:]
    ic = te.reduce_axis((0, channels_in), "ic")
    kh, kw = te.reduce_axis((0, kernel_h), "kh"), te.reduce_axis((0, kernel_w), "kw")

    def element(n: Any, oc: Any, h: Any, w: Any, o: Any) -> Any:
        y, x = _window(h, w, kh, kw, geometry)
        pixel = packed[n, ic // in_block, y, x, ic % in_block]
        weight = weights[oc, ic // in_block, kh, kw, ic % in_block, o]
        return te.sum(pixel * weight, axis=[ic, kh, kw])

    shape = (_images(data), channels_out // block, *_out_size(packed, kernel, geometry), block)
    return te.compute(shape, element, name="convolution")


def _images(data: te.Tensor) -> int:
    return get_const_int(data.shape[0])


def _window(h: Any, w: Any, kh: Any, kw: Any, geometry: Geometry) -> tuple[Any, Any]:
    """Where in the packed input the kernel's element (kh, kw) is for the output (h, w)."""
    (stride_h, stride_w), (dilation_h, dilation_w) = geometry.strides, geometry.dilation
    return h * stride_h + kh * dilation_h, w * stride_w + kw * dilation_w


def _out_size(packed: te.Tensor, kernel: te.Tensor, geometry: Geometry) -> tuple[int, int]:
    height, width = get_const_tuple(packed.shape)[2:4]
    kernel_h, kernel_w = get_const_tuple(kernel.shape)[2:]
    (stride_h, stride_w), (dilation_h, dilation_w) = geometry.strides, geometry.dilation
    out_h = (height - (kernel_h - 1) * dilation_h - 1) // stride_h + 1
    return out_h, (width - (kernel_w - 1) * dilation_w - 1) // stride_w + 1


def _pack_data(data: te.Tensor, geometry: Geometry, block: int) -> te.Tensor:
    """(n, ic / block, h, w, block), zeros included."""
    images, channels, height, width = get_const_tuple(data.shape)
    top, left, bottom, right = geometry.pads
    spread_h, spread_w = geometry.spread
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


def schedule_convolution(outs: list[te.Tensor]) -> te.Schedule:
    """Per image: pack it, then per block of output channels, rows and columns sum in registers."""
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
    _schedule_loops(schedule, result.op.input_tensors[0], out)
    return schedule


def _schedule_loops(schedule: te.Schedule, blocked: te.Tensor, out: te.Tensor) -> None:
    data, kernel = blocked.op.input_tensors
    _, _, height, width, block = get_const_tuple(blocked.shape)
    # As many sums at a time as hide the latency of an addition and leave registers for operands,
    # and so few that their tile is on the stack: the inner loops ask for no workspace.
    sums = 15 if block * tvm.DataType(blocked.dtype).bits == 512 else 12
    columns = _largest_divisor(width, sums)
    rows = _largest_divisor(height, max(1, sums // columns))
    tile = schedule.cache_write(blocked, "global")
    schedule[blocked].compute_inline()
    images, at = _schedule_output(schedule, out, (block, rows, columns))
    schedule[tile].compute_at(schedule[out], at)
    schedule[data].compute_at(schedule[out], images)
    _schedule_kernel(schedule, kernel)
    _schedule_tile(schedule, tile, get_const_int(data.shape[4]))


def _schedule_kernel(schedule: te.Schedule, kernel: te.Tensor) -> None:
    oc, ic, kh, kw, ic_inner, lane = schedule[kernel].op.axis
    schedule[kernel].reorder(oc, kh, ic, kw, ic_inner, lane)
    schedule[kernel].vectorize(lane)
    schedule[kernel].parallel(schedule[kernel].fuse(oc, kh))


def _schedule_output(
    schedule: te.Schedule, out: te.Tensor, tile: tuple[int, int, int]
) -> tuple[Any, Any]:
    """Returns the axes over images, each of which is packed once, and over tiles."""
    block, rows, columns = tile
    image, channel, row, column = schedule[out].op.axis
    channel_outer, channel_inner = schedule[out].split(channel, block)
    row_outer, row_inner = schedule[out].split(row, rows)
    column_outer, column_inner = schedule[out].split(column, columns)
    inner = (channel_inner, row_inner, column_inner)
    schedule[out].reorder(image, channel_outer, row_outer, column_outer, *inner)
    schedule[out].vectorize(column_inner)
    schedule[out].parallel(image)
    return image, column_outer


def _schedule_tile(schedule: te.Schedule, tile: te.Tensor, in_block: int) -> None:
    n, chunk, row, column, lane = schedule[tile].op.axis
    channels, kh, kw = schedule[tile].op.reduce_axis
    ic_outer, ic_inner = schedule[tile].split(channels, in_block)
    schedule[tile].reorder(n, chunk, ic_outer, kh, kw, ic_inner, row, column, lane)
    schedule[tile].vectorize(lane)
    schedule[tile].unroll(row)
    schedule[tile].unroll(column)
