"""Random straight-line steps as OpGraphs: views, ops of several outputs, workspace, results."""

import random

from tvm_dtr.compile.opgraph import Kernel, OpGraph, OpInfo, TensorInfo


def random_graph(seed, ops=30):
    """Each op reads up to three of the latest tensors; sizes from 64 bytes to 256 KiB."""
    draw = random.Random(seed)
    graph = OpGraph()
    graph.kernels = [
        Kernel(f"k{i}", float(draw.randint(1, 50)), w) for i, w in enumerate((0, 5000, 64))
    ]

    def tensor(base=-1):
        if base < 0:
            graph.storages.append(draw.choice([64, 200, 3000, 20000, 256 << 10]))
            storage = len(graph.storages) - 1
        else:
            storage = graph.tensors[base].storage
        graph.tensors.append(TensorInfo(storage, (graph.storages[storage] // 4,), "float32", base))
        return len(graph.tensors) - 1

    graph.parameters = [tensor() for _ in range(2)]
    alive = list(graph.parameters)
    order = []
    for _ in range(ops):
        reads = draw.sample(alive[-8:], min(len(alive), draw.randint(1, 3)))
        outputs = [tensor() for _ in range(draw.choice([1, 1, 1, 2]))]
        graph.ops.append(OpInfo(draw.randrange(3), reads, outputs, ""))
        order.append(("op", len(graph.ops) - 1))
        alive += outputs
        if draw.random() < 0.2:
            alive.append(tensor(base=outputs[0]))
            order.append(("view", alive[-1]))
    read = {t for op in graph.ops for t in op.inputs}
    graph.results = [t for op in graph.ops for t in op.outputs if t not in read]
    graph.instructions = order
    from tvm_dtr.compile.linearize import with_kills

    graph.instructions = with_kills(graph)
    return graph
