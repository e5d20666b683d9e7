"""Gradients of convolutions (NCHW, OIHW).

Both gradients of y = conv(x, w) are ops of our own (``relay_ops``): as convolutions of TVM's they
would need transposed and spread copies of whole activations.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from tvm import relay

from ..errors import ModelError
from ..relay_graph import Expr, shape_of, source_of
from ..relay_ops import conv2d, conv2d_input_gradient, conv2d_weight_gradient, packing_pays
from ..relay_ops.direct_conv import INPUT_GRADIENT
from .rules import Adjoint, gradient

Pair = tuple[int, int]


@dataclass(frozen=True)
class Geometry:
    """A 2-d convolution's sizes; ``before``/``after`` are the paddings, ``rest`` what each
    spatial axis of the padded input has beyond the last window."""

    batch: int
    channels: int
    filters: int
    groups: int
    size: Pair
    out: Pair
    kernel: Pair
    stride: Pair
    dilation: Pair
    before: Pair
    after: Pair

    @property
    def reach(self) -> Pair:
        """Distance between the first and the last element that a window reads."""
        return (
            self.dilation[0] * (self.kernel[0] - 1),
            self.dilation[1] * (self.kernel[1] - 1),
        )

    @property
    def rest(self) -> Pair:
        def one(i: int) -> int:
            free = self.size[i] + self.before[i] + self.after[i] - self.reach[i] - 1
            return free % self.stride[i]

        return one(0), one(1)


def _pair(values: object) -> Pair:
    a, b = (int(v) for v in values)  # type: ignore[attr-defined]
    return a, b


def geometry(call: relay.Call) -> Geometry:
    """Read a typed nn.conv2d call."""
    attrs = call.attrs
    if attrs.data_layout != "NCHW" or attrs.kernel_layout != "OIHW":
        where = source_of(call) or "nn.conv2d"
        raise ModelError(f"{where}: no gradient for layout {attrs.data_layout}")
    batch, channels, *size = shape_of(call.args[0])
    _, filters, *out = shape_of(call)
    top, left, bottom, right = (int(p) for p in attrs.padding)
    g = Geometry(
        batch=batch,
        channels=channels,
        filters=filters,
        groups=int(attrs.groups),
        size=_pair(size),
        out=_pair(out),
        kernel=_pair(shape_of(call.args[1])[2:]),
        stride=_pair(attrs.strides),
        dilation=_pair(attrs.dilation),
        before=(top, left),
        after=(bottom, right),
    )
    return g


def input_gradient(dy: Expr, w: Expr, g: Geometry) -> Expr:
    """dx of shape (batch, channels, *size)."""
    plain = g.stride == g.dilation == (1, 1)
    if plain and packing_pays(g.groups, g.batch, g.filters, g.size):
        return relay.nn.conv2d_transpose(
            dy, w, channels=g.channels, kernel_size=g.kernel, padding=(*g.before, *g.after)
        )
    return conv2d_input_gradient(
        dy,
        w,
        size=g.size,
        stride=g.stride,
        before=g.before,
        dilation=g.dilation,
        groups=g.groups,
    )


def input_gradient_of_channels(dx: Expr, start: int, stop: int) -> Expr | None:
    """Some channels of what ``input_gradient`` made, by those channels of the weight.

    A concatenation before the convolution (a skip connection) then has the gradients of its parts,
    each computed when it is needed, and never that of the whole. None if ``dx`` is anything else.
    """
    name = getattr(dx.op, "name", "") if isinstance(dx, relay.Call) else ""
    if name not in ("nn.conv2d_transpose", INPUT_GRADIENT):
        return None
    (dy, w), attrs = dx.args, dx.attrs
    if int(attrs["groups"]) != 1:
        return None
    filters, _, *kernel = shape_of(w)
    w = relay.strided_slice(w, (0, start, 0, 0), (filters, stop, *kernel))
    if name == INPUT_GRADIENT:
        pairs = {key: _pair(attrs[key]) for key in ("size", "stride", "before", "dilation")}
        return conv2d_input_gradient(dy, w, groups=1, **pairs)
    padding = [int(p) for p in attrs["padding"]]
    return relay.nn.conv2d_transpose(
        dy, w, channels=stop - start, kernel_size=kernel, padding=padding
    )


def _as_rows(x: Expr, dy: Expr, g: Geometry) -> tuple[Expr, Expr, Geometry]:
    """A 1x1 convolution of stride 1 as one over a single long row: longer vectors, no copy."""
    area = g.size[0] * g.size[1]
    x = relay.reshape(x, (g.batch, g.channels, 1, area))
    dy = relay.reshape(dy, (g.batch, g.filters, 1, area))
    return x, dy, replace(g, size=(1, area), out=(1, area))


def _swapped_weight_gradient(x: Expr, dy: Expr, g: Geometry) -> Expr:
    """A convolution of x by dy with batch and channels swapped, for planes of a few elements.

    Its operands are transposed copies, which are small there.
    """
    dw = relay.nn.conv2d(
        relay.transpose(x, (1, 0, 2, 3)),
        relay.transpose(dy, (1, 0, 2, 3)),
        strides=g.dilation,
        padding=(*g.before, *g.after),
        dilation=g.stride,
        channels=g.filters,
        kernel_size=g.out,
    )
    dw = relay.transpose(dw, (1, 0, 2, 3))
    if g.rest[0] >= g.dilation[0] or g.rest[1] >= g.dilation[1]:
        dw = relay.strided_slice(dw, (0, 0, 0, 0), (g.filters, g.channels, *g.kernel))
    return dw


def weight_gradient(x: Expr, dy: Expr, g: Geometry) -> Expr:
    """dw of shape (filters, channels / groups, *kernel)."""
    if g.kernel == (1, 1) and g.stride == (1, 1) and g.before == g.after == (0, 0):
        x, dy, g = _as_rows(x, dy, g)
    if g.out[1] <= 4 and g.out[0] * g.out[1] <= 16 and g.groups == 1:
        return _swapped_weight_gradient(x, dy, g)
    return conv2d_weight_gradient(
        dy,
        x,
        kernel=g.kernel,
        stride=g.stride,
        before=g.before,
        dilation=g.dilation,
        groups=g.groups,
    )


@gradient("nn.conv2d")
def _conv2d(adjoint: Adjoint) -> list[Expr | None]:
    (x, w), dy = adjoint.call.args, adjoint.output
    g = geometry(adjoint.call)
    dx = input_gradient(dy, w, g) if adjoint.needs[0] else None
    dw = weight_gradient(x, dy, g) if adjoint.needs[1] else None
    return [dx, dw]


@gradient("dtr.conv2d_input_gradient")
def _conv2d_input_gradient(adjoint: Adjoint) -> list[Expr | None]:
    """A transposed convolution y of x: both gradients see y's adjoint as a convolution's input."""
    (x, w), dy, attrs = adjoint.call.args, adjoint.output, adjoint.call.attrs
    stride, before = _pair(attrs["stride"]), _pair(attrs["before"])
    dilation, groups = _pair(attrs["dilation"]), int(attrs["groups"])
    dx = dw = None
    if adjoint.needs[0]:
        dx = conv2d(dy, w, shape_of(x)[2:], stride, before, dilation, groups)
    if adjoint.needs[1]:
        kernel = shape_of(w)[2:]
        dw = conv2d_weight_gradient(x, dy, kernel, stride, before, dilation, groups)
    return [dx, dw]
