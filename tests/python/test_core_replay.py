"""The replay of small op graphs; decisions derived by hand in tests/core/test_golden.cc."""

import numpy as np
import pytest

from tvm_dtr import _core
from tvm_dtr.replay import arena_for

UNIT = 4096
OP, VIEW, KILL = 0, 1, 2


def chain(length):
    """x -> f1 ... fN, then b_i = B(b_{i+1}, f_i); tensors 0 = x, f_i = i, b_i = N + i."""
    ops, instructions = [], []
    for i in range(1, length + 1):
        instructions.append((OP, len(ops)))
        ops.append((0, [i - 1], [i]))
    for i in range(length, 0, -1):
        instructions.append((OP, len(ops)))
        ops.append((0, [i] if i == length else [length + i + 1, i], [length + i]))
        if i < length:
            instructions.append((KILL, length + i + 1))
        instructions.append((KILL, i))
    count = 2 * length + 1
    return _core.Replay(
        kernels=[(1.0, 0)],
        storages=[UNIT] * count,
        tensors=[(i, -1) for i in range(count)],
        ops=ops,
        pinned=[0],
        results=[length + 1],
        instructions=instructions,
    )


def test_chain_as_derived_by_hand():
    replay = chain(8)
    free = replay.run()
    assert free["result"] == "ok"
    assert free["peak_bytes"] == 10 * UNIT  # x, f1..f8, b8
    tight = replay.run(budget=5 * UNIT, memory=True)
    assert (tight["evictions"], tight["rematerializations"]) == (7, 7)
    assert tight["slowdown"] == 1 + 7 / 16
    assert max(tight["memory"]) == tight["peak_bytes"] == 5 * UNIT


def test_smallest_budget_is_tried_and_bounded():
    replay = chain(8)
    smallest = replay.smallest_budget(tolerance=1)
    assert replay.lower_bound() == 4 * UNIT
    assert replay.lower_bound() <= smallest < replay.run()["peak_bytes"]
    assert replay.run(budget=smallest)["result"] == "ok"
    below = replay.run(budget=replay.lower_bound() - 1)
    assert below["result"] == "oom"
    assert below["needed_bytes"] > replay.lower_bound() - 1


def test_thrash_is_reported():
    assert chain(60).run(budget=5 * UNIT, thrash_limit=0.5)["result"] == "thrash"


def test_policies_are_known_by_name():
    replay = chain(8)
    for policy in _core.policies():
        arena = arena_for(policy, None)
        assert replay.run(budget=6 * UNIT, policy=policy, arena=arena)["result"] == "ok"
    with pytest.raises(ValueError, match=r"'window' chooses by address: it needs the arena best"):
        replay.run(policy="window")
    with pytest.raises(ValueError, match=r"unknown policy 'best': use one of dtr-eq"):
        replay.run(policy="best")


def test_same_seed_same_decisions():
    results = [chain(40).run(budget=12 * UNIT, policy="random", seed=3) for _ in range(2)]
    assert results[0] == results[1]


def test_bad_ids_are_refused():
    with pytest.raises(ValueError, match="op 0"):
        _core.Replay([(1.0, 0)], [8], [(0, -1)], [(0, [5], [0])], [], [], [(OP, 0)])
    with pytest.raises(ValueError, match="instruction"):
        _core.Replay([], [], [], [], [], [], [(7, 0)])


# x (pinned) -> op 0 -> y -> op 1 -> z, the result; y is let go of in between.
CHAIN = {
    "kernels": [(1.0, 0)],
    "storages": [UNIT] * 3,
    "tensors": [(0, -1), (1, -1), (2, -1)],
    "ops": [(0, [0], [1]), (0, [1], [2])],
    "pinned": [0],
    "results": [2],
    "instructions": [(OP, 0), (OP, 1), (KILL, 1)],
}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"instructions": [(OP, 1), (OP, 0)]}, "op 1 reads a tensor that is not there"),
        ({"instructions": [(OP, 0), (KILL, 1), (OP, 1)]}, "op 1 reads a tensor that is not"),
        ({"instructions": [(OP, 0), (OP, 1), (KILL, 1), (KILL, 1)]}, "references of a tensor that"),
        ({"instructions": [(OP, 0), (KILL, 1), (OP, 0)]}, "op 0 writes to a storage that is gone"),
        ({"instructions": [(OP, 0), (OP, 0)]}, "tensor 1 is made while it is there"),
        ({"instructions": [(OP, 0)]}, "result 2 is not there at the end"),
        ({"instructions": [(1, 1)]}, "view 1 is of a tensor that is not there"),
        ({"tensors": [(0, -1), (1, -1), (1, 2)]}, "tensor 2 is a view of itself"),
        ({"tensors": [(0, -1), (1, 2), (1, 1)]}, "tensor 1 is a view of itself"),
        ({"tensors": [(0, -1), (1, 0), (2, -1)]}, "a view of another storage than its own"),
        ({"tensors": [(0, -1), (0, -1), (2, -1)], "pinned": [0, 1]}, "shares its storage"),
        ({"storages": [UNIT, 2**59, 2**59]}, "storage 2 is too large"),
        ({"storages": [UNIT, UNIT, 2**64 - 1]}, "storage 2 is too large"),
        ({"kernels": [(1.0, 2**63)]}, "workspace of kernel 0 is too large"),
        ({"external": [0, 0]}, "external tensor 0 is not one pinned tensor"),
        ({"external": [1]}, "external tensor 1 is not one pinned tensor"),
        ({"next_state": [(1, 0)]}, "state 0 follows from no result"),
        ({"next_state": [(2, 1)]}, "state 1 is not one pinned tensor"),
        ({"next_state": [(2, 0), (2, 0)]}, "state 0 is not one pinned tensor"),
        ({"ops": [(0, [0], [1]), (0, [1, 1], [2])], "overwrites": [(1, 0)]}, "not pinned"),
    ],
)
def test_what_no_program_does_is_refused_before_it_is_replayed(change, message):
    assert _core.Replay(**CHAIN).run()["result"] == "ok"
    with pytest.raises(ValueError, match=message):
        _core.Replay(**{**CHAIN, **change})


def test_memory_of_the_run_alone_is_recorded():
    memory = chain(3).run(memory=True)["memory"]
    assert memory[-1] == 2 * UNIT  # x and the result; what the end frees is not of the step


def test_the_lower_bound_counts_memory_of_the_caller_as_it_is():
    program = {**CHAIN, "storages": [UNIT + 1, UNIT, UNIT], "external": [0]}
    replay = _core.Replay(**program)
    assert replay.lower_bound() == UNIT + 1 + 2 * UNIT
    assert replay.run(budget=replay.lower_bound())["result"] == "ok"


def test_a_result_that_is_another_parameter_becomes_both():
    program = {**CHAIN, "storages": [UNIT] * 4, "tensors": [*CHAIN["tensors"], (3, -1)]}
    program |= {"pinned": [0, 3], "results": [2, 3], "next_state": [(3, 0), (2, 3)]}
    assert _core.Replay(**program).run(steps=4)["result"] == "ok"


def test_deallocation_is_what_holds_memory_between_steps():
    replay = chain(8)
    peaks = {name: replay.run(dealloc=name)["peak_bytes"] for name in _core.deallocations()}
    # Eager and banished storages go in turn; ignored ones add up: x, f1..f8 and b1..b8.
    assert peaks == {"eager": 10 * UNIT, "banish": 10 * UNIT, "ignore": 17 * UNIT}
    banished = replay.run(dealloc="banish")
    # f8, which b8 read, and b8 ... b2, each read by the next; the reader of f7 ... f1 is gone by
    # the time they lose their references.
    assert banished["banishments"] == 8
    with pytest.raises(ValueError, match="unknown deallocation 'keep': use one of eager, banish"):
        replay.run(dealloc="keep")


def test_arrays_and_lists_make_the_same_program():
    ops = [([0], [1]), ([1], [2]), ([0, 2], [3])]

    def flat(index):
        runs = [op[index] for op in ops]
        starts = np.cumsum([0, *map(len, runs)], dtype=np.uint64)
        return np.array([t for run in runs for t in run], np.uint32), starts

    costs, sizes = np.array([3.0, 4.0, 5.0]), np.full(4, UNIT, np.uint64)
    order = [(OP, 0), (OP, 1), (KILL, 1), (OP, 2)]
    codes, ids = (
        np.array(column, dtype)
        for column, dtype in zip(zip(*order, strict=True), (np.uint8, np.uint32), strict=True)
    )
    large = _core.Replay.from_arrays(costs, sizes, *flat(0), *flat(1), [0], [3], codes, ids)
    small = _core.Replay(
        [(cost, 0) for cost in costs],
        [UNIT] * 4,
        [(i, -1) for i in range(4)],
        [(i, *op) for i, op in enumerate(ops)],
        [0],
        [3],
        order,
    )
    assert large.run(events=True) == small.run(events=True)
    with pytest.raises(ValueError, match="differ in length"):
        _core.Replay.from_arrays(costs[:2], sizes, *flat(0), *flat(1), [0], [3], codes, ids)
    inputs, _ = flat(0)
    with pytest.raises(ValueError, match="starts of op 1 are out of order"):
        _core.Replay.from_arrays(
            costs, sizes, inputs, np.array([0, 2, 1, 4], np.uint64), *flat(1), [0], [3], codes, ids
        )
