"""A binary Tree-LSTM over the tree that each step brings (Tai et al., ACL 2015, section 3.2)."""

from __future__ import annotations

import numpy as np
import onnx

from tvm_dtr.models.bodies import DOMAIN, INT64, Body, finish, last_is, value
from tvm_dtr.models.layers import LayerStack

NODES = "nodes"


def tree_lstm(
    *,
    batch: int | None,
    seed: int,
    features: int = 64,
    width: int = 128,
    classes: int = 5,
) -> onnx.ModelProto:
    """Inputs: ``x`` (nodes, N, features), of which leaves read their row; ``left`` and ``right``,
    the children of each node (a negative left one marks a leaf); ``root``. N trees of the same
    form are computed at once. Output: logits of the root.

    The tree is folded by the op TreeFold of the domain tvm_dtr, for ONNX has no recursion.
    """
    if batch is None:
        raise ValueError("the batch must be a number: the tree is what varies")
    stack, size = LayerStack(seed), [batch, width]
    scale = (1 / width) ** 0.5
    from_x = stack.embedding("leaf.weight", (features, 3 * width), (1 / features) ** 0.5)
    leaf_bias = stack.parameter("leaf.bias", np.zeros(3 * width))
    weight = stack.embedding("node.weight", (2 * width, 5 * width), scale)
    bias = stack.parameter("node.bias", np.zeros(5 * width))
    leaf = Body(stack)
    seen = leaf.add(leaf.node("MatMul", "leaf.product", ["row", from_x]), leaf_bias, "leaf.gates")
    i, o, g = leaf.nodes("Split", "leaf.split", [seen], 3, axis=1)
    cell = leaf.node("Mul", "leaf.cell", [_sigmoid(leaf, i), _tanh(leaf, g)])
    hidden = leaf.node("Mul", "leaf.hidden", [_sigmoid(leaf, o), _tanh(leaf, cell)])
    leaf_graph = leaf.graph(
        "leaf",
        [value("row", [batch, features])],
        [value(hidden, size), value(cell, size)],
    )
    node = Body(stack)
    both = node.concat(["left.h", "right.h"], "node.both")
    gates = node.add(node.node("MatMul", "node.product", [both, weight]), bias, "node.gates")
    i, o, g, fl, fr = node.nodes("Split", "node.split", [gates], 5, axis=1)
    kept = node.add(
        node.node("Mul", "node.left", [_sigmoid(node, fl), "left.c"]),
        node.node("Mul", "node.right", [_sigmoid(node, fr), "right.c"]),
        "node.kept",
    )
    new = node.node("Mul", "node.new", [_sigmoid(node, i), _tanh(node, g)])
    cell = node.add(kept, new, "node.cell")
    hidden = node.node("Mul", "node.hidden", [_sigmoid(node, o), _tanh(node, cell)])
    below = [value(f"{side}.{s}", size) for side in ("left", "right") for s in ("h", "c")]
    node_graph = node.graph("node", below, [value(hidden, size), value(cell, size)])
    root = stack.nodes(
        "TreeFold",
        "tree",
        ["root", "left", "right", "x"],
        2,
        domain=DOMAIN,
        leaf=leaf_graph,
        node=node_graph,
    )[0]
    stack.linear(root, "fc", width, classes)
    logits = last_is(stack, "logits")
    inputs = [
        value("x", [NODES, batch, features]),
        value("left", [NODES], INT64),
        value("right", [NODES], INT64),
        value("root", [], INT64),
    ]
    return finish(stack, "tree-lstm", inputs, [value(logits, [batch, classes])], [NODES], own=True)


def complete_tree(depth: int) -> dict[str, np.ndarray]:
    """``left``, ``right`` and ``root`` of the complete binary tree of 2^(depth+1) - 1 nodes."""
    inner, nodes = 2**depth - 1, 2 ** (depth + 1) - 1
    left = np.full(nodes, -1, np.int64)
    right = np.full(nodes, -1, np.int64)
    left[:inner] = 2 * np.arange(inner) + 1
    right[:inner] = left[:inner] + 1
    return {"left": left, "right": right, "root": np.int64(0)}


def random_tree(leaves: int, seed: int) -> dict[str, np.ndarray]:
    """``left``, ``right`` and ``root`` of a random tree: neighbours are joined in random order."""
    if leaves < 1:
        raise ValueError(f"a tree needs at least one leaf, got {leaves}")
    random = np.random.default_rng(seed)
    left, right = [-1] * leaves, [-1] * leaves
    row = list(range(leaves))
    while len(row) > 1:
        at = int(random.integers(0, len(row) - 1))
        left.append(row[at])
        right.append(row[at + 1])
        row[at : at + 2] = [len(left) - 1]
    return {
        "left": np.array(left, np.int64),
        "right": np.array(right, np.int64),
        "root": np.int64(row[0]),
    }


def _sigmoid(body: Body, x: str) -> str:
    return body.node("Sigmoid", f"{x}.sigmoid", [x])


def _tanh(body: Body, x: str) -> str:
    return body.node("Tanh", f"{x}.tanh", [x])
