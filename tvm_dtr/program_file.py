"""Writing and reading program files: see tvm_dtr.program for what they hold."""

from __future__ import annotations

import hashlib
import io
import json
import math
import os
import re
import zipfile
import zlib
from dataclasses import asdict
from importlib import metadata
from pathlib import Path
from typing import Any, NoReturn

os.environ.setdefault("TOPHUB_LOCATION", "NONE")  # else TVM looks for tuned schedules on the net

import numpy as np
import tvm
from tvm.runtime.vm import Executable

from tvm_dtr.compile.cache import write_atomically
from tvm_dtr.compile.opgraph import OpGraph
from tvm_dtr.compile.primitive import tvm_version
from tvm_dtr.compile.target import (
    cpu_name,
    machine,
    missing_features,
    required_features,
)
from tvm_dtr.errors import MALFORMED, ProgramError, UsageError
from tvm_dtr.onnx_export import ModelSource
from tvm_dtr.program import MANIFEST, Program, private_folder
from tvm_dtr.training import Result, TensorSpec

FORMAT = "tvm-dtr program"
FORMAT_VERSION = 1
BYTECODE = "bytecode.ro"
LIBRARY = "kernels.so"
MODEL = "model.onnx"  # without the weights, which are in the state
_MEMBERS = re.compile(r"bytecode\.ro|kernels\.so|model\.onnx|state/\d{1,9}\.npy", re.ASCII)
_EPOCH = (1980, 1, 1, 0, 0, 0)  # the same program gives the same bytes
_REBUILD = "rebuild it with `tvm-dtr build`"


def write_program(program: Program, path: Path) -> None:
    """Write `program` to `path`, whole or not at all. Raises ProgramError."""
    try:
        write_atomically(path, program_bytes(program))
    except OSError as error:
        raise ProgramError(f"cannot write {path}: {error.strerror or error}") from error


def program_bytes(program: Program) -> bytes:
    """The content of the program's file."""
    code, _ = program.executable.save()
    members = {BYTECODE: bytes(code), LIBRARY: Path(program.library_path).read_bytes()}
    if program.source is not None:
        members[MODEL] = program.source.graph
    for index, spec in enumerate(program.state):
        members[f"state/{index}.npy"] = _npy(program.initial_state[spec.name])
    manifest = json.dumps(_manifest(program, members), separators=(",", ":"), sort_keys=True)
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_STORED) as archive:
        archive.writestr(zipfile.ZipInfo(MANIFEST, _EPOCH), manifest)
        for name, content in members.items():
            archive.writestr(zipfile.ZipInfo(name, _EPOCH), content)
        archive.comment = manifest_seal(manifest.encode())
    return stream.getvalue()


def manifest_seal(manifest: bytes) -> bytes:
    """The comment of the archive: it tells whether the manifest, which names all else, changed."""
    return b"manifest sha256 " + hashlib.sha256(manifest).hexdigest().encode()


def read_program(path: Path, require_sha256: str | None = None) -> Program:
    """Read a program file and unpack its library into a private folder.

    Nothing is unpacked and no native code loaded before all else in the file was found in order.
    ``require_sha256``: what the SHA-256 of the whole file must be, in hexadecimal.

    Raises:
        ProgramError: one line that names the file, what was found, what was expected and what to
            do: the file is missing, no program or damaged, of another format or TVM version, for a
            CPU that this machine is not, or not the one required.
        UsageError: ``require_sha256`` is no SHA-256.
    """
    manifest, members = checked_members(path, require_sha256)
    reason = why_not_here(path, manifest)
    if reason is not None:
        raise ProgramError(f"{path}: {reason}; {_REBUILD} on this machine")
    known = contents(path, manifest, members)
    try:
        return _with_native_code(known, members)
    except tvm.TVMError as error:
        raise ProgramError(
            f"{path}: its native code cannot be loaded ({str(error).strip().splitlines()[-1]}); "
            f"{_REBUILD}"
        ) from error


def program_from(content: bytes) -> Program:
    """The program in the content of a file whose checksum the caller has compared.

    Its members are not checked one by one again: of a large program that is a third of the time.
    Raises ProgramError for a program of another format.
    """
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        manifest = json.loads(archive.read(MANIFEST))
        _check_format(Path(MANIFEST), manifest)
        members = {name: archive.read(name) for name in manifest["sha256"]}
    return _with_native_code(contents(Path(MANIFEST), manifest, members), members)


def _manifest(program: Program, members: dict[str, bytes]) -> dict[str, Any]:
    target = tvm.target.Target(program.target)
    return {
        "format": FORMAT,
        "format_version": FORMAT_VERSION,
        "package_version": _package_version(),
        "tvm_version": tvm_version(),
        "target": program.target,
        "machine": machine(),
        "cpu": cpu_name(target),
        "cpu_features": required_features(target),
        "threads": tvm.runtime.num_threads(),
        "inputs": [asdict(spec) for spec in program.inputs],
        "state": [asdict(spec) for spec in program.state],
        "results": [asdict(result) for result in program.results],
        "parameter_names": program.parameter_names,
        "control_flow": program.control_flow,
        "measured_peak_bytes": program.measured_peak_bytes,
        "accumulate": program.accumulate,
        "graph": program.graph.to_dict(),
        "source": _source_entry(program),
        "sha256": {name: hashlib.sha256(data).hexdigest() for name, data in members.items()},
    }


def checked_members(
    path: Path, require_sha256: str | None = None
) -> tuple[dict[str, Any], dict[str, bytes]]:
    """Manifest and members of a whole program file of this format, for whatever machine.

    Raises ProgramError and UsageError as read_program does.
    """
    try:
        with zipfile.ZipFile(_required(path, require_sha256)) as archive:
            _check_archive(path, archive)
            text, seal = archive.read(MANIFEST), archive.comment
            manifest = json.loads(text)
            _check_format(path, manifest)
            if seal != manifest_seal(text):
                raise ProgramError(
                    f"{path}: the manifest does not match its checksum, it was changed after "
                    f"`tvm-dtr build` wrote it; {_REBUILD}"
                )
            sums = {str(name): str(digest) for name, digest in manifest["sha256"].items()}
            members = {name: archive.read(name) for name in sums}
    except FileNotFoundError as error:
        raise ProgramError(f"{path}: no such file; build it with `tvm-dtr build`") from error
    except OSError as error:
        raise ProgramError(f"cannot read {path}: {error.strerror or error}") from error
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError) as error:
        _damaged(path, f"not a whole program file ({error})", error)
    except MALFORMED as error:
        _damaged(path, f"not a program file, or one that lost members ({error})", error)
    for name, expected in sums.items():
        found = hashlib.sha256(members[name]).hexdigest()
        if found != expected:
            raise ProgramError(
                f"{path}: '{name}' has checksum {found[:12]}, expected {expected[:12]}; {_REBUILD}"
            )
    return manifest, members


def _required(path: Path, require_sha256: str | None) -> Path | io.BytesIO:
    """The file; where its checksum is required, the bytes that had it, whatever comes after."""
    if require_sha256 is None:
        return path
    expected = require_sha256.strip().lower()
    if not re.fullmatch("[0-9a-f]{64}", expected):
        raise UsageError(
            f"require_sha256 is {require_sha256[:80]!r}, expected the 64 hexadecimal digits that "
            "`sha256sum` prints"
        )
    content = path.read_bytes()
    found = hashlib.sha256(content).hexdigest()
    if found != expected:
        raise ProgramError(
            f"{path}: found SHA-256 {found}, expected {expected}: it is not the file that you "
            "require, and nothing in it was looked at"
        )
    return io.BytesIO(content)


def _check_archive(path: Path, archive: zipfile.ZipFile) -> None:
    """Nothing but what write_program writes: known names, each once, stored, within the file."""
    entries = archive.infolist()
    names = [entry.filename for entry in entries]
    if MANIFEST not in names:
        raise KeyError("no program manifest")
    if len(set(names)) < len(names):
        _damaged(path, "it has several members of one name", None)
    for entry in entries:
        if entry.filename != MANIFEST and not _MEMBERS.fullmatch(entry.filename):
            _damaged(path, f"it has a member {entry.filename!r}, which no program has", None)
        if entry.compress_type != zipfile.ZIP_STORED or entry.flag_bits & 1:
            _damaged(path, f"its member {entry.filename!r} is compressed or encrypted", None)
    size = archive.fp.seek(0, os.SEEK_END) if archive.fp is not None else 0
    if sum(max(entry.file_size, entry.compress_size) for entry in entries) > size:
        _damaged(path, "its members claim to be larger than the file", None)


def _damaged(path: Path, what: str, cause: BaseException | None = None) -> NoReturn:
    raise ProgramError(
        f"{path}: {what}, expected a program written by `tvm-dtr build`; {_REBUILD}"
    ) from cause


def _check_format(path: Path, manifest: dict[str, Any]) -> None:
    if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
        raise KeyError("no program manifest")
    found = manifest["format_version"]
    if found != FORMAT_VERSION:
        raise ProgramError(
            f"{path}: found format version {found}, expected {FORMAT_VERSION}; {_REBUILD} on this "
            "machine"
        )


def why_not_here(path: Path, manifest: dict[str, Any]) -> str | None:
    """Why this process cannot run a program, or None: what was found and what was expected.

    Raises ProgramError where the manifest does not tell.
    """
    try:
        return _why_not_here(manifest)
    except MALFORMED as error:
        _incomplete(path, error)


def _why_not_here(manifest: dict[str, Any]) -> str | None:
    expectations = [("TVM", "tvm_version", tvm_version()), ("machine", "machine", machine())]
    for what, key, expected in expectations:
        if manifest[key] != expected:
            return f"found {what} {manifest[key]}, expected {expected}"
    missing = missing_features(manifest["cpu_features"])
    if missing:
        return (
            f"found code for the CPU {manifest['cpu']}, expected one for this CPU, which has no "
            f"{', '.join(missing)}"
        )
    return None


def contents(path: Path, manifest: dict[str, Any], members: dict[str, bytes]) -> dict[str, Any]:
    """What a Program is made of, native code apart, checked.

    Raises ProgramError where the manifest is not complete, or members do not fit it.
    """
    try:
        return _contents(manifest, members)
    except MALFORMED as error:
        _incomplete(path, error)


def _incomplete(path: Path, error: Exception) -> NoReturn:
    raise ProgramError(f"{path}: the manifest is not complete ({error!r}); {_REBUILD}") from error


def _contents(manifest: dict[str, Any], members: dict[str, bytes]) -> dict[str, Any]:
    state = [_spec(entry) for entry in manifest["state"]]
    arrays = [_array(members[f"state/{i}.npy"], spec) for i, spec in enumerate(state)]
    graph = _graph(manifest["graph"], manifest["threads"])
    for needed in (BYTECODE, LIBRARY):
        if needed not in members:
            raise KeyError(needed)
    return {
        "graph": graph,
        "inputs": [_spec(entry) for entry in manifest["inputs"]],
        "state": state,
        "results": [Result(**entry) for entry in manifest["results"]],
        "initial_state": {spec.name: data for spec, data in zip(state, arrays, strict=True)},
        "parameter_names": manifest["parameter_names"],
        "control_flow": manifest.get("control_flow", False),
        "measured_peak_bytes": manifest.get("measured_peak_bytes"),
        "accumulate": manifest.get("accumulate", 1),
        "source": _source(manifest.get("source"), members),
        "target": manifest["target"],
    }


def _with_native_code(known: dict[str, Any], members: dict[str, bytes]) -> Program:
    library_path = private_folder() / LIBRARY
    library_path.write_bytes(members[LIBRARY])
    library = tvm.runtime.load_module(str(library_path))
    executable = Executable.load_exec(bytearray(members[BYTECODE]), library)
    return Program(executable=executable, library_path=str(library_path), **known)


def _graph(data: dict[str, Any], built_with_threads: int) -> OpGraph:
    """The graph, with room for the workspace of this machine's threads if they are more."""
    graph = OpGraph.from_dict(data)
    more = max(0, tvm.runtime.num_threads() - built_with_threads)
    for kernel in graph.kernels:
        kernel.workspace_bytes += more * kernel.thread_workspace_bytes
    return graph


def _source_entry(program: Program) -> dict[str, Any] | None:
    source = program.source
    if source is None:
        return None
    return {"loss": source.loss, "shapes": source.shapes, "dtype": source.dtype}


def _source(entry: dict[str, Any] | None, members: dict[str, bytes]) -> ModelSource | None:
    if entry is None:
        return None
    shapes = {name: tuple(shape) for name, shape in entry["shapes"].items()}
    return ModelSource(members[MODEL], entry["loss"], shapes, entry.get("dtype"))


def _spec(entry: dict[str, Any]) -> TensorSpec:
    children = entry.get("children")
    lists = {"shape": tuple(entry["shape"]), "children": children and tuple(children)}
    return TensorSpec(**(entry | lists))


def _array(data: bytes, spec: TensorSpec) -> np.ndarray:
    """A tensor of the state. Raises ValueError where it is not as the manifest says: nothing is
    allocated for a shape that the data does not fill."""
    stream = io.BytesIO(data)
    if np.lib.format.read_magic(stream) != (1, 0):
        raise ValueError(f"the array of '{spec.name}' is of another version")
    shape, _, dtype = np.lib.format.read_array_header_1_0(stream)
    if shape != spec.shape or math.prod(shape) * dtype.itemsize != len(data) - stream.tell():
        raise ValueError(f"the array of '{spec.name}' has not the bytes of {spec.shape}")
    return np.load(io.BytesIO(data), allow_pickle=False)


def _npy(array: np.ndarray) -> bytes:
    stream = io.BytesIO()
    np.save(stream, np.ascontiguousarray(array).reshape(array.shape), allow_pickle=False)
    return stream.getvalue()


def _package_version() -> str:
    try:
        return metadata.version("tvm-dtr")
    except metadata.PackageNotFoundError:
        return "0+unknown"
