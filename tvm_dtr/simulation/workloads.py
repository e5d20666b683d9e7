"""Synthetic training steps of any size, up to millions of ops, built from numpy arrays.

Sizes are in bytes, a unit being a page, so that arena and counting agree; costs in nanoseconds.
Every tensor is released after its last use but the results.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from .. import _core
from ..errors import UsageError
from .layers import Layer, LayerOp, stack
from .trace import Trace

UNIT_BYTES = 4096
INPUT = 0  # the pinned tensor that everything starts from
_OP, _KILL = 0, 2
# Costs of a chain and of what the theorems count are one microsecond each.
_UNIT_COST = 1000.0

_CONV, _CHEAP = 20_000.0, 1_000.0


@dataclass
class Step:
    """Ops in the order they run, op i making tensor ``first + i``: flat arrays of what they read.

    sizes: of all tensors, the pinned ones first, in units. inputs: tensor ids of all ops in a
    row, those of op i from ``starts[i]`` to ``starts[i + 1]``.
    """

    costs: np.ndarray
    sizes: np.ndarray
    inputs: np.ndarray
    starts: np.ndarray
    results: np.ndarray
    pinned: int = 1
    keep: np.ndarray = field(default_factory=lambda: np.empty(0, np.int64))

    def replay(self) -> _core.Replay:
        """The program to replay, with each tensor released after its last use."""
        ops = len(self.costs)
        outputs = np.arange(self.pinned, self.pinned + ops, dtype=np.uint32)
        readers = np.repeat(np.arange(ops), np.diff(self.starts))
        last_use = np.concatenate([np.full(self.pinned, -1), np.arange(ops)])
        np.maximum.at(last_use, self.inputs, readers)
        dies = np.ones(len(self.sizes), bool)
        dies[: self.pinned] = dies[self.results] = dies[self.keep] = False
        killed = np.flatnonzero(dies)
        when = np.concatenate([2 * np.arange(ops), 2 * last_use[killed] + 1])
        order = np.argsort(when, kind="stable")
        codes = np.concatenate([np.full(ops, _OP, np.uint8), np.full(len(killed), _KILL, np.uint8)])
        ids = np.concatenate([np.arange(ops), killed]).astype(np.uint32)
        return _core.Replay.from_arrays(
            costs=np.ascontiguousarray(self.costs, np.float64),
            sizes=(self.sizes * UNIT_BYTES).astype(np.uint64),
            inputs=self.inputs.astype(np.uint32),
            input_starts=self.starts.astype(np.uint64),
            outputs=outputs,
            output_starts=np.arange(ops + 1, dtype=np.uint64),
            pinned=list(range(self.pinned)),
            results=self.results.tolist(),
            codes=codes[order],
            ids=ids[order],
        )


def linear_chain(length: int) -> Trace:
    """``length`` layers forward and backward, all of one cost and size (paper, theorem 3.1)."""
    one = Layer(
        forward=[LayerOp(_UNIT_COST, 1, "in")], backward=[LayerOp(_UNIT_COST, 1, "g", "in")]
    )
    return _stacked(f"chain-{length}", one, length)


def residual_network(blocks: int) -> Trace:
    """Blocks of two convolutions with batch normalization and ReLU around a shortcut."""
    block = Layer(
        forward=[
            LayerOp(_CONV, 4, "in"),
            LayerOp(_CHEAP, 4, "f0"),
            LayerOp(_CONV, 4, "f1"),
            LayerOp(_CHEAP, 4, "f2", "in"),
        ],
        backward=[
            LayerOp(_CHEAP, 4, "g", "f3"),
            LayerOp(_CONV, 4, "b0"),
            LayerOp(_CONV, 1, "b0", "f1"),
            LayerOp(_CHEAP, 4, "b1", "f1"),
            LayerOp(_CONV, 1, "b3", "in"),
            LayerOp(_CONV, 4, "b3", "b0"),
        ],
    )
    return _stacked(f"resnet-{blocks}", block, blocks)


def transformer(layers: int) -> Trace:
    """Layers of attention and a feed-forward part, each around a shortcut."""
    layer = Layer(
        forward=[
            LayerOp(10_000.0, 3, "in"),
            LayerOp(4_000.0, 6, "f0"),
            LayerOp(_CHEAP, 6, "f1"),
            LayerOp(4_000.0, 1, "f2", "f0"),
            LayerOp(4_000.0, 1, "f3", "in"),
            LayerOp(13_000.0, 4, "f4"),
            LayerOp(_CHEAP, 4, "f5"),
            LayerOp(13_000.0, 1, "f6", "f4"),
        ],
        backward=[
            LayerOp(26_000.0, 4, "g", "f6"),
            LayerOp(_CHEAP, 4, "b0", "f5"),
            LayerOp(26_000.0, 1, "b1", "f4", "g"),
            LayerOp(8_000.0, 1, "b2", "f3"),
            LayerOp(8_000.0, 6, "b3", "f2", "f0"),
            LayerOp(_CHEAP, 6, "b4", "f2"),
            LayerOp(8_000.0, 3, "b5", "f0"),
            LayerOp(20_000.0, 1, "b6", "in", "b2"),
        ],
    )
    return _stacked(f"transformer-{layers}", layer, layers)


def recurrence(steps: int) -> Trace:
    """A recurrent cell unrolled in time: the weight gradient adds up from step to step."""
    cell = Layer(
        forward=[LayerOp(8_000.0, 4, "in"), LayerOp(_CHEAP, 1, "f0", "in")],
        backward=[
            LayerOp(_CHEAP, 4, "g", "f0"),
            LayerOp(8_000.0, 8, "b0", "in", "b1+"),
            LayerOp(8_000.0, 1, "b0"),
        ],
    )
    return _stacked(f"recurrence-{steps}", cell, steps)


def tree(depth: int) -> Trace:
    """A balanced binary tree of cells over ``2**depth`` leaves, forward and backward.

    Node k has children 2k + 1 and 2k + 2; parents' gradients go to both children.
    """
    nodes, inner = 2 ** (depth + 1) - 1, 2**depth - 1
    forward = np.arange(nodes)[::-1]  # children first
    tensor = np.empty(nodes, np.int64)
    tensor[forward] = 1 + np.arange(nodes)
    gradient = 1 + nodes + np.arange(nodes)  # parents first
    up = [[INPUT]] * (nodes - inner) + [
        [tensor[2 * k + 1], tensor[2 * k + 2]] for k in range(inner - 1, -1, -1)
    ]
    down = [[tensor[0]]] + [
        [gradient[(k - 1) // 2], tensor[4 * ((k - 1) // 2) + 3 - k]] for k in range(1, nodes)
    ]
    step = _ragged([*up, *down], np.full(2 * nodes, _UNIT_COST), np.full(2 * nodes + 1, 1))
    return Trace(f"tree-{depth}", step.replay())


def random_dag(ops: int, seed: int = 0, window: int = 64, fan_in: int = 3) -> Trace:
    """Ops that read 1 to ``fan_in`` of the last ``window`` tensors, or now and then any older one.

    Costs and sizes are log-uniform over two decades.
    """
    random = np.random.default_rng(seed)
    counts = random.integers(1, fan_in + 1, ops)
    starts = np.concatenate([[0], np.cumsum(counts)])
    reader = np.repeat(np.arange(ops), counts)
    reach = np.minimum(reader + 1, np.where(random.random(len(reader)) < 0.05, ops, window))
    inputs = reader - (random.random(len(reader)) * reach).astype(np.int64)
    costs = np.round(10.0 ** random.uniform(3, 5, ops))
    sizes = np.ceil(10.0 ** random.uniform(0, 2, ops + 1))
    step = Step(costs, sizes, inputs, starts, results=np.array([ops]))
    return Trace(f"dag-{ops}-{seed}", step.replay())


def adversary(nodes: int, budget_units: int, policy: str) -> Trace:
    """The graph of theorem 3.2: made to measure for a policy, it recomputes Omega(N^2 / B) ops.

    ``budget_units`` paths start at one pinned tensor. With one unit for that tensor and one for
    what an op makes, some path has nothing in memory at each moment: that path grows by a node.
    Found by replaying after each node, so for hundreds of nodes only. Run it with a budget of
    ``budget_units * UNIT_BYTES``.
    """
    paths: list[list[int]] = [[] for _ in range(budget_units)]
    reads: list[int] = []
    resident: set[int] = set()
    for node in range(1, nodes + 1):
        path = _shortest_evicted(paths, resident)
        reads.append(path[-1] if path else INPUT)
        path.append(node)
        replay = _fan(reads).replay()
        run = replay.run(
            budget=budget_units * UNIT_BYTES, policy=policy, thrash_limit=0, events=True
        )
        resident = _resident(run["events"])
    return Trace(f"adversary-{policy}-{nodes}", _fan(reads).replay(), thrash_limit=0)


def _shortest_evicted(paths: list[list[int]], resident: set[int]) -> list[int]:
    free = [path for path in paths if resident.isdisjoint(path)]
    return min(free, key=len)


def _fan(reads: list[int]) -> Step:
    """One unit op a node, all of them held to the end but none asked for."""
    ops = len(reads)
    return Step(
        np.full(ops, _UNIT_COST),
        np.ones(ops + 1),
        np.array(reads),
        np.arange(ops + 1),
        results=np.empty(0, np.int64),
        keep=np.arange(1, ops + 1),
    )


def _resident(events: list[tuple[str, int]]) -> set[int]:
    resident: set[int] = set()
    for kind, index in events:
        if kind in ("compute", "rematerialize"):
            resident.add(index + 1)
        else:
            resident.discard(index)
    return resident


def _stacked(name: str, layer: Layer, count: int) -> Trace:
    costs, sizes, inputs, starts, results = stack(layer, count)
    return Trace(name, Step(costs, sizes, inputs, starts, results).replay())


def _ragged(reads: list[list[int]], costs: np.ndarray, sizes: np.ndarray) -> Step:
    starts = np.concatenate([[0], np.cumsum([len(read) for read in reads])])
    inputs = np.concatenate([np.asarray(read) for read in reads])
    return Step(costs, sizes, inputs, starts, results=np.array([len(costs)]))


# Ops of a layer, forward and backward, by the name that a workload goes by.
_STACKED = {
    "chain": (linear_chain, 2),
    "resnet": (residual_network, 10),
    "transformer": (transformer, 16),
    "recurrence": (recurrence, 5),
}
WORKLOADS = (*_STACKED, "tree", "dag", "adversary")
FORM = (
    f"NAME:OPS with NAME one of {', '.join(WORKLOADS[:-1])}, dag:OPS:SEED, or "
    "adversary:OPS:PATHS:POLICY"
)
MOST_OPS = 10_000_000
MOST_ADVERSARY_OPS = 2_000  # it replays the whole after each op


def make_workload(text: str) -> Trace:
    """A workload by its name and size in ops, as ``tvm-dtr simulate --workload`` takes it.

    ``chain:1000000``, ``tree:4000``, ``dag:1000:7`` (with a seed), ``adversary:96:6:lru`` (for the
    paths and the policy of theorem 3.2). Whole layers are made, so the ops are as many or a few
    less, and the loss.

    Raises:
        UsageError: no such workload, or the numbers are none.
    """
    name, *rest = text.split(":")
    try:
        trace = _make(name, rest)
    except (ValueError, IndexError) as error:
        raise UsageError(f"workload '{text}': use {FORM}; {error}") from None
    trace.name = text.replace(":", "-")
    return trace


def _make(name: str, rest: list[str]) -> Trace:
    ops = _number(rest[0] if rest else "", MOST_OPS)
    extra = {"dag": 2, "adversary": 3}.get(name, 1)
    if len(rest) > extra or (name == "adversary" and len(rest) < extra):
        raise ValueError(f"{len(rest)} values were given")
    if name in _STACKED:
        make, layer = _STACKED[name]
        return make(max(ops // layer, 1))
    if name == "tree":  # 2**(depth + 2) - 2 ops
        return tree(max((ops + 2).bit_length() - 3, 0))
    if name == "dag":
        return random_dag(ops, seed=_number(rest[1], 2**63) if len(rest) > 1 else 0)
    if name == "adversary":
        if rest[2] not in _core.policies():
            raise ValueError(f"there is no policy '{rest[2]}'")
        return adversary(_number(rest[0], MOST_ADVERSARY_OPS), _number(rest[1], ops), rest[2])
    raise ValueError(f"there is no '{name}'")


def _number(text: str, most: int) -> int:
    if not text.isascii() or not text.isdigit() or not 0 < int(text) <= most:
        raise ValueError(f"'{text}' is not a number from 1 to {most}")
    return int(text)
