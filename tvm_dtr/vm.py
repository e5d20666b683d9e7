"""The virtual machine that people use: a training step, or any Relay executable, under a budget."""

from __future__ import annotations

import json
import os
import time
import traceback
from collections.abc import Mapping
from typing import Any

import numpy as np

from .budget import Budget, parse_budget
from .errors import UsageError
from .kernel_library import export_kernels
from .measured_costs import AutoPolicy, mean_costs
from .memory import Memory
from .plugin import load_plugin
from .replay import Choice, arena_for, best_policy, choose_policy
from .step_inputs import check_inputs, check_state
from .vm_arguments import (
    budget_bytes,
    budget_code,
    check_arguments,
    check_policy,
    is_executable,
    is_memory_cfg,
    signed_seed,
)
from .vm_errors import error_of
from .vm_measurements import Measurements
from .vm_parameters import Parameters
from .vm_sizes import Sizes
from .vm_tracing import Tracing

os.environ.setdefault("TOPHUB_LOCATION", "NONE")
import tvm
from tvm.runtime import vm as tvm_vm


class VirtualMachine(Measurements, Sizes, Tracing, tvm_vm.VirtualMachine):
    """TVM's Relay VM with a hard memory budget (Dynamic Tensor Rematerialization).

    Args:
        program: a ``tvm_dtr.Program``, for ``step``; or a ``tvm.runtime.vm.Executable``, for all
            that ``tvm.runtime.vm.VirtualMachine`` does (``set_input``, ``invoke``, ``benchmark``).
        device: the device or devices; the CPU by default, and so far only the CPU.
        memory_budget: bytes, ``"512MiB"``, ``"40%"`` of the program's unbudgeted peak, or ``None``
            for no budget. Everything the VM holds counts: parameters, inputs, constants,
            activations, gradients, outputs and the kernels' workspace. Workspace counts for
            kernels in a shared library only; those that ``relay.vm.compile`` has left in memory
            are exported to one first (the same code, so the same bits), which takes a C++
            compiler. Without a budget they run as they are.
        in_place: updates write over the parameters and optimizer state that they replace, where
            that loses nothing; else old and new values are there together until the step ends.
        policy: what to evict first: ``dtr-eq``, ``dtr``, ``dtr-up``, ``dtr-local``, ``lru``,
            ``size``, ``msps``, ``e-star``, ``random``, ``window`` (needs the arena best-fit); or
            ``auto``, the one that a replay of the program under the budget finds best, chosen
            before the first step by the costs measured when building and again after each of the
            first two by the costs that these had (dtr-eq for a bare executable). ``plan`` or
            ``plan:PLANNER`` runs the first step by ``auto`` while a planner (anneal) looks for a
            schedule, which later steps follow; where no policy can run the first step, planning
            comes first: see docs/planning.md.
        seed: of the policies that draw lots.
        thrash_limit: stop when recomputation has cost more than this multiple of the step's own
            work; 0 never stops.
        arena: where memory comes from: ``paged`` (free memory is never too scattered to use) or
            ``best-fit`` (one range of addresses). None: paged, or best-fit where the policy is
            ``window``.
        memory_cfg: TVM's choice of an allocator, also as the third argument (``"naive"``,
            ``"pooled"`` or a dict): taken so that code for TVM's VM runs as it is, and without
            effect, for all memory comes from this VM's own arena.

    Raises:
        UsageError: the budget does not parse, the policy is unknown; or there is a budget and
            kernels in memory that cannot be exported; the program is no program, the seed no
            integer of 64 bits or the thrash limit negative.
        BudgetError: a step of the program cannot run under the budget; names the smallest that
            works.
    """

    def __init__(
        self,
        program: Any,
        device: Any = None,
        memory_budget: int | str | Budget | None = None,
        policy: str = "auto",
        seed: int = 0,
        thrash_limit: float = 10.0,
        memory_cfg: Any = None,
        arena: str | None = None,
        in_place: bool = True,
    ) -> None:
        if is_memory_cfg(memory_budget):  # TVM's third argument
            memory_budget, memory_cfg = None, memory_cfg or memory_budget
        check_arguments(program, seed, thrash_limit, memory_cfg)
        seed = int(seed)
        load_plugin()
        self._program = None if is_executable(program) else program
        if self._program is not None and not in_place:
            self._program = self._program.out_of_place()
        self._running = self._program  # of a SymbolicProgram: the one of the last step's sizes
        executable = program if self._program is None else program.executable
        if not isinstance(executable, tvm_vm.Executable):
            executable = tvm_vm.Executable(executable)
        self._attach(executable)
        budget = budget_bytes(parse_budget(memory_budget), self._program)
        #: With the policy ``plan``: the schedule that steps follow, and why they follow none.
        self.planned_steps: Any = None
        policy = self._plan_ahead(policy, budget, seed)
        check_policy(policy)
        #: Where memory comes from: ``paged`` or ``best-fit``.
        self.arena = arena_for(policy, arena)
        #: Why the policy was chosen; None where nothing was predicted.
        self.policy_choice: Choice | None = None
        self._auto: AutoPolicy | None = None
        self._seed = seed
        if budget is not None and self._program is not None and not self._program.control_flow:
            if policy == "auto":
                self._auto = AutoPolicy(self._program, budget, seed, thrash_limit, self.arena)
            self.policy_choice = self._choose(budget, policy, seed, thrash_limit)
            policy = "dtr-eq" if self.policy_choice is None else self.policy_choice.policy
        branches = self._program is not None and self._program.control_flow
        unpredicted = "dtr-up" if branches else "dtr-eq"
        self.policy = unpredicted if policy == "auto" else policy
        self._count_workspace(budget)
        limit = float(thrash_limit)
        self._call(
            "configure", budget_code(budget), self.policy, signed_seed(seed), limit, self.arena
        )
        self._setup_device([tvm.cpu()] if device is None else device, None)
        self._state: dict[str, Any] = {}
        self._chooses, self._thrash_limit = policy == "auto", limit
        self._steps = 0
        self._last: dict[str, Any] = {}
        self._started: float | None = None
        if self._program is not None:
            self._set_costs(self._program.graph)
            self.module["name_results"](*(r.name for r in self._program.results))
            self._mark_overwrites(self._program.graph)
            self.set_parameters(self._program.initial_state)
            if self.planned_steps is not None and self.policy_choice is None:
                self.wait_for_plan()

    def _choose(self, budget: int, policy: str, seed: int, thrash_limit: float) -> Choice | None:
        """What to run online; None where that cannot be and steps follow a plan from the first."""
        program = self._training_program()
        if self.planned_steps is not None:
            choice = best_policy(program.replay, budget, seed, thrash_limit, self.arena)
            if choice is not None or self.planned_steps.plan_now():
                return choice
        return choose_policy(program, budget, policy, seed, thrash_limit, self.arena)

    def _plan_ahead(self, policy: str, budget: int | None, seed: int) -> str:
        """The policy to run online; ``plan`` sets planned_steps up."""
        if not policy.startswith("plan"):
            return policy
        from .planned_steps import PlannedSteps, planner_of

        planner = planner_of(policy)
        if planner is None:
            return policy
        if self._program is None or self._program.control_flow:
            what = "an executable has none"
            if self._program is not None:
                what = f"this one has {self._program.unplanned}"
            raise UsageError(
                f"policy '{policy}' plans for programs of tvm_dtr.build, whose ops are known "
                f"ahead: {what}; run it with auto or another policy"
            )
        if budget is not None:
            self.planned_steps = PlannedSteps(self._program, budget, planner, seed)
        return "auto"

    def __del__(self) -> None:
        if getattr(self, "planned_steps", None) is not None:
            self.planned_steps.stop()

    def wait_for_plan(self) -> bool:
        """With the policy ``plan``: waits for the planner and has the next step follow its
        schedule; whether there is one."""
        if self.planned_steps is None:
            return False
        self.planned_steps.begin()
        self._follow(self.planned_steps.next_program(wait=True))
        return self.planned_steps.schedule is not None

    def _attach(self, executable: tvm_vm.Executable) -> None:
        """What the base class does for the stock VM's module."""
        self._exec = executable
        self.module = tvm.get_global_func("tvm_dtr.vm")(executable.mod)
        for name in (
            "init",
            "get_output",
            "get_num_outputs",
            "get_input_index",
            "set_input",
            "set_one_input",
            "set_outputs",
        ):
            setattr(self, f"_{name}", self.module[name])

    # Methods, not attributes as in the base class: a cycle would keep the memory until the next
    # garbage collection.
    def _invoke(self, *args: Any) -> Any:
        return self._call("invoke", *args)

    def _invoke_stateful(self, *args: Any) -> Any:
        return self._call("invoke_stateful", *args)

    # -- Training ----------------------------------------------------------------------------------

    def step(self, /, **inputs: Any) -> dict[str, np.ndarray]:
        """Runs one training step and keeps the new parameters.

        Args:
            **inputs: the model's inputs by their ONNX names, and ``labels`` or ``target``.

        Returns:
            ``loss`` (a float32 of shape ()), the model's outputs under their ONNX names and,
            without an optimizer, ``grad:NAME`` for each parameter: copies.

        Raises:
            InputError: an input is missing, unknown, misshaped or of the wrong type.
            BudgetError: the budget is too small. After ``set_budget`` with more, ``resume`` goes
                on where it stopped. Where ``in_place`` is not set the parameters are as they were;
                else, if some were updated, no new step starts before all are set anew
                (UsageError).
            ThrashError: recomputation cost more than the thrash limit; parameters likewise.
        """
        program = self._training_program()
        arrays = check_inputs(program.inputs, inputs)
        self.module["reset_stats"]()
        self.module["reset_peak"]()
        self.module["trace_step"](self._steps)
        self._last = {}
        self._change_to_sizes_of(arrays)
        if self.planned_steps is not None:
            self._follow(self.planned_steps.next_program())
        self._started = time.perf_counter()
        self._feed(arrays)
        return self._finish(self._call("invoke_donated", "main"))

    def _feed(self, arrays: Mapping[str, np.ndarray]) -> None:
        # On its own, so that a step that an error stops holds no arrays in its frame.
        program = self._training_program()
        device_arrays = [tvm.nd.array(arrays[spec.name]) for spec in program.inputs]
        state = [self._state[spec.name] for spec in program.state]
        self._set_input("main", *device_arrays, *state)

    def resume(self) -> Any:
        """Goes on with the step (or invocation) that stopped with a BudgetError.

        Returns what ``step`` or ``invoke`` would have returned; raises what they raise, and
        UsageError if nothing was stopped.
        """
        result = self._call("resume")
        if self._program is None or self._started is None:
            return result
        return self._finish(result)

    def _finish(self, fields: Any) -> dict[str, np.ndarray]:
        program = self._training_program()
        results = list(zip(program.results, fields, strict=True))
        outputs = {r.name: field.numpy() for r, field in results if r.kind == "output"}
        self._state.update({r.name: field for r, field in results if r.kind == "state"})
        del fields, results
        self.module["clear"]()  # the old state and the inputs go
        assert self._started is not None
        seconds = time.perf_counter() - self._started
        self._started = None
        self._steps += 1
        loss = outputs.get("loss")
        self._last = self._measured() | {
            "step_seconds": seconds,
            "loss": None if loss is None else float(loss),
        }
        self.module["trace_step_end"](self._steps - 1, seconds)
        if self.planned_steps is not None:
            self._last.update(self.planned_steps.counted(self._last))
            self._follow(self.planned_steps.after_step(self._last["evictions"]))
        else:
            self._choose_again()
        return outputs

    def measured_costs(self) -> dict[str, float]:
        """Mean nanoseconds that each kernel's runs took in the last step, by kernel name."""
        return mean_costs(
            self.module["kernel_names"]().split(), self.module["kernel_times"]().numpy()
        )

    def _choose_again(self) -> None:
        """``auto`` after a step: goes on with what is best by the costs that the step had."""
        found = None if self._auto is None else self._auto.after_step(self.measured_costs())
        if found is None:
            return
        self.policy_choice, graph = found
        self._set_costs(graph)
        if self.policy_choice.policy != self.policy:
            self.policy = self.policy_choice.policy
            self.module["set_policy"](self.policy, signed_seed(self._seed))

    @property
    def parameters(self) -> Parameters:
        """Trainable parameters, running statistics and optimizer state by name."""
        self._training_program()
        return Parameters(self)

    def share_state(self, other: VirtualMachine) -> None:
        """Takes over the state of these names of another machine, without a copy."""
        self._state.update({n: other._state[n] for n in self._state if n in other._state})

    def set_parameters(self, values: Mapping[str, Any]) -> None:
        """Replaces some of the state.

        Raises:
            InputError: a name is unknown, or a value has another shape or type. Nothing is then
                replaced.
            BudgetError: the new values do not fit. Nothing is then replaced.
        """
        arrays = check_state(self._training_program().state, values)
        if self._state and self._started is None:
            # Written where the old ones are: both at once might not fit.
            for name, array in arrays.items():
                self._state[name].copyfrom(tvm.nd.array(array))
            return
        # A step that stopped still reads the old ones.
        copies = {n: self._call("copy_in", tvm.nd.array(a), n) for n, a in arrays.items()}
        self._state.update(copies)
        if len(copies) == len(self._state):
            self.module["accept_state"]()

    @property
    def program(self) -> Any:
        """The Program. Raises UsageError for a VM on a bare executable."""
        return self._training_program()

    def _training_program(self) -> Any:
        if self._program is None:
            raise UsageError(
                "this VirtualMachine runs a bare executable: use invoke, or build a Program"
            )
        return self._program

    @property
    def memory(self) -> Memory:
        """``active``, ``peak``, ``reserved``, ``budget``, ``reset_peak()``, ``set_budget()``."""
        return Memory(self)

    def set_budget(self, memory_budget: int | str | Budget | None) -> int | None:
        """Changes the budget, evicting at once; returns the old one in bytes (None: no budget).

        For calls between steps, and after a BudgetError before ``resume``. A call from another
        thread waits for the step that runs.

        Raises:
            BudgetError: what is pinned does not fit; the budget is then unchanged.
            UsageError: the kernels are in memory and cannot be exported: see the class.
        """
        budget = budget_bytes(parse_budget(memory_budget), self._program)
        self._count_workspace(budget)
        old = self._call("set_budget", budget_code(budget))
        if self._auto is not None:
            self._auto.set_budget(budget)
        return None if old < 0 else old

    def _count_workspace(self, budget: int | None) -> None:
        # Kernels compiled in memory take workspace that nobody can count.
        if budget is not None and not self.module["workspace_tracked"]():
            self._call("use_library", *export_kernels(self._exec.lib))

    def _set_costs(self, graph: Any) -> None:
        kernels = {kernel.name: kernel for kernel in graph.kernels}
        names = self.module["kernel_names"]().split()
        found = [kernels.get(name) for name in names]
        cost = np.array([-1.0 if k is None else k.cost_ns for k in found], "float64")
        workspace = np.array([-1 if k is None else k.workspace_bytes for k in found], "int64")
        total = sum(graph.kernels[op.kernel].cost_ns for op in graph.ops)
        if names:
            self.module["set_costs"](tvm.nd.array(cost), tvm.nd.array(workspace), float(total))

    def _call(self, name: str, *args: Any) -> Any:
        """Calls a function of the module; what it tells the caller comes out as our errors."""
        try:
            result = self.module["attempt"](name, *args)
        except Exception as error:
            # The error and TVM's frames hold each other, and the arrays in these.
            if error.__traceback__ is not None:
                traceback.clear_frames(error.__traceback__.tb_next)
            raise
        if isinstance(result, str):
            raise error_of(self, json.loads(result))
        return result
