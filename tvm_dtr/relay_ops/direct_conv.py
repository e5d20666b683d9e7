"""Direct 2-d convolution and its input gradient on CPUs, in the layout of the model (NCHW).

TVM's schedules pack both operands and the result into blocked copies, a workspace of about the
size of all operands together. Here a task copies the channels of one image (or a block of its
rows) with their padding into scratch memory and computes all filters from it.

The arithmetic of its loops is in ``direct_conv_plan``.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Sequence
from typing import Any

from tvm import relay, te, tir
from tvm.ir import TensorType

from ..relay_graph import Expr
from .cpu import VectorUnit
from .direct_conv_plan import Phase, Plan, forward_plan, input_gradient_plan
from .registration import call_op, flat, register_op

FORWARD = "dtr.conv2d"
INPUT_GRADIENT = "dtr.conv2d_input_gradient"


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


class _Kernel:
    """Builds the loops of one task."""

    def __init__(self, plan: Plan, ib: Any, source: Any, w: Any, out: Any) -> None:
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

    def _step(self, phase: Phase, number: int, first: Any, position: Any) -> None:
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

    def _store(self, phases: list[Phase], first: Any) -> None:
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


def _compute(plan_of: Any) -> Any:
    def compute(
        attrs: Any, inputs: Sequence[te.Tensor], out_type: TensorType, unit: VectorUnit
    ) -> list[te.Tensor]:
        plan = plan_of(attrs, unit, *inputs)

        def body(ins: Any, outs: Any) -> Any:
            ib = tir.ir_builder.create()
            source, w, out = (flat(ib, b) for b in (*ins, *outs))
            if not plan.planes:  # strides step over an input of which only padding is read
                with ib.for_range(0, math.prod(map(int, out_type.shape)), "i") as i:
                    out[i] = tir.const(0, plan.dtype)
                return ib.get()
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


register_op(FORWARD, ["x", "w"], _forward_type, _compute(forward_plan))
register_op(INPUT_GRADIENT, ["dy", "w"], _input_gradient_type, _compute(input_gradient_plan))
