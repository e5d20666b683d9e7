"""Faults made by hand, each a slip that somebody could make, that the tests must catch."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Fault:
    """One place in the sources with something wrong instead; ``before`` occurs there once.

    ``tests``: the Python tests that may catch it. Faults in C++ go through the core's tests
    (hand-derived decisions aside) first, those that are named in ``core`` before the others.
    """

    what: str
    file: str
    before: str
    after: str
    tests: tuple[str, ...] = (
        "test_runtime_model.py",
        "test_relay_vm_random.py",
        "test_soak.py",
        "test_relay_vm_budget.py",
    )
    core: tuple[str, ...] = (
        "test_runtime",
        "test_deallocation",
        "test_policies",
        "test_page_arena",
    )


_RUNTIME = "src/core/runtime.cc"
_MATERIALIZE = "src/core/materialize.cc"
_EVICTION = "src/core/eviction.cc"
_ARENA = "src/core/arena/page_arena.cc"
_VM = ("test_relay_vm_opcodes.py", "test_relay_vm_outputs.py", "test_relay_vm_budget.py")
_AD = ("test_autodiff.py", "test_autodiff_conv.py", "test_autodiff_ops.py")

FAULTS = (
    # the budget
    Fault(
        "the arena lets one page too many through",
        _ARENA,
        "  if (!Fits(bytes)) return false;\n  while",
        "  if (!Fits(bytes > 4096 ? bytes - 4096 : bytes)) return false;\n  while",
    ),
    Fault("shrinking keeps the cached pages", _ARENA, "    MakeRoom(0);\n", ""),
    Fault(
        "memory lent by the caller is given back twice over",
        _ARENA,
        "void PageArena::Discharge(uint64_t bytes) { active_ -= bytes; }",
        "void PageArena::Discharge(uint64_t bytes) { active_ -= 2 * bytes; }",
    ),
    Fault(
        "what a small block had is not free for another in its page",
        "src/core/arena/shared_pages.cc",
        "  Mark(id, static_cast<uint32_t>(start % page_ / unit_), units, true);\n",
        "",
    ),
    Fault(
        "neighbouring runs of addresses are not joined",
        "src/core/arena/extents.h",
        "if (previous->first + previous->second == start) {",
        "if (false) {",
    ),
    Fault(
        "the workspace is not reserved",
        _MATERIALIZE,
        "    workspace_ = TakeWorkspace(op.workspace_bytes, frame.op);",
        "",
    ),
    Fault(
        "the workspace is never given back",
        _MATERIALIZE,
        "  if (workspace_) GiveWorkspace();\n",
        "  workspace_ = Block();\n",
    ),
    Fault(
        "a refusal asks for too little",
        _EVICTION,
        "  uint64_t needed = arena_->active() + still_needed;",
        "  uint64_t needed = arena_->active() + still_needed / 2;",
    ),
    # locks, references, records
    Fault(
        "operands are not locked",
        _MATERIALIZE,
        "  graph_.storages_[id].locks++;\n  graph_.UpdateEvictable(id);",
        "  graph_.storages_[id].locks++;",
    ),
    Fault(
        "outputs are not locked while the workspace is found",
        _MATERIALIZE,
        "    Lock(t.storage);\n    locked_outputs_.push_back(t.storage);\n",
        "",
    ),
    Fault(
        "a failed op leaves its outputs in memory",
        _MATERIALIZE,
        "      graph_.storages_[s].resident = true;\n      FreeStorageBlock(s);\n",
        "      graph_.storages_[s].resident = true;\n",
    ),
    Fault(
        "what a failed kernel may have spoilt stays",
        _MATERIALIZE,
        "    if (started) tainted_ = locked_outputs_;\n",
        "",
    ),
    Fault(
        "a pinned output is written again",
        _MATERIALIZE,
        "      scratch_.push_back(AllocateWorkspace(s.bytes, frame.op));\n"
        "      output_data_.push_back(scratch_.back().data);",
        "      output_data_.push_back(s.block.data);",
        core=("test_faults", "fuzz_runtime"),
    ),
    Fault(
        "siblings that nobody wants stay",
        _MATERIALIZE,
        "    } else if (storage.refs == 0 && !WantedNow(frame, s)) {",
        "    } else if (false && !WantedNow(frame, s)) {",
    ),
    Fault(
        "what an op waits for is given back at once",
        _MATERIALIZE,
        "    } else if (storage.refs == 0 && !WantedNow(frame, s)) {",
        "    } else if (storage.refs == 0) {",
    ),
    Fault(
        "recomputation is not counted by the thrash guard",
        _MATERIALIZE,
        "    invocation_remat_ += op.cost;\n",
        "",
    ),
    Fault(
        "views of an evicted storage stay defined",
        _RUNTIME,
        "    graph_.tensors_[t].defined = false;",
        "    graph_.tensors_[t].defined = t != s.first_tensor;",
    ),
    Fault(
        "a view does not keep what it is a view of",
        _RUNTIME,
        "  graph_.tensors_[root].uses++;\n  Tell(",
        "  Tell(",
    ),
    Fault(
        "inputs of a recorded op may be forgotten",
        _RUNTIME,
        "    t.uses++;\n    // Constants",
        "    // Constants",
    ),
    Fault(
        "a dead op keeps its edges",
        _RUNTIME,
        "    }\n    for (EdgeId e : op.edges) graph_.RemoveEdge(e);\n",
        "    }\n",
    ),
    Fault(
        "a last reference does not evict",
        _RUNTIME,
        "  if (s.live && s.refs == 0) Unreferenced(storage);\n",
        "",
    ),
    # policies and search
    Fault(
        "the union keeps the smaller component's cost",
        "src/core/policies/components.cc",
        "  nodes_[a].cost += nodes_[b].cost;\n",
        "",
    ),
    Fault(
        "a recomputed storage stays in its component",
        "src/core/policies/components.cc",
        "  root.cost = std::max(0.0, root.cost - own_cost_[storage]);\n",
        "",
    ),
    Fault(
        "the heap trusts stale scores",
        "src/core/search/heap.h",
        "      if (tournament->Holds(top, line, c.since)) {\n        if (exact) return top;\n",
        "      {\n        return top;\n",
        core=("test_policies", "test_tournament"),
    ),
    Fault(
        "the heap forgets when a match is to be played again",
        "src/core/search/tournament.cc",
        "  if (matches_[1].until <= clock_) Advance(1);\n",
        "",
        core=("test_tournament",),
    ),
    Fault(
        "a candidate's age is not brought up to date",
        "src/core/graph.cc",
        "  if (s.evictable_index != kNone) evictable_[s.evictable_index].last_access = clock;\n",
        "",
    ),
    # the VM
    Fault(
        "if takes the wrong branch",
        "src/relay_vm/dispatch.cc",
        "  pc_ += equal ? in.if_op.true_offset : in.if_op.false_offset;",
        "  pc_ += equal ? in.if_op.false_offset : in.if_op.true_offset;",
        _VM,
    ),
    Fault(
        "a closure's captured values come after its arguments",
        "src/relay_vm/dispatch.cc",
        "  argument = 0;\n  const bool last_call",
        "  argument = closure->free_vars.size() > 1 ? 1 : 0;\n  const bool last_call",
        _VM,
    ),
    Fault(
        "a refused call leaves its outputs claimed",
        "src/relay_vm/kernel_call.cc",
        "    output_handles_[i]->storage->Unclaim();\n",
        "",
        _VM,
    ),
    Fault(
        "kills that come too early are carried out",
        "src/relay_vm/module_functions.cc",
        "  RepairLifetimes(executable.get());\n",
        "",
        ("test_relay_vm_lifetimes.py",),
    ),
    # gradients
    Fault(
        "the gradient of tanh has the wrong sign",
        "tvm_dtr/autodiff/elementwise.py",
        '"tanh": lambda x, y, dy, t: dy * (scalar(1, t) - y * y),',
        '"tanh": lambda x, y, dy, t: dy * (scalar(1, t) + y * y),',
        _AD,
    ),
    Fault(
        "a value that is read twice gets one of its two gradients",
        "tvm_dtr/autodiff/reverse.py",
        "    for term in others[1:]:\n        total = relay.add(total, term)\n",
        "",
        _AD,
    ),
    Fault(
        "fields of a tuple get each other's gradients",
        "tvm_dtr/autodiff/reverse.py",
        "                dy = self.total(expr, i)\n",
        "                dy = self.total(expr, len(expr.fields) - 1 - i)\n",
        _AD,
    ),
    Fault(
        "the step does not follow the momentum",
        "tvm_dtr/optim/sgd.py",
        "if self.nesterov else velocity",
        "if self.nesterov else gradient",
        ("test_optim.py",),
    ),
)
