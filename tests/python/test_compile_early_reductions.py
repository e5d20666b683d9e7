"""tvm_dtr/compile/early_reductions.py: what frees memory does not wait for its result's turn."""

from random_steps import random_step
from test_compile_linearize import check_lifetimes, graph_of
from tvm import relay

from tvm_dtr.compile.early_reductions import run_reductions_early
from tvm_dtr.compile.fuse import fuse
from tvm_dtr.compile.linearize import linearize


def op_order(graph):
    return [index for kind, index in graph.instructions if kind == "op"]


def test_the_gradient_of_a_shared_parameter_does_not_hold_its_operands():
    x = relay.var("x", shape=(64, 64))
    first = relay.nn.softmax(x)
    second = relay.nn.softmax(first)  # asked for before the sum that reads `first`
    last = relay.sum(relay.nn.softmax(second), axis=[0, 1])
    total = relay.sum(first, axis=[0, 1])
    graph = graph_of(last, total, params=[x])
    check_lifetimes(graph)
    made_by = {t: i for i, op in enumerate(graph.ops) for t in op.outputs}
    order = op_order(graph)
    assert order.index(made_by[graph.results[1]]) < order.index(made_by[graph.results[0]])


def test_the_order_of_random_steps_stays_valid_and_does_not_move_twice():
    for seed in range(20):
        graph = linearize(fuse(random_step(seed, calls=30).function, 5)).graph
        check_lifetimes(graph)
        ops = [i for i in graph.instructions if i[0] != "kill"]
        graph.instructions = ops
        assert sorted(run_reductions_early(graph)) == sorted(ops)
