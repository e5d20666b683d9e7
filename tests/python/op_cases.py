"""Random operands and attributes for every ONNX op that trains: one line of a table each.

A case is drawn from a seed; the gradients of the drawn model are compared with finite differences
and its values with ONNX's reference evaluator, unless that has no or another answer.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from onnx_models import ModelMaker


@dataclass
class Case:
    """A node and its operands: float arrays are parameters, others constants, None is left out."""

    op: str
    operands: Sequence[np.ndarray | None]
    attrs: dict[str, Any] = field(default_factory=dict)
    outputs: int = 1
    opset: int = 18
    reference: bool = True
    use: int = 0  # the result whose gradient is taken

    def model(self, dtype: str = "float64") -> onnx.ModelProto:
        maker = ModelMaker(dtype=dtype, opset=self.opset)
        names = [
            "" if data is None else maker.weight(f"p{i}", np.asarray(data))
            for i, data in enumerate(self.operands)
        ]
        results = maker.node(self.op, names, outputs=self.outputs, **self.attrs)
        return maker.model(results if self.outputs == 1 else results[self.use])


class Draw:
    """Random sizes, arrays and choices of one case."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)

    def size(self, low: int = 1, high: int = 4) -> int:
        return int(self.rng.integers(low, high + 1))

    def shape(self, low: int = 1, high: int = 4, most: int = 4) -> tuple[int, ...]:
        return tuple(self.size(1, most) for _ in range(self.size(low, high)))

    def one_of(self, *options: Any) -> Any:
        return options[self.rng.integers(len(options))]

    def some(self, count: int, high: int, low: int = 0) -> list[int]:
        return [self.size(low, high) for _ in range(count)]

    def axis(self, shape: Sequence[int]) -> int:
        return int(self.rng.integers(-len(shape), len(shape)))

    def axes(self, shape: Sequence[int]) -> list[int]:
        count = self.size(1, len(shape))
        return sorted(int(a) for a in self.rng.permutation(len(shape))[:count])

    def normal(self, *shape: int) -> np.ndarray:
        return self.rng.normal(size=shape)

    def positive(self, *shape: int) -> np.ndarray:
        return self.rng.uniform(0.5, 2, size=shape)

    def spaced(self, *shape: int) -> np.ndarray:
        """Distinct values at least 0.04 apart: no finite difference crosses a kink or a tie."""
        count = math.prod(shape)
        return ((self.rng.permutation(count) - count // 2 + 0.5) * 0.05).reshape(shape)

    def broadcast(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Two shapes that broadcast together."""
        shape = self.shape(1, 4, 3)
        other = [self.one_of(1, n) for n in shape[self.size(0, len(shape) - 1) :]]
        pair = shape, tuple(other)
        return pair if self.one_of(True, False) else pair[::-1]

    def index(self, size: int, *shape: int) -> np.ndarray:
        return self.rng.integers(-size, size, size=shape)

    def distinct(self, size: int, count: int) -> np.ndarray:
        return self.rng.permutation(size)[:count]


Maker = Callable[[Draw], Case]
CASES: dict[str, Maker] = {}


def case(make: Maker) -> Maker:
    CASES[make.__name__.strip("_")] = make
    return make


def _unary(op: str, values: str = "spaced", **more: Any) -> Maker:
    return lambda d: Case(op, [getattr(d, values)(*d.shape())], **more)


for _op in [
    "Relu",
    "Sigmoid",
    "Tanh",
    "Exp",
    "Abs",
    "Neg",
    "Sin",
    "Cos",
    "Erf",
    "Softplus",
    "Softsign",
    "Identity",
]:
    CASES[_op] = _unary(_op)
for _op in ("Asinh", "Atan", "Cosh", "Sinh", "Tan"):
    CASES[_op] = _unary(_op)
for _op in ("Acos", "Asin", "Atanh"):
    CASES[_op] = lambda d, op=_op: Case(op, [d.rng.uniform(-0.7, 0.7, d.shape())])
CASES["Acosh"] = lambda d: Case("Acosh", [d.positive(*d.shape()) + 1])
CASES["Mod"] = lambda d: Case("Mod", [d.normal(3, 4) * 3, d.positive(4)], {"fmod": 1})
for _op in ("Log", "Sqrt", "Reciprocal"):
    CASES[_op] = _unary(_op, "positive")
# The reference evaluator rounds the attributes of some of these and has no Gelu.
for _op in ("Celu", "Elu", "Selu", "LeakyRelu"):
    CASES[_op] = lambda d, op=_op: Case(
        op, [d.spaced(*d.shape())], {"alpha": d.one_of(0.25, 0.5, 1.5)}, reference=False
    )
CASES["HardSwish"] = _unary("HardSwish", reference=False)
CASES["HardSigmoid"] = lambda d: Case(
    "HardSigmoid",
    [d.spaced(*d.shape())],
    {"alpha": d.one_of(0.25, 0.5), "beta": d.one_of(0.5, 0.25)},
    reference=False,
)
CASES["Selu_gamma"] = lambda d: Case(
    "Selu", [d.spaced(*d.shape())], {"alpha": 1.5, "gamma": d.one_of(0.5, 2.0)}, reference=False
)
CASES["Mish"] = _unary("Mish")
CASES["Gelu"] = lambda d: Case(
    "Gelu",
    [d.spaced(*d.shape())],
    {"approximate": d.one_of("none", "tanh")},
    opset=20,
    reference=False,
)
CASES["ThresholdedRelu"] = lambda d: Case("ThresholdedRelu", [d.spaced(3, 8)], {"alpha": 0.25})
CASES["Shrink"] = lambda d: Case("Shrink", [d.spaced(3, 8)], {"lambd": 0.25, "bias": 0.125})


def _binary(op: str, first: str = "normal", second: str = "positive") -> Maker:
    def make(d: Draw) -> Case:
        a, b = d.broadcast()
        return Case(op, [getattr(d, first)(*a), getattr(d, second)(*b)])

    return make


for _op in ("Add", "Sub", "Mul", "Div"):
    CASES[_op] = _binary(_op)
CASES["Pow"] = _binary("Pow", "positive", "normal")


@case
def Clip(d):
    low, high = d.one_of((-0.26, 0.34), (-0.26, None), (None, 0.34))
    bounds = [None if b is None else np.array(b) for b in (low, high)]
    return Case("Clip", [d.spaced(3, 8), *bounds])


@case
def PRelu(d):
    shape = (2, 3, 4)
    return Case("PRelu", [d.spaced(*shape), d.normal(*d.one_of((3, 1), (1,), (4,)))])


def _extremum(op: str) -> Maker:
    def make(d: Draw) -> Case:
        shapes = [*d.broadcast(), d.one_of((), (1,))][: d.size(1, 3)]
        ends = np.cumsum([math.prod(s) for s in shapes])
        values = np.split(d.spaced(ends[-1]), ends[:-1])
        return Case(op, [v.reshape(s) for v, s in zip(values, shapes, strict=True)])

    return make


for _op in ("Min", "Max"):
    CASES[_op] = _extremum(_op)
for _op in ("Sum", "Mean"):
    CASES[_op] = lambda d, op=_op: Case(op, [d.normal(3, 4), d.normal(4), d.normal(1, 1)])


@case
def Where(d):
    a, b = d.broadcast()
    return Case("Where", [d.rng.random(a) < 0.5, d.normal(*b), d.normal(*a)])


def _reduce(op: str, values: str) -> Maker:
    def make(d: Draw) -> Case:
        shape = d.shape(1, 4)
        axes = d.one_of(None, np.array(d.axes(shape)))
        keep = {"keepdims": d.size(0, 1)}
        if op == "ReduceSum" or axes is None:
            return Case(op, [getattr(d, values)(*shape), *([] if axes is None else [axes])], keep)
        return Case(op, [getattr(d, values)(*shape), axes], keep)

    return make


for _op in ["Sum", "Mean", "L2", "SumSquare", "LogSumExp", "Prod"]:
    CASES[f"Reduce{_op}"] = _reduce(f"Reduce{_op}", "normal")
for _op in ["Max", "Min", "L1"]:
    CASES[f"Reduce{_op}"] = _reduce(f"Reduce{_op}", "spaced")
CASES["ReduceLogSum"] = _reduce("ReduceLogSum", "positive")


@case
def ReduceProd_zeros(d):
    x = d.normal(3, 4)
    x[0, 1], x[1, 0], x[1, 3] = 0, 0, 0
    return Case("ReduceProd", [x, np.array([1])])


for _op in ("Softmax", "LogSoftmax"):

    def _soft(d, op=_op):
        shape = d.shape(1, 4)
        return Case(op, [d.normal(*shape)], {"axis": d.axis(shape)}, opset=d.one_of(18, 13))

    CASES[_op] = _soft


@case
def BatchNormalization(d):
    shape = (d.size(2, 4), c := d.size(1, 4), *d.shape(0, 3))
    channel = [d.positive(c), d.normal(c), d.normal(c), d.positive(c)]
    attrs = {"training_mode": 1, "momentum": 0.75}
    return Case("BatchNormalization", [d.normal(*shape), *channel], attrs, outputs=3)


@case
def InstanceNormalization(d):
    shape = (d.size(1, 3), c := d.size(1, 3), *d.shape(1, 2), 3)
    return Case("InstanceNormalization", [d.normal(*shape), d.positive(c), d.normal(c)])


@case
def LayerNormalization(d):
    shape = (*d.shape(1, 3), 4)
    axis = d.axis(shape)
    rest = shape[axis:]
    bias = d.one_of(None, d.normal(*rest))
    return Case("LayerNormalization", [d.normal(*shape), d.positive(*rest), bias], {"axis": axis})


@case
def RMSNormalization(d):
    shape = (*d.shape(1, 3), 4)
    axis = d.axis(shape)
    operands = [d.normal(*shape), d.positive(*shape[axis:])]
    return Case("RMSNormalization", operands, {"axis": axis}, opset=23)


@case
def GroupNormalization(d):
    groups, each = d.size(1, 3), d.size(1, 3)
    shape = (d.size(1, 3), c := groups * each, *d.shape(1, 2), 3)
    operands = [d.normal(*shape), d.positive(c), d.normal(c)]
    attrs = {"num_groups": groups}
    return Case("GroupNormalization", operands, attrs, opset=21, reference=False)


@case
def LRN(d):
    channels = d.size(2, 7)
    shape = (d.one_of(1, channels), channels, *d.shape(1, 2))
    # The evaluator's alpha / size is a float32: here it is exact.
    attrs = {"size": (size := d.size(1, 5)), "alpha": 0.25 * size, "beta": 0.75, "bias": 1.5}
    # The evaluator takes no other ranks, for even sizes one channel less than the standard, and as
    # many channels as there are images.
    reference = len(shape) == 4 and attrs["size"] % 2 == 1 and shape[0] == channels
    return Case("LRN", [d.normal(*shape)], attrs, reference=reference)


@case
def LpNormalization(d):
    shape, p = d.shape(1, 3), d.size(1, 2)
    attrs = {"axis": d.axis(shape), "p": p}
    # The evaluator's norm for p = 1 is the sum without absolute values.
    return Case("LpNormalization", [d.spaced(*shape)], attrs, reference=p == 2)


def _window(d: Draw, rank: int) -> tuple[list[int], dict[str, Any]]:
    """A kernel's size and strides, dilations and pads that fit a spatial size of 5 or more."""
    kernel = d.some(rank, 3, 1)
    pads = [d.size(0, k - 1) for k in kernel * 2]
    return kernel, {"strides": d.some(rank, 2, 1), "pads": pads}


def _conv(rank: int) -> Maker:
    def make(d: Draw) -> Case:
        kernel, attrs = _window(d, rank)
        group, each, filters = d.size(1, 2), d.size(1, 3), d.size(1, 3)
        attrs |= {"group": group, "dilations": d.some(rank, 2, 1)}
        if d.one_of(False, False, True):
            del attrs["pads"]
            attrs["auto_pad"] = d.one_of("SAME_UPPER", "SAME_LOWER", "VALID")
            attrs["dilations"] = [1] * rank
        x = d.normal(d.size(1, 2), group * each, *d.some(rank, 7, 5))
        w = d.normal(group * filters, each, *kernel)
        bias = d.one_of([], [d.normal(group * filters)])
        # The evaluator fails for auto_pad with strides, and for some paddings.
        return Case("Conv", [x, w, *bias], attrs, reference=False)

    return make


def _conv_transpose(rank: int) -> Maker:
    def make(d: Draw) -> Case:
        kernel, attrs = _window(d, rank)
        group, each, filters = d.size(1, 2), d.size(1, 2), d.size(1, 3)
        attrs |= {"group": group, "dilations": d.some(rank, 2, 1)}
        attrs["output_padding"] = [d.size(0, s - 1) for s in attrs["strides"]]
        if d.one_of(False, False, True):
            kernel = [3] * rank
            attrs = {"group": group, "strides": attrs["strides"]}
            attrs["auto_pad"] = d.one_of("SAME_UPPER", "SAME_LOWER", "VALID")
        x = d.normal(d.size(1, 2), group * each, *d.some(rank, 5, 3))
        w = d.normal(group * each, filters, *kernel)
        bias = d.one_of([], [d.normal(group * filters)])
        return Case("ConvTranspose", [x, w, *bias], attrs, reference=False)

    return make


def _pool(op: str, rank: int) -> Maker:
    def make(d: Draw) -> Case:
        kernel, attrs = _window(d, rank)
        if op == "AveragePool":
            attrs["count_include_pad"] = d.size(0, 1)
        attrs["ceil_mode"] = d.size(0, 1)
        if d.one_of(False, False, True):
            attrs["dilations"] = d.some(rank, 2, 1)
        elif d.one_of(False, True):
            del attrs["pads"], attrs["ceil_mode"]
            attrs["auto_pad"] = d.one_of("SAME_UPPER", "SAME_LOWER", "VALID")
        x = d.spaced(d.size(1, 2), d.size(1, 3), *d.some(rank, 7, 5))
        opset = 19 if op == "AveragePool" else 18
        return Case(op, [x], {"kernel_shape": kernel, **attrs}, opset=opset, reference=False)

    return make


for _rank in (1, 2, 3):
    CASES[f"Conv{_rank}d"] = _conv(_rank)
    CASES[f"ConvTranspose{_rank}d"] = _conv_transpose(_rank)
    CASES[f"MaxPool{_rank}d"] = _pool("MaxPool", _rank)
    CASES[f"AveragePool{_rank}d"] = _pool("AveragePool", _rank)
for _op in ("GlobalAveragePool", "GlobalMaxPool"):
    CASES[_op] = lambda d, op=_op: Case(op, [d.spaced(2, 3, *d.shape(1, 3))], reference=False)
CASES["GlobalLpPool"] = lambda d: Case(
    "GlobalLpPool", [d.spaced(2, 3, 4, 2)], {"p": d.size(1, 3)}, reference=False
)
CASES["LpPool"] = lambda d: Case(
    "LpPool",
    [d.spaced(2, 3, 5, 6)],
    {"kernel_shape": [2, 3], "strides": d.some(2, 2, 1), "p": d.size(1, 3)},
    reference=False,
)


@case
def Gemm(d):
    m, k, n = d.some(3, 4, 1)
    ta, tb = d.some(2, 1)
    a, b = d.normal(*((k, m) if ta else (m, k))), d.normal(*((n, k) if tb else (k, n)))
    c = d.one_of(None, d.normal(n), d.normal(m, 1), d.normal(1, n), d.normal(m, n))
    attrs = {"transA": ta, "transB": tb, "alpha": d.one_of(1.0, 0.5), "beta": d.one_of(1.0, 2.0)}
    return Case("Gemm", [a, b, c], attrs)


@case
def MatMul(d):
    a, b = d.broadcast()
    m, k, n = d.some(3, 4, 1)
    left, right = d.one_of(
        ((*a, m, k), (*b, k, n)), ((k,), (*b, k, n)), ((*a, m, k), (k,)), ((k,), (k,))
    )
    return Case("MatMul", [d.normal(*left), d.normal(*right)])


EQUATIONS = [
    "ij,jk->ik",
    "bij,bjk->bik",
    "bhid,bhjd->bhij",
    "i,j->ij",
    "ii->i",
    "ij->ji",
    "ij->",
    "iji->j",
    "ij,ij->",
    "...ij,...jk->...ik",
    "bi,ij,bj->b",
    "ab,bc",
    "b...,bj->j...",
    "ij,k->ik",
]


@case
def Einsum(d):
    equation = d.one_of(*EQUATIONS)
    sizes = dict(zip("abhijkdc", d.some(8, 4, 1), strict=True))
    shapes = []
    for term in equation.split("->")[0].split(","):
        lead = [3, 2] if "..." in term else []
        at = term.find("...")
        labels = term.replace("...", "")
        shape = [sizes[c] for c in labels]
        shapes.append(shape[:at] + lead + shape[at:] if lead else shape)
    return Case("Einsum", [d.normal(*s) for s in shapes], {"equation": equation})


@case
def Concat(d):
    shape = list(d.shape(1, 4))
    axis = d.axis(shape)
    parts = [
        [d.size() if i == axis % len(shape) else n for i, n in enumerate(shape)] for _ in "abc"
    ]
    return Case("Concat", [d.normal(*p) for p in parts], {"axis": axis})


@case
def Split(d):
    shape = d.shape(1, 3)
    axis = d.axis(shape)
    sizes = np.array(d.some(3, 3, 1))
    shape = tuple(sizes.sum() if i == axis % len(shape) else n for i, n in enumerate(shape))
    attrs = {"axis": axis}
    return Case("Split", [d.normal(*shape), sizes], attrs, outputs=3, use=d.size(0, 2))


@case
def Slice(d):
    shape = tuple(n + 2 for n in d.shape(1, 3))
    axes = d.axes(shape)
    steps = [d.one_of(-2, -1, 1, 2, 3) for _ in axes]
    starts = [
        shape[a] - 1 - d.size(0, 1) if s < 0 else d.size(0, 1)
        for a, s in zip(axes, steps, strict=True)
    ]
    ends = [-100 if s < 0 else d.one_of(100, -1) for s in steps]
    numbers = [np.array(v) for v in (starts, ends, axes, steps)]
    return Case("Slice", [d.normal(*shape), *numbers])


@case
def Gather(d):
    shape = d.shape(1, 3)
    axis = d.axis(shape)
    index = d.index(shape[axis], *d.one_of((), (3,), (2, 2)))
    return Case("Gather", [d.normal(*shape), index], {"axis": axis})


@case
def GatherElements(d):
    shape = d.shape(1, 3)
    axis = d.axis(shape)
    wanted = [d.size(1, 5) if i == axis % len(shape) else n for i, n in enumerate(shape)]
    index = d.index(shape[axis], *wanted)
    # The evaluator takes no negative axes here.
    operands = [d.normal(*shape), index]
    return Case("GatherElements", operands, {"axis": axis}, reference=axis >= 0)


@case
def GatherND(d):
    shape = d.shape(2, 4)
    lead = d.size(0, 1)
    depth = d.size(1, len(shape) - lead)
    where = (*shape[:lead], *d.shape(1, 2))
    parts = [d.rng.integers(0, n, size=where) for n in shape[lead : lead + depth]]
    return Case("GatherND", [d.normal(*shape), np.stack(parts, -1)], {"batch_dims": lead})


@case
def ScatterElements(d):
    shape = tuple(n + 1 for n in d.shape(1, 3, 3))
    axis = d.axis(shape)
    reduction = d.one_of("none", "add", "mul", "max", "min")
    count = d.size(1, shape[axis])
    wanted = tuple(count if i == axis % len(shape) else n for i, n in enumerate(shape))
    if reduction == "none":  # distinct along the axis: else the result is undefined
        row = d.distinct(shape[axis], count).reshape([-1] + [1] * (len(shape) - 1))
        index = np.broadcast_to(np.moveaxis(row, 0, axis % len(shape)), wanted)
    else:
        index = d.index(shape[axis], *wanted)
    both = d.spaced(2, *shape)
    updates = both[1][tuple(slice(n) for n in wanted)]
    attrs = {"axis": axis, "reduction": reduction}
    return Case("ScatterElements", [both[0], index, updates], attrs, reference=reduction == "none")


@case
def ScatterND(d):
    shape = tuple(n + 1 for n in d.shape(1, 3, 3))
    depth = d.size(1, len(shape))
    lead = shape[:depth]
    reduction = d.one_of("none", "add", "mul", "max", "min")
    count = d.size(1, min(3, math.prod(lead)))
    index = np.stack(np.unravel_index(d.distinct(math.prod(lead), count), lead), -1)
    values = d.spaced(math.prod(shape) + count * math.prod(shape[depth:]))
    data = values[: math.prod(shape)].reshape(shape)
    updates = values[math.prod(shape) :].reshape(count, *shape[depth:])
    attrs = {"reduction": reduction}
    return Case("ScatterND", [data, index, updates], attrs, reference=reduction == "none")


@case
def TopK(d):
    shape = tuple(n + 1 for n in d.shape(1, 3))
    axis = d.axis(shape)
    k = np.array([d.size(1, shape[axis])])
    return Case("TopK", [d.spaced(*shape), k], {"axis": axis, "largest": d.size(0, 1)}, outputs=2)


@case
def CumSum(d):
    shape = d.shape(1, 3)
    attrs = {"exclusive": d.size(0, 1), "reverse": d.size(0, 1)}
    return Case("CumSum", [d.normal(*shape), np.array(d.axis(shape))], attrs)


@case
def Reshape(d):
    a, b, c = d.some(3, 4, 1)
    target = d.one_of([0, -1], [-1], [a * b, c], [c, b, 1, a])
    return Case("Reshape", [d.normal(a, b, c), np.array(target)])


@case
def Flatten(d):
    shape = d.shape(1, 4)
    return Case("Flatten", [d.normal(*shape)], {"axis": d.axis(shape)})


@case
def Squeeze(d):
    return Case("Squeeze", [d.normal(2, 1, 3, 1), *d.one_of([], [np.array([1])], [np.array([-1])])])


@case
def Unsqueeze(d):
    return Case("Unsqueeze", [d.normal(2, 3), np.array(d.one_of([0], [-1, 0], [1, 2]))])


@case
def Expand(d):
    a, b = d.broadcast()
    return Case("Expand", [d.normal(*a), np.array(b)])


@case
def Tile(d):
    shape = d.shape(1, 3)
    return Case("Tile", [d.normal(*shape), np.array(d.some(len(shape), 3, 1))])


@case
def Transpose(d):
    shape = d.shape(1, 4)
    perm = [int(i) for i in d.rng.permutation(len(shape))]
    return Case("Transpose", [d.normal(*shape)], d.one_of({}, {"perm": perm}))


@case
def Pad(d):
    shape = tuple(n + 2 for n in d.shape(1, 3))
    mode = d.one_of("constant", "reflect", "edge", "wrap")
    widths = np.array(d.some(2 * len(shape), 2))
    if mode == "constant":
        widths[0] = -1
    # The evaluator cannot crop.
    attrs, reference = {"mode": mode}, mode != "constant"
    operands = [d.normal(*shape), widths]
    if mode == "constant" and d.one_of(False, True):
        axes = np.array(d.axes(shape)) - d.one_of(0, len(shape))
        operands[1] = np.array(d.some(2 * len(axes), 2))
        operands += [np.array(0.75), axes]
    return Case("Pad", operands, attrs, opset=19, reference=reference)


@case
def Resize(d):
    shape = (1, 2, *d.some(d.size(1, 2), 5, 2))
    transformations = (
        *("half_pixel", "asymmetric", "align_corners"),
        *("pytorch_half_pixel", "half_pixel_symmetric"),
    )
    attrs = {
        "mode": d.one_of("nearest", "linear", "cubic"),
        "coordinate_transformation_mode": d.one_of(*transformations),
    }
    if attrs["mode"] == "nearest":
        modes = ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil")
        attrs["nearest_mode"] = d.one_of(*modes)
    else:
        attrs["antialias"] = d.size(0, 1)
        attrs["exclude_outside"] = d.size(0, 1)
    # The evaluator divides whole numbers by a sum in place.
    reference = attrs["mode"] == "cubic" or not attrs.get("exclude_outside")
    if d.one_of(True, False):
        scales = np.array([1, 1, *d.rng.choice([0.5, 1.5, 2, 3], len(shape) - 2)], "float32")
        return Case(
            "Resize", [d.normal(*shape), None, scales], attrs, opset=19, reference=reference
        )
    sizes = np.array(d.some(len(shape) - 2, 7, 2))
    attrs["axes"] = list(range(2, len(shape)))
    attrs["keep_aspect_ratio_policy"] = d.one_of("stretch", "not_larger", "not_smaller")
    return Case(
        "Resize", [d.normal(*shape), None, None, sizes], attrs, opset=19, reference=reference
    )


@case
def Resize_crop(d):
    region = np.array([d.one_of(-0.25, 0.2), 0.4, d.one_of(0.7, 1.25), 0.6])
    attrs = {
        "mode": d.one_of("nearest", "linear", "cubic"),
        "coordinate_transformation_mode": "tf_crop_and_resize",
        "extrapolation_value": d.one_of(0.0, 10.0),
        "axes": [2, 3],
    }
    sizes = np.array(d.some(2, 5, 2))
    return Case("Resize", [d.normal(1, 2, 4, 5), region, None, sizes], attrs, opset=19)


@case
def Upsample(d):
    scales = np.array([1, 1, 2, d.one_of(1, 2, 3)], "float32")
    mode = d.one_of("nearest", "linear")
    return Case(
        "Upsample", [d.normal(1, 2, 3, 2), scales], {"mode": mode}, opset=9, reference=False
    )


@case
def DepthToSpace(d):
    attrs = {"blocksize": 2, "mode": d.one_of("DCR", "CRD")}
    return Case("DepthToSpace", [d.normal(1, 8, 2, 3)], attrs)


CASES["SpaceToDepth"] = lambda d: Case("SpaceToDepth", [d.normal(1, 2, 4, 6)], {"blocksize": 2})


@case
def Trilu(d):
    shift = d.one_of([], [np.array(d.one_of(-1, 0, 1, 2))])
    return Case("Trilu", [d.normal(2, 3, 4), *shift], {"upper": d.size(0, 1)})


def _recurrent(op: str, gates: int) -> Maker:
    def make(d: Draw) -> Case:
        steps, batch, features, hidden = d.some(4, 3, 1)
        direction = d.one_of("forward", "reverse", "bidirectional")
        count = 2 if direction == "bidirectional" else 1
        layout = d.size(0, 1)

        def optional(*shape: int) -> np.ndarray | None:
            if layout and len(shape) == 3:
                shape = (shape[1], shape[0], shape[2])
            return d.one_of(None, d.normal(*shape))

        state = (count, batch, hidden)
        operands = [
            d.normal(*((batch, steps) if layout else (steps, batch)), features),
            d.normal(count, gates * hidden, features),
            d.normal(count, gates * hidden, hidden),
            optional(count, 2 * gates * hidden),
            d.one_of(None, d.rng.integers(1, steps + 1, size=batch).astype("int32")),
            optional(*state),
        ]
        attrs = {"hidden_size": hidden, "direction": direction, "layout": layout}
        if op == "GRU":
            attrs["linear_before_reset"] = d.size(0, 1)
        if op == "LSTM":
            operands += [optional(*state), optional(count, 3 * hidden)]
            attrs["input_forget"] = d.size(0, 1)
        if d.one_of(False, True):
            attrs["activations"] = [d.one_of("Sigmoid", "Softsign", "Tanh")] * (
                count * {"RNN": 1, "GRU": 2, "LSTM": 3}[op]
            )
        outputs = 3 if op == "LSTM" else 2
        use = d.size(0, outputs - 1)
        return Case(op, operands, attrs, outputs, opset=14, reference=False, use=use)

    return make


for _op, _gates in (("RNN", 1), ("GRU", 3), ("LSTM", 4)):
    CASES[_op] = _recurrent(_op, _gates)


@case
def Dropout(d):
    # The same key in every run: the same mask.
    ratio = np.array(d.one_of(0.25, 0.5))
    return Case("Dropout", [d.normal(*d.shape()), ratio, np.array(True)], reference=False)


def _loss(op: str) -> Maker:
    def make(d: Draw) -> Case:
        n, c, *rest = d.size(2, 4), d.size(2, 4), *d.shape(0, 2, 3)
        labels = d.rng.integers(0, c, size=(n, *rest))
        attrs = {"reduction": d.one_of("none", "sum", "mean")}
        if d.one_of(True, False):
            attrs["ignore_index"] = d.one_of(0, -100)
            labels[0] = attrs["ignore_index"]
        weights = d.one_of([], [d.positive(c)])
        outputs = d.size(1, 2) if op.startswith("Softmax") else 1
        return Case(op, [d.normal(n, c, *rest), labels, *weights], attrs, outputs)

    return make


for _op in ("SoftmaxCrossEntropyLoss", "NegativeLogLikelihoodLoss"):
    CASES[_op] = _loss(_op)
