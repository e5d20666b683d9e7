"""The event trace file: a header and records of 16 bytes that stream in while a program runs.

docs/file-formats.md describes it. The records are written by src/core/event_trace.cc; both sides
share the numbers of ``Kind``.
"""

from __future__ import annotations

import enum
import gzip
import json
import os
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import UsageError
from .header import checked_header

MAGIC = b"tvm-dtr\x00"
VERSION = 1
SUFFIXES = (".dtrace", ".dtrace.gz")
_GZIP = b"\x1f\x8b"
_LARGEST = 512 << 20  # bytes of records: what reading holds is some ten times as much
_LARGEST_HEADER = 256 << 20  # bytes of its JSON
_FIXED = len(MAGIC) + 8  # magic, version, bytes of the header that follows
_RECORD = np.dtype(
    [("ns", "<u4"), ("kind", "u1"), ("high", "u1"), ("aux", "<u2"), ("id", "<u4"), ("low", "<u4")]
)


class Kind(enum.IntEnum):
    """What a record tells; ids, values and aux as in src/core/event_trace.h."""

    TIME = 1
    STEP = 2
    STEP_END = 3
    INVOKE = 4
    INVOKE_END = 5
    CALL = 6
    RECOMPUTE = 7
    STORAGE = 8
    ALLOCATE = 9
    FREE = 10
    EVICT = 11
    UNREFERENCED = 12
    WORKSPACE = 13
    WORKSPACE_FREE = 14
    ACTIVE = 15
    MAPPED = 16
    PIN = 17
    UNPIN = 18
    VIEW = 19
    OVERWRITE = 20
    DECISION = 21
    SEARCH = 22
    BUDGET = 23
    INPUT = 24
    OUTPUT = 25
    MADE = 26
    NOTE = 27


@dataclass
class Events:
    """A trace as read.

    header: what the trace is of (see ``tvm_dtr.trace.header``). kind, id, value, aux: one entry a
    record. ns: nanoseconds since the trace began. notes: JSON objects that were added. complete:
    whether the recording was ended, not cut off.
    """

    header: dict[str, Any]
    kind: np.ndarray
    id: np.ndarray
    value: np.ndarray
    aux: np.ndarray
    ns: np.ndarray
    notes: list[dict[str, Any]]
    complete: bool

    def __len__(self) -> int:
        return len(self.kind)


def encode_header(header: dict[str, Any]) -> bytes:
    """The file's first bytes."""
    packed = zlib.compress(json.dumps(header, separators=(",", ":")).encode(), 6)
    sizes = VERSION.to_bytes(4, "little") + len(packed).to_bytes(4, "little")
    return MAGIC + sizes + packed


def is_event_trace(path: str | os.PathLike[str]) -> bool:
    """Whether a file begins as an event trace does, compressed or not."""
    try:
        with _open(Path(path)) as file:
            return file.read(len(MAGIC)) == MAGIC
    except (OSError, EOFError, zlib.error):
        return False


def read_header(path: str | os.PathLike[str]) -> dict[str, Any]:
    """The header alone.

    Raises:
        UsageError: the file is missing, is no event trace, or is of another version.
    """
    header, _ = _read(Path(path), records=False)
    return header


def read_events(path: str | os.PathLike[str]) -> Events:
    """Reads a trace; what a crash has cut off at its end is left out.

    Raises:
        UsageError: the file is missing, is no event trace, or is of another version.
    """
    header, body = _read(Path(path), records=True)
    whole = len(body) // _RECORD.itemsize
    records = np.frombuffer(body, _RECORD, whole)
    records, notes = _split_notes(records, body)
    value = records["low"].astype(np.int64) | (records["high"].astype(np.int64) << 32)
    passed = records["ns"].astype(np.int64)
    passed[records["kind"] == Kind.TIME] += value[records["kind"] == Kind.TIME]
    return Events(
        header=header,
        kind=records["kind"],
        id=records["id"],
        value=value,
        aux=records["aux"],
        ns=np.cumsum(passed),
        notes=notes,
        complete=any("end" in note for note in notes),
    )


def _split_notes(records: np.ndarray, body: bytes) -> tuple[np.ndarray, list[dict[str, Any]]]:
    """The records without the JSON between them, and that JSON."""
    notes: list[dict[str, Any]] = []
    kept: list[np.ndarray] = []
    start = 0
    size = _RECORD.itemsize
    while True:
        found = np.flatnonzero(records["kind"][start:] == Kind.NOTE)
        if not len(found):
            return np.concatenate([*kept, records[start:]]), notes
        at = start + int(found[0])
        length = int(records["low"][at])
        text = body[(at + 1) * size : (at + 1) * size + length]
        kept.append(records[start : at + 1])
        start = at + 1 + -(-length // size)
        note = _note(text) if len(text) == length else None
        if note is not None:
            notes.append(note)


def _note(text: bytes) -> dict[str, Any] | None:
    """What a note says; None where it is damaged."""
    try:
        note = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return note if isinstance(note, dict) else None


def _header(packed: bytes) -> dict[str, Any]:
    """Raises ValueError, zlib.error, RecursionError."""
    unpacking = zlib.decompressobj()
    text = unpacking.decompress(packed, _LARGEST_HEADER)
    if not unpacking.eof:
        raise ValueError("it is cut off, or too large")
    return checked_header(json.loads(text))


def _open(path: Path) -> Any:
    with path.open("rb") as file:
        packed = file.read(2) == _GZIP
    return gzip.open(path, "rb") if packed else path.open("rb")


def _read(path: Path, records: bool) -> tuple[dict[str, Any], bytes]:
    try:
        with _open(path) as file:
            start = file.read(_FIXED)
            if len(start) < _FIXED or start[: len(MAGIC)] != MAGIC:
                raise UsageError(
                    f"trace '{path}' is no event trace: name a file that "
                    "'tvm-dtr run --trace FILE.dtrace' wrote"
                )
            version = int.from_bytes(start[8:12], "little")
            if version != VERSION:
                raise UsageError(
                    f"trace '{path}' is of version {version} of the format, this tvm-dtr reads "
                    f"version {VERSION}: record it anew"
                )
            header = _header(file.read(int.from_bytes(start[12:16], "little")))
            return header, _rest(file, path) if records else b""
    except OSError as error:
        raise UsageError(f"trace '{path}' cannot be read: {error.strerror or error}") from error
    except (ValueError, KeyError, TypeError, EOFError, RecursionError, zlib.error) as error:
        raise UsageError(f"trace '{path}' has a damaged header: {error}") from error


def _rest(file: Any, path: Path) -> bytes:
    """To the end, or to where a compressed file was cut off."""
    parts = []
    held = 0
    try:
        while part := file.read1(1 << 16):
            parts.append(part)
            held += len(part)
            if held > _LARGEST:
                raise UsageError(
                    f"trace '{path}' has more than {_LARGEST >> 20} MiB of records, more than "
                    "can be read: record fewer steps ('tvm-dtr run --steps N')"
                )
    except (EOFError, zlib.error):
        pass
    return b"".join(parts)
