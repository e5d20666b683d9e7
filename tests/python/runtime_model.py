"""The DTR runtime once more, in plain Python from the paper (Kirisame et al., ICLR 2021, section 3
and appendix C), for comparison: slow, everything searched anew, nothing kept that can be derived.

What the paper leaves open is as docs/decisions.md has it: all operands of a pending op are locked
and touched at once, a recomputed storage keeps the time it was asked for, unheld siblings are given
back at once, records go with their last need, ties go to what became evictable first.
"""

from __future__ import annotations

from dataclasses import dataclass, field

TINY = 1e-3


class OutOfMemory(Exception):
    pass


@dataclass
class Storage:
    size: int
    cost: float = 0.0
    last_access: float = 0.0
    computed: bool = False
    resident: bool = False
    locks: int = 0
    pinned: bool = False
    forgotten: bool = False
    evictable_since: int | None = None


@dataclass
class Component:
    """A class of the equivalence relation of appendix C. It never splits."""

    cost: float = 0.0
    members: set[int] = field(default_factory=set)


class Model:
    """One step of a program: see _core.Replay for its parts. One op fills one storage."""

    def __init__(self, kernels, storages, tensors, ops, pinned, results, instructions):
        self.costs = [kernels[kernel][0] for kernel, _, _ in ops]
        self.storages = [Storage(size) for size in storages]
        self.storage_of = [storage for storage, _ in tensors]
        self.base = [base for _, base in tensors]
        self.ops, self.constants, self.results = ops, pinned, results
        self.instructions = instructions
        self.producer = {out: op for op, (_, _, outs) in enumerate(ops) for out in outs}
        self.refs = [0] * len(tensors)
        self.detached, self.recorded = set(), []
        self.components, self.component = [], {}
        self.clock, self.events, self.ticks = 0.0, [], 0

    def run(self, budget, policy):
        self.budget, self.policy = budget, policy
        for t in self.constants:
            self.make_constant(t)
        try:
            for code, index in self.instructions:
                (self.call, self.view, self.release)[code](index)
            for t in self.results:
                self.pin(t)
        except OutOfMemory:
            return "oom"
        return "ok"

    # -- what the program does --------------------------------------------------------------------

    def make_constant(self, t):
        s = self.storages[self.storage_of[t]]
        self.make_room(s.size)
        s.computed = s.resident = s.pinned = True
        self.refs[t] = 1

    def call(self, op):
        for out in self.ops[op][2]:
            self.refs[out] = 1
        self.recorded.append(op)
        self.execute(op, first=True)

    def view(self, t):
        self.refs[t] = 1

    def release(self, t):
        if t in self.constants:
            return
        self.refs[t] -= 1
        self.forget_what_nobody_needs()
        index = self.storage_of[t]
        if not self.storages[index].forgotten and not self.held(index):
            self.evict(index, "free")

    def pin(self, t):
        root = self.root(t)
        index = self.storage_of[root]
        if not self.storages[index].resident:
            self.execute(self.producer[root], wanted=index)
        if root in self.constants or root in self.detached:
            return
        self.detached.add(root)
        self.storages[index].pinned = True
        self.update_evictable(index)
        self.forget_what_nobody_needs()

    # -- running ----------------------------------------------------------------------------------

    def execute(self, op, first=False, wanted=None, consumer=None):
        _, inputs, outputs = self.ops[op]
        operands = [self.storage_of[t] for t in inputs]
        for index in operands:
            self.storages[index].last_access = self.clock
        for index in operands:
            self.lock(index)
        for t, index in zip(inputs, operands, strict=True):
            if not self.storages[index].resident:
                self.execute(self.producer[self.root(t)], consumer=op)
        fresh = self.allocate(outputs)
        self.clock += self.costs[op]
        self.events.append(("compute" if first else "rematerialize", op))
        needed = (
            {self.storage_of[t] for t in self.ops[consumer][1]} if consumer is not None else set()
        )
        given_back = []
        for out in outputs:
            index = self.storage_of[out]
            s = self.storages[index]
            if first:
                s.last_access, s.cost, s.computed = self.clock, self.costs[op], True
            elif index in fresh and not self.held(index) and index not in needed | {wanted}:
                given_back.append(index)
            elif index in fresh:
                self.leave_component(index)
        for out in outputs:
            if out not in self.detached:
                self.unlock(self.storage_of[out])
        for index in given_back:
            self.storages[index].resident = False
            self.update_evictable(index)
        for index in operands:
            self.unlock(index)

    def allocate(self, outputs):
        """Memory for outputs that have none, and for a moment for those that the caller has."""
        fresh, taken = [], 0
        for out in outputs:
            index = self.storage_of[out]
            s = self.storages[index]
            if out in self.detached or not s.resident:
                self.make_room(s.size, taken)
                taken += s.size
            if out in self.detached:
                continue
            if not s.resident:
                fresh.append(index)
            self.lock(index)
        for index in fresh:
            self.storages[index].resident = True
        return fresh

    def make_room(self, size, taken=0):
        while taken + size + sum(s.size for s in self.storages if s.resident) > self.budget:
            candidates = [i for i, s in enumerate(self.storages) if s.evictable_since is not None]
            if not candidates:
                raise OutOfMemory
            latest = self.policy == "size"
            self.evict(
                max(
                    candidates,
                    key=lambda i: (
                        self.gain(i),
                        self.storages[i].evictable_since * (1 if latest else -1),
                    ),
                ),
                "evict",
            )

    def evict(self, index, kind):
        s = self.storages[index]
        if s.evictable_since is None:
            return
        s.resident = False
        self.update_evictable(index)
        self.events.append((kind, index))
        self.join_components(index)

    def lock(self, index):
        self.storages[index].locks += 1
        self.update_evictable(index)

    def unlock(self, index):
        self.storages[index].locks -= 1
        self.update_evictable(index)

    def update_evictable(self, index):
        s = self.storages[index]
        if not (s.resident and not s.pinned and s.locks == 0):
            s.evictable_since = None
        elif s.evictable_since is None:
            s.evictable_since = self.ticks
            self.ticks += 1

    # -- scores -----------------------------------------------------------------------------------

    def gain(self, index):
        """The reciprocal of the score that the policy evicts the least of."""
        s = self.storages[index]
        if self.policy == "size":
            return float(s.size)
        age = self.clock - s.last_access
        if self.policy == "lru":
            return age
        neighbours = {
            "dtr-local": lambda: 0.0,
            "dtr-eq": lambda: self.component_cost(index),
            "dtr": lambda: self.evicted_cost(index, 0) + self.evicted_cost(index, 1),
            "e-star": lambda: self.evicted_cost(index, 0) + self.evicted_cost(index, 1),
            "dtr-up": lambda: self.evicted_cost(index, 0),
            "msps": lambda: self.evicted_cost(index, 0),
        }[self.policy]()
        cost = max(s.cost + neighbours, TINY)
        if self.policy == "e-star":
            return 1 / cost
        return s.size / cost * (1.0 if self.policy == "msps" else age)

    def evicted(self, index):
        s = self.storages[index]
        return s.computed and not s.resident and not s.forgotten

    def next_to(self, index, direction):
        """Storages that `index` was made from (0) or that were made from it (1)."""
        found = set()
        for op in self.recorded:
            ends = [{self.storage_of[t] for t in side} for side in self.ops[op][1:]]
            if index in ends[1 - direction]:
                found |= ends[direction]
        return {i for i in found if i != index}

    def evicted_cost(self, index, direction):
        seen, pending = {index}, [index]
        while pending:
            for other in self.next_to(pending.pop(), direction):
                if other not in seen and self.evicted(other):
                    seen.add(other)
                    pending.append(other)
        return sum(self.storages[i].cost for i in seen - {index})

    def adjacent_components(self, index):
        around = self.next_to(index, 0) | self.next_to(index, 1)
        found = (self.component.get(i) for i in around if self.evicted(i))
        return {id(c): c for c in found if c is not None}.values()

    def component_cost(self, index):
        return sum(component.cost for component in self.adjacent_components(index))

    def join_components(self, index):
        joined = Component(self.storages[index].cost, {index})
        for other in self.adjacent_components(index):
            joined.cost += other.cost
            joined.members |= other.members
        for member in joined.members:
            self.component[member] = joined

    def leave_component(self, index):
        component = self.component.pop(index, None)
        if component is not None:
            component.members.discard(index)
            component.cost -= self.storages[index].cost

    # -- who needs what ---------------------------------------------------------------------------

    def root(self, t):
        return t if self.base[t] < 0 else self.base[t]

    def held(self, index):
        return any(n > 0 for t, n in enumerate(self.refs) if self.storage_of[t] == index)

    def forget_what_nobody_needs(self):
        """Ops none of whose outputs can be asked for again go, and storages without a record."""
        needed = {self.root(t) for t, n in enumerate(self.refs) if n > 0}
        alive = []
        for op in reversed(self.recorded):
            if any(out in needed and out not in self.detached for out in self.ops[op][2]):
                alive.append(op)
                needed |= {self.root(t) for t in self.ops[op][1]}
        self.recorded = alive[::-1]
        named = needed | {out for op in alive for out in self.ops[op][2]}
        kept = {self.storage_of[t] for t in named}
        for index, s in enumerate(self.storages):
            if s.computed and not s.forgotten and index not in kept:
                self.leave_component(index)
                s.forgotten, s.resident = True, False
                self.update_evictable(index)
