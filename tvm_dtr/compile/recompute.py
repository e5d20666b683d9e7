"""Cheap values that only the backward pass still reads are computed again inside of its kernels.

The normalized tensor that an activation reads, for example, costs a few additions and
multiplications for each element of the convolution's result, which the gradient of the
normalization keeps anyway. A kernel of the backward pass that reads the former can as well read
the latter: one tensor less is saved, no kernel more is run, and as many bytes are read. (Chen et
al., arXiv:1604.06174, drop the results of cheap ops for the same reason.) Partitioners of other
compilers find such values by a minimum cut of the joint graph of both passes, before they fuse.
Here kernels are known already, so that each value can be decided on its own, exactly, by what its
readers would read instead.

Results may differ in the last bits from those of kernels that were not joined: a compiler may
contract a product and a sum of one kernel.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tvm import relay

from tvm_dtr.relay_facts import arguments, called, name_of
from tvm_dtr.relay_graph import infer_function, substitute

from .opgraph import OpGraph, OpInfo
from .relay_walk import post_order, types_of

# What costs no more than reading its result would.
_CHEAP = frozenset(
    {
        *("add", "subtract", "multiply", "negative", "maximum", "minimum", "clip", "nn.relu"),
        *("nn.bias_add", "cast", "where", "abs", "sign", "copy", "divide", "logical_not"),
        *("greater", "greater_equal", "less", "less_equal", "equal", "not_equal"),
        *("expand_dims", "squeeze", "reshape", "broadcast_to"),
    }
)
_INJECTIVE, _REDUCTION, _FUSES_OUTPUTS = 2, 3, 4  # TVM's OpPatternKind; below 2: elementwise
_SMALL = 16  # a tensor of a sixteenth of another's bytes counts as nothing beside it
_MOST_CALLS = 24  # of a kernel that is computed again
_LEAST_BYTES = 4096  # of a tensor that is worth another kernel to compile


def recompute_cheap(
    graph: OpGraph,
    primitives: list[relay.Function],
    kernel_of: Callable[[relay.Function], int],
) -> None:
    """Changes the readers of cheap tensors in place; ``graph`` is in execution order, without
    kills. Ops that nothing reads any more stay, without an instruction."""
    _Recompute(graph, primitives, kernel_of).run()


@dataclass
class _Reader:
    """Input ``index`` of op ``op``, which reads a tensor in the shape of view ``tensor``."""

    op: int
    index: int
    tensor: int


class _Recompute:
    def __init__(
        self,
        graph: OpGraph,
        primitives: list[relay.Function],
        kernel_of: Callable[[relay.Function], int],
    ) -> None:
        self.graph, self.primitives, self.kernel_of = graph, primitives, kernel_of
        self.at = {i: n for n, (kind, i) in enumerate(graph.instructions) if kind == "op"}
        self.readers: dict[int, list[_Reader]] = defaultdict(list)  # by storage
        for op in self.at:
            self._register(op)
        kept = [*graph.parameters, *graph.constants, *graph.results]
        self.kept = {graph.tensors[t].storage for t in kept}
        self.cheap: dict[int, bool] = {}  # by kernel
        self.joins: dict[tuple[int, int], bool] = {}  # by kernel and input
        self.composed: dict[tuple[Any, ...], int] = {}

    def run(self) -> None:
        for op in sorted(self.at, key=self.at.__getitem__):
            late = self._worth(op)
            for reader in late:
                self._join(op, reader)
            if late:
                storage = self._storage(self.graph.ops[op].outputs[0])
                self.readers[storage] = [r for r in self.readers[storage] if r not in late]

    def _register(self, op: int) -> None:
        for index, tensor in enumerate(self.graph.ops[op].inputs):
            self.readers[self._storage(tensor)].append(_Reader(op, index, tensor))

    def _storage(self, tensor: int) -> int:
        return self.graph.tensors[tensor].storage

    def _worth(self, op: int) -> list[_Reader]:
        """The readers that should compute the op's result themselves; none if that does not pay."""
        info = self.graph.ops[op]
        storage = self._storage(info.outputs[0])
        if len(info.outputs) != 1 or storage in self.kept or not self._is_cheap(info):
            return []
        if self._bytes(storage) < _LEAST_BYTES:
            return []
        readers = self.readers[storage]
        stay = [r for r in readers if not self._may_join(r)]
        last = max((self.at[r.op] for r in stay), default=self.at[op])
        late = [r for r in readers if self.at[r.op] > last]
        end = max((self.at[r.op] for r in late), default=last)
        if 2 * (end - last) <= end - self.at[op]:
            return []  # it would be there for most of the time all the same
        size, leaves = self.graph.storages[storage], {self._storage(t) for t in info.inputs}
        longer = sum(self._bytes(s) for s in leaves if self._last_read(s) < end)
        more = self._more_bytes(late, leaves, size)
        if not stay and len(late) == len(readers):
            more -= size + sum(map(self._bytes, leaves))  # the op itself is not run any more
        pays = longer * _SMALL <= size and more * _SMALL <= size * len(late)
        return late if pays else []

    def _more_bytes(self, late: list[_Reader], leaves: set[int], size: int) -> int:
        """What the readers read more than now: the leaves that they do not read yet, less the
        tensor itself."""
        more = 0
        for op in {r.op for r in late}:
            known = {self._storage(t) for t in self.graph.ops[op].inputs}
            more += sum(self._bytes(s) for s in leaves - known) - size
        return more

    def _bytes(self, storage: int) -> int:
        return self.graph.storages[storage]

    def _last_read(self, storage: int) -> int:
        """Position until which a storage is there in any case."""
        if storage in self.kept:
            return len(self.graph.instructions)
        return max((self.at[r.op] for r in self.readers[storage]), default=-1)

    def _is_cheap(self, info: OpInfo) -> bool:
        if info.kernel not in self.cheap:
            primitive = self.primitives[info.kernel]
            plain = all(len(types_of(p)) == 1 for p in primitive.params)
            self.cheap[info.kernel] = plain and _is_cheap(primitive)
        return self.cheap[info.kernel]

    def _may_join(self, reader: _Reader) -> bool:
        key = self.graph.ops[reader.op].kernel, reader.index
        if key not in self.joins:
            primitive = self.primitives[key[0]]
            plain = all(len(types_of(p)) == 1 for p in primitive.params)
            self.joins[key] = plain and _reads_by_element(primitive, reader.index)
        return self.joins[key]

    def _join(self, op: int, reader: _Reader) -> None:
        """Makes the reader compute what op computes."""
        made, reads = self.graph.ops[op], self.graph.ops[reader.op]
        index = reads.inputs.index(reader.tensor)
        inputs = [t for i, t in enumerate(reads.inputs) if i != index]
        places = []
        for tensor in made.inputs:
            if tensor not in inputs:
                inputs.append(tensor)
            places.append(inputs.index(tensor))
        shape = self.graph.tensors[reader.tensor].shape
        key = (made.kernel, reads.kernel, index, shape, *places)
        if key not in self.composed:
            producer, consumer = self.primitives[made.kernel], self.primitives[reads.kernel]
            self.composed[key] = self.kernel_of(_composed(producer, consumer, index, shape, places))
        for tensor in set(reads.inputs):
            known = self.readers[self._storage(tensor)]
            known[:] = [r for r in known if r.op != reader.op]
        self.graph.ops[reader.op] = OpInfo(self.composed[key], inputs, reads.outputs, reads.source)
        self._register(reader.op)


def _pattern(call: relay.Call) -> int:
    pattern = called(call).get_attr("TOpPattern") if name_of(call) else None
    return 8 if pattern is None else int(pattern)


def _is_cheap(primitive: relay.Function) -> bool:
    """Whether a fused function costs a few instructions for each element of its result. What it
    does with much smaller tensors on the way does not count."""
    types = types_of(primitive.body)
    calls = [e for e in post_order(primitive.body) if isinstance(e, relay.Call)]
    if len(types) != 1 or not calls or len(calls) > _MOST_CALLS:
        return False
    size = _elements(primitive.body)
    return all(
        (name_of(call) in _CHEAP and _elements(call) <= size)
        or (_pattern(call) < _INJECTIVE and _elements(call) * _SMALL <= size)
        for call in calls
    )


def _reads_by_element(primitive: relay.Function, index: int) -> bool:
    """Whether each element of an input is read once or so, by what can compute it instead."""
    body = primitive.body
    if isinstance(body, relay.Tuple):
        return False
    variable = primitive.params[index]
    calls = [e for e in post_order(body) if isinstance(e, relay.Call)]
    anchored = any(_pattern(call) >= _FUSES_OUTPUTS for call in calls)
    if any(_pattern(call) > _FUSES_OUTPUTS for call in calls):
        return False
    depends = [variable]
    for call in calls:
        if not any(arg.same_as(d) for arg in arguments(call) for d in depends):
            continue
        pattern, grows = _pattern(call), _elements(call) > _elements(variable)
        if grows or pattern > _REDUCTION or (anchored and pattern >= _INJECTIVE):
            return False
        if pattern < _REDUCTION:
            depends.append(call)
    return True


def _elements(expr: Any) -> int:
    count = 1
    for extent in types_of(expr)[0][0]:
        count *= extent
    return count


def _composed(
    producer: relay.Function,
    consumer: relay.Function,
    index: int,
    shape: tuple[int, ...],
    places: list[int],
) -> relay.Function:
    """The consumer, computing its parameter ``index`` by the producer, whose parameters are those
    of the result at ``places``."""
    params = [p for i, p in enumerate(consumer.params) if i != index]
    count = max([*places, len(params) - 1]) + 1
    for number in range(len(params), count):
        shape_of, dtype = types_of(producer.params[places.index(number)])[0]
        params.append(relay.var(f"q{number}", shape=shape_of, dtype=dtype))
    binding = dict(zip(producer.params, (params[i] for i in places), strict=True))
    (value,) = substitute([producer.body], binding)
    if types_of(producer.body)[0][0] != shape:
        value = relay.reshape(value, shape)
    (body,) = substitute([consumer.body], {consumer.params[index]: value})
    return infer_function(relay.Function(params, body).with_attr("Primitive", 1))


def without_unused(graph: OpGraph, primitives: list[relay.Function]) -> list[relay.Function]:
    """Takes ops that nothing needs, and their tensors and kernels, out of a graph whose
    instructions are in order; the primitives that are left."""
    ops = [i for kind, i in graph.instructions if kind == "op"]
    if len(ops) == len(graph.ops):
        return primitives
    kernels = _numbers(graph.ops[op].kernel for op in sorted(ops))
    used = {
        t for i in graph.instructions for t in (*graph.tensors_read(i), *graph.tensors_defined(i))
    }
    tensors = _numbers(sorted({*used, *graph.parameters, *graph.constants, *graph.results}))
    storages = _numbers(sorted({graph.tensors[t].storage for t in tensors}))
    graph.storages = [graph.storages[s] for s in storages]
    graph.tensors = [
        graph.tensors[t]._replace(
            storage=storages[graph.tensors[t].storage], base=tensors.get(graph.tensors[t].base, -1)
        )
        for t in tensors
    ]
    numbers = _numbers(sorted(ops))
    graph.ops = [
        OpInfo(
            kernels[op.kernel],
            [tensors[t] for t in op.inputs],
            [tensors[t] for t in op.outputs],
            op.source,
        )
        for op in (graph.ops[i] for i in numbers)
    ]
    graph.kernels = [graph.kernels[k] for k in kernels]
    for name in ("parameters", "constants", "results"):
        setattr(graph, name, [tensors[t] for t in getattr(graph, name)])
    graph.instructions = [
        (kind, numbers[i] if kind == "op" else tensors[i]) for kind, i in graph.instructions
    ]
    return [primitives[k] for k in kernels]


def _numbers(items: Any) -> dict[int, int]:
    return {item: number for number, item in enumerate(dict.fromkeys(items))}
