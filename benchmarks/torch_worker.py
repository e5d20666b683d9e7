"""Trains an ONNX model of tvm_dtr.models in PyTorch eager: the other side of pytorch.py.

    python benchmarks/torch_worker.py MODEL.onnx BATCH.npz THREADS CLOCK

Needs torch, onnx and numpy, nothing of this project. CLOCK is a function of the module time. Says
"ready" and the loss of the first step; then runs one step for each line on standard input and
answers with its seconds. A step is what a user of PyTorch writes: forward, cross_entropy, backward,
SGD without momentum.
"""

from __future__ import annotations

import sys
import time

import numpy as np
import onnx
import torch
import torch.nn.functional as F
from onnx import helper, numpy_helper


class Model(torch.nn.Module):
    """Runs the nodes of an ONNX graph one by one; initializers are its parameters."""

    def __init__(self, graph: onnx.GraphProto) -> None:
        super().__init__()
        self.buffers_of, self.weights = {}, torch.nn.ParameterList()
        self.index = {}
        for tensor in graph.initializer:
            value = torch.from_numpy(numpy_helper.to_array(tensor).copy())
            if ".running_" in tensor.name:
                self.buffers_of[tensor.name] = value
            else:
                self.index[tensor.name] = len(self.weights)
                self.weights.append(torch.nn.Parameter(value))
        self.nodes, self.constants = [], {}
        for node in graph.node:
            attributes = {a.name: helper.get_attribute_value(a) for a in node.attribute}
            attributes["parts"] = len(node.output)
            if node.op_type == "Constant":
                self.constants[node.output[0]] = torch.from_numpy(
                    numpy_helper.to_array(attributes["value"]).copy()
                )
            else:
                run = globals()[f"run_{node.op_type}"]
                self.nodes.append((run, list(node.input), list(node.output), attributes))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        values = {"x": x, **self.constants, **self.buffers_of}
        for name, index in self.index.items():
            values[name] = self.weights[index]
        for run, inputs, outputs, attributes in self.nodes:
            result = run([values[name] for name in inputs], attributes)
            results = result if isinstance(result, (list, tuple)) else [result]
            values.update(zip(outputs, results, strict=False))
        return values["logits"]


def run_Conv(v, a):
    return F.conv2d(v[0], v[1], None, a["strides"], a["pads"][:2], 1, a.get("group", 1))


def run_ConvTranspose(v, a):
    return F.conv_transpose2d(v[0], v[1], None, a["strides"], a["pads"][:2])


def run_BatchNormalization(v, a):
    x, weight, bias, mean, var = v
    return F.batch_norm(x, mean, var, weight, bias, True, 1 - a["momentum"], a["epsilon"])


def run_LayerNormalization(v, a):
    return F.layer_norm(v[0], v[1].shape, v[1], v[2], a["epsilon"])


def run_MaxPool(v, a):
    return F.max_pool2d(v[0], a["kernel_shape"], a["strides"], a.get("pads", [0, 0])[:2])


def run_Gemm(v, a):
    return F.linear(v[0], v[1], v[2])


def run_Split(v, a):
    return torch.chunk(v[0], a["parts"], a["axis"])


def run_Squeeze(v, a):
    return torch.squeeze(v[0], int(v[1][0]))


def run_Reshape(v, a):
    given = v[1].tolist()
    return v[0].reshape([v[0].shape[i] if n == 0 else n for i, n in enumerate(given)])


def run_Gather(v, a):
    return F.embedding(v[1], v[0])


run_Relu = lambda v, a: F.relu(v[0])  # noqa: E731
run_Sigmoid = lambda v, a: torch.sigmoid(v[0])  # noqa: E731
run_Tanh = lambda v, a: torch.tanh(v[0])  # noqa: E731
run_Erf = lambda v, a: torch.erf(v[0])  # noqa: E731
run_Add = lambda v, a: v[0] + v[1]  # noqa: E731
run_Mul = lambda v, a: v[0] * v[1]  # noqa: E731
run_MatMul = lambda v, a: v[0] @ v[1]  # noqa: E731
run_Concat = lambda v, a: torch.cat(v, a["axis"])  # noqa: E731
run_Softmax = lambda v, a: torch.softmax(v[0], a["axis"])  # noqa: E731
run_Transpose = lambda v, a: v[0].permute(a["perm"])  # noqa: E731
run_Flatten = lambda v, a: torch.flatten(v[0], 1)  # noqa: E731
run_AveragePool = lambda v, a: F.avg_pool2d(v[0], 2, 2)  # noqa: E731
run_GlobalAveragePool = lambda v, a: F.adaptive_avg_pool2d(v[0], 1)  # noqa: E731


def main() -> None:
    path, batch, threads, clock_name = sys.argv[1:]
    clock = getattr(time, clock_name)
    torch.set_num_threads(int(threads))
    graph = onnx.load(path).graph
    model = Model(graph)
    arrays = np.load(batch)
    x, labels = torch.from_numpy(arrays["x"]), torch.from_numpy(arrays["labels"])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

    def step() -> float:
        optimizer.zero_grad(set_to_none=True)
        loss = F.cross_entropy(model(x), labels)
        loss.backward()
        optimizer.step()
        return float(loss.detach())

    print("ready", step(), flush=True)
    for _ in sys.stdin:
        start = clock()
        step()
        print(clock() - start, flush=True)


if __name__ == "__main__":
    main()
