"""Whole programs in the cache: building what was built before takes the time of reading a file.

The key is what a program depends on: the model's content, every option, the CPU and its threads,
and the versions of TVM, of ONNX and of this package down to the text of its modules.
"""

from __future__ import annotations

import functools
import hashlib
import os
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx

from .errors import DTRError, ProgramError

if TYPE_CHECKING:
    from .program import Program

_MOST_SHARE = 4  # a program of more than a fourth of the cache's bound is not kept


class _NoKey(Exception):
    """An option whose meaning no text tells: nothing is cached."""


def cached_program(
    model: Any, options: Mapping[str, Any], target: Any, make: Callable[[], Program]
) -> Program:
    """The program that ``make`` builds, from the cache if it was built before.

    ``options`` are all that the result depends on besides the model and the target.
    """
    from .compile.cache import KernelCache, cache_bytes, cache_folder

    cache = KernelCache(cache_folder())
    key = None if cache.folder is None else program_key(model, options, target)
    if key is None:
        return make()
    content = cache.get(key)
    if content is not None:
        program = _loaded(content)
        if program is not None:
            return program
    program = make()
    content = _saved(program)
    bound = cache_bytes()
    if content is not None and (bound is None or len(content) * _MOST_SHARE <= bound):
        cache.put(key, content)
        cache.trim()
    return program


def program_key(model: Any, options: Mapping[str, Any], target: Any) -> str | None:
    """A hexadecimal key, or None where the model or an option cannot be told from another."""
    import tvm

    from .compile.primitive import tvm_version
    from .compile.target import resolve_target

    try:
        parts = [
            _described(dict(options)),
            str(resolve_target(target)),
            str(tvm.runtime.num_threads()),
            tvm_version(),
            onnx.__version__,
            np.__version__,
            _package_digest(),
            _model_digest(model),
        ]
    except (_NoKey, OSError, DTRError):  # the build itself tells what is wrong
        return None
    return hashlib.sha256("|".join(parts).encode()).hexdigest()


def _model_digest(model: Any) -> str:
    if isinstance(model, onnx.ModelProto):
        if any(t.data_location == onnx.TensorProto.EXTERNAL for t in model.graph.initializer):
            raise _NoKey
        digest = hashlib.sha256(_without_weights(model).SerializeToString(deterministic=True))
        for tensor in model.graph.initializer:
            digest.update(_tensor_header(tensor))
            digest.update(tensor.raw_data)
        return digest.hexdigest()
    if not isinstance(model, str | os.PathLike):
        raise _NoKey
    path = Path(model)
    digest = hashlib.sha256(path.read_bytes())
    try:
        proto = onnx.load(path, load_external_data=False)
    except Exception:  # no ONNX file: the build says so
        raise _NoKey from None
    for tensor in proto.graph.initializer:
        for entry in tensor.external_data:
            if entry.key == "location":
                digest.update((path.parent / entry.value).read_bytes())
    return digest.hexdigest()


def _without_weights(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model but for its initializers, which are most of it: copying them takes seconds."""
    rest = onnx.ModelProto()
    _copy_fields(model, rest, "graph")
    _copy_fields(model.graph, rest.graph, "initializer")
    return rest


def _copy_fields(source: Any, copy: Any, left_out: str) -> None:
    for field, value in source.ListFields():
        if field.name == left_out:
            continue
        if isinstance(value, bool | int | float | str | bytes):
            setattr(copy, field.name, value)
        else:
            getattr(copy, field.name).MergeFrom(value)


def _tensor_header(tensor: onnx.TensorProto) -> bytes:
    """All of a tensor but its raw data, and how long that is."""
    rest = onnx.TensorProto()
    _copy_fields(tensor, rest, "raw_data")
    header = rest.SerializeToString(deterministic=True)
    return f"{len(header)},{len(tensor.raw_data)}:".encode() + header


@functools.cache
def _package_digest() -> str:
    """Of the text of every module and of the plugin, so that a changed package builds anew."""
    digest = hashlib.sha256()
    root = Path(__file__).parent
    for path in sorted(p for p in root.rglob("*") if p.suffix in (".py", ".so")):
        digest.update(str(path.relative_to(root)).encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()


def _described(value: Any) -> str:
    """A text that differs where two values would build different programs. Raises _NoKey."""
    if value is None or isinstance(value, str | bool | int | float):
        return f"{type(value).__name__}:{value!r}"
    if isinstance(value, list | tuple):
        return "[" + ",".join(map(_described, value)) + "]"
    if isinstance(value, Mapping):
        pairs = sorted((_described(key), _described(item)) for key, item in value.items())
        return "{" + ",".join(f"{key}={item}" for key, item in pairs) + "}"
    if isinstance(value, np.ndarray | np.generic):
        array = np.ascontiguousarray(value)
        digest = hashlib.sha256(array.tobytes()).hexdigest()
        return f"{array.dtype}{array.shape}{digest}"
    kind = type(value)
    if kind.__module__.partition(".")[0] == "tvm_dtr" and hasattr(value, "__dict__"):
        return f"{kind.__module__}.{kind.__qualname__}{_described(vars(value))}"
    raise _NoKey


def _saved(program: Program) -> bytes | None:
    """The content of the program's file, or None where it cannot be had."""
    from .program_file import program_bytes

    try:
        return program_bytes(program)
    except (ProgramError, OSError) as error:
        warnings.warn(f"the program is not cached: {error}", stacklevel=2)
        return None


def _loaded(content: bytes) -> Program | None:
    from .program_file import program_from

    try:
        return program_from(content)
    except ProgramError:  # of an older format
        return None
