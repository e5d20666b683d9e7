"""Direct 2-d convolution and its input gradient on CPUs, in the layout of the model (NCHW).

TVM's schedules pack both operands and the result into blocked copies, a workspace of about the
size of all operands together. Here a task copies the channels of one image (or a block of its
rows) with their padding into scratch memory and computes all filters from it.

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

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tvm import relay, te, tir
from tvm.ir import TensorType

from ..relay_graph import Expr
from .cpu import VectorUnit
from .registration import call_op, flat, ints, register_op

FORWARD = "dtr.conv2d"
INPUT_GRADIENT = "dtr.conv2d_input_gradient"
SCRATCH_ELEMENTS = 65536  # of one thread: stays in a second-level cache
MIN_TASKS = 64


def conv2d(
    x: Expr,
    w: Expr,
    out: Sequence[int],
    stride: Sequence[int],
    before: Sequence[int],
    dilation: Sequence[int],
    groups: int,
) -> relay.Call:
    """y = conv2d(x, w), NCHW and OIHW, with the spatial size ``out``.

    ``before`` is the padding above and left; that on the other sides follows from ``out``.
    """
    attrs = {"stride": list(stride), "before": list(before), "dilation": list(dilation)}
    return call_op(FORWARD, [x, w], size=list(out), groups=groups, **attrs)


def conv2d_input_gradient(
    dy: Expr,
    w: Expr,
    size: Sequence[int],
    stride: Sequence[int],
    before: Sequence[int],
    dilation: Sequence[int],
    groups: int,
) -> relay.Call:
    """dx of y = conv2d(x, w), where x has the spatial size ``size``."""
    attrs = {"stride": list(stride), "before": list(before), "dilation": list(dilation)}
    return call_op(INPUT_GRADIENT, [dy, w], size=list(size), groups=groups, **attrs)


@dataclass(frozen=True)
class _Tap:
    """``weight``: position in the filter; ``plane`` and the shift in it."""

    weight: int
    plane: tuple[int, int]
    shift: tuple[int, int]


@dataclass(frozen=True)
class _Phase:
    """Result rows ``start + step * a`` for a < count, the same for columns; and their taps."""

    start: tuple[int, int]
    step: tuple[int, int]
    count: tuple[int, int]
    taps: tuple[_Tap, ...]


@dataclass(frozen=True)
class _Plan:
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
    phases: tuple[_Phase, ...]
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


class _Kernel:
    """Builds the loops of one task."""

    def __init__(self, plan: _Plan, ib: Any, source: Any, w: Any, out: Any) -> None:
        self.p, self.ib, self.source, self.w, self.out = plan, ib, source, w, out

    def task(self, number: Any) -> None:
        p, ib = self.p, self.ib
        part, rest = number % p.parts, number // p.parts
        group_blocks = p.groups // p.group_block
        first_group, rest = rest % group_blocks * p.group_block, rest // group_blocks
        self.first_row = rest % p.blocks * p.block
        self.image = rest // p.blocks
        scratch = p.group_block * p.group_planes
        self.scratch = ib.allocate(p.dtype, scratch, "planes", scope="global")
        self.sums = ib.allocate(
            p.dtype, p.column_phases * p.tile * p.padded, "sums", scope="global"
        )
        with ib.for_range(0, scratch, "clear") as i:
            self.scratch[i] = tir.const(0, p.dtype)
        with ib.for_range(0, p.group_block, "g") as g:
            self._enter(first_group, g)
            with ib.for_range(0, p.reduced, "r") as r:
                for row in sorted({plane[0] for plane in p.planes}):
                    self._fill(r, row)
        with ib.for_range(0, p.group_block, "g") as g:
            self._enter(first_group, g)
            self._compute_group(part)

    def _enter(self, first_group: Any, g: Any) -> None:
        self.group = first_group + g
        self.planes_at = g * self.p.group_planes

    def _compute_group(self, part: Any) -> None:
        p, ib = self.p, self.ib
        tiles = p.made // p.tile // p.parts
        with ib.for_range(0, tiles, "tile") as tile:
            first = (part * tiles + tile) * p.tile
            for start in sorted({phase.start[0] for phase in p.phases}):
                phases = [phase for phase in p.phases if phase.start[0] == start]
                for number, phase in enumerate(phases):
                    with ib.for_range(0, p.steps, "step") as step:
                        self._step(phase, number, first, step * (p.vectors * p.lanes))
                self._store(phases, first)

    def _fill(self, r: Any, row_remainder: int) -> None:
        """Copy the planes of one row remainder; their padding is already zero.

        Columns of all remainders are copied by one loop: a compiler turns that into loads and
        shuffles, but a strided loop into gathers, which are slow.
        """
        p, ib = self.p, self.ib
        height, width = p.source
        numbers = {q: n for n, (row, q) in enumerate(p.planes) if row == row_remainder}
        shift = {q: q + p.base[1] for q in numbers}
        first = {q: max(0, -(s // p.split[1])) for q, s in shift.items()}
        last = {q: min((width - 1 - s) // p.split[1], p.width - 1) for q, s in shift.items()}
        common = range(max(first.values()), min(last.values()) + 1)
        with ib.for_range(0, p.block + p.reach(0), "t") as t:
            row = (self.first_row + t) * p.split[0] + row_remainder + p.base[0]
            channel = (self.image * p.groups + self.group) * p.reduced + r
            source = (channel * height + row) * width

            def copy(q: int, u: Any) -> None:
                target = (r * len(p.planes) + numbers[q]) * p.plane_size + t * p.width
                target += self.planes_at
                self.scratch[target + u] = self.source[source + shift[q] + u * p.split[1]]

            with ib.if_scope(tir.all(row >= 0, row < height)):
                if len(common):
                    with ib.for_range(0, len(common), "u") as u:
                        for q in numbers:
                            copy(q, u + common.start)
                for q in numbers:
                    for u in range(first[q], last[q] + 1):
                        if u not in common:
                            copy(q, u)

    def _step(self, phase: _Phase, number: int, first: Any, position: Any) -> None:
        """A tile of channels at some vectors of positions."""
        p, ib = self.p, self.ib
        pairs = [(k, v) for k in range(p.tile) for v in range(p.vectors)]
        acc = {pair: ib.allocate(p.dtype, p.lanes, "acc", scope="global") for pair in pairs}
        for pair in pairs:
            with self._lanes() as lane:
                acc[pair][lane] = tir.const(0, p.dtype)
        with ib.for_range(0, p.reduced, "r") as r:
            at = ib.let("at", r * (len(p.planes) * p.plane_size) + position + self.planes_at)
            for tap in phase.taps:
                plane = p.planes.index(tap.plane) * p.plane_size
                shift = plane + tap.shift[0] * p.width + tap.shift[1]
                start = at + shift
                for k, v in pairs:
                    weight = self.w[self._weight(first + k, r, tap.weight)]
                    with self._lanes() as lane:
                        acc[k, v][lane] += weight * self.scratch[start + v * p.lanes + lane]
        for k, v in pairs:
            with self._lanes() as lane:
                target = (number * p.tile + k) * p.padded + position + v * p.lanes
                self.sums[target + lane] = acc[k, v][lane]

    def _weight(self, made: Any, reduced: Any, tap: int) -> Any:
        p = self.p
        if p.transposed:
            return ((self.group * p.reduced + reduced) * p.made + made) * p.taps + tap
        return ((self.group * p.made + made) * p.reduced + reduced) * p.taps + tap

    def _store(self, phases: list[_Phase], first: Any) -> None:
        """Write the phases of some result rows, their columns interleaved by one loop."""
        p, ib = self.p, self.ib
        height, width = p.result
        start, step, count = phases[0].start[0], phases[0].step, phases[0].count[0]
        common = min(phase.count[1] for phase in phases)
        with (
            ib.for_range(0, p.tile, "k") as k,
            ib.for_range(0, p.block, "a") as a,
            ib.if_scope(self.first_row + a < count),
        ):
            row = (self.first_row + a) * step[0] + start
            channel = (self.image * p.groups + self.group) * p.made + first + k
            target = (channel * height + row) * width

            def write(number: int, b: Any) -> None:
                value = self.sums[(number * p.tile + k) * p.padded + a * p.width + b]
                self.out[target + phases[number].start[1] + b * step[1]] = value

            with ib.for_range(0, common, "b") as b:
                for number in range(len(phases)):
                    write(number, b)
            for number, phase in enumerate(phases):
                for b in range(common, phase.count[1]):
                    write(number, b)

    @contextlib.contextmanager
    def _lanes(self) -> Any:
        with self.ib.for_range(0, self.p.lanes, "lane", kind="vectorize") as lane:
            yield lane


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


def _forward_plan(attrs: Any, unit: VectorUnit, x: te.Tensor, w: te.Tensor) -> _Plan:
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
            taps.append(_Tap(i * kernel[1] + j, plane, shift))
    return _Plan(
        batch=g["batch"],
        groups=g["groups"],
        reduced=per_in,
        made=filters // g["groups"],
        source=g["size"],
        result=(out[0], out[1]),
        split=stride,
        base=(-g["before"][0], -g["before"][1]),
        phases=(_Phase((0, 0), (1, 1), (out[0], out[1]), tuple(taps)),),
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


def _input_gradient_plan(attrs: Any, unit: VectorUnit, dy: te.Tensor, w: te.Tensor) -> _Plan:
    g = _read(attrs, dy, w)
    filters, per_in, *kernel = g["w"]
    size = ints(attrs["size"])
    axes = [
        _axis_phases(size[i], kernel[i], g["stride"][i], g["before"][i], g["dilation"][i])
        for i in (0, 1)
    ]
    back = [max(shift for _, _, taps in axis for _, shift in taps) for axis in axes]
    phases = []
    for row, rows, row_taps in axes[0]:
        for column, columns, column_taps in axes[1]:
            taps = tuple(
                _Tap(i * kernel[1] + j, (0, 0), (back[0] - m, back[1] - n))
                for i, m in row_taps
                for j, n in column_taps
            )
            phases.append(_Phase((row, column), g["stride"], (rows, columns), taps))
    return _Plan(
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


def _compute(plan_of: Any) -> Any:
    def compute(
        attrs: Any, inputs: Sequence[te.Tensor], out_type: TensorType, unit: VectorUnit
    ) -> list[te.Tensor]:
        plan = plan_of(attrs, unit, *inputs)

        def body(ins: Any, outs: Any) -> Any:
            ib = tir.ir_builder.create()
            source, w, out = (flat(ib, b) for b in (*ins, *outs))
            with ib.for_range(0, plan.tasks, "task", kind="parallel") as task:
                _Kernel(plan, ib, source, w, out).task(task)
            return ib.get()

        return [te.extern(out_type.shape, list(inputs), body, name="conv", dtype=plan.dtype)]

    return compute


def _forward_type(attrs: Any, types: Sequence[TensorType]) -> TensorType:
    x, w = types
    return TensorType([x.shape[0], w.shape[0], *attrs["size"]], x.dtype)


def _input_gradient_type(attrs: Any, types: Sequence[TensorType]) -> TensorType:
    dy, w = types
    channels = int(w.shape[1]) * int(attrs["groups"])
    return TensorType([dy.shape[0], channels, *attrs["size"]], dy.dtype)


register_op(FORWARD, ["x", "w"], _forward_type, _compute(_forward_plan))
register_op(INPUT_GRADIENT, ["dy", "w"], _input_gradient_type, _compute(_input_gradient_plan))
