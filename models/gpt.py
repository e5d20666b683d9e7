"""A decoder-only transformer (Radford et al., 2019: GPT-2, section 2.3)."""

from __future__ import annotations

import math

import numpy as np
import onnx
from onnx import TensorProto

from tvm_dtr.models.layers import LayerStack

SCALE = 0.02  # standard deviation of the weights
MASKED = -1e9  # added to the score of a later position; its weight becomes 0


def gpt(
    *,
    batch: int | None,
    seed: int,
    layers: int = 4,
    width: int = 128,
    heads: int = 4,
    context: int = 128,
    vocabulary: int = 256,
) -> onnx.ModelProto:
    """Tokens (N, context) in, logits (N, vocabulary, context) out: the next token at each place.

    GPT-2 itself has 12 layers of 768, 12 heads, 1024 positions and 50,257 tokens. The table of
    tokens is also the matrix of the last layer.
    """
    stack = LayerStack(seed)
    table = stack.embedding("wte.weight", (vocabulary, width), SCALE)
    places = stack.embedding("wpe.weight", (context, width), SCALE)
    x = stack.add(stack.node("Gather", "wte", [table, "x"], axis=0), places, "embedding")
    mask = stack.constant("mask", np.triu(np.full((context, context), MASKED), 1))
    # Weights that add to the residual stream are smaller, the more of them there are.
    residual = SCALE / math.sqrt(2 * layers)
    for index in range(layers):
        name = f"h{index}"
        y = stack.layer_norm(x, f"{name}.ln1", width)
        y = _attention(stack, y, f"{name}.attn", width, heads, mask)
        y = stack.matmul(y, f"{name}.attn.proj", width, width, scale=residual)
        x = stack.add(x, y, f"{name}.add1")
        y = stack.layer_norm(x, f"{name}.ln2", width)
        y = stack.gelu(stack.matmul(y, f"{name}.fc", width, 4 * width, scale=SCALE), f"{name}.gelu")
        y = stack.matmul(y, f"{name}.proj", 4 * width, width, scale=residual)
        x = stack.add(x, y, f"{name}.add2")
    x = stack.layer_norm(x, "ln", width)
    head = stack.node("Transpose", "head.weight", [table], perm=[1, 0])
    x = stack.node("MatMul", "head", [x, head])
    logits = stack.node("Transpose", "classes_first", [x], perm=[0, 2, 1])
    return stack.finish(
        "gpt",
        logits,
        input_shape=(context,),
        batch=batch,
        classes=vocabulary,
        positions=(context,),
        input_type=TensorProto.INT64,
    )


def _attention(stack: LayerStack, x: str, name: str, width: int, heads: int, mask: str) -> str:
    """Causal self-attention before its projection; head axis between batch and positions."""
    qkv = stack.matmul(x, f"{name}.qkv", width, 3 * width, scale=SCALE)
    q, k, v = stack.nodes("Split", f"{name}.split", [qkv], 3, axis=-1)
    shape = stack.constant(f"{name}.shape", np.array([0, 0, heads, width // heads]))
    q, k, v = (
        stack.node("Reshape", f"{name}.{part}.heads", [tensor, shape])
        for part, tensor in (("q", q), ("k", k), ("v", v))
    )
    q = stack.node("Transpose", f"{name}.q", [q], perm=[0, 2, 1, 3])
    k = stack.node("Transpose", f"{name}.k", [k], perm=[0, 2, 3, 1])
    v = stack.node("Transpose", f"{name}.v", [v], perm=[0, 2, 1, 3])
    scale = stack.constant(f"{name}.scale", math.sqrt(heads / width))
    scores = stack.node(
        "Mul", f"{name}.scaled", [stack.node("MatMul", f"{name}.scores", [q, k]), scale]
    )
    scores = stack.add(scores, mask, f"{name}.masked")
    weights = stack.node("Softmax", f"{name}.softmax", [scores], axis=-1)
    y = stack.node("MatMul", f"{name}.mix", [weights, v])
    y = stack.node("Transpose", f"{name}.positions", [y], perm=[0, 2, 1, 3])
    merged = stack.constant(f"{name}.merged", np.array([0, 0, width]))
    return stack.node("Reshape", f"{name}.join", [y, merged])
