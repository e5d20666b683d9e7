"""Gradient of a 2-d convolution with respect to its filter.

Written as a convolution of TVM's, it would need transposed copies of both operands, each as large
as an activation. This kernel reads the operands as they are. A task computes a tile of filters x
input channels for all taps, summing over the batch in order, so the result does not depend on the
number of threads:

    dw[k, c, i, j] = sum over n, y, x of dy[n, k, y, x] * x[n, c, y*s + i*d - p, x*s + j*d - p]

The innermost axis runs over the columns of dy in vectors; each register of the tile holds one
vector of partial sums. A block of rows of the tile's channels is first copied to scratch memory
with its padding, the columns dealt out by their remainder modulo the stride so that vectors of
strided columns are contiguous.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tvm import relay, te, tir
from tvm.ir import TensorType

from ..relay_graph import Expr
from .cpu import VectorUnit
from .registration import call_op, flat, ints, register_op

NAME = "dtr.conv2d_weight_gradient"
SCRATCH_BYTES = 32768  # of one thread: what stays in a first-level cache


def conv2d_weight_gradient(
    dy: Expr,
    x: Expr,
    kernel: Sequence[int],
    stride: Sequence[int],
    before: Sequence[int],
    dilation: Sequence[int],
    groups: int,
) -> relay.Call:
    """dw, (filters, channels / groups, *kernel), of y = conv2d(x, w), NCHW.

    ``before`` is the padding above and left; the padding on the other sides follows from the
    shapes.
    """
    return call_op(
        NAME,
        [dy, x],
        kernel=list(kernel),
        stride=list(stride),
        before=list(before),
        dilation=list(dilation),
        groups=groups,
    )


def _largest_divisor(n: int, limit: int) -> int:
    return max(d for d in range(1, min(n, limit) + 1) if n % d == 0)


@dataclass(frozen=True)
class _Plan:
    """Sizes of the loop nest."""

    batch: int
    channels: int
    filters: int
    groups: int
    size: tuple[int, ...]
    out: tuple[int, ...]
    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    before: tuple[int, ...]
    dilation: tuple[int, ...]
    dtype: str
    unit: VectorUnit

    @property
    def per_in(self) -> int:
        return self.channels // self.groups

    @property
    def per_out(self) -> int:
        return self.filters // self.groups

    @property
    def tile_c(self) -> int:
        return _largest_divisor(self.per_in, 4)

    @property
    def tile_k(self) -> int:
        return _largest_divisor(self.per_out, self.unit.accumulators // 4)

    @property
    def taps(self) -> int:
        return self.kernel[0] * self.kernel[1]

    @property
    def lanes(self) -> int:
        lanes = self.unit.lanes
        while lanes > 4 and self.out[1] <= lanes // 2:
            lanes //= 2
        return lanes

    @property
    def vectors(self) -> int:
        """Vectors per row of dy."""
        return -(-self.out[1] // self.lanes)

    @property
    def phase_width(self) -> int:
        """Columns of one remainder modulo the stride in a row of scratch."""
        reach = self.dilation[1] * (self.kernel[1] - 1)
        return self.vectors * self.lanes + reach // self.stride[1]

    def scratch_rows(self, rows: int) -> int:
        """Rows of x that ``rows`` rows of dy read."""
        return (rows - 1) * self.stride[0] + self.dilation[0] * (self.kernel[0] - 1) + 1

    @property
    def row_width(self) -> int:
        return self.stride[1] * self.phase_width

    @property
    def block(self) -> int:
        """Rows of dy per block."""
        element = 8 if self.dtype == "float64" else 4
        for rows in range(self.out[0], 1, -1):
            size = self.tile_c * self.scratch_rows(rows) * self.row_width * element
            if self.out[0] % rows == 0 and size <= SCRATCH_BYTES:
                return rows
        return 1


class _Kernel:
    """Builds the loops of one task."""

    def __init__(self, plan: _Plan, ib: Any, dy: Any, x: Any, dw: Any) -> None:
        self.p, self.ib, self.dy, self.x, self.dw = plan, ib, dy, x, dw

    def task(self, number: Any) -> None:
        p, ib = self.p, self.ib
        tiles_k, tiles_c = p.per_out // p.tile_k, p.per_in // p.tile_c
        group = number // (tiles_k * tiles_c)
        self.k0 = group * p.per_out + (number // tiles_c) % tiles_k * p.tile_k
        self.c_in = number % tiles_c * p.tile_c
        self.c0 = group * p.per_in + self.c_in
        tile = p.tile_k * p.tile_c
        rows = p.scratch_rows(p.block)
        self.xs = ib.allocate(p.dtype, p.tile_c * rows * p.row_width, "rows", scope="global")
        self.sums = ib.allocate(p.dtype, p.taps * tile * p.lanes, "sums", scope="global")
        self._clear(self.xs, p.tile_c * rows * p.row_width)
        self._clear(self.sums, p.taps * tile * p.lanes)
        with (
            ib.for_range(0, p.batch, "n") as n,
            ib.for_range(0, p.out[0] // p.block, "block") as block,
        ):
            self._copy_rows(n, block, rows)
            with ib.for_range(0, p.kernel[0], "i") as i, ib.for_range(0, p.kernel[1], "j") as j:
                self._tap(n, block, i, j, rows)
        self._store(tile)

    def _clear(self, buffer: Any, count: int) -> None:
        with self.ib.for_range(0, count, "clear") as i:
            buffer[i] = tir.const(0, self.p.dtype)

    def _copy_rows(self, n: Any, block: Any, rows: int) -> None:
        """Rows of x to scratch; the padding's columns stay zero from the start."""
        p, ib = self.p, self.ib
        height, width = p.size
        zero = tir.const(0, p.dtype)
        with ib.for_range(0, p.tile_c, "c") as c, ib.for_range(0, rows, "r") as r:
            row = block * (p.block * p.stride[0]) + r - p.before[0]
            source = ((n * p.channels + self.c0 + c) * height + row) * width
            target = (c * rows + r) * p.row_width
            inside = tir.all(row >= 0, row < height)
            with ib.if_scope(inside):
                self._copy_columns(source, target, None)
            with ib.else_scope():
                self._copy_columns(source, target, zero)

    def _copy_columns(self, source: Any, target: Any, fill: Any) -> None:
        p, ib = self.p, self.ib
        for phase in range(p.stride[1]):
            # Column q of the phase is column q * stride + phase - before of x.
            first = max(0, -(-(p.before[1] - phase) // p.stride[1]))
            last = (p.size[1] - 1 + p.before[1] - phase) // p.stride[1]
            count = min(last, p.phase_width - 1) - first + 1
            if count < 1:
                continue
            with ib.for_range(0, count, "q") as q:
                column = (q + first) * p.stride[1] + phase - p.before[1]
                value = self.x[source + column] if fill is None else fill
                self.xs[target + phase * p.phase_width + first + q] = value

    def _tap(self, n: Any, block: Any, i: Any, j: Any, rows: int) -> None:
        """One tap of the filter: sums over a block of rows into the tile's registers."""
        p, ib = self.p, self.ib
        pairs = [(k, c) for k in range(p.tile_k) for c in range(p.tile_c)]
        acc = {pair: ib.allocate(p.dtype, p.lanes, "acc", scope="global") for pair in pairs}
        tap = i * p.kernel[1] + j
        offset = tap * len(pairs) * p.lanes
        for number, pair in enumerate(pairs):
            with self._lanes() as lane:
                acc[pair][lane] = self.sums[offset + number * p.lanes + lane]
        shift = j * p.dilation[1]
        column = shift % p.stride[1] * p.phase_width + shift // p.stride[1]
        with ib.for_range(0, p.block, "row") as row:
            x_row = (row * p.stride[0] + i * p.dilation[0]) * p.row_width + column
            y_row = block * p.block + row
            dy_row = ((n * p.filters + self.k0) * p.out[0] + y_row) * p.out[1]
            x_row, dy_row = ib.let("x_row", x_row), ib.let("dy_row", dy_row)
            self._row(acc, rows, x_row, dy_row)
        for number, pair in enumerate(pairs):
            with self._lanes() as lane:
                self.sums[offset + number * p.lanes + lane] = acc[pair][lane]

    def _row(self, acc: Any, rows: int, x_row: Any, dy_row: Any) -> None:
        p, ib = self.p, self.ib
        full = p.out[1] // p.lanes
        if full == 1:
            self._vector(acc, rows, x_row, dy_row, 0, p.lanes)
        elif full:
            with ib.for_range(0, full, "v") as v:
                self._vector(acc, rows, x_row, dy_row, v * p.lanes, p.lanes)
        if p.out[1] % p.lanes:
            self._vector(acc, rows, x_row, dy_row, full * p.lanes, p.out[1] % p.lanes)

    def _vector(self, acc: Any, rows: int, x_row: Any, dy_row: Any, start: Any, count: int) -> None:
        p = self.p
        plane = p.out[0] * p.out[1]
        for (k, c), register in acc.items():
            with self._lanes(count) as lane:
                a = self.dy[dy_row + k * plane + start + lane]
                b = self.xs[c * rows * p.row_width + x_row + start + lane]
                register[lane] += a * b

    @contextlib.contextmanager
    def _lanes(self, count: int | None = None) -> Any:
        count = count or self.p.lanes
        kind = "vectorize" if count > 1 else "serial"
        with self.ib.for_range(0, count, "lane", kind=kind) as lane:
            yield lane

    def _store(self, tile: int) -> None:
        """Sum each register over its lanes."""
        p, ib = self.p, self.ib
        total = ib.allocate(p.dtype, 1, "total", scope="global")
        with ib.for_range(0, p.taps, "tap") as tap, ib.for_range(0, tile, "t") as t:
            total[0] = tir.const(0, p.dtype)
            with ib.for_range(0, p.lanes, "lane") as lane:
                total[0] += self.sums[(tap * tile + t) * p.lanes + lane]
            k, c = self.k0 + t // p.tile_c, self.c_in + t % p.tile_c
            self.dw[(k * p.per_in + c) * p.taps + tap] = total[0]


def _compute(
    attrs: Any, inputs: Sequence[te.Tensor], out_type: TensorType, unit: VectorUnit
) -> list[te.Tensor]:
    dy_tensor, x_tensor = inputs
    batch, channels, *size = ints(x_tensor.shape)
    _, filters, *out = ints(dy_tensor.shape)
    fields = {k: ints(attrs[k]) for k in ("kernel", "stride", "before", "dilation")}
    plan = _Plan(
        batch=batch,
        channels=channels,
        filters=filters,
        groups=int(attrs["groups"]),
        size=tuple(size),
        out=tuple(out),
        dtype=x_tensor.dtype,
        unit=unit,
        **fields,
    )
    tasks = plan.groups * (plan.per_out // plan.tile_k) * (plan.per_in // plan.tile_c)

    def body(ins: Any, outs: Any) -> Any:
        ib = tir.ir_builder.create()
        dy, x, dw = (flat(ib, b) for b in (*ins, *outs))
        with ib.for_range(0, tasks, "task", kind="parallel") as task:
            _Kernel(plan, ib, dy, x, dw).task(task)
        return ib.get()

    return [te.extern(out_type.shape, list(inputs), body, name="weight_gradient", dtype=plan.dtype)]


def _type_of(attrs: Any, types: Sequence[TensorType]) -> TensorType:
    dy, x = types
    channels = int(x.shape[1]) // int(attrs["groups"])
    return TensorType([dy.shape[1], channels, *attrs["kernel"]], x.dtype)


register_op(NAME, ["dy", "x"], _type_of, _compute)
