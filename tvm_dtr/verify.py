"""Checks a run bit by bit against TVM's own Relay VM, without a budget, in another process.

The other process (``python -m tvm_dtr.verify PROGRAM``) loads the saved program into
``tvm.runtime.vm.VirtualMachine`` and never loads this package's plugin. It reads requests from its
standard input, one JSON line each, and answers each with one JSON line:

  {"step": FILE.npz}             runs a step on the inputs in FILE.npz, in order; all digests
  {"save": NAME, "to": FILE.npy} writes the tensor NAME as the last step left it
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np

from tvm_dtr.errors import DTRError
from tvm_dtr.step_inputs import with_defaults

GRACE_SECONDS = 10  # for the other process to end by itself


class VerificationError(DTRError):
    """The other process could not do its part."""


class StockVM:
    """A program on TVM's own VM: what every budgeted run must equal bit by bit."""

    def __init__(self, program: Any) -> None:
        os.environ.setdefault("TOPHUB_LOCATION", "NONE")
        import tvm

        self._tvm = tvm
        self._device = tvm.cpu()
        self._vm = tvm.runtime.vm.VirtualMachine(program.executable, self._device)
        self._specs = list(program.inputs)
        self._results = list(program.results)
        self._state = {
            spec.name: tvm.nd.array(program.initial_state[spec.name], self._device)
            for spec in program.state
        }

    def step(self, **inputs: np.ndarray) -> dict[str, np.ndarray]:
        """Runs one step and keeps the new state; the outputs by name."""
        given = with_defaults(self._specs, inputs)
        arrays = [np.asarray(given[spec.name], spec.dtype) for spec in self._specs]
        fields = self.invoke([self._tvm.nd.array(array) for array in arrays])
        outputs = {}
        for result, field in zip(self._results, fields, strict=True):
            if result.kind == "state":
                self._state[result.name] = field
            else:
                outputs[result.name] = field.numpy()
        return outputs

    def invoke(self, inputs: list[Any]) -> Any:
        """The bare call, for timing: the tuple of results for ``inputs`` as TVM arrays."""
        return self._vm.invoke("main", *inputs, *self._state.values())

    @property
    def parameters(self) -> dict[str, np.ndarray]:
        return {name: array.numpy() for name, array in self._state.items()}


def labelled(
    outputs: Mapping[str, np.ndarray], state: Mapping[str, np.ndarray]
) -> dict[str, np.ndarray]:
    """Outputs and state under names that cannot clash: ``output loss``, ``state fc.weight``."""
    tensors = {f"output {name}": np.asarray(value) for name, value in outputs.items()}
    tensors.update({f"state {name}": np.asarray(value) for name, value in state.items()})
    return tensors


def digest(array: np.ndarray) -> str:
    """Equal for arrays of equal type, shape and bits (NaNs and signed zeros included)."""
    code = hashlib.blake2b(f"{array.dtype.str} {array.shape} ".encode(), digest_size=16)
    code.update(np.ascontiguousarray(array).tobytes())
    return code.hexdigest()


@dataclass(frozen=True)
class Mismatch:
    """``name`` as of labelled(); ``detail`` says where and how the tensors differ."""

    name: str
    detail: str

    def __str__(self) -> str:
        return f"{self.name}: {self.detail}"


def describe_difference(ours: np.ndarray, stock: np.ndarray) -> str:
    """The first index where the bits differ, both values there, and how many differ."""
    if (ours.dtype, ours.shape) != (stock.dtype, stock.shape):
        return f"{ours.dtype}{list(ours.shape)}, stock VM {stock.dtype}{list(stock.shape)}"
    width = f"V{ours.dtype.itemsize}"
    left, right = (np.ascontiguousarray(array).reshape(-1) for array in (ours, stock))
    different = np.flatnonzero(left.view(width) != right.view(width))
    if not len(different):
        return "equal"
    first = int(different[0])
    index = [int(i) for i in np.unravel_index(first, ours.shape)]
    return (
        f"first at {index}: {left[first]!s}, stock VM {right[first]!s} "
        f"({len(different)} of {len(left)} elements differ)"
    )


class Verifier:
    """Runs a program's steps a second time on the stock VM in a process of its own.

    Use as a context manager; the process idles while the caller runs, so timings stay usable.
    """

    def __init__(self, program: Any) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="tvm-dtr-verify-")
        self._path = Path(self._folder.name)
        self._errors: IO[bytes] = (self._path / "stderr").open("wb")
        self._specs = list(program.inputs)
        program.save(str(self._path / "program.tdtr"))
        package_root = str(Path(__file__).resolve().parent.parent)
        search_path = os.pathsep.join(
            filter(None, [package_root, os.environ.get("PYTHONPATH", "")])
        )
        # From the scratch folder, so that `-m` cannot pick up a package lying in the caller's.
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tvm_dtr.verify", "program.tdtr"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            cwd=self._path,
            # Its temporary files are in the scratch folder: they go even if it is killed.
            env={**os.environ, "PYTHONPATH": search_path, "TMPDIR": str(self._path)},
            text=True,
        )

    def __enter__(self) -> Verifier:
        return self

    def __exit__(self, *exception: object) -> None:
        try:
            self._process.communicate(timeout=GRACE_SECONDS)  # closes its input, so that it ends
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.communicate()
        self._errors.close()
        self._folder.cleanup()

    def check(
        self,
        inputs: Mapping[str, np.ndarray],
        outputs: Mapping[str, np.ndarray],
        state: Mapping[str, np.ndarray],
    ) -> list[Mismatch]:
        """Runs the next step on ``inputs``; every tensor that is not bitwise the caller's.

        Raises:
          VerificationError: the other process failed.
        """
        digests = self.step(inputs)
        return list(self.mismatches(digests, outputs, state))

    def step(self, inputs: Mapping[str, np.ndarray]) -> dict[str, str]:
        """Runs the next step; the digests of all its tensors under their labelled() names."""
        given = with_defaults(self._specs, inputs)
        np.savez(self._path / "inputs.npz", *[given[spec.name] for spec in self._specs])
        return self._ask({"step": "inputs.npz"})

    def mismatches(
        self,
        digests: Mapping[str, str],
        outputs: Mapping[str, np.ndarray],
        state: Mapping[str, np.ndarray],
    ) -> Iterable[Mismatch]:
        """Compares with the ``digests`` of the latest step()."""
        ours = labelled(outputs, state)
        for name in sorted(ours.keys() | digests.keys()):
            if name not in ours:
                yield Mismatch(name, "only the stock VM returned it")
            elif name not in digests:
                yield Mismatch(name, "the stock VM did not return it")
            elif digest(ours[name]) != digests[name]:
                self._ask({"save": name, "to": "tensor.npy"})
                stock = np.load(self._path / "tensor.npy")
                yield Mismatch(name, describe_difference(ours[name], stock))

    def _ask(self, request: dict[str, str]) -> dict[str, str]:
        assert self._process.stdin is not None and self._process.stdout is not None
        with contextlib.suppress(BrokenPipeError):  # the empty answer tells
            self._process.stdin.write(json.dumps(request) + "\n")
            self._process.stdin.flush()
        answer = self._process.stdout.readline()
        if not answer:
            status = self._process.wait()
            lines = (self._path / "stderr").read_text(errors="replace").strip().splitlines()
            reason = lines[-1] if lines else f"exit status {status}"
            raise VerificationError(f"the stock VM's process ended early: {reason}")
        return json.loads(answer)


def serve(program: Any, requests: Iterable[str], answers: IO[str]) -> None:
    """Answers the requests that the module's docstring lists, until there are no more."""
    vm = StockVM(program)
    tensors: dict[str, np.ndarray] = {}
    for line in requests:
        request = json.loads(line)
        if "step" in request:
            with np.load(request["step"]) as arrays:
                names = [spec.name for spec in program.inputs]
                outputs = vm.step(**dict(zip(names, arrays.values(), strict=True)))
            tensors = labelled(outputs, vm.parameters)
            answer = {name: digest(array) for name, array in tensors.items()}
        else:
            np.save(request["to"], tensors[request["save"]])
            answer = {"saved": request["to"]}
        print(json.dumps(answer), file=answers, flush=True)


def _main() -> None:
    # Whatever else writes to standard output must not get between the answers.
    with os.fdopen(os.dup(1), "w") as answers:
        os.dup2(2, 1)
        from tvm_dtr import load

        serve(load(sys.argv[1]), sys.stdin, answers)


if __name__ == "__main__":
    _main()
