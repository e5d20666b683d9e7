"""A linear chain, forward and backward, as an OpGraph."""

from tvm_dtr.compile.opgraph import Kernel, OpGraph, OpInfo, TensorInfo


def chain_graph(length=8, unit=4096):
    """x -> f1 ... fN, then b_i = B(b_{i+1}, f_i), all of one cost and size."""
    ops, order = [], []
    for i in range(1, length + 1):
        order.append(("op", len(ops)))
        ops.append(OpInfo(0, [i - 1], [i], ""))
    for i in range(length, 0, -1):
        order.append(("op", len(ops)))
        inputs = [i] if i == length else [length + i + 1, i]
        ops.append(OpInfo(0, inputs, [length + i], ""))
        order += [("kill", length + i + 1)] if i < length else []
        order.append(("kill", i))
    count = 2 * length + 1
    return OpGraph(
        kernels=[Kernel("f", 1.0, 0)],
        storages=[unit] * count,
        tensors=[TensorInfo(i, (unit // 4,), "float32", -1) for i in range(count)],
        ops=ops,
        parameters=[0],
        results=[length + 1],
        instructions=order,
    )
