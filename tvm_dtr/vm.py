"""The virtual machine that people use: a training step, or any Relay executable, under a budget."""

from __future__ import annotations

import json
import os
import time
import traceback
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from . import _core
from .budget import Budget, format_bytes, parse_budget
from .compile.opgraph import tensor_bytes
from .errors import BudgetError, DTRError, InputError, ThrashError, UsageError
from .explain import held_by_op
from .kernel_library import export_kernels
from .measured_costs import AutoPolicy, mean_costs
from .memory import UNLIMITED, Memory
from .notebook import Figures
from .plugin import load_plugin
from .replay import Choice, arena_for, best_policy, choose_policy
from .step_inputs import check_inputs, check_state
from .trace.header import OPTIMIZER, PARAMETERS, state_role
from .vm_arguments import (
    check_arguments,
    is_executable,
    is_memory_cfg,
    overwrite_marks,
    signed_seed,
)

os.environ.setdefault("TOPHUB_LOCATION", "NONE")
import tvm
from tvm.runtime import vm as tvm_vm

_HOLDERS_SHOWN = 5
_ERRORS: dict[str, type[DTRError]] = {
    "InputError": InputError,
    "UsageError": UsageError,
}


class Parameters(Mapping[str, np.ndarray]):
    """The state of a program by name: reading copies out, writing copies in after a check."""

    def __init__(self, machine: VirtualMachine) -> None:
        self._machine = machine

    def __getitem__(self, name: str) -> np.ndarray:
        return self._machine._state[name].numpy()

    def __setitem__(self, name: str, value: Any) -> None:
        self._machine.set_parameters({name: value})

    def __iter__(self) -> Iterator[str]:
        return iter(self._machine._state)

    def __len__(self) -> int:
        return len(self._machine._state)

    def __repr__(self) -> str:
        return f"Parameters({', '.join(self)})"


class VirtualMachine(tvm_vm.VirtualMachine):
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
        executable = program if self._program is None else program.executable
        if not isinstance(executable, tvm_vm.Executable):
            executable = tvm_vm.Executable(executable)
        self._attach(executable)
        budget = self._resolve(parse_budget(memory_budget))
        #: With the policy ``plan``: the schedule that steps follow, and why they follow none.
        self.planned_steps: Any = None
        policy = self._plan_ahead(policy, budget, seed)
        _check_policy(policy)
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
        self._call("configure", _code(budget), self.policy, signed_seed(seed), limit, self.arena)
        self._setup_device([tvm.cpu()] if device is None else device, None)
        self._state: dict[str, Any] = {}
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
            what = "an executable" if self._program is None else "a program with control flow"
            raise UsageError(
                f"policy '{policy}' plans for programs of tvm_dtr.build, whose ops are known "
                f"ahead: {what} runs with auto or another policy"
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

    def _follow(self, program: Any) -> None:
        if program is not None:
            self._call("follow", program.executable.mod)
            self._exec = program.executable
            self._mark_overwrites(program.graph)

    def _mark_overwrites(self, graph: Any) -> None:
        marks = overwrite_marks(graph)
        if len(marks):
            self.module["set_overwrites"](tvm.nd.array(marks), bool(graph.scheduled))

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
            BudgetError: the new values do not fit beside the old ones. Nothing is then replaced.
        """
        arrays = check_state(self._training_program().state, values)
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

    # -- Memory ------------------------------------------------------------------------------------

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
        budget = self._resolve(parse_budget(memory_budget))
        self._count_workspace(budget)
        old = self._call("set_budget", _code(budget))
        if self._auto is not None:
            self._auto.set_budget(budget)
        return None if old < 0 else old

    @property
    def stats(self) -> dict[str, Any]:
        """The last step in numbers: ``budget_bytes`` (None: no budget), ``peak_bytes``,
        ``unbudgeted_peak_bytes`` (None for a bare executable), ``pinned_bytes``,
        ``workspace_bytes``, ``step_seconds``, ``compute_seconds``,
        ``remat_seconds``, ``search_seconds``, ``evictions``, ``rematerializations``, ``loss``;
        and ``steps`` so far. For a bare executable, everything since ``reset_stats``. Of what the
        next step will do: ``policy``, ``policy_reason`` and ``predicted_slowdown`` (None where
        nothing was predicted).
        """
        peak = None
        if self._program is not None:
            measured = self._program.control_flow
            peak = (
                self._program.measured_peak_bytes
                if measured
                else self._program.unbudgeted_peak_bytes
            )
        choice = self.policy_choice
        facts = {
            "unbudgeted_peak_bytes": peak,
            "steps": self._steps,
            "policy": self.policy,
            "policy_reason": None if choice is None else choice.reason(),
            "predicted_slowdown": None if choice is None else choice.prediction["slowdown"],
        }
        return Figures((self._last or self._measured()) | facts)

    def memory_report(self) -> Figures:
        """Bytes held at this moment: ``parameters_bytes`` and ``optimizer_state_bytes`` as their
        arrays have them; ``other_bytes``, the rest in use (inputs, constants, outputs, rounding);
        ``free_bytes``, mapped and unused; ``mapped_bytes``, their sum; ``budget_bytes`` (None: no
        budget) and ``peak_bytes`` of the last step.
        """
        counters = self.counters()
        trained = set() if self._program is None else set(self._program.parameter_names)
        sizes = {PARAMETERS: 0, OPTIMIZER: 0}
        for spec in [] if self._program is None else self._program.state:
            sizes[state_role(spec.name, trained)] += tensor_bytes(spec.shape, spec.dtype)
        return Figures(
            parameters_bytes=sizes[PARAMETERS],
            optimizer_state_bytes=sizes[OPTIMIZER],
            other_bytes=counters["active_bytes"] - sum(sizes.values()),
            free_bytes=counters["mapped_bytes"] - counters["active_bytes"],
            mapped_bytes=counters["mapped_bytes"],
            budget_bytes=self.stats["budget_bytes"],
            peak_bytes=self.stats["peak_bytes"],
        )

    def counters(self) -> dict[str, Any]:
        """Everything the VM counts, at this moment."""
        return json.loads(self.module["stats"]())

    def reset_stats(self) -> None:
        """Starts all counters and the peak anew."""
        self._last = {}
        self.module["reset_stats"]()
        self.module["reset_peak"]()

    def validate(self) -> None:
        """Checks every invariant of the runtime; raises on the first that does not hold."""
        self.module["validate"]()

    # -- Tracing -----------------------------------------------------------------------------------

    def start_trace(self, path: str | os.PathLike[str], name: str = "program") -> None:
        """Writes every call, allocation, eviction and decision from now on to the file ``path``.

        The file streams: a crash leaves all but the last fifth of a second. ``tvm-dtr report``,
        ``tvm-dtr trace`` and ``tvm_dtr.trace.read_events`` read it. ``name`` is its title.

        Raises:
            UsageError: the file cannot be written.
        """
        from .trace.format import encode_header
        from .trace.header import make_header

        header = bytearray(encode_header(make_header(self, name)))
        self._call("trace_events", os.fspath(path), header)

    def stop_trace(self, **facts: Any) -> None:
        """Ends the trace, adding ``facts`` (JSON) to it; nothing if there is none.

        Raises:
            UsageError: the file has ended early, as the disk is full.
        """
        self.module["trace_note"](json.dumps({"end": facts}))
        failure = self.module["stop_tracing_events"]()
        if failure:
            raise UsageError(f"the trace has ended early: {failure}")

    def trace_memory(self, on: bool) -> None:
        """Starts (anew) or stops sampling memory in use at each change."""
        self.module["trace_memory"](on)

    def memory_trace(self) -> tuple[np.ndarray, np.ndarray]:
        """Seconds and active bytes of the samples since ``trace_memory(True)``, which go on."""
        samples = self.memory_samples()
        return samples[:, 0], samples[:, 1]

    def memory_samples(self) -> np.ndarray:
        """(n, 4) of seconds, active bytes, budget in bytes, kind (0 memory in use changed, 1 an op
        was run again, 2 a storage was evicted). The samples start anew."""
        samples = self.module["trace_memory"](True)
        return np.empty((0, 4)) if samples is None else samples.numpy()

    def _measured(self) -> dict[str, Any]:
        counters = self.counters()
        budget = counters["budget_bytes"]
        names = (
            "pinned_bytes",
            "workspace_bytes",
            "compute_seconds",
            "remat_seconds",
            "search_seconds",
            "evictions",
            "rematerializations",
        )
        measured = {name: counters[name] for name in names}
        return measured | {
            "budget_bytes": None if budget == UNLIMITED else budget,
            "peak_bytes": counters[
                "peak_mapped_bytes" if budget < UNLIMITED else "peak_active_bytes"
            ],
            "step_seconds": counters["compute_seconds"] + counters["remat_seconds"],
            "loss": None,
        }

    def _count_workspace(self, budget: int | None) -> None:
        # Kernels compiled in memory take workspace that nobody can count.
        if budget is not None and not self.module["workspace_tracked"]():
            self._call("use_library", *export_kernels(self._exec.lib))

    def _resolve(self, budget: Budget) -> int | None:
        if budget.fraction is None and not budget.automatic:
            return budget.bytes
        if self._program is None:
            raise UsageError(
                "a budget in percent or auto needs the unbudgeted peak, which is known of programs "
                "from tvm_dtr.build only: give it in bytes, for example 512MiB"
            )
        if budget.automatic:
            from .advise import automatic_budget

            return automatic_budget(self._program)
        return budget.resolve(self._program.unbudgeted_peak_bytes)

    def _set_costs(self, graph: Any) -> None:
        kernels = {kernel.name: kernel for kernel in graph.kernels}
        names = self.module["kernel_names"]().split()
        found = [kernels.get(name) for name in names]
        cost = np.array([-1.0 if k is None else k.cost_ns for k in found], "float64")
        workspace = np.array([-1 if k is None else k.workspace_bytes for k in found], "int64")
        total = sum(graph.kernels[op.kernel].cost_ns for op in graph.ops)
        self.module["set_costs"](tvm.nd.array(cost), tvm.nd.array(workspace), float(total))

    # -- Errors ------------------------------------------------------------------------------------

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
            raise self._error(json.loads(result))
        return result

    def _error(self, details: dict[str, Any]) -> DTRError:
        kind = details.pop("kind")
        message = details.pop("message").removeprefix(f"{kind}: ")
        if kind == "BudgetError":
            return self._budget_error(message, details)
        if kind == "ThrashError":
            budget = self.counters()["budget_bytes"]
            holders = [] if self._program is None else held_by_op(self._program, None)
            facts = {"budget_bytes": budget, "holders": holders, "program": self._program}
            return ThrashError(message, **details, **facts)
        return _ERRORS[kind](message)

    def _budget_error(self, message: str, details: dict[str, Any]) -> BudgetError:
        held = [
            f"{h['name']} {format_bytes(h['bytes'])} ({'pinned' if h['pinned'] else 'locked'})"
            for h in details["holders"][:_HOLDERS_SHOWN]
        ]
        more = len(details["holders"]) - len(held)
        if held:
            message += f"; held: {', '.join(held)}" + (f" and {more} more" if more else "")
        if self._program is not None:
            roles = {h["name"]: h["role"] for h in held_by_op(self._program, None)}
            for holder in details["holders"]:
                holder["role"] = roles.get(holder["name"], "activations and gradients")
        return BudgetError(message, **details, program=self._program)


def _code(budget: int | None) -> int:
    return -1 if budget is None else budget


def _check_policy(policy: str) -> None:
    if policy not in ("auto", *_core.policies()):
        raise UsageError(
            f"unknown policy '{policy}': choose one of auto, {', '.join(sorted(_core.policies()))}"
        )
