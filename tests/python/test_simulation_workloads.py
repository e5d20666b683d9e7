"""Synthetic workloads: their shape, counted by hand, and what the DTR paper's theorems say."""

import itertools
import math

import numpy as np
import pytest

from tvm_dtr.simulation import workloads
from tvm_dtr.simulation.layers import Layer, LayerOp, stack
from tvm_dtr.simulation.workloads import UNIT_BYTES, adversary, linear_chain


def test_two_layers_as_written_by_hand():
    layer = Layer(
        [LayerOp(5, 2, "in"), LayerOp(6, 3, "f0", "in")],
        [LayerOp(7, 1, "g", "f1"), LayerOp(8, 4, "b0", "in", "b0+")],
    )
    costs, sizes, inputs, starts, results = stack(layer, 2)
    # 0 the input; 1 2 and 3 4 forward; 5 the loss; 6 7 backward of layer 1, 8 9 of layer 0
    assert costs.tolist() == [5, 6, 5, 6, 1, 7, 8, 7, 8]
    assert sizes.tolist() == [1, 2, 3, 2, 3, 1, 1, 4, 1, 4]
    reads = [inputs[a:b].tolist() for a, b in itertools.pairwise(starts)]
    assert reads == [[0], [1, 0], [2], [3, 2], [4], [5, 4], [6, 2, 5], [7, 2], [8, 0, 6]]
    assert results.tolist() == [9]


@pytest.mark.parametrize(
    ("trace", "ops"),
    [
        (linear_chain(50), 101),
        (workloads.residual_network(10), 101),
        (workloads.transformer(10), 161),
        (workloads.recurrence(20), 101),
        (workloads.tree(5), 126),
        (workloads.random_dag(200, seed=4), 200),
    ],
    ids=lambda value: getattr(value, "name", None),
)
def test_each_workload_runs_and_gains_from_eviction(trace, ops):
    free = trace.replay.run()
    assert (free["result"], free["calls"], free["evictions"]) == ("ok", ops, 0)
    tight = trace.replay.run(budget=int(0.7 * free["peak_bytes"]))
    assert tight["result"] == "ok"
    assert tight["peak_bytes"] <= 0.7 * free["peak_bytes"]
    assert tight["evictions"] > 0


def test_a_chain_releases_everything_after_its_last_use():
    n = 30
    run = linear_chain(n).replay.run()
    assert run["peak_bytes"] == (n + 2) * UNIT_BYTES  # x, every layer and the loss's gradient
    assert run["eager_evictions"] + run["pinned_bytes"] // UNIT_BYTES == 2 * n + 2


# Theorem 3.1: with 2 sqrt(N) units, O(N) ops by the scores that see the neighbourhood. By age
# alone the work grows with sqrt(N) times N.
@pytest.mark.parametrize("length", [100, 400, 1600])
def test_linear_chain_under_square_root_memory(length):
    replay = linear_chain(length).replay
    budget = math.ceil(2 * math.sqrt(length)) * UNIT_BYTES
    work = {
        policy: replay.run(budget=budget, policy=policy, thrash_limit=0)["rematerializations"]
        for policy in ("dtr", "dtr-eq", "dtr-up", "lru", "dtr-local")
    }
    assert work["dtr"] <= 1.1 * length
    assert work["dtr-eq"] <= 1.1 * length
    assert work["dtr-up"] <= 1.1 * length
    assert work["lru"] > 0.2 * math.sqrt(length) * length
    assert work["dtr-local"] > 0.2 * math.sqrt(length) * length


# Theorem 3.2: with B paths, growing one whose nodes are all evicted each time, the work is at
# least the sum of the paths' lengths: about N^2 / (2 B).
@pytest.mark.parametrize("policy", ["dtr-eq", "dtr", "dtr-up", "lru", "size", "msps"])
def test_the_adversary_beats_every_policy(policy):
    nodes, budget = 96, 6
    trace = adversary(nodes, budget, policy)
    run = trace.replay.run(budget=budget * UNIT_BYTES, policy=policy, thrash_limit=0)
    assert run["result"] == "ok"
    assert run["rematerializations"] >= nodes**2 / (2 * budget) - nodes
    assert run["rematerializations"] > 5 * nodes


def test_a_seed_makes_one_dag():
    runs = [workloads.random_dag(300, seed=seed).replay.run(events=True) for seed in (1, 1, 2)]
    assert runs[0] == runs[1]
    assert runs[0] != runs[2]


def test_a_million_ops_are_built_from_arrays():
    replay = linear_chain(500_000).replay
    assert replay.largest_op_bytes() == 3 * UNIT_BYTES
    assert replay.constant_bytes() == UNIT_BYTES


def test_ops_name_only_earlier_tensors():
    *_, inputs, starts, _ = stack(Layer([LayerOp(1, 1, "in")], [LayerOp(1, 1, "g", "in")]), 9)
    reader = np.repeat(np.arange(len(starts) - 1), np.diff(starts))
    assert (inputs <= reader).all()
