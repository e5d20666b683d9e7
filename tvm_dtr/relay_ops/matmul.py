"""Matrix products, of stacks too, with either operand transposed or not.

TVM's kernels want the second operand transposed, so gradients would transpose activations, and
those for stacks are slow without tuning. Here a task computes a block of rows times a block of
columns. It first packs its part of the second operand into panels as wide as a register tile
(Goto and van de Geijn, 2008), then goes over the panels with one tile of rows after the other:

    c[n, i, j] = sum over k of a[n, i, k] * b[n, k, j]

Sums run over blocks of k in order, each block in order: they do not depend on how the result is
dealt out to tasks, nor on the number of threads.
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

NAME = "dtr.matmul"
MOST_DEPTH = 512  # of a block of k
PACKED_ELEMENTS = 65536  # of one task's panels: stays in a second-level cache
WANTED_TASKS = 16
LEAST_ROWS = 64  # of a task: packing is to be a small part of its work


def matmul(a: Expr, b: Expr, transpose_a: bool = False, transpose_b: bool = False) -> relay.Call:
    """The product of (m, k) and (k, n), or of stacks (batch, m, k) and (batch or 1, k, n).

    Transposed, an operand comes with its last two axes exchanged.
    """
    return call_op(NAME, [a, b], transpose_a=int(transpose_a), transpose_b=int(transpose_b))


def _even(count: int, most: int) -> int:
    """The size of equal parts of at most ``most``, as few as can be."""
    return -(-count // -(-count // most))


@dataclass(frozen=True)
class _Plan:
    """Sizes of the loop nest. A panel is ``width`` columns, a tile ``tile`` rows."""

    batch: int
    batch_a: int
    batch_b: int
    rows: int
    depth: int
    columns: int
    transpose_a: bool
    transpose_b: bool
    dtype: str
    unit: VectorUnit

    @property
    def lanes(self) -> int:
        lanes = self.unit.lanes
        while lanes > 4 and self.columns <= lanes // 2:
            lanes //= 2
        return lanes

    @property
    def vectors(self) -> int:
        return 2 if self.columns > self.lanes else 1

    @property
    def width(self) -> int:
        return self.lanes * self.vectors

    @property
    def panels(self) -> int:
        return -(-self.columns // self.width)

    @property
    def tile(self) -> int:
        return _even(self.rows, min(self.unit.accumulators // self.vectors, self.rows))

    @property
    def tiles(self) -> int:
        return -(-self.rows // self.tile)

    @property
    def block_depth(self) -> int:
        return _even(self.depth, MOST_DEPTH)

    @property
    def depths(self) -> int:
        return -(-self.depth // self.block_depth)

    @property
    def task_panels(self) -> int:
        """Panels of one task: what a cache holds, fewer for the sake of parallel tasks."""
        fit = max(1, PACKED_ELEMENTS // (self.block_depth * self.width))
        wanted = max(1, self.batch * self.panels // WANTED_TASKS)
        return _even(self.panels, max(min(fit, wanted, self.panels), min(2, self.panels)))

    @property
    def column_blocks(self) -> int:
        return -(-self.panels // self.task_panels)

    @property
    def task_tiles(self) -> int:
        """Tiles of one task: all, or fewer to have enough tasks."""
        parts = max(1, -(-WANTED_TASKS // (self.batch * self.column_blocks)))
        least = -(-LEAST_ROWS // self.tile)
        return _even(self.tiles, max(min(least, self.tiles), self.tiles // parts, 1))

    @property
    def row_blocks(self) -> int:
        return -(-self.tiles // self.task_tiles)

    @property
    def tasks(self) -> int:
        return self.batch * self.column_blocks * self.row_blocks


class _Kernel:
    """Builds the loops of one task."""

    def __init__(self, plan: _Plan, ib: Any, a: Any, b: Any, c: Any) -> None:
        self.p, self.ib, self.a, self.b, self.c = plan, ib, a, b, c

    def task(self, number: Any) -> None:
        p, ib = self.p, self.ib
        image = number // (p.column_blocks * p.row_blocks)
        self.at_a = ib.let("at_a", image * (p.rows * p.depth) if p.batch_a > 1 else tir.const(0))
        self.at_b = ib.let("at_b", image * (p.depth * p.columns) if p.batch_b > 1 else tir.const(0))
        self.at_c = ib.let("at_c", image * (p.rows * p.columns))
        first_panel = number // p.row_blocks % p.column_blocks * p.task_panels
        first_tile = number % p.row_blocks * p.task_tiles
        size = p.block_depth * p.width
        self.packed = ib.allocate(p.dtype, p.task_panels * size, "panels", scope="global")
        self.sums = ib.allocate(p.dtype, p.tile * p.width, "sums", scope="global")
        if p.transpose_a:
            self.rows = ib.allocate(p.dtype, p.block_depth * p.tile, "rows", scope="global")
        panels = self._extent(p.panels - first_panel, p.task_panels, p.panels)
        tiles = self._extent(p.tiles - first_tile, p.task_tiles, p.tiles)
        with ib.for_range(0, p.depths, "block") as block:
            k0 = block * p.block_depth
            count = self._extent(p.depth - k0, p.block_depth, p.depth)
            with ib.for_range(0, panels, "panel") as panel:
                self._pack(panel, first_panel + panel, k0, count)
            with ib.for_range(0, tiles, "tile") as tile:
                i0 = (first_tile + tile) * p.tile
                if p.transpose_a:
                    self._pack_rows(i0, k0, count)
                with ib.for_range(0, panels, "panel") as panel:
                    self._multiply(i0, panel, k0, count)
                    self._store(block, i0, (first_panel + panel) * p.width)

    @staticmethod
    def _extent(left: Any, size: int, whole: int) -> Any:
        """How many of ``size`` there are where ``left`` are left."""
        return size if whole % size == 0 else tir.min(left, size)

    def _pack(self, slot: Any, panel: Any, k0: Any, count: Any) -> None:
        """Columns of b as a panel; those past the end are zeros."""
        p, ib = self.p, self.ib
        base, j0, rest = slot * (p.block_depth * p.width), panel * p.width, p.columns % p.width

        def copy(columns: int) -> None:
            if p.transpose_b:
                with ib.for_range(0, columns, "j") as j, ib.for_range(0, count, "k") as k:
                    source = self.at_b + (j0 + j) * p.depth + k0 + k
                    self.packed[base + k * p.width + j] = self.b[source]
                return
            kind = "vectorize" if columns == p.width else "serial"
            with (
                ib.for_range(0, count, "k") as k,
                ib.for_range(0, columns, "j", kind=kind) as j,
            ):
                source = self.at_b + (k0 + k) * p.columns + j0 + j
                self.packed[base + k * p.width + j] = self.b[source]

        if rest == 0:
            copy(p.width)
            return
        with ib.if_scope(j0 + p.width <= p.columns):
            copy(p.width)
        with ib.else_scope():
            with ib.for_range(0, count, "k") as k, ib.for_range(0, p.width - rest, "j") as j:
                self.packed[base + k * p.width + rest + j] = tir.const(0, p.dtype)
            copy(rest)

    def _pack_rows(self, i0: Any, k0: Any, count: Any) -> None:
        """A tile of rows of a transposed operand; rows past the end repeat the last one."""
        p, ib = self.p, self.ib
        is_whole = p.rows % p.tile == 0
        kind = "vectorize" if is_whole and p.tile > 1 else "serial"
        with ib.for_range(0, count, "k") as k, ib.for_range(0, p.tile, "i", kind=kind) as i:
            row = i0 + i if is_whole else tir.min(i0 + i, p.rows - 1)
            self.rows[k * p.tile + i] = self.a[self.at_a + (k0 + k) * p.rows + row]

    def _multiply(self, i0: Any, slot: Any, k0: Any, count: Any) -> None:
        """A tile of rows times a panel, in registers."""
        p, ib = self.p, self.ib
        pairs = [(i, v) for i in range(p.tile) for v in range(p.vectors)]
        acc = {pair: ib.allocate(p.dtype, p.lanes, "acc", scope="global") for pair in pairs}
        is_whole = p.rows % p.tile == 0
        starts = []
        for i in range(p.tile if not p.transpose_a else 0):
            row = i0 + i if is_whole else tir.min(i0 + i, p.rows - 1)
            starts.append(ib.let("row", self.at_a + row * p.depth + k0))
        base = ib.let("base", slot * (p.block_depth * p.width))
        for pair in pairs:
            with self._lanes() as lane:
                acc[pair][lane] = tir.const(0, p.dtype)
        with ib.for_range(0, count, "k") as k:
            for i, v in pairs:
                left = self.rows[k * p.tile + i] if p.transpose_a else self.a[starts[i] + k]
                with self._lanes() as lane:
                    acc[i, v][lane] += left * self.packed[base + k * p.width + v * p.lanes + lane]
        for i, v in pairs:
            with self._lanes() as lane:
                self.sums[i * p.width + v * p.lanes + lane] = acc[i, v][lane]

    def _store(self, block: Any, i0: Any, j0: Any) -> None:
        p, ib = self.p, self.ib
        rest = p.columns % p.width
        with ib.for_range(0, p.tile, "i") as i, self._guard(i0 + i < p.rows, p.rows % p.tile != 0):
            if rest == 0:
                self._store_row(block, i0, j0, i, p.width)
                return
            with ib.if_scope(j0 + p.width <= p.columns):
                self._store_row(block, i0, j0, i, p.width)
            with ib.else_scope():
                self._store_row(block, i0, j0, i, rest)

    def _store_row(self, block: Any, i0: Any, j0: Any, i: Any, count: int) -> None:
        p, ib = self.p, self.ib
        kind = "vectorize" if count == p.width else "serial"

        def write(adds: bool) -> None:
            with ib.for_range(0, count, "j", kind=kind) as j:
                target = self.at_c + (i0 + i) * p.columns + j0 + j
                value = self.sums[i * p.width + j]
                self.c[target] = self.c[target] + value if adds else value

        if p.depths == 1:
            write(False)
            return
        with ib.if_scope(block == 0):
            write(False)
        with ib.else_scope():
            write(True)

    def _guard(self, condition: Any, needed: bool) -> Any:
        return self.ib.if_scope(condition) if needed else contextlib.nullcontext()

    @contextlib.contextmanager
    def _lanes(self) -> Any:
        with self.ib.for_range(0, self.p.lanes, "lane", kind="vectorize") as lane:
            yield lane


def _shapes(attrs: Any, a: Any, b: Any) -> tuple[int, int, int, int, int]:
    """Batches of a and b, then rows, depth and columns of the product."""
    *batch_a, rows, depth = ints(a.shape)
    *batch_b, inner, columns = ints(b.shape)
    if int(attrs["transpose_a"]):
        rows, depth = depth, rows
    if int(attrs["transpose_b"]):
        inner, columns = columns, inner
    assert depth == inner, f"{a.shape} and {b.shape} do not multiply"
    return (batch_a or [1])[0], (batch_b or [1])[0], rows, depth, columns


def _compute(
    attrs: Any, inputs: Sequence[te.Tensor], out_type: TensorType, unit: VectorUnit
) -> list[te.Tensor]:
    a_tensor, b_tensor = inputs
    batch_a, batch_b, rows, depth, columns = _shapes(attrs, a_tensor, b_tensor)
    plan = _Plan(
        batch=max(batch_a, batch_b),
        batch_a=batch_a,
        batch_b=batch_b,
        rows=rows,
        depth=depth,
        columns=columns,
        transpose_a=bool(int(attrs["transpose_a"])),
        transpose_b=bool(int(attrs["transpose_b"])),
        dtype=a_tensor.dtype,
        unit=unit,
    )

    def body(ins: Any, outs: Any) -> Any:
        ib = tir.ir_builder.create()
        a, b, c = (flat(ib, x) for x in (*ins, *outs))
        with ib.for_range(0, plan.tasks, "task", kind="parallel") as task:
            _Kernel(plan, ib, a, b, c).task(task)
        return ib.get()

    return [te.extern(out_type.shape, list(inputs), body, name="matmul", dtype=plan.dtype)]


def _type_of(attrs: Any, types: Sequence[TensorType]) -> TensorType:
    a, b = types
    batch_a, batch_b, rows, _, columns = _shapes(attrs, a, b)
    batch = [max(batch_a, batch_b)] if len(a.shape) == 3 else []
    return TensorType([*batch, rows, columns], a.dtype)


register_op(NAME, ["a", "b"], _type_of, _compute)
