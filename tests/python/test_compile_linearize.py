"""tvm_dtr/compile/linearize.py: order, views, and one kill for each tensor."""

import pytest
from random_steps import as_step, random_step
from tvm import relay

from tvm_dtr.compile.fuse import fuse
from tvm_dtr.compile.linearize import linearize
from tvm_dtr.compile.opgraph import OpGraph, tensor_bytes


def graph_of(*results, params, segment_calls=None):
    step = as_step(relay.Function(list(params), relay.Tuple(list(results))))
    return linearize(fuse(step.function, segment_calls)).graph


def check_lifetimes(graph: OpGraph) -> None:
    """Each tensor is defined once, read while alive, and killed once unless it is a result."""
    alive, killed = set(graph.parameters), set()
    uses_left = {}
    for instruction in graph.instructions:
        for tensor in graph.tensors_read(instruction):
            uses_left[tensor] = uses_left.get(tensor, 0) + 1
    for kind, index in graph.instructions:
        if kind == "kill":
            assert index in alive and index not in killed
            assert uses_left.get(index, 0) == 0, "killed before its last use"
            alive.remove(index)
            killed.add(index)
            continue
        for tensor in graph.tensors_read((kind, index)):
            assert tensor in alive
            uses_left[tensor] -= 1
        for tensor in graph.tensors_defined((kind, index)):
            assert tensor not in alive and tensor not in killed
            alive.add(tensor)
        dead = {t for t in alive if not uses_left.get(t) and t not in graph.results}
        assert dead <= next_kills(graph, kind, index)
    assert alive == set(graph.results)
    made = {t for i in graph.instructions for t in graph.tensors_defined(i)}
    assert killed | alive == made | set(graph.parameters)


def next_kills(graph, kind, index):
    """The tensors killed right after an instruction."""
    at = graph.instructions.index((kind, index)) + 1
    kills = set()
    while at < len(graph.instructions) and graph.instructions[at][0] == "kill":
        kills.add(graph.instructions[at][1])
        at += 1
    return kills


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("segment_calls", [None, 5])
def test_lifetimes_of_random_steps(seed, segment_calls):
    step = random_step(seed, calls=30)
    check_lifetimes(linearize(fuse(step.function, segment_calls)).graph)


def test_chain_runs_in_order_and_kills_at_last_use():
    x = relay.var("x", shape=(4, 6))
    unused = relay.var("unused", shape=(3,))
    first = relay.nn.softmax(x)
    second = relay.nn.softmax(first)
    graph = graph_of(second, params=[x, unused])
    # tensors: 0 x, 1 unused, 2 first, 3 second
    assert graph.instructions == [
        ("kill", 1),
        ("op", 0),
        ("kill", 0),
        ("op", 1),
        ("kill", 2),
    ]
    assert graph.results == [3]
    assert [op.kernel for op in graph.ops] == [0, 0], "one primitive function for equal calls"
    assert graph.storages == [96, 12, 96, 96]


def test_results_run_in_field_order():
    x = relay.var("x", shape=(4, 6))
    graph = graph_of(relay.mean(x), relay.max(x), relay.nn.softmax(x), params=[x])
    assert [op.outputs for op in graph.ops] == [[r] for r in graph.results]


def test_reshapes_are_views_of_the_root():
    x = relay.var("x", shape=(4, 6))
    soft = relay.nn.softmax(x)
    flat = relay.reshape(soft, (24,))
    column = relay.expand_dims(relay.nn.softmax(relay.reshape(x, (2, 12))), 2)
    graph = graph_of(flat, column, params=[x])
    view = graph.tensors[graph.results[0]]
    assert view.base == graph.ops[0].outputs[0] and view.shape == (24,)
    assert view.storage == graph.tensors[view.base].storage
    assert graph.tensors[graph.results[1]].shape == (2, 12, 1)
    assert [kind for kind, _ in graph.instructions].count("view") == 3
    assert len(graph.ops) == 2


def test_multiple_outputs():
    x = relay.var("x", shape=(4, 6))
    parts = relay.split(relay.nn.softmax(x), 3, axis=1)
    soft = relay.nn.softmax(parts[1])
    graph = graph_of(soft, parts[0], params=[x])
    split = next(op for op in graph.ops if len(op.outputs) == 3)
    assert graph.results[1] == split.outputs[0]
    at = graph.instructions.index(("op", graph.ops.index(split)))
    assert ("kill", split.outputs[2]) in graph.instructions[at + 1 : at + 3], "never read"
    check_lifetimes(graph)


def test_repeated_result_and_parameter():
    x = relay.var("x", shape=(4, 6))
    soft = relay.nn.softmax(x)
    graph = graph_of(soft, x, soft, x, params=[x])
    assert graph.results == [1, 0, 1, 0]
    assert graph.instructions == [("op", 0)]


def test_json_round_trip():
    graph = linearize(fuse(random_step(4).function)).graph
    assert OpGraph.from_json(graph.to_json()) == graph


def test_tensor_bytes():
    assert tensor_bytes((3, 5), "bool") == 15
    assert tensor_bytes((), "float64") == 8
    assert tensor_bytes((2, 2), "bfloat16") == 8
