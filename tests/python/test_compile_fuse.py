"""tvm_dtr/compile/fuse.py: segments, folding and what is dropped."""

import numpy as np
import pytest
import tvm
from random_steps import as_step
from tvm import relay

from tvm_dtr.compile.fuse import fuse
from tvm_dtr.compile.linearize import linearize
from tvm_dtr.errors import ModelError


def fused(*results, params, segment_calls=None):
    step = as_step(relay.Function(list(params), relay.Tuple(list(results))))
    return fuse(step.function, segment_calls)


def test_elementwise_chain_becomes_one_kernel():
    x = relay.var("x", shape=(4, 6))
    graph = linearize(fused(relay.tanh(relay.exp(x + x)), params=[x])).graph
    assert len(graph.ops) == 1


def test_segment_length():
    x = y = relay.var("x", shape=(4, 6))
    for _ in range(10):
        y = relay.nn.softmax(y)
    step = fused(y, params=[x], segment_calls=4)
    assert len(step.segments) == 3
    assert [len(s.inputs) for s in step.segments] == [1, 1, 1]
    assert len(linearize(step).graph.ops) == 10


def test_tuple_crosses_segments():
    x = relay.var("x", shape=(4, 6))
    parts = relay.split(relay.nn.softmax(x), 2, axis=1)
    first = relay.nn.softmax(parts[0])
    joined = relay.concatenate(parts, axis=1)
    step = fused(first, joined, params=[x], segment_calls=2)
    assert [len(s.outputs) for s in step.segments] == [2, 2]
    assert len(linearize(step).graph.results) == 2


def test_no_ops_are_dropped():
    x = relay.var("x", shape=(4, 6))
    same = relay.cast(relay.reshape(x, (4, 6)), "float32")
    step = fused(same, relay.nn.softmax(same), params=[x])
    graph = linearize(step).graph
    assert graph.results[0] == graph.parameters[0]
    assert len(graph.ops) == 1


def test_constants_fold_through_tuples():
    """A constant that passes a split folds as a whole, as in TVM's compiler: computed in part when
    building and in part by a kernel, its last bits could differ."""
    x = relay.var("x", shape=(2, 3))
    halves = relay.split(relay.const(np.arange(12, dtype="float32").reshape(2, 6)), 2, axis=1)
    swapped = relay.concatenate([halves[1], halves[0]], axis=1)
    graph = linearize(fused(relay.nn.softmax(x), swapped, halves[1], params=[x])).graph
    assert len(graph.ops) == 1 and len(graph.constants) == 2


def test_small_constants_fold():
    x = relay.var("x", shape=(4, 6))
    two = relay.const(np.full((1, 6), 2, "float32"))
    graph = linearize(fused(x * relay.sqrt(two * two), params=[x])).graph
    assert len(graph.ops) == 1 and len(graph.constants) == 1


def test_big_constants_do_not_fold():
    x = relay.var("x", shape=(64, 64))
    fill = relay.broadcast_to(relay.const(2.0), (64, 64))
    linear = linearize(fused(x * fill, params=[x]))
    assert len(linear.graph.ops) == 1 and linear.constants == []


def test_control_flow_is_refused():
    x = relay.var("x", shape=(4, 6))
    y = relay.If(relay.const(True), x, relay.tanh(x))
    with pytest.raises(ModelError, match="contains a Relay If"):
        fused(y, params=[x])


def test_dynamic_shape_is_refused():
    x = relay.var("x", shape=(relay.Any(), 6))
    function = relay.Function([x], relay.Tuple([relay.tanh(x)]))
    typed = relay.transform.InferType()(tvm.IRModule.from_expr(function))["main"]
    with pytest.raises(ModelError, match="expected a fixed shape"):
        linearize(fuse(typed))


def test_deep_graphs_need_no_recursion():
    """Far deeper than Python's recursion limit."""
    x = y = relay.var("x", shape=(2,))
    for _ in range(3000):
        y = relay.nn.softmax(y)
    graph = linearize(fused(y, params=[x])).graph
    assert len(graph.ops) == 3000 and len(graph.kernels) == 1
