"""The event trace file: a header and records of 16 bytes that stream in while a program runs.

docs/file-formats.md describes it. The records are written by src/core/event_trace.cc; both sides
share the numbers of ``Kind``.
"""

from __future__ import annotations

import gzip
import json
import os
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from ..errors import UsageError
from .header import checked_header
from .records import Blocks, Kind

MAGIC = b"tvm-dtr\x00"
VERSION = 2
SUFFIXES = (".dtrace", ".dtrace.gz")
_GZIP = b"\x1f\x8b"
_LARGEST = 512 << 20  # bytes of records: what reading holds is some ten times as much
_LARGEST_HEADER = 256 << 20  # bytes of its JSON
_FIXED = len(MAGIC) + 8  # magic, version, bytes of the header that follows


@dataclass
class Events:
    """A trace as read.

    header: what the trace is of (see ``tvm_dtr.trace.header``). kind, id, value, aux: one entry a
    record. ns: nanoseconds since the trace began. notes: JSON objects that were added. complete:
    whether the recording was ended, not cut off. damage: where the file is damaged, in a sentence;
    then the records are those before it.
    """

    header: dict[str, Any]
    kind: np.ndarray
    id: np.ndarray
    value: np.ndarray
    aux: np.ndarray
    ns: np.ndarray
    notes: list[dict[str, Any]]
    complete: bool
    damage: str | None = None

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
    return _read(Path(path), records=False)[0]


def read_events(path: str | os.PathLike[str]) -> Events:
    """Reads a trace: all whole records, up to where a crash has cut it off or it is damaged.

    Raises:
        UsageError: the file is missing, is no event trace, is of another version, or its header is
            damaged.
    """
    header, body, first, damage = _read(Path(path), records=True)
    blocks = Blocks(body)
    records = blocks.records
    value = records["low"].astype(np.int64) | (records["high"].astype(np.int64) << 32)
    passed = records["ns"].astype(np.int64)
    passed[records["kind"] == Kind.TIME] += value[records["kind"] == Kind.TIME]
    if blocks.damaged_at is not None:
        damage = f"damaged at byte {first + blocks.damaged_at}: {blocks.reason}"
    return Events(
        header=header,
        kind=records["kind"],
        id=records["id"],
        value=value,
        aux=records["aux"],
        ns=np.cumsum(passed),
        notes=blocks.notes,
        complete=damage is None and any("end" in note for note in blocks.notes),
        damage=damage,
    )


def _open(path: Path) -> Any:
    with path.open("rb") as file:
        packed = file.read(2) == _GZIP
    return gzip.open(path, "rb") if packed else path.open("rb")


def _read(path: Path, records: bool) -> tuple[dict[str, Any], bytes, int, str | None]:
    """(header, what follows it, at which byte that begins, damage of a compressed file)."""
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
            packed = _at_most(file, int.from_bytes(start[12:16], "little"))
            header = _decoded(packed)
            body, damage = _rest(file, path) if records else (b"", None)
            return header, body, _FIXED + len(packed), damage
    except OSError as error:
        raise UsageError(f"trace '{path}' cannot be read: {error.strerror or error}") from error
    except (ValueError, KeyError, TypeError, EOFError, RecursionError, zlib.error) as error:
        raise UsageError(
            f"trace '{path}' has a damaged header ({error}), without which its records tell "
            "nothing: record it anew"
        ) from error


def _at_most(file: BinaryIO, count: int) -> bytes:
    """What there is of ``count`` bytes. ``read`` would make room first for all that are asked for,
    4 GiB if a damaged file says so."""
    pieces = []
    while count > 0 and (piece := file.read(min(count, 1 << 20))):
        pieces.append(piece)
        count -= len(piece)
    return b"".join(pieces)


def _decoded(packed: bytes) -> dict[str, Any]:
    """The header. zlib's own checksum finds what has changed in it."""
    unpacker = zlib.decompressobj()
    text = unpacker.decompress(packed, _LARGEST_HEADER)
    if not unpacker.eof or unpacker.unused_data:
        raise ValueError("its length is not what the file says, or it is too large")
    return checked_header(json.loads(text))


def _rest(file: Any, path: Path) -> tuple[bytes, str | None]:
    """To the end, or to where a compressed file was cut off or is damaged."""
    parts = []
    held = 0
    damage = None
    try:
        while part := file.read1(1 << 16):
            parts.append(part)
            held += len(part)
            if held > _LARGEST:
                raise UsageError(
                    f"trace '{path}' has more than {_LARGEST >> 20} MiB of records, more than "
                    "can be read: record fewer steps ('tvm-dtr run --steps N')"
                )
    except EOFError:
        pass
    except (gzip.BadGzipFile, zlib.error) as error:
        damage = f"damaged: its compressed data cannot be read further ({error})"
    return b"".join(parts), damage
