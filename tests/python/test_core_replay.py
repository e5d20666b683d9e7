"""The replay of small op graphs; decisions derived by hand in tests/core/test_golden.cc."""

import pytest

from tvm_dtr import _core

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
        assert replay.run(budget=6 * UNIT, policy=policy)["result"] == "ok"
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
