"""Checkpoints: everything that a run needs to go on as if it had never stopped.

A checkpoint (``step-000000120.ckpt``) is a zip archive of stored members: ``checkpoint.json``
(format and version), ``state/N.npy`` for each of the program's state (parameters, running
statistics, optimizer state, random key) and ``manifest.json`` (what they are, their checksums, and
the position: step, epoch, batch, data). The archive's comment seals the manifest. It is written
under another name, synced, renamed, and the folder synced: at any moment, also after a crash, a
file of this name is a whole checkpoint. No code is in it and nothing is unpickled.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import io
import json
import os
import re
import tempfile
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from .errors import CheckpointError, UsageError

FORMAT = "tvm-dtr checkpoint"
FORMAT_VERSION = 1
HEADER, MANIFEST = "checkpoint.json", "manifest.json"
_EPOCH = (1980, 1, 1, 0, 0, 0)
_NAME = re.compile(r"step-(\d{9,})\.ckpt")


@dataclass
class Position:
    """How far a run has come: ``step`` steps in all, ``batch`` batches of epoch ``epoch``, whose
    losses add up to ``loss_sum``."""

    step: int = 0
    epoch: int = 0
    batch: int = 0
    loss_sum: float = 0.0
    data: dict[str, Any] = field(default_factory=dict)


@dataclass
class Checkpoint:
    """State by name, where the run stood, and what made it: see :func:`program_identity`."""

    state: dict[str, np.ndarray]
    position: Position
    program: dict[str, Any]


def program_identity(program: Any) -> dict[str, Any]:
    """What tells whether a checkpoint is of a program. ``state`` must be equal to continue;
    ``kernels`` for the same bits."""
    kernels = [program.graph.kernels[op.kernel].name for op in program.graph.ops]
    return {
        "state": [[s.name, list(s.shape), s.dtype] for s in program.state],
        "results": [asdict(result) for result in program.results],
        "kernels": hashlib.sha256("\n".join(kernels).encode()).hexdigest(),
    }


def write_checkpoint(path: Path, checkpoint: Checkpoint) -> None:
    """Writes a checkpoint, whole or not at all, durable when this returns.

    Arrays are written one after the other; no second copy of all of them is made. Raises
    CheckpointError where the file cannot be written.
    """
    try:
        handle, draft_name = tempfile.mkstemp(
            prefix=f".{path.stem}.", suffix=".tmp", dir=path.parent
        )
        draft = Path(draft_name)
        try:
            with os.fdopen(handle, "w+b") as stream:
                _write_members(stream, checkpoint)
                stream.flush()
                os.fsync(stream.fileno())
            draft.chmod(0o644)
            draft.replace(path)
            _sync_folder(path.parent)
        finally:
            draft.unlink(missing_ok=True)
    except OSError as error:
        raise CheckpointError(f"cannot write {path}: {error.strerror or error}") from error


def _write_members(stream: Any, checkpoint: Checkpoint) -> None:
    sums: dict[str, str] = {}
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_STORED) as archive:
        header = json.dumps({"format": FORMAT, "format_version": FORMAT_VERSION})
        archive.writestr(zipfile.ZipInfo(HEADER, _EPOCH), header)
        for index, array in enumerate(checkpoint.state.values()):
            content = _npy(array)
            sums[f"state/{index}.npy"] = hashlib.sha256(content).hexdigest()
            archive.writestr(zipfile.ZipInfo(f"state/{index}.npy", _EPOCH), content)
        manifest = json.dumps(
            {
                "format": FORMAT,
                "format_version": FORMAT_VERSION,
                "names": list(checkpoint.state),
                "position": asdict(checkpoint.position),
                "program": checkpoint.program,
                "sha256": sums,
            },
            sort_keys=True,
        ).encode()
        archive.writestr(zipfile.ZipInfo(MANIFEST, _EPOCH), manifest)
        archive.comment = _seal(manifest)


def read_checkpoint(path: Path) -> Checkpoint:
    """Reads and checks a checkpoint.

    Raises CheckpointError, which names the file and what is wrong: it is missing, no checkpoint,
    of another format version, or damaged.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            manifest = _checked_manifest(archive)
            state = {}
            for index, name in enumerate(manifest["names"]):
                member = f"state/{index}.npy"
                content = archive.read(member)
                if hashlib.sha256(content).hexdigest() != manifest["sha256"][member]:
                    raise ValueError(f"the bytes of '{name}' do not match their checksum")
                state[name] = np.load(io.BytesIO(content), allow_pickle=False)
            return Checkpoint(state, Position(**manifest["position"]), manifest["program"])
    except FileNotFoundError as error:
        raise CheckpointError(f"{path}: no such file, expected a checkpoint") from error
    except OSError as error:
        raise CheckpointError(f"cannot read {path}: {error.strerror or error}") from error
    except (
        zipfile.BadZipFile,
        zlib.error,
        EOFError,
        NotImplementedError,
        KeyError,
        TypeError,
        ValueError,
    ) as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        raise CheckpointError(f"{path}: damaged, or no checkpoint ({reason})") from error


def _checked_manifest(archive: zipfile.ZipFile) -> dict[str, Any]:
    header = json.loads(archive.read(HEADER))
    if header.get("format") != FORMAT or header.get("format_version") != FORMAT_VERSION:
        raise ValueError(
            f"found format {header.get('format')!r} {header.get('format_version')!r}, expected "
            f"{FORMAT!r} {FORMAT_VERSION}"
        )
    text = archive.read(MANIFEST)
    if archive.comment != _seal(text):
        raise ValueError("the manifest does not match its checksum")
    return json.loads(text)


def check_program(path: Path, checkpoint: Checkpoint, program: Any) -> bool:
    """Whether the program's kernels are those that wrote the checkpoint, so that bits are equal.

    Raises CheckpointError where the state is another program's, naming the first difference.
    """
    ours, theirs = program_identity(program), checkpoint.program
    if ours["state"] != theirs["state"]:
        mine = {name: (tuple(shape), dtype) for name, shape, dtype in ours["state"]}
        found = {name: (tuple(shape), dtype) for name, shape, dtype in theirs["state"]}
        raise CheckpointError(
            f"{path}: of another program: {_difference(mine, found)}; use the program, model and "
            "optimizer that wrote it, or another checkpoint folder"
        )
    return ours["kernels"] == theirs["kernels"]


def _difference(mine: Mapping[str, Any], found: Mapping[str, Any]) -> str:
    for name in [*mine, *found]:
        if name not in found:
            return f"it has no '{name}'"
        if name not in mine:
            return f"it has '{name}', which this program has not"
        if mine[name] != found[name]:
            return f"'{name}' is {found[name][1]}{list(found[name][0])} there"
    return "its tensors stand in another order"


class CheckpointFolder:
    """The checkpoints of one run, of which the last ``keep`` stay (0: all).

    Raises UsageError where the folder cannot be made or ``keep`` is negative.
    """

    def __init__(self, path: str | os.PathLike[str], keep: int = 3) -> None:
        self.path, self.keep = Path(path), keep
        if isinstance(keep, bool) or not isinstance(keep, int) or keep < 0:
            raise UsageError(f"keep {keep!r}: expected how many checkpoints stay, 0 for all")
        try:
            self.path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UsageError(
                f"checkpoint folder '{self.path}' cannot be made: {error.strerror or error}"
            ) from None

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """No other run may use the folder meanwhile; drafts of a killed run go."""
        with (self.path / ".lock").open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise UsageError(
                    f"checkpoint folder '{self.path}' is in use by another run: name another one"
                ) from None
            for draft in self.path.glob(".step-*.tmp"):
                draft.unlink(missing_ok=True)
            yield

    def checkpoints(self) -> list[Path]:
        """Oldest first."""
        found = [(int(m[1]), p) for p in self.path.iterdir() if (m := _NAME.fullmatch(p.name))]
        return [path for _, path in sorted(found)]

    def save(self, checkpoint: Checkpoint) -> Path:
        path = self.path / f"step-{checkpoint.position.step:09d}.ckpt"
        write_checkpoint(path, checkpoint)
        if self.keep:
            for old in self.checkpoints()[: -self.keep]:
                old.unlink(missing_ok=True)
        return path

    def newest(self, program: Any) -> tuple[Path, Checkpoint] | None:
        """The newest checkpoint, None where there is none.

        Raises CheckpointError for a damaged or foreign one, offering the one before it.
        """
        paths = self.checkpoints()
        if not paths:
            return None
        try:
            checkpoint = read_checkpoint(paths[-1])
            check_program(paths[-1], checkpoint, program)
            return paths[-1], checkpoint
        except CheckpointError as error:
            raise CheckpointError(f"{error}{self._offer(paths[:-1], program)}") from error

    def _offer(self, older: list[Path], program: Any) -> str:
        for path in reversed(older):
            try:
                check_program(path, read_checkpoint(path), program)
            except CheckpointError:
                continue
            return f"; the one before it is whole: --resume-from {path}"
        return "; there is no older one that works"


def _seal(manifest: bytes) -> bytes:
    return b"manifest sha256 " + hashlib.sha256(manifest).hexdigest().encode()


def _npy(array: np.ndarray) -> bytes:
    stream = io.BytesIO()
    np.save(stream, np.ascontiguousarray(array).reshape(array.shape), allow_pickle=False)
    return stream.getvalue()


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
