"""Program: a compiled training step, and its file format.

A program file (`.tdtr`) is a zip archive of stored members: `manifest.json`, `bytecode.ro` (the
Relay VM executable), `kernels.so` and `state/N.npy`. It holds native code: load only files that
you trust, as you would run a program.
"""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx

from tvm_dtr import _core
from tvm_dtr.errors import ModelError, UsageError
from tvm_dtr.notebook import Figures
from tvm_dtr.onnx_export import ModelSource, trained_model, with_weights
from tvm_dtr.replay import unbudgeted_peak
from tvm_dtr.training import Result, TensorSpec

if TYPE_CHECKING:
    from tvm.runtime.vm import Executable

    from tvm_dtr.compile.opgraph import OpGraph


@dataclass
class Program:
    """What a VM needs to run training steps.

    executable: function "main" takes `inputs` then `state`, in order, and returns the tuple of
    `results`. initial_state: an array for each of `state`. library_path: the shared library of
    kernels, in a folder that is removed when the process ends. control_flow: branches or loops
    depend on the data, so that no graph stands for all steps (`graph` has kernels but no ops), and
    what a step needs is known by `measure` only (measured_peak_bytes). accumulate: each so-manieth
    step updates the parameters.
    """

    executable: Executable
    graph: OpGraph
    inputs: list[TensorSpec]
    state: list[TensorSpec]
    results: list[Result]
    initial_state: dict[str, np.ndarray]
    target: str
    library_path: str
    parameter_names: list[str] = field(default_factory=list)
    control_flow: bool = False
    measured_peak_bytes: int | None = None
    accumulate: int = 1
    source: ModelSource | None = field(default=None, repr=False)

    @cached_property
    def replay(self) -> _core.Replay:
        """One step on the runtime without its kernels: what a budget will do, in milliseconds."""
        from tvm_dtr.replay import replay_of_program

        if self.control_flow:
            raise UsageError(
                f"this program has {self.unplanned}: it can be neither replayed nor planned; run "
                "it with a policy"
            )
        return replay_of_program(self)

    @property
    def unplanned(self) -> str:
        """With ``control_flow``, what the program has that no graph tells, in words."""
        return "control flow that depends on data, so that its ops are not known before they run"

    @cached_property
    def unbudgeted_peak_bytes(self) -> int:
        """The most bytes in use at a time when nothing is ever evicted."""
        if self.control_flow:
            if self.measured_peak_bytes is None:
                raise UsageError(
                    f"this program has {self.unplanned}: its peak without a budget is known only "
                    "after program.measure(inputs); or give the budget in bytes"
                )
            return self.measured_peak_bytes
        return unbudgeted_peak(self.replay)

    def measure(self, *inputs: Mapping[str, Any]) -> int:
        """Runs a step without a budget on each of ``inputs`` (name -> array, as for
        ``VirtualMachine.step``); returns the highest peak in bytes, state and inputs included.

        For programs with control flow: the result becomes ``unbudgeted_peak_bytes``, which budgets
        in percent refer to, and is saved with the program. The state is not changed.

        Raises:
            InputError: inputs that do not fit.
        """
        from tvm_dtr.vm import VirtualMachine

        peak = self.measured_peak_bytes or 0
        vm = VirtualMachine(self)
        for given in inputs:
            vm.set_parameters(self.initial_state)
            vm.step(**given)
            vm.set_parameters(self.initial_state)
            vm.step(**given)  # the second holds what steps leave behind, too
            peak = max(peak, vm.stats["peak_bytes"])
        if self.control_flow:
            self.measured_peak_bytes = peak
            self.__dict__.pop("unbudgeted_peak_bytes", None)
        return peak

    @cached_property
    def evaluation(self) -> Program:
        """The model as it infers, its outputs alone, on this program's parameters by name.

        Compiled on first use. Raises ModelError where the program does not hold its model.
        """
        from tvm_dtr.builder import build_evaluation

        source = self._source()
        model = with_weights(source.graph, self.initial_state)
        return build_evaluation(model, target=self.target, shapes=source.shapes, dtype=source.dtype)

    def to_onnx(self, parameters: Mapping[str, np.ndarray] | None = None) -> onnx.ModelProto:
        """The model that the program was built from with these weights and running statistics
        (``vm.parameters``; by default the initial ones), for inference. Names stay.

        Raises ModelError where the program does not hold its model.
        """
        values = self.initial_state | dict(parameters or {})
        return trained_model(self._source().graph, values)

    def _source(self) -> ModelSource:
        if self.source is None:
            raise ModelError(
                "the program does not hold the ONNX graph it was built from; build it again"
            )
        return self.source

    def out_of_place(self) -> Program:
        """The same program with no updates in place: old and new state are there together."""
        return replace(self, graph=replace(self.graph, overwrites=[]))

    def figures(self) -> Figures:
        """Its size in numbers: ops, kernels, inputs and state, and the unbudgeted peak."""
        peak = self.measured_peak_bytes if self.control_flow else self.unbudgeted_peak_bytes
        return Figures(
            inputs=", ".join(f"{spec.name} {spec.shape}" for spec in self.inputs),
            ops=len(self.graph.ops),
            kernels=len(self.graph.kernels),
            parameters=len(self.parameter_names),
            unbudgeted_peak_bytes=peak,
            target=self.target,
        )

    def _repr_html_(self) -> str:
        return self.figures()._repr_html_()

    def save(self, path: str | Path) -> None:
        """Write the program to a file, whole or not at all.

        Raises ProgramError where the file cannot be written.
        """
        from tvm_dtr.program_file import write_program

        write_program(self, Path(path))

    @staticmethod
    def load(path: str | Path, *, require_sha256: str | None = None) -> Program:
        """Read a program file, which holds native code: load only what you trust.

        ``require_sha256``: refuse any file but the one with this SHA-256, in hexadecimal. Raises
        ProgramError and UsageError: see tvm_dtr.program_file.read_program.
        """
        from tvm_dtr.program_file import read_program

        return read_program(Path(path), require_sha256)


MANIFEST = "manifest.json"  # the first member of the archive


def is_program_file(path: str | os.PathLike[str]) -> bool:
    """Whether a file starts as a program does, whatever its name; a damaged one does too."""
    try:
        with open(path, "rb") as stream:
            head = stream.read(30 + len(MANIFEST))  # a zip's header of a member, then its name
    except OSError:
        return False
    return head.startswith(b"PK\3\4") and head.endswith(MANIFEST.encode())


def private_folder() -> Path:
    """A new folder that only this user can read and that is removed when the process ends."""
    folder = tempfile.mkdtemp(prefix="tvm-dtr-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return Path(folder)


def load(path: str | os.PathLike[str], *, require_sha256: str | None = None) -> Program:
    """Reads a program that ``Program.save`` wrote; see :meth:`Program.load`."""
    return Program.load(Path(path), require_sha256=require_sha256)
