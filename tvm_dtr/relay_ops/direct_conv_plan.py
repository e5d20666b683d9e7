"""Sizes and index arithmetic of the direct convolution kernels.

Both directions are sums over taps of shifted planes:

    out[o, a, b] = sum over r, taps of w[o, r, tap] * plane(tap)[r, a + da(tap), b + db(tap)]

For the forward op, r are input channels and a stride deals the source's rows and columns out to
planes by their remainder. For the input gradient, r are filters, and a stride makes several
*phases*: result positions of one remainder, which share the taps that reach them. So no multiply
by a stride's zeros takes place. Rows of a plane follow each other in scratch memory, as wide as
the result's rows plus the reach of the taps: then a shift by rows and columns is one offset, and
vectors run over row ends (the few values that wrap around are computed and dropped).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tvm import te

from .cpu import VectorUnit
from .registration import ints

SCRATCH_ELEMENTS = 65536  # of one thread: stays in a second-level cache
MIN_TASKS = 64


@dataclass(frozen=True)
class Tap:
    """``weight``: position in the filter; ``plane`` and the shift in it."""

    weight: int
    plane: tuple[int, int]
    shift: tuple[int, int]


@dataclass(frozen=True)
class Phase:
    """Result rows ``start + step * a`` for a < count, the same for columns; and their taps."""

    start: tuple[int, int]
    step: tuple[int, int]
    count: tuple[int, int]
    taps: tuple[Tap, ...]


@dataclass(frozen=True)
class Plan:
    """Scratch row t of the plane with remainder (p, q) is source row (a0 + t) * split + p + base,
    where a0 is the block's first result row; columns alike."""

    batch: int
    groups: int
    reduced: int  # channels summed over, per group
    made: int  # channels of the result, per group
    source: tuple[int, int]
    result: tuple[int, int]
    split: tuple[int, int]
    base: tuple[int, int]
    phases: tuple[Phase, ...]
    transposed: bool  # filters are stored (reduced, made) instead of (made, reduced)
    taps: int
    dtype: str
    unit: VectorUnit

    @property
    def planes(self) -> list[tuple[int, int]]:
        """Remainders (row, column) of the planes that some tap reads."""
        return sorted({tap.plane for phase in self.phases for tap in phase.taps})

    def span(self, axis: int) -> int:
        return max(phase.count[axis] for phase in self.phases)

    def reach(self, axis: int) -> int:
        return max(tap.shift[axis] for phase in self.phases for tap in phase.taps)

    @property
    def width(self) -> int:
        return self.span(1) + self.reach(1)

    @property
    def block(self) -> int:
        """Result rows (per phase) of one task: all, or what fits into scratch memory."""
        per_row = self.reduced * len(self.planes) * self.width
        fit = SCRATCH_ELEMENTS // per_row - self.reach(0)
        blocks = -(-self.span(0) // max(fit, 1))
        return -(-self.span(0) // blocks)

    @property
    def blocks(self) -> int:
        return -(-self.span(0) // self.block)

    @property
    def length(self) -> int:
        """Positions computed per block and channel."""
        return (self.block - 1) * self.width + self.span(1)

    @property
    def lanes(self) -> int:
        lanes = self.unit.lanes
        return lanes // 2 if lanes > 4 and self.length <= lanes // 2 else lanes

    @property
    def tile(self) -> int:
        """Channels of the result computed together."""
        return max(d for d in range(1, min(self.made, 8) + 1) if self.made % d == 0)

    @property
    def steps(self) -> int:
        return -(-self.length // (self.unit.accumulators // self.tile * self.lanes))

    @property
    def vectors(self) -> int:
        """Vectors of a step: registers hold the tile, and the steps are as even as can be."""
        return -(-self.length // (self.steps * self.lanes))

    @property
    def padded(self) -> int:
        return self.steps * self.vectors * self.lanes

    @property
    def column_phases(self) -> int:
        return len({phase.start[1] for phase in self.phases})

    @property
    def plane_size(self) -> int:
        return self.padded + self.reach(0) * self.width + self.reach(1)

    @property
    def group_planes(self) -> int:
        """Elements of scratch memory that one group takes."""
        return self.reduced * len(self.planes) * self.plane_size

    @property
    def group_block(self) -> int:
        """Groups per task. Small groups are copied many at a time: vectors that are read back
        just after they were written, at other offsets, make the processor wait."""
        fit = max(SCRATCH_ELEMENTS // 4 // self.group_planes, 1)
        tasks = self.batch * self.blocks * self.groups
        fit = min(fit, max(tasks // MIN_TASKS, 1))
        return max(d for d in range(1, min(fit, self.groups) + 1) if self.groups % d == 0)

    @property
    def tasks(self) -> int:
        return self.batch * self.blocks * (self.groups // self.group_block) * self.parts

    @property
    def parts(self) -> int:
        """Tasks into which the result's channels are dealt, for small batches."""
        tiles = self.made // self.tile
        wanted = -(-MIN_TASKS // (self.batch * self.blocks * self.groups))
        return min(d for d in range(1, tiles + 1) if tiles % d == 0 and (d >= wanted or d == tiles))


def _read(attrs: Any, source: te.Tensor, w: te.Tensor) -> dict[str, Any]:
    """What both directions share."""
    batch, channels, *size = ints(source.shape)
    return {
        "batch": batch,
        "channels": channels,
        "size": tuple(size),
        "w": ints(w.shape),
        "stride": ints(attrs["stride"]),
        "before": ints(attrs["before"]),
        "dilation": ints(attrs["dilation"]),
        "groups": int(attrs["groups"]),
    }


def forward_plan(attrs: Any, unit: VectorUnit, x: te.Tensor, w: te.Tensor) -> Plan:
    g = _read(attrs, x, w)
    filters, per_in, *kernel = g["w"]
    stride, dilation = g["stride"], g["dilation"]
    out = ints(attrs["size"])
    taps = []
    for i in range(kernel[0]):
        for j in range(kernel[1]):
            at = (i * dilation[0], j * dilation[1])
            plane = (at[0] % stride[0], at[1] % stride[1])
            shift = (at[0] // stride[0], at[1] // stride[1])
            taps.append(Tap(i * kernel[1] + j, plane, shift))
    return Plan(
        batch=g["batch"],
        groups=g["groups"],
        reduced=per_in,
        made=filters // g["groups"],
        source=g["size"],
        result=(out[0], out[1]),
        split=stride,
        base=(-g["before"][0], -g["before"][1]),
        phases=(Phase((0, 0), (1, 1), (out[0], out[1]), tuple(taps)),),
        transposed=False,
        taps=kernel[0] * kernel[1],
        dtype=x.dtype,
        unit=unit,
    )


def _axis_phases(
    size: int, kernel: int, stride: int, before: int, dilation: int
) -> list[tuple[int, int, list[tuple[int, int]]]]:
    """Per remainder: (first position, positions, [(tap, shift back in dy)])."""
    phases = []
    for remainder in range(min(stride, size)):
        taps = []
        for i in range(kernel):
            offset = i * dilation - before
            if offset % stride == remainder:
                taps.append((i, (offset - remainder) // stride))
        phases.append((remainder, -(-(size - remainder) // stride), taps))
    return phases


def input_gradient_plan(attrs: Any, unit: VectorUnit, dy: te.Tensor, w: te.Tensor) -> Plan:
    g = _read(attrs, dy, w)
    filters, per_in, *kernel = g["w"]
    size = ints(attrs["size"])
    axes = [
        _axis_phases(size[i], kernel[i], g["stride"][i], g["before"][i], g["dilation"][i])
        for i in (0, 1)
    ]
    back = [max((shift for _, _, taps in axis for _, shift in taps), default=0) for axis in axes]
    phases = []
    for row, rows, row_taps in axes[0]:
        for column, columns, column_taps in axes[1]:
            taps = tuple(
                Tap(i * kernel[1] + j, (0, 0), (back[0] - m, back[1] - n))
                for i, m in row_taps
                for j, n in column_taps
            )
            phases.append(Phase((row, column), g["stride"], (rows, columns), taps))
    return Plan(
        batch=g["batch"],
        groups=g["groups"],
        reduced=filters // g["groups"],
        made=per_in,
        source=g["size"],
        result=(size[0], size[1]),
        split=(1, 1),
        base=(-back[0], -back[1]),
        phases=tuple(phases),
        transposed=True,
        taps=kernel[0] * kernel[1],
        dtype=dy.dtype,
        unit=unit,
    )
