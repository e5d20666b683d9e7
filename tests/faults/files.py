"""A disk that is full: each file that is written, at points from its first byte to its last."""

from __future__ import annotations

import contextlib
import os
import resource
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import onnx
import steps
from outcome import Outcome

import tvm_dtr
from tvm_dtr.checkpoint import Checkpoint, CheckpointFolder, Position, program_identity
from tvm_dtr.cli.files import replacing, write_rows
from tvm_dtr.compile.cache import KernelCache
from tvm_dtr.errors import DTRError
from tvm_dtr.trace import read_events

SHARES = (0.0, 0.01, 0.3, 0.7, 0.99)
WHOLE = "the old file, whole; no draft"


@contextlib.contextmanager
def no_file_over(size: int) -> Iterator[None]:
    """The kernel refuses to write any file beyond ``size`` bytes, as a full disk would."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def raised_by(write: Callable[[], object], size: int) -> str:
    with no_file_over(size):
        try:
            write()
        except (DTRError, OSError) as error:
            assert str(error) and "\n" not in str(error)
            return type(error).__name__
    return "nothing"


def refused(fault_place: str, path: Path, write: Callable[[], object], error: str) -> Outcome:
    """A file that is written whole or not at all; ``write`` has made the old one."""
    write()
    before, beside = path.read_bytes(), sorted(os.listdir(path.parent))
    for share in SHARES:
        found = raised_by(write, int(share * len(before)))
        assert found == error, f"{fault_place}: {found}"
        assert path.read_bytes() == before, f"{fault_place}: the old file is damaged"
        assert sorted(os.listdir(path.parent)) == beside, f"{fault_place}: something was left"
    write()
    return Outcome(
        "a full disk",
        fault_place,
        len(SHARES),
        f"`{error}`, one line",
        "once there is room, the same call works",
        WHOLE,
    )


def full_disk(folder: Path) -> Iterator[Outcome]:
    program = steps.program()
    saved = folder / "programs" / "p.tdtr"
    saved.parent.mkdir()
    yield refused("a program (`build`)", saved, lambda: program.save(saved), "ProgramError")

    checkpoints = CheckpointFolder(folder / "checkpoints")
    state = {name: np.full((64, 64), 0.5, "float32") for name in ("a", "b", "c")}
    position = Position(step=1, epoch=2, batch=3, loss_sum=0.5)
    checkpoint = Checkpoint(state, position, program_identity(program))
    path = checkpoints.save(checkpoint)
    yield refused(
        "a checkpoint (`train`)", path, lambda: checkpoints.save(checkpoint), "CheckpointError"
    )

    model = folder / "models" / "m.onnx"
    model.parent.mkdir()

    def export() -> None:
        with replacing(str(model)) as draft:
            onnx.save_model(program.to_onnx(), str(draft))

    yield refused("a model (`export`)", model, export, "OSError")
    rows = folder / "rows" / "r.json"
    rows.parent.mkdir()
    table = [{"step": index, "loss": 0.5} for index in range(100)]
    yield refused("results (`--json`)", rows, lambda: write_rows(str(rows), table), "OSError")
    yield cache(folder / "cache")
    yield trace(folder)


def cache(folder: Path) -> Outcome:
    """An entry that cannot be written costs a warning: what it was for is there anyway."""
    content = bytes(range(256)) * 64
    for share in SHARES:
        store = KernelCache(folder / f"{share}")
        with warnings.catch_warnings(record=True) as caught, no_file_over(int(share * 16384)):
            warnings.simplefilter("always")
            store.put("ab" * 32, content)
        assert len(caught) == 1 and "cannot be written" in str(caught[0].message)
        assert store.get("ab" * 32) is None
        assert not [p for p in (folder / f"{share}").rglob("*") if p.is_file()]
        store.put("ab" * 32, content)
        assert store.get("ab" * 32) == content
    return Outcome(
        "a full disk",
        "the cache of kernels and programs",
        len(SHARES),
        "one warning; the build goes on",
        "once there is room, entries are stored again",
        "no entry, no draft",
    )


def trace(folder: Path) -> Outcome:
    """A trace ends early; the run that it is of does not."""
    whole = folder / "whole.dtrace"
    _traced(whole)
    size = whole.stat().st_size
    for share in SHARES[2:]:
        path = folder / f"cut-{share}.dtrace"
        with no_file_over(int(share * size)):
            error = _traced(path)
        assert "ended early" in error, error
        assert 0 < len(read_events(path)) < len(read_events(whole))
    return Outcome(
        "a full disk",
        "an event trace (`run --trace`)",
        len(SHARES) - 2,
        "`UsageError` when it is stopped",
        "the steps are done: same bits",
        "a trace cut off, readable",
    )


def _traced(path: Path) -> str:
    vm = tvm_dtr.VirtualMachine(steps.program())
    vm.start_trace(path)
    assert steps.state_after(vm) == steps.expected()
    try:
        vm.stop_trace()
    except DTRError as error:
        return str(error)
    return ""
