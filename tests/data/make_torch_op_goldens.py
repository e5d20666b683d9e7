"""Writes torch_ops.npz: PyTorch's gradient of every operator, float32. Needs torch 2.13.0.

    python tests/data/make_torch_op_goldens.py

Per case the ONNX node (op, attributes), its operands, the result of PyTorch, and the gradients of
sum(result * weights) for random weights with respect to the operands that are floats.
"""

import json
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.func import functional_call
from torch.nn import functional as F

CASES = {}
RNG = np.random.default_rng(11)


def normal(*shape):
    return RNG.normal(size=shape).astype("float32")


def positive(*shape):
    return RNG.uniform(0.5, 2, shape).astype("float32")


def ints(*values):
    return np.array(values, "int64")


def case(op, operands, function, /, name="", outputs=1, **attrs):
    """``function`` takes the float operands as tensors, in order."""
    CASES[f"{op}{name}"] = (op, attrs, operands, function, outputs)


for op, function in {
    "Abs": torch.abs,
    "Celu": F.celu,
    "Cos": torch.cos,
    "Elu": F.elu,
    "Erf": torch.erf,
    "Exp": torch.exp,
    "HardSwish": F.hardswish,
    "LeakyRelu": F.leaky_relu,
    "Mish": F.mish,
    "Neg": torch.neg,
    "Relu": F.relu,
    "Selu": F.selu,
    "Sigmoid": torch.sigmoid,
    "Sin": torch.sin,
    "Softplus": F.softplus,
    "Softsign": F.softsign,
    "Tanh": torch.tanh,
}.items():
    case(op, [normal(3, 7)], function)
for op, function in (
    ("Log", torch.log),
    ("Sqrt", torch.sqrt),
    ("Reciprocal", torch.reciprocal),
):
    case(op, [positive(3, 7)], function)
case("HardSigmoid", [normal(3, 7) * 3], F.hardsigmoid, alpha=1 / 6, beta=0.5)
case("Gelu", [normal(3, 7)], F.gelu)
case("Gelu", [normal(3, 7)], lambda x: F.gelu(x, approximate="tanh"), "Tanh", approximate="tanh")
case("Clip", [normal(3, 7), np.float32(-0.5), np.float32(1)], lambda x, a, b: x.clamp(-0.5, 1))
case("PRelu", [normal(2, 3, 4), normal(3, 1)], lambda x, a: F.prelu(x, a[:, 0]))
case("Cast", [normal(3, 4)], lambda x: x.double().float(), to=1)

for op, function in (("Add", torch.add), ("Sub", torch.sub), ("Mul", torch.mul)):
    case(op, [normal(3, 1, 4), normal(2, 1)], function)
case("Div", [normal(3, 1, 4), positive(2, 1)], torch.div)
case("Pow", [positive(3, 4), normal(4)], torch.pow)
case("Min", [normal(3, 4), normal(4)], torch.minimum)
case("Max", [normal(3, 4), normal(4)], torch.maximum)
MASK = RNG.random((3, 4)) < 0.5
case("Where", [MASK, normal(4), normal(3, 1)], lambda a, b: torch.where(torch.tensor(MASK), a, b))

X34 = ints(1, 2)
case("ReduceSum", [normal(2, 3, 4), X34], lambda x: x.sum((1, 2), keepdim=True))
case("ReduceMean", [normal(2, 3, 4), X34], lambda x: x.mean((1, 2)), keepdims=0)
case("ReduceMax", [normal(2, 3, 4), X34], lambda x: x.amax((1, 2), keepdim=True))
case("ReduceMin", [normal(2, 3, 4), ints(-1)], lambda x: x.amin(-1), keepdims=0)
case("ReduceL1", [normal(2, 3, 4), ints(0)], lambda x: x.abs().sum(0, keepdim=True))
case("ReduceL2", [normal(2, 3, 4), ints(1)], lambda x: x.norm(dim=1, keepdim=True))
case("ReduceLogSumExp", [normal(2, 3, 4), ints(2)], lambda x: x.logsumexp(2, keepdim=True))
case("ReduceSumSquare", [normal(2, 3, 4), ints(2)], lambda x: (x * x).sum(2, keepdim=True))
case("ReduceProd", [normal(2, 3, 4), ints(1)], lambda x: x.prod(1, keepdim=True))
case("Softmax", [normal(3, 4, 5)], lambda x: x.softmax(1), axis=1)
case("LogSoftmax", [normal(3, 4, 5)], lambda x: x.log_softmax(-1))

case("Gemm", [normal(4, 3), normal(5, 4), normal(3, 1)],
     lambda a, b, c: 0.5 * a.T @ b.T + 2 * c, transA=1, transB=1, alpha=0.5, beta=2.0)  # fmt: skip
case("MatMul", [normal(2, 1, 3, 4), normal(3, 4, 5)], torch.matmul)
case("Einsum", [normal(2, 3, 4), normal(2, 4, 5)],
     lambda a, b: torch.einsum("bij,bjk->bik", a, b), equation="bij,bjk->bik")  # fmt: skip

case("Conv", [normal(2, 4, 9), normal(6, 2, 3), normal(6)],
     lambda x, w, b: F.conv1d(F.pad(x, (2, 1)), w, b, 2, 0, 1, 2),
     "1d", group=2, strides=[2], pads=[2, 1])  # fmt: skip
case("Conv", [normal(2, 4, 8, 7), normal(6, 2, 3, 2), normal(6)],
     lambda x, w, b: F.conv2d(F.pad(x, (1, 0, 2, 1)), w, b, (2, 1), 0, (1, 2), 2),
     "2d", group=2, strides=[2, 1], dilations=[1, 2], pads=[2, 1, 1, 0])  # fmt: skip
case("Conv", [normal(1, 2, 5, 6, 5), normal(3, 2, 2, 3, 2)],
     lambda x, w: F.conv3d(x, w, None, 1, 1), "3d", pads=[1] * 6)  # fmt: skip
case("Conv", [normal(2, 3, 7, 8), normal(4, 3, 3, 3)],
     lambda x, w: F.conv2d(F.pad(x, (0, 1, 1, 1)), w, None, 2), "Same",
     auto_pad="SAME_UPPER", strides=[2, 2])  # fmt: skip
case("ConvTranspose", [normal(2, 4, 5), normal(4, 3, 3), normal(3)],
     lambda x, w, b: F.conv_transpose1d(x, w, b, 2, 1, 1), "1d",
     strides=[2], pads=[1, 1], output_padding=[1])  # fmt: skip
case("ConvTranspose", [normal(2, 4, 5, 4), normal(4, 3, 3, 2), normal(6)],
     lambda x, w, b: F.conv_transpose2d(x, w, b, (2, 1), (1, 0), (1, 0), 2, (1, 2)), "2d",
     strides=[2, 1], pads=[1, 0, 1, 0], output_padding=[1, 0], group=2,
     dilations=[1, 2])  # fmt: skip
case("ConvTranspose", [normal(1, 2, 3, 3, 3), normal(2, 2, 2, 2, 2)],
     lambda x, w: F.conv_transpose3d(x, w, None, 2), "3d", strides=[2, 2, 2])  # fmt: skip

case("MaxPool", [normal(2, 3, 8, 9)], lambda x: F.max_pool2d(x, 3, 2, 1), kernel_shape=[3, 3],
     strides=[2, 2], pads=[1] * 4)  # fmt: skip
case("MaxPool", [normal(2, 3, 9)], lambda x: F.max_pool1d(x, 2, 2, 0, 1, True), "1d",
     kernel_shape=[2], strides=[2], ceil_mode=1)  # fmt: skip
case("MaxPool", [normal(1, 2, 5, 5, 6)], lambda x: F.max_pool3d(x, 2), "3d",
     kernel_shape=[2, 2, 2], strides=[2, 2, 2])  # fmt: skip
case("AveragePool", [normal(2, 3, 8, 9)],
     lambda x: F.avg_pool2d(x, 3, 2, 1, count_include_pad=False),
     kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4)  # fmt: skip
case("AveragePool", [normal(2, 3, 9)], lambda x: F.avg_pool1d(x, 3, 1, 1), "1d",
     kernel_shape=[3], pads=[1, 1], count_include_pad=1)  # fmt: skip
case("GlobalAveragePool", [normal(2, 3, 4, 5)], lambda x: x.mean((2, 3), keepdim=True))
case("GlobalMaxPool", [normal(2, 3, 4, 5)], lambda x: x.amax((2, 3), keepdim=True))

STATISTICS = np.zeros(3, "float32"), np.ones(3, "float32")
case("BatchNormalization", [normal(4, 3, 5), positive(3), normal(3), *STATISTICS],
     lambda x, g, b, m, v: F.batch_norm(x, None, None, g, b, True), outputs=3,
     training_mode=1)  # fmt: skip
case("InstanceNormalization", [normal(2, 3, 4, 5), positive(3), normal(3)],
     lambda x, g, b: F.instance_norm(x, None, None, g, b))  # fmt: skip
case("LayerNormalization", [normal(2, 3, 4), positive(3, 4), normal(3, 4)],
     lambda x, g, b: F.layer_norm(x, (3, 4), g, b), axis=1)  # fmt: skip
case("GroupNormalization", [normal(2, 6, 4), positive(6), normal(6)],
     lambda x, g, b: F.group_norm(x, 3, g, b), num_groups=3)  # fmt: skip
case("LRN", [normal(2, 7, 4, 3)], lambda x: F.local_response_norm(x, 3, 0.5, 0.75, 1.5),
     size=3, alpha=0.5, beta=0.75, bias=1.5)  # fmt: skip
case("LpNormalization", [normal(3, 4)], lambda x: F.normalize(x, 2, 1), axis=1, p=2)
case("LpNormalization", [normal(3, 4)], lambda x: F.normalize(x, 1, 0), "1", axis=0, p=1)

case("Concat", [normal(2, 3), normal(2, 1)], lambda a, b: torch.cat([a, b], 1), axis=1)
case("Split", [normal(2, 6), ints(2, 4)], lambda x: x[:, :2], outputs=2, axis=1)
case("Slice", [normal(5, 6), ints(4, 1), ints(0, 6), ints(0, 1), ints(-2, 2)],
     lambda x: x[[4, 2]][:, 1:6:2])  # fmt: skip
case("Gather", [normal(4, 5), ints(3, 0, 3)], lambda x: x[:, [3, 0, 3]], axis=1)
WHERE = RNG.integers(0, 4, (2, 5))
case("GatherElements", [normal(4, 5), WHERE], lambda x: x.gather(0, torch.tensor(WHERE)), axis=0)
case(
    "GatherND",
    [normal(4, 5, 2), np.array([[0, 1], [3, 4], [0, 1]])],
    lambda x: x[[0, 3, 0], [1, 4, 1]],
)
case("ScatterElements", [normal(4, 5), WHERE, normal(2, 5)],
     lambda x, u: x.scatter_add(0, torch.tensor(WHERE), u), axis=0, reduction="add")  # fmt: skip
ROWS = np.array([[2], [0]])
case("ScatterND", [normal(4, 5), ROWS, normal(2, 5)],
     lambda x, u: x.index_put((torch.tensor([2, 0]),), u))  # fmt: skip
case("TopK", [normal(3, 6), ints(2)], lambda x: x.topk(2, 1)[0], outputs=2, axis=1)
case("CumSum", [normal(3, 4), np.array(1)], lambda x: x.flip(1).cumsum(1).flip(1), reverse=1)

case("Reshape", [normal(2, 6), ints(3, -1)], lambda x: x.reshape(3, 4))
case("Flatten", [normal(2, 3, 4)], lambda x: x.reshape(6, 4), axis=2)
case("Squeeze", [normal(2, 1, 3), ints(1)], lambda x: x[:, 0])
case("Unsqueeze", [normal(2, 3), ints(1)], lambda x: x[:, None])
case("Expand", [normal(3, 1), ints(2, 3, 4)], lambda x: x.expand(2, 3, 4))
case("Tile", [normal(2, 3), ints(2, 2)], lambda x: x.tile(2, 2))
case("Transpose", [normal(2, 3, 4)], lambda x: x.permute(2, 0, 1), perm=[2, 0, 1])
WIDTHS = ints(0, 0, 1, 2, 0, 0, 2, 1)
for mode, theirs in (("constant", "constant"), ("reflect", "reflect"), ("edge", "replicate")):
    case("Pad", [normal(2, 1, 4, 5), WIDTHS],
         lambda x, mode=theirs: F.pad(x, (2, 1, 1, 2), mode), mode.title(), mode=mode)  # fmt: skip
case("DepthToSpace", [normal(2, 8, 2, 3)], lambda x: F.pixel_shuffle(x, 2), blocksize=2, mode="CRD")
case("SpaceToDepth", [normal(1, 1, 4, 6)], lambda x: F.pixel_unshuffle(x, 2), blocksize=2)
case("Trilu", [normal(4, 5), np.array(1)], lambda x: x.triu(1))

SIZES = ints(1, 2, 7, 3)
NONE = np.zeros(0, "float32")
for mode, theirs in (("linear", "bilinear"), ("cubic", "bicubic")):
    case("Resize", [normal(1, 2, 4, 5), NONE, NONE, SIZES],
         lambda x, *_, mode=theirs: F.interpolate(x, (7, 3), mode=mode), mode.title(),
         mode=mode, coordinate_transformation_mode="pytorch_half_pixel")  # fmt: skip
case("Resize", [normal(1, 2, 7, 6), NONE, NONE, ints(1, 2, 3, 4)],
     lambda x, *_: F.interpolate(x, (3, 4), mode="bilinear", antialias=True), "Antialias",
     mode="linear", antialias=1, exclude_outside=1)  # fmt: skip
case("Resize", [normal(1, 2, 4, 5), NONE, np.array([1, 1, 2, 3], "float32")],
     lambda x, *_: F.interpolate(x, scale_factor=(2.0, 3.0)), "Nearest", mode="nearest",
     coordinate_transformation_mode="asymmetric", nearest_mode="floor")  # fmt: skip

LABELS, WEIGHTS = np.array([0, 2, 1, 2]), positive(3)
case("SoftmaxCrossEntropyLoss", [normal(4, 3), LABELS, WEIGHTS],
     lambda x, *_: F.cross_entropy(x, torch.tensor(LABELS), torch.tensor(WEIGHTS), ignore_index=1),
     ignore_index=1)  # fmt: skip
case("NegativeLogLikelihoodLoss", [normal(4, 3), LABELS],
     lambda x: F.nll_loss(x, torch.tensor(LABELS), reduction="none"), reduction="none")  # fmt: skip


def recurrent(kind, order, name, **attrs):
    """PyTorch's module on ONNX's weights: the blocks of its gates are in another order."""
    blocks, hidden, features = len(order), 4, 3
    x, w = normal(3, 2, features), normal(2, blocks * hidden, features)
    r, b = normal(2, blocks * hidden, hidden), normal(2, 2 * blocks * hidden)
    module = kind(features, hidden, bidirectional=True)

    def turned(t):
        return torch.cat([t[g * hidden : (g + 1) * hidden] for g in order])

    def run(x, w, r, b):
        parameters = {}
        for d, end in enumerate(("", "_reverse")):
            first, second = b[d].chunk(2)
            parameters |= {
                f"weight_ih_l0{end}": turned(w[d]),
                f"weight_hh_l0{end}": turned(r[d]),
                f"bias_ih_l0{end}": turned(first),
                f"bias_hh_l0{end}": turned(second),
            }
        y = functional_call(module, parameters, (x,))[0]
        return y.reshape(3, 2, 2, hidden).transpose(1, 2)

    attrs |= {"hidden_size": hidden, "direction": "bidirectional"}
    case(name, [x, w, r, b], run, outputs=2, **attrs)


recurrent(nn.RNN, [0], "RNN")
recurrent(nn.GRU, [1, 0, 2], "GRU", linear_before_reset=1)
recurrent(nn.LSTM, [0, 2, 3, 1], "LSTM")


def main():
    numbers, rows = [], {}

    def stored(array):
        """Where in the one array of all float32 numbers it lies; whole numbers as they are."""
        if array.dtype != "float32":
            return {"kind": str(array.dtype), "data": array.tolist()}
        at = sum(map(len, numbers))
        numbers.append(array.ravel())
        return {"at": at, "shape": list(array.shape)}

    for name, (op, attrs, operands, function, outputs) in CASES.items():
        operands = [np.asarray(a) for a in operands]
        tensors = [torch.tensor(a, requires_grad=True) for a in operands if a.dtype == "float32"]
        y = function(*tensors)
        weights = RNG.normal(size=y.shape).astype("float32")
        found = iter(
            torch.autograd.grad((y * torch.tensor(weights)).sum(), tensors, allow_unused=True)
        )
        grads = [next(found) if a.dtype == "float32" else None for a in operands]
        rows[name] = {"op": op, "attrs": attrs, "outputs": outputs}
        rows[name] |= {"y": stored(y.detach().numpy()), "weights": stored(weights)}
        rows[name]["operands"] = [stored(a) for a in operands]
        rows[name]["grads"] = [None if g is None else stored(g.numpy()) for g in grads]
    path = Path(__file__).parent / "torch_ops.npz"
    np.savez_compressed(path, numbers=np.concatenate(numbers), cases=json.dumps(rows))
    print(len(CASES), "cases")


if __name__ == "__main__":
    main()
